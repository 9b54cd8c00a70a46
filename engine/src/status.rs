//! The status of an engine: plain numbers, taken at any moment.

use crate::effect::WriteMode;
use crate::units::{VolumeId, VolumeIndex};
use alloc::string::String;
use alloc::vec::Vec;

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
    /// The mode whose risks it has now: `writeback` as long as it has dirty data.
    pub mode: WriteMode,
    /// The mode that writes follow.
    pub mode_target: WriteMode,
    /// Its state.
    pub state: VolumeState,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes that the origin does not have yet.
    pub dirty_bytes: u64,
    /// The most that it may hold dirty now; `None` if only the cache's room limits it.
    pub dirty_limit_bytes: Option<u64>,
    /// Dirty data that rotted in the cache.
    pub lost_bytes: u64,
    /// Bytes that the cache holds of it, dirty data included.
    pub cached_bytes: u64,
    /// Errors of the origin since the start.
    pub origin_errors: u64,
    /// Whether it goes on without its cache.
    pub uncached: bool,
    /// Counts of its clients' requests since the start.
    pub counters: Counters,
}

/// The cache device and its log or its slots; figures of the one that it lacks are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStatus {
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
    /// Memory that the index has allocated.
    pub index_bytes: u64,
    /// Blocks in the index.
    pub index_blocks: u64,
    /// The most that may count as dirty after a crash without being so.
    pub false_dirty_limit_bytes: u64,
    /// Traffic of the cache device since the start.
    pub device: DeviceBytes,
    /// Laps of the log round the device since the start.
    pub wraps: u64,
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
    /// Reads all of whose blocks the cache had.
    pub hits: u64,
    /// Reads that needed the origin.
    pub misses: u64,
    /// Blocks written around the cache because of the mode.
    pub bypass_mode_blocks: u64,
    /// Blocks served by the origin because the cache failed.
    pub bypass_failed_blocks: u64,
    /// Blocks put into the cache after a miss.
    pub fill_blocks: u64,
    /// Blocks read but not put into the cache, because they changed meanwhile.
    pub fill_dropped_blocks: u64,
    /// Fills not taken because the log had no room for them at that moment.
    pub bypass_pressure_blocks: u64,
    /// Blocks destaged.
    pub destaged_blocks: u64,
    /// Blocks appended again when their segment was reclaimed.
    pub relocated_blocks: u64,
    /// Clean blocks that did not match their checksum.
    pub corrupt_clean_blocks: u64,
    /// Traffic of the origin.
    pub origin: DeviceBytes,
}
