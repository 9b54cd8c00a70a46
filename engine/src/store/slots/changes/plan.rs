//! The plan of a write: the way of each of its parts. These rules tell the published systems apart.
//!
//! | a part | `in-place` | `invalidate` | `both-if-clean` |
//! | --- | --- | --- | --- |
//! | covers a piece that is in a slot | in place | in place | in place |
//! | covers one that is in none | new slot, if it may enter | the same | the same |
//! | of a piece in a dirty slot | in place | the slot goes home and is given up, then the origin | in place |
//! | of a piece in a clean slot | in place | the slot is given up, then the origin | slot and origin |
//! | of a piece in no slot | promoted first if it may enter and fetch waits for frames, else the origin | origin | origin |
//!
//! In writethrough mode parts in slots are written to slot and origin, the others to the origin, from where they may
//! enter afterwards.
//!
//! Where clean slots are kept over a crash, a slot written so counts as dirty: the origin may not keep the write.
//!
//! With `all_or_nothing` a request of which any part has to go to the origin goes there wholly, and besides to the
//! slots that have parts of it.
//!
//! Source: dm-cache, flashcache and EnhanceIO, in this order.

use crate::effect::{RequestOp, WriteMode};
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::machine::requests::Requests;
use crate::machine::volumes::Volumes;
use crate::policies::fetch::Fetch;
use crate::store::slots::SlotStore;
use crate::store::slots::changes::asking::part_of;
use crate::store::slots::policies::Partial;
use crate::units::{Frame, PieceKey, SECTORS_PER_BLOCK};
use alloc::vec::Vec;

/// The way of a part of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::slots) enum Way {
    /// Into the slot that has its piece.
    InPlace(Frame),
    /// Into a slot that is to be taken for it.
    New,
    /// Into the slot, which is clean, and to the origin.
    Beside(Frame),
    /// To the origin once this slot does not have the piece any more.
    Clear(Frame),
    /// In place, once the piece was promoted.
    Promote,
    /// To the origin.
    Around,
}

/// The part of a write that belongs to one piece.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::slots) struct Part {
    pub blocks: Blocks,
    pub piece: PieceKey,
    pub way: Way,
    /// The part has to be merged with the old content of its first or last block.
    pub is_ragged: bool,
}

impl SlotStore {
    /// Plans a write as things stand.
    pub(in crate::store::slots) fn plan_write(
        &self,
        key: RequestKey,
        requests: &Requests,
        volumes: &Volumes,
    ) -> Vec<Part> {
        let active = &requests[key];
        let RequestOp::Write { range, .. } = active.op else { unreachable!("a write") };
        let is_merged = active.work_buffer.is_some();
        let volume = active.volume;
        let blocks = active.blocks;
        let pieces = self.pieces(volume, blocks);
        let plan = pieces.map(|piece| {
            let unit = self.blocks_of(volumes.of(volume), piece);
            let first = blocks.first.max(unit.first);
            let part = Blocks { first, count: blocks.end().min(unit.end()) - first };
            let sectors = part_of(range, unit);
            let is_aligned = (sectors.start | sectors.end()).is_multiple_of(SECTORS_PER_BLOCK);
            let is_ragged = !is_merged && !is_aligned;
            // A merged part has whole blocks.
            let covers = if is_merged && self.policies.partial == Partial::InPlace {
                part == unit
            } else {
                self.covers(sectors, piece, volumes)
            };
            Part { blocks: part, piece, way: self.way_of(key, piece, covers, volumes), is_ragged }
        });
        plan.collect()
    }

    fn way_of(&self, key: RequestKey, piece: PieceKey, covers: bool, volumes: &Volumes) -> Way {
        let SlotStore { policies, table, .. } = self;
        let is_through = volumes.of(piece.volume()).mode != WriteMode::Writeback;
        match self.holding(piece) {
            Some(slot) if is_through && (covers || policies.partial != Partial::Invalidate) => {
                Way::Beside(slot)
            }
            None if is_through => Way::Around,
            Some(slot) if covers => Way::InPlace(slot),
            Some(slot) => match policies.partial {
                Partial::InPlace => Way::InPlace(slot),
                // A lost slot cannot be destaged.
                Partial::Invalidate if table.is_lost(slot) => Way::InPlace(slot),
                Partial::Invalidate => Way::Clear(slot),
                Partial::BothIfClean if table.is_dirty(slot) => Way::InPlace(slot),
                Partial::BothIfClean => Way::Beside(slot),
            },
            None if self.answer(key, piece).is_err() => Way::Around,
            None if covers => Way::New,
            None if policies.fetch == (Fetch::Frame { waits: true }) => Way::Promote,
            None => Way::Around,
        }
    }
}

impl Machine<SlotStore> {}
