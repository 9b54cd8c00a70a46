//! Destage: dirty blocks go home in origin order, neighbours together, several at a time.
//!
//! A run is read from the cache, verified, written to the origin, and counts as clean only after the origin was
//! flushed (hazard 4). Two lists give the next run: `urgent`, the dirty blocks of segments about to be reclaimed, in
//! origin order, each taken along with its dirty neighbours; and the sweep, which goes round the whole volume by its
//! dirty map.

mod choice;
pub(crate) mod dirty_map;
mod held_back;
mod level;
pub(crate) mod order;
pub(crate) mod run;
pub(crate) mod state;
mod unreadable;

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::machine::guard::{Blocks, Hold};
use crate::machine::origin::OriginWork;
use crate::machine::volume::Volume;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u32, wide};
use crate::store::{Lookup, Store};
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, VolumeIndex};
use alloc::vec::Vec;
use choice::Choice;
use level::{Level, Moment};
use run::{Copied, Run, Written};
use state::FlushDelay;

/// A volume with nothing to start is left alone for this long, if nothing happens.
const LOOK_AGAIN_NS: u64 = 2 * Nanos::MILLISECOND;
/// After a run that could not be read the volume destages nothing for this long.
const BAD_RUN_PAUSE_NS: u64 = 20 * Nanos::MILLISECOND;
/// An origin that is left to clients who read is flushed only after this time.
const READERS_FLUSH_AFTER_NS: u64 = 10 * Nanos::SECOND;

impl Volume {
    /// Whether clients do nothing but read from the origin.
    fn is_left_to_readers(&self, now: Nanos) -> bool {
        self.destage.is_left_to_readers(self.origin.last_client_read, now)
    }

    /// How long a flush of the origin that nobody waits for is put off.
    fn flush_delay(&self, now: Nanos) -> FlushDelay {
        let after_ns = if self.is_left_to_readers(now) { READERS_FLUSH_AFTER_NS } else { 0 };
        let is_resting = !self.origin.is_rested(now);
        FlushDelay { after_ns, is_resting, is_held_on: false, dirty_blocks: self.dirty_blocks }
    }

    /// The same where much is to go home before anything of it makes room.
    fn flush_delay_in_sweep(&self, now: Nanos) -> FlushDelay {
        FlushDelay { after_ns: 0, is_held_on: true, ..self.flush_delay(now) }
    }
}

impl<S: Store> Machine<S> {
    /// Goes on with what is on its way home, as fast as it should.
    #[inline(always)]
    pub(crate) fn pump_destage<M: Memory>(&mut self, memory: &mut M) {
        if self.volumes.iter().flatten().any(Volume::has_destage_work) {
            self.destage_volumes(memory);
        }
    }

    fn destage_volumes<M: Memory>(&mut self, memory: &mut M) {
        // The clean flag is set: dirty data stays where it is, and no run begins.
        if self.superblock.clean_stop {
            return;
        }
        for index in self.volumes.indices() {
            let Some(volume) = &self.volumes[index.at()] else { continue };
            if volume.is_ordered() {
                self.destage_in_order(index, memory);
                if self.next_tick.is_none() {
                    self.want_tick(self.now.plus(self.config.tick_ns));
                }
                continue;
            }
            let has_work = volume.has_destageable() && self.latched.is_none();
            if !has_work && !volume.destage.has_written() || self.now < volume.destage.look_again {
                continue;
            }
            // What is held back is looked at when something happens: nothing of it follows from time alone.
            if self.rests(volume) && !volume.destage.has_written() {
                continue;
            }
            let (written_bytes, hit_blocks) = (volume.counters.written_bytes, volume.counters.hit_blocks);
            let now = self.now;
            self.volume_mut(index).destage.note_growth(written_bytes, hit_blocks, now);
            let pressure = S::pressure(self);
            self.volume_mut(index).destage.note_pressure(pressure, hit_blocks);
            let level = self.level(self.volume(index));
            let mut is_out_of_work = true;
            while self.volume(index).destage.in_flight < level.runs {
                is_out_of_work = !self.start_run(index, level, memory);
                if is_out_of_work {
                    break;
                }
            }
            if is_out_of_work {
                self.volume_mut(index).destage.look_again = self.now.plus(LOOK_AGAIN_NS);
            }
            let destage = &self.volume(index).destage;
            let pressure = S::pressure(self);
            // Long writes go around a full cache, and nobody waits for room in it: a flush would hold them up.
            let is_passed_by = destage.is_quick_flood_under_way(self.now) && !pressure.has_waiting;
            let is_needed = destage.drains > 0 || pressure.is_short && !is_passed_by;
            // A flush disturbs nobody while clients are silent.
            let is_silent =
                self.requests.len() == 0 && self.now.since(self.last_client) >= self.config.idle_ns;
            // More of what is urgent is to come, and makes room only when all of it is home.
            let is_on_the_way =
                destage.in_flight > 0 && (destage.has_urgent() || destage.drains > 0 || is_silent);
            let delay = match is_needed || is_silent || destage.has_urgent() {
                _ if is_passed_by => self.volume(index).flush_delay_in_sweep(self.now),
                true if is_on_the_way => self.volume(index).flush_delay_in_sweep(self.now),
                true => FlushDelay::default(),
                false => self.volume(index).flush_delay(self.now),
            };
            if destage.is_flush_due(&self.config, is_out_of_work && is_needed, delay, self.now) {
                let epoch = self.volume(index).origin.epoch;
                self.want_origin_flush(index, epoch);
            }
            if self.next_tick.is_none() {
                self.want_tick(self.now.plus(self.config.tick_ns));
            }
        }
    }

    /// The pace of a volume's destage now.
    fn level(&self, volume: &Volume) -> Level {
        Level::of(
            volume,
            &self.config,
            &Moment {
                now: self.now,
                last_client: self.last_client,
                is_latched: self.latched.is_some(),
                is_stopping: self.is_stopping,
                has_controller: self.store.has_controller(),
                holds_back_all: self.is_mutated(Mutation::HoldBackAll),
                pressure: S::pressure(self),
            },
        )
    }

    /// Whether the destage of a volume is held back, and nobody waits for it.
    pub(crate) fn rests(&self, volume: &Volume) -> bool {
        if !volume.destage.is_held_back {
            return false;
        }
        let pressure = S::pressure(self);
        volume.is_held_back(pressure, self.now)
            && (!volume.needs_destage(pressure, self.config.extents_max)
                || self.is_mutated(Mutation::HoldBackAll))
    }

    /// The choice among the dirty blocks of a volume.
    pub(crate) fn choice(&mut self, index: VolumeIndex) -> Choice<'_, S> {
        Choice {
            store: &self.store,
            volume: self.volumes.of_mut(index),
            barrier: &mut self.barrier,
            mutations: self.config.mutations,
        }
    }

    /// Starts one more run; false if there is none to start now.
    fn start_run<M: Memory>(&mut self, index: VolumeIndex, level: Level, memory: &mut M) -> bool {
        // Zeroes are cheap to bring home and take no room: they go with whatever else goes.
        if self.volume(index).zero_blocks > 0 && S::start_zero_run(self, index) {
            return true;
        }
        let mut tries = self.volume(index).destage.urgent.len();
        while tries > 0 {
            tries -= 1;
            let Some(block) = self.volume_mut(index).destage.urgent.pop_front() else { break };
            if let Some(blocks) = self.choice(index).run_around(block) {
                return self.send_run(index, blocks, memory);
            }
        }
        if !level.sweeps {
            return false;
        }
        match self.choice(index).sweep() {
            Some(blocks) => {
                self.volume_mut(index).destage.cursor = blocks.end();
                self.send_run(index, blocks, memory)
            }
            None => false,
        }
    }

    /// Takes hold of a run of what the cache has now, and starts reading it.
    pub(crate) fn send_run<M: Memory>(&mut self, index: VolumeIndex, blocks: Blocks, memory: &mut M) -> bool {
        let version_of = |block| {
            let key = self.volume(index).key(block);
            let entry = self.store.lookup(key).expect("every block of a run has a copy");
            (entry.place, entry.checksum)
        };
        let versions: Vec<(Place, Option<u32>)> = (blocks.first..blocks.end()).map(version_of).collect();
        self.send_versions(index, blocks, &versions, memory)
    }

    /// Takes hold of a run of these versions of its blocks, with their checksums as far as they are known, and starts reading
    /// it.
    fn send_versions<M: Memory>(
        &mut self,
        index: VolumeIndex,
        blocks: Blocks,
        versions: &[(Place, Option<u32>)],
        memory: &mut M,
    ) -> bool {
        let bytes = blocks.count * BLOCK_BYTES;
        let Some(buffer) = self.allocate(Purpose::Payload, to_u32(bytes), memory) else { return false };
        let now = self.now;
        let volume = self.volume_mut(index);
        if !volume.is_awake(now) {
            volume.origin.last_used = Some(now);
        }
        volume.guard.acquire(blocks, Hold::Destaging);
        volume.destage.run_begins(blocks.count, now);
        S::run_begins(self, index, blocks);
        let mut copies: Vec<Copied> = Vec::new();
        for (block, &(place, _)) in (blocks.first..).zip(versions) {
            match copies.last_mut() {
                Some(last)
                    if last.place.0 + last.blocks == place.0 && self.store.is_joinable(last.place, place) =>
                {
                    last.blocks += 1;
                }
                _ => copies.push(Copied {
                    first: block,
                    blocks: 1,
                    place,
                    life: self.store.life(place),
                    is_zero: false,
                }),
            }
        }
        let checksums = versions.iter().map(|(_, checksum)| *checksum).collect();
        // Copies that lie in memory are not read from the device.
        let reads: Vec<(u64, u32, Place)> = copies
            .iter()
            .filter(|copy| {
                !copy_from_memory(&self.store, self.volume(index), copy, (buffer, blocks.first), memory)
            })
            .map(|copy| (copy.first, copy.blocks, copy.place))
            .collect();
        let is_read = reads.is_empty();
        let run = self.runs.insert(Run {
            volume: index,
            blocks,
            copies,
            checksums,
            buffer: Some(buffer),
            reads: to_u32(reads.len()),
            is_bad: false,
        });
        for (first, count, place) in reads {
            self.store.pin(place, count);
            let slice = Slice {
                buffer,
                offset_bytes: to_u32((first - blocks.first) * BLOCK_BYTES),
                len_bytes: count * to_u32(BLOCK_BYTES),
            };
            let op = IoOp::Read { offset_bytes: self.store.offset_bytes(place), into: Pieces::One(slice) };
            self.issue(Target::Cache, op, Flight::DestageRead { run, place, blocks: count });
        }
        if is_read {
            self.write_run(run, memory);
        }
        true
    }

    pub(crate) fn destage_read_done<M: Memory>(
        &mut self,
        run: usize,
        (place, blocks): (Place, u32),
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.store.unpin(place, blocks);
        let state = &mut self.runs[run];
        state.reads -= 1;
        state.is_bad |= result.is_err();
        let (index, run_blocks, left) = (state.volume, state.blocks, state.reads);
        if result.is_err_and(|errno| !errno.is_gone()) {
            let piece =
                state.copies.iter().find(|copy| copy.place == place).map_or(run_blocks.first, |c| c.first);
            let is_alone = run_blocks.count == self.store.unit(self.volume(index), run_blocks.first).count;
            for step in 0..blocks {
                let key = self.volume(index).key(piece + u64::from(step));
                self.dirty_read_failed(key, Place(place.0 + step), is_alone);
            }
        }
        if left == 0 {
            self.write_run(run, memory);
        }
    }

    /// The dirty copy of a block, at that place, could not be read; `is_alone` if nothing else was to be read.
    pub(crate) fn dirty_read_failed(&mut self, key: BlockKey, place: Place, is_alone: bool) {
        let is_newest = self.store.lookup(key).is_some_and(|cached| cached.place == place && cached.dirty);
        // Its volume may have been taken off since.
        let is_ordered = self.volumes[key.volume().at()].as_ref().is_some_and(Volume::is_ordered);
        if !is_newest && !is_ordered {
            return;
        }
        let (now, lost_after_ns) = (self.now, self.config.absent_after_ns);
        let copy = (place, self.store.life(place));
        let unreadable = &mut self.volume_mut(key.volume()).destage.unreadable;
        if unreadable.note(key.block(), copy, is_alone, now, lost_after_ns) {
            self.dirty_copy_is_lost(key, place);
        }
    }

    /// The content of a dirty copy is lost: it does not go home, and if it is the newest one reads fail from now on.
    fn dirty_copy_is_lost(&mut self, key: BlockKey, place: Place) {
        if let Some(ledger) = &mut self.volume_mut(key.volume()).destage.order {
            ledger.give_up(place);
        }
        if self.store.lookup(key).is_some_and(|cached| cached.place == place && cached.dirty) {
            S::mark_lost(self, key);
        }
    }

    /// Writes a run home once all of it is in its buffer or could not be read.
    fn write_run<M: Memory>(&mut self, run: usize, memory: &mut M) {
        let state = &mut self.runs[run];
        let (index, blocks) = (state.volume, state.blocks);
        let buffer = state.buffer.expect("a run of data has a buffer");
        if !state.is_bad {
            // RULE 10: verified before it is written home: what rotted in the cache must not overwrite the
            // origin.
            let is_unverified = self.config.mutations.has(Mutation::DestageUnverified);
            let rotten = if is_unverified { Vec::new() } else { state.rotten(memory) };
            state.is_bad = !rotten.is_empty();
            for block in blocks.first..blocks.end() {
                self.volume_mut(index).destage.unreadable.forget(block);
            }
            for (block, place) in rotten {
                let key = self.volume(index).key(block);
                self.dirty_copy_is_lost(key, place);
            }
        }
        if self.runs[run].is_bad || self.latched.is_some() {
            // The good blocks of the run are destaged later, not at once: rotten ones count as dirty until the log
            // records them as lost, and would be read again and again.
            self.end_run(run, memory);
            self.volume_mut(index).destage.look_again = self.now.plus(BAD_RUN_PAUSE_NS);
            return;
        }
        let volume = self.volume_mut(index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        let (offset_bytes, len_bytes) = volume.origin_bytes(blocks.first, blocks.count);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(len_bytes) };
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.issue_origin_write(index, blocks, op, Flight::DestageWrite { run });
    }

    pub(crate) fn destage_write_done<M: Memory>(
        &mut self,
        run: usize,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let result = if self.is_mutated(Mutation::IgnoreDestageError) { Ok(()) } else { result };
        let state = &mut self.runs[run];
        let (index, blocks) = (state.volume, state.blocks);
        let copies = core::mem::take(&mut state.copies);
        // RULE 2: a part of a failed run may have reached the origin without a flush: a read must not cache it as
        // clean.
        let now = self.now;
        let volume = self.volume_mut(index);
        let epoch = volume.origin.epoch;
        volume.origin.note_answer(now);
        volume.guard.origin_written(blocks, epoch);
        if let Err(errno) = result {
            // HAZARD 11: blocks that the origin did not take stay dirty and are tried again; called clean, they would
            // be lost.
            self.origin_failed(index, OriginWork::Write, errno);
            self.end_run(run, memory);
            return;
        }
        for copy in &copies {
            // HAZARD 4: neither zeroes nor data are home before a flush of the origin: a power cut
            // could take them from it.
            let early =
                if copy.is_zero { Mutation::ZeroDroppedEarly } else { Mutation::CleanBeforeOriginFlush };
            if self.is_mutated(early) {
                S::copy_is_home(self, index, *copy);
            }
        }
        let now = self.now;
        let held_up = wide(self.requests.len());
        let volume = self.volume_mut(index);
        volume.counters.destaged_blocks += blocks.count;
        let was_read = volume.origin.was_read(now);
        volume.destage.pause_after_run(held_up, was_read, now);
        volume.destage.run_is_home(blocks.count);
        // The next run need not wait for a look by the clock.
        volume.destage.wake();
        if volume.destage.drains > 0 {
            self.share.wake();
        }
        if self.store.is_home_when_written() {
            copies.iter().for_each(|copy| S::copy_is_home(self, index, *copy));
            self.release_guard(index, blocks, Hold::Destaging);
        } else {
            // A hold stays until the origin was flushed.
            let mut hold = Hold::Destaging;
            if !self.store.overwrites() {
                // What its blocks have next has a place of its own: it need not wait until this version is durable.
                hold = Hold::Home;
                self.volume_mut(index).guard.wrote_home(blocks);
                self.is_guard_released = true;
            }
            self.volume_mut(index).destage.add_written(Written { blocks, copies, hold: Some(hold) }, now);
        }
        let state = self.runs.remove(run);
        if let Some(buffer) = state.buffer {
            memory.release(buffer);
        }
        self.volume_mut(index).destage.in_flight -= 1;
        S::run_ends(self, index, blocks, true);
        self.origin_worked(index, OriginWork::Write);
    }

    /// Ends a run that did not go home.
    fn end_run<M: Memory>(&mut self, run: usize, memory: &mut M) {
        let state = self.runs.remove(run);
        if let Some(buffer) = state.buffer {
            memory.release(buffer);
        }
        let volume = self.volume_mut(state.volume);
        volume.destage.in_flight -= 1;
        volume.destage.wake();
        volume.destage.map.mark(state.blocks.first, state.blocks.count);
        volume.destage.spoil_order();
        S::run_ends(self, state.volume, state.blocks, false);
        self.release_guard(state.volume, state.blocks, Hold::Destaging);
    }

    /// Notes that a client's write-through reached the origin: clean after the next flush, or at once if the store
    /// does not wait for that.
    pub(crate) fn note_written_through(&mut self, index: VolumeIndex, blocks: Blocks) {
        let copies = S::written_through(self, index, blocks);
        if self.store.is_home_when_written() {
            copies.iter().for_each(|copy| S::copy_is_home(self, index, *copy));
            return;
        }
        let now = self.now;
        self.volume_mut(index).destage.add_written(Written { blocks, copies, hold: None }, now);
        self.want_tick(now.plus(self.config.tick_ns));
    }

    /// The origin's flush covers all blocks written before it: they are clean now, and the store is told.
    pub(crate) fn destaged_durably(&mut self, index: VolumeIndex) {
        self.share.wake();
        let covers_later = self.is_mutated(Mutation::OriginFlushCoversLater);
        for written in self.volume_mut(index).destage.flush_succeeded(covers_later) {
            for copy in &written.copies {
                S::copy_is_home(self, index, *copy);
            }
            if let Some(hold) = written.hold {
                self.release_guard(index, written.blocks, hold);
            }
        }
    }

    /// The origin's flush failed: blocks written before it count as not written.
    pub(crate) fn destage_flush_failed(&mut self, index: VolumeIndex) {
        self.volume_mut(index).destage.spoil_order();
        for written in self.volume_mut(index).destage.flush_failed() {
            self.volume_mut(index).was_refused = true;
            if let Some(hold) = written.hold {
                self.release_guard(index, written.blocks, hold);
            }
        }
    }
}

/// Copies what lies in memory into the buffer of a run that begins with block `first`. False if not all of it does.
fn copy_from_memory<M: Memory>(
    store: &impl Lookup,
    volume: &Volume,
    copy: &Copied,
    (buffer, first): (BufferId, u64),
    memory: &mut M,
) -> bool {
    (copy.first..copy.first + u64::from(copy.blocks)).all(|block| {
        let Some(kept) = store.kept_in_memory(volume.key(block)) else { return false };
        let offset_bytes = to_u32((block - first) * BLOCK_BYTES);
        memory.copy(kept, Slice { buffer, offset_bytes, len_bytes: to_u32(BLOCK_BYTES) });
        true
    })
}
