//! The choice of blocks to destage next: around an urgent block, or from the sweep's place on.

use crate::machine::barrier::CacheBarrier;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::volume::Volume;
use crate::mutation::{Mutation, Mutations};
use crate::store::{Destaging, Durability, Lookup, Readiness};

/// Blocks of one run at the most: 256 KiB.
pub(super) const RUN_BLOCKS_MAX: u64 = 64;

/// The choice among the dirty blocks of one volume.
pub(crate) struct Choice<'a, S> {
    pub store: &'a S,
    pub volume: &'a mut Volume,
    /// Blocks that no flush covers yet ask it for one.
    pub barrier: &'a mut CacheBarrier,
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

impl<S: Lookup + Durability + Destaging> Choice<'_, S> {
    /// Whether blocks that share one dirty mark can be destaged now: dirty, covered by a flush, and not in use.
    pub fn can_destage(&mut self, unit: Blocks) -> bool {
        let key = self.volume.key(unit.first);
        let Some(cached) = self.store.lookup(key).filter(|cached| cached.dirty) else { return false };
        // A write-through brought the copy home: it waits for the origin's flush alone.
        let copy = || (cached.place, self.store.life(cached.place));
        if self.volume.destage.is_written_through(copy) {
            return false;
        }
        match self.store.readiness(&cached) {
            Readiness::Busy => return false,
            // HAZARD 4: nothing goes home before a flush of the cache covers it.
            Readiness::Unflushed if !self.mutations.has(Mutation::DestageBeforeCacheFlush) => {
                let completed = self.store.completed();
                self.barrier.want(completed);
                return false;
            }
            Readiness::Unflushed | Readiness::Ready => (),
        }
        self.volume.guard.is_free(unit, Hold::Destaging)
    }

    /// The run of blocks around `block` that can go home together.
    pub fn run_around(&mut self, block: u64) -> Option<Blocks> {
        let unit = self.store.unit(self.volume, block);
        if !self.can_destage(unit) {
            return None;
        }
        let mut first = unit.first;
        while first > 0 && unit.first - first < RUN_BLOCKS_MAX / 2 {
            let before = self.store.unit(self.volume, first - 1);
            if self.is_unreadable(unit) || self.is_unreadable(before) || !self.can_destage(before) {
                break;
            }
            first = before.first;
        }
        Some(self.run_from(first))
    }

    /// Whether blocks that share one dirty mark could not be read last time: such blocks are read alone.
    fn is_unreadable(&self, unit: Blocks) -> bool {
        let unreadable = &self.volume.destage.unreadable;
        (unit.first..unit.end()).any(|block| unreadable.has(block))
    }

    /// The run that begins with a unit that can go home.
    fn run_from(&mut self, first: u64) -> Blocks {
        let end = self.volume.blocks();
        let unit = self.store.unit(self.volume, first);
        let mut count = unit.count;
        if self.is_unreadable(unit) {
            return Blocks { first, count };
        }
        while count < RUN_BLOCKS_MAX && first + count < end {
            let next = self.store.unit(self.volume, first + count);
            if self.is_unreadable(next) || !self.can_destage(next) {
                break;
            }
            count += next.count;
        }
        Blocks { first, count }
    }

    /// The next run from the sweep's place on, once round the volume at the most.
    pub fn sweep(&mut self) -> Option<Blocks> {
        let end = self.volume.blocks();
        let start = self.volume.destage.cursor;
        let mut at = start;
        let mut has_wrapped = false;
        // Regions looked at in one go; the next call goes on from there.
        let mut budget = 64;
        loop {
            let next = self.volume.destage.map.next(at).filter(|&block| block < end);
            let Some(block) = next else {
                if has_wrapped {
                    return None;
                }
                has_wrapped = true;
                at = 0;
                continue;
            };
            if (has_wrapped && block >= start) || budget == 0 {
                self.volume.destage.cursor = block;
                return None;
            }
            budget -= 1;
            let (region_first, region_end) = self.volume.destage.map.region_of(block);
            let mut is_clean = true;
            for candidate in region_first..region_end.min(end) {
                let key = self.volume.key(candidate);
                if self.store.lookup(key).is_some_and(|cached| cached.dirty) {
                    is_clean = false;
                    let unit = self.store.unit(self.volume, candidate);
                    if candidate >= block && self.can_destage(unit) {
                        return Some(self.run_from(unit.first));
                    }
                }
            }
            if is_clean {
                self.volume.destage.map.clear_region_of(block);
            }
            at = region_end;
        }
    }
}
