//! Recovery of slots that transactions record: reads pages and trees, and finds the slots that the last transaction mapped.
//!
//! The version of a page that counts is the newest one that is not newer than the record. After a clean stop dirty
//! slots are recorded; after a crash all mapped slots count as dirty, or with trees those below a marked leaf.
//!
//! What is not whole may be torn, or have rotted (rule 5). A record has one sector with anything in it, so it is never
//! torn: one that cannot be read has rotted. A page that cannot be read was torn if the sum in the record is that of the
//! pages that are left.

use crate::composition::Composition;
use crate::composition::axes::{BitTree as BitTreeChoice, PersistenceChoice};
use crate::composition::stored::StoredError;
use crate::format::{
    COMMIT_RECORD_OFFSETS, CommitPage, CommitRecord, FormatError, PAIRED_PAGE_BYTES, SetId, SlotLayout,
    SlotPersistence, SlotRecord, Superblock, TreePage, TreePlanes, TreeShape,
};
use crate::image::Image;
use crate::machine::volume::Volume;
use crate::mutation::{Mutation, Mutations};
use crate::number::{index, to_u8, to_u32, wide};
use crate::recovery::OpenError;
use crate::store::log::scan::ScanError;
use crate::store::slots::records::mappings::{MappingTuning, Mappings};
use crate::store::slots::records::persistence::bit_tree::{BitTree, TreeTuning};
use crate::store::slots::records::persistence::commit::Opened;
use crate::store::slots::records::trees::{FoundTree, Trees};
use crate::store::slots::recovery::{Finding, PAGES_TOGETHER};
use crate::store::slots::table::SlotTable;
use crate::units::{Frame, Nanos, VOLUMES_MAX, VolumeIndex};
use alloc::vec::Vec;

/// Pages, record and trees that earlier processes left.
pub(in crate::store::slots) struct FoundMappings {
    opened: Opened,
    record: CommitRecord,
    trees: [Option<FoundTree>; VOLUMES_MAX],
}

/// The records of a cache.
pub(in crate::store::slots) struct FoundRecords {
    /// The newest one that can be read.
    pub last: CommitRecord,
    /// The error in the other one: nobody knows whether it is the newer one.
    pub damage: Option<FormatError>,
}

/// Reads both records.
pub(in crate::store::slots) fn find_records<I: Image>(
    image: &mut I,
    set_id: &SetId,
) -> Result<FoundRecords, OpenError> {
    let (mut last, mut damage): (Option<CommitRecord>, Option<FormatError>) = (None, None);
    let mut is_one_unwritten = false;
    for offset_bytes in COMMIT_RECORD_OFFSETS {
        let bytes = read(image, offset_bytes, CommitRecord::BYTES)?;
        match CommitRecord::decode(&bytes) {
            Ok(record) if record.set_id == *set_id => {
                last = last.filter(|last| last.transaction > record.transaction).or(Some(record));
            }
            Ok(_) => damage = Some(FormatError::Field("set id")),
            Err(_) if is_unwritten(&bytes) => is_one_unwritten = true,
            Err(error) => damage = Some(error),
        }
    }
    let last = last.ok_or(OpenError::NoCommit)?;
    // The second one is written by the first transaction.
    if is_one_unwritten && last.transaction > 0 {
        damage = Some(FormatError::Magic);
    }
    Ok(FoundRecords { last, damage })
}

/// Whether no transaction was ever committed, whatever the first record says: the first transaction writes the second one.
pub(in crate::store::slots) fn is_new<I: Image>(image: &mut I) -> Result<bool, OpenError> {
    read(image, COMMIT_RECORD_OFFSETS[CommitRecord::place(1)], CommitRecord::BYTES)
        .map(|bytes| is_unwritten(&bytes))
}

fn is_unwritten(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The record that counts.
pub(in crate::store::slots) fn last_record<I: Image>(
    image: &mut I,
    set_id: &SetId,
    mutations: Mutations,
) -> Result<CommitRecord, OpenError> {
    let FoundRecords { last, damage } = find_records(image, set_id)?;
    match damage {
        Some(error) if !mutations.has(Mutation::OlderRecordCounts) => Err(OpenError::CommitRecord { error }),
        _ => Ok(last),
    }
}

/// A mapping, which counts if its volume does.
pub(in crate::store::slots) struct Mapping {
    pub slot: u32,
    /// The page with the mapping, and its place.
    pub page: u32,
    pub page_offset_bytes: u64,
    pub record: SlotRecord,
    /// Its volume exists.
    pub is_known: bool,
    /// The slot may be dirty where that is not recorded.
    pub is_suspect: bool,
}

/// Takes the slots that transactions up to `record` mapped.
pub(in crate::store::slots) fn read_mappings<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
    record: CommitRecord,
    mutations: Mutations,
    finding: &mut Finding,
) -> Result<FoundMappings, OpenError> {
    let mut found = FoundMappings::find(image, superblock, layout, record, mutations)?;
    let mut void_pages = Vec::new();
    found.each(image, superblock, layout, |mapping| {
        if mapping.is_known {
            finding.add(mapping.slot, Ok(Some(mapping.record)), mapping.is_suspect)?;
        } else {
            void_pages.push(mapping.page);
        }
        Ok(())
    })?;
    // Their mappings are void, and the number that says so is about to be forgotten.
    found.opened.changed.extend(void_pages);
    Ok(found)
}

impl FoundMappings {
    /// Finds the pages that count, and reads the trees.
    pub fn find<I: Image>(
        image: &mut I,
        superblock: &Superblock,
        layout: &SlotLayout,
        record: CommitRecord,
        mutations: Mutations,
    ) -> Result<FoundMappings, OpenError> {
        if record.tree_levels != layout.tree_levels() {
            return Err(StoredError::OtherLayout { placement: "other slots" }.into());
        }
        let set_id = &superblock.set_id;
        let versions = find_versions(image, set_id, layout)?;
        let versions_sum = record.versions_sum.filter(|_| !mutations.has(Mutation::OlderPageCounts));
        let opened = Opened::find(record.transaction, versions_sum, versions)?;
        let mut trees: [Option<FoundTree>; VOLUMES_MAX] = Default::default();
        if record.transaction > 0
            && let SlotPersistence::BitTree { tree } = layout.persistence()
        {
            for (at, found) in trees.iter_mut().enumerate() {
                let planes = read_planes(image, set_id, layout, (tree, VolumeIndex(to_u8(at))), &opened)?;
                *found = Some(FoundTree { planes, doublings: u32::from(record.leaf_doublings[at]) });
            }
        }
        Ok(FoundMappings { opened, record, trees })
    }

    /// Calls `visit` with each mapping.
    pub fn each<I: Image>(
        &self,
        image: &mut I,
        superblock: &Superblock,
        layout: &SlotLayout,
        mut visit: impl FnMut(Mapping) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let FoundMappings { opened, record: commit, trees } = self;
        if commit.transaction == 0 {
            return Ok(());
        }
        let offset = |page| layout.slot_page_offset_bytes(page, u32::from(opened.places.get(page)));
        each_page(image, layout.slot_pages(), offset, |page, bytes| {
            let found = CommitPage::decode(&superblock.set_id, bytes)
                .map_err(|error| OpenError::SlotPage { page, error })?;
            let first = page * layout.page_slots();
            for (slot, record) in (first..layout.shape().frames).zip(found.records) {
                let Some(record) = record else { continue };
                let volume = record.piece.volume();
                let is_known = is_known(superblock, volume);
                let tree = trees[volume.at()].as_ref();
                let is_suspect = tree.is_none_or(|tree| tree.is_suspect(commit.leaf_pieces, record.piece));
                let page_offset_bytes = offset(page);
                visit(Mapping { slot, page, page_offset_bytes, record, is_known, is_suspect })?;
            }
            Ok(())
        })
    }
}

/// The transactions of the versions of every page at its two places, those of trees behind those of mappings. `None` where a page
/// cannot be read.
pub(in crate::store::slots) fn find_versions<I: Image>(
    image: &mut I,
    set_id: &SetId,
    layout: &SlotLayout,
) -> Result<Vec<[Option<u64>; 2]>, OpenError> {
    let slot_pages = layout.slot_pages();
    let mut versions = alloc::vec![[None; 2]; index(slot_pages + layout.tree_pages())];
    for place in [0, 1] {
        let slots = |page| layout.slot_page_offset_bytes(page, place);
        each_page(image, slot_pages, slots, |page, bytes| {
            let found = CommitPage::decode(set_id, bytes).ok().filter(|found| found.page == page);
            versions[index(page)][index(place)] = found.map(|found| found.transaction);
            Ok(())
        })?;
        let trees = |page| layout.tree_page_offset_bytes(page, place);
        each_page(image, layout.tree_pages(), trees, |page, bytes| {
            let found = TreePage::decode(set_id, bytes).ok().filter(|found| found.page == page);
            versions[index(slot_pages + page)][index(place)] = found.map(|found| found.transaction);
            Ok(())
        })?;
    }
    Ok(versions)
}

fn read_planes<I: Image>(
    image: &mut I,
    set_id: &SetId,
    layout: &SlotLayout,
    (shape, volume): (TreeShape, VolumeIndex),
    opened: &Opened,
) -> Result<TreePlanes, OpenError> {
    let mut pages = Vec::new();
    for page in 0..layout.volume_tree_pages() {
        let page = layout.tree_page(volume, page);
        let place = u32::from(opened.places.get(layout.slot_pages() + page));
        let bytes = read(image, layout.tree_page_offset_bytes(page, place), PAIRED_PAGE_BYTES)?;
        pages.push(TreePage::decode(set_id, &bytes).map_err(|error| OpenError::TreePage { page, error })?);
    }
    TreePlanes::from_pages(shape, &pages)
        .map_err(|error| OpenError::TreePage { page: layout.tree_page(volume, 0), error })
}

impl FoundMappings {
    /// The mappings of a cache whose slots are in `table`.
    pub fn resume(
        self,
        composition: &Composition,
        superblock: &Superblock,
        (layout, table): (&SlotLayout, &SlotTable),
        volumes: &[Option<Volume>; VOLUMES_MAX],
        mutations: Mutations,
    ) -> Mappings {
        let FoundMappings { mut opened, record, mut trees } = self;
        if opened.durable > 0 && mutations.has(Mutation::KeepCutPages) {
            opened.changed.clear();
        }
        let (commit, tree) = match composition.persistence {
            PersistenceChoice::BitTree(tree) => (tree.commit, Some(tree)),
            PersistenceChoice::Commit(commit) => (commit, None),
            _ => unreachable!("the layout is that of the composition"),
        };
        let mapping = MappingTuning {
            period_ns: u64::from(commit.commit_ms) * Nanos::MILLISECOND,
            // SAFE: a kernel's cache knows no crash of its process.
            waits_for_mappings: composition.safe || commit.commits_promotions,
            holds_readers: commit.commits_promotions,
            mutations,
        };
        let trees = tree.map(|tree| {
            let BitTreeChoice { leaf_pieces, sla_permille, adjust_ms, adjust_steps, .. } = tree;
            let is_new = record.transaction == 0;
            let leaf_pieces = if is_new { leaf_pieces } else { record.leaf_pieces };
            let tuning = TreeTuning { leaf_pieces, sla_permille, steps: adjust_steps };
            let SlotPersistence::BitTree { tree: shape } = layout.persistence() else {
                unreachable!("the layout is that of the composition")
            };
            let all = core::array::from_fn(|at| {
                let volume = volumes[at].as_ref()?;
                let index = VolumeIndex(to_u8(at));
                Some(match trees[at].take().filter(|_| is_known(superblock, index)) {
                    Some(found) => {
                        let dirty = dirty_pieces(table, index);
                        BitTree::recovered(tuning, found.doublings, found.planes, dirty)
                    }
                    None => {
                        let pieces = volume.blocks().div_ceil(u64::from(layout.slot_blocks()));
                        BitTree::new(shape, tuning, pieces)
                    }
                })
            });
            Trees::new(tuning, u64::from(adjust_ms) * Nanos::MILLISECOND, all)
        });
        Mappings::new(opened, mapping, trees, superblock.session)
    }
}

fn dirty_pieces(table: &SlotTable, volume: VolumeIndex) -> impl Iterator<Item = u64> {
    let slots = (0..table.shape().frames).map(Frame).filter(|&slot| table.is_dirty(slot));
    let pieces = slots.filter_map(|slot| table.piece(slot));
    pieces.filter(move |piece| piece.volume() == volume).map(|piece| piece.piece())
}

/// Whether the records of a volume are those of the present one.
fn is_known(superblock: &Superblock, volume: VolumeIndex) -> bool {
    let volume = superblock.volumes[volume.at()].as_ref();
    volume.is_some_and(|volume| volume.clean_floor_sequence == u64::from(volume.id.0))
}

/// Reads `count` pages, neighbours together.
fn each_page<I: Image>(
    image: &mut I,
    count: u32,
    offset_bytes: impl Fn(u32) -> u64,
    mut take: impl FnMut(u32, &[u8]) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let mut first = 0;
    while first < count {
        let start = offset_bytes(first);
        let is_next = |step: &u32| {
            let page = first + step;
            page < count && offset_bytes(page) == start + u64::from(*step) * wide(PAIRED_PAGE_BYTES)
        };
        let together = (1..PAGES_TOGETHER).take_while(is_next).count() + 1;
        let bytes = read(image, start, together * PAIRED_PAGE_BYTES)?;
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAIRED_PAGE_BYTES)) {
            take(page, bytes)?;
        }
        first += to_u32(together);
    }
    Ok(())
}

/// Reads what a start cannot do without.
pub(in crate::store::slots) fn read<I: Image>(
    image: &mut I,
    offset_bytes: u64,
    len_bytes: usize,
) -> Result<Vec<u8>, OpenError> {
    let bytes = image.read(offset_bytes, len_bytes);
    Ok(bytes.map_err(|errno| ScanError::Device { offset_bytes, errno })?)
}
