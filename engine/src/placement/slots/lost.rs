//! Blocks whose only copy rotted, until somebody writes them or gives them up.

use super::SlotStore;
use crate::guard::Blocks;
use crate::machine::Machine;
use crate::request::RequestKey;
use crate::units::{PieceKey, VolumeIndex};
use alloc::vec::Vec;

impl Machine<SlotStore> {
    /// Whether a slot that a request touches has lost blocks.
    pub(super) fn has_lost(&self, key: RequestKey) -> bool {
        let active = &self.requests[key];
        let mut pieces = self.store.pieces(active.volume, active.blocks);
        !self.store.lost.is_empty()
            && pieces.any(|piece| {
                let slot = self.store.directory.find(piece, &self.store.table);
                slot.is_some_and(|slot| self.store.table.is_lost(slot))
            })
    }

    /// Blocks that were lost were written again.
    pub(super) fn find_again(&mut self, volume_index: VolumeIndex, blocks: Blocks) {
        if self.store.lost.is_empty() {
            return;
        }
        for block in blocks.first..blocks.end() {
            let key = self.volume(volume_index).key(block);
            if self.store.lost.remove(&key) {
                self.volume_mut(volume_index).lost_blocks -= 1;
                self.unmark_lost(self.store.piece_of(key));
            }
        }
    }

    /// A slot goes home again if none of its blocks is lost any more.
    fn unmark_lost(&mut self, piece: PieceKey) {
        let Some(slot) = self.store.holding(piece).filter(|slot| self.store.table.is_lost(*slot)) else {
            return;
        };
        let volume = self.volume(piece.volume());
        let blocks = self.store.blocks_of(volume, piece);
        let keys = volume.key(blocks.first)..=volume.key(blocks.end() - 1);
        if self.store.lost.range(keys).next().is_none() {
            self.store.table.set_lost(slot, false);
            let volume = self.volume_mut(piece.volume());
            volume.dirty_blocks += blocks.count;
            volume.destage.map.mark(blocks.first, blocks.count);
        }
    }

    /// The operator gives up what is lost: what rotted counts as content.
    pub(super) fn give_up_lost_slots(&mut self, index: VolumeIndex) {
        let lost: Vec<_> = self.store.lost.iter().copied().filter(|key| key.volume() == index).collect();
        for key in lost {
            self.store.lost.remove(&key);
            self.volume_mut(index).lost_blocks -= 1;
            let piece = self.store.piece_of(key);
            if let Some(slot) = self.store.holding(piece) {
                self.store.table.forget_checksums(slot);
            }
            self.unmark_lost(piece);
        }
    }
}
