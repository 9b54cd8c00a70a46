//! Flushes of the cache up to a sequence and of an origin up to an epoch, the requests that wait for them, and the
//! superblock, whose update some writes to origins wait for.

use crate::effect::{Effect, Errno, IoOp, Notice, RequestOp, Target};
use crate::format::SUPERBLOCK_BYTES;
use crate::machine::Machine;
use crate::machine::fingerprint::is_place_touched;
use crate::machine::flight::Flight;
use crate::machine::guard::Blocks;
use crate::machine::lost_changes::{Group, Reached};
use crate::machine::origin::{FlushTry, OriginWork};
use crate::machine::request::{RequestKey, Stage, Then};
use crate::machine::superblock::Deferred;
use crate::machine::volume::{Standing, Volume};
use crate::memory::{Memory, Purpose};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::store::Store;
use crate::units::VolumeIndex;
use alloc::vec::Vec;

impl<S: Store> Machine<S> {
    // ---- the cache ---------------------------------------------------------------------------

    /// Lets a request go on with `then` when a flush covers `sequence`.
    pub(crate) fn wait_for_cache_flush<M: Memory>(
        &mut self,
        key: RequestKey,
        sequence: u64,
        then: Then,
        memory: &mut M,
    ) {
        if sequence <= self.barrier.flushed {
            self.requests[key].stage = Stage::CacheFlush(sequence, then);
            self.go_on(key, then, memory);
        } else {
            self.barrier.want(sequence);
            self.requests.watch(key, Stage::CacheFlush(sequence, then));
        }
    }

    fn go_on<M: Memory>(&mut self, key: RequestKey, then: Then, memory: &mut M) {
        match then {
            Then::Reply => {
                self.interval_ends(self.requests[key].volume);
                self.reply(key, memory);
            }
            Then::Origin => self.home(key, memory),
            Then::OriginFlush => {
                let epoch = self.volume(self.requests[key].volume).origin.client_epoch;
                self.wait_for_origin_flush(key, epoch, memory);
            }
            Then::Forgotten => self.origin_when_forgotten(key, memory),
        }
    }

    /// Issues a flush of the cache if one is wanted and would cover something.
    #[inline]
    pub(crate) fn pump_barrier(&mut self) {
        if self.barrier.is_waited_for() {
            self.flush_cache();
        }
    }

    #[inline(never)]
    fn flush_cache(&mut self) {
        if self.latched.is_some() || !self.store.may_flush() {
            return;
        }
        let published = self.store.completed();
        if self.barrier.begin(published) {
            self.issue(Target::Cache, IoOp::Flush, Flight::CacheFlush { sequence: published });
        }
    }

    pub(crate) fn cache_flush_done<M: Memory>(
        &mut self,
        sequence: u64,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        // HAZARD 3: a flush covers what was published when it was issued, and no more.
        let is_later = self.is_mutated(Mutation::CacheFlushCoversLater);
        let sequence = if is_later { self.store.completed() } else { sequence };
        match result {
            // After a failed flush, writes since the last good one count as not written.
            Err(errno) if !self.is_mutated(Mutation::IgnoreCacheFlushError) => {
                self.barrier.end(None);
                self.latch(errno, memory);
            }
            _ => {
                self.barrier.end(Some(sequence));
                S::flushed(self, sequence, memory);
                for volume in self.volumes.iter_mut().flatten() {
                    // Volumes in a hurry waited for this flush; the others look again by the clock.
                    if volume.destage.drains > 0 || volume.destage.has_urgent() {
                        volume.destage.wake();
                    }
                }
            }
        }
    }

    /// Requests that wait for a condition: those whose condition holds go on.
    pub(crate) fn look_at_watched<M: Memory>(&mut self, memory: &mut M) {
        let watched = self.requests.take_watched();
        for key in watched {
            let active = &self.requests[key];
            let volume_index = active.volume;
            match active.stage {
                Stage::CacheFlush(sequence, then) if sequence <= self.barrier.flushed => {
                    self.go_on(key, then, memory);
                }
                Stage::Forgetting if matches!(active.op, RequestOp::SetSize(_)) => {
                    self.begin_growth(key, memory);
                }
                Stage::Forgetting if S::is_forgotten(self, key) => self.change_origin(key, memory),
                Stage::Forgetting => {
                    S::want_forgotten(self, key);
                    if S::is_forgotten(self, key) {
                        self.change_origin(key, memory);
                    } else {
                        self.requests.watch_on(key);
                    }
                }
                Stage::OriginFlush(epoch) if epoch <= self.volume(volume_index).origin.flushed_epoch => {
                    self.reply(key, memory);
                }
                Stage::Barrier { sequence, epoch } => {
                    let is_origin_done = self.volume(volume_index).origin.flushed_epoch >= epoch;
                    let is_cache_done =
                        self.barrier.flushed >= sequence || self.is_flushed_without_cache(volume_index);
                    if is_origin_done && is_cache_done {
                        self.interval_ends(volume_index);
                        self.reply(key, memory);
                    } else {
                        self.requests.watch_on(key);
                    }
                }
                Stage::Keys(number) if self.latched.is_some() || self.store.are_logged(number) => {
                    self.start_flush(key, memory);
                }
                Stage::Superblock(update) if update <= self.superblock_writer.durable() => {
                    self.superblock_durable(key, memory);
                }
                Stage::Settling => self.look_at_settling(key, memory),
                Stage::Room if S::has_room_to_forget(self) => self.begin_change(key, memory),
                Stage::Room if self.stands_still() => self.fail(key, Errno::SHUTDOWN, memory),
                Stage::Draining | Stage::Quiet => self.look_at_control(key, memory),
                Stage::CacheFlush(..)
                | Stage::OriginFlush(_)
                | Stage::Superblock(_)
                | Stage::Keys(_)
                | Stage::Room => self.requests.watch_on(key),
                // The request went on another way since it was put on the list.
                _ => unreachable!("only waiting requests are watched"),
            }
        }
    }

    // ---- FLUSH -------------------------------------------------------------------------------

    pub(crate) fn start_flush<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let volume_index = self.requests[key].volume;
        let now = self.now;
        self.volume_mut(volume_index).origin.last_client_flush = Some(now);
        if self.volume(volume_index).standing == Standing::Failed {
            // Acknowledged writes may be gone: nothing may be promised any more.
            self.fail(key, Errno::IO, memory);
            return;
        }
        if self.latched.is_none()
            && let Some(number) = self.store.unlogged()
        {
            self.requests.watch(key, Stage::Keys(number));
            return;
        }
        if !self.tell_of_losses(key, memory) && !S::holds_flush(self, key) {
            self.flush_devices(key, memory);
        }
    }

    /// Flushes both devices for a FLUSH that the store held. What an origin lost meanwhile it has to tell, too.
    pub(crate) fn go_on_with_flush<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if !self.tell_of_losses(key, memory) {
            self.flush_devices(key, memory);
        }
    }

    /// Fails a FLUSH that has to tell of losses; false if there are none.
    fn tell_of_losses<M: Memory>(&mut self, key: RequestKey, memory: &mut M) -> bool {
        let volume_index = self.requests[key].volume;
        let (came_in, speaks) = (self.came_in(key), self.speaks_for_writes(key));
        let told = self.volume_mut(volume_index).origin.changes.tell(came_in, speaks);
        if let Some(errno) = told {
            self.fail(key, errno, memory);
        }
        told.is_some()
    }

    /// The group of calls in which a FLUSH came.
    fn came_in(&self, key: RequestKey) -> Group {
        let Group(group) = self.requests[key].came_in;
        // With the mutation an answer counts as had when it is given.
        Group(group + u64::from(self.is_mutated(Mutation::GivenIsHad)))
    }

    /// Whether the failure of a request tells its client of writes before it: who discards is told of the discard.
    fn speaks_for_writes(&self, key: RequestKey) -> bool {
        matches!(self.requests[key].op, RequestOp::Flush) || self.is_mutated(Mutation::DiscardTellsOfWrites)
    }

    /// Flushes both devices, as far as they have data that the FLUSH promises; all of that is written.
    fn flush_devices<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let volume_index = self.requests[key].volume;
        let is_cache_void = self.is_flushed_without_cache(volume_index)
            || !self.store.flush_waits_for_cache()
            || self.is_mutated(Mutation::FlushWithoutCacheFlush);
        let sequence = if is_cache_void { 0 } else { self.store.answered_sequence() };
        let is_origin_void = self.is_mutated(Mutation::FlushWithoutOriginFlush);
        let origin = &self.volume(volume_index).origin;
        let is_written = origin.is_unflushed() && !is_origin_void;
        let epoch = if is_written { origin.client_epoch } else { 0 };
        self.barrier.want(sequence);
        if epoch > 0 {
            self.want_origin_flush(volume_index, epoch);
        }
        if sequence <= self.barrier.flushed && epoch == 0 {
            self.interval_ends(volume_index);
            self.reply(key, memory);
            return;
        }
        self.requests.watch(key, Stage::Barrier { sequence, epoch });
    }

    /// Whether a cache that failed owes a FLUSH of a volume nothing. HAZARD 10: what was written through to both may be old in the
    /// cache when that comes back, which nobody reads once that is durably noted.
    fn is_flushed_without_cache(&self, volume_index: VolumeIndex) -> bool {
        let is_hasty = self.is_mutated(Mutation::FlushBeforeAbandoned);
        let is_noted = self.volume(volume_index).standing != Standing::Abandoning;
        self.latched.is_some() && (is_noted || is_hasty)
    }

    // ---- origins -----------------------------------------------------------------------------

    pub(crate) fn wait_for_origin_flush<M: Memory>(&mut self, key: RequestKey, epoch: u64, memory: &mut M) {
        let volume_index = self.requests[key].volume;
        if self.volume(volume_index).origin.flushed_epoch >= epoch {
            self.reply(key, memory);
            return;
        }
        self.requests.watch(key, Stage::OriginFlush(epoch));
        self.want_origin_flush(volume_index, epoch);
    }

    /// Asks for a flush of an origin that ends `epoch` or a later one.
    pub(crate) fn want_origin_flush(&mut self, volume_index: VolumeIndex, epoch: u64) {
        self.volume_mut(volume_index).origin.want_flush(epoch);
        self.pump_origin_flush(volume_index);
    }

    /// Issues the flush of an origin, if one is wanted and may be issued now.
    pub(crate) fn pump_origin_flush(&mut self, volume_index: VolumeIndex) {
        // A flush that no request waits for would outlive the answer of the stop: behind a clean one, where the next session tries
        // again what a failing origin lost, and beside a cache that failed.
        let is_over = self.is_stopping && self.latched.is_some() && self.requests.len() <= 1;
        if self.superblock.clean_stop || is_over {
            return;
        }
        let now = self.now;
        let volume = self.volume_mut(volume_index);
        match volume.origin.begin_flush(now) {
            FlushTry::Nothing => (),
            FlushTry::After(until) => self.want_tick(until),
            FlushTry::Begun(epoch) => {
                volume.destage.flush_begins();
                let flight = Flight::OriginFlush { volume: volume_index, epoch };
                self.issue(Target::Origin(volume_index), IoOp::Flush, flight);
            }
        }
    }

    pub(crate) fn origin_flush_done(
        &mut self,
        volume_index: VolumeIndex,
        epoch: u64,
        result: Result<(), Errno>,
    ) {
        let result = if self.is_mutated(Mutation::IgnoreOriginFlushError) { Ok(()) } else { result };
        let now = self.now;
        self.volume_mut(volume_index).origin.end_flush(epoch, result.is_ok(), now);
        match result {
            Ok(()) => {
                self.volume_mut(volume_index).guard.origin_flushed(epoch);
                self.origin_worked(volume_index, OriginWork::Flush);
                self.destaged_durably(volume_index);
            }
            Err(errno) => {
                self.origin_failed(volume_index, OriginWork::Flush, errno);
                self.destage_flush_failed(volume_index);
                S::origin_flush_failed(self, volume_index);
                self.tell_origin_flush_failed(volume_index, errno);
            }
        }
        // A request may have come for a later epoch meanwhile.
        self.pump_origin_flush(volume_index);
    }

    /// Fails the requests that wait for a flush of an origin: its promise cannot be kept. That includes those who came while
    /// the flush was under way: a device that fails a flush may have dropped any unflushed write. If none of them
    /// speaks for all changes up to now, FLUSHes fail until one does.
    fn tell_origin_flush_failed(&mut self, volume_index: VolumeIndex, errno: Errno) {
        let is_once_enough = self.is_mutated(Mutation::ToldOnce);
        let is_told_late = self.is_mutated(Mutation::ToldBehindCache);
        let mut is_told = false;
        for at in 0..self.requests.watched().len() {
            let key = self.requests.watched()[at];
            let active = &self.requests[key];
            if active.volume != volume_index {
                continue;
            }
            match active.stage {
                Stage::Barrier { epoch, .. } if epoch > 0 => {
                    let changes = &self.volume(volume_index).origin.changes;
                    let is_last = changes.are_spoken_for(self.came_in(key)) || is_once_enough;
                    is_told |= is_last && self.speaks_for_writes(key);
                }
                Stage::OriginFlush(wanted) if wanted > 0 => (),
                _ => continue,
            }
            let active = &mut self.requests[key];
            // HAZARD 11: it does not wait for the cache. A crash before its answer would leave the loss told to nobody.
            active.stage = match active.stage {
                Stage::Barrier { sequence, .. } if is_told_late => Stage::Barrier { sequence, epoch: 0 },
                _ => Stage::OriginFlush(0),
            };
            active.error = Some(errno);
        }
        let origin = &mut self.volume_mut(volume_index).origin;
        if !is_told && origin.is_unflushed() {
            origin.changes.lose(errno);
            let of_volume = self.requests.iter_mut().filter(|active| active.volume == volume_index);
            of_volume
                .filter(|active| active.reached == Reached::Origin)
                .for_each(|active| active.reached = Reached::Lost);
            if !self.is_mutated(Mutation::LossUnsaid) {
                self.push(Effect::Notice(Notice::ChangesLost { volume: volume_index, errno }));
            }
        }
    }

    /// The losses of origins of which no FLUSH has told yet.
    pub(crate) fn untold_losses(&self) -> Vec<(VolumeIndex, Errno)> {
        let untold = |volume: &Volume| Some((volume.index, volume.origin.changes.untold()?));
        self.volumes.iter().flatten().filter_map(untold).collect()
    }

    /// Takes over losses that the engine before this one did not tell its clients, who are this one's now.
    pub(crate) fn take_over_losses(&mut self, losses: &[(VolumeIndex, Errno)]) {
        for &(index, errno) in losses {
            if let Some(volume) = self.volumes.get_mut(index) {
                volume.origin.changes.lose(errno);
            }
        }
    }

    /// Notes that an origin failed the engine's own work: the engine backs off for a while.
    pub(crate) fn origin_failed(&mut self, volume_index: VolumeIndex, work: OriginWork, errno: Errno) {
        let (now, until) = (self.now, self.now.plus(self.config.backoff_ns));
        let absent_after_ns = self.config.absent_after_ns;
        let origin = &mut self.volume_mut(volume_index).origin;
        let before = (origin.is_failing(), origin.is_absent());
        origin.errors += 1;
        origin.note_failure(work, errno, now, absent_after_ns);
        origin.backoff_until = until;
        if before != (origin.is_failing(), origin.is_absent()) {
            self.share.origin_got_worse(volume_index);
        }
        self.push(Effect::Notice(Notice::OriginError { volume: volume_index, errno }));
        self.want_tick(until);
    }

    /// Notes that an origin did the engine's own work.
    pub(crate) fn origin_worked(&mut self, volume_index: VolumeIndex, work: OriginWork) {
        if self.volume_mut(volume_index).origin.note_success(work) {
            self.share.wake();
        }
    }

    /// Issues an operation that changes an origin. If it touches a well-known place whose checksum the
    /// superblock has, that checksum is taken back durably first (rule 11).
    pub(crate) fn issue_origin_write(
        &mut self,
        volume_index: VolumeIndex,
        blocks: Blocks,
        op: IoOp,
        flight: Flight<S::Flight>,
    ) {
        let target = Target::Origin(volume_index);
        let mut is_changed = false;
        let is_kept = self.is_mutated(Mutation::KeepFingerprint);
        self.volume_mut(volume_index).forget_places_in_reading(blocks);
        if let Some(record) = &mut self.superblock.volumes[volume_index.at()] {
            for place in &mut record.fingerprint {
                let is_touched =
                    place.as_ref().is_some_and(|place| is_place_touched(place.offset_bytes, blocks));
                if is_touched && !is_kept {
                    *place = None;
                    is_changed = true;
                }
            }
        }
        let is_latched = self.latched.is_some();
        if is_changed && !is_latched {
            self.superblock_writer.take_back(&mut self.superblock);
        }
        // A checksum that was taken back, by this operation or before it, may not be durably gone yet.
        match self.superblock_writer.taking_back().filter(|_| !is_latched) {
            Some(update) => self.superblock_writer.defer(update, target, op, flight),
            None => self.issue(target, op, flight),
        }
    }

    // ---- the superblock ----------------------------------------------------------------------

    /// Starts writing the superblock if it changed and is not being written.
    #[inline]
    pub(crate) fn pump_superblock<M: Memory>(&mut self, memory: &mut M) {
        if self.superblock_writer.is_due() && self.latched.is_none() {
            self.begin_superblock(memory);
        }
    }

    fn begin_superblock<M: Memory>(&mut self, memory: &mut M) {
        let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(SUPERBLOCK_BYTES), memory) else {
            return;
        };
        S::superblock_goes_out(self);
        let op = self.superblock_writer.begin(&self.superblock, buffer, memory);
        self.issue(Target::Cache, op, Flight::Superblock);
    }

    pub(crate) fn superblock_step_done<M: Memory>(&mut self, result: Result<(), Errno>, memory: &mut M) {
        let is_good = result.is_ok() && self.latched.is_none();
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        let is_together = self.is_mutated(Mutation::SuperblockCopiesTogether);
        match self.superblock_writer.step_done(is_good, is_together, memory) {
            Some(op) => self.issue(Target::Cache, op, Flight::Superblock),
            None => self.release_deferred(memory),
        }
    }

    /// Whether the cache of an origin's volume is durably given up: nothing that it says counts any more.
    fn is_uncached(&self, target: Target) -> bool {
        match target {
            Target::Origin(index) => self.volume(index).standing == Standing::Uncached,
            Target::Cache | Target::Mirror | Target::State => false,
        }
    }

    /// Issues the writes whose update of the superblock is durable. When the cache failed the superblock does not
    /// count any more for a volume whose cache is durably given up; the origin of any other one stays as it is.
    pub(crate) fn release_deferred<M: Memory>(&mut self, memory: &mut M) {
        let durable = self.superblock_writer.durable();
        for deferred in self.superblock_writer.take_deferred(self.latched.is_some()) {
            let Deferred { update, target, op, flight } = deferred;
            // An origin whose checksum is still on record would be refused if it changed.
            let is_on_record = update > durable && !self.is_uncached(target);
            match flight {
                Flight::DestageWrite { run } if update > durable => {
                    self.destage_write_done(run, Err(Errno::IO), memory);
                }
                Flight::OriginChange { request } if is_on_record => {
                    self.origin_change_done(request, Err(Errno::IO), memory);
                }
                Flight::Store(flight) if is_on_record => S::complete(self, flight, Err(Errno::IO), memory),
                flight => self.issue(target, op, flight),
            }
        }
    }
}
