//! Groups: what goes into a batch, when, and who is answered before it is there.

use super::super::assembly::BATCHES_IN_FLIGHT_MAX;
use super::super::draft::Draft;
use super::super::publication::checksums_of;
use super::super::{ClientAppend, LogStore, PartSource, Publish};
use super::Taken;
use super::memory::frame_slice;
use crate::effect::{Effect, RequestOp};
use crate::format::EntryKind;
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::{RequestKey, Route, Stage};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{index_wide, to_u32};
use crate::store::log::index::Run as IndexRun;
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, VolumeIndex};
use alloc::vec::Vec;

/// How long a group that nobody waits for is held open for others.
const GROUP_WAIT_NS: u64 = 20 * Nanos::MILLISECOND;

/// Appends that a batch could take now.
struct Ready {
    /// Writes and fills.
    units: u32,
    /// Whether somebody waits for one of them.
    is_waited_for: bool,
}

/// Part of a write in a batch on its way.
pub(in crate::store::log) struct Mirrored {
    pub request: RequestKey,
    pub volume: VolumeIndex,
    pub blocks: Blocks,
    pub place: Place,
    pub checksums_at: usize,
    /// One for each block, with the batch's reference.
    pub frames: Vec<BufferId>,
}

impl Machine<LogStore> {
    /// Sends off what is pending, in groups.
    pub(in crate::store::log) fn assemble_mirror<M: Memory>(&mut self, memory: &mut M) {
        loop {
            self.answer_ahead(memory);
            let ready = self.ready();
            let now = self.now;
            let has_internal = self.store.log.has_internal() || self.store.log.is_floor_wanted;
            let in_flight = self.store.log.in_flight.len();
            let is_stopped = in_flight >= BATCHES_IN_FLIGHT_MAX || self.latched.is_some();
            let is_hurried = has_internal || self.is_stopping || self.requests.any_for_blocks();
            let mirror = self.store.appender.mirror_mut();
            mirror.until = None;
            if ready.units == 0 {
                mirror.since = None;
            }
            if is_stopped || (ready.units == 0 && !has_internal) {
                return;
            }
            let is_group = ready.units >= mirror.batch_writes_max;
            let is_hurried = is_hurried || mirror.is_hurried || ready.is_waited_for;
            if !is_group && in_flight > 0 {
                return;
            }
            if !is_group && !is_hurried {
                // Fills, and writes that are answered.
                let until = mirror.since.get_or_insert(now).plus(GROUP_WAIT_NS);
                if now < until {
                    mirror.until = Some(until);
                    return;
                }
            }
            mirror.since = None;
            let writes_max = mirror.batch_writes_max;
            if !self.assemble_one(writes_max, memory) {
                return;
            }
        }
    }

    /// The waiting appends that a batch could take.
    fn ready(&mut self) -> Ready {
        let memory_room = self.memory_room(self.store.appender.mirror());
        let LogStore { appender, log, .. } = &mut self.store;
        let mirror = appender.mirror_mut();
        let mut room = memory_room.saturating_sub(mirror.frames.used());
        let mut ready = Ready { units: to_u32(mirror.taken.len()), is_waited_for: false };
        // What did not fit a batch is not held back.
        ready.is_waited_for |= mirror.taken.iter().any(|taken| taken.is_rest);
        mirror.is_waited_for = false;
        for append in &log.client {
            if ready.units >= mirror.batch_writes_max {
                break;
            }
            match append {
                ClientAppend::Part { blocks, source: PartSource::Data(_), .. } => {
                    if blocks.count > room {
                        mirror.is_waited_for = true;
                        break;
                    }
                    room -= blocks.count;
                    ready.is_waited_for = true;
                }
                ClientAppend::Part { source: PartSource::Zero, .. } => ready.is_waited_for = true,
                ClientAppend::Fill(_) => (),
            }
            ready.units += 1;
        }
        ready
    }

    /// Copies a write into memory. `None` if there is no room.
    fn take_frames<M: Memory>(&mut self, blocks: u64, slice: Slice, memory: &mut M) -> Option<Vec<BufferId>> {
        let room = self.memory_room(self.store.appender.mirror());
        let mirror = self.store.appender.mirror_mut();
        if mirror.frames.used() + blocks > room {
            mirror.is_waited_for = true;
            return None;
        }
        let mut frames = Vec::with_capacity(index_wide(blocks));
        for step in 0..blocks {
            let Some(frame) = self.allocate(Purpose::Payload, to_u32(BLOCK_BYTES), memory) else {
                frames.into_iter().for_each(|frame| memory.release(frame));
                return None;
            };
            memory.copy(slice.part(to_u32(step * BLOCK_BYTES), to_u32(BLOCK_BYTES)), frame_slice(frame));
            frames.push(frame);
        }
        self.store.appender.mirror_mut().frames.fly(blocks);
        Some(frames)
    }

    // ---- early answers -----------------------------------------------------------------------

    /// Answers writes that are in memory, as far as a crash may take them.
    fn answer_ahead<M: Memory>(&mut self, memory: &mut M) {
        loop {
            let mirror = self.store.appender.mirror();
            let is_unbounded = self.is_mutated(Mutation::AnswerBeyondWindow);
            if mirror.early_writes_max == 0
                || (mirror.owed_writes >= mirror.early_writes_max && !is_unbounded)
                || mirror.is_hurried
                || self.latched.is_some()
                || self.is_stopping
            {
                return;
            }
            let Some(&ClientAppend::Part { request, blocks, source: PartSource::Data(slice) }) =
                self.store.log.client.front()
            else {
                return;
            };
            if !self.may_answer_ahead(request) {
                return;
            }
            let Some(frames) = self.take_frames(blocks.count, slice, memory) else { return };
            self.store.log.client.pop_front();
            self.store.log.pending_blocks -= blocks.count;
            let volume = self.requests[request].volume;
            let mirror = self.store.appender.mirror_mut();
            for (block, &frame) in (blocks.first..).zip(&frames) {
                memory.retain(frame);
                mirror.frames.put_ahead(BlockKey::new(volume, block), frame);
            }
            mirror.taken.push_back(Taken { request, blocks, frames, is_rest: false });
            mirror.owed_writes += 1;
            self.volume_mut(volume).owed_blocks += blocks.count;
            // It keeps its blocks: whoever needs what the index says of them waits.
            self.requests.release_buffers(request, memory);
            let active = &mut self.requests[request];
            active.sequence = self.store.log.next_sequence;
            active.is_answered = true;
            let id = active.id;
            self.push(Effect::Reply { id, result: Ok(()) });
        }
    }

    /// Whether what a crash loses would be the newest if a write was answered now and lost.
    fn may_answer_ahead(&self, request: RequestKey) -> bool {
        let active = &self.requests[request];
        let is_plain = matches!(active.op, RequestOp::Write { fua: false, .. })
            && active.route == Route::Log
            && active.sequence == 0
            && active.error.is_none();
        is_plain
            && self.requests.iter().all(|(_, other)| {
                let is_change = matches!(
                    other.op,
                    RequestOp::Write { .. } | RequestOp::WriteZeroes { .. } | RequestOp::Discard { .. }
                );
                let is_ahead =
                    other.sequence > 0 || matches!(other.stage, Stage::Origin | Stage::OriginFlush(_));
                other.volume != active.volume || other.is_answered || !is_change || !is_ahead
            })
    }

    // ---- batches -----------------------------------------------------------------------------

    /// Puts a client's write into memory and then into a batch. Returns it if memory has no room.
    pub(in crate::store::log) fn gather_mirrored<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        slice: Slice,
        draft: &mut Draft,
        memory: &mut M,
    ) -> Option<ClientAppend> {
        let Some(frames) = self.take_frames(blocks.count, slice, memory) else {
            return Some(ClientAppend::Part { request, blocks, source: PartSource::Data(slice) });
        };
        self.store.log.pending_blocks -= blocks.count;
        let mirror = self.store.appender.mirror_mut();
        mirror.taken.push_front(Taken { request, blocks, frames, is_rest: false });
        self.gather_taken(draft, memory);
        None
    }

    /// Puts what is in memory and in no batch into one. False if something is left.
    pub(in crate::store::log) fn gather_taken<M: Memory>(
        &mut self,
        draft: &mut Draft,
        memory: &mut M,
    ) -> bool {
        while draft.has_units() && draft.room() > 0 {
            let room = draft.room();
            let mirror = self.store.appender.mirror_mut();
            let Some(mut taken) = mirror.taken.pop_front() else { return true };
            let Taken { request, blocks, .. } = taken;
            let now = Blocks { first: blocks.first, count: blocks.count.min(room) };
            let rest = taken.frames.split_off(index_wide(now.count));
            if !rest.is_empty() {
                let blocks = Blocks { first: now.end(), count: blocks.count - now.count };
                mirror.taken.push_front(Taken { request, blocks, frames: rest, is_rest: true });
            }
            let frames = taken.frames;
            let active = &mut self.requests[request];
            active.sequence = draft.sequence;
            let (volume, is_through) = (active.volume, active.route == Route::LogThenOrigin);
            if self.is_mutated(Mutation::DropFrameEarly) {
                let mirror = self.store.appender.mirror_mut();
                (now.first..now.end())
                    .for_each(|block| mirror.frames.drop_ahead(BlockKey::new(volume, block)));
            }
            // HAZARD 6: dirty until the origin has it, in write-through, too: after a crash between the two
            // writes the log is repeated.
            let is_clean = is_through && self.is_mutated(Mutation::WritethroughLogsClean);
            let target = self.volume_mut(volume);
            target.guard.acquire(now, Hold::Publishing);
            let kind = if is_clean { EntryKind::Clean } else { EntryKind::Dirty };
            draft.push_payload_entry(kind, target.id, now);
            let (place, checksums_at) = (draft.next_place(), draft.checksums.len());
            for &frame in &frames {
                draft.add_checksums(frame_slice(frame), 1, memory);
                draft.pieces.push(frame_slice(frame));
            }
            draft.add_payload(now.count);
            let mirrored = Mirrored { request, volume, blocks: now, place, checksums_at, frames };
            draft.publish.push(Publish::Mirrored(mirrored));
        }
        self.store.appender.mirror().taken.is_empty()
    }

    /// A batch with part of a write is on the device, and so are all before it.
    pub(in crate::store::log) fn publish_mirrored<M: Memory>(
        &mut self,
        mirrored: Mirrored,
        checksums: &[u32],
        memory: &mut M,
    ) {
        let Mirrored { request, volume, blocks, place, checksums_at, frames } = mirrored;
        let first = BlockKey::new(volume, blocks.first);
        let checksums = checksums_of(checksums, checksums_at, blocks);
        self.insert_run(volume, blocks, IndexRun { first, place, dirty: true, hits: 0, checksums });
        let mirror = self.store.appender.mirror_mut();
        mirror.frames.land(blocks.count);
        for (block, frame) in (blocks.first..).zip(frames) {
            mirror.frames.publish(BlockKey::new(volume, block), frame);
        }
        self.release_frames(memory);
        self.release_share(request, blocks.count);
        self.release_guard(volume, blocks, Hold::Publishing);
        let active = &mut self.requests[request];
        active.unpublished -= blocks.count;
        let (is_published, is_answered) = (active.unpublished == 0, active.is_answered);
        if is_answered {
            self.volume_mut(volume).owed_blocks -= blocks.count;
        }
        if is_published {
            if is_answered {
                self.store.appender.mirror_mut().was_published();
            }
            self.appended(request, memory);
        }
    }

    /// The cache failed: a batch with part of a write never was.
    pub(in crate::store::log) fn discard_mirrored<M: Memory>(
        &mut self,
        mirrored: Mirrored,
        memory: &mut M,
    ) -> RequestKey {
        let Mirrored { request, volume, blocks, frames, .. } = mirrored;
        self.release_guard(volume, blocks, Hold::Publishing);
        let mirror = self.store.appender.mirror_mut();
        mirror.frames.land(blocks.count);
        frames.into_iter().for_each(|frame| memory.release(frame));
        request
    }
}
