//! Restores: lost blocks that the operator gives up become what the origin has.
//!
//! The request that gives them up takes one range after the other; what is lost meanwhile is not given up. It holds the
//! range against changes, reads it from the origin and writes it to its slot. Then the range is found again (L1), as if a
//! client had written it. A client that wrote first has ended the loss: its write is left as it is.

use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, Target};
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::{RequestKey, Stage};
use crate::machine::volume::Standing;
use crate::machine::{Machine, work_slice};
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::store::slots::{SlotFlight, SlotStore};

impl Machine<SlotStore> {
    /// Gives up what is lost by now of the request's volume.
    pub(in crate::store::slots) fn begin_restores<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.store.give_up(self.volumes.of(self.requests[key].volume));
        self.restore_next(key, memory);
    }

    /// Goes on with the next range that is given up. If there is none, the answer waits for the table.
    pub(in crate::store::slots) fn restore_next<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.requests.release_work(key, memory);
        self.release_hold(key);
        let volume = self.volume(self.requests[key].volume);
        let all = Blocks { first: 0, count: volume.blocks() };
        match self.store.first_given_up(volume, all) {
            None => self.watch(key, Stage::Quiet),
            Some(blocks) => {
                self.requests[key].blocks = blocks;
                // L5: a write that came in between would be lost.
                let is_mutated = self.is_mutated(Mutation::RestoreBesideWrites);
                let hold = if is_mutated { Hold::Copying } else { Hold::Merging };
                self.hold_or_wait(key, blocks, hold, memory);
            }
        }
    }

    /// Restores the blocks that the request holds, as far as they are lost still.
    pub(in crate::store::slots) fn restore<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (index, held) = (active.volume, active.blocks);
        let volume = self.volume(index);
        if self.latched.is_some() || volume.standing != Standing::Cached {
            self.fail(key, Errno::IO, memory);
            return;
        }
        let Some(blocks) = self.store.first_given_up(volume, held) else {
            self.restore_next(key, memory);
            return;
        };
        let piece = self.store.piece_of(volume.key(blocks.first));
        if self.store.is_in_the_way(piece, &mut self.volumes, self.now) {
            self.wait_for_slot(key);
            return;
        }
        let Some(buffer) = self.take_work(blocks.count, memory) else {
            self.requests.wait_for_buffer(key);
            return;
        };
        let work = work_slice(buffer, blocks.count);
        let active = &mut self.requests[key];
        (active.blocks, active.stage) = (blocks, Stage::Fetching);
        (active.work, active.work_buffer) = (Some(work), Some(buffer));
        active.parts += 1;
        let (offset_bytes, len_bytes) = self.volume(index).origin_bytes(blocks.first, blocks.count);
        let into = Pieces::One(work.part(0, to_u32(len_bytes)));
        let flight = Flight::Store(SlotFlight::RestoreRead { request: key });
        self.issue(Target::Origin(index), IoOp::Read { offset_bytes, into }, flight);
    }

    /// Writes what the origin has to the slot.
    pub(in crate::store::slots) fn restore_read<M: Memory>(
        &mut self,
        key: RequestKey,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let active = &mut self.requests[key];
        active.parts -= 1;
        let (volume, blocks) = (active.volume, active.blocks);
        let work = active.work.expect("it was read into");
        if let Err(errno) = result {
            self.volume_mut(volume).origin.errors += 1;
            self.push(Effect::Notice(Notice::OriginError { volume, errno }));
            self.fail(key, errno, memory);
            return;
        }
        if self.latched.is_some() {
            self.fail(key, Errno::IO, memory);
            return;
        }
        let (_, len_bytes) = self.volume(volume).origin_bytes(blocks.first, blocks.count);
        let rest = work.len_bytes - to_u32(len_bytes);
        if rest > 0 {
            // The volume ends inside the last block.
            memory.zero(work.part(to_u32(len_bytes), rest));
        }
        let piece = self.store.piece_of(self.volume(volume).key(blocks.first));
        let slot = self.store.holding(piece).expect("a lost block has a slot until it is found again");
        self.store.write_begins(slot);
        self.requests[key].stage = Stage::Appending;
        self.write_to_place(key, blocks, self.store.place(slot, blocks.first), work, true);
    }
}
