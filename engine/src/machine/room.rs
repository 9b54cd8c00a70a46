//! The room of a volume in the cache: how much of it stays whatever other volumes bring, and how much it may have.
//!
//! A ring drops what is oldest. What a volume has up to its minimum is appended again instead, hit or not, within the
//! quota that bounds all that is appended again: so minimums hold for that part of the cache, and never stop the
//! ring (rule 9). A volume above its maximum gets nothing that is only read, and what it has leaves without another
//! lap. What clients write enters in any case, and dirty blocks are never dropped.

use crate::effect::{Errno, Room};
use crate::machine::Machine;
use crate::machine::request::RequestKey;
use crate::machine::volume::Volume;
use crate::memory::Memory;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, VolumeIndex};

/// The room of a volume, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomBlocks {
    pub least: u64,
    pub most: u64,
}

impl RoomBlocks {
    /// No minimum, and no maximum.
    pub const ANY: RoomBlocks = RoomBlocks { least: 0, most: u64::MAX };
}

impl Volume {
    /// Whether so many blocks more may enter that are only read.
    pub fn may_have_more(&self, blocks: u64) -> bool {
        self.room.most == u64::MAX || self.cached_blocks + blocks <= self.room.most
    }

    /// Whether the volume has no more than its minimum and `slack_blocks`, which may leave at once.
    pub fn is_kept(&self, slack_blocks: u64) -> bool {
        self.room.least > 0
            && self.cached_blocks.saturating_sub(self.lingering_blocks) <= self.room.least + slack_blocks
    }

    /// Whether the volume has more than its maximum.
    pub fn is_above_room(&self) -> bool {
        self.cached_blocks > self.room.most
    }
}

impl<S: Store> Machine<S> {
    pub(crate) fn set_room<M: Memory>(
        &mut self,
        key: RequestKey,
        index: VolumeIndex,
        room: Room,
        memory: &mut M,
    ) {
        if room.min_bytes > 0 && !self.store.keeps_minimums() {
            self.fail(key, Errno::OPNOTSUPP, memory);
            return;
        }
        let most = room.max_bytes.map_or(u64::MAX, |bytes| bytes / BLOCK_BYTES);
        self.volume_mut(index).room = RoomBlocks { least: room.min_bytes / BLOCK_BYTES, most };
        self.reply(key, memory);
    }
}
