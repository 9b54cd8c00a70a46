//! The batches of the log, in the order of their sequences.

use super::edges::fill_group;
use super::survey::{Span, Survey, WALK_BLOCKS};
use super::walk::Walk;
use super::{BatchRecord, Damage, OpenSegment, ScanError, SegmentSpan, SegmentView};
use crate::format::{DecodedFooter, SummaryBatch, SummaryBuilder, Superblock};
use crate::image::{Image, ReadAt};
use crate::mutation::{Mutation, Mutations};
use crate::number::{index, index_wide, to_u32};
use crate::units::{BLOCK_BYTES, crc32c};
use alloc::vec::Vec;
use core::mem::take;
use core::ops::Range;

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

/// Segments whose summaries are read together.
#[derive(Default)]
struct Group {
    /// Which of the spans.
    spans: Range<usize>,
    /// The reads of the summaries that there are, in the order of the spans.
    reads: Vec<ReadAt>,
    /// Spans that were visited, and their reads.
    visited: usize,
    reads_visited: usize,
}

/// The visit, without the device.
struct Visit<'v> {
    superblock: &'v Superblock,
    limits: Limits,
    mutations: Mutations,
    visitor: &'v mut dyn FnMut(SegmentView, &BatchRecord),
    /// The batches of a summary, in memory that is used for each.
    batches: Vec<SummaryBatch>,
}

/// Hands out all batches of the spans from `from` on, completes the spans, and makes the open segment's summary.
///
/// While summaries are read, those that were read before are visited.
pub(super) fn visit<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    survey: &mut Survey,
    from: usize,
    mutations: Mutations,
    visitor: &mut dyn FnMut(SegmentView, &BatchRecord),
) -> Result<Option<OpenSegment>, ScanError> {
    let limits = Limits {
        floor_sequence: survey.floor_sequence,
        flushed_sequence: survey.flushed_sequence,
        oldest_dirty_sequence: survey.oldest_dirty_sequence,
    };
    let mut visit = Visit { superblock, limits, mutations, visitor, batches: Vec::new() };
    let spans = &mut survey.spans;
    let mut open = None;
    let (mut group, mut next) = (Group::at(from), Group::default());
    loop {
        next.begin(superblock, spans, &group);
        image.read_group_beside(&mut next.reads, &mut || visit.summaries(spans, &mut group));
        while let Some(at) = group.unvisited() {
            // A summary that is rotten costs time only: the headers say the same.
            open = Some(visit.headers(image, &mut spans[at])?);
            group.pass();
            visit.summaries(spans, &mut group);
        }
        if next.spans.is_empty() {
            break;
        }
        core::mem::swap(&mut group, &mut next);
    }
    let last = spans.last().map(|span| span.span);
    Ok(open.filter(|open| last.is_some_and(|last| last.segment == open.segment && !last.sealed)))
}

impl Group {
    /// Nothing, before a span.
    fn at(from: usize) -> Group {
        Group { spans: from..from, ..Group::default() }
    }

    /// Begins behind another group, with twice as many spans, so that the visit begins soon.
    fn begin(&mut self, superblock: &Superblock, spans: &[Span], before: &Group) {
        let from = before.spans.end;
        let most = (before.spans.len() * 2).clamp(1, BODIES_MAX);
        self.spans = from..from + together(&spans[from..], most);
        (self.visited, self.reads_visited) = (0, 0);
        let bodies = spans[self.spans.clone()].iter().filter_map(|span| {
            let footer = span.footer?;
            let block = superblock.geometry().segment_blocks - 1 - footer.body_blocks;
            let offset_bytes = superblock.geometry().offset_bytes(span.span.segment, block);
            Some((offset_bytes, index_wide(u64::from(footer.body_blocks) * BLOCK_BYTES)))
        });
        fill_group(bodies, &mut self.reads);
    }

    /// The next of the spans.
    fn unvisited(&self) -> Option<usize> {
        self.spans.clone().nth(self.visited)
    }

    fn pass(&mut self) {
        self.visited += 1;
    }
}

/// How many of the spans are read together, at the most so many; at least one, if there is any.
fn together(spans: &[Span], most: usize) -> usize {
    let mut bytes = 0;
    let fitting = spans.iter().take(most).take_while(|span| {
        bytes += span.footer.map_or(0, |footer| u64::from(footer.body_blocks) * BLOCK_BYTES);
        bytes <= BODIES_BYTES_MAX
    });
    fitting.count().max(1).min(spans.len())
}

/// Whether the batches lie between the head and the summary.
fn fits(batches: &[SummaryBatch], summary_block: u32) -> bool {
    batches.last().is_some_and(|last| last.end_block() <= u64::from(summary_block))
}

impl Visit<'_> {
    /// Visits the spans of a group up to one without a summary that can be believed.
    fn summaries(&mut self, spans: &mut [Span], group: &mut Group) {
        while let Some(at) = group.unvisited() {
            let span = &mut spans[at];
            let Some(footer) = span.footer else { return };
            let read = &group.reads[group.reads_visited];
            group.reads_visited += 1;
            if self.decode(footer, read).is_none() {
                return;
            }
            self.summary(span);
            group.pass();
        }
    }

    /// Takes the batches from what was read of a summary.
    fn decode(&mut self, mut footer: DecodedFooter, read: &ReadAt) -> Option<()> {
        if self.mutations.has(Mutation::SkipSummaryChecksum) {
            footer.body_checksum = crc32c(read.bytes.get(..index(footer.body_bytes))?);
        }
        read.result.ok()?;
        footer.decode_body_into(&read.bytes, &mut self.batches).ok()?;
        // HAZARD 15: what points behind the segment is rotten, whatever its checksum says.
        let summary_block = self.superblock.geometry().segment_blocks - 1 - footer.body_blocks;
        let is_fitting =
            fits(&self.batches, summary_block) || self.mutations.has(Mutation::TrustSummaryPlaces);
        is_fitting.then_some(())
    }

    /// Hands out the batches of a segment's summary.
    fn summary(&mut self, span: &mut Span) {
        let view = self.limits.view_of(span);
        span.span.used_blocks = self.batches.last().map_or(0, |last| to_u32(last.end_block()));
        for batch in &mut self.batches {
            if batch.sequence < self.limits.floor_sequence {
                continue;
            }
            let SummaryBatch { sequence, header_block, payload_block, .. } = *batch;
            let (entries, checksums) = (take(&mut batch.entries), take(&mut batch.checksums));
            let record =
                BatchRecord { sequence, header_block, payload_block, header_checksum: 0, entries, checksums };
            (self.visitor)(view, &record);
            (batch.entries, batch.checksums) = (record.entries, record.checksums);
        }
    }

    /// Hands out the batches of a segment without a summary.
    fn headers<I: Image>(&mut self, image: &mut I, span: &mut Span) -> Result<OpenSegment, ScanError> {
        span.footer = None;
        span.span.sealed = false;
        span.span.summary_blocks = 0;
        let view = self.limits.view_of(span);
        let mut walk = Walk::new(self.superblock, view.segment, span.head, WALK_BLOCKS);
        walk.mutations = self.mutations;
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
            if record.sequence >= self.limits.floor_sequence {
                (self.visitor)(view, &record);
            }
        }
        span.span.used_blocks = walk.block;
        Ok(OpenSegment { segment: view.segment, next_block: walk.block, summary })
    }
}
