//! The clients: requests, their answers, and the oracle's verdict on them.

use super::World;
use super::requests::{Answer, Outstanding, Ticket, bypasses, name_of, range_of};
use super::trace::What;
use crate::content::Tag;
use crate::oracle::{Change, Moment};
use crate::violation::{Kind, Violation};
use engine::effect::{Errno, Request, RequestId, RequestOp, WriteMode};
use engine::engine::Scrubbed;
use engine::memory::Memory;
use engine::pair::Standing;
use engine::status::{VolumeState, VolumeStatus};
use engine::units::{Nanos, SectorRange, VolumeIndex};

/// Events without an answer after which a request counts as never answered.
const PATIENCE_STEPS: u64 = 200_000;

impl World {
    /// Reads a range.
    pub fn read(&mut self, volume: usize, range: SectorRange) -> Ticket {
        let into = self.pool.client(range.sectors);
        self.submit(volume, RequestOp::Read { range, into })
    }

    /// Brings what is not cached of some blocks into the cache.
    pub fn warm(&mut self, volume: usize, range: SectorRange) -> Ticket {
        let into = self.pool.client(range.sectors);
        self.submit(volume, RequestOp::Warm { range, into })
    }

    /// Compares what is cached of some blocks with its checksums.
    pub fn scrub(&mut self, volume: usize, range: SectorRange) -> Ticket {
        self.submit(volume, RequestOp::Scrub(range))
    }

    /// Compares the head and the summary of a segment with their checksums.
    pub fn scrub_segment(&mut self, segment: u32) -> Ticket {
        self.submit(0, RequestOp::ScrubSegment(segment))
    }

    /// Takes the bad blocks that scrubs found.
    ///
    /// # Panics
    /// If no engine runs.
    pub fn take_scrubbed(&mut self) -> Vec<Scrubbed> {
        self.engine.as_mut().expect("an engine runs").take_scrubbed()
    }

    /// Writes a new version of a range.
    pub fn write(&mut self, volume: usize, range: SectorRange) -> Ticket {
        self.write_as(volume, range, false)
    }

    /// Writes a new version of a range, durable before the answer.
    pub fn write_fua(&mut self, volume: usize, range: SectorRange) -> Ticket {
        self.write_as(volume, range, true)
    }

    fn write_as(&mut self, volume: usize, range: SectorRange, fua: bool) -> Ticket {
        let from = self.pool.client(range.sectors);
        self.submit(volume, RequestOp::Write { range, from, fua })
    }

    /// Makes all acknowledged changes durable.
    pub fn flush(&mut self, volume: usize) -> Ticket {
        self.submit(volume, RequestOp::Flush)
    }

    /// Discards a range.
    pub fn discard(&mut self, volume: usize, range: SectorRange) -> Ticket {
        self.submit(volume, RequestOp::Discard { range, fua: false })
    }

    /// Discards a range durably.
    pub fn discard_fua(&mut self, volume: usize, range: SectorRange) -> Ticket {
        self.submit(volume, RequestOp::Discard { range, fua: true })
    }

    /// Zeroes a range.
    pub fn write_zeroes(&mut self, volume: usize, range: SectorRange) -> Ticket {
        self.submit(volume, RequestOp::WriteZeroes { range, fua: false })
    }

    /// Grows the volume's origin by some sectors with content, and the volume with it.
    pub fn grow(&mut self, volume: usize, sectors: u64) -> Ticket {
        let old = self.origins[volume].sectors();
        let size = old + sectors;
        self.origins[volume].grow(size, |sector| Tag::initial(volume, sector));
        self.oracle.grow(volume, (old..size).map(|sector| Tag::initial(volume, sector)));
        // Servers tell their size to those who connect.
        self.renew_connection(volume);
        self.submit(volume, RequestOp::SetSize(size))
    }

    /// Gives up the lost blocks of a volume: each block that the cache may have lost in part may read as any earlier
    /// content, like a discarded one.
    pub fn give_up_lost(&mut self, volume: usize) -> Ticket {
        self.submit(volume, RequestOp::GiveUpLost)
    }

    /// Puts a volume that was taken off on the cache again while the engine runs, with its origin as it is.
    ///
    /// # Panics
    /// If no engine runs.
    pub fn add(&mut self, volume: usize, mode: WriteMode) -> Ticket {
        let record = self.record_of(volume, mode);
        self.begin_anew(volume);
        self.asked_add[volume] = Some(mode);
        let can_discard = self.setup.engine_config().origin_can_discard[volume];
        self.engine.as_mut().expect("an engine runs").propose(record, can_discard);
        self.submit(volume, RequestOp::Add)
    }

    /// Submits anything. A buffer in `op` must come from [`crate::memory::Pool::client`]; of a write the
    /// content is filled in here.
    pub fn submit(&mut self, volume: usize, op: RequestOp) -> Ticket {
        let id = self.next_request;
        self.next_request += 1;
        self.counts.requests += 1;
        let range = range_of(op);
        self.note(What::Submit { request: id, volume, op: name_of(op), range });
        let only_reads = matches!(op, RequestOp::Read { .. } | RequestOp::Warm { .. } | RequestOp::Scrub(_));
        if let (Some(range), false) = (range, only_reads) {
            let unit_sectors = self.setup.dirty_unit_sectors();
            self.behind.changed(volume, range, unit_sectors);
        }
        let mut buffer = None;
        let at = match op {
            RequestOp::Read { into, .. } => {
                self.pool.retain(into.buffer);
                buffer = Some(into);
                self.oracle.read_begins()
            }
            RequestOp::Write { range, from, .. } => {
                let number = self.oracle.number_write(volume, range);
                for (offset, tag) in (0..).zip(self.pool.tags_mut(from)) {
                    *tag = Tag::written(number, offset);
                }
                self.oracle.submitted(volume, range, Change::Write(number))
            }
            RequestOp::WriteZeroes { range, .. } => self.oracle.submitted(volume, range, Change::Zeroes),
            RequestOp::Discard { range, .. } => self.oracle.submitted(volume, range, Change::Discard),
            RequestOp::SetSize(sectors) => {
                self.asked_sizes.push((id, volume, sectors));
                self.oracle.moment()
            }
            RequestOp::GiveUpLost => self.oracle.given_up(volume),
            RequestOp::SetOrder(false) => {
                self.oracle.doubt_order(true);
                self.oracle.moment()
            }
            RequestOp::Detach => {
                self.asked_detach[volume] = true;
                // So is what a write that is under way leaves.
                self.dirty_at_detach[volume] = self.is_dirty(volume) || self.outstanding_of(volume) > 0;
                self.oracle.moment()
            }
            RequestOp::Rejoin => {
                self.standings_at_rejoin = self.standings();
                self.oracle.moment()
            }
            RequestOp::CancelDrain => {
                let moment = self.oracle.moment();
                self.cancelled_at[volume] = Some(moment);
                moment
            }
            RequestOp::SetMode(mode) => {
                // The engine follows the mode from now on.
                self.asked_modes.push((id, volume, mode));
                self.note_mode(volume, mode);
                self.is_bypassed[volume] |= bypasses(mode);
                self.oracle.moment()
            }
            _ => self.oracle.moment(),
        };
        self.outstanding.insert(id, Outstanding { volume, op, at, buffer });
        let request = Request { id: RequestId(id), volume: VolumeIndex(volume as u8), op };
        let now = Nanos(self.clock.now_ns());
        let taken = self.engine.as_mut().map(|engine| engine.submit(now, request, &mut self.pool));
        match taken {
            Some(Ok(())) => self.called(),
            Some(Err(_)) => self.fail(Kind::Liveness, "the engine takes no request more"),
            None => self.fail(Kind::Contract, "a request without an engine"),
        }
        Ticket(id)
    }

    /// The answer to a request, if it came.
    #[must_use]
    pub fn answer(&self, ticket: Ticket) -> Option<&Answer> {
        self.answers.get(&ticket.0)
    }

    /// Requests of a volume that were not answered yet.
    #[must_use]
    pub fn outstanding_of(&self, volume: usize) -> usize {
        self.outstanding.values().filter(|left| left.volume == volume).count()
    }

    /// Requests that were not answered yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Lets things happen until the request is answered.
    ///
    /// # Errors
    /// A violation; also if the answer does not come, for example because of what is held back.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Result<(), Errno>, Violation> {
        let mut steps = 0;
        loop {
            self.is_sound()?;
            if let Some(answer) = self.answers.get(&ticket.0) {
                return Ok(answer.result);
            }
            steps += 1;
            if !self.step()? || steps > PATIENCE_STEPS {
                self.fail(
                    Kind::Liveness,
                    format!("request #{} is never answered; {:?}", ticket.0, self.engine),
                );
            }
        }
    }

    /// Waits for the answer, which must be a success.
    ///
    /// # Errors
    /// A violation; an error is one of kind [`Kind::Contract`].
    pub fn succeed(&mut self, ticket: Ticket) -> Result<(), Violation> {
        match self.wait(ticket)? {
            Ok(()) => Ok(()),
            Err(errno) => {
                self.fail(Kind::Contract, format!("request #{} failed with errno {}", ticket.0, errno.0));
                self.is_sound()
            }
        }
    }

    /// Lets things happen until all requests are answered.
    ///
    /// # Errors
    /// A violation.
    pub fn finish(&mut self) -> Result<(), Violation> {
        let mut steps = 0;
        while !self.outstanding.is_empty() {
            steps += 1;
            if !self.step()? || steps > PATIENCE_STEPS {
                let left: Vec<String> = self
                    .outstanding
                    .iter()
                    .take(4)
                    .map(|(id, left)| format!("#{id} {} of volume {}", name_of(left.op), left.volume))
                    .collect();
                let (count, left) = (self.outstanding.len(), left.join(", "));
                let what = format!("{count} requests are never answered: {left}; {:?}", self.engine);
                self.fail(Kind::Liveness, what.chars().take(9000).collect::<String>());
            }
        }
        self.is_sound()
    }

    /// Whether a drain of the volume is not answered yet.
    #[must_use]
    pub fn is_draining(&self, volume: usize) -> bool {
        self.outstanding.values().any(|left| left.volume == volume && matches!(left.op, RequestOp::Drain))
    }

    /// Lets things happen until all injected faults are reported: an operation of the engine's own may fail when no
    /// request waits for it, and after its device was healed.
    ///
    /// # Errors
    /// A violation.
    pub fn tell_faults(&mut self) -> Result<(), Violation> {
        // Nothing is held back here, so each of these operations has an event of its own to come.
        while self.has_faults_under_way() && self.step()? {}
        self.is_sound()
    }

    /// Submits a request of the operator, and waits for the answer.
    ///
    /// # Errors
    /// A violation.
    pub fn ask(&mut self, volume: usize, op: RequestOp) -> Result<Result<(), Errno>, Violation> {
        let ticket = self.submit(volume, op);
        self.wait(ticket)
    }

    pub(super) fn replied(&mut self, id: RequestId, result: Result<(), Errno>) {
        self.note(What::Reply { request: id.0, errno: result.map_or_else(|errno| errno.0, |()| 0) });
        let Some(Outstanding { volume, op, at, buffer }) = self.outstanding.remove(&id.0) else {
            return self
                .fail(Kind::Effect, format!("request #{} is answered, but nobody waits for it", id.0));
        };
        let is_ok = result.is_ok();
        let mut found = Vec::new();
        match op {
            RequestOp::Read { range, .. } => {
                if let (true, Some(slice)) = (is_ok, buffer) {
                    found.extend_from_slice(self.pool.tags(slice));
                }
                let seen = is_ok.then_some(&found[..]);
                // Of what a server lost slots may have a copy, and either is read until the engine hears of the loss.
                let is_untold = |sector: &u64| {
                    self.setup.slots.is_some() && self.servers.lost_at(volume, *sector).is_some()
                };
                if let Err(violation) = self.oracle.read_ends(volume, range.start, at, seen, is_untold) {
                    self.violation.get_or_insert(violation);
                }
            }
            RequestOp::Write { range, fua, .. }
            | RequestOp::Discard { range, fua }
            | RequestOp::WriteZeroes { range, fua } => {
                self.oracle.changed(volume, range, at, fua, is_ok);
                self.lose_again(volume, range, at);
                let now = self.oracle.moment();
                self.oracle.explained.change_answered(volume, at, now);
                if self.setup.contract.kill_keeps_after_ns.is_some() {
                    let moment = self.oracle.moment();
                    self.changed_at.push((self.clock.now_ns(), moment));
                }
            }
            RequestOp::Flush if is_ok => {
                if let Err(violation) = self.oracle.flushed(volume, at) {
                    self.violation.get_or_insert(violation);
                }
            }
            RequestOp::SetMode(mode) if is_ok => {
                self.modes[volume] = mode;
                self.asked_modes.retain(|(asked, of, _)| *of != volume || *asked > id.0);
            }
            RequestOp::Detach => {
                self.detached[volume] = is_ok;
                // What a cache that fails has recorded is not known before the next start.
                self.asked_detach[volume] = !is_ok && self.oracle.explained.is_cache_failed();
            }
            RequestOp::Add if is_ok => {
                self.added(volume);
                self.settle_order();
            }
            RequestOp::SetOrder(is_strict) => self.order_is_set(is_strict, is_ok),
            RequestOp::SetSize(sectors) if is_ok => {
                self.setup.volumes[volume].sectors = sectors;
                self.asked_sizes.retain(|(asked, of, _)| *of != volume || *asked > id.0);
            }
            _ => (),
        }
        if let Err(errno) = result {
            self.counts.errors += 1;
            if !self.is_explained(volume, op, at, errno) {
                let what = format!("{} #{} failed with errno {} for no reason", name_of(op), id.0, errno.0);
                self.fail(Kind::Contract, what);
            }
        }
        // A discard that is durable ends like a FLUSH.
        let is_discard = matches!(op, RequestOp::Discard { fua: true, .. });
        if matches!(op, RequestOp::Flush) || (is_discard && is_ok) {
            let changes =
                self.outstanding.values().filter(|other| other.volume == volume && other.is_change());
            let oldest = changes.map(|change| change.at).min();
            self.oracle.explained.flush_answered(volume, at, oldest);
        }
        if !is_ok && matches!(op, RequestOp::Flush) {
            self.oracle.flush_failed(volume, at);
        }
        if let Some(slice) = buffer {
            self.pool.release(slice.buffer);
        }
        self.answers.insert(id.0, Answer { result, found });
        if self.answers.len() > 4096 {
            self.answers.pop_first();
        }
    }

    fn is_explained(&self, volume: usize, op: RequestOp, at: Moment, errno: Errno) -> bool {
        let explained = &self.oracle.explained;
        match op {
            // There may be too much on its way, or reads are not cached.
            RequestOp::Warm { .. } if matches!(errno, Errno::NOSPC | Errno::OPNOTSUPP) => true,
            // The cache failed, or is about to stop.
            RequestOp::Scrub(_) => {
                errno == Errno::OPNOTSUPP || explained.is_cache_failed() || self.is_stopping()
            }
            RequestOp::Read { range, .. } | RequestOp::Warm { range, .. } => {
                explained.may_fail_read(volume, range, at)
            }
            RequestOp::Discard { fua: true, .. } if explained.may_fail_flush(volume, at) => true,
            RequestOp::Write { range, .. }
            | RequestOp::Discard { range, .. }
            | RequestOp::WriteZeroes { range, .. } => {
                (self.modes[volume] == WriteMode::Readonly && errno == Errno::PERM)
                    || explained.may_fail_change(volume, range, at)
                    // RULE 9: a volume whose origin is absent may hold a limited amount of dirty data: beyond it, its
                    // writes fail.
                    || (errno == Errno::IO && explained.may_be_absent(volume) && self.was_absent(volume, at))
                    // A stop waits neither for an origin that fails nor for a share.
                    || (errno == Errno::SHUTDOWN && self.is_stopping())
            }
            RequestOp::CancelDrain => true,
            // Either end may be damaged for good, if something failed or rotted.
            RequestOp::ScrubSegment(_) => {
                let is_hurt = self.hurt().is_some() || !self.are_halves_well();
                let is_rotten = self.is_metadata_rotten || self.is_end_rotten;
                let is_gone = errno == Errno::NODEV && !self.is_served(volume);
                explained.any() || is_hurt || is_rotten || is_gone || self.is_stopping()
            }
            // There is nothing to bring up to date, or that goes on already, or has yet to end after its half failed; a half fails,
            // or a stop does not wait for it.
            RequestOp::Rejoin => match errno {
                Errno::INVAL => !self.is_mirrored() || !self.standings_at_rejoin.contains(&Standing::Out),
                Errno::BUSY => {
                    let mut others = self.outstanding.values().filter(|other| other.at < at);
                    self.standings_at_rejoin.contains(&Standing::Behind)
                        || others.any(|other| matches!(other.op, RequestOp::Rejoin))
                }
                Errno::SHUTDOWN => self.is_stopping() || self.asked_detach[volume],
                Errno::NODEV if !self.is_served(volume) => true,
                _ => self.half_failed_at.is_some_and(|moment| moment >= at),
            },
            // Refused while the block at the old end is dirty.
            RequestOp::SetSize(_) if errno == Errno::IO => true,
            // Strict order goes with writeback alone, and with one volume.
            RequestOp::SetMode(_) | RequestOp::SetOrder(_) | RequestOp::Add if errno == Errno::INVAL => {
                let is_change = |op: RequestOp| matches!(op, RequestOp::SetOrder(_));
                let mut others = self.outstanding.values();
                self.setup.is_strict() || is_change(op) || others.any(|other| is_change(other.op))
            }
            // Everything has to go home first.
            RequestOp::SetOrder(_) => {
                (errno == Errno::SHUTDOWN && self.is_stopping())
                    || (errno == Errno::IO && explained.may_be_absent(volume) && self.was_absent(volume, at))
                    || explained.is_cache_failed()
                    || explained.has_suspects(volume)
                    || explained.may_fail_flush(volume, at)
            }
            // Buckets and slots keep no minimum.
            RequestOp::SetRoom(_) if errno == Errno::OPNOTSUPP => true,
            // Ended by a request to cancel it or a stop, or what is left is lost.
            RequestOp::Drain => {
                let is_cancelled = self.cancelled_at[volume].is_some_and(|moment| moment >= at);
                (errno == Errno::SHUTDOWN && (is_cancelled || self.is_stopping()))
                    || explained.is_cache_failed()
                    || explained.has_suspects(volume)
            }
            // Refused while dirty. What went around the cache may not become durable.
            RequestOp::Detach => {
                (errno == Errno::IO && self.dirty_at_detach[volume]) || explained.may_fail_flush(volume, at)
            }
            _ => explained.may_fail_flush(volume, at),
        }
    }
}

impl World {
    /// A volume was put on the cache while the engine runs.
    fn added(&mut self, volume: usize) {
        let Some(mode) = self.asked_add[volume].take() else { return };
        self.detached[volume] = false;
        self.modes[volume] = mode;
        self.notes_on_new(volume, mode);
        self.is_bypassed[volume] = self.is_any_bypassed() || bypasses(mode);
    }

    fn was_absent(&self, volume: usize, since: Moment) -> bool {
        self.is_absent(volume) || self.oracle.explained.was_absent(volume, since)
    }

    /// Whether the engine says that it does not wait for the volume's origin any more.
    pub(super) fn is_absent(&self, volume: usize) -> bool {
        self.says(volume, |status| status.state == VolumeState::OriginAbsent)
    }

    /// Whether the engine says that something of the volume is not home.
    fn is_dirty(&self, volume: usize) -> bool {
        self.says(volume, |status| status.dirty_bytes + status.lost_bytes > 0)
    }

    /// Whether that is what the engine says of the volume.
    fn says(&self, volume: usize, what: impl Fn(&VolumeStatus) -> bool) -> bool {
        let status = self.engine.as_ref().map(engine::engine::Engine::status);
        let mut volumes = status.iter().flat_map(|status| &status.volumes);
        volumes.any(|status| status.index.at() == volume && what(status))
    }

    /// Whether a stop was asked for and not answered yet.
    fn is_stopping(&self) -> bool {
        self.outstanding.values().any(|outstanding| matches!(outstanding.op, RequestOp::Stop))
    }
}
