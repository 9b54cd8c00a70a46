//! The checksums of slots on the device: data waits until its area is open, and areas close again.
//!
//! Without `safe` no data waits: only a clean stop writes checksums, and they count only after it.

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{ChecksumPage, ChecksumSector, FormatError, SlotLayout, Superblock};
use crate::image::Image;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::number::{index, to_u32};
use crate::status::Content;
use crate::store::slots::changes::writes::DataEnd;
use crate::store::slots::records::persistence::areas::AreaPage;
use crate::store::slots::recovery::PAGES_TOGETHER;
use crate::store::slots::{SlotFlight, SlotStore};
use crate::units::{BLOCK_BYTES, Place};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Range;

/// A write of data that waits for its areas.
pub(crate) struct Held {
    op: IoOp,
    flight: Box<SlotFlight>,
}

/// Damage of the page of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AreaDamage {
    /// The device cannot read it.
    Unreadable(Errno),
    /// A sector of it rotted: none was torn.
    Rotten(FormatError),
}

impl SlotStore {
    /// The areas that an operation writes data in. Where fills leave pages stale, a write has all areas of its slots opened:
    /// it makes a crash trust the whole slot.
    pub(in crate::store::slots) fn areas_of(&self, flight: &SlotFlight) -> Option<Range<u32>> {
        let slot_blocks = self.layout.slot_blocks();
        let (place, blocks) = match flight {
            SlotFlight::Data { place, slice, .. } if self.leaves_later() => {
                (*place, slice.len_bytes / to_u32(BLOCK_BYTES))
            }
            SlotFlight::Data { place, slice, .. } => {
                let first = place.0 / slot_blocks * slot_blocks;
                let end = place.0 + slice.len_bytes / to_u32(BLOCK_BYTES);
                (Place(first), end.next_multiple_of(slot_blocks) - first)
            }
            SlotFlight::Fill { blocks, slot, .. } => (self.place(*slot, blocks.first), to_u32(blocks.count)),
            SlotFlight::PromotionWrite { promotion } => {
                let (slot, next) = self.promotions[*promotion].next_write();
                (self.place(slot, next.first), to_u32(next.count))
            }
            _ => return None,
        };
        Some(self.layout.areas_of(place, blocks))
    }

    /// Whether a crash forgets what an operation writes: it fills a slot, and no record tells of clean slots.
    pub(in crate::store::slots) fn is_forgotten_by_crash(&self, flight: &SlotFlight) -> bool {
        !self.leaves_later() && !matches!(flight, SlotFlight::Data { .. })
    }
}

impl Machine<SlotStore> {
    /// Issues a write of data to slots, as soon as its areas are open (S9).
    pub(in crate::store::slots) fn write_data(&mut self, op: IoOp, flight: SlotFlight) {
        let areas = self.store.areas_of(&flight).expect("only data is written so");
        let now = self.now;
        let is_forgotten = self.store.is_forgotten_by_crash(&flight);
        let held = Held { op, flight: Box::new(flight) };
        let write = if is_forgotten { Some(held) } else { self.store.areas.begin(areas, held, now) };
        if let Some(Held { op, flight }) = write {
            self.issue_data(op, *flight);
        }
    }

    /// Issues a write of data to slots whose areas are open.
    fn issue_data(&mut self, op: IoOp, flight: SlotFlight) {
        if let IoOp::Write { from, .. } = &op {
            let why = match &flight {
                SlotFlight::Data { .. } | SlotFlight::Fill { is_written: true, .. } => Content::User,
                _ => Content::Fill,
            };
            self.count_content(why, from.len_bytes());
        }
        self.issue(Target::Cache, op, Flight::Store(flight));
    }

    /// Fails a write that was never issued, because the cache failed before.
    fn withdraw_write<M: Memory>(&mut self, flight: SlotFlight, errno: Errno, memory: &mut M) {
        match flight {
            SlotFlight::Data { request, first, place, slice, makes_dirty, .. } => {
                self.data_written(request, first, (place, slice), makes_dirty, DataEnd::Withdrawn, memory);
            }
            other => self.slot_operation_done(other, Err(errno), memory),
        }
    }

    /// Notes that a write of data is over, whose flight this was before.
    pub(in crate::store::slots) fn data_ended(&mut self, areas: Range<u32>, is_forgotten: bool) {
        let completed = self.store.completed;
        if is_forgotten {
            self.store.areas.note_stale(areas, completed);
        } else {
            self.store.areas.end(areas, completed, self.now);
        }
    }

    /// Writes pages, asks for the flushes they wait for, and lets data go on.
    pub(in crate::store::slots) fn pump_areas<M: Memory>(&mut self, memory: &mut M) {
        let now = self.now;
        if let Some(errno) = self.latched {
            for held in self.store.areas.withdraw() {
                self.withdraw_write(*held.flight, errno, memory);
            }
            return;
        }
        let open_max = self.store.layout.open_areas_max().min(self.config.open_areas_max);
        self.store.areas.set_bounds(self.config.area_idle_ns, open_max);
        while let Some(Held { op, flight }) = self.store.areas.next_ready(now) {
            self.issue_data(op, *flight);
        }
        while self.store.areas.has_page(now) {
            let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(ChecksumPage::BYTES), memory) else {
                self.want_tick(now.plus(self.config.tick_ns));
                break;
            };
            let Some(page) = self.store.areas.next_page(now) else {
                memory.release(buffer);
                break;
            };
            self.write_area_page(page, buffer, memory);
        }
        if let Some(number) = self.store.areas.flush_wanted() {
            self.barrier.want(number);
        }
        // Where a page is due now, a completion looks again.
        if let Some(deadline) = self.store.areas.deadline().filter(|deadline| *deadline > now) {
            self.want_tick(deadline);
        }
    }

    fn write_area_page<M: Memory>(&mut self, page: AreaPage, buffer: BufferId, memory: &mut M) {
        let AreaPage { area, is_closed } = page;
        let SlotStore { set_id, layout, table, .. } = &self.store;
        let session = self.superblock.session;
        let bytes = memory.metadata_mut(buffer);
        if is_closed {
            let places = layout.places_of_area(area);
            let checksum = |block| {
                let place = places.start + block;
                (place < places.end).then(|| table.checksum_at(place)).flatten()
            };
            ChecksumPage::encode_closed(set_id, area, session, checksum, bytes);
        } else {
            ChecksumPage::encode_open(set_id, area, session, bytes);
        }
        let offset_bytes = layout.checksum_page_offset_bytes(area);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(ChecksumPage::BYTES) };
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(SlotFlight::Checksums { area, buffer }));
    }

    pub(in crate::store::slots) fn area_page_written<M: Memory>(
        &mut self,
        area: u32,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        memory.release(buffer);
        match result {
            Ok(()) => self.store.areas.page_written(area, self.store.completed),
            Err(errno) => self.latch(errno, memory),
        }
    }
}

/// Reads the checksums that the device tells. `visit` gets an area, and the checksums of its blocks as far as there are
/// any; an error where its page is damaged.
pub(crate) fn each_area<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    (layout, is_safe): (&SlotLayout, bool),
    mut visit: impl FnMut(u32, Result<Vec<Option<NonZeroU32>>, AreaDamage>),
) {
    if !is_safe && !superblock.clean_stop {
        // Nothing says that an area was written since.
        return;
    }
    let counts = |sector: &ChecksumSector| is_safe || sector.session == superblock.session;
    let mut first = 0;
    while first < layout.areas() {
        let count = PAGES_TOGETHER.min(layout.areas() - first);
        let offset_bytes = layout.checksum_page_offset_bytes(first);
        let together = image.read(offset_bytes, index(count) * ChecksumPage::BYTES);
        for area in first..first + count {
            let at = index(area - first) * ChecksumPage::BYTES;
            let page = match &together {
                Ok(bytes) => Ok(ChecksumPage::decode(&superblock.set_id, area, &bytes[at..])),
                // One bad page shall not hide those around it.
                Err(_) => image
                    .read(layout.checksum_page_offset_bytes(area), ChecksumPage::BYTES)
                    .map(|bytes| ChecksumPage::decode(&superblock.set_id, area, &bytes)),
            };
            let page = page.map_err(AreaDamage::Unreadable).and_then(|page| page.map_err(AreaDamage::Rotten));
            visit(area, page.map(|page| page.checksums(counts)));
        }
        first += count;
    }
}
