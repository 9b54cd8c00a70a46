//! Places for the parts of a write: slots are taken, given back and given up.

use crate::machine::Machine;
use crate::machine::request::RequestKey;
use crate::machine::volumes::Volumes;
use crate::memory::Memory;
use crate::policies::replacement::Policy;
use crate::store::slots::SlotStore;
use crate::store::slots::changes::plan::{Part, Way};
use crate::store::slots::table::SlotState;
use crate::units::Nanos;
use crate::units::{Frame, PieceKey};
use alloc::vec::Vec;

impl SlotStore {
    /// Takes a slot for a part that has none yet.
    pub(in crate::store::slots) fn take_place(
        &mut self,
        key: RequestKey,
        part: &mut Part,
        taken: &mut Vec<Frame>,
        volumes: &mut Volumes,
        now: Nanos,
    ) {
        match part.way {
            Way::New => {
                let arrival = self.answer(key, part.piece).expect("only a part that may enter takes a slot");
                match self.reserve(part.piece, volumes, now) {
                    Some(slot) => {
                        taken.push(slot);
                        part.way = Way::InPlace(slot);
                    }
                    None => {
                        self.take_back_answer(key, part.piece);
                        self.refuse(part.piece, arrival);
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
            let slot = self.holding(part.piece);
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
                && self.holding(part.piece) == Some(slot)
            {
                self.write_ends(slot);
            }
        }
    }

    /// Takes a slot for a piece: a free one of its set, or one that gives its place up.
    pub(in crate::store::slots) fn reserve(
        &mut self,
        piece: PieceKey,
        volumes: &mut Volumes,
        now: Nanos,
    ) -> Option<Frame> {
        let set = self.directory.set_of(piece);
        let slot = match self.free.take(set) {
            Some(slot) => slot,
            None => {
                self.wants_room = true;
                let (leaves_later, leaving) = (self.leaves_later(), self.leaving());
                let SlotStore { replacement, table, writing, .. } = self;
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
                self.wants_room = false;
                if leaves_later {
                    // The victim's place is for requests after the transaction.
                    let left = self.table.piece(victim.frame).expect("a victim holds a piece");
                    if victim.is_remembered {
                        self.policies.admission.evicted(left);
                    }
                    self.begin_leaving(victim.frame, volumes, now);
                    return None;
                }
                let left = self.vacate(victim.frame);
                if victim.is_remembered {
                    self.policies.admission.evicted(left);
                }
                self.uncount(left, volumes);
                // The slot counts as freed and taken again: the reservation may yet come to nothing.
                self.replacement.remove(victim.frame);
                victim.frame
            }
        };
        self.table.occupy(slot, piece);
        let SlotStore { directory, table, .. } = self;
        directory.insert(piece, slot, table);
        Some(slot)
    }

    /// Gives back a reserved slot that is not needed.
    pub(in crate::store::slots) fn give_back(&mut self, slot: Frame) {
        assert!(
            self.table.state(slot) == SlotState::Filling,
            "a slot is given back before it has its content"
        );
        let piece = self.table.piece(slot).expect("a slot is reserved for a piece");
        self.directory.remove(piece, slot);
        self.table.free(slot);
        self.free.give_back(slot);
        self.rotten.remove(&piece);
        self.is_released = true;
    }

    /// Counts a piece as no longer in a slot.
    pub(in crate::store::slots) fn uncount(&mut self, piece: PieceKey, volumes: &mut Volumes) {
        let blocks = self.blocks_of(volumes.of(piece.volume()), piece).count;
        volumes.of_mut(piece.volume()).cached_blocks -= blocks;
    }

    /// Gives up a slot that may leave, now or with the next transaction.
    pub(in crate::store::slots) fn evict_slot(&mut self, slot: Frame, volumes: &mut Volumes, now: Nanos) {
        if self.leaves_later() {
            self.begin_leaving(slot, volumes, now);
            return;
        }
        let piece = self.evict(slot);
        self.uncount(piece, volumes);
    }
}

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
                self.store.evict_slot(slot, &mut self.volumes, self.now);
                // H5: a slot that leaves later may come back until then.
                is_clear &= !self.store.leaves_later();
                continue;
            }
            is_clear = false;
            if self.store.table.is_dirty(slot) {
                dirty.push(self.store.blocks_of(self.volume(volume_index), part.piece).first);
            }
        }
        self.store.hurry_records(&mut self.barrier);
        if !is_clear {
            self.wait_for_home(key, &dirty, memory);
        }
        is_clear
    }
}
