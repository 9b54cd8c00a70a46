//! Entries as the words of a table's row.
//!
//! ```text
//! single   │ place 29, dirty 1, hits 2 │ checksum │
//!       or │ block 28, half 2, hits 2  │ checksum │
//! group    │ base 30 │ valid 16, dirty 16 │ hits 2 × 16 │ checksum × 16 │
//! ```
//!
//! Where places tell a half they have 30 bits. What is dirty is on both halves, so in a single the fourth number of a half says
//! that ([`SingleKind`]).
//!
//! Checkpoints have the rows as they are: who changes them changes the version of checkpoints (`format/checkpoint.rs`).

use crate::number::{const_u32, index_wide, to_u8, to_u16};
use crate::store::log::index::{Entry, GROUP_BLOCKS};
use crate::table::linear_hash::TAG_BITS;
use crate::units::Place;

/// Words in the row of a single.
pub const SINGLE_WORDS: usize = 2;
/// Words in the row of a group.
pub const GROUP_WORDS: usize = CHECKSUMS_AT + index_wide(GROUP_BLOCKS);
/// Where the checksums of a group begin.
pub const CHECKSUMS_AT: usize = 3;

const HITS_BIT: u32 = 30;
/// Bits of a block's hits.
const HITS_BITS: u32 = 2;
const PLACE_MASK: u32 = (1 << HITS_BIT) - 1;

const _: () = assert!(HITS_BIT + HITS_BITS == u32::BITS, "one word holds them all");
const _: () = assert!(const_u32(GROUP_BLOCKS) * HITS_BITS == u32::BITS, "one word holds the hits of a group");
const _: () = assert!(Place::END == 1 << (HITS_BIT - 1), "a place and the dirty bit are below the hits");
const _: () = assert!(Place::HALF_END == 1 << (HITS_BIT - 2), "a block and the half are below the hits");
const _: () =
    assert!(GROUP_BLOCKS == 1 << TAG_BITS && const_u32(GROUP_BLOCKS) == u16::BITS, "a tag is a bit");

/// How singles say that they are dirty: by a place from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleKind {
    dirty_from: u32,
}

impl SingleKind {
    /// Places tell no half.
    pub const WHOLE: SingleKind = SingleKind { dirty_from: Place::END };
    /// Places tell a half: what is dirty is of neither alone.
    pub const HALVES: SingleKind = SingleKind { dirty_from: 3 * Place::HALF_END };

    /// The row of a single.
    #[inline]
    pub fn row(self, entry: Entry) -> [u32; SINGLE_WORDS] {
        let from = if entry.dirty { self.dirty_from } else { 0 };
        debug_assert!(entry.place.0 < self.dirty_from, "the place leaves room for what is dirty");
        debug_assert!(from & entry.place.0 == 0, "what is dirty has a place that both halves have");
        debug_assert!(entry.hits < 4, "the entry fits into one word");
        [from | entry.place.0 | u32::from(entry.hits) << HITS_BIT, entry.checksum]
    }

    /// The entry in the row of a single.
    #[inline]
    pub fn entry(self, row: &[u32; SINGLE_WORDS]) -> Entry {
        let place = row[0] & PLACE_MASK;
        let dirty = place >= self.dirty_from;
        let place = Place(if dirty { place - self.dirty_from } else { place });
        Entry { place, dirty, hits: to_u8(row[0] >> HITS_BIT), checksum: row[1] }
    }
}

/// The row of a group besides its checksums.
#[derive(Clone, Copy, Debug)]
pub struct GroupHead {
    /// The place of block 0, whether it is there or not. Counts round: the first place of the device may be that of block 5.
    pub base: u32,
    /// A bit for each block that is there.
    pub valid: u16,
    /// A bit for each block that is dirty; dirty implies valid.
    pub dirty: u16,
    /// Recent hits of each block, two bits for each.
    pub hits: u32,
}

impl GroupHead {
    /// Reads it from a row.
    #[inline]
    pub fn read(row: &[u32; GROUP_WORDS]) -> GroupHead {
        GroupHead {
            base: row[0] & PLACE_MASK,
            valid: to_u16(row[1] & u32::from(u16::MAX)),
            dirty: to_u16(row[1] >> u16::BITS),
            hits: row[2],
        }
    }

    /// Writes it to a row.
    #[inline]
    pub fn write(self, row: &mut [u32; GROUP_WORDS]) {
        assert!(self.dirty & !self.valid == 0, "dirty implies valid");
        debug_assert!(self.base <= PLACE_MASK, "a base counts round");
        row[0] = self.base;
        row[1] = u32::from(self.valid) | u32::from(self.dirty) << u16::BITS;
        row[2] = self.hits;
    }

    /// Recent hits of a block, from 0 to 3.
    #[inline]
    pub fn hits(self, tag: u32) -> u8 {
        to_u8(self.hits >> (tag * HITS_BITS) & 3)
    }

    /// One more recent hit of a block that has less than 3.
    #[inline]
    pub fn add_hit(&mut self, tag: u32) {
        debug_assert!(self.hits(tag) < 3, "a hit more has a number");
        self.hits += 1 << (tag * HITS_BITS);
    }

    /// Gives the blocks of `mask` so many recent hits.
    #[inline]
    pub fn set_hits(&mut self, mask: u16, hits: u8) {
        debug_assert!(hits < 4, "two bits hold the hits of a block");
        let places = spread(mask);
        self.hits = (self.hits & !(places * 3)) | (places * u32::from(hits));
    }

    /// The place of a block, whether it is there or not.
    #[inline]
    pub fn place(self, tag: u32) -> Place {
        Place((self.base + tag) & PLACE_MASK)
    }

    /// The entry of a block that is there.
    #[inline]
    pub fn entry(self, tag: u32, checksum: u32) -> Entry {
        let dirty = self.dirty & (1 << tag) != 0;
        Entry { place: self.place(tag), dirty, hits: self.hits(tag), checksum }
    }

    /// Marks the blocks of `mask` dirty or clean.
    pub fn set_dirty(&mut self, mask: u16, dirty: bool) {
        if dirty {
            self.dirty |= mask;
        } else {
            self.dirty &= !mask;
        }
    }
}

/// The place of block 0 of a group that has block `tag` at `place`.
pub fn base_of(place: Place, tag: u32) -> u32 {
    place.0.wrapping_sub(tag) & PLACE_MASK
}

/// The bits of a mask, each where the hits of its block begin.
#[inline]
fn spread(mask: u16) -> u32 {
    let bits = u32::from(mask);
    let bits = (bits | bits << 8) & 0x00ff_00ff;
    let bits = (bits | bits << 4) & 0x0f0f_0f0f;
    let bits = (bits | bits << 2) & 0x3333_3333;
    (bits | bits << 1) & 0x5555_5555
}

/// The runs of bits that are set, rising: the number of the first, and how many.
pub fn runs(mut mask: u16) -> impl Iterator<Item = (u32, u32)> {
    core::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let first = mask.trailing_zeros();
        let count = (mask >> first).trailing_ones();
        mask &= mask.wrapping_add(1 << first);
        Some((first, count))
    })
}

/// The numbers of the bits that are set, rising.
pub fn bits(mut mask: u16) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let bit = mask.trailing_zeros();
        mask &= mask - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Half;
    use alloc::vec::Vec;

    #[test]
    fn a_single_comes_back_as_it_was() {
        for (place, dirty, hits) in [(0, false, 0), (Place::END - 1, true, 3), (0x1234_5678, true, 1)] {
            let entry = Entry { place: Place(place), dirty, hits, checksum: 0xdead_beef };
            assert_eq!(SingleKind::WHOLE.entry(&SingleKind::WHOLE.row(entry)), entry);
        }
    }

    #[test]
    fn a_single_tells_the_half_or_that_it_is_dirty() {
        for block in [0, 5, Place::HALF_END - 1] {
            let both = Place(block);
            let cases = [
                (both, false),
                (both, true),
                (both.of_half(Half::First), false),
                (both.of_half(Half::Second), false),
            ];
            for (place, dirty) in cases {
                let entry = Entry { place, dirty, hits: 3, checksum: 7 };
                let found = SingleKind::HALVES.entry(&SingleKind::HALVES.row(entry));
                assert_eq!((found, found.place.half()), (entry, place.half()));
            }
        }
    }

    #[test]
    fn a_group_tells_the_half_of_its_places() {
        for half in Half::BOTH {
            let mut row = [0; GROUP_WORDS];
            let first = Place(3).of_half(half);
            let head = GroupHead { base: base_of(first, 5), valid: 0xffe0, dirty: 0, hits: 0 };
            head.write(&mut row);
            let place = GroupHead::read(&row).place(6);
            assert_eq!(place, Place(4).of_half(half));
        }
    }

    #[test]
    fn a_group_may_begin_before_the_first_place() {
        let mut row = [0; GROUP_WORDS];
        let head = GroupHead { base: base_of(Place(2), 5), valid: 0xffe0, dirty: 0x8020, hits: 2 << 10 };
        head.write(&mut row);
        let head = GroupHead::read(&row);
        assert_eq!(head.entry(5, 7), Entry { place: Place(2), dirty: true, hits: 2, checksum: 7 });
        assert_eq!(head.entry(14, 8), Entry { place: Place(11), dirty: false, hits: 0, checksum: 8 });
        assert_eq!(head.place(15), Place(12));
    }

    #[test]
    fn every_block_of_a_group_has_hits_of_its_own() {
        let mut head = GroupHead { base: 0, valid: 0xffff, dirty: 0, hits: 0 };
        head.set_hits(0x8421, 2);
        head.add_hit(15);
        head.add_hit(4);
        let counts: Vec<u8> = (0..16).map(|tag| head.hits(tag)).collect();
        assert_eq!(counts, [2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3]);
        head.set_hits(0x8001, 1);
        assert_eq!([0, 5, 15].map(|tag| head.hits(tag)), [1, 2, 1]);
    }

    #[test]
    fn bits_and_runs_are_named_in_order() {
        assert_eq!(bits(0x8011).collect::<Vec<u32>>(), [0, 4, 15]);
        assert_eq!(bits(0).count(), 0);
        assert_eq!(runs(0xc037).collect::<Vec<(u32, u32)>>(), [(0, 3), (4, 2), (14, 2)]);
        assert_eq!(runs(u16::MAX).collect::<Vec<(u32, u32)>>(), [(0, 16)]);
        assert_eq!(runs(0).count(), 0);
    }
}
