//! Recovery: from the content of the cache device to an engine that can serve, in the same steps after a clean stop
//! and after any crash.
//!
//! 1. The superblock is read and judged (`superblock.rs`). It names the kind of store.
//! 2. The store's records are read and judged. A log is scanned (`store/log/scan/`) and replayed
//!    (`store/log/recovery.rs`); slots have pages (`store/slots/recovery/`).
//! 3. The store makes records void that the next session must not take for its own: the log wipes heads and footers of a dead
//!    tail, slots take back records of volumes that have another number now.
//! 4. The cache is flushed, and the new session is written to both copies of the superblock in turn, a flush after each
//!    (rule 6). A log's superblock has the cut with it. A crash up to here repeats recovery with the same result.

mod ephemeral;
mod lasting;
#[cfg(test)]
mod mirrored_tests;
mod origin;
mod sampling;
mod start;
mod succession;
mod superblock;

use crate::composition::stored::StoredError;
use crate::composition::support::Lack;
use crate::effect::Errno;
use crate::format::{FormatError, Layout, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Succession, Superblock};
use crate::image::{Image, Known};
use crate::machine::volume::Volume;
use crate::mutation::{Mutation, Mutations};
use crate::number::to_u8;
use crate::salvage::Dirty;
use crate::store::log;
use crate::store::log::recovery::OpenedLog;
use crate::store::log::scan::ScanError;
use crate::store::slots::records::persistence::commit::PagesError;
use crate::store::slots::recovery::plan::PlanError;
use crate::store::slots::{self, SlotStore};
use crate::store::{Durability, Lookup};
use crate::units::{BLOCK_BYTES, VOLUMES_MAX, VolumeIndex, payload_checksum};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub use ephemeral::{Lacking, NotedVolume, is_replaced, may_be_replaced, needs_its_cache};
pub use lasting::{late_headers, restore};
pub use origin::{Difference, Growth, OriginSeen, compare_origin, is_rolled_back};
pub(crate) use sampling::Sampling;
pub use start::{Held, SAMPLES, Sample, StartError, start};
pub use succession::{SuccessionError, hand_over, heir, remake, write_heir};
pub use superblock::{CopyHealth, CopyState, SuperblockError, load_superblock};

/// Settings for opening a cache.
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
    /// The cache gave its place up, or waits for that of another one.
    #[error("The cache {}", match .0 {
        Succession::None => "is in no line",
        Succession::Heir { .. } => "waits to take the place of another one",
        Succession::Replaced { .. } => "gave its place to another one",
        Succession::Remade { .. } => "is being made anew",
    })]
    Succession(Succession),
    /// The superblock does not describe a composition.
    #[error(transparent)]
    Composition(#[from] StoredError),
    /// The engine cannot run a cache of this composition.
    #[error("This version cannot run a cache with {0} yet")]
    Unsupported(Lack),
    /// The records of the slots contradict each other.
    #[error(transparent)]
    Slots(#[from] PlanError),
    /// A page of the slots' records cannot be read.
    #[error("Page {page} of the slots' records cannot be trusted: {error}")]
    SlotPage {
        /// The page.
        page: u32,
        /// The error in it.
        error: FormatError,
    },
    /// A page of the slots' checksums cannot be read.
    #[error("Page {page} of the slots' checksums cannot be trusted: {error}")]
    ChecksumPage {
        /// The page.
        page: u32,
        /// The error in it.
        error: FormatError,
    },
    /// No valid transaction is recorded.
    #[error("There is no record of any transaction that can be trusted")]
    NoCommit,
    /// A record of transactions was written and cannot be read: it may be the one that counts.
    #[error("A record of the slots' transactions cannot be trusted: {error}")]
    CommitRecord {
        /// The error in it.
        error: FormatError,
    },
    /// Nobody can tell which pages of the slots' mappings count.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// A tree of dirty bits cannot be read.
    #[error("Page {page} of the trees of dirty bits cannot be trusted: {error}")]
    TreePage {
        /// The page.
        page: u32,
        /// The error in it.
        error: FormatError,
    },
    /// The cache device failed while the new session was written.
    #[error("The cache device failed a write (errno {})", .0.0)]
    Device(Errno),
}

/// Figures of a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Batches at the end of the log that were not whole, or not in order.
    pub batches_cut: u64,
    /// Dirty bytes, which go to the origins once more.
    pub redestage_bytes: u64,
    /// Log entries replayed.
    pub entries: u64,
    /// Blocks that a checkpoint told before.
    pub loaded_blocks: u64,
    /// Blocks in the index, dirty and clean.
    pub blocks: u64,
    /// Whether the last session ended with a clean stop, and transactions recorded what was clean then.
    pub was_clean: bool,
}

/// An opened cache, which [`crate::engine::Engine::new`] begins with.
pub struct Opened {
    /// The superblock; with the new session once that has begun.
    pub superblock: Superblock,
    /// Figures of the recovery.
    pub report: Report,
    pub(crate) volumes: [Option<Volume>; VOLUMES_MAX],
    pub(crate) store: OpenedStore,
}

/// A slot whose content the origin has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanSlot {
    /// The volume.
    pub volume: VolumeIndex,
    /// Its first block.
    pub first_block: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// Their offset on the cache device, in bytes.
    pub offset_bytes: u64,
}

/// A clean block in a slot, which the origin has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanSample {
    /// The volume.
    pub volume: VolumeIndex,
    /// Where the block is on the origin, in bytes.
    pub origin_offset_bytes: u64,
    /// Where it is on the cache device, in bytes.
    pub cache_offset_bytes: u64,
    /// Its checksum, if that is known: what the cache device has otherwise rotted there.
    pub checksum: Option<u32>,
}

/// A block in a slot whose checksum is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownBlock {
    /// Where it is on the cache device, in bytes.
    pub offset_bytes: u64,
    /// Its checksum.
    pub checksum: u32,
}

/// The store as recovery found it.
pub(crate) enum OpenedStore {
    Log(Box<OpenedLog>),
    Slots(Box<SlotStore>),
}

impl Opened {
    /// Dirty bytes of a volume, lost ones included.
    #[must_use]
    pub fn dirty_bytes(&self, index: VolumeIndex) -> u64 {
        self.volumes[index.at()]
            .as_ref()
            .map_or(0, |volume| (volume.dirty_blocks + volume.zero_blocks + volume.lost_blocks) * BLOCK_BYTES)
    }

    /// Cached bytes of a volume, dirty or clean.
    #[must_use]
    pub fn cached_bytes(&self, index: VolumeIndex) -> u64 {
        self.volumes[index.at()].as_ref().map_or(0, |volume| volume.cached_blocks * BLOCK_BYTES)
    }

    /// The last batch of a log; 0 with slots.
    fn last_sequence(&self) -> u64 {
        match &self.store {
            OpenedStore::Log(log) => log.store.completed(),
            OpenedStore::Slots(_) => 0,
        }
    }

    /// The checksums of the blocks that a log holds where copies may differ, by their offset on the cache device, and of those that
    /// it held; none with slots. What is dirty may be so much that a list of it all takes seconds.
    fn checksums(&self) -> BTreeMap<u64, u32> {
        let mut known = BTreeMap::new();
        if let OpenedStore::Log(log) = &self.store {
            known.extend(log.checksums_where_halves_may_differ());
            log.store.index.for_each(|_, entry| {
                if log.store.half_of(entry.place).is_none() && log.may_differ_near(entry.place) {
                    known.insert(log.store.offset_bytes(entry.place), entry.checksum);
                }
            });
            let ordered = self.volumes.iter().flatten().flat_map(|volume| volume.destage.ordered_places());
            let ordered = ordered.filter(|(place, _)| log.may_differ_near(*place));
            known.extend(ordered.map(|(place, checksum)| (log.store.offset_bytes(place), checksum)));
        }
        known
    }

    /// Clean slots. Empty for a log.
    #[must_use]
    pub fn clean_slots(&self) -> Vec<CleanSlot> {
        match &self.store {
            OpenedStore::Log(_) => Vec::new(),
            OpenedStore::Slots(store) => store.clean_slots(&self.volumes),
        }
    }

    /// All that only the cache has.
    pub(crate) fn dirty(&self) -> Vec<Dirty> {
        match &self.store {
            OpenedStore::Log(log) => log.store.dirty(),
            OpenedStore::Slots(store) => store.dirty(&self.volumes),
        }
    }

    /// Calls `visit` with each slot, and those of its blocks whose checksums the device tells and that are not lost. A log has
    /// none.
    pub(crate) fn each_known_block(&self, visit: &mut dyn FnMut(u32, &[KnownBlock])) {
        if let OpenedStore::Slots(store) = &self.store {
            store.each_known(&self.volumes, visit);
        }
    }

    /// Clean blocks in slots, all if there are no more than `count`, else that many chosen by `random`: the origin must have
    /// the same (rule 11).
    pub fn sample_clean_slots(&self, count: usize, random: &mut dyn FnMut() -> u64) -> Vec<CleanSample> {
        match &self.store {
            OpenedStore::Log(_) => Vec::new(),
            OpenedStore::Slots(store) => store.sample_clean(&self.volumes, count, random),
        }
    }

    /// Clean cached blocks of a log, all if there are no more than `count`, else that many chosen by `random`, as volume,
    /// byte offset on the origin and checksum: the origin must have the same there (rule 11).
    pub fn sample_clean(
        &self,
        count: usize,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<(VolumeIndex, u64, u32)> {
        match &self.store {
            OpenedStore::Log(log) => log.sample_clean(&self.volumes, count, random),
            OpenedStore::Slots(_) => Vec::new(),
        }
    }
}

/// Opens the cache on `image`: recovers, and begins a new session.
///
/// # Errors
/// [`OpenError`]; nothing was written unless it is [`OpenError::Device`].
pub fn open<I: Image>(image: &mut I, options: Options) -> Result<Opened, OpenError> {
    let mut opened = inspect(image, options)?;
    // Who has memory that outlives the process begins the session by itself.
    opened.superblock.lasting_boot = Default::default();
    begin_session(image, opened, options.mutations)
}

/// Reads the cache on `image` as [`open`] would find it, and writes nothing: what may still refuse a start comes
/// between this and [`begin_session`].
///
/// # Errors
/// As [`open`].
pub fn inspect<I: Image>(image: &mut I, options: Options) -> Result<Opened, OpenError> {
    if options.repair {
        // RULE 20: nothing is cut off that another copy has.
        let whole = inspect(image, Options { repair: false, ..options });
        if whole.is_ok() {
            return whole;
        }
    }
    let found = inspect_damaged(image, options);
    // After a clean stop two copies say the same.
    if found.as_ref().is_ok_and(|found| found.superblock.clean_stop) || !image.turn_over() {
        return found;
    }
    // RULE 20: a crash, a failed flush or rot may have taken from one copy what the other one has.
    let other = inspect_damaged(image, options);
    let takes_first = match (&found, &other) {
        (Ok(first), Ok(second)) => first.last_sequence() >= second.last_sequence(),
        (Ok(_), Err(_)) => true,
        (Err(_), Ok(_)) => false,
        (Err(_), Err(_)) => true,
    };
    if takes_first {
        image.turn_over();
        return found;
    }
    other
}

/// Reads the cache on one copy of `image`, and segments in which that is damaged on the other one.
fn inspect_damaged<I: Image>(image: &mut I, options: Options) -> Result<Opened, OpenError> {
    loop {
        let found = inspect_copy(image, options);
        let Err(OpenError::Scan(ScanError::Corrupt { segment, .. })) = found else { return found };
        let Ok((superblock, _)) = load_superblock(image) else { return found };
        let geometry = superblock.geometry();
        let len_bytes = u64::from(geometry.segment_blocks) * BLOCK_BYTES;
        // RULE 20: each half may have rotted somewhere else.
        let is_off = options.mutations.has(Mutation::HalfReadAlone);
        if is_off || !image.turn_over_at(geometry.offset_bytes(segment, 0), len_bytes) {
            return found;
        }
    }
}

/// Reads the cache on one copy of `image`.
fn inspect_copy<I: Image>(image: &mut I, options: Options) -> Result<Opened, OpenError> {
    let (superblock, _) = load_superblock(image)?;
    // RULE 16: of a line of caches one is believed.
    if superblock.line.succession != Succession::None {
        return Err(OpenError::Succession(superblock.line.succession));
    }
    match superblock.layout {
        Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => {
            log::recovery::read(image, superblock, options)
        }
        Layout::Slots(layout) => slots::recovery::read(image, superblock, layout, options),
    }
}

/// Begins a new session with what [`inspect`] found: makes it durable, and takes the mark of a clean stop away.
///
/// # Errors
/// [`OpenError::Device`].
pub fn begin_session<I: Image>(
    image: &mut I,
    mut opened: Opened,
    mutations: Mutations,
) -> Result<Opened, OpenError> {
    make_durable(image, &mut opened, mutations).map_err(OpenError::Device)?;
    Ok(opened)
}

/// Makes the two copies of a cache the same, where there are two, by what [`inspect`] found: before anything is written to a cache
/// that is not to run. A session begins with it.
///
/// # Errors
/// The device's errno.
pub fn settle<I: Image>(image: &mut I, opened: &Opened) -> Result<(), Errno> {
    let mut checksums = None;
    image.settle(&mut |offset_bytes, block| {
        if let OpenedStore::Log(log) = &opened.store
            && log.differs_at(offset_bytes)
        {
            return Known::Differs;
        }
        let checksums = checksums.get_or_insert_with(|| opened.checksums());
        match checksums.get(&offset_bytes) {
            None => Known::Nothing,
            Some(checksum) if payload_checksum(block) == *checksum => Known::Right,
            Some(_) => Known::Wrong,
        }
    })
}

fn make_durable<I: Image>(image: &mut I, opened: &mut Opened, mutations: Mutations) -> Result<(), Errno> {
    settle(image, opened)?;
    match &mut opened.store {
        OpenedStore::Log(log) => log.wipe_dead_tail(image, mutations)?,
        OpenedStore::Slots(store) => slots::recovery::begin_session(image, store, &opened.superblock)?,
    }
    // RULE 6: the state that recovery found may be in the device's volatile memory only: it is flushed before a
    // session builds on it.
    let is_unflushed =
        matches!(opened.store, OpenedStore::Slots(_)) && mutations.has(Mutation::StartUnflushed);
    if !mutations.has(Mutation::SkipRecoveryFlush) && !is_unflushed {
        image.flush()?;
    }
    let superblock = &mut opened.superblock;
    superblock.update += 1;
    superblock.session += u64::from(!mutations.has(Mutation::ForgetSessionBump));
    match &opened.store {
        OpenedStore::Log(log) => {
            log.believe_checkpoint(image, superblock.session);
            log.record_cut(superblock, mutations);
        }
        OpenedStore::Slots(_) => slots::recovery::record_numbers(superblock),
    }
    superblock.clean_stop &= mutations.has(Mutation::KeepCleanFlag);
    write_superblock_copies(image, superblock, !is_unflushed)?;
    if let OpenedStore::Log(log) = &mut opened.store
        && !mutations.has(Mutation::ForgetSessionBump)
    {
        log.store.log.begin_session(superblock.session);
    }
    Ok(())
}

/// Writes the records of a new cache, all but its superblock, which is to be written next.
///
/// # Errors
/// The device's errno.
pub fn format<I: Image>(image: &mut I, superblock: &Superblock) -> Result<(), Errno> {
    match &superblock.layout {
        Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => Ok(()),
        Layout::Slots(layout) => slots::recovery::format(image, superblock, layout),
    }
}

/// The byte that void copies of a superblock consist of. No sector of a superblock is made of it, so no part of a write of it
/// makes a superblock whole.
const VOID: u8 = 0xA5;

/// Overwrites what is left of a superblock whose writing was cut off, durably, before another cache is formatted there. A torn
/// write over a torn one may otherwise put the sectors in place that the former lacked: a whole superblock, of a cache that
/// was given up.
///
/// # Errors
/// The device's errno.
pub fn void_superblocks<I: Image>(image: &mut I) -> Result<(), Errno> {
    for offset in SUPERBLOCK_OFFSETS {
        image.write(offset, &[VOID; SUPERBLOCK_BYTES])?;
    }
    image.flush()
}

/// Writes both copies of a superblock in turn, a flush before and after each. Where one copy alone is the newest, because the
/// writing before was cut off, it is written last: a power cut must not bring back what was before that.
///
/// # Errors
/// The device's errno.
pub fn write_superblock<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    mutations: Mutations,
) -> Result<(), Errno> {
    // RULE 6: a process that crashed may have left one copy in the device's volatile cache. While the other one is written, a
    // power cut would tear both.
    if !mutations.has(Mutation::EditUnflushed) {
        image.flush()?;
    }
    write_superblock_copies(image, superblock, true)
}

fn write_superblock_copies<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    is_flushed: bool,
) -> Result<(), Errno> {
    let [first, second] = SUPERBLOCK_OFFSETS;
    let order = match load_superblock(image) {
        Ok((_, [CopyHealth::Current, other])) if other != CopyHealth::Current => [second, first],
        _ => [first, second],
    };
    let mut bytes = alloc::vec![0; SUPERBLOCK_BYTES];
    superblock.encode(&mut bytes);
    for offset in order {
        image.write(offset, &bytes)?;
        if is_flushed {
            image.flush()?;
        }
    }
    Ok(())
}

/// The volumes of a superblock, with nothing in the cache yet.
pub(crate) fn volumes_of(superblock: &Superblock) -> [Option<Volume>; VOLUMES_MAX] {
    let mut volumes: [Option<Volume>; VOLUMES_MAX] = Default::default();
    for (at, record) in superblock.volumes.iter().enumerate() {
        volumes[at] = record.as_ref().map(|record| Volume::new(VolumeIndex(to_u8(at)), record));
    }
    volumes
}
