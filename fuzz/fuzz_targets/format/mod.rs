//! Inputs for the decoders of the on-disk format.

use engine::units::crc32c;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Where the checksum of every structure is.
const CHECKSUM: core::ops::Range<usize> = 8..12;

/// `input`, filled up with zeroes to `len_bytes`, with the magic in front: without that nearly all inputs would
/// end at the first comparison.
pub fn with_magic(input: &[u8], magic: &[u8; 8], len_bytes: usize) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(input);
    bytes.resize(len_bytes, 0);
    bytes
}

/// Makes the checksum over all of `bytes` right.
pub fn seal(bytes: &mut [u8]) {
    bytes[CHECKSUM].fill(0);
    let checksum = crc32c(bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}
