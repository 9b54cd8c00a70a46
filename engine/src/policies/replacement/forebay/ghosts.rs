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
use core::ops::Range;

/// Places of a bucket.
const WAYS: usize = 8;
/// Bits of a count.
const COUNT_BITS: u32 = 4;
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
}

impl Ghosts {
    /// Room for about `blocks`.
    pub(super) fn new(blocks: u32) -> Ghosts {
        Ghosts { places: vec![VACANT; index(blocks).next_multiple_of(WAYS)] }
    }

    /// The memory of `block`, if there is one.
    pub(super) fn find(&self, block: PieceKey, now: Time) -> Option<Remembered> {
        let (bucket, print) = self.bucket(block);
        let place = self.places[bucket].iter().find(|place| print_of(**place) == print)?;
        Some(Remembered { age: age_of(*place, now), count: (*place >> STAMP_BITS) & COUNT_MAX })
    }

    /// Forgets `block`, if it is remembered.
    pub(super) fn forget(&mut self, block: PieceKey) {
        let (bucket, print) = self.bucket(block);
        if let Some(place) = self.places[bucket].iter_mut().find(|place| print_of(**place) == print) {
            *place = VACANT;
        }
    }

    /// Remembers a block that was last accessed `age` units ago.
    pub(super) fn push(&mut self, block: PieceKey, age: u32, count: u32, now: Time) {
        let (bucket, print) = self.bucket(block);
        let bucket = &mut self.places[bucket];
        let gap = bucket.iter().position(|&place| place == VACANT || print_of(place) == print);
        // The block that left last comes first.
        bucket[..=gap.unwrap_or(WAYS - 1)].rotate_right(1);
        let stamp = now.units().wrapping_sub(age) & STAMP_MASK;
        bucket[0] = stamp | (count << STAMP_BITS) | (print << (STAMP_BITS + COUNT_BITS));
    }

    /// The places of a block's bucket, and its print.
    fn bucket(&self, block: PieceKey) -> (Range<usize>, u32) {
        // Other bits than those by which blocks are watched.
        let hash = scatter(!block.0);
        let buckets = wide(self.places.len() / WAYS);
        let first = index_wide(mul_high(hash, buckets)) * WAYS;
        let print = (low_u32(hash) & (u32::MAX >> (STAMP_BITS + COUNT_BITS))).max(1);
        (first..first + WAYS, print)
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
    fn what_left_is_remembered_until_it_is_forgotten() {
        let mut ghosts = Ghosts::new(64);
        ghosts.push(PieceKey(7), 3, 5, time(10));
        ghosts.push(PieceKey(7), 0, 6, time(12));
        assert_eq!(ghosts.find(PieceKey(7), time(20)), Some(Remembered { age: 8, count: 6 }));
        ghosts.forget(PieceKey(7));
        assert_eq!(ghosts.find(PieceKey(7), time(20)), None, "once, though it left twice");
    }

    #[test]
    fn the_block_that_left_first_makes_room() {
        let mut ghosts = Ghosts::new(8);
        (0..9).for_each(|block| ghosts.push(PieceKey(block), 0, 1, time(100 + block)));
        assert_eq!(ghosts.find(PieceKey(0), time(200)), None);
        assert!((1..9).all(|block| ghosts.find(PieceKey(block), time(200)).is_some()));
    }
}
