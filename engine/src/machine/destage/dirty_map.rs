//! Where dirty blocks may be, in origin order: one bit per region of a volume.
//!
//! The map is a hint that errs on one side: a region with a dirty block has its bit set; a set bit may
//! be stale, and is cleared by the sweep that finds nothing there. It costs half a mebibyte at
//! most, however large the volume.

use crate::number::{index, index_wide, wide};
use alloc::vec;
use alloc::vec::Vec;

/// Bits at the most; larger volumes get larger regions.
const BITS_MAX: u64 = 1 << 22;
/// Blocks of the smallest region: 256 KiB.
const REGION_BLOCKS_MIN: u64 = 64;

/// The map of one volume.
pub struct DirtyMap {
    words: Vec<u64>,
    /// One bit per word that is not zero.
    summary: Vec<u64>,
    region_shift: u32,
}

impl DirtyMap {
    /// An empty map of a volume of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u64) -> DirtyMap {
        let mut region_shift = REGION_BLOCKS_MIN.trailing_zeros();
        while (blocks >> region_shift) + 1 > BITS_MAX {
            region_shift += 1;
        }
        let bits = (blocks >> region_shift) + 1;
        let words = index_wide(bits.div_ceil(64));
        DirtyMap { words: vec![0; words], summary: vec![0; words.div_ceil(64)], region_shift }
    }

    /// Notes that `count` blocks from `first` on are dirty.
    #[inline]
    pub fn mark(&mut self, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        let end = ((first + count - 1) >> self.region_shift) + 1;
        for region in (first >> self.region_shift)..end {
            let word = index_wide(region / 64);
            self.words[word] |= 1 << (region % 64);
            self.summary[word / 64] |= 1 << (word % 64);
        }
    }

    /// The blocks of the region with `block` in it: first and one past the last.
    #[must_use]
    pub fn region_of(&self, block: u64) -> (u64, u64) {
        let region = block >> self.region_shift;
        (region << self.region_shift, (region + 1) << self.region_shift)
    }

    /// Notes that the region with `block` in it has nothing dirty.
    pub fn clear_region_of(&mut self, block: u64) {
        let region = block >> self.region_shift;
        let word = index_wide(region / 64);
        self.words[word] &= !(1 << (region % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// The first block at or after `from` whose region is marked.
    #[must_use]
    pub fn next(&self, from: u64) -> Option<u64> {
        let region = from >> self.region_shift;
        let word = index_wide(region / 64);
        if word >= self.words.len() {
            return None;
        }
        let here = self.words[word] & (!0 << (region % 64));
        let found = if here != 0 {
            wide(word) * 64 + u64::from(here.trailing_zeros())
        } else {
            let next = self.next_word(word + 1)?;
            wide(next) * 64 + u64::from(self.words[next].trailing_zeros())
        };
        Some(from.max(found << self.region_shift))
    }

    fn next_word(&self, from: usize) -> Option<usize> {
        let mut at = from / 64;
        let mut mask = !0u64 << (from % 64);
        while at < self.summary.len() {
            let bits = self.summary[at] & mask;
            if bits != 0 {
                return Some(at * 64 + index(bits.trailing_zeros()));
            }
            at += 1;
            mask = !0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_marked_regions_in_order() {
        let mut map = DirtyMap::new(1 << 20);
        assert_eq!(map.next(0), None);
        map.mark(1_000_000, 1);
        map.mark(100, 100);
        assert_eq!(map.next(0), Some(64));
        assert_eq!(map.next(70), Some(70));
        assert_eq!(map.region_of(70), (64, 128));
        map.clear_region_of(64);
        assert_eq!(map.next(0), Some(128));
        map.clear_region_of(130);
        map.clear_region_of(199);
        assert_eq!(map.next(0), Some(1_000_000 / 64 * 64));
        assert_eq!(map.next(1_000_010), Some(1_000_010));
        map.clear_region_of(1_000_000);
        assert_eq!(map.next(0), None);
    }

    #[test]
    fn stays_small_for_huge_volumes() {
        let mut map = DirtyMap::new(1 << 35);
        assert!(map.words.len() * 8 <= 1 << 20);
        map.mark((1 << 35) - 1, 1);
        assert!(map.next(0).is_some());
        assert_eq!(map.next(1 << 36), None);
    }
}
