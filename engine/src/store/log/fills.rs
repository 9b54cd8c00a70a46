//! Fills: what reads brought from the origin enters the log as clean data.

use super::draft::Draft;
use super::{LogStore, Publish};
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold, Stamp, WatchId};
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, VolumeIndex};

/// Content that a read brought from the origin, to enter the log as clean data.
#[derive(Debug)]
pub(crate) struct Fill {
    pub volume: VolumeIndex,
    pub blocks: Blocks,
    pub slice: Slice,
    pub stamp: Stamp,
    /// While it waits for others.
    pub watch: Option<WatchId>,
    /// Bytes of clients' memory that the read keeps.
    pub kept_bytes: u64,
    /// When it came.
    pub since: Nanos,
}

impl Fill {
    /// The content of some of its blocks.
    pub fn part(&self, blocks: Blocks) -> Slice {
        let skip = to_u32((blocks.first - self.blocks.first) * BLOCK_BYTES);
        self.slice.part(skip, to_u32(blocks.count * BLOCK_BYTES))
    }
}

impl LogStore {
    /// The first blocks in a row that the index does not have. Reads that overlap bring some blocks twice.
    pub(super) fn first_uncached(&self, volume: VolumeIndex, blocks: Blocks) -> Option<Blocks> {
        let entry_of = |block: &u64| self.index.get(BlockKey::new(volume, *block));
        let is_cached = |block: &u64| entry_of(block).is_some_and(|entry| !self.is_void(entry.place));
        let first = (blocks.first..blocks.end()).find(|block| !is_cached(block))?;
        let end = (first..blocks.end()).find(is_cached).unwrap_or(blocks.end());
        Some(Blocks { first, count: end - first })
    }
}

impl Machine<LogStore> {
    /// Whether blocks of a fill may enter: they are as they were when they were read, and there is room. If not, they are
    /// counted.
    pub(super) fn fill_may_enter(&mut self, fill: &Fill, is_pressed: bool) -> bool {
        let &Fill { volume, blocks, stamp, watch, .. } = fill;
        let is_blind = self.is_mutated(Mutation::FillAfterChange);
        let Some(epoch) = self.volumes[volume.at()].as_ref().map(|target| self.trusted_epoch(target)) else {
            return false;
        };
        let target = self.volumes[volume.at()].as_mut().expect("seen above");
        // HAZARD 1: nothing was written, destaged, discarded, bypassed or dropped here since
        // the read began, and nothing is about to be.
        let is_same = match watch {
            Some(watch) => target.guard.unwatch(watch),
            None => target.guard.is_as_stamped(stamp, epoch),
        };
        let is_unchanged = (is_same || is_blind) && target.caches_reads();
        let has_room = !is_pressed
            && (!self.store.index.is_tight(blocks.count)
                || self.config.mutations.has(Mutation::IndexOverBudget));
        let may_have_more = target.may_have_more(blocks.count);
        if !is_unchanged {
            target.counters.fill_dropped_blocks += blocks.count;
        } else if !may_have_more {
            target.counters.read_bypasses.above_max_blocks += blocks.count;
        } else if !has_room {
            target.counters.read_bypasses.pressure_blocks += blocks.count;
        }
        is_unchanged && may_have_more && has_room
    }

    /// Puts what is not cached of a fill into a batch if it may enter; returns what has no room in it.
    pub(super) fn append_fill<M: Memory>(
        &mut self,
        fill: Fill,
        draft: &mut Draft,
        memory: &mut M,
    ) -> Option<Fill> {
        self.store.log.pending_fill_blocks -= fill.blocks.count;
        let is_pressed = self.store.segments.free() <= self.config.segments_reserved;
        if !self.fill_may_enter(&fill, is_pressed) {
            memory.release(fill.slice.buffer);
            return None;
        }
        let mut rest = fill.blocks;
        while let Some(new) = self.store.first_uncached(fill.volume, rest) {
            rest = Blocks { first: new.first, count: rest.end() - new.first };
            if !draft.has_units() || draft.room() == 0 {
                // What does not fit goes on in the next batch.
                self.store.log.pending_fill_blocks += rest.count;
                let watch = Some(self.volumes.of_mut(fill.volume).guard.watch(rest));
                let slice = fill.part(rest);
                return Some(Fill { blocks: rest, slice, watch, ..fill });
            }
            let now = Blocks { first: new.first, count: new.count.min(draft.room()) };
            self.append_run(&fill, now, draft, memory);
            rest = Blocks { first: now.end(), count: rest.end() - now.end() };
        }
        memory.release(fill.slice.buffer);
        None
    }

    fn append_run<M: Memory>(&mut self, fill: &Fill, run: Blocks, draft: &mut Draft, memory: &mut M) {
        let slice = fill.part(run);
        let target = self.volumes.of_mut(fill.volume);
        target.guard.acquire(run, Hold::Copying);
        target.counters.fill_blocks += run.count;
        let checksums_at = draft.checksums.len();
        draft.add_checksums(slice, run.count, memory);
        let place = draft.push_clean(target.id, run, slice);
        let buffer = slice.buffer;
        memory.retain(buffer);
        draft.publish.push(Publish::Fill { volume: fill.volume, blocks: run, place, checksums_at, buffer });
        draft.add_payload(run.count);
        draft.fill_blocks += to_u32(run.count);
    }
}
