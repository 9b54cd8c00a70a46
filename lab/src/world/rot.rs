//! Damage of the cache device that no operation reports: rot and misdirected writes.

use super::World;
use super::image::CutImage;
use super::operations::InFlight;
use super::trace::What;
use crate::content::{SECTOR, Sector};
use crate::disk::Content;
use crate::oracle::Moment;
use crate::violation::{Kind, Violation};
use engine::check;
use engine::effect::Target;
use engine::format::{
    COMMIT_RECORD_OFFSETS, ChecksumPage, ChecksumSector, FormatError, LOST_TABLE_OFFSETS, Layout, LostTable,
    SlotLayout, Superblock,
};
use engine::recovery::{CopyHealth, OpenError, inspect, load_superblock};
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK};
use std::collections::BTreeSet;
use std::ops::Range;

/// Flushed records after which metadata of slots, or a sector of buckets, may rot.
const ROT_NOTES_MIN: u64 = 4;

/// Rot that strikes behind the next crash or stop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planned {
    /// This bit of this sector.
    At(u64, usize),
    /// Any sector of data, or of metadata as well.
    ByChance { metadata: bool },
}

impl World {
    /// Notes that the cache cannot give back the content of these sectors.
    pub(super) fn suspect(&mut self, first: u64, sectors: u64) {
        let slot_blocks = self.setup.slots.map(|slots| u64::from(slots.layout().slot_blocks()));
        let start = first / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK;
        let end = (first + sectors).next_multiple_of(SECTORS_PER_BLOCK);
        for block in self.cache.read(start, end - start).chunks(SECTORS_PER_BLOCK as usize) {
            let mut is_known = false;
            for sector in block {
                if let Some((volume, sector)) = self.oracle.place_of(sector.tag()) {
                    self.oracle.explained.suspect(volume, sector);
                    if let Some(slot_blocks) = slot_blocks {
                        self.oracle.explained.suspect_slot(volume, sector, slot_blocks);
                    }
                    is_known = true;
                }
            }
            if !is_known {
                // Zeroes that clients wrote do not say where.
                let volumes = &self.setup.volumes;
                self.oracle.suspect_zeroes(|volume| volumes[volume].sectors);
            }
        }
    }

    /// Notes the harm of a write to the wrong place.
    pub(super) fn misdirected(&mut self, op: u64) {
        let InFlight { view, content, .. } = &self.in_flight[&op];
        let Some(content) = content.clone() else { return };
        let first = view.first;
        // The intended place lacks the content; the other place, which the plan named, was overwritten.
        if let Content::Data(sectors) = &content {
            for sector in sectors.iter() {
                if let Some((volume, sector)) = self.oracle.place_of(sector.tag()) {
                    self.oracle.explained.suspect(volume, sector);
                }
            }
        }
        self.suspect(first, content.sectors());
    }

    fn rot_metadata_by_chance(&mut self) {
        let rate = self.cache.faults.rates.metadata_rot;
        // A ring of keys that cannot read its oldest segment fails like a device that fails: nobody knows what is in it.
        let is_ring_of_keys = matches!(super::layout_of(&self.setup).0, Layout::Keys(_));
        if rate == 0 || !self.random.chance(rate) || is_ring_of_keys {
            return;
        }
        let sector = self.random.below(self.cache.sectors());
        let bit = self.random.below(4096) as usize;
        self.rot_metadata(sector, bit);
    }

    fn rot_metadata(&mut self, sector: u64, bit: usize) {
        let is_metadata = matches!(self.cache.read(sector, 1)[0], Sector::Bytes(_));
        let may_rot = match &self.log_end {
            Some(log_end) => !log_end.is_second_header(sector),
            None => self.cache.notes_since(sector) >= ROT_NOTES_MIN,
        };
        if is_metadata && may_rot && self.cache.rot(sector, bit) {
            self.is_metadata_rotten = true;
            self.has_rotten(sector);
        }
    }

    fn has_rotten(&mut self, sector: u64) {
        if let Some(log_end) = &mut self.log_end {
            log_end.rots(sector);
        }
        self.counts.faults += 1;
        self.note(What::Rot { target: Target::Cache, sector });
    }

    /// The cache device made something durable.
    pub(super) fn log_is_flushed(&mut self) {
        if let Some(mut log_end) = self.log_end.take() {
            let now_ns = self.clock.now_ns();
            let target = self.log_target();
            let until = log_end.flushed(self.disk(target), now_ns);
            self.log_end = Some(log_end);
            self.oracle.told(until);
        }
    }

    /// Has a sector rot behind the next crash or stop.
    pub fn rot_behind_next_end(&mut self, sector: u64, bit: usize) {
        self.planned_rot = Some(Planned::At(sector, bit));
        // `check` has something to say then.
        self.setup.is_checked_on_open = false;
    }

    /// Has a sector with data, drawn by chance, rot behind the next crash or stop; with `metadata` any sector.
    pub fn rot_by_chance_behind_next_end(&mut self, metadata: bool) {
        self.planned_rot = Some(Planned::ByChance { metadata });
    }

    /// Lets the sector rot that was planned; else, in one crash of four, one by chance, where sectors rot.
    pub(super) fn rot_in_a_crash(&mut self) {
        match self.planned_rot.take() {
            Some(Planned::At(sector, bit)) => return self.rot_either(sector, bit, true, true),
            Some(Planned::ByChance { metadata }) => return self.rot_while_off(true, metadata),
            None => (),
        }
        let rates = self.cache.faults.rates;
        if self.engine.is_some() && rates.rot + rates.metadata_rot > 0 && self.random.one_in(4) {
            self.rot_while_off(rates.rot > 0, rates.metadata_rot > 0);
        }
    }

    /// Lets a sector of the cache rot while it is switched off, as often as not one at the end of its log: `payload`, `metadata` or
    /// both may be struck.
    pub fn rot_while_off(&mut self, payload: bool, metadata: bool) {
        let World { random, log_end, cache, .. } = self;
        let at_end = log_end.as_ref().and_then(|log_end| log_end.draw(&mut |bound| random.below(bound)));
        let anywhere = random.below(cache.sectors());
        let sector = at_end.filter(|_| random.one_in(2)).unwrap_or(anywhere);
        let bit = random.below(4096) as usize;
        self.rot_either(sector, bit, payload, metadata);
    }

    fn rot_either(&mut self, sector: u64, bit: usize, payload: bool, metadata: bool) {
        if self.may_rot(sector).is_some() {
            if payload {
                self.rot_cache(sector, bit);
            }
        } else if metadata {
            self.rot_metadata(sector, bit);
        }
    }

    /// The moment since which this crash may take what was acknowledged, because the log's end rotted.
    pub(super) fn end_lost_since(&mut self) -> Option<Moment> {
        let log_end = self.log_end.as_ref()?;
        let end_ns = self.cache_failed_ns.unwrap_or(self.clock.now_ns());
        let since = log_end.lost_since(&self.cache, end_ns);
        self.is_end_lost |= since.is_some();
        since
    }

    /// Lets a sector rot at random, after a write.
    pub(super) fn rot_by_chance(&mut self, target: Target) {
        if target == Target::Cache {
            self.rot_metadata_by_chance();
        }
        let rate = self.disk(target).faults.rates.rot;
        if rate == 0 || target != Target::Cache || !self.random.chance(rate) {
            return;
        }
        let sector = self.random.below(self.cache.sectors());
        if self.may_rot(sector).is_some() || self.checksum_sectors().contains(&sector) {
            let bit = self.random.below(4096) as usize;
            self.rot_cache(sector, bit);
        }
    }

    /// The sectors of the cache that hold checksums of slots.
    fn checksum_sectors(&self) -> Range<u64> {
        let region = self.setup.slots.map(|slots| slots.layout().checksums()).unwrap_or_default();
        region.offset_bytes / SECTOR as u64..(region.offset_bytes + region.len_bytes) / SECTOR as u64
    }

    /// Lets a sector of checksums of slots rot.
    pub fn rot_checksums(&mut self) {
        let sectors = self.checksum_sectors();
        if !sectors.is_empty() {
            let sector = self.random.between(sectors.start, sectors.end - 1);
            let bit = self.random.below(4096) as usize;
            self.rot_cache(sector, bit);
        }
    }

    /// Lets a sector rot that has records of slots, of transactions or of trees. False if it has nothing durable of these.
    pub fn rot_record(&mut self, sector: u64, bit: usize) -> bool {
        let is_record = matches!(self.cache.read(sector, 1)[0], Sector::Bytes(_));
        let is_done = is_record && self.cache.rot(sector, bit);
        if is_done {
            self.rotten_records.insert(sector);
            self.has_rotten(sector);
        }
        is_done
    }

    /// Lets a sector of the records of slots rot, drawn by `draw`.
    pub fn rot_record_by_chance(&mut self, mut draw: impl FnMut(u64) -> u64) {
        let pages =
            LOST_TABLE_OFFSETS[1] + LostTable::BYTES as u64..self.checksum_sectors().start * SECTOR as u64;
        let records = COMMIT_RECORD_OFFSETS[0]..LOST_TABLE_OFFSETS[0];
        let tables = LOST_TABLE_OFFSETS[0]..LOST_TABLE_OFFSETS[1] + LostTable::BYTES as u64;
        let region = match draw(8) {
            0 => records,
            // One copy is torn, or the only one with an operator's change, where a power cut came between.
            1 if self.are_both_superblocks_whole() => 0..COMMIT_RECORD_OFFSETS[0],
            2 if self.are_both_tables_whole() => tables,
            _ => pages,
        };
        let sectors = region.start / SECTOR as u64..region.end / SECTOR as u64;
        let written: Vec<u64> =
            sectors.filter(|sector| matches!(self.cache.read(*sector, 1)[0], Sector::Bytes(_))).collect();
        if !written.is_empty() {
            let sector = written[draw(written.len() as u64) as usize];
            self.rot_record(sector, draw(4096) as usize);
        }
    }

    fn are_both_superblocks_whole(&mut self) -> bool {
        let loaded = load_superblock(&mut CutImage::whole(&mut self.cache));
        loaded.is_ok_and(|(_, copies)| copies == [CopyHealth::Current; 2])
    }

    /// Whether both places have the same table of lost blocks.
    fn are_both_tables_whole(&self) -> bool {
        let table =
            |offset_bytes| LostTable::decode(&self.bytes_of_cache(offset_bytes, LostTable::BYTES)).ok();
        let [first, second] = LOST_TABLE_OFFSETS.map(table);
        matches!((first, second), (Some(first), Some(second)) if first.ranges == second.ranges)
    }

    /// Whether records of slots rotted since the last start.
    #[must_use]
    pub fn are_records_rotten(&self) -> bool {
        !self.rotten_records.is_empty()
    }

    /// Repairs checksums of slots that rotted, as an operator does: a start refuses them.
    ///
    /// # Errors
    /// A violation: they are not refused, or not repaired.
    pub fn repair_checksums(&mut self) -> Result<(), Violation> {
        let mut struck = self.rotten.range(self.checksum_sectors());
        if !struck.any(|(sector, _)| self.is_rotten(*sector)) {
            return Ok(());
        }
        let options = self.setup.options();
        let is_safe = self.setup.slots.is_some_and(|slots| slots.composition.safe);
        let mut image = CutImage::whole(&mut self.cache);
        match inspect(&mut image, options) {
            Ok(_) if is_safe => self.fail(Kind::Contract, "a start trusts rotten checksums".to_owned()),
            Ok(_) | Err(OpenError::ChecksumPage { .. }) => {
                if let Err(error) = check::repair(&mut image, options.index_budget_bytes) {
                    self.fail(Kind::Contract, format!("rotten checksums cannot be repaired: {error}"));
                }
            }
            Err(error) => self.fail(Kind::Contract, format!("the cache cannot be opened: {error}")),
        }
        self.is_sound()
    }

    /// The client's sector (volume and number) whose content lies in a sector of the cache, if that may rot.
    #[must_use]
    pub fn may_rot(&self, sector: u64) -> Option<(usize, u64)> {
        let place = match &self.cache.read(sector, 1)[0] {
            Sector::Tag(tag) => self.oracle.place_of(*tag),
            Sector::Bytes(_) => None,
        };
        place.filter(|_| match self.setup.slots {
            None => self.log_end.is_some() || self.cache.notes_since(sector) >= ROT_NOTES_MIN,
            Some(_) => self.known.contains(&(sector / SECTORS_PER_BLOCK)),
        })
    }

    /// Bytes of the cache device, as they are there.
    fn bytes_of_cache(&self, offset_bytes: u64, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        let sectors = self.cache.read(offset_bytes / SECTOR as u64, (len_bytes / SECTOR) as u64);
        sectors.iter().zip(bytes.chunks_mut(SECTOR)).for_each(|(sector, into)| sector.expand(into));
        bytes
    }

    /// The page of an area, as it is on the device.
    fn area_page(
        &self,
        superblock: &Superblock,
        layout: &SlotLayout,
        area: u32,
    ) -> Result<ChecksumPage, FormatError> {
        let bytes = self.bytes_of_cache(layout.checksum_page_offset_bytes(area), ChecksumPage::BYTES);
        ChecksumPage::decode(&superblock.set_id, area, &bytes)
    }

    /// The blocks of slots whose checksums the device tells. Without `safe` none that a start may believe after a crash.
    fn told(&mut self) -> BTreeSet<u64> {
        let mut told = BTreeSet::new();
        let Some(layout) =
            self.setup.slots.filter(|slots| slots.composition.safe).map(|slots| slots.layout())
        else {
            return told;
        };
        let Ok((superblock, _)) = load_superblock(&mut CutImage::whole(&mut self.cache)) else { return told };
        let first_block = layout.data().offset_bytes / BLOCK_BYTES;
        for area in 0..layout.areas() {
            let page = self.area_page(&superblock, &layout, area);
            let checksums = page.map(|page| page.checksums(|_| true)).unwrap_or_default();
            let places =
                layout.places_of_area(area).zip(checksums).filter(|(_, checksum)| checksum.is_some());
            told.extend(places.map(|(place, _)| first_block + u64::from(place)));
        }
        told
    }

    /// Judges the rot in slots before a start. Where the device tells no checksum, a start takes rotten bytes for right
    /// (S9): there the rot is taken back. Everywhere else `strikes` more sectors rot.
    pub fn settle_rot(&mut self, strikes: u64) {
        if self.setup.slots.is_none() {
            return;
        }
        self.known = self.told();
        self.take_back_rot(0..u64::MAX);
        let known: Vec<u64> = self.known.iter().copied().collect();
        for _ in 0..strikes.min(known.len() as u64) {
            let sector = *self.random.pick(&known) * SECTORS_PER_BLOCK + self.random.below(SECTORS_PER_BLOCK);
            let bit = self.random.below(4096) as usize;
            if self.may_rot(sector).is_some() {
                self.rot_cache(sector, bit);
            }
        }
    }

    /// Takes rot in slots back where nobody knows a checksum: in some blocks of the cache.
    fn take_back_rot(&mut self, blocks: Range<u64>) {
        for (sector, (was, is)) in std::mem::take(&mut self.rotten) {
            let block = sector / SECTORS_PER_BLOCK;
            let is_unknown = blocks.contains(&block) && !self.known.contains(&block);
            if is_unknown && self.cache.read(sector, 1)[0] == is {
                self.cache.tamper(sector, &Content::Data([was].into()));
            } else {
                self.rotten.insert(sector, (was, is));
            }
        }
    }

    /// Notes that a write failed: these sectors of the cache may have the old or the new content, so the process forgets their
    /// checksums. What had rotted there, and was not written over, it takes for right from now on.
    pub(super) fn note_failed_write(&mut self, first: u64, sectors: u64) {
        if self.setup.slots.is_some() {
            let blocks = first / SECTORS_PER_BLOCK..(first + sectors).div_ceil(SECTORS_PER_BLOCK);
            self.known.retain(|block| !blocks.contains(block));
            self.take_back_rot(blocks);
        }
    }

    /// Notes that the process knows what it wrote to these sectors of the cache.
    pub(super) fn note_known(&mut self, first: u64, sectors: u64) {
        if self.setup.slots.is_some() {
            self.known.extend(first / SECTORS_PER_BLOCK..(first + sectors).div_ceil(SECTORS_PER_BLOCK));
        }
    }

    /// Whether the content of a sector of the cache rotted, and nothing was written there since.
    pub(super) fn is_rotten(&self, sector: u64) -> bool {
        self.rotten.get(&sector).is_some_and(|(_, is)| self.cache.read(sector, 1)[0] == *is)
    }

    /// Checks that no area is left open that is not written (S9): what may rot unnoticed is bounded in time.
    pub(super) fn expect_closed_areas(&mut self) {
        let Some(layout) =
            self.setup.slots.filter(|slots| slots.composition.safe).map(|slots| slots.layout())
        else {
            return;
        };
        let is_latched = self.engine.as_ref().is_none_or(|engine| engine.status().cache.latched);
        if is_latched || self.setup.engine_config().area_idle_ns == u64::MAX {
            return;
        }
        let Ok((superblock, _)) = load_superblock(&mut CutImage::whole(&mut self.cache)) else { return };
        for area in 0..layout.areas() {
            let page = self.area_page(&superblock, &layout, area);
            let is_open =
                |sector: &ChecksumSector| sector.session == superblock.session && sector.checksums.is_none();
            if page.is_ok_and(|page| page.sectors.iter().flatten().any(is_open)) {
                self.fail(Kind::Contract, format!("all is at rest, and area {area} is open"));
            }
        }
    }

    /// Flips a bit of a sector of the cache. False if the sector is only in the device's volatile cache.
    pub fn rot_cache(&mut self, sector: u64, bit: usize) -> bool {
        self.suspect(sector, 1);
        let was = self.cache.read(sector, 1)[0].clone();
        let is_done = self.cache.rot(sector, bit);
        if is_done {
            let is = self.cache.read(sector, 1)[0].clone();
            // What rots once more goes back to what was there before.
            let first = self.rotten.get(&sector).filter(|(_, is)| *is == was).map(|(was, _)| was.clone());
            self.rotten.insert(sector, (first.unwrap_or(was), is));
            self.has_rotten(sector);
        }
        is_done
    }

    /// The sectors of the cache device with content written to a sector of a volume, newest or not.
    #[must_use]
    pub fn copies_of(&self, volume: usize, sector: u64) -> Vec<u64> {
        let holds = |at: &u64| match &self.cache.read(*at, 1)[0] {
            Sector::Tag(tag) => self.oracle.place_of(*tag) == Some((volume, sector)),
            Sector::Bytes(_) => false,
        };
        (0..self.cache.sectors()).filter(holds).collect()
    }
}
