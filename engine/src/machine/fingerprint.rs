//! The well-known places of an origin by which a changed or wrong disk is recognised (hazard 9).

use crate::machine::guard::Blocks;
use crate::number::wide;
use crate::units::{BLOCK_BYTES, SECTOR_BYTES};

/// The number of places.
pub const PLACES: usize = 16;

/// The offsets of the places of an origin of `size_sectors`, in bytes: the first block, the last one,
/// and others spread between them. Each is 4096 bytes long; `None` where the origin is too small to have
/// that many.
#[must_use]
pub fn offsets_bytes(size_sectors: u64) -> [Option<u64>; PLACES] {
    let size_bytes = size_sectors * SECTOR_BYTES;
    let mut offsets = [None; PLACES];
    if size_bytes < BLOCK_BYTES {
        return offsets;
    }
    let blocks = size_bytes / BLOCK_BYTES;
    let last = blocks - 1;
    let mut previous = None;
    for (at, offset) in offsets.iter_mut().enumerate() {
        let block = u64::try_from(u128::from(last) * u128::from(wide(at)) / u128::from(wide(PLACES) - 1))
            .unwrap_or(last);
        if previous != Some(block) {
            *offset = Some(block * BLOCK_BYTES);
        }
        previous = Some(block);
    }
    offsets
}

/// Whether a write to `blocks` changes the place at `offset_bytes`. A place may begin inside a block where the volume's
/// size is odd.
pub(crate) fn is_place_touched(offset_bytes: u64, blocks: Blocks) -> bool {
    let block = offset_bytes / BLOCK_BYTES;
    block + 1 >= blocks.first && block <= blocks.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_both_ends() {
        let offsets = offsets_bytes(1 << 24);
        assert_eq!(offsets[0], Some(0));
        assert_eq!(offsets[15], Some((1 << 33) - 4096));
        assert!(offsets.iter().all(Option::is_some));
    }

    #[test]
    fn a_tiny_origin_has_fewer() {
        assert_eq!(offsets_bytes(7), [None; PLACES]);
        assert_eq!(offsets_bytes(16).iter().flatten().count(), 2);
    }
}
