//! The slots as a [`Store`](crate::store::Store).

use super::changes::writes::DataEnd;
use super::policies::Partial;
use super::records::Records;
use super::table::SlotState;
use super::{SlotFlight, SlotStore};
use crate::effect::{Effect, Errno, Notice};
use crate::format::SlotPersistence;
use crate::machine::Machine;
use crate::machine::destage::run::Copied;
use crate::machine::guard::{Blocks, Hold, Stamp};
use crate::machine::piece::{Piece, WaitingRead};
use crate::machine::request::RequestKey;
use crate::machine::volume::Volume;
use crate::machine::warm::{CachedRun, Cursor};
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::low_u32;
use crate::policies::fetch::Fetch;
use crate::policies::replacement::{Access, Policy};
use crate::status::CacheStatus;
use crate::store::log::extents::ExtentKind;
use crate::store::{
    Cached, Changing, Destaging, Dropping, Durability, Life, Lookup, Operations, Pressure, Readiness, Reading,
};
use crate::units::{BLOCK_BYTES, BlockKey, Frame, Nanos, Place, SECTORS_PER_BLOCK, VolumeId, VolumeIndex};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Period after which requests that wait for a slot look again, if nothing happens: their slot may have been busy
/// when its destage was asked for.
const LOOK_AGAIN_NS: u64 = 5 * Nanos::MILLISECOND;

impl Operations for SlotStore {
    type Flight = SlotFlight;

    fn is_of_cache(flight: &SlotFlight) -> bool {
        !matches!(
            flight,
            SlotFlight::Around { .. } | SlotFlight::PromotionRead { .. } | SlotFlight::RestoreRead { .. }
        )
    }

    fn complete<M: Memory>(
        m: &mut Machine<SlotStore>,
        flight: SlotFlight,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        if result.is_ok() && Self::is_of_cache(&flight) {
            m.store.completed += 1;
        }
        let areas = m.store.areas_of(&flight);
        let is_forgotten = m.store.is_forgotten_by_crash(&flight);
        m.slot_operation_done(flight, result, memory);
        if let Some(areas) = areas {
            m.data_ended(areas, is_forgotten);
        }
    }
}

impl Lookup for SlotStore {
    fn lookup(&self, key: BlockKey) -> Option<Cached> {
        let piece = self.piece_of(key);
        let slot = self.holding(piece)?;
        if !self.rotten.is_empty() && self.rotten.contains(&piece) || self.is_busy_for_readers(slot) {
            return None;
        }
        let place = self.place(slot, key.block());
        let known = self.table.checksum(slot, self.slot_of(place).1);
        // RULE 10: beside a lost block, too, the other blocks have no other copy.
        let dirty = self.table.is_dirty(slot);
        Some(Cached { place, dirty, checksum: known.map(NonZeroU32::get) })
    }

    fn extent(&self, key: BlockKey) -> Option<ExtentKind> {
        self.lost.contains(&key).then_some(ExtentKind::Lost)
    }

    fn lost_blocks(&self, volume: VolumeIndex) -> Vec<Blocks> {
        let mut runs: Vec<Blocks> = Vec::new();
        for key in self.lost.iter().filter(|key| key.volume() == volume) {
            match runs.last_mut() {
                Some(run) if run.end() == key.block() => run.count += 1,
                _ => runs.push(Blocks { first: key.block(), count: 1 }),
            }
        }
        runs
    }

    fn note_hit(&mut self, key: BlockKey, is_first: bool) {
        // Once for each slot that a request touches.
        if (is_first || key.block().is_multiple_of(self.slot_blocks()))
            && let Some(slot) = self.holding(self.piece_of(key))
        {
            self.replacement.hit(slot, Access::Read);
            self.destage.used(slot);
        }
    }

    fn is_joinable(&self, first: Place, next: Place) -> bool {
        !self.policies.writes.splits_requests || self.slot_of(first).0 == self.slot_of(next).0
    }

    fn reads_clean(&self, first: BlockKey, blocks: u64) -> bool {
        // EnhanceIO: if a part is missing, the whole request is read from the origin.
        !self.policies.writes.rereads_whole
            || (first.0..first.0 + blocks).all(|key| {
                let slot = self.holding(self.piece_of(BlockKey(key)));
                slot.is_some_and(|slot| !self.is_busy_for_readers(slot))
            })
    }

    fn pin(&mut self, place: Place, blocks: u32) {
        for slot in self.slots_of(place, blocks) {
            self.table.pin(slot);
        }
    }

    fn unpin(&mut self, place: Place, blocks: u32) {
        for slot in self.slots_of(place, blocks) {
            self.table.unpin(slot);
        }
    }

    fn offset_bytes(&self, place: Place) -> u64 {
        let (slot, block) = self.slot_of(place);
        self.layout.slot_offset_bytes(slot) + u64::from(block) * BLOCK_BYTES
    }

    fn cached_blocks(&self, volume: VolumeIndex) -> Vec<u64> {
        let pieces = self.all_slots().filter_map(|slot| self.table.piece(slot));
        let of_volume = pieces.filter(|piece| piece.volume() == volume && self.holding(*piece).is_some());
        let mut blocks: Vec<u64> = of_volume
            .flat_map(|piece| piece.piece() * self.slot_blocks()..(piece.piece() + 1) * self.slot_blocks())
            .collect();
        blocks.sort_unstable();
        blocks
    }

    fn is_changing(&self, key: BlockKey) -> bool {
        self.changing.contains(&key)
    }
}

impl Reading for SlotStore {
    fn offer_fill<M: Memory>(
        m: &mut Machine<SlotStore>,
        request: RequestKey,
        piece: &Piece,
        stamp: Stamp,
        memory: &mut M,
    ) {
        let blocks = Blocks { first: piece.first, count: u64::from(piece.blocks) };
        let is_filled_so = matches!(m.store.policies.fetch, Fetch::Request { .. } | Fetch::Filled);
        // HAZARD 1: the data read is still the origin's.
        let is_same = m.volume(m.requests[request].volume).guard.is_as_stamped(stamp, u64::MAX);
        if is_filled_so && (is_same || m.is_mutated(Mutation::FillAfterChange)) {
            let who_waits = (m.store.policies.fetch == Fetch::Filled).then_some(request);
            m.fill_slots(request, blocks, piece.slice, who_waits, memory);
        }
    }

    fn may_fetch<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) -> bool {
        m.ask_for_read(key, memory)
    }

    fn may_tell(m: &mut Machine<SlotStore>, key: RequestKey) -> bool {
        let is_in_doubt = m.is_in_doubt(key);
        if is_in_doubt {
            m.wait_for_slot(key);
        }
        !is_in_doubt
    }

    fn warm<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        m.promote_to_warm(key, memory);
    }

    fn warm_room_blocks(m: &Machine<SlotStore>) -> u64 {
        u64::from(m.store.free.len()) * m.store.slot_blocks()
    }

    fn is_filling(&self) -> bool {
        self.filling_blocks.iter().any(|blocks| *blocks > 0)
    }

    fn visit_cached(&self, from: Cursor, steps: u32, visit: &mut dyn FnMut(CachedRun)) -> Option<Cursor> {
        let end = from.0.saturating_add(u64::from(steps)).min(u64::from(self.table.shape().frames));
        for slot in (low_u32(from.0)..low_u32(end)).map(Frame) {
            let piece = self.table.piece(slot).filter(|piece| self.holding(*piece) == Some(slot));
            let Some(piece) = piece else { continue };
            let (first_block, blocks) = (piece.piece() * self.slot_blocks(), self.layout.slot_blocks());
            // Policies keep no count that could be compared.
            visit(CachedRun { volume: piece.volume(), first_block, blocks, hits: 0 });
        }
        (end < u64::from(self.table.shape().frames)).then_some(Cursor(end))
    }

    fn answered(m: &mut Machine<SlotStore>, issued: Nanos) {
        m.store.note_latency(Access::Read, issued, m.now);
    }

    fn wait_for_change(m: &mut Machine<SlotStore>, read: WaitingRead) {
        m.store.changing_reads.push(read);
    }

    fn drop_rotten(m: &mut Machine<SlotStore>, key: BlockKey) {
        let piece = m.store.piece_of(key);
        let Some(slot) = m.store.holding(piece) else { return };
        if m.store.may_leave(slot) {
            m.store.evict_slot(slot, &mut m.volumes, m.now);
        } else {
            m.store.rotten.insert(piece);
        }
    }

    fn mark_lost(m: &mut Machine<SlotStore>, key: BlockKey) {
        if m.store.lose(key, &mut m.volumes) {
            m.push(Effect::Notice(Notice::Lost { volume: key.volume(), block: key.block() }));
        }
    }

    fn scrub_segment<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, _segment: u32, memory: &mut M) {
        m.reply(key, memory);
    }
}

impl Changing for SlotStore {
    fn held(&self, volume: &Volume, blocks: Blocks) -> Blocks {
        let slot_blocks = self.slot_blocks();
        let first = blocks.first / slot_blocks * slot_blocks;
        let end = blocks.end().next_multiple_of(slot_blocks).min(volume.blocks());
        Blocks { first, count: end - first }
    }

    fn first_hold(m: &Machine<SlotStore>, key: RequestKey, is_whole: bool) -> Hold {
        let active = &m.requests[key];
        let mut pieces = m.store.pieces(active.volume, active.blocks);
        // A write with slots for all parts changes them in place, beside other such writes.
        if is_whole && pieces.all(|piece| m.store.holding(piece).is_some()) {
            Hold::Shared
        } else {
            Hold::Merging
        }
    }

    fn begin_write<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        m.write_to_slots(key, memory);
    }

    fn begin_zero<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        m.go_around(key, memory);
    }

    fn may_bypass<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) -> bool {
        if m.latched.is_none() && m.store.has_lost(key, &m.requests) {
            // Lost blocks cannot be destaged, and hide the origin until they are written or given up.
            m.fail(key, Errno::IO, memory);
            return false;
        }
        m.is_way_clear(key, memory)
    }

    fn settled<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        m.place_write(key, memory);
    }

    fn origin_changed<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        m.fill_written(key, memory);
    }

    fn merge<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        m.merge_write(key, memory);
    }

    fn forget<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, blocks: Blocks, memory: &mut M) {
        let volume = m.requests[key].volume;
        // HAZARD 7: the slots must not keep blocks that the origin is about to change.
        if !m.is_mutated(Mutation::ForgetTombstone) {
            m.store.evict_blocks(volume, blocks, &mut m.volumes, m.now);
        }
        m.origin_when_forgotten(key, memory);
    }

    fn is_forgotten(m: &Machine<SlotStore>, key: RequestKey) -> bool {
        let active = &m.requests[key];
        let mut pieces = m.store.pieces(active.volume, active.blocks);
        pieces.all(|piece| {
            let Some(slot) = m.store.directory.find(piece, &m.store.table) else { return true };
            // H5: a slot that leaves may come back after a crash.
            match m.store.table.state(slot) {
                SlotState::Leaving => m.is_mutated(Mutation::BypassBeforeRemoval),
                SlotState::Filling => m.is_mutated(Mutation::FillBehindBypass),
                _ => m.is_mutated(Mutation::ForgetTombstone),
            }
        })
    }

    fn want_forgotten(m: &mut Machine<SlotStore>, key: RequestKey) {
        let active = &m.requests[key];
        let (volume, blocks) = (active.volume, active.blocks);
        m.store.evict_blocks(volume, blocks, &mut m.volumes, m.now);
        m.store.hurry_records(&mut m.barrier);
    }

    fn is_writing(m: &Machine<SlotStore>, key: RequestKey) -> bool {
        m.requests[key].parts > 0
    }

    fn withdraw<M: Memory>(_m: &mut Machine<SlotStore>, _volume: VolumeIndex, _memory: &mut M) {
        // Nothing is queued: writes without room go around the cache.
    }

    fn refuse_waiting<M: Memory>(_m: &mut Machine<SlotStore>, _memory: &mut M) {
        // Who waits for an origin is refused where it looks again.
    }
}

impl Durability for SlotStore {
    fn trusts_unflushed_origin(&self) -> bool {
        // A crash forgets clean slots, and so does a failed flush.
        true
    }

    fn origin_flush_failed(m: &mut Machine<SlotStore>, volume: VolumeIndex) {
        m.store.evict_clean(volume, &mut m.volumes, m.now);
        m.store.tell_all_dirty(volume, m.now, m.requests.len());
        if !m.is_mutated(Mutation::TrustWrittenAround) {
            m.requests.doubt_written_around(volume);
        }
    }

    fn holds_flush(m: &mut Machine<SlotStore>, key: RequestKey) -> bool {
        m.flush_waits_for_mappings(key)
    }

    fn completed(&self) -> u64 {
        self.completed
    }

    fn may_flush(&self) -> bool {
        true
    }

    fn flushed<M: Memory>(m: &mut Machine<SlotStore>, sequence: u64, _memory: &mut M) {
        m.store.records_flushed(sequence, &mut m.volumes);
    }

    fn is_home_when_written(&self) -> bool {
        // SAFE: none of the published systems flushes the origin first.
        !self.policies.is_safe
    }

    fn flush_waits_for_cache(&self) -> bool {
        // SAFE: flashcache sends no flush to the cache, and EnhanceIO does not wait for the one that it sends.
        self.policies.is_safe || !matches!(self.layout.persistence(), SlotPersistence::SyncSector)
    }
}

impl Destaging for SlotStore {
    fn unit(&self, volume: &Volume, block: u64) -> Blocks {
        self.blocks_of(volume, self.piece_of(volume.key(block)))
    }

    fn overwrites(&self) -> bool {
        true
    }

    fn readiness(&self, dirty: &Cached) -> Readiness {
        let (slot, _) = self.slot_of(dirty.place);
        // RULE 10: a slot with a lost block stays, and does not keep its neighbours from going home.
        let is_ready = self.table.state(slot) == SlotState::Valid
            && !self.table.is_lost(slot)
            && !self.is_writing(slot)
            && self.records.is_written(slot);
        if is_ready { Readiness::Ready } else { Readiness::Busy }
    }

    fn run_begins(m: &mut Machine<SlotStore>, volume: VolumeIndex, blocks: Blocks) {
        let mut slots = Vec::new();
        for piece in m.store.pieces(volume, blocks) {
            let slot = m.store.holding(piece).expect("a piece that was found has a slot");
            m.store.table.begin_home(slot);
            m.store.replacement.home_begins(slot);
            slots.push(slot);
        }
        m.store.home_begins(volume, &slots, m.now);
    }

    fn run_ends(m: &mut Machine<SlotStore>, volume: VolumeIndex, blocks: Blocks, is_written: bool) {
        for piece in m.store.pieces(volume, blocks) {
            let slot = m.store.holding(piece).expect("a slot that goes home stays");
            m.store.table.settle(slot);
            // Without `safe` it is clean by now.
            let is_dirty = m.store.table.is_dirty(slot);
            m.store.replacement.home_ends(slot, is_dirty);
            m.store.home_ended(slot, is_written, m.now, m.requests.len());
        }
        m.store.is_released = true;
    }

    fn has_controller(&self) -> bool {
        !self.destage.is_sweep()
    }

    fn start_zero_run(_m: &mut Machine<SlotStore>, _volume: VolumeIndex) -> bool {
        false
    }

    fn copy_is_home(m: &mut Machine<SlotStore>, volume: VolumeIndex, copy: Copied) {
        m.store.slots_are_home(volume, copy, &mut m.volumes, m.now, m.requests.len());
    }

    fn written_through(_m: &Machine<SlotStore>, _volume: VolumeIndex, _blocks: Blocks) -> Vec<Copied> {
        Vec::new()
    }

    fn pressure(m: &Machine<SlotStore>) -> Pressure {
        let shortage = super::homes::shortage(&m.store.table);
        let is_waited_for = !m.store.waiting.is_empty();
        Pressure { is_short: shortage.is_short || is_waited_for, is_waited_for, ..shortage }
    }
}

impl Life for SlotStore {
    fn request_ended<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        m.end_asking(key, memory);
    }

    fn repair<M: Memory>(_m: &mut Machine<SlotStore>, _memory: &mut M) {}

    fn pump<M: Memory>(m: &mut Machine<SlotStore>, memory: &mut M) {
        m.store.replacement.advance(m.now);
        if m.latched.is_none() {
            m.store.let_rotten_leave(&mut m.volumes, m.now);
        }
        m.pump_records(memory);
        let is_released = core::mem::take(&mut m.store.is_released);
        let is_due = !m.store.waiting.is_empty() && m.now >= m.store.look_again;
        if is_released || is_due {
            m.store.look_again = m.now.plus(LOOK_AGAIN_NS);
            m.retry_waiting(memory);
            // A transaction that one of the requests asked for begins now, not when something else happens.
            m.pump_records(memory);
        }
        m.pump_controller(memory);
        m.read_for_promotions(memory);
        // Requests that went on just now may have changed the superblock.
        m.pump_superblock(memory);
    }

    fn assemble<M: Memory>(_m: &mut Machine<SlotStore>, _memory: &mut M) {}

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.records.is_quiet() || !self.lost_records.is_quiet()
    }

    fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
            && self.filling_blocks.iter().sum::<u64>() == 0
            && self.writing.is_empty()
            && self.records.is_quiet()
            && self.lost_records.is_quiet()
            && self.areas.is_quiet()
            && self.pages_in_flight == 0
            && self.rotten_that_may_leave().next().is_none()
    }

    fn concerns(m: &Machine<SlotStore>, volume: VolumeIndex) -> bool {
        m.store.filling_blocks[volume.at()] > 0 || m.store.recorded[volume.at()] > 0
    }

    fn stop<M: Memory>(m: &mut Machine<SlotStore>, memory: &mut M) -> bool {
        let is_closed = m.store.areas.stop();
        let is_recorded = match &m.store.records {
            Records::SyncSector(_) => m.record_everything(memory),
            Records::Commit(_) => m.store.are_mappings_stopped(&m.volumes),
        };
        is_closed && is_recorded
    }

    fn discard_pending<M: Memory>(_m: &mut Machine<SlotStore>, _memory: &mut M) {
        // The pump looks again at requests that wait for a slot, and finds that the cache failed.
    }

    fn drop_volume(m: &mut Machine<SlotStore>, volume: VolumeIndex) {
        m.store.evict_all(volume, &mut m.volumes, m.now);
        if m.latched.is_none() {
            assert!(m.volume(volume).cached_blocks == 0, "all slots of a clean volume may leave");
        }
    }

    fn volume_comes(m: &mut Machine<SlotStore>, volume: VolumeIndex, id: VolumeId, blocks: u64) -> u64 {
        m.store.begin_volume(volume, blocks);
        // What is recorded of the place from now on is the new volume's. Nothing is recorded of it now: a detach waits
        // for that.
        u64::from(id.0)
    }

    fn drop_end(m: &mut Machine<SlotStore>, volume: VolumeIndex) -> Dropping {
        let end = m.volume(volume);
        let blocks = Blocks { first: end.blocks() - 1, count: 1 };
        let piece = m.store.piece_of(end.key(blocks.first));
        if end.size_sectors.is_multiple_of(m.store.slot_blocks() * SECTORS_PER_BLOCK) {
            return Dropping::Done;
        }
        m.store.evict_blocks(volume, blocks, &mut m.volumes, m.now);
        m.store.hurry_records(&mut m.barrier);
        match m.store.directory.find(piece, &m.store.table) {
            None => Dropping::Done,
            Some(slot) if m.store.table.is_dirty(slot) => Dropping::Impossible,
            // The slot's record, or its mapping, goes first.
            Some(_) => Dropping::Waits,
        }
    }

    fn give_up_lost<M: Memory>(m: &mut Machine<SlotStore>, key: RequestKey, memory: &mut M) {
        match m.requests[key].hold {
            None => m.begin_restores(key, memory),
            Some(_) => m.restore(key, memory),
        }
    }

    fn is_dropped_durably(m: &mut Machine<SlotStore>, _volume: VolumeIndex) -> bool {
        m.store.lost_records.is_quiet() && !m.store.areas.has_waiting()
    }

    fn fill_status(&self, status: &mut CacheStatus) {
        status.slots_free = self.table.shape().frames - self.table.used();
        status.slots_dirty = self.table.dirty();
        status.used_bytes = u64::from(self.table.used()) * self.layout.slot_bytes();
        status.index_bytes = self.table.allocated_bytes() + self.directory.allocated_bytes();
        status.index_blocks = u64::from(self.table.used()) * self.slot_blocks();
    }

    fn describe(&self, f: &mut core::fmt::DebugStruct<'_, '_>) {
        f.field("waiting", &self.waiting)
            .field("writing", &self.writing.len())
            .field("filling", &self.filling_blocks)
            .field("recorded", &self.recorded)
            .field("pages_in_flight", &self.pages_in_flight)
            .field("records_quiet", &self.records.is_quiet())
            .field("areas_quiet", &self.areas.is_quiet())
            .field("used", &self.table.used())
            .field("dirty", &self.table.dirty());
    }
}

impl SlotStore {
    /// Whether readers ask the origin instead, because the slot, which is clean, is being read or written.
    ///
    /// Source: EnhanceIO, `eio_read_peek`: a block with an operation under way counts as not cached, unless it is dirty.
    fn is_busy_for_readers(&self, slot: Frame) -> bool {
        self.policies.partial == Partial::BothIfClean
            && !self.table.is_dirty(slot)
            && (self.table.is_pinned(slot) || self.is_writing(slot))
    }

    /// The slots that hold a piece of a volume.
    pub(super) fn slots_of_volume(&self, volume: VolumeIndex) -> Vec<Frame> {
        let is_of_volume =
            |slot: &Frame| self.table.piece(*slot).is_some_and(|piece| piece.volume() == volume);
        self.all_slots().filter(is_of_volume).collect()
    }

    pub(super) fn all_slots(&self) -> impl Iterator<Item = Frame> + use<> {
        (0..self.table.shape().frames).map(Frame)
    }
}

impl Machine<SlotStore> {
    /// Takes the outcome of an operation of the slots.
    pub(super) fn slot_operation_done<M: Memory>(
        &mut self,
        flight: SlotFlight,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        match flight {
            SlotFlight::Data { request, first, place, slice, makes_dirty, issued } => {
                self.store.note_latency(Access::Write, issued, self.now);
                let end = result.map_or_else(DataEnd::Failed, |()| DataEnd::Written);
                self.data_written(request, first, (place, slice), makes_dirty, end, memory);
            }
            SlotFlight::Around { request, blocks, beside } => {
                self.around_written(request, (blocks, beside), result, memory);
            }
            SlotFlight::Fill { volume, blocks, slot, arrival, slice, waiting, is_written: _ } => {
                self.filled((volume, blocks), (slot, arrival), slice, result, memory);
                if let Some(request) = waiting {
                    self.fill_waited_for(request, memory);
                }
            }
            SlotFlight::PromotionRead { promotion } => self.promotion_read(promotion, result, memory),
            SlotFlight::RestoreRead { request } => self.restore_read(request, result, memory),
            SlotFlight::PromotionWrite { promotion } => self.promotion_written(promotion, result, memory),
            SlotFlight::Checksums { area, buffer } => self.area_page_written(area, buffer, result, memory),
            SlotFlight::Page { page, buffer } => self.page_written(page, buffer, result, memory),
            SlotFlight::Mappings { buffer } => self.mappings_written(buffer, false, result, memory),
            SlotFlight::CommitRecord { buffer } => self.mappings_written(buffer, true, result, memory),
            SlotFlight::Lost { buffer } => self.lost_table_written(buffer, result, memory),
            SlotFlight::StopPage { buffer } => self.stop_page_written(buffer, result, memory),
        }
    }
}
