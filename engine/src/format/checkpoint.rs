//! Checkpoints of the index: copies of it that a start loads instead of what the log says before them.
//!
//! They lie behind the last segment, two in turn, each in a side of its own:
//!
//! ```text
//! │ ... │ last segment │ record │ chunk 0 │ chunk 1 │ ... │ record │ chunk 0 │ chunk 1 │ ... │
//! chunk:  │ fixed fields │ groups │ extents │ ...                            free ... │ singles │
//! ```
//!
//! A chunk holds rows of the index as they are in memory, each with its key. The record is written when all chunks are: it says
//! where they count.

use super::bytes::{array, counter_at, put, seal, u32_at, u64_at, unseal};
use super::geometry::Geometry;
use super::{FormatError, SEGMENTS_OFFSET, SetId};
use crate::number::{const_u32, index, to_u32, wide};
use crate::units::{BLOCK_BYTES, VOLUMES_MAX};

/// The version of checkpoints, which changes with the rows of the index, too: one of another version is not loaded.
const VERSION: u16 = 1;
const RECORD_MAGIC: [u8; 8] = *b"FBAYCKPT";
const CHUNK_MAGIC: [u8; 8] = *b"FBAYCHNK";

/// Bytes of the record.
pub const CHECKPOINT_RECORD_BYTES: usize = index(const_u32(BLOCK_BYTES));
/// Blocks of a chunk at the most: 64 KiB.
pub const CHUNK_BLOCKS_MAX: u32 = 16;
/// Chunks of a side from which on they are longer than a block.
const CHUNKS_MANY: u32 = 256;
/// Words of a single's row, and of a group's.
pub const SINGLE_ROW_WORDS: usize = 2;
/// See [`SINGLE_ROW_WORDS`].
pub const GROUP_ROW_WORDS: usize = 19;

const KEY_BYTES: usize = 8;
const WORD_BYTES: usize = 4;
const CHUNK_FIXED_BYTES: usize = 64;
const SINGLE_BYTES: usize = KEY_BYTES + SINGLE_ROW_WORDS * WORD_BYTES;
const GROUP_BYTES: usize = KEY_BYTES + GROUP_ROW_WORDS * WORD_BYTES;
const EXTENT_BYTES: usize = 24;
/// The bit of an extent's length that says that it is lost, and not zeroes.
const LOST_BIT: u64 = 1 << 63;

/// The one of two checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Behind the segments.
    First,
    /// Behind the first one.
    Second,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::First, Side::Second];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// Where checkpoints lie on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointArea {
    /// Where the first side begins, in bytes from the device's start.
    pub offset_bytes: u64,
    /// Blocks of a chunk.
    pub chunk_blocks: u32,
    /// Chunks of each side.
    pub chunks: u32,
}

impl CheckpointArea {
    /// The room that segments leave at the end of a device of `cache_bytes`; `None` if there is none for a chunk on each side.
    #[must_use]
    pub fn of(geometry: &Geometry, cache_bytes: u64) -> Option<CheckpointArea> {
        let offset_bytes = SEGMENTS_OFFSET + u64::from(geometry.segments) * geometry.segment_bytes();
        let side_blocks = cache_bytes.saturating_sub(offset_bytes) / BLOCK_BYTES / 2;
        // Checkpoints of more are not needed: no index has so many rows.
        let side_blocks = to_u32(side_blocks.min(1 << 31));
        let chunk_blocks = 1 << (side_blocks / CHUNKS_MANY).clamp(1, CHUNK_BLOCKS_MAX).ilog2();
        let chunks = side_blocks.saturating_sub(1) / chunk_blocks;
        (chunks > 0).then_some(CheckpointArea { offset_bytes, chunk_blocks, chunks })
    }

    /// Bytes of a chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_blocks * const_u32(BLOCK_BYTES)
    }

    /// Where the record of a side is on the device, in bytes.
    #[must_use]
    pub fn record_at(&self, side: Side) -> u64 {
        let side_bytes = BLOCK_BYTES + u64::from(self.chunks) * u64::from(self.chunk_bytes());
        self.offset_bytes + if side == Side::First { 0 } else { side_bytes }
    }

    /// Where a chunk of a side is on the device, in bytes.
    #[must_use]
    pub fn chunk_at(&self, side: Side, chunk: u32) -> u64 {
        assert!(chunk < self.chunks, "the chunk is on its side");
        self.record_at(side) + BLOCK_BYTES + u64::from(chunk) * u64::from(self.chunk_bytes())
    }
}

/// Tells a checkpoint from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    /// The cache.
    pub set_id: SetId,
    /// The session that wrote it.
    pub session: u64,
    /// The last batch that was published when it began: what came later may be in it or not.
    pub start_sequence: u64,
}

impl CheckpointId {
    fn encode(&self, bytes: &mut [u8]) {
        put(bytes, 16, &self.set_id);
        put(bytes, 32, &self.session.to_le_bytes());
        put(bytes, 40, &self.start_sequence.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<CheckpointId, FormatError> {
        Ok(CheckpointId {
            set_id: array(bytes, 16)?,
            session: counter_at(bytes, 32, "session")?,
            start_sequence: counter_at(bytes, 40, "start_sequence")?,
        })
    }
}

/// The record of a checkpoint, without which its chunks do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// The checkpoint.
    pub id: CheckpointId,
    /// The last session that believed it, or wrote it.
    pub session: u64,
    /// The last batch that it may tell anything of.
    pub end_sequence: u64,
    /// Its chunks.
    pub chunks: u32,
    /// Parts that the index was written in: a power of two.
    pub parts: u32,
    /// Singles in all of them.
    pub singles: u64,
    /// Groups in all of them.
    pub groups: u64,
    /// The ids of the volumes that keys name, by slot; 0 where there was none.
    pub volumes: [u32; VOLUMES_MAX],
}

const VOLUMES_AT: usize = 80;
const SESSION_AT: usize = VOLUMES_AT + VOLUMES_MAX * WORD_BYTES;

impl CheckpointRecord {
    /// Writes the record to `bytes`.
    ///
    /// # Panics
    /// If `bytes` has another length than [`CHECKPOINT_RECORD_BYTES`], or it ends before it begins.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == CHECKPOINT_RECORD_BYTES && self.end_sequence >= self.id.start_sequence);
        assert!(self.parts.is_power_of_two(), "parts are told by bits of a hash");
        bytes.fill(0);
        self.id.encode(bytes);
        put(bytes, SESSION_AT, &self.session.to_le_bytes());
        put(bytes, 48, &self.end_sequence.to_le_bytes());
        put(bytes, 56, &self.chunks.to_le_bytes());
        put(bytes, 60, &self.parts.to_le_bytes());
        put(bytes, 64, &self.singles.to_le_bytes());
        put(bytes, 72, &self.groups.to_le_bytes());
        for (at, id) in self.volumes.iter().enumerate() {
            put(bytes, VOLUMES_AT + at * WORD_BYTES, &id.to_le_bytes());
        }
        seal(bytes, RECORD_MAGIC, VERSION);
    }

    /// Reads a record from the first [`CHECKPOINT_RECORD_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<CheckpointRecord, FormatError> {
        let bytes = bytes.get(..CHECKPOINT_RECORD_BYTES).ok_or(FormatError::Truncated)?;
        unseal(bytes, RECORD_MAGIC, VERSION)?;
        let mut volumes = [0; VOLUMES_MAX];
        for (at, id) in volumes.iter_mut().enumerate() {
            *id = u32_at(bytes, VOLUMES_AT + at * WORD_BYTES)?;
        }
        let record = CheckpointRecord {
            id: CheckpointId::decode(bytes)?,
            session: counter_at(bytes, SESSION_AT, "session")?,
            end_sequence: counter_at(bytes, 48, "end_sequence")?,
            chunks: u32_at(bytes, 56)?,
            parts: u32_at(bytes, 60)?,
            singles: u64_at(bytes, 64)?,
            groups: u64_at(bytes, 72)?,
            volumes,
        };
        if record.end_sequence < record.id.start_sequence {
            return Err(FormatError::Field("end_sequence"));
        }
        if !record.parts.is_power_of_two() {
            return Err(FormatError::Field("parts"));
        }
        Ok(record)
    }
}

/// An extent in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkExtent {
    /// The key of its first block.
    pub key: u64,
    /// Its blocks, below 2^63.
    pub blocks: u64,
    /// Whether it is lost, and not zeroes.
    pub is_lost: bool,
    /// The place of the header that recorded it.
    pub place: u32,
}

/// Rows in a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Singles.
    pub singles: u32,
    /// Groups.
    pub groups: u32,
    /// Extents.
    pub extents: u32,
}

/// Bytes of so many rows in chunks.
#[must_use]
pub const fn rows_bytes(singles: u64, groups: u64, extents: u64) -> u64 {
    singles * wide(SINGLE_BYTES) + groups * wide(GROUP_BYTES) + extents * wide(EXTENT_BYTES)
}

impl ChunkCounts {
    /// Bytes of the rows.
    fn bytes(&self) -> u64 {
        rows_bytes(self.singles.into(), self.groups.into(), self.extents.into())
    }

    fn extents_at(&self) -> usize {
        CHUNK_FIXED_BYTES + index(self.groups) * GROUP_BYTES
    }
}

/// A chunk in the making: rows are pushed as long as they fit, groups before extents.
pub struct ChunkWriter<'b> {
    bytes: &'b mut [u8],
    counts: ChunkCounts,
}

impl<'b> ChunkWriter<'b> {
    /// A chunk without rows, of all of `bytes`.
    ///
    /// # Panics
    /// If they are less than a block.
    #[must_use]
    pub fn new(bytes: &'b mut [u8]) -> ChunkWriter<'b> {
        assert!(wide(bytes.len()) >= BLOCK_BYTES, "a chunk has a block at the least");
        ChunkWriter { bytes, counts: ChunkCounts::default() }
    }

    /// Rows so far: also what [`ChunkWriter::back_to`] takes.
    #[must_use]
    pub fn counts(&self) -> ChunkCounts {
        self.counts
    }

    /// Takes the rows back that were pushed since.
    pub fn back_to(&mut self, counts: ChunkCounts) {
        self.counts = counts;
    }

    fn has_room(&self, more: usize) -> bool {
        wide(CHUNK_FIXED_BYTES) + self.counts.bytes() + wide(more) <= wide(self.bytes.len())
    }

    /// Adds a single. False if there is no room.
    pub fn push_single(&mut self, key: u64, row: &[u32; SINGLE_ROW_WORDS]) -> bool {
        if !self.has_room(SINGLE_BYTES) {
            return false;
        }
        self.counts.singles += 1;
        let at = self.bytes.len() - index(self.counts.singles) * SINGLE_BYTES;
        put_row(&mut self.bytes[at..], key, row);
        true
    }

    /// Adds a group. False if there is no room.
    ///
    /// # Panics
    /// If there are extents.
    pub fn push_group(&mut self, key: u64, row: &[u32; GROUP_ROW_WORDS]) -> bool {
        assert!(self.counts.extents == 0, "groups come before extents");
        if !self.has_room(GROUP_BYTES) {
            return false;
        }
        let at = self.counts.extents_at();
        put_row(&mut self.bytes[at..], key, row);
        self.counts.groups += 1;
        true
    }

    /// Adds an extent. False if there is no room.
    pub fn push_extent(&mut self, extent: ChunkExtent) -> bool {
        assert!(extent.blocks < LOST_BIT, "an extent is shorter than any number");
        if !self.has_room(EXTENT_BYTES) {
            return false;
        }
        let at = self.counts.extents_at() + index(self.counts.extents) * EXTENT_BYTES;
        let bytes = &mut self.bytes[at..at + EXTENT_BYTES];
        let lost = if extent.is_lost { LOST_BIT } else { 0 };
        put(bytes, 0, &extent.key.to_le_bytes());
        put(bytes, 8, &(extent.blocks | lost).to_le_bytes());
        put(bytes, 16, &u64::from(extent.place).to_le_bytes());
        self.counts.extents += 1;
        true
    }

    /// Ends it, as one of a checkpoint.
    pub fn finish(self, id: &CheckpointId, number: u32) {
        let ChunkWriter { bytes, counts } = self;
        let free = counts.extents_at() + index(counts.extents) * EXTENT_BYTES
            ..bytes.len() - index(counts.singles) * SINGLE_BYTES;
        bytes[..CHUNK_FIXED_BYTES].fill(0);
        bytes[free].fill(0);
        id.encode(bytes);
        put(bytes, 48, &number.to_le_bytes());
        put(bytes, 52, &counts.singles.to_le_bytes());
        put(bytes, 56, &counts.groups.to_le_bytes());
        put(bytes, 60, &counts.extents.to_le_bytes());
        seal(bytes, CHUNK_MAGIC, VERSION);
    }
}

/// A chunk that was read.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'b> {
    bytes: &'b [u8],
    counts: ChunkCounts,
}

impl<'b> Chunk<'b> {
    /// Reads chunk `number` of a checkpoint from all of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`]; [`FormatError::Field`] also for a chunk of another checkpoint.
    pub fn decode(id: &CheckpointId, number: u32, bytes: &'b [u8]) -> Result<Chunk<'b>, FormatError> {
        if wide(bytes.len()) < BLOCK_BYTES {
            return Err(FormatError::Truncated);
        }
        unseal(bytes, CHUNK_MAGIC, VERSION)?;
        if CheckpointId::decode(bytes)? != *id || u32_at(bytes, 48)? != number {
            return Err(FormatError::Field("checkpoint"));
        }
        let counts = ChunkCounts {
            singles: u32_at(bytes, 52)?,
            groups: u32_at(bytes, 56)?,
            extents: u32_at(bytes, 60)?,
        };
        if wide(CHUNK_FIXED_BYTES) + counts.bytes() > wide(bytes.len()) {
            return Err(FormatError::Truncated);
        }
        Ok(Chunk { bytes, counts })
    }

    /// Its rows.
    #[must_use]
    pub fn counts(&self) -> ChunkCounts {
        self.counts
    }

    /// The keys and rows of its singles, in the order in which they were pushed.
    pub fn singles(&self) -> impl Iterator<Item = (u64, [u32; SINGLE_ROW_WORDS])> + 'b {
        let from = self.bytes.len() - index(self.counts.singles) * SINGLE_BYTES;
        self.bytes[from..].chunks_exact(SINGLE_BYTES).rev().map(row)
    }

    /// The keys and rows of its groups.
    pub fn groups(&self) -> impl Iterator<Item = (u64, [u32; GROUP_ROW_WORDS])> + 'b {
        self.bytes[CHUNK_FIXED_BYTES..self.counts.extents_at()].chunks_exact(GROUP_BYTES).map(row)
    }

    /// Its extents.
    pub fn extents(&self) -> impl Iterator<Item = ChunkExtent> + 'b {
        let extents = self.bytes[self.counts.extents_at()..].chunks_exact(EXTENT_BYTES);
        extents.take(index(self.counts.extents)).map(|bytes| {
            let [key, blocks, place] = words(bytes);
            let is_lost = blocks & LOST_BIT != 0;
            // The upper half of a place is zero, as written; of hostile bytes it is dropped.
            let place = crate::number::low_u32(place);
            ChunkExtent { key, blocks: blocks & !LOST_BIT, is_lost, place }
        })
    }
}

fn put_row(bytes: &mut [u8], key: u64, row: &[u32]) {
    put(bytes, 0, &key.to_le_bytes());
    for (bytes, word) in bytes[KEY_BYTES..].chunks_exact_mut(WORD_BYTES).zip(row) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// The key and the row in `bytes`, which have the length of both.
fn row<const WORDS: usize>(bytes: &[u8]) -> (u64, [u32; WORDS]) {
    let (key, words) = bytes.split_at(KEY_BYTES);
    let mut row = [0; WORDS];
    for (word, bytes) in row.iter_mut().zip(words.chunks_exact(WORD_BYTES)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("a word"));
    }
    (u64::from_le_bytes(key.try_into().expect("a key")), row)
}

fn words<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut found = [0; COUNT];
    for (word, bytes) in found.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const ID: CheckpointId = CheckpointId { set_id: [7; 16], session: 3, start_sequence: 40 };

    fn record() -> CheckpointRecord {
        let mut volumes = [0; VOLUMES_MAX];
        volumes[2] = 9;
        CheckpointRecord {
            id: ID,
            session: 6,
            end_sequence: 50,
            chunks: 3,
            parts: 8,
            singles: 100,
            groups: 7,
            volumes,
        }
    }

    #[test]
    fn the_area_is_what_segments_leave() {
        let geometry = Geometry { segment_blocks: 64, segments: 124 };
        let end = SEGMENTS_OFFSET + 124 * 64 * BLOCK_BYTES;
        assert_eq!(CheckpointArea::of(&geometry, end + 3 * BLOCK_BYTES), None);
        let area = CheckpointArea::of(&geometry, end + 4 * BLOCK_BYTES).unwrap();
        assert_eq!(area, CheckpointArea { offset_bytes: end, chunk_blocks: 1, chunks: 1 });
        assert_eq!(area.chunk_at(Side::Second, 0), end + 3 * BLOCK_BYTES);
        for blocks in [5, 100, 1027, 1 << 14, 1 << 20] {
            let area = CheckpointArea::of(&geometry, end + blocks * BLOCK_BYTES).unwrap();
            let last = area.chunk_at(Side::Second, area.chunks - 1) + u64::from(area.chunk_bytes());
            assert!(last <= end + blocks * BLOCK_BYTES, "{area:?}");
            assert!(area.chunk_at(Side::First, area.chunks - 1) < area.record_at(Side::Second));
        }
    }

    #[test]
    fn a_record_comes_back_and_any_change_is_seen() {
        let mut bytes = vec![0xa5; CHECKPOINT_RECORD_BYTES];
        record().encode(&mut bytes);
        assert_eq!(CheckpointRecord::decode(&bytes), Ok(record()));
        for at in 0..200 {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(CheckpointRecord::decode(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_record_lies_where_it_always_did() {
        let mut bytes = vec![0; CHECKPOINT_RECORD_BYTES];
        record().encode(&mut bytes);
        assert_eq!((&bytes[..8], &bytes[12..14]), (&b"FBAYCKPT"[..], &[1, 0][..]));
        let numbers = [(32, 3), (40, 40), (48, 50), (56, 3), (60, 8), (64, 100), (72, 7), (88, 9), (144, 6)];
        for (at, expected) in numbers {
            assert_eq!(bytes[at..at + 4], u32::to_le_bytes(expected), "at {at}");
        }
    }

    proptest! {
        #[test]
        fn rows_come_back_as_far_as_they_fit(
            singles in 0..300_usize, groups in 0..60_usize, extents in 0..40_usize, blocks in 1..3_usize,
        ) {
            let mut bytes = vec![0xa5; blocks * 4096];
            let mut writer = ChunkWriter::new(&mut bytes);
            let single = |at: usize| (at as u64 * 3, [at as u32, !(at as u32)]);
            let group = |at: usize| (at as u64 * 5, [at as u32; GROUP_ROW_WORDS]);
            let extent =
                |at: usize| ChunkExtent { key: at as u64, blocks: 1 << 40, is_lost: at.is_multiple_of(2), place: at as u32 };
            let mut fit = ChunkCounts::default();
            for at in 0..groups {
                fit.groups += u32::from(writer.push_group(group(at).0, &group(at).1));
            }
            let before = writer.counts();
            for at in 0..singles {
                fit.singles += u32::from(writer.push_single(single(at).0, &single(at).1));
            }
            if singles % 2 == 0 {
                writer.back_to(before);
                fit.singles = 0;
            }
            for at in 0..extents {
                fit.extents += u32::from(writer.push_extent(extent(at)));
            }
            prop_assert_eq!(writer.counts(), fit);
            writer.finish(&ID, 5);
            let chunk = Chunk::decode(&ID, 5, &bytes).unwrap();
            let expected: Vec<_> = (0..fit.singles as usize).map(single).collect();
            prop_assert_eq!(chunk.singles().collect::<Vec<_>>(), expected);
            let expected: Vec<_> = (0..fit.groups as usize).map(group).collect();
            prop_assert_eq!(chunk.groups().collect::<Vec<_>>(), expected);
            let expected: Vec<_> = (0..fit.extents as usize).map(extent).collect();
            prop_assert_eq!(chunk.extents().collect::<Vec<_>>(), expected);
            prop_assert!(Chunk::decode(&ID, 4, &bytes).is_err());
            let other = CheckpointId { session: 4, ..ID };
            prop_assert!(Chunk::decode(&other, 5, &bytes).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read(mut bytes in proptest::collection::vec(any::<u8>(), 4096), counts: [u32; 3]) {
            ID.encode(&mut bytes);
            put(&mut bytes, 48, &0_u32.to_le_bytes());
            for (at, count) in counts.into_iter().enumerate() {
                put(&mut bytes, 52 + at * 4, &(count % 300).to_le_bytes());
            }
            seal(&mut bytes, CHUNK_MAGIC, VERSION);
            if let Ok(chunk) = Chunk::decode(&ID, 0, &bytes) {
                let rows = chunk.singles().count() + chunk.groups().count() + chunk.extents().count();
                let ChunkCounts { singles, groups, extents } = chunk.counts();
                prop_assert_eq!(rows, (singles + groups + extents) as usize);
            }
            seal(&mut bytes, RECORD_MAGIC, VERSION);
            let _ = CheckpointRecord::decode(&bytes);
        }
    }
}
