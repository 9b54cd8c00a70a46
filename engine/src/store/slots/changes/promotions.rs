//! Promotions: a whole piece is copied from the origin into a slot, because a request asked for a part of it.
//!
//! While a promotion runs its slot is being filled, so that changes of the piece wait, and the guard's copying hold
//! keeps changes of the origin off. Reads meanwhile are answered by the origin. A large piece is copied in parts, one
//! after the other.
//!
//! Source: dm-cache, which promotes whole blocks. Its copies until Linux 4.11 keep the request waiting
//! ([`Fetch::Frame`]).

use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, RequestOp, Target};
use crate::limits::REQUEST_BYTES_MAX;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::{RequestKey, Stage};
use crate::machine::requests::Requests;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::number::{index, to_u32, wide};
use crate::policies::fetch::Fetch;
use crate::policies::replacement::{Access, Arrival, Policy};
use crate::store::Lookup;
use crate::store::slots::SlotFlight;
use crate::store::slots::SlotStore;
use crate::store::slots::changes::asking::part_of;
use crate::store::slots::table::SlotState;
use crate::units::{BLOCK_BYTES, Frame, Nanos, PieceKey, VolumeIndex};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Blocks that are copied at a time.
pub(in crate::store::slots) const COPY_BLOCKS_MAX: u64 = wide(index(REQUEST_BYTES_MAX)) / BLOCK_BYTES;

/// Time from the end of the request that asked for a copy to the beginning of that, for every other copy; the others begin at
/// once. The client's next request comes in between.
///
/// Source: Linux 6.12 on one processor, measured: worker and client race for it, and in turns one of them is first. The worker
/// begins 28 or 42 us after.
const WORKER_NS: u64 = 30_000;

/// When a copy begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// In this turn.
    Now,
    /// When this request ends or a little later, or as soon as it waits for a slot.
    After(RequestKey),
    At(Nanos),
}

/// A piece on its way into a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promotion {
    volume: VolumeIndex,
    blocks: Blocks,
    slot: Frame,
    arrival: Arrival,
    buffer: BufferId,
    /// Blocks that are in the slot.
    copied: u64,
}

impl Promotion {
    /// The blocks that are copied next.
    fn next(&self) -> Blocks {
        let count = (self.blocks.count - self.copied).min(COPY_BLOCKS_MAX);
        Blocks { first: self.blocks.first + self.copied, count }
    }

    /// The slot, and the blocks that are copied to it next.
    pub(in crate::store::slots) fn next_write(&self) -> (Frame, Blocks) {
        (self.slot, self.next())
    }

    fn slice(&self) -> Slice {
        let len_bytes = to_u32(self.next().count * BLOCK_BYTES);
        Slice { buffer: self.buffer, offset_bytes: 0, len_bytes }
    }
}

impl SlotStore {
    /// The pieces that a request touches.
    fn pieces_of(&self, key: RequestKey, requests: &Requests) -> Vec<PieceKey> {
        let active = &requests[key];
        self.pieces(active.volume, active.blocks).collect()
    }
}

/// Why a piece that may enter was not promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotPromoted {
    /// Its data changes, may be lost by the origin, or nothing enters any more.
    NotNow,
    /// No slot is free for it, or too many copies are under way.
    NoRoom,
}

impl Machine<SlotStore> {
    /// Asks the policies for a client's read before its lookup. False if it waits until pieces of it are in slots.
    pub(in crate::store::slots) fn ask_for_read<M: Memory>(
        &mut self,
        key: RequestKey,
        memory: &mut M,
    ) -> bool {
        if self.is_in_doubt(key) {
            self.wait_for_slot(key);
            return false;
        }
        let volume_index = self.requests[key].volume;
        let volume = self.volume(volume_index);
        let is_closed = !volume.caches_reads() || !volume.may_have_more(1) || self.slow_cache.is_passed_by();
        if self.latched.is_some() || self.is_stopping || is_closed || !self.budget_allows_fills() {
            return true;
        }
        self.ask(key, Access::Read);
        if self.store.is_set_locked(key, &self.requests) {
            self.wait_for_slot(key);
            return false;
        }
        let Fetch::Frame { waits } = self.store.policies.fetch else { return true };
        let pieces = self.store.pieces_of(key, &self.requests);
        let started = self.promote_pieces(key, &pieces, false, memory);
        // Data that the origin returns beside a copy in doubt would be read once more.
        let waits = started && (waits || self.is_in_doubt(key));
        if waits {
            self.wait_for_slot(key);
        }
        !waits
    }

    /// Begins to copy those pieces of a request that may enter and are in no slot; true if there are any. With
    /// `is_held` the request keeps others from changing them.
    pub(in crate::store::slots) fn promote_pieces<M: Memory>(
        &mut self,
        key: RequestKey,
        pieces: &[PieceKey],
        is_held: bool,
        memory: &mut M,
    ) -> bool {
        let mut is_any = false;
        for &piece in pieces {
            let Ok(arrival) = self.store.answer(key, piece) else { continue };
            if self.store.directory.find(piece, &self.store.table).is_some() {
                continue;
            }
            // Only once for a request: the slot may be gone again before the request's turn.
            self.store.take_back_answer(key, piece);
            match self.promote(piece, arrival, is_held, Begins::After(key), memory) {
                Ok(()) => is_any = true,
                Err(why) => {
                    self.store.refuse(piece, arrival);
                    self.count_not_promoted(key, piece, why);
                }
            }
        }
        is_any
    }

    /// Begins to copy the pieces that a request to warm names and that are in no slot, and answers it: what is on its way comes
    /// to its end by itself.
    pub(in crate::store::slots) fn promote_to_warm<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let mut refused = None;
        for piece in self.store.pieces_of(key, &self.requests) {
            if self.store.free.is_empty() || self.store.directory.find(piece, &self.store.table).is_some() {
                continue;
            }
            let arrival = Arrival::first(Access::Read, false);
            if self.promote(piece, arrival, false, Begins::Now, memory).is_err() {
                refused = Some(Errno::NOSPC);
            }
        }
        match refused {
            Some(errno) => self.fail(key, errno, memory),
            None => self.reply(key, memory),
        }
    }

    /// Counts what of a read's piece the origin serves; a write counts what it sends there when it does.
    fn count_not_promoted(&mut self, key: RequestKey, piece: PieceKey, why: NotPromoted) {
        let active = &self.requests[key];
        let RequestOp::Read { range, .. } = active.op else { return };
        let volume = self.volume(active.volume);
        let part = part_of(range, self.store.blocks_of(volume, piece));
        let is_counted = why == NotPromoted::NoRoom && volume.caches_reads();
        if is_counted {
            let blocks = Blocks::touched_by(part).count;
            self.volume_mut(piece.volume()).counters.read_bypasses.pressure_blocks += blocks;
        }
    }

    fn promote<M: Memory>(
        &mut self,
        piece: PieceKey,
        arrival: Arrival,
        is_held: bool,
        begins: Begins,
        memory: &mut M,
    ) -> Result<(), NotPromoted> {
        let volume = self.volume(piece.volume());
        let blocks = self.store.blocks_of(volume, piece);
        // HAZARD 1: no change of the copied blocks is about to begin; a later one finds the slot being filled.
        let is_still = is_held || volume.guard.stamp(blocks, u64::MAX).is_some();
        let filling: u64 = self.store.filling_blocks.iter().sum();
        let is_too_much = filling > 0 && filling + blocks.count > self.config.fill_blocks_max;
        // RULE 2: a store that keeps clean slots over a crash keeps only data that is durable on the origin.
        let is_durable = self.store.may_enter_clean(piece.volume(), blocks, &self.volumes);
        if self.latched.is_some() || self.is_stopping || !is_still || !is_durable {
            return Err(NotPromoted::NotNow);
        }
        if is_too_much {
            return Err(NotPromoted::NoRoom);
        }
        let bytes = blocks.count.min(COPY_BLOCKS_MAX) * BLOCK_BYTES;
        let Some(buffer) = self.allocate(Purpose::Payload, to_u32(bytes), memory) else {
            return Err(NotPromoted::NoRoom);
        };
        let Some(slot) = self.store.reserve(piece, &mut self.volumes, self.now) else {
            memory.release(buffer);
            return Err(NotPromoted::NoRoom);
        };
        let volume = piece.volume();
        // The request itself marks the data that it makes dirty.
        let arrival = Arrival { is_dirty: false, ..arrival };
        self.volume_mut(volume).guard.acquire(blocks, Hold::Copying);
        self.store.filling_blocks[volume.at()] += blocks.count;
        let promotion = Promotion { volume, blocks, slot, arrival, buffer, copied: 0 };
        let key = self.store.promotions.insert(promotion);
        self.store.promotions_begun.push((key, begins));
        Ok(())
    }

    /// Asks for what is to be copied now. Requests that do not wait for a copy end before it begins: a disk that reads a stream
    /// turns once more for each, if the next request of the stream is there first.
    ///
    /// Source: dm-cache, whose worker waits for the reads of a block that are under way (`mg_lock_writes`, `quiesce`).
    pub(in crate::store::slots) fn read_for_promotions<M: Memory>(&mut self, memory: &mut M) {
        for (key, begins) in core::mem::take(&mut self.store.promotions_begun) {
            if self.latched.is_some() {
                self.end_promotion(key, false, memory);
                continue;
            }
            match begins {
                Begins::Now => self.read_for_promotion(key),
                Begins::At(time) if time <= self.now => self.read_for_promotion(key),
                Begins::At(time) => {
                    self.want_tick(time);
                    self.store.promotions_begun.push((key, begins));
                }
                Begins::After(_) => self.store.promotions_begun.push((key, begins)),
            }
        }
    }

    /// Says when those copies begin that were to begin after a request. False if there are none.
    pub(in crate::store::slots) fn begin_promotions_of(&mut self, key: RequestKey, begins: Begins) -> bool {
        let mut is_any = false;
        for (_, of_request) in
            self.store.promotions_begun.iter_mut().filter(|(_, of)| *of == Begins::After(key))
        {
            *of_request = begins;
            is_any = true;
        }
        is_any
    }

    fn read_for_promotion(&mut self, key: usize) {
        let promotion = self.store.promotions[key];
        let next = promotion.next();
        let (offset_bytes, len_bytes) = self.volume(promotion.volume).origin_bytes(next.first, next.count);
        let into = Pieces::One(promotion.slice().part(0, to_u32(len_bytes)));
        let flight = Flight::Store(SlotFlight::PromotionRead { promotion: key });
        self.issue(Target::Origin(promotion.volume), IoOp::Read { offset_bytes, into }, flight);
    }

    pub(in crate::store::slots) fn promotion_read<M: Memory>(
        &mut self,
        key: usize,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let promotion = self.store.promotions[key];
        if let Err(errno) = result {
            self.volume_mut(promotion.volume).origin.errors += 1;
            self.push(Effect::Notice(Notice::OriginError { volume: promotion.volume, errno }));
        }
        if result.is_err() || self.latched.is_some() {
            self.end_promotion(key, false, memory);
            return;
        }
        let (next, slice) = (promotion.next(), promotion.slice());
        let (_, len_bytes) = self.volume(promotion.volume).origin_bytes(next.first, next.count);
        let rest = slice.len_bytes - to_u32(len_bytes);
        if rest > 0 {
            // The volume ends inside the last block.
            memory.zero(slice.part(to_u32(len_bytes), rest));
        }
        let offset_bytes = self.store.offset_bytes(self.store.place(promotion.slot, next.first));
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.write_data(op, SlotFlight::PromotionWrite { promotion: key });
    }

    pub(in crate::store::slots) fn promotion_written<M: Memory>(
        &mut self,
        key: usize,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        if self.latched.is_some() {
            self.end_promotion(key, false, memory);
            return;
        }
        let promotion = self.store.promotions[key];
        let next = promotion.next();
        let block_bytes = to_u32(BLOCK_BYTES);
        for step in 0..to_u32(next.count) {
            let part = promotion.slice().part(step * block_bytes, block_bytes);
            let checksum = NonZeroU32::new(memory.checksum(part));
            let block = to_u32(promotion.copied) + step;
            self.store.table.set_checksum(promotion.slot, block, checksum);
        }
        self.store.promotions[key].copied += next.count;
        if promotion.copied + next.count < promotion.blocks.count {
            self.read_for_promotion(key);
        } else {
            self.end_promotion(key, true, memory);
        }
    }

    fn end_promotion<M: Memory>(&mut self, key: usize, is_whole: bool, memory: &mut M) {
        let Promotion { volume, blocks, slot, arrival, buffer, .. } = self.store.promotions.remove(key);
        memory.release(buffer);
        self.store.filling_blocks[volume.at()] -= blocks.count;
        if is_whole {
            self.store.table.settle(slot);
            self.store.replacement.insert(slot, arrival);
            self.volume_mut(volume).cached_blocks += blocks.count;
            self.store.slot_is_filled(slot, self.now);
            self.store.is_released = true;
        } else {
            self.store.give_back(slot);
        }
        self.release_guard(volume, blocks, Hold::Copying);
    }

    /// Ends the admission of a request that is over: pieces that it missed, and did not wait for, are copied now.
    pub(in crate::store::slots) fn end_asking<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let is_write = matches!(self.requests[key].op, RequestOp::Write { .. });
        if is_write && self.store.policies.fetch == (Fetch::Frame { waits: false }) {
            let pieces = self.store.pieces_of(key, &self.requests);
            let _ = self.promote_pieces(key, &pieces, false, memory);
        }
        let worker = if self.store.is_worker_first { self.now.plus(WORKER_NS) } else { self.now };
        if self.begin_promotions_of(key, Begins::At(worker)) {
            self.store.is_worker_first = !self.store.is_worker_first;
        }
        if is_write {
            // Slots that the request made dirty may be destaged, which its blocks prevented.
            self.store.ask_again = Nanos(0);
        }
        self.store.forget_answers(key, self.now);
    }

    /// Lets a read that waited for slots go on when none of its pieces is on its way into one, nor a mapping that it
    /// waits for on its way to be durable.
    pub(in crate::store::slots) fn retry_read<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let mut is_held = false;
        for piece in self.store.pieces_of(key, &self.requests) {
            let Some(slot) = self.store.directory.find(piece, &self.store.table) else { continue };
            is_held |= self.store.table.state(slot) == SlotState::Filling || self.store.is_reader_held(slot);
        }
        if (is_held && self.latched.is_none())
            || self.store.is_set_locked(key, &self.requests)
            || self.is_in_doubt(key)
        {
            self.wait_for_slot(key);
        } else {
            self.requests[key].stage = Stage::Fetching;
            self.fetch_all(key, memory);
        }
    }
}
