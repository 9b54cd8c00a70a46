//! Late headers: writes that come alone are answered before the header of their batch is written.
//!
//! A write of one block that takes a header along writes two. So a batch may stay open: its header's place is left free, each
//! write puts its payload behind the last one, and the header follows when the batch is full, when a flush is to cover it,
//! when anything else wants into the log, or after a while.
//!
//! RULE 21: a client that was answered is remembered by what outlives the process. Until its header is on the device the entries
//! of a late batch are in memory that lasts (`format/lasting.rs`), and are there before the answer. A header is on the device
//! only if all entries before it were there, so a start that writes what memory has writes no less than was answered. With the
//! power that memory goes; then no flush had covered the batch.

use super::{ClientAppend, PartSource};
use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{
    BatchHeader, EncodedEntries, FIRST_PART_AT, LASTING_BYTES, LASTING_SLOT_BYTES, LASTING_SLOTS,
    encode_part, encode_slot,
};
use crate::machine::request::Route;
use crate::machine::{Flight, Machine};
use crate::memory::{Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{index, to_u32, wide};
use crate::status::Content;
use crate::store::Lookup;
use crate::store::log::assembly::BATCHES_IN_FLIGHT_MAX;
use crate::store::log::draft::{Draft, DraftLimits, add_checksums};
use crate::store::log::once::OnceLayout;
use crate::store::log::{Batch, LogFlight, LogStore, Publish};
use crate::units::{BLOCK_BYTES, Nanos, Place};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// Blocks of payload of a late batch at the most. With so many entries, too, its header is one block.
const LATE_BLOCKS_MAX: u32 = 192;
/// Entries of a late batch at the most.
const LATE_ENTRIES_MAX: usize = 96;
/// A part of a late batch has so many blocks at the most: more has a header of its own that costs little.
const PART_BLOCKS_MAX: u64 = 16;
/// A part that is all that clients wait for has so many at the most: its checksums are taken while the device writes it.
const LONE_PART_BLOCKS_MAX: u64 = 64;
/// A late batch does not begin where a segment has less room.
const ROOM_BLOCKS_MIN: u32 = 16;
/// How long a batch stays open at the most: so much of what is not flushed the power may take.
const OPEN_NS_MAX: u64 = 20 * Nanos::MILLISECOND;
/// A late batch with fewer parts was in vain: its header was a write more, and saved nothing.
const PARTS_ENOUGH: u32 = 3;
/// Batches with a header of their own after one that was in vain, at the most.
const PAUSE_MAX: u32 = 64;

/// When a late batch may begin.
#[derive(Debug, Default)]
pub(in crate::store::log) struct LateChoice {
    /// When the open one is closed, if nothing closes it before.
    pub until: Option<Nanos>,
    /// Batches that go with their headers before the next late one.
    pause: u32,
    /// The last pause.
    last_pause: u32,
    /// The slots of memory that batches under way have, by bit.
    slots_taken: u8,
    scratch: Vec<u8>,
}

/// The end of a batch whose header is late.
pub(in crate::store::log) struct Late {
    /// The block of its segment that is left free for the header.
    header_block: u32,
    /// Where its payload ends at the latest.
    end_block_max: u32,
    slot: usize,
    /// Where the next part goes in memory.
    slot_end: usize,
    fields: BatchHeader,
    entries: EncodedEntries,
    /// Parts that are not published.
    pub parts: VecDeque<Part>,
    parts_sent: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Parts may come.
    Open,
    /// None may, and its header is not on its way.
    Closed,
    /// Its header is on its way, or on the device.
    Sent,
}

/// A part of a late batch: it goes to the device in one write.
pub(in crate::store::log) struct Part {
    number: u32,
    pub publish: Vec<Publish>,
    /// A checksum for each block; zeroes, as long as they are owed.
    checksums: Vec<u32>,
    /// The payload, as long as its checksums are owed.
    owed: Option<Pieces>,
    /// Which of the batch's entries are its own.
    entries: Range<usize>,
    /// Clients' writes in it.
    writes: usize,
    is_done: bool,
    /// Whether memory that lasts has it.
    is_stored: bool,
}

impl Late {
    /// Whether a part owes its checksums: then those that follow do, too, since the batch has them in the order of its parts.
    fn owes_checksums(&self) -> bool {
        self.parts.back().is_some_and(|part| part.owed.is_some())
    }

    /// Takes the checksums that are owed, in the order of the parts, and adds them to those of the batch.
    fn take_owed<M: Memory>(&mut self, of_batch: &mut Vec<u32>, memory: &M) {
        if !self.owes_checksums() {
            return;
        }
        for part in &mut self.parts {
            let Some(payload) = part.owed.take() else { continue };
            part.checksums.clear();
            payload.as_slice().iter().for_each(|piece| add_checksums(*piece, &mut part.checksums, memory));
            of_batch.extend_from_slice(&part.checksums);
        }
    }

    /// Parts on their way to the device.
    pub fn in_air(&self) -> usize {
        self.parts.iter().filter(|part| !part.is_done).count()
    }

    fn is_complete(&self) -> bool {
        self.parts.iter().all(|part| part.is_stored)
    }
}

impl LateChoice {
    fn take_slot(&mut self) -> Option<usize> {
        let slot = index(self.slots_taken.trailing_ones());
        (slot < LASTING_SLOTS).then(|| {
            self.slots_taken |= 1 << slot;
            slot
        })
    }

    /// A batch goes with its header.
    pub fn passed(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    fn closed(&mut self, was_in_vain: bool) {
        self.until = None;
        self.last_pause = if was_in_vain { (self.last_pause * 2).clamp(1, PAUSE_MAX) } else { 0 };
        self.pause = self.last_pause;
    }
}

impl Machine<LogStore> {
    /// Puts what clients wrote behind a header that is late; false if it has to go with a header of its own.
    pub(super) fn append_late<M: Memory>(&mut self, units_max: u32, memory: &mut M) -> bool {
        if !self.may_be_late(units_max, memory) {
            self.store.appender.inline_mut().late.passed();
            return false;
        }
        let wanted = self.waiting_for_part(units_max);
        let mut room = self.late_room();
        if room.is_some_and(|room| wanted.0 > room.0 || wanted.1 > room.1) {
            self.close_late(memory);
            room = None;
        }
        let Some((blocks, entries)) = room.or_else(|| self.open_late(memory)) else { return false };
        let batch = self.store.log.in_flight.back().expect("a late batch is open");
        let place = (batch.sequence, batch.header_place);
        // With nothing under way, the device need not wait for the processor: they work at the same time.
        let owes_checksums =
            self.is_write_alone() || batch.late.as_ref().is_some_and(|late| late.owes_checksums());
        let limits =
            DraftLimits { payload: to_u32(blocks), checksums: to_u32(blocks), entries, units: units_max };
        let mut draft = self.store.log.begin_draft(place, limits);
        draft.owes_checksums = owes_checksums;
        self.gather_clients(&mut draft, memory);
        self.send_part(draft);
        true
    }

    /// Blocks and appends of clients that go next, if those are so many at the most. Where they are of different lengths, the
    /// blocks are about so many.
    fn waiting_for_part(&self, units_max: u32) -> (u64, usize) {
        let (blocks, appends) = (self.store.log.pending_blocks, self.store.log.client.len());
        match index(units_max) {
            units if units < appends => (blocks * wide(units) / wide(appends), units),
            _ => (blocks, appends),
        }
    }

    /// Whether one write waits, and none is on its way.
    #[inline]
    fn is_write_alone(&self) -> bool {
        self.store.log.client.len() == 1 && self.store.log.in_flight_writes == 0
    }

    /// Whether what waits may be answered before its header is written.
    fn may_be_late<M: Memory>(&self, units_max: u32, memory: &M) -> bool {
        let LogStore { log, segments, appender, .. } = &self.store;
        let Some(ClientAppend::Part { request, source: PartSource::Data(_), .. }) = log.client.front() else {
            return false;
        };
        let request = &self.requests[*request];
        let is_supported = self.halves.is_none() && self.config.order.is_none() && !appender.has_frames();
        let blocks_max = if self.is_write_alone() { LONE_PART_BLOCKS_MAX } else { PART_BLOCKS_MAX };
        self.waiting_for_part(units_max).0 <= blocks_max
            && log.internal.is_empty()
            && !log.is_floor_wanted
            && request.route == Route::Log
            // Its flush would wait for the header.
            && !request.wants_fua()
            && is_supported
            && !self.is_stopping
            && segments.free() >= self.reserved()
            && memory.lasting_bytes() >= LASTING_BYTES
    }

    /// Blocks and entries that the open late batch has room for.
    fn late_room(&self) -> Option<(u64, usize)> {
        let batch = self.store.log.in_flight.back()?;
        let late = batch.late.as_ref().filter(|late| late.state == State::Open)?;
        let blocks = late.end_block_max - batch.end_block;
        Some((u64::from(blocks), LATE_ENTRIES_MAX - late.entries.len()))
    }

    /// Begins a late batch, if there is room and it may pay.
    fn open_late<M: Memory>(&mut self, memory: &mut M) -> Option<(u64, usize)> {
        if self.store.appender.inline_mut().late.pause > 0 {
            self.store.appender.inline_mut().late.passed();
            return None;
        }
        if self.store.log.in_flight.len() >= BATCHES_IN_FLIGHT_MAX {
            return None;
        }
        let (segment, header_block, room_blocks) = self.room_in_open_segment(ROOM_BLOCKS_MIN)?;
        let header = self.allocate(Purpose::Metadata, to_u32(BLOCK_BYTES), memory)?;
        let Some(slot) = self.store.appender.inline_mut().late.take_slot() else {
            memory.release(header);
            return None;
        };
        let fields = self.head_batch(segment, false);
        let header_place = self.store.segments.place(segment, header_block);
        let bytes = encode_slot(&fields, self.store.offset_bytes(header_place));
        memory.store_lasting(slot * LASTING_SLOT_BYTES, &bytes);
        self.store.appender.inline_mut().late.until = Some(self.now.plus(OPEN_NS_MAX));
        let LogStore { log, segments, .. } = &mut self.store;
        log.open.as_mut().expect("it has room").next_block = header_block + 1;
        segments.get_mut(segment).last_sequence = fields.sequence;
        segments.get_mut(segment).used_blocks = header_block + 1;
        log.in_flight.push_back(Batch {
            sequence: fields.sequence,
            segment,
            end_block: header_block + 1,
            header_place,
            header,
            checksums: Vec::with_capacity(index(LATE_BLOCKS_MAX)),
            publish: Vec::new(),
            once: OnceLayout::NONE,
            writes: 0,
            is_done: false,
            late: Some(Box::new(Late {
                header_block,
                end_block_max: header_block + 1 + room_blocks.min(LATE_BLOCKS_MAX),
                slot,
                slot_end: slot * LASTING_SLOT_BYTES + FIRST_PART_AT,
                fields,
                entries: EncodedEntries::with_capacity(LATE_ENTRIES_MAX),
                parts: VecDeque::new(),
                parts_sent: 0,
                state: State::Open,
            })),
        });
        self.late_room()
    }

    #[inline]
    fn send_part(&mut self, draft: Draft) {
        assert!(!draft.publish.is_empty(), "what waits has room in the late batch");
        let LogStore { log, segments, .. } = &mut self.store;
        let batch = log.in_flight.back_mut().expect("a late batch is open");
        let late = batch.late.as_mut().expect("a late batch is open");
        let open = log.open.as_mut().expect("a late batch is in the open segment");
        let first = segments.place(batch.segment, open.next_block);
        let Draft { entries, pieces, payload_blocks, checksums, owes_checksums, mut publish, .. } = draft;
        publish.iter_mut().filter_map(Publish::place_mut).for_each(|place| place.0 += first.0);
        open.next_block += payload_blocks;
        batch.end_block = open.next_block;
        segments.get_mut(batch.segment).used_blocks = open.next_block;
        let first_entry = late.entries.len();
        late.entries.extend(&entries);
        let from = match pieces[..] {
            [piece] => Pieces::One(piece),
            _ => Pieces::Many(pieces.clone()),
        };
        assert!(
            owes_checksums || !late.owes_checksums(),
            "a batch has its checksums in the order of its parts"
        );
        if !owes_checksums {
            batch.checksums.extend_from_slice(&checksums);
        }
        let owed = owes_checksums.then(|| from.clone());
        let (sequence, number) = (batch.sequence, late.parts_sent);
        late.parts_sent += 1;
        let writes = publish.len();
        log.in_flight_writes += writes;
        late.parts.push_back(Part {
            number,
            publish,
            checksums,
            owed,
            entries: first_entry..late.entries.len(),
            writes,
            is_done: false,
            is_stored: false,
        });
        (log.scratch_entries, log.scratch_pieces) = (entries, pieces);
        let offset_bytes = self.store.offset_bytes(first);
        self.count_content(Content::User, u64::from(payload_blocks) * BLOCK_BYTES);
        let op = IoOp::Write { offset_bytes, from };
        self.issue(Target::Cache, op, Flight::Store(LogFlight::LatePart { sequence, number }));
    }

    /// A part of a late batch is on the device, or could not be written.
    pub(in crate::store::log) fn part_done<M: Memory>(
        &mut self,
        sequence: u64,
        number: u32,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let batch = self.store.log.in_flight.iter_mut().find(|batch| batch.sequence == sequence);
        let late = batch.and_then(|batch| batch.late.as_mut()).expect("a late batch was in flight");
        let part = late.parts.iter_mut().find(|part| part.number == number).expect("a part was in flight");
        part.is_done = true;
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        if self.latched.is_none() {
            self.store_parts(sequence, memory);
            self.send_header(sequence);
        }
        self.go_on_late(memory);
    }

    /// Something is on the device, or the cache failed: late batches go on, or are given up.
    pub(in crate::store::log) fn go_on_late<M: Memory>(&mut self, memory: &mut M) {
        if self.latched.is_none() {
            self.publish_parts(memory);
        } else if self.store.log.in_flight.iter().any(|batch| batch.late.is_some()) {
            self.give_up_late(memory);
        }
    }

    /// RULE 21: what was written is remembered, in the order of the batch, before anybody is answered.
    fn store_parts<M: Memory>(&mut self, sequence: u64, memory: &mut M) {
        let is_off = self.is_mutated(Mutation::LateForgotten);
        let is_owing = self.is_mutated(Mutation::LateWithoutChecksums);
        let LogStore { log, appender, .. } = &mut self.store;
        let scratch = &mut appender.inline_mut().late.scratch;
        let batch = log.in_flight.iter_mut().find(|batch| batch.sequence == sequence);
        let batch = batch.expect("a late batch was in flight");
        let late = batch.late.as_mut().expect("a late batch was in flight");
        if !is_owing {
            late.take_owed(&mut batch.checksums, memory);
        }
        let Late { parts, slot_end, entries, fields, .. } = &mut **late;
        for part in parts.iter_mut().take_while(|part| part.is_done).filter(|part| !part.is_stored) {
            part.is_stored = true;
            encode_part(fields, entries.bytes_of(part.entries.clone()), &part.checksums, scratch);
            if !is_off {
                memory.store_lasting(*slot_end, scratch);
            }
            *slot_end += scratch.len();
        }
    }

    /// Takes the checksums that are owed while the device writes what they are of.
    pub(crate) fn take_owed_checksums<M: Memory>(&mut self, memory: &M) {
        for batch in &mut self.store.log.in_flight {
            if let Some(late) = &mut batch.late {
                late.take_owed(&mut batch.checksums, memory);
            }
        }
    }

    /// Publishes parts of late batches as far as all batches before are published or remembered.
    fn publish_parts<M: Memory>(&mut self, memory: &mut M) {
        let mut at = 0;
        while let Some(batch) = self.store.log.in_flight.get_mut(at) {
            let Some(late) = &mut batch.late else { return };
            let Some(part) = late.parts.front() else {
                at += 1;
                continue;
            };
            if !part.is_stored {
                return;
            }
            let (sequence, header_place) = (batch.sequence, batch.header_place);
            let part = late.parts.pop_front().expect("just seen");
            self.publish_part(part, sequence, header_place, memory);
        }
    }

    fn publish_part<M: Memory>(&mut self, part: Part, sequence: u64, header_place: Place, memory: &mut M) {
        let Part { mut publish, mut checksums, writes, .. } = part;
        self.store.log.in_flight_writes -= writes;
        self.store.log.answered = self.store.log.answered.max(sequence);
        for publish in publish.drain(..) {
            self.publish(publish, &checksums, header_place, OnceLayout::NONE, memory);
        }
        checksums.clear();
        let scratch_lists = &mut self.store.log.scratch_lists;
        if scratch_lists.len() < BATCHES_IN_FLIGHT_MAX {
            scratch_lists.push((publish, checksums));
        }
    }

    /// Publishes what is left of a late batch whose header is on the device, and gives its slot back.
    pub(in crate::store::log) fn end_late<M: Memory>(&mut self, batch: &mut Batch, memory: &mut M) {
        let Some(mut late) = batch.late.take() else { return };
        let is_over = self.latched.is_some();
        let is_hasty = self.is_mutated(Mutation::HeaderBeforePayload);
        for part in core::mem::take(&mut late.parts) {
            if is_over {
                self.store.log.in_flight_writes -= part.writes;
                self.discard_publishes(part.publish, memory);
            } else {
                assert!(part.is_stored || is_hasty, "a header follows all of its payload");
                self.publish_part(part, batch.sequence, batch.header_place, memory);
            }
        }
        // RULE 21: what failed to reach the device is what the next start has to write.
        if !is_over {
            if !self.is_mutated(Mutation::LateRemembered) {
                memory.store_lasting(late.slot * LASTING_SLOT_BYTES, &[0; 8]);
            }
            self.store.appender.inline_mut().late.slots_taken &= !(1 << late.slot);
        }
    }

    /// No more parts come: the header is made, and follows when all of them are on the device.
    pub(in crate::store::log) fn close_late<M: Memory>(&mut self, memory: &mut M) {
        let LogStore { log, appender, .. } = &mut self.store;
        let Some(batch) = log.in_flight.back_mut() else { return };
        let Some(late) = batch.late.as_mut().filter(|late| late.state == State::Open) else { return };
        late.state = State::Closed;
        late.take_owed(&mut batch.checksums, memory);
        let is_full = batch.end_block == late.end_block_max;
        appender.inline_mut().late.closed(late.parts_sent < PARTS_ENOUGH && !is_full);
        let bytes = &mut memory.metadata_mut(batch.header)[..index(to_u32(BLOCK_BYTES))];
        log.chain = late.fields.encode_from(&late.entries, &batch.checksums, bytes);
        let open = log.open.as_mut().expect("a late batch is in the open segment");
        let (header, payload) = (late.header_block, late.header_block + 1);
        open.summary.push_encoded(header, payload, bytes);
        let sequence = batch.sequence;
        self.send_header(sequence);
    }

    /// Sends a header off whose batch is closed and remembered.
    fn send_header(&mut self, sequence: u64) {
        let is_hasty = self.is_mutated(Mutation::HeaderBeforePayload);
        let batch = self.store.log.in_flight.iter_mut().find(|batch| batch.sequence == sequence);
        let Some(batch) = batch else { return };
        let Some(late) = &mut batch.late else { return };
        if late.state != State::Closed || !(late.is_complete() || is_hasty) {
            return;
        }
        late.state = State::Sent;
        let slice = Slice { buffer: batch.header, offset_bytes: 0, len_bytes: to_u32(BLOCK_BYTES) };
        let place = batch.header_place;
        let op = IoOp::Write { offset_bytes: self.store.offset_bytes(place), from: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(LogFlight::Batch { sequence }));
    }

    /// The open late batch is closed if its time is over, or somebody waits for it.
    pub(in crate::store::log) fn tend_late<M: Memory>(&mut self, memory: &mut M) {
        let Some(until) = self.store.appender.inline_mut().late.until else { return };
        if self.latched.is_some() {
            self.give_up_late(memory);
            return;
        }
        let sequence = self.store.log.in_flight.back().map_or(0, |batch| batch.sequence);
        if self.barrier.wants(sequence) || self.now >= until || self.is_stopping {
            self.close_late(memory);
        }
    }

    /// The cache failed: late batches of which nothing is on its way any more are over. What was answered stays in memory that
    /// lasts, for the next start.
    fn give_up_late<M: Memory>(&mut self, memory: &mut M) {
        self.store.appender.inline_mut().late.until = None;
        for batch in &mut self.store.log.in_flight {
            let is_still = |late: &Late| late.state != State::Sent && late.in_air() == 0;
            batch.is_done |= batch.late.as_deref().is_some_and(is_still);
        }
        self.take_done(memory);
    }
}

impl Batch {
    /// The requests' parts and whatever else its publication does.
    pub(in crate::store::log) fn publishes(&self) -> impl Iterator<Item = &Publish> {
        let parts = self.late.iter().flat_map(|late| &late.parts);
        self.publish.iter().chain(parts.flat_map(|part| &part.publish))
    }
}
