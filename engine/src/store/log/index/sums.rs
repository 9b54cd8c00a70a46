//! Sums over an index that is loaded and then changed, by segment and volume: without another look at all of it.

use super::Entry;
use crate::number::index;
use crate::units::{BlockKey, Place, VOLUMES_MAX};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{AddAssign, SubAssign};

/// Blocks of a segment, or of a volume, which may have more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum<N> {
    /// All of them.
    pub blocks: N,
    /// Those that are dirty.
    pub dirty: N,
}

impl<N: AddAssign + SubAssign + From<u32>> Sum<N> {
    #[inline]
    fn put(&mut self, blocks: u32, dirty: bool) {
        self.blocks += blocks.into();
        self.dirty += if dirty { blocks } else { 0 }.into();
    }

    #[inline]
    fn take(&mut self, dirty: bool) {
        self.blocks -= 1.into();
        self.dirty -= u32::from(dirty).into();
    }
}

/// Sums over an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    segment_bits: u32,
    /// By segment.
    pub segments: Vec<Sum<u32>>,
    /// By volume.
    pub volumes: [Sum<u64>; VOLUMES_MAX],
}

impl Sums {
    /// Sums over nothing, for a ring of `segments` segments of so many blocks, a power of two.
    #[must_use]
    pub fn new(segments: u32, segment_blocks: u32) -> Sums {
        assert!(segment_blocks.is_power_of_two(), "a segment has a power of two of blocks");
        let segment_bits = segment_blocks.trailing_zeros();
        Sums { segment_bits, segments: vec![Sum::default(); index(segments)], volumes: Default::default() }
    }

    /// Consecutive blocks came into the index.
    #[inline]
    pub fn put(&mut self, first: BlockKey, blocks: u32, place: Place, dirty: bool) {
        self.volumes[first.volume().at()].put(blocks, dirty);
        let (from, to) = (place.0 >> self.segment_bits, (place.0 + blocks - 1) >> self.segment_bits);
        if from == to {
            self.segments[index(from)].put(blocks, dirty);
        } else {
            (place.0..place.0 + blocks)
                .for_each(|place| self.segments[index(place >> self.segment_bits)].put(1, dirty));
        }
    }

    /// A block left the index.
    #[inline]
    pub fn take(&mut self, key: BlockKey, old: Entry) {
        self.volumes[key.volume().at()].take(old.dirty);
        self.segments[index(old.place.0 >> self.segment_bits)].take(old.dirty);
    }

    /// A block is clean now that was dirty.
    pub fn clean(&mut self, key: BlockKey, place: Place) {
        self.volumes[key.volume().at()].dirty -= 1;
        self.segments[index(place.0 >> self.segment_bits)].dirty -= 1;
    }
}
