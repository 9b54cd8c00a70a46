//! How a cache device is divided into segments.

use super::{FormatError, SEGMENTS_OFFSET};
use crate::number::{index, to_u32, wide};
use crate::units::{BLOCK_BYTES, Place};

/// The smallest cache device, in bytes.
pub const CACHE_BYTES_MIN: u64 = 32 << 20;
/// The smallest cache device that has room for checkpoints besides its segments, in bytes.
pub const CHECKPOINT_CACHE_BYTES_MIN: u64 = 256 << 30;
/// One byte in so many of such a device is that room: on each side 8 bytes for each block. Groups take 5.3 and singles
/// 16, so that an index of scattered blocks alone has room up to half of the cache.
const CHECKPOINT_ONE_IN: u64 = 256;
/// Segments at the least: one is open, some are in reserve, and enough remain to be a ring (rule 15).
pub(super) const SEGMENTS_MIN: u32 = 64;
/// Blocks of the smallest segment: 128 KiB.
pub(super) const SEGMENT_BLOCKS_MIN: u32 = 32;
/// Blocks of the largest segment: 32 MiB.
pub(super) const SEGMENT_BLOCKS_MAX: u32 = 8192;

const _: () = assert!(SEGMENT_BLOCKS_MIN.is_power_of_two() && SEGMENT_BLOCKS_MAX.is_power_of_two());
const _: () = assert!(
    SEGMENTS_OFFSET + wide(index(SEGMENTS_MIN)) * wide(index(SEGMENT_BLOCKS_MIN)) * BLOCK_BYTES
        <= CACHE_BYTES_MIN,
    "every cache of the minimum size has a geometry"
);

/// The segments of a cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of one segment: a power of two.
    pub segment_blocks: u32,
    /// How many segments there are.
    pub segments: u32,
}

/// The device is too small for a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The cache device has {cache_bytes} bytes, the least is {minimum_bytes}")]
pub struct GeometryError {
    /// Bytes that the device has.
    pub cache_bytes: u64,
    /// Bytes that it needs.
    pub minimum_bytes: u64,
}

impl Geometry {
    /// The division of a device of `cache_bytes`: the largest segments of which there are at least 64.
    /// Only the first [`Place::END`] blocks of a larger device are used.
    ///
    /// # Errors
    /// If the device is smaller than [`CACHE_BYTES_MIN`].
    pub fn choose(cache_bytes: u64) -> Result<Geometry, GeometryError> {
        if cache_bytes < CACHE_BYTES_MIN {
            return Err(GeometryError { cache_bytes, minimum_bytes: CACHE_BYTES_MIN });
        }
        let checkpoint_bytes =
            if cache_bytes >= CHECKPOINT_CACHE_BYTES_MIN { cache_bytes / CHECKPOINT_ONE_IN } else { 0 };
        let ring_bytes = cache_bytes - SEGMENTS_OFFSET - checkpoint_bytes;
        let blocks = to_u32((ring_bytes / BLOCK_BYTES).min(u64::from(Place::END)));
        let largest = (blocks / SEGMENTS_MIN).min(SEGMENT_BLOCKS_MAX);
        let segment_blocks = 1 << largest.ilog2();
        let geometry = Geometry { segment_blocks, segments: blocks / segment_blocks };
        assert!(geometry.validate(cache_bytes).is_ok(), "what is chosen is allowed");
        Ok(geometry)
    }

    /// Bytes of one segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_blocks) * BLOCK_BYTES
    }

    /// Where block `block` of segment `segment` is on the device, in bytes. `segment` may be one past the last.
    #[must_use]
    pub fn offset_bytes(&self, segment: u32, block: u32) -> u64 {
        assert!(segment <= self.segments && block <= self.segment_blocks);
        SEGMENTS_OFFSET + u64::from(segment) * self.segment_bytes() + u64::from(block) * BLOCK_BYTES
    }

    /// The place of block `block` of segment `segment`.
    #[must_use]
    pub fn place(&self, segment: u32, block: u32) -> Place {
        assert!(segment < self.segments && block < self.segment_blocks);
        Place(segment * self.segment_blocks + block)
    }

    /// Whether a device of `cache_bytes` can be divided like this.
    pub(super) fn validate(&self, cache_bytes: u64) -> Result<(), FormatError> {
        let is_size_allowed = self.segment_blocks.is_power_of_two()
            && (SEGMENT_BLOCKS_MIN..=SEGMENT_BLOCKS_MAX).contains(&self.segment_blocks);
        if !is_size_allowed {
            return Err(FormatError::Field("segment_blocks"));
        }
        let blocks = u64::from(self.segments) * u64::from(self.segment_blocks);
        if self.segments < SEGMENTS_MIN || blocks > u64::from(Place::END) {
            return Err(FormatError::Field("segments"));
        }
        if SEGMENTS_OFFSET + blocks * BLOCK_BYTES > cache_bytes {
            return Err(FormatError::Field("cache_bytes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_largest_segments_of_which_there_are_enough() {
        let of = |bytes| Geometry::choose(bytes).unwrap();
        assert_eq!(of(32 * MIB), Geometry { segment_blocks: 64, segments: 124 });
        assert_eq!(of(1024 * MIB), Geometry { segment_blocks: 2048, segments: 127 });
        assert_eq!(of((256 << 30) - 1), Geometry { segment_blocks: 8192, segments: 8191 });
        assert_eq!(of(256 << 30), Geometry { segment_blocks: 8192, segments: 8159 });
        assert_eq!(of(1 << 40), Geometry { segment_blocks: 8192, segments: 32639 });
        assert_eq!(of(8 << 40), Geometry { segment_blocks: 8192, segments: 65536 });
        assert!(Geometry::choose(32 * MIB - 1).is_err());
    }

    #[test]
    fn every_size_gives_a_geometry_that_fits() {
        let mut bytes = CACHE_BYTES_MIN;
        while bytes < 1 << 43 {
            for size in [bytes, bytes + 4095, bytes + bytes / 3] {
                let geometry = Geometry::choose(size).unwrap();
                assert_eq!(geometry.validate(size), Ok(()));
                assert!(geometry.offset_bytes(geometry.segments, 0) <= size);
            }
            bytes *= 2;
        }
    }
}
