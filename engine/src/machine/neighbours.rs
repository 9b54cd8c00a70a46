//! Neighbours: blocks beside those that a miss asked for, read with them and kept in memory for the reads that follow.
//!
//! The cache device sees a neighbour when a client asks for it, as it sees any other block that a read brought. One that
//! nobody asks for is dropped, so reading far costs no wear; but where the cache has room, or holds what nobody reads any more,
//! it enters if that pays. How far is learned ([`neighbourhood`](crate::policies::fetch::neighbourhood)), and what pays
//! ([`warm_up`](crate::policies::fetch::warm_up)).
//!
//! What a stream is about to ask its origin for lies here, too ([`ahead`](super::ahead)): nothing is learned from that, and what
//! nobody asks for does not enter.
//!
//! HAZARD 1: a neighbour counts only while its stamp holds: nothing was written, destaged, discarded or bypassed there since
//! its read began. It is compared at each use, so whatever changes a block need not know of neighbours.

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::machine::Machine;
use crate::machine::ahead::ORIGIN_OPERATION_BLOCKS_MAX;
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Stamp};
use crate::machine::piece::WaitingRead;
use crate::machine::request::RequestKey;
use crate::memory::{Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u32, wide};
use crate::policies::fetch::neighbourhood::{Neighbourhood, saved_parts};
use crate::policies::fetch::warm_up::WarmUp;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeIndex};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// No stream is read ahead of while somebody waits for the origin for so long.
const KEPT_WAITING_NS: u64 = 25 * Nanos::MILLISECOND;

/// Neighbours in a row, on one side of what was asked for.
struct Run {
    number: u64,
    blocks: u32,
    slice: Slice,
    stamp: Stamp,
    /// Which of them lie in the outer ring, which were used, and which were asked for while they were being read: a bit for each.
    outer: u64,
    used: u64,
    awaited: u64,
    /// A stream is about to ask for them: nothing is learned from that, and nobody else is expected to.
    is_ahead: bool,
    /// Who waits for them, while they are being read.
    waiting: Option<Vec<WaitingRead>>,
}

impl Run {
    /// The number of its blocks that lie in a ring.
    fn blocks_of(&self, ring: usize) -> u64 {
        let outer = u64::from(self.outer.count_ones());
        if ring == 0 { u64::from(self.blocks) - outer } else { outer }
    }
}

/// The run that a block lies in.
fn run_of(runs: &mut BTreeMap<BlockKey, Run>, key: BlockKey) -> Option<(BlockKey, &mut Run)> {
    let (first, run) = runs.range_mut(..=key).next_back()?;
    (key.0 - first.0 < u64::from(run.blocks)).then_some((*first, run))
}

/// The neighbours that an operation reads: the first ones of a run before, and of one behind what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    pub before: Option<(BlockKey, Slice)>,
    pub behind: Option<(BlockKey, Slice)>,
}

impl Beside {
    /// How many they are.
    pub fn blocks(self) -> u64 {
        let bytes = |run: Option<(BlockKey, Slice)>| run.map_or(0, |(_, slice)| u64::from(slice.len_bytes));
        (bytes(self.before) + bytes(self.behind)) / BLOCK_BYTES
    }

    /// Their runs.
    pub fn runs(self) -> impl Iterator<Item = BlockKey> {
        self.before.into_iter().chain(self.behind).map(|(first, _)| first)
    }
}

/// The count to which a block belongs that a client asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    Hit,
    /// It was read for this very request, a moment before that came.
    Miss,
    /// It was counted, or will be.
    Nothing,
}

/// A neighbour that was looked for.
pub(crate) struct Neighbour {
    /// Its content, which stays there until the caller releases the buffer; none while it is on its way, and the request waits.
    pub there: Option<Slice>,
    pub counts: Counts,
}

/// The neighbours in memory, and what is learned from them.
pub(crate) struct Neighbours {
    bytes_max: u64,
    bytes: u64,
    /// Of those that are being read: half of all at the most, so that others stay a while.
    reading_bytes: u64,
    /// By the first block. They do not overlap.
    runs: BTreeMap<BlockKey, Run>,
    /// Those that were read, oldest first, with their numbers.
    order: VecDeque<(BlockKey, u64)>,
    last_number: u64,
    /// Reads of origins under way, of what somebody asked for: a disk that reads the same again waits for a turn of its platters.
    asked: Vec<(BlockKey, u32)>,
    learned: [Neighbourhood; VOLUMES_MAX],
    warm_ups: [WarmUp; VOLUMES_MAX],
}

impl Neighbours {
    /// None yet, and no more than `bytes_max` ever.
    pub fn new(bytes_max: u64) -> Neighbours {
        Neighbours {
            bytes_max,
            bytes: 0,
            reading_bytes: 0,
            runs: BTreeMap::new(),
            order: VecDeque::new(),
            last_number: 0,
            asked: Vec::new(),
            learned: core::array::from_fn(|_| Neighbourhood::default()),
            warm_ups: core::array::from_fn(|_| WarmUp::default()),
        }
    }

    /// Forgets what was learned of a volume: another one comes to its place.
    pub fn forget_lessons(&mut self, volume: VolumeIndex) {
        self.learned[volume.at()] = Neighbourhood::default();
        self.warm_ups[volume.at()] = WarmUp::default();
    }

    /// Blocks that somebody asked for begin to be read from their origin.
    pub fn asked_begins(&mut self, first: BlockKey, blocks: u32) {
        if self.bytes_max > 0 {
            self.asked.push((first, blocks));
        }
    }

    /// The same, at the end.
    pub fn asked_ends(&mut self, first: BlockKey, blocks: u32) {
        if let Some(at) = self.asked.iter().position(|asked| *asked == (first, blocks)) {
            self.asked.swap_remove(at);
        }
    }

    /// The blocks around `asked`, from `start` to `end` at the most, as far as nobody reads any of them.
    fn unread_around(
        &self,
        volume: VolumeIndex,
        asked: Blocks,
        (mut start, mut end): (u64, u64),
    ) -> (u64, u64) {
        for &(first, blocks) in self.asked.iter().filter(|(first, _)| first.volume() == volume) {
            let (first, behind) = (first.block(), first.block() + u64::from(blocks));
            if first < asked.first {
                start = start.max(behind.min(asked.first));
            }
            if behind > asked.end() {
                end = end.min(first.max(asked.end()));
            }
        }
        (start, end)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Drops a run.
    fn drop_run<M: Memory>(&mut self, first: BlockKey, memory: &mut M) {
        let Some(run) = self.runs.remove(&first) else { return };
        self.bytes -= u64::from(run.slice.len_bytes);
        memory.release(run.slice.buffer);
        let learned = &mut self.learned[first.volume().at()];
        if !run.is_ahead {
            (0..2).for_each(|ring| learned.drop(ring, run.blocks_of(ring)));
        }
    }

    /// A run is there, and the last one to be dropped.
    fn was_read(&mut self, first: BlockKey, number: u64) {
        self.order.push_back((first, number));
        // Runs that were dropped for other reasons than room are still in there.
        if self.order.len() > 2 * self.runs.len() + 64 {
            let Neighbours { runs, order, .. } = self;
            order.retain(|(first, number)| runs.get(first).is_some_and(|run| run.number == *number));
        }
    }

    /// The run that was read first of those that are here.
    fn oldest(&mut self) -> Option<BlockKey> {
        loop {
            let (first, number) = self.order.pop_front()?;
            if self.runs.get(&first).is_some_and(|run| run.number == number) {
                return Some(first);
            }
        }
    }

    /// Drops all runs that are not being read, of one volume or all.
    pub fn clear<M: Memory>(&mut self, only: Option<VolumeIndex>, memory: &mut M) {
        let is_one = |first: &BlockKey, run: &Run| {
            run.waiting.is_none() && only.is_none_or(|volume| volume == first.volume())
        };
        let there: Vec<BlockKey> =
            self.runs.iter().filter(|(first, run)| is_one(first, run)).map(|(first, _)| *first).collect();
        there.into_iter().for_each(|first| self.drop_run(first, memory));
    }
}

impl<S: Store> Machine<S> {
    /// Looks for a block that is not cached among the neighbours.
    pub(crate) fn neighbour<M: Memory>(
        &mut self,
        request: RequestKey,
        key: BlockKey,
        into: Slice,
        memory: &mut M,
    ) -> Option<Neighbour> {
        let is_blind = self.is_mutated(Mutation::FillAfterChange);
        let epoch = self.trusted_epoch(self.volume(key.volume()));
        let Neighbours { runs, learned, .. } = &mut self.neighbours;
        let (first, run) = run_of(runs, key)?;
        let bit = 1 << (key.0 - first.0);
        let ring = usize::from(run.outer & bit != 0);
        let is_first = (run.used | run.awaited) & bit == 0;
        let mut save = |is_awaited: bool| {
            if is_first && !run.is_ahead {
                let parts = saved_parts(self.requests[request].blocks.count, is_awaited);
                learned[key.volume().at()].save(ring, parts);
            }
        };
        if let Some(waiting) = &mut run.waiting {
            save(true);
            run.awaited |= bit;
            waiting.push(WaitingRead { request, key, slice: into });
            self.requests[request].parts += 1;
            let counts = if run.is_ahead && is_first { Counts::Miss } else { Counts::Nothing };
            return Some(Neighbour { there: None, counts });
        }
        let volume = self.volumes.of_mut(key.volume());
        if !volume.guard.is_as_stamped(run.stamp, epoch) && !is_blind {
            self.neighbours.drop_run(first, memory);
            return None;
        }
        save(false);
        let counts = match run.is_ahead && run.used & bit == 0 {
            true if is_first => Counts::Miss,
            true => Counts::Nothing,
            false => Counts::Hit,
        };
        run.used |= bit;
        let step = key.0 - first.0;
        volume.counters.beside_hit_blocks += 1;
        // What is read beside the rest of the request may take the run's room.
        memory.retain(run.slice.buffer);
        let there = run.slice.part(to_u32(step * BLOCK_BYTES), to_u32(BLOCK_BYTES));
        Some(Neighbour { there: Some(there), counts })
    }

    /// Chooses what is read beside blocks that are about to be read from the origin, and makes room for it.
    pub(crate) fn choose_beside<M: Memory>(
        &mut self,
        volume: VolumeIndex,
        asked: Blocks,
        memory: &mut M,
    ) -> Option<Box<Beside>> {
        if self.neighbours.bytes_max == 0 {
            return None;
        }
        let room = S::room(self);
        let warm_up = &mut self.neighbours.warm_ups[volume.at()];
        warm_up.miss(BlockKey::new(volume, asked.first), room);
        // There is no search to be saved where the origin finds a place in less time than a disk does.
        let origin = &self.volumes.of(volume).origin;
        let is_quick = origin.is_quick(self.now);
        let warming = if is_quick { 1 } else { warm_up.next_blocks(room) };
        let width = self.neighbours.learned[volume.at()]
            .next_blocks(asked.count, &origin.read_cost, is_quick)
            .max(warming);
        let start = asked.first - asked.first % width;
        // A block that the volume ends in has no content of its own behind the end.
        let whole = self.volume(volume).size_sectors / SECTORS_PER_BLOCK;
        let end = asked.end().next_multiple_of(width).min(whole);
        let (start, end) = self.neighbours.unread_around(volume, asked, (start, end));
        let before = (start..asked.first).rev().take_while(|block| self.is_nowhere(volume, *block)).count();
        let behind = (asked.end()..end).take_while(|block| self.is_nowhere(volume, *block)).count();
        let before = Blocks { first: asked.first - wide(before), count: wide(before) };
        let behind = Blocks { first: asked.end(), count: wide(behind) };
        let beside = Beside {
            before: self.begin_run(volume, before, Some(asked.first), memory),
            behind: self.begin_run(volume, behind, Some(asked.end() - 1), memory),
        };
        (beside != Beside::default()).then(|| Box::new(beside))
    }

    /// Whether neither the cache nor memory has a block.
    fn is_nowhere(&mut self, volume: VolumeIndex, block: u64) -> bool {
        self.is_at_origin_alone(volume, block)
            && run_of(&mut self.neighbours.runs, BlockKey::new(volume, block)).is_none()
    }

    /// Reads the first ones of these blocks from the origin, for a stream that is about to ask for them; returns how many are there
    /// then, or on their way.
    pub(crate) fn read_origin_ahead<M: Memory>(
        &mut self,
        volume_index: VolumeIndex,
        blocks: Blocks,
        memory: &mut M,
    ) -> u64 {
        let volume = self.volume(volume_index);
        let whole = volume.size_sectors / SECTORS_PER_BLOCK;
        if self.neighbours.bytes_max == 0 || !volume.caches_reads() || volume.origin.is_failing() {
            return 0;
        }
        let first = BlockKey::new(volume_index, blocks.first);
        if let Some((start, run)) = run_of(&mut self.neighbours.runs, first) {
            return start.0 + u64::from(run.blocks) - first.0;
        }
        // A disk that has always one more read of a row beside it does not go elsewhere for long.
        let is_kept_waiting = self.outbox.origin_reads().any(|(request, issued)| {
            self.requests[request].volume == volume_index && self.now.since(issued) >= KEPT_WAITING_NS
        });
        if is_kept_waiting {
            return 0;
        }
        let end = blocks.end().min(blocks.first + ORIGIN_OPERATION_BLOCKS_MAX).min(whole);
        let (_, end) = self.neighbours.unread_around(volume_index, Blocks { count: 0, ..blocks }, (0, end));
        let (mut firsts, mut slices, mut at) = (Vec::new(), Vec::new(), blocks.first);
        while at < end {
            let run_end = end.min(at + u64::from(u64::BITS));
            let count = (at..run_end).take_while(|block| self.is_nowhere(volume_index, *block)).count();
            let run = Blocks { first: at, count: wide(count) };
            let Some((first, slice)) = self.begin_run(volume_index, run, None, memory) else { break };
            firsts.push(first);
            slices.push(slice);
            at += run.count;
            if at < run_end {
                break;
            }
        }
        if firsts.is_empty() {
            return 0;
        }
        let now = self.now;
        let volume = self.volume_mut(volume_index);
        volume.origin.reads_ahead += 1;
        (volume.origin.last_client_read, volume.origin.last_used) = (now, Some(now));
        let (offset_bytes, _) = volume.origin_bytes(blocks.first, at - blocks.first);
        let op = IoOp::Read { offset_bytes, into: Pieces::Many(slices) };
        let flight = Flight::OriginAhead { volume: volume_index, firsts };
        self.issue(Target::Origin(volume_index), op, flight);
        at - blocks.first
    }

    /// The read ahead of a stream has ended. If it failed, whoever wants the blocks reads them again, and is told.
    pub(crate) fn origin_ahead_read<M: Memory>(
        &mut self,
        volume: VolumeIndex,
        firsts: Vec<BlockKey>,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let now = self.now;
        let origin = &mut self.volume_mut(volume).origin;
        origin.reads_ahead -= 1;
        origin.note_answer(now);
        self.beside_read(firsts, result.is_ok(), memory);
    }

    /// Makes room for a run that is about to be read, by giving up the oldest; false if there is not enough.
    fn make_room_beside<M: Memory>(&mut self, bytes: u64, memory: &mut M) -> bool {
        if self.neighbours.reading_bytes + bytes > self.neighbours.bytes_max / 2 {
            return false;
        }
        while self.neighbours.bytes + bytes > self.neighbours.bytes_max {
            let Some(first) = self.neighbours.oldest() else { return false };
            self.keep_beside(first, memory);
            self.neighbours.drop_run(first, memory);
        }
        true
    }

    /// Offers what nobody asked for of a run to the cache, if that pays.
    fn keep_beside<M: Memory>(&mut self, first: BlockKey, memory: &mut M) {
        let room = S::room(self);
        let Neighbours { runs, warm_ups, .. } = &mut self.neighbours;
        let Run { blocks, slice, stamp, used, is_ahead, .. } = runs[&first];
        let volume = first.volume();
        let warm_up = &mut warm_ups[volume.at()];
        let unused_blocks = u64::from(blocks - used.count_ones());
        if unused_blocks == 0 || is_ahead {
            return;
        }
        if !warm_up.enters(room) {
            warm_up.left(first, u64::from(blocks), unused_blocks);
            return;
        }
        let all = Blocks { first: first.block(), count: u64::from(blocks) };
        let epoch = self.trusted_epoch(self.volume(volume));
        let is_same = self.volume(volume).guard.is_as_stamped(stamp, epoch);
        if !is_same && !self.is_mutated(Mutation::FillAfterChange) {
            return;
        }
        let is_unused = |step: &u32| used & 1 << step == 0;
        let mut step = 0;
        while step < blocks {
            let count = to_u32(wide((step..blocks).take_while(is_unused).count()));
            let unused = Blocks { first: all.first + u64::from(step), count: u64::from(count) };
            if count > 0
                && let Some(stamp) = self.volume(volume).guard.stamp(unused, epoch)
            {
                let block_bytes = to_u32(BLOCK_BYTES);
                let slice = slice.part(step * block_bytes, count * block_bytes);
                S::offer_beside(self, volume, unused, slice, stamp, memory);
            }
            step += count + 1;
        }
    }

    /// Makes room for blocks that are about to be read: neighbours of `asked`, or what a stream asks for next.
    fn begin_run<M: Memory>(
        &mut self,
        volume: VolumeIndex,
        blocks: Blocks,
        asked: Option<u64>,
        memory: &mut M,
    ) -> Option<(BlockKey, Slice)> {
        if blocks.count == 0 {
            return None;
        }
        let stamp = self.clean_stamp(self.volume(volume), blocks)?;
        let len_bytes = to_u32(blocks.count * BLOCK_BYTES);
        if !self.make_room_beside(u64::from(len_bytes), memory) {
            return None;
        }
        let buffer = memory.allocate(Purpose::Payload, len_bytes)?;
        let slice = Slice { buffer, offset_bytes: 0, len_bytes };
        let outer = (blocks.first..blocks.end())
            .enumerate()
            .filter(|(_, block)| asked.is_some_and(|asked| Neighbourhood::ring_of(*block, asked) == 1))
            .fold(0, |bits, (step, _)| bits | 1 << step);
        let Neighbours { bytes, reading_bytes, runs, last_number, .. } = &mut self.neighbours;
        *bytes += u64::from(len_bytes);
        *reading_bytes += u64::from(len_bytes);
        *last_number += 1;
        self.volumes.of_mut(volume).counters.beside_blocks += blocks.count;
        let first = BlockKey::new(volume, blocks.first);
        let run = Run {
            number: *last_number,
            blocks: to_u32(blocks.count),
            slice,
            stamp,
            outer,
            used: 0,
            awaited: 0,
            is_ahead: asked.is_none(),
            waiting: Some(Vec::new()),
        };
        let before = runs.insert(first, run);
        assert!(before.is_none(), "neighbours are read where there are none");
        Some((first, slice))
    }

    /// The read of neighbours has ended; who waited for them looks again.
    pub(crate) fn beside_read<M: Memory>(
        &mut self,
        runs: impl IntoIterator<Item = BlockKey>,
        is_good: bool,
        memory: &mut M,
    ) {
        for first in runs {
            let keeps = is_good && !self.is_stopping && self.volume(first.volume()).caches_reads();
            let run = self.neighbours.runs.get_mut(&first).expect("it stays while it is read");
            let waiting = run.waiting.take().expect("it is read once");
            let (number, len_bytes) = (run.number, run.slice.len_bytes);
            self.neighbours.reading_bytes -= u64::from(len_bytes);
            if keeps {
                self.neighbours.was_read(first, number);
            } else {
                self.neighbours.drop_run(first, memory);
            }
            for read in waiting {
                self.read_changed(read, memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeIndex = VolumeIndex(1);

    #[test]
    fn what_is_being_read_already_is_not_read_beside() {
        let mut neighbours = Neighbours::new(1 << 20);
        let around = |neighbours: &Neighbours| {
            neighbours.unread_around(VOLUME, Blocks { first: 40, count: 8 }, (0, 64))
        };
        assert_eq!(around(&neighbours), (0, 64));
        let reads = [(BlockKey::new(VOLUME, 10), 10), (BlockKey::new(VOLUME, 60), 8)];
        neighbours.asked_begins(BlockKey::new(VolumeIndex(0), 39), 1);
        reads.iter().for_each(|&(first, blocks)| neighbours.asked_begins(first, blocks));
        assert_eq!(around(&neighbours), (20, 60), "another volume is another disk");
        neighbours.asked_begins(BlockKey::new(VOLUME, 30), 30);
        assert_eq!(around(&neighbours), (40, 48), "what somebody else asks for, too, is read again");
        neighbours.asked_ends(BlockKey::new(VOLUME, 30), 30);
        reads.iter().for_each(|&(first, blocks)| neighbours.asked_ends(first, blocks));
        assert_eq!(around(&neighbours), (0, 64));
    }
}
