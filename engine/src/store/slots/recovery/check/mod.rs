//! The records of slots of a cache that is not running, by page or by transactions: verified, listed, repaired.
//!
//! Recovery refuses impossible records, because a record may be the only trace of dirty data (rule 5). A repair takes
//! such records back, and with transactions all that nobody can be certain of (`transactions.rs`). The content of their slots is
//! then unknown: the origin decides. Recovery refuses rotten checksums, too. A
//! repair has their areas open: what is there counts as right, whether it rotted or not.

use crate::composition::Composition;
use crate::effect::Errno;
use crate::format::{
    ChecksumPage, FormatError, SlotLayout, SlotPage, SlotPersistence, SlotRecord, Superblock,
};
use crate::image::Image;
use crate::mutation::Mutations;
use crate::number::{index, wide};
use crate::recovery::OpenError;
pub(crate) use crate::store::slots::records::checksums::{AreaDamage, each_area};
use crate::store::slots::recovery::mappings::{FoundMappings, Mapping, find_versions, last_record};
use crate::store::slots::recovery::plan::{Pages, Plan, PlanError};
use crate::store::slots::start::set_map;
use crate::store::slots::table::SlotTable;
use crate::store::slots::table::directory::Directory;
use crate::units::{PieceKey, SECTORS_PER_BLOCK};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

mod transactions;

/// Pages of one read.
const PAGES_TOGETHER: u32 = 256;

/// A slot's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The slot.
    pub slot: u32,
    /// The page with the record, in bytes from the beginning of the device.
    pub page_offset_bytes: u64,
    /// The record. In a mapping, the dirty mark is the one that a start would assume.
    pub record: SlotRecord,
    /// The record is void: its volume has another number now, or a crash came between.
    pub is_void: bool,
}

/// Damage of a record, or of a page of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The device cannot read the page.
    #[error("the device cannot read here (errno {})", .0.0)]
    Unreadable(Errno),
    /// The record was written and cannot be read.
    #[error("the record of the slot is damaged: {0}")]
    Damaged(FormatError),
    /// The record cannot be true.
    #[error("the record of the slot cannot be so: {0}")]
    Impossible(PlanError),
}

/// One finding of a walk over all records.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// A record that can be read.
    Record(Recorded),
    /// A record that cannot be right; an unreadable page is reported by its first slot.
    Error {
        /// The slot.
        slot: u32,
        /// The page with the record, in bytes from the beginning of the device.
        page_offset_bytes: u64,
        /// The damage.
        error: RecordError,
    },
}

/// Reads all records as a start would, and judges them.
///
/// # Errors
/// [`OpenError`], if nobody can tell what transactions map.
pub fn walk<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    composition: &Composition,
    visit: &mut dyn FnMut(Found),
) -> Result<(), OpenError> {
    match layout.persistence() {
        SlotPersistence::SyncSector => {
            walk_slot_pages(image, superblock, layout, composition, visit);
            Ok(())
        }
        SlotPersistence::Commit | SlotPersistence::BitTree { .. } => {
            walk_mappings(image, superblock, layout, composition, visit)
        }
    }
}

/// A plan for judging records: over free slots, so that two records of one piece are noticed.
fn empty_plan(pages: Pages, is_clean_stop: bool, layout: &SlotLayout, composition: &Composition) -> Plan {
    let shape = layout.shape();
    let table = SlotTable::new(shape, layout.slot_blocks(), false, 1);
    Plan::new(pages, is_clean_stop, table, Directory::new(set_map(layout, composition), shape))
}

/// Whether the piece exists.
fn exists(superblock: &Superblock, layout: &SlotLayout, piece: PieceKey) -> bool {
    let slot_sectors = u64::from(layout.slot_blocks()) * SECTORS_PER_BLOCK;
    let volume = superblock.volumes[piece.volume().at()].as_ref();
    volume.is_some_and(|volume| piece.piece() * slot_sectors < volume.size_sectors)
}

fn walk_mappings<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    composition: &Composition,
    visit: &mut dyn FnMut(Found),
) -> Result<(), OpenError> {
    let commit = last_record(image, &superblock.set_id, Mutations::NONE)?;
    let is_clean_stop = superblock.clean_stop && commit.clean_stop;
    let mut plan = empty_plan(Pages::Commit, is_clean_stop, layout, composition);
    let found = FoundMappings::find(image, superblock, layout, commit, Mutations::NONE);
    let found = match found {
        Err(error @ OpenError::Pages(_)) => {
            visit_damaged_pages(image, superblock, layout, visit)?;
            return Err(error);
        }
        found => found?,
    };
    found.each(image, superblock, layout, |mapping| {
        let Mapping { slot, page_offset_bytes, record, is_known, is_suspect, .. } = mapping;
        let known = Ok(is_known.then_some(record));
        let exists = |piece| exists(superblock, layout, piece);
        visit(match plan.add(slot, known, exists, |_| is_suspect) {
            Err(error) => Found::Error { slot, page_offset_bytes, error: RecordError::Impossible(error) },
            Ok(added) => {
                let is_dirty = added.map_or(record.is_dirty, |added| added.is_dirty);
                let record = SlotRecord { is_dirty, ..record };
                Found::Record(Recorded { slot, page_offset_bytes, record, is_void: !is_known })
            }
        });
        Ok(())
    })
}

/// Calls `visit` with each place of a page of mappings that cannot be read. One of them may have been torn by a crash; which one,
/// nobody knows.
fn visit_damaged_pages<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    visit: &mut dyn FnMut(Found),
) -> Result<(), OpenError> {
    let versions = find_versions(image, &superblock.set_id, layout)?;
    for (page, found) in (0..layout.slot_pages()).zip(versions) {
        for (place, _) in (0..).zip(found).filter(|(_, version)| version.is_none()) {
            let slot = page * layout.page_slots();
            let page_offset_bytes = layout.slot_page_offset_bytes(page, place);
            let error = RecordError::Damaged(FormatError::Checksum);
            visit(Found::Error { slot, page_offset_bytes, error });
        }
    }
    Ok(())
}

fn walk_slot_pages<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    composition: &Composition,
    visit: &mut dyn FnMut(Found),
) {
    let shape = layout.shape();
    let exists = |piece| exists(superblock, layout, piece);
    let mut plan = empty_plan(Pages::Slot, superblock.clean_stop, layout, composition);
    for_each_page(image, layout, |first, page_offset_bytes, page| {
        let decoded = match page {
            Err(errno) => {
                let error = RecordError::Unreadable(errno);
                return visit(Found::Error { slot: first, page_offset_bytes, error });
            }
            Ok(bytes) => SlotPage::decode(&superblock.set_id, first / layout.page_slots(), bytes),
        };
        let records = decoded.expect("a whole page of this cache").records;
        for (slot, record) in (first..shape.frames).zip(records) {
            let fault = |error| Found::Error { slot, page_offset_bytes, error };
            visit(match record {
                Ok(None) => continue,
                Err(error) => fault(RecordError::Damaged(error)),
                Ok(Some(record)) => {
                    let is_void = !crate::store::slots::recovery::counts(superblock, &record);
                    let found = Found::Record(Recorded { slot, page_offset_bytes, record, is_void });
                    match plan.add(slot, Ok((!is_void).then_some(record)), exists, |_| true) {
                        Ok(_) => found,
                        Err(error) => fault(RecordError::Impossible(error)),
                    }
                }
            });
        }
    });
}

/// Calls `visit` with the first slot, the place and the bytes of each page.
fn for_each_page<I: Image>(
    image: &mut I,
    layout: &SlotLayout,
    mut visit: impl FnMut(u32, u64, Result<&[u8], Errno>),
) {
    let mut page = 0;
    while page < layout.slot_pages() {
        let pages = PAGES_TOGETHER.min(layout.slot_pages() - page);
        let offset_bytes = layout.slot_page_offset_bytes(page, 0);
        let together = image.read(offset_bytes, index(pages) * SlotPage::BYTES);
        for one in 0..pages {
            let at = index(one) * SlotPage::BYTES;
            let (first, offset_bytes) = ((page + one) * layout.page_slots(), offset_bytes + wide(at));
            match &together {
                Ok(bytes) => visit(first, offset_bytes, Ok(&bytes[at..at + SlotPage::BYTES])),
                // One bad page shall not hide those around it.
                Err(_) => {
                    let alone = image.read(offset_bytes, SlotPage::BYTES);
                    visit(first, offset_bytes, alone.as_deref().map_err(|errno| *errno));
                }
            }
        }
        page += pages;
    }
}

/// Takes back the records that recovery would refuse: damaged ones, impossible ones, and both of two that claim one
/// piece; of transactions all that is not certain. Returns their number; durable on return.
///
/// # Errors
/// If the device fails, or no transaction is known. What was taken back until then stays so, the rest can be taken back by
/// another call.
pub fn repair<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    composition: &Composition,
) -> Result<u64, OpenError> {
    open_rotten_areas(image, superblock, layout, composition).map_err(OpenError::Device)?;
    match layout.persistence() {
        SlotPersistence::SyncSector => {
            repair_slot_pages(image, superblock, layout, composition).map_err(OpenError::Device)
        }
        SlotPersistence::Commit | SlotPersistence::BitTree { .. } => {
            transactions::repair(image, superblock, layout)
        }
    }
}

fn repair_slot_pages<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    composition: &Composition,
) -> Result<u64, Errno> {
    let mut void = BTreeSet::new();
    let mut unreadable = None;
    walk_slot_pages(image, superblock, layout, composition, &mut |found| {
        let Found::Error { slot, error, .. } = found else { return };
        void.insert(slot);
        match error {
            RecordError::Unreadable(errno) => unreadable = Some(errno),
            RecordError::Impossible(PlanError::Duplicate { first, .. }) => drop(void.insert(first.0)),
            RecordError::Impossible(_) | RecordError::Damaged(_) => (),
        }
    });
    if let Some(errno) = unreadable {
        return Err(errno);
    }
    let pages: BTreeSet<u32> = void.iter().map(|slot| slot / layout.page_slots()).collect();
    for page in pages {
        let offset_bytes = layout.slot_page_offset_bytes(page, 0);
        let bytes = image.read(offset_bytes, SlotPage::BYTES)?;
        let decoded = SlotPage::decode(&superblock.set_id, page, &bytes).expect("a whole page of this cache");
        let records: Vec<Option<SlotRecord>> =
            decoded.records.into_iter().map(|r| r.ok().flatten()).collect();
        let first = page * layout.page_slots();
        let kept = |slot: u32| records[index(slot - first)].filter(|_| !void.contains(&slot));
        let mut bytes = vec![0; SlotPage::BYTES];
        SlotPage::encode(&superblock.set_id, page, kept, &mut bytes);
        image.write(offset_bytes, &bytes)?;
    }
    image.flush()?;
    Ok(wide(void.len()))
}

/// Writes each damaged page of checksums as that of an open area: nothing is known of its blocks. Durable on return.
fn open_rotten_areas<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    composition: &Composition,
) -> Result<(), Errno> {
    let mut damaged = Vec::new();
    each_area(image, superblock, (layout, composition.safe), |area, checksums| {
        damaged.extend(checksums.err().map(|_| area));
    });
    if damaged.is_empty() {
        return Ok(());
    }
    let mut bytes = vec![0; ChecksumPage::BYTES];
    for area in damaged {
        ChecksumPage::encode_open(&superblock.set_id, area, superblock.session, &mut bytes);
        image.write(layout.checksum_page_offset_bytes(area), &bytes)?;
    }
    image.flush()
}

#[cfg(test)]
mod tests;
