//! Destage of a log by the controller that its composition names: bcache's rate, gflash's filling and forced modes.
//!
//! Urgent work remains the sweep's ([`crate::machine::destage`]): drains, volumes that leave writeback, origins that
//! fail, clients that wait for room that only a destage can make.
//!
//! Dirty extents are found in one go, up to 500 of them in the order of the origin, and written home before the next
//! look; after a look at the whole volume bcache rests. Blocks that became dirty meanwhile wait for the next look.
//!
//! Source: bcache's `refill_dirty` and `read_dirty` (read).

use super::LogStore;
use super::appender::DirtyUnits;
use super::segments::Segments;
use crate::composition::Composition;
use crate::effect::WriteMode;
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::volume::Standing;
use crate::memory::Memory;
use crate::number::{to_u32, wide};
use crate::policies::controllers::{Budget, Destage, Join, Pressure};
use crate::policies::replacement::Shape;
use crate::store::{Destaging, Lookup, Readiness};
use crate::units::{BLOCK_BYTES, Nanos, SECTORS_PER_BLOCK, VOLUMES_MAX, VolumeIndex};
use alloc::collections::VecDeque;

/// Extents found in one go at the most.
///
/// Source: bcache's `KEYBUF_NR`.
const FOUND_MAX: usize = 500;
/// Blocks of an extent at the most: 256 KiB.
const EXTENT_BLOCKS_MAX: u64 = 64;
/// Regions looked at in one go at the most.
const REGIONS_MAX: u32 = 4096;
/// How long a volume of which nothing could be started is left alone.
const LOOK_AGAIN_NS: u64 = 2 * Nanos::MILLISECOND;

/// Dirty extents that were found and are to go home, in the order of the origin.
#[derive(Debug, Default)]
struct Found {
    extents: VecDeque<Blocks>,
    /// Where the next look begins.
    cursor: u64,
    /// Where this round of looks began; none between two rounds.
    began: Option<u64>,
    /// Whether the round has come to the end of the volume, and goes on from its beginning.
    has_wrapped: bool,
    /// Whether the round has come back to where it began.
    is_round: bool,
    /// The end of the run that was started last.
    last_end: u64,
    look_again: Nanos,
}

/// The controller of a log, and the dirty extents that were found for it.
#[derive(Debug)]
pub(crate) struct Controller {
    pub destage: Destage,
    found: [Found; VOLUMES_MAX],
}

impl Controller {
    pub fn new(composition: &Composition, segments: &Segments) -> Controller {
        let shape = Shape::whole(segments.count());
        let segment_bytes = segments.segment_blocks() * to_u32(BLOCK_BYTES);
        let destage = Destage::new(&composition.destage, shape, segment_bytes);
        Controller { destage, found: Default::default() }
    }

    /// Forgets what was found of a volume: another one comes to its place.
    pub fn volume_comes(&mut self, volume: VolumeIndex) {
        self.found[volume.at()] = Found::default();
    }
}

impl Machine<LogStore> {
    /// Starts what the controller allows.
    #[inline]
    pub(super) fn pump_controller<M: Memory>(&mut self, memory: &mut M) {
        if !self.store.controller.destage.is_sweep() {
            self.ask_controller(memory);
        }
    }

    fn ask_controller<M: Memory>(&mut self, memory: &mut M) {
        let is_over = self.latched.is_some() || self.superblock.clean_stop || self.is_stopping;
        if is_over {
            return;
        }
        for at in 0..self.volumes.end() {
            let now = self.now;
            let Some(volume) = &self.volumes[at] else { continue };
            let is_its_affair = volume.mode == WriteMode::Writeback
                && volume.standing == Standing::Cached
                && volume.destage.drains == 0
                && !self.rests(volume)
                && !volume.origin.is_failing()
                && now >= volume.origin.backoff_until;
            let index = volume.index;
            if !is_its_affair || now < self.store.controller.found[at].look_again {
                continue;
            }
            let pressure = self.controller_pressure(index);
            let Some(budget) = self.store.controller.destage.budget(index, &pressure) else { return };
            // Without anything dirty there is nothing to come back for.
            if pressure.dirty_sectors > 0 {
                if let Some(again) = budget.look_again {
                    self.want_tick(again);
                }
                self.start_budget(index, &budget, memory);
            }
        }
    }

    /// Starts runs, as many as a budget has.
    fn start_budget<M: Memory>(&mut self, index: VolumeIndex, budget: &Budget, memory: &mut M) {
        let now = self.now;
        let (mut runs, mut sectors) = (0, 0);
        while runs < budget.runs.max(budget.continuing) {
            let Some(blocks) = self.next_extent(index) else { break };
            let found = &mut self.store.controller.found[index.at()];
            let is_next = found.last_end == blocks.first;
            let may_join = match budget.join {
                Join::Group { sectors_enough, .. } => {
                    runs == 0 || (is_next && sectors < u64::from(sectors_enough))
                }
                _ => true,
            };
            if !may_join || (runs >= budget.runs && !is_next) || !self.send_run(index, blocks, memory) {
                break;
            }
            let found = &mut self.store.controller.found[index.at()];
            found.extents.pop_front();
            found.last_end = blocks.end();
            runs += 1;
            sectors += blocks.count * SECTORS_PER_BLOCK;
        }
        let controller = &mut self.store.controller;
        if runs > 0 {
            controller.destage.started(index, &[], sectors, now);
        } else if budget.runs > 0 {
            controller.found[index.at()].look_again = now.plus(LOOK_AGAIN_NS);
            self.want_tick(now.plus(LOOK_AGAIN_NS));
        }
        let controller = &mut self.store.controller;
        let found = &mut controller.found[index.at()];
        if found.extents.is_empty() && found.is_round {
            (found.began, found.has_wrapped, found.is_round) = (None, false, false);
            controller.destage.found_nothing(index, now);
        }
    }

    /// The next dirty extent that can go home; it stays the first of those that were found.
    fn next_extent(&mut self, index: VolumeIndex) -> Option<Blocks> {
        loop {
            let found = &mut self.store.controller.found[index.at()];
            let Some(&blocks) = found.extents.front() else {
                if found.is_round || !self.look_for_extents(index) {
                    return None;
                }
                continue;
            };
            let mut choice = self.choice(index);
            let ready = (blocks.first..blocks.end())
                .take_while(|&block| choice.can_destage(Blocks { first: block, count: 1 }));
            let count = wide(ready.count());
            if count > 0 {
                return Some(Blocks { first: blocks.first, count });
            }
            let key = self.volume(index).key(blocks.first);
            let dirty = self.store.lookup(key).filter(|cached| cached.dirty);
            if dirty.is_some_and(|dirty| self.store.readiness(&dirty) == Readiness::Unflushed) {
                // Its flush is asked for.
                return None;
            }
            // It went home, was changed, or somebody is busy with it: the next look finds it again.
            let found = &mut self.store.controller.found[index.at()];
            let first = found.extents.front_mut().expect("just seen");
            first.first += 1;
            first.count -= 1;
            if first.count == 0 {
                found.extents.pop_front();
            }
        }
    }

    /// Looks for dirty extents from where the last look ended. False if there are none.
    fn look_for_extents(&mut self, index: VolumeIndex) -> bool {
        let end = self.volume(index).blocks();
        let LogStore { controller, index: cached, .. } = &mut self.store;
        let found = &mut controller.found[index.at()];
        let began = *found.began.get_or_insert(found.cursor);
        let volume = self.volumes[index.at()].as_mut().expect("it is dirty");
        let mut at = found.cursor;
        for _ in 0..REGIONS_MAX {
            let next = volume.destage.map.next(at).filter(|&block| block < end);
            let next = next.filter(|&block| !found.has_wrapped || block < began);
            let Some(block) = next else {
                if found.has_wrapped || began == 0 {
                    found.is_round = true;
                    at = began;
                    break;
                }
                (found.has_wrapped, at) = (true, 0);
                continue;
            };
            let (first, region_end) = volume.destage.map.region_of(block);
            let mut is_clean = true;
            for candidate in first..region_end.min(end) {
                if cached.get(volume.key(candidate)).is_none_or(|entry| !entry.dirty) {
                    continue;
                }
                is_clean = false;
                if candidate < block {
                    continue;
                }
                match found.extents.back_mut() {
                    Some(last) if last.end() == candidate && last.count < EXTENT_BLOCKS_MAX => {
                        last.count += 1
                    }
                    _ => found.extents.push_back(Blocks { first: candidate, count: 1 }),
                }
            }
            if is_clean {
                volume.destage.map.clear_region_of(block);
            }
            at = region_end;
            if found.extents.len() >= FOUND_MAX {
                break;
            }
        }
        // It may be the end of the volume: the round does not begin anew there.
        found.cursor = at;
        !found.extents.is_empty()
    }

    fn controller_pressure(&self, index: VolumeIndex) -> Pressure {
        let volume = self.volume(index);
        let DirtyUnits { count: frames, dirty: dirty_frames, unit_blocks, in_use_percent } =
            self.store.appender.dirty_units(&self.store.segments);
        let sectors = |volume: &crate::machine::volume::Volume| volume.size_sectors;
        let frame_sectors = unit_blocks * to_u32(SECTORS_PER_BLOCK);
        Pressure {
            now: self.now,
            last_origin: self.last_client,
            dirty_sectors: volume.dirty_blocks * SECTORS_PER_BLOCK,
            cache_sectors: u64::from(frames) * u64::from(frame_sectors),
            origin_sectors: sectors(volume),
            origins_sectors: self.volumes.iter().flatten().map(sectors).sum(),
            frames,
            clean_frames: frames - dirty_frames.min(frames),
            frame_sectors,
            in_use_percent,
            busy_buckets: dirty_frames,
            copies: volume.destage.in_flight,
            runs: volume.destage.in_flight,
            requests: to_u32(self.requests.len()),
            origin_reads: volume.origin.client_reads,
            is_memory_full: LogStore::pressure(self).is_short,
            wants_room: LogStore::pressure(self).is_short,
            is_draining: false,
        }
    }
}
