//! Durable records of slots: writes pages, records destaged slots as clean, and lets slots leave that may.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | slots that are recorded by page |
//! | `mappings.rs`, `trees.rs`, `transactions.rs` | slots that transactions record, with trees of dirty bits or without |
//! | `persistence/` | when a page or a transaction may be written, and who waits for it |
//! | `checksums.rs` | the checksums of areas, and the data that waits for them |
//! | `lost.rs` | blocks whose only copy rotted |
//! | `stop.rs` | a clean stop records everything |

pub mod checksums;
pub(super) mod lost;
pub(super) mod mappings;
pub mod persistence;
mod stop;
pub(super) mod transactions;
pub(super) mod trees;

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{SlotPage, SlotRecord};
use crate::machine::barrier::CacheBarrier;
use crate::machine::destage::run::Copied;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::machine::requests::Requests;
use crate::machine::volumes::Volumes;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::policies::replacement::Policy;
use crate::store::slots::records::mappings::Mappings;
use crate::store::slots::records::persistence::sync_sector::SyncSector;
use crate::store::slots::{SlotFlight, SlotStore};
use crate::units::Nanos;
use crate::units::{Frame, PieceKey, VolumeIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The durable records of a cache's slots, by one of two ways.
pub(crate) enum Records {
    /// By page, before a write is acknowledged.
    SyncSector(Box<SyncSector<RequestKey>>),
    /// By transactions.
    Commit(Box<Mappings>),
}

impl Records {
    /// Whether the content of a dirty slot is recorded, so that it may be destaged.
    pub fn is_written(&self, slot: Frame) -> bool {
        match self {
            Records::SyncSector(records) => records.is_written(slot.0),
            Records::Commit(mappings) => !mappings.is_pending(slot),
        }
    }

    /// Whether nothing is wanted or under way.
    pub fn is_quiet(&self) -> bool {
        match self {
            Records::SyncSector(records) => records.is_quiet(),
            Records::Commit(mappings) => mappings.commit.is_at_rest(),
        }
    }
}

impl SlotStore {
    /// Asks for the flush that a request waits for with a record, or with the end of one.
    pub(in crate::store::slots) fn hurry_records(&mut self, barrier: &mut CacheBarrier) {
        let Records::SyncSector(records) = &self.records else { return };
        for needed in [records.flush_wanted(), records.settling()].into_iter().flatten() {
            barrier.want(needed);
        }
    }

    /// Notes that a flush of the cache covers the first `covered` writes.
    pub(in crate::store::slots) fn records_flushed(&mut self, covered: u64, volumes: &mut Volumes) {
        self.lost_table_flushed(covered, volumes);
        self.areas.note_flushed(covered);
        match &mut self.records {
            Records::SyncSector(records) => records.flushed(covered),
            Records::Commit(_) => self.transaction_flushed(covered),
        }
    }

    /// Records that a slot, clean or dirty before, has content that the origin lacks. `key` waits until that is
    /// recorded; answered if it is.
    pub(in crate::store::slots) fn record_dirty(
        &mut self,
        slot: Frame,
        key: RequestKey,
        requests: &Requests,
    ) -> Option<RequestKey> {
        let completed = self.completed;
        let may_be_late = !requests[key].wants_fua();
        let is_hasty = self.mutations.has(Mutation::AckBeforeMapping);
        match &mut self.records {
            Records::SyncSector(_) if is_hasty => Some(key),
            Records::SyncSector(records) => records.dirtied(slot.0, completed, key),
            Records::Commit(mappings) => mappings.wait_for_mapping(slot, key, may_be_late),
        }
    }

    /// Marks slots whose content is durable on the origin as clean, if they were not written since.
    pub(in crate::store::slots) fn slots_are_home(
        &mut self,
        volume_index: VolumeIndex,
        copy: Copied,
        volumes: &mut Volumes,
        now: Nanos,
        under_way: usize,
    ) {
        let slots: Vec<Frame> = self.slots_of(copy.place, copy.blocks).collect();
        for slot in slots {
            let piece = self.table.piece(slot);
            self.written_home.put(slot.0, false);
            let first = copy.first + u64::from(self.place(slot, 0).0 - copy.place.0);
            let is_same = piece.is_some_and(|piece| {
                piece == self.piece_of(volumes.of(volume_index).key(first))
                    && self.table.is_dirty(slot)
                    && (!self.table.is_rewritten(slot) || self.mutations.has(Mutation::CleanThoughRewritten))
                    && !self.table.is_lost(slot)
            });
            if is_same {
                self.slot_is_home(slot, piece.expect("seen above"), volumes, now, under_way);
            }
        }
    }

    fn slot_is_home(
        &mut self,
        slot: Frame,
        piece: PieceKey,
        volumes: &mut Volumes,
        now: Nanos,
        under_way: usize,
    ) {
        let blocks = self.blocks_of(volumes.of(piece.volume()), piece).count;
        self.table.set_dirty(slot, false);
        self.replacement.set_dirty(slot, false);
        self.tell_dirty(slot, false, now, under_way);
        volumes.of_mut(piece.volume()).dirty_blocks -= blocks;
        let SlotStore { records, layout, table, cleaning, policies, .. } = self;
        match records {
            Records::SyncSector(records) => {
                records.cleaned(slot.0);
                let set = table.shape().set_of(slot);
                match cleaning.as_mut().filter(|cleaning| cleaning.set == set) {
                    Some(cleaning) if !policies.cleans_per_block => cleaning.is_unrecorded = true,
                    _ => records.want(SyncSector::<RequestKey>::page_of(slot.0)),
                }
            }
            Records::Commit(mappings) => mappings.cleaned(piece, layout, now),
        }
        self.is_released = true;
    }

    /// Records the slots of a set whose cleaning is over: destaged slots waited for the others.
    pub(in crate::store::slots) fn record_cleaned(&mut self, set: u32) {
        let shape = self.table.shape();
        let Records::SyncSector(records) = &mut self.records else { return };
        let [first, last] = [0, shape.ways - 1].map(|way| shape.frame(set, way).0);
        let page = SyncSector::<RequestKey>::page_of;
        for page in page(first)..=page(last) {
            if records.is_clearing(page) {
                records.want(page);
            }
        }
    }

    /// Forgets those of `blocks` that may be forgotten now.
    pub(in crate::store::slots) fn evict_blocks(
        &mut self,
        volume: VolumeIndex,
        blocks: Blocks,
        volumes: &mut Volumes,
        now: Nanos,
    ) {
        let pieces: Vec<PieceKey> = self.pieces(volume, blocks).collect();
        for piece in pieces {
            let slot = self.directory.find(piece, &self.table);
            if let Some(slot) = slot.filter(|slot| self.may_leave(*slot)) {
                self.evict_slot(slot, volumes, now);
            }
        }
    }

    /// Forgets the slots of a volume that may leave now.
    pub(in crate::store::slots) fn evict_all(
        &mut self,
        volume: VolumeIndex,
        volumes: &mut Volumes,
        now: Nanos,
    ) {
        for slot in self.slots_of_volume(volume) {
            if self.may_leave(slot) {
                self.evict_slot(slot, volumes, now);
            }
        }
    }
}

impl Machine<SlotStore> {
    /// Writes pages that are wanted, asks for the flushes they wait for, and lets waiting requests go on.
    pub(in crate::store::slots) fn pump_records<M: Memory>(&mut self, memory: &mut M) {
        self.pump_areas(memory);
        self.pump_transactions(memory);
        if self.latched.is_some() {
            return;
        }
        self.pump_lost(memory);
        while let Records::SyncSector(records) = &mut self.store.records
            && let Some(key) = records.next_done()
        {
            self.record_done(key, memory);
        }
        while let Records::SyncSector(records) = &mut self.store.records
            && let Some(slot) = records.next_unrecorded()
        {
            let slot = Frame(slot);
            if self.store.table.is_dirty(slot) {
                // The slot was written again: a new record is on its way.
                continue;
            }
            let piece =
                self.store.table.piece(slot).expect("a slot that a record may name holds a piece (S3)");
            self.store.table.set_recorded(slot, false);
            self.store.recorded[piece.volume().at()] -= 1;
            self.store.is_released = true;
        }
        while matches!(&self.store.records, Records::SyncSector(records) if records.has_page()) {
            let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(SlotPage::BYTES), memory) else {
                break;
            };
            self.write_page(buffer, memory);
        }
        self.store.hurry_records(&mut self.barrier);
        // The flush is issued now, and not when the clock comes back.
        self.pump_barrier();
    }

    fn write_page<M: Memory>(&mut self, buffer: BufferId, memory: &mut M) {
        let SlotStore { set_id, table, records: Records::SyncSector(records), layout, .. } = &mut self.store
        else {
            return;
        };
        let page = records.next_page().expect("a page is wanted");
        let record = |slot: u32| {
            let slot = Frame(slot);
            let is_recorded = slot.0 < table.shape().frames && records.says_dirty(slot.0);
            is_recorded.then(|| SlotRecord {
                piece: table.piece(slot).expect("a recorded slot holds a piece"),
                is_dirty: true,
                is_lost: table.is_lost(slot),
                hint: 0,
            })
        };
        SlotPage::encode(set_id, page, record, memory.metadata_mut(buffer));
        let offset_bytes = layout.slot_page_offset_bytes(page, 0);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(SlotPage::BYTES) };
        self.store.pages_in_flight += 1;
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(SlotFlight::Page { page, buffer }));
    }

    pub(in crate::store::slots) fn page_written<M: Memory>(
        &mut self,
        page: u32,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        memory.release(buffer);
        self.store.pages_in_flight -= 1;
        match (result, &mut self.store.records) {
            (Ok(()), Records::SyncSector(records)) => records.page_written(page, self.store.completed),
            (Ok(()), Records::Commit(_)) => unreachable!("transactions have pages of their own"),
            (Err(errno), _) => self.latch(errno, memory),
        }
    }
}
