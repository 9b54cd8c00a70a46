//! A batch being put together: its entries, its payload, and what its publication will do.

use super::Publish;
use crate::format::{Entry, EntryKind};
use crate::machine::guard::Blocks;
use crate::memory::{Memory, Slice};
use crate::units::{BLOCK_BYTES, Place, SECTORS_PER_BLOCK, VolumeId};
use alloc::vec::Vec;

/// A batch being put together.
pub(super) struct Draft {
    pub sequence: u64,
    pub first_payload: u32,
    pub payload_blocks: u32,
    pub payload_max: u32,
    pub entries_max: usize,
    pub checksums: Vec<u32>,
    pub publish: Vec<Publish>,
    /// Appends of clients that it may take yet.
    pub units_left: u32,
}

impl Draft {
    /// The next payload block, counted from the batch's first until `fix_places`.
    pub fn next_place(&self) -> Place {
        Place(self.payload_blocks)
    }

    /// Blocks of payload that it may take yet.
    pub fn room(&self) -> u64 {
        u64::from(self.payload_max - self.payload_blocks)
    }

    /// Whether it may take one append of a client more.
    pub fn has_units(&self, entries: usize) -> bool {
        entries < self.entries_max && self.units_left > 0
    }

    /// A client's append took so many blocks.
    pub fn add_payload(&mut self, blocks: u64) {
        self.payload_blocks += blocks as u32;
        self.units_left -= 1;
    }

    pub fn add_checksums<M: Memory>(&mut self, slice: Slice, blocks: u64, memory: &M) {
        for step in 0..blocks {
            let part = slice.part((step * BLOCK_BYTES) as u32, BLOCK_BYTES as u32);
            self.checksums.push(memory.checksum(part));
        }
    }
}

pub(super) fn range_entry(
    kind: EntryKind,
    volume: VolumeId,
    blocks: Blocks,
    payload_blocks: u32,
    extra: u64,
) -> Entry {
    Entry {
        kind,
        ring: 0,
        volume,
        start_sector: blocks.first * SECTORS_PER_BLOCK,
        sectors: (blocks.count * SECTORS_PER_BLOCK) as u32,
        payload_blocks,
        extra,
    }
}

/// Adds an entry with payload, or lengthens the last one where they meet.
pub(super) fn push_payload_entry(
    entries: &mut Vec<Entry>,
    kind: EntryKind,
    volume: VolumeId,
    blocks: Blocks,
) {
    let entry = range_entry(kind, volume, blocks, blocks.count as u32, 0);
    if let Some(last) = entries.last_mut()
        && last.kind == kind
        && last.volume == volume
        && last.payload_blocks > 0
        && last.start_sector + u64::from(last.sectors) == entry.start_sector
    {
        last.sectors += entry.sectors;
        last.payload_blocks += entry.payload_blocks;
        return;
    }
    entries.push(entry);
}
