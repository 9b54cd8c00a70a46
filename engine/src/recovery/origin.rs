//! Comparison of an origin with its record, and of a cache with the notes beside it (hazard 9).
//!
//! Three things are compared: a stable identity of the device (a serial number, an inode), its size, and checksums of
//! well-known places of its content. The engine takes a checksum back, durably, before it writes to its
//! place; so a place that is there and differs was changed by somebody else.

use crate::format::{Superblock, VolumeRecord};
use crate::mutation::{Mutation, Mutations};

/// Properties of an origin that a start sees without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginSeen<'a> {
    /// Its stable identity; empty if it has none.
    pub identity: &'a str,
    /// Its size.
    pub size_sectors: u64,
    /// Its sectors.
    pub sector_bytes: u32,
}

/// Change of an origin's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Not at all.
    Same,
    /// It has more than the volume.
    Grown,
}

/// Difference between an origin and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Its identity is another one.
    Identity,
    /// It is smaller.
    Shrunk,
    /// Its sectors are larger.
    Sectors,
    /// The content of a well-known place is another one.
    Place {
        /// The offset of the place.
        offset_bytes: u64,
    },
}

/// Compares an origin with its record. `checksum_at` reads a block of it.
///
/// # Errors
/// The error of `checksum_at`.
pub fn compare_origin<E>(
    record: &VolumeRecord,
    seen: &OriginSeen<'_>,
    mut checksum_at: impl FnMut(u64) -> Result<u32, E>,
    mutations: Mutations,
) -> Result<Result<Growth, Difference>, E> {
    if !record.identity.is_empty() && !seen.identity.is_empty() && record.identity != seen.identity {
        return Ok(Err(Difference::Identity));
    }
    if seen.size_sectors < record.size_sectors && !mutations.has(Mutation::AcceptShrunk) {
        return Ok(Err(Difference::Shrunk));
    }
    if seen.sector_bytes > record.sector_bytes {
        return Ok(Err(Difference::Sectors));
    }
    for place in record.fingerprint.iter().flatten() {
        if !mutations.has(Mutation::TrustChangedOrigin) && checksum_at(place.offset_bytes)? != place.checksum
        {
            return Ok(Err(Difference::Place { offset_bytes: place.offset_bytes }));
        }
    }
    let is_grown = seen.size_sectors > record.size_sectors && !mutations.has(Mutation::OverlookGrowth);
    Ok(Ok(if is_grown { Growth::Grown } else { Growth::Same }))
}

/// Whether a cache is an older copy of itself: its superblock was written less often than that which was noted beside it
/// when it was durable.
#[must_use]
pub fn is_rolled_back(superblock: &Superblock, noted_update: u64, mutations: Mutations) -> bool {
    superblock.update < noted_update && !mutations.has(Mutation::TrustOlderCopy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Fingerprint;
    use crate::units::VolumeId;

    fn record() -> VolumeRecord {
        let mut fingerprint = [const { None }; crate::fingerprint::PLACES];
        fingerprint[0] = Some(Fingerprint { offset_bytes: 4096, checksum: 7 });
        let new = VolumeRecord::new(VolumeId(1), "v", "o", 800);
        VolumeRecord { identity: "serial 1".into(), fingerprint, ..new }
    }

    fn compare(seen: &OriginSeen<'_>, checksum: u32) -> Result<Growth, Difference> {
        let read = |offset_bytes| {
            assert_eq!(offset_bytes, 4096);
            Ok::<u32, ()>(checksum)
        };
        compare_origin(&record(), seen, read, Mutations::NONE).expect("it can be read")
    }

    #[test]
    fn each_difference_has_its_name() {
        let same = OriginSeen { identity: "serial 1", size_sectors: 800, sector_bytes: 512 };
        assert_eq!(compare(&same, 7), Ok(Growth::Same));
        assert_eq!(compare(&OriginSeen { identity: "", ..same }, 7), Ok(Growth::Same), "it may have none");
        assert_eq!(compare(&OriginSeen { size_sectors: 801, ..same }, 7), Ok(Growth::Grown));
        assert_eq!(compare(&OriginSeen { identity: "serial 2", ..same }, 7), Err(Difference::Identity));
        assert_eq!(compare(&OriginSeen { size_sectors: 799, ..same }, 7), Err(Difference::Shrunk));
        assert_eq!(compare(&OriginSeen { sector_bytes: 4096, ..same }, 7), Err(Difference::Sectors));
        assert_eq!(compare(&same, 8), Err(Difference::Place { offset_bytes: 4096 }));
    }
}
