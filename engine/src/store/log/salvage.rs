//! Dirty data of a log: of one that recovery accepts, and of one that is damaged.

use super::LogStore;
use super::extents::{Extent, ExtentKind};
use super::recovery::Replay;
use super::scan::ScanError;
use super::scan::fragments::{self, Fragments};
use crate::format::{SEGMENTS_OFFSET, Superblock};
use crate::image::Image;
use crate::recovery::Options;
use crate::salvage::{Dirty, DirtyContent, Salvage};
use crate::store::Lookup;
use crate::units::{BLOCK_BYTES, BlockKey, Place};
use alloc::vec::Vec;

fn block(key: BlockKey, offset_bytes: u64, checksum: u32, is_in_doubt: bool) -> Dirty {
    let content = DirtyContent::At { offset_bytes, checksum: Some(checksum) };
    Dirty { volume: key.volume(), first_block: key.block(), blocks: 1, content, is_in_doubt }
}

fn extent(found: Extent, is_in_doubt: bool) -> Dirty {
    let content = match found.kind {
        ExtentKind::Zero => DirtyContent::Zeroes,
        ExtentKind::Lost => DirtyContent::Lost,
    };
    let (first, blocks) = (found.first, found.blocks);
    Dirty { volume: first.volume(), first_block: first.block(), blocks, content, is_in_doubt }
}

impl LogStore {
    /// All that only the cache has.
    pub(crate) fn dirty(&self) -> Vec<Dirty> {
        let mut dirty = Vec::new();
        self.index.for_each(|key, entry| {
            if entry.dirty {
                dirty.push(block(key, self.offset_bytes(entry.place), entry.checksum, false));
            }
        });
        dirty.extend(self.extents.iter().map(|found| extent(found, false)));
        dirty
    }
}

/// All that only a damaged log has, as far as it can be found.
///
/// # Errors
/// [`ScanError::SuperblockStale`].
pub(crate) fn of_fragments<I: Image>(
    image: &mut I,
    superblock: Superblock,
    options: Options,
) -> Result<Salvage, ScanError> {
    let fragments = fragments::find(image, &superblock)?;
    let mut replay = Replay::new(&superblock, options);
    fragments.visit(image, &superblock, &mut |view, batch| replay.batch(view, batch));
    let ring_blocks = superblock.geometry().segments * superblock.geometry().segment_blocks;
    let segment_of =
        |place: Place| (place.0 < ring_blocks).then(|| place.0 / superblock.geometry().segment_blocks);
    let mut dirty = Vec::new();
    replay.index.settled().for_each(|key, entry| {
        let segment = segment_of(entry.place);
        if entry.dirty && !is_clean(&fragments, segment) {
            let offset_bytes = SEGMENTS_OFFSET + u64::from(entry.place.0) * BLOCK_BYTES;
            dirty.push(block(key, offset_bytes, entry.checksum, is_in_doubt(&fragments, segment)));
        }
    });
    for found in replay.extents.iter() {
        let segment = segment_of(found.place);
        if found.kind == ExtentKind::Lost || !is_clean(&fragments, segment) {
            dirty.push(extent(found, is_in_doubt(&fragments, segment)));
        }
    }
    Ok(Salvage { superblock, dirty, damage: None, missing_batches: fragments.missing })
}

/// RULE 2: below the oldest dirty sequence everything is clean, recorded one by one or not. That does not apply to buckets.
fn is_clean(fragments: &Fragments, segment: Option<u32>) -> bool {
    let last = segment.and_then(|segment| fragments.last_of.get(&segment));
    last.is_some_and(|last| *last < fragments.oldest_dirty_sequence)
}

/// Whether a batch that is missing may have had something newer than what the segment has.
fn is_in_doubt(fragments: &Fragments, segment: Option<u32>) -> bool {
    let first = segment.and_then(|segment| fragments.first_of.get(&segment));
    fragments.missing > 0 && first.is_none_or(|first| *first < fragments.last_missing)
}
