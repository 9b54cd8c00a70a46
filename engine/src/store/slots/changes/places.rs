//! Places for the parts of a write: slots are taken, given back and given up.

use crate::machine::Machine;
use crate::machine::request::RequestKey;
use crate::memory::Memory;
use crate::policies::replacement::Policy;
use crate::store::slots::SlotStore;
use crate::store::slots::changes::plan::{Part, Way};
use crate::store::slots::table::SlotState;
use crate::units::{Frame, PieceKey};
use alloc::vec::Vec;

impl Machine<SlotStore> {
    /// Makes the slots of these parts give their pieces up before the parts are written to the origin. False if some
    /// still have them; then the request waits, and dirty slots are destaged first.
    pub(in crate::store::slots) fn clear_parts<M: Memory>(
        &mut self,
        key: RequestKey,
        parts: &[Part],
        memory: &mut M,
    ) -> bool {
        let volume_index = self.requests[key].volume;
        let mut dirty = Vec::new();
        let mut is_clear = true;
        for part in parts {
            let Way::Clear(slot) = part.way else { continue };
            if self.store.may_leave(slot) {
                self.evict_slot(slot);
                // H5: a slot that leaves later may come back until then.
                is_clear &= !self.store.leaves_later();
                continue;
            }
            is_clear = false;
            if self.store.table.is_dirty(slot) {
                dirty.push(self.store.blocks_of(self.volume(volume_index), part.piece).first);
            }
        }
        self.hurry_records();
        if !is_clear {
            self.wait_for_home(key, &dirty, memory);
        }
        is_clear
    }

    /// Takes a slot for a part that has none yet.
    pub(in crate::store::slots) fn take_place(
        &mut self,
        key: RequestKey,
        part: &mut Part,
        taken: &mut Vec<Frame>,
    ) {
        match part.way {
            Way::New => {
                let arrival =
                    self.store.answer(key, part.piece).expect("only a part that may enter takes a slot");
                match self.reserve(part.piece) {
                    Some(slot) => {
                        taken.push(slot);
                        part.way = Way::InPlace(slot);
                    }
                    None => {
                        self.store.take_back_answer(key, part.piece);
                        self.store.refuse(part.piece, arrival);
                        part.way = Way::Around;
                    }
                }
            }
            // The piece could not be promoted.
            Way::Promote => part.way = Way::Around,
            Way::InPlace(_) | Way::Beside(_) | Way::Around | Way::Clear(_) => (),
        }
    }

    /// Sends the whole request to the origin, too: parts in slots are written there as well, and no part gets a new
    /// slot.
    pub(in crate::store::slots) fn put_beside(&mut self, parts: &mut [Part]) {
        for part in parts {
            let slot = self.store.holding(part.piece);
            if slot.is_none()
                && let Way::InPlace(_) = part.way
            {
                part.way = Way::Around;
            }
            if let Some(slot) = slot {
                part.way = Way::Beside(slot);
            }
        }
    }

    /// Notes that the slots of these parts are not written after all.
    pub(in crate::store::slots) fn end_parts(&mut self, parts: &[Part]) {
        for part in parts {
            if let Way::InPlace(slot) | Way::Beside(slot) = part.way
                && self.store.holding(part.piece) == Some(slot)
            {
                self.store.write_ends(slot);
            }
        }
    }

    /// Takes a slot for a piece: a free one of its set, or one that gives its place up.
    pub(in crate::store::slots) fn reserve(&mut self, piece: PieceKey) -> Option<Frame> {
        let set = self.store.directory.set_of(piece);
        let slot = match self.store.free.take(set) {
            Some(slot) => slot,
            None => {
                self.store.wants_room = true;
                let (leaves_later, leaving) = (self.store.leaves_later(), self.store.leaving());
                let SlotStore { replacement, table, writing, .. } = &mut self.store;
                if !replacement.wants_victim(0, leaving)
                    || leaves_later && leaving >= table.shape().frames.div_ceil(4)
                {
                    return None;
                }
                let victim = replacement.victim(set, |slot| {
                    table.is_idle_clean(slot)
                        && (leaves_later || !table.is_recorded(slot))
                        && !table.is_lost(slot)
                        && writing.get(u64::from(slot.0)).is_none()
                })?;
                self.store.wants_room = false;
                if leaves_later {
                    // The victim's place is for requests after the transaction.
                    let left = self.store.table.piece(victim.frame).expect("a victim holds a piece");
                    if victim.is_remembered {
                        self.store.policies.admission.evicted(left);
                    }
                    self.begin_leaving(victim.frame);
                    return None;
                }
                let left = self.store.vacate(victim.frame);
                if victim.is_remembered {
                    self.store.policies.admission.evicted(left);
                }
                self.uncount(left);
                // The slot counts as freed and taken again: the reservation may yet come to nothing.
                self.store.replacement.remove(victim.frame);
                victim.frame
            }
        };
        self.store.table.occupy(slot, piece);
        let SlotStore { directory, table, .. } = &mut self.store;
        directory.insert(piece, slot, table);
        Some(slot)
    }

    /// Gives back a reserved slot that is not needed.
    pub(in crate::store::slots) fn give_back(&mut self, slot: Frame) {
        assert!(
            self.store.table.state(slot) == SlotState::Filling,
            "a slot is given back before it has its content"
        );
        let piece = self.store.table.piece(slot).expect("a slot is reserved for a piece");
        self.store.directory.remove(piece, slot);
        self.store.table.free(slot);
        self.store.free.give_back(slot);
        self.store.rotten.remove(&piece);
        self.store.is_released = true;
    }

    /// Counts a piece as no longer in a slot.
    pub(in crate::store::slots) fn uncount(&mut self, piece: PieceKey) {
        let blocks = self.store.blocks_of(self.volume(piece.volume()), piece).count;
        self.volume_mut(piece.volume()).cached_blocks -= blocks;
    }

    pub(in crate::store::slots) fn evict_slot(&mut self, slot: Frame) {
        if self.store.leaves_later() {
            self.begin_leaving(slot);
            return;
        }
        let piece = self.store.evict(slot);
        self.uncount(piece);
    }
}
