//! Whether neighbours that nobody asked for enter the cache.
//!
//! A cold cache on a slow disk is filled block by block, with a search of the disk for each. What lies beside a miss costs
//! no search; but it is written to the cache device, and reading it takes the disk some time. So it pays where enough
//! of it will be asked for before the room is gone. That is learned from neighbours that memory gave up and that did not
//! enter: a miss among them, however late, is one that they would have saved. How often that happens, for each block and each
//! miss, times the misses to come, is what a block saves. As many are to come as there were: a load of a minute is not slowed
//! down for what would pay in an hour. Nor more than half of all the room was good for, as the cache forgets what it has taken
//! when it has gone round, and takes other things meanwhile. How much of the room is left does not matter: what still enters stays
//! for as long as what came before.
//!
//! In a full cache the oldest blocks leave for them. When clients turn to something else, those are worth nothing any more. So
//! neighbours enter there, too, if a block of them saves twice as much as one of the oldest does.

use crate::policies::fetch::neighbourhood::WIDTH_BLOCKS_MAX;
use crate::units::BlockKey;
use alloc::collections::{BTreeMap, VecDeque};

/// Runs that are remembered at the most.
const REMEMBERED_MAX: usize = 1024;
/// One in so many misses is tried, while there is room; and in a full cache.
const TRIAL_EVERY: u64 = 16;
const TRIAL_EVERY_IN_FULL: u64 = 64;
/// The oldest part of a full cache is one in so many blocks.
pub(crate) const OLDEST_ONE_IN: u32 = 4;
/// So many misses tell how often the oldest blocks are read; beyond twice as many, older ones count half.
const OLDEST_MISSES_MIN: u64 = 256;
/// A block has to save so many times what one of the oldest does.
const WORTH_TIMES: u64 = 2;
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

/// The room for what nobody asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Blocks that enter without pushing others out.
    pub free_blocks: u64,
    /// Blocks that enter until a full cache has nothing left of what it holds now; none if it gives up others than the oldest.
    pub round_blocks: u64,
    /// Reads so far of the oldest part of it ([`OLDEST_ONE_IN`]).
    pub oldest_reads: u64,
}

/// How often the oldest blocks of a cache are read.
#[derive(Debug, Default)]
struct Oldest {
    misses: u64,
    reads: u64,
    reads_before: u64,
}

impl Oldest {
    fn miss(&mut self, reads: u64) {
        self.misses += 1;
        // More than one for each miss is no more to be believed: what was read before a turn is soon to be forgotten.
        self.reads = (self.reads + reads - self.reads_before).min(self.misses);
        self.reads_before = reads;
        if self.misses > 2 * OLDEST_MISSES_MIN {
            (self.misses, self.reads) = (self.misses / 2, self.reads / 2);
        }
    }

    /// Whether what is read in a region of half of the cache could be worth more.
    fn may_leave(&self) -> bool {
        let oldest_part = u64::from(OLDEST_ONE_IN);
        self.misses >= OLDEST_MISSES_MIN
            && self.reads.saturating_mul(oldest_part * WORTH_TIMES) <= 2 * self.misses
    }

    /// Whether blocks that save `missed` misses of `chances` are worth more than the oldest of so many.
    fn is_worth_less(&self, missed: u64, chances: u64, round_blocks: u64) -> bool {
        let oldest_blocks = round_blocks / u64::from(OLDEST_ONE_IN);
        let theirs = self.reads.saturating_mul(chances).saturating_mul(WORTH_TIMES);
        self.may_leave() && missed.saturating_mul(self.misses).saturating_mul(oldest_blocks) >= theirs
    }
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
    oldest: Oldest,
}

impl WarmUp {
    /// A read missed that block.
    pub fn miss(&mut self, key: BlockKey, room: Room) {
        self.misses += 1;
        self.oldest.miss(room.oldest_reads);
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

    /// Whether a run of neighbours saves enough.
    fn pays(&mut self, room: Room) -> bool {
        self.room_max_blocks = self.room_max_blocks.max(room.free_blocks);
        let WarmUp { missed, chances, .. } = *self;
        let stays_blocks = if room.free_blocks > 0 {
            self.room_max_blocks
        } else if self.oldest.is_worth_less(missed, chances, room.round_blocks) {
            room.round_blocks / 2
        } else {
            0
        };
        let to_come = (stays_blocks / 2).min(self.misses.saturating_mul(WIDTH_BLOCKS_MAX));
        to_come > 0
            && missed >= EVIDENCE_MIN
            && missed.saturating_mul(to_come).saturating_mul(PAYS_ONE_IN) >= chances
    }

    /// The size of the aligned range that a miss reads for the cache's sake.
    pub fn next_blocks(&mut self, room: Room) -> u64 {
        let is_trial = if room.free_blocks > 0 {
            self.misses.is_multiple_of(TRIAL_EVERY)
        } else {
            room.round_blocks > 0
                && self.misses.is_multiple_of(TRIAL_EVERY_IN_FULL)
                && self.oldest.may_leave()
        };
        if self.pays(room) || is_trial { WIDTH_BLOCKS_MAX } else { 1 }
    }

    /// Whether neighbours that memory gives up now enter the cache.
    pub fn enters(&mut self, room: Room) -> bool {
        self.leavings = self.leavings.wrapping_add(1);
        self.pays(room) && !self.leavings.is_multiple_of(WITHHELD_EVERY)
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

    fn free(free_blocks: u64) -> Room {
        Room { free_blocks, ..Room::default() }
    }

    /// A history of misses in so many regions, of which every other one was read wide and left; `step` jumps about.
    fn after(misses: u64, regions: u64, step: u64) -> WarmUp {
        let mut warm_up = WarmUp::default();
        let mut region = 0;
        for number in 0..misses {
            region = (region + step) % regions;
            warm_up.miss(key(region * WIDTH_BLOCKS_MAX + number % WIDTH_BLOCKS_MAX), Room::default());
            if number % 2 == 0 {
                warm_up.left(key(region * WIDTH_BLOCKS_MAX), WIDTH_BLOCKS_MAX, WIDTH_BLOCKS_MAX - 1);
            }
        }
        warm_up
    }

    #[test]
    fn regions_that_fit_are_worth_their_room() {
        let mut warm_up = after(4000, 500, 7);
        assert!(!warm_up.pays(free(200 * WIDTH_BLOCKS_MAX)), "most of them have no room");
        assert!(warm_up.pays(free(1000 * WIDTH_BLOCKS_MAX)));
        assert!(warm_up.pays(free(100 * WIDTH_BLOCKS_MAX)), "the others have entered");
        assert!(!warm_up.pays(free(0)));
    }

    #[test]
    fn what_is_never_missed_again_pays_nowhere() {
        assert!(!after(4000, 1 << 30, 12_345).pays(free(u64::MAX / 64)));
    }

    #[test]
    fn little_evidence_is_none() {
        let mut warm_up = WarmUp::default();
        warm_up.left(key(0), 3, 3);
        (0..3).for_each(|_| warm_up.miss(key(2), Room::default()));
        assert!(!warm_up.pays(free(1 << 20)));
        warm_up.miss(key(3), Room::default());
        assert!(!warm_up.pays(free(1 << 20)), "that is behind them");
        warm_up.miss(key(0), Room::default());
        assert!(warm_up.pays(free(1 << 20)));
    }

    #[test]
    fn some_stay_away_to_learn_from() {
        let mut warm_up = after(4000, 500, 7);
        let entered = (0..160).filter(|_| warm_up.enters(free(1000 * WIDTH_BLOCKS_MAX))).count();
        assert_eq!(entered, 150);
    }

    #[test]
    fn in_a_full_cache_they_enter_for_what_nobody_reads() {
        let full =
            |oldest_reads| Room { free_blocks: 0, round_blocks: 2000 * WIDTH_BLOCKS_MAX, oldest_reads };
        let mut warm_up = after(4000, 500, 7);
        assert!(warm_up.pays(full(0)));
        assert_eq!(warm_up.next_blocks(full(0)), WIDTH_BLOCKS_MAX);
        assert!(
            !warm_up.pays(Room { round_blocks: 500 * WIDTH_BLOCKS_MAX, ..full(0) }),
            "half of it is the region"
        );
        // For each miss there is a read of the oldest.
        for reads in 1..=1000 {
            warm_up.miss(key(0), full(reads));
        }
        assert!(!warm_up.pays(full(1000)));
        assert_eq!(warm_up.next_blocks(full(1000)), 1);
    }

    #[test]
    fn a_full_cache_is_tried_seldom() {
        let full = Room { free_blocks: 0, round_blocks: 1 << 20, oldest_reads: 0 };
        let mut warm_up = WarmUp::default();
        let mut tried = 0;
        for block in 0..6400 {
            warm_up.miss(key(block * 1000), full);
            tried += u64::from(warm_up.next_blocks(full) > 1);
        }
        assert_eq!(tried, 97, "one in 64, once there is evidence");
    }

    #[test]
    fn few_are_remembered() {
        let warm_up = after(10_000, 5000, 7);
        assert!(warm_up.remembered.len() <= REMEMBERED_MAX && warm_up.order.len() <= REMEMBERED_MAX);
    }
}
