//! Blocks that left, or were not let in: their last access and their count, without their content.
//!
//! A table of buckets, each a queue: the block that left first makes room. Blocks are known by 13 bits of a hash beside their
//! bucket, so one block in a thousand is taken for another one: that costs a wrong class.

use super::{COUNT_MAX, STAMP_BITS, STAMP_MASK, Time};
use crate::number::{index, index_wide, low_u32, mul_high, wide};
use crate::prng::scatter;
use crate::units::PieceKey;
use alloc::vec;
use alloc::vec::Vec;

/// Places of a bucket.
const WAYS: usize = 8;
/// Bits of a count.
const COUNT_BITS: u32 = 4;
/// A block that makes room moves the reach by one part in so many.
const REACH_SAMPLES: u64 = 16;
/// A vacant place: no block has a print of 0.
const VACANT: u32 = 0;

/// Memory of a block that is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    /// Units since its last access.
    pub(super) age: u32,
    /// Its count of accesses, as of then.
    pub(super) count: u32,
}

/// The table: print, count and stamp of each block in 32 bits.
#[derive(Clone, Debug)]
pub(super) struct Ghosts {
    places: Vec<u32>,
    /// Mean age of the blocks that made room, in units, times [`REACH_SAMPLES`].
    reach: u64,
}

impl Ghosts {
    /// Room for about `blocks`. They are taken to reach as far as `reach_units` until that is known better.
    pub(super) fn new(blocks: u32, reach_units: u32) -> Ghosts {
        let places = index(blocks).next_multiple_of(WAYS);
        Ghosts { places: vec![VACANT; places], reach: u64::from(reach_units) * REACH_SAMPLES }
    }

    /// The age at which blocks are forgotten.
    pub(super) fn reach_units(&self) -> u32 {
        low_u32(self.reach / REACH_SAMPLES)
    }

    /// Forgets `block` and tells what was remembered.
    pub(super) fn take(&mut self, block: PieceKey, now: Time) -> Option<Remembered> {
        let (bucket, print) = self.bucket(block);
        let place = bucket.iter_mut().find(|place| print_of(**place) == print)?;
        let found = Remembered { age: age_of(*place, now), count: (*place >> STAMP_BITS) & COUNT_MAX };
        *place = VACANT;
        Some(found)
    }

    /// Remembers a block that was last accessed `age` units ago.
    pub(super) fn push(&mut self, block: PieceKey, age: u32, count: u32, now: Time) {
        let (bucket, print) = self.bucket(block);
        let gap = bucket.iter().position(|&place| place == VACANT || print_of(place) == print);
        let displaced = gap.is_none().then(|| age_of(bucket[WAYS - 1], now));
        // The block that left last comes first.
        bucket[..=gap.unwrap_or(WAYS - 1)].rotate_right(1);
        let stamp = now.units().wrapping_sub(age) & STAMP_MASK;
        bucket[0] = stamp | (count << STAMP_BITS) | (print << (STAMP_BITS + COUNT_BITS));
        if let Some(age) = displaced {
            self.reach = self.reach - self.reach / REACH_SAMPLES + u64::from(age);
        }
    }

    fn bucket(&mut self, block: PieceKey) -> (&mut [u32], u32) {
        // Other bits than those by which blocks are watched.
        let hash = scatter(!block.0);
        let buckets = wide(self.places.len() / WAYS);
        let first = index_wide(mul_high(hash, buckets)) * WAYS;
        let print = (low_u32(hash) & (u32::MAX >> (STAMP_BITS + COUNT_BITS))).max(1);
        (&mut self.places[first..first + WAYS], print)
    }
}

fn print_of(place: u32) -> u32 {
    place >> (STAMP_BITS + COUNT_BITS)
}

fn age_of(place: u32, now: Time) -> u32 {
    now.units().wrapping_sub(place) & STAMP_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(accesses: u64) -> Time {
        Time { accesses, unit_log: 0, era_units: 1000 }
    }

    #[test]
    fn what_left_is_remembered_once() {
        let mut ghosts = Ghosts::new(64, 500);
        ghosts.push(PieceKey(7), 3, 5, time(10));
        ghosts.push(PieceKey(7), 0, 6, time(12));
        assert_eq!(ghosts.take(PieceKey(7), time(20)), Some(Remembered { age: 8, count: 6 }));
        assert_eq!(ghosts.take(PieceKey(7), time(20)), None, "it was taken");
        assert_eq!(ghosts.reach_units(), 500, "no block had to make room");
    }

    #[test]
    fn the_block_that_left_first_makes_room() {
        let mut ghosts = Ghosts::new(8, 500);
        (0..9).for_each(|block| ghosts.push(PieceKey(block), 0, 1, time(100 + block)));
        assert_eq!(ghosts.take(PieceKey(0), time(200)), None);
        assert!((1..9).all(|block| ghosts.take(PieceKey(block), time(200)).is_some()));
        assert!(ghosts.reach_units() < 500, "the reach follows the age of blocks that make room");
    }
}
