//! The half of the mirror that lies in memory: a frame of the driver's for each dirty block.
//!
//! A frame has a reference for each of its two owners: this table, and the batch that writes it to the device.

use crate::memory::{BufferId, Slice};
use crate::number::{to_u32, wide};
use crate::table::key_map::KeyMap;
use crate::units::{BLOCK_BYTES, BlockKey};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The slice of a frame.
pub(super) fn frame_slice(frame: BufferId) -> Slice {
    Slice { buffer: frame, offset_bytes: 0, len_bytes: to_u32(BLOCK_BYTES) }
}

/// The content of blocks that lies in memory.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Of dirty blocks, the content that the index knows.
    published: KeyMap,
    room: u32,
    /// Content that was acknowledged and that the index does not know yet. It hides what is published.
    ahead: BTreeMap<u64, BufferId>,
    /// Frames on their way to the device, or about to be.
    flying: u64,
    /// Frames whose reference is to be given back.
    dropped: Vec<BufferId>,
}

impl Frames {
    /// Room for so many blocks.
    pub fn new(room: u32) -> Frames {
        Frames { published: KeyMap::new(room), room, ahead: BTreeMap::new(), flying: 0, dropped: Vec::new() }
    }

    /// The most blocks that there is room for.
    pub fn room(&self) -> u64 {
        u64::from(self.room)
    }

    /// Blocks in memory; one that is on its way to the device counts once more.
    pub fn used(&self) -> u64 {
        u64::from(self.published.len()) + wide(self.ahead.len()) + self.flying
    }

    /// The content in memory that a read of a block returns.
    pub fn newest(&self, key: BlockKey) -> Option<Slice> {
        if !self.ahead.is_empty()
            && let Some(&frame) = self.ahead.get(&key.0)
        {
            return Some(frame_slice(frame));
        }
        self.published(key)
    }

    /// The content of a dirty block that the index knows.
    pub fn published(&self, key: BlockKey) -> Option<Slice> {
        self.published.get(key.0).map(|frame| frame_slice(BufferId(frame)))
    }

    /// So many frames are on their way.
    pub fn fly(&mut self, blocks: u64) {
        self.flying += blocks;
    }

    /// So many are not any more.
    pub fn land(&mut self, blocks: u64) {
        self.flying -= blocks;
    }

    /// A block is answered for. The table owns a reference of the frame's.
    pub fn put_ahead(&mut self, key: BlockKey, frame: BufferId) {
        self.dropped.extend(self.ahead.insert(key.0, frame));
    }

    /// Forgets what was answered for of a block.
    pub fn drop_ahead(&mut self, key: BlockKey) {
        self.dropped.extend(self.ahead.remove(&key.0));
    }

    /// The index knows the content of a frame now. The reference that the batch had is the table's.
    pub fn publish(&mut self, key: BlockKey, frame: BufferId) {
        if self.ahead.get(&key.0) == Some(&frame) {
            self.drop_ahead(key);
        }
        self.dropped.extend(self.published.insert(key.0, frame.0).map(BufferId));
    }

    /// A block is not dirty any more, or not cached.
    pub fn forget(&mut self, key: BlockKey) {
        self.dropped.extend(self.published.remove(key.0).map(BufferId));
    }

    /// Takes a frame whose reference is to be given back.
    pub fn take_dropped(&mut self) -> Option<BufferId> {
        self.dropped.pop()
    }

    /// Forgets everything: `take_dropped` gives it back.
    pub fn clear(&mut self, keys: impl Iterator<Item = BlockKey>) {
        keys.for_each(|key| self.forget(key));
        self.dropped.extend(core::mem::take(&mut self.ahead).into_values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(frames: &mut Frames) -> Vec<u32> {
        core::iter::from_fn(|| frames.take_dropped()).map(|frame| frame.0).collect()
    }

    #[test]
    fn what_is_ahead_hides_what_is_published_until_it_is() {
        let (mut frames, key) = (Frames::new(4), BlockKey(7));
        frames.publish(key, BufferId(1));
        frames.put_ahead(key, BufferId(2));
        frames.put_ahead(key, BufferId(3));
        assert_eq!(dropped(&mut frames), [2]);
        assert_eq!(frames.newest(key), Some(frame_slice(BufferId(3))));
        assert_eq!(frames.published(key), Some(frame_slice(BufferId(1))));
        frames.publish(key, BufferId(2));
        assert_eq!(frames.newest(key), Some(frame_slice(BufferId(3))), "the newer one is ahead still");
        frames.forget(key);
        assert_eq!((frames.published(key), dropped(&mut frames)), (None, std::vec![2, 1]));
        frames.publish(key, BufferId(3));
        assert_eq!(dropped(&mut frames), [3], "one of its two references");
        assert_eq!((frames.newest(key), frames.used()), (Some(frame_slice(BufferId(3))), 1));
    }
}
