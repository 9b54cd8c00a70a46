//! The batches of the log, in the order of their sequences.

use super::survey::{Span, Survey, WALK_BLOCKS};
use super::walk::Walk;
use super::{BatchRecord, Damage, OpenSegment, ScanError, SegmentSpan, SegmentView, read_group_into};
use crate::format::{SummaryBatch, SummaryBuilder, Superblock};
use crate::image::Image;
use crate::mutation::{Mutation, Mutations};
use crate::number::{index, index_wide, to_u32};
use crate::units::{BLOCK_BYTES, crc32c};
use alloc::vec::Vec;

/// Bytes of summaries that are held at a time, unless a single one is longer.
const BODIES_BYTES_MAX: u64 = 8 << 20;
/// Summaries that are read at a time at the most.
const BODIES_MAX: usize = 64;

/// Sequences that say what a batch is worth.
#[derive(Clone, Copy)]
struct Limits {
    /// Batches below it do not count.
    floor_sequence: u64,
    /// Batches up to it are flushed.
    flushed_sequence: u64,
    /// Data below it is home.
    oldest_dirty_sequence: u64,
}

impl Limits {
    fn view_of(self, span: &Span) -> SegmentView {
        let SegmentSpan { segment, generation, sealed, last_sequence, .. } = span.span;
        SegmentView {
            segment,
            generation,
            is_sealed: sealed,
            flushed_sequence: self.flushed_sequence,
            is_home: last_sequence < self.oldest_dirty_sequence,
        }
    }
}

/// Hands out all batches, completes the spans, and makes the open segment's summary.
pub(super) fn visit<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    survey: &mut Survey,
    mutations: Mutations,
    visitor: &mut dyn FnMut(SegmentView, &BatchRecord),
) -> Result<Option<OpenSegment>, ScanError> {
    let mut group = Vec::new();
    let mut at = 0;
    let mut open = None;
    let limits = Limits {
        floor_sequence: survey.floor_sequence,
        flushed_sequence: survey.flushed_sequence,
        oldest_dirty_sequence: survey.oldest_dirty_sequence,
    };
    while at < survey.spans.len() {
        let together = together(&survey.spans[at..]);
        let spans = &mut survey.spans[at..at + together];
        let bodies = spans.iter().filter_map(|span| {
            let footer = span.footer?;
            let block = superblock.geometry().segment_blocks - 1 - footer.body_blocks;
            let offset_bytes = superblock.geometry().offset_bytes(span.span.segment, block);
            Some((offset_bytes, index_wide(u64::from(footer.body_blocks) * BLOCK_BYTES)))
        });
        read_group_into(image, bodies, &mut group);
        let mut reads = group.iter();
        for span in spans {
            let read = span.footer.and_then(|footer| Some((footer, reads.next()?)));
            let batches = read.and_then(|(mut footer, read)| {
                if mutations.has(Mutation::SkipSummaryChecksum) {
                    footer.body_checksum = crc32c(read.bytes.get(..index(footer.body_bytes))?);
                }
                let batches = read.result.ok().and_then(|()| footer.decode_body(&read.bytes).ok())?;
                // HAZARD 15: what points behind the segment is rotten, whatever its checksum says.
                let is_fitting =
                    fits(&batches, superblock.geometry().segment_blocks - 1 - footer.body_blocks)
                        || mutations.has(Mutation::TrustSummaryPlaces);
                is_fitting.then_some(batches)
            });
            match batches {
                Some(batches) => visit_summary(span, batches, limits, visitor),
                // A summary that is rotten costs time only: the headers say the same.
                None => {
                    open = Some(visit_headers(image, superblock, span, limits, mutations, visitor)?);
                }
            }
        }
        at += together;
    }
    let last = survey.spans.last().map(|span| span.span);
    Ok(open.filter(|open| last.is_some_and(|last| last.segment == open.segment && !last.sealed)))
}

/// How many of the spans, at least one, are read together.
fn together(spans: &[Span]) -> usize {
    let mut bytes = 0;
    let fitting = spans.iter().take(BODIES_MAX).take_while(|span| {
        bytes += span.footer.map_or(0, |footer| u64::from(footer.body_blocks) * BLOCK_BYTES);
        bytes <= BODIES_BYTES_MAX
    });
    fitting.count().max(1)
}

/// Whether the batches lie between the head and the summary.
fn fits(batches: &[SummaryBatch], summary_block: u32) -> bool {
    batches.last().is_some_and(|last| last.end_block() <= u64::from(summary_block))
}

fn visit_summary(
    span: &mut Span,
    batches: Vec<SummaryBatch>,
    limits: Limits,
    visitor: &mut dyn FnMut(SegmentView, &BatchRecord),
) {
    let view = limits.view_of(span);
    for batch in batches {
        span.span.used_blocks = to_u32(batch.end_block());
        if batch.sequence < limits.floor_sequence {
            continue;
        }
        let SummaryBatch { sequence, header_block, payload_block, entries, checksums } = batch;
        let record =
            BatchRecord { sequence, header_block, payload_block, header_checksum: 0, entries, checksums };
        visitor(view, &record);
    }
}

fn visit_headers<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    span: &mut Span,
    limits: Limits,
    mutations: Mutations,
    visitor: &mut dyn FnMut(SegmentView, &BatchRecord),
) -> Result<OpenSegment, ScanError> {
    span.footer = None;
    span.span.sealed = false;
    span.span.summary_blocks = 0;
    let view = limits.view_of(span);
    let mut walk = Walk::new(superblock, view.segment, span.head, WALK_BLOCKS);
    walk.mutations = mutations;
    let mut summary = SummaryBuilder::default();
    while walk.sequence <= span.span.last_sequence {
        let Some(found) = walk.next(image)? else {
            let offset_bytes = walk.offset_of(walk.block);
            let what = walk.damage.unwrap_or(Damage::Chain);
            return Err(ScanError::Corrupt { segment: view.segment, offset_bytes, what });
        };
        let record = found.into_record();
        summary.push(
            record.sequence,
            record.header_block,
            record.payload_block,
            &record.entries,
            &record.checksums,
        );
        if record.sequence >= limits.floor_sequence {
            visitor(view, &record);
        }
    }
    span.span.used_blocks = walk.block;
    Ok(OpenSegment { segment: view.segment, next_block: walk.block, summary })
}
