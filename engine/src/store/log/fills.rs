//! Fills: what reads brought from the origin enters the log as clean data.

use super::draft::Draft;
use super::{LogStore, Publish};
use crate::format::EntryKind;
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

impl Machine<LogStore> {
    /// Whether a fill may enter: its blocks are as they were when they were read, and none is cached. If not, it is counted.
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
            None => target.guard.stamp(blocks, epoch) == Some(stamp),
        };
        let is_unchanged = (is_same || is_blind) && target.caches_reads();
        let is_new = is_unchanged
            && !is_pressed
            && (!self.store.index.is_tight(blocks.count)
                || self.config.mutations.has(Mutation::IndexOverBudget))
            && (blocks.first..blocks.end())
                .all(|block| self.store.index.get(BlockKey::new(volume, block)).is_none());
        if !is_new {
            let counter = if is_unchanged {
                &mut target.counters.read_bypasses.pressure_blocks
            } else {
                &mut target.counters.fill_dropped_blocks
            };
            *counter += blocks.count;
        }
        is_new
    }

    /// Puts a fill into a batch if it may enter; returns what has no room in it.
    pub(super) fn append_fill<M: Memory>(
        &mut self,
        fill: Fill,
        draft: &mut Draft,
        memory: &mut M,
    ) -> Option<Fill> {
        self.store.log.pending_fill_blocks -= fill.blocks.count;
        let is_pressed = self.store.segments.free() <= self.config.segments_reserved;
        let Fill { volume, blocks, slice, stamp, kept_bytes, since, .. } = fill;
        if !self.fill_may_enter(&fill, is_pressed) {
            memory.release(slice.buffer);
            return None;
        }
        let target = self.volumes.of_mut(volume);
        // What does not fit goes on in the next batch.
        let now = Blocks { first: blocks.first, count: blocks.count.min(draft.room()) };
        let rest = Blocks { first: now.end(), count: blocks.count - now.count };
        let mut left = None;
        if rest.count > 0 {
            memory.retain(slice.buffer);
            let skip = to_u32(now.count * BLOCK_BYTES);
            let slice = slice.part(skip, to_u32(rest.count * BLOCK_BYTES));
            self.store.log.pending_fill_blocks += rest.count;
            let watch = Some(target.guard.watch(rest));
            left = Some(Fill { volume, blocks: rest, slice, stamp, watch, kept_bytes, since });
        }
        target.guard.acquire(now, Hold::Copying);
        target.counters.fill_blocks += now.count;
        let volume_id = target.id;
        let place = draft.next_place();
        let checksums_at = draft.checksums.len();
        draft.add_checksums(slice, now.count, memory);
        draft.push_payload_entry(EntryKind::Clean, volume_id, now);
        draft.pieces.push(slice.part(0, to_u32(now.count * BLOCK_BYTES)));
        let buffer = slice.buffer;
        draft.publish.push(Publish::Fill { volume, blocks: now, place, checksums_at, buffer });
        draft.add_payload(now.count);
        draft.fill_blocks += to_u32(now.count);
        left
    }
}
