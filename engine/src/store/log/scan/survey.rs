//! Which segments are the log, and where it ends.

use super::edges::{Edges, read_edges};
use super::keys::{has_keys, split, verify_keys};
use super::visit::visit;
use super::walk::{Walk, search_headers};
use super::{Damage, ScanError, SegmentSpan};
use crate::format::{DecodedBatch, DecodedFooter, Layout, SegmentHead, Superblock};
use crate::image::Image;
use crate::mutation::{Mutation, Mutations};
use crate::number::{index, to_u32};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Blocks that a walk reads at a time: 256 KiB.
pub(super) const WALK_BLOCKS: u32 = 64;

/// A segment of the log, with what is needed to read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub span: SegmentSpan,
    pub head: SegmentHead,
    /// The footer, if the segment is sealed.
    pub footer: Option<DecodedFooter>,
}

/// The last batch of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub sequence: u64,
    pub checksum: u32,
}

/// The log as found. `used_blocks` of sealed segments are not known before their summaries are read.
#[derive(Debug)]
pub(crate) struct Survey {
    pub spans: Vec<Span>,
    pub end: End,
    pub last_generation: u64,
    /// The highest sequence that is known to have been begun.
    pub seen_sequence: u64,
    pub flushed_sequence: u64,
    pub floor_sequence: u64,
    pub oldest_dirty_sequence: u64,
    pub base_sequence: u64,
    pub stale_blocks: Vec<u64>,
    pub repaired: Option<ScanError>,
}

/// A segment that may belong to the log.
struct Candidate {
    segment: u32,
    head: SegmentHead,
    /// The footer, if it can be trusted.
    footer: Option<DecodedFooter>,
    reach: Reach,
}

/// How far a segment continues the log.
#[derive(Clone, Copy, Default)]
struct Reach {
    /// Its last valid batch; below the head's first sequence if there is none.
    last_sequence: u64,
    checksum: u32,
    /// As the last batch says.
    floor_sequence: u64,
    oldest_dirty_sequence: u64,
    /// Where the last batch ends; 0 if that is not known.
    end_block: u32,
    /// Whether the next candidate continues it.
    is_linked: bool,
    /// Why the segment was not followed any further, and at which block.
    damage: Option<(u32, Damage)>,
}

impl Candidate {
    fn is_empty(&self) -> bool {
        self.reach.last_sequence < self.head.first_sequence
    }
}

struct Surveyor<'a, I> {
    image: &'a mut I,
    superblock: &'a Superblock,
    repair: bool,
    mutations: Mutations,
    flushed_sequence: u64,
    seen_sequence: u64,
}

/// Reads edges and headers, and payload that no flush is known to cover.
///
/// # Errors
/// [`ScanError`].
pub(crate) fn survey<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    repair: bool,
    mutations: Mutations,
) -> Result<Survey, ScanError> {
    survey_without(image, superblock, repair, mutations, &[])
}

/// Surveys a log for a repair: no segment in it is without both its summary and a header.
///
/// A footer vouches for headers that were not read. Where its summary turns out to be damaged, and a header too, the log
/// is cut at that header.
///
/// # Errors
/// [`ScanError`].
pub(super) fn survey_for_repair<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    mutations: Mutations,
) -> Result<Survey, ScanError> {
    let mut without: Vec<u32> = Vec::new();
    let geometry = superblock.geometry();
    loop {
        let mut survey = survey_without(image, superblock, true, mutations, &without)?;
        let error = match visit(image, superblock, &mut survey, 0, mutations, &mut |_, _| ()) {
            Ok(_) => return Ok(survey),
            Err(error) => error,
        };
        let segment = match error {
            ScanError::Corrupt { segment, .. } => Some(segment),
            ScanError::Device { offset_bytes, .. } => {
                (0..geometry.segments).rfind(|segment| geometry.offset_bytes(*segment, 0) <= offset_bytes)
            }
            _ => None,
        };
        match segment.filter(|segment| !without.contains(segment)) {
            Some(segment) => without.push(segment),
            None => return Err(error),
        }
    }
}

/// Surveys a log as if some segments had no footer.
fn survey_without<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    repair: bool,
    mutations: Mutations,
    without_footer: &[u32],
) -> Result<Survey, ScanError> {
    let mut edges = read_edges(image, superblock, repair, mutations)?;
    without_footer.iter().for_each(|segment| edges[index(*segment)].footer = None);
    let mut surveyor = Surveyor {
        image,
        superblock,
        repair,
        mutations,
        // The recovery that cut the log flushed all of it first.
        flushed_sequence: superblock.cut_sequence.max(superblock.flushed_sequence),
        seen_sequence: 0,
    };
    let mut candidates = order(&edges, superblock, mutations);
    for at in 0..candidates.len() {
        let next = candidates.get(at + 1).map(|next| (next.segment, next.head));
        candidates[at].reach = surveyor.follow(&candidates[at], next)?;
        let Candidate { head, footer, reach, .. } = &candidates[at];
        if head.session == superblock.session {
            surveyor.seen_sequence = surveyor.seen_sequence.max(head.first_sequence);
        }
        if let Some(DecodedFooter { footer, .. }) = footer {
            surveyor.flushed_sequence = surveyor.flushed_sequence.max(footer.flushed_sequence);
        }
        surveyor.seen_sequence = surveyor.seen_sequence.max(reach.last_sequence);
    }
    // After a clean stop the superblock has told all.
    if !superblock.clean_stop && !mutations.has(Mutation::SkipHeadless) {
        surveyor.search_headless(&candidates)?;
    }
    // Only now is it known what was flushed, and with it what has to be verified.
    for candidate in &mut candidates {
        let is_trusted = candidate.footer.is_some() && mutations.has(Mutation::TrustSummaryAboveFlush);
        let is_flushed = candidate.reach.last_sequence <= surveyor.flushed_sequence;
        if !is_flushed && !candidate.is_empty() && !is_trusted {
            surveyor.verify(candidate)?;
        }
    }
    surveyor.judge(&edges, &candidates)
}

/// The candidates in the order of their writing.
///
/// Segments are opened in the order of their places, each with a higher generation than all before. So once around the
/// ring, from behind the newest head, the generations rise. A head that is lower than one before it is left from an
/// earlier round: a later opening was lost. It shows as a missing link, as a segment without a head does.
fn order(edges: &[Edges], superblock: &Superblock, mutations: Mutations) -> Vec<Candidate> {
    let is_any = mutations.has(Mutation::TrustDeadTail);
    let live = |segment: usize| edges[segment].head.filter(|head| is_any || !is_dead(head, superblock));
    let newest = (0..edges.len()).filter_map(|at| live(at).map(|head| (head.generation, at))).max();
    let Some((_, newest)) = newest else { return Vec::new() };
    let mut candidates = Vec::new();
    let mut generation = 0;
    for step in 1..=edges.len() {
        let at = (newest + step) % edges.len();
        let Some(head) = live(at).filter(|head| head.generation > generation) else { continue };
        generation = head.generation;
        // A footer of the dead tail does not count: the segment went on after the cut.
        let footer = edges[at].footer.filter(|decoded| {
            decoded.footer.session == superblock.session
                || decoded.footer.last_sequence <= superblock.cut_sequence
        });
        candidates.push(Candidate { segment: to_u32(at), head, footer, reach: Reach::default() });
    }
    candidates
}

/// RULE 6: whether a segment was opened behind the cut by an earlier session.
fn is_dead(head: &SegmentHead, superblock: &Superblock) -> bool {
    head.session < superblock.session && head.first_sequence > superblock.cut_sequence
}

impl<I: Image> Surveyor<'_, I> {
    /// How far a candidate continues the log, without a look at payload.
    fn follow(
        &mut self,
        candidate: &Candidate,
        next: Option<(u32, SegmentHead)>,
    ) -> Result<Reach, ScanError> {
        let segments = self.superblock.geometry().segments;
        let next =
            next.filter(|(segment, _)| *segment == (candidate.segment + 1) % segments).map(|(_, head)| head);
        if let Some(DecodedFooter { footer, .. }) = candidate.footer {
            let is_linked = next.is_some_and(|next| {
                next.first_sequence == footer.last_sequence + 1
                    && next.previous_checksum == footer.last_header_checksum
            });
            let is_doubtful = next.is_some_and(|next| next.first_sequence <= footer.last_sequence);
            if is_linked || !is_doubtful {
                return Ok(Reach {
                    last_sequence: footer.last_sequence,
                    checksum: footer.last_header_checksum,
                    floor_sequence: footer.floor_sequence,
                    oldest_dirty_sequence: footer.oldest_dirty_sequence,
                    end_block: 0,
                    is_linked,
                    damage: None,
                });
            }
        }
        self.follow_headers(candidate, next)
    }

    /// The same, from the headers: up to where the next segment says that it begins, else as far as they go.
    fn follow_headers(
        &mut self,
        candidate: &Candidate,
        next: Option<SegmentHead>,
    ) -> Result<Reach, ScanError> {
        let mut walk = Walk::new(self.superblock, candidate.segment, candidate.head, WALK_BLOCKS);
        walk.mutations = self.mutations;
        let mut reach = Reach { last_sequence: candidate.head.first_sequence - 1, ..Reach::default() };
        loop {
            reach.checksum = walk.checksum;
            reach.end_block = walk.block;
            // Behind the cut of an earlier life there may still be headers that continue the chain of that life;
            // the next segment tells where the live one left.
            reach.is_linked = next.is_some_and(|next| {
                walk.sequence == next.first_sequence
                    && walk.checksum == next.previous_checksum
                    && walk.session <= next.session
            });
            if reach.is_linked {
                return Ok(reach);
            }
            let found = match walk.next(self.image) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    reach.damage = walk.damage.map(|damage| (walk.block, damage));
                    break;
                }
                Err(ScanError::Device { errno, .. }) if self.repair => {
                    reach.damage = Some((walk.block, Damage::Unreadable(errno)));
                    break;
                }
                Err(error) => return Err(error),
            };
            let header = found.batch.header;
            reach.last_sequence = header.sequence;
            reach.floor_sequence = header.floor_sequence;
            reach.oldest_dirty_sequence = header.oldest_dirty_sequence;
            self.flushed_sequence = self.flushed_sequence.max(header.flushed_sequence);
        }
        match walk.search_rest(self.image) {
            Ok((seen, flushed)) => {
                self.seen_sequence = self.seen_sequence.max(seen);
                self.flushed_sequence = self.flushed_sequence.max(flushed);
            }
            Err(ScanError::Device { .. }) if self.repair => (),
            Err(error) => return Err(error),
        }
        Ok(reach)
    }

    /// RULE 5: looks for headers in the segments that the log would go on in, up to the first without any. Rot may have taken a head
    /// there, and what lies behind it may have been flushed. A power cut may have, too, and what lies behind it may state what was
    /// flushed before. Then the segment still has the head of the round before, if the ring has been round.
    fn search_headless(&mut self, candidates: &[Candidate]) -> Result<(), ScanError> {
        if candidates.is_empty() {
            return self.search_behind(0, 0, self.superblock.base_sequence, None);
        }
        let segments = self.superblock.geometry().segments;
        for (at, Candidate { segment, head, reach, .. }) in candidates.iter().enumerate() {
            let next = candidates.get(at + 1).map(|next| next.segment);
            let first = (segment + 1) % segments;
            self.search_behind(first, head.generation, reach.last_sequence + 1, next)?;
        }
        Ok(())
    }

    /// The same from segment `first` to the one before `end`, which are all behind `generation` and begin at `sequence` or later.
    fn search_behind(
        &mut self,
        first: u32,
        generation: u64,
        mut sequence: u64,
        end: Option<u32>,
    ) -> Result<(), ScanError> {
        let segments = self.superblock.geometry().segments;
        for segment in (first..segments).chain(0..first).take_while(|segment| Some(*segment) != end) {
            match search_headers(self.image, self.superblock, segment, generation, sequence) {
                Ok((0, _)) => break,
                Ok((seen, flushed)) => {
                    self.seen_sequence = self.seen_sequence.max(seen);
                    self.flushed_sequence = self.flushed_sequence.max(flushed);
                    sequence = seen + 1;
                }
                Err(ScanError::Device { .. }) if self.repair => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// RULE 5: verifies headers and payload of a candidate's batches above the highest flushed one, and shortens its
    /// reach to what holds. Batches reach the device in any order, so a summary there says nothing of the batches.
    fn verify(&mut self, candidate: &mut Candidate) -> Result<(), ScanError> {
        let mut walk = Walk::new(self.superblock, candidate.segment, candidate.head, WALK_BLOCKS);
        walk.mutations = self.mutations;
        let wanted = candidate.reach;
        let mut reach = Reach { last_sequence: candidate.head.first_sequence - 1, ..Reach::default() };
        loop {
            reach.checksum = walk.checksum;
            reach.end_block = walk.block;
            if reach.last_sequence == wanted.last_sequence {
                break;
            }
            match self.verify_next(&mut walk) {
                Ok(Ok((sequence, floor_sequence, oldest_dirty_sequence))) => {
                    reach = Reach { last_sequence: sequence, floor_sequence, oldest_dirty_sequence, ..reach };
                }
                Ok(Err(damage)) => {
                    reach.damage = Some(damage);
                    break;
                }
                Err(ScanError::Device { errno, .. }) if self.repair => {
                    reach.damage = Some((reach.end_block, Damage::Unreadable(errno)));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let is_whole = reach.last_sequence == wanted.last_sequence && reach.checksum == wanted.checksum;
        reach.is_linked = is_whole && wanted.is_linked;
        if is_whole {
            reach.damage = wanted.damage;
        } else {
            candidate.footer = None;
        }
        candidate.reach = reach;
        Ok(())
    }

    /// The next batch's sequence, floor and oldest dirty sequence, or where and why it does not count.
    #[expect(clippy::type_complexity, reason = "used once, next to its definition")]
    fn verify_next(&mut self, walk: &mut Walk) -> Result<Result<(u64, u64, u64), (u32, Damage)>, ScanError> {
        let block = walk.block;
        let Some(found) = walk.next(self.image)? else {
            return Ok(Err((block, walk.damage.unwrap_or(Damage::Chain))));
        };
        let header = found.batch.header;
        // HAZARD 2: a batch whose payload is torn counts as never written.
        if header.sequence > self.flushed_sequence && !self.mutations.has(Mutation::SkipPayloadAtRecovery) {
            let payload_block = found.payload_block();
            let DecodedBatch { entries, checksums, .. } = &found.batch;
            let doubts_kept = self.mutations.has(Mutation::DoubtKeptKeys);
            let (keys, of_keys, behind) = match self.superblock.layout {
                Layout::Frames(_) => split(entries, checksums),
                _ if has_keys(entries) => (entries.clone(), checksums.clone(), Vec::new()),
                // RULE 20: what one half alone has does not decide what the log has.
                _ if self.mutations.has(Mutation::CutAtOnce) => (Vec::new(), Vec::new(), checksums.clone()),
                _ => (Vec::new(), Vec::new(), split(entries, checksums).2),
            };
            if verify_keys(self.image, self.superblock, &keys, &of_keys, doubts_kept)?.is_some() {
                return Ok(Err((block, Damage::Payload)));
            }
            if let Some(bad) = walk.verify(self.image, payload_block, &behind, 0)? {
                return Ok(Err((payload_block + to_u32(bad), Damage::Payload)));
            }
        }
        Ok(Ok((header.sequence, header.floor_sequence, header.oldest_dirty_sequence)))
    }

    /// Chooses the log among the runs of linked candidates.
    ///
    /// The latest run counts that begins at or below its own floor: it misses nothing that it needs. Older runs can look
    /// whole without being the log: they may be what is left of an earlier round of the ring, which is overwritten
    /// piece by piece. A run that follows a break in what it needs is behind the end.
    fn judge(self, edges: &[Edges], candidates: &[Candidate]) -> Result<Survey, ScanError> {
        let superblock = self.superblock;
        // What is below a floor that is durable is history, however whole it looks.
        let durable_floor = candidates
            .iter()
            .filter(|candidate| {
                !candidate.is_empty() && candidate.reach.last_sequence <= self.flushed_sequence
            })
            .map(|candidate| candidate.reach.floor_sequence.min(candidate.reach.last_sequence))
            .fold(superblock.base_sequence, u64::max);
        let runs = runs(candidates);
        let is_complete = |run: &&RangeInclusive<usize>| {
            let end = &candidates[*run.end()].reach;
            let needed = end.floor_sequence.max(superblock.base_sequence);
            end.last_sequence >= durable_floor && candidates[*run.start()].head.first_sequence <= needed
        };
        let mut base_sequence = superblock.base_sequence;
        let mut chosen = runs.iter().rfind(is_complete).cloned();
        let reached =
            chosen.as_ref().map_or(base_sequence - 1, |run| candidates[*run.end()].reach.last_sequence);
        let mut repaired = None;
        if reached < self.flushed_sequence {
            let error = self.locate(candidates, chosen.as_ref(), runs.last());
            // RULE 5: a break in what was flushed is damage, no torn write: it is reported, never cut
            // silently.
            if !self.repair && !self.mutations.has(Mutation::CutSilently) {
                return Err(error);
            }
            repaired = Some(error);
            if chosen.is_none() {
                // Its beginning is lost; what is left is newer, and better than nothing.
                chosen = runs.last().cloned();
                let unused = self.flushed_sequence.max(self.seen_sequence).max(base_sequence) + 1;
                base_sequence =
                    chosen.as_ref().map_or(unused, |run| candidates[*run.start()].head.first_sequence);
            }
        }
        let end = chosen.as_ref().map(|run| &candidates[*run.end()]);
        let floor = end.map_or(base_sequence, |end| end.reach.floor_sequence.min(end.reach.last_sequence));
        let floor_sequence = floor.max(base_sequence);
        let spans: Vec<Span> = chosen
            .clone()
            .into_iter()
            .flatten()
            .map(|at| &candidates[at])
            .filter(|candidate| candidate.reach.last_sequence >= floor_sequence)
            .map(span_of)
            .collect();
        // HAZARD 15: a segment counts as a whole or not at all, whatever a header says.
        let floor_sequence = spans.first().map_or(floor_sequence, |first| first.head.first_sequence);
        let behind = &candidates[chosen.map_or(0, |run| *run.end() + 1)..];
        Ok(Survey {
            end: end.map_or(End { sequence: base_sequence - 1, checksum: 0 }, |end| End {
                sequence: end.reach.last_sequence,
                checksum: end.reach.checksum,
            }),
            last_generation: edges
                .iter()
                .filter_map(|edges| edges.head)
                .map(|h| h.generation)
                .max()
                .unwrap_or(0),
            seen_sequence: self.seen_sequence,
            flushed_sequence: self.flushed_sequence,
            floor_sequence,
            oldest_dirty_sequence: end.map_or(base_sequence, |end| end.reach.oldest_dirty_sequence),
            base_sequence,
            stale_blocks: stale_blocks(edges, &spans, behind, superblock),
            spans,
            repaired,
        })
    }

    /// Where the log breaks although it was durable there.
    fn locate(
        &self,
        candidates: &[Candidate],
        chosen: Option<&RangeInclusive<usize>>,
        last: Option<&RangeInclusive<usize>>,
    ) -> ScanError {
        let geometry = self.superblock.geometry();
        // Behind what was chosen, or before what lacks its beginning.
        let before = match (chosen, last) {
            (Some(run), _) => Some(*run.end()),
            (None, Some(run)) => run.start().checked_sub(1),
            (None, None) => candidates.len().checked_sub(1),
        };
        let damaged =
            before.map(|at| &candidates[at]).and_then(|c| c.reach.damage.map(|damage| (c.segment, damage)));
        let (segment, (block, what)) = damaged.unwrap_or_else(|| {
            let segment = match (before, last) {
                (Some(at), _) => (candidates[at].segment + 1) % geometry.segments,
                (None, Some(run)) => {
                    (candidates[*run.start()].segment + geometry.segments - 1) % geometry.segments
                }
                (None, None) => 0,
            };
            (segment, (0, Damage::Segment))
        });
        ScanError::Corrupt { segment, offset_bytes: geometry.offset_bytes(segment, block), what }
    }
}

/// The longest runs of candidates that continue each other, each with at least one batch in every segment.
fn runs(candidates: &[Candidate]) -> Vec<RangeInclusive<usize>> {
    let mut runs: Vec<RangeInclusive<usize>> = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        if candidate.is_empty() {
            continue;
        }
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == at && candidates[at - 1].reach.is_linked => {
                *run = *run.start()..=at;
            }
            _ => runs.push(at..=at),
        }
    }
    runs
}

fn span_of(candidate: &Candidate) -> Span {
    Span {
        span: SegmentSpan {
            segment: candidate.segment,
            generation: candidate.head.generation,
            first_sequence: candidate.head.first_sequence,
            last_sequence: candidate.reach.last_sequence,
            sealed: candidate.footer.is_some(),
            used_blocks: candidate.reach.end_block,
            summary_blocks: candidate.footer.map_or(0, |footer| footer.body_blocks + 1),
            floor_sequence: candidate.reach.floor_sequence,
            oldest_dirty_sequence: candidate.reach.oldest_dirty_sequence,
        },
        head: candidate.head,
        footer: candidate.footer,
    }
}

/// See [`super::Scan::stale_blocks`].
fn stale_blocks(edges: &[Edges], spans: &[Span], behind: &[Candidate], superblock: &Superblock) -> Vec<u64> {
    let geometry = superblock.geometry();
    let mut stale = Vec::new();
    for (edges, segment) in edges.iter().zip(0..) {
        if edges.head.is_some_and(|head| is_dead(&head, superblock)) {
            stale.push(geometry.offset_bytes(segment, 0));
        }
    }
    stale.extend(behind.iter().map(|candidate| geometry.offset_bytes(candidate.segment, 0)));
    for span in spans.iter().filter(|span| span.footer.is_none()) {
        if edges[index(span.span.segment)].footer.is_some() {
            stale.push(geometry.offset_bytes(span.span.segment, geometry.segment_blocks - 1));
        }
    }
    stale
}
