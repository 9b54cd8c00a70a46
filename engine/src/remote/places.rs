//! Places of an export by which it is recognised after a reconnect (hazard 16).
//!
//! A server that comes back may serve another disk, an older copy, or an empty one. So checksums of 4 KiB blocks are
//! kept: some spread over the export, read when it was opened, and some of those that were written last. What is
//! changed is forgotten when the change is asked for, and what was written is believed when a flush has covered it.

use crate::fingerprint::{PLACES, offsets_bytes};
use crate::mutation::{Mutation, Mutations};
use crate::units::{BLOCK_BYTES, SECTOR_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Blocks that are remembered of what was written last.
const WRITTEN_MAX: usize = 16;
/// Blocks that are remembered between two flushes.
const UNFLUSHED_MAX: usize = 8;

/// A block and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it is.
    pub offset_bytes: u64,
    /// The checksum of its content.
    pub checksum: u32,
}

/// Places of an export.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Those spread over it.
    spread: Vec<Place>,
    /// Written and flushed, the oldest first.
    written: VecDeque<Place>,
    /// Written, and acknowledged at this count of changes; not flushed.
    unflushed: Vec<(u64, Place)>,
}

/// The offsets of the places that are read when an export is opened.
pub fn spread_offsets(size_bytes: u64) -> impl Iterator<Item = u64> {
    const { assert!(PLACES < 64, "an export is opened quickly") };
    offsets_bytes(size_bytes / SECTOR_BYTES).into_iter().flatten()
}

/// The block that is remembered of a write: its first whole one.
#[must_use]
pub fn sample_of(offset_bytes: u64, len_bytes: u64) -> Option<u64> {
    let first = offset_bytes.next_multiple_of(BLOCK_BYTES);
    (first + BLOCK_BYTES <= offset_bytes + len_bytes).then_some(first)
}

impl Places {
    /// A place that was read.
    pub fn add_read(&mut self, place: Place) {
        self.spread.push(place);
    }

    /// A change of this range is asked for: what is known of it may not be true any more.
    pub(super) fn forget(&mut self, offset_bytes: u64, len_bytes: u64) {
        let end = offset_bytes + len_bytes;
        let stays =
            |place: &Place| place.offset_bytes + BLOCK_BYTES <= offset_bytes || end <= place.offset_bytes;
        self.spread.retain(stays);
        self.written.retain(stays);
        self.unflushed.retain(|(_, place)| stays(place));
    }

    /// Whether another write is worth remembering before the next flush.
    pub(super) fn wants_sample(&self) -> bool {
        self.unflushed.len() < UNFLUSHED_MAX
    }

    /// A write was acknowledged as the `count`th change.
    pub(super) fn add_written(&mut self, place: Place, count: u64) {
        if self.wants_sample() {
            self.unflushed.push((count, place));
        }
    }

    /// All changes up to the `count`th are durable.
    pub(super) fn flushed(&mut self, count: u64, mutations: Mutations) {
        let Places { written, unflushed, .. } = self;
        for (_, place) in unflushed.extract_if(.., |(at, _)| *at <= count) {
            if mutations.has(Mutation::FlushedPlacesForgotten) {
                continue;
            }
            if written.len() == WRITTEN_MAX {
                written.pop_front();
            }
            written.push_back(place);
        }
    }

    /// The connection is gone: what was not flushed may be lost, and says nothing.
    pub(super) fn lose_unflushed(&mut self) {
        self.unflushed.clear();
    }

    /// The places to be compared, those that were written last first.
    pub(super) fn known(&self) -> Vec<Place> {
        self.written.iter().rev().chain(&self.spread).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn place(block: u64) -> Place {
        Place { offset_bytes: block * BLOCK_BYTES, checksum: 7 }
    }

    #[test]
    fn what_is_written_is_known_when_it_was_flushed() {
        let mut places = Places::default();
        places.add_read(place(1));
        places.forget(BLOCK_BYTES * 2 - 512, 512);
        assert_eq!(places.known(), vec![], "a sector of it was changed");
        places.add_written(place(1), 5);
        places.add_written(place(2), 6);
        places.flushed(5, Mutations::NONE);
        assert_eq!(places.known(), [place(1)]);
        places.lose_unflushed();
        places.flushed(6, Mutations::NONE);
        assert_eq!(places.known(), [place(1)]);
        places.forget(0, BLOCK_BYTES);
        assert_eq!(places.known(), [place(1)], "beside it");
    }

    #[test]
    fn the_last_ones_written_are_kept() {
        let mut places = Places::default();
        for count in 0..100 {
            places.add_written(place(count), count);
            places.flushed(count, Mutations::NONE);
        }
        assert_eq!(places.known().len(), WRITTEN_MAX);
        assert_eq!(places.known()[0], place(99));
    }

    #[test]
    fn whole_blocks_are_sampled() {
        assert_eq!(sample_of(0, 4096), Some(0));
        assert_eq!(sample_of(512, 8192), Some(4096));
        assert_eq!(sample_of(512, 4096), None);
    }
}
