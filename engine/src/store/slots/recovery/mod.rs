//! Recovery of a slot store: from the pages on the device to slots that can serve.
//!
//! After a clean stop all records count. After a crash only records of dirty slots count; the other slots are
//! forgotten, because their changes were not recorded. A page is torn at sectors, which hold whole records: a record
//! that is not whole is rotten, and its slot may hold the only copy of some data. So it is refused (rule 5). The same
//! holds of sectors of checksums.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | slots that are recorded by page, checksums, and the writes of a start |
//! | `mappings.rs` | slots that transactions record |
//! | `plan.rs` | the meaning of records, and the refusal of impossible ones |
//! | `check/` | the pages of a cache that is not running |

pub mod check;
mod mappings;
pub mod plan;

use crate::composition::Composition;
use crate::composition::axes::PersistenceChoice;
use crate::effect::{Errno, WriteMode};
use crate::format::{
    COMMIT_RECORD_OFFSETS, CommitRecord, FormatError, Layout, SlotLayout, SlotPage, SlotPersistence,
    SlotRecord, Superblock,
};
use crate::image::Image;
use crate::machine::volume::Volume;
use crate::mutation::Mutation;
use crate::number::index;
use crate::recovery::{OpenError, Opened, OpenedStore, Options, Report, volumes_of};
use crate::store::log::scan::ScanError;
use crate::store::slots::records::checksums::{AreaDamage, each_area};
use crate::store::slots::records::lost::{FoundTable, LostRecords, read_table, write_table};
use crate::store::slots::records::transactions::commit_at_start;
use crate::store::slots::recovery::mappings::{last_record, read_mappings};
use crate::store::slots::recovery::plan::{Pages, Plan, PlanError, Planned};
use crate::store::slots::start::{SlotStart, set_map};
use crate::store::slots::table::SlotTable;
use crate::store::slots::table::directory::Directory;
use crate::store::slots::{BUSY_SLOTS_MAX, SlotStore};
use crate::units::{BLOCK_BYTES, BlockKey, Frame, PieceKey, VOLUMES_MAX};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Pages of one read.
pub(in crate::store::slots) const PAGES_TOGETHER: u32 = 256;

/// The findings of a recovery, gathered slot by slot.
pub(in crate::store::slots) struct Finding {
    plan: Plan,
    volumes: [Option<Volume>; VOLUMES_MAX],
    slot_blocks: u64,
    /// Whether clean slots are recorded.
    keeps_clean: bool,
    recorded: [u32; VOLUMES_MAX],
    hints: Vec<(Frame, u16)>,
    entries: u64,
    lost: BTreeSet<BlockKey>,
    lost_records: LostRecords,
    is_clean_stop: bool,
}

impl Finding {
    /// No findings yet, in a cache with this superblock and, where transactions record its slots, their last record.
    fn new(
        superblock: &Superblock,
        layout: &SlotLayout,
        composition: &Composition,
        record: Option<&CommitRecord>,
    ) -> Finding {
        let pages = if record.is_some() { Pages::Commit } else { Pages::Slot };
        let is_clean_stop = superblock.clean_stop && record.is_none_or(|record| record.clean_stop);
        let shape = layout.shape();
        let table = SlotTable::new(shape, layout.slot_blocks(), true, BUSY_SLOTS_MAX);
        let directory = Directory::new(set_map(layout, composition), shape);
        Finding {
            plan: Plan::new(pages, is_clean_stop, table, directory),
            volumes: volumes_of(superblock),
            slot_blocks: u64::from(layout.slot_blocks()),
            keeps_clean: record.is_some(),
            recorded: [0; VOLUMES_MAX],
            hints: Vec::new(),
            entries: 0,
            is_clean_stop,
            lost: BTreeSet::new(),
            lost_records: LostRecords::default(),
        }
    }

    /// Takes the record of a slot.
    pub fn add(
        &mut self,
        slot: u32,
        record: Result<Option<SlotRecord>, FormatError>,
        is_suspect: bool,
    ) -> Result<(), PlanError> {
        let Finding { plan, volumes, slot_blocks, .. } = self;
        let exists = |piece: PieceKey| {
            let volume = volumes[piece.volume().at()].as_ref();
            volume.is_some_and(|volume| piece.piece() * *slot_blocks < volume.blocks())
        };
        let Some(found) = plan.add(slot, record, exists, |_| is_suspect)? else { return Ok(()) };
        let at = found.piece.volume().at();
        let volume = volumes[at].as_mut().expect("an existing piece has a volume");
        let first = found.piece.piece() * *slot_blocks;
        let blocks = (*slot_blocks).min(volume.blocks() - first);
        volume.cached_blocks += blocks;
        if found.is_dirty {
            volume.dirty_blocks += blocks;
            volume.destage.map.mark(first, blocks);
        }
        self.recorded[at] += u32::from(found.is_dirty || self.keeps_clean);
        self.hints.extend(found.hint.map(|hint| (found.slot, hint)));
        self.entries += 1;
        Ok(())
    }

    /// Takes the device's table of lost blocks, after all records.
    fn add_lost(&mut self, found: &FoundTable) -> Result<(), PlanError> {
        self.lost_records = LostRecords::new(found);
        for range in &found.table.ranges {
            let piece = self.plan.add_lost(*range)?;
            let Some(piece) = piece else {
                self.lost_records.is_wanted = true;
                continue;
            };
            let volume = self.volumes[piece.volume().at()].as_mut().expect("an existing piece has a volume");
            let unit = piece.piece() * self.slot_blocks;
            let end = volume.blocks();
            let first = unit + u64::from(range.first_block);
            if first >= end {
                return Err(PlanError::NoSuchSlot { slot: range.slot });
            }
            for block in first..(first + u64::from(range.blocks)).min(end) {
                self.lost.insert(volume.key(block));
                volume.lost_blocks += 1;
            }
        }
        let pieces: BTreeSet<PieceKey> =
            self.lost.iter().map(|key| PieceKey::new(key.volume(), key.block() / self.slot_blocks)).collect();
        for piece in pieces {
            let volume = self.volumes[piece.volume().at()].as_mut().expect("seen above");
            volume.dirty_blocks -= self.slot_blocks.min(volume.blocks() - piece.piece() * self.slot_blocks);
        }
        Ok(())
    }
}

/// Reads the slots of a cache and writes nothing.
pub(crate) fn read<I: Image>(
    image: &mut I,
    mut superblock: Superblock,
    layout: SlotLayout,
    options: Options,
) -> Result<Opened, OpenError> {
    let layout = layout.with_checksums_in_use();
    let composition = Composition::of(&superblock)?;
    if let Some(lack) = composition.lack() {
        return Err(OpenError::Unsupported(lack));
    }
    let record = match layout.persistence() {
        SlotPersistence::SyncSector => None,
        SlotPersistence::Commit | SlotPersistence::BitTree { .. } => {
            Some(last_record(image, &superblock.set_id, options.mutations)?)
        }
    };
    let mut finding = Finding::new(&superblock, &layout, &composition, record.as_ref());
    let mappings = match record {
        Some(record) => {
            Some(read_mappings(image, &superblock, &layout, record, options.mutations, &mut finding)?)
        }
        None => {
            read_slot_pages(image, &superblock, &layout, options, &mut finding)?;
            None
        }
    };
    let lost = read_table(image, &superblock.set_id)
        .map_err(|(offset_bytes, errno)| ScanError::Device { offset_bytes, errno })?;
    if let Some(table) = &lost {
        finding.add_lost(table)?;
    }
    let Finding { plan, mut volumes, recorded, hints, entries, lost, lost_records, is_clean_stop, .. } =
        finding;
    for volume in volumes.iter_mut().flatten() {
        volume.is_leaving = volume.mode != WriteMode::Writeback && volume.is_dirty();
    }
    let Planned { mut table, directory, .. } = plan.finish();
    restore_checksums(image, &superblock, (&layout, composition.safe), options, &mut table)?;
    // A version that writes no checksums refuses the cache from now on.
    superblock.layout = Layout::Slots(layout);
    let dirty_blocks: u64 = volumes.iter().flatten().map(|volume| volume.dirty_blocks).sum();
    let report = Report {
        batches_cut: 0,
        redestage_bytes: dirty_blocks * BLOCK_BYTES,
        entries,
        loaded_blocks: 0,
        blocks: volumes.iter().flatten().map(|volume| volume.cached_blocks).sum(),
        was_clean: is_clean_stop,
    };
    let mappings = mappings.map(|found| {
        let slots = (&layout, &table);
        Box::new(found.resume(&composition, &superblock, slots, &volumes, options.mutations))
    });
    let slot_blocks = u64::from(layout.slot_blocks());
    let origin_pieces = volumes.iter().flatten().map(|volume| volume.blocks().div_ceil(slot_blocks)).sum();
    let set_id = superblock.set_id;
    let lost = (lost, lost_records);
    let mutations = options.mutations;
    let start = SlotStart {
        set_id,
        layout,
        table,
        directory,
        recorded,
        origin_pieces,
        hints,
        lost,
        mappings,
        mutations,
    };
    let store = SlotStore::new(start, &composition);
    Ok(Opened { superblock, report, volumes, store: OpenedStore::Slots(Box::new(store)) })
}

/// Tells the table what the device tells of blocks. A rotten sector of checksums is refused: without them rot of its
/// blocks would pass for data.
fn restore_checksums<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    (layout, is_safe): (&SlotLayout, bool),
    options: Options,
    table: &mut SlotTable,
) -> Result<(), OpenError> {
    if options.mutations.has(Mutation::ForgetSlotChecksums) {
        return Ok(());
    }
    let is_trusting = options.repair || options.mutations.has(Mutation::TrustRottenChecksums);
    let mut refused = None;
    each_area(image, superblock, (layout, is_safe), |area, checksums| match checksums {
        Ok(checksums) => {
            let places = layout.places_of_area(area);
            table.restore_checksums(places.start, &checksums[..places.len()]);
        }
        Err(_) if is_trusting || refused.is_some() => (),
        Err(AreaDamage::Rotten(error)) => refused = Some(OpenError::ChecksumPage { page: area, error }),
        Err(AreaDamage::Unreadable(errno)) => {
            let offset_bytes = layout.checksum_page_offset_bytes(area);
            refused = Some(ScanError::Device { offset_bytes, errno }.into());
        }
    });
    refused.map_or(Ok(()), Err)
}

fn read_slot_pages<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    options: Options,
    finding: &mut Finding,
) -> Result<(), OpenError> {
    let mut page = 0;
    while page < layout.slot_pages() {
        let pages = PAGES_TOGETHER.min(layout.slot_pages() - page);
        let offset_bytes = layout.slot_page_offset_bytes(page, 0);
        let bytes = image
            .read(offset_bytes, index(pages) * SlotPage::BYTES)
            .map_err(|errno| ScanError::Device { offset_bytes, errno })?;
        for (page, bytes) in (page..).zip(bytes.chunks_exact(SlotPage::BYTES)) {
            let decoded = SlotPage::decode(&superblock.set_id, page, bytes)
                .map_err(|error| OpenError::SlotPage { page, error })?;
            for (slot, record) in (page * layout.page_slots()..layout.shape().frames).zip(decoded.records) {
                // The rotten record was the only trace of dirty data (rule 5); a repair gives it up.
                let record = match record {
                    Err(error) if !options.repair => return Err(OpenError::SlotPage { page, error }),
                    Ok(Some(record)) if !counts(superblock, &record) => Ok(None),
                    record => record,
                };
                finding.add(slot, record, true)?;
            }
        }
        page += pages;
    }
    Ok(())
}

/// Whether a record is of the present volume, and not of one that had its number before.
pub(in crate::store::slots) fn counts(superblock: &Superblock, record: &SlotRecord) -> bool {
    let volume = superblock.volumes[record.piece.volume().at()].as_ref();
    let tells = record.is_dirty || superblock.clean_stop;
    tells && volume.is_some_and(|volume| volume.clean_floor_sequence == u64::from(volume.id.0))
}

/// Writes the pages of a new cache before its first start: after that, old content of the device does not pass for a
/// record.
pub(crate) fn format<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
) -> Result<(), Errno> {
    if layout.persistence() == SlotPersistence::SyncSector {
        let mut page = 0;
        while page < layout.slot_pages() {
            let pages = PAGES_TOGETHER.min(layout.slot_pages() - page);
            let zeroes = vec![0; index(pages) * SlotPage::BYTES];
            image.write(layout.slot_page_offset_bytes(page, 0), &zeroes)?;
            page += pages;
        }
        return Ok(());
    }
    write_first_record(image, superblock, layout)
}

/// Writes the record of a cache of which nothing was committed yet.
fn write_first_record<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
) -> Result<(), Errno> {
    let composition = Composition::parse(&superblock.composition);
    let leaf_pieces = match composition.map(|composition| composition.persistence) {
        Ok(PersistenceChoice::BitTree(tree)) => tree.leaf_pieces,
        _ => 0,
    };
    let record = CommitRecord {
        set_id: superblock.set_id,
        session: superblock.session,
        transaction: 0,
        clean_stop: false,
        tree_levels: layout.tree_levels(),
        leaf_pieces,
        leaf_doublings: Default::default(),
        versions_sum: None,
    };
    let mut bytes = vec![0; CommitRecord::BYTES];
    image.write(COMMIT_RECORD_OFFSETS[1], &bytes)?;
    record.encode(&mut bytes);
    image.write(COMMIT_RECORD_OFFSETS[CommitRecord::place(0)], &bytes)
}

/// Writes the pages that have to be durable before the superblock of a start: the next start must not believe void
/// records.
pub(crate) fn begin_session<I: Image>(
    image: &mut I,
    store: &mut SlotStore,
    superblock: &Superblock,
) -> Result<(), Errno> {
    write_table(image, store)?;
    match store.layout.persistence() {
        SlotPersistence::SyncSector => write_void_pages(image, store, superblock),
        SlotPersistence::Commit | SlotPersistence::BitTree { .. } => commit_at_start(image, store),
    }
}

/// Notes in the superblock the number under which each volume's slots are recorded.
pub(crate) fn record_numbers(superblock: &mut Superblock) {
    for record in superblock.volumes.iter_mut().flatten() {
        record.clean_floor_sequence = u64::from(record.id.0);
    }
}

/// Takes back the records of volumes that have another number now: they are void, and the number they were recorded
/// under is about to be forgotten.
fn write_void_pages<I: Image>(
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
                piece: store.table.piece(slot).expect("a dirty slot holds a piece"),
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
