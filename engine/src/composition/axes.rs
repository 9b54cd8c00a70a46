//! The axes, and the data of what can be chosen on each.
//!
//! The choices of most axes are the policies' own types; those that no policy has yet are here. Their
//! names are in [`choices`](super::choices), what they can be tuned by in [`keys`](super::keys).

use crate::policies::controllers::cleaner::CleanerChoice;
use crate::policies::controllers::idle::IdleChoice;
use crate::policies::controllers::mirror_fill::MirrorFillChoice;
use crate::policies::controllers::pi::PiChoice;
use crate::policies::controllers::threshold::ThresholdChoice;
use crate::policies::controllers::threshold_sets::ThresholdSetsChoice;

/// A question that every cache answers in some way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// Where a block may lie.
    Placement,
    /// Whether a miss enters.
    Admission,
    /// Which requests pass by before admission is asked.
    Cutoff,
    /// Which frame or segment leaves.
    Replacement,
    /// How a new volume treats writes.
    WriteMode,
    /// How a write is handled that does not cover a whole block, or finds some of its blocks cached.
    Writes,
    /// The way in which the cache's content is made durable.
    Persistence,
    /// When which dirty blocks go home.
    Destage,
    /// The range that a miss reads, and whether the request waits for the fill.
    Fetch,
    /// The states that an origin goes through while dirty data goes home.
    Order,
}

impl Axis {
    /// All, in the order of the text form.
    pub const ALL: [Axis; 10] = [
        Axis::Placement,
        Axis::Admission,
        Axis::Cutoff,
        Axis::Replacement,
        Axis::WriteMode,
        Axis::Writes,
        Axis::Persistence,
        Axis::Destage,
        Axis::Fetch,
        Axis::Order,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Axis::Placement => "placement",
            Axis::Admission => "admission",
            Axis::Cutoff => "cutoff",
            Axis::Replacement => "replacement",
            Axis::WriteMode => "write_mode",
            Axis::Writes => "writes",
            Axis::Persistence => "persistence",
            Axis::Destage => "destage",
            Axis::Fetch => "fetch",
            Axis::Order => "order",
        }
    }

    /// Its question.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Axis::Placement => "where a block may lie",
            Axis::Admission => "whether a miss enters the cache",
            Axis::Cutoff => "what passes by before admission is asked",
            Axis::Replacement => "what gives its place up",
            Axis::WriteMode => "how a new volume treats writes",
            Axis::Writes => "what becomes of writes that are not whole, or meet cached blocks in part",
            Axis::Persistence => "how it is made durable what the cache holds",
            Axis::Destage => "what goes home when",
            Axis::Fetch => "how much a miss reads, and who waits for it",
            Axis::Order => "what the origin alone holds while dirty data goes home",
        }
    }
}

/// Where a block may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In segments that are only appended to.
    Log {
        /// Bytes that may count as dirty after a crash without being so; on a small cache an eighth of
        /// it at the most.
        false_dirty_bytes: u64,
    },
    /// In slots of one size.
    Slots(Slots),
}

/// Slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Slots of a set; 0: a piece may lie in any slot.
    pub ways: u32,
    /// The set of a piece.
    pub set_map: SetMap,
}

/// The set of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMap {
    /// Its number among runs of as many pieces as a set has slots, modulo the number of sets (flashcache).
    Modulo,
    /// The same number masked to the next power of two, less the number of sets if it is not below it
    /// (EnhanceIO).
    Masked,
    /// A hash of its number among runs of 256 KiB, modulo the number of sets (flashcache 3).
    Hashed,
}

/// How writes are handled that are not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritesChoice {
    /// The missing part of a block is read first; whole blocks are appended.
    Merge,
    /// The same, but a write goes around the cache where the origin would have to be read first, or dirty blocks would have to
    /// go home to make room.
    MergeOrBypass,
    /// Extents are appended to buckets; buckets in use decide whether at all.
    Extents(ExtentWrites),
    /// A cached piece is written in place, in part too.
    InPlace(SlotWrites),
    /// A piece that is not written wholly is dropped, after it went home if it was dirty.
    Invalidate(SlotWrites),
    /// A part of a dirty piece is written in place, one of a clean piece to both devices.
    BothIfClean(SlotWrites),
}

/// Writes of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentWrites {
    /// Only the first missing range of a read is put into the cache.
    pub first_gap_only: bool,
    /// With more buckets in use only synchronous writes go to the cache; percent.
    pub cutoff_writeback_percent: u32,
    /// With more buckets in use no write goes to the cache; percent.
    pub cutoff_writeback_sync_percent: u32,
    /// With more buckets in use nothing enters; percent.
    pub cutoff_add_percent: u32,
}

/// Writes to slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWrites {
    /// A request goes to the cache only if every part of it can; else each part by itself.
    pub all_or_nothing: bool,
    /// Each piece of a request is an operation of its own.
    pub splits_requests: bool,
    /// If one piece of a read is missing, the origin is asked for all of it.
    pub rereads_whole: bool,
}

/// The way in which the cache's content is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistenceChoice {
    /// Header and data are one write.
    Inline,
    /// Keys are appended to a journal, data lies in buckets.
    Journal(Journal),
    /// The record of a slot is written before a write that makes it dirty is acknowledged.
    SyncSector {
        /// A page is written for each block that went home; else one for the whole set.
        cleans_per_block: bool,
    },
    /// Mappings are committed by copy-on-write; dirty marks are saved by a clean stop only.
    Commit(Commit),
    /// The same, and a tree of bits tells durably below which leaves something may be dirty.
    BitTree(BitTree),
    /// Header and data in groups, and the data stays in memory until it is home.
    Mirror(Mirror),
    /// Header and data of a client's write are one write; clean data lies in frames of one block, and keys of it are
    /// appended.
    Frames(Frames),
}

/// bcache's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// A key is on the device after this long at the latest.
    pub journal_delay_ms: u32,
    /// Share of the device for keys, permille.
    pub journal_permille: u32,
    /// Buckets in use are counted again after this part of the cache was written.
    pub recount_part: u32,
    /// Priorities are written each time that four of so many parts of the buckets were handed out; 0 is never.
    pub priorities_part: u32,
}

/// dm-cache's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Changes are committed after this long at the latest.
    pub commit_ms: u32,
    /// A promotion is committed before its request goes on.
    pub commits_promotions: bool,
}

/// MapperX's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitTree {
    /// Commits of the mappings.
    pub commit: Commit,
    /// Levels; 13 are 8192 finest leaves.
    pub tree_levels: u32,
    /// Pieces of the origin below a finest leaf.
    pub leaf_pieces: u32,
    /// Writes of bits for requests above which leaves are merged; permille.
    pub sla_permille: u32,
    /// How often leaves are merged or split.
    pub adjust_ms: u32,
    /// How many of them at a time.
    pub adjust_steps: u32,
}

/// A ring, and frames of one block behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Share of the device for the ring, permille.
    pub ring_permille: u32,
}

/// The states that an origin goes through while dirty data goes home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderChoice {
    /// Any: blocks go home in whatever order is fastest.
    Free,
    /// Those that its client had flushed, one after the other (rule 14).
    Strict(StrictOrder),
}

/// Bounds of strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrictOrder {
    /// A write waits while an older one is not home after this long.
    pub lag_ms: u32,
    /// A write waits while so much is not home; on a small cache half of it at the most.
    pub lag_bytes: u64,
}

/// gflash's mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Memory for dirty data.
    pub ram_bytes: u64,
    /// Clients' writes that share a header at the most.
    pub batch_writes_max: u32,
    /// Writes that are acknowledged before they are on the device; 0 with `safe`.
    pub early_ack_writes: u32,
    /// Blocks that went home can still be read from the cache.
    pub keeps_written: bool,
}

/// When which dirty blocks go home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestageChoice {
    /// Round and round in the order of the origin, as the log needs room.
    Sweep(Sweep),
    /// See [`pi`](crate::policies::controllers::pi).
    Pi(PiChoice),
    /// See [`threshold`](crate::policies::controllers::threshold).
    Threshold(ThresholdChoice),
    /// See [`threshold_sets`](crate::policies::controllers::threshold_sets).
    ThresholdSets(ThresholdSetsChoice),
    /// See [`idle`](crate::policies::controllers::idle).
    Idle(IdleChoice),
    /// See [`cleaner`](crate::policies::controllers::cleaner).
    Cleaner(CleanerChoice),
    /// See [`mirror_fill`](crate::policies::controllers::mirror_fill).
    MirrorFill(MirrorFillChoice),
}

/// The sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// After this long without a client's request everything goes home.
    pub idle_ms: u32,
    /// Runs on their way home at the same time, for each volume.
    pub destage_runs: u32,
}

/// Tunables of every cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Blocks that a destage wrote home are flushed, and thereby clean, after this long at the latest. What clients wrote through
    /// to an origin that flushes slowly may wait longer while they are busy.
    pub flush_after_ms: u32,
    /// An origin that failed is left alone for this long.
    pub backoff_ms: u32,
    /// An origin that still fails this long after its first error is absent.
    pub absent_ms: u32,
}
