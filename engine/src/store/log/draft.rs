//! A batch being put together: its entries, its payload, and what its publication will do.

use super::Publish;
use super::keys::KeyPublish;
use super::once::once_place;
use crate::format::{Entry, EntryKind};
use crate::machine::guard::Blocks;
use crate::memory::{Memory, Slice};
use crate::number::{index, to_u32, wide};
use crate::units::{BLOCK_BYTES, Place, SECTORS_PER_BLOCK, VolumeId};
use alloc::vec::Vec;

/// Where the data of a batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    /// In the batch, behind its header.
    BehindHeader,
    /// Where it was written before.
    Elsewhere,
    /// Behind the header, and that of keys where it was written before.
    Both,
}

/// A batch being put together.
pub(super) struct Draft {
    pub sequence: u64,
    pub header_place: Place,
    pub entries: Vec<Entry>,
    /// The payload, in the order of the entries.
    pub pieces: Vec<Slice>,
    pub payload_blocks: u32,
    /// Whether clean payload is kept once, by one half or the other.
    pub keeps_once: bool,
    /// Of the payload, what one half alone gets, in the order of the entries.
    pub once_pieces: Vec<Slice>,
    pub once_blocks: u32,
    /// Of that, what was read from the origin.
    pub fill_blocks: u32,
    /// Of that, what the cache had already.
    pub relocated_blocks: u32,
    pub payload_max: u32,
    /// Checksums that its header has room for, where keys have some of them.
    pub checksums_max: u32,
    pub entries_max: usize,
    pub checksums: Vec<u32>,
    /// Whether the checksums are zeroes until the payload is on its way.
    pub owes_checksums: bool,
    pub publish: Vec<Publish>,
    /// Appends of clients that it may still take.
    pub units_left: u32,
}

/// Bounds of a draft.
pub(super) struct DraftLimits {
    pub payload: u32,
    pub checksums: u32,
    pub entries: usize,
    /// Appends of clients.
    pub units: u32,
}

impl Draft {
    /// The next payload block, counted from the batch's first until `fix_places`.
    pub fn next_place(&self) -> Place {
        Place(self.payload_blocks - self.once_blocks)
    }

    /// Adds an entry with payload that the origin has, and returns the payload's place. It is to be counted by the caller.
    pub fn push_clean(&mut self, volume: VolumeId, blocks: Blocks, slice: Slice) -> Place {
        if !self.keeps_once {
            let place = self.next_place();
            self.push_payload_entry(EntryKind::Clean, volume, blocks);
            self.pieces.push(slice);
            return place;
        }
        let place = once_place(self.once_blocks);
        self.push_payload_entry(EntryKind::CleanOnce, volume, blocks);
        self.once_pieces.push(slice);
        self.once_blocks += to_u32(blocks.count);
        place
    }

    /// Blocks of payload that it may still take.
    pub fn room(&self) -> u64 {
        u64::from((self.payload_max - self.payload_blocks).min(self.key_room()))
    }

    /// Checksums of keys that it may still take, whose data lies elsewhere.
    pub fn key_room(&self) -> u32 {
        self.checksums_max - to_u32(wide(self.checksums.len()))
    }

    /// Whether it has no room for another entry, or for payload.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.entries_max || self.room() == 0
    }

    /// Whether it may take another append of a client.
    pub fn has_units(&self) -> bool {
        self.entries.len() < self.entries_max && self.units_left > 0
    }

    /// Checksums that it may still take.
    pub fn checksums_left(&self) -> usize {
        index(self.payload_max) - self.checksums.len()
    }

    /// Counts an append of a client with so many blocks of payload.
    pub fn add_payload(&mut self, blocks: u64) {
        self.payload_blocks += to_u32(blocks);
        self.units_left -= 1;
    }

    /// Adds the checksums of blocks of payload, or zeroes in their places.
    #[inline]
    pub fn add_checksums<M: Memory>(&mut self, slice: Slice, blocks: u64, memory: &M) {
        if self.owes_checksums {
            self.checksums.resize(self.checksums.len() + index(to_u32(blocks)), 0);
        } else {
            add_checksums(slice.part(0, to_u32(blocks * BLOCK_BYTES)), &mut self.checksums, memory);
        }
    }

    pub fn push_key_publish(&mut self, publish: KeyPublish) {
        self.publish.push(Publish::Keys(publish));
    }

    /// Adds an entry with payload, or lengthens the last one where they meet.
    #[inline]
    pub fn push_payload_entry(&mut self, kind: EntryKind, volume: VolumeId, blocks: Blocks) {
        let entry = range_entry(kind, volume, blocks, to_u32(blocks.count), 0);
        if let Some(last) = self.entries.last_mut()
            && last.kind == kind
            && last.volume == volume
            && last.payload_blocks > 0
            && last.start_sector + u64::from(last.sectors) == entry.start_sector
        {
            last.sectors += entry.sectors;
            last.payload_blocks += entry.payload_blocks;
            return;
        }
        self.entries.push(entry);
    }
}

/// Adds the checksum of each block of a piece to `checksums`.
pub(super) fn add_checksums<M: Memory>(piece: Slice, checksums: &mut Vec<u32>, memory: &M) {
    let block_bytes = to_u32(BLOCK_BYTES);
    for block in 0..piece.len_bytes / block_bytes {
        checksums.push(memory.checksum(piece.part(block * block_bytes, block_bytes)));
    }
}

/// The entry that begins another interval of a volume of which everything up to `home_sequence` is home.
pub(super) fn interval_entry(volume: VolumeId, home_sequence: u64) -> Entry {
    let (kind, ring) = (EntryKind::Interval, 0);
    Entry { kind, ring, volume, start_sector: 0, sectors: 1, payload_blocks: 0, extra: home_sequence }
}

#[inline]
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
        sectors: to_u32(blocks.count * SECTORS_PER_BLOCK),
        payload_blocks,
        extra,
    }
}
