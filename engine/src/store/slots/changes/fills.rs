//! Fills: data read from the origin, or written there, enters slots as clean.

use crate::effect::{Errno, IoOp, Pieces, RequestOp, WriteMode};
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::RequestKey;
use crate::memory::{Memory, Slice};
use crate::number::to_u32;
use crate::policies::replacement::{Arrival, Policy};
use crate::store::Lookup;
use crate::store::slots::{SlotFlight, SlotStore};
use crate::units::{BLOCK_BYTES, Frame, PieceKey, VolumeIndex};
use alloc::vec::Vec;
use core::num::NonZeroU32;

impl Machine<SlotStore> {
    /// Puts every piece that lies wholly in `blocks` of a request, and may enter, into a slot, if there is room.
    /// `waiting` is the read that waits for it.
    pub(in crate::store::slots) fn fill_slots<M: Memory>(
        &mut self,
        key: RequestKey,
        blocks: Blocks,
        slice: Slice,
        waiting: Option<RequestKey>,
        memory: &mut M,
    ) {
        let volume_index = self.requests[key].volume;
        if self.latched.is_some() || self.is_stopping {
            return;
        }
        let pieces: Vec<PieceKey> = self.store.pieces(volume_index, blocks).collect();
        for piece in pieces {
            let unit = self.store.blocks_of(self.volume(volume_index), piece);
            let is_covered = unit.first >= blocks.first && unit.end() <= blocks.end();
            let filling: u64 = self.store.filling_blocks.iter().sum();
            let is_known = self.store.directory.find(piece, &self.store.table).is_some();
            let may_enter = is_covered && self.store.may_enter_clean(volume_index, unit, &self.volumes);
            if !may_enter || is_known || filling + unit.count > self.config.fill_blocks_max {
                continue;
            }
            let Ok(arrival) = self.store.answer(key, piece) else { continue };
            let is_read = matches!(self.requests[key].op, RequestOp::Read { .. });
            if is_read {
                // Only once for a request: a read of more than the cache has room for would fill, wait for slots that leave,
                // and be repeated, for ever.
                self.store.take_back_answer(key, piece);
            }
            let Some(slot) = self.store.reserve(piece, &mut self.volumes, self.now) else {
                self.store.refuse(piece, arrival);
                let counters = &mut self.volume_mut(volume_index).counters;
                let bypasses =
                    if is_read { &mut counters.read_bypasses } else { &mut counters.write_bypasses };
                bypasses.pressure_blocks += unit.count;
                continue;
            };
            let skip = to_u32((unit.first - blocks.first) * BLOCK_BYTES);
            let slice = slice.part(skip, to_u32(unit.count * BLOCK_BYTES));
            let arrival = Arrival { is_dirty: false, ..arrival };
            let is_written = matches!(self.requests[key].op, RequestOp::Write { .. });
            self.fill_slot((volume_index, unit), (slot, arrival), (slice, is_written), waiting, memory);
        }
    }

    fn fill_slot<M: Memory>(
        &mut self,
        (volume, blocks): (VolumeIndex, Blocks),
        (slot, arrival): (Frame, Arrival),
        (slice, is_written): (Slice, bool),
        waiting: Option<RequestKey>,
        memory: &mut M,
    ) {
        if let Some(request) = waiting {
            self.requests[request].parts += 1;
        }
        self.volume_mut(volume).guard.acquire(blocks, Hold::Copying);
        self.store.filling_blocks[volume.at()] += blocks.count;
        memory.retain(slice.buffer);
        let offset_bytes = self.store.offset_bytes(self.store.place(slot, blocks.first));
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        let flight = SlotFlight::Fill { volume, blocks, slot, arrival, slice, is_written, waiting };
        self.write_data(op, flight);
    }

    /// Ends a fill that a read waited for, whether the slot has it or not: the read has its data.
    pub(in crate::store::slots) fn fill_waited_for<M: Memory>(
        &mut self,
        request: RequestKey,
        memory: &mut M,
    ) {
        self.requests[request].parts -= 1;
        if self.requests[request].parts == 0 {
            self.fetched(request, memory);
        }
    }

    pub(in crate::store::slots) fn filled<M: Memory>(
        &mut self,
        (volume_index, blocks): (VolumeIndex, Blocks),
        (slot, arrival): (Frame, Arrival),
        slice: Slice,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        self.store.filling_blocks[volume_index.at()] -= blocks.count;
        if self.latched.is_some() {
            self.store.give_back(slot);
        } else {
            let block_bytes = to_u32(BLOCK_BYTES);
            for (block, step) in (0..).zip(0..to_u32(blocks.count)) {
                let part = slice.part(step * block_bytes, block_bytes);
                self.store.table.set_checksum(slot, block, NonZeroU32::new(memory.checksum(part)));
            }
            self.store.table.settle(slot);
            self.store.replacement.insert(slot, arrival);
            self.volume_mut(volume_index).cached_blocks += blocks.count;
            self.store.slot_is_filled(slot, self.now);
            self.store.is_released = true;
        }
        memory.release(slice.buffer);
        self.release_guard(volume_index, blocks, Hold::Copying);
    }

    /// Puts a write-through that is on the origin into the cache, too.
    pub(in crate::store::slots) fn fill_written<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.blocks);
        let RequestOp::Write { range, from, .. } = active.op else { return };
        let is_written = self.requests[key].error.is_none() && range.is_block_aligned();
        if self.volume(volume_index).mode == WriteMode::Writethrough && is_written {
            self.fill_slots(key, blocks, from, None, memory);
        }
    }
}
