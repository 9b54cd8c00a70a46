//! A clean stop: every slot is recorded, clean ones too, so that the cache is warm when it is opened again.
//!
//! The pages are flushed before the superblock marks the stop as clean. The next start takes that mark back before
//! the first request; from then on only slots recorded as dirty count.

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{SlotPage, SlotRecord};
use crate::machine::volumes::Volumes;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::number::to_u32;
use crate::policies::replacement::Policy;
use crate::store::slots::table::SlotState;
use crate::store::slots::{SlotFlight, SlotStore};
use crate::units::{Frame, PieceKey};

/// Pages on their way at a time.
const PAGES_IN_FLIGHT: u32 = 32;

impl SlotStore {
    /// Whether a clean slot is still right after the stop: its origin has flushed all writes that it was given.
    fn may_be_kept(&self, slot: Frame, piece: PieceKey, volumes: &Volumes) -> bool {
        let Some(volume) = &volumes[piece.volume().at()] else { return false };
        let origin = &volume.origin;
        self.table.state(slot) == SlotState::Valid
            && !self.rotten.contains(&piece)
            && !origin.is_failing()
            && origin.client_epoch <= origin.flushed_epoch
    }
}

impl Machine<SlotStore> {
    /// Writes all pages, at a stop when nothing else is under way; true when that is done.
    pub(in crate::store::slots) fn record_everything<M: Memory>(&mut self, memory: &mut M) -> bool {
        while self.store.pages_stopped < self.store.layout.slot_pages()
            && self.store.pages_in_flight < PAGES_IN_FLIGHT
        {
            let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(SlotPage::BYTES), memory) else {
                break;
            };
            self.write_stop_page(buffer, memory);
        }
        self.store.pages_stopped == self.store.layout.slot_pages() && self.store.pages_in_flight == 0
    }

    fn write_stop_page<M: Memory>(&mut self, buffer: BufferId, memory: &mut M) {
        let page = self.store.pages_stopped;
        self.store.pages_stopped += 1;
        let SlotStore { set_id, table, replacement, layout, .. } = &self.store;
        let record = |slot: u32| {
            let slot = Frame(slot);
            let piece = (slot.0 < table.shape().frames).then(|| table.piece(slot)).flatten()?;
            let is_dirty = table.is_dirty(slot);
            (is_dirty || self.store.may_be_kept(slot, piece, &self.volumes)).then(|| SlotRecord {
                piece,
                is_dirty,
                is_lost: table.is_lost(slot),
                hint: replacement.hint(slot),
            })
        };
        SlotPage::encode(set_id, page, record, memory.metadata_mut(buffer));
        let offset_bytes = layout.slot_page_offset_bytes(page, 0);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(SlotPage::BYTES) };
        self.store.pages_in_flight += 1;
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(SlotFlight::StopPage { buffer }));
    }

    pub(in crate::store::slots) fn stop_page_written<M: Memory>(
        &mut self,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        memory.release(buffer);
        self.store.pages_in_flight -= 1;
        match result {
            // The next pages follow at once: a flush in between is not worth its time.
            Ok(()) => drop(self.record_everything(memory)),
            Err(errno) => self.latch(errno, memory),
        }
    }
}
