//! Writes: into the slots that have their pieces, into new ones, and around the cache.
//!
//! A write holds its pieces from its beginning to its reply: shared with others if all of its parts are in slots,
//! else for itself. It waits for slots that are destaged or filled, and for blocks that are being written. Parts that
//! have no slot and get none go to the origin, in the same request as the others: then the request holds its pieces
//! exclusively before it changes anything.

use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, RequestOp, WriteMode};
use crate::machine::guard::Blocks;
use crate::machine::piece::WaitingRead;
use crate::machine::request::{RequestKey, Route, Stage, Then};
use crate::machine::requests::Requests;
use crate::machine::volumes::Volumes;
use crate::machine::{Flight, Machine};
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::policies::replacement::{Access, Arrival, Policy};
use crate::store::slots::changes::asking::part_of;
use crate::store::slots::changes::plan::{Part, Way};
use crate::store::slots::changes::promotions::Begins;
use crate::store::slots::policies::Partial;
use crate::store::slots::records::Records;
use crate::store::slots::table::SlotState;
use crate::store::slots::{SlotFlight, SlotStore};
use crate::store::{Durability, Lookup};
use crate::units::{BLOCK_BYTES, Frame, Nanos, PieceKey, Place, SECTORS_PER_BLOCK, VolumeIndex};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// The end of a write of data to slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::slots) enum DataEnd {
    /// It is there.
    Written,
    /// The device failed it.
    Failed(Errno),
    /// The cache failed before it was issued: what lies there is as it was before.
    Withdrawn,
}

impl SlotStore {
    /// Whether some of the blocks are being written.
    fn is_changing(&self, volume_index: VolumeIndex, blocks: Blocks, volumes: &Volumes) -> bool {
        let volume = volumes.of(volume_index);
        self.changing.range(volume.keys(blocks)).next().is_some()
    }

    /// Whether the piece's slot is busy with work that excludes writes.
    pub(in crate::store::slots) fn is_in_the_way(
        &mut self,
        piece: PieceKey,
        volumes: &mut Volumes,
        now: Nanos,
    ) -> bool {
        let Some(slot) = self.directory.find(piece, &self.table) else { return false };
        if self.rotten.contains(&piece) {
            if self.may_leave(slot) {
                self.evict_slot(slot, volumes, now);
            }
            return self.directory.find(piece, &self.table).is_some();
        }
        self.table.state(slot) != SlotState::Valid || !self.may_write(slot, piece)
    }

    /// Whether the slot of a part has content that the origin lacks, once the part is written.
    fn makes_dirty(&self, part: &Part) -> bool {
        match part.way {
            // RULE 2: a store that keeps clean slots over a crash does not keep content that the origin has not
            // flushed.
            Way::Beside(slot) => self.table.is_dirty(slot) || self.keeps_clean(),
            _ => true,
        }
    }

    fn slot_write_begins(&mut self, part: &Part) {
        let slot = slot_of_way(part.way).expect("a part in a slot has one");
        if self.table.state(slot) == SlotState::Filling {
            self.write_begins(slot);
        } else {
            self.replacement.hit(slot, Access::Write);
            self.destage.used(slot);
        }
        assert!(self.table.piece(slot) == Some(part.piece), "a slot is written with its own piece (S1)");
    }

    /// Slots that stay busy until the write beside them is on the origin.
    ///
    /// Source: EnhanceIO, `eio_uncached_write` and `eio_flag_abios`: a block in `DISKWRITEINPROG` until the disk's write has ended.
    fn keep_busy(&mut self, parts: &[Part]) -> Vec<Frame> {
        if self.policies.partial != Partial::BothIfClean {
            return Vec::new();
        }
        let slots: Vec<Frame> = parts.iter().filter_map(|part| slot_of_way(part.way)).collect();
        for &slot in &slots {
            self.write_begins(slot);
        }
        slots
    }

    /// The arrival of a piece that a write brings.
    fn arrival(&self, key: RequestKey, slot: Frame) -> Arrival {
        let piece = self.table.piece(slot).expect("it was written");
        let arrival = self.answer(key, piece).unwrap_or(Arrival::first(Access::Write, true));
        Arrival { is_dirty: true, ..arrival }
    }

    /// Marks a slot as dirty: it has content that the origin lacks.
    fn slot_is_dirty(
        &mut self,
        slot: Frame,
        arrival: Arrival,
        volumes: &mut Volumes,
        now: Nanos,
        under_way: usize,
    ) {
        let piece = self.table.piece(slot).expect("it was written");
        let blocks = self.blocks_of(volumes.of(piece.volume()), piece);
        // Data that the origin may have lost goes there again.
        self.rotten.remove(&piece);
        if self.table.state(slot) == SlotState::Filling {
            self.table.settle(slot);
            self.replacement.insert(slot, arrival);
            volumes.of_mut(piece.volume()).cached_blocks += blocks.count;
            self.slot_is_filled(slot, now);
        }
        if !self.table.is_dirty(slot) {
            self.table.set_dirty(slot, true);
            if let Records::Commit(mappings) = &mut self.records {
                mappings.dirtied(slot, piece);
            }
            self.replacement.set_dirty(slot, true);
            let volume = volumes.of_mut(piece.volume());
            volume.dirty_blocks += blocks.count;
            volume.destage.map.mark(blocks.first, blocks.count);
        }
        self.tell_dirty(slot, true, now, under_way);
        self.ask_again = Nanos(0);
        if !self.table.is_recorded(slot) {
            self.table.set_recorded(slot, true);
            self.recorded[piece.volume().at()] += 1;
        }
    }

    /// Drops clean slots that were written beside a failed write to the origin: their content differs from the
    /// origin's.
    fn drop_clean(&mut self, key: RequestKey, requests: &Requests, volumes: &mut Volumes, now: Nanos) {
        let active = &requests[key];
        let pieces: Vec<PieceKey> = self.pieces(active.volume, active.blocks).collect();
        for piece in pieces {
            let Some(slot) = self.holding(piece) else { continue };
            if self.table.is_dirty(slot) {
                continue;
            }
            self.give_up_doubted(slot, piece, volumes, now);
        }
    }
}

impl Machine<SlotStore> {
    pub(in crate::store::slots) fn write_to_slots<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let RequestOp::Write { range, from, .. } = active.op else { unreachable!("a write") };
        let mode = self.volume(active.volume).mode;
        let keeps = matches!(mode, WriteMode::Writeback | WriteMode::Writethrough);
        // A write ends the loss of a lost block, and cannot bypass it.
        if !keeps && !self.store.has_lost(key, &self.requests) {
            self.go_around(key, memory);
            return;
        }
        self.ask(key, Access::Write);
        // The plan decides piece by piece which parts go to the origin.
        self.requests[key].route = Route::Log;
        if range.is_block_aligned() {
            self.requests[key].work = Some(from);
            self.place_write(key, memory);
        } else if self.store.policies.partial == Partial::InPlace {
            self.fetch_edges(key, memory);
        } else {
            self.place_write(key, memory);
        }
    }

    /// Sends the change to the origin alone; dirty slots of its blocks are destaged first.
    pub(in crate::store::slots) fn go_around<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if self.unshare(key) {
            self.requests[key].route = Route::Origin;
            self.begin_bypass(key, memory);
        }
    }

    pub(in crate::store::slots) fn merge_write<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        if active.error.is_some() {
            self.reply(key, memory);
            return;
        }
        let RequestOp::Write { range, from, .. } = active.op else { unreachable!("only writes are merged") };
        let work = active.work.expect("a partial write has a buffer");
        let skip = to_u32(range.start % SECTORS_PER_BLOCK * 512);
        memory.copy(from, work.part(skip, from.len_bytes));
        self.place_write(key, memory);
    }

    /// Finds a place for each part and writes; the content is there, in whole blocks.
    pub(in crate::store::slots) fn place_write<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if self.latched.is_some() {
            self.begin_again(key, memory);
            return;
        }
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.blocks);
        let pieces: Vec<PieceKey> = self.store.pieces(volume_index, blocks).collect();
        // Each piece is asked, so that one transaction does for all. HAZARD 14: two writes under way to one place
        // have no order.
        let overlaps = self.store.is_changing(volume_index, blocks, &self.volumes)
            && !self.is_mutated(Mutation::OverlapInSlot);
        let mut is_blocked = overlaps || self.store.is_set_locked(key, &self.requests);
        for &piece in &pieces {
            is_blocked |= self.store.is_in_the_way(piece, &mut self.volumes, self.now);
        }
        if is_blocked {
            self.wait_for_slot(key);
            return;
        }
        let mut parts = self.store.plan_write(key, &self.requests, &self.volumes);
        // A write with parts that are not in place holds its pieces alone.
        if !parts.iter().all(|part| matches!(part.way, Way::InPlace(_))) && !self.unshare(key) {
            return;
        }
        let partial: Vec<PieceKey> =
            parts.iter().filter(|part| part.way == Way::Promote).map(|part| part.piece).collect();
        if self.promote_parts(key, &parts, &partial, memory) {
            self.wait_for_slot(key);
            return;
        }
        if parts.iter().any(|part| matches!(part.way, Way::Clear(_))) {
            if !self.clear_parts(key, &parts, memory) {
                return;
            }
            parts = self.store.plan_write(key, &self.requests, &self.volumes);
        }
        let mut taken = Vec::new();
        // Slots in use come first, so that no new part takes their place.
        for slot in parts.iter().filter_map(|part| slot_of_way(part.way)) {
            self.store.write_begins(slot);
        }
        for part in &mut parts {
            self.store.take_place(key, part, &mut taken, &mut self.volumes, self.now);
        }
        let is_around = parts.iter().any(|part| matches!(part.way, Way::Around | Way::Beside(_)));
        let is_both = is_around && self.store.policies.writes.all_or_nothing;
        if is_both {
            taken.drain(..).for_each(|slot| self.store.give_back(slot));
            self.store.put_beside(&mut parts);
        }
        let is_ragged =
            parts.iter().any(|part| part.is_ragged && matches!(part.way, Way::InPlace(_) | Way::Beside(_)));
        if is_ragged || (is_around && !self.take_exclusive(key)) {
            // The places are chosen again when the others are done, or when the rest of the blocks was read.
            taken.drain(..).for_each(|slot| self.store.give_back(slot));
            self.store.end_parts(&parts);
            if is_ragged {
                self.fetch_edges(key, memory);
            }
            return;
        }
        self.write_parts(key, &parts);
    }

    /// Begins to copy the pieces that have to be whole before the write; true if there are any.
    fn promote_parts<M: Memory>(
        &mut self,
        key: RequestKey,
        parts: &[Part],
        partial: &[PieceKey],
        memory: &mut M,
    ) -> bool {
        if partial.is_empty() {
            return false;
        }
        // The write's other pieces do not give their slots up for these.
        let kept: Vec<Frame> = parts.iter().filter_map(|part| slot_of_way(part.way)).collect();
        for &slot in &kept {
            self.store.write_begins(slot);
        }
        let is_any = self.promote_pieces(key, partial, true, memory);
        for slot in kept {
            self.store.write_ends(slot);
        }
        is_any
    }

    fn write_parts(&mut self, key: RequestKey, parts: &[Part]) {
        self.requests[key].stage = Stage::Appending;
        let mut rest = parts;
        while let Some(first) = rest.first() {
            let Some(slot) = slot_of_way(first.way) else {
                rest = &rest[1..];
                continue;
            };
            let place = self.store.place(slot, first.blocks.first);
            let makes_dirty = self.store.makes_dirty(first);
            let joins = !self.store.policies.writes.splits_requests;
            // Parts that are neighbours on the device are written together.
            let together = rest.iter().take_while(|part| {
                part.piece == first.piece
                    || joins
                        && slot_of_way(part.way).is_some_and(|slot| {
                            let distance = part.blocks.first - first.blocks.first;
                            self.store.place(slot, part.blocks.first).0 == place.0 + to_u32(distance)
                        })
                        && self.store.makes_dirty(part) == makes_dirty
            });
            let (now, later) = rest.split_at(together.count());
            rest = later;
            self.write_slots(key, now, place, makes_dirty);
        }
        let goes_home = |part: &Part| matches!(part.way, Way::Around | Way::Beside(_));
        let mut rest = parts;
        while let Some(start) = rest.iter().position(goes_home) {
            let count = rest[start..].iter().take_while(|part| goes_home(part)).count();
            let span = span_of(&rest[start..start + count]);
            self.count_around(key, &rest[start..start + count]);
            let beside = self.store.keep_busy(&rest[start..start + count]);
            rest = &rest[start + count..];
            self.write_around(key, span, beside);
        }
    }

    /// Writes parts that lie one behind the other from `place` on.
    fn write_slots(&mut self, key: RequestKey, parts: &[Part], place: Place, makes_dirty: bool) {
        let span = span_of(parts);
        for part in parts {
            self.store.slot_write_begins(part);
        }
        let slice = self.requests[key].content_of(span);
        self.write_to_place(key, span, place, slice, makes_dirty);
    }

    /// Writes the blocks of a request, which lie one behind the other from `place` on.
    pub(in crate::store::slots) fn write_to_place(
        &mut self,
        key: RequestKey,
        blocks: Blocks,
        place: Place,
        slice: Slice,
        makes_dirty: bool,
    ) {
        let volume = self.requests[key].volume;
        self.requests[key].parts += 1;
        for block in blocks.first..blocks.end() {
            let block = self.volume(volume).key(block);
            let is_alone = self.store.changing.insert(block);
            assert!(
                is_alone || self.is_mutated(Mutation::OverlapInSlot),
                "a block in a slot has one write under way at a time (S4)"
            );
        }
        let offset_bytes = self.store.offset_bytes(place);
        let (first, issued) = (blocks.first, self.now);
        let flight = SlotFlight::Data { request: key, first, place, slice, makes_dirty, issued };
        self.write_data(IoOp::Write { offset_bytes, from: Pieces::One(slice) }, flight);
    }

    /// Writes the client's content of `blocks` to the origin.
    fn write_around(&mut self, key: RequestKey, blocks: Blocks, beside: Vec<Frame>) {
        let active = &mut self.requests[key];
        active.parts += 1;
        let RequestOp::Write { range, from, .. } = active.op else { unreachable!("a write") };
        let volume_index = active.volume;
        let sectors = part_of(range, blocks);
        let skip = (sectors.start - range.start) * 512;
        let slice = from.part(to_u32(skip), to_u32(sectors.sectors * 512));
        let volume = self.volume_mut(volume_index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        let op = IoOp::Write { offset_bytes: sectors.start * 512, from: Pieces::One(slice) };
        let flight = Flight::Store(SlotFlight::Around { request: key, blocks, beside });
        self.issue_origin_write(volume_index, blocks, op, flight);
    }

    pub(in crate::store::slots) fn around_written<M: Memory>(
        &mut self,
        key: RequestKey,
        (blocks, beside): (Blocks, Vec<Frame>),
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        for slot in beside {
            self.store.write_ends(slot);
        }
        let volume_index = self.requests[key].volume;
        let volume = self.volume_mut(volume_index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        self.changed_origin(key);
        if let Err(errno) = result {
            self.volume_mut(volume_index).origin.errors += 1;
            self.requests[key].error = Some(errno);
            self.push(Effect::Notice(Notice::OriginError { volume: volume_index, errno }));
        }
        self.requests[key].is_around = true;
        self.part_done(key, memory);
    }

    pub(in crate::store::slots) fn data_written<M: Memory>(
        &mut self,
        key: RequestKey,
        first: u64,
        (place, slice): (Place, Slice),
        makes_dirty: bool,
        end: DataEnd,
        memory: &mut M,
    ) {
        let volume_index = self.requests[key].volume;
        let block_bytes = to_u32(BLOCK_BYTES);
        let blocks = slice.len_bytes / block_bytes;
        if let DataEnd::Failed(errno) = end {
            self.latch(errno, memory);
        }
        let slots: Vec<Frame> = self.store.slots_of(place, blocks).collect();
        for &slot in &slots {
            self.store.write_ends(slot);
        }
        for block in first..first + u64::from(blocks) {
            let block = self.volume(volume_index).key(block);
            self.store.changing.remove(&block);
        }
        for step in 0..blocks {
            let (slot, block) = self.store.slot_of(Place(place.0 + step));
            let part = slice.part(step * block_bytes, block_bytes);
            let checksum = match end {
                DataEnd::Written => NonZeroU32::new(memory.checksum(part)),
                // The block may have the old or the new content.
                DataEnd::Failed(_) => None,
                DataEnd::Withdrawn => continue,
            };
            self.store.table.set_checksum(slot, block, checksum);
        }
        if self.latched.is_none() {
            if self.store.find_again(
                key,
                Blocks { first, count: u64::from(blocks) },
                &self.requests,
                &mut self.volumes,
            ) {
                self.requests[key].unpublished += 1;
            }
            for slot in slots.into_iter().filter(|_| makes_dirty) {
                let arrival = self.store.arrival(key, slot);
                self.store.slot_is_dirty(slot, arrival, &mut self.volumes, self.now, self.requests.len());
                self.requests[key].unpublished += 1;
                if self.store.record_dirty(slot, key, &self.requests).is_some() {
                    self.requests[key].unpublished -= 1;
                }
            }
        } else {
            for slot in slots {
                if self.store.table.state(slot) == SlotState::Filling {
                    self.store.give_back(slot);
                }
            }
        }
        self.reads_go_on(volume_index, Blocks { first, count: u64::from(blocks) }, memory);
        self.part_done(key, memory);
    }

    /// Lets reads go on that found the blocks neither old nor new: the write is over, and they read again.
    fn reads_go_on<M: Memory>(&mut self, volume: VolumeIndex, blocks: Blocks, memory: &mut M) {
        if self.store.changing_reads.is_empty() {
            return;
        }
        let written = self.volume(volume).keys(blocks);
        let (over, others) = core::mem::take(&mut self.store.changing_reads)
            .into_iter()
            .partition(|read| written.contains(&read.key));
        self.store.changing_reads = others;
        let over: Vec<WaitingRead> = over;
        for read in over {
            self.read_changed(read, memory);
        }
    }

    fn part_done<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        active.parts -= 1;
        if active.parts > 0 {
            return;
        }
        if self.requests[key].error.is_some() {
            self.store.drop_clean(key, &self.requests, &mut self.volumes, self.now);
        }
        if self.latched.is_some() {
            if self.requests[key].is_around && self.requests[key].error.is_some() {
                self.reply(key, memory);
            } else {
                self.cut_off(key, memory);
            }
        } else if self.requests[key].unpublished == 0 {
            self.all_written(key, memory);
        }
    }

    /// Notes that a record that a request waited for is written.
    pub(in crate::store::slots) fn record_done<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        active.unpublished -= 1;
        if active.unpublished == 0 && active.parts == 0 {
            self.all_written(key, memory);
        }
    }

    /// Ends a write all of whose parts are in their places and recorded.
    fn all_written<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if matches!(self.requests[key].op, RequestOp::GiveUpLost) {
            self.restore_next(key, memory);
            return;
        }
        self.fill_written(key, memory);
        let active = &self.requests[key];
        if active.error.is_some() || !active.wants_fua() || self.is_mutated(Mutation::FuaWithoutFlush) {
            self.reply(key, memory);
            return;
        }
        // RULE 4: if both devices have a part of the write, both are flushed.
        let then = if active.is_around { Then::OriginFlush } else { Then::Reply };
        self.release_hold(key);
        let completed = if self.store.flush_waits_for_cache() { self.store.completed } else { 0 };
        self.wait_for_cache_flush(key, completed, then, memory);
    }

    // ---- waiting -----------------------------------------------------------------------------

    pub(in crate::store::slots) fn wait_for_slot(&mut self, key: RequestKey) {
        self.requests[key].stage = Stage::Slot;
        self.store.waiting.push_back(key);
        // HAZARD 12: what it waits for may wait for copies that would begin after it.
        self.begin_promotions_of(key, Begins::Now);
        self.want_tick(self.now.plus(self.config.tick_ns));
    }

    /// Waits until the volume's blocks `dirty`, if there are any, are destaged.
    ///
    /// RULE 9: requests do not wait for an absent origin, nor for one that fails while the cache stops.
    pub(in crate::store::slots) fn wait_for_home<M: Memory>(
        &mut self,
        key: RequestKey,
        dirty: &[u64],
        memory: &mut M,
    ) {
        let is_stopping = self.is_stopping;
        let volume_index = self.requests[key].volume;
        let volume = self.volume_mut(volume_index);
        let errno = match &volume.origin {
            _ if dirty.is_empty() => None,
            origin if origin.is_absent() => Some(Errno::IO),
            origin if origin.is_failing() && is_stopping => Some(Errno::SHUTDOWN),
            _ => None,
        };
        if let Some(errno) = errno {
            self.fail(key, errno, memory);
            return;
        }
        if !dirty.is_empty() {
            volume.destage.add_urgent(dirty);
        }
        self.wait_for_slot(key);
    }

    /// Whether a change of the origin alone may begin: none of its blocks is dirty, or under way into a slot. If not,
    /// the request waits, and dirty slots are destaged.
    pub(in crate::store::slots) fn is_way_clear<M: Memory>(
        &mut self,
        key: RequestKey,
        memory: &mut M,
    ) -> bool {
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.blocks);
        if self.latched.is_some() {
            return true;
        }
        let mut dirty = Vec::new();
        let mut is_clear = true;
        for piece in self.store.pieces(volume_index, blocks) {
            let Some(slot) = self.store.directory.find(piece, &self.store.table) else { continue };
            let is_dirty = self.store.table.is_dirty(slot);
            // HAZARD 1: a copy on its way into a slot cannot be dropped.
            let state = self.store.table.state(slot);
            let is_filling = state == SlotState::Filling && self.is_mutated(Mutation::FillBehindBypass);
            is_clear &= !is_dirty && (state == SlotState::Valid || is_filling);
            if is_dirty {
                dirty.push(self.store.blocks_of(self.volume(volume_index), piece).first);
            }
        }
        if !is_clear {
            self.wait_for_home(key, &dirty, memory);
        }
        is_clear
    }

    pub(in crate::store::slots) fn retry_waiting<M: Memory>(&mut self, memory: &mut M) {
        for _ in 0..self.store.waiting.len() {
            let Some(key) = self.store.waiting.pop_front() else { break };
            assert!(self.requests[key].stage == Stage::Slot, "a request in the queue waits for a slot");
            match self.requests[key].route {
                _ if matches!(self.requests[key].op, RequestOp::Read { .. }) => self.retry_read(key, memory),
                _ if self.latched.is_some() => self.begin_again(key, memory),
                _ if matches!(self.requests[key].op, RequestOp::GiveUpLost) => self.restore(key, memory),
                Route::Origin => self.begin_bypass(key, memory),
                _ => self.place_write(key, memory),
            }
        }
    }
}

/// The slot that a part is written to.
fn slot_of_way(way: Way) -> Option<Frame> {
    match way {
        Way::InPlace(slot) | Way::Beside(slot) => Some(slot),
        Way::New | Way::Clear(_) | Way::Promote | Way::Around => None,
    }
}

/// The blocks of parts that follow one another.
fn span_of(parts: &[Part]) -> Blocks {
    let first = parts.first().expect("a span has at least one part").blocks.first;
    let end = parts.last().expect("a span has at least one part").blocks.end();
    Blocks { first, count: end - first }
}
