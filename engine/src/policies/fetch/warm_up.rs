//! Whether neighbours that nobody asked for enter the cache while it has room.
//!
//! A cold cache on a slow disk is filled block by block, with a search of the disk for each. What lies beside a miss costs
//! no search; but it is written to the cache device, and reading it takes the disk some time. So it pays where enough
//! of it will be asked for before the room is gone. That is learned from neighbours that memory gave up and that did not
//! enter: a miss among them, however late, is one that they would have saved. How often that happens, for each block and each
//! miss, times the misses to come, is what a block saves. As many are to come as there were: a load of a minute is not slowed
//! down for what would pay in an hour. Nor more than half of all the room was good for, as the cache forgets what it has taken
//! when it has gone round, and takes other things meanwhile. How much of the room is left does not matter: what still enters stays
//! for as long as what came before.

use crate::policies::fetch::neighbourhood::WIDTH_BLOCKS_MAX;
use crate::units::BlockKey;
use alloc::collections::{BTreeMap, VecDeque};

/// Runs that are remembered at the most.
const REMEMBERED_MAX: usize = 1024;
/// One in so many misses is tried, while there is room.
const TRIAL_EVERY: u64 = 16;
/// Misses among the remembered before anything is concluded from them.
const EVIDENCE_MIN: u64 = 4;
/// Beyond so many, older ones count half.
const EVIDENCE_MAX: u64 = 256;
/// A run pays if it saves a miss for each so many. A hard disk reads 256 KiB in less than 2 ms, and takes 4 to 8 ms to find a
/// place.
const PAYS_ONE_IN: u64 = 2;
/// While runs enter, one in so many does not, to go on learning.
const WITHHELD_EVERY: u32 = 16;

/// A run that did not enter.
#[derive(Clone, Copy, Debug)]
struct Left {
    number: u64,
    blocks: u64,
    unused_blocks: u64,
}

/// The lessons of one volume's misses.
#[derive(Debug, Default)]
pub(crate) struct WarmUp {
    /// Runs that did not enter, by their first block.
    remembered: BTreeMap<BlockKey, Left>,
    /// The same with their numbers, oldest first.
    order: VecDeque<(BlockKey, u64)>,
    last_number: u64,
    remembered_blocks: u64,
    misses: u64,
    /// The most room that there was.
    room_max_blocks: u64,
    /// For each miss, how many blocks were remembered: all of that together, and the misses among them.
    chances: u64,
    missed: u64,
    leavings: u32,
}

impl WarmUp {
    /// A read missed that block.
    pub fn miss(&mut self, key: BlockKey) {
        self.misses += 1;
        self.chances += self.remembered_blocks;
        let Some((first, left)) = self.remembered.range(..=key).next_back() else { return };
        if key.0 - first.0 >= left.blocks {
            return;
        }
        self.missed += 1;
        if self.missed > EVIDENCE_MAX {
            (self.missed, self.chances) = (self.missed / 2, self.chances / 2);
        }
    }

    /// Whether a run of neighbours saves enough in a cache with room for so many blocks.
    fn pays(&mut self, room_blocks: u64) -> bool {
        self.room_max_blocks = self.room_max_blocks.max(room_blocks);
        let to_come = (self.room_max_blocks / 2).min(self.misses.saturating_mul(WIDTH_BLOCKS_MAX));
        room_blocks > 0
            && self.missed >= EVIDENCE_MIN
            && self.missed.saturating_mul(to_come).saturating_mul(PAYS_ONE_IN) >= self.chances
    }

    /// The size of the aligned range that a miss reads for the cache's sake, if that has room for so many blocks.
    pub fn next_blocks(&mut self, room_blocks: u64) -> u64 {
        let is_trial = room_blocks > 0 && self.misses.is_multiple_of(TRIAL_EVERY);
        if self.pays(room_blocks) || is_trial { WIDTH_BLOCKS_MAX } else { 1 }
    }

    /// Whether neighbours that memory gives up now enter the cache, if it has room for so many blocks.
    pub fn enters(&mut self, room_blocks: u64) -> bool {
        self.leavings = self.leavings.wrapping_add(1);
        self.pays(room_blocks) && !self.leavings.is_multiple_of(WITHHELD_EVERY)
    }

    /// Neighbours did not enter, some of which nobody had asked for.
    pub fn left(&mut self, first: BlockKey, blocks: u64, unused_blocks: u64) {
        self.last_number += 1;
        self.forget(first);
        self.remembered.insert(first, Left { number: self.last_number, blocks, unused_blocks });
        self.remembered_blocks += unused_blocks;
        self.order.push_back((first, self.last_number));
        while self.order.len() > REMEMBERED_MAX {
            let Some((first, number)) = self.order.pop_front() else { return };
            if self.remembered.get(&first).is_some_and(|left| left.number == number) {
                self.forget(first);
            }
        }
    }

    fn forget(&mut self, first: BlockKey) {
        self.remembered_blocks -= self.remembered.remove(&first).map_or(0, |left| left.unused_blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::VolumeIndex;

    fn key(block: u64) -> BlockKey {
        BlockKey::new(VolumeIndex(0), block)
    }

    /// A history of misses in so many regions, of which every other one was read wide and left; `step` jumps about.
    fn after(misses: u64, regions: u64, step: u64) -> WarmUp {
        let mut warm_up = WarmUp::default();
        let mut region = 0;
        for number in 0..misses {
            region = (region + step) % regions;
            warm_up.miss(key(region * WIDTH_BLOCKS_MAX + number % WIDTH_BLOCKS_MAX));
            if number % 2 == 0 {
                warm_up.left(key(region * WIDTH_BLOCKS_MAX), WIDTH_BLOCKS_MAX, WIDTH_BLOCKS_MAX - 1);
            }
        }
        warm_up
    }

    #[test]
    fn regions_that_fit_are_worth_their_room() {
        let mut warm_up = after(4000, 500, 7);
        assert!(!warm_up.pays(200 * WIDTH_BLOCKS_MAX), "most of them have no room");
        assert!(warm_up.pays(1000 * WIDTH_BLOCKS_MAX));
        assert!(warm_up.pays(100 * WIDTH_BLOCKS_MAX), "the others have entered");
        assert!(!warm_up.pays(0));
    }

    #[test]
    fn what_is_never_missed_again_pays_nowhere() {
        assert!(!after(4000, 1 << 30, 12_345).pays(u64::MAX / 64));
    }

    #[test]
    fn little_evidence_is_none() {
        let mut warm_up = WarmUp::default();
        warm_up.left(key(0), 3, 3);
        (0..3).for_each(|_| warm_up.miss(key(2)));
        assert!(!warm_up.pays(1 << 20));
        warm_up.miss(key(3));
        assert!(!warm_up.pays(1 << 20), "that is behind them");
        warm_up.miss(key(0));
        assert!(warm_up.pays(1 << 20));
    }

    #[test]
    fn some_stay_away_to_learn_from() {
        let mut warm_up = after(4000, 500, 7);
        let entered = (0..160).filter(|_| warm_up.enters(1000 * WIDTH_BLOCKS_MAX)).count();
        assert_eq!(entered, 150);
    }

    #[test]
    fn few_are_remembered() {
        let warm_up = after(10_000, 5000, 7);
        assert!(warm_up.remembered.len() <= REMEMBERED_MAX && warm_up.order.len() <= REMEMBERED_MAX);
    }
}
