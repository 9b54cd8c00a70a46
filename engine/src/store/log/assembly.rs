//! Assembly: what waits becomes a batch, with its sequence and its place.

use super::draft::{Draft, DraftLimits, Placing};
use super::once::{OnceLayout, is_once};
use super::room::Room;
use super::{Batch, Log, LogFlight, LogStore, Publish};
use crate::effect::{IoOp, Pieces, Target};
use crate::format::{BatchHeader, header_blocks_for};
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::number::{index, to_u32};
use crate::status::Content;
use crate::store::Lookup;
use crate::units::{BLOCK_BYTES, Place};
use alloc::vec::Vec;

/// Blocks of the largest header.
const HEADER_BLOCKS_MAX: u32 = 2;
/// Batches in flight at the most.
pub(super) const BATCHES_IN_FLIGHT_MAX: usize = 8;

/// A draft has room for so many appends at the least when it begins, ...
const APPENDS_MIN: usize = 4;
/// ... and at the most.
const APPENDS_MAX: usize = 64;

/// A draft whose place is fixed.
struct Outgoing {
    draft: Draft,
    segment: u32,
    /// Where it begins in the segment, without the segment's head.
    next_block: u32,
    header: BufferId,
    header_blocks: u32,
    /// The segment's head, if the batch is its first one.
    head: Option<BufferId>,
}

impl Outgoing {
    fn first_payload(&self) -> u32 {
        self.next_block + self.header_blocks
    }
}

impl Machine<LogStore> {
    /// Sends off one batch with at most so many appends of clients; false if nothing may go.
    pub(super) fn assemble_one<M: Memory>(&mut self, units_max: u32, memory: &mut M) -> bool {
        let has_internal = !self.store.log.internal.is_empty() || self.store.log.is_floor_wanted;
        if !has_internal && !self.clients_may_append() {
            return false;
        }
        self.close_late(memory);
        let header_bytes_max = HEADER_BLOCKS_MAX * to_u32(BLOCK_BYTES);
        let Some(header) = self.allocate(Purpose::Metadata, header_bytes_max, memory) else {
            return false;
        };
        let sequence = self.store.log.next_sequence;
        let Some(room) = self.room_for_batch(sequence, memory) else {
            memory.release(header);
            return false;
        };
        let mut draft = self.begin_draft(&room, units_max);
        if draft.payload_max > 0 {
            self.gather(&mut draft, memory);
        }
        let Room { segment, next_block, head, limits, .. } = room;
        if draft.entries.is_empty() && !self.store.log.is_floor_wanted && head.is_none() {
            assert!(draft.publish.is_empty(), "what is published is in an entry");
            memory.release(header);
            let Draft { entries, pieces, .. } = draft;
            (self.store.log.scratch_entries, self.store.log.scratch_pieces) = (entries, pieces);
            return false;
        }
        let header_blocks = header_blocks_for(draft.entries.len(), draft.checksums.len());
        assert!(header_blocks <= limits.header_blocks, "a batch's header fits the room that was kept for it");
        let mut outgoing = Outgoing { draft, segment, next_block, header, header_blocks, head };
        self.fix_places(&mut outgoing);
        self.send_batch(outgoing, memory);
        true
    }

    fn begin_draft(&mut self, room: &Room, units_max: u32) -> Draft {
        let keeps_once = self.keeps_once(room.segment);
        let LogStore { appender, segments, log, .. } = &mut self.store;
        let place = (log.next_sequence, segments.place(room.segment, room.next_block));
        let limits = DraftLimits {
            payload: appender.batch_blocks_max(room.payload_max, room.limits.entries),
            checksums: appender.batch_checksums_max(room.payload_max, room.limits.entries),
            entries: room.limits.entries,
            units: units_max,
        };
        Draft { keeps_once, ..log.begin_draft(place, limits) }
    }

    /// Puts what waits into a batch, as far as there is room.
    fn gather<M: Memory>(&mut self, draft: &mut Draft, memory: &mut M) {
        // HAZARD 7: keys that the index has already are logged before tombstones that were decided by it. The
        // other way round recovery would find the key last, and what was dropped would be back.
        if self.gather_first(draft) {
            self.gather_internal(draft, memory);
        }
        // A segment that the log opened for itself takes clients only while the reserve is whole.
        if self.store.segments.free() >= self.reserved() {
            self.gather_pending(draft, memory);
        }
    }

    /// Drafts number payload blocks from 0; now that the header's length is known they get their places.
    fn fix_places(&self, outgoing: &mut Outgoing) {
        match self.store.appender.placing() {
            Placing::BehindHeader | Placing::Both => (),
            Placing::Elsewhere => return,
        }
        let base = self.store.segments.place(outgoing.segment, 0).0 + outgoing.first_payload();
        for publish in &mut outgoing.draft.publish {
            if let Some(place) = publish.place_mut()
                && !is_once(*place)
            {
                place.0 += base;
            }
        }
    }

    fn send_batch<M: Memory>(&mut self, mut outgoing: Outgoing, memory: &mut M) {
        self.encode_header(&outgoing, memory);
        let first_payload = outgoing.first_payload();
        let Outgoing { ref mut draft, segment, next_block, header, header_blocks, head } = outgoing;
        let sequence = draft.sequence;
        let once = OnceLayout {
            base: self.store.segments.place(segment, 0).0 + first_payload + draft.next_place().0,
            first_has: draft.once_blocks.div_ceil(2),
        };
        let end_block = first_payload + draft.next_place().0 + once.first_has;
        self.store.log.open.as_mut().expect("the batch goes there").next_block = end_block;
        let at = self.store.segments.get_mut(segment);
        at.last_sequence = sequence;
        at.used_blocks = end_block;
        let mut all = Vec::with_capacity(draft.pieces.len() + 2);
        if let Some(head) = head {
            all.push(Slice { buffer: head, offset_bytes: 0, len_bytes: to_u32(BLOCK_BYTES) });
            // The driver holds no reference of its own: the head lives as long as its batch.
            draft.publish.push(Publish::Head { buffer: head });
        }
        let header_bytes = header_blocks * to_u32(BLOCK_BYTES);
        all.push(Slice { buffer: header, offset_bytes: 0, len_bytes: header_bytes });
        all.append(&mut draft.pieces);
        let first = self.store.segments.place(segment, next_block - u32::from(head.is_some()));
        let offset_bytes = self.store.offset_bytes(first);
        let content = [
            (Content::User, draft.payload_blocks - draft.fill_blocks - draft.relocated_blocks),
            (Content::Fill, draft.fill_blocks),
            (Content::Relocation, draft.relocated_blocks),
        ];
        for (why, blocks) in content {
            self.count_content(why, u64::from(blocks) * BLOCK_BYTES);
        }
        let flight = Flight::Store(LogFlight::Batch { sequence });
        let write = |pieces| IoOp::Write { offset_bytes, from: Pieces::Many(pieces) };
        if draft.once_blocks == 0 {
            self.issue(Target::Cache, write(all), flight);
        } else {
            let [first, second] = once.split(&draft.once_pieces, &all).map(write);
            let its_bytes = u64::from(draft.once_blocks - once.first_has) * BLOCK_BYTES;
            self.issue_differing(first, (second, its_bytes), flight);
        }
        let Draft { header_place, entries, pieces, checksums, publish, .. } = outgoing.draft;
        self.store.log.in_flight.push_back(Batch {
            sequence,
            segment,
            end_block,
            header_place,
            header,
            checksums,
            publish,
            once,
            writes: 0,
            is_done: false,
            late: None,
        });
        (self.store.log.scratch_entries, self.store.log.scratch_pieces) = (entries, pieces);
    }

    fn encode_header<M: Memory>(&mut self, outgoing: &Outgoing, memory: &mut M) {
        let draft = &outgoing.draft;
        assert!(draft.sequence == self.store.log.next_sequence, "sequences are given in order");
        let fields = self.head_batch(outgoing.segment, draft.entries.is_empty());
        let header_bytes = outgoing.header_blocks * to_u32(BLOCK_BYTES);
        let bytes = &mut memory.metadata_mut(outgoing.header)[..index(header_bytes)];
        let log = &mut self.store.log;
        log.chain = fields.encode(&draft.entries, &draft.checksums, bytes);
        let open = log.open.as_mut().expect("the batch goes there");
        open.summary.push_encoded(outgoing.next_block, outgoing.first_payload(), bytes);
    }

    /// The fixed fields of the header of the next batch, which is in a segment.
    pub(super) fn head_batch(&mut self, segment: u32, is_empty: bool) -> BatchHeader {
        let stated = self.state();
        let flushed = self.barrier.flushed;
        let LogStore { appender, segments, log, .. } = &mut self.store;
        let sequence = log.next_sequence;
        log.next_sequence += 1;
        log.stated = stated;
        log.note.headed(sequence, flushed, is_empty);
        log.is_floor_wanted = false;
        segments.carry_floor(sequence);
        appender.carry(sequence, flushed);
        BatchHeader {
            set_id: log.set_id,
            session: log.session,
            generation: segments.get(segment).generation,
            sequence,
            previous_checksum: log.chain,
            flushed_sequence: flushed,
            floor_sequence: stated.floor_sequence,
            oldest_dirty_sequence: stated.oldest_dirty_sequence,
        }
    }
}

impl Log {
    /// A draft with nothing in it, of the batch with a sequence whose header has a place.
    #[inline]
    pub(super) fn begin_draft(
        &mut self,
        (sequence, header_place): (u64, Place),
        limits: DraftLimits,
    ) -> Draft {
        let mut entries = core::mem::take(&mut self.scratch_entries);
        let mut pieces = core::mem::take(&mut self.scratch_pieces);
        let (mut publish, mut checksums) = self.scratch_lists.pop().unwrap_or_default();
        entries.clear();
        pieces.clear();
        // Short appends, all of which it may take, do not make it grow; and something is in it.
        let coming = self.client.len().min(index(limits.units)).clamp(APPENDS_MIN, APPENDS_MAX);
        publish.reserve(coming);
        checksums.reserve(coming);
        Draft {
            sequence,
            header_place,
            entries,
            pieces,
            payload_blocks: 0,
            keeps_once: false,
            once_pieces: Vec::new(),
            once_blocks: 0,
            fill_blocks: 0,
            relocated_blocks: 0,
            payload_max: limits.payload,
            checksums_max: limits.checksums,
            entries_max: limits.entries,
            checksums,
            owes_checksums: false,
            publish,
            units_left: limits.units,
        }
    }
}
