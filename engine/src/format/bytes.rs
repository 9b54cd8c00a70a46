//! Little-endian fields at fixed offsets of a byte slice: the one place where bytes become numbers.
//!
//! Readers answer [`FormatError::Truncated`] for a field outside the slice, so that a decoder can
//! follow hostile lengths without checking each of them twice.

use super::{COUNTER_MAX, FormatError};
use crate::number::to_u32;
use crate::units::crc32c;

/// Where the checksum lies in everything that has one: after the magic.
pub(super) const CHECKSUM_AT: usize = 8;
/// Where the version lies in everything that has one, in this format and in all later ones.
pub(super) const VERSION_AT: usize = 12;

/// The `N` bytes at `at`.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], FormatError> {
    let end = at.checked_add(N).ok_or(FormatError::Truncated)?;
    let field = bytes.get(at..end).ok_or(FormatError::Truncated)?;
    field.try_into().map_err(|_| FormatError::Truncated)
}

/// The byte at `at`.
pub(super) fn u8_at(bytes: &[u8], at: usize) -> Result<u8, FormatError> {
    bytes.get(at).copied().ok_or(FormatError::Truncated)
}

/// The number of 2 bytes at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, FormatError> {
    array(bytes, at).map(u16::from_le_bytes)
}

/// The number of 4 bytes at `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, FormatError> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// The number of 8 bytes at `at`.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Result<u64, FormatError> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// The counter of 8 bytes at `at`: at most [`COUNTER_MAX`].
pub(super) fn counter_at(bytes: &[u8], at: usize, field: &'static str) -> Result<u64, FormatError> {
    let counter = u64_at(bytes, at)?;
    if counter > COUNTER_MAX { Err(FormatError::Field(field)) } else { Ok(counter) }
}

/// Writes `field` at `at`; the slice must reach that far.
pub(super) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// The checksum of `bytes` with its own field taken as zero.
pub(super) fn checksum_of(bytes: &[u8]) -> u32 {
    assert!(bytes.len() >= VERSION_AT, "a checksum has a place");
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    crc.update(&bytes[..CHECKSUM_AT]);
    crc.update(&[0; 4]);
    crc.update(&bytes[VERSION_AT..]);
    to_u32(crc.finalize())
}

/// Writes magic and version, then, over all of `bytes`, the checksum, and returns it.
pub(super) fn seal(bytes: &mut [u8], magic: [u8; 8], version: u16) -> u32 {
    put(bytes, 0, &magic);
    put(bytes, CHECKSUM_AT, &[0; 4]);
    put(bytes, VERSION_AT, &version.to_le_bytes());
    let checksum = crc32c(bytes);
    put(bytes, CHECKSUM_AT, &checksum.to_le_bytes());
    checksum
}

/// Verifies magic, checksum and version of `bytes`, and returns the checksum.
pub(super) fn unseal(bytes: &[u8], magic: [u8; 8], version: u16) -> Result<u32, FormatError> {
    if array::<8>(bytes, 0)? != magic {
        return Err(FormatError::Magic);
    }
    let found = u16_at(bytes, VERSION_AT)?;
    let checksum = u32_at(bytes, CHECKSUM_AT)?;
    if checksum != checksum_of(bytes) {
        return Err(FormatError::Checksum);
    }
    // After the checksum: a flipped bit is damage, not a version from the future.
    if found != version {
        return Err(FormatError::Version { found, supported: version });
    }
    Ok(checksum)
}
