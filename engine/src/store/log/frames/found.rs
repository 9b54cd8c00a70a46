//! The content of frames, as recovery finds it.

use crate::format::{Entry, KeyLayout};
use crate::number::to_u32;
use crate::units::{BlockKey, Place, SECTORS_PER_BLOCK};
use alloc::collections::BTreeMap;

/// Frames in the course of a replay.
pub(crate) struct FramesFound {
    pub layout: KeyLayout,
    /// Frames whose last key in the log does not hold, by place, though no record says that they are void: a later start
    /// may read that key again, so they are not free before such a record is durable.
    pub voided: BTreeMap<u32, BlockKey>,
}

impl FramesFound {
    /// Nothing yet.
    pub fn new(layout: KeyLayout) -> FramesFound {
        FramesFound { layout, voided: BTreeMap::new() }
    }

    /// Whether an entry's places are all in one group.
    pub fn has(&self, entry: &Entry) -> bool {
        let blocks = u64::from(entry.sectors).div_ceil(SECTORS_PER_BLOCK);
        self.layout.has_run(entry.extra, blocks.max(u64::from(entry.payload_blocks)))
    }

    /// The index has the block of a place no more, or elsewhere.
    pub fn lost(&mut self, key: BlockKey, place: Place) {
        if place.0 >= self.layout.ring_blocks() {
            self.voided.insert(place.0, key);
        }
    }

    /// The index never got blocks although the log has their keys.
    pub fn refused(&mut self, first: BlockKey, place: Place, blocks: u64) {
        (0..blocks).for_each(|step| self.lost(BlockKey(first.0 + step), Place(place.0 + to_u32(step))));
    }

    /// Blocks lie at places from now on, or a record says that nothing does.
    pub fn settled(&mut self, place: Place, blocks: u64) {
        if !self.voided.is_empty() {
            (place.0..place.0 + to_u32(blocks)).for_each(|place| {
                self.voided.remove(&place);
            });
        }
    }
}
