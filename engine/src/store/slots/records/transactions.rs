//! Transactions under way: writes pages and records, asks for flushes, and lets waiting requests go on.

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{
    COMMIT_RECORD_OFFSETS, CommitRecord, PAIRED_PAGE_BYTES, SetId, SlotLayout, SlotPersistence,
};
use crate::image::Image;
use crate::machine::guard::Blocks;
use crate::machine::request::{RequestKey, Stage};
use crate::machine::volume::Standing;
use crate::machine::volumes::Volumes;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u8, to_u32};
use crate::policies::replacement::Policy;
use crate::store::slots::records::Records;
use crate::store::slots::records::mappings::{Mappings, Waiter};
use crate::store::slots::records::persistence::commit::{PageWrite, Step};
use crate::store::slots::table::SlotState;
use crate::store::slots::{SlotFlight, SlotStore};
use crate::units::{Frame, Nanos, PieceKey, VOLUMES_MAX, VolumeIndex};
use alloc::vec;

/// Pages of a transaction that may be in flight at a time: each has a buffer.
const PAGES_IN_FLIGHT_MAX: u32 = 16;

const _: () = assert!(CommitRecord::BYTES == PAIRED_PAGE_BYTES, "both fit the same buffers");

impl SlotStore {
    fn mappings(&self) -> Option<&Mappings> {
        match &self.records {
            Records::Commit(mappings) => Some(mappings),
            Records::SyncSector(_) => None,
        }
    }

    /// Slots that give their places up.
    pub(in crate::store::slots) fn leaving(&self) -> u32 {
        self.mappings().map_or(0, |mappings| mappings.leaving)
    }

    fn mappings_mut(&mut self) -> Option<&mut Mappings> {
        match &mut self.records {
            Records::Commit(mappings) => Some(mappings),
            Records::SyncSector(_) => None,
        }
    }

    /// Notes that a flush of the cache covers the first `covered` writes.
    pub(in crate::store::slots) fn transaction_flushed(&mut self, covered: u64) {
        if self.mappings_mut().is_some_and(|mappings| mappings.flushed(covered)) {
            // Requests that waited for a slot may write to it now.
            self.is_released = true;
        }
    }

    /// Whether data may be written to a slot that holds its piece. If not, the request waits for the slot.
    pub(in crate::store::slots) fn may_write(&mut self, slot: Frame, piece: PieceKey) -> bool {
        let is_dirty = self.table.is_dirty(slot);
        self.mappings_mut().is_none_or(|mappings| mappings.may_write(slot, piece, is_dirty))
    }

    /// Whether a read goes on only when the mapping of a slot that it waited for is durable.
    pub(in crate::store::slots) fn is_reader_held(&mut self, slot: Frame) -> bool {
        self.mappings_mut().is_some_and(|mappings| mappings.holds_reader(slot))
    }

    /// Whether the origin's content of `blocks` may be clean in a slot. RULE 2: where clean slots are kept over a
    /// crash, only content that the origin flushed.
    pub(in crate::store::slots) fn may_enter_clean(
        &self,
        volume: VolumeIndex,
        blocks: Blocks,
        volumes: &Volumes,
    ) -> bool {
        !self.keeps_clean()
            || volumes.of(volume).is_origin_flushed(blocks)
            || self.mutations.has(Mutation::KeepUnflushedFill)
    }

    /// Has a slot that got its content mapped by the next transaction.
    pub(in crate::store::slots) fn slot_is_filled(&mut self, slot: Frame, now: Nanos) {
        let piece = self.table.piece(slot).expect("a filled slot holds a piece");
        let SlotStore { records: Records::Commit(mappings), layout, table, recorded, .. } = self else {
            return;
        };
        mappings.mapped(slot, layout, now);
        table.set_recorded(slot, true);
        recorded[piece.volume().at()] += 1;
    }

    /// Begins to give a clean slot up (S3): it is free when the removal of its mapping is durable.
    pub(in crate::store::slots) fn begin_leaving(&mut self, slot: Frame, volumes: &mut Volumes, now: Nanos) {
        let piece = self.table.piece(slot).expect("a slot that leaves holds a piece");
        self.table.begin_leaving(slot);
        self.replacement.remove(slot);
        let SlotStore { records: Records::Commit(mappings), layout, .. } = self else {
            unreachable!("without transactions a slot is free at once")
        };
        mappings.leaves(slot, piece, layout, now);
        if self.mutations.has(Mutation::ReuseBeforeRemoval) {
            self.slot_is_gone(slot, volumes);
        }
    }

    fn slot_is_gone(&mut self, slot: Frame, volumes: &mut Volumes) {
        let is_left = self.table.state(slot) == SlotState::Leaving;
        if !is_left && self.mutations.has(Mutation::ReuseBeforeRemoval) {
            return;
        }
        let piece = self.table.piece(slot).expect("a slot that left held a piece");
        self.table.set_recorded(slot, false);
        self.recorded[piece.volume().at()] -= 1;
        self.directory.remove(piece, slot);
        self.table.free(slot);
        self.rotten.remove(&piece);
        self.doubted.remove(&piece);
        self.free.give_back(slot);
        self.uncount(piece, volumes);
        if let Some(mappings) = self.mappings_mut() {
            mappings.leaving -= 1;
        }
        self.is_released = true;
    }

    /// Gives up the slots of volumes that are being detached: they are forgotten durably before the volume is gone.
    fn let_volumes_leave(&mut self, volumes: &mut Volumes, now: Nanos) {
        for at in 0..VOLUMES_MAX {
            let is_leaving =
                volumes[at].as_ref().is_some_and(|volume| volume.standing == Standing::Detaching);
            if !is_leaving || self.recorded[at] == 0 {
                continue;
            }
            // A slot that could not leave then can leave when something was released.
            let is_first = !core::mem::replace(&mut self.is_volume_leaving[at], true);
            if is_first || self.is_released {
                self.evict_all(VolumeIndex(to_u8(at)), volumes, now);
            }
        }
    }

    /// Begins with a volume at a place where none is.
    pub(in crate::store::slots) fn begin_volume(&mut self, volume: VolumeIndex, blocks: u64) {
        assert!(self.recorded[volume.at()] == 0, "nothing is recorded of a place without a volume");
        self.is_volume_leaving[volume.at()] = false;
        let pieces = blocks.div_ceil(self.slot_blocks());
        let SlotStore { records: Records::Commit(mappings), layout, .. } = self else { return };
        let is_running = mappings.commit.running().is_some();
        if let (Some(trees), SlotPersistence::BitTree { tree }) = (&mut mappings.trees, layout.persistence())
        {
            trees.begin_volume(volume, tree, pieces, is_running);
        }
    }

    fn adjust_trees(&mut self, volumes: &Volumes, now: Nanos) {
        let SlotStore { records: Records::Commit(mappings), layout, .. } = self else { return };
        let requests = |volume: VolumeIndex| {
            volumes[volume.at()].as_ref().map(|volume| {
                let counters = &volume.counters;
                counters.reads + counters.writes + counters.discards + counters.write_zeroes
            })
        };
        mappings.adjust(requests, layout, now);
    }

    /// Whether all writes of a clean stop are done.
    pub(in crate::store::slots) fn are_mappings_stopped(&mut self, volumes: &Volumes) -> bool {
        let mut volumes = volumes.iter().flatten();
        let is_flushed = volumes.all(|volume| volume.origin.client_epoch <= volume.origin.flushed_epoch);
        // Data written through to a failing origin may not be there: no clean stop is recorded then.
        !is_flushed || self.mappings_mut().is_none_or(Mappings::stop)
    }
}

impl Machine<SlotStore> {
    /// Lets transactions begin and go on.
    pub(in crate::store::slots) fn pump_transactions<M: Memory>(&mut self, memory: &mut M) {
        // A transaction after the last one of a clean stop would outlive the answer.
        let is_over = self.latched.is_some() || self.superblock.clean_stop;
        if self.store.mappings().is_none() || is_over {
            return;
        }
        self.store.let_volumes_leave(&mut self.volumes, self.now);
        self.store.adjust_trees(&self.volumes, self.now);
        let before = self.store.leaving();
        while self.transaction_goes_on(memory) {}
        if self.store.leaving() < before && !self.requests.watched().is_empty() {
            // Requests that wait for slots to be forgotten need not wait for the clock.
            self.look_at_watched(memory);
        }
        if let Some(deadline) = self.store.mappings().and_then(|mappings| mappings.commit.deadline()) {
            self.want_tick(deadline);
        }
    }

    /// Takes one step that is possible now; false if there is none.
    fn transaction_goes_on<M: Memory>(&mut self, memory: &mut M) -> bool {
        let now = self.now;
        let SlotStore { records: Records::Commit(mappings), layout, completed, .. } = &mut self.store else {
            return false;
        };
        if let Some(waiter) = mappings.commit.next_done() {
            match waiter {
                Waiter::Request(key) => self.record_done(key, memory),
                Waiter::Gone(slot) => self.store.slot_is_gone(slot, &mut self.volumes),
                Waiter::Flush(key) => self.go_on_with_flush(key, memory),
            }
            return true;
        }
        if mappings.commit.wants_to_begin(now) {
            mappings.begin(layout, now);
        }
        if !mappings.pages.is_empty() || mappings.record.is_some() {
            if self.store.pages_in_flight >= PAGES_IN_FLIGHT_MAX {
                return false;
            }
            return self.write_mappings(memory);
        }
        match mappings.commit.next_step() {
            Some(Step::Flush) => {
                let completed = *completed;
                mappings.flush = Some(completed);
                let mutations = self.config.mutations;
                let is_void = mutations.has(Mutation::TransactionUnflushed)
                    || mutations.has(Mutation::RecordUnflushed) && mappings.commit.is_record_written();
                if completed <= self.barrier.flushed || is_void {
                    self.store.transaction_flushed(completed);
                } else {
                    self.barrier.want(completed);
                    self.pump_barrier();
                }
                true
            }
            Some(Step::Record { transaction, is_clean_stop }) => {
                mappings.record = Some((transaction, is_clean_stop));
                true
            }
            None => false,
        }
    }

    /// Issues a page of the transaction that runs, or its record. False if there is no buffer for it.
    fn write_mappings<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(PAIRED_PAGE_BYTES), memory) else {
            self.want_tick(self.now.plus(self.config.tick_ns));
            return false;
        };
        let SlotStore { records: Records::Commit(mappings), layout, set_id, table, replacement, .. } =
            &mut self.store
        else {
            unreachable!("only transactions come here")
        };
        let cache = (&*set_id, &*layout);
        let bytes = memory.metadata_mut(buffer);
        let (offset_bytes, flight) = if let Some(write) = mappings.pages.pop_front() {
            mappings.encode(cache, table, |slot| replacement.hint(slot), write.page, bytes);
            // H12: the place that counts is never written.
            let is_in_place = self.config.mutations.has(Mutation::PageInPlace);
            let place = if is_in_place { 1 - write.place } else { write.place };
            (Mappings::offset_bytes(layout, PageWrite { place, ..write }), SlotFlight::Mappings { buffer })
        } else {
            let record = mappings.record.take().expect("there is something to write");
            mappings.encode_record(cache, record, bytes);
            (COMMIT_RECORD_OFFSETS[CommitRecord::place(record.0)], SlotFlight::CommitRecord { buffer })
        };
        self.store.pages_in_flight += 1;
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(PAIRED_PAGE_BYTES) };
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(flight));
        true
    }

    /// Takes the completed write of a transaction's page or record.
    pub(in crate::store::slots) fn mappings_written<M: Memory>(
        &mut self,
        buffer: BufferId,
        is_record: bool,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        memory.release(buffer);
        self.store.pages_in_flight -= 1;
        if let Err(errno) = result {
            self.latch(errno, memory);
            return;
        }
        if let Some(mappings) = self.store.mappings_mut() {
            if is_record {
                mappings.commit.record_written();
            } else {
                mappings.commit.page_written();
            }
        }
    }

    // ---- slots -------------------------------------------------------------------------------

    /// Lets a FLUSH wait for writes that were answered without a durable mapping. False if there are none.
    pub(in crate::store::slots) fn flush_waits_for_mappings(&mut self, key: RequestKey) -> bool {
        let is_latched = self.latched.is_some();
        let Some(mappings) = self.store.mappings_mut().filter(|_| !is_latched) else { return false };
        let waits = mappings.flush_waits(key);
        if waits {
            self.requests[key].stage = Stage::Commit;
        }
        waits
    }

    // ---- a clean stop ------------------------------------------------------------------------
}

/// Writes the transaction of a start, before the first request: it replaces what the process before left half done,
/// records that no clean stop counts any more, and has no slots of volumes that are gone.
pub(in crate::store::slots) fn commit_at_start<I: Image>(
    image: &mut I,
    store: &mut SlotStore,
) -> Result<(), Errno> {
    let SlotStore { records: Records::Commit(mappings), layout, set_id, table, replacement, .. } = store
    else {
        return Ok(());
    };
    let cache: (&SetId, &SlotLayout) = (set_id, layout);
    let mut bytes = vec![0; PAIRED_PAGE_BYTES];
    while !mappings.commit.is_at_rest() {
        if mappings.commit.wants_to_begin(Nanos(0)) {
            mappings.begin(layout, Nanos(0));
        }
        for write in core::mem::take(&mut mappings.pages) {
            mappings.encode(cache, table, |slot| replacement.hint(slot), write.page, &mut bytes);
            image.write(Mappings::offset_bytes(layout, write), &bytes)?;
            mappings.commit.page_written();
        }
        match mappings.commit.next_step() {
            Some(Step::Flush) => {
                let is_void =
                    mappings.commit.is_starting() && mappings.is_mutated(Mutation::OverwriteUnflushedRecord);
                if !is_void {
                    image.flush()?;
                }
                mappings.flush = Some(0);
                mappings.flushed(0);
            }
            Some(Step::Record { transaction, is_clean_stop }) => {
                mappings.encode_record(cache, (transaction, is_clean_stop), &mut bytes);
                image.write(COMMIT_RECORD_OFFSETS[CommitRecord::place(transaction)], &bytes)?;
                mappings.commit.record_written();
            }
            None => (),
        }
    }
    Ok(())
}
