//! The end of a segment: its summary, and what that and the headers say of everything before them.

use super::{InternalAppend, LogFlight, LogStore, MissingSummary, Stated};
use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{Summary, SummaryBuilder, SummaryFooter};
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{index, to_u32};
use crate::store::Lookup;
use crate::units::BLOCK_BYTES;

impl Machine<LogStore> {
    /// Writes the summaries that a crash kept from being written.
    pub(crate) fn write_missing_summaries<M: Memory>(&mut self, memory: &mut M) {
        while let Some(missing) = self.store.log.missing_summaries.pop() {
            let MissingSummary { segment, summary, last_header_checksum, stated } = &missing;
            if !self.write_summary(*segment, summary, *last_header_checksum, *stated, memory) {
                self.store.log.missing_summaries.push(missing);
                return;
            }
        }
    }

    /// Closes the open segment: its summary goes to the device. False if no buffer was free.
    pub(super) fn seal<M: Memory>(&mut self, memory: &mut M) -> bool {
        let open = self.store.log.open.take().expect("a segment is open");
        // RULE 5: no more than its last header says. What changed since then the batches behind it say; a power cut
        // may take those and leave the summary, which only a later recovery trusts.
        let stated = if self.is_mutated(Mutation::FooterAheadOfBatches) {
            self.state()
        } else {
            self.store.log.stated
        };
        if !self.write_summary(open.segment, &open.summary, self.store.log.chain, stated, memory) {
            self.store.log.open = Some(open);
            return false;
        }
        self.store.segments.seal(open.segment);
        self.store.log.scratch_summary = open.summary.emptied();
        true
    }

    fn write_summary<M: Memory>(
        &mut self,
        at: u32,
        summary: &SummaryBuilder,
        last_header_checksum: u32,
        stated: Stated,
        memory: &mut M,
    ) -> bool {
        let blocks = summary.blocks_needed();
        let Some(buffer) = self.allocate(Purpose::Metadata, blocks * to_u32(BLOCK_BYTES), memory) else {
            return false;
        };
        let segment = self.store.segments.get_mut(at);
        segment.summary_blocks = blocks;
        let footer = SummaryFooter {
            set_id: self.store.log.set_id,
            ring: 0,
            generation: segment.generation,
            session: self.store.log.session,
            first_sequence: segment.first_sequence,
            last_sequence: segment.last_sequence,
            last_header_checksum,
            flushed_sequence: self.barrier.flushed,
            floor_sequence: stated.floor_sequence,
            oldest_dirty_sequence: stated.oldest_dirty_sequence,
        };
        let bytes = memory.metadata_mut(buffer);
        summary.finish(&footer, &mut bytes[..index(blocks * to_u32(BLOCK_BYTES))]);
        let first = self.store.segments.place(at, self.store.segments.segment_blocks() - blocks);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: blocks * to_u32(BLOCK_BYTES) };
        let op = IoOp::Write { offset_bytes: self.store.offset_bytes(first), from: Pieces::One(slice) };
        self.store.log.summaries_in_flight += 1;
        self.issue(Target::Cache, op, Flight::Store(LogFlight::Summary { segment: at, buffer }));
        true
    }

    pub(crate) fn summary_done<M: Memory>(
        &mut self,
        segment: u32,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.store.log.summaries_in_flight -= 1;
        match result {
            Ok(()) => self.store.segments.get_mut(segment).is_summary_written = true,
            Err(errno) => self.latch(errno, memory),
        }
    }

    /// Begins to read the summary of a sealed segment. False if no buffer was free.
    pub(super) fn read_summary<M: Memory>(&mut self, segment: u32, memory: &mut M) -> bool {
        let blocks = self.store.segments.get(segment).summary_blocks;
        assert!(blocks > 0, "a sealed segment has a summary");
        let len_bytes = blocks * to_u32(BLOCK_BYTES);
        let Some(buffer) = self.allocate(Purpose::Metadata, len_bytes, memory) else { return false };
        self.store.segments.get_mut(segment).pins += 1;
        let first = self.store.segments.place(segment, self.store.segments.segment_blocks() - blocks);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes };
        let op = IoOp::Read { offset_bytes: self.store.offset_bytes(first), into: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(LogFlight::SummaryRead { segment, buffer }));
        true
    }

    /// The summary that was read, if it is whole and that of the segment's present life.
    pub(super) fn decode_summary<M: Memory>(
        &mut self,
        segment: u32,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) -> Result<Summary, Errno> {
        let segment_blocks = self.store.segments.segment_blocks();
        let segment = self.store.segments.get_mut(segment);
        segment.pins -= 1;
        let end_block = u64::from(segment_blocks - segment.summary_blocks);
        let summary = result.and_then(|()| {
            let summary = Summary::decode(memory.metadata(buffer)).ok();
            // HAZARD 15: a start that loads a checkpoint has not looked at it.
            let is_right = |summary: &Summary| {
                summary.footer.generation == segment.generation
                    && summary.batches.last().is_none_or(|last| last.end_block() <= end_block)
            };
            summary.filter(is_right).ok_or(Errno::IO)
        });
        memory.release(buffer);
        summary
    }

    /// The statements of the next header.
    pub(super) fn state(&self) -> Stated {
        Stated {
            floor_sequence: self.store.segments.floor().unwrap_or(self.store.log.next_sequence),
            oldest_dirty_sequence: self.oldest_dirty(),
        }
    }

    /// No batch before this sequence has anything dirty, and none will after a crash.
    pub(crate) fn oldest_dirty(&self) -> u64 {
        // What is not published yet may be dirty, too.
        let is_hasty = self.is_mutated(Mutation::OldestDirtyTooHigh);
        let next = if is_hasty { self.store.log.next_sequence } else { self.store.log.published + 1 };
        let known = self.store.segments.oldest_dirty().unwrap_or(next);
        if self.is_mutated(Mutation::CleanBeforeTombstone) {
            return known;
        }
        // RULE 2: what was dropped dirty is dirty again if its tombstone is lost.
        let dropped = self.store.log.internal.iter().filter_map(|append| match append {
            InternalAppend::Tombstone { oldest_dirty_sequence, .. } => *oldest_dirty_sequence,
            _ => None,
        });
        dropped.fold(known, u64::min)
    }
}
