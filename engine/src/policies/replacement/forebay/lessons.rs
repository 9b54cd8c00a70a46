//! Worth of a block, by class and age, as it follows from when blocks came back.
//!
//! For each class: how many blocks came back at which age, how many never did, how many are still waited for. Of the blocks
//! that reach an age, the share that comes back in it is the hazard of that age; a block that is waited for counts up to
//! its age and no further. Worth is the best ratio of hits to time over all ages at which the block could be dropped:
//!
//! ```text
//! worth(age) = max over end > age of  P(back before end | not back at age) / E[time until back or end]
//! ```
//!
//! Ages have four bins for each octave. Classes with few members borrow: [`PRIOR_BLOCKS`] blocks that behave like all
//! blocks together are added to each, but that come back the likelier the more accesses the class stands for. Numbers
//! shrink by a twelfth at each lesson, so that a load may change.
//!
//! Nobody has seen yet what becomes of blocks at ages that none of them reached. There a few may come back in each bin
//! ([`UNSEEN_HAZARD`]): so a block is worth the more, the nearer it is to those ages, unless something nearer was seen to come
//! back. In a loop that did not come round yet, the first blocks stay and newcomers do not push them out. While nothing
//! came back at all there is nothing to go by, and newcomers enter: of a load that turns back, they come first.

use super::Class;
use crate::number::{index_wide, low_u32, to_u8, wide};
use alloc::vec;
use alloc::vec::Vec;

/// Bins of an octave, as a power of two.
const BINS_LOG: u32 = 2;
/// Bins of ages up to 4 096 units, 16 sizes of 256, and one for blocks that never come back.
const BINS: usize = 46;
/// The bin of blocks that never come back.
const NEVER: usize = BINS - 1;
/// Blocks like all blocks together that are added to each class.
const PRIOR_BLOCKS: u64 = 16;
/// One block, as it is counted: so that it can shrink.
const ONE: u64 = 1 << 8;
/// The part of all counts that a lesson takes away: one in so many.
const DECAY: u64 = 12;
/// Certainty.
const SURE: u64 = 1 << 20;
/// The probability, of [`SURE`], that a block comes back in a bin of which nothing is known: one in 400. By ten times as much, loads
/// suffer that come back soon or never.
const UNSEEN_HAZARD: u64 = SURE / 400;
/// How much is known if nothing was seen: an eighth of what one block tells.
const UNSEEN: u64 = ONE / 8;
/// Worth of a hit for each half unit of time.
const WORTH_LOG: u32 = 26;

/// Blocks by the age at which something happened to them.
type Ages = [u64; BINS];

/// Times and worths: 29 KiB.
#[derive(Clone, Debug)]
pub(super) struct Lessons {
    /// Blocks that came back at an age, and in the last bin those that did not.
    ended: Vec<Ages>,
    /// Blocks that did not come back yet, at a lesson.
    waiting: Vec<Ages>,
    worths: Vec<[u32; BINS]>,
}

impl Lessons {
    /// Nothing was learned: all blocks are worth nothing.
    pub(super) fn new() -> Lessons {
        Lessons {
            ended: vec![[0; BINS]; Class::COUNT],
            waiting: vec![[0; BINS]; Class::COUNT],
            worths: vec![[0; BINS]; Class::COUNT],
        }
    }

    /// A block of a class came back.
    pub(super) fn came_back(&mut self, class: Class, age: u32) {
        self.ended[usize::from(class.0)][bin(age)] += ONE;
    }

    /// A block of a class did not come back before the horizon.
    pub(super) fn stayed_away(&mut self, class: Class) {
        self.ended[usize::from(class.0)][NEVER] += ONE;
    }

    /// Worth of a block.
    pub(super) fn worth(&self, class: Class, age: u32) -> u32 {
        self.worths[usize::from(class.0)][bin(age)]
    }

    /// Learns from what came, and from classes and ages of blocks that are waited for.
    pub(super) fn learn(&mut self, waiting: impl Iterator<Item = (Class, u32)>) {
        self.waiting.fill([0; BINS]);
        for (class, age) in waiting {
            self.waiting[usize::from(class.0)][bin(age)] += ONE;
        }
        let [ended, waited] = [sum(&self.ended), sum(&self.waiting)];
        let all = ended.iter().chain(&waited).sum::<u64>().max(1);
        let is_any_back = ended[..NEVER].iter().any(|count| *count > 0);
        let unseen = if is_any_back { UNSEEN } else { 0 };
        let with_prior = |own: &Ages, all_ages: &Ages, times: u64| {
            let mut ages = *own;
            for (bin, (own, count)) in ages.iter_mut().zip(all_ages).enumerate() {
                *own += count * (PRIOR_BLOCKS * ONE) / all * if bin == NEVER { 1 } else { times };
            }
            ages
        };
        for class in 0..Class::COUNT {
            let times = Class(to_u8(class)).typical_count();
            let ended = with_prior(&self.ended[class], &ended, times);
            let waited = with_prior(&self.waiting[class], &waited, 1);
            self.worths[class] = worths(&hazards(&ended, &waited, unseen));
        }
        self.ended.iter_mut().flatten().for_each(|count| *count -= *count / DECAY);
    }
}

/// The bin of an age: a number of the form 4 to 7 times a power of two, or less than 4.
fn bin(age: u32) -> usize {
    let age = u64::from(age.max(1));
    let log = age.ilog2();
    let bin = match log.checked_sub(BINS_LOG) {
        None => age,
        Some(shift) => (u64::from(shift + 1) << BINS_LOG) + ((age >> shift) & ((1 << BINS_LOG) - 1)),
    };
    index_wide(bin).min(NEVER - 1)
}

/// The first age of a bin.
fn first_age(bin: usize) -> u64 {
    let parts = 1 << BINS_LOG;
    if bin < parts { wide(bin) } else { wide(parts + bin % parts) << (bin / parts - 1) }
}

fn sum(classes: &[Ages]) -> Ages {
    let mut sum = [0; BINS];
    for ages in classes {
        sum.iter_mut().zip(ages).for_each(|(sum, count)| *sum += count);
    }
    sum
}

/// The probability, of [`SURE`], that a block which reached a bin comes back in it. To what was seen there, `unseen` is added of what
/// nobody saw.
fn hazards(ended: &Ages, waited: &Ages, unseen: u64) -> Ages {
    let mut hazards = [0; BINS];
    let mut reached = ended[NEVER] + waited[NEVER];
    for bin in (0..NEVER).rev() {
        reached += ended[bin] + waited[bin];
        // Blocks that are waited for are half-way through their bin.
        let at_risk = reached - waited[bin] / 2;
        let back = ended[bin] * SURE + unseen * UNSEEN_HAZARD;
        hazards[bin] = back.checked_div(at_risk + unseen).unwrap_or(0).min(SURE);
    }
    hazards
}

/// The worth of each age.
fn worths(hazards: &Ages) -> [u32; BINS] {
    let mut worths = [0; BINS];
    for (begin, worth) in worths.iter_mut().enumerate() {
        let (mut here, mut hits, mut half_units) = (SURE, 0, 0);
        // The best ratio so far, as a fraction.
        let (mut best_hits, mut best_half_units) = (0, 1);
        for (bin, hazard) in hazards.iter().enumerate().take(NEVER).skip(begin) {
            let width = first_age(bin + 1) - first_age(bin);
            // The block is half-way through its bin, and hits come half-way through theirs.
            let half_width = if bin == begin { width } else { 2 * width };
            let back = here * hazard / SURE;
            hits += back;
            half_units += (here - back / 2) * half_width;
            here -= back;
            if hits * best_half_units > best_hits * half_units {
                (best_hits, best_half_units) = (hits, half_units);
            }
        }
        *worth = low_u32(((best_hits << WORTH_LOG) / best_half_units).min(u64::from(u32::MAX)));
    }
    worths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_quarters_of_octaves() {
        let mut last = bin(1);
        for age in 2..=4096 {
            let next = bin(age);
            assert!(next == last || next == last + 1, "bins follow each other: {age}");
            assert!(
                (first_age(next)..first_age(next + 1)).contains(&u64::from(age)),
                "{age} lies in its bin"
            );
            last = next;
        }
        assert_eq!(last, NEVER - 1, "16 sizes of 256 units have bins");
        assert_eq!(bin(u32::MAX), NEVER - 1, "older ones are taken for the oldest");
    }

    #[test]
    fn in_a_loop_worth_rises_with_age() {
        let mut lessons = Lessons::new();
        (0..1000).for_each(|_| lessons.came_back(Class::NEW, 400));
        lessons.learn(core::iter::empty());
        let worths = [1, 100, 200, 300, 383].map(|age| lessons.worth(Class::NEW, age));
        assert!(worths.is_sorted() && worths[0] > 0 && worths[4] > 5 * worths[0], "{worths:?}");
    }

    #[test]
    fn where_reuse_is_near_worth_falls_with_age() {
        let mut lessons = Lessons::new();
        for log in 0..10 {
            (0..100).for_each(|_| lessons.came_back(Class::NEW, 1 << log));
        }
        (0..1000).for_each(|_| lessons.stayed_away(Class::NEW));
        lessons.learn(core::iter::empty());
        let worths = [1, 10, 100, 500, 1000].map(|age| lessons.worth(Class::NEW, age));
        assert!(worths.is_sorted_by(|younger, older| younger > older), "{worths:?}");
    }

    #[test]
    fn a_block_that_is_waited_for_counts_up_to_its_age() {
        let learned = |waiting: usize| {
            let mut lessons = Lessons::new();
            (0..100).for_each(|_| lessons.came_back(Class::NEW, 100));
            lessons.learn(core::iter::repeat_n((Class::NEW, 200), waiting));
            lessons.worth(Class::NEW, 1)
        };
        assert!(learned(0) > learned(100) && learned(100) > learned(1000) && learned(1000) > 0);
    }

    #[test]
    fn a_block_is_worth_more_near_what_nobody_saw() {
        let mut lessons = Lessons::new();
        // One block came back at once; all others are waited for, the oldest for 300 units.
        lessons.came_back(Class::NEW, 1);
        lessons.learn((0..300).map(|age| (Class::NEW, age)));
        let worths = [10, 100, 200, 300].map(|age| lessons.worth(Class::NEW, age));
        assert!(worths.is_sorted() && worths[0] > 0 && worths[3] * 2 > worths[0] * 3, "{worths:?}");
    }

    #[test]
    fn while_nothing_came_back_all_blocks_are_alike() {
        let mut lessons = Lessons::new();
        lessons.learn((0..300).map(|age| (Class::NEW, age)));
        assert_eq!([1, 100, 300].map(|age| lessons.worth(Class::NEW, age)), [0; 3]);
    }

    #[test]
    fn classes_without_members_are_like_all() {
        let mut lessons = Lessons::new();
        (0..1000).for_each(|_| lessons.came_back(Class::NEW, 50));
        lessons.learn(core::iter::empty());
        assert!(
            lessons.worth(Class(7), 1).abs_diff(lessons.worth(Class::NEW, 1)) * 100
                < lessons.worth(Class::NEW, 1)
        );
    }

    #[test]
    fn what_was_learned_fades() {
        let mut lessons = Lessons::new();
        (0..1000).for_each(|_| lessons.came_back(Class::NEW, 50));
        for _ in 0..200 {
            lessons.stayed_away(Class::NEW);
            lessons.learn(core::iter::empty());
        }
        let old = lessons.worth(Class::NEW, 1);
        (0..1000).for_each(|_| lessons.came_back(Class::NEW, 50));
        lessons.learn(core::iter::empty());
        assert!(lessons.worth(Class::NEW, 1) > 10 * old, "200 lessons leave nothing of a thousand hits");
    }
}
