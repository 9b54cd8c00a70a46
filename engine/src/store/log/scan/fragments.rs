//! The batches that can still be found in a log that is damaged where it was durable.
//!
//! A scan begins a log at its newest end and refuses what is missing below a flush (rule 5): a session could not build on
//! it. For a salvage each batch counts that can be read, before and behind the damage. What keeps the dead from coming back is
//! what a scan uses, too, batch by batch: the life of a segment, the session, the cut, the floor. One condition takes the place
//! of the chain, whose links are missing: along the log sessions do not fall.
//!
//! What is above the last flush ends at the first batch that is torn or missing, as in a scan: a power cut left it.

use super::edges::read_group_into;
use super::keys::{split, verify_keys};
use super::survey::WALK_BLOCKS;
use super::walk::SegmentReader;
use super::{BatchRecord, ScanError, SegmentView};
use crate::format::{BatchHeader, DecodedBatch, DecodedFooter, SegmentHead, SummaryBatch, Superblock};
use crate::image::Image;
use crate::number::{index_wide, to_u32};
use crate::units::{BLOCK_BYTES, payload_checksum};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The log as far as it can be found.
pub(crate) struct Fragments {
    /// The segments with batches that count, and the sequences of these, in the order of the log.
    segments: Vec<(u32, Vec<u64>)>,
    /// The last batch of each of these segments.
    pub last_of: BTreeMap<u32, u64>,
    /// The first batch of each of these segments.
    pub first_of: BTreeMap<u32, u64>,
    /// Entries of batches below this one are clean.
    pub oldest_dirty_sequence: u64,
    /// Batches that were durable and are nowhere.
    pub missing: u64,
    /// The last of them; 0 if there is none.
    pub last_missing: u64,
}

/// A batch that was found, and what its header or its segment's footer says.
struct Found {
    session: u64,
    flushed_sequence: u64,
    floor_sequence: u64,
    oldest_dirty_sequence: u64,
    record: BatchRecord,
}

/// The same without its entries.
#[derive(Clone, Copy)]
struct Trace {
    sequence: u64,
    session: u64,
    segment: u32,
    flushed_sequence: u64,
    floor_sequence: u64,
    oldest_dirty_sequence: u64,
}

/// Finds the batches of a log.
///
/// # Errors
/// [`ScanError::SuperblockStale`]: what is newer than the superblock cannot be told from what is dead.
pub(crate) fn find<I: Image>(image: &mut I, superblock: &Superblock) -> Result<Fragments, ScanError> {
    let mut traces: Vec<Trace> = Vec::new();
    for segment in 0..superblock.geometry().segments {
        for found in batches_of(image, superblock, segment) {
            let Found { session, flushed_sequence, floor_sequence, oldest_dirty_sequence, record } = found;
            // RULE 6: a copy of the superblock that missed a session cannot tell live from dead.
            if session > superblock.session {
                return Err(ScanError::SuperblockStale {
                    segment,
                    found_session: session,
                    superblock_session: superblock.session,
                });
            }
            let sequence = record.sequence;
            traces.push(Trace {
                sequence,
                session,
                segment,
                flushed_sequence,
                floor_sequence,
                oldest_dirty_sequence,
            });
        }
    }
    keep_living(&mut traces, superblock);
    let flushed = traces
        .iter()
        .map(|trace| trace.flushed_sequence)
        .fold(superblock.flushed_sequence.max(superblock.cut_sequence), u64::max);
    let above = traces.partition_point(|trace| trace.sequence <= flushed);
    let whole = whole_above(image, superblock, &traces[above..], flushed);
    traces.truncate(above + whole);
    let max = |of: fn(&Trace) -> u64| traces.iter().map(of).max().unwrap_or(0);
    let floor = max(|trace| trace.floor_sequence).max(superblock.base_sequence);
    let oldest_dirty_sequence = max(|trace| trace.oldest_dirty_sequence);
    traces.retain(|trace| trace.sequence >= floor);
    let (mut missing, mut last_missing) = (0, 0);
    let mut expected = floor;
    for sequence in traces.iter().map(|trace| trace.sequence).chain([flushed + 1]) {
        if sequence > expected {
            missing += sequence - expected;
            last_missing = sequence - 1;
        }
        expected = expected.max(sequence + 1);
    }
    let mut fragments = Fragments {
        segments: Vec::new(),
        last_of: BTreeMap::new(),
        first_of: BTreeMap::new(),
        oldest_dirty_sequence,
        missing,
        last_missing,
    };
    for Trace { sequence, segment, .. } in traces {
        fragments.last_of.insert(segment, sequence);
        fragments.first_of.entry(segment).or_insert(sequence);
        match fragments.segments.last_mut() {
            Some((last, sequences)) if *last == segment => sequences.push(sequence),
            _ => fragments.segments.push((segment, alloc::vec![sequence])),
        }
    }
    Ok(fragments)
}

impl Fragments {
    /// Hands out the batches that count, in the order of their sequences.
    pub fn visit<I: Image>(
        &self,
        image: &mut I,
        superblock: &Superblock,
        visitor: &mut dyn FnMut(SegmentView, &BatchRecord),
    ) {
        for (segment, sequences) in &self.segments {
            // Their summaries are nobody's concern, and what is home is told by the fragments as a whole.
            let view = SegmentView {
                segment: *segment,
                generation: 0,
                is_sealed: true,
                flushed_sequence: u64::MAX,
                is_home: false,
            };
            for found in batches_of(image, superblock, *segment) {
                if sequences.binary_search(&found.record.sequence).is_ok() {
                    visitor(view, &found.record);
                }
            }
        }
    }
}

/// Puts batches into the order of the log, and drops those that are dead.
fn keep_living(traces: &mut Vec<Trace>, superblock: &Superblock) {
    // RULE 6: what an earlier session wrote behind the cut never joins the log again.
    traces.retain(|trace| trace.session == superblock.session || trace.sequence <= superblock.cut_sequence);
    traces.sort_unstable_by_key(|trace| (trace.sequence, Reverse(trace.session)));
    traces.dedup_by_key(|trace| trace.sequence);
    let mut session = 0;
    traces.retain(|trace| {
        let lives = trace.session >= session;
        session = session.max(trace.session);
        lives
    });
}

/// How many of the batches above a flush are whole, and follow each other without a gap.
fn whole_above<I: Image>(image: &mut I, superblock: &Superblock, above: &[Trace], flushed: u64) -> usize {
    let (mut count, mut expected) = (0, flushed + 1);
    for segment_of in above.chunk_by(|one, next| one.segment == next.segment) {
        for found in batches_of(image, superblock, segment_of[0].segment) {
            if !segment_of.iter().any(|trace| trace.sequence == found.record.sequence) {
                continue;
            }
            if found.record.sequence != expected
                || !is_whole(image, superblock, segment_of[0].segment, &found.record)
            {
                return count;
            }
            count += 1;
            expected += 1;
        }
    }
    count
}

/// Whether all payload of a batch is what its header says.
fn is_whole<I: Image>(image: &mut I, superblock: &Superblock, segment: u32, record: &BatchRecord) -> bool {
    let (keys, of_keys, behind) = split(&record.entries, &record.checksums);
    let are_keys_good =
        matches!(verify_keys(image, superblock, &keys, &of_keys, false), Ok(None)) || keys.is_empty();
    let block_bytes = index_wide(BLOCK_BYTES);
    are_keys_good
        && (record.payload_block..).zip(&behind).all(|(block, checksum)| {
            block < superblock.geometry().segment_blocks
                && image
                    .read(superblock.geometry().offset_bytes(segment, block), block_bytes)
                    .is_ok_and(|bytes| payload_checksum(&bytes) == *checksum)
        })
}

/// The batches of the present life of a segment, in their order: from its summary, or else from those headers that can be
/// read.
fn batches_of<I: Image>(image: &mut I, superblock: &Superblock, segment: u32) -> Vec<Found> {
    let head = block_at(image, superblock, segment, 0)
        .and_then(|bytes| SegmentHead::decode(&bytes).ok())
        .filter(|head| head.set_id == superblock.set_id && head.ring == 0);
    let headers = headers_of(image, superblock, segment);
    let newest = headers.iter().map(|(_, batch)| batch.header.generation).max();
    let generation = head.map(|head| head.generation).or(newest);
    if let Some(summary) = summary_of(image, superblock, segment, generation) {
        return summary;
    }
    let (mut kept, mut session, mut sequence): (Vec<Found>, u64, u64) = (Vec::new(), 0, 0);
    for (block, batch) in headers {
        let header = batch.header;
        // What lies behind a batch and is older is of an earlier life, or of a dead tail.
        let follows = header.session >= session && header.sequence > sequence;
        if Some(header.generation) != generation || !follows {
            continue;
        }
        (session, sequence) = (header.session, header.sequence);
        kept.push(Found {
            session,
            flushed_sequence: header.flushed_sequence,
            floor_sequence: header.floor_sequence,
            oldest_dirty_sequence: header.oldest_dirty_sequence,
            record: BatchRecord {
                sequence,
                header_block: block,
                payload_block: block + batch.header_blocks,
                header_checksum: batch.checksum,
                entries: batch.entries,
                checksums: batch.checksums,
            },
        });
    }
    kept
}

fn block_at<I: Image>(image: &mut I, superblock: &Superblock, segment: u32, block: u32) -> Option<Vec<u8>> {
    image.read(superblock.geometry().offset_bytes(segment, block), index_wide(BLOCK_BYTES)).ok()
}

/// All batches that the summary of a segment lists, if it is whole and of that life.
fn summary_of<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    segment: u32,
    generation: Option<u64>,
) -> Option<Vec<Found>> {
    let geometry = superblock.geometry();
    let bytes = block_at(image, superblock, segment, geometry.segment_blocks - 1)?;
    let decoded = DecodedFooter::decode(&bytes).ok()?;
    let footer = decoded.footer;
    let is_of_life = footer.set_id == superblock.set_id
        && footer.ring == 0
        && generation.is_none_or(|generation| generation == footer.generation)
        && decoded.body_blocks <= geometry.segment_blocks - 2;
    if !is_of_life {
        return None;
    }
    let body_block = geometry.segment_blocks - 1 - decoded.body_blocks;
    let len_bytes = index_wide(u64::from(decoded.body_blocks) * BLOCK_BYTES);
    let mut group = Vec::new();
    let offset_bytes = geometry.offset_bytes(segment, body_block);
    read_group_into(image, core::iter::once((offset_bytes, len_bytes)), &mut group);
    let read = group.first().filter(|read| read.result.is_ok())?;
    let batches = decoded.decode_body(&read.bytes).ok()?;
    // HAZARD 15: what points behind the segment is rotten, whatever its checksum says.
    if batches.last().is_none_or(|last| last.end_block() > u64::from(body_block)) {
        return None;
    }
    let found = batches.into_iter().map(|batch| {
        let SummaryBatch { sequence, header_block, payload_block, entries, checksums } = batch;
        let record =
            BatchRecord { sequence, header_block, payload_block, header_checksum: 0, entries, checksums };
        Found {
            session: footer.session,
            flushed_sequence: footer.flushed_sequence,
            floor_sequence: footer.floor_sequence,
            oldest_dirty_sequence: footer.oldest_dirty_sequence,
            record,
        }
    });
    Some(found.collect())
}

/// Every header of this cache in a segment that is whole. Payload is stepped over where a header tells its length.
fn headers_of<I: Image>(image: &mut I, superblock: &Superblock, segment: u32) -> Vec<(u32, DecodedBatch)> {
    let segment_blocks = superblock.geometry().segment_blocks;
    let mut wide = SegmentReader::new(superblock, segment, WALK_BLOCKS);
    // One block that cannot be read keeps none of its neighbours back.
    let mut narrow = SegmentReader::new(superblock, segment, 1);
    let mut found = Vec::new();
    let mut block = 1;
    while block < segment_blocks {
        let batch = header_at(&mut wide, image, segment_blocks, block)
            .unwrap_or_else(|_| header_at(&mut narrow, image, segment_blocks, block).unwrap_or(None));
        let Some(batch) = batch.filter(|batch| batch.header.set_id == superblock.set_id) else {
            block += 1;
            continue;
        };
        let end = u64::from(block) + u64::from(batch.blocks());
        let next = if end <= u64::from(segment_blocks) { to_u32(end) } else { block + 1 };
        found.push((block, batch));
        block = next;
    }
    found
}

fn header_at<I: Image>(
    reader: &mut SegmentReader,
    image: &mut I,
    segment_blocks: u32,
    block: u32,
) -> Result<Option<DecodedBatch>, ScanError> {
    let left = segment_blocks - block;
    let blocks = match BatchHeader::peek_blocks(reader.exact(image, block, 1)?) {
        Ok(blocks) if blocks <= left => blocks,
        _ => return Ok(None),
    };
    Ok(BatchHeader::decode(reader.exact(image, block, blocks)?).ok())
}
