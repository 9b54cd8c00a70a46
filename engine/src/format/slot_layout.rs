//! How a cache device with slots is divided.
//!
//! ```text
//! 0 superblock A   512K superblock B   576K, 580K commit records   584K, 648K lost tables
//! 1 MiB  slot pages     sync-sector: P pages; else two places for each: place c of page p is page c·P + p
//!        tree pages     bit-tree only: the same with the pages of 16 trees
//!        checksums      of every block: a page for each area of 992 blocks
//!        (up to a whole MiB)
//!        slots
//! ```
//!
//! Everything follows from five numbers; the offsets are on the device all the same, so that a program that
//! would divide it otherwise refuses it.

use super::bytes::{put, u8_at, u32_at, u64_at};
use super::{
    CACHE_BYTES_MIN, CHECKSUM_PAGE_RECORDS, COMMIT_PAGE_RECORDS, CommitRecord, FormatError, LostTable,
    SEGMENTS_OFFSET, SLOT_PAGE_RECORDS, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, TreeShape,
};
use crate::composition::Composition;
use crate::composition::axes::{PersistenceChoice, Placement};
use crate::number::{const_u32, to_u32, wide};
use crate::policies::replacement::Shape;
use crate::units::{BLOCK_BYTES, Frame, Place, VOLUMES_MAX, VolumeIndex};
use core::ops::Range;

/// Blocks of the largest slot: 2 MiB.
pub const SLOT_BLOCKS_MAX: u32 = 512;
/// From this size on a slot may be any multiple of it: 32 KiB.
const SLOT_BLOCKS_STEP: u32 = 8;
/// Slots at the least.
const SLOTS_MIN: u32 = 8;
/// Slots of a set at the least and at the most.
const WAYS_MIN: u32 = 4;
const WAYS_MAX: u32 = 8192;
/// Blocks in open areas of a small cache: 256 MiB.
const OPEN_BLOCKS_SMALL: u32 = const_u32((256 << 20) / BLOCK_BYTES);
/// Blocks in open areas of a large cache: 4 GiB, because each open area costs memory and time.
const OPEN_BLOCKS_MAX: u32 = const_u32((4 << 30) / BLOCK_BYTES);
/// Blocks of an area in a new cache.
const AREA_BLOCKS: Option<u32> = Some(CHECKSUM_PAGE_RECORDS);
/// Where they are in the superblock's part: 0 in a cache of an earlier version, which refuses any other number.
const AREA_BLOCKS_AT: usize = 72;
/// The first byte of the regions.
const REGIONS_OFFSET: u64 = SEGMENTS_OFFSET;
/// The data begins at a multiple of this.
const DATA_ALIGN_BYTES: u64 = 1 << 20;
/// Where the two commit records are on the device, in bytes.
pub const COMMIT_RECORD_OFFSETS: [u64; 2] = [576 * 1024, 580 * 1024];
/// Where the two copies of the lost table are on the device, in bytes.
pub const LOST_TABLE_OFFSETS: [u64; 2] = [584 * 1024, 648 * 1024];
/// Bytes of a layout in the superblock.
pub const SLOT_LAYOUT_BYTES: usize = 104;

const _: () = assert!(SUPERBLOCK_OFFSETS[1] + wide(SUPERBLOCK_BYTES) <= COMMIT_RECORD_OFFSETS[0]);
const _: () = assert!(COMMIT_RECORD_OFFSETS[0] + wide(CommitRecord::BYTES) <= COMMIT_RECORD_OFFSETS[1]);
const _: () = assert!(COMMIT_RECORD_OFFSETS[1] + wide(CommitRecord::BYTES) <= LOST_TABLE_OFFSETS[0]);
const _: () = assert!(LOST_TABLE_OFFSETS[0] + wide(LostTable::BYTES) <= LOST_TABLE_OFFSETS[1]);
const _: () = assert!(LOST_TABLE_OFFSETS[1] + wide(LostTable::BYTES) <= REGIONS_OFFSET);

/// The durable state of slots, and so which pages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPersistence {
    /// Each page in its place, before a dirty write is acknowledged.
    SyncSector,
    /// Each page in two places, by transactions.
    Commit,
    /// The same, with a tree of dirty bits for each volume.
    BitTree {
        /// How large each tree is.
        tree: TreeShape,
    },
}

impl SlotPersistence {
    /// The durable state of the slots of a cache with this persistence; `None` if it has no slots.
    #[must_use]
    pub fn of(choice: PersistenceChoice) -> Option<SlotPersistence> {
        match choice {
            PersistenceChoice::SyncSector { .. } => Some(SlotPersistence::SyncSector),
            PersistenceChoice::Commit(_) => Some(SlotPersistence::Commit),
            PersistenceChoice::BitTree(tree) => {
                let levels = u8::try_from(tree.tree_levels).ok()?;
                TreeShape::new(levels).ok().map(|tree| SlotPersistence::BitTree { tree })
            }
            PersistenceChoice::Inline
            | PersistenceChoice::Journal(_)
            | PersistenceChoice::Mirror(_)
            | PersistenceChoice::Frames(_) => None,
        }
    }
}

/// Why a cache cannot be divided into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotLayoutError {
    /// The device is too small.
    #[error("The cache device has {cache_bytes} bytes, the least for such slots is {minimum_bytes}")]
    CacheTooSmall {
        /// Bytes that the device has.
        cache_bytes: u64,
        /// Bytes that it needs.
        minimum_bytes: u64,
    },
    /// The composition has no slots.
    #[error("This cache has no slots")]
    NoSlots,
    /// There are no such slots.
    #[error(
        "A slot of {slot_bytes} bytes: it must be a power of two or a multiple of 32 KiB, from 4 KiB to 2 MiB"
    )]
    SlotBytes {
        /// The number that was asked for.
        slot_bytes: u32,
    },
    /// There are no such sets.
    #[error("{ways} slots in a set: it must be a power of two from 4 to 8192, or 0 for no sets")]
    Ways {
        /// The number that was asked for.
        ways: u32,
    },
}

/// The division of a cache device into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    slot_blocks: u32,
    slots: u32,
    ways: u32,
    persistence: SlotPersistence,
    /// Blocks of an area; `None` in a cache of an earlier version, which wrote no checksums.
    area_blocks: Option<u32>,
    data_offset_bytes: u64,
}

/// A part of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Where it begins, in bytes.
    pub offset_bytes: u64,
    /// How long it is, in bytes; 0 if there is none.
    pub len_bytes: u64,
}

impl Region {
    fn end_bytes(self) -> u64 {
        self.offset_bytes + self.len_bytes
    }
}

impl SlotLayout {
    /// The division of a device of `cache_bytes` into as many slots of `slot_bytes` as there is room for, in
    /// whole sets of `ways`; with 0 ways a piece may lie anywhere. Of a device with more than [`Place::END`]
    /// blocks only the first ones are used.
    ///
    /// # Errors
    /// If there are no such slots or sets, or the device has no room for a few.
    pub fn choose(
        cache_bytes: u64,
        slot_bytes: u32,
        ways: u32,
        persistence: SlotPersistence,
    ) -> Result<SlotLayout, SlotLayoutError> {
        let slot_blocks = checked_blocks(slot_bytes, ways)?;
        let of = |slots| SlotLayout::of(slot_blocks, slots, ways, persistence, AREA_BLOCKS);
        let unit = ways.max(1);
        let least = SLOTS_MIN.next_multiple_of(unit);
        let minimum_bytes = of(least).end_bytes().max(CACHE_BYTES_MIN);
        if cache_bytes < minimum_bytes {
            return Err(SlotLayoutError::CacheTooSmall { cache_bytes, minimum_bytes });
        }
        // `fits` has room, `beyond` has none; both are counted in sets.
        let mut fits = least / unit;
        let mut beyond = (Place::END - 1) / slot_blocks / unit + 1;
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if of(middle * unit).end_bytes() <= cache_bytes {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        let layout = of(fits * unit);
        assert!(layout.validate(cache_bytes).is_ok(), "what is chosen is allowed");
        Ok(layout)
    }

    /// The division of a device that is just large enough for `slots` slots; where there are sets, whole ones.
    ///
    /// # Errors
    /// If there are no such slots or sets.
    pub fn with_slots(
        slots: u32,
        slot_bytes: u32,
        ways: u32,
        persistence: SlotPersistence,
    ) -> Result<SlotLayout, SlotLayoutError> {
        let slot_blocks = checked_blocks(slot_bytes, ways)?;
        let slots = slots.max(SLOTS_MIN).min((Place::END - 1) / slot_blocks).next_multiple_of(ways.max(1));
        Ok(SlotLayout::of(slot_blocks, slots, ways, persistence, AREA_BLOCKS))
    }

    /// The division of a device of `cache_bytes` for a cache with slots that does what `composition` says.
    ///
    /// # Errors
    /// As [`SlotLayout::choose`], or if there are no slots in it.
    pub fn of_composition(
        cache_bytes: u64,
        composition: &Composition,
    ) -> Result<SlotLayout, SlotLayoutError> {
        let persistence = SlotPersistence::of(composition.persistence);
        match (composition.placement, persistence) {
            (Placement::Slots(slots), Some(persistence)) => {
                SlotLayout::choose(cache_bytes, slots.slot_bytes, slots.ways, persistence)
            }
            _ => Err(SlotLayoutError::NoSlots),
        }
    }

    /// The same with a number of slots instead of a size.
    ///
    /// # Errors
    /// As [`SlotLayout::with_slots`], or if there are no slots in it.
    pub fn of_composition_with_slots(
        slots: u32,
        composition: &Composition,
    ) -> Result<SlotLayout, SlotLayoutError> {
        let persistence = SlotPersistence::of(composition.persistence);
        match (composition.placement, persistence) {
            (Placement::Slots(size), Some(persistence)) => {
                SlotLayout::with_slots(slots, size.slot_bytes, size.ways, persistence)
            }
            _ => Err(SlotLayoutError::NoSlots),
        }
    }

    /// The same with areas of so many blocks: fewer than usual, for tests with small caches.
    ///
    /// # Panics
    /// If there are no such areas.
    #[must_use]
    pub fn with_area_blocks(self, area_blocks: u32) -> SlotLayout {
        assert!(is_area_allowed(area_blocks), "a page has room for the checksums of an area");
        let SlotLayout { slot_blocks, slots, ways, persistence, .. } = self;
        SlotLayout::of(slot_blocks, slots, ways, persistence, Some(area_blocks))
    }

    /// The same with the checksums in use, where an earlier version left room for them.
    #[must_use]
    pub fn with_checksums_in_use(self) -> SlotLayout {
        SlotLayout { area_blocks: Some(self.area_blocks()), ..self }
    }

    /// Bytes of a device that has all of it.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.end_bytes()
    }

    /// A layout whose numbers may be any that do not overflow.
    fn of(
        slot_blocks: u32,
        slots: u32,
        ways: u32,
        persistence: SlotPersistence,
        area_blocks: Option<u32>,
    ) -> SlotLayout {
        let mut layout =
            SlotLayout { slot_blocks, slots, ways, persistence, area_blocks, data_offset_bytes: 0 };
        layout.data_offset_bytes = layout.checksums().end_bytes().next_multiple_of(DATA_ALIGN_BYTES);
        layout
    }

    /// Blocks of a slot.
    #[must_use]
    pub fn slot_blocks(&self) -> u32 {
        self.slot_blocks
    }

    /// Bytes of a slot.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        u64::from(self.slot_blocks) * BLOCK_BYTES
    }

    /// How many slots there are, and how many of them are a set.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { frames: self.slots, ways: if self.ways == 0 { self.slots } else { self.ways } }
    }

    /// Slots of a set; 0 if a piece may lie anywhere.
    #[must_use]
    pub fn ways(&self) -> u32 {
        self.ways
    }

    /// Whether a piece may lie anywhere.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ways == 0
    }

    /// The durable state of the slots.
    #[must_use]
    pub fn persistence(&self) -> SlotPersistence {
        self.persistence
    }

    /// Where `slot` is on the device, in bytes.
    #[must_use]
    pub fn slot_offset_bytes(&self, slot: Frame) -> u64 {
        assert!(slot.0 < self.slots);
        self.data_offset_bytes + u64::from(slot.0) * self.slot_bytes()
    }

    /// Slots that one page tells of.
    #[must_use]
    pub fn page_slots(&self) -> u32 {
        match self.persistence {
            SlotPersistence::SyncSector => SLOT_PAGE_RECORDS,
            SlotPersistence::Commit | SlotPersistence::BitTree { .. } => COMMIT_PAGE_RECORDS,
        }
    }

    /// Pages that tell of slots.
    #[must_use]
    pub fn slot_pages(&self) -> u32 {
        self.slots.div_ceil(self.page_slots())
    }

    /// Pages of all trees.
    #[must_use]
    pub fn tree_pages(&self) -> u32 {
        to_u32(VOLUMES_MAX) * self.volume_tree_pages()
    }

    /// Page `page` of the tree of `volume`, among the pages of all trees.
    #[must_use]
    pub fn tree_page(&self, volume: VolumeIndex, page: u32) -> u32 {
        assert!(page < self.volume_tree_pages());
        u32::from(volume.0) * self.volume_tree_pages() + page
    }

    /// Places of a page.
    fn places(&self) -> u32 {
        match self.persistence {
            SlotPersistence::SyncSector => 1,
            SlotPersistence::Commit | SlotPersistence::BitTree { .. } => 2,
        }
    }

    /// Levels of each tree; 0 without trees.
    #[must_use]
    pub fn tree_levels(&self) -> u8 {
        match self.persistence {
            SlotPersistence::SyncSector | SlotPersistence::Commit => 0,
            SlotPersistence::BitTree { tree } => tree.levels(),
        }
    }

    /// Pages of the tree of one volume.
    #[must_use]
    pub fn volume_tree_pages(&self) -> u32 {
        match self.persistence {
            SlotPersistence::SyncSector | SlotPersistence::Commit => 0,
            SlotPersistence::BitTree { tree } => tree.pages(),
        }
    }

    /// Where a slot page is on the device, in bytes. Without transactions a page has place 0 only.
    #[must_use]
    pub fn slot_page_offset_bytes(&self, page: u32, place: u32) -> u64 {
        paired_offset_bytes(self.slot_records(), self.slot_pages(), self.places(), page, place)
    }

    /// Where a tree page is on the device, in bytes.
    #[must_use]
    pub fn tree_page_offset_bytes(&self, page: u32, place: u32) -> u64 {
        paired_offset_bytes(self.trees(), self.tree_pages(), self.places(), page, place)
    }

    /// The region of the slot pages.
    #[must_use]
    pub fn slot_records(&self) -> Region {
        let pages = u64::from(self.slot_pages()) * u64::from(self.places());
        Region { offset_bytes: REGIONS_OFFSET, len_bytes: pages * BLOCK_BYTES }
    }

    /// The region of the tree pages.
    #[must_use]
    pub fn trees(&self) -> Region {
        let pages = u64::from(self.tree_pages()) * u64::from(self.places());
        Region { offset_bytes: self.slot_records().end_bytes(), len_bytes: pages * BLOCK_BYTES }
    }

    /// The region of the checksums.
    #[must_use]
    pub fn checksums(&self) -> Region {
        let blocks = u64::from(self.slots) * u64::from(self.slot_blocks);
        let pages = blocks.div_ceil(u64::from(self.area_blocks()));
        Region { offset_bytes: self.trees().end_bytes(), len_bytes: pages * BLOCK_BYTES }
    }

    /// Blocks of an area: those whose checksums are in one page. The last area may be short.
    #[must_use]
    pub fn area_blocks(&self) -> u32 {
        self.area_blocks.unwrap_or(CHECKSUM_PAGE_RECORDS)
    }

    /// How many areas there are, each with a page of checksums.
    #[must_use]
    pub fn areas(&self) -> u32 {
        self.places_end().div_ceil(self.area_blocks())
    }

    /// The areas that `blocks` places from `place` on lie in.
    #[must_use]
    pub fn areas_of(&self, place: Place, blocks: u32) -> Range<u32> {
        place.0 / self.area_blocks()..(place.0 + blocks).div_ceil(self.area_blocks())
    }

    /// The places of an area.
    #[must_use]
    pub fn places_of_area(&self, area: u32) -> Range<u32> {
        let first = area * self.area_blocks();
        first..(first + self.area_blocks()).min(self.places_end())
    }

    /// Where the page of an area is on the device, in bytes.
    #[must_use]
    pub fn checksum_page_offset_bytes(&self, area: u32) -> u64 {
        assert!(area < self.areas());
        self.checksums().offset_bytes + u64::from(area) * BLOCK_BYTES
    }

    /// Areas that may be open at a time: those of a quarter of the cache, but of 256 MiB at the least, and of 4 GiB at the most.
    #[must_use]
    pub fn open_areas_max(&self) -> u32 {
        (self.places_end() / 4).clamp(OPEN_BLOCKS_SMALL, OPEN_BLOCKS_MAX).div_ceil(self.area_blocks())
    }

    /// Blocks of all slots.
    fn places_end(&self) -> u32 {
        self.slots * self.slot_blocks
    }

    /// The region of the slots themselves.
    #[must_use]
    pub fn data(&self) -> Region {
        let len_bytes = u64::from(self.slots) * self.slot_bytes();
        Region { offset_bytes: self.data_offset_bytes, len_bytes }
    }

    /// All records of slots, in front of them and behind the superblock: zeroed, they say that nothing is cached.
    #[must_use]
    pub fn metadata(&self) -> Region {
        let offset_bytes = COMMIT_RECORD_OFFSETS[0];
        Region { offset_bytes, len_bytes: self.data_offset_bytes - offset_bytes }
    }

    /// Where the last slot ends, in bytes.
    fn end_bytes(&self) -> u64 {
        self.data_offset_bytes + u64::from(self.slots) * self.slot_bytes()
    }

    /// Whether a device of `cache_bytes` can be divided like this.
    pub(super) fn validate(&self, cache_bytes: u64) -> Result<(), FormatError> {
        if !is_slot_allowed(self.slot_blocks) {
            return Err(FormatError::Field("slot_blocks"));
        }
        let blocks = u64::from(self.slots) * u64::from(self.slot_blocks);
        if self.slots < SLOTS_MIN || blocks >= u64::from(Place::END) {
            return Err(FormatError::Field("slots"));
        }
        if !are_ways_allowed(self.ways) || !self.slots.is_multiple_of(self.ways.max(1)) {
            return Err(FormatError::Field("ways"));
        }
        if self.end_bytes() > cache_bytes {
            return Err(FormatError::Field("cache_bytes"));
        }
        Ok(())
    }

    /// Writes the layout to `bytes`, its part of a superblock.
    ///
    /// # Panics
    /// If `bytes` has another length than [`SLOT_LAYOUT_BYTES`].
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == SLOT_LAYOUT_BYTES);
        bytes.fill(0);
        put(bytes, 0, &self.slot_blocks.to_le_bytes());
        put(bytes, 4, &self.slots.to_le_bytes());
        put(bytes, 8, &self.ways.to_le_bytes());
        let (kind, levels) = match self.persistence {
            SlotPersistence::SyncSector => (1, 0),
            SlotPersistence::Commit => (2, 0),
            SlotPersistence::BitTree { tree } => (3, tree.levels()),
        };
        bytes[12] = kind;
        bytes[13] = levels;
        put(bytes, 16, &self.data_offset_bytes.to_le_bytes());
        for (region, at) in self.regions().into_iter().zip((24..).step_by(16)) {
            put(bytes, at, &region.offset_bytes.to_le_bytes());
            put(bytes, at + 8, &region.len_bytes.to_le_bytes());
        }
        put(bytes, AREA_BLOCKS_AT, &self.area_blocks.unwrap_or(0).to_le_bytes());
    }

    /// Reads the layout of a device of `cache_bytes` from the first [`SLOT_LAYOUT_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], or [`FormatError::Field`] for numbers that [`SlotLayout::choose`] could not
    /// have chosen for some device of that size at the most.
    pub fn decode(bytes: &[u8], cache_bytes: u64) -> Result<SlotLayout, FormatError> {
        let bytes = bytes.get(..SLOT_LAYOUT_BYTES).ok_or(FormatError::Truncated)?;
        let persistence = match (u8_at(bytes, 12)?, u8_at(bytes, 13)?) {
            (1, 0) => SlotPersistence::SyncSector,
            (2, 0) => SlotPersistence::Commit,
            (3, levels) => SlotPersistence::BitTree { tree: TreeShape::new(levels)? },
            _ => return Err(FormatError::Field("slot persistence")),
        };
        if bytes[14..16].iter().chain(&bytes[AREA_BLOCKS_AT + 4..]).any(|&byte| byte != 0) {
            return Err(FormatError::Field("slot layout"));
        }
        let (slot_blocks, slots, ways) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
        // Before anything is computed from them: a hostile number must not overflow.
        if !is_slot_allowed(slot_blocks) {
            return Err(FormatError::Field("slot_blocks"));
        }
        if slots >= Place::END {
            return Err(FormatError::Field("slots"));
        }
        let area_blocks = match u32_at(bytes, AREA_BLOCKS_AT)? {
            0 => None,
            blocks if is_area_allowed(blocks) => Some(blocks),
            _ => return Err(FormatError::Field("area_blocks")),
        };
        let layout = SlotLayout::of(slot_blocks, slots, ways, persistence, area_blocks);
        layout.validate(cache_bytes)?;
        if u64_at(bytes, 16)? != layout.data_offset_bytes {
            return Err(FormatError::Field("data_offset"));
        }
        for (region, at) in layout.regions().into_iter().zip((24..).step_by(16)) {
            let found = Region { offset_bytes: u64_at(bytes, at)?, len_bytes: u64_at(bytes, at + 8)? };
            if found != region {
                return Err(FormatError::Field("slot regions"));
            }
        }
        Ok(layout)
    }

    fn regions(&self) -> [Region; 3] {
        [self.slot_records(), self.trees(), self.checksums()]
    }
}

/// The blocks of a slot, if there are such slots and sets.
fn checked_blocks(slot_bytes: u32, ways: u32) -> Result<u32, SlotLayoutError> {
    let slot_blocks = slot_bytes / to_u32(BLOCK_BYTES);
    if !u64::from(slot_bytes).is_multiple_of(BLOCK_BYTES) || !is_slot_allowed(slot_blocks) {
        return Err(SlotLayoutError::SlotBytes { slot_bytes });
    }
    if !are_ways_allowed(ways) {
        return Err(SlotLayoutError::Ways { ways });
    }
    Ok(slot_blocks)
}

fn is_slot_allowed(slot_blocks: u32) -> bool {
    (1..=SLOT_BLOCKS_MAX).contains(&slot_blocks)
        && (slot_blocks.is_power_of_two() || slot_blocks.is_multiple_of(SLOT_BLOCKS_STEP))
}

fn are_ways_allowed(ways: u32) -> bool {
    ways == 0 || (ways.is_power_of_two() && (WAYS_MIN..=WAYS_MAX).contains(&ways))
}

fn is_area_allowed(blocks: u32) -> bool {
    (1..=CHECKSUM_PAGE_RECORDS).contains(&blocks)
}

fn paired_offset_bytes(region: Region, pages: u32, places: u32, page: u32, place: u32) -> u64 {
    assert!(page < pages && place < places);
    region.offset_bytes + (u64::from(place) * u64::from(pages) + u64::from(page)) * BLOCK_BYTES
}
