//! One segment, header by header.

use super::{BatchRecord, Damage, ScanError, read_group_into};
use crate::format::{BatchHeader, DecodedBatch, FormatError, SegmentHead, Superblock};
use crate::image::{Image, ReadAt};
use crate::mutation::{Mutation, Mutations};
use crate::number::{index, index_wide, to_u32};
use crate::units::{BLOCK_BYTES, payload_checksum};
use alloc::vec::Vec;
use core::ops::Range;

const BLOCK: usize = index_wide(BLOCK_BYTES);
/// Blocks of one read: 256 KiB.
const PIECE_BLOCKS: u32 = 64;

/// Blocks of one segment, read in windows.
pub(crate) struct SegmentReader {
    segment: u32,
    segment_blocks: u32,
    offset_bytes: u64,
    window_blocks: u32,
    first: u32,
    bytes: Vec<u8>,
    group: Vec<ReadAt>,
}

/// A read that failed.
type ReadError = ScanError;

impl SegmentReader {
    /// A reader that reads `window_blocks` at a time, as a group of smaller pieces.
    pub fn new(superblock: &Superblock, segment: u32, window_blocks: u32) -> SegmentReader {
        assert!(window_blocks > 0, "a window has blocks");
        SegmentReader {
            segment,
            segment_blocks: superblock.geometry().segment_blocks,
            offset_bytes: superblock.geometry().offset_bytes(segment, 0),
            window_blocks,
            first: 0,
            bytes: Vec::new(),
            group: Vec::new(),
        }
    }

    /// Where a block of the segment is on the device.
    pub fn offset_of(&self, block: u32) -> u64 {
        self.offset_bytes + u64::from(block) * BLOCK_BYTES
    }

    /// The blocks from `block` on: at least one, at most `count`; as many as one window has.
    pub fn some<I: Image>(&mut self, image: &mut I, block: u32, count: u32) -> Result<&[u8], ReadError> {
        assert!(count > 0 && block < self.segment_blocks, "what is read begins in the segment");
        let end = self.first + to_u32(self.bytes.len() / BLOCK);
        if block < self.first || block >= end {
            self.fill(image, block, self.window_blocks)?;
        }
        let from = index(block - self.first) * BLOCK;
        let to = self.bytes.len().min(from + index(count) * BLOCK);
        Ok(&self.bytes[from..to])
    }

    /// Exactly `count` blocks from `block` on, all in the segment.
    pub fn exact<I: Image>(&mut self, image: &mut I, block: u32, count: u32) -> Result<&[u8], ReadError> {
        assert!(count > 0 && count <= self.segment_blocks - block, "what is read is in the segment");
        let end = self.first + to_u32(self.bytes.len() / BLOCK);
        if block < self.first || block + count > end {
            self.fill(image, block, self.window_blocks.max(count))?;
        }
        let from = index(block - self.first) * BLOCK;
        Ok(&self.bytes[from..from + index(count) * BLOCK])
    }

    fn fill<I: Image>(&mut self, image: &mut I, block: u32, blocks: u32) -> Result<(), ReadError> {
        let end = self.segment_blocks.min(block + blocks);
        let offset = |at: u32| self.offset_bytes + u64::from(at) * BLOCK_BYTES;
        let pieces = (block..end)
            .step_by(index(PIECE_BLOCKS))
            .map(|at| (offset(at), index((end - at).min(PIECE_BLOCKS)) * BLOCK));
        read_group_into(image, pieces, &mut self.group);
        self.first = block;
        let failed = self.group.iter().find_map(|read| Some((read.offset_bytes, read.result.err()?)));
        if let Some((offset_bytes, errno)) = failed {
            self.bytes.clear();
            return Err(ScanError::Device { offset_bytes, errno });
        }
        match &mut self.group[..] {
            [only] => core::mem::swap(&mut self.bytes, &mut only.bytes),
            pieces => {
                self.bytes.clear();
                pieces.iter().for_each(|read| self.bytes.extend_from_slice(&read.bytes));
            }
        }
        Ok(())
    }
}

/// A batch that was found.
pub(crate) struct Found {
    pub header_block: u32,
    pub batch: DecodedBatch,
}

impl Found {
    pub fn payload_block(&self) -> u32 {
        self.header_block + self.batch.header_blocks
    }

    pub fn into_record(self) -> BatchRecord {
        BatchRecord {
            sequence: self.batch.header.sequence,
            header_block: self.header_block,
            payload_block: self.payload_block(),
            header_checksum: self.batch.checksum,
            entries: self.batch.entries,
            checksums: self.batch.checksums,
        }
    }
}

/// Goes from header to header as long as they continue the log.
pub(crate) struct Walk<'a> {
    superblock: &'a Superblock,
    head: SegmentHead,
    reader: SegmentReader,
    /// Where the next header has to be.
    pub block: u32,
    /// The sequence it has to have.
    pub sequence: u64,
    /// The checksum it has to name.
    pub checksum: u32,
    /// The session that it must not fall below.
    pub session: u64,
    /// Why the walk ended.
    pub damage: Option<Damage>,
    /// The highest sequence seen at the end of the walk that is torn.
    pub torn_sequence: u64,
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

impl<'a> Walk<'a> {
    pub fn new(superblock: &'a Superblock, segment: u32, head: SegmentHead, window_blocks: u32) -> Walk<'a> {
        Walk {
            superblock,
            head,
            reader: SegmentReader::new(superblock, segment, window_blocks),
            block: 1,
            sequence: head.first_sequence,
            checksum: head.previous_checksum,
            session: head.session,
            damage: None,
            torn_sequence: 0,
            mutations: Mutations::NONE,
        }
    }

    /// Where a block of the segment is on the device.
    pub fn offset_of(&self, block: u32) -> u64 {
        self.reader.offset_of(block)
    }

    /// The next batch; `None` at the end, after which `damage` says what is there instead. The walk stands behind
    /// the batch that it returns.
    ///
    /// # Errors
    /// [`ScanError::Device`]; [`ScanError::SuperblockStale`] for a header that belongs here and is too new.
    pub fn next<I: Image>(&mut self, image: &mut I) -> Result<Option<Found>, ScanError> {
        match self.look(image)? {
            Ok(found) => {
                self.block += found.batch.blocks();
                self.sequence += 1;
                self.checksum = found.batch.checksum;
                self.session = found.batch.header.session;
                assert!(self.block <= self.reader.segment_blocks, "a batch ends in its segment");
                Ok(Some(found))
            }
            Err(damage) => {
                self.damage = Some(damage);
                Ok(None)
            }
        }
    }

    fn look<I: Image>(&mut self, image: &mut I) -> Result<Result<Found, Damage>, ScanError> {
        let left = self.reader.segment_blocks - self.block;
        if left == 0 {
            return Ok(Err(Damage::Header(FormatError::Truncated)));
        }
        let first = self.reader.exact(image, self.block, 1)?;
        let blocks = match BatchHeader::peek_blocks(first) {
            Ok(blocks) if blocks <= left => blocks,
            Ok(_) => return Ok(Err(Damage::Header(FormatError::Truncated))),
            Err(error) => return Ok(Err(Damage::Header(error))),
        };
        let bytes = self.reader.exact(image, self.block, blocks)?;
        let batch = match BatchHeader::decode(bytes) {
            Ok(batch) => batch,
            // HAZARD 2: a batch whose header is torn counts as never written.
            Err(FormatError::Checksum) if self.mutations.has(Mutation::SkipHeaderChecksum) => {
                match BatchHeader::decode_unverified(bytes) {
                    Ok(batch) => batch,
                    Err(error) => return Ok(Err(Damage::Header(error))),
                }
            }
            Err(error) => {
                let torn = BatchHeader::peek(bytes).filter(|torn| {
                    torn.set_id == self.superblock.set_id
                        && torn.generation == self.head.generation
                        && torn.session == self.superblock.session
                        && torn.sequence == self.sequence
                });
                self.torn_sequence = torn.map_or(0, |torn| torn.sequence);
                return Ok(Err(Damage::Header(error)));
            }
        };
        let header = &batch.header;
        if header.set_id != self.superblock.set_id || header.generation != self.head.generation {
            return Ok(Err(Damage::Header(FormatError::Magic)));
        }
        if header.session > self.superblock.session && !self.mutations.has(Mutation::TrustStaleSuperblock) {
            return Err(ScanError::SuperblockStale {
                segment: self.reader.segment,
                found_session: header.session,
                superblock_session: self.superblock.session,
            });
        }
        // RULE 6: the dead tail of an earlier life fails here, each condition for itself.
        let is_dead =
            header.session < self.superblock.session && header.sequence > self.superblock.cut_sequence;
        let is_dead = is_dead && !self.mutations.has(Mutation::TrustDeadTail);
        let is_chained = header.previous_checksum == self.checksum && header.session >= self.session
            || self.mutations.has(Mutation::ForgetChain);
        let is_next = header.sequence == self.sequence && is_chained && batch.blocks() <= left;
        if is_dead || !is_next {
            return Ok(Err(Damage::Chain));
        }
        Ok(Ok(Found { header_block: self.block, batch }))
    }

    /// Verifies a batch's payload: the segment's first block that does not match its checksum, if any, at or after
    /// the `from`th of the batch.
    ///
    /// # Errors
    /// [`ScanError::Device`].
    pub fn verify<I: Image>(
        &mut self,
        image: &mut I,
        payload_block: u32,
        checksums: &[u32],
        from: usize,
    ) -> Result<Option<usize>, ScanError> {
        let mut at = from;
        while at < checksums.len() {
            let left = to_u32(checksums.len() - at);
            let bytes = self.reader.some(image, payload_block + to_u32(at), left)?;
            for block in bytes.chunks_exact(BLOCK) {
                if payload_checksum(block) != checksums[at] {
                    return Ok(Some(at));
                }
                at += 1;
            }
        }
        Ok(None)
    }

    /// Looks for headers of this life of the segment behind the end of the walk, which can say how far the
    /// log once reached: the highest sequence, and the highest that was known to be flushed.
    ///
    /// Nothing found here is taken into the log, so that payload which happens to look like a header can at
    /// worst make a scan refuse.
    ///
    /// # Errors
    /// [`ScanError::Device`].
    pub fn search_rest<I: Image>(&mut self, image: &mut I) -> Result<(u64, u64), ScanError> {
        let generation = self.head.generation;
        let sequences = self.sequence..self.sequence + u64::from(self.reader.segment_blocks - self.block);
        let (seen, flushed) =
            search(&mut self.reader, image, self.superblock, self.block, sequences, |g| g == generation)?;
        Ok((seen.max(self.torn_sequence), flushed))
    }
}

/// The same in a segment without a head of its own life: of one behind `generation`, whose batches follow `sequence` or come later.
///
/// # Errors
/// [`ScanError::Device`].
pub(super) fn search_headers<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    segment: u32,
    generation: u64,
    sequence: u64,
) -> Result<(u64, u64), ScanError> {
    let mut reader = SegmentReader::new(superblock, segment, super::survey::WALK_BLOCKS);
    // Of the segment before it, batches may be missing, too.
    let sequences = sequence..sequence + 2 * u64::from(reader.segment_blocks);
    search(&mut reader, image, superblock, 1, sequences, |found| found > generation)
}

fn search<I: Image>(
    reader: &mut SegmentReader,
    image: &mut I,
    superblock: &Superblock,
    first_block: u32,
    sequences: Range<u64>,
    is_life: impl Fn(u64) -> bool,
) -> Result<(u64, u64), ScanError> {
    let (mut seen, mut flushed) = (0, 0);
    let mut block = first_block;
    while block < reader.segment_blocks {
        let first = reader.exact(image, block, 1)?;
        let blocks = BatchHeader::peek_blocks(first).ok().filter(|&b| b <= reader.segment_blocks - block);
        let bytes = match blocks {
            Some(blocks) => reader.exact(image, block, blocks)?,
            None => &[],
        };
        block += 1;
        let Ok(batch) = BatchHeader::decode(bytes) else { continue };
        let header = &batch.header;
        let is_ours = header.set_id == superblock.set_id
            && is_life(header.generation)
            && header.session == superblock.session
            && sequences.contains(&header.sequence);
        if is_ours {
            seen = header.sequence.max(seen);
            flushed = header.flushed_sequence.max(flushed);
        }
    }
    Ok((seen, flushed))
}
