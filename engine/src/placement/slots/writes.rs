//! Writes: into the slots that have their pieces, into new ones, and around the cache.
//!
//! A write holds its pieces from its beginning to its reply: shared with others if all it touches is in slots, else for
//! itself. A slot that goes home or is being filled is waited for, and so is a block that is being written. What has
//! no slot and gets none goes to the origin, in the same request as what has one: then the request holds its
//! pieces exclusively before it changes anything.

use super::store::keeps_dirty;
use super::table::SlotState;
use super::{SlotFlight, SlotStore};
use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, RequestOp, Target};
use crate::guard::Blocks;
use crate::machine::{Flight, Machine};
use crate::memory::{Memory, Slice};
use crate::replacement::{Access, Arrival, Policy};
use crate::request::{RequestKey, Route, Stage, Then};
use crate::store::Store;
use crate::units::{BLOCK_BYTES, Frame, PieceKey, Place, SECTORS_PER_BLOCK, VolumeIndex};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// The share of a write that belongs to one piece.
struct Part {
    blocks: Blocks,
    piece: PieceKey,
    /// Where it goes; `None`: to the origin.
    slot: Option<Frame>,
    /// The slot was taken for it.
    is_new: bool,
}

impl Machine<SlotStore> {
    pub(super) fn write_to_slots<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let RequestOp::Write { range, from, .. } = active.op else { unreachable!("a write") };
        if !keeps_dirty(self.volume(active.volume).mode) {
            self.go_around(key, memory);
        } else if range.is_block_aligned() {
            self.requests[key].work = Some(from);
            self.place_write(key, memory);
        } else {
            self.fetch_edges(key, memory);
        }
    }

    /// The change goes to the origin alone; what is dirty of its blocks goes home first.
    pub(super) fn go_around<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if self.unshare(key) {
            self.requests[key].route = Route::Origin;
            self.begin_bypass(key, memory);
        }
    }

    pub(super) fn merge_write<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        if active.error.is_some() {
            self.reply(key, memory);
            return;
        }
        let RequestOp::Write { range, from, .. } = active.op else { unreachable!("only writes are merged") };
        let work = active.work.expect("a partial write has a buffer");
        let skip = (range.start % SECTORS_PER_BLOCK * 512) as u32;
        memory.copy(from, work.part(skip, from.len_bytes));
        self.place_write(key, memory);
    }

    /// The content is there, in whole blocks: finds a place for each part and writes.
    pub(super) fn place_write<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if self.latched.is_some() {
            self.begin_again(key, memory);
            return;
        }
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.blocks);
        let pieces: Vec<PieceKey> = self.store.pieces(volume_index, blocks).collect();
        if pieces.iter().any(|&piece| self.is_in_the_way(piece)) || self.is_changing(volume_index, blocks) {
            self.wait_for_slot(key);
            return;
        }
        let has_all = pieces.iter().all(|&piece| self.store.holding(piece).is_some());
        if !has_all && !self.unshare(key) {
            return;
        }
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            parts.push(self.place_part(piece, blocks));
        }
        let is_around = parts.iter().any(|part| part.slot.is_none());
        if is_around && !self.take_exclusive(key) {
            // The places are chosen again when the others are done.
            for Part { slot, is_new, .. } in parts {
                match slot {
                    Some(slot) if is_new => self.give_back(slot),
                    Some(slot) => self.store.write_ends(slot),
                    None => (),
                }
            }
            return;
        }
        self.write_parts(key, &parts);
    }

    /// Whether some of the blocks are being written.
    fn is_changing(&self, volume_index: VolumeIndex, blocks: Blocks) -> bool {
        let volume = self.volume(volume_index);
        self.store.changing.range(volume.key(blocks.first)..volume.key(blocks.end())).next().is_some()
    }

    /// Whether a slot of the piece is busy with something that excludes writes.
    fn is_in_the_way(&mut self, piece: PieceKey) -> bool {
        let Some(slot) = self.store.directory.find(piece, &self.store.table) else { return false };
        if self.store.rotten.contains(&piece) {
            if !self.store.may_leave(slot) {
                return true;
            }
            self.evict_slot(slot);
            return false;
        }
        self.store.table.state(slot) != SlotState::Valid
    }

    fn place_part(&mut self, piece: PieceKey, blocks: Blocks) -> Part {
        let whole = self.store.blocks_of(self.volume(piece.volume()), piece);
        let first = blocks.first.max(whole.first);
        let part = Blocks { first, count: blocks.end().min(whole.end()) - first };
        let found = self.store.holding(piece);
        if let Some(slot) = found {
            // No later part of the same write may take its place.
            self.store.write_begins(slot);
        }
        // What does not cover a piece would have to be read first.
        let slot = found.or_else(|| if part == whole { self.reserve(piece) } else { None });
        Part { blocks: part, piece, slot, is_new: found.is_none() && slot.is_some() }
    }

    /// Takes a slot for a piece: a free one of its set, or one that gives its place up.
    pub(super) fn reserve(&mut self, piece: PieceKey) -> Option<Frame> {
        let set = self.store.directory.set_of(piece);
        let slot = match self.store.free.take(set) {
            Some(slot) => slot,
            None => {
                let SlotStore { replacement, table, writing, .. } = &mut self.store;
                let victim = replacement.victim(set, |slot| {
                    table.is_idle_clean(slot)
                        && !table.is_recorded(slot)
                        && !table.is_lost(slot)
                        && writing.get(u64::from(slot.0)).is_none()
                })?;
                let left = self.store.vacate(victim.frame);
                self.uncount(left);
                // As if it had been freed and taken again: it may yet come to nothing.
                self.store.replacement.remove(victim.frame);
                victim.frame
            }
        };
        self.store.table.occupy(slot, piece);
        let SlotStore { directory, table, .. } = &mut self.store;
        directory.insert(piece, slot, table);
        Some(slot)
    }

    /// A slot that was reserved is not needed.
    pub(super) fn give_back(&mut self, slot: Frame) {
        assert!(self.store.table.state(slot) == SlotState::Filling);
        let piece = self.store.table.piece(slot).expect("reserved for one");
        self.store.directory.remove(piece, slot);
        self.store.table.free(slot);
        self.store.free.give_back(slot);
        self.store.is_released = true;
    }

    /// A piece is no longer in a slot.
    pub(super) fn uncount(&mut self, piece: PieceKey) {
        let blocks = self.store.blocks_of(self.volume(piece.volume()), piece).count;
        self.volume_mut(piece.volume()).cached_blocks -= blocks;
    }

    pub(super) fn evict_slot(&mut self, slot: Frame) {
        let piece = self.store.evict(slot);
        self.uncount(piece);
    }

    fn write_parts(&mut self, key: RequestKey, parts: &[Part]) {
        let active = &mut self.requests[key];
        active.stage = Stage::Appending;
        let (volume_index, blocks) = (active.volume, active.blocks);
        let work = active.work.expect("the content is there");
        let slice_of = |part: Blocks| {
            let skip = ((part.first - blocks.first) * BLOCK_BYTES) as u32;
            work.part(skip, (part.count * BLOCK_BYTES) as u32)
        };
        let mut rest = parts;
        while let Some(first) = rest.first() {
            let place_of = |part: &Part| part.slot.map(|slot| self.store.place(slot, part.blocks.first));
            let start = place_of(first);
            // Neighbours on the device are written together.
            let together = rest
                .iter()
                .take_while(|part| match (start, place_of(part)) {
                    (Some(start), Some(place)) => {
                        u64::from(place.0 - start.0.min(place.0)) == part.blocks.first - first.blocks.first
                            && place.0 >= start.0
                    }
                    (None, None) => true,
                    _ => false,
                })
                .count();
            let (now, later) = rest.split_at(together);
            rest = later;
            let end = now.last().expect("one at least").blocks.end();
            let span = Blocks { first: first.blocks.first, count: end - first.blocks.first };
            self.requests[key].parts += 1;
            match start {
                Some(place) => {
                    for part in now {
                        self.slot_write_begins(part);
                    }
                    for block in span.first..span.end() {
                        let block = self.volume(volume_index).key(block);
                        assert!(self.store.changing.insert(block), "S4");
                    }
                    let slice = slice_of(span);
                    let offset_bytes = self.store.offset_bytes(place);
                    let flight = SlotFlight::Data { request: key, first: span.first, place, slice };
                    let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
                    self.issue(Target::Cache, op, Flight::Store(flight));
                }
                None => self.write_around(key, volume_index, span, slice_of(span)),
            }
        }
    }

    fn slot_write_begins(&mut self, part: &Part) {
        let slot = part.slot.expect("a part with a place");
        if part.is_new {
            self.store.write_begins(slot);
        } else {
            self.store.replacement.hit(slot, Access::Write);
        }
        assert!(self.store.table.piece(slot) == Some(part.piece), "S1");
    }

    fn write_around(&mut self, key: RequestKey, volume_index: VolumeIndex, blocks: Blocks, slice: Slice) {
        let volume = self.volume_mut(volume_index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        volume.counters.bypass_pressure_blocks += blocks.count;
        let (offset_bytes, len_bytes) = volume.origin_bytes(blocks.first, blocks.count);
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice.part(0, len_bytes as u32)) };
        let flight = Flight::Store(SlotFlight::Around { request: key, blocks });
        self.issue_origin_write(volume_index, blocks, op, flight);
    }

    pub(super) fn around_written<M: Memory>(
        &mut self,
        key: RequestKey,
        blocks: Blocks,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let volume_index = self.requests[key].volume;
        let volume = self.volume_mut(volume_index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        volume.origin.client_epoch = epoch;
        if let Err(errno) = result {
            volume.origin.errors += 1;
            self.requests[key].error = Some(errno);
            self.push(Effect::Notice(Notice::OriginError { volume: volume_index, errno }));
        }
        self.requests[key].is_around = true;
        self.part_done(key, memory);
    }

    pub(super) fn data_written<M: Memory>(
        &mut self,
        key: RequestKey,
        first: u64,
        (place, slice): (Place, Slice),
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let volume_index = self.requests[key].volume;
        let blocks = slice.len_bytes / BLOCK_BYTES as u32;
        if let Err(errno) = result {
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
            let part = slice.part(step * BLOCK_BYTES as u32, BLOCK_BYTES as u32);
            // After an error nobody knows whether it is the old or the new content.
            let checksum = result.ok().and_then(|()| NonZeroU32::new(memory.checksum(part)));
            self.store.table.set_checksum(slot, block, checksum);
        }
        if self.latched.is_none() {
            self.find_again(volume_index, Blocks { first, count: u64::from(blocks) });
            for slot in slots {
                self.slot_is_dirty(slot);
                let completed = self.store.completed;
                self.requests[key].unpublished += 1;
                if self.store.records.dirtied(slot.0, completed, key).is_some() {
                    self.requests[key].unpublished -= 1;
                }
            }
        } else {
            for slot in slots {
                if self.store.table.state(slot) == SlotState::Filling {
                    self.give_back(slot);
                }
            }
        }
        self.part_done(key, memory);
    }

    /// A slot has content that the origin does not have.
    fn slot_is_dirty(&mut self, slot: Frame) {
        let piece = self.store.table.piece(slot).expect("it was written");
        let blocks = self.store.blocks_of(self.volume(piece.volume()), piece);
        if self.store.table.state(slot) == SlotState::Filling {
            self.store.table.settle(slot);
            self.store.replacement.insert(slot, Arrival::first(Access::Write, true));
            self.volume_mut(piece.volume()).cached_blocks += blocks.count;
        }
        if !self.store.table.is_dirty(slot) {
            self.store.table.set_dirty(slot, true);
            self.store.replacement.set_dirty(slot, true);
            let volume = self.volume_mut(piece.volume());
            volume.dirty_blocks += blocks.count;
            volume.destage.map.mark(blocks.first, blocks.count);
        }
        if !self.store.table.is_recorded(slot) {
            self.store.table.set_recorded(slot, true);
            self.store.recorded[piece.volume().at()] += 1;
        }
    }

    /// Blocks that were lost were written again.
    fn find_again(&mut self, volume_index: VolumeIndex, blocks: Blocks) {
        if self.store.lost.is_empty() {
            return;
        }
        for block in blocks.first..blocks.end() {
            let key = self.volume(volume_index).key(block);
            if self.store.lost.remove(&key) {
                self.volume_mut(volume_index).lost_blocks -= 1;
                self.unmark_lost(self.store.piece_of(key));
            }
        }
    }

    /// A slot goes home again if none of its blocks is lost any more.
    fn unmark_lost(&mut self, piece: PieceKey) {
        let Some(slot) = self.store.holding(piece).filter(|slot| self.store.table.is_lost(*slot)) else {
            return;
        };
        let volume = self.volume(piece.volume());
        let blocks = self.store.blocks_of(volume, piece);
        let keys = volume.key(blocks.first)..=volume.key(blocks.end() - 1);
        if self.store.lost.range(keys).next().is_none() {
            self.store.table.set_lost(slot, false);
            let volume = self.volume_mut(piece.volume());
            volume.dirty_blocks += blocks.count;
            volume.destage.map.mark(blocks.first, blocks.count);
        }
    }

    /// The operator gives up what is lost: what rotted counts as content.
    pub(super) fn give_up_lost_slots(&mut self, index: VolumeIndex) {
        let lost: Vec<_> = self.store.lost.iter().copied().filter(|key| key.volume() == index).collect();
        for key in lost {
            self.store.lost.remove(&key);
            self.volume_mut(index).lost_blocks -= 1;
            let piece = self.store.piece_of(key);
            if let Some(slot) = self.store.holding(piece) {
                self.store.table.forget_checksums(slot);
            }
            self.unmark_lost(piece);
        }
    }

    fn part_done<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        active.parts -= 1;
        if active.parts > 0 {
            return;
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

    /// A record that a request waited for is written.
    pub(super) fn record_done<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        active.unpublished -= 1;
        if active.unpublished == 0 && active.parts == 0 {
            self.all_written(key, memory);
        }
    }

    /// All parts of a write are where they belong, and recorded.
    fn all_written<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        if active.error.is_some() || !active.wants_fua() {
            self.reply(key, memory);
            return;
        }
        // RULE 4: if both devices have a part of it, both are flushed.
        let then = if active.is_around { Then::OriginFlush } else { Then::Reply };
        self.release_hold(key);
        let completed = self.store.completed;
        self.wait_for_cache_flush(key, completed, then, memory);
    }

    // ---- waiting -----------------------------------------------------------------------------

    fn wait_for_slot(&mut self, key: RequestKey) {
        self.requests[key].stage = Stage::Slot;
        self.store.waiting.push_back(key);
        self.want_tick(self.now.plus(self.config.tick_ns));
    }

    /// Whether a change of the origin alone may begin: nothing of its blocks is dirty, or under way into a
    /// slot. If not, the request waits, and what is dirty goes home.
    pub(super) fn is_way_clear(&mut self, key: RequestKey) -> bool {
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.blocks);
        if self.latched.is_some() {
            return true;
        }
        let mut dirty = Vec::new();
        let mut is_clear = true;
        for piece in self.store.pieces(volume_index, blocks) {
            let Some(slot) = self.store.directory.find(piece, &self.store.table) else { continue };
            if self.store.table.is_lost(slot) {
                continue;
            }
            let is_dirty = self.store.table.is_dirty(slot);
            is_clear &= !is_dirty && self.store.table.state(slot) == SlotState::Valid;
            if is_dirty {
                dirty.push(self.store.blocks_of(self.volume(volume_index), piece).first);
            }
        }
        if !is_clear {
            if !dirty.is_empty() {
                let destage = &mut self.volume_mut(volume_index).destage;
                destage.add_urgent(&dirty);
            }
            self.wait_for_slot(key);
        }
        is_clear
    }

    pub(super) fn retry_waiting<M: Memory>(&mut self, memory: &mut M) {
        for _ in 0..self.store.waiting.len() {
            let Some(key) = self.store.waiting.pop_front() else { break };
            assert!(self.requests[key].stage == Stage::Slot);
            match self.requests[key].route {
                _ if self.latched.is_some() => self.begin_again(key, memory),
                Route::Origin => self.begin_bypass(key, memory),
                _ => self.place_write(key, memory),
            }
        }
    }
}
