//! Which blocks go home next: those around an urgent one, or what the sweep comes to.

use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::mutation::Mutation;
use crate::store::{Readiness, Store};
use crate::units::VolumeIndex;

/// Blocks of one run at the most: 256 KiB.
const RUN_BLOCKS_MAX: u64 = 64;

impl<S: Store> Machine<S> {
    /// Whether blocks that share one dirty mark can go home now: dirty, covered by a flush, and nobody busy with
    /// them.
    pub(crate) fn can_destage(&mut self, index: VolumeIndex, unit: Blocks) -> bool {
        let key = self.volume(index).key(unit.first);
        let Some(cached) = self.store.lookup(key).filter(|cached| cached.dirty) else { return false };
        match self.store.readiness(&cached) {
            Readiness::Busy => return false,
            // HAZARD 4: nothing goes home before a flush of the cache covers it.
            Readiness::Unflushed if !self.is_mutated(Mutation::DestageBeforeCacheFlush) => {
                let completed = self.store.completed();
                self.barrier.want(completed);
                return false;
            }
            Readiness::Unflushed | Readiness::Ready => (),
        }
        // The origin has it, and its flush is all that it waits for.
        let through = &self.volume(index).destage.through;
        if !through.is_empty() && through.contains(&(cached.place, self.store.life(cached.place))) {
            return false;
        }
        self.volume(index).guard.is_free(unit, Hold::Destaging)
    }

    /// The run of blocks around `block` that can go home together.
    pub(super) fn run_around(&mut self, index: VolumeIndex, block: u64) -> Option<Blocks> {
        let unit = self.store.unit(self.volume(index), block);
        if !self.can_destage(index, unit) {
            return None;
        }
        let mut first = unit.first;
        while first > 0 && unit.first - first < RUN_BLOCKS_MAX / 2 {
            let before = self.store.unit(self.volume(index), first - 1);
            if self.is_unreadable(index, unit)
                || self.is_unreadable(index, before)
                || !self.can_destage(index, before)
            {
                break;
            }
            first = before.first;
        }
        Some(self.run_from(index, first))
    }

    /// Whether blocks that share one dirty mark could not be read last time: they go alone.
    fn is_unreadable(&self, index: VolumeIndex, unit: Blocks) -> bool {
        let unreadable = &self.volume(index).destage.unreadable;
        (unit.first..unit.end()).any(|block| unreadable.has(block))
    }

    /// The run that begins with a unit that can go home.
    fn run_from(&mut self, index: VolumeIndex, first: u64) -> Blocks {
        let end = self.volume(index).blocks();
        let unit = self.store.unit(self.volume(index), first);
        let mut count = unit.count;
        if self.is_unreadable(index, unit) {
            return Blocks { first, count };
        }
        while count < RUN_BLOCKS_MAX && first + count < end {
            let next = self.store.unit(self.volume(index), first + count);
            if self.is_unreadable(index, next) || !self.can_destage(index, next) {
                break;
            }
            count += next.count;
        }
        Blocks { first, count }
    }

    /// The next run from the sweep's place on, once round the volume at the most.
    pub(crate) fn sweep(&mut self, index: VolumeIndex) -> Option<Blocks> {
        let end = self.volume(index).blocks();
        let start = self.volume(index).destage.cursor;
        let mut at = start;
        let mut has_wrapped = false;
        // Regions looked at in one go; the next call goes on from there.
        let mut budget = 64;
        loop {
            let next = self.volume(index).destage.map.next(at).filter(|&block| block < end);
            let Some(block) = next else {
                if has_wrapped {
                    return None;
                }
                has_wrapped = true;
                at = 0;
                continue;
            };
            if (has_wrapped && block >= start) || budget == 0 {
                self.volume_mut(index).destage.cursor = block;
                return None;
            }
            budget -= 1;
            let (region_first, region_end) = self.volume(index).destage.map.region_of(block);
            let mut is_clean = true;
            for candidate in region_first..region_end.min(end) {
                let key = self.volume(index).key(candidate);
                if self.store.lookup(key).is_some_and(|cached| cached.dirty) {
                    is_clean = false;
                    let unit = self.store.unit(self.volume(index), candidate);
                    if candidate >= block && self.can_destage(index, unit) {
                        return Some(self.run_from(index, unit.first));
                    }
                }
            }
            if is_clean {
                self.volume_mut(index).destage.map.clear_region_of(block);
            }
            at = region_end;
        }
    }
}
