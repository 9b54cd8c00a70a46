//! Destage that nobody waits for: the composition's controller is asked, and the runs that it allows are started.
//!
//! Drains, volumes that leave writeback, origins that fail and slots that somebody waits for are the destager's own
//! affair ([`crate::machine::destage`]); the controller is told of the runs.
//!
//! A slot that was written to its origin counts as clean with the controller, and as dirty everywhere else until the
//! origin was flushed: else the published limits would include slots that wait for a flush, which no published
//! system has.

use super::SlotStore;
use super::records::Records;
use super::table::{SlotState, SlotTable};
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::machine::requests::Requests;
use crate::machine::volume::{Standing, Volume};
use crate::machine::volumes::Volumes;
use crate::memory::Memory;
use crate::number::{to_u8, to_u32, wide};
use crate::policies::controllers::idle::{IdleChoice, IdleEra};
use crate::policies::controllers::{Budget, Destage, HomeOrder, Join, OfSet, Pressure};
use crate::policies::replacement::{Policy, Urgency};
use crate::store::Pressure as Shortage;
use crate::table::key_map::KeyMap;
use crate::units::{BLOCK_BYTES, Frame, Nanos, PieceKey, SECTORS_PER_BLOCK, VolumeIndex};
use alloc::vec::Vec;

/// Time of the next question to the controller after all slots that it allowed were busy, if nothing happens.
const LOOK_AGAIN_NS: u64 = 2 * Nanos::MILLISECOND;
/// Blocks of a run at the most.
const RUN_BLOCKS_MAX: u64 = 64;

/// The set that is being cleaned (EnhanceIO).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaning {
    pub set: u32,
    /// Slots on their way home.
    pub runs: u32,
    /// Some slots are home, and their records wait for the others.
    pub is_unrecorded: bool,
}

impl SlotStore {
    /// The single frames that smq 2.0 destages while it is busy, because no slot could leave for a newcomer.
    fn with_demotion(&mut self, budget: Budget) -> Budget {
        let is_smq2 = matches!(self.destage, Destage::Idle(IdleChoice { era: IdleEra::Smq2, .. }));
        let wants_room = core::mem::take(&mut self.wants_room);
        if budget.runs == 0 && is_smq2 && wants_room {
            return Budget {
                look_again: budget.look_again,
                ..Budget::runs(1, HomeOrder::Policy(Urgency::Old))
            };
        }
        budget
    }

    /// The dirty slots of a set, by number; with `Fallow` only those that are fallow.
    fn dirty_of_set(&self, set: u32, order: HomeOrder) -> Vec<Frame> {
        let shape = self.table.shape();
        let slots = (0..shape.ways).map(|way| shape.frame(set, way));
        let is_chosen = |slot: &Frame| match &self.destage {
            Destage::Threshold(threshold) if order == HomeOrder::Set(set, OfSet::Fallow) => {
                threshold.is_fallow(*slot)
            }
            _ => self.table.is_dirty(*slot),
        };
        slots.filter(is_chosen).collect()
    }

    /// The next slot in replacement's order that can be destaged, with the slots that go along.
    fn next_home(
        &mut self,
        set: u32,
        urgency: Urgency,
        join: Join,
        volumes: &Volumes,
        now: Nanos,
    ) -> Option<(VolumeIndex, Blocks)> {
        let SlotStore { replacement, table, writing, records, written_home, layout, .. } = self;
        let slot_blocks = u64::from(layout.slot_blocks());
        let may_go = |slot: Frame| {
            !written_home.get(slot.0) && may_go(slot, table, writing, records, (volumes, slot_blocks), now)
        };
        let slot = replacement.next_home(set, urgency, may_go)?;
        self.run_of(slot, join, volumes, now)
    }

    /// A run of a slot and the slots that go along; `None` if the slot cannot be destaged now.
    fn run_of(
        &mut self,
        slot: Frame,
        join: Join,
        volumes: &Volumes,
        now: Nanos,
    ) -> Option<(VolumeIndex, Blocks)> {
        let piece = self.table.piece(slot)?;
        let volume = piece.volume();
        let unit = self.blocks_of(volumes.of(volume), piece);
        if !self.may_go_home(slot, volumes, now) {
            return None;
        }
        let blocks_max = match join {
            Join::Nothing | Join::Group { .. } => unit.count,
            Join::Neighbours { sectors_max } => u64::from(sectors_max) / SECTORS_PER_BLOCK,
            Join::NeighboursOfSet => RUN_BLOCKS_MAX,
        };
        let set = self.directory.set_of(piece);
        let joins = |m: &Self, block: u64| {
            let piece = m.piece_of(volumes.of(volume).key(block));
            let is_of_set = join != Join::NeighboursOfSet || m.directory.set_of(piece) == set;
            let slot = m.holding(piece).filter(|&slot| is_of_set && m.may_go_home(slot, volumes, now))?;
            m.table.is_dirty(slot).then(|| m.blocks_of(volumes.of(volume), piece))
        };
        let mut run = unit;
        while run.first > 0 && run.count < blocks_max.min(RUN_BLOCKS_MAX) {
            let Some(before) = joins(self, run.first - 1) else { break };
            run = Blocks { first: before.first, count: run.count + before.count };
        }
        let end = volumes.of(volume).blocks();
        while run.end() < end && run.count < blocks_max.min(RUN_BLOCKS_MAX) {
            let Some(after) = joins(self, run.end()) else { break };
            run.count += after.count;
        }
        Some((volume, run))
    }

    fn may_go_home(&self, slot: Frame, volumes: &Volumes, now: Nanos) -> bool {
        let SlotStore { table, writing, records, written_home, .. } = self;
        !written_home.get(slot.0) && may_go(slot, table, writing, records, (volumes, self.slot_blocks()), now)
    }

    /// Whether a slot is dirty that may go home some day: those with lost blocks wait for clients.
    fn has_dirty_to_send(&self) -> bool {
        let mut lost: Vec<PieceKey> = self.lost.iter().map(|key| self.piece_of(*key)).collect();
        lost.dedup();
        self.table.dirty() > to_u32(lost.len())
    }

    /// Tells the controller that a slot became dirty or was written home.
    pub(super) fn tell_dirty(&mut self, slot: Frame, is_dirty: bool, now: Nanos, under_way: usize) {
        if self.destage.is_sweep() {
            return;
        }
        let set = self.table.shape().set_of(slot);
        let pressure = Pressure { now, requests: to_u32(under_way), ..Pressure::default() };
        self.destage.set_dirty(slot, set, is_dirty, &pressure);
        if is_dirty {
            self.destage.touched(set);
        }
    }

    /// Notes that slots are about to be read for a destage.
    pub(super) fn home_begins(&mut self, volume: VolumeIndex, slots: &[Frame], now: Nanos) {
        let sectors = wide(slots.len()) * self.layout.slot_bytes() / BLOCK_BYTES * SECTORS_PER_BLOCK;
        self.destage.started(volume, slots, sectors, now);
    }

    /// Notes that the destage of a slot has ended.
    pub(super) fn home_ended(&mut self, slot: Frame, is_written: bool, now: Nanos, under_way: usize) {
        // With `safe` a slot is destaged no second time before the origin's flush confirmed the first.
        let is_unflushed = is_written && self.table.is_dirty(slot);
        self.written_home.put(slot.0, is_unflushed);
        if is_written && !self.table.is_rewritten(slot) {
            self.tell_dirty(slot, false, now, under_way);
        }
        self.destage.ended(slot);
        self.ask_again = Nanos(0);
        let set = self.table.shape().set_of(slot);
        if let Some(cleaning) = self.cleaning.as_mut().filter(|cleaning| cleaning.set == set) {
            cleaning.runs = cleaning.runs.saturating_sub(1);
            self.end_cleaning(now);
        }
    }

    fn end_cleaning(&mut self, now: Nanos) {
        if let Some(cleaning) = self.cleaning.filter(|cleaning| cleaning.runs == 0) {
            self.cleaning = None;
            if cleaning.is_unrecorded {
                self.record_cleaned(cleaning.set);
            }
            self.destage.set_ended(now);
            self.is_released = true;
        }
    }

    /// Whether a request has to wait because a set that it uses is being cleaned.
    pub(super) fn is_set_locked(&self, key: RequestKey, requests: &Requests) -> bool {
        let Some(cleaning) = self.cleaning else { return false };
        let active = &requests[key];
        let mut pieces = self.pieces(active.volume, active.blocks);
        pieces.any(|piece| self.directory.set_of(piece) == cleaning.set)
    }

    /// Slots that counted as written home may be lost there: they are dirty again.
    pub(super) fn tell_all_dirty(&mut self, volume: VolumeIndex, now: Nanos, under_way: usize) {
        let slots: Vec<Frame> = self.all_slots().collect();
        for slot in slots {
            let is_of_volume = self.table.piece(slot).is_some_and(|piece| piece.volume() == volume);
            if is_of_volume && self.table.is_dirty(slot) {
                self.written_home.put(slot.0, false);
                self.tell_dirty(slot, true, now, under_way);
            }
        }
    }
}

impl Machine<SlotStore> {
    /// Starts the runs that the controller allows.
    pub(super) fn pump_controller<M: Memory>(&mut self, memory: &mut M) {
        let is_over = self.latched.is_some() || self.is_stopping || self.superblock.clean_stop;
        if is_over || self.store.destage.is_sweep() {
            return;
        }
        if self.store.destage.is_by_volume() {
            for at in 0..self.volumes.end() {
                if self.volumes[at].is_some() {
                    self.ask_controller(VolumeIndex(to_u8(at)), memory);
                }
            }
        } else {
            self.ask_controller(VolumeIndex(0), memory);
        }
    }

    fn ask_controller<M: Memory>(&mut self, volume: VolumeIndex, memory: &mut M) {
        if !self.store.has_dirty_to_send() || self.now < self.store.ask_again {
            return;
        }
        let is_at_work = |volume: &Volume| volume.is_dirty() && !self.rests(volume);
        let is_by_volume = self.store.destage.is_by_volume();
        let mut asked = self.volumes.iter().flatten().filter(|of| !is_by_volume || of.index == volume);
        if !asked.any(is_at_work) {
            return;
        }
        // A budget that starts something changes the next one; one that starts nothing ends the row.
        loop {
            let pressure = self.home_pressure(volume);
            let Some(budget) = self.store.destage.budget(volume, &pressure) else { return };
            let budget = self.store.with_demotion(budget);
            if let Some(at) = budget.look_again.filter(|&at| at > self.now) {
                self.want_tick(at);
            }
            if budget.runs == 0 {
                return;
            }
            let started = self.start_homes(volume, budget, memory);
            if let HomeOrder::Set(set, _) = budget.order
                && matches!(self.store.destage, Destage::ThresholdSets { .. })
            {
                self.store.cleaning = Some(Cleaning { set, runs: started, is_unrecorded: false });
                self.store.end_cleaning(self.now);
            }
            if started == 0 {
                self.store.destage.found_nothing(volume, self.now);
                if !matches!(budget.order, HomeOrder::Set(..)) {
                    self.store.ask_again = self.now.plus(LOOK_AGAIN_NS);
                    self.want_tick(self.store.ask_again);
                    return;
                }
            }
        }
    }

    /// Starts the runs of a budget as far as there are any; returns their number.
    fn start_homes<M: Memory>(&mut self, volume: VolumeIndex, budget: Budget, memory: &mut M) -> u32 {
        let mut of_set = match budget.order {
            HomeOrder::Set(set, OfSet::All | OfSet::Fallow) => self.store.dirty_of_set(set, budget.order),
            _ => Vec::new(),
        };
        of_set.reverse();
        let mut started = 0;
        while started < budget.runs {
            let run = match budget.order {
                HomeOrder::Address => self.choice(volume).sweep().map(|blocks| (volume, blocks)),
                HomeOrder::Set(_, OfSet::All | OfSet::Fallow) => {
                    let Some(slot) = of_set.pop() else { break };
                    let Some(run) = self.store.run_of(slot, budget.join, &self.volumes, self.now) else {
                        continue;
                    };
                    Some(run)
                }
                HomeOrder::Set(set, OfSet::InOrder) => {
                    self.store.next_home(set, Urgency::All, budget.join, &self.volumes, self.now)
                }
                HomeOrder::Policy(urgency) => {
                    self.store.next_home(0, urgency, budget.join, &self.volumes, self.now)
                }
            };
            let Some((volume, blocks)) = run else { break };
            if !self.send_run(volume, blocks, memory) {
                break;
            }
            started += 1;
        }
        started
    }

    /// The facts that the controller decides on.
    fn home_pressure(&self, volume: VolumeIndex) -> Pressure {
        let shape = self.store.table.shape();
        let frame_sectors = self.store.layout.slot_blocks() * to_u32(SECTORS_PER_BLOCK);
        let volume_now = self.volumes[volume.at()].as_ref();
        let volumes = || self.volumes.iter().flatten();
        let runs = to_u32(self.runs.len());
        Pressure {
            now: self.now,
            last_origin: self.store.last_origin,
            dirty_sectors: volume_now.map_or(0, |volume| volume.dirty_blocks * SECTORS_PER_BLOCK),
            cache_sectors: u64::from(shape.frames) * u64::from(frame_sectors),
            origin_sectors: volume_now.map_or(0, |volume| volume.size_sectors),
            origins_sectors: volumes().map(|volume| volume.size_sectors).sum(),
            frames: shape.frames,
            clean_frames: shape.frames - self.store.table.dirty(),
            frame_sectors,
            in_use_percent: 0,
            busy_buckets: 0,
            copies: to_u32(self.store.promotions.len()) + runs,
            runs,
            requests: to_u32(self.requests.len()),
            origin_reads: volumes().map(|volume| volume.origin.client_reads).sum(),
            is_memory_full: false,
            wants_room: self.store.wants_room,
            is_draining: false,
        }
    }
}

/// The shortage of free and clean slots, but for requests that wait for one.
pub(super) fn shortage(table: &SlotTable) -> Shortage {
    let held_permille = u64::from(table.dirty()) * 1000 / u64::from(table.shape().frames);
    Shortage {
        held_permille,
        blocks: u64::from(table.shape().frames) * u64::from(table.slot_blocks()),
        extents: 0,
        is_short: held_permille > 500,
        is_waited_for: false,
        has_waiting: false,
    }
}

/// Whether a slot can be destaged: dirty, recorded, not in use, and its origin works.
fn may_go(
    slot: Frame,
    table: &SlotTable,
    writing: &KeyMap,
    records: &Records,
    (volumes, slot_blocks): (&Volumes, u64),
    now: Nanos,
) -> bool {
    let is_ready = table.state(slot) == SlotState::Valid
        && table.is_dirty(slot)
        && !table.is_lost(slot)
        && writing.get(u64::from(slot.0)).is_none()
        && records.is_written(slot);
    let Some(piece) = table.piece(slot).filter(|_| is_ready) else { return false };
    let Some(volume) = &volumes[piece.volume().at()] else { return false };
    let first = piece.piece() * slot_blocks;
    let blocks = Blocks { first, count: slot_blocks.min(volume.blocks().saturating_sub(first)) };
    let is_held_back =
        volume.is_held_back(shortage(table), now) && !volume.needs_destage(shortage(table), usize::MAX);
    volume.standing == Standing::Cached
        && !is_held_back
        && !volume.origin.is_failing()
        && now >= volume.origin.backoff_until
        && volume.guard.allows_home(blocks)
}
