//! Repair of slots that transactions record, where a record or a page of them rotted.
//!
//! Which versions of pages count cannot be told then. A slot keeps its mapping where all versions that may count agree on it;
//! every other one is taken back, for it might lead to what belongs elsewhere. A tree that is not certain marks everything.
//! All of that is written as a new transaction, to places and with a record that do not count before, so that a repair that is
//! cut off can be done again.

use crate::format::{
    COMMIT_RECORD_OFFSETS, COUNTER_MAX, CommitPage, CommitRecord, PAIRED_PAGE_BYTES, SlotLayout,
    SlotPersistence, SlotRecord, Superblock, TreePage, TreePlanes, TreeShape,
};
use crate::image::Image;
use crate::number::{index, to_u8};
use crate::recovery::OpenError;
use crate::store::slots::records::persistence::commit::{Opened, sum_of};
use crate::store::slots::recovery::mappings::{FoundRecords, find_records, find_versions, is_new, read};
use crate::store::slots::recovery::write_first_record;
use crate::units::{VOLUMES_MAX, VolumeIndex};
use alloc::vec;
use alloc::vec::Vec;

/// The place of a page, and the transaction of the version there.
type Version = (u32, u64);

/// A page, as far as it can be told.
struct Candidates {
    /// The newest version that is not newer than the record, if there is one.
    counted: Option<Version>,
    /// A version that is newer.
    newer: Option<Version>,
    /// One of its places cannot be read.
    is_damaged: bool,
}

/// A cache that cannot be opened as it is: its findings, and the damage in them.
struct Scene<'a> {
    superblock: &'a Superblock,
    layout: &'a SlotLayout,
    last: CommitRecord,
    pages: Vec<Candidates>,
    /// The other record may be the one that counts.
    is_record_damaged: bool,
    /// A page that counts is missing, or older than it should be.
    is_page_damaged: bool,
    /// There is no page that cannot be read: any may be the older one.
    is_any_suspect: bool,
}

/// Takes back what nobody can be certain of. Answers how many slots it concerns; durable on return.
///
/// # Errors
/// If no record can be read, or the device fails.
pub(super) fn repair<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    layout: &SlotLayout,
) -> Result<u64, OpenError> {
    let records = find_records(image, &superblock.set_id);
    if matches!(records, Err(OpenError::NoCommit)) && is_new(image)? {
        write_first_record(image, superblock, layout).map_err(OpenError::Device)?;
        return image.flush().map(|()| 0).map_err(OpenError::Device);
    }
    let FoundRecords { last, damage } = records?;
    let versions = find_versions(image, &superblock.set_id, layout)?;
    let is_page_damaged =
        Opened::find(last.transaction, last.versions_sum, versions.iter().copied()).is_err();
    if damage.is_none() && !is_page_damaged {
        // A page that is not whole has its other version.
        return Ok(0);
    }
    let candidates = |found: &[Option<u64>; 2]| {
        let places = || (0..).zip(found).filter_map(|(place, version)| version.map(|number| (place, number)));
        let newest = |versions: &mut dyn Iterator<Item = Version>| versions.max_by_key(|(_, number)| *number);
        Candidates {
            counted: newest(&mut places().filter(|(_, number)| *number <= last.transaction)),
            newer: newest(&mut places().filter(|(_, number)| *number > last.transaction)),
            is_damaged: found.contains(&None),
        }
    };
    let newest = versions.iter().flatten().flatten().copied().max().unwrap_or_default();
    let pages: Vec<Candidates> = versions.iter().map(candidates).collect();
    let is_any_suspect = is_page_damaged && !pages.iter().any(|page| page.is_damaged);
    let is_record_damaged = damage.is_some();
    let scene = Scene { superblock, layout, last, pages, is_record_damaged, is_page_damaged, is_any_suspect };
    scene.write(image, newest.max(last.transaction))
}

impl Scene<'_> {
    /// Whether nothing of what a page told can be believed.
    fn is_void(&self, page: u32) -> bool {
        let Candidates { counted, is_damaged, .. } = self.pages[index(page)];
        counted.is_none() || self.is_page_damaged && is_damaged || self.is_any_suspect
    }

    /// Whether a version of a page that is newer than the record may count.
    fn is_newer_in_doubt(&self, page: u32) -> bool {
        self.pages[index(page)].newer.is_some() && (self.is_record_damaged || self.is_page_damaged)
    }

    /// Writes all pages that are not as they should be, and a record behind them.
    fn write<I: Image>(&self, image: &mut I, newest: u64) -> Result<u64, OpenError> {
        let Scene { superblock, layout, last, .. } = self;
        // The record that can be read is not written over, and no later transaction reaches the number of a version that was
        // found: that would count then.
        let is_in_its_place = |number| CommitRecord::place(number) == CommitRecord::place(last.transaction);
        let transaction = if is_in_its_place(newest + 1) { newest + 2 } else { newest + 1 };
        if transaction > COUNTER_MAX {
            return Err(OpenError::NoCommit);
        }
        let mut taken_back = 0;
        let mut versions: Vec<u64> =
            self.pages.iter().map(|page| page.counted.map_or(0, |(_, number)| number)).collect();
        let mut bytes = vec![0; PAIRED_PAGE_BYTES];
        for page in 0..layout.slot_pages() {
            let Candidates { counted, newer, .. } = self.pages[index(page)];
            if !self.is_void(page) && newer.is_none() {
                continue;
            }
            let (records, lost) = self.mappings(image, page)?;
            taken_back += lost;
            let first = page * layout.page_slots();
            let record = |slot: u32| records.get(index(slot - first)).copied().flatten();
            CommitPage::encode(&superblock.set_id, page, transaction, record, &mut bytes);
            let place = counted.map_or(0, |(place, _)| 1 - place);
            write(image, layout.slot_page_offset_bytes(page, place), &bytes)?;
            versions[index(page)] = transaction;
        }
        if let SlotPersistence::BitTree { tree } = layout.persistence() {
            for at in 0..VOLUMES_MAX {
                self.write_tree(image, tree, VolumeIndex(to_u8(at)), transaction, &mut versions)?;
            }
        }
        image.flush().map_err(OpenError::Device)?;
        let record = CommitRecord {
            session: superblock.session,
            transaction,
            // Everything that is mapped counts as dirty.
            clean_stop: false,
            versions_sum: Some(sum_of(&versions)),
            ..*last
        };
        record.encode(&mut bytes);
        write(image, COMMIT_RECORD_OFFSETS[CommitRecord::place(transaction)], &bytes)?;
        image.flush().map_err(OpenError::Device)?;
        Ok(taken_back)
    }

    /// The mappings of a page that can be believed, and how many slots are taken back: all of them where nobody can tell.
    fn mappings<I: Image>(
        &self,
        image: &mut I,
        page: u32,
    ) -> Result<(Vec<Option<SlotRecord>>, u64), OpenError> {
        let slots =
            self.layout.page_slots().min(self.layout.shape().frames - page * self.layout.page_slots());
        let Candidates { counted, newer, .. } = self.pages[index(page)];
        let Some((place, _)) = counted.filter(|_| !self.is_void(page)) else {
            return Ok((Vec::new(), u64::from(slots)));
        };
        let mut records = self.records(image, page, place)?;
        let mut taken_back = 0;
        if let Some((place, _)) = newer.filter(|_| self.is_newer_in_doubt(page)) {
            let others = self.records(image, page, place)?;
            for (record, other) in records.iter_mut().zip(others) {
                if record.map(|record| record.piece) != other.map(|other| other.piece) {
                    *record = None;
                    taken_back += 1;
                }
            }
        }
        Ok((records, taken_back))
    }

    fn records<I: Image>(
        &self,
        image: &mut I,
        page: u32,
        place: u32,
    ) -> Result<Vec<Option<SlotRecord>>, OpenError> {
        let bytes = read(image, self.layout.slot_page_offset_bytes(page, place), PAIRED_PAGE_BYTES)?;
        let found = CommitPage::decode(&self.superblock.set_id, &bytes);
        found.map(|found| found.records).map_err(|error| OpenError::SlotPage { page, error })
    }

    /// Writes the pages of a tree if one of them is not as it should be.
    fn write_tree<I: Image>(
        &self,
        image: &mut I,
        shape: TreeShape,
        volume: VolumeIndex,
        transaction: u64,
        versions: &mut [u64],
    ) -> Result<(), OpenError> {
        let Scene { superblock, layout, .. } = self;
        let pages: Vec<u32> =
            (0..layout.volume_tree_pages()).map(|page| layout.tree_page(volume, page)).collect();
        let number = |page: u32| layout.slot_pages() + page;
        let is_uncertain =
            pages.iter().any(|&page| self.is_void(number(page)) || self.is_newer_in_doubt(number(page)));
        let mut all = TreePlanes::new(shape);
        all.set_leaf(0, true);
        all.mark(0, true);
        let mut bytes = vec![0; PAIRED_PAGE_BYTES];
        for (at, &page) in (0..).zip(&pages) {
            let Candidates { counted, newer, .. } = self.pages[index(number(page))];
            if !is_uncertain && newer.is_none() {
                continue;
            }
            let content = match counted.filter(|_| !is_uncertain) {
                Some((place, _)) => {
                    let bytes = read(image, layout.tree_page_offset_bytes(page, place), PAIRED_PAGE_BYTES)?;
                    let found = TreePage::decode(&superblock.set_id, &bytes);
                    found.map_err(|error| OpenError::TreePage { page, error })?.into_content()
                }
                None => all.page(at).into(),
            };
            TreePage::encode(&superblock.set_id, page, transaction, &content, &mut bytes);
            let place = counted.map_or(0, |(place, _)| 1 - place);
            write(image, layout.tree_page_offset_bytes(page, place), &bytes)?;
            versions[index(number(page))] = transaction;
        }
        Ok(())
    }
}

fn write<I: Image>(image: &mut I, offset_bytes: u64, bytes: &[u8]) -> Result<(), OpenError> {
    image.write(offset_bytes, bytes).map_err(OpenError::Device)
}
