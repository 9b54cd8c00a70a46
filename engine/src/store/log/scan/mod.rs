//! Reads the log from a cache device and judges it: what of it is valid, where it ends, and whether
//! anything is missing that was promised.
//!
//! The steps, with their reasons:
//!
//! 1. `edges`: the first and last blocks of all segments are read. Whatever has a session above the superblock's
//!    says that the superblock is stale (rule 6).
//! 2. `survey`: the segments are put into the order of their writing, and linked: each head names the
//!    sequence and the checksum that the log had reached before it. Segments without a trusted summary are
//!    walked header by header, and all that no flush is known to cover is verified, payload included. Every break
//!    splits the log into runs. The latest run that begins at or below its own floor is the log.
//! 3. `visit`: the batches are handed out in the order of their sequences, from the summaries where there are any.
//!
//! Where that refuses a log, `fragments` finds what is left of it, for a salvage.
//!
//! What an earlier session wrote behind the cut must never join the log again. The histories:
//!
//! * Batches 11 and 12 are in flight at a power cut, 11 is lost, 12 is not. The log is cut at 10, and the next session
//!   writes another 11. Were 12 accepted behind it, a lost write would come back. So a batch of an
//!   earlier session counts only up to the superblock's cut; a header names the checksum of the one before it; and
//!   sessions never fall along the log.
//! * The same, but the new session writes 30 batches and crashes, so that the cut is now 40 and the old 12 is below it. Old
//!   headers *inside* the segment still fail on checksum and session. A head or a footer of the dead tail could
//!   be believed without ever looking at the batches between: so recovery wipes them ([`Scan::stale_blocks`]) before it
//!   writes the session that makes the cut durable. From then on every head and footer on the device that
//!   states a sequence up to the cut tells the truth.

mod edges;
pub(crate) mod fragments;
pub(crate) mod keys;
mod survey;
mod visit;
pub(crate) mod walk;

#[cfg(test)]
pub(crate) mod testlog;
#[cfg(test)]
mod tests;

use crate::effect::Errno;
use crate::format::{Entry, FormatError, SummaryBuilder, Superblock};
use crate::image::Image;
use crate::mutation::Mutations;
use alloc::vec::Vec;

pub(crate) use edges::{fill_group, read_group_into};
#[cfg(test)]
pub(crate) use survey::End;
pub(crate) use survey::{Span, Survey, survey};
pub(crate) use walk::Walk;

/// Kinds of damage at a place of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A copy of the superblock.
    #[error("the copy of the superblock is damaged: {0}")]
    SuperblockCopy(FormatError),
    /// A segment that the log needs is not there.
    #[error("a segment of the log is missing or its head is damaged")]
    Segment,
    /// A batch header.
    #[error("a batch header is missing or damaged: {0}")]
    Header(FormatError),
    /// A batch header that does not continue the log.
    #[error("a batch header is not the one that belongs here")]
    Chain,
    /// A payload block.
    #[error("a block does not match its checksum")]
    Payload,
    /// A summary.
    #[error("the summary is damaged: {0}")]
    Summary(FormatError),
    /// A checkpoint that does not say what the log says.
    #[error("the checkpoint of the index differs from the log")]
    CheckpointDiffers,
    /// A summary that does not say what the headers say.
    #[error("the summary differs from the batch headers")]
    SummaryDiffers,
    /// The device cannot read it.
    #[error("the device cannot read here (errno {})", .0.0)]
    Unreadable(Errno),
}

/// Why a log cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The log was written by a later session than the superblock knows.
    #[error(
        "The superblock is older than the log: it knows session {superblock_session}, segment {segment} was \
         written by session {found_session}"
    )]
    SuperblockStale {
        /// Where.
        segment: u32,
        /// The session found there.
        found_session: u64,
        /// The session in the superblock.
        superblock_session: u64,
    },
    /// Something that was durable is damaged (rule 5).
    #[error("The log is damaged in segment {segment}, at byte {offset_bytes} of the device: {what}")]
    Corrupt {
        /// The segment.
        segment: u32,
        /// Where on the device.
        offset_bytes: u64,
        /// The kind of damage.
        what: Damage,
    },
    /// The device failed a read.
    #[error("The cache device cannot be read at byte {offset_bytes} (errno {})", errno.0)]
    Device {
        /// Where.
        offset_bytes: u64,
        /// The error of the device.
        errno: Errno,
    },
}

/// The segment that a visited batch is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Its number.
    pub segment: u32,
    /// Its generation.
    pub generation: u64,
    /// Whether its summary is on the device and whole.
    pub is_sealed: bool,
    /// The highest batch of the log that is known to be flushed.
    pub flushed_sequence: u64,
    /// RULE 2: whether all of its data is home, recorded one by one or not.
    pub is_home: bool,
}

/// A batch of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// Its number.
    pub sequence: u64,
    /// Where its header begins, in blocks from the segment's start.
    pub header_block: u32,
    /// Where its payload begins, in blocks from the segment's start.
    pub payload_block: u32,
    /// The header's checksum; 0 in a sealed segment, whose headers are not read.
    pub header_checksum: u32,
    /// Its entries.
    pub entries: Vec<Entry>,
    /// The checksum of each payload block, in the order of the entries.
    pub checksums: Vec<u32>,
}

/// A segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Its number.
    pub segment: u32,
    /// Its generation.
    pub generation: u64,
    /// Its first batch.
    pub first_sequence: u64,
    /// Its last valid batch.
    pub last_sequence: u64,
    /// Whether its summary is on the device and whole.
    pub sealed: bool,
    /// Blocks from its start to the end of its last batch.
    pub used_blocks: u32,
    /// Blocks of its summary, footer included; 0 if not sealed.
    pub summary_blocks: u32,
    /// Entries of batches below this one do not count, as its last batch says.
    pub floor_sequence: u64,
    /// Entries of batches below this one are clean, as its last batch says.
    pub oldest_dirty_sequence: u64,
}

/// A segment that has room for more batches.
#[derive(Clone, Debug)]
pub struct OpenSegment {
    /// Its number.
    pub segment: u32,
    /// Where the next batch goes, in blocks from the segment's start.
    pub next_block: u32,
    /// Its batches so far.
    pub summary: SummaryBuilder,
}

/// Where the log goes on.
#[derive(Clone, Debug)]
pub struct LogEnd {
    /// The sequence of the next batch.
    pub next_sequence: u64,
    /// The checksum that the next header names as that of the header before it.
    pub last_header_checksum: u32,
    /// The highest generation that was ever used, in dead segments too.
    pub last_generation: u64,
    /// The last segment, if it is not sealed.
    pub open: Option<OpenSegment>,
}

/// A log that was read.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Its segments in the order of their writing; all others are free. Each lies behind the one before it on the
    /// device, the first segment behind the last one.
    pub segments: Vec<SegmentSpan>,
    /// Where it goes on.
    pub end: LogEnd,
    /// Batches known to have been begun behind the end, whole or torn, that do not count.
    pub batches_cut: u64,
    /// The highest batch known to be flushed; not above the end.
    pub flushed_sequence: u64,
    /// Entries of batches below this one do not count.
    pub floor_sequence: u64,
    /// Entries of batches below this one are clean.
    pub oldest_dirty_sequence: u64,
    /// The [`Superblock::base_sequence`] of the next session.
    pub base_sequence: u64,
    /// Blocks of the device, in bytes from its start, that recovery has to fill with zeroes *before* the flush that precedes
    /// the new session: heads and footers behind the end, which that session must never take for its own.
    pub stale_blocks: Vec<u64>,
    /// The damage at which a repair cut the log.
    pub repaired: Option<ScanError>,
}

/// Reads the log that `superblock` describes, and hands each valid batch to `visitor` in the order of sequences.
///
/// A break that no crash explains is an error, unless `repair` says to cut the log there.
///
/// # Errors
/// [`ScanError`]; some batches may have been visited before.
pub fn scan<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    repair: bool,
    visitor: &mut dyn FnMut(SegmentView, &BatchRecord),
) -> Result<Scan, ScanError> {
    let mutations = Mutations::NONE;
    let survey = survey_to_visit(image, superblock, repair, mutations)?;
    visit_from(image, superblock, survey, 0, mutations, visitor)
}

/// The survey that a visit goes by.
pub(crate) fn survey_to_visit<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    repair: bool,
    mutations: Mutations,
) -> Result<Survey, ScanError> {
    if repair {
        survey::survey_for_repair(image, superblock, mutations)
    } else {
        survey(image, superblock, repair, mutations)
    }
}

/// The end of a scan: hands out the batches of the log from span `from` on. All spans before have summaries, which are not read.
pub(crate) fn visit_from<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    mut survey: Survey,
    from: usize,
    mutations: Mutations,
    visitor: &mut dyn FnMut(SegmentView, &BatchRecord),
) -> Result<Scan, ScanError> {
    for span in &mut survey.spans[..from] {
        let body_blocks = span.footer.expect("a span that is not visited has a summary").body_blocks;
        // What is known without a look at the summary: where that begins.
        span.span.used_blocks = superblock.geometry().segment_blocks - 1 - body_blocks;
    }
    let open = visit::visit(image, superblock, &mut survey, from, mutations, visitor)?;
    let Survey { spans, end, .. } = survey;
    Ok(Scan {
        segments: spans.iter().map(|span| span.span).collect(),
        end: LogEnd {
            next_sequence: end.sequence + 1,
            last_header_checksum: end.checksum,
            last_generation: survey.last_generation,
            open,
        },
        batches_cut: survey.seen_sequence.saturating_sub(end.sequence),
        flushed_sequence: survey.flushed_sequence.min(end.sequence),
        floor_sequence: survey.floor_sequence,
        oldest_dirty_sequence: survey.oldest_dirty_sequence,
        base_sequence: survey.base_sequence,
        stale_blocks: survey.stale_blocks,
        repaired: survey.repaired,
    })
}
