//! From a fill, or from the ring's tail, to a frame.
//!
//! A block is in no index while it is written to its frame. So whatever changes it meanwhile is not held up: a watch tells
//! of it, and the copy is forgotten (hazard 1).

use super::super::fills::Fill;
use super::super::index::Run as IndexRun;
use super::super::{LogFlight, LogStore};
use super::keys::Unlogged;
use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::machine::guard::{Blocks, WatchId};
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Slice};
use crate::mutation::Mutation;
use crate::number::{index_wide, to_u32, wide};
use crate::policies::replacement::forebay::Mark;
use crate::status::Content;
use crate::store::Lookup;
use crate::units::{BLOCK_BYTES, BlockKey, Place, VolumeIndex};
use alloc::vec::Vec;

/// Device writes to frames under way at the most.
const WRITES_MAX: usize = 32;
/// Blocks of one of them at the most: 1 MiB.
const WRITE_BLOCKS_MAX: u32 = 256;
/// Blocks whose keys wait at the most; then nothing enters.
const UNLOGGED_MAX: usize = 4096;

/// Blocks on their way to consecutive frames.
pub(super) struct Part {
    pub first: BlockKey,
    pub place: Place,
    checksums: Vec<u32>,
    marks: Vec<Mark>,
    slice: Slice,
    watch: WatchId,
    /// Where in the ring its block lies, if it moves.
    from: Option<Place>,
}

impl Part {
    fn blocks(&self) -> Blocks {
        Blocks { first: self.first.block(), count: wide(self.checksums.len()) }
    }

    fn buffer(&self) -> BufferId {
        self.slice.buffer
    }
}

/// A clean block of the ring's tail that is worth a frame, and was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub key: BlockKey,
    pub from: Place,
    pub checksum: u32,
    pub slice: Slice,
}

impl Machine<LogStore> {
    /// Writes the fills that need not wait for more to frames.
    pub(in crate::store::log) fn place_fills<M: Memory>(&mut self, memory: &mut M) {
        let mut parts = Vec::new();
        loop {
            let frames = self.store.appender.frames_mut();
            let is_room = frames.writing.len() < WRITES_MAX && frames.unlogged.len() < UNLOGGED_MAX;
            if !is_room || parts.len() >= WRITES_MAX {
                break;
            }
            let Some(fill) = frames.inline.gathering.pop() else { break };
            self.place_in_frames(fill, &mut parts, memory);
        }
        self.write_parts(parts);
    }

    fn place_in_frames<M: Memory>(&mut self, fill: Fill, parts: &mut Vec<Part>, memory: &mut M) {
        let volume = fill.volume;
        let mut rest = fill.blocks;
        self.store.log.pending_fill_blocks -= rest.count;
        if self.fill_may_enter(&fill, false) {
            while let Some(new) = self.store.first_uncached(volume, rest) {
                for (blocks, marks) in self.worthy(volume, new) {
                    self.frames_for((volume, blocks), &marks, fill.part(blocks), parts, memory);
                }
                rest = Blocks { first: new.end(), count: rest.end() - new.end() };
            }
        }
        memory.release(fill.slice.buffer);
    }

    /// The blocks of a fill that may enter, in runs with their marks.
    fn worthy(&mut self, volume: VolumeIndex, blocks: Blocks) -> Vec<(Blocks, Vec<Mark>)> {
        let frames = self.store.appender.frames_mut();
        let mut runs: Vec<(Blocks, Vec<Mark>)> = Vec::new();
        for block in blocks.first..blocks.end() {
            let Some(mark) = frames.worths.admits(BlockKey::new(volume, block), &frames.places) else {
                continue;
            };
            match runs.last_mut() {
                Some((run, marks)) if run.end() == block => {
                    run.count += 1;
                    marks.push(mark);
                }
                _ => runs.push((Blocks { first: block, count: 1 }, alloc::vec![mark])),
            }
        }
        runs
    }

    /// Gives frames to blocks, as far as there are any.
    fn frames_for<M: Memory>(
        &mut self,
        (volume, blocks): (VolumeIndex, Blocks),
        mut marks: &[Mark],
        mut slice: Slice,
        parts: &mut Vec<Part>,
        memory: &mut M,
    ) {
        let mut first = blocks.first;
        while first < blocks.end() {
            let frames = self.store.appender.frames_mut();
            let Some((place, count)) = frames.places.take(blocks.end() - first) else {
                for (block, mark) in (first..).zip(marks) {
                    frames.worths.left(BlockKey::new(volume, block), *mark);
                }
                self.volume_mut(volume).counters.read_bypasses.pressure_blocks += blocks.end() - first;
                return;
            };
            let now = Blocks { first, count: u64::from(count) };
            let bytes = count * to_u32(BLOCK_BYTES);
            let (marks_now, marks_left) = marks.split_at(index_wide(now.count));
            let target = self.volume_mut(volume);
            let watch = target.guard.watch(now);
            target.counters.fill_blocks += now.count;
            memory.retain(slice.buffer);
            let now_slice = slice.part(0, bytes);
            parts.push(Part {
                first: BlockKey::new(volume, first),
                place,
                checksums: checksums_of(now_slice, memory),
                marks: marks_now.to_vec(),
                slice: now_slice,
                watch,
                from: None,
            });
            marks = marks_left;
            slice = slice.part(bytes, slice.len_bytes - bytes);
            first = now.end();
        }
    }

    /// Writes clean blocks of the ring's tail to frames; whoever finds none is dropped with its segment.
    pub(in crate::store::log) fn place_moves<M: Memory>(&mut self, moves: Vec<Move>, memory: &mut M) {
        let mut parts = Vec::new();
        for Move { key, from, checksum, slice } in moves {
            let LogStore { appender, index, .. } = &mut self.store;
            let frames = appender.frames_mut();
            let is_there = index
                .get(key)
                .is_some_and(|entry| entry.place == from && entry.checksum == checksum && !entry.dirty);
            let is_room = is_there && frames.unlogged.len() < UNLOGGED_MAX && self.latched.is_none();
            let Some((place, _)) = is_room.then(|| frames.places.take(1)).flatten() else {
                memory.release(slice.buffer);
                self.store.reclaim.relocated(slice.len_bytes);
                continue;
            };
            let watch = self.volume_mut(key.volume()).guard.watch(Blocks { first: key.block(), count: 1 });
            let checksums = alloc::vec![checksum];
            parts.push(Part {
                first: key,
                place,
                checksums,
                marks: Vec::new(),
                slice,
                watch,
                from: Some(from),
            });
        }
        self.write_parts(parts);
    }

    /// Parts that lie in a row are one device write.
    fn write_parts(&mut self, parts: Vec<Part>) {
        let mut parts = parts.into_iter().peekable();
        while let Some(first) = parts.next() {
            let mut end = first.place.0 + to_u32(first.blocks().count);
            let start = first.place;
            let mut run = alloc::vec![first];
            while let Some(next) = parts.next_if(|next| {
                next.place.0 == end
                    && next.place.0 + to_u32(next.blocks().count) - start.0 <= WRITE_BLOCKS_MAX
            }) {
                end += to_u32(next.blocks().count);
                run.push(next);
            }
            for part in &run {
                let why = if part.from.is_some() { Content::Relocation } else { Content::Fill };
                self.count_content(why, part.slice.len_bytes.into());
            }
            let slices = run.iter().map(|part| part.slice).collect();
            let op = IoOp::Write { offset_bytes: self.store.offset_bytes(start), from: Pieces::Many(slices) };
            let frames = self.store.appender.frames_mut();
            let write = frames.next_write;
            frames.next_write += 1;
            frames.writing.insert(write, run);
            self.issue(Target::Cache, op, Flight::Store(LogFlight::Frames { write }));
        }
    }

    /// The device has blocks in their frames, or failed.
    pub(in crate::store::log) fn frames_written<M: Memory>(
        &mut self,
        write: u64,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        let parts = self.store.appender.frames_mut().writing.remove(&write).expect("the write was under way");
        for part in parts {
            memory.release(part.buffer());
            if part.from.is_some() {
                self.store.reclaim.relocated(to_u32(BLOCK_BYTES));
            }
            self.land(part);
        }
    }

    /// The index learns where blocks are, if they are still what was written.
    fn land(&mut self, part: Part) {
        let volume = part.first.volume();
        let blocks = part.blocks();
        let count = to_u32(blocks.count);
        let target = self.volume_mut(volume);
        // HAZARD 1: nothing happened to them since, and nothing is about to.
        let is_same = target.guard.unwatch(part.watch) && target.caches_reads();
        if self.latched.is_some() {
            return;
        }
        let is_blind = self.is_mutated(Mutation::FillAfterChange);
        let LogStore { index, extents, .. } = &self.store;
        let is_current = (is_same || is_blind)
            && (0..blocks.count).map(|step| BlockKey(part.first.0 + step)).all(|key| {
                let entry = index.get(key);
                match part.from {
                    Some(from) => entry.is_some_and(|entry| entry.place == from && !entry.dirty),
                    None => entry.is_none() && extents.get(key).is_none(),
                }
            });
        if !is_current {
            let frames = self.store.appender.frames_mut();
            frames.places.give_back(part.place, count);
            self.volume_mut(volume).counters.fill_dropped_blocks += blocks.count;
            return;
        }
        let run = IndexRun {
            first: part.first,
            place: part.place,
            dirty: false,
            hits: 0,
            checksums: &part.checksums,
        };
        self.insert_run(volume, blocks, run);
        let written = self.barrier.moment();
        let now = self.now;
        let frames = self.store.appender.frames_mut();
        match part.from {
            Some(from) => frames.worths.moved(from, part.place),
            None => (part.place.0..)
                .zip(&part.marks)
                .for_each(|(place, mark)| frames.worths.enters(Place(place), *mark)),
        }
        frames.wait_for_key(Unlogged {
            first: part.first,
            place: part.place,
            blocks: count,
            written,
            since: now,
        });
    }
}

fn checksums_of<M: Memory>(slice: Slice, memory: &M) -> Vec<u32> {
    let len_bytes = to_u32(BLOCK_BYTES);
    (0..slice.len_bytes / len_bytes)
        .map(|step| memory.checksum(slice.part(step * len_bytes, len_bytes)))
        .collect()
}
