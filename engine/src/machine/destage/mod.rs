//! Destage: dirty blocks go home in origin order, neighbours together, several at a time.
//!
//! A run is read from the cache, verified, written to the origin, and counts as clean only
//! after the origin was flushed (hazard 4). Two lists say what goes next: `urgent`, the dirty blocks of
//! segments about to be reclaimed, in origin order, each taken along with its dirty neighbours; and the sweep, which
//! goes round the whole volume by its dirty map.

mod choice;
mod dirty_map;
mod level;
mod unreadable;

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::machine::guard::{Blocks, Hold};
use crate::machine::share::OriginWork;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, Nanos, Place, VolumeIndex};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
pub(crate) use dirty_map::DirtyMap;
use level::Level;
use unreadable::Unreadable;

/// The shortest pause after a run while clients are busy.
const PAUSE_NS_MIN: u64 = 10 * Nanos::MILLISECOND;
/// The longest, however many clients are.
const PAUSE_NS_MAX: u64 = Nanos::SECOND;
/// What clients write in so long pieces, 128 KiB, goes home quickly, and is seldom written again soon.
const PACED_BLOCKS_MIN: u64 = 32;
/// Of what they write faster than the origin takes it no more than this is made up for later: 16 MiB.
const BEHIND_BLOCKS_MAX: u64 = 4096;
/// How long a volume with nothing to start is left alone, if nothing happens.
const LOOK_AGAIN_NS: u64 = 2 * Nanos::MILLISECOND;
/// After a run that could not be read the volume destages nothing for this long.
const BAD_RUN_PAUSE_NS: u64 = 20 * Nanos::MILLISECOND;

/// A copy that was written home: these blocks, from this place on.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    pub first: u64,
    pub blocks: u32,
    pub place: Place,
    /// The place's life then: before the origin's flush it may be freed and written again.
    pub life: u64,
    /// Zeroes recorded at `place`, not a copy of them.
    pub is_zero: bool,
}

impl Copied {
    /// Where its blocks lie, with the life of that.
    fn places(&self) -> impl Iterator<Item = (Place, u64)> + use<> {
        let (first, life) = (self.place.0, self.life);
        let blocks = if self.is_zero { 0 } else { self.blocks };
        (first..first + blocks).map(move |place| (Place(place), life))
    }
}

/// A run on its way home.
pub(crate) struct Run {
    volume: VolumeIndex,
    blocks: Blocks,
    copies: Vec<Copied>,
    checksums: Vec<Option<u32>>,
    buffer: Option<BufferId>,
    reads: u32,
    /// Blocks that turned out rotten or unreadable.
    is_bad: bool,
}

impl Run {
    /// A run of zeroes that lie nowhere.
    pub(crate) fn of_zeroes(volume: VolumeIndex, copy: Copied) -> Run {
        Run {
            volume,
            blocks: Blocks { first: copy.first, count: u64::from(copy.blocks) },
            copies: alloc::vec![copy],
            checksums: Vec::new(),
            buffer: None,
            reads: 0,
            is_bad: false,
        }
    }
}

/// What was written home and waits for the origin's flush.
struct Written {
    blocks: Blocks,
    copies: Vec<Copied>,
    /// Whether the run still holds the guard (a client's write-through does not).
    is_held: bool,
}

/// The destager of one volume.
pub(crate) struct DestageState {
    pub map: DirtyMap,
    /// Where the sweep goes on.
    cursor: u64,
    /// Where the search for zeroes goes on.
    pub zero_cursor: u64,
    /// Dirty blocks that hold up a segment, in origin order.
    urgent: VecDeque<u64>,
    pub in_flight: u32,
    written: Vec<Written>,
    written_blocks: u64,
    /// When the oldest of `written` was written.
    written_since: Nanos,
    flushing: Vec<Written>,
    /// Copies that clients' own writes brought home, among `written` and `flushing`.
    through: BTreeSet<(Place, u64)>,
    /// There was nothing to start; not looked at again before this, unless something happens.
    look_again: Nanos,
    /// Blocks of long writes for which nothing went home.
    behind_blocks: u64,
    /// When the last background run began and until when the next one waits.
    run_began: Nanos,
    pause_until: Nanos,
    /// Requests that want everything home.
    pub drains: u32,
    pub unreadable: Unreadable,
}

impl core::fmt::Debug for DestageState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DestageState")
            .field("cursor", &self.cursor)
            .field("urgent", &self.urgent.len())
            .field("in_flight", &self.in_flight)
            .field("written", &self.written.len())
            .field("flushing", &self.flushing.len())
            .field("drains", &self.drains)
            .finish_non_exhaustive()
    }
}

impl DestageState {
    pub fn new(blocks: u64) -> DestageState {
        DestageState {
            map: DirtyMap::new(blocks),
            cursor: 0,
            zero_cursor: 0,
            urgent: VecDeque::new(),
            in_flight: 0,
            written: Vec::new(),
            written_blocks: 0,
            written_since: Nanos(0),
            flushing: Vec::new(),
            through: BTreeSet::new(),
            look_again: Nanos(0),
            behind_blocks: 0,
            run_began: Nanos(0),
            pause_until: Nanos(0),
            drains: 0,
            unreadable: Unreadable::default(),
        }
    }

    /// Whether something was written home and is not known to be durable there.
    pub fn has_written(&self) -> bool {
        !self.written.is_empty() || !self.flushing.is_empty()
    }

    /// What was written through needs nothing more, or has to go home after all.
    fn forget_through(&mut self, written: &Written) {
        if !self.through.is_empty() {
            for copy in written.copies.iter().flat_map(Copied::places) {
                self.through.remove(&copy);
            }
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.in_flight == 0 && !self.has_written()
    }

    /// A flush of the origin begins: it covers what is written so far.
    pub fn flush_begins(&mut self) {
        assert!(self.flushing.is_empty());
        self.flushing = core::mem::take(&mut self.written);
        self.written_blocks = 0;
    }

    /// These blocks are dirty, with content that is new.
    pub fn dirtied(&mut self, blocks: Blocks) {
        self.map.mark(blocks.first, blocks.count);
        if blocks.count >= PACED_BLOCKS_MIN {
            self.behind_blocks = (self.behind_blocks + blocks.count).min(BEHIND_BLOCKS_MAX);
        }
    }

    /// Something happened that may have made work.
    pub fn wake(&mut self) {
        self.look_again = Nanos(0);
    }

    /// Replaces the list of urgent blocks; it is sorted and begins at the sweep's place.
    pub fn set_urgent(&mut self, mut blocks: Vec<u64>) {
        blocks.sort_unstable();
        blocks.dedup();
        let start = blocks.partition_point(|&block| block < self.cursor);
        blocks.rotate_left(start);
        self.urgent = blocks.into();
        self.wake();
    }

    /// Adds to the urgent blocks what is not among them. Wakes nobody: a run of them may have failed just now.
    pub fn add_urgent(&mut self, blocks: &[u64]) {
        let look_again = self.look_again;
        let mut all: Vec<u64> = self.urgent.iter().copied().collect();
        all.extend_from_slice(blocks);
        self.set_urgent(all);
        self.look_again = look_again;
    }

    pub fn has_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }
}

impl<S: Store> Machine<S> {
    pub(crate) fn pump_destage<M: Memory>(&mut self, memory: &mut M) {
        // The clean flag is set: what is not home stays where it is, and nothing begins any more.
        if self.superblock.clean_stop {
            return;
        }
        for at in 0..self.volumes_end {
            let Some(volume) = &self.volumes[at] else { continue };
            let has_work = volume.has_destageable() && self.latched.is_none();
            if !has_work && !volume.destage.has_written() || self.now < volume.destage.look_again {
                continue;
            }
            let index = VolumeIndex(at as u8);
            let level = self.level(volume);
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
            self.flush_written(index, is_out_of_work);
            if self.next_tick.is_none() {
                self.want_tick(self.now.plus(self.config.tick_ns));
            }
        }
    }

    /// Asks for the origin's flush when enough was written, or nothing more will be for now.
    fn flush_written(&mut self, index: VolumeIndex, is_out_of_work: bool) {
        let limit = self.config.false_dirty_blocks_max / 4;
        let now = self.now;
        let flush_after_ns = self.config.flush_after_ns;
        let volume = self.volume(index);
        let destage = &volume.destage;
        if destage.written.is_empty() {
            return;
        }
        let is_hurried = destage.drains > 0 || S::pressure(self).is_short;
        let is_due = destage.written_blocks >= limit
            || now.since(destage.written_since) >= flush_after_ns
            || (is_hurried && is_out_of_work && destage.in_flight == 0);
        if is_due {
            let epoch = volume.origin.epoch;
            self.want_origin_flush(index, epoch);
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
            if let Some(blocks) = self.run_around(index, block) {
                return self.send_run(index, blocks, memory);
            }
        }
        if !level.sweeps {
            return false;
        }
        match self.sweep(index) {
            Some(blocks) => {
                self.volume_mut(index).destage.cursor = blocks.end();
                self.send_run(index, blocks, memory)
            }
            None => false,
        }
    }

    /// Takes hold of a run and starts reading it.
    pub(crate) fn send_run<M: Memory>(&mut self, index: VolumeIndex, blocks: Blocks, memory: &mut M) -> bool {
        let bytes = blocks.count * BLOCK_BYTES;
        let Some(buffer) = self.allocate(Purpose::Payload, bytes as u32, memory) else { return false };
        let now = self.now;
        let volume = self.volume_mut(index);
        volume.guard.acquire(blocks, Hold::Destaging);
        volume.destage.in_flight += 1;
        volume.destage.behind_blocks = volume.destage.behind_blocks.saturating_sub(blocks.count);
        volume.destage.run_began = now;
        S::run_begins(self, index, blocks);
        let mut copies: Vec<Copied> = Vec::new();
        let mut checksums = Vec::with_capacity(blocks.count as usize);
        for block in blocks.first..blocks.end() {
            let entry = self.store.lookup(self.volume(index).key(block)).expect("looked at a moment ago");
            checksums.push(entry.checksum);
            match copies.last_mut() {
                Some(last)
                    if last.place.0 + last.blocks == entry.place.0
                        && self.store.is_joinable(last.place, entry.place) =>
                {
                    last.blocks += 1;
                }
                _ => copies.push(Copied {
                    first: block,
                    blocks: 1,
                    place: entry.place,
                    life: self.store.life(entry.place),
                    is_zero: false,
                }),
            }
        }
        // What lies in memory is not read.
        let reads: Vec<(u64, u32, Place)> = copies
            .iter()
            .filter(|copy| !self.copy_from_memory(index, copy, blocks.first, buffer, memory))
            .map(|copy| (copy.first, copy.blocks, copy.place))
            .collect();
        let is_read = reads.is_empty();
        let run = self.runs.insert(Run {
            volume: index,
            blocks,
            copies,
            checksums,
            buffer: Some(buffer),
            reads: reads.len() as u32,
            is_bad: false,
        });
        for (first, count, place) in reads {
            self.store.pin(place, count);
            let slice = Slice {
                buffer,
                offset_bytes: ((first - blocks.first) * BLOCK_BYTES) as u32,
                len_bytes: count * BLOCK_BYTES as u32,
            };
            let op = IoOp::Read { offset_bytes: self.store.offset_bytes(place), into: Pieces::One(slice) };
            self.issue(Target::Cache, op, Flight::DestageRead { run, place, blocks: count });
        }
        if is_read {
            self.write_run(run, memory);
        }
        true
    }

    /// Copies what lies in memory into the buffer of a run that begins with block `first`. False if not all of it does.
    fn copy_from_memory<M: Memory>(
        &self,
        index: VolumeIndex,
        copy: &Copied,
        first: u64,
        buffer: BufferId,
        memory: &mut M,
    ) -> bool {
        (copy.first..copy.first + u64::from(copy.blocks)).all(|block| {
            let Some(kept) = self.store.kept_in_memory(self.volume(index).key(block)) else { return false };
            let offset_bytes = ((block - first) * BLOCK_BYTES) as u32;
            memory.copy(kept, Slice { buffer, offset_bytes, len_bytes: BLOCK_BYTES as u32 });
            true
        })
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

    /// All of a run is in its buffer, or could not be read: it goes home.
    fn write_run<M: Memory>(&mut self, run: usize, memory: &mut M) {
        let state = &mut self.runs[run];
        let (index, blocks) = (state.volume, state.blocks);
        let buffer = state.buffer.expect("a run of data has a buffer");
        if !state.is_bad {
            // RULE 10: verified before it is written home: what rotted in the cache must not overwrite the
            // origin.
            let mut rotten: Vec<(u64, Place)> = Vec::new();
            for (step, checksum) in state.checksums.iter().enumerate() {
                let offset_bytes = step as u32 * BLOCK_BYTES as u32;
                let slice = Slice { buffer, offset_bytes, len_bytes: BLOCK_BYTES as u32 };
                let is_checked = !self.config.mutations.has(Mutation::DestageUnverified);
                let is_rotten = checksum.is_some_and(|checksum| memory.checksum(slice) != checksum);
                if is_rotten && is_checked {
                    let block = blocks.first + step as u64;
                    let copy = state.copies.iter().rfind(|copy| copy.first <= block).expect("covered");
                    rotten.push((block, Place(copy.place.0 + (block - copy.first) as u32)));
                }
            }
            state.is_bad = !rotten.is_empty();
            for block in blocks.first..blocks.end() {
                self.volume_mut(index).destage.unreadable.forget(block);
            }
            for (block, place) in rotten {
                let key = self.volume(index).key(block);
                if self.store.lookup(key).is_some_and(|cached| cached.place == place && cached.dirty) {
                    S::mark_lost(self, key);
                }
            }
        }
        if self.runs[run].is_bad || self.latched.is_some() {
            // The others of the run go home another time, and not at once: what is rotten counts as dirty until the log
            // has it as lost, and would be read again and again.
            self.end_run(run, memory);
            self.volume_mut(index).destage.look_again = self.now.plus(BAD_RUN_PAUSE_NS);
            return;
        }
        let volume = self.volume_mut(index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        let (offset_bytes, len_bytes) = volume.origin_bytes(blocks.first, blocks.count);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: len_bytes as u32 };
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
        // RULE 2: of a run that failed a part may have landed, and is not flushed: a read must not cache it
        // as clean.
        let volume = self.volume_mut(index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        match result {
            Ok(()) => {
                for copy in &copies {
                    // HAZARD 4: neither zeroes nor data are home before a flush of the origin: a power cut
                    // could take them from it.
                    match copy.is_zero {
                        true if self.is_mutated(Mutation::ZeroDroppedEarly) => {
                            S::copy_is_home(self, index, *copy)
                        }
                        false if self.is_mutated(Mutation::CleanBeforeOriginFlush) => {
                            S::copy_is_home(self, index, *copy);
                        }
                        _ => (),
                    }
                }
                let now = self.now;
                let is_home = self.store.is_home_when_written();
                let held_up = self.requests.len() as u64;
                let volume = self.volume_mut(index);
                volume.counters.destaged_blocks += blocks.count;
                let destage = &mut volume.destage;
                // While clients are busy the origin rests for as long as a run took, and no less than a
                // slow disk's seek; and the cache for as long again for each request that a run held up.
                let pause_ns = now.since(destage.run_began).max(PAUSE_NS_MIN);
                destage.pause_until = now.plus(pause_ns.saturating_mul(1 + held_up).min(PAUSE_NS_MAX));
                if is_home {
                    copies.iter().for_each(|copy| S::copy_is_home(self, index, *copy));
                    self.release_guard(index, blocks, Hold::Destaging);
                } else {
                    if destage.written.is_empty() {
                        destage.written_since = now;
                    }
                    destage.written_blocks += blocks.count;
                    // The hold stays until the origin was flushed.
                    destage.written.push(Written { blocks, copies, is_held: true });
                }
                let state = self.runs.remove(run);
                if let Some(buffer) = state.buffer {
                    memory.release(buffer);
                }
                self.volume_mut(index).destage.in_flight -= 1;
                S::run_ends(self, index, blocks, true);
                self.origin_worked(index, OriginWork::Write);
            }
            Err(errno) => {
                // HAZARD 11: what the origin did not take stays dirty and is tried again; called clean, it
                // would be lost.
                self.origin_failed(index, OriginWork::Write, errno);
                self.end_run(run, memory);
            }
        }
    }

    /// A run ends without having gone home.
    fn end_run<M: Memory>(&mut self, run: usize, memory: &mut M) {
        let state = self.runs.remove(run);
        if let Some(buffer) = state.buffer {
            memory.release(buffer);
        }
        let volume = self.volume_mut(state.volume);
        volume.destage.in_flight -= 1;
        volume.destage.wake();
        volume.destage.map.mark(state.blocks.first, state.blocks.count);
        S::run_ends(self, state.volume, state.blocks, false);
        self.release_guard(state.volume, state.blocks, Hold::Destaging);
    }

    /// A client's write-through reached the origin: clean after the next flush, or at once if nobody waits for that.
    pub(crate) fn note_written_through(&mut self, index: VolumeIndex, blocks: Blocks) {
        let copies = S::written_through(self, index, blocks);
        if self.store.is_home_when_written() {
            copies.iter().for_each(|copy| S::copy_is_home(self, index, *copy));
            return;
        }
        let now = self.now;
        let destage = &mut self.volume_mut(index).destage;
        if destage.written.is_empty() {
            destage.written_since = now;
        }
        destage.written_blocks += blocks.count;
        destage.through.extend(copies.iter().flat_map(Copied::places));
        destage.written.push(Written { blocks, copies, is_held: false });
        self.want_tick(now.plus(self.config.tick_ns));
    }

    /// The origin's flush covers what was written before it: that is clean now, and the log is told.
    pub(crate) fn destaged_durably(&mut self, index: VolumeIndex) {
        self.volume_mut(index).destage.wake();
        self.share.wake();
        let mut flushed = core::mem::take(&mut self.volume_mut(index).destage.flushing);
        if self.is_mutated(Mutation::OriginFlushCoversLater) {
            flushed.append(&mut self.volume_mut(index).destage.written);
        }
        for written in flushed {
            for copy in &written.copies {
                S::copy_is_home(self, index, *copy);
            }
            self.volume_mut(index).destage.forget_through(&written);
            if written.is_held {
                self.release_guard(index, written.blocks, Hold::Destaging);
            }
        }
    }

    /// The origin's flush failed: what was written before it counts as not written.
    pub(crate) fn destage_flush_failed(&mut self, index: VolumeIndex) {
        let destage = &mut self.volume_mut(index).destage;
        // What was written while the flush was under way may have been thrown away with the rest.
        let mut lost = core::mem::take(&mut destage.flushing);
        lost.append(&mut destage.written);
        destage.written_blocks = 0;
        for written in lost {
            let destage = &mut self.volume_mut(index).destage;
            destage.map.mark(written.blocks.first, written.blocks.count);
            destage.forget_through(&written);
            if written.is_held {
                self.release_guard(index, written.blocks, Hold::Destaging);
            }
        }
    }
}
