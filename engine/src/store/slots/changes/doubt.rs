//! Clean slots in doubt: the origin may no longer have their content.
//!
//! An origin that fails a flush may have lost recent writes. A slot filled from such content, or written beside it,
//! is given up. Where a crash makes every mapped slot dirty, it would bring the lost content back, after readers saw
//! the older content of the origin. There no read gets the origin's content of a piece
//!
//! * D1: until the removal of such a slot is durable;
//! * D2: while a slot is filled with its piece, or leaves, and the origin has not flushed it: the flush that fails may be
//!   under way.
//!
//! A read that ended before its piece came into doubt is repeated ([`crate::store::Reading::may_tell`]).

use crate::machine::Machine;
use crate::machine::request::RequestKey;
use crate::machine::volumes::Volumes;
use crate::mutation::Mutation;
use crate::store::slots::SlotStore;
use crate::store::slots::records::Records;
use crate::store::slots::table::SlotState;
use crate::units::Nanos;
use crate::units::{Frame, PieceKey, VolumeIndex};
use alloc::vec::Vec;

impl SlotStore {
    /// Whether a crash may turn a slot dirty that is clean, leaves, or is being filled.
    fn revives_clean(&self) -> bool {
        matches!(self.records, Records::Commit(_)) && !self.keeps_clean()
    }

    /// Forgets the clean slots of a volume whose origin failed a flush.
    pub(in crate::store::slots) fn evict_clean(
        &mut self,
        volume: VolumeIndex,
        volumes: &mut Volumes,
        now: Nanos,
    ) {
        for slot in self.slots_of_volume(volume) {
            let piece = self.table.piece(slot).expect("a slot of the volume holds a piece");
            if self.table.is_dirty(slot) {
                continue;
            }
            if self.is_piece_flushed(piece, volumes) && self.may_leave(slot) {
                self.evict_slot(slot, volumes, now);
            } else {
                self.give_up_doubted(slot, piece, volumes, now);
            }
        }
    }

    /// Gives up a slot that is not dirty, or not yet, now or as soon as it may leave: the origin may not have its
    /// content.
    pub(in crate::store::slots) fn give_up_doubted(
        &mut self,
        slot: Frame,
        piece: PieceKey,
        volumes: &mut Volumes,
        now: Nanos,
    ) {
        let is_leaving = self.table.state(slot) == SlotState::Leaving;
        if !is_leaving && !self.may_leave(slot) {
            self.rotten.insert(piece);
            return;
        }
        self.rotten.remove(&piece);
        if self.revives_clean() {
            self.doubted.insert(piece);
        }
        if !is_leaving {
            self.evict_slot(slot, volumes, now);
        }
    }

    /// Lets slots leave that could not leave when they should have.
    pub(in crate::store::slots) fn let_rotten_leave(&mut self, volumes: &mut Volumes, now: Nanos) {
        let rotten: Vec<(Frame, PieceKey)> = self.rotten_that_may_leave().collect();
        for (slot, piece) in rotten {
            self.give_up_doubted(slot, piece, volumes, now);
        }
    }

    /// Slots that should have left and may do so now.
    pub(in crate::store::slots) fn rotten_that_may_leave(&self) -> impl Iterator<Item = (Frame, PieceKey)> {
        let is_left = !self.mutations.has(Mutation::RottenStays);
        let rotten = self.rotten.iter().filter(move |_| is_left);
        rotten.filter_map(|&piece| {
            let slot = self.directory.find(piece, &self.table).filter(|slot| self.may_leave(*slot))?;
            Some((slot, piece))
        })
    }

    fn is_piece_in_doubt(&self, piece: PieceKey, volumes: &Volumes) -> bool {
        let store = self;
        let Some(slot) = store.directory.find(piece, &store.table) else { return false };
        if self.mutations.has(Mutation::TellDoubted) || self.mutations.has(Mutation::RottenStays) {
            return false;
        }
        let is_moving = matches!(store.table.state(slot), SlotState::Filling | SlotState::Leaving);
        store.rotten.contains(&piece)
            || store.doubted.contains(&piece)
            || is_moving && store.policies.is_safe && !self.is_piece_flushed(piece, volumes)
    }

    fn is_piece_flushed(&self, piece: PieceKey, volumes: &Volumes) -> bool {
        let blocks = self.blocks_of(volumes.of(piece.volume()), piece);
        volumes.of(piece.volume()).is_origin_flushed(blocks)
    }
}

impl Machine<SlotStore> {
    /// Whether a read may not return the origin's content of its pieces (D1, D2).
    pub(in crate::store::slots) fn is_in_doubt(&self, key: RequestKey) -> bool {
        let store = &self.store;
        if !store.revives_clean() || self.latched.is_some() {
            return false;
        }
        let is_settled = store.rotten.is_empty()
            && store.doubted.is_empty()
            && store.leaving() == 0
            && store.filling_blocks.iter().all(|&blocks| blocks == 0);
        if is_settled {
            return false;
        }
        let active = &self.requests[key];
        store
            .pieces(active.volume, active.blocks)
            .any(|piece| self.store.is_piece_in_doubt(piece, &self.volumes))
    }
}
