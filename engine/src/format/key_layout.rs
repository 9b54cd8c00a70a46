//! How a cache device with keys in a ring and data in buckets is divided.
//!
//! ```text
//! 0 superblock A   512K superblock B   1 MiB  segment 0 │ segment 1 │ ...   bucket 0 │ bucket 1 │ ...
//! ```
//!
//! The ring is that of a log, in which headers have no payload. It has room for twice the keys of a cache that is full of
//! scattered blocks, so that half of every lap is dead and the ring goes on.

use super::bytes::{put, u32_at};
use super::geometry::{Geometry, SEGMENT_BLOCKS_MIN, SEGMENTS_MIN};
use super::{CACHE_BYTES_MIN, FormatError, SEGMENTS_OFFSET};
use crate::limits::ENGINE_BUFFER_BYTES_MAX;
use crate::number::{const_u32, to_u32};
use crate::units::{BLOCK_BYTES, Place};

/// Blocks of the smallest bucket and of the largest: 4 KiB and 32 MiB.
const BUCKET_BLOCKS: core::ops::RangeInclusive<u32> = 1..=8192;
/// Step of the sizes among which the least one is looked for.
const SIZE_STEP_BYTES: u64 = 1 << 20;
/// Buckets at the least.
const BUCKETS_MIN: u32 = 8;
/// Bytes that a scattered block's key takes: an entry and a checksum, in a header and in a summary.
const KEY_BYTES: u64 = 2 * (32 + 4 + 4);
/// Blocks of the largest segment of keys. A summary is read into one buffer, and with scattered blocks it is as long as the
/// headers: a longer segment would be sealed with most of it empty, and the ring would not have the room that it is chosen for.
const KEY_SEGMENT_BLOCKS_MAX: u32 = 2 * (ENGINE_BUFFER_BYTES_MAX / const_u32(BLOCK_BYTES));
/// Bytes of a layout in the superblock.
pub const KEY_LAYOUT_BYTES: usize = 8;

/// Why a cache cannot be divided into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyLayoutError {
    /// The device is too small.
    #[error(
        "The cache device has {cache_bytes} bytes, the least for buckets of {bucket_bytes} bytes is {minimum_bytes}"
    )]
    CacheTooSmall {
        /// Bytes that the device has.
        cache_bytes: u64,
        /// Bytes that it needs.
        minimum_bytes: u64,
        /// Bytes of a bucket.
        bucket_bytes: u64,
    },
    /// There are no such buckets.
    #[error("A bucket of {bucket_sectors} sectors: it must be a power of two of them, from 8 to 65536")]
    BucketSectors {
        /// The size that was asked for.
        bucket_sectors: u32,
    },
}

/// A ring for keys, and the buckets behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    /// The ring.
    pub geometry: Geometry,
    /// Blocks of a bucket: a power of two.
    pub bucket_blocks: u32,
    /// How many buckets there are.
    pub buckets: u32,
}

impl KeyLayout {
    /// The division of a device of `cache_bytes`, with buckets of `bucket_sectors` and a share of `ring_permille`
    /// for keys, or more where that is not room enough.
    ///
    /// # Errors
    /// [`KeyLayoutError`].
    pub fn choose(
        cache_bytes: u64,
        bucket_sectors: u32,
        ring_permille: u32,
    ) -> Result<KeyLayout, KeyLayoutError> {
        let bucket_blocks = bucket_sectors / 8;
        if !bucket_sectors.is_power_of_two() || !BUCKET_BLOCKS.contains(&bucket_blocks) {
            return Err(KeyLayoutError::BucketSectors { bucket_sectors });
        }
        let bucket_bytes = u64::from(bucket_blocks) * BLOCK_BYTES;
        let ring_min = u64::from(SEGMENTS_MIN) * u64::from(SEGMENT_BLOCKS_MIN) * BLOCK_BYTES;
        let least_bytes =
            (SEGMENTS_OFFSET + ring_min + u64::from(BUCKETS_MIN) * bucket_bytes).max(CACHE_BYTES_MIN);
        let of_size = |bytes: u64| {
            let layout =
                (bytes >= least_bytes).then(|| KeyLayout::of_size(bytes, bucket_blocks, ring_permille));
            layout.filter(|layout| layout.buckets >= BUCKETS_MIN)
        };
        let Some(layout) = of_size(cache_bytes) else {
            // The larger the cache, the larger its ring: the least size is looked for.
            let larger =
                (0..).map(|step| least_bytes.next_multiple_of(SIZE_STEP_BYTES) + step * SIZE_STEP_BYTES);
            let minimum_bytes =
                core::iter::once(least_bytes).chain(larger).find(|&bytes| of_size(bytes).is_some());
            let minimum_bytes = minimum_bytes.expect("at least half of a cache is for buckets");
            return Err(KeyLayoutError::CacheTooSmall { cache_bytes, minimum_bytes, bucket_bytes });
        };
        assert!(layout.validate(cache_bytes).is_ok(), "what is chosen is allowed: {layout:?}");
        Ok(layout)
    }

    /// The division of a device that is large enough for a ring, with as many buckets as there is room for.
    fn of_size(cache_bytes: u64, bucket_blocks: u32, ring_permille: u32) -> KeyLayout {
        let ring_min = u64::from(SEGMENTS_MIN) * u64::from(SEGMENT_BLOCKS_MIN) * BLOCK_BYTES;
        let blocks = ((cache_bytes - SEGMENTS_OFFSET) / BLOCK_BYTES).min(u64::from(Place::END) - 1);
        let wanted = blocks * u64::from(ring_permille.min(500)) / 1000;
        let needed = 2 * blocks * KEY_BYTES / BLOCK_BYTES;
        let ring_blocks = to_u32(wanted.max(needed).max(ring_min / BLOCK_BYTES));
        let largest = (ring_blocks / SEGMENTS_MIN).clamp(SEGMENT_BLOCKS_MIN, KEY_SEGMENT_BLOCKS_MAX);
        let segment_blocks = 1 << largest.ilog2();
        let geometry = Geometry { segment_blocks, segments: ring_blocks / segment_blocks };
        let ring_blocks = u64::from(geometry.segments) * u64::from(segment_blocks);
        let buckets = to_u32((blocks - ring_blocks) / u64::from(bucket_blocks));
        KeyLayout { geometry, bucket_blocks, buckets }
    }

    /// Blocks of the ring: the place of the first bucket.
    #[must_use]
    pub fn ring_blocks(&self) -> u32 {
        self.geometry.segments * self.geometry.segment_blocks
    }

    /// Bytes of a device that has all of it.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        SEGMENTS_OFFSET + self.end() * BLOCK_BYTES
    }

    fn end(&self) -> u64 {
        u64::from(self.geometry.segments) * u64::from(self.geometry.segment_blocks)
            + u64::from(self.buckets) * u64::from(self.bucket_blocks)
    }

    /// Whether so many places from `place` on lie in one bucket.
    #[must_use]
    pub fn has_run(&self, place: u64, blocks: u64) -> bool {
        let ring = u64::from(self.ring_blocks());
        let bucket = u64::from(self.bucket_blocks);
        place >= ring
            && blocks > 0
            && place.saturating_add(blocks) <= self.end()
            && (place - ring) / bucket == (place + blocks - 1 - ring) / bucket
    }

    /// Whether a device of `cache_bytes` can be divided like this.
    pub(super) fn validate(&self, cache_bytes: u64) -> Result<(), FormatError> {
        self.geometry.validate(cache_bytes)?;
        if !self.bucket_blocks.is_power_of_two() || !BUCKET_BLOCKS.contains(&self.bucket_blocks) {
            return Err(FormatError::Field("bucket_blocks"));
        }
        if self.buckets < BUCKETS_MIN || self.end() >= u64::from(Place::END) {
            return Err(FormatError::Field("buckets"));
        }
        if self.cache_bytes() > cache_bytes {
            return Err(FormatError::Field("cache_bytes"));
        }
        Ok(())
    }

    pub(super) fn encode(&self, bytes: &mut [u8]) {
        put(bytes, 0, &self.bucket_blocks.to_le_bytes());
        put(bytes, 4, &self.buckets.to_le_bytes());
    }

    pub(super) fn decode(geometry: Geometry, bytes: &[u8]) -> Result<KeyLayout, FormatError> {
        Ok(KeyLayout { geometry, bucket_blocks: u32_at(bytes, 0)?, buckets: u32_at(bytes, 4)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_ring_has_room_for_twice_the_keys_of_scattered_blocks() {
        for cache_bytes in [32 * MIB, 100 * MIB, 1 << 30, 100 << 30, 1 << 40, 3 << 40] {
            for bucket_sectors in [8, 128, 1024, 4096] {
                let layout = KeyLayout::choose(cache_bytes, bucket_sectors, 16).unwrap();
                assert_eq!(layout.validate(cache_bytes), Ok(()));
                let keys = u64::from(layout.buckets) * u64::from(layout.bucket_blocks);
                let ring_bytes = u64::from(layout.ring_blocks()) * BLOCK_BYTES;
                // Segments are powers of two: up to one of them may be missing.
                let spare = layout.geometry.segment_bytes();
                assert!(ring_bytes + spare >= 2 * keys * KEY_BYTES, "{layout:?}");
                // Half of a full segment is its summary, which is read back into one buffer.
                assert!(spare / 2 <= u64::from(ENGINE_BUFFER_BYTES_MAX), "{layout:?}");
            }
        }
    }

    #[test]
    fn a_run_lies_in_one_bucket() {
        let layout = KeyLayout::choose(64 * MIB, 128, 16).unwrap();
        let first = u64::from(layout.ring_blocks());
        assert!(layout.has_run(first, 16) && layout.has_run(first + 15, 1));
        assert!(!layout.has_run(first + 15, 2) && !layout.has_run(first - 1, 1));
        let end = first + u64::from(layout.buckets) * 16;
        assert!(layout.has_run(end - 1, 1) && !layout.has_run(end, 1) && !layout.has_run(u64::MAX, 1));
    }

    /// The ring takes more of a larger cache: the least cache for a few buckets is not the least ring and those buckets.
    #[test]
    fn every_size_has_its_buckets_or_is_refused_with_the_least_one() {
        for (bucket_sectors, permille) in [(65_536, 16), (4096, 500), (1024, 16), (8192, 500), (8, 500)] {
            for cache_bytes in (32..600).map(|mib| mib * MIB) {
                match KeyLayout::choose(cache_bytes, bucket_sectors, permille) {
                    Ok(layout) => assert!(layout.buckets >= BUCKETS_MIN, "{layout:?}"),
                    Err(KeyLayoutError::CacheTooSmall { minimum_bytes, .. }) => {
                        assert!(minimum_bytes > cache_bytes);
                        let least = KeyLayout::choose(minimum_bytes, bucket_sectors, permille);
                        assert!(least.is_ok(), "the least size that is named is enough");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    #[test]
    fn a_device_too_small_or_odd_buckets_are_refused() {
        assert!(matches!(KeyLayout::choose(16 * MIB, 1024, 16), Err(KeyLayoutError::CacheTooSmall { .. })));
        assert!(matches!(KeyLayout::choose(64 * MIB, 24, 16), Err(KeyLayoutError::BucketSectors { .. })));
    }
}
