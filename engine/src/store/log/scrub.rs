//! Scrub of a segment's ends: the head and the summary, which lead a start to its data, are compared with their checksums.
//!
//! Nobody reads them before the next start, and then a damaged one may be the end of the log. A mirrored cache has both twice:
//! what is damaged on one half is written again from the other one (RULE 20). Else rot on one half would show when the other one
//! is lost. Headers of batches are left out: where the summary is whole, no start reads those that were flushed.

use super::segments::SegmentState;
use super::{LogFlight, LogStore};
use crate::effect::{Errno, IoOp, Pieces};
use crate::format::{SegmentHead, Summary};
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::request::{RequestKey, Stage};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{index, to_u32};
use crate::pair::Half;
use crate::store::Lookup;
use crate::units::{BLOCK_BYTES, Place};

/// One of the two ends of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The head, in its first block.
    Head,
    /// The summary, in its last blocks.
    Summary,
}

impl End {
    const BOTH: [End; 2] = [End::Head, End::Summary];

    fn at(self) -> usize {
        usize::from(self == End::Summary)
    }
}

/// An operation of a scrub.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// An end is read from a half, or from the only device.
    Read(End, Half),
    /// An end is written to a half again.
    Write(Half),
}

/// A segment that is scrubbed. It is pinned meanwhile.
#[derive(Debug)]
pub(crate) struct SegmentScrub {
    request: RequestKey,
    segment: u32,
    /// Both ends as each device has them, one behind the other; `None` for a device that is not asked.
    copies: [Option<BufferId>; 2],
    /// Ends that could be read, by half.
    is_read: [[bool; 2]; 2],
    /// An end is damaged wherever it is.
    is_damaged: bool,
}

impl Machine<LogStore> {
    /// Begins to read both ends of a segment; see [`crate::effect::RequestOp::ScrubSegment`].
    pub(super) fn start_segment_scrub<M: Memory>(&mut self, key: RequestKey, at: u32, memory: &mut M) {
        let is_there = at < self.store.segments.count() && {
            let segment = self.store.segments.get(at);
            // The head goes with the first batch, which may be on its way for longer than the summary.
            let is_published = segment.last_sequence <= self.store.log.published();
            segment.state == SegmentState::Sealed && segment.is_summary_written && is_published
        };
        if let Some(errno) = self.latched {
            self.fail(key, errno, memory);
            return;
        }
        if !is_there || self.is_mutated(Mutation::ScrubForgetsHeads) {
            self.reply(key, memory);
            return;
        }
        let asked = self.counting_devices();
        let len_bytes = (1 + self.store.segments.get(at).summary_blocks) * to_u32(BLOCK_BYTES);
        let mut copies = [None; 2];
        for half in Half::BOTH.into_iter().filter(|half| asked[half.at()]) {
            let Some(buffer) = self.allocate(Purpose::Metadata, len_bytes, memory) else {
                copies.into_iter().flatten().for_each(|buffer| memory.release(buffer));
                self.requests.wait_for_buffer(key);
                return;
            };
            copies[half.at()] = Some(buffer);
        }
        self.store.segments.get_mut(at).pins += 1;
        let scrub =
            SegmentScrub { request: key, segment: at, copies, is_read: [[false; 2]; 2], is_damaged: false };
        let scrub = self.store.scrubs.insert(scrub);
        self.requests[key].stage = Stage::Fetching;
        for half in Half::BOTH {
            let Some(buffer) = copies[half.at()] else { continue };
            for end in End::BOTH {
                let (place, into) = self.end_of(at, end, buffer);
                let op = IoOp::Read { offset_bytes: self.store.offset_bytes(place), into: Pieces::One(into) };
                self.requests[key].parts += 1;
                let step = Step::Read(end, half);
                self.send_to_half(half, op, Flight::Store(LogFlight::Scrub { scrub, step }));
            }
        }
    }

    /// The devices that count: of a mirrored cache perhaps one alone.
    fn counting_devices(&self) -> [bool; 2] {
        self.halves.as_ref().map_or([true, false], |halves| halves.counting_halves())
    }

    /// Where an end of a segment is on the device, and in a buffer that has both.
    fn end_of(&self, segment: u32, end: End, buffer: BufferId) -> (Place, Slice) {
        let segments = &self.store.segments;
        let blocks = segments.get(segment).summary_blocks;
        let (block, from, count) = match end {
            End::Head => (0, 0, 1),
            End::Summary => (segments.segment_blocks() - blocks, 1, blocks),
        };
        let bytes = |blocks| blocks * to_u32(BLOCK_BYTES);
        let slice = Slice { buffer, offset_bytes: bytes(from), len_bytes: bytes(count) };
        (segments.place(segment, block), slice)
    }

    /// An operation of a scrub is over.
    pub(super) fn segment_scrub_done<M: Memory>(
        &mut self,
        scrub: usize,
        step: Step,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let state = &mut self.store.scrubs[scrub];
        let request = state.request;
        match (step, result) {
            (Step::Read(end, half), result) => state.is_read[half.at()][end.at()] = result.is_ok(),
            (Step::Write(_), Ok(())) => (),
            (Step::Write(half), Err(errno)) => {
                state.is_damaged = true;
                self.lose_one_of_two(half, errno, memory);
            }
        }
        self.requests[request].parts -= 1;
        if self.requests[request].parts == 0 && matches!(step, Step::Read(..)) {
            self.mend_ends(scrub, memory);
        }
        if self.requests[request].parts == 0 {
            let SegmentScrub { segment, copies, is_damaged, .. } = self.store.scrubs.remove(scrub);
            copies.into_iter().flatten().for_each(|buffer| memory.release(buffer));
            self.store.segments.get_mut(segment).pins -= 1;
            if is_damaged {
                self.requests[request].error = Some(Errno::IO);
            }
            self.reply(request, memory);
        }
    }

    /// Both ends were read from all devices: writes again what is damaged on one of two.
    fn mend_ends<M: Memory>(&mut self, scrub: usize, memory: &M) {
        let counts = self.counting_devices();
        for end in End::BOTH {
            let is_whole =
                |half: Half| counts[half.at()].then(|| self.is_end_whole(scrub, end, half, memory)).flatten();
            let is_whole = Half::BOTH.map(is_whole);
            let state = &mut self.store.scrubs[scrub];
            let (half, source) = match (is_whole, state.copies) {
                ([Some(true), Some(false)], [Some(source), _]) => (Half::Second, source),
                ([Some(false), Some(true)], [_, Some(source)]) => (Half::First, source),
                _ => {
                    state.is_damaged |= is_whole.contains(&Some(false));
                    continue;
                }
            };
            let (request, segment) = (state.request, state.segment);
            let (place, slice) = self.end_of(segment, end, source);
            let op = IoOp::Write { offset_bytes: self.store.offset_bytes(place), from: Pieces::One(slice) };
            let flight = Flight::Store(LogFlight::Scrub { scrub, step: Step::Write(half) });
            self.requests[request].parts += 1;
            self.send_to_half(half, op, flight);
        }
    }

    /// Whether a device has an end as it was written; `None` if that was not asked.
    fn is_end_whole<M: Memory>(&self, scrub: usize, end: End, half: Half, memory: &M) -> Option<bool> {
        let state = &self.store.scrubs[scrub];
        let (_, slice) = self.end_of(state.segment, end, state.copies[half.at()]?);
        let from = index(slice.offset_bytes);
        let bytes = &memory.metadata(slice.buffer)[from..from + index(slice.len_bytes)];
        let found = match end {
            End::Head => SegmentHead::decode(bytes).map(|head| (head.set_id, head.generation)),
            End::Summary => {
                Summary::decode(bytes).map(|summary| (summary.footer.set_id, summary.footer.generation))
            }
        };
        let expected = (self.store.log.set_id, self.store.segments.get(state.segment).generation);
        Some(state.is_read[half.at()][end.at()] && found == Ok(expected))
    }
}
