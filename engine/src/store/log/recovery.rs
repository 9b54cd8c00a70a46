//! Replay of the log: its entries rebuild the index, the zero and lost extents, and the end of the log.
//!
//! The entries are replayed in log order; the highest sequence wins.

mod halves;
mod start;

use super::appender::Appender;
use super::checkpoint::Checkpoints;
use super::checkpoint::load::{Candidate, believe};
use super::controller::Controller;
use super::extents::{Change, Extent, ExtentKind, Extents};
use super::flood::Flood;
use super::frames::Frames;
use super::frames::found::FramesFound;
use super::index::deferred::DeferredIndex;
use super::index::{Entry as Indexed, Index, Run};
use super::keys::found::KeysFound;
use super::once::Doubtful;
use super::ordered::{Found, FoundOrder};
use super::policies::Policies;
use super::reclaim::Reclaim;
use super::scan::{BatchRecord, Scan, SegmentSpan, SegmentView, survey_to_visit, visit_from};
use super::segments::{Segment, SegmentState, Segments};
use super::{InternalAppend, Log, LogStart, LogStore, MissingSummary, Stated};
use crate::composition::Composition;
use crate::composition::axes::OrderChoice;
use crate::effect::{Errno, WriteMode};
use crate::format::{
    CheckpointArea, Entry, EntryKind, KeyLayout, Layout, PayloadCursor, SEGMENTS_OFFSET, SummaryBuilder,
    Superblock,
};
use crate::image::Image;
use crate::machine::destage::order::ledger::DataVersion;
use crate::machine::guard::Blocks;
use crate::machine::volume::Volume;
use crate::mutation::{Mutation, Mutations};
use crate::number::{self, to_u8, to_u32};
use crate::recovery::{OpenError, Opened, OpenedStore, Options, Report, Sampling, volumes_of};
use crate::units::{BLOCK_BYTES, BlockKey, Place, SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeId, VolumeIndex};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use slab::Slab;
use start::Start;

/// A log as recovery found it.
pub(crate) struct OpenedLog {
    pub store: LogStore,
    stale_blocks: Vec<u64>,
    base_sequence: u64,
    was_repaired: bool,
    /// Ranges of the device in which each half has something of its own, by their offset: of those whose copies may differ otherwise.
    differing: BTreeMap<u64, u64>,
    /// The checksums of data where the copies may differ, by offset; of what was written again since, too.
    checksums: BTreeMap<u64, u32>,
    /// Whether the copies of segments may differ, by their numbers.
    may_differ: Vec<bool>,
    /// The checkpoint that was loaded.
    believed: Option<(CheckpointArea, Candidate)>,
}

impl OpenedLog {
    /// Where the record of the checkpoint that was loaded is on the device, in bytes.
    pub(super) fn believed_at(&self) -> Option<u64> {
        self.believed.map(|(area, candidate)| area.record_at(candidate.side))
    }

    /// Lets the checkpoint that was loaded count in this session, too.
    pub fn believe_checkpoint<I: Image>(&self, image: &mut I, session: u64) {
        if let Some((area, candidate)) = &self.believed {
            believe(image, area, *candidate, session);
        }
    }

    /// RULE 20: the checksums of data where the halves of a mirrored cache may differ, by offset.
    pub fn checksums_where_halves_may_differ(&self) -> &BTreeMap<u64, u32> {
        &self.checksums
    }

    /// Whether the halves of a mirrored cache may differ near a place. Of buckets that is not known.
    pub fn may_differ_near(&self, place: Place) -> bool {
        let segment = number::index(self.store.segments.of(place));
        self.may_differ.get(segment).is_none_or(|may| *may)
    }

    /// RULE 20: whether each half of a mirrored cache has something of its own at an offset.
    pub fn differs_at(&self, offset_bytes: u64) -> bool {
        let before = self.differing.range(..=offset_bytes).next_back();
        before.is_some_and(|(from, len)| offset_bytes < from + len)
    }

    /// Wipes heads and footers of a dead tail: the cut protects against them only until the log has grown past
    /// their sequences.
    pub fn wipe_dead_tail<I: Image>(&self, image: &mut I, mutations: Mutations) -> Result<(), Errno> {
        for &offset_bytes in &self.stale_blocks {
            if !mutations.has(Mutation::KeepDeadTail) {
                image.write(offset_bytes, &[0; number::index_wide(BLOCK_BYTES)])?;
            }
        }
        Ok(())
    }

    /// Records in the superblock where the log was cut.
    pub fn record_cut(&self, superblock: &mut Superblock, mutations: Mutations) {
        superblock.cut_sequence = self.store.log.published();
        superblock.flushed_sequence = 0;
        superblock.base_sequence = self.base_sequence;
        // RULE 14: what comes behind a cut has the sequences of what was cut off.
        if !mutations.has(Mutation::OrderEndsBehindCut) {
            superblock.ordered_sequence = superblock.ordered_sequence.min(superblock.cut_sequence);
        }
        if self.was_repaired && !mutations.has(Mutation::TrustCleanAfterRepair) {
            // Clean copies from before the cut may be older than what the origin got after it.
            for record in superblock.volumes.iter_mut().flatten() {
                record.clean_floor_sequence = superblock.cut_sequence + 1;
            }
        }
    }

    /// Clean cached blocks, all if there are no more than `count`, else that many chosen by `random`, as volume, byte
    /// offset on the origin and checksum.
    pub fn sample_clean(
        &self,
        volumes: &[Option<Volume>; VOLUMES_MAX],
        count: usize,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<(VolumeIndex, u64, u32)> {
        let mut sampling = Sampling::new(count);
        let sample = |key: BlockKey, entry: Indexed| {
            // The last block may be short.
            let is_last = volumes[key.volume().at()].as_ref().is_none_or(|v| key.block() + 1 >= v.blocks());
            (!entry.dirty && !is_last).then_some((key.volume(), key.block() * BLOCK_BYTES, entry.checksum))
        };
        let index = &self.store.index;
        for _ in 0..sampling.tries(index.len()) {
            let Some((key, entry)) = index.sample(random) else { break };
            sampling.pick(sample(key, entry));
        }
        if sampling.is_short() {
            index.for_each(|key, entry| sampling.offer(sample(key, entry), random));
        }
        sampling.chosen()
    }
}

/// The content of the device behind the ring, by the keys that lead to it.
enum BehindRing {
    Nothing,
    Buckets(KeysFound),
    Frames(FramesFound),
}

impl BehindRing {
    fn layout(&self) -> Option<&KeyLayout> {
        match self {
            BehindRing::Nothing => None,
            BehindRing::Buckets(keys) => Some(keys.layout()),
            BehindRing::Frames(frames) => Some(&frames.layout),
        }
    }

    /// Whether what an entry names lies where this cache has such data.
    fn has(&self, entry: &Entry) -> bool {
        match self {
            BehindRing::Nothing => !entry.kind.is_key(),
            BehindRing::Buckets(keys) => keys.has(entry) || !entry.kind.has_payload(),
            BehindRing::Frames(frames) => !entry.kind.is_key() || frames.has(entry) && !entry.kind.is_dirty(),
        }
    }
}

pub(super) struct Replay {
    pub index: DeferredIndex,
    pub extents: Extents,
    volumes: [Option<Volume>; VOLUMES_MAX],
    by_id: BTreeMap<VolumeId, VolumeIndex>,
    /// Volumes whose clean data up to a sequence is void, until the replay passes it.
    clean_floors: Vec<(u64, VolumeIndex)>,
    segment_blocks: u32,
    entries: u64,
    /// Blocks that a checkpoint told.
    loaded_blocks: u64,
    /// The checkpoint that was loaded.
    believed: Option<(CheckpointArea, Candidate)>,
    mutations: Mutations,
    behind: BehindRing,
    /// By volume, if the order is strict.
    orders: Option<[FoundOrder; VOLUMES_MAX]>,
    /// The batch that is being replayed.
    sequence: u64,
    /// All up to it is home.
    ordered_sequence: u64,
    /// The generations of segments from which on counts what a half has alone; `None` where nothing is kept so.
    once_counts_from: Option<[u64; 2]>,
    /// Whether the copies of segments may differ, by their numbers.
    may_differ: Vec<bool>,
    differing: BTreeMap<u64, u64>,
    checksums: BTreeMap<u64, u32>,
    /// See [`super::once`].
    pub(super) doubtful: Vec<Doubtful>,
    pub(super) torn: Vec<(VolumeIndex, Blocks)>,
    /// The summaries of segments that have none on the device.
    unsealed: BTreeMap<u32, (SummaryBuilder, u32)>,
}

/// Reads the log and replays it, from the newest checkpoint on.
pub(crate) fn read<I: Image>(
    image: &mut I,
    superblock: Superblock,
    options: Options,
) -> Result<Opened, OpenError> {
    read_from(image, superblock, options, true)
}

/// The same, as a whole if checkpoints do not count.
pub(super) fn read_from<I: Image>(
    image: &mut I,
    superblock: Superblock,
    options: Options,
    counts_checkpoints: bool,
) -> Result<Opened, OpenError> {
    let composition = Composition::of(&superblock)?;
    let mut replay = Replay::new(&superblock, options);
    replay.look_at_halves(image, &superblock);
    let mutations = options.mutations;
    let mut survey = survey_to_visit(image, &superblock, options.repair, mutations)?;
    let start = match counts_checkpoints {
        true => replay.load_checkpoint(image, &superblock, &mut survey, options),
        false => Start { from: 0, checkpoints: None },
    };
    let found = visit_from(image, &superblock, survey, start.from, mutations, &mut |view, batch| {
        replay.batch(view, batch)
    })?;
    if found.repaired.is_some() && !options.mutations.has(Mutation::TrustCleanAfterRepair) {
        let all = replay.volumes.iter().flatten().map(|volume| (0, volume.index)).collect();
        replay.clean_floors = all;
    }
    replay.pass_clean_floors(u64::MAX);
    replay.drop_torn(image);
    Ok(replay.finish(superblock, found, &composition, start.checkpoints))
}

impl Replay {
    /// A replay of nothing yet.
    pub fn new(superblock: &Superblock, options: Options) -> Replay {
        let mut by_id = BTreeMap::new();
        let mut clean_floors = Vec::new();
        for (at, record) in superblock.volumes.iter().enumerate() {
            let Some(record) = record else { continue };
            let index = VolumeIndex(to_u8(at));
            by_id.insert(record.id, index);
            if record.clean_floor_sequence > 0 {
                clean_floors.push((record.clean_floor_sequence, index));
            }
        }
        Replay {
            // Frames want to hear of each change in its turn.
            index: DeferredIndex::new(
                options.index_budget_bytes,
                !matches!(superblock.layout, Layout::Frames(_)),
            ),
            extents: Extents::default(),
            volumes: volumes_of(superblock),
            by_id,
            clean_floors,
            segment_blocks: superblock.geometry().segment_blocks,
            entries: 0,
            loaded_blocks: 0,
            believed: None,
            mutations: options.mutations,
            behind: match superblock.layout {
                Layout::Keys(layout) => BehindRing::Buckets(KeysFound::new(layout)),
                Layout::Frames(layout) => BehindRing::Frames(FramesFound::new(layout)),
                Layout::Log(_) | Layout::Slots(_) => BehindRing::Nothing,
            },
            orders: Composition::of(superblock)
                .is_ok_and(|composition| matches!(composition.order, OrderChoice::Strict(_)))
                .then(Default::default),
            sequence: 0,
            ordered_sequence: superblock.ordered_sequence,
            once_counts_from: None,
            may_differ: Vec::new(),
            differing: BTreeMap::new(),
            checksums: BTreeMap::new(),
            doubtful: Vec::new(),
            torn: Vec::new(),
            unsealed: BTreeMap::new(),
        }
    }

    /// Takes the next batch.
    pub fn batch(&mut self, view: SegmentView, batch: &BatchRecord) {
        self.pass_clean_floors(batch.sequence);
        self.sequence = batch.sequence;
        let base = view.segment * self.segment_blocks;
        let header_place = Place(base + batch.header_block);
        let mut payload = PayloadCursor::new(&batch.entries);
        let mut checksums_at = 0;
        for entry in &batch.entries {
            self.entries += 1;
            let blocks = number::index(entry.payload_blocks);
            let checksums = &batch.checksums[checksums_at..checksums_at + blocks];
            checksums_at += blocks;
            let volume = self.by_id.get(&entry.volume).copied();
            if let BehindRing::Buckets(keys) = &mut self.behind {
                let is_off = self.mutations.has(Mutation::ForgetFreed);
                for held in keys.pass(volume, entry, is_off) {
                    self.index.remove_places(held.first, held.place, held.blocks);
                }
            }
            if entry.kind == EntryKind::CleanOnce {
                for run in payload.pass_once(entry).into_iter().filter(|run| run.blocks > 0) {
                    let from = number::index(run.skip);
                    let checksums = &checksums[from..from + number::index(run.blocks)];
                    let place = Place(base + batch.payload_block + run.at);
                    self.note_own(run, place, view);
                    if let Some(volume) = volume {
                        self.once(volume, (entry, run), place, checksums, view);
                    }
                }
                continue;
            }
            let at = payload.pass(entry);
            let place = if entry.kind.is_key() {
                Place(to_u32(entry.extra))
            } else {
                Place(base + batch.payload_block + at)
            };
            self.note_checksums(view, place, checksums);
            if let Some(volume) = volume.filter(|_| self.behind.has(entry)) {
                // RULE 14: it went home in strict order, whose end says so and nothing else.
                let is_home = view.is_home || self.sequence <= self.ordered_sequence;
                self.entry(volume, entry, place, header_place, checksums, is_home);
            }
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

    /// The offset of a place on the device, or on the half that it tells.
    pub(super) fn offset_bytes(&self, place: Place) -> u64 {
        let block = if self.once_counts_from.is_some() { place.block_of_half() } else { place };
        SEGMENTS_OFFSET + u64::from(block.0) * BLOCK_BYTES
    }

    fn entry(
        &mut self,
        volume: VolumeIndex,
        entry: &Entry,
        place: Place,
        header_place: Place,
        checksums: &[u32],
        is_home: bool,
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
                // What is home in a segment does not apply to data in buckets.
                let is_dirty = entry.kind.is_dirty() && !(is_home && entry.kind == EntryKind::Dirty);
                self.put(Run { first, place, dirty: is_dirty, hits: 0, checksums });
                self.extents.cut(first, blocks, |_| ());
                if let (EntryKind::Dirty, Some(orders)) = (entry.kind, &mut self.orders) {
                    orders[volume.at()].wrote(self.sequence, first_block, place, checksums);
                }
            }
            EntryKind::Zero if self.sequence <= self.ordered_sequence => self.drop_range(first, blocks),
            EntryKind::Zero | EntryKind::Lost => {
                self.drop_range(first, blocks);
                let kind = if entry.kind == EntryKind::Zero { ExtentKind::Zero } else { ExtentKind::Lost };
                self.extents.insert(Extent { first, blocks, kind, place: header_place });
                let blocks = Blocks { first: first_block, count: blocks };
                match (kind, &mut self.orders) {
                    (ExtentKind::Zero, Some(orders)) => {
                        orders[volume.at()].zeroed(self.sequence, blocks, header_place);
                    }
                    (ExtentKind::Lost, Some(orders)) => orders[volume.at()].forget(blocks),
                    (_, None) => (),
                }
            }
            EntryKind::Tombstone => {
                self.drop_range(first, blocks);
                if let Some(orders) = &mut self.orders {
                    orders[volume.at()].forget(Blocks { first: first_block, count: blocks });
                }
            }
            EntryKind::Cleaned => self.cleaned(first, blocks, Place(to_u32(entry.extra))),
            EntryKind::ZeroHome => self.zero_home(first, blocks, Place(to_u32(entry.extra))),
            EntryKind::Evicted => self.evicted(first, blocks, Place(to_u32(entry.extra))),
            EntryKind::Freed => (),
            EntryKind::Interval => self.interval_begins(volume, entry.extra),
            EntryKind::CleanOnce => unreachable!("it is where each half has its own"),
        }
    }

    /// Blocks lie at places from now on.
    fn put(&mut self, run: Run<'_>) {
        let Replay { index, behind, volumes, .. } = self;
        let BehindRing::Frames(frames) = behind else {
            if index.has_sums()
                && run.dirty
                && let Some(volume) = &mut volumes[run.first.volume().at()]
            {
                // The sums do not tell where what is dirty lies.
                volume.destage.map.mark(run.first.block(), number::wide(run.checksums.len()));
            }
            return index.insert(run);
        };
        let (index, blocks) = (index.settled(), number::wide(run.checksums.len()));
        if !run.dirty && index.is_tight(blocks) {
            // A smaller budget than before: clean data is dropped, dirty data never.
            index.remove_range(run.first, blocks, |key, old| frames.lost(key, old.place));
            frames.refused(run.first, run.place, blocks);
        } else {
            index.insert(run, |key, old| frames.lost(key, old.place));
            frames.settled(run.place, blocks);
        }
    }

    /// Another interval of a volume begins, and everything up to `home` is home.
    fn interval_begins(&mut self, volume: VolumeIndex, home: u64) {
        let Some(orders) = &mut self.orders else { return };
        for at_home in orders[volume.at()].begins(self.sequence, home) {
            match at_home {
                Found::Data(DataVersion { block, place, .. }) => {
                    self.cleaned(BlockKey::new(volume, block), 1, place);
                }
                Found::Zeroes(Blocks { first, count }, place) => {
                    self.zero_home(BlockKey::new(volume, first), count, place);
                }
            }
        }
    }

    /// Nothing counts any more of what entries before said of a range.
    fn drop_range(&mut self, first: BlockKey, blocks: u64) {
        let Replay { index, behind, .. } = self;
        match behind {
            BehindRing::Frames(frames) => {
                index.settled().remove_range(first, blocks, |key, old| frames.lost(key, old.place));
            }
            _ => index.remove_range(first, blocks),
        }
        self.extents.cut(first, blocks, |_| ());
    }

    /// These very copies left; copies elsewhere did not.
    fn evicted(&mut self, first: BlockKey, blocks: u64, place: Place) {
        if self.is_hostile(blocks) || self.mutations.has(Mutation::ForgetFreed) {
            return;
        }
        self.index.evict(first, place, blocks);
        if let BehindRing::Frames(frames) = &mut self.behind {
            frames.settled(place, blocks);
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
        if self.is_hostile(blocks) {
            return;
        }
        if self.mutations.has(Mutation::ReplayCleansNewer) {
            for key in (first.0..first.0 + blocks).map(BlockKey) {
                let index = self.index.settled();
                if index.get(key).is_some_and(|entry| entry.dirty) {
                    index.set_dirty(key, false);
                }
            }
            return;
        }
        self.index.clean(first, place, blocks);
    }

    /// A record of what left or went home is not longer than what the index has, unless its bytes are hostile.
    fn is_hostile(&self, blocks: u64) -> bool {
        blocks > self.index.len_max().saturating_mul(2).max(1024)
    }

    /// Where the replay reaches the sequence from which on a volume's clean data counts, what is clean before is void.
    fn pass_clean_floors(&mut self, sequence: u64) {
        if self.clean_floors.is_empty() {
            return;
        }
        let Replay { clean_floors, index, volumes, behind, .. } = self;
        clean_floors.retain(|&(floor, volume)| {
            if sequence < floor {
                return true;
            }
            let blocks = volumes[volume.at()].as_ref().map_or(0, Volume::blocks);
            let index = index.settled();
            let mut clean = Vec::new();
            index.for_each(|key, entry| {
                if key.volume() == volume && key.block() < blocks && !entry.dirty {
                    clean.push((key, entry.place));
                }
            });
            for (key, place) in clean {
                index.remove(key);
                if let BehindRing::Frames(frames) = behind {
                    frames.lost(key, place);
                }
            }
            false
        });
    }

    /// Takes what recovery read for what the cache holds: sums, and the parts of a store.
    fn finish(
        mut self,
        superblock: Superblock,
        found: Scan,
        composition: &Composition,
        checkpoints: Option<Box<Checkpoints>>,
    ) -> Opened {
        let (mut segments, missing_summaries) = self.restore_segments(&superblock, &found);
        let found_oldest = found.oldest_dirty_sequence;
        let mut index = self.finish_index(&mut segments);
        self.drop_zeroes_below(found_oldest, &segments);
        self.count_extents(&mut segments);
        if let Some(orders) = self.orders.take() {
            for (volume, found) in self.volumes.iter_mut().zip(orders) {
                if let Some(volume) = volume.as_mut().filter(|volume| volume.mode == WriteMode::Writeback) {
                    volume.destage.set_order(Some(found.into_ledger(found_oldest, &mut segments)));
                }
            }
        }
        let Replay { extents, mut volumes, entries, loaded_blocks, mutations, behind, .. } = self;
        let Replay { torn, differing, checksums, may_differ, believed, once_counts_from, .. } = self;
        let dirty_blocks: u64 =
            volumes.iter().flatten().map(|volume| volume.dirty_blocks + volume.zero_blocks).sum();
        let report = Report {
            batches_cut: found.batches_cut,
            redestage_bytes: dirty_blocks * BLOCK_BYTES,
            entries,
            loaded_blocks,
            blocks: index.len(),
            was_clean: superblock.clean_stop,
        };
        let mut log = Log::new(LogStart {
            set_id: superblock.set_id,
            session: superblock.session,
            last_generation: found.end.last_generation,
            next_sequence: found.end.next_sequence,
            chain: found.end.last_header_checksum,
            open: found.end.open.map(|open| (open.segment, open.next_block, open.summary)),
            missing_summaries,
            stated: Stated {
                floor_sequence: found.floor_sequence,
                oldest_dirty_sequence: found.oldest_dirty_sequence,
            },
        });
        // RULE 20: what was to be there and is not must stay away when its device brings it after all.
        for (volume, blocks) in torn {
            let (request, oldest_dirty_sequence) = (None, None);
            log.push_internal(InternalAppend::Tombstone { volume, blocks, request, oldest_dirty_sequence });
        }
        segments.mutations = mutations;
        // Of a larger device the rest is not used.
        let cache_blocks = (superblock.cache_bytes / BLOCK_BYTES).min(u64::from(Place::END));
        let seed = u64::from_le_bytes(core::array::from_fn(|at| superblock.set_id[at]));
        let policies = Policies::new(composition, to_u32(cache_blocks), seed);
        let controller = Controller::new(composition, &segments);
        let (appender, shared) = match behind {
            BehindRing::Nothing => (Appender::new(composition, cache_blocks), Vec::new()),
            BehindRing::Buckets(keys) => {
                let keys = keys.into_keys(composition, &index, &mut segments, seed);
                (Appender::Keys(Box::new(keys)), Vec::new())
            }
            BehindRing::Frames(found) => {
                let (frames, shared) = Frames::new(composition, found, &index, seed);
                (Appender::Frames(Box::new(frames)), shared)
            }
        };
        leave_out(shared, &mut index, &mut segments, &mut volumes);
        // RULE 8: a start with more memory may believe what this one left out.
        let left_out_to = index.has_left_out().then_some(found.end.next_sequence);
        let store = LogStore {
            index,
            left_out_to,
            extents,
            segments,
            log,
            reclaim: Reclaim::new(composition, appender.is_inline() && controller.destage.is_sweep()),
            flood: Flood::default(),
            appender,
            once_counts_from,
            passed_halves: [false; 2],
            scrubs: Slab::new(),
            policies,
            controller,
            checkpoints,
        };
        let log = OpenedLog {
            store,
            stale_blocks: found.stale_blocks,
            base_sequence: found.base_sequence,
            was_repaired: found.repaired.is_some(),
            differing,
            checksums,
            may_differ,
            believed,
        };
        Opened { superblock, report, volumes, store: OpenedStore::Log(Box::new(log)) }
    }

    /// The segments as the scan found them, nothing live in them yet, and the summaries that a crash kept from them.
    fn restore_segments(&mut self, superblock: &Superblock, found: &Scan) -> (Segments, Vec<MissingSummary>) {
        let geometry = superblock.geometry();
        let mut segments = Segments::new(geometry.segments, geometry.segment_blocks);
        if let Some(layout) = self.behind.layout() {
            segments.add_buckets(layout.buckets, layout.bucket_blocks);
        }
        if self.once_counts_from.is_some() {
            segments.name_halves();
        }
        let open_segment = found.end.open.as_ref().map(|open| open.segment);
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
                    is_read_on: false,
                    hits_before: 0,
                },
            );
            if !span.sealed
                && !is_open
                && let Some((summary, last_header_checksum)) = self.unsealed.remove(&span.segment)
            {
                let SegmentSpan { segment, floor_sequence, oldest_dirty_sequence, .. } = *span;
                let stated = Stated { floor_sequence, oldest_dirty_sequence };
                missing_summaries.push(MissingSummary { segment, summary, last_header_checksum, stated });
            }
        }
        (segments, missing_summaries)
    }

    /// RULE 2: below the oldest dirty sequence all zeroes are home, recorded one by one or not.
    fn drop_zeroes_below(&mut self, oldest_dirty_sequence: u64, segments: &Segments) {
        let is_below = |place: Place| segments.get(segments.of(place)).last_sequence < oldest_dirty_sequence;
        let home: Vec<Extent> = self
            .extents
            .iter()
            .filter(|extent| extent.kind == ExtentKind::Zero && is_below(extent.place))
            .collect();
        for extent in home {
            self.extents.cut(extent.first, extent.blocks, |_| ());
        }
    }

    /// The index, and what each segment and each volume has of it.
    fn finish_index(&mut self, segments: &mut Segments) -> Index {
        let index = core::mem::replace(&mut self.index, DeferredIndex::new(0, false));
        // Segments are many and large, so that they are no place to count in.
        let mut counts = alloc::vec![(0, 0); segments.count_with_buckets()];
        let (index, sums) = index.finish(|key, blocks, place, is_dirty| {
            let mut count = |place, blocks| {
                let (live, must) = &mut counts[number::index(segments.of(place))];
                *live += blocks;
                *must += if is_dirty { blocks } else { 0 };
            };
            // Blocks of two buckets may share an entry.
            let last = Place(place.0 + (blocks - 1));
            if segments.of(place) == segments.of(last) {
                count(place, blocks);
            } else {
                (place.0..=last.0).for_each(|place| count(Place(place), 1));
            }
            if let Some(volume) = &mut self.volumes[key.volume().at()] {
                let blocks = u64::from(blocks);
                volume.cached_blocks += blocks;
                if is_dirty {
                    volume.dirty_blocks += blocks;
                    volume.destage.map.mark(key.block(), blocks);
                }
            }
        });
        if let Some(sums) = sums {
            for (count, sum) in counts.iter_mut().zip(&sums.segments) {
                *count = (sum.blocks, sum.dirty);
            }
            for (volume, sum) in self.volumes.iter_mut().zip(sums.volumes) {
                if let Some(volume) = volume {
                    (volume.cached_blocks, volume.dirty_blocks) = (sum.blocks, sum.dirty);
                }
            }
        }
        for (at, (live, must)) in (0..).zip(counts) {
            segments.add_counts(at, live, must);
        }
        index
    }

    /// Counts the extents for their segments and volumes, when the blocks are counted.
    fn count_extents(&mut self, segments: &mut Segments) {
        let Replay { extents, volumes, .. } = self;
        for extent in extents.iter() {
            segments.add_must(extent.place, 1);
            if let Some(volume) = &mut volumes[extent.first.volume().at()] {
                volume.count_extent(Change::Added(extent));
            }
        }
        for volume in volumes.iter_mut().flatten() {
            volume.is_leaving = volume.mode != WriteMode::Writeback && volume.is_dirty();
        }
    }
}

/// HAZARD 15: leaves clean blocks out whose places others have, which only hostile keys lead to.
fn leave_out(
    blocks: Vec<BlockKey>,
    index: &mut Index,
    segments: &mut Segments,
    volumes: &mut [Option<Volume>; VOLUMES_MAX],
) {
    for key in blocks {
        let Some(entry) = index.remove(key) else { continue };
        index.leave_out();
        segments.remove_live(entry.place, entry.dirty);
        if let Some(volume) = &mut volumes[key.volume().at()] {
            volume.cached_blocks -= 1;
        }
    }
}
