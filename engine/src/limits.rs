//! Every bound of the engine, in one place.

use crate::composition::Composition;
use crate::composition::axes::{DestageChoice, OrderChoice, PersistenceChoice, Placement};
use crate::format::{CHECKPOINT_CACHE_BYTES_MIN, KeyLayout, SlotLayout};
use crate::mutation::Mutations;
use crate::number::{index, wide};
use crate::policies::fetch::Fetch;
use crate::store::slots::records::persistence::areas::AREA_IDLE_NS;
use crate::units::{BLOCK_BYTES, Nanos};

/// The longest read or write that the engine takes; doors cut longer ones.
pub const REQUEST_BYTES_MAX: u32 = 256 * 1024;
/// The longest discard or write-zeroes that the engine takes at once; doors cut longer ones.
pub const RANGE_BYTES_MAX: u64 = 64 << 20;
/// Requests under way in the engine at the most; then `submit` answers `Busy`.
pub const REQUESTS_MAX: usize = 8192;
/// Memory that the engine takes from the driver's pool at the most, for all purposes. A pool has to hold this much
/// besides what the doors lend to clients.
pub const ENGINE_POOL_BYTES: u64 = 56 << 20;
/// The largest single buffer that the engine asks for.
pub const ENGINE_BUFFER_BYTES_MAX: u32 = 1 << 20;

/// Blocks of a segment without payload even if it was written at once: head, headers, summary, and the blocks kept
/// free for them.
pub(crate) const SEGMENT_OVERHEAD_BLOCKS: u32 = 8;

const _: () =
    assert!(wide(index(REQUEST_BYTES_MAX)).is_multiple_of(BLOCK_BYTES), "a request is cut at block borders");

/// Bytes of a ring, or of buckets, that no flush covers, at the most, where clients do not flush. A start reads and verifies them
/// before anybody is served: a SATA SSD needs half a second for that. So rare a flush costs less than a thousandth of the writes'
/// time.
const UNFLUSHED_BYTES_MAX: u64 = 256 << 20;

/// Bytes that a log goes on between the beginnings of two checkpoints of the index at the least: a start replays them in less
/// than half a second, of whatever they are.
const CHECKPOINT_INTERVAL_BYTES: u64 = 16 << 30;

/// The same in blocks, for a ring of so many. One without room for checkpoints is replayed as a whole within a second.
fn checkpoint_interval_blocks(ring_blocks: u64) -> u64 {
    let has_room = ring_blocks > CHECKPOINT_CACHE_BYTES_MIN / BLOCK_BYTES / 64 * 63;
    if has_room { CHECKPOINT_INTERVAL_BYTES / BLOCK_BYTES } else { u64::MAX }
}

/// Bounds of what may be older at the origin than in the cache, where everything goes home in strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderBounds {
    /// A change waits while an older one is not home after this long.
    pub lag_ns: u64,
    /// A change waits while so many versions of blocks are not home.
    pub lag_blocks: u64,
}

/// The slowness of a cache device that is passed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness {
    /// Period after which what the device answered is looked at.
    pub look_ns: u64,
    /// A read that takes no longer is never slow: where some tens of microseconds are usual, a few milliseconds
    /// are jitter, and hardly an origin is faster.
    pub slow_ns_min: u64,
    /// The device is passed by when most reads were slow for so long.
    pub slow_after_ns: u64,
    /// It is used again when most reads were not slow for so long.
    pub well_after_ns: u64,
    /// Looks with reads before anything is judged: what is usual has to be known.
    pub looks_min: u32,
}

impl Slowness {
    /// The slowness of an SSD.
    pub const USUAL: Slowness = Slowness {
        look_ns: 100 * Nanos::MILLISECOND,
        slow_ns_min: 5 * Nanos::MILLISECOND,
        slow_after_ns: 2 * Nanos::SECOND,
        well_after_ns: 3 * Nanos::SECOND,
        looks_min: 50,
    };
}

/// The bounds within which writes go slower for the sake of reads beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceBounds {
    /// Reads that take so long on the average are slow.
    pub slow_ns: u64,
    /// The shortest time for which a pace is tried.
    pub window_ns: u64,
    /// A window with fewer reads or fewer writes says nothing.
    pub requests_min: u64,
    /// A pace ends when nobody read for so long.
    pub pause_ns: u64,
}

impl PaceBounds {
    /// The bounds for an SSD. Slow is what Linux's write-back throttling (blk-wbt) takes for slow; a second has what a device does about
    /// once in it, such as a flush.
    pub const USUAL: PaceBounds = PaceBounds {
        slow_ns: 2 * Nanos::MILLISECOND,
        window_ns: Nanos::SECOND,
        requests_min: 64,
        pause_ns: 500 * Nanos::MILLISECOND,
    };
}

/// The bounds and periods that are chosen when an engine starts.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Memory for partial requests; more of them wait.
    pub work_bytes_max: u64,
    /// Blocks read from origins that wait to be put into the cache; more of them are not cached.
    pub fill_blocks_max: u64,
    /// With a batch in flight, pending writes go when they have this many blocks, few as they are: their header is a small part
    /// of them.
    pub group_commit_blocks: u64,
    /// Free segments that only the log's own work may use (rule 9).
    pub segments_reserved: u32,
    /// Below this many free segments the oldest ones are reclaimed.
    pub segments_low: u32,
    /// Room for this many blocks is kept in the index, or a part of its memory if that is less; below, the oldest segments are
    /// reclaimed.
    pub index_slack_blocks: u64,
    /// Limit of zero and lost extents; beyond it a write-zeroes waits for earlier ones to go home.
    pub extents_max: usize,
    /// Runs of dirty blocks on their way home at the same time, per volume.
    pub destage_runs_max: u32,
    /// Blocks that may count as dirty after a crash without being so (rule 2).
    pub false_dirty_blocks_max: u64,
    /// Blocks of the ring that no flush of the cache covers; with more the engine flushes by itself.
    pub unflushed_blocks_max: u64,
    /// The longest time that blocks which a destage wrote home wait for a flush of the origin. An origin that flushes slowly
    /// is flushed less often while clients write through to it, and while a sweep that makes room goes on.
    pub flush_after_ns: u64,
    /// Time without a client's request after which the cache destages its dirty data.
    pub idle_ns: u64,
    /// Back-off of the engine after an origin failed.
    pub backoff_ns: u64,
    /// Time after its first error from which an origin that still fails counts as absent, and a dirty block that
    /// cannot be read as lost.
    pub absent_after_ns: u64,
    /// Dirty blocks that a volume may hold while its origin fails, times the volumes on the cache (rule 9).
    pub failing_dirty_blocks_max: u64,
    /// Dirty blocks that one of several volumes may hold at any time; with more a lap of the ring gains nothing (rule
    /// 9).
    pub shared_dirty_blocks_max: u64,
    /// Limit of dirty blocks that lie in memory, too; beyond it writes wait. 0 in a store that keeps none in memory.
    pub memory_blocks_max: u64,
    /// Memory for blocks that were read beside those that a miss asked for; 0: none are read.
    pub neighbour_bytes_max: u64,
    /// Memory for cached blocks that are read ahead of streams; 0: none are.
    pub ahead_bytes_max: u64,
    /// The longest time that a write waits for group commit; 0: writes do not wait.
    pub group_commit_wait_ns_max: u64,
    /// The longest time that a fill waits for others to share its batch; 0: fills go at once.
    pub fill_wait_ns_max: u64,
    /// Time without a write after which the checksums of an area of slots are written.
    pub area_idle_ns: u64,
    /// Limit of open areas of slots, if it is below what the layout says.
    pub open_areas_max: u32,
    /// Whether volumes stay in writeback when one device of a mirrored cache does the work of both: what is dirty is then on one
    /// device alone.
    pub is_lone_writeback: bool,
    /// Bounds of strict order; `None` where blocks go home in any order.
    pub order: Option<OrderBounds>,
    /// Blocks that a log goes on between the beginnings of two checkpoints of the index, at the least; `u64::MAX`: there are none.
    pub checkpoint_interval_blocks: u64,
    /// Period after which the clock alone makes the engine look at its work.
    pub tick_ns: u64,
    /// The slowness for which reads pass the cache device by.
    pub slowness: Slowness,
    /// The bounds within which writes go slower for the sake of reads.
    pub pace: PaceBounds,
    /// Whether the origin of each volume can discard.
    pub origin_can_discard: [bool; crate::units::VOLUMES_MAX],
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

impl Config {
    /// Sensible bounds for a cache of `segments` segments of `segment_blocks` blocks.
    #[must_use]
    pub fn for_cache(segments: u32, segment_blocks: u32) -> Config {
        let cache_blocks = u64::from(segments) * u64::from(segment_blocks);
        let payload_blocks = u64::from(segments) * u64::from(segment_blocks - SEGMENT_OVERHEAD_BLOCKS);
        // Rule 9: room for relocation, tombstones and clean records while the tail is emptied. Data that is appended
        // again may lie less densely than before, which counts where segments are small.
        let segments_reserved = 4 + segments * 2 / segment_blocks;
        Config {
            work_bytes_max: 16 << 20,
            fill_blocks_max: 2048,
            group_commit_blocks: 96,
            segments_reserved,
            segments_low: segments_reserved + (segments / 64).clamp(4, 64),
            index_slack_blocks: (cache_blocks / 64).min(65_536),
            extents_max: 65_536,
            destage_runs_max: 16,
            // 256 MiB, or an eighth of a small cache.
            false_dirty_blocks_max: ((256 << 20) / BLOCK_BYTES).min(cache_blocks / 8),
            unflushed_blocks_max: u64::MAX,
            flush_after_ns: 500 * Nanos::MILLISECOND,
            idle_ns: 300 * Nanos::MILLISECOND,
            backoff_ns: Nanos::SECOND,
            // As long as a disk's own driver waits before it gives up a command.
            absent_after_ns: 30 * Nanos::SECOND,
            failing_dirty_blocks_max: payload_blocks / 2,
            shared_dirty_blocks_max: payload_blocks / 4 * 3,
            memory_blocks_max: 0,
            neighbour_bytes_max: 0,
            ahead_bytes_max: 0,
            group_commit_wait_ns_max: 500_000,
            fill_wait_ns_max: 250 * Nanos::MILLISECOND,
            area_idle_ns: AREA_IDLE_NS,
            open_areas_max: u32::MAX,
            is_lone_writeback: false,
            order: None,
            checkpoint_interval_blocks: checkpoint_interval_blocks(cache_blocks),
            tick_ns: 20 * Nanos::MILLISECOND,
            slowness: Slowness::USUAL,
            pace: PaceBounds::USUAL,
            origin_can_discard: [false; crate::units::VOLUMES_MAX],
            mutations: Mutations::NONE,
        }
    }

    /// Sensible bounds for a cache of keys and buckets.
    #[must_use]
    pub fn for_keys(layout: &KeyLayout) -> Config {
        let blocks = u64::from(layout.buckets) * u64::from(layout.bucket_blocks);
        let geometry = layout.geometry;
        Config {
            index_slack_blocks: (blocks / 64).min(65_536),
            false_dirty_blocks_max: ((256 << 20) / BLOCK_BYTES).min(blocks / 8),
            failing_dirty_blocks_max: blocks / 2,
            shared_dirty_blocks_max: blocks / 4 * 3,
            ..Config::for_cache(geometry.segments, geometry.segment_blocks)
        }
    }

    /// Sensible bounds for a cache with frames: dirty data is in the ring alone.
    #[must_use]
    pub fn for_frames(layout: &KeyLayout) -> Config {
        let blocks = u64::from(layout.buckets) * u64::from(layout.bucket_blocks);
        let geometry = layout.geometry;
        Config {
            index_slack_blocks: (blocks / 64).min(65_536),
            ..Config::for_cache(geometry.segments, geometry.segment_blocks)
        }
    }

    /// Sensible bounds for a cache with slots.
    #[must_use]
    pub fn for_slots(layout: &SlotLayout, composition: &Composition) -> Config {
        let cache_blocks = u64::from(layout.shape().frames) * u64::from(layout.slot_blocks());
        let mut config = Config {
            false_dirty_blocks_max: ((256 << 20) / BLOCK_BYTES).min(cache_blocks / 8).max(1),
            failing_dirty_blocks_max: cache_blocks / 2,
            shared_dirty_blocks_max: cache_blocks / 4 * 3,
            // Slots have no segments: their bounds are not checked.
            ..Config::for_cache(64, 8192)
        };
        config.tune(composition);
        config
    }

    /// Sets the bounds that the tunables of a composition name.
    pub fn tune(&mut self, composition: &Composition) {
        let nanos = |ms: u32| u64::from(ms) * Nanos::MILLISECOND;
        if let Placement::Log { false_dirty_bytes } = composition.placement {
            // A small cache has a lower limit of its own.
            self.false_dirty_blocks_max = self.false_dirty_blocks_max.min(false_dirty_bytes / BLOCK_BYTES);
            self.unflushed_blocks_max = UNFLUSHED_BYTES_MAX / BLOCK_BYTES;
        }
        if let PersistenceChoice::Mirror(mirror) = composition.persistence {
            // The dirty data is no more than the cache holds.
            self.limit_memory((mirror.ram_bytes / BLOCK_BYTES).min(self.failing_dirty_blocks_max * 2));
        }
        if let DestageChoice::Sweep(sweep) = composition.destage {
            self.idle_ns = nanos(sweep.idle_ms);
            self.destage_runs_max = sweep.destage_runs;
        }
        if let Fetch::Neighbourhood { neighbour_bytes } = composition.fetch {
            self.neighbour_bytes_max = u64::from(neighbour_bytes);
            self.ahead_bytes_max = self.neighbour_bytes_max / 2;
        }
        self.order = Config::order_of(composition, self);
        self.flush_after_ns = nanos(composition.common.flush_after_ms);
        self.backoff_ns = nanos(composition.common.backoff_ms);
        self.absent_after_ns = nanos(composition.common.absent_ms);
    }

    /// The bounds of a composition's order, with the other bounds of its cache.
    #[must_use]
    pub fn order_of(composition: &Composition, config: &Config) -> Option<OrderBounds> {
        let OrderChoice::Strict(strict) = composition.order else { return None };
        Some(OrderBounds {
            lag_ns: u64::from(strict.lag_ms) * Nanos::MILLISECOND,
            lag_blocks: (strict.lag_bytes / BLOCK_BYTES).min(config.failing_dirty_blocks_max),
        })
    }

    /// Limits dirty data to the memory that also holds it: memory runs out, and not the ring.
    pub fn limit_memory(&mut self, blocks: u64) {
        self.memory_blocks_max = blocks;
        self.failing_dirty_blocks_max = self.failing_dirty_blocks_max.min(blocks / 2);
        self.shared_dirty_blocks_max = self.shared_dirty_blocks_max.min(blocks / 4 * 3);
        self.false_dirty_blocks_max = self.false_dirty_blocks_max.min(blocks);
    }

    /// Bytes of the pool for dirty data in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_blocks_max * BLOCK_BYTES
    }

    /// Bytes that the engine takes from the pool at the most with these bounds.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        let runs = u64::from(self.destage_runs_max) * u64::from(REQUEST_BYTES_MAX);
        // Headers, summaries and the superblock are few and small; relocation has 8 MiB at the most.
        let read_early = self.neighbour_bytes_max + self.ahead_bytes_max;
        self.work_bytes_max + runs + (8 << 20) + (8 << 20) + self.memory_bytes() + read_early
    }
}
