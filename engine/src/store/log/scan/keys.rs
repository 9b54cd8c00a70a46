//! Payload that lies at places of its own: where keys say that it is.

use super::{ScanError, read_group_into};
use crate::format::{Entry, EntryKind, Layout, SEGMENTS_OFFSET, Superblock};
use crate::image::{Image, ReadAt};
use crate::number::{index, index_wide, to_u32};
use crate::units::{BLOCK_BYTES, Place, SECTORS_PER_BLOCK, payload_checksum};
use alloc::vec::Vec;

/// Blocks of one read: 256 KiB.
const PIECE_BLOCKS: u32 = 64;

/// Whether any payload of these entries lies elsewhere than behind the header.
pub(crate) fn has_keys(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.kind.is_key())
}

/// The keys among the entries of a batch with their checksums, and the checksums of what lies behind its header; without what one
/// half of a mirrored cache has alone, which the origin has, too.
pub(crate) fn split(entries: &[Entry], checksums: &[u32]) -> (Vec<Entry>, Vec<u32>, Vec<u32>) {
    let (mut keys, mut of_keys, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = checksums;
    for entry in entries {
        let (its, others) = rest.split_at(index(entry.payload_blocks).min(rest.len()));
        rest = others;
        if entry.kind.is_key() {
            keys.push(*entry);
            of_keys.extend_from_slice(its);
        } else if entry.kind != EntryKind::CleanOnce {
            behind.extend_from_slice(its);
        }
    }
    (keys, of_keys, behind)
}

/// The places that a key names, if the device has a bucket with all of them.
pub(crate) fn places_of(superblock: &Superblock, entry: &Entry) -> Option<Place> {
    let (Layout::Keys(layout) | Layout::Frames(layout)) = superblock.layout else { return None };
    let blocks = u64::from(entry.sectors).div_ceil(SECTORS_PER_BLOCK).max(u64::from(entry.payload_blocks));
    layout.has_run(entry.extra, blocks).then(|| Place(to_u32(entry.extra)))
}

/// Verifies the payload of a header's keys: where on the device the first block lies that is not what the key says. What was
/// written for an earlier batch is that one's: if it has rotted since, this batch is whole all the same.
///
/// # Errors
/// [`ScanError::Device`].
pub(crate) fn verify_keys<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    entries: &[Entry],
    checksums: &[u32],
    doubts_kept: bool,
) -> Result<Option<u64>, ScanError> {
    let mut group: Vec<ReadAt> = Vec::new();
    let mut checksums = checksums.iter();
    for entry in entries.iter().filter(|entry| entry.kind.has_payload()) {
        // HAZARD 15: what points elsewhere was not written by us, and neither was payload behind such a header.
        let Some(place) = places_of(superblock, entry).filter(|_| entry.kind.is_key()) else {
            return Ok(Some(SEGMENTS_OFFSET));
        };
        if entry.kind.is_kept() && !doubts_kept {
            let skipped = (&mut checksums).take(index(entry.payload_blocks)).count();
            assert!(skipped == index(entry.payload_blocks), "a decoded header has one for each block");
            continue;
        }
        let offset = |step: u32| SEGMENTS_OFFSET + u64::from(place.0 + step) * BLOCK_BYTES;
        let pieces = (0..entry.payload_blocks).step_by(index(PIECE_BLOCKS)).map(|step| {
            let blocks = (entry.payload_blocks - step).min(PIECE_BLOCKS);
            (offset(step), index_wide(u64::from(blocks) * BLOCK_BYTES))
        });
        read_group_into(image, pieces, &mut group);
        for read in &group {
            if let Err(errno) = read.result {
                return Err(ScanError::Device { offset_bytes: read.offset_bytes, errno });
            }
            for (block, step) in read.bytes.chunks_exact(index_wide(BLOCK_BYTES)).zip(0..) {
                let expected = checksums.next().expect("a decoded header has one for each block");
                if payload_checksum(block) != *expected {
                    return Ok(Some(read.offset_bytes + step * BLOCK_BYTES));
                }
            }
        }
    }
    Ok(None)
}
