//! The log's writing end: what waits to be appended, batches in flight, publication.
//!
//! Everything that changes what the cache holds goes through here in one order. A batch gets its
//! sequence when it is assembled; its entries enter the index when it and all before it are on the device
//! (hazard 14). Copies of what is already there (fills, relocations) are decided at assembly, when no newer version of
//! the block is on its way (rule 3).

use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, Target};
use crate::engine::{Engine, Flight};
use crate::extents::{Extent, ExtentKind};
use crate::format::{
    BatchHeader, Entry, EntryKind, SegmentHead, SummaryBuilder, SummaryFooter, header_blocks_for,
};
use crate::guard::{Blocks, Hold, Stamp};
use crate::index::Run as IndexRun;
use crate::limits::ENGINE_BUFFER_BYTES_MAX;
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::request::RequestKey;
use crate::units::{BLOCK_BYTES, BlockKey, Place, SECTORS_PER_BLOCK, VolumeIndex};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Payload blocks of a batch at the most: 1 MiB.
const BATCH_BLOCKS_MAX: u32 = 256;
/// Entries of a batch at the most; with the payload limit they fit a header of two blocks.
const BATCH_ENTRIES_MAX: usize = 200;
/// Blocks of the largest header, and what a summary grows by for such a batch at the most.
const HEADER_BLOCKS_MAX: u32 = 2;
const SUMMARY_GROWTH_BLOCKS: u32 = 2;
/// Blocks of a summary at the most.
const SUMMARY_BLOCKS_MAX: u32 = ENGINE_BUFFER_BYTES_MAX / BLOCK_BYTES as u32;
/// With a batch in flight, what is pending waits for company until it has this many blocks: small
/// batches would spend a header, and with it a block of the cache device, on each.
const COMPANY_BLOCKS: u64 = 128;
/// Batches in flight at the most.
const BATCHES_IN_FLIGHT_MAX: usize = 8;
/// A segment with less room than this for payload is sealed.
const PAYLOAD_BLOCKS_MIN: u32 = 8;

/// What a part of a client's change is made of.
#[derive(Clone, Copy)]
pub(crate) enum PartSource {
    Data(Slice),
    Zero,
}

/// What waits on behalf of clients; held back while free segments are few.
pub(crate) enum ClientAppend {
    /// Part of a write or of write-zeroes.
    Part { request: RequestKey, blocks: Blocks, source: PartSource },
    /// What a read brought from the origin.
    Fill { volume: VolumeIndex, blocks: Blocks, slice: Slice, stamp: Stamp },
}

/// What waits on behalf of the log itself; may use the reserve.
#[derive(Debug)]
pub(crate) enum InternalAppend {
    /// The log holds nothing for these blocks any more.
    Tombstone { volume: VolumeIndex, blocks: Blocks, request: Option<RequestKey> },
    /// These copies are clean now.
    Cleaned { volume: VolumeIndex, blocks: Blocks, place: Place },
    /// A block that stays when its segment is emptied.
    Relocate { key: BlockKey, from: Place, checksum: u32, slice: Slice },
    /// A zero extent that stays.
    Zero { extent: Extent },
    /// A dirty block that rotted, or a lost extent that stays.
    Lost { first: BlockKey, blocks: u64, from: Place },
}

/// What publication of a batch does, in order.
enum Publish {
    Part {
        request: RequestKey,
        volume: VolumeIndex,
        blocks: Blocks,
        place: Option<Place>,
        checksums_at: usize,
    },
    Fill {
        volume: VolumeIndex,
        blocks: Blocks,
        place: Place,
        checksums_at: usize,
        buffer: BufferId,
    },
    Tombstone {
        request: Option<RequestKey>,
    },
    Relocate {
        key: BlockKey,
        from: Place,
        place: Place,
        dirty: bool,
        checksums_at: usize,
        buffer: BufferId,
    },
    Extent {
        extent: Extent,
        from: Option<Place>,
    },
    /// The head of a segment that began with this batch.
    Head {
        buffer: BufferId,
    },
}

struct Batch {
    sequence: u64,
    segment: u32,
    end_block: u32,
    header_place: Place,
    header: BufferId,
    checksums: Vec<u32>,
    publish: Vec<Publish>,
    is_done: bool,
}

struct Open {
    segment: u32,
    next_block: u32,
    summary: SummaryBuilder,
}

/// The end of the log.
pub(crate) struct Log {
    set_id: [u8; 16],
    session: u64,
    generation: u64,
    next_sequence: u64,
    chain: u32,
    open: Option<Open>,
    client: VecDeque<ClientAppend>,
    internal: VecDeque<InternalAppend>,
    pub pending_blocks: u64,
    pub pending_fill_blocks: u64,
    pub summaries_in_flight: u32,
    in_flight: VecDeque<Batch>,
    /// Published batches that no flush covers: sequence, segment, end of the batch in it.
    ends: VecDeque<(u64, u32, u32)>,
    published: u64,
    /// The sequence of the last tombstone assembled.
    last_tombstone: u64,
    /// Whether a batch shall go out even if empty, to carry the floor.
    is_floor_wanted: bool,
    /// Segments closed before a crash whose summaries are not on the device, with the checksum of their
    /// last header.
    missing_summaries: Vec<(u32, SummaryBuilder, u32)>,
    scratch_entries: Vec<Entry>,
    scratch_pieces: Vec<Slice>,
}

/// Where recovery leaves the log.
pub(crate) struct LogStart {
    pub set_id: [u8; 16],
    pub session: u64,
    pub last_generation: u64,
    pub next_sequence: u64,
    pub chain: u32,
    pub open: Option<(u32, u32, SummaryBuilder)>,
    pub missing_summaries: Vec<(u32, SummaryBuilder, u32)>,
}

impl core::fmt::Debug for Log {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Log")
            .field("next_sequence", &self.next_sequence)
            .field("published", &self.published)
            .field("open", &self.open.as_ref().map(|open| (open.segment, open.next_block)))
            .field("client", &self.client.len())
            .field("internal", &self.internal)
            .field("in_flight", &self.in_flight.len())
            .field("is_floor_wanted", &self.is_floor_wanted)
            .finish_non_exhaustive()
    }
}

impl Log {
    pub fn new(start: LogStart) -> Log {
        let LogStart { set_id, session, last_generation, next_sequence, chain, open, missing_summaries } =
            start;
        assert!(next_sequence > 0, "sequences begin at 1");
        Log {
            set_id,
            session,
            generation: last_generation,
            next_sequence,
            chain,
            open: open.map(|(segment, next_block, summary)| Open { segment, next_block, summary }),
            client: VecDeque::new(),
            internal: VecDeque::new(),
            pending_blocks: 0,
            pending_fill_blocks: 0,
            summaries_in_flight: 0,
            in_flight: VecDeque::new(),
            ends: VecDeque::new(),
            published: next_sequence - 1,
            last_tombstone: 0,
            is_floor_wanted: false,
            missing_summaries,
            scratch_entries: Vec::new(),
            scratch_pieces: Vec::new(),
        }
    }

    /// A new session begins: headers carry its number from here on.
    pub fn begin_session(&mut self, session: u64) {
        assert!(session > self.session && self.in_flight.is_empty());
        self.session = session;
    }

    /// The highest sequence that is published, and all before it.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Whether a crash left segments without a summary.
    pub fn has_missing_summaries(&self) -> bool {
        !self.missing_summaries.is_empty()
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        self.client.is_empty() && self.internal.is_empty() && self.in_flight.is_empty()
    }

    /// Whether work of the log's own waits.
    pub fn has_internal(&self) -> bool {
        !self.internal.is_empty()
    }

    pub fn push_client(&mut self, append: ClientAppend) {
        self.pending_blocks += append.weight();
        self.client.push_back(append);
    }

    pub fn push_internal(&mut self, append: InternalAppend) {
        self.pending_blocks += append.weight();
        self.internal.push_back(append);
    }

    fn is_open(&self, segment: u32) -> bool {
        self.open.as_ref().is_some_and(|open| open.segment == segment)
    }
}

impl ClientAppend {
    fn weight(&self) -> u64 {
        match self {
            ClientAppend::Part { source: PartSource::Zero, .. } => 0,
            ClientAppend::Part { blocks, .. } | ClientAppend::Fill { blocks, .. } => blocks.count,
        }
    }
}

impl InternalAppend {
    fn weight(&self) -> u64 {
        u64::from(matches!(self, InternalAppend::Relocate { .. }))
    }
}

/// A batch being put together.
struct Draft {
    sequence: u64,
    first_payload: u32,
    payload_blocks: u32,
    payload_max: u32,
    checksums: Vec<u32>,
    publish: Vec<Publish>,
}

impl Engine {
    // ---- what the log is asked to hold -----------------------------------------------------

    pub(crate) fn append_tombstone(
        &mut self,
        volume: VolumeIndex,
        blocks: Blocks,
        request: Option<RequestKey>,
    ) {
        self.log.push_internal(InternalAppend::Tombstone { volume, blocks, request });
    }

    /// A dirty block's only copy rotted.
    pub(crate) fn append_lost(&mut self, key: BlockKey) {
        let Some(entry) = self.index.get(key) else { return };
        self.log.push_internal(InternalAppend::Lost { first: key, blocks: 1, from: entry.place });
    }

    /// Wants a header whose floor is above all emptied segments, and a flush that covers it.
    pub(crate) fn want_floor(&mut self) {
        if self.segments.has_emptied()
            && self.segments.flush_wanted().is_none_or(|w| w <= self.barrier.flushed)
        {
            self.log.is_floor_wanted = true;
        }
        if let Some(sequence) = self.segments.flush_wanted() {
            self.barrier.want(sequence);
        }
        self.barrier.want(self.log.last_tombstone);
    }

    /// Whether nothing that the log forgot could come back after a crash.
    pub(crate) fn is_floor_durable(&self) -> bool {
        !self.segments.has_emptied() && self.log.last_tombstone <= self.barrier.flushed
    }

    // ---- assembly --------------------------------------------------------------------------

    /// Sends off what is pending, as far as it may go now.
    pub(crate) fn assemble<M: Memory>(&mut self, memory: &mut M) {
        loop {
            let log = &self.log;
            let is_pending = !log.client.is_empty() || !log.internal.is_empty() || log.is_floor_wanted;
            let in_flight = log.in_flight.len();
            let may_go = in_flight == 0 || log.pending_blocks >= COMPANY_BLOCKS;
            if !is_pending || !may_go || in_flight >= BATCHES_IN_FLIGHT_MAX || self.latched.is_some() {
                return;
            }
            if !self.assemble_one(memory) {
                return;
            }
        }
    }

    /// Whether clients may take log space now: the reserve is for relocation, tombstones and clean
    /// records, without which the ring would stop (rule 9).
    fn clients_may_append(&self) -> bool {
        let free = self.segments.free();
        let reserved = self.config.segments_reserved;
        if self.log.open.is_some() { free >= reserved } else { free > reserved }
    }

    fn assemble_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        let has_internal = !self.log.internal.is_empty() || self.log.is_floor_wanted;
        if !has_internal && !self.clients_may_append() {
            return false;
        }
        let Some(header) = memory.allocate(Purpose::Metadata, HEADER_BLOCKS_MAX * BLOCK_BYTES as u32) else {
            return false;
        };
        let sequence = self.log.next_sequence;
        let Some((segment, next_block, is_new, head)) = self.room_for_batch(sequence, memory) else {
            memory.release(header);
            return false;
        };
        let open = self.log.open.as_ref().expect("room was made");
        let left = self.segments.segment_blocks() - next_block;
        let payload_max = left - HEADER_BLOCKS_MAX - open.summary.blocks_needed() - SUMMARY_GROWTH_BLOCKS;
        assert!(payload_max >= PAYLOAD_BLOCKS_MIN);
        let header_place = self.segments.place(segment, next_block);
        let mut draft = Draft {
            sequence,
            first_payload: 0,
            payload_blocks: 0,
            payload_max: payload_max.min(BATCH_BLOCKS_MAX),
            checksums: Vec::new(),
            publish: Vec::new(),
        };
        let mut entries = core::mem::take(&mut self.log.scratch_entries);
        let mut pieces = core::mem::take(&mut self.log.scratch_pieces);
        entries.clear();
        pieces.clear();
        self.gather_internal(&mut draft, &mut entries, &mut pieces, header_place, memory);
        // A segment that the log opened for itself takes clients only while the reserve is whole.
        if self.segments.free() >= self.config.segments_reserved {
            self.gather_clients(&mut draft, &mut entries, &mut pieces, memory);
        }
        let is_empty = entries.is_empty();
        if is_empty && !self.log.is_floor_wanted && !is_new {
            memory.release(header);
            (self.log.scratch_entries, self.log.scratch_pieces) = (entries, pieces);
            return false;
        }
        let header_blocks = header_blocks_for(entries.len(), draft.payload_blocks as usize);
        assert!(header_blocks <= HEADER_BLOCKS_MAX);
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

    /// Makes sure that the open segment has room; seals it and opens the next one if not. Returns the
    /// segment, the block to go on at, whether it is new, and its head then.
    fn room_for_batch<M: Memory>(
        &mut self,
        sequence: u64,
        memory: &mut M,
    ) -> Option<(u32, u32, bool, Option<BufferId>)> {
        if let Some(open) = &self.log.open {
            let left = self.segments.segment_blocks() - open.next_block;
            let overhead = HEADER_BLOCKS_MAX + open.summary.blocks_needed() + SUMMARY_GROWTH_BLOCKS;
            // A summary is read back into one buffer: a segment whose summary would not fit ends early.
            let is_summary_small = open.summary.blocks_needed() + SUMMARY_GROWTH_BLOCKS <= SUMMARY_BLOCKS_MAX;
            if left >= overhead + PAYLOAD_BLOCKS_MIN && is_summary_small {
                return Some((open.segment, open.next_block, false, None));
            }
            if !self.seal(memory) {
                return None;
            }
        }
        // After sealing clients may have to wait, while the log's own work goes on.
        let has_internal = !self.log.internal.is_empty() || self.log.is_floor_wanted;
        if !has_internal && !self.clients_may_append() {
            return None;
        }
        let head = memory.allocate(Purpose::Metadata, BLOCK_BYTES as u32)?;
        let generation = self.log.generation + 1;
        let Some(segment) = self.segments.open_next(generation, sequence) else {
            memory.release(head);
            return None;
        };
        self.log.generation = generation;
        SegmentHead {
            set_id: self.log.set_id,
            ring: 0,
            generation,
            session: self.log.session,
            first_sequence: sequence,
            previous_checksum: self.log.chain,
        }
        .encode(memory.metadata_mut(head));
        self.log.open = Some(Open { segment, next_block: 1, summary: SummaryBuilder::default() });
        Some((segment, 1, true, Some(head)))
    }

    /// Writes the summaries that a crash kept from being written.
    pub(crate) fn write_missing_summaries<M: Memory>(&mut self, memory: &mut M) {
        while let Some((segment, summary, last_header_checksum)) = self.log.missing_summaries.pop() {
            if !self.write_summary(segment, &summary, last_header_checksum, memory) {
                self.log.missing_summaries.push((segment, summary, last_header_checksum));
                return;
            }
        }
    }

    /// Closes the open segment: its summary goes to the device. False if no buffer was free.
    fn seal<M: Memory>(&mut self, memory: &mut M) -> bool {
        let open = self.log.open.take().expect("a segment is open");
        if !self.write_summary(open.segment, &open.summary, self.log.chain, memory) {
            self.log.open = Some(open);
            return false;
        }
        self.segments.seal(open.segment);
        true
    }

    fn write_summary<M: Memory>(
        &mut self,
        at: u32,
        summary: &SummaryBuilder,
        last_header_checksum: u32,
        memory: &mut M,
    ) -> bool {
        let blocks = summary.blocks_needed();
        let Some(buffer) = memory.allocate(Purpose::Metadata, blocks * BLOCK_BYTES as u32) else {
            return false;
        };
        let segment = self.segments.get_mut(at);
        segment.summary_blocks = blocks;
        let footer = SummaryFooter {
            set_id: self.log.set_id,
            ring: 0,
            generation: segment.generation,
            session: self.log.session,
            first_sequence: segment.first_sequence,
            last_sequence: segment.last_sequence,
            last_header_checksum,
            flushed_sequence: self.barrier.flushed,
            floor_sequence: self.floor(),
            oldest_dirty_sequence: self.oldest_dirty(),
        };
        let bytes = memory.metadata_mut(buffer);
        summary.finish(&footer, &mut bytes[..(blocks as usize) * BLOCK_BYTES as usize]);
        let first = self.segments.place(at, self.segments.segment_blocks() - blocks);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: blocks * BLOCK_BYTES as u32 };
        let op = IoOp::Write { offset_bytes: self.cache_offset(first), from: Pieces::One(slice) };
        self.log.summaries_in_flight += 1;
        self.issue(Target::Cache, op, Flight::Summary { segment: at, buffer });
        true
    }

    pub(crate) fn summary_done<M: Memory>(
        &mut self,
        segment: u32,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.log.summaries_in_flight -= 1;
        match result {
            Ok(()) => self.segments.get_mut(segment).is_summary_written = true,
            Err(errno) => self.latch(errno, memory),
        }
    }

    fn floor(&self) -> u64 {
        self.segments.floor().unwrap_or(self.log.next_sequence)
    }

    fn oldest_dirty(&self) -> u64 {
        // What is not published yet may be dirty, too.
        self.segments.oldest_dirty().unwrap_or(self.log.published + 1)
    }

    fn gather_internal<M: Memory>(
        &mut self,
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
        pieces: &mut Vec<Slice>,
        header_place: Place,
        memory: &mut M,
    ) {
        for _ in 0..self.log.internal.len() {
            if entries.len() >= BATCH_ENTRIES_MAX || draft.payload_blocks >= draft.payload_max {
                break;
            }
            let Some(append) = self.log.internal.pop_front() else { break };
            let weight = append.weight();
            let key = match &append {
                InternalAppend::Tombstone { volume, blocks, .. }
                | InternalAppend::Cleaned { volume, blocks, .. } => BlockKey::new(*volume, blocks.first),
                InternalAppend::Relocate { key, .. } => *key,
                InternalAppend::Zero { extent } => extent.first,
                InternalAppend::Lost { first, .. } => *first,
            };
            let Some(volume) = self.volumes[key.volume().at()].as_mut() else {
                self.forget_internal(append, memory);
                continue;
            };
            let blocks = Blocks { first: key.block(), count: append.blocks() };
            // RULE 3: copies and tombstones are decided against the newest assigned version: while one
            // is on its way, they wait.
            let is_free = match &append {
                InternalAppend::Tombstone { request: Some(_), .. } | InternalAppend::Cleaned { .. } => true,
                _ => volume.guard.is_free(blocks, Hold::Copying),
            };
            if !is_free {
                self.log.internal.push_back(append);
                continue;
            }
            self.log.pending_blocks -= weight;
            let volume_id = volume.id;
            let place = draft.next_place();
            match append {
                InternalAppend::Tombstone { volume: index, blocks, request } => {
                    // Without a request it follows a rotten clean copy: a newer one makes it void.
                    let is_void = request.is_none()
                        && (blocks.first..blocks.end())
                            .any(|b| self.index.get(BlockKey::new(index, b)).is_some());
                    if !is_void {
                        entries.push(range_entry(EntryKind::Tombstone, volume_id, blocks, 0, 0));
                        self.log.last_tombstone = draft.sequence;
                    }
                    if request.is_some() || !is_void {
                        draft.publish.push(Publish::Tombstone { request });
                    }
                }
                InternalAppend::Cleaned { blocks, place: cleaned, .. } => {
                    entries.push(range_entry(EntryKind::Cleaned, volume_id, blocks, 0, u64::from(cleaned.0)));
                }
                InternalAppend::Relocate { key, from, checksum, slice } => {
                    let entry = self.index.get(key).filter(|entry| entry.place == from);
                    let Some(entry) = entry else {
                        memory.release(slice.buffer);
                        self.reclaim.relocated(slice.len_bytes);
                        continue;
                    };
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    let kind = if entry.dirty { EntryKind::Dirty } else { EntryKind::Clean };
                    push_payload_entry(entries, kind, volume_id, blocks);
                    pieces.push(slice);
                    draft.publish.push(Publish::Relocate {
                        key,
                        from,
                        place,
                        dirty: entry.dirty,
                        checksums_at: draft.checksums.len(),
                        buffer: slice.buffer,
                    });
                    draft.checksums.push(checksum);
                    draft.payload_blocks += 1;
                }
                InternalAppend::Zero { extent } => {
                    if self.extents.get(extent.first) != Some(extent) {
                        continue;
                    }
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    entries.push(range_entry(EntryKind::Zero, volume_id, blocks, 0, 0));
                    let moved = Extent { place: header_place, ..extent };
                    draft.publish.push(Publish::Extent { extent: moved, from: Some(extent.place) });
                }
                InternalAppend::Lost { first, blocks: count, from } => {
                    let is_current =
                        self.index.get(first).is_some_and(|entry| entry.place == from && entry.dirty)
                            || self.extents.get(first).is_some_and(|extent| extent.place == from);
                    if !is_current {
                        continue;
                    }
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    entries.push(range_entry(EntryKind::Lost, volume_id, blocks, 0, 0));
                    let extent = Extent { first, blocks: count, kind: ExtentKind::Lost, place: header_place };
                    draft.publish.push(Publish::Extent { extent, from: Some(from) });
                }
            }
        }
    }

    fn forget_internal<M: Memory>(&mut self, append: InternalAppend, memory: &mut M) {
        self.log.pending_blocks -= append.weight();
        if let InternalAppend::Relocate { slice, .. } = append {
            memory.release(slice.buffer);
            self.reclaim.relocated(slice.len_bytes);
        }
    }

    fn gather_clients<M: Memory>(
        &mut self,
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
        pieces: &mut Vec<Slice>,
        memory: &mut M,
    ) {
        while entries.len() < BATCH_ENTRIES_MAX {
            let room = u64::from(draft.payload_max - draft.payload_blocks);
            let Some(append) = self.log.client.pop_front() else { break };
            match append {
                ClientAppend::Part { request, blocks, source: PartSource::Zero } => {
                    let volume = self.requests[request].volume;
                    let volume_id = self.volume(volume).id;
                    if self.extents.len() >= self.config.extents_max {
                        // Zero extents are in RAM until they are home; their number is bounded.
                        self.log.client.push_front(append);
                        break;
                    }
                    self.volume_mut(volume).guard.acquire(blocks, Hold::Publishing);
                    entries.push(range_entry(EntryKind::Zero, volume_id, blocks, 0, 0));
                    draft.publish.push(Publish::Part {
                        request,
                        volume,
                        blocks,
                        place: None,
                        checksums_at: 0,
                    });
                    self.requests[request].sequence = draft.sequence;
                }
                ClientAppend::Part { request, blocks, source: PartSource::Data(slice) } => {
                    if room == 0 {
                        self.log.client.push_front(append);
                        break;
                    }
                    let volume = self.requests[request].volume;
                    let volume_id = self.volume(volume).id;
                    let now = Blocks { first: blocks.first, count: blocks.count.min(room) };
                    let bytes = (now.count * BLOCK_BYTES) as u32;
                    self.volume_mut(volume).guard.acquire(now, Hold::Publishing);
                    let place = draft.next_place();
                    let checksums_at = draft.checksums.len();
                    draft.add_checksums(slice, now.count, memory);
                    push_payload_entry(entries, EntryKind::Dirty, volume_id, now);
                    pieces.push(slice.part(0, bytes));
                    draft.publish.push(Publish::Part {
                        request,
                        volume,
                        blocks: now,
                        place: Some(place),
                        checksums_at,
                    });
                    draft.payload_blocks += now.count as u32;
                    self.log.pending_blocks -= now.count;
                    self.requests[request].sequence = draft.sequence;
                    if now.count < blocks.count {
                        let rest = Blocks { first: now.end(), count: blocks.count - now.count };
                        let source = PartSource::Data(slice.part(bytes, slice.len_bytes - bytes));
                        self.log.client.push_front(ClientAppend::Part { request, blocks: rest, source });
                        break;
                    }
                }
                ClientAppend::Fill { volume, blocks, slice, stamp } => {
                    if room == 0 {
                        self.log.client.push_front(append);
                        break;
                    }
                    self.log.pending_blocks -= blocks.count;
                    self.log.pending_fill_blocks -= blocks.count;
                    let is_pressed = self.segments.free() <= self.config.segments_reserved;
                    let Some(target) = self.volumes[volume.at()].as_mut() else {
                        memory.release(slice.buffer);
                        continue;
                    };
                    // HAZARD 1: nothing was written, destaged, discarded, bypassed or dropped here since
                    // the read began, and nothing is about to be.
                    let is_unchanged = target.guard.stamp(blocks, target.origin.flushed_epoch) == Some(stamp)
                        && target.caches_reads();
                    let is_new = is_unchanged
                        && !is_pressed
                        && !self.index.is_tight(blocks.count)
                        && (blocks.first..blocks.end())
                            .all(|block| self.index.get(BlockKey::new(volume, block)).is_none());
                    if !is_new {
                        let counters = &mut self.volume_mut(volume).counters;
                        let counter = if is_unchanged {
                            &mut counters.bypass_pressure_blocks
                        } else {
                            &mut counters.fill_dropped_blocks
                        };
                        *counter += blocks.count;
                        memory.release(slice.buffer);
                        continue;
                    }
                    // A fill is never split: what does not fit is not worth a second header.
                    let now = Blocks { first: blocks.first, count: blocks.count.min(room) };
                    target.guard.acquire(now, Hold::Copying);
                    target.counters.fill_blocks += now.count;
                    let volume_id = target.id;
                    let place = draft.next_place();
                    let checksums_at = draft.checksums.len();
                    draft.add_checksums(slice, now.count, memory);
                    push_payload_entry(entries, EntryKind::Clean, volume_id, now);
                    pieces.push(slice.part(0, (now.count * BLOCK_BYTES) as u32));
                    draft.publish.push(Publish::Fill {
                        volume,
                        blocks: now,
                        place,
                        checksums_at,
                        buffer: slice.buffer,
                    });
                    draft.payload_blocks += now.count as u32;
                }
            }
        }
    }

    /// Drafts number payload blocks from 0; now that the header's length is known they get their places.
    fn fix_places(&self, draft: &mut Draft, segment: u32) {
        let base = self.segments.place(segment, 0).0 + draft.first_payload;
        for publish in &mut draft.publish {
            match publish {
                Publish::Part { place: Some(place), .. }
                | Publish::Fill { place, .. }
                | Publish::Relocate { place, .. } => place.0 += base,
                Publish::Part { place: None, .. }
                | Publish::Tombstone { .. }
                | Publish::Extent { .. }
                | Publish::Head { .. } => (),
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
        assert!(sequence == self.log.next_sequence, "sequences are given in order");
        let fields = BatchHeader {
            set_id: self.log.set_id,
            session: self.log.session,
            generation: self.segments.get(segment).generation,
            sequence,
            previous_checksum: self.log.chain,
            flushed_sequence: self.barrier.flushed,
            floor_sequence: self.floor(),
            oldest_dirty_sequence: self.oldest_dirty(),
        };
        let header_bytes = header_blocks * BLOCK_BYTES as u32;
        let bytes = &mut memory.metadata_mut(header)[..header_bytes as usize];
        self.log.chain = fields.encode(&entries, &draft.checksums, bytes);
        self.log.next_sequence += 1;
        self.log.is_floor_wanted = false;
        self.segments.carry_floor(sequence);
        let end_block = draft.first_payload + draft.payload_blocks;
        {
            let open = self.log.open.as_mut().expect("the batch goes there");
            open.summary.push(sequence, next_block, draft.first_payload, &entries, &draft.checksums);
            open.next_block = end_block;
        }
        let at = self.segments.get_mut(segment);
        at.last_sequence = sequence;
        at.used_blocks = end_block;
        let head_blocks = u32::from(head.is_some());
        let mut all = Vec::with_capacity(pieces.len() + 2);
        if let Some(head) = head {
            all.push(Slice { buffer: head, offset_bytes: 0, len_bytes: BLOCK_BYTES as u32 });
        }
        all.push(Slice { buffer: header, offset_bytes: 0, len_bytes: header_bytes });
        all.append(&mut pieces);
        let first = self.segments.place(segment, next_block - head_blocks);
        let op = IoOp::Write { offset_bytes: self.cache_offset(first), from: Pieces::Many(all) };
        self.issue(Target::Cache, op, Flight::Batch { sequence });
        self.log.in_flight.push_back(Batch {
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
            self.log.in_flight.back_mut().expect("just pushed").publish.push(Publish::Head { buffer: head });
        }
        (self.log.scratch_entries, self.log.scratch_pieces) = (entries, pieces);
    }

    // ---- publication -------------------------------------------------------------------------

    pub(crate) fn batch_done<M: Memory>(&mut self, sequence: u64, result: Result<(), Errno>, memory: &mut M) {
        let first = self.log.in_flight.front().expect("a batch was in flight").sequence;
        self.log.in_flight[(sequence - first) as usize].is_done = true;
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        // HAZARD 14, RULE 4: published in log order, whatever order the device answers in.
        while self.log.in_flight.front().is_some_and(|batch| batch.is_done) {
            let batch = self.log.in_flight.pop_front().expect("just seen");
            memory.release(batch.header);
            if self.latched.is_some() {
                self.discard_batch(batch, memory);
                continue;
            }
            self.log.published = batch.sequence;
            self.log.ends.push_back((batch.sequence, batch.segment, batch.end_block));
            for publish in batch.publish {
                self.publish(publish, &batch.checksums, batch.header_place, memory);
            }
        }
    }

    fn publish<M: Memory>(
        &mut self,
        publish: Publish,
        checksums: &[u32],
        header_place: Place,
        memory: &mut M,
    ) {
        match publish {
            Publish::Part { request, volume, blocks, place, checksums_at } => {
                match place {
                    Some(place) => {
                        let run = IndexRun {
                            first: BlockKey::new(volume, blocks.first),
                            place,
                            dirty: true,
                            checksums: &checksums[checksums_at..checksums_at + blocks.count as usize],
                        };
                        self.insert_run(volume, blocks, run);
                    }
                    None => {
                        self.drop_entries(volume, blocks);
                        let first = BlockKey::new(volume, blocks.first);
                        self.insert_extent(Extent {
                            first,
                            blocks: blocks.count,
                            kind: ExtentKind::Zero,
                            place: header_place,
                        });
                    }
                }
                self.release_guard(volume, blocks, Hold::Publishing);
                let active = &mut self.requests[request];
                active.unpublished -= blocks.count;
                if active.unpublished == 0 {
                    self.appended(request, memory);
                }
            }
            Publish::Fill { volume, blocks, place, checksums_at, buffer } => {
                memory.release(buffer);
                let run = IndexRun {
                    first: BlockKey::new(volume, blocks.first),
                    place,
                    dirty: false,
                    checksums: &checksums[checksums_at..checksums_at + blocks.count as usize],
                };
                self.insert_run(volume, blocks, run);
                self.release_guard(volume, blocks, Hold::Copying);
            }
            Publish::Tombstone { request } => {
                if let Some(request) = request {
                    let active = &mut self.requests[request];
                    active.sequence = self.log.published;
                    active.unpublished -= 1;
                    if active.unpublished == 0 {
                        self.appended(request, memory);
                    }
                }
            }
            Publish::Relocate { key, from, place, dirty, checksums_at, buffer } => {
                memory.release(buffer);
                self.reclaim.relocated(BLOCK_BYTES as u32);
                let blocks = Blocks { first: key.block(), count: 1 };
                // It may have been destaged or found rotten meanwhile, but not superseded.
                if let Some(entry) = self.index.get(key).filter(|entry| entry.place == from) {
                    let run = IndexRun {
                        first: key,
                        place,
                        dirty: dirty && entry.dirty,
                        checksums: &checksums[checksums_at..=checksums_at],
                    };
                    self.insert_run(key.volume(), blocks, run);
                    self.volume_mut(key.volume()).counters.relocated_blocks += 1;
                }
                self.release_guard(key.volume(), blocks, Hold::Copying);
            }
            Publish::Extent { extent, from } => {
                let volume = extent.first.volume();
                let blocks = Blocks { first: extent.first.block(), count: extent.blocks };
                let is_current = self.extents.get(extent.first).is_some_and(|now| Some(now.place) == from)
                    || self.index.get(extent.first).is_some_and(|now| Some(now.place) == from);
                if is_current {
                    if extent.kind == ExtentKind::Lost && self.extents.get(extent.first).is_none() {
                        self.push(Effect::Notice(Notice::Lost { volume, block: blocks.first }));
                    }
                    self.drop_entries(volume, blocks);
                    self.insert_extent(extent);
                }
                self.release_guard(volume, blocks, Hold::Copying);
            }
            Publish::Head { buffer } => memory.release(buffer),
        }
    }

    /// Puts a run into the index and keeps all sums.
    fn insert_run(&mut self, volume_index: VolumeIndex, blocks: Blocks, run: IndexRun<'_>) {
        let is_dirty = run.dirty;
        let place = run.place;
        if !self.extents.is_empty() {
            self.drop_extents(volume_index, blocks);
        }
        let Engine { volumes, index, segments, .. } = self;
        let volume = volumes[volume_index.at()].as_mut().expect("the volume exists");
        index.insert(run, |_, old| {
            segments.remove_live(old.place, old.dirty);
            volume.dirty_blocks -= u64::from(old.dirty);
            volume.cached_blocks -= 1;
        });
        segments.add_live(place, blocks.count as u32, is_dirty);
        volume.cached_blocks += blocks.count;
        if is_dirty {
            volume.dirty_blocks += blocks.count;
            volume.destage.map.mark(blocks.first, blocks.count);
        }
    }

    pub(crate) fn insert_extent(&mut self, extent: Extent) {
        let volume_index = extent.first.volume();
        self.drop_extents(volume_index, Blocks { first: extent.first.block(), count: extent.blocks });
        self.extents.insert(extent);
        self.segments.add_must(extent.place, 1);
        self.volume_mut(volume_index).count_extent(crate::extents::Change::Added(extent));
    }

    /// The cache failed: what was on its way into it never happened.
    fn discard_batch<M: Memory>(&mut self, batch: Batch, memory: &mut M) {
        let mut cut_off: BTreeSet<RequestKey> = BTreeSet::new();
        for publish in batch.publish {
            match publish {
                Publish::Fill { volume, blocks, buffer, .. } => {
                    memory.release(buffer);
                    self.release_guard(volume, blocks, Hold::Copying);
                }
                Publish::Relocate { key, buffer, .. } => {
                    memory.release(buffer);
                    self.reclaim.relocated(BLOCK_BYTES as u32);
                    self.release_guard(key.volume(), Blocks { first: key.block(), count: 1 }, Hold::Copying);
                }
                Publish::Extent { extent, .. } => {
                    let blocks = Blocks { first: extent.first.block(), count: extent.blocks };
                    self.release_guard(extent.first.volume(), blocks, Hold::Copying);
                }
                Publish::Head { buffer } => memory.release(buffer),
                Publish::Part { request, volume, blocks, .. } => {
                    self.release_guard(volume, blocks, Hold::Publishing);
                    cut_off.insert(request);
                }
                Publish::Tombstone { request } => cut_off.extend(request),
            }
        }
        for request in cut_off {
            // Another batch may still be reading its buffer.
            if !self.is_in_batch(request) {
                self.cut_off(request, memory);
            }
        }
    }

    /// Throws away all that waits to be appended; the requests behind it learn of it by themselves.
    pub(crate) fn discard_pending<M: Memory>(&mut self, memory: &mut M) {
        while let Some(append) = self.log.client.pop_front() {
            self.log.pending_blocks -= append.weight();
            if let ClientAppend::Fill { slice, blocks, .. } = append {
                self.log.pending_fill_blocks -= blocks.count;
                memory.release(slice.buffer);
            }
        }
        while let Some(append) = self.log.internal.pop_front() {
            self.forget_internal(append, memory);
        }
        self.log.is_floor_wanted = false;
    }

    /// Requests with a part in a batch in flight: their buffers are still being read.
    pub(crate) fn is_in_batch(&self, request: RequestKey) -> bool {
        self.log.in_flight.iter().flat_map(|batch| &batch.publish).any(|publish| match publish {
            Publish::Part { request: other, .. } | Publish::Tombstone { request: Some(other) } => {
                *other == request
            }
            _ => false,
        })
    }

    /// Whether anything on its way into the log belongs to a volume.
    pub(crate) fn log_concerns(&self, index: VolumeIndex) -> bool {
        let of_request = |request: RequestKey| self.requests[request].volume == index;
        let is_pending = self.log.client.iter().any(|append| match append {
            ClientAppend::Part { request, .. } => of_request(*request),
            ClientAppend::Fill { volume, .. } => *volume == index,
        });
        let is_internal = self.log.internal.iter().any(|append| match append {
            InternalAppend::Tombstone { volume, .. } | InternalAppend::Cleaned { volume, .. } => {
                *volume == index
            }
            InternalAppend::Relocate { key, .. } => key.volume() == index,
            InternalAppend::Zero { extent } => extent.first.volume() == index,
            InternalAppend::Lost { first, .. } => first.volume() == index,
        });
        let mut in_flight = self.log.in_flight.iter().flat_map(|batch| &batch.publish);
        let is_in_flight = in_flight.any(|publish| match publish {
            Publish::Part { volume, .. } | Publish::Fill { volume, .. } => *volume == index,
            Publish::Relocate { key, .. } => key.volume() == index,
            Publish::Extent { extent, .. } => extent.first.volume() == index,
            Publish::Tombstone { .. } | Publish::Head { .. } => false,
        });
        is_pending || is_internal || is_in_flight
    }

    /// A flush of the cache covered the log up to `sequence`.
    pub(crate) fn log_flushed(&mut self, sequence: u64) {
        while let Some(&(end, segment, block)) = self.log.ends.front() {
            if end > sequence {
                break;
            }
            self.log.ends.pop_front();
            self.segments.get_mut(segment).flushed_blocks = block;
        }
        self.segments.free_flushed(sequence);
    }

    /// Whether `segment` may be reclaimed: it is sealed and nothing of its own is in flight.
    pub(crate) fn is_settled(&self, segment: u32) -> bool {
        !self.log.is_open(segment)
            && self.segments.get(segment).is_summary_written
            && self.segments.get(segment).last_sequence <= self.log.published
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

impl Draft {
    /// The next payload block, counted from the batch's first until `fix_places`.
    fn next_place(&self) -> Place {
        Place(self.payload_blocks)
    }

    fn add_checksums<M: Memory>(&mut self, slice: Slice, blocks: u64, memory: &M) {
        for step in 0..blocks {
            let part = slice.part((step * BLOCK_BYTES) as u32, BLOCK_BYTES as u32);
            self.checksums.push(memory.checksum(part));
        }
    }
}

impl InternalAppend {
    fn blocks(&self) -> u64 {
        match self {
            InternalAppend::Tombstone { blocks, .. } | InternalAppend::Cleaned { blocks, .. } => blocks.count,
            InternalAppend::Relocate { .. } => 1,
            InternalAppend::Zero { extent } => extent.blocks,
            InternalAppend::Lost { blocks, .. } => *blocks,
        }
    }
}

fn range_entry(
    kind: EntryKind,
    volume: crate::units::VolumeId,
    blocks: Blocks,
    payload_blocks: u32,
    extra: u64,
) -> Entry {
    Entry {
        kind,
        ring: 0,
        volume,
        start_sector: blocks.first * SECTORS_PER_BLOCK,
        sectors: (blocks.count * SECTORS_PER_BLOCK) as u32,
        payload_blocks,
        extra,
    }
}

/// Adds an entry with payload, or lengthens the last one where they meet.
fn push_payload_entry(
    entries: &mut Vec<Entry>,
    kind: EntryKind,
    volume: crate::units::VolumeId,
    blocks: Blocks,
) {
    let entry = range_entry(kind, volume, blocks, blocks.count as u32, 0);
    if let Some(last) = entries.last_mut()
        && last.kind == kind
        && last.volume == volume
        && last.payload_blocks > 0
        && last.start_sector + u64::from(last.sectors) == entry.start_sector
    {
        last.sectors += entry.sectors;
        last.payload_blocks += entry.payload_blocks;
        return;
    }
    entries.push(entry);
}
