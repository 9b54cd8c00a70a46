//! From the pages on the device to slots that can serve.
//!
//! Only what is recorded as dirty counts; everything else is forgotten, for nobody wrote down what became of it.
//! A page is torn at sectors, which hold whole records: a record that is not whole is rotten, and what it
//! told of is the only copy of something. So it is refused (rule 5).

use super::directory::Directory;
use super::recovery_plan::{Pages, Plan, Planned};
use super::start::{SlotStart, set_map};
use super::table::SlotTable;
use super::{BUSY_SLOTS_MAX, SlotStore};
use crate::composition::Composition;
use crate::effect::{Errno, WriteMode};
use crate::format::{SlotLayout, SlotPage, SlotRecord, Superblock};
use crate::image::Image;
use crate::recovery::{OpenError, Opened, OpenedStore, Options, Report, volumes_of};
use crate::scan::ScanError;
use crate::units::{BLOCK_BYTES, Frame, PieceKey, VOLUMES_MAX};
use alloc::boxed::Box;
use alloc::vec;

/// Pages of one read.
const PAGES_TOGETHER: u32 = 256;

/// Reads the slots of a cache and writes nothing.
pub(crate) fn read<I: Image>(
    image: &mut I,
    superblock: Superblock,
    layout: SlotLayout,
    options: Options,
) -> Result<Opened, OpenError> {
    let composition = Composition::of(&superblock)?;
    if let Some(lack) = composition.lack() {
        return Err(OpenError::Unsupported(lack));
    }
    let mut volumes = volumes_of(&superblock);
    let shape = layout.shape();
    let mut plan = Plan::new(
        Pages::Slot,
        false,
        SlotTable::new(shape, layout.slot_blocks(), true, BUSY_SLOTS_MAX),
        Directory::new(set_map(&layout, &composition), shape),
    );
    let slot_blocks = u64::from(layout.slot_blocks());
    let mut recorded = [0; VOLUMES_MAX];
    let mut entries = 0;
    let mut page = 0;
    while page < layout.slot_pages() {
        let pages = PAGES_TOGETHER.min(layout.slot_pages() - page);
        let offset_bytes = layout.slot_page_offset_bytes(page, 0);
        let bytes = image
            .read(offset_bytes, pages as usize * SlotPage::BYTES)
            .map_err(|errno| ScanError::Device { offset_bytes, errno })?;
        for (page, bytes) in (page..).zip(bytes.chunks_exact(SlotPage::BYTES)) {
            let decoded = SlotPage::decode(&superblock.set_id, page, bytes)
                .map_err(|error| OpenError::SlotPage { page, error })?;
            for (slot, record) in (page * layout.page_slots()..shape.frames).zip(decoded.records) {
                let exists = |piece: PieceKey| {
                    let volume = volumes[piece.volume().at()].as_ref();
                    volume.is_some_and(|volume| piece.piece() * slot_blocks < volume.blocks())
                };
                // What rotted was the only word of something dirty (rule 5); a repair gives it up.
                let record = match record {
                    Err(error) if !options.repair => return Err(OpenError::SlotPage { page, error }),
                    Ok(Some(record)) if !counts(&superblock, &record) => Ok(None),
                    record => record,
                };
                let Some(found) = plan.add(slot, record, exists, |_| true)? else { continue };
                let volume = volumes[found.piece.volume().at()].as_mut().expect("what exists has a volume");
                let first = found.piece.piece() * slot_blocks;
                let blocks = slot_blocks.min(volume.blocks() - first);
                volume.cached_blocks += blocks;
                volume.dirty_blocks += blocks;
                volume.destage.map.mark(first, blocks);
                recorded[found.piece.volume().at()] += 1;
                entries += 1;
            }
        }
        page += pages;
    }
    for volume in volumes.iter_mut().flatten() {
        volume.is_leaving = volume.mode != WriteMode::Writeback && volume.is_dirty();
    }
    let Planned { table, directory, .. } = plan.finish();
    let origin_pieces = volumes.iter().flatten().map(|volume| volume.blocks().div_ceil(slot_blocks)).sum();
    let dirty_blocks: u64 = volumes.iter().flatten().map(|volume| volume.dirty_blocks).sum();
    let report = Report {
        batches_cut: 0,
        redestage_bytes: dirty_blocks * BLOCK_BYTES,
        entries,
        blocks: dirty_blocks,
        was_clean: superblock.clean_stop,
    };
    let start = SlotStart { set_id: superblock.set_id, layout, table, directory, recorded, origin_pieces };
    let store = SlotStore::new(start, &composition);
    Ok(Opened { superblock, report, volumes, store: OpenedStore::Slots(Box::new(store)) })
}

/// Whether a record is of a volume as it is now, and not of one that had its number before.
pub(super) fn counts(superblock: &Superblock, record: &SlotRecord) -> bool {
    let volume = superblock.volumes[record.piece.volume().at()].as_ref();
    record.is_dirty && volume.is_some_and(|volume| volume.clean_floor_sequence == u64::from(volume.id.0))
}

/// Takes back the records of volumes that have another number now: what they tell of is void, and the number
/// they were recorded under is about to be forgotten.
pub(crate) fn write_void_pages<I: Image>(
    image: &mut I,
    store: &SlotStore,
    superblock: &Superblock,
) -> Result<(), Errno> {
    let is_void = superblock.volumes.iter().flatten().any(|volume| {
        volume.clean_floor_sequence != 0 && volume.clean_floor_sequence != u64::from(volume.id.0)
    });
    if !is_void {
        return Ok(());
    }
    let mut bytes = vec![0; SlotPage::BYTES];
    for page in 0..store.layout.slot_pages() {
        let record = |slot: u32| {
            let slot = Frame(slot);
            let is_held = slot.0 < store.table.shape().frames && store.table.is_dirty(slot);
            is_held.then(|| SlotRecord {
                piece: store.table.piece(slot).expect("what is dirty holds a piece"),
                is_dirty: true,
                is_lost: false,
                hint: 0,
            })
        };
        SlotPage::encode(&store.set_id, page, record, &mut bytes);
        image.write(store.layout.slot_page_offset_bytes(page, 0), &bytes)?;
    }
    Ok(())
}
