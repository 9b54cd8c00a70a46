//! Headers in memory that outlived the process: their batches were answered before they were written.

use super::load_superblock;
use crate::effect::Errno;
use crate::format::{LASTING_SLOT_BYTES, LateHeader, Superblock};
use crate::image::Image;
use crate::number::index_wide;
use crate::units::BLOCK_BYTES;
use alloc::vec;
use alloc::vec::Vec;

/// The late headers in `lasting`, which the last session of the cache with this superblock stored there: the offset of each
/// on the device, and what belongs there. There are none of another cache or session.
#[must_use]
pub fn late_headers(superblock: &Superblock, lasting: &[u8]) -> Vec<(u64, Vec<u8>)> {
    // RULE 21: whoever came since has begun another session, and has written over what was there.
    let slots = lasting.chunks(LASTING_SLOT_BYTES).filter_map(LateHeader::decode);
    let late = slots.filter(|late| is_of(late, superblock));
    late.map(|late| {
        let mut bytes = vec![0; index_wide(BLOCK_BYTES)];
        late.header.encode(&late.entries, &late.checksums, &mut bytes);
        (late.offset_bytes, bytes)
    })
    .collect()
}

/// Writes the late headers in `lasting` to their places on `image`, and returns the offsets of these. It has to come before
/// anything else that reads the cache.
///
/// # Errors
/// The device's errno.
pub fn restore<I: Image>(image: &mut I, lasting: &[u8]) -> Result<Vec<u64>, Errno> {
    let Ok((superblock, _)) = load_superblock(image) else { return Ok(Vec::new()) };
    let headers = late_headers(&superblock, lasting);
    for (offset_bytes, bytes) in &headers {
        image.write(*offset_bytes, bytes)?;
    }
    Ok(headers.into_iter().map(|(offset_bytes, _)| offset_bytes).collect())
}

/// Whether a header belongs into the log of the last session.
fn is_of(late: &LateHeader, superblock: &Superblock) -> bool {
    let geometry = superblock.geometry();
    let in_ring = geometry.segments > 0 && {
        let first = geometry.offset_bytes(0, 0);
        let end = geometry.offset_bytes(geometry.segments, 0);
        (first..end).contains(&late.offset_bytes) && late.offset_bytes.is_multiple_of(BLOCK_BYTES)
    };
    let header = &late.header;
    in_ring
        && !superblock.clean_stop
        && (header.set_id, header.session) == (superblock.set_id, superblock.session)
}
