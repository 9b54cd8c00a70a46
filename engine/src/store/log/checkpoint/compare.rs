//! A checkpoint, and what the log says without it.

use crate::format::Superblock;
use crate::image::Image;
use crate::mutation::Mutations;
use crate::recovery::{Opened, OpenedStore, Options};
use crate::store::log::LogStore;
use crate::store::log::index::sums::Sums;
use crate::store::log::recovery::{OpenedLog, read_from};

/// More than any index takes: nothing is left out of one that is compared.
const BUDGET_BYTES: u64 = 1 << 42;

/// Compares the checkpoint that a start would load with the log. Answers where its record is on the device, in bytes, if what a start
/// would find with it cannot be; a log that cannot be read says nothing.
pub(crate) fn doubted<I: Image>(image: &mut I, superblock: &Superblock) -> Option<u64> {
    let options = Options { index_budget_bytes: BUDGET_BYTES, repair: false, mutations: Mutations::NONE };
    let with = read_from(image, superblock.clone(), options, true).ok()?;
    let offset_bytes = log_of(&with)?.believed_at()?;
    let without = read_from(image, superblock.clone(), options, false).ok()?;
    let (found, replayed) = (&log_of(&with)?.store, &log_of(&without)?.store);
    let is_right = tells_the_same(found, replayed) && counts_right(&with, found);
    (!is_right).then_some(offset_bytes)
}

fn log_of(opened: &Opened) -> Option<&OpenedLog> {
    match &opened.store {
        OpenedStore::Log(log) => Some(log),
        OpenedStore::Slots(_) => None,
    }
}

/// Whether each block that is found lies where the log says, and none is missing that is dirty. What is clean may have left memory
/// before the log said so, and what is clean now may be dirty in the log still.
fn tells_the_same(found: &LogStore, replayed: &LogStore) -> bool {
    let mut is_same = true;
    found.index.for_each(|key, entry| {
        is_same &= replayed.index.get(key).is_some_and(|other| {
            let is_there = other.place == entry.place && (other.dirty || !entry.dirty);
            // A copy that was on its way while the block came in otherwise is in the log, and not in memory.
            other.checksum == entry.checksum && (is_there || !other.dirty && !entry.dirty)
        });
    });
    replayed.index.for_each(|key, entry| is_same &= !entry.dirty || found.index.get(key).is_some());
    for extent in found.extents.iter() {
        is_same &= replayed
            .extents
            .get(extent.first)
            .is_some_and(|other| (other.kind, other.place) == (extent.kind, extent.place));
    }
    is_same
}

/// Whether volumes have what the index has of them.
fn counts_right(opened: &Opened, found: &LogStore) -> bool {
    let mut sums = Sums::new(found.segments.count(), found.segments.segment_blocks());
    found.index.for_each(|key, entry| sums.put(key, 1, entry.place, entry.dirty));
    let volumes = opened.volumes.iter().zip(sums.volumes);
    let are_right = volumes
        .flat_map(|(volume, sum)| volume.as_ref().map(|volume| (volume, sum)))
        .all(|(volume, sum)| (volume.cached_blocks, volume.dirty_blocks) == (sum.blocks, sum.dirty));
    are_right && (0..).zip(&sums.segments).all(|(at, sum)| found.segments.get(at).live == sum.blocks)
}
