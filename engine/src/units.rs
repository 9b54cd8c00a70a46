//! Units and names that cross module borders, and the only conversions between them.

use crate::number::{index, low_u32, to_u8, wide};
use crate::pair::Half;

/// Bytes in a sector, the smallest range a client may name.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes in a block, the unit of caching.
pub const BLOCK_BYTES: u64 = 4096;
/// Sectors in a block.
pub const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// Volumes that one cache can hold.
pub const VOLUMES_MAX: usize = 16;
/// Blocks that one volume can have: 2^35 blocks of 4 KiB are 128 TiB.
pub const VOLUME_BLOCKS_MAX: u64 = 1 << BLOCK_BITS;
/// Low bits of a [`BlockKey`] that hold the block number.
const BLOCK_BITS: u32 = 35;

/// A point in time: nanoseconds since an origin that the driver chooses. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One millisecond.
    pub const MILLISECOND: u64 = 1_000_000;
    /// One second.
    pub const SECOND: u64 = 1_000_000_000;

    /// The point `nanos` nanoseconds later.
    #[inline]
    #[must_use]
    pub fn plus(self, nanos: u64) -> Nanos {
        Nanos(self.0.saturating_add(nanos))
    }

    /// Nanoseconds from `earlier` until now; 0 if `earlier` is later.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A volume's durable number within its cache: never reused, 0 is no volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// A volume's slot in the running engine and in the superblock: below [`VOLUMES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeIndex(pub u8);

impl VolumeIndex {
    /// The slot as an array index.
    #[inline]
    #[must_use]
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// A block of a volume, as one number: the volume's slot above the block number.
///
/// Keys of one volume are consecutive exactly where its blocks are. Below 2^39.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

impl BlockKey {
    /// One more than the largest key.
    pub const END: u64 = wide(VOLUMES_MAX) << BLOCK_BITS;

    /// The key of `block` of `volume`.
    #[inline]
    #[must_use]
    pub fn new(volume: VolumeIndex, block: u64) -> BlockKey {
        assert!(volume.at() < VOLUMES_MAX && block < VOLUME_BLOCKS_MAX);
        BlockKey((u64::from(volume.0) << BLOCK_BITS) | block)
    }

    /// The volume's slot.
    #[inline]
    #[must_use]
    pub fn volume(self) -> VolumeIndex {
        VolumeIndex(to_u8(self.0 >> BLOCK_BITS))
    }

    /// The block number within the volume.
    #[inline]
    #[must_use]
    pub fn block(self) -> u64 {
        self.0 & (VOLUME_BLOCKS_MAX - 1)
    }

    /// The key `blocks` further on in the same volume.
    #[inline]
    #[must_use]
    pub fn plus(self, blocks: u64) -> BlockKey {
        BlockKey::new(self.volume(), self.block() + blocks)
    }
}

/// A block on the cache device, counted in blocks from the first segment's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

impl Place {
    /// One more than the largest place an index entry can hold: 2^29 blocks are 2 TiB.
    pub const END: u32 = 1 << 29;
    /// Blocks of a half of a mirrored cache up to which a place can tell which half alone has a block: 2^28 blocks are 1 TiB.
    pub const HALF_END: u32 = 1 << Place::HALF_BIT;
    /// Above the block's number, in the places of a cache that keeps clean data once: 1 and 2 for the first and the second half
    /// alone, 0 for both.
    const HALF_BIT: u32 = 28;

    /// The same block of one half alone.
    #[must_use]
    pub fn of_half(self, half: Half) -> Place {
        assert!(self.0 < Place::HALF_END, "a half is named once, in places that have room for it");
        let code = if half == Half::First { 1 } else { 2 };
        Place(self.0 | code << Place::HALF_BIT)
    }

    /// The same without the half.
    #[inline]
    #[must_use]
    pub fn block_of_half(self) -> Place {
        Place(self.0 & (Place::HALF_END - 1))
    }

    /// The half that alone has the block, in a cache that keeps clean data once.
    #[inline]
    #[must_use]
    pub fn half(self) -> Option<Half> {
        match self.0 >> Place::HALF_BIT {
            1 => Some(Half::First),
            2 => Some(Half::Second),
            _ => None,
        }
    }
}

/// A slot or a bucket, as replacement chooses among them. Counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

impl Frame {
    /// The frame as an array index.
    #[inline]
    #[must_use]
    pub fn at(self) -> usize {
        index(self.0)
    }
}

/// A piece of a volume as large as a frame: the volume's slot above the piece's number, as in
/// [`BlockKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceKey(pub u64);

impl PieceKey {
    /// The key of `piece` of `volume`. A piece is a block or more, so there are no more of them.
    #[inline]
    #[must_use]
    pub fn new(volume: VolumeIndex, piece: u64) -> PieceKey {
        PieceKey(BlockKey::new(volume, piece).0)
    }

    /// The volume's slot.
    #[inline]
    #[must_use]
    pub fn volume(self) -> VolumeIndex {
        BlockKey(self.0).volume()
    }

    /// The piece's number within the volume.
    #[must_use]
    pub fn piece(self) -> u64 {
        BlockKey(self.0).block()
    }
}

/// A range of a volume in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SectorRange {
    /// The first sector.
    pub start: u64,
    /// How many sectors; may be 0 only where said so.
    pub sectors: u64,
}

impl SectorRange {
    /// The first sector after the range.
    #[inline]
    #[must_use]
    pub fn end(self) -> u64 {
        self.start + self.sectors
    }

    /// The first block the range touches.
    #[inline]
    #[must_use]
    pub fn first_block(self) -> u64 {
        self.start / SECTORS_PER_BLOCK
    }

    /// The first block after the last one the range touches.
    #[inline]
    #[must_use]
    pub fn end_block(self) -> u64 {
        self.end().div_ceil(SECTORS_PER_BLOCK)
    }

    /// Whether the range begins and ends at block borders.
    #[inline]
    #[must_use]
    pub fn is_block_aligned(self) -> bool {
        self.start.is_multiple_of(SECTORS_PER_BLOCK) && self.sectors.is_multiple_of(SECTORS_PER_BLOCK)
    }
}

/// The CRC-32C of `bytes`: for structures of our own.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of what clients store: the low half of CRC-64/NVME.
///
/// Not CRC-32C, with which file systems end structures of their own: the CRC-32C of a block that ends with
/// its own CRC-32C is the same whatever the block holds, and no version of it could be told from another one.
#[must_use]
pub fn payload_checksum(bytes: &[u8]) -> u32 {
    low_u32(crc_fast::crc64_nvme(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with a structure that ends with its own CRC-32C, as the superblock of ext4 does.
    fn block_with_a_checksum_inside(content: u8) -> [u8; 4096] {
        let mut block = [0; 4096];
        block[1024..2044].fill(content);
        let checksum = crc32c(&block[1024..2044]);
        block[2044..2048].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    #[test]
    fn a_block_with_a_checksum_of_its_own_is_seen_to_change() {
        let (one, other) = (block_with_a_checksum_inside(1), block_with_a_checksum_inside(2));
        assert_eq!(crc32c(&one), crc32c(&other), "the case that a CRC-32C does not see");
        assert_ne!(payload_checksum(&one), payload_checksum(&other));
    }
}
