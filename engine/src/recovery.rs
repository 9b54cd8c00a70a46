//! From what is on the cache device to an engine that can serve: after a clean stop and after any
//! crash by the same steps.
//!
//! 1. The superblock and the log's chain are read and judged (`scan`).
//! 2. The entries are replayed in log order; the highest sequence wins.
//! 3. Heads and footers of a dead tail are wiped: the cut protects against them only until the log has
//!    grown past their sequences.
//! 4. The cache is flushed, and the new session with the cut is written to both copies of the
//!    superblock in turn, a flush after each (rule 6). A crash up to here repeats recovery with the
//!    same result.

use crate::composition::Composition;
use crate::composition::stored::StoredError;
use crate::composition::support::Lack;
use crate::effect::{Errno, WriteMode};
use crate::format::{
    Entry, EntryKind, FormatError, Layout, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, SummaryBuilder, Superblock,
};
use crate::image::Image;
use crate::machine::destage::DestageState;
use crate::machine::guard::Guard;
use crate::machine::origin::Origin;
use crate::machine::volume::{Standing, Volume};
use crate::mutation::{Mutation, Mutations};
use crate::status::Counters;
use crate::store::log::controller::Controller;
use crate::store::log::extents::{Change, Extent, ExtentKind, Extents};
use crate::store::log::index::{Index, Run};
use crate::store::log::keys::found::KeysFound;
use crate::store::log::mirror::Mirror;
use crate::store::log::policies::Policies;
use crate::store::log::reclaim::Reclaim;
use crate::store::log::scan::{
    BatchRecord, Scan, ScanError, SegmentSpan, SuperblockError, load_superblock, scan_mutated,
};
use crate::store::log::segments::{Segment, SegmentState, Segments};
use crate::store::log::{Log, LogStart, LogStore, MissingSummary, Stated};
use crate::store::slots::persistence::commit::MissingPage;
use crate::store::slots::recovery_plan::PlanError;
use crate::store::slots::{self, SlotStore};
use crate::units::{
    BLOCK_BYTES, BlockKey, Frame, Place, SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeId, VolumeIndex,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How a cache is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory for the index.
    pub index_budget_bytes: u64,
    /// Cut the log at a damage that no crash explains, instead of refusing (rule 5).
    pub repair: bool,
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

/// Why a cache cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The superblock cannot be trusted.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The log cannot be trusted.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The superblock does not say what the cache is made of.
    #[error(transparent)]
    Composition(#[from] StoredError),
    /// The engine cannot do what the cache does.
    #[error("This version cannot run a cache with {0} yet")]
    Unsupported(Lack),
    /// What is recorded of the slots cannot be so.
    #[error(transparent)]
    Slots(#[from] PlanError),
    /// What is recorded of some slots cannot be read.
    #[error("Page {page} of the slots' records cannot be trusted: {error}")]
    SlotPage {
        /// The page.
        page: u32,
        /// What is wrong with it.
        error: FormatError,
    },
    /// No transaction is recorded that counts.
    #[error("There is no record of any transaction that can be trusted")]
    NoCommit,
    /// A page is missing that every transaction has.
    #[error(transparent)]
    MissingPage(#[from] MissingPage),
    /// A tree of dirty bits cannot be read.
    #[error("Page {page} of the trees of dirty bits cannot be trusted: {error}")]
    TreePage {
        /// The page.
        page: u32,
        /// What is wrong with it.
        error: FormatError,
    },
    /// The cache device failed while the new session was written.
    #[error("The cache device failed a write (errno {})", .0.0)]
    Device(Errno),
}

/// What recovery found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Batches at the end of the log that were not whole, or not in order.
    pub batches_cut: u64,
    /// Bytes that count as dirty.
    pub redestage_bytes: u64,
    /// Log entries replayed.
    pub entries: u64,
    /// Blocks in the index, dirty and clean.
    pub blocks: u64,
    /// Whether the session before ended with a clean stop.
    pub was_clean: bool,
}

/// A cache that was opened: what [`crate::engine::Engine::new`] begins with.
pub struct Opened {
    /// The superblock, with the new session.
    pub superblock: Superblock,
    /// What recovery found.
    pub report: Report,
    pub(crate) volumes: [Option<Volume>; VOLUMES_MAX],
    pub(crate) store: OpenedStore,
}

/// A slot whose content the origin has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanSlot {
    /// The volume.
    pub volume: VolumeIndex,
    /// The first block that it holds.
    pub first_block: u64,
    /// How many.
    pub blocks: u64,
    /// Where they lie on the cache device, in bytes.
    pub offset_bytes: u64,
}

/// What recovery found of the store.
pub(crate) enum OpenedStore {
    Log(Box<OpenedLog>),
    Slots(Box<SlotStore>),
}

/// What recovery found of a log.
pub(crate) struct OpenedLog {
    pub store: LogStore,
    stale_blocks: Vec<u64>,
    base_sequence: u64,
    was_repaired: bool,
}

impl Opened {
    /// Bytes of a volume that count as dirty, lost ones included.
    #[must_use]
    pub fn dirty_bytes(&self, index: VolumeIndex) -> u64 {
        self.volumes[index.at()]
            .as_ref()
            .map_or(0, |volume| (volume.dirty_blocks + volume.zero_blocks + volume.lost_blocks) * BLOCK_BYTES)
    }

    /// Bytes of a volume that are cached, dirty or clean.
    #[must_use]
    pub fn cached_bytes(&self, index: VolumeIndex) -> u64 {
        self.volumes[index.at()].as_ref().map_or(0, |volume| volume.cached_blocks * BLOCK_BYTES)
    }

    /// The slots that count as clean; none of a log.
    #[must_use]
    pub fn clean_slots(&self) -> Vec<CleanSlot> {
        match &self.store {
            OpenedStore::Log(_) => Vec::new(),
            OpenedStore::Slots(store) => store.clean_slots(&self.volumes),
        }
    }

    /// Up to `count` clean blocks in slots chosen by `random`, as volume, byte offset on the origin and byte offset on the
    /// cache device: both must have the same there (rule 11). Their checksums are not known at a start.
    pub fn sample_clean_slots(
        &self,
        count: usize,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<(VolumeIndex, u64, u64)> {
        let mut found = Vec::new();
        let OpenedStore::Slots(store) = &self.store else { return found };
        let slots = u64::from(store.layout.shape().frames);
        let slot_blocks = u64::from(store.layout.slot_blocks());
        for _ in 0..count * 8 {
            if found.len() == count || store.table.used() == 0 {
                break;
            }
            let (slot, within) = (Frame((random() % slots) as u32), random() % slot_blocks);
            let Some(piece) = store.table.piece(slot).filter(|_| !store.table.is_dirty(slot)) else {
                continue;
            };
            let block = piece.piece() * slot_blocks + within;
            // The last block may be short.
            let blocks = self.volumes[piece.volume().at()].as_ref().map_or(0, Volume::blocks);
            if block + 1 < blocks {
                let cache_offset_bytes = store.layout.slot_offset_bytes(slot) + within * BLOCK_BYTES;
                found.push((piece.volume(), block * BLOCK_BYTES, cache_offset_bytes));
            }
        }
        found
    }

    /// Up to `count` clean cached blocks of a log chosen by `random`, as volume, byte offset on the origin and
    /// checksum: the origin must have the same there (rule 11).
    pub fn sample_clean(
        &self,
        count: usize,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<(VolumeIndex, u64, u32)> {
        let mut found = Vec::new();
        let OpenedStore::Log(log) = &self.store else { return found };
        for _ in 0..count * 8 {
            if found.len() == count {
                break;
            }
            let Some((key, entry)) = log.store.index.sample(random) else { break };
            let is_last =
                self.volumes[key.volume().at()].as_ref().is_none_or(|v| key.block() + 1 >= v.blocks());
            if !entry.dirty && !is_last {
                found.push((key.volume(), key.block() * BLOCK_BYTES, entry.checksum));
            }
        }
        found
    }
}

/// Opens the cache on `image`: recovers, and begins a new session.
///
/// # Errors
/// [`OpenError`]; nothing was written unless it is [`OpenError::Device`].
pub fn open<I: Image>(image: &mut I, options: Options) -> Result<Opened, OpenError> {
    let opened = inspect(image, options)?;
    begin_session(image, opened, options.mutations).map_err(OpenError::Device)
}

/// Reads the cache on `image` as [`open`] would find it, and writes nothing.
///
/// # Errors
/// As [`open`].
pub fn inspect<I: Image>(image: &mut I, options: Options) -> Result<Opened, OpenError> {
    let (superblock, _) = load_superblock(image)?;
    match superblock.layout {
        Layout::Log(_) | Layout::Keys(_) => replay(image, superblock, options),
        Layout::Slots(layout) => slots::recovery::read(image, superblock, layout, options),
    }
}

fn begin_session<I: Image>(image: &mut I, mut opened: Opened, mutations: Mutations) -> Result<Opened, Errno> {
    match &mut opened.store {
        OpenedStore::Log(log) => {
            for &offset_bytes in &log.stale_blocks {
                if !mutations.has(Mutation::KeepDeadTail) {
                    image.write(offset_bytes, &[0; BLOCK_BYTES as usize])?;
                }
            }
        }
        OpenedStore::Slots(store) => slots::recovery::begin_session(image, store, &opened.superblock)?,
    }
    // RULE 6: what recovery found may be in volatile memory of the device only: it is flushed before a
    // session builds on it.
    if !mutations.has(Mutation::SkipRecoveryFlush) {
        image.flush()?;
    }
    let superblock = &mut opened.superblock;
    superblock.update += 1;
    superblock.session += u64::from(!mutations.has(Mutation::ForgetSessionBump));
    match &opened.store {
        OpenedStore::Log(log) => {
            superblock.cut_sequence = log.store.log.published();
            superblock.base_sequence = log.base_sequence;
            if log.was_repaired && !mutations.has(Mutation::TrustCleanAfterRepair) {
                // Clean copies from before the cut may be older than what the origin got after it.
                for record in superblock.volumes.iter_mut().flatten() {
                    record.clean_floor_sequence = superblock.cut_sequence + 1;
                }
            }
        }
        OpenedStore::Slots(_) => {
            for record in superblock.volumes.iter_mut().flatten() {
                record.clean_floor_sequence = u64::from(record.id.0);
            }
        }
    }
    superblock.clean_stop &= mutations.has(Mutation::KeepCleanFlag);
    write_superblock(image, superblock)?;
    if let OpenedStore::Log(log) = &mut opened.store
        && !mutations.has(Mutation::ForgetSessionBump)
    {
        log.store.log.begin_session(superblock.session);
    }
    Ok(opened)
}

/// Writes what a new cache has besides its superblock, which is to be written next.
///
/// # Errors
/// The device's errno.
pub fn format<I: Image>(image: &mut I, superblock: &Superblock) -> Result<(), Errno> {
    match &superblock.layout {
        Layout::Log(_) | Layout::Keys(_) => Ok(()),
        Layout::Slots(layout) => slots::recovery::format(image, superblock, layout),
    }
}

/// Writes both copies of a superblock in turn, a flush after each.
///
/// # Errors
/// The device's errno.
pub fn write_superblock<I: Image>(image: &mut I, superblock: &Superblock) -> Result<(), Errno> {
    let mut bytes = alloc::vec![0; SUPERBLOCK_BYTES];
    superblock.encode(&mut bytes);
    for offset in SUPERBLOCK_OFFSETS {
        image.write(offset, &bytes)?;
        image.flush()?;
    }
    Ok(())
}

/// The volumes of a superblock, with nothing in the cache yet.
pub(crate) fn volumes_of(superblock: &Superblock) -> [Option<Volume>; VOLUMES_MAX] {
    let mut volumes: [Option<Volume>; VOLUMES_MAX] = Default::default();
    for (at, record) in superblock.volumes.iter().enumerate() {
        let Some(record) = record else { continue };
        let index = VolumeIndex(at as u8);
        let blocks = record.size_sectors.div_ceil(SECTORS_PER_BLOCK);
        // Small volumes need few slots; 2^14 of 32 bytes are half a mebibyte.
        let slot_bits = (blocks / 64).max(64).ilog2().min(14);
        volumes[at] = Some(Volume {
            index,
            id: record.id,
            mode: record.mode,
            size_sectors: record.size_sectors,
            standing: Standing::Cached,
            is_leaving: false,
            guard: Guard::new(slot_bits),
            dirty_blocks: 0,
            owed_blocks: 0,
            zero_blocks: 0,
            lost_blocks: 0,
            cached_blocks: 0,
            active: 0,
            reserved_blocks: 0,
            share_waiting: 0,
            origin: Origin::new(),
            destage: DestageState::new(blocks),
            counters: Counters::default(),
        });
    }
    volumes
}

struct Replay {
    index: Index,
    extents: Extents,
    volumes: [Option<Volume>; VOLUMES_MAX],
    by_id: BTreeMap<VolumeId, VolumeIndex>,
    /// Volumes whose clean data up to a sequence is void, until the replay passes it.
    clean_floors: Vec<(u64, VolumeIndex)>,
    segment_blocks: u32,
    entries: u64,
    mutations: Mutations,
    /// What the keys of a log with buckets lead to.
    keys: Option<KeysFound>,
    /// The summaries of segments that have none on the device.
    unsealed: BTreeMap<u32, (SummaryBuilder, u32)>,
}

fn replay<I: Image>(image: &mut I, superblock: Superblock, options: Options) -> Result<Opened, OpenError> {
    let composition = Composition::of(&superblock)?;
    let mut by_id = BTreeMap::new();
    let mut clean_floors = Vec::new();
    for (at, record) in superblock.volumes.iter().enumerate() {
        let Some(record) = record else { continue };
        let index = VolumeIndex(at as u8);
        by_id.insert(record.id, index);
        if record.clean_floor_sequence > 0 {
            clean_floors.push((record.clean_floor_sequence, index));
        }
    }
    let volumes = volumes_of(&superblock);
    let geometry = superblock.geometry();
    let mut replay = Replay {
        index: Index::new(options.index_budget_bytes),
        extents: Extents::default(),
        volumes,
        by_id,
        clean_floors,
        segment_blocks: geometry.segment_blocks,
        entries: 0,
        mutations: options.mutations,
        keys: match superblock.layout {
            Layout::Keys(layout) => Some(KeysFound::new(layout)),
            Layout::Log(_) | Layout::Slots(_) => None,
        },
        unsealed: BTreeMap::new(),
    };
    let found = scan_mutated(image, &superblock, options.repair, options.mutations, &mut |view, batch| {
        replay.batch(view, batch)
    })?;
    if found.repaired.is_some() && !options.mutations.has(Mutation::TrustCleanAfterRepair) {
        let all = replay.volumes.iter().flatten().map(|volume| (0, volume.index)).collect();
        replay.clean_floors = all;
    }
    replay.pass_clean_floors(u64::MAX);
    Ok(replay.finish(superblock, found, &composition))
}

impl Replay {
    fn batch(&mut self, view: crate::store::log::scan::SegmentView, batch: &BatchRecord) {
        self.pass_clean_floors(batch.sequence);
        let base = view.segment * self.segment_blocks;
        let header_place = Place(base + batch.header_block);
        let mut place = base + batch.payload_block;
        let mut checksums_at = 0;
        for entry in &batch.entries {
            self.entries += 1;
            let blocks = entry.payload_blocks as usize;
            let checksums = &batch.checksums[checksums_at..checksums_at + blocks];
            let volume = self.by_id.get(&entry.volume).copied();
            if let Some(keys) = &mut self.keys {
                let is_off = self.mutations.has(Mutation::ForgetFreed);
                for held in keys.pass(volume, entry, is_off) {
                    self.index.remove_places(held.first, held.place, held.blocks);
                }
            }
            let key_place = entry.kind.is_key().then_some(Place(entry.extra as u32));
            let is_ours = match (&self.keys, key_place) {
                (Some(keys), Some(_)) => keys.has(entry),
                (None, Some(_)) => false,
                (_, None) => true,
            };
            if let Some(volume) = volume.filter(|_| is_ours) {
                self.entry(volume, entry, key_place.unwrap_or(Place(place)), header_place, checksums);
            }
            place += entry.inline_blocks();
            checksums_at += blocks;
        }
        if !view.is_sealed {
            let (summary, last) = self.unsealed.entry(view.segment).or_default();
            summary.push(
                batch.sequence,
                batch.header_block,
                batch.payload_block,
                &batch.entries,
                &batch.checksums,
            );
            *last = batch.header_checksum;
        }
    }

    fn entry(
        &mut self,
        volume: VolumeIndex,
        entry: &Entry,
        place: Place,
        header_place: Place,
        checksums: &[u32],
    ) {
        let first_block = entry.start_sector / SECTORS_PER_BLOCK;
        let volume_blocks = self.volumes[volume.at()].as_ref().map_or(0, Volume::blocks);
        let end_block = (entry.start_sector + u64::from(entry.sectors)).div_ceil(SECTORS_PER_BLOCK);
        if end_block > volume_blocks || end_block <= first_block {
            // Nothing we wrote lies outside its volume; a checksum that holds over such an entry
            // was made by somebody else.
            return;
        }
        let first = BlockKey::new(volume, first_block);
        let blocks = end_block - first_block;
        match entry.kind {
            EntryKind::Dirty
            | EntryKind::Clean
            | EntryKind::KeyDirty
            | EntryKind::KeyClean
            | EntryKind::KeptDirty
            | EntryKind::KeptClean => {
                let is_dirty = entry.kind.is_dirty();
                if !is_dirty && self.index.is_tight(blocks) {
                    // A smaller budget than before: clean data is dropped, dirty data never.
                    self.index.remove_range(first, blocks, |_, _| ());
                } else {
                    self.index.insert(Run { first, place, dirty: is_dirty, hits: 0, checksums }, |_, _| ());
                }
                self.extents.cut(first, blocks, |_| ());
            }
            EntryKind::Zero | EntryKind::Lost => {
                self.index.remove_range(first, blocks, |_, _| ());
                self.extents.cut(first, blocks, |_| ());
                let kind = if entry.kind == EntryKind::Zero { ExtentKind::Zero } else { ExtentKind::Lost };
                self.extents.insert(Extent { first, blocks, kind, place: header_place });
            }
            EntryKind::Tombstone => {
                self.index.remove_range(first, blocks, |_, _| ());
                self.extents.cut(first, blocks, |_| ());
            }
            EntryKind::Cleaned => self.cleaned(first, blocks, Place(entry.extra as u32)),
            EntryKind::ZeroHome => self.zero_home(first, blocks, Place(entry.extra as u32)),
            EntryKind::Freed => (),
        }
    }

    /// The zeroes that this very header recorded went home; newer ones did not.
    fn zero_home(&mut self, first: BlockKey, blocks: u64, place: Place) {
        let mut homes = Vec::new();
        let mut at = first;
        while let Some(extent) = self.extents.next(at) {
            let end = extent.first.0 + extent.blocks;
            if extent.first.0 >= first.0 + blocks {
                break;
            }
            if extent.kind == ExtentKind::Zero && extent.place == place {
                let from = extent.first.0.max(first.0);
                homes.push((BlockKey(from), end.min(first.0 + blocks) - from));
            }
            if end >= first.0 + blocks || end >= BlockKey::END {
                break;
            }
            at = BlockKey(end);
        }
        if homes.is_empty() && self.mutations.has(Mutation::ReplayMistakesZeroes) {
            self.cleaned(first, blocks, place);
        }
        for (from, count) in homes {
            self.extents.cut(from, count, |_| ());
        }
    }

    /// These very copies went home; newer ones did not.
    fn cleaned(&mut self, first: BlockKey, blocks: u64, place: Place) {
        // A record is not longer than what the index has, unless its bytes are hostile.
        if blocks > self.index.len().saturating_mul(2).max(1024) {
            return;
        }
        for step in 0..blocks {
            let key = BlockKey(first.0 + step);
            let is_any = self.mutations.has(Mutation::ReplayCleansNewer);
            let is_same = self.index.get(key).is_some_and(|entry| {
                (u64::from(entry.place.0) == u64::from(place.0) + step || is_any) && entry.dirty
            });
            if is_same {
                self.index.set_dirty(key, false);
            }
        }
    }

    /// Where the replay reaches the sequence from which on a volume's clean data counts, what is clean before is void.
    fn pass_clean_floors(&mut self, sequence: u64) {
        if self.clean_floors.is_empty() {
            return;
        }
        let Replay { clean_floors, index, volumes, .. } = self;
        clean_floors.retain(|&(floor, volume)| {
            if sequence < floor {
                return true;
            }
            let blocks = volumes[volume.at()].as_ref().map_or(0, Volume::blocks);
            let mut clean = Vec::new();
            index.for_each(|key, entry| {
                if key.volume() == volume && key.block() < blocks && !entry.dirty {
                    clean.push(key);
                }
            });
            for key in clean {
                index.remove(key);
            }
            false
        });
    }

    fn finish(self, superblock: Superblock, found: Scan, composition: &Composition) -> Opened {
        let Replay { mut index, mut extents, mut volumes, mut unsealed, entries, mutations, keys, .. } = self;
        let geometry = superblock.geometry();
        let mut segments = Segments::new(geometry.segments, geometry.segment_blocks);
        if let Some(keys) = &keys {
            segments.add_buckets(keys.layout().buckets, keys.layout().bucket_blocks);
        }
        let open = found.end.open;
        let open_segment = open.as_ref().map(|open| open.segment);
        let mut missing_summaries = Vec::new();
        for span in &found.segments {
            let is_open = open_segment == Some(span.segment);
            let state = if is_open { SegmentState::Open } else { SegmentState::Sealed };
            segments.restore(
                span.segment,
                Segment {
                    state,
                    generation: span.generation,
                    first_sequence: span.first_sequence,
                    last_sequence: span.last_sequence,
                    used_blocks: span.used_blocks,
                    // Recovery flushes the cache before anything else happens.
                    flushed_blocks: span.used_blocks,
                    live: 0,
                    must: 0,
                    pins: 0,
                    summary_blocks: span.summary_blocks,
                    is_summary_written: span.sealed,
                },
            );
            if !span.sealed
                && !is_open
                && let Some((summary, last_header_checksum)) = unsealed.remove(&span.segment)
            {
                let SegmentSpan { segment, floor_sequence, oldest_dirty_sequence, .. } = *span;
                let stated = Stated { floor_sequence, oldest_dirty_sequence };
                missing_summaries.push(MissingSummary { segment, summary, last_header_checksum, stated });
            }
        }
        // RULE 2: below the oldest dirty sequence everything is clean, recorded one by one or not.
        let is_below = |segments: &Segments, place: Place| {
            // Of what lies in a bucket that sequence says nothing.
            !segments.is_in_bucket(place)
                && segments.get(segments.of(place)).last_sequence < found.oldest_dirty_sequence
        };
        let mut below = Vec::new();
        index.for_each(|key, entry| {
            if entry.dirty && is_below(&segments, entry.place) {
                below.push(key);
            }
        });
        for key in below {
            index.set_dirty(key, false);
        }
        let home: Vec<Extent> = extents
            .iter()
            .filter(|extent| extent.kind == ExtentKind::Zero && is_below(&segments, extent.place))
            .collect();
        for extent in home {
            extents.cut(extent.first, extent.blocks, |_| ());
        }
        index.for_each(|key, entry| {
            segments.add_live(entry.place, 1, entry.dirty);
            if let Some(volume) = &mut volumes[key.volume().at()] {
                volume.cached_blocks += 1;
                if entry.dirty {
                    volume.dirty_blocks += 1;
                    volume.destage.map.mark(key.block(), 1);
                }
            }
        });
        for extent in extents.iter() {
            segments.add_must(extent.place, 1);
            if let Some(volume) = &mut volumes[extent.first.volume().at()] {
                volume.count_extent(Change::Added(extent));
            }
        }
        for volume in volumes.iter_mut().flatten() {
            volume.is_leaving = volume.mode != WriteMode::Writeback && volume.is_dirty();
        }
        let dirty_blocks: u64 =
            volumes.iter().flatten().map(|volume| volume.dirty_blocks + volume.zero_blocks).sum();
        let report = Report {
            batches_cut: found.batches_cut,
            redestage_bytes: dirty_blocks * BLOCK_BYTES,
            entries,
            blocks: index.len(),
            was_clean: superblock.clean_stop,
        };
        let log = Log::new(LogStart {
            set_id: superblock.set_id,
            session: superblock.session,
            last_generation: found.end.last_generation,
            next_sequence: found.end.next_sequence,
            chain: found.end.last_header_checksum,
            open: open.map(|open| (open.segment, open.next_block, open.summary)),
            missing_summaries,
            stated: Stated {
                floor_sequence: found.floor_sequence,
                oldest_dirty_sequence: found.oldest_dirty_sequence,
            },
        });
        segments.mutations = mutations;
        let cache_blocks = superblock.cache_bytes / BLOCK_BYTES;
        let seed = u64::from_le_bytes(core::array::from_fn(|at| superblock.set_id[at]));
        let policies = Policies::new(composition, cache_blocks as u32, seed).map(Box::new);
        let controller = Controller::new(composition).map(Box::new);
        let journal = keys.map(|keys| Box::new(keys.into_journal(composition, &index, &mut segments, seed)));
        let store = LogStore {
            index,
            extents,
            segments,
            log,
            reclaim: Reclaim::default(),
            journal,
            mirror: Mirror::new(composition, cache_blocks).map(Box::new),
            policies,
            controller,
        };
        let log = OpenedLog {
            store,
            stale_blocks: found.stale_blocks,
            base_sequence: found.base_sequence,
            was_repaired: found.repaired.is_some(),
        };
        Opened { superblock, report, volumes, store: OpenedStore::Log(Box::new(log)) }
    }
}
