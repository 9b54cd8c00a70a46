//! The content of buckets, as recovery finds it.

use super::Keys;
use super::buckets::Held;
use crate::composition::Composition;
use crate::format::{Entry, EntryKind, KeyLayout};
use crate::number::{self, index_wide, to_u32};
use crate::store::log::index::Index;
use crate::store::log::segments::Segments;
use crate::units::{BlockKey, Place, SECTORS_PER_BLOCK, VolumeIndex};
use alloc::vec;
use alloc::vec::Vec;

/// Content of the buckets by the keys that lead to it, in the course of a replay.
pub(crate) struct KeysFound {
    layout: KeyLayout,
    /// By bucket, since its last `Freed`; none if no key leads there.
    held: Vec<Option<Vec<Held>>>,
}

impl KeysFound {
    /// Nothing yet.
    pub fn new(layout: KeyLayout) -> KeysFound {
        KeysFound { layout, held: vec![None; number::index(layout.buckets)] }
    }

    pub fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// Whether an entry's places are all in one bucket.
    pub fn has(&self, entry: &Entry) -> bool {
        let blocks = u64::from(entry.sectors).div_ceil(SECTORS_PER_BLOCK);
        self.layout.has_run(entry.extra, blocks.max(u64::from(entry.payload_blocks)))
    }

    fn bucket_of(&self, entry: &Entry) -> Option<usize> {
        let place = entry.extra.checked_sub(u64::from(self.layout.ring_blocks()))?;
        self.has(entry).then_some(index_wide(place / u64::from(self.layout.bucket_blocks)))
    }

    /// Notes an entry; what it says to be void. With `keeps_freed` nothing ever is.
    pub fn pass(&mut self, volume: Option<VolumeIndex>, entry: &Entry, keeps_freed: bool) -> Vec<Held> {
        let Some(bucket) = self.bucket_of(entry) else { return Vec::new() };
        let held = &mut self.held[bucket];
        if entry.kind == EntryKind::Freed && !keeps_freed {
            return held.take().unwrap_or_default();
        }
        if entry.kind.is_key() {
            // Of a volume that is gone, too: its key is in the log, and its place not to be written before a `Freed`.
            let held = held.get_or_insert_default();
            if let Some(volume) = volume {
                let first = BlockKey::new(volume, entry.start_sector / SECTORS_PER_BLOCK);
                held.push(Held { first, place: Place(to_u32(entry.extra)), blocks: entry.payload_blocks });
            }
        }
        Vec::new()
    }

    /// The buckets as the index has them in the end.
    pub fn into_keys(
        self,
        composition: &Composition,
        index: &Index,
        segments: &mut Segments,
        seed: u64,
    ) -> Keys {
        let KeysFound { layout, mut held } = self;
        held.iter_mut().flatten().for_each(Vec::clear);
        let ring = layout.ring_blocks();
        index.for_each(|key, entry| {
            let bucket = number::index((entry.place.0 - ring) / layout.bucket_blocks);
            let held = held[bucket].get_or_insert_default();
            held.push(Held { first: key, place: entry.place, blocks: 1 });
        });
        for (bucket, held) in held.iter_mut().enumerate() {
            let Some(held) = held else { continue };
            held.sort_unstable_by_key(|held| held.place);
            held.dedup_by(|next, last| {
                let is_next = last.first.0 + u64::from(last.blocks) == next.first.0
                    && last.place.0 + last.blocks == next.place.0;
                last.blocks += u32::from(is_next);
                is_next
            });
            // Recovery flushes the cache before anything else happens.
            segments.get_mut(layout.geometry.segments + to_u32(bucket)).flushed_blocks = layout.bucket_blocks;
        }
        Keys::new(composition, layout, held, seed)
    }
}
