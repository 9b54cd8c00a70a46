//! One volume of the running engine: its standing, its guard, its counts and its origin.

use crate::effect::{RequestOp, WriteMode};
use crate::format::VolumeRecord;
use crate::machine::destage::state::DestageState;
use crate::machine::fingerprint::{is_place_touched, offsets_bytes};
use crate::machine::guard::{Blocks, Guard};
use crate::machine::origin::Origin;
use crate::machine::room::RoomBlocks;
use crate::status::Counters;
use crate::units::{
    BLOCK_BYTES, BlockKey, SECTOR_BYTES, SECTORS_PER_BLOCK, SectorRange, VolumeId, VolumeIndex,
};
use core::ops::Range;

/// Whether the cache serves a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It does.
    Cached,
    /// The cache failed; the durable note never to use it again is being written.
    Abandoning,
    /// The cache failed and that is noted: the origin serves alone.
    Uncached,
    /// The cache failed while it had dirty data.
    Failed,
    /// The volume is being detached.
    Detaching,
}

/// One volume.
pub(crate) struct Volume {
    pub index: VolumeIndex,
    pub id: VolumeId,
    pub mode: WriteMode,
    pub size_sectors: u64,
    pub standing: Standing,
    /// The next part of what is cached that is forgotten, of so many, once a detach came to that.
    pub leaving: Option<(u32, u32)>,
    /// The volume left writeback, and its dirty data has yet to go home.
    pub is_leaving: bool,
    /// The origin refused a client's write or a flush, and the cache may have since then what it lacks.
    pub was_refused: bool,
    pub guard: Guard,
    /// Dirty blocks in the index.
    pub dirty_blocks: u64,
    /// Blocks in zero extents.
    pub zero_blocks: u64,
    /// Blocks in lost extents.
    pub lost_blocks: u64,
    /// Blocks of answered writes that the index does not have yet.
    pub owed_blocks: u64,
    /// Blocks in the index.
    pub cached_blocks: u64,
    /// So many of them, or a few less, lie in segments that are emptied, and leave when the log needs those.
    pub lingering_blocks: u64,
    /// How many of them are kept, and how many there may be.
    pub room: RoomBlocks,
    /// The block behind the last read by a client.
    pub next_read: u64,
    /// Requests under way.
    pub active: u32,
    /// Dirty blocks that requests under way may still add.
    pub reserved_blocks: u64,
    /// Requests that wait for the volume's share of the cache.
    pub share_waiting: u32,
    /// Well-known places that a stop is reading, a bit each. A write to one of them takes its bit: nobody knows which content
    /// the read finds.
    pub places_in_reading: u16,
    pub origin: Origin,
    pub destage: DestageState,
    pub counters: Counters,
}

impl Volume {
    /// A volume with nothing in the cache, and nothing known of its origin.
    pub fn new(index: VolumeIndex, record: &VolumeRecord) -> Volume {
        let blocks = record.size_sectors.div_ceil(SECTORS_PER_BLOCK);
        // Small volumes need few slots; 2^14 of 32 bytes are half a mebibyte.
        let slot_bits = (blocks / 64).max(64).ilog2().min(14);
        Volume {
            index,
            id: record.id,
            mode: record.mode,
            size_sectors: record.size_sectors,
            standing: Standing::Cached,
            leaving: None,
            is_leaving: false,
            was_refused: false,
            guard: Guard::new(slot_bits),
            dirty_blocks: 0,
            owed_blocks: 0,
            zero_blocks: 0,
            lost_blocks: 0,
            cached_blocks: 0,
            lingering_blocks: 0,
            room: RoomBlocks::ANY,
            next_read: 0,
            active: 0,
            reserved_blocks: 0,
            share_waiting: 0,
            places_in_reading: 0,
            origin: Origin::new(),
            destage: DestageState::new(blocks),
            counters: Counters::default(),
        }
    }

    /// Blocks of the volume, a partial last one included.
    pub fn blocks(&self) -> u64 {
        self.size_sectors.div_ceil(SECTORS_PER_BLOCK)
    }

    /// The key of one of its blocks.
    pub fn key(&self, block: u64) -> BlockKey {
        BlockKey::new(self.index, block)
    }

    /// The keys of some of its blocks.
    pub fn keys(&self, blocks: Blocks) -> Range<BlockKey> {
        let first = self.key(blocks.first);
        first..BlockKey(first.0 + blocks.count)
    }

    /// The range of `blocks` blocks from `first` on at the origin: offset and length in bytes, the length
    /// shortened where the volume ends inside its last block.
    pub fn origin_bytes(&self, first: u64, blocks: u64) -> (u64, u64) {
        let offset = first * BLOCK_BYTES;
        let end = ((first + blocks) * BLOCK_BYTES).min(self.size_sectors * SECTOR_BYTES);
        assert!(end > offset, "the range begins inside the volume");
        (offset, end - offset)
    }

    /// Takes the bits of the well-known places that a write to `blocks` changes.
    pub fn forget_places_in_reading(&mut self, blocks: Blocks) {
        if self.places_in_reading == 0 {
            return;
        }
        for (at, offset_bytes) in offsets_bytes(self.size_sectors).into_iter().enumerate() {
            if offset_bytes.is_some_and(|offset_bytes| is_place_touched(offset_bytes, blocks)) {
                self.places_in_reading &= !(1 << at);
            }
        }
    }

    /// Whether the cache holds data that the origin lacks.
    pub fn is_dirty(&self) -> bool {
        let not_home = self.dirty_blocks + self.owed_blocks + self.zero_blocks + self.destage.listed;
        not_home + self.lost_blocks > 0
    }

    /// Whether clients were told of writes that the origin lacks. Where they write through it may only have yet to flush them,
    /// which they were not told.
    pub fn owes_origin(&self) -> bool {
        // RULE 17: outside writeback what is acknowledged is on the origin.
        let may_lack = self.mode == WriteMode::Writeback || self.is_leaving || self.was_refused;
        self.is_dirty() && (may_lack || self.lost_blocks > 0)
    }

    /// Whether the cache failed, and does not count for the volume any more.
    pub fn is_given_up(&self) -> bool {
        matches!(self.standing, Standing::Abandoning | Standing::Uncached)
    }

    /// Whether the volume has data that can be destaged.
    #[inline]
    pub fn has_destageable(&self) -> bool {
        self.dirty_blocks + self.zero_blocks + self.destage.listed > 0
    }

    /// Whether the volume has data that can be destaged, or whose destage is not over.
    #[inline]
    pub fn has_destage_work(&self) -> bool {
        // Asked at every call of the engine: one branch.
        self.dirty_blocks | self.zero_blocks | self.destage.under_way() > 0
    }

    /// Whether the origin flushed all writes to `blocks` that this process gave it.
    pub fn is_origin_flushed(&self, blocks: Blocks) -> bool {
        let flushed_epoch = self.origin.flushed_epoch;
        flushed_epoch > 0 && self.guard.is_origin_flushed(blocks, flushed_epoch)
    }

    /// Whether data read from the origin is put into the cache.
    pub fn caches_reads(&self) -> bool {
        self.standing == Standing::Cached && self.mode != WriteMode::Passthrough
    }

    /// The blocks that a range of zeroes covers; the volume's last block counts as covered when the
    /// range reaches the volume's end.
    pub fn whole_blocks(&self, range: SectorRange) -> Blocks {
        let first = range.start.div_ceil(SECTORS_PER_BLOCK);
        let is_to_end = range.end() == self.size_sectors;
        let end = if is_to_end { self.blocks() } else { range.end() / SECTORS_PER_BLOCK };
        Blocks { first, count: end.saturating_sub(first) }
    }

    /// Whether an operation covers every block it touches.
    pub fn covers_whole_blocks(&self, op: RequestOp) -> bool {
        match op {
            RequestOp::Write { range, .. } => range.is_block_aligned(),
            RequestOp::WriteZeroes { range, .. } => {
                self.whole_blocks(range).count == range.end_block() - range.first_block()
            }
            _ => true,
        }
    }
}
