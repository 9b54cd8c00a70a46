//! The share of dirty blocks that a volume may hold: the second half of rule 9.
//!
//! Blocks that an origin does not take stay in the log, and are appended again on every lap of the ring. The more
//! there are, the less of a lap is left for other volumes. So:
//!
//! | the origin | the volume may hold dirty | a write that needs more |
//! | --- | --- | --- |
//! | works, no other volume on the cache | the whole cache | waits in the log for room |
//! | works, with other volumes | three quarters of it | waits here until something went home |
//! | fails | its part of one half of it | waits here for the origin |
//! | is absent | the same | fails |
//! | works, and everything is to go home | a third more | waits here for what goes home |
//! | any, and the order is strict | what the bounds of its lag allow | waits here until older ones are home |
//!
//! One half, because then each block that the other volumes append costs at most one block that is appended again; a
//! part for each volume, because all origins may fail together. Three quarters, because an origin that hangs gives
//! its first error late: the blocks that its volume holds by then must leave a lap something to gain.
//!
//! An origin counts as absent when it still fails a stated time after its first error, or when it says that there is
//! no device any more. Until then a write waits and does not fail (hazard 12): the origin may take it yet. A write to
//! blocks that are dirty already needs no share and is never held up. The failure ends when one of the engine's own
//! operations works, of the kind that failed.
//!
//! A request that waits here holds its blocks shared or merging, which neither a destage nor a relocation waits
//! for.

use crate::effect::{Errno, RequestOp, WriteMode};
use crate::limits::OrderBounds;
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::{Active, RequestKey, Stage};
use crate::machine::volume::Volume;
use crate::machine::volumes::SHARE_BLOCKS_MIN;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::wide;
use crate::store::Store;
use alloc::vec::Vec;

/// Zeroes of more blocks are never written as data: 64 KiB.
const ZERO_DATA_BLOCKS_MAX: u64 = 16;

/// Whether a change may enter the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Granted,
    Waits,
    Refused(Errno),
}

impl<S: Store> Machine<S> {
    /// Lets a change into the log, or puts it on the queue, or fails it. True if it may go on.
    pub(crate) fn pass_share<M: Memory>(&mut self, key: RequestKey, memory: &mut M) -> bool {
        self.release_share(key, u64::MAX);
        let active = &self.requests[key];
        let volume = self.volume(active.volume);
        let (admission, needed) = if self.is_held_by_drain(active, volume) {
            (Admission::Waits, 0)
        } else {
            self.admission(active, volume)
        };
        match admission {
            Admission::Granted => {
                let active = &mut self.requests[key];
                active.reserved_blocks = needed;
                let (volume, blocks) = (active.volume, active.blocks.count);
                let volume = self.volume_mut(volume);
                volume.reserved_blocks += needed;
                volume.destage.change_begins(blocks);
                true
            }
            Admission::Waits => {
                let active = &mut self.requests[key];
                active.stage = Stage::Share;
                let volume = active.volume;
                self.volume_mut(volume).share_waiting += 1;
                self.share.wait(key);
                self.want_tick(self.now.plus(self.config.tick_ns));
                false
            }
            Admission::Refused(errno) => {
                self.fail(key, errno, memory);
                false
            }
        }
    }

    /// Whether the volume is being drained, and so slowly that a change has to wait for that (rule 9).
    fn is_held_by_drain(&self, active: &Active, volume: &Volume) -> bool {
        if volume.destage.drains == 0 {
            return false;
        }
        if volume.destage.order_changes > 0 {
            return true;
        }
        if volume.origin.is_failing() {
            return false;
        }
        let is_held = volume.share_waiting > 0 || volume.destage.holds_change(active.blocks.count);
        is_held && !self.is_mutated(Mutation::WritersOutrunDrain)
    }

    /// Whether a change may enter the log, and how many dirty blocks that may add.
    fn admission(&self, active: &Active, volume: &Volume) -> (Admission, u64) {
        if let Some(bounds) = self.config.order
            && self.is_order_behind(volume, bounds, active.blocks.count)
        {
            return (self.waits_or_fails(volume), 0);
        }
        let is_zero =
            matches!(active.op, RequestOp::WriteZeroes { .. }) && !self.zeroes_are_data(active, volume);
        // Only the edges of a range of zeroes are data.
        let most = if is_zero { active.blocks.count.min(2) } else { active.blocks.count };
        let Some(limit) = self.volumes.dirty_blocks_max(volume, &self.config) else {
            return (Admission::Granted, most);
        };
        let is_failing = volume.origin.is_failing();
        let held = volume.dirty_blocks + volume.reserved_blocks;
        if !is_failing && volume.share_waiting == 0 && held + most <= limit {
            return (Admission::Granted, most);
        }
        let needed = self.clean_blocks(active, volume);
        // Whole zeroes are extents; their number is limited for all volumes together.
        let is_out_of_extents = is_zero && S::pressure(self).extents * 2 >= self.config.extents_max;
        // If the volume has nothing left to destage, this change tests whether the origin works again.
        let is_tried = volume.has_destageable() || volume.destage.has_written();
        let is_over = (needed > 0 && held + needed > limit)
            || (is_failing && is_tried && (is_out_of_extents || self.volumes.is_ring_stuck(&self.config)));
        let admission = if !is_over && (needed == 0 || volume.share_waiting == 0) {
            Admission::Granted
        } else if is_over {
            self.waits_or_fails(volume)
        } else if self.is_stopping {
            Admission::Refused(Errno::SHUTDOWN)
        } else {
            Admission::Waits
        };
        (admission, needed)
    }

    /// Whether zeroes enter the log as data: they are few, and the table of extents is half full. Whoever finds it full holds up
    /// all writers until zeroes are home, as the order of the log is that of the queue.
    fn zeroes_are_data(&self, active: &Active, volume: &Volume) -> bool {
        matches!(active.op, RequestOp::WriteZeroes { .. })
            && active.blocks.count <= ZERO_DATA_BLOCKS_MAX
            && volume.mode == WriteMode::Writeback
            && volume.covers_whole_blocks(active.op)
            && S::pressure(self).extents * 2 >= self.config.extents_max
    }

    /// Whether zeroes that have their share enter the log as data. If the table was not half full when they got it, they may have
    /// no share for data.
    pub(crate) fn may_append_zeroes_as_data(&self, key: RequestKey) -> bool {
        let active = &self.requests[key];
        let volume = self.volume(active.volume);
        self.zeroes_are_data(active, volume) && self.clean_blocks(active, volume) <= active.reserved_blocks
    }

    /// Whether a change has to wait for older ones to go home.
    #[cold]
    #[inline(never)]
    fn is_order_behind(&self, volume: &Volume, bounds: OrderBounds, blocks: u64) -> bool {
        let blocks = blocks.min(SHARE_BLOCKS_MIN);
        volume.is_behind(bounds, blocks, self.now)
    }

    /// The fate of a change that finds no room until something goes home.
    #[cold]
    #[inline(never)]
    fn waits_or_fails(&self, volume: &Volume) -> Admission {
        if volume.origin.is_absent() {
            Admission::Refused(Errno::IO)
        } else if self.is_stopping {
            Admission::Refused(Errno::SHUTDOWN)
        } else {
            Admission::Waits
        }
    }

    /// Blocks that a change makes dirty and that are clean now.
    fn clean_blocks(&self, active: &Active, volume: &Volume) -> u64 {
        let is_clean =
            |block: &u64| !self.store.lookup(volume.key(*block)).is_some_and(|cached| cached.dirty);
        let Blocks { first, count } = active.blocks;
        match active.op {
            RequestOp::WriteZeroes { range, .. } if !self.zeroes_are_data(active, volume) => {
                let inner = volume.whole_blocks(range);
                let edges = (count > inner.count).then_some([first, first + count - 1]);
                let mut edges: Vec<u64> = edges.into_iter().flatten().collect();
                edges.dedup();
                edges.retain(|&block| inner.count == 0 || !(inner.first..inner.end()).contains(&block));
                wide(edges.iter().filter(|block| is_clean(block)).count())
            }
            _ => wide((first..first + count).filter(is_clean).count()),
        }
    }

    /// Gives back the reserved blocks that a request has not used.
    pub(crate) fn release_share(&mut self, key: RequestKey, blocks_max: u64) {
        let active = &mut self.requests[key];
        let blocks = active.reserved_blocks.min(blocks_max);
        if blocks == 0 {
            return;
        }
        active.reserved_blocks -= blocks;
        let volume = active.volume;
        let volume = self.volume_mut(volume);
        assert!(volume.reserved_blocks >= blocks, "what is given back was reserved");
        volume.reserved_blocks -= blocks;
    }

    /// Looks again at requests that wait for a share, if something happened that concerns them.
    pub(crate) fn retry_shares<M: Memory>(&mut self, memory: &mut M) {
        // A change that is withdrawn may join the queue: the queue is taken afterwards.
        let Some(failed) = self.share.take_failed() else { return };
        for volume in failed {
            S::withdraw(self, volume, memory);
        }
        for volume in self.volumes.iter_mut().flatten() {
            volume.share_waiting = 0;
        }
        // A request that still has to wait joins the queue again, and those behind it of the same volume do, too.
        for key in self.share.take_waiting() {
            assert!(self.requests[key].stage == Stage::Share, "a request on the queue waits for its share");
            self.begin_change(key, memory);
        }
    }
}
