//! Requests of the operator: modes, size, drain, detach, stop.

use crate::effect::{Errno, IoOp, Pieces, RequestOp, Target, WriteMode};
use crate::format::{Change, Fingerprint};
use crate::machine::Machine;
use crate::machine::destage::dirty_map::DirtyMap;
use crate::machine::fingerprint::offsets_bytes;
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::origin::OriginWork;
use crate::machine::request::{Active, RequestKey, Route, Stage};
use crate::machine::volume::Standing;
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::store::{Dropping, Store};
use crate::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, VolumeIndex};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Time without any operation after which a stop does not wait any longer for requests that wait for room. Writes wait
/// for others for less than that.
const STANDSTILL_NS: u64 = 300 * Nanos::MILLISECOND;

impl<S: Store> Machine<S> {
    pub(crate) fn start_control<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (op, index) = (active.op, active.volume);
        let is_free = matches!(
            op,
            RequestOp::Stop
                | RequestOp::CancelDrain
                | RequestOp::HoldDestage(_)
                | RequestOp::SetRoom(_)
                | RequestOp::SetWearBudget(_)
        );
        if self.latched.is_some() && !is_free {
            self.fail(key, Errno::IO, memory);
            return;
        }
        match op {
            // RULE 17: what is dirty on an ephemeral cache would be nowhere else.
            RequestOp::SetMode(WriteMode::Writeback) if self.superblock.is_ephemeral => {
                self.fail(key, Errno::INVAL, memory);
            }
            // RULE 14: writes to the origin would overtake what is on its way home.
            RequestOp::SetMode(mode)
                if mode != WriteMode::Writeback
                    && (self.config.order.is_some() || self.volume(index).destage.order_changes > 0) =>
            {
                self.fail(key, Errno::INVAL, memory);
            }
            RequestOp::SetMode(mode) => self.set_mode(key, index, mode),
            RequestOp::SetSize(sectors) => self.set_size(key, index, sectors, memory),
            RequestOp::Drain => {
                let volume = self.volume_mut(index);
                volume.destage.begin_drain(volume.dirty_blocks);
                self.watch(key, Stage::Draining);
            }
            RequestOp::HoldDestage(is_held_back) => {
                let volume = self.volume_mut(index);
                volume.destage.is_held_back = is_held_back;
                volume.destage.wake();
                self.reply(key, memory);
            }
            RequestOp::SetOrder(is_strict) => self.set_order(key, index, is_strict, memory),
            RequestOp::SetRoom(room) => self.set_room(key, index, room, memory),
            RequestOp::SetWearBudget(budget) => {
                self.set_wear_budget(budget);
                self.reply(key, memory);
            }
            RequestOp::CancelDrain => {
                self.end_drains(Some(index), memory);
                self.reply(key, memory);
            }
            RequestOp::Rejoin => self.rejoin(key, memory),
            RequestOp::Detach => {
                if self.volume(index).is_dirty() {
                    self.fail(key, Errno::IO, memory);
                    return;
                }
                self.volume_mut(index).standing = Standing::Detaching;
                self.neighbours.clear(Some(index), memory);
                self.ahead.clear(Some(index), memory);
                self.watch(key, Stage::Quiet);
            }
            RequestOp::Add => self.add(key, index, memory),
            RequestOp::GiveUpLost => S::give_up_lost(self, key, memory),
            RequestOp::Stop => {
                self.is_stopping = true;
                self.neighbours.clear(None, memory);
                self.ahead.clear(None, memory);
                self.end_drains(None, memory);
                self.watch(key, Stage::Quiet);
            }
            _ => unreachable!("only the operator's requests come here"),
        }
    }

    /// Has a request wait for something that is looked at again and again.
    pub(crate) fn watch(&mut self, key: RequestKey, stage: Stage) {
        self.requests.watch(key, stage);
        self.want_tick(self.now.plus(self.config.tick_ns));
    }

    /// Has a volume's next changes go the way of `mode`.
    pub(crate) fn serve_in_mode(&mut self, index: VolumeIndex, mode: WriteMode) {
        let is_leaving = mode != WriteMode::Writeback && self.is_behind(index);
        let volume = self.volume_mut(index);
        (volume.mode, volume.is_leaving) = (mode, is_leaving);
    }

    /// Whether the cache has data of a volume that the origin lacks, or is about to.
    pub(crate) fn is_behind(&self, index: VolumeIndex) -> bool {
        // What began in writeback ends there, whatever the mode is by then.
        let is_change = |op| matches!(op, RequestOp::Write { .. } | RequestOp::WriteZeroes { .. });
        let is_about_to =
            |active: &Active| active.volume == index && active.route == Route::Log && is_change(active.op);
        self.volume(index).is_dirty() || self.requests.iter().any(|(_, active)| is_about_to(active))
    }

    fn set_mode(&mut self, key: RequestKey, index: VolumeIndex, mode: WriteMode) {
        // Writes follow the new mode from here on; what is dirty drains in the background.
        let before = self.volume(index).mode;
        self.note_change(index, "mode", before.name(), mode.name());
        let served = self.mode_on_halves(mode, self.is_alone());
        self.serve_in_mode(index, served);
        if let Some(record) = &mut self.superblock.volumes[index.at()] {
            record.mode = mode;
        }
        let update = self.superblock_writer.change(&mut self.superblock);
        self.requests.watch(key, Stage::Superblock(update));
    }

    fn set_size<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, sectors: u64, memory: &mut M) {
        let volume = self.volume(index);
        let is_allowed = sectors >= volume.size_sectors
            && sectors <= crate::units::VOLUME_BLOCKS_MAX * crate::units::SECTORS_PER_BLOCK;
        if !is_allowed {
            self.fail(key, Errno::INVAL, memory);
            return;
        }
        self.hold_end(key, index, memory);
    }

    /// Writes under way to the block at the old end are over when a growth has the block to itself.
    fn hold_end<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, memory: &mut M) {
        let end = Blocks { first: self.volume(index).blocks() - 1, count: 1 };
        self.requests[key].blocks = end;
        self.requests[key].route = Route::Origin;
        self.hold_or_wait(key, end, Hold::Merging, memory);
    }

    /// The block at the old end is held, or the cache failed meanwhile.
    pub(crate) fn begin_growth<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let Active { volume: index, blocks, .. } = self.requests[key];
        if self.latched.is_some() {
            self.fail(key, Errno::IO, memory);
        } else if blocks.end() != self.volume(index).blocks() {
            // Another growth came first: the end is elsewhere.
            self.release_hold(key);
            self.hold_end(key, index, memory);
        } else if self.take_exclusive(key) {
            self.grow(key, memory);
        }
    }

    /// Nobody else is busy with the block at the old end.
    pub(crate) fn grow<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if !self.keep_exclusive(key) {
            return;
        }
        let active = &self.requests[key];
        let RequestOp::SetSize(sectors) = active.op else { unreachable!("a volume grows") };
        let index = active.volume;
        // The cached copy of that block must not hide the origin's content behind the old end.
        match S::drop_end(self, index) {
            Dropping::Done => (),
            Dropping::Waits => {
                self.watch(key, Stage::Forgetting);
                return;
            }
            Dropping::Impossible => {
                self.fail(key, Errno::IO, memory);
                return;
            }
        }
        if self.is_mutated(Mutation::GrowBeforeDurable) {
            self.has_grown(index, sectors);
        }
        self.watch(key, Stage::Quiet);
    }

    /// The copy at the old end is durably dropped: the new size may become durable, too.
    fn record_size(&mut self, key: RequestKey, index: VolumeIndex, sectors: u64) {
        let before = self.superblock.volumes[index.at()].as_ref().map_or(0, |record| record.size_sectors);
        let [old, new] = [before, before.max(sectors)].map(|sectors| (sectors * SECTOR_BYTES).to_string());
        self.note_change(index, "size_bytes", &old, &new);
        if let Some(record) = &mut self.superblock.volumes[index.at()] {
            record.size_sectors = record.size_sectors.max(sectors);
            // Another size has other well-known places.
            record.fingerprint = Default::default();
        }
        // RULE 11: no write to the origin overtakes that, or a crash would bring the checksums back.
        let update = if self.is_mutated(Mutation::ForgetTakenBack) {
            self.superblock_writer.change(&mut self.superblock)
        } else {
            self.superblock_writer.take_back(&mut self.superblock)
        };
        self.requests.watch(key, Stage::Superblock(update));
    }

    /// RULE 11: the new size is durable, and counts. Had something behind the old end entered the cache before, it might count
    /// again when the volume grows once more after a crash.
    fn has_grown(&mut self, index: VolumeIndex, sectors: u64) {
        let volume = self.volume_mut(index);
        volume.size_sectors = volume.size_sectors.max(sectors);
        let mut map = DirtyMap::new(volume.blocks());
        core::mem::swap(&mut map, &mut volume.destage.map);
        let mut from = 0;
        while let Some(block) = map.next(from) {
            let (first, end) = map.region_of(block);
            self.volume_mut(index).destage.map.mark(first, end - first);
            from = end;
        }
    }

    /// Notes a change of a volume that is in the superblock, which is written next.
    pub(crate) fn note_change(&mut self, index: VolumeIndex, what: &str, old: &str, new: &str) {
        let name = self.superblock.volumes[index.at()].as_ref().map_or("", |record| record.name.as_str());
        let change = Change::new(self.unix_seconds, name, what, old, new);
        self.superblock.history.note(change);
    }

    fn end_drains<M: Memory>(&mut self, only: Option<VolumeIndex>, memory: &mut M) {
        let ended: Vec<RequestKey> = self
            .requests
            .watched()
            .iter()
            .copied()
            .filter(|&key| {
                let active = &self.requests[key];
                // A change of order ends with the cache alone: half of it is no order.
                let is_change = matches!(active.op, RequestOp::SetOrder(_));
                let is_meant = only.is_none_or(|index| index == active.volume && !is_change);
                active.stage == Stage::Draining && is_meant
            })
            .collect();
        for key in ended {
            self.requests.unwatch(key);
            let index = self.requests[key].volume;
            if matches!(self.requests[key].op, RequestOp::SetOrder(_)) {
                self.end_order_change(index);
            } else {
                self.end_drain(index);
            }
            self.fail(key, Errno::SHUTDOWN, memory);
        }
    }

    fn end_drain(&mut self, index: VolumeIndex) {
        self.volume_mut(index).destage.drains -= 1;
        self.share.wake();
    }

    /// Looks whether a drain, a detach or a stop can go on.
    pub(crate) fn look_at_control<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let index = active.volume;
        match active.op {
            RequestOp::Drain => self.look_at_drain(key, index, memory),
            RequestOp::SetOrder(_) => self.look_at_order(key, index, memory),
            RequestOp::Detach if self.latched.is_some() => self.fail(key, Errno::IO, memory),
            RequestOp::Detach => self.look_at_detach(key, index, memory),
            RequestOp::Stop => self.look_at_stop(key, memory),
            RequestOp::GiveUpLost | RequestOp::SetSize(_) => self.look_at_dropped(key, index, memory),
            _ => unreachable!("only these wait for quiet"),
        }
    }

    /// Lets a request that dropped blocks go on when they cannot come back after a crash.
    fn look_at_dropped<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, memory: &mut M) {
        if self.latched.is_some() {
            self.fail(key, Errno::IO, memory);
        } else if !S::is_dropped_durably(self, index) {
            self.requests.watch_on(key);
        } else if let RequestOp::SetSize(sectors) = self.requests[key].op {
            self.record_size(key, index, sectors);
        } else {
            self.reply(key, memory);
        }
    }

    fn look_at_drain<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, memory: &mut M) {
        let volume = self.volume(index);
        let origin = &volume.origin;
        let dirty_blocks = volume.dirty_blocks + volume.owed_blocks + volume.zero_blocks;
        let is_home = dirty_blocks == 0 && !volume.destage.has_ordered() && volume.destage.is_quiet();
        if is_home && !origin.is_unflushed() {
            let has_lost = volume.lost_blocks > 0;
            self.end_drain(index);
            if has_lost {
                self.fail(key, Errno::IO, memory);
            } else {
                self.reply(key, memory);
            }
            return;
        }
        if is_home {
            let epoch = origin.client_epoch;
            self.want_origin_flush(index, epoch);
        }
        self.requests.watch_on(key);
    }

    fn look_at_detach<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, memory: &mut M) {
        if self.volume(index).leaving.is_none() && !self.may_leave(key, index, memory) {
            return;
        }
        if !S::drop_part(self, index) {
            self.requests.watch_on(key);
            self.want_tick(self.now);
            return;
        }
        // Blocks may have been appended again while others were forgotten.
        if self.volume(index).leaving.is_some() && S::concerns(self, index) {
            self.requests.watch_on(key);
            return;
        }
        let origin =
            self.superblock.volumes[index.at()].as_ref().map_or_else(String::new, |r| r.origin.clone());
        self.note_change(index, "origin", &origin, "");
        self.superblock.volumes[index.at()] = None;
        let update = self.superblock_writer.change(&mut self.superblock);
        // RULE 11: a detach is answered when the volume is durably off the cache, or a crash would bring it
        // back.
        let is_hasty = self.is_mutated(Mutation::DetachBeforeDurable);
        self.requests.watch(key, Stage::Superblock(if is_hasty { 0 } else { update }));
    }

    /// Whether nothing of a volume that is being detached is on its way, and its origin has all of it. If not, the request waits or
    /// fails.
    fn may_leave<M: Memory>(&mut self, key: RequestKey, index: VolumeIndex, memory: &mut M) -> bool {
        let volume = self.volume(index);
        let origin = &volume.origin;
        let is_quiet = volume.active == 1
            && volume.destage.is_quiet()
            && !S::concerns(self, index)
            && origin.flushing.is_none()
            && origin.reads_ahead == 0
            && !origin.is_unflushed();
        if !is_quiet {
            if origin.is_unflushed() {
                if origin.is_absent() || self.is_stopping && origin.is_failing() {
                    // What clients wrote around the cache cannot be made durable: the volume stays as it is.
                    self.volume_mut(index).standing = Standing::Cached;
                    self.fail(key, Errno::IO, memory);
                    return false;
                }
                let epoch = origin.client_epoch;
                self.want_origin_flush(index, epoch);
            }
            self.requests.watch_on(key);
            return false;
        }
        if self.volume(index).is_dirty() {
            // What was on its way when the detach came is on the cache now.
            self.volume_mut(index).standing = Standing::Cached;
            self.fail(key, Errno::IO, memory);
            return false;
        }
        true
    }

    fn look_at_stop<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if self.latched.is_some() {
            // Nothing more can be made durable, but operations under way still use the driver's buffers.
            if self.outbox.in_air() > 0 || self.requests.len() > 1 {
                self.requests.watch_on(key);
            } else {
                self.reply(key, memory);
            }
            return;
        }
        self.note_standstill();
        if self.stands_still() {
            // RULE 9: what waits for room waits for ever where the origins that could make it fail.
            S::refuse_waiting(self, memory);
        }
        let mut is_ready = self.requests.len() == 1 && self.runs.is_empty();
        for at in 0..self.volumes.end() {
            let Some(volume) = &self.volumes[at] else { continue };
            let index = volume.index;
            let origin = &volume.origin;
            if origin.is_failing() {
                // The cache keeps the volume's promises; clients got the errors of writes around the cache.
                is_ready &= origin.flushing.is_none();
                continue;
            }
            if volume.destage.has_written() || origin.is_unflushed() {
                is_ready = false;
                let epoch = origin.epoch;
                if origin.flushing.is_none() {
                    self.want_origin_flush(index, epoch);
                }
            }
        }
        let published = self.store.completed();
        is_ready &= self.store.is_quiet() && self.superblock_writer.is_quiet();
        is_ready &= self.halves.as_ref().is_none_or(|halves| halves.is_quiet());
        if is_ready && self.barrier.flushed < published {
            self.barrier.want(published);
            is_ready = false;
        }
        if !is_ready || self.outbox.in_air() > 0 {
            self.requests.watch_on(key);
            self.want_tick(self.now.plus(self.config.tick_ns));
            return;
        }
        if self.renew_fingerprints(memory) {
            self.requests.watch_on(key);
            return;
        }
        if self.superblock.clean_stop {
            self.reply(key, memory);
            return;
        }
        if !S::stop(self, memory) {
            self.requests.watch_on(key);
            self.want_tick(self.now.plus(self.config.tick_ns));
            return;
        }
        self.superblock.clean_stop = true;
        self.superblock.line.is_home = self.volumes.iter().flatten().all(|volume| !volume.is_dirty());
        let update = self.superblock_writer.change(&mut self.superblock);
        self.requests.watch(key, Stage::Superblock(update));
    }

    /// Notes since when requests wait beside a stop while no device has anything to do.
    fn note_standstill(&mut self) {
        let is_still = self.requests.len() > 1 && self.outbox.in_air() == 0;
        self.still_since = is_still.then(|| self.still_since.unwrap_or(self.now));
    }

    /// Whether requests wait beside a stop for what will not happen.
    pub(crate) fn stands_still(&self) -> bool {
        let is_over = self.still_since.is_some_and(|since| self.now.since(since) >= STANDSTILL_NS);
        is_over && !self.is_mutated(Mutation::StopWaitsForRoom)
    }

    /// Starts reading the well-known places whose checksums were taken back; false if none is missing.
    fn renew_fingerprints<M: Memory>(&mut self, memory: &mut M) -> bool {
        let mut reads = Vec::new();
        for volume in self.volumes.iter().flatten() {
            let Some(record) = &self.superblock.volumes[volume.index.at()] else { continue };
            if volume.origin.is_failing() {
                continue;
            }
            let offsets = offsets_bytes(volume.size_sectors);
            for (at, (place, offset)) in record.fingerprint.iter().zip(offsets).enumerate() {
                if let (None, Some(offset)) = (place, offset) {
                    reads.push((volume.index, at, offset));
                }
            }
        }
        let mut is_reading = false;
        for (volume, at, offset_bytes) in reads {
            let Some(buffer) = self.allocate(Purpose::Payload, to_u32(BLOCK_BYTES), memory) else { break };
            let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(BLOCK_BYTES) };
            let op = IoOp::Read { offset_bytes, into: Pieces::One(slice) };
            self.volume_mut(volume).places_in_reading |= 1 << at;
            self.issue(Target::Origin(volume), op, Flight::Fingerprint { volume, at, buffer });
            is_reading = true;
        }
        is_reading
    }

    pub(crate) fn fingerprint_done<M: Memory>(
        &mut self,
        index: VolumeIndex,
        at: usize,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(BLOCK_BYTES) };
        let checksum = memory.checksum(slice);
        memory.release(buffer);
        let volume = self.volume_mut(index);
        let offset = offsets_bytes(volume.size_sectors)[at];
        // RULE 11: a destage that began beside the read may have changed the place since. The stop reads it again.
        let is_changed = volume.places_in_reading & (1 << at) == 0;
        volume.places_in_reading &= !(1 << at);
        if result.is_ok() && is_changed && !self.is_mutated(Mutation::RecordChangedPlace) {
            return;
        }
        match (result, offset, &mut self.superblock.volumes[index.at()]) {
            (Ok(()), Some(offset_bytes), Some(record)) => {
                record.fingerprint[at] = Some(Fingerprint { offset_bytes, checksum });
            }
            // A place that cannot be read is one less to compare.
            (result, ..) => {
                let errno = result.err().unwrap_or(Errno::IO);
                let (now, absent_after_ns) = (self.now, self.config.absent_after_ns);
                self.volume_mut(index).origin.note_failure(OriginWork::Look, errno, now, absent_after_ns);
            }
        }
    }

    /// The superblock that a request waited for is durable.
    pub(crate) fn superblock_durable<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        if matches!(active.op, RequestOp::Detach) {
            let index = active.volume;
            assert!(
                self.volume(index).cached_blocks == 0 && !self.volume(index).is_dirty(),
                "a volume that was detached has nothing in the cache"
            );
            self.volumes[index.at()] = None;
        }
        if let RequestOp::SetOrder(is_strict) = active.op {
            let index = active.volume;
            self.order_is_durable(index, is_strict);
        }
        if let RequestOp::SetSize(sectors) = self.requests[key].op {
            let index = self.requests[key].volume;
            self.has_grown(index, sectors);
        }
        if matches!(self.requests[key].op, RequestOp::Add) {
            let index = self.requests[key].volume;
            self.begin_added(index);
        } else if matches!(self.requests[key].op, RequestOp::Stop) {
            // Whatever else is under way ends before the answer.
            self.watch(key, Stage::Quiet);
            return;
        }
        self.reply(key, memory);
    }
}
