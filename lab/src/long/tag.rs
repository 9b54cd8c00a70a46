//! Tags: a number that stands for the content of a block.
//!
//! Zeroes are 0. All other tags are hashes with the highest bit clear, so that two different contents have
//! different tags but for a chance of 2^-62. Whoever changes a part of a block blends: the new tag is
//! a function of the old one, of the tag that was written, and of the part. It does not matter who blends,
//! the engine's copy into a buffer, a disk, or the ledger: the result is the same.

use engine::units::{BLOCK_BYTES, VolumeIndex};

/// The tag of zeroes.
pub(super) const ZEROES: u64 = 0;
/// Bits of a hash that a tag keeps.
const TAG_BITS: u64 = u64::MAX >> 1;

/// A bijection that scatters (the finalizer of MurmurHash3).
pub(super) fn scatter(mut number: u64) -> u64 {
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 33;
    number = number.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

/// Tag of an origin's block that was never written.
pub(super) fn of_image(volume: VolumeIndex, block: u64) -> u64 {
    (scatter(block | (u64::from(volume.0) + 1) << 48) & TAG_BITS) | 1
}

/// The content that write number `version` puts into a block. A write whose range is not whole blocks puts the same
/// everywhere (`block` is `None`): its buffer's blocks are not those of the volume.
pub(super) fn of_write(version: u64, block: Option<u64>) -> u64 {
    let place = block.map_or(0, |block| block + 1);
    (scatter(scatter(version).wrapping_add(place)) & TAG_BITS) | 1
}

/// The tag of a block with content `old` after `new` was written to a part of it.
pub(super) fn blend(old: u64, new: u64, part: &Part) -> u64 {
    if part.is_whole() {
        return new;
    }
    let place = u64::from(part.from_byte) << 16 | u64::from(part.to_byte);
    (scatter(scatter(old).wrapping_add(scatter(new ^ place << 32))) & TAG_BITS) | 1
}

/// The checksum that stands for a block's: any function of the tag will do.
pub(super) fn checksum(tag: u64) -> u32 {
    (scatter(tag) >> 32) as u32
}

/// Part of a range of bytes that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The block.
    pub block: u64,
    /// The first byte in the block.
    pub from_byte: u32,
    /// The first byte behind the part.
    pub to_byte: u32,
    /// Where the part begins in the range, in bytes.
    pub at_bytes: u64,
}

impl Part {
    pub(super) fn is_whole(&self) -> bool {
        self.from_byte == 0 && u64::from(self.to_byte) == BLOCK_BYTES
    }
}

/// Cuts a range at block borders.
pub(super) fn parts(offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = Part> {
    let end_bytes = offset_bytes + len_bytes;
    (offset_bytes / BLOCK_BYTES..end_bytes.div_ceil(BLOCK_BYTES)).map(move |block| {
        let start = block * BLOCK_BYTES;
        let from = offset_bytes.max(start);
        Part {
            block,
            from_byte: (from - start) as u32,
            to_byte: (end_bytes - start).min(BLOCK_BYTES) as u32,
            at_bytes: from - offset_bytes,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_block_borders() {
        let cut: Vec<_> = parts(4096 - 512, 512 + 4096 + 1024).collect();
        assert_eq!(
            cut,
            [
                Part { block: 0, from_byte: 3584, to_byte: 4096, at_bytes: 0 },
                Part { block: 1, from_byte: 0, to_byte: 4096, at_bytes: 512 },
                Part { block: 2, from_byte: 0, to_byte: 1024, at_bytes: 4608 },
            ]
        );
        assert_eq!(
            parts(8192, 4096).map(|part| (part.block, part.is_whole())).collect::<Vec<_>>(),
            [(2, true)]
        );
    }

    #[test]
    fn a_blend_depends_on_all_it_is_made_of() {
        let part = |from_byte, to_byte| Part { block: 0, from_byte, to_byte, at_bytes: 0 };
        let all = [
            blend(1, 2, &part(0, 512)),
            blend(1, 2, &part(512, 1024)),
            blend(1, 2, &part(0, 1024)),
            blend(2, 1, &part(0, 512)),
            blend(3, 2, &part(0, 512)),
            blend(1, 2, &part(0, 4096)),
        ];
        for (at, tag) in all.iter().enumerate() {
            assert!(!all[..at].contains(tag));
        }
        assert_eq!(all[5], 2);
    }
}
