//! Regions of a mirrored cache whose two copies may differ after a crash.

use crate::format::{PAIR_MARK_BYTES, SEGMENTS_OFFSET};
use crate::number::{index_wide, to_u32, wide};
use alloc::boxed::Box;

/// The shortest region.
const REGION_BYTES_MIN: u64 = 64 << 10;

/// A bit for each region of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    region_bytes: u64,
    size_bytes: u64,
    bits: Box<[u8; PAIR_MARK_BYTES]>,
}

impl Marks {
    /// No marks on a device of `size_bytes`.
    pub fn new(size_bytes: u64) -> Marks {
        let least = size_bytes.div_ceil(wide(PAIR_MARK_BYTES) * 8);
        let region_bytes = least.next_power_of_two().max(REGION_BYTES_MIN);
        Marks { region_bytes, size_bytes, bits: Box::new([0; PAIR_MARK_BYTES]) }
    }

    /// The marks of a page.
    pub fn of(size_bytes: u64, region_bytes: u32, bits: &[u8; PAIR_MARK_BYTES]) -> Marks {
        Marks { region_bytes: u64::from(region_bytes), size_bytes, bits: Box::new(*bits) }
    }

    /// No marks, on a device of the same size.
    pub fn none(&self) -> Marks {
        Marks { bits: Box::new([0; PAIR_MARK_BYTES]), ..*self }
    }

    /// The bits, as a page keeps them.
    pub fn bits(&self) -> &[u8; PAIR_MARK_BYTES] {
        &self.bits
    }

    /// The size of the device.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The length of a region.
    pub fn region_bytes(&self) -> u32 {
        to_u32(self.region_bytes)
    }

    /// The number of regions.
    pub fn regions(&self) -> u64 {
        self.size_bytes.div_ceil(self.region_bytes)
    }

    /// The first byte of a region, and its length.
    pub fn range(&self, region: u64) -> (u64, u64) {
        let from = region * self.region_bytes;
        (from, self.region_bytes.min(self.size_bytes - from))
    }

    fn touched(&self, offset_bytes: u64, len_bytes: u64) -> core::ops::Range<u64> {
        offset_bytes / self.region_bytes
            ..(offset_bytes + len_bytes).div_ceil(self.region_bytes).min(self.regions())
    }

    /// Whether a region is marked.
    pub fn has(&self, region: u64) -> bool {
        self.bits[index_wide(region / 8)] >> (region % 8) & 1 != 0
    }

    /// Whether any region of a range is marked.
    pub fn touch(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        self.touched(offset_bytes, len_bytes).any(|region| self.has(region))
    }

    /// Whether all regions of a range are marked.
    pub fn cover(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        // A start compares the superblocks in any case.
        offset_bytes + len_bytes <= SEGMENTS_OFFSET
            || self.touched(offset_bytes, len_bytes).all(|region| self.has(region))
    }

    /// Marks all regions of a range.
    pub fn mark(&mut self, offset_bytes: u64, len_bytes: u64) {
        for region in self.touched(offset_bytes, len_bytes) {
            self.bits[index_wide(region / 8)] |= 1 << (region % 8);
        }
    }

    /// Marks what the other ones have, too.
    pub fn add(&mut self, other: &Marks) {
        self.bits.iter_mut().zip(&other.bits[..]).for_each(|(bits, more)| *bits |= more);
    }

    /// The marked regions.
    pub fn marked(&self) -> impl Iterator<Item = u64> {
        (0..self.regions()).filter(|region| self.has(*region))
    }
}
