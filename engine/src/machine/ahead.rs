//! Read-ahead: blocks that a stream asks for next, read from the cache device or from the origin before it does.
//!
//! A client that has one long read under way at a time leaves the device idle between two of them, or leaves it to others, with a
//! search for each turn. What it is about to ask for lies in memory then, or is on its way. A stream is known by requests of which each begins where the one before it ended, and
//! no more is read ahead of it than a part of what it asked for in a row: where it ends, little was read for nothing. Reads of one
//! block are looked at only where the last one on the volume ended, or if they take what was read ahead: that costs the others
//! nothing. What an origin has lies with what is read beside misses ([`neighbours`](super::neighbours)).
//!
//! HAZARD 1: what was read ahead counts only while its stamp holds: nothing was written, destaged, discarded or bypassed there
//! since its read began. It is compared at each use, so whatever changes a block need not know of it.

use crate::effect::Errno;
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Stamp};
use crate::machine::piece::WaitingRead;
use crate::machine::request::{Active, RequestKey};
use crate::machine::volume::Standing;
use crate::memory::{Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u32, wide};
use crate::store::Store;
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, SECTORS_PER_BLOCK, VolumeIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

/// Streams that are followed at a time. A single request makes room for another one first, then what was silent for longest.
const STREAMS_MAX: usize = 16;
/// Requests of others after which a silent stream counts no more than a single request.
const FORGOTTEN_TURNS: u64 = 4096;
/// For so many blocks that a stream asked for in a row one is read ahead.
const ROW_PARTS: u64 = 4;
/// Limits of what is read ahead of a stream at a time, in blocks.
const WINDOW_BLOCKS_MIN: u64 = 4;
const WINDOW_BLOCKS_MAX: u64 = 128;
/// A client with more requests of a stream under way counts as one who needs no help, until so many came that were alone: no more
/// is read of the origin, since a disk that chooses among many reads of a row gets them out of order.
const DEPTH_MAX: usize = 2;
const DEEP_TURNS: u32 = 64;
/// The most that is read ahead of a stream from the origin, in blocks: where reads take a search, and where long ones only keep
/// others waiting. The memory for neighbours has room for all streams.
const ORIGIN_WINDOW_BLOCKS_MAX: u64 = 256;
const QUICK_WINDOW_BLOCKS_MAX: u64 = 64;
/// Blocks that one operation reads there at the most: half of that, so that a disk always has the next one.
pub(super) const ORIGIN_OPERATION_BLOCKS_MAX: u64 = ORIGIN_WINDOW_BLOCKS_MAX / 2;
/// Blocks that one operation reads, if a request is shorter.
const RUN_BLOCKS: u64 = 16;
/// Blocks asked for at a time, all requests being as long as the last one, beyond which the device has enough to do.
const BUSY_BLOCKS: u64 = 128;

/// Blocks in consecutive places that were read ahead, or are being read.
struct Run {
    number: u64,
    first: BlockKey,
    blocks: u64,
    slice: Slice,
    stamp: Stamp,
    is_there: bool,
    /// Who asked for a part of it while it was being read.
    waiting: Vec<WaitingRead>,
    /// Somebody asked for its last block.
    is_used_up: bool,
}

impl Run {
    fn end(&self) -> BlockKey {
        BlockKey(self.first.0 + self.blocks)
    }

    fn has(&self, key: BlockKey) -> bool {
        (self.first..self.end()).contains(&key)
    }

    /// The content of some of its blocks.
    fn part(&self, first: BlockKey, blocks: u64) -> Slice {
        self.slice.part(to_u32((first.0 - self.first.0) * BLOCK_BYTES), to_u32(blocks * BLOCK_BYTES))
    }
}

/// Requests of which each began where the one before it ended.
struct Stream {
    /// Where the next one is to begin.
    next: BlockKey,
    row_blocks: u64,
    /// There were two of them at the least.
    is_row: bool,
    /// The number of the request that was its last one.
    turn: u64,
    /// Its cached blocks that were read ahead, by rising numbers.
    runs: Vec<Run>,
    /// The end of all that was read ahead of it.
    ahead_end: BlockKey,
    /// For so many requests more its client counts as one who needs no help ([`DEPTH_MAX`]).
    deep_turns: u32,
}

/// An operation that reads ahead.
pub(crate) struct AheadRead {
    number: u64,
    place: Place,
    checksums: Vec<Option<u32>>,
    slice: Slice,
    pub issued: Nanos,
}

/// The streams, and what was read ahead of them.
pub(crate) struct ReadAhead {
    bytes_max: u64,
    bytes: u64,
    streams: Vec<Stream>,
    /// Runs of all streams.
    runs: usize,
    last_number: u64,
    last_turn: u64,
}

impl ReadAhead {
    /// No stream yet, and never more than `bytes_max` in memory.
    pub fn new(bytes_max: u64) -> ReadAhead {
        ReadAhead { bytes_max, bytes: 0, streams: Vec::new(), runs: 0, last_number: 0, last_turn: 0 }
    }

    /// Whether nothing was read ahead of anybody.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.runs == 0
    }

    fn find(&self, is_it: impl Fn(&Run) -> bool) -> Option<(usize, usize)> {
        self.streams
            .iter()
            .enumerate()
            .find_map(|(stream, found)| Some((stream, found.runs.iter().position(&is_it)?)))
    }

    fn release<M: Memory>(&mut self, slice: Slice, memory: &mut M) {
        self.bytes -= u64::from(slice.len_bytes);
        memory.release(slice.buffer);
    }

    /// Forgets a run. What is being read is released when it is there.
    fn drop_run<M: Memory>(&mut self, (stream, at): (usize, usize), memory: &mut M) {
        let run = self.streams[stream].runs.remove(at);
        assert!(run.waiting.is_empty(), "what somebody waits for is not forgotten");
        self.runs -= 1;
        if run.is_there {
            self.release(run.slice, memory);
        }
    }

    /// Forgets the runs of a stream for which nobody waits, as far as `is_over` says so.
    fn drop_runs<M: Memory>(&mut self, stream: usize, is_over: impl Fn(&Run) -> bool, memory: &mut M) {
        for at in (0..self.streams[stream].runs.len()).rev() {
            let run = &self.streams[stream].runs[at];
            if run.waiting.is_empty() && is_over(run) {
                self.drop_run((stream, at), memory);
            }
        }
    }

    /// Forgets the streams of one volume, or all.
    pub fn clear<M: Memory>(&mut self, only: Option<VolumeIndex>, memory: &mut M) {
        let is_meant = |key: BlockKey| only.is_none_or(|volume| volume == key.volume());
        for at in (0..self.streams.len()).rev() {
            self.drop_runs(at, |run| is_meant(run.first), memory);
            if is_meant(self.streams[at].next) && self.streams[at].runs.is_empty() {
                self.streams.swap_remove(at);
            }
        }
    }

    /// The stream that a request belongs to, which may be a new one.
    fn stream_of<M: Memory>(&mut self, first: BlockKey, end: BlockKey, memory: &mut M) -> usize {
        self.last_turn += 1;
        let turn = self.last_turn;
        if let Some(at) = self.streams.iter().position(|stream| stream.next == first) {
            let stream = &mut self.streams[at];
            stream.row_blocks += end.0 - first.0;
            (stream.next, stream.is_row, stream.turn) = (end, true, turn);
            return at;
        }
        let new = Stream {
            next: end,
            row_blocks: end.0 - first.0,
            turn,
            is_row: false,
            runs: Vec::new(),
            ahead_end: end,
            deep_turns: 0,
        };
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(new);
            return self.streams.len() - 1;
        }
        // One request is no stream yet.
        let age = |stream: &Stream| (stream.is_row && turn - stream.turn < FORGOTTEN_TURNS, stream.turn);
        let oldest =
            (0..self.streams.len()).min_by_key(|at| age(&self.streams[*at])).expect("there are some");
        self.drop_runs(oldest, |_| true, memory);
        let stream = &mut self.streams[oldest];
        // Somebody may wait for what is left of it.
        *stream = Stream { runs: mem::take(&mut stream.runs), ..new };
        oldest
    }
}

impl<S: Store> Machine<S> {
    /// Reads the range that a client asked for; what was read ahead is taken from memory. Returns how many blocks come from the
    /// origin, and whether any came from memory.
    #[inline(never)]
    pub(crate) fn fetch_with_ahead<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        work: Slice,
        memory: &mut M,
    ) -> (u64, bool) {
        let mut taken = 0;
        while taken < blocks.count {
            let rest = Blocks { first: blocks.first + taken, count: blocks.count - taken };
            let into = work.part(to_u32(taken * BLOCK_BYTES), to_u32(rest.count * BLOCK_BYTES));
            let count = self.take_ahead(request, rest, into, taken == 0, memory);
            if count == 0 {
                return (self.fetch(request, rest, into, true, memory), taken > 0);
            }
            taken += count;
        }
        (0, true)
    }

    /// Takes blocks of a read from memory, or waits for them there; returns how many of the first ones.
    fn take_ahead<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        into: Slice,
        is_begin: bool,
        memory: &mut M,
    ) -> u64 {
        let volume_index = self.requests[request].volume;
        let key = self.volume(volume_index).key(blocks.first);
        let Some(at) = self.ahead.find(|run| run.has(key)) else { return 0 };
        let run = &self.ahead.streams[at.0].runs[at.1];
        if !self.is_as_read(volume_index, run) {
            // Whatever writes there goes on, perhaps.
            let stream = &mut self.ahead.streams[at.0];
            (stream.row_blocks, stream.ahead_end) = (0, stream.next);
            self.ahead.drop_runs(at.0, |_| true, memory);
            return 0;
        }
        let there = Blocks { first: blocks.first, count: blocks.count.min(run.end().0 - key.0) };
        let passes_slow = self.passes_slow(request);
        let (use_cache, use_clean) =
            self.uses_cached(self.volume(volume_index), passes_slow, key, there.count);
        let hits = |m: &mut Self, step: u64| {
            use_cache && m.store.hit(BlockKey(key.0 + step), is_begin && step == 0, use_clean).is_some()
        };
        let count = wide((0..there.count).take_while(|step| hits(self, *step)).count());
        if count == 0 {
            return 0;
        }
        let run = &mut self.ahead.streams[at.0].runs[at.1];
        let into = into.part(0, to_u32(count * BLOCK_BYTES));
        run.is_used_up |= key.0 + count == run.end().0;
        if run.is_there {
            memory.copy(run.part(key, count), into);
            if run.is_used_up {
                self.ahead.drop_run(at, memory);
            }
        } else {
            run.waiting.push(WaitingRead { request, key, slice: into });
            self.requests[request].parts += 1;
        }
        let counters = &mut self.volume_mut(volume_index).counters;
        counters.hit_blocks += count;
        counters.ahead_hit_blocks += count;
        count
    }

    /// Whether nothing happened to the blocks of a run since its read began, and nothing is about to.
    fn is_as_read(&self, volume: VolumeIndex, run: &Run) -> bool {
        // What the origin has flushed does not matter: nothing of it enters the cache.
        self.volume(volume).guard.is_as_stamped(run.stamp, u64::MAX)
            || self.is_mutated(Mutation::StaleReadAhead)
    }

    /// Reads on behind a client's read, if it is one of a stream.
    pub(crate) fn read_on<M: Memory>(&mut self, volume: VolumeIndex, asked: Blocks, memory: &mut M) {
        if self.ahead.bytes_max == 0 {
            return;
        }
        let first = BlockKey::new(volume, asked.first);
        let at = self.ahead.stream_of(first, BlockKey(first.0 + asked.count), memory);
        let next = self.ahead.streams[at].next;
        self.ahead.drop_runs(at, |run| run.end() <= next, memory);
        let window = (self.ahead.streams[at].row_blocks / ROW_PARTS).min(ORIGIN_WINDOW_BLOCKS_MAX);
        if window < asked.count.max(WINDOW_BLOCKS_MIN) {
            return;
        }
        let is_deep = self.is_deep(volume, next, asked.count);
        let turns = &mut self.ahead.streams[at].deep_turns;
        *turns = if is_deep { DEEP_TURNS } else { turns.saturating_sub(1) };
        let is_over = self.is_stopping || self.latched.is_some() || self.slow_cache.is_passed_by();
        let in_use = self.volumes[volume.at()].as_ref().filter(|volume| volume.standing == Standing::Cached);
        let is_busy = wide(self.requests.len()) * asked.count > BUSY_BLOCKS;
        let Some(in_use) = in_use.filter(|_| !is_over && !is_busy) else { return };
        // A block that the volume ends in may have no place of its own.
        let volume_end = first.0 - asked.first + in_use.size_sectors / SECTORS_PER_BLOCK;
        let stream = &self.ahead.streams[at];
        let mut from = stream.ahead_end.max(next);
        // More is read when half of a window was asked for.
        let ahead_blocks = from.0 - next.0;
        let end_of = |window: u64| match ahead_blocks * 2 <= window {
            true => (next.0 + window).min(volume_end),
            false => next.0,
        };
        let cached_end = end_of(window.min(WINDOW_BLOCKS_MAX));
        let origin = &in_use.origin;
        let origin_window = if origin.is_known_as_quick(self.now) {
            QUICK_WINDOW_BLOCKS_MAX
        } else {
            ORIGIN_WINDOW_BLOCKS_MAX
        };
        let origin_end = if stream.deep_turns > 0 { next.0 } else { end_of(window.min(origin_window)) };
        while from.0 < cached_end.max(origin_end) {
            let first = from.block();
            let up_to = |end: u64| Blocks { first, count: end.saturating_sub(from.0) };
            let cached = up_to(cached_end.min(from.0 + asked.count.max(RUN_BLOCKS)));
            if let Some(run) = self.begin_run_ahead(volume, cached, memory) {
                from = run.end();
                self.ahead.runs += 1;
                self.ahead.streams[at].runs.push(run);
            } else {
                let count = self.read_origin_ahead(volume, up_to(origin_end), memory);
                if count == 0 {
                    break;
                }
                from.0 += count;
            }
            self.ahead.streams[at].ahead_end = from;
        }
    }

    /// Whether several requests of so many blocks are under way of a stream that was asked for up to `next`.
    fn is_deep(&self, volume: VolumeIndex, next: BlockKey, blocks: u64) -> bool {
        let row = next.block().saturating_sub(blocks * wide(DEPTH_MAX + 1))..next.block();
        let is_in_row = |active: &Active| active.volume == volume && row.contains(&active.blocks.first);
        self.requests.iter().filter(|(_, active)| is_in_row(active)).count() > DEPTH_MAX
    }

    /// Begins to read the first ones of these blocks, if they are cached, and nobody has asked for them or changes them.
    fn begin_run_ahead<M: Memory>(
        &mut self,
        volume_index: VolumeIndex,
        blocks: Blocks,
        memory: &mut M,
    ) -> Option<Run> {
        let is_asked_for = self.requests.iter().any(|(_, active)| {
            let Blocks { first, count } = active.blocks;
            active.volume == volume_index && first < blocks.end() && blocks.first < first + count
        });
        if is_asked_for || blocks.count == 0 {
            return None;
        }
        let first = BlockKey::new(volume_index, blocks.first);
        let start = self.place_of_plain(first)?.0;
        let mut checksums = Vec::new();
        for step in 0..to_u32(blocks.count) {
            let place = Place(start.0 + step);
            let found = self.place_of_plain(BlockKey(first.0 + u64::from(step)));
            match found.filter(|found| found.0 == place && self.store.is_joinable(start, place)) {
                Some((_, checksum)) => checksums.push(checksum),
                None => break,
            }
        }
        let blocks = Blocks { first: blocks.first, count: wide(checksums.len()) };
        let stamp = self.volume(volume_index).guard.stamp(blocks, u64::MAX)?;
        let len_bytes = to_u32(blocks.count * BLOCK_BYTES);
        if self.ahead.bytes + u64::from(len_bytes) > self.ahead.bytes_max {
            return None;
        }
        let buffer = memory.allocate(Purpose::Payload, len_bytes)?;
        let slice = Slice { buffer, offset_bytes: 0, len_bytes };
        self.ahead.bytes += u64::from(len_bytes);
        self.ahead.last_number += 1;
        self.volume_mut(volume_index).counters.ahead_blocks += blocks.count;
        let number = self.ahead.last_number;
        // RULE 1: a place that is read is not reused.
        self.store.pin_for_client(start, to_u32(blocks.count));
        let read = Box::new(AheadRead { number, place: start, checksums, slice, issued: self.now });
        self.read_cache(start, slice, Flight::AheadRead(read), None);
        Some(Run {
            number,
            first,
            blocks: blocks.count,
            slice,
            stamp,
            is_there: false,
            waiting: Vec::new(),
            is_used_up: false,
        })
    }

    /// The place of a cached block whose content is there and nowhere else, with the checksum to find there.
    fn place_of_plain(&self, key: BlockKey) -> Option<(Place, Option<u32>)> {
        let entry = self.store.lookup(key)?;
        let is_plain = self.store.extent(key).is_none()
            && self.store.in_memory(key).is_none()
            && !self.store.is_changing(key)
            && (entry.dirty || self.store.reads_clean(key, 1));
        is_plain.then_some((entry.place, entry.checksum))
    }

    /// Takes the answer to a read ahead: who waited for it goes on, by reading again if it is not what was to be found there.
    pub(crate) fn ahead_read_done<M: Memory>(
        &mut self,
        read: AheadRead,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let AheadRead { number, place, checksums, slice, .. } = read;
        self.store.unpin(place, to_u32(wide(checksums.len())));
        let Some(at) = self.ahead.find(|run| run.number == number) else {
            self.ahead.release(slice, memory);
            return;
        };
        // HAZARD 10: every cached block is compared with its checksum before anybody sees it.
        let is_whole = (0..).zip(&checksums).all(|(step, checksum)| {
            let block = slice.part(step * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
            checksum.is_none_or(|checksum| memory.checksum(block) == checksum)
        });
        let is_good = result.is_ok() && (is_whole || self.is_mutated(Mutation::SkipReadChecksum));
        let run = &self.ahead.streams[at.0].runs[at.1];
        let is_good = is_good && self.latched.is_none() && self.is_as_read(run.first.volume(), run);
        let run = &mut self.ahead.streams[at.0].runs[at.1];
        run.is_there = true;
        let waiting = mem::take(&mut run.waiting);
        if is_good {
            for read in &waiting {
                memory.copy(run.part(read.key, u64::from(read.slice.len_bytes) / BLOCK_BYTES), read.slice);
            }
        }
        // Another disk may come to the place of a volume that is being taken off.
        let is_in_use = self.volumes.of(run.first.volume()).standing == Standing::Cached && !self.is_stopping;
        if run.is_used_up || !is_good || !is_in_use {
            self.ahead.drop_run(at, memory);
        }
        for read in waiting {
            if !is_good {
                self.read_changed(read, memory);
                continue;
            }
            self.requests[read.request].parts -= 1;
            if self.requests[read.request].parts == 0 {
                self.fetched(read.request, memory);
            }
        }
    }
}
