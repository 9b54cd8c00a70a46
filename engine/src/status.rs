//! The status of an engine: plain numbers, taken at any moment.

use crate::effect::WriteMode;
use crate::pair::PairStatus;
use crate::policies::admission::Reason;
use crate::units::{VolumeId, VolumeIndex};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::AddAssign;

/// The status of the whole engine.
#[derive(Clone, Debug)]
pub struct Status {
    /// The volumes on the cache.
    pub volumes: Vec<VolumeStatus>,
    /// The cache device and its log.
    pub cache: CacheStatus,
    /// This session's number; each start is one.
    pub session: u64,
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// All is well.
    Active,
    /// It left writeback, or is being drained, and still has dirty data.
    Draining,
    /// Its origin fails; dirty data stays in the cache and is retried. Writes beyond the limit of dirty data wait.
    OriginFailing,
    /// Its origin has failed for long, or is not there; it is retried. Writes beyond the limit of dirty data fail.
    OriginAbsent,
    /// Its cache failed; it has no dirty data and is served by the origin alone.
    Uncached,
    /// Its cache failed while it had dirty data: those ranges and all writes fail.
    Failed,
    /// It is being detached from the cache.
    Detaching,
}

impl VolumeState {
    /// The state's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VolumeState::Active => "active",
            VolumeState::Draining => "draining",
            VolumeState::OriginFailing => "origin-failing",
            VolumeState::OriginAbsent => "origin-absent",
            VolumeState::Uncached => "uncached",
            VolumeState::Failed => "failed",
            VolumeState::Detaching => "detaching",
        }
    }
}

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// Its slot.
    pub index: VolumeIndex,
    /// Its durable number.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// The mode whose risks it has now: `writeback` as long as clients were told of data that the origin lacks.
    pub mode: WriteMode,
    /// The mode that writes follow.
    pub mode_target: WriteMode,
    /// Its state.
    pub state: VolumeState,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes that the origin does not have yet, or has not flushed.
    pub dirty_bytes: u64,
    /// The most that it may hold dirty now; `None` if only the cache's room limits it.
    pub dirty_limit_bytes: Option<u64>,
    /// Dirty data that rotted in the cache.
    pub lost_bytes: u64,
    /// Bytes that the cache holds of it, dirty data included.
    pub cached_bytes: u64,
    /// Errors of the origin since the start.
    pub origin_errors: u64,
    /// Whether destage that nobody waits for is held back now.
    pub is_held_back: bool,
    /// Whether long writes go around the cache now, because it has no room until more is home.
    pub is_flooded: bool,
    /// How far the origin lags behind in strict order; `None` where blocks go home in any order.
    pub order: Option<OrderStatus>,
    /// Whether it goes on without its cache.
    pub uncached: bool,
    /// Counts of its clients' requests since the start.
    pub counters: Counters,
}

/// How far an origin lags behind its volume in strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    /// Bytes of all versions that are not home; zeroes count as one block.
    pub lag_bytes: u64,
    /// The most before writes wait.
    pub lag_limit_bytes: u64,
    /// How long the oldest of them has been waiting; 0 if all is home.
    pub lag_ns: u64,
    /// The longest before writes wait.
    pub lag_limit_ns: u64,
    /// Flushed states that the origin has yet to go through.
    pub intervals: u64,
}

/// The cache device and its log or its slots; figures of the one that it lacks are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStatus {
    /// The two devices of a mirrored cache.
    pub pair: Option<PairStatus>,
    /// The device's size as formatted.
    pub size_bytes: u64,
    /// Bytes in segments or slots that are not free.
    pub used_bytes: u64,
    /// Segments in all.
    pub segments: u32,
    /// Segments ready to be written.
    pub segments_free: u32,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Slots that hold nothing.
    pub slots_free: u32,
    /// Slots with content that their origin lacks.
    pub slots_dirty: u32,
    /// Dirty data that lies in memory, too.
    pub kept_bytes: u64,
    /// Room for that; 0 where none is kept.
    pub kept_limit_bytes: u64,
    /// Whether the device failed a write or a flush and is not written any more.
    pub latched: bool,
    /// How fast the device answers reads.
    pub pace: CachePace,
    /// Memory that the index has allocated.
    pub index_bytes: u64,
    /// Blocks in the index.
    pub index_blocks: u64,
    /// The most that may count as dirty after a crash without being so.
    pub false_dirty_limit_bytes: u64,
    /// Traffic of the cache device since the start.
    pub device: DeviceBytes,
    /// Bytes written to it since the start, by reason.
    pub written: WrittenBytes,
    /// The wear budget, if there is one.
    pub wear: Option<WearStatus>,
    /// The sequence that the next batch gets; 0 of slots.
    pub next_sequence: u64,
    /// The sequence of the oldest batch with dirty data; that of the next batch if nothing is dirty, and 0 of slots.
    pub oldest_dirty_sequence: u64,
    /// Laps of the log round the device since the start.
    pub wraps: u64,
}

/// How fast a cache device answers reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePace {
    /// The time that half of the reads keep within; 0 if there were none.
    pub usual_ns: u64,
    /// For how long the device has been passed by, because it takes much longer.
    pub passed_for_ns: Option<u64>,
    /// The time that the slow reads took which were looked at last.
    pub slow_ns: u64,
}

/// The wear budget of a cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearStatus {
    /// The bytes that may be written in a day.
    pub day_bytes: u64,
    /// Bytes that were written and count against it now.
    pub spent_bytes: u64,
    /// Bytes that may be written at once now; the budget brings more by and by.
    pub left_bytes: u64,
}

/// Bytes to and from one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceBytes {
    /// Read.
    pub read_bytes: u64,
    /// Written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// Why content is written to the cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A client wrote it.
    User,
    /// It was read from the origin, and enters the cache.
    Fill,
    /// The cache had it already, and moves it.
    Relocation,
}

/// Bytes written to the cache device since the start, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenBytes {
    /// Content that clients wrote, in whole blocks.
    pub user_bytes: u64,
    /// Content that was read from the origin and entered the cache.
    pub fill_bytes: u64,
    /// Content that the cache had already, written again.
    pub relocation_bytes: u64,
    /// Everything that the cache says of its content: headers, summaries, records, checksums, superblocks.
    pub header_bytes: u64,
}

impl WrittenBytes {
    /// Counts content.
    #[inline]
    pub(crate) fn add(&mut self, why: Content, bytes: u64) {
        match why {
            Content::User => self.user_bytes += bytes,
            Content::Fill => self.fill_bytes += bytes,
            Content::Relocation => self.relocation_bytes += bytes,
        }
    }

    /// With all that was written as well and is no content.
    pub(crate) fn with_headers(self, written_bytes: u64) -> WrittenBytes {
        let content_bytes = self.user_bytes + self.fill_bytes + self.relocation_bytes;
        assert!(content_bytes <= written_bytes, "content is counted when it is written");
        WrittenBytes { header_bytes: written_bytes - content_bytes, ..self }
    }
}

/// Why blocks of a request bypass the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// The mode says so.
    Mode,
    /// The cache failed.
    Failed,
    /// The cache had no room at that moment.
    Pressure,
    /// The volume has all that it may have.
    AboveMax,
    /// The wear budget has too little left.
    Budget,
    /// The cache device is so slow that it is passed by.
    SlowCache,
    /// A policy says so.
    Policy(Reason),
}

impl From<Reason> for Bypass {
    fn from(reason: Reason) -> Bypass {
        Bypass::Policy(reason)
    }
}

/// Blocks that bypassed the cache, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypasses {
    /// See [`Bypass::Mode`].
    pub mode_blocks: u64,
    /// See [`Bypass::Failed`].
    pub failed_blocks: u64,
    /// See [`Bypass::Pressure`].
    pub pressure_blocks: u64,
    /// See [`Bypass::AboveMax`].
    pub above_max_blocks: u64,
    /// See [`Bypass::Budget`].
    pub budget_blocks: u64,
    /// See [`Bypass::SlowCache`].
    pub slow_cache_blocks: u64,
    /// See [`Reason::Sequential`].
    pub sequential_blocks: u64,
    /// See [`Reason::Congested`].
    pub congested_blocks: u64,
    /// See [`Reason::NotYet`].
    pub seldom_blocks: u64,
    /// See [`Reason::CopiesInFlight`].
    pub copies_blocks: u64,
    /// See [`Reason::InUse`].
    pub in_use_blocks: u64,
    /// See [`Reason::Unaligned`].
    pub unaligned_blocks: u64,
    /// See [`Reason::LaterGap`].
    pub later_gap_blocks: u64,
}

impl Bypasses {
    /// Counts blocks.
    pub(crate) fn add(&mut self, why: Bypass, blocks: u64) {
        let counter = match why {
            Bypass::Mode => &mut self.mode_blocks,
            Bypass::Failed => &mut self.failed_blocks,
            Bypass::Pressure => &mut self.pressure_blocks,
            Bypass::AboveMax => &mut self.above_max_blocks,
            Bypass::Budget => &mut self.budget_blocks,
            Bypass::SlowCache => &mut self.slow_cache_blocks,
            Bypass::Policy(Reason::Sequential) => &mut self.sequential_blocks,
            Bypass::Policy(Reason::Congested) => &mut self.congested_blocks,
            Bypass::Policy(Reason::NotYet) => &mut self.seldom_blocks,
            Bypass::Policy(Reason::CopiesInFlight) => &mut self.copies_blocks,
            Bypass::Policy(Reason::InUse) => &mut self.in_use_blocks,
            Bypass::Policy(Reason::Unaligned) => &mut self.unaligned_blocks,
            Bypass::Policy(Reason::LaterGap) => &mut self.later_gap_blocks,
        };
        *counter += blocks;
    }

    /// Each count with its reason in words.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 13] {
        [
            ("by mode", self.mode_blocks),
            ("because the cache failed", self.failed_blocks),
            ("for want of room", self.pressure_blocks),
            ("above the volume's maximum", self.above_max_blocks),
            ("beyond the wear budget", self.budget_blocks),
            ("past a cache device that fails slowly", self.slow_cache_blocks),
            ("of sequential runs", self.sequential_blocks),
            ("because the cache was slow", self.congested_blocks),
            ("requested too seldom", self.seldom_blocks),
            ("beside too many copies", self.copies_blocks),
            ("because too much was dirty or in use", self.in_use_blocks),
            ("of requests that are not aligned", self.unaligned_blocks),
            ("behind the first gap of a read", self.later_gap_blocks),
        ]
    }

    /// Blocks that were counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Bypasses) -> Bypasses {
        Bypasses {
            mode_blocks: self.mode_blocks - earlier.mode_blocks,
            failed_blocks: self.failed_blocks - earlier.failed_blocks,
            pressure_blocks: self.pressure_blocks - earlier.pressure_blocks,
            above_max_blocks: self.above_max_blocks - earlier.above_max_blocks,
            budget_blocks: self.budget_blocks - earlier.budget_blocks,
            slow_cache_blocks: self.slow_cache_blocks - earlier.slow_cache_blocks,
            sequential_blocks: self.sequential_blocks - earlier.sequential_blocks,
            congested_blocks: self.congested_blocks - earlier.congested_blocks,
            seldom_blocks: self.seldom_blocks - earlier.seldom_blocks,
            copies_blocks: self.copies_blocks - earlier.copies_blocks,
            in_use_blocks: self.in_use_blocks - earlier.in_use_blocks,
            unaligned_blocks: self.unaligned_blocks - earlier.unaligned_blocks,
            later_gap_blocks: self.later_gap_blocks - earlier.later_gap_blocks,
        }
    }

    /// All of them.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.by_reason().iter().map(|(_, blocks)| blocks).sum()
    }
}

impl AddAssign for Bypasses {
    fn add_assign(&mut self, other: Bypasses) {
        self.mode_blocks += other.mode_blocks;
        self.failed_blocks += other.failed_blocks;
        self.pressure_blocks += other.pressure_blocks;
        self.above_max_blocks += other.above_max_blocks;
        self.budget_blocks += other.budget_blocks;
        self.slow_cache_blocks += other.slow_cache_blocks;
        self.sequential_blocks += other.sequential_blocks;
        self.congested_blocks += other.congested_blocks;
        self.seldom_blocks += other.seldom_blocks;
        self.copies_blocks += other.copies_blocks;
        self.in_use_blocks += other.in_use_blocks;
        self.unaligned_blocks += other.unaligned_blocks;
        self.later_gap_blocks += other.later_gap_blocks;
    }
}

/// Cached blocks that were scrubbed, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// They are what was written.
    pub good_blocks: u64,
    /// No checksum of them is known.
    pub unknown_blocks: u64,
    /// They were clean and rotten, or unreadable, and left the cache.
    pub dropped_blocks: u64,
    /// They were dirty and rotten, and are lost.
    pub lost_blocks: u64,
    /// They could not be read, and stay.
    pub unreadable_blocks: u64,
}

/// Counts since the start of the session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Reads by clients.
    pub reads: u64,
    /// Writes by clients.
    pub writes: u64,
    /// FLUSH requests.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Write-zeroes.
    pub write_zeroes: u64,
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes written by clients.
    pub written_bytes: u64,
    /// Blocks read that the cache had.
    pub hit_blocks: u64,
    /// Blocks read that it had not.
    pub miss_blocks: u64,
    /// Blocks read from the origin beside what was asked for, or ahead of a stream.
    pub beside_blocks: u64,
    /// Blocks read by clients that had been read so, and were in memory.
    pub beside_hit_blocks: u64,
    /// Cached blocks that were read ahead of streams.
    pub ahead_blocks: u64,
    /// Blocks read by clients that had been read ahead from the cache.
    pub ahead_hit_blocks: u64,
    /// Blocks read beside others that nobody had asked for, and that were offered to the cache because that pays.
    pub warm_up_blocks: u64,
    /// Reads all of whose blocks the cache had.
    pub hits: u64,
    /// Reads that needed the origin.
    pub misses: u64,
    /// Blocks read that the cache had not and that did not enter it.
    pub read_bypasses: Bypasses,
    /// Blocks written to the origin alone.
    pub write_bypasses: Bypasses,
    /// Blocks put into the cache after a miss.
    pub fill_blocks: u64,
    /// Blocks read but not put into the cache, because they changed meanwhile.
    pub fill_dropped_blocks: u64,
    /// Blocks destaged.
    pub destaged_blocks: u64,
    /// Blocks appended again when their segment was reclaimed.
    pub relocated_blocks: u64,
    /// Clean blocks that did not match their checksum.
    pub corrupt_clean_blocks: u64,
    /// Cached blocks that were scrubbed.
    pub scrub: ScrubCounts,
    /// Traffic of the origin.
    pub origin: DeviceBytes,
}
