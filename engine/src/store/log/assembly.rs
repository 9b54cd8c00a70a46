//! Assembly: what waits becomes a batch, with its sequence and its place.

use super::draft::Draft;
use super::group_commit::Pending;
use super::room::Room;
use super::{Batch, LogFlight, LogStore, Mirrored, Publish};
use crate::effect::{IoOp, Pieces, Target};
use crate::format::{BatchHeader, Entry, header_blocks_for};
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::store::Lookup;
use crate::units::{BLOCK_BYTES, Place};
use alloc::vec::Vec;

/// Blocks of the largest header.
const HEADER_BLOCKS_MAX: u32 = 2;
/// Batches in flight at the most.
pub(super) const BATCHES_IN_FLIGHT_MAX: usize = 8;

impl Machine<LogStore> {
    /// Sends off what is pending, as far as it may go now.
    pub(super) fn assemble_batches<M: Memory>(&mut self, memory: &mut M) {
        if self.store.segments.free() <= self.config.segments_reserved {
            self.drop_fills(memory);
        }
        loop {
            let log = &mut self.store.log;
            let has_internal = !log.internal.is_empty() || log.is_floor_wanted;
            let has_writes = !log.client.is_empty();
            let has_fills = !log.gathering.is_empty();
            let in_flight = log.in_flight.len();
            let is_full = in_flight >= BATCHES_IN_FLIGHT_MAX;
            let is_enough = log.pending_blocks >= self.config.group_commit_blocks;
            let is_hurried = has_internal || self.is_stopping;
            let is_pending = has_writes || has_fills || has_internal;
            let is_stopped = !is_pending || is_full || self.latched.is_some();
            let may_append = !is_stopped && self.clients_may_append();
            // Whoever does not wait for company has no deadline for it: one that stayed would pass for ever.
            let may_wait = has_writes && may_append && in_flight == 0 && !is_hurried;
            if !may_wait {
                self.store.log.company.goes();
            }
            let may_fill = has_fills && may_append;
            if !may_fill {
                self.store.log.gathering.rest();
            }
            let may_go = match in_flight {
                0 if is_hurried => true,
                0 => may_wait && self.has_company(),
                _ => is_enough,
            };
            let may_go = (may_fill && self.are_fills_due()) || may_go;
            if is_stopped || !may_go || !self.assemble_one(memory) {
                return;
            }
        }
    }

    /// Whether what clients wait for need not wait for more.
    fn has_company(&mut self) -> bool {
        let log = &mut self.store.log;
        let pending = Pending { writes: log.client.len(), blocks: log.pending_blocks };
        log.company.may_go(self.now, pending, self.config.group_commit_wait_ns_max)
    }

    pub(super) fn assemble_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        let has_internal = !self.store.log.internal.is_empty() || self.store.log.is_floor_wanted;
        if !has_internal && !self.clients_may_append() {
            return false;
        }
        let Some(header) = self.allocate(Purpose::Metadata, HEADER_BLOCKS_MAX * BLOCK_BYTES as u32, memory)
        else {
            return false;
        };
        let sequence = self.store.log.next_sequence;
        let Some(room) = self.room_for_batch(sequence, memory) else {
            memory.release(header);
            return false;
        };
        let Room { segment, next_block, head, limits, payload_max } = room;
        let is_journal = self.store.journal.is_some();
        let payload_max = if is_journal { self.keys_max(payload_max, limits.entries) } else { payload_max };
        let header_place = self.store.segments.place(segment, next_block);
        let mut draft = Draft {
            sequence,
            first_payload: 0,
            payload_blocks: 0,
            payload_max,
            entries_max: limits.entries,
            checksums: Vec::new(),
            publish: Vec::new(),
            units_left: self.store.mirror.as_ref().map_or(u32::MAX, |mirror| mirror.batch_writes_max()),
        };
        let mut entries = core::mem::take(&mut self.store.log.scratch_entries);
        let mut pieces = core::mem::take(&mut self.store.log.scratch_pieces);
        entries.clear();
        pieces.clear();
        // HAZARD 7: keys that the index has already are logged before tombstones that were decided by it. The
        // other way round recovery would find the key last, and what was dropped would be back.
        let is_hasty = self.is_mutated(Mutation::RecordsBeforeKeys);
        let has_applied =
            |store: &LogStore| store.journal.as_ref().is_some_and(|journal| journal.has_applied());
        let is_early = has_applied(&self.store) && !is_hasty;
        if payload_max > 0 && is_early {
            self.gather_keys(&mut draft, &mut entries, memory);
        }
        let is_behind = has_applied(&self.store) && !is_hasty;
        if payload_max > 0 && !is_behind {
            self.gather_internal(&mut draft, &mut entries, &mut pieces, header_place, memory);
        }
        // A segment that the log opened for itself takes clients only while the reserve is whole.
        if payload_max > 0 && self.store.segments.free() >= self.reserved() {
            if is_journal {
                self.gather_keys(&mut draft, &mut entries, memory);
            } else if self.store.mirror.is_none()
                || self.gather_taken(&mut draft, &mut entries, &mut pieces, memory)
            {
                self.gather_clients(&mut draft, &mut entries, &mut pieces, memory);
                self.take_fills(&mut draft, &mut entries, &mut pieces, memory);
            }
        }
        let is_empty = entries.is_empty();
        if is_empty && !self.store.log.is_floor_wanted && head.is_none() {
            assert!(draft.publish.is_empty(), "what is published is in an entry");
            memory.release(header);
            (self.store.log.scratch_entries, self.store.log.scratch_pieces) = (entries, pieces);
            return false;
        }
        let header_blocks = header_blocks_for(entries.len(), draft.checksums.len());
        assert!(header_blocks <= limits.header_blocks);
        draft.first_payload = next_block + header_blocks;
        self.fix_places(&mut draft, segment);
        self.send_batch(
            Outgoing {
                draft,
                entries,
                pieces,
                segment,
                next_block,
                header_blocks,
                header,
                header_place,
                head,
            },
            memory,
        );
        true
    }

    /// Drafts number payload blocks from 0; now that the header's length is known they get their places.
    fn fix_places(&self, draft: &mut Draft, segment: u32) {
        if self.store.journal.is_some() {
            // Keys have theirs.
            return;
        }
        let base = self.store.segments.place(segment, 0).0 + draft.first_payload;
        for publish in &mut draft.publish {
            match publish {
                Publish::Part { place: Some(place), .. }
                | Publish::Fill { place, .. }
                | Publish::Mirrored(Mirrored { place, .. })
                | Publish::Relocate { place, .. } => place.0 += base,
                Publish::Part { place: None, .. }
                | Publish::Tombstone { .. }
                | Publish::Extent { .. }
                | Publish::Head { .. }
                | Publish::Placed { .. }
                | Publish::Applied { .. }
                | Publish::Rekeyed { .. }
                | Publish::Freed { .. } => (),
            }
        }
    }

    fn send_batch<M: Memory>(&mut self, outgoing: Outgoing, memory: &mut M) {
        let Outgoing {
            draft,
            entries,
            mut pieces,
            segment,
            next_block,
            header_blocks,
            header,
            header_place,
            head,
        } = outgoing;
        let sequence = draft.sequence;
        assert!(sequence == self.store.log.next_sequence, "sequences are given in order");
        let stated = self.state();
        let fields = BatchHeader {
            set_id: self.store.log.set_id,
            session: self.store.log.session,
            generation: self.store.segments.get(segment).generation,
            sequence,
            previous_checksum: self.store.log.chain,
            flushed_sequence: self.barrier.flushed,
            floor_sequence: stated.floor_sequence,
            oldest_dirty_sequence: stated.oldest_dirty_sequence,
        };
        let header_bytes = header_blocks * BLOCK_BYTES as u32;
        let bytes = &mut memory.metadata_mut(header)[..header_bytes as usize];
        self.store.log.chain = fields.encode(&entries, &draft.checksums, bytes);
        self.store.log.next_sequence += 1;
        self.store.log.stated = stated;
        self.store.log.note.headed(sequence, fields.flushed_sequence, entries.is_empty());
        self.store.log.is_floor_wanted = false;
        self.store.segments.carry_floor(sequence);
        if let Some(journal) = &mut self.store.journal {
            journal.buckets.carry(sequence, self.barrier.flushed);
        }
        let end_block = draft.first_payload + draft.payload_blocks;
        {
            let open = self.store.log.open.as_mut().expect("the batch goes there");
            open.summary.push(sequence, next_block, draft.first_payload, &entries, &draft.checksums);
            open.next_block = end_block;
        }
        let at = self.store.segments.get_mut(segment);
        at.last_sequence = sequence;
        at.used_blocks = end_block;
        let head_blocks = u32::from(head.is_some());
        let mut all = Vec::with_capacity(pieces.len() + 2);
        if let Some(head) = head {
            all.push(Slice { buffer: head, offset_bytes: 0, len_bytes: BLOCK_BYTES as u32 });
        }
        all.push(Slice { buffer: header, offset_bytes: 0, len_bytes: header_bytes });
        all.append(&mut pieces);
        let first = self.store.segments.place(segment, next_block - head_blocks);
        let op = IoOp::Write { offset_bytes: self.store.offset_bytes(first), from: Pieces::Many(all) };
        self.issue(Target::Cache, op, Flight::Store(LogFlight::Batch { sequence }));
        self.store.log.in_flight.push_back(Batch {
            sequence,
            segment,
            end_block,
            header_place,
            header,
            checksums: draft.checksums,
            publish: draft.publish,
            is_done: false,
        });
        if let Some(head) = head {
            // The driver holds no reference of its own: the head lives as long as its batch.
            self.store
                .log
                .in_flight
                .back_mut()
                .expect("just pushed")
                .publish
                .push(Publish::Head { buffer: head });
        }
        (self.store.log.scratch_entries, self.store.log.scratch_pieces) = (entries, pieces);
    }
}

struct Outgoing {
    draft: Draft,
    entries: Vec<Entry>,
    pieces: Vec<Slice>,
    segment: u32,
    next_block: u32,
    header_blocks: u32,
    header: BufferId,
    header_place: Place,
    head: Option<BufferId>,
}
