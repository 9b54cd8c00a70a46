//! Device operations: begun by the engine, carried out on the modelled devices, held back by a scenario.

use super::World;
use super::operations::{InFlight, IoView, Loss, OpId};
use super::requests::range_of;
use super::servers::EVENT;
use super::setup::FLUSH_HELD_NS_MAX;
use super::trace::What;
use crate::content::{SECTOR, Sector, Source};
use crate::disk::faults::{Fault, Kind};
use crate::disk::{Content, FlushTicket};
use crate::oracle::Moment;
use crate::violation;
use engine::effect::{Errno, Io, IoId, IoOp, Pieces, RequestOp, Target};
use engine::units::{BLOCK_BYTES, Nanos, SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use std::collections::BTreeMap;

/// Limit of one device's operations under way: far above the need of an engine of a small cache, far below the number
/// that an engine which forgets them would reach.
const IN_FLIGHT_MAX: usize = 4096;

/// A flush that is held up looks again after this time.
const HELD_LOOK_NS: u64 = 5 * Nanos::MILLISECOND;

const LAND: u64 = 0;
const ANSWER: u64 = 1;
const TIMEOUT: u64 = 2;

fn event(op: u64, what: u64) -> u64 {
    op << 2 | what
}

/// Kind of an operation, and its first byte and length.
fn extent(op: &IoOp) -> (Kind, u64, u64) {
    match op {
        IoOp::Read { offset_bytes, into } => (Kind::Read, *offset_bytes, into.len_bytes()),
        IoOp::Write { offset_bytes, from } => (Kind::Write, *offset_bytes, from.len_bytes()),
        IoOp::Flush => (Kind::Flush, 0, 0),
        IoOp::Discard { offset_bytes, len_bytes } => (Kind::Discard, *offset_bytes, *len_bytes),
        IoOp::WriteZeroes { offset_bytes, len_bytes } => (Kind::WriteZeroes, *offset_bytes, *len_bytes),
        IoOp::Abandon(_) => (Kind::Abandon, 0, 0),
    }
}

impl World {
    pub(super) fn issued(&mut self, io: Io) {
        let op = self.next_op;
        self.next_op += 1;
        self.counts.operations += 1;
        let (kind, offset_bytes, len_bytes) = extent(&io.op);
        let view = IoView {
            id: OpId(op),
            target: io.target,
            kind,
            first: offset_bytes / 512,
            sectors: len_bytes / 512,
            has_landed: false,
        };
        if let (Target::Origin(volume), Kind::Read) = (view.target, view.kind) {
            self.behind.note_read(volume.at(), view.first, view.sectors);
        }
        let content = self.carried(&view, &io.op);
        if let Some(what) = self.improper(&view, offset_bytes, len_bytes, content.as_ref()) {
            return self.fail(violation::Kind::Effect, format!("device operation @{op}: {what}"));
        }
        if let Some(content) = &content
            && view.target == self.log_target()
            && let Some(log_end) = &mut self.log_end
        {
            log_end.issued(view.first, content, self.oracle.moment());
        }
        let (into, from, volume) = match io.op {
            IoOp::Read { into, .. } => (Some(into), None, None),
            IoOp::Write { from, .. } => (None, Some(from), None),
            IoOp::Abandon(volume) => (None, None, Some(volume)),
            _ => (None, None, None),
        };
        let server = self.servers.has(view.target);
        let (fault, ticket) = if server.is_some() { (None, None) } else { self.begun(&view) };
        let IoView { first, sectors, .. } = view;
        self.note(What::Issue { op, target: io.target, kind, first, sectors, fault });
        if fault.is_some() {
            self.counts.faults += 1;
        }
        if fault == Some(Fault::Hang) && io.target == Target::Cache && !self.is_mirrored() {
            self.cache_failed_ns.get_or_insert(self.clock.now_ns());
        }
        let is_held = self.is_manual || self.filters.iter().any(|filter| filter(&view));
        let in_flight = InFlight {
            view,
            io: io.id,
            into,
            from,
            content,
            ticket,
            begun_ns: self.clock.now_ns(),
            landed: None,
            carried_out: Vec::new(),
            fault,
            result: Ok(()),
            is_held,
            volume,
        };
        self.in_flight.insert(op, in_flight);
        match server {
            Some(volume) => self.ask_server(volume, op),
            None if !is_held => self.schedule(op),
            None => (),
        }
    }

    /// The content that a change puts on its device.
    fn carried(&mut self, view: &IoView, op: &IoOp) -> Option<Content> {
        if let IoOp::Write { from, .. } = op {
            let mut sectors: Vec<Sector> = Vec::with_capacity(view.sectors as usize);
            from.as_slice().iter().for_each(|slice| self.pool.gather(*slice, &mut sectors));
            return Some(Content::Data(sectors.into()));
        }
        // A device may keep discarded content.
        let is_zeroed = view.kind == Kind::WriteZeroes || view.kind == Kind::Discard && self.random.one_in(2);
        is_zeroed.then_some(Content::Zeroes(view.sectors))
    }

    /// Begins an operation on its device: returns the fault that it meets, and the ticket of a flush.
    fn begun(&mut self, view: &IoView) -> (Option<Fault>, Option<FlushTicket>) {
        let World { cache, mirror, origins, random, .. } = self;
        let disk = match (view.target, mirror) {
            (Target::Origin(volume), _) => &mut origins[volume.at()],
            (Target::Mirror, Some(mirror)) => mirror,
            (Target::Cache, _) => cache,
            (Target::State | Target::Mirror, _) => return (None, None),
        };
        let fault = disk.faults.draw(view.kind, view.first, view.sectors, random);
        (fault, (view.kind == Kind::Flush).then(|| disk.flush_begins()))
    }

    /// Reason why the engine may not issue an operation; `None` if it may.
    fn improper(
        &self,
        view: &IoView,
        offset_bytes: u64,
        len_bytes: u64,
        content: Option<&Content>,
    ) -> Option<String> {
        if view.target == Target::State || view.kind == Kind::Flush {
            return None;
        }
        let (disk, unit) = match view.target {
            Target::Origin(volume) => (self.origins.get(volume.at())?, 512),
            Target::Mirror => (self.mirror.as_ref()?, BLOCK_BYTES),
            _ => (&self.cache, BLOCK_BYTES),
        };
        if !offset_bytes.is_multiple_of(unit) || !len_bytes.is_multiple_of(unit) || len_bytes == 0 {
            return Some(format!("{len_bytes} bytes at {offset_bytes} are not in units of {unit}"));
        }
        if offset_bytes + len_bytes > disk.sectors() * 512 {
            return Some("it reaches past the device's end".into());
        }
        let range = SectorRange { start: view.first, sectors: view.sectors };
        let others = self.in_flight.values().filter(|other| other.view.target == view.target);
        let mut count = 0;
        for other in others {
            count += 1;
            // RULE 7: no write overlaps another one in flight: the device may carry them out in any order.
            if view.kind.is_change() && other.view.kind.is_change() && other.view.touches(range) {
                return Some(format!("it overlaps the write @{} in flight", other.view.id.0));
            }
        }
        if count >= IN_FLIGHT_MAX {
            return Some(format!("{count} operations are under way on its device"));
        }
        if let (Target::Origin(volume), Some(Content::Data(sectors))) = (view.target, content) {
            return self.misplaced(volume.at(), view.first, sectors);
        }
        None
    }

    /// Checks that an origin gets only data that clients wrote to that very place.
    fn misplaced(&self, volume: usize, first: u64, sectors: &[Sector]) -> Option<String> {
        for (at, sector) in (first..).zip(sectors) {
            let tag = sector.tag();
            let is_right = match tag.source() {
                Source::Zero => true,
                Source::Garbage => false,
                _ => self.oracle.place_of(tag) == Some((volume, at)),
            };
            if !is_right {
                return Some(format!("sector {at} of origin {volume} would get {:?}", tag.source()));
            }
            if self.behind.is_older(volume, at, tag) {
                let source = tag.source();
                return Some(format!(
                    "sector {at} of origin {volume} would get {source:?}, and has newer content"
                ));
            }
        }
        None
    }

    /// Lets an operation go on by itself.
    pub(super) fn schedule(&mut self, op: u64) {
        if let Some(volume) = self.servers.has(self.in_flight[&op].view.target) {
            return self.schedule_at_server(volume, op);
        }
        let InFlight { view, fault, landed, .. } = &self.in_flight[&op];
        let (is_cache, has_landed) =
            (matches!(view.target, Target::Cache | Target::Mirror), landed.is_some() || view.has_landed);
        let (kind, fault) = (view.kind, *fault);
        let latency = if is_cache { self.setup.cache_latency } else { self.setup.origin_latency };
        let mut takes_ns = self.random.between(latency.least_ns, latency.most_ns.max(latency.least_ns));
        match fault {
            Some(Fault::Hang) => {
                let at = self.clock.now_ns() + self.setup.device_timeout_ns;
                return self.clock.at(at, event(op, TIMEOUT));
            }
            Some(Fault::Slow { by_ns }) => takes_ns += by_ns,
            _ => (),
        }
        let now = self.clock.now_ns();
        // A failed flush has its effect when it is answered: no other one can succeed in between.
        let is_failing_flush = kind == Kind::Flush && matches!(fault, Some(Fault::Error(_)));
        // Half of the operations have their effect some time before the answer.
        if !has_landed && !is_failing_flush && self.random.one_in(2) {
            let early_ns = self.random.below(takes_ns + 1);
            self.clock.at(now + early_ns, event(op, LAND));
        }
        self.clock.at(now + takes_ns, event(op, ANSWER));
    }

    /// Whether a flush goes on because its device is given changes, and ends no flush meanwhile.
    fn is_flush_held_up(&self, op: u64) -> bool {
        let Some(InFlight { view, begun_ns, .. }) = self.in_flight.get(&op) else { return false };
        let (target, held) = (view.target, &self.setup.held_flushes);
        let is_held_up = match target {
            Target::Cache | Target::Mirror => held.cache,
            Target::Origin(_) => held.origins && self.servers.has(target).is_none(),
            Target::State => false,
        };
        let mut others = self.in_flight.values().filter(|other| other.view.target == target);
        is_held_up
            && view.kind == Kind::Flush
            && self.clock.now_ns() < begun_ns + FLUSH_HELD_NS_MAX
            && others.any(|other| other.view.kind.is_change())
    }

    pub(super) fn device_event(&mut self, event: u64) {
        let (op, what) = (event >> 2, event & 3);
        match what {
            LAND => self.land(op),
            ANSWER if self.is_flush_held_up(op) => self.clock.at(self.clock.now_ns() + HELD_LOOK_NS, event),
            ANSWER => self.answer_op(op),
            EVENT => self.server_event(event),
            _ => self.time_out(op),
        }
    }

    /// Lands an operation: it has its effect on the device.
    pub(super) fn land(&mut self, op: u64) {
        let Some(in_flight) = self.in_flight.get_mut(&op) else { return };
        if let Some(volume) = self.servers.has(in_flight.view.target) {
            return self.land_at_server(volume, op);
        }
        if in_flight.view.has_landed {
            return;
        }
        in_flight.view.has_landed = true;
        let (view, fault, volume) = (in_flight.view, in_flight.fault, in_flight.volume);
        self.note(What::Land { op });
        if view.target == Target::State {
            return self.land_note(op, volume.map_or(0, VolumeIndex::at));
        }
        if let Some(Fault::Error(errno)) = fault {
            return self.land_failed(op, view, errno);
        }
        let World { cache, mirror, origins, in_flight, pool, random, setup, .. } = self;
        let disk = match (view.target, mirror) {
            (Target::Origin(volume), _) => &mut origins[volume.at()],
            (Target::Mirror, Some(mirror)) => mirror,
            _ => cache,
        };
        let Some(in_flight) = in_flight.get_mut(&op) else { return };
        match view.kind {
            Kind::Read => {
                let mut at = view.first;
                for slice in in_flight.into.iter().flat_map(Pieces::as_slice) {
                    let sectors = u64::from(slice.len_bytes / 512);
                    pool.scatter(disk.read(at, sectors), *slice);
                    at += sectors;
                }
            }
            Kind::Flush => {
                if let Some(ticket) = in_flight.ticket {
                    disk.flushed(ticket, &mut || random.one_in(4));
                }
            }
            _ => {
                if let Some(content) = &in_flight.content {
                    let first = match fault {
                        Some(Fault::Misdirect { to }) => to,
                        _ => view.first,
                    };
                    in_flight.landed = Some(disk.land(first, content.clone()));
                    let is_kept = match view.target {
                        Target::Cache | Target::Mirror => setup.cache_keeps,
                        Target::Origin(_) | Target::State => setup.origins_keep,
                    };
                    if is_kept {
                        disk.flush_all();
                    }
                }
            }
        }
        if (view.kind == Kind::Flush || self.setup.cache_keeps) && view.target == self.log_target() {
            self.log_is_flushed();
        }
        self.check_carried(op);
        if matches!(fault, Some(Fault::Misdirect { .. })) {
            self.misdirected(op);
        }
        if view.kind == Kind::Write {
            if view.target == Target::Cache {
                self.note_known(view.first, view.sectors);
            }
            self.rot_by_chance(view.target);
        }
    }

    /// Lands the note that the cache of a volume is given up, if there is room for it.
    fn land_note(&mut self, op: u64, volume: usize) {
        let per_cent = self.setup.note_errors;
        let is_failed = per_cent > 0 && self.random.below(100) < per_cent;
        if let Some(in_flight) = self.in_flight.get_mut(&op).filter(|_| is_failed) {
            in_flight.result = Err(Errno::NOSPC);
        } else {
            (self.abandoned[volume], self.is_bypassed[volume]) = (true, true);
        }
    }

    /// Lands a failed operation: any part of a write may land, a flush may have done anything.
    fn land_failed(&mut self, op: u64, view: IoView, errno: Errno) {
        let is_half = self.is_half(view.target);
        if view.target == Target::Cache && view.kind == Kind::Read && !is_half {
            self.suspect(view.first, view.sectors);
        }
        let World { cache, mirror, origins, in_flight, random, .. } = self;
        let disk = match (view.target, mirror) {
            (Target::Origin(volume), _) => &mut origins[volume.at()],
            (Target::Mirror, Some(mirror)) => mirror,
            _ => cache,
        };
        let Some(in_flight) = in_flight.get_mut(&op) else { return };
        in_flight.result = Err(errno);
        // A device that is gone does nothing at all.
        let is_gone = disk.faults.gone.is_some();
        let mut lost = Vec::new();
        match (&in_flight.content, view.kind) {
            _ if is_gone => (),
            (Some(content), _) => {
                let kept: Vec<bool> = match random.below(3) {
                    0 => vec![false; view.sectors as usize],
                    1 => vec![true; view.sectors as usize],
                    _ => (0..view.sectors).map(|_| random.one_in(2)).collect(),
                };
                disk.land_part(view.first, content, &kept);
            }
            (None, Kind::Flush) => lost = disk.flush_failed(random),
            _ => (),
        }
        if view.target == Target::Cache && view.kind == Kind::Write {
            self.note_failed_write(view.first, view.sectors);
        }
        if view.kind == Kind::Flush {
            // Other flushes under way there cannot promise the writes that this one took.
            let others = self.in_flight.values_mut().filter(|other| {
                other.view.target == view.target && other.view.kind == Kind::Flush && !other.view.has_landed
            });
            others.for_each(|other| other.fault = Some(Fault::Error(errno)));
        }
        for (first, sectors) in lost {
            match view.target {
                Target::Origin(volume) => {
                    let sectors: Vec<u64> = (first..first + sectors).collect();
                    self.lose_at_origin(volume.at(), &sectors);
                    let at = self.oracle.moment();
                    self.remember_loss(volume.at(), op, sectors.into_iter().map(|sector| (sector, at)));
                }
                // The other half has it.
                _ if is_half => (),
                _ => {
                    self.is_cache_lossy = true;
                    self.oracle.explained.suspect_all();
                }
            }
        }
    }

    /// Checks that the bytes of a write under way do not change.
    pub(super) fn check_carried(&mut self, op: u64) {
        let InFlight { view, from, content, .. } = &self.in_flight[&op];
        let (Some(from), Some(Content::Data(carried))) = (from, content) else { return };
        let first = view.first;
        let mut rest = &carried[..];
        let is_same = from.as_slice().iter().all(|slice| {
            let (piece, behind) = rest.split_at(slice.len_bytes as usize / SECTOR);
            rest = behind;
            self.pool.holds(*slice, piece)
        });
        if !is_same || !rest.is_empty() {
            let what = format!("the content of write @{op} at sector {first} changed under way");
            self.fail(violation::Kind::Effect, what);
        }
    }

    /// Answers an operation.
    pub(super) fn answer_op(&mut self, op: u64) {
        let Some(in_flight) = self.in_flight.get(&op) else { return };
        if let Some(volume) = self.servers.has(in_flight.view.target) {
            return self.answer_at_server(volume, op);
        }
        self.land(op);
        let Some(InFlight { view, io, landed, result, .. }) = self.in_flight.remove(&op) else { return };
        if let Some(serial) = landed {
            self.disk(view.target).answered(serial);
        }
        if let Err(errno) = result {
            self.explain(&view, errno);
        }
        self.tell(op, io, view.target, result);
    }

    /// Remembers what a flush of an origin lost, until clients hear of it. Changes under way there are not among it.
    pub(super) fn remember_loss(
        &mut self,
        volume: usize,
        flush: u64,
        lost: impl Iterator<Item = (u64, Moment)>,
    ) {
        let mut sectors: BTreeMap<u64, Moment> = lost.collect();
        let origin = Target::Origin(VolumeIndex(volume as u8));
        let is_under_way = |view: &IoView| {
            view.target == origin && view.kind.is_change() && !self.servers.is_heard(volume, view.id)
        };
        let ops = self.in_flight.values().map(|in_flight| in_flight.view);
        for view in ops.filter(is_under_way) {
            sectors.retain(|sector, _| !(view.first..view.first + view.sectors).contains(sector));
        }
        let ops = std::iter::once(flush).chain(self.servers.heard(volume)).collect();
        self.losses.push(Loss { volume, ops, sectors });
    }

    /// A client's change, submitted at `at`, is answered whose content the origin has lost since, which nobody was told of yet.
    pub(super) fn lose_again(&mut self, volume: usize, range: SectorRange, at: Moment) {
        let of_flushes: Vec<&Loss> = self.losses.iter().filter(|loss| loss.volume == volume).collect();
        let is_lost = |sector: &u64| {
            let at_server = self.servers.lost_at(volume, *sector);
            let with_flushes = of_flushes.iter().filter_map(|loss| loss.sectors.get(sector).copied());
            at_server.into_iter().chain(with_flushes).any(|lost| at < lost)
        };
        let lost: Vec<u64> = (range.start..range.end()).filter(is_lost).collect();
        self.lose_at_origin(volume, &lost);
    }

    /// Tells the oracle of sectors of which an origin lost a change, where nothing but the origin had it.
    pub(super) fn lose_at_origin(&mut self, volume: usize, lost: &[u64]) {
        // Data that has been in the log as dirty stays there until a flush succeeds, or somebody discards it.
        let is_seen = |sector: &u64| self.is_bypassed[volume] || self.oracle.is_discarded(volume, *sector);
        let (lost, under_cache): (Vec<u64>, Vec<u64>) = lost.iter().copied().partition(is_seen);
        self.lost_under_cache.extend(under_cache.into_iter().map(|sector| (volume, sector)));
        let index = VolumeIndex(volume as u8);
        // A change that is durable before it is answered was answered to nobody if it is lost. When there is no engine, nobody is
        // told.
        let is_always_durable =
            self.servers.has(Target::Origin(index)).is_some() && self.setup.servers.without_flush;
        let is_told = self.engine.is_some() && !is_always_durable;
        for sector in lost {
            let is_in_cache =
                self.engine.as_ref().is_some_and(|engine| engine.is_dirty(index, sector / SECTORS_PER_BLOCK));
            if is_in_cache {
                self.lost_under_cache.insert((volume, sector));
                let may_go = self.is_being_changed(volume, sector);
                self.oracle.origin_lost_behind(volume, sector, may_go);
            } else {
                let left = self.origins[volume].read(sector, 1)[0].tag();
                self.oracle.origin_lost(volume, sector, is_told.then_some(left));
            }
        }
    }

    /// Whether a client is not answered for a change of what shares its dirty mark with a sector.
    fn is_being_changed(&self, volume: usize, sector: u64) -> bool {
        let unit_sectors = self.setup.dirty_unit_sectors();
        let start = sector / unit_sectors * unit_sectors;
        self.outstanding.values().filter(|request| request.volume == volume).any(|request| {
            let range = range_of(request.op).filter(|_| !matches!(request.op, RequestOp::Read { .. }));
            range.is_some_and(|range| range.start < start + unit_sectors && start < range.end())
        })
    }

    /// Tells the oracle of an injected error that is about to be answered.
    pub(super) fn explain(&mut self, view: &IoView, errno: Errno) {
        // One half that fails explains nothing: the other one has everything.
        if self.is_half(view.target) {
            return;
        }
        let at = self.oracle.moment();
        let range = (view.kind != Kind::Flush && view.target != Target::Cache)
            .then_some(SectorRange { start: view.first, sectors: view.sectors });
        self.oracle.explained.hit(view.target, view.kind, range, errno.is_gone(), at);
        if let (Target::Origin(volume), Kind::Flush) = (view.target, view.kind) {
            self.oracle.heard_of_loss(volume.at());
        }
    }

    pub(super) fn tell(&mut self, op: u64, io: IoId, target: Target, result: Result<(), Errno>) {
        self.note(What::Done { op, errno: result.map_or_else(|errno| errno.0, |()| 0) });
        if result.is_err() && self.is_half(target) {
            self.half_failed_at = Some(self.oracle.moment());
        }
        let now = Nanos(self.clock.now_ns());
        if self.violation.is_none()
            && let Some(engine) = &mut self.engine
        {
            engine.complete(now, io, result, &mut self.pool);
        }
        self.called();
        if let (Err(_), Target::Origin(volume)) = (result, target)
            && self.is_absent(volume.at())
        {
            let at = self.oracle.moment();
            self.oracle.explained.seen_absent(volume.at(), at);
        }
    }

    /// Runs into the driver's timeout: the operation's device is gone, and all that is under way there. Some of it
    /// may still land.
    fn time_out(&mut self, op: u64) {
        if let Some(target) = self.in_flight.get(&op).map(|in_flight| in_flight.view.target) {
            self.time_out_device(target);
        }
    }

    pub(super) fn time_out_device(&mut self, target: Target) {
        let server = self.servers.has(target);
        if let Some(volume) = server {
            self.end_server(volume);
        }
        self.disk(target).faults.gone = Some(Errno::TIMEDOUT);
        let concerned = |in_flight: &InFlight| in_flight.view.target == target;
        let ops: Vec<u64> =
            self.in_flight.iter().filter(|(_, in_flight)| concerned(in_flight)).map(|(op, _)| *op).collect();
        for op in ops {
            let Some(in_flight) = self.in_flight.remove(&op) else { continue };
            let InFlight { view, io, content, mut landed, .. } = in_flight;
            self.explain(&view, Errno::TIMEDOUT);
            if target == Target::Cache && view.kind == Kind::Read && !self.is_half(target) {
                self.suspect(view.first, view.sectors);
            }
            if let (false, Some(content)) = (view.has_landed, content)
                && server.is_none()
                && self.random.one_in(2)
            {
                landed = Some(self.disk(target).land(view.first, content));
            }
            // It is over: later writes there come after it, and later flushes cover it.
            if let Some(serial) = landed {
                self.disk(target).answered(serial);
            }
            self.tell(op, io, target, Err(Errno::TIMEDOUT));
        }
    }
}
