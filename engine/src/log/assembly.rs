//! Assembly: what waits becomes a batch, with its sequence and its place; segments are opened.

use super::company::Pending;
use super::{Batch, ClientAppend, InternalAppend, LogFlight, LogStore, Mirrored, Open, PartSource, Publish};
use crate::effect::{IoOp, Pieces, Target};
use crate::extents::{Extent, ExtentKind};
use crate::format::{BatchHeader, Entry, EntryKind, SegmentHead, SummaryBuilder, header_blocks_for};
use crate::guard::{Blocks, Hold};
use crate::limits::ENGINE_BUFFER_BYTES_MAX;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::request::Route;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, BlockKey, Place, SECTORS_PER_BLOCK};
use alloc::vec::Vec;

/// Payload blocks of a batch at the most: 1 MiB.
const BATCH_BLOCKS_MAX: u32 = 256;
/// Blocks of the largest header.
const HEADER_BLOCKS_MAX: u32 = 2;
/// Room for a header without entries, and what a summary grows by for it: no other batch takes that.
const FLOOR_BLOCKS: u32 = 2;
/// Blocks of a summary at the most.
const SUMMARY_BLOCKS_MAX: u32 = ENGINE_BUFFER_BYTES_MAX / BLOCK_BYTES as u32;
/// Batches in flight at the most.
pub(super) const BATCHES_IN_FLIGHT_MAX: usize = 8;
/// RULE 9: free segments that tombstones and clean records do not take: what the oldest segment holds has to fit in, behind
/// whatever else is in the way.
const RELOCATION_SEGMENTS: u32 = 2;
/// A segment with less room than this for payload is sealed.
const PAYLOAD_BLOCKS_MIN: u32 = 8;

/// What a batch may have, so that a segment goes on to have room for its summary and for a last header.
struct Limits {
    entries: usize,
    /// Blocks of the header.
    header_blocks: u32,
    /// Blocks that the segment's summary grows by.
    summary_blocks: u32,
}

/// A batch with as many entries and as much payload fits the blocks given.
const LONG: Limits = Limits { entries: 200, header_blocks: 2, summary_blocks: 2 };
/// The same near the end of a segment, where no batch has more payload than [`SHORT_BLOCKS`].
const SHORT: Limits = Limits { entries: 100, header_blocks: 1, summary_blocks: 1 };
const SHORT_BLOCKS: u32 = 128;

impl Limits {
    fn in_segment(left_blocks: u32) -> &'static Limits {
        if left_blocks <= SHORT_BLOCKS { &SHORT } else { &LONG }
    }

    /// Payload that a batch may have, where so much of a segment is left.
    fn payload_max(&self, left_blocks: u32, summary: &SummaryBuilder) -> u32 {
        let others = self.header_blocks + summary.blocks_needed() + self.summary_blocks + FLOOR_BLOCKS;
        left_blocks.saturating_sub(others).min(BATCH_BLOCKS_MAX)
    }
}

/// Where the next batch goes.
struct Room {
    segment: u32,
    next_block: u32,
    /// Whether the segment begins with it, and its head then.
    head: Option<BufferId>,
    limits: &'static Limits,
    /// 0 where there is room for a header and nothing else.
    payload_max: u32,
}

/// A batch being put together.
pub(super) struct Draft {
    pub sequence: u64,
    first_payload: u32,
    payload_blocks: u32,
    pub payload_max: u32,
    pub entries_max: usize,
    pub checksums: Vec<u32>,
    pub publish: Vec<Publish>,
    /// Appends of clients that it may take yet.
    pub units_left: u32,
}

impl Machine<LogStore> {
    /// Sends off what is pending, as far as it may go now.
    pub(super) fn assemble_batches<M: Memory>(&mut self, memory: &mut M) {
        loop {
            let log = &self.store.log;
            let has_internal = !log.internal.is_empty() || log.is_floor_wanted;
            let is_pending = !log.client.is_empty() || has_internal;
            let in_flight = log.in_flight.len();
            let is_full = in_flight >= BATCHES_IN_FLIGHT_MAX;
            let is_enough = log.pending_blocks >= self.config.company_blocks;
            let is_hurried = has_internal || self.is_stopping;
            let is_stopped = !is_pending || is_full || self.latched.is_some();
            // Whoever does not wait for company has no deadline for it: one that stayed would pass for ever.
            let may_wait = !is_stopped && in_flight == 0 && !is_hurried && self.clients_may_append();
            if !may_wait {
                self.store.log.company.goes();
            }
            let may_go = match in_flight {
                0 if is_hurried => true,
                0 => may_wait && self.has_company(),
                _ => is_enough,
            };
            if is_stopped || !may_go || !self.assemble_one(memory) {
                return;
            }
        }
    }

    /// Whether what clients wait for need not wait for more.
    fn has_company(&mut self) -> bool {
        let log = &mut self.store.log;
        let pending = Pending { writes: log.client.len(), blocks: log.pending_blocks };
        log.company.may_go(self.now, pending, self.config.company_wait_ns_max)
    }

    /// Whether clients may take log space now: the reserve is for relocation, tombstones and clean
    /// records, without which the ring would stop (rule 9).
    pub(super) fn clients_may_append(&self) -> bool {
        let free = self.store.segments.free();
        let reserved = self.reserved();
        if self.store.log.open.is_some() { free >= reserved } else { free > reserved }
    }

    /// RULE 9: segments that clients may not take.
    fn reserved(&self) -> u32 {
        if self.is_mutated(Mutation::NoReserve) { 0 } else { self.config.segments_reserved }
    }

    /// RULE 9: the last free segments are for what empties others: relocation, and the floor.
    fn kept_for_relocation(&self) -> u32 {
        if self.is_mutated(Mutation::StuckMovedInPart) { 1 } else { RELOCATION_SEGMENTS }
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
        // HAZARD 7: what the index has already goes before what was decided by it.
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

    /// Makes sure that the open segment has room; seals it and opens the next one if not.
    fn room_for_batch<M: Memory>(&mut self, sequence: u64, memory: &mut M) -> Option<Room> {
        if let Some(open) = &self.store.log.open {
            let left = self.store.segments.segment_blocks() - open.next_block;
            let limits = Limits::in_segment(left);
            let payload_max = limits.payload_max(left, &open.summary);
            let room =
                Room { segment: open.segment, next_block: open.next_block, head: None, limits, payload_max };
            // A summary is read back into one buffer: a segment whose summary would not fit ends early.
            let summary_max = open.summary.blocks_needed() + LONG.summary_blocks + FLOOR_BLOCKS;
            if payload_max >= PAYLOAD_BLOCKS_MIN && summary_max <= SUMMARY_BLOCKS_MAX {
                return Some(room);
            }
            // RULE 9: without a free segment the last room of this one is for the header that frees others.
            if self.store.segments.free() == 0 && !self.is_mutated(Mutation::FloorWithoutRoom) {
                let has_room = left >= FLOOR_BLOCKS + open.summary.blocks_needed();
                return (self.store.log.is_floor_wanted && has_room)
                    .then_some(Room { payload_max: 0, ..room });
            }
            if !self.seal(memory) {
                return None;
            }
        }
        // After sealing clients may have to wait, while the log's own work goes on.
        let has_internal = !self.store.log.internal.is_empty() || self.store.log.is_floor_wanted;
        if !has_internal && !self.clients_may_append() {
            return None;
        }
        if self.store.segments.free() <= self.kept_for_relocation()
            && !self.store.log.is_floor_wanted
            && !self.store.log.internal.iter().any(InternalAppend::empties)
            && !self.is_mutated(Mutation::StuckMovedInPart)
        {
            return None;
        }
        let head = self.allocate(Purpose::Metadata, BLOCK_BYTES as u32, memory)?;
        let generation = self.store.log.generation + 1;
        let Some(segment) = self.store.segments.open_next(generation, sequence) else {
            memory.release(head);
            return None;
        };
        self.store.log.generation = generation;
        SegmentHead {
            set_id: self.store.log.set_id,
            ring: 0,
            generation,
            session: self.store.log.session,
            first_sequence: sequence,
            previous_checksum: self.store.log.chain,
        }
        .encode(memory.metadata_mut(head));
        self.store.log.open = Some(Open { segment, next_block: 1, summary: SummaryBuilder::default() });
        let left = self.store.segments.segment_blocks() - 1;
        let limits = Limits::in_segment(left);
        let payload_max = limits.payload_max(left, &SummaryBuilder::default());
        assert!(payload_max >= PAYLOAD_BLOCKS_MIN);
        Some(Room { segment, next_block: 1, head: Some(head), limits, payload_max })
    }

    fn gather_internal<M: Memory>(
        &mut self,
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
        pieces: &mut Vec<Slice>,
        header_place: Place,
        memory: &mut M,
    ) {
        let is_short = self.store.segments.free() < self.kept_for_relocation();
        for _ in 0..self.store.log.internal.len() {
            if entries.len() >= draft.entries_max || draft.payload_blocks >= draft.payload_max {
                break;
            }
            let Some(append) = self.store.log.internal.pop_front() else { break };
            if let InternalAppend::Freed { bucket } = append {
                // RULE 9: the last free segments are for what empties others.
                if is_short {
                    self.store.log.internal.push_back(append);
                    continue;
                }
                entries.push(self.freed_entry(bucket));
                draft.publish.push(Publish::Freed { bucket });
                continue;
            }
            let weight = append.weight();
            let key = match &append {
                InternalAppend::Tombstone { volume, blocks, .. }
                | InternalAppend::Cleaned { volume, blocks, .. } => BlockKey::new(*volume, blocks.first),
                InternalAppend::Relocate { key, .. } => *key,
                InternalAppend::Zero { extent } => extent.first,
                InternalAppend::Lost { first, .. } | InternalAppend::Rekey { first, .. } => *first,
                InternalAppend::Freed { .. } => unreachable!("seen above"),
            };
            let Some(volume) = self.volumes[key.volume().at()].as_mut() else {
                self.forget_internal(append, memory);
                continue;
            };
            let blocks = Blocks { first: key.block(), count: append.blocks() };
            // RULE 3: copies and tombstones are decided against the newest assigned version: while one
            // is on its way, they wait.
            let is_free = match &append {
                _ if is_short && !append.empties() => false,
                InternalAppend::Tombstone { request: Some(_), .. } | InternalAppend::Cleaned { .. } => true,
                _ => volume.guard.is_free(blocks, Hold::Copying),
            };
            if !is_free {
                self.store.log.internal.push_back(append);
                continue;
            }
            if let InternalAppend::Rekey { first, blocks, place } = append {
                if !self.gather_rekey((first, blocks, place), draft, entries) {
                    self.store.log.internal.push_front(append);
                    break;
                }
                continue;
            }
            self.store.log.pending_blocks -= weight;
            let volume_id = volume.id;
            let place = draft.next_place();
            match append {
                InternalAppend::Tombstone { volume: index, blocks, request, .. } => {
                    // Without a request it follows a rotten clean copy: a newer one makes it void.
                    let is_void = request.is_none()
                        && !self.is_mutated(Mutation::TombstoneOverNewer)
                        && (blocks.first..blocks.end()).map(|block| BlockKey::new(index, block)).any(|key| {
                            self.store.index.get(key).is_some() || self.store.extents.get(key).is_some()
                        });
                    if !is_void {
                        entries.push(range_entry(EntryKind::Tombstone, volume_id, blocks, 0, 0));
                        self.store.log.last_tombstone = draft.sequence;
                    }
                    if request.is_some() || !is_void {
                        draft.publish.push(Publish::Tombstone { request });
                    }
                }
                InternalAppend::Cleaned { blocks, place: cleaned, life, is_zero, .. } => {
                    self.store.log.zeroes_home_pending -= u64::from(is_zero);
                    if self.store.life(cleaned) != life {
                        // Dead since, and what is there now is not home.
                        continue;
                    }
                    if is_zero {
                        // RULE 7: until this is durable the zeroes would come back after a crash.
                        if !self.config.mutations.has(Mutation::ForgetZeroesHome) {
                            self.store.log.last_tombstone = draft.sequence;
                        }
                    }
                    let kind = if is_zero { EntryKind::ZeroHome } else { EntryKind::Cleaned };
                    entries.push(range_entry(kind, volume_id, blocks, 0, u64::from(cleaned.0)));
                }
                InternalAppend::Relocate { key, from, checksum, slice } => {
                    let entry = self.store.index.get(key);
                    let entry = entry.filter(|entry| entry.place == from && entry.checksum == checksum);
                    let Some(entry) = entry else {
                        memory.release(slice.buffer);
                        self.store.reclaim.relocated(slice.len_bytes);
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
                    if self.store.extents.get(extent.first) != Some(extent) {
                        continue;
                    }
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    entries.push(range_entry(EntryKind::Zero, volume_id, blocks, 0, 0));
                    let moved = Extent { place: header_place, ..extent };
                    draft.publish.push(Publish::Extent { extent: moved, from: Some(extent.place) });
                }
                InternalAppend::Lost { first, blocks: count, from, life } => {
                    let is_there =
                        self.store.index.get(first).is_some_and(|entry| entry.place == from && entry.dirty)
                            || self.store.extents.get(first).is_some_and(|extent| {
                                (extent.first, extent.blocks, extent.place) == (first, count, from)
                            });
                    if !is_there || self.store.life(from) != life {
                        continue;
                    }
                    self.volume_mut(key.volume()).guard.acquire(blocks, Hold::Copying);
                    entries.push(range_entry(EntryKind::Lost, volume_id, blocks, 0, 0));
                    let extent = Extent { first, blocks: count, kind: ExtentKind::Lost, place: header_place };
                    draft.publish.push(Publish::Extent { extent, from: Some(from) });
                }
                InternalAppend::Rekey { .. } | InternalAppend::Freed { .. } => {
                    unreachable!("seen above")
                }
            }
        }
    }

    pub(super) fn forget_internal<M: Memory>(&mut self, append: InternalAppend, memory: &mut M) {
        self.store.log.pending_blocks -= append.weight();
        self.store.log.zeroes_home_pending -= u64::from(append.is_zero_home());
        if let InternalAppend::Relocate { slice, .. } = append {
            memory.release(slice.buffer);
            self.store.reclaim.relocated(slice.len_bytes);
        } else if let InternalAppend::Rekey { .. } = append {
            self.rekeyed();
        }
    }

    fn gather_clients<M: Memory>(
        &mut self,
        draft: &mut Draft,
        entries: &mut Vec<Entry>,
        pieces: &mut Vec<Slice>,
        memory: &mut M,
    ) {
        while draft.has_units(entries.len()) {
            let room = draft.room();
            let Some(append) = self.store.log.client.pop_front() else { break };
            match append {
                ClientAppend::Part { request, blocks, source: PartSource::Zero } => {
                    let volume = self.requests[request].volume;
                    let volume_id = self.volume(volume).id;
                    // Lost extents do not go home, and those of an origin that fails may never: nobody waits
                    // for them (rule 9).
                    let may_shrink = self
                        .volumes
                        .iter()
                        .flatten()
                        .any(|volume| volume.zero_blocks > 0 && !volume.origin.is_failing());
                    if self.store.extents.len() >= self.config.extents_max && may_shrink {
                        // Zero extents are in RAM until they are home; their number is bounded.
                        self.store.log.client.push_front(append);
                        break;
                    }
                    draft.units_left -= 1;
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
                        self.store.log.client.push_front(append);
                        break;
                    }
                    if self.store.mirror.is_some() {
                        if self.gather_write((request, blocks, slice), draft, entries, pieces, memory) {
                            continue;
                        }
                        self.store.log.client.push_front(append);
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
                    // HAZARD 6: dirty until the origin has it, in write-through, too.
                    let is_through = self.requests[request].route == Route::LogThenOrigin
                        && self.is_mutated(Mutation::WritethroughLogsClean);
                    let kind = if is_through { EntryKind::Clean } else { EntryKind::Dirty };
                    push_payload_entry(entries, kind, volume_id, now);
                    pieces.push(slice.part(0, bytes));
                    draft.publish.push(Publish::Part {
                        request,
                        volume,
                        blocks: now,
                        place: Some(place),
                        checksums_at,
                    });
                    draft.payload_blocks += now.count as u32;
                    self.store.log.pending_blocks -= now.count;
                    self.requests[request].sequence = draft.sequence;
                    if now.count < blocks.count {
                        let rest = Blocks { first: now.end(), count: blocks.count - now.count };
                        let source = PartSource::Data(slice.part(bytes, slice.len_bytes - bytes));
                        self.store.log.client.push_front(ClientAppend::Part {
                            request,
                            blocks: rest,
                            source,
                        });
                        break;
                    }
                }
                ClientAppend::Fill { volume, blocks, slice, stamp } => {
                    if room == 0 {
                        self.store.log.client.push_front(append);
                        break;
                    }
                    self.store.log.pending_blocks -= blocks.count;
                    self.store.log.pending_fill_blocks -= blocks.count;
                    let is_pressed = self.store.segments.free() <= self.config.segments_reserved;
                    let is_blind = self.is_mutated(Mutation::FillAfterChange);
                    let Some(target) = self.volumes[volume.at()].as_mut() else {
                        memory.release(slice.buffer);
                        continue;
                    };
                    // HAZARD 1: nothing was written, destaged, discarded, bypassed or dropped here since
                    // the read began, and nothing is about to be.
                    let now = target.guard.stamp(blocks, target.origin.flushed_epoch);
                    let is_unchanged = (now == Some(stamp) || is_blind) && target.caches_reads();
                    let is_new = is_unchanged
                        && !is_pressed
                        && (!self.store.index.is_tight(blocks.count)
                            || self.config.mutations.has(Mutation::IndexOverBudget))
                        && (blocks.first..blocks.end())
                            .all(|block| self.store.index.get(BlockKey::new(volume, block)).is_none());
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
                    // What does not fit goes on in the next batch.
                    let now = Blocks { first: blocks.first, count: blocks.count.min(room) };
                    let rest = Blocks { first: now.end(), count: blocks.count - now.count };
                    if rest.count > 0
                        && let Some(stamp) = target.guard.stamp(rest, target.origin.flushed_epoch)
                    {
                        memory.retain(slice.buffer);
                        let skip = (now.count * BLOCK_BYTES) as u32;
                        let slice = slice.part(skip, (rest.count * BLOCK_BYTES) as u32);
                        self.store.log.pending_fill_blocks += rest.count;
                        self.store.log.pending_blocks += rest.count;
                        self.store.log.client.push_front(ClientAppend::Fill {
                            volume,
                            blocks: rest,
                            slice,
                            stamp,
                        });
                    }
                    draft.units_left -= 1;
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

impl Draft {
    /// The next payload block, counted from the batch's first until `fix_places`.
    pub fn next_place(&self) -> Place {
        Place(self.payload_blocks)
    }

    /// Blocks of payload that it may take yet.
    pub fn room(&self) -> u64 {
        u64::from(self.payload_max - self.payload_blocks)
    }

    /// Whether it may take one append of a client more.
    pub fn has_units(&self, entries: usize) -> bool {
        entries < self.entries_max && self.units_left > 0
    }

    /// A client's append took so many blocks.
    pub fn add_payload(&mut self, blocks: u64) {
        self.payload_blocks += blocks as u32;
        self.units_left -= 1;
    }

    pub fn add_checksums<M: Memory>(&mut self, slice: Slice, blocks: u64, memory: &M) {
        for step in 0..blocks {
            let part = slice.part((step * BLOCK_BYTES) as u32, BLOCK_BYTES as u32);
            self.checksums.push(memory.checksum(part));
        }
    }
}

impl InternalAppend {
    /// Whether it takes something out of the oldest segment.
    pub(super) fn empties(&self) -> bool {
        match self {
            InternalAppend::Relocate { .. }
            | InternalAppend::Rekey { .. }
            | InternalAppend::Zero { .. }
            | InternalAppend::Lost { .. } => true,
            InternalAppend::Tombstone { .. }
            | InternalAppend::Cleaned { .. }
            | InternalAppend::Freed { .. } => false,
        }
    }

    fn blocks(&self) -> u64 {
        match self {
            InternalAppend::Tombstone { blocks, .. } | InternalAppend::Cleaned { blocks, .. } => blocks.count,
            InternalAppend::Relocate { .. } => 1,
            InternalAppend::Zero { extent } => extent.blocks,
            InternalAppend::Lost { blocks, .. } | InternalAppend::Rekey { blocks, .. } => *blocks,
            InternalAppend::Freed { .. } => 0,
        }
    }
}

pub(super) fn range_entry(
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
pub(super) fn push_payload_entry(
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
