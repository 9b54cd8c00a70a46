//! The header of a batch: one contiguous write that was appended to the log.

use super::bytes::{CHECKSUM_AT, array, counter_at, put, seal, u16_at, u32_at, u64_at, unseal};
use super::entry::{ENTRY_BYTES, Entry};
use super::payload::payload_span_blocks;
use super::{COUNTER_END, FormatError, SetId, VERSION};
use crate::number::{index, index_wide, low_u32, to_u16, to_u32, wide};
use crate::units::BLOCK_BYTES;
use alloc::vec::Vec;
use core::ops::Range;

const MAGIC: [u8; 8] = *b"FBAYBTCH";
/// Bytes before the entries.
pub const HEADER_FIXED_BYTES: usize = 96;
/// Blocks of a header at the most: room for some 1800 entries of one block each.
pub const HEADER_BLOCKS_MAX: u32 = 16;
/// Bytes of a payload block's checksum.
const CHECKSUM_BYTES: usize = 4;
const BLOCK: usize = index_wide(BLOCK_BYTES);

/// Blocks of the header of a batch with that many entries and payload blocks.
#[must_use]
pub fn header_blocks_for(entries: usize, payload_blocks: usize) -> u32 {
    let bytes = HEADER_FIXED_BYTES + entries * ENTRY_BYTES + payload_blocks * CHECKSUM_BYTES;
    to_u32(bytes.div_ceil(BLOCK))
}

/// The fixed fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The cache it belongs to.
    pub set_id: SetId,
    /// The session that wrote it.
    pub session: u64,
    /// The generation of the segment it is in.
    pub generation: u64,
    /// Its number: consecutive over the whole log, from 1.
    pub sequence: u64,
    /// The checksum of the header before it; 0 for the first one ever.
    pub previous_checksum: u32,
    /// All batches up to this one were known to be flushed when this one was assembled; below `sequence`.
    pub flushed_sequence: u64,
    /// Entries of batches below this one count no more; at most `sequence`.
    pub floor_sequence: u64,
    /// Entries of batches below this one are all clean, as far as batches before this one say.
    pub oldest_dirty_sequence: u64,
}

/// Which batch a header says it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderIdentity {
    pub set_id: SetId,
    pub session: u64,
    pub generation: u64,
    pub sequence: u64,
}

/// A header with the content behind its fixed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedBatch {
    /// The fixed fields.
    pub header: BatchHeader,
    /// The header's own checksum: the next header's `previous_checksum`.
    pub checksum: u32,
    /// Blocks of the header.
    pub header_blocks: u32,
    /// The entries in order.
    pub entries: Vec<Entry>,
    /// The [`crate::units::payload_checksum`] of each payload block.
    pub checksums: Vec<u32>,
}

impl DecodedBatch {
    /// Blocks behind the header that the payload takes.
    #[must_use]
    pub fn payload_blocks(&self) -> u32 {
        low_u32(payload_span_blocks(&self.entries))
    }

    /// Blocks of the whole batch.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.header_blocks + self.payload_blocks()
    }
}

impl BatchHeader {
    /// Writes the header to `bytes`, which are as many blocks as [`header_blocks_for`] says, and
    /// returns its checksum. `checksums` has one for each payload block of the entries, in order.
    ///
    /// # Panics
    /// If the lengths do not agree, or a field has a value that must not be written.
    pub fn encode(&self, entries: &[Entry], checksums: &[u32], bytes: &mut [u8]) -> u32 {
        assert!(payload_blocks(entries) == wide(checksums.len()), "each payload block has a checksum");
        let lists = self.encode_fixed(entries.len(), checksums.len(), bytes);
        encode_lists(entries, checksums, lists);
        seal(bytes, MAGIC, VERSION)
    }

    /// The same of entries that are encoded already.
    ///
    /// # Panics
    /// As [`BatchHeader::encode`].
    pub(crate) fn encode_from(&self, entries: &EncodedEntries, checksums: &[u32], bytes: &mut [u8]) -> u32 {
        assert!(entries.payload_blocks == wide(checksums.len()), "each payload block has a checksum");
        let lists = self.encode_fixed(entries.len(), checksums.len(), bytes);
        let (entry_bytes, rest) = lists.split_at_mut(entries.bytes.len());
        entry_bytes.copy_from_slice(&entries.bytes);
        encode_checksums(checksums, rest);
        seal(bytes, MAGIC, VERSION)
    }

    /// Writes all but the lists and the checksum of it all, and answers where the lists belong.
    fn encode_fixed<'b>(&self, entries: usize, checksums: usize, bytes: &'b mut [u8]) -> &'b mut [u8] {
        let blocks = header_blocks_for(entries, checksums);
        assert!(bytes.len() == index(blocks) * BLOCK);
        assert!(self.validate().is_ok(), "only allowed headers are written: {self:?}");
        assert!(blocks <= HEADER_BLOCKS_MAX);
        let lists_end = HEADER_FIXED_BYTES + lists_bytes(entries, checksums);
        bytes[..HEADER_FIXED_BYTES].fill(0);
        bytes[lists_end..].fill(0);
        put(bytes, 14, &to_u16(blocks).to_le_bytes());
        put(bytes, 16, &self.set_id);
        put(bytes, 32, &self.session.to_le_bytes());
        put(bytes, 40, &self.generation.to_le_bytes());
        put(bytes, 48, &self.sequence.to_le_bytes());
        put(bytes, 56, &self.flushed_sequence.to_le_bytes());
        put(bytes, 64, &self.floor_sequence.to_le_bytes());
        put(bytes, 72, &self.oldest_dirty_sequence.to_le_bytes());
        put(bytes, 80, &self.previous_checksum.to_le_bytes());
        put(bytes, 84, &to_u32(entries).to_le_bytes());
        put(bytes, 88, &to_u32(checksums).to_le_bytes());
        &mut bytes[HEADER_FIXED_BYTES..lists_end]
    }

    /// The parts of an encoded header that a summary has, too: the sequence, how many entries and checksums there are,
    /// and both lists as they are there.
    pub(super) fn encoded_lists(bytes: &[u8]) -> Result<(u64, [u32; 2], &[u8]), FormatError> {
        let counts = [u32_at(bytes, 84)?, u32_at(bytes, 88)?];
        let end = HEADER_FIXED_BYTES + lists_bytes(index(counts[0]), index(counts[1]));
        Ok((u64_at(bytes, 48)?, counts, bytes.get(HEADER_FIXED_BYTES..end).ok_or(FormatError::Truncated)?))
    }

    /// How many blocks the header that begins with `bytes` says it has: 1 to [`HEADER_BLOCKS_MAX`]. Nothing
    /// else but the magic is verified.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if no header begins there, [`FormatError::Field`], [`FormatError::Truncated`].
    pub fn peek_blocks(bytes: &[u8]) -> Result<u32, FormatError> {
        if array::<8>(bytes, 0)? != MAGIC {
            return Err(FormatError::Magic);
        }
        let blocks = u32::from(u16_at(bytes, 14)?);
        if !(1..=HEADER_BLOCKS_MAX).contains(&blocks) {
            return Err(FormatError::Field("header_blocks"));
        }
        Ok(blocks)
    }

    /// The fields of a header that may be torn; nothing but the magic is verified.
    pub(crate) fn peek(bytes: &[u8]) -> Option<HeaderIdentity> {
        BatchHeader::peek_blocks(bytes).ok()?;
        Some(HeaderIdentity {
            set_id: array(bytes, 16).ok()?,
            session: u64_at(bytes, 32).ok()?,
            generation: u64_at(bytes, 40).ok()?,
            sequence: u64_at(bytes, 48).ok()?,
        })
    }

    /// Reads the header that begins with `bytes`; bytes behind it are not looked at.
    ///
    /// # Errors
    /// Any [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<DecodedBatch, FormatError> {
        let header_blocks = BatchHeader::peek_blocks(bytes)?;
        let bytes = bytes.get(..index(header_blocks) * BLOCK).ok_or(FormatError::Truncated)?;
        unseal(bytes, MAGIC, VERSION)?;
        BatchHeader::decode_unverified(bytes)
    }

    /// The same without a look at checksum and version.
    pub(crate) fn decode_unverified(bytes: &[u8]) -> Result<DecodedBatch, FormatError> {
        let header_blocks = BatchHeader::peek_blocks(bytes)?;
        let checksum = u32_at(bytes, CHECKSUM_AT)?;
        let header = BatchHeader {
            set_id: array(bytes, 16)?,
            session: counter_at(bytes, 32, "session")?,
            generation: counter_at(bytes, 40, "generation")?,
            sequence: counter_at(bytes, 48, "sequence")?,
            flushed_sequence: u64_at(bytes, 56)?,
            floor_sequence: u64_at(bytes, 64)?,
            oldest_dirty_sequence: u64_at(bytes, 72)?,
            previous_checksum: u32_at(bytes, 80)?,
        };
        header.validate()?;
        let counts = (index(u32_at(bytes, 84)?), index(u32_at(bytes, 88)?));
        let lists = bytes.get(HEADER_FIXED_BYTES..).ok_or(FormatError::Truncated)?;
        let (entries, checksums) = decode_lists(lists, counts.0, counts.1)?;
        if header_blocks != header_blocks_for(entries.len(), checksums.len()) {
            return Err(FormatError::Field("header_blocks"));
        }
        Ok(DecodedBatch { header, checksum, header_blocks, entries, checksums })
    }

    pub(super) fn validate(&self) -> Result<(), FormatError> {
        if self.generation == 0 || self.generation > COUNTER_END {
            return Err(FormatError::Field("generation"));
        }
        if self.session > COUNTER_END {
            return Err(FormatError::Field("session"));
        }
        if self.sequence == 0 || self.sequence > COUNTER_END {
            return Err(FormatError::Field("sequence"));
        }
        if self.flushed_sequence >= self.sequence {
            return Err(FormatError::Field("flushed_sequence"));
        }
        if self.floor_sequence > self.sequence {
            return Err(FormatError::Field("floor_sequence"));
        }
        if self.oldest_dirty_sequence > self.sequence {
            return Err(FormatError::Field("oldest_dirty_sequence"));
        }
        Ok(())
    }
}

/// Bytes of that many entries and checksums, one list after the other.
pub(super) fn lists_bytes(entries: usize, checksums: usize) -> usize {
    entries * ENTRY_BYTES + checksums * CHECKSUM_BYTES
}

/// Writes the entries, then the checksums, to the beginning of `bytes`.
pub(super) fn encode_lists(entries: &[Entry], checksums: &[u32], bytes: &mut [u8]) {
    let (entry_bytes, rest) = bytes.split_at_mut(entries.len() * ENTRY_BYTES);
    encode_entries(entries, entry_bytes);
    encode_checksums(checksums, rest);
}

fn encode_entries(entries: &[Entry], bytes: &mut [u8]) {
    for (entry, field) in entries.iter().zip(bytes.as_chunks_mut().0) {
        entry.encode(field);
    }
}

pub(super) fn encode_checksums(checksums: &[u32], bytes: &mut [u8]) {
    for (checksum, field) in checksums.iter().zip(bytes.as_chunks_mut().0) {
        *field = checksum.to_le_bytes();
    }
}

fn payload_blocks(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| u64::from(entry.payload_blocks)).sum()
}

/// Entries as they are in all that lists them.
#[derive(Debug, Default)]
pub(crate) struct EncodedEntries {
    bytes: Vec<u8>,
    payload_blocks: u64,
}

impl EncodedEntries {
    /// None yet, with memory for so many.
    pub fn with_capacity(entries: usize) -> EncodedEntries {
        EncodedEntries { bytes: Vec::with_capacity(entries * ENTRY_BYTES), payload_blocks: 0 }
    }

    /// Adds entries behind the others.
    pub fn extend(&mut self, entries: &[Entry]) {
        let at = self.bytes.len();
        self.bytes.resize(at + entries.len() * ENTRY_BYTES, 0);
        encode_entries(entries, &mut self.bytes[at..]);
        self.payload_blocks += payload_blocks(entries);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    /// The bytes of some of them, by their numbers.
    pub fn bytes_of(&self, entries: Range<usize>) -> &[u8] {
        &self.bytes[entries.start * ENTRY_BYTES..entries.end * ENTRY_BYTES]
    }
}

/// Reads that many entries, then checksums, from the beginning of `bytes`, into vectors no longer than `bytes` allows.
pub(super) fn decode_lists(
    bytes: &[u8],
    entries: usize,
    checksums: usize,
) -> Result<(Vec<Entry>, Vec<u32>), FormatError> {
    let mut lists = (Vec::new(), Vec::new());
    decode_lists_into(bytes, (entries, checksums), &mut lists.0, &mut lists.1)?;
    Ok(lists)
}

/// The same into vectors that held others before; `counts` are those of entries and checksums.
pub(super) fn decode_lists_into(
    bytes: &[u8],
    counts: (usize, usize),
    entries: &mut Vec<Entry>,
    checksums: &mut Vec<u32>,
) -> Result<(), FormatError> {
    let entry_bytes = counts.0.checked_mul(ENTRY_BYTES).ok_or(FormatError::Truncated)?;
    let checksum_bytes = counts.1.checked_mul(CHECKSUM_BYTES).ok_or(FormatError::Truncated)?;
    let entry_list = bytes.get(..entry_bytes).ok_or(FormatError::Truncated)?;
    let rest =
        bytes.get(entry_bytes..).and_then(|rest| rest.get(..checksum_bytes)).ok_or(FormatError::Truncated)?;
    entries.clear();
    entries.reserve(counts.0);
    let mut payload_blocks = 0u64;
    for field in entry_list.chunks_exact(ENTRY_BYTES) {
        let entry = Entry::decode(field)?;
        payload_blocks += u64::from(entry.payload_blocks);
        entries.push(entry);
    }
    if payload_blocks != wide(counts.1) {
        return Err(FormatError::Field("payload_blocks"));
    }
    checksums.clear();
    checksums.extend(rest.as_chunks().0.iter().map(|field| u32::from_le_bytes(*field)));
    Ok(())
}
