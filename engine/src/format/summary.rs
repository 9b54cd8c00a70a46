//! The end of a sealed segment: all its headers' content in one place, so that recovery reads one
//! small piece of it.
//!
//! ```text
//!   ... batches │ free │ body: per batch a record, its entries, its checksums; zeroes │ footer │
//!                                                                   the segment's last block ┘
//! ```

use super::batch::{BatchHeader, decode_lists_into, encode_lists, lists_bytes};
use super::bytes::{array, counter_at, put, seal, u8_at, u32_at, u64_at, unseal};
use super::entry::Entry;
use super::payload::payload_span_blocks;
use super::{COUNTER_END, FormatError, SetId, VERSION};
use crate::number::{index, index_wide, to_u32};
use crate::units::{BLOCK_BYTES, crc32c};
use alloc::vec::Vec;

const MAGIC: [u8; 8] = *b"FBAYSUMM";
const BLOCK: usize = index_wide(BLOCK_BYTES);
/// Bytes of a batch's record before its entries.
const RECORD_BYTES: usize = 24;

/// The last block of a sealed segment, as far as the writer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryFooter {
    /// The cache it belongs to.
    pub set_id: SetId,
    /// The ring of the segment.
    pub ring: u8,
    /// The generation of the segment: a footer of another generation is from an earlier life.
    pub generation: u64,
    /// The session that wrote this summary.
    pub session: u64,
    /// The sequence of the segment's first batch.
    pub first_sequence: u64,
    /// The sequence of its last batch.
    pub last_sequence: u64,
    /// The checksum of its last header.
    pub last_header_checksum: u32,
    /// All batches up to this one were known to be flushed.
    pub flushed_sequence: u64,
    /// As in the segment's last header, or newer.
    pub floor_sequence: u64,
    /// As in the segment's last header, or newer.
    pub oldest_dirty_sequence: u64,
}

/// A footer as read, with its description of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodedFooter {
    pub footer: SummaryFooter,
    /// Blocks of the body, which ends where the footer begins.
    pub body_blocks: u32,
    pub body_bytes: u32,
    pub body_checksum: u32,
}

/// One batch of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummaryBatch {
    /// Its sequence.
    pub sequence: u64,
    /// Where its header begins, in blocks from the segment's start.
    pub header_block: u32,
    /// Where its payload begins, in blocks from the segment's start.
    pub payload_block: u32,
    /// Its entries.
    pub entries: Vec<Entry>,
    /// The [`crate::units::payload_checksum`] of each of its payload blocks.
    pub checksums: Vec<u32>,
}

impl SummaryBatch {
    /// Where it ends, in blocks from the segment's start.
    pub(crate) fn end_block(&self) -> u64 {
        u64::from(self.payload_block) + payload_span_blocks(&self.entries)
    }
}

/// A whole summary as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The footer.
    pub footer: SummaryFooter,
    /// The batches in the order of their sequences.
    pub batches: Vec<SummaryBatch>,
}

impl SummaryFooter {
    fn validate(&self) -> Result<(), FormatError> {
        if self.generation == 0 || self.generation > COUNTER_END {
            return Err(FormatError::Field("generation"));
        }
        if self.session > COUNTER_END {
            return Err(FormatError::Field("session"));
        }
        if self.first_sequence == 0
            || self.last_sequence < self.first_sequence
            || self.last_sequence > COUNTER_END
        {
            return Err(FormatError::Field("last_sequence"));
        }
        let others = [self.flushed_sequence, self.floor_sequence, self.oldest_dirty_sequence];
        if others.into_iter().any(|sequence| sequence > COUNTER_END) {
            return Err(FormatError::Field("flushed_sequence"));
        }
        Ok(())
    }
}

impl DecodedFooter {
    /// Reads a footer from `bytes`, which are one block.
    pub(crate) fn decode(bytes: &[u8]) -> Result<DecodedFooter, FormatError> {
        let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
        unseal(bytes, MAGIC, VERSION)?;
        let footer = SummaryFooter {
            set_id: array(bytes, 16)?,
            ring: u8_at(bytes, 14)?,
            generation: counter_at(bytes, 32, "generation")?,
            session: counter_at(bytes, 40, "session")?,
            first_sequence: counter_at(bytes, 48, "first_sequence")?,
            last_sequence: counter_at(bytes, 56, "last_sequence")?,
            flushed_sequence: counter_at(bytes, 64, "flushed_sequence")?,
            floor_sequence: counter_at(bytes, 72, "floor_sequence")?,
            oldest_dirty_sequence: counter_at(bytes, 80, "oldest_dirty_sequence")?,
            last_header_checksum: u32_at(bytes, 88)?,
        };
        footer.validate()?;
        let body_blocks = u32_at(bytes, 92)?;
        let body_bytes = u32_at(bytes, 96)?;
        if index(body_bytes) > index(body_blocks).saturating_mul(BLOCK) {
            return Err(FormatError::Field("body_bytes"));
        }
        Ok(DecodedFooter { footer, body_blocks, body_bytes, body_checksum: u32_at(bytes, 100)? })
    }

    /// Reads the batches from `body`, the blocks before the footer.
    pub(crate) fn decode_body(&self, body: &[u8]) -> Result<Vec<SummaryBatch>, FormatError> {
        let mut batches = Vec::new();
        self.decode_body_into(body, &mut batches)?;
        Ok(batches)
    }

    /// The same into memory that other batches had before.
    pub(crate) fn decode_body_into(
        &self,
        body: &[u8],
        batches: &mut Vec<SummaryBatch>,
    ) -> Result<(), FormatError> {
        let mut rest = body.get(..index(self.body_bytes)).ok_or(FormatError::Truncated)?;
        if crc32c(rest) != self.body_checksum {
            return Err(FormatError::Checksum);
        }
        let mut count = 0;
        let mut expected = self.footer.first_sequence;
        let mut end_block = 1;
        while !rest.is_empty() {
            if count == batches.len() {
                batches.push(SummaryBatch::default());
            }
            let batch = &mut batches[count];
            let bytes = decode_record_into(rest, batch)?;
            let payload_end = batch.end_block();
            if batch.sequence != expected || expected > self.footer.last_sequence {
                return Err(FormatError::Field("sequence"));
            }
            let is_in_order =
                u64::from(batch.header_block) >= end_block && batch.payload_block > batch.header_block;
            if !is_in_order || payload_end > u64::from(u32::MAX) {
                return Err(FormatError::Field("payload_block"));
            }
            end_block = payload_end;
            expected += 1;
            count += 1;
            rest = &rest[bytes..];
        }
        if expected != self.footer.last_sequence + 1 {
            return Err(FormatError::Field("last_sequence"));
        }
        batches.truncate(count);
        Ok(())
    }
}

/// Reads the record that `bytes` begin with, and answers how long it is.
fn decode_record_into(bytes: &[u8], batch: &mut SummaryBatch) -> Result<usize, FormatError> {
    let counts = (index(u32_at(bytes, 16)?), index(u32_at(bytes, 20)?));
    let lists = bytes.get(RECORD_BYTES..).ok_or(FormatError::Truncated)?;
    batch.sequence = u64_at(bytes, 0)?;
    batch.header_block = u32_at(bytes, 8)?;
    batch.payload_block = u32_at(bytes, 12)?;
    decode_lists_into(lists, counts, &mut batch.entries, &mut batch.checksums)?;
    Ok(RECORD_BYTES + lists_bytes(counts.0, counts.1))
}

impl Summary {
    /// Reads a summary from `bytes`, whose last block is the footer and whose other blocks end with the body.
    ///
    /// # Errors
    /// Any [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Summary, FormatError> {
        let body_end = bytes.len().checked_sub(BLOCK).ok_or(FormatError::Truncated)?;
        let (before, footer) = bytes.split_at(body_end);
        let decoded = DecodedFooter::decode(footer)?;
        let body_blocks = index(decoded.body_blocks);
        let body_start = body_blocks
            .checked_mul(BLOCK)
            .and_then(|len| body_end.checked_sub(len))
            .ok_or(FormatError::Truncated)?;
        let batches = decoded.decode_body(&before[body_start..])?;
        Ok(Summary { footer: decoded.footer, batches })
    }
}

/// A summary that grows with its segment.
#[derive(Clone, Debug, Default)]
pub struct SummaryBuilder {
    body: Vec<u8>,
    batches: u64,
    next_sequence: Option<u64>,
}

impl SummaryBuilder {
    /// Adds a batch: its sequence, where its header and its payload begin in blocks from the segment's
    /// start, its entries, and one checksum for each payload block.
    ///
    /// # Panics
    /// If the batch does not follow the one before, or the lengths do not agree.
    pub fn push(
        &mut self,
        sequence: u64,
        header_block: u32,
        payload_block: u32,
        entries: &[Entry],
        checksums: &[u32],
    ) {
        let counts = [to_u32(entries.len()), to_u32(checksums.len())];
        self.begin_record(sequence, header_block, payload_block, counts);
        let at = self.body.len();
        self.body.resize(at + lists_bytes(entries.len(), checksums.len()), 0);
        encode_lists(entries, checksums, &mut self.body[at..]);
    }

    /// The same of a batch whose header was encoded to `header` just now: its lists are copied.
    ///
    /// # Panics
    /// If the batch does not follow the one before, or this is no header.
    pub fn push_encoded(&mut self, header_block: u32, payload_block: u32, header: &[u8]) {
        let (sequence, counts, lists) =
            BatchHeader::encoded_lists(header).expect("a header that was just encoded");
        self.begin_record(sequence, header_block, payload_block, counts);
        self.body.extend_from_slice(lists);
    }

    /// Adds what stands before the lists of a batch: how many entries and checksums they have comes last.
    fn begin_record(&mut self, sequence: u64, header_block: u32, payload_block: u32, counts: [u32; 2]) {
        assert!(self.next_sequence.is_none_or(|next| next == sequence), "batches are added in order");
        assert!(header_block > 0 && payload_block > header_block);
        let mut record = [0; RECORD_BYTES];
        put(&mut record, 0, &sequence.to_le_bytes());
        put(&mut record, 8, &header_block.to_le_bytes());
        put(&mut record, 12, &payload_block.to_le_bytes());
        put(&mut record, 16, &counts[0].to_le_bytes());
        put(&mut record, 20, &counts[1].to_le_bytes());
        self.body.extend_from_slice(&record);
        self.next_sequence = Some(sequence + 1);
        self.batches += 1;
    }

    /// One without batches, which keeps the memory.
    #[must_use]
    pub fn emptied(mut self) -> SummaryBuilder {
        self.body.clear();
        SummaryBuilder { body: self.body, ..SummaryBuilder::default() }
    }

    /// How many batches were added.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Bytes of the body so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Blocks that the summary needs now, footer included.
    #[must_use]
    pub fn blocks_needed(&self) -> u32 {
        to_u32(self.body.len().div_ceil(BLOCK)) + 1
    }

    /// Writes body and footer to `bytes`, which are [`SummaryBuilder::blocks_needed`] blocks, to be
    /// written to the segment's last blocks.
    ///
    /// # Panics
    /// If the lengths do not agree, or the footer speaks of other batches than were added.
    pub fn finish(&self, footer: &SummaryFooter, bytes: &mut [u8]) {
        assert!(bytes.len() == index(self.blocks_needed()) * BLOCK);
        assert!(footer.validate().is_ok(), "only allowed footers are written: {footer:?}");
        assert!(self.next_sequence == Some(footer.last_sequence + 1), "the footer names the last batch");
        assert!(
            footer.last_sequence - footer.first_sequence + 1 == self.batches,
            "the footer names the first batch"
        );
        let (body, last) = bytes.split_at_mut(bytes.len() - BLOCK);
        let (filled, rest) = body.split_at_mut(self.body.len());
        filled.copy_from_slice(&self.body);
        rest.fill(0);
        last.fill(0);
        last[14] = footer.ring;
        put(last, 16, &footer.set_id);
        put(last, 32, &footer.generation.to_le_bytes());
        put(last, 40, &footer.session.to_le_bytes());
        put(last, 48, &footer.first_sequence.to_le_bytes());
        put(last, 56, &footer.last_sequence.to_le_bytes());
        put(last, 64, &footer.flushed_sequence.to_le_bytes());
        put(last, 72, &footer.floor_sequence.to_le_bytes());
        put(last, 80, &footer.oldest_dirty_sequence.to_le_bytes());
        put(last, 88, &footer.last_header_checksum.to_le_bytes());
        put(last, 92, &(self.blocks_needed() - 1).to_le_bytes());
        put(last, 96, &to_u32(self.body.len()).to_le_bytes());
        put(last, 100, &crc32c(&self.body).to_le_bytes());
        seal(last, MAGIC, VERSION);
    }
}
