//! What the running engine knows of one volume.

use crate::effect::{Errno, WriteMode};
use crate::machine::destage::DestageState;
use crate::machine::guard::Guard;
use crate::machine::share::Failing;
use crate::status::Counters;
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, SECTOR_BYTES, SECTORS_PER_BLOCK, VolumeId, VolumeIndex};

/// What stands between a volume and its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Cached,
    /// The cache failed; that it must never be used again is being noted durably.
    Abandoning,
    /// The cache failed and that is noted: the origin serves alone.
    Uncached,
    /// The cache failed while it had dirty data.
    Failed,
    /// The volume is being taken off.
    Detaching,
}

/// One volume.
pub(crate) struct Volume {
    pub index: VolumeIndex,
    pub id: VolumeId,
    pub mode: WriteMode,
    pub size_sectors: u64,
    pub standing: Standing,
    /// It left writeback and its dirty data has yet to go home.
    pub is_leaving: bool,
    pub guard: Guard,
    /// Dirty blocks in the index.
    pub dirty_blocks: u64,
    /// Blocks in zero extents.
    pub zero_blocks: u64,
    /// Blocks in lost extents.
    pub lost_blocks: u64,
    /// Blocks that were answered for and that the index does not know yet.
    pub owed_blocks: u64,
    /// Blocks in the index.
    pub cached_blocks: u64,
    /// Requests under way.
    pub active: u32,
    /// Dirty blocks that requests under way may still add.
    pub reserved_blocks: u64,
    /// Requests that wait for the volume's share of the cache.
    pub share_waiting: u32,
    pub origin: Origin,
    pub destage: DestageState,
    pub counters: Counters,
}

/// The origin of a volume.
///
/// Time on an origin is counted in epochs: each flush ends one. A write that completed in
/// epoch e is durable once the flush that ended e, or a later one, succeeded.
pub(crate) struct Origin {
    /// The epoch that runs now.
    pub epoch: u64,
    /// The last epoch whose end was a successful flush.
    pub flushed_epoch: u64,
    /// The epoch that the flush under way ends.
    pub flushing: Option<u64>,
    /// Somebody wants all epochs up to this one flushed.
    pub flush_wanted: u64,
    /// The last epoch in which a client's write to the origin completed.
    pub client_epoch: u64,
    /// A flush failed after which clients' writes may be gone, and no client was told yet: the next FLUSH says so.
    pub owed: Option<Errno>,
    /// Client reads of the origin under way.
    pub client_reads: u32,
    /// When the last of them came.
    pub last_client_read: Nanos,
    /// What of ours failed last time, if anything.
    pub failing: Option<Failing>,
    pub errors: u64,
    /// Nothing of ours is tried before this.
    pub backoff_until: Nanos,
    pub can_discard: bool,
}

impl Origin {
    /// An origin at the start: what a life before wrote to it counts as written in epoch 1, so that
    /// nothing read from it enters the cache as clean before a first flush (rule 2).
    pub fn new() -> Origin {
        Origin {
            epoch: 2,
            flushed_epoch: 0,
            flushing: None,
            flush_wanted: 1,
            client_epoch: 1,
            owed: None,
            client_reads: 0,
            last_client_read: Nanos(0),
            failing: None,
            errors: 0,
            backoff_until: Nanos(0),
            can_discard: false,
        }
    }
}

impl Volume {
    /// Blocks of the volume, a partial last one included.
    pub fn blocks(&self) -> u64 {
        self.size_sectors.div_ceil(SECTORS_PER_BLOCK)
    }

    /// The key of one of its blocks.
    pub fn key(&self, block: u64) -> BlockKey {
        BlockKey::new(self.index, block)
    }

    /// Where `blocks` blocks from `first` on lie on the origin: offset and length in bytes, the length
    /// shortened where the volume ends inside its last block.
    pub fn origin_bytes(&self, first: u64, blocks: u64) -> (u64, u64) {
        let offset = first * BLOCK_BYTES;
        let end = ((first + blocks) * BLOCK_BYTES).min(self.size_sectors * SECTOR_BYTES);
        assert!(end > offset, "the range begins inside the volume");
        (offset, end - offset)
    }

    /// Whether the cache holds something the origin does not have.
    pub fn is_dirty(&self) -> bool {
        self.dirty_blocks + self.owed_blocks + self.zero_blocks + self.lost_blocks > 0
    }

    /// Whether something can be brought home.
    pub fn has_destageable(&self) -> bool {
        self.dirty_blocks + self.zero_blocks > 0
    }

    /// Whether reads are put into the cache.
    pub fn caches_reads(&self) -> bool {
        self.standing == Standing::Cached && self.mode != WriteMode::Passthrough
    }
}
