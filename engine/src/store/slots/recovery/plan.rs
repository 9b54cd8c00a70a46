//! The decisions of recovery: turns records into a filled table, and refuses impossible ones.
//!
//! Records come from outside; this file decides what they mean. The cache device is flushed before anything
//! is built on it: what was found may lie in a volatile cache only, and what it replaced may come back.
//!
//! | pages | slots that hold something | dirty ones |
//! | --- | --- | --- |
//! | slot pages, clean stop | all on record | as recorded |
//! | slot pages, crash | those that are dirty on record | all of these |
//! | commit pages, clean stop | all that are mapped | as recorded |
//! | commit pages, crash | all that are mapped | all, or those below a marked leaf |
//!
//! Checksums are known but where the device says that data may have been written (`records/checksums.rs`).

use crate::format::{FormatError, LostRange, SlotRecord};
use crate::store::slots::table::SlotTable;
use crate::store::slots::table::directory::Directory;
use crate::units::{Frame, PieceKey};

/// Why a cache cannot be opened as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Two slots hold the same piece, and neither is known to be newer.
    #[error("Slots {} and {} both hold piece {} of volume {}", first.0, second.0, piece.piece(), piece.volume().0)]
    Duplicate {
        /// The piece.
        piece: PieceKey,
        /// The slot that came first.
        first: Frame,
        /// The other one.
        second: Frame,
    },
    /// A slot holds a piece of another set.
    #[error("Slot {} holds piece {} of volume {}, which does not belong there", slot.0, piece.piece(), piece.volume().0)]
    WrongSet {
        /// The slot.
        slot: Frame,
        /// The piece.
        piece: PieceKey,
    },
    /// A slot holds a piece of no volume, or from beyond the end of one.
    #[error("Slot {} holds piece {} of volume {}, which does not exist", slot.0, piece.piece(), piece.volume().0)]
    NoSuchPiece {
        /// The slot.
        slot: Frame,
        /// The piece.
        piece: PieceKey,
    },
    /// A record names a slot, or a block of it, that the cache does not have.
    #[error("There is a record of slot {slot}, which does not exist or is smaller")]
    NoSuchSlot {
        /// The slot.
        slot: u32,
    },
}

/// The kind of pages that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of [`crate::store::slots::records::persistence::sync_sector`].
    Slot,
    /// Pages of [`crate::store::slots::records::persistence::commit`].
    Commit,
}

/// Fills a table, record by record.
///
/// Slots that were found dirty are told to the caller by [`Plan::add`]; hints too.
#[derive(Debug)]
pub struct Plan {
    pages: Pages,
    is_clean_stop: bool,
    table: SlotTable,
    directory: Directory,
    /// Records that were written and cannot be read.
    broken: u32,
}

/// A slot that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The slot.
    pub slot: Frame,
    /// Its piece.
    pub piece: PieceKey,
    /// Whether it counts as dirty.
    pub is_dirty: bool,
    /// Replacement's hint, unless a crash came between.
    pub hint: Option<u16>,
}

/// A filled table.
#[derive(Debug)]
pub struct Planned {
    /// The slots.
    pub table: SlotTable,
    /// The slot of each piece.
    pub directory: Directory,
    /// Records that were written and cannot be read: with slot pages, each may have been of a dirty slot.
    pub broken: u32,
}

impl Plan {
    /// A plan over free slots, after a clean stop or a crash.
    #[must_use]
    pub fn new(pages: Pages, is_clean_stop: bool, table: SlotTable, directory: Directory) -> Plan {
        assert!(table.used() == 0, "a plan begins with free slots");
        Plan { pages, is_clean_stop, table, directory, broken: 0 }
    }

    /// Takes the record of slot `number`. `exists` says whether the piece exists, `is_suspect` whether it may be
    /// dirty where that is not recorded: below a marked leaf, or always without a tree.
    ///
    /// # Errors
    /// Any [`PlanError`]: what is recorded cannot be so.
    pub fn add(
        &mut self,
        number: u32,
        record: Result<Option<SlotRecord>, FormatError>,
        exists: impl Fn(PieceKey) -> bool,
        is_suspect: impl Fn(PieceKey) -> bool,
    ) -> Result<Option<Found>, PlanError> {
        let record = match record {
            Ok(None) => return Ok(None),
            Ok(Some(record)) => record,
            Err(_) => {
                self.broken += 1;
                return Ok(None);
            }
        };
        if number >= self.table.shape().frames {
            return Err(PlanError::NoSuchSlot { slot: number });
        }
        let (slot, piece) = (Frame(number), record.piece);
        let is_dirty = match self.pages {
            _ if self.is_clean_stop => record.is_dirty,
            // A record as clean, written by an earlier clean stop, is void since the start after it.
            Pages::Slot if !record.is_dirty => return Ok(None),
            Pages::Slot => true,
            Pages::Commit => is_suspect(piece),
        };
        if !exists(piece) {
            return Err(PlanError::NoSuchPiece { slot, piece });
        }
        if self.directory.set_of(piece) != self.table.shape().set_of(slot) {
            return Err(PlanError::WrongSet { slot, piece });
        }
        if let Some(first) = self.directory.find(piece, &self.table) {
            return Err(PlanError::Duplicate { piece, first, second: slot });
        }
        self.table.occupy(slot, piece);
        self.directory.insert(piece, slot, &self.table);
        self.table.settle(slot);
        self.table.set_dirty(slot, is_dirty);
        // The record of a clean slot is void once the start is durable; its mapping is not.
        self.table.set_recorded(slot, is_dirty || self.pages == Pages::Commit);
        let hint = self.is_clean_stop.then_some(record.hint);
        Ok(Some(Found { slot, piece, is_dirty, hint }))
    }

    /// Takes a range of the lost table, after all records. Returns its piece, unless the range means nothing any
    /// more: a slot that is not dirty has its content from the origin.
    ///
    /// # Errors
    /// If there is no such slot, or not as many blocks in it.
    pub fn add_lost(&mut self, range: LostRange) -> Result<Option<PieceKey>, PlanError> {
        let end_block = u32::from(range.first_block) + u32::from(range.blocks);
        if range.slot >= self.table.shape().frames || end_block > self.table.slot_blocks() {
            return Err(PlanError::NoSuchSlot { slot: range.slot });
        }
        let slot = Frame(range.slot);
        let piece = self.table.piece(slot).filter(|_| self.table.is_dirty(slot));
        if piece.is_some() {
            self.table.set_lost(slot, true);
        }
        Ok(piece)
    }

    /// Ends the plan: all records were taken.
    #[must_use]
    pub fn finish(self) -> Planned {
        Planned { table: self.table, directory: self.directory, broken: self.broken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::replacement::Shape;
    use crate::prng::Prng;
    use crate::store::slots::table::SlotState;
    use crate::store::slots::table::set_map::{SetMap, SetMapKind};
    use crate::units::VolumeIndex;
    use std::collections::{BTreeMap, BTreeSet};

    const SHAPE: Shape = Shape { frames: 16, ways: 4 };

    fn plan(pages: Pages, is_clean_stop: bool) -> Plan {
        let directory = Directory::new(SetMap::new(SetMapKind::Modulo, SHAPE), SHAPE);
        Plan::new(pages, is_clean_stop, SlotTable::new(SHAPE, 2, true, 1), directory)
    }

    fn record(piece: u64, is_dirty: bool) -> Result<Option<SlotRecord>, FormatError> {
        Ok(Some(SlotRecord { piece: PieceKey(piece), is_dirty, is_lost: false, hint: 9 }))
    }

    /// Adds a dirty and a clean slot, of which the tree suspects the clean one. Returns their states.
    fn dirty_and_clean(pages: Pages, is_clean_stop: bool) -> [Option<(bool, Option<u16>, bool)>; 2] {
        let mut plan = plan(pages, is_clean_stop);
        let mut add = |slot, piece, is_dirty| {
            let found = plan.add(slot, record(piece, is_dirty), |_| true, |piece| piece.0 == 4).unwrap();
            found.map(|found| (found.is_dirty, found.hint, plan.table.is_recorded(found.slot)))
        };
        [add(0, 0, true), add(4, 4, false)]
    }

    #[test]
    fn a_clean_stop_is_believed_and_a_crash_by_what_is_recorded_at_once() {
        let exact = |is_commit| [Some((true, Some(9), true)), Some((false, Some(9), is_commit))];
        assert_eq!(dirty_and_clean(Pages::Slot, true), exact(false));
        assert_eq!(dirty_and_clean(Pages::Commit, true), exact(true));
        assert_eq!(dirty_and_clean(Pages::Slot, false), [Some((true, None, true)), None]);
        assert_eq!(
            dirty_and_clean(Pages::Commit, false),
            [Some((false, None, true)), Some((true, None, true))],
            "what the tree suspects, whatever was recorded"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut plan = plan(Pages::Slot, false);
        let mut add =
            |slot, piece| plan.add(slot, record(piece, true), |piece| piece.piece() < 100, |_| true);
        assert_eq!(add(1, 3).unwrap().map(|found| found.slot), Some(Frame(1)));
        let piece = PieceKey(3);
        assert_eq!(add(2, 3), Err(PlanError::Duplicate { piece, first: Frame(1), second: Frame(2) }));
        assert_eq!(add(5, 3), Err(PlanError::WrongSet { slot: Frame(5), piece }));
        let piece = PieceKey(100);
        assert_eq!(add(3, 100), Err(PlanError::NoSuchPiece { slot: Frame(3), piece }));
        assert_eq!(add(16, 0), Err(PlanError::NoSuchSlot { slot: 16 }));
    }

    #[test]
    fn what_a_crash_makes_void_is_not_looked_at() {
        let mut plan = plan(Pages::Slot, false);
        // Recorded as clean by a stop long ago, and dirty in another slot since.
        assert_eq!(plan.add(0, record(1, false), |_| true, |_| true), Ok(None));
        assert!(plan.add(1, record(1, true), |_| true, |_| true).unwrap().is_some());
        assert_eq!(plan.add(2, Err(FormatError::Checksum), |_| true, |_| true), Ok(None));
        assert_eq!(plan.add(3, Ok(None), |_| true, |_| true), Ok(None));
        let planned = plan.finish();
        assert_eq!((planned.table.used(), planned.table.dirty(), planned.broken), (1, 1, 1));
    }

    #[test]
    fn lost_blocks_stay_lost_where_the_cache_has_the_only_copy() {
        let mut plan = plan(Pages::Commit, true);
        for (slot, is_dirty) in [(0, true), (1, false)] {
            plan.add(slot, record(u64::from(slot), is_dirty), |_| true, |_| true).unwrap();
        }
        let mut add = |slot, first_block, blocks| plan.add_lost(LostRange { slot, first_block, blocks });
        assert_eq!(add(0, 0, 2), Ok(Some(PieceKey(0))));
        assert_eq!(add(1, 0, 1), Ok(None), "the origin has it");
        assert_eq!(add(2, 0, 1), Ok(None), "the slot is free");
        assert_eq!(add(0, 1, 2), Err(PlanError::NoSuchSlot { slot: 0 }));
        assert_eq!(add(16, 0, 1), Err(PlanError::NoSuchSlot { slot: 16 }));
        let table = plan.finish().table;
        assert!(table.is_lost(Frame(0)) && !table.is_lost(Frame(1)));
    }

    #[test]
    fn random_records_give_a_table_where_each_piece_is_found_or_are_refused() {
        let mut refused = 0;
        for seed in 0..500 {
            let mut prng = Prng::new(seed);
            let mut plan = plan(Pages::Commit, false);
            let mut model = BTreeMap::new();
            for slot in 0..SHAPE.frames {
                if prng.below(3) == 0 {
                    continue;
                }
                // Pieces of two volumes, nearly all of the right set.
                let in_set = u64::from(slot / 4 + 4 * prng.below(5));
                let number = if prng.below(50) == 0 { u64::from(prng.below(80)) } else { in_set * 4 };
                let piece =
                    PieceKey::new(VolumeIndex(prng.below(2) as u8), number + u64::from(prng.below(4)));
                let added = plan.add(slot, record(piece.0, false), |_| true, |piece| piece.0 % 2 == 0);
                let set = SetMap::new(SetMapKind::Modulo, SHAPE).set_of(piece);
                if model.contains_key(&piece) || set != slot / 4 {
                    assert!(added.is_err());
                    refused += 1;
                } else {
                    model.insert(piece, slot);
                    assert!(added.unwrap().is_some());
                }
            }
            let Planned { table, directory, .. } = plan.finish();
            for (&piece, &slot) in &model {
                assert_eq!(directory.find(piece, &table), Some(Frame(slot)));
                assert_eq!(table.state(Frame(slot)), SlotState::Valid);
                assert_eq!(table.is_dirty(Frame(slot)), piece.0 % 2 == 0);
            }
            assert_eq!(table.used() as usize, model.values().collect::<BTreeSet<_>>().len());
        }
        assert!(refused > 100, "{refused}");
    }
}
