//! Reclaim: the oldest segments are emptied so that the log can go on.
//!
//! A segment's summary lists the blocks that were written to it; the index tells which of them still count. Dirty
//! blocks go home first (or, where an origin fails or has clients to serve, are appended again: rule 9). Blocks that were hit are appended again
//! as far as the composition's policy says ([`fifo_reinsertion`](crate::policies::replacement::fifo_reinsertion)), and all that
//! lives while little does ([`sparse`](crate::store::log::sparse)), before
//! them what a volume has up to its minimum ([`room`](crate::machine::room)), and the others are left. Segments are
//! emptied strictly in order; the next few are listed ahead, so that their dirty blocks go home in one sweep.
//!
//! Segments of which nothing is left are emptied earlier, while there is room: who writes over the same blocks does not wait for
//! the flush that frees them.
//!
//! What is left in an emptied segment is void after a crash, and still there until the log writes over it. So it can be read
//! until then, and room that is kept free holds what was cached last.

use crate::composition::Composition;
use crate::effect::Errno;
use crate::format::{Summary, payload_runs};
use crate::limits::SEGMENT_OVERHEAD_BLOCKS;
use crate::machine::guard::Blocks;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{index, to_u32, wide};
use crate::policies::replacement::ReplacementChoice;
use crate::policies::replacement::fifo_reinsertion::{FifoReinsertion, Reinsertion};
use crate::store::Lookup;
use crate::store::log::extents::{Extent, ExtentKind};
use crate::store::log::frames::Move;
use crate::store::log::keys::KeyAppend;
use crate::store::log::once::is_void;
use crate::store::log::room::RELOCATION_SEGMENTS;
use crate::store::log::segments::SegmentState;
use crate::store::log::staying::Staying;
use crate::store::log::{InternalAppend, LogFlight, LogStore};
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, SECTORS_PER_BLOCK, VOLUMES_MAX};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Blocks of one read of what stays: 256 KiB.
const KEEP_READ_BLOCKS: u32 = 64;
/// Blocks being appended again at the same time at the most: 8 MiB.
const RELOCATING_BLOCKS_MAX: u32 = 2048;
/// Segments that the log can open at once, while others linger.
const SPARE_MIN: u32 = 3;
/// A round of the log takes a hit away if at least one block was hit in it for so many of the ring.
const HIT_ONE_IN: u64 = 8;
/// The dirty blocks of the oldest segment come first when they are at most one in so many.
const LAST_ONE_IN: u32 = 16;
/// Segments of which nothing is left are emptied while less than one in so many of the ring is free.
const AHEAD_ONE_IN: u32 = 8;
/// How often they are put first.
const HURRY_AGAIN_NS: u64 = 100 * Nanos::MILLISECOND;
/// How often a segment that waits for its dirty blocks is looked at again.
const LOOK_AGAIN_NS: u64 = 5 * Nanos::MILLISECOND;

/// A block that is appended again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    key: BlockKey,
    pub place: Place,
    pub checksum: u32,
}

#[derive(Debug)]
enum Stage {
    Reading,
    /// The blocks that were live when the summary was read, by place.
    Listed(Vec<(BlockKey, Place)>),
}

#[derive(Debug)]
struct Reclaiming {
    segment: u32,
    stage: Stage,
    /// Blocks of it that were appended again.
    kept_blocks: u32,
    /// Blocks among them that nobody had hit: they stay for their volume's minimum, or in a sparse ring.
    held_blocks: u32,
    /// Up to which entry of the list hits were looked at.
    kept_until: usize,
    /// Runs of its keys that are appended again, and not published yet.
    rekeying: u32,
    look_again: Nanos,
    /// When its last dirty blocks are put first again.
    hurry_again: Nanos,
}

/// The segments being emptied, oldest first.
#[derive(Debug)]
pub(crate) struct Reclaim {
    /// Which blocks of an emptied segment stay.
    pub policy: FifoReinsertion,
    active: VecDeque<Reclaiming>,
    /// Nothing but the ring takes steps of its own in this store.
    is_alone: bool,
    /// The last step left nothing to be done in the store.
    is_at_rest: bool,
    /// The log's end when the index was last looked at.
    seen_sequence: u64,
    /// The flushed end of the log when emptied segments were last looked at.
    seen_flushed: u64,
    /// Whether the index was near its budget then.
    is_tight: bool,
    /// Blocks that are being appended again.
    relocating_blocks: u32,
    /// Reads of such blocks under way.
    relocate_reads: u32,
    /// Emptied segments that are read on, oldest first, with the blocks that were left in them.
    left: VecDeque<(u32, Vec<BlockKey>)>,
    /// Blocks that were read. They are appended when all are there: in few batches, as densely as they lay before, or a long
    /// row of segments that are full of it would take more room than it gives back.
    gathered: Vec<InternalAppend>,
}

impl Reclaim {
    pub fn new(composition: &Composition, is_alone: bool) -> Reclaim {
        let reinsertion = match composition.replacement {
            ReplacementChoice::FifoReinsertion(reinsertion) => reinsertion,
            // Buckets are given up by a policy of their own.
            _ => Reinsertion::NONE,
        };
        Reclaim {
            policy: FifoReinsertion::new(reinsertion),
            active: VecDeque::new(),
            is_alone,
            is_at_rest: false,
            seen_sequence: 0,
            seen_flushed: 0,
            is_tight: false,
            relocating_blocks: 0,
            relocate_reads: 0,
            left: VecDeque::new(),
            gathered: Vec::new(),
        }
    }

    /// Whether the last step left nothing to be done in the store.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    pub fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Blocks that were being appended again are, or were given up.
    pub fn relocated(&mut self, bytes: u32) {
        let blocks = bytes / to_u32(BLOCK_BYTES);
        assert!(self.relocating_blocks >= blocks, "only blocks that are being appended again arrive");
        self.relocating_blocks -= blocks;
    }

    /// Blocks that are being appended again.
    pub fn relocating_blocks(&self) -> u32 {
        self.relocating_blocks
    }

    pub fn is_relocating(&self) -> bool {
        self.relocating_blocks > 0
    }
}

impl Machine<LogStore> {
    /// Starts and advances reclaim, if free segments or index memory run low.
    #[inline]
    pub(crate) fn pump_reclaim<M: Memory>(&mut self, memory: &mut M) {
        if !self.is_room_enough() {
            self.make_room_in_ring(memory);
        }
    }

    /// Whether there is room in the ring, and nothing new that might make it short.
    #[inline]
    fn is_room_enough(&self) -> bool {
        let LogStore { segments, reclaim, log, flood, .. } = &self.store;
        reclaim.active.is_empty()
            && !reclaim.is_tight
            && reclaim.seen_sequence == log.published()
            && flood.is_at_rest(segments.free())
            && (!segments.has_emptied() || reclaim.seen_flushed == self.barrier.flushed)
            && (segments.spare() >= SPARE_MIN || segments.lingers().is_none())
    }

    #[inline(never)]
    fn make_room_in_ring<M: Memory>(&mut self, memory: &mut M) {
        self.take_step_in_ring(memory);
        // If that changes, the look that finds it takes the first step; from then on there is one after each call.
        self.store.reclaim.is_at_rest = self.store.reclaim.is_alone && self.is_room_enough();
    }

    fn take_step_in_ring<M: Memory>(&mut self, memory: &mut M) {
        if self.latched.is_some() || self.superblock.clean_stop {
            return;
        }
        if self.store.segments.has_emptied() {
            // Somebody may have read the tail when the flush came that would have freed it.
            self.store.segments.free_flushed(self.barrier.flushed);
        }
        self.store.reclaim.seen_flushed = self.barrier.flushed;
        self.look_at_room();
        let low = self.store.flood.low();
        let is_low = self.store.segments.free() < low;
        if is_low && self.store.segments.has_emptied() {
            self.want_floor();
        }
        if self.store.reclaim.seen_sequence != self.store.log.published() || self.store.reclaim.is_tight {
            self.store.reclaim.seen_sequence = self.store.log.published();
            // RULE 15: an index near its budget reclaims the tail early.
            self.store.reclaim.is_tight = self.store.index.is_near_budget(self.config.index_slack_blocks)
                && !self.is_mutated(Mutation::IndexOverBudget);
        }
        // A device may take long to flush. Segments that only wait for that are room to come, and the others keep what they have.
        let to_come = self.store.segments.free() + self.store.segments.emptied();
        let is_short = is_low && to_come < low + self.config.segments_low;
        let is_needed = is_short || self.store.reclaim.is_tight || self.is_tail_left_behind(to_come);
        if self.store.reclaim.is_tight {
            while !self.store.reclaim.left.is_empty() {
                self.drop_left();
            }
        }
        self.release_lingering();
        if is_needed
            && self.store.reclaim.active.len() < index(self.store.flood.sweep())
            && self.may_empty_tail()
        {
            self.start_reclaim(memory);
        }
        if !self.store.reclaim.active.is_empty() {
            self.advance_reclaim(memory);
        }
    }

    /// Whether nothing that counts is left in the oldest segment that is not being emptied, while there is not much room and
    /// not twice as much to come. To empty it early costs nobody what he has, and a device may take long for the flush that frees
    /// it. With a few dirty blocks it waits: clients may yet write over them.
    fn is_tail_left_behind(&self, to_come: u32) -> bool {
        let LogStore { segments, reclaim, appender, .. } = &self.store;
        let (ahead, low) = (self.ahead(), self.store.flood.low());
        if !appender.weighs_rounds() || segments.free() >= low + ahead || to_come >= low + 2 * ahead {
            return false;
        }
        // Long writes that nobody reads had better go around.
        if self.volumes.iter().flatten().any(|volume| volume.destage.is_overrun()) {
            return false;
        }
        let is_emptied = |at: u32| matches!(segments.get(at).state, SegmentState::Emptied(_));
        let next = segments.ring().filter(|&at| !is_emptied(at)).nth(reclaim.active.len());
        next.map(|at| segments.get(at)).is_some_and(|segment| segment.live == 0 && segment.must == 0)
    }

    /// Segments beyond those that are kept free, if they cost nothing.
    fn ahead(&self) -> u32 {
        self.store.segments.count() / AHEAD_ONE_IN
    }

    fn start_reclaim<M: Memory>(&mut self, memory: &mut M) {
        let next = self
            .store
            .segments
            .ring()
            .filter(|&at| !matches!(self.store.segments.get(at).state, SegmentState::Emptied(_)))
            .nth(self.store.reclaim.active.len());
        let Some(at) = next.filter(|&at| self.is_settled(at)) else { return };
        if !self.read_summary(at, memory) {
            return;
        }
        self.store.reclaim.active.push_back(Reclaiming {
            segment: at,
            stage: Stage::Reading,
            kept_blocks: 0,
            held_blocks: 0,
            kept_until: 0,
            rekeying: 0,
            look_again: Nanos(0),
            hurry_again: Nanos(0),
        });
    }

    /// Lists the blocks that are live in a segment, by its summary.
    pub(super) fn list_segment(&mut self, segment: u32, summary: Option<Summary>) {
        // HAZARD 5: keys that still hold are appended again before their segment is reused. Without its summary nobody
        // knows them; after a crash their blocks are not cached then.
        let rekeys = match &summary {
            Some(summary) if self.store.appender.has_frames() => self.live_keys(summary),
            _ => Vec::new(),
        };
        // Without a summary that lists them all they are found in the index, which takes longer.
        let listed = summary.and_then(|summary| self.live_blocks(segment, &summary)).unwrap_or_else(|| {
            let mut blocks = Vec::new();
            self.store.index.for_each(|key, entry| {
                if self.store.segments.of(entry.place) == segment {
                    blocks.push((key, entry.place));
                }
            });
            blocks.sort_unstable_by_key(|&(_, place)| place);
            blocks
        });
        let active = self.store.reclaim.active.iter_mut().find(|active| active.segment == segment);
        if let Some(active) = active {
            active.stage = Stage::Listed(listed);
            active.rekeying = to_u32(wide(rekeys.len()));
            for (first, blocks, place) in rekeys {
                let rekey = KeyAppend::Rekey { segment, first, blocks, place };
                self.store.log.push_internal(InternalAppend::Keys(rekey));
            }
        }
    }

    /// A run of keys of a segment is published again, or needs not be.
    pub(super) fn segment_rekeyed(&mut self, segment: u32) {
        let active = self.store.reclaim.active.iter_mut().find(|active| active.segment == segment);
        if let Some(active) = active {
            assert!(active.rekeying > 0, "a run is published once");
            active.rekeying -= 1;
        }
        // The last one may have needed no batch, and nothing else need be to come.
        self.want_tick(self.now.plus(self.config.tick_ns));
    }

    fn live_blocks(&self, segment: u32, summary: &Summary) -> Option<Vec<(BlockKey, Place)>> {
        let mut blocks = Vec::with_capacity(index(self.store.segments.get(segment).live));
        for batch in &summary.batches {
            for (at, run) in payload_runs(&batch.entries) {
                let entry = &batch.entries[at];
                let Some(volume) = self.volumes.iter().flatten().find(|volume| volume.id == entry.volume)
                else {
                    continue;
                };
                let first = entry.start_sector / SECTORS_PER_BLOCK;
                for step in 0..run.blocks {
                    let place = self.store.segments.place(segment, batch.payload_block + run.at + step);
                    let place = run.half.map_or(place, |half| place.of_half(half));
                    let key = volume.key(first + u64::from(run.skip + step));
                    if self.store.index.get(key).is_some_and(|entry| entry.place == place) {
                        blocks.push((key, place));
                    }
                }
            }
        }
        // HAZARD 15: a checkpoint may tell of blocks that no batch of the segment has.
        (blocks.len() == index(self.store.segments.get(segment).live)).then_some(blocks)
    }

    fn advance_reclaim<M: Memory>(&mut self, memory: &mut M) {
        let now = self.now;
        let mut urgent: [Vec<u64>; VOLUMES_MAX] = Default::default();
        // A volume that still has such blocks on its list gets no other ones; looking them up costs more than all
        // else here.
        let is_asked: [bool; VOLUMES_MAX] = core::array::from_fn(|at| {
            // In strict order the oldest goes home first anyway.
            self.volumes[at]
                .as_ref()
                .is_some_and(|volume| !volume.destage.has_urgent() && !volume.is_ordered())
        });
        let staying = self.staying();
        let mut is_urgent = false;
        for at in 0..self.store.reclaim.active.len() {
            let active = &mut self.store.reclaim.active[at];
            let segment = active.segment;
            if now < active.look_again || self.store.segments.get(segment).must == 0 {
                continue;
            }
            let Stage::Listed(list) = &active.stage else { continue };
            active.look_again = now.plus(LOOK_AGAIN_NS);
            is_urgent = true;
            let stays = staying.in_segment(self.store.segments.get(segment));
            let goes_home = |at: usize| is_asked[at] && !stays(at);
            if !(0..VOLUMES_MAX).any(goes_home) {
                continue;
            }
            for &(key, place) in list.iter().filter(|(key, _)| goes_home(key.volume().at())) {
                if self.store.index.get(key).is_some_and(|entry| entry.place == place && entry.dirty) {
                    urgent[key.volume().at()].push(key.block());
                }
            }
        }
        if is_urgent {
            for (at, blocks) in urgent.into_iter().enumerate() {
                if let Some(volume) = &mut self.volumes[at]
                    && !blocks.is_empty()
                {
                    volume.destage.set_urgent(blocks);
                }
            }
            self.hurry_last(&staying);
            if let Some(first) = self.store.reclaim.active.front() {
                self.move_extents(first.segment);
            }
            self.move_dirty(&staying, memory);
            self.want_tick(now.plus(LOOK_AGAIN_NS));
        }
        while let Some(first) = self.store.reclaim.active.front() {
            let segment = first.segment;
            let is_listed = matches!(first.stage, Stage::Listed(_));
            // HAZARD 5: a segment with dirty blocks is not emptied: it has their only copy.
            let must_stay = self.store.segments.get(segment).must > 0
                && !(self.is_mutated(Mutation::EmptyWithoutDestage) && self.store.extents.is_empty());
            if !is_listed || must_stay || first.rekeying > 0 {
                return;
            }
            // What is moved out of the segments behind it must not hold up one that has nothing left.
            if self.store.segments.get(segment).live > 0 && !self.keep_hits(memory) {
                return;
            }
            self.empty_first();
        }
    }

    /// Has the last dirty blocks of the oldest segment go home before all others. Clients were busy with them when their turn
    /// came, and the segment would wait for the end of the sweep.
    fn hurry_last(&mut self, staying: &Staying) {
        let LogStore { reclaim, segments, index, .. } = &mut self.store;
        let Some(first) = reclaim.active.front_mut() else { return };
        let (segment, Stage::Listed(list)) = (segments.get(first.segment), &first.stage) else { return };
        if segment.must == 0
            || segment.must > segments.segment_blocks() / LAST_ONE_IN
            || self.now < first.hurry_again
        {
            return;
        }
        first.hurry_again = self.now.plus(HURRY_AGAIN_NS);
        let stays = staying.in_segment(segment);
        for (at, volume) in self.volumes.iter_mut().enumerate() {
            let Some(volume) = volume.as_mut().filter(|volume| volume.destage.has_urgent() && !stays(at))
            else {
                continue;
            };
            let is_dirty = |&(key, place): &(BlockKey, Place)| {
                key.volume().at() == at
                    && index.get(key).is_some_and(|entry| entry.place == place && entry.dirty)
            };
            let blocks = list.iter().copied().filter(is_dirty).map(|(key, _)| key.block()).collect();
            volume.destage.put_first(blocks);
        }
    }

    /// Extents recorded in a segment are recorded again: 32 bytes each.
    pub(crate) fn move_extents(&mut self, segment: u32) {
        let is_off = self.is_mutated(Mutation::ExtentsNotMoved);
        if self.store.extents.is_empty() || self.store.log.has_extents_pending() || is_off {
            return;
        }
        let here: Vec<Extent> = self
            .store
            .extents
            .iter()
            .filter(|extent| self.store.segments.of(extent.place) == segment)
            // Zeroes that go home in strict order stay in their place in it.
            .filter(|extent| extent.kind == ExtentKind::Lost || self.config.order.is_none())
            .collect();
        for extent in here {
            self.store.log.push_internal(match extent.kind {
                ExtentKind::Zero => InternalAppend::Zero { extent },
                ExtentKind::Lost => {
                    let (from, life) = (extent.place, self.store.life(extent.place));
                    InternalAppend::Lost { first: extent.first, blocks: extent.blocks, from, life }
                }
            });
        }
    }

    /// RULE 9: dirty blocks of the oldest segments that stay in the log are appended again. So the ring goes on for the other
    /// volumes where an origin fails.
    fn move_dirty<M: Memory>(&mut self, staying: &Staying, memory: &mut M) {
        // In strict order nothing moves: its place in the log is its place in the order. There is no other volume then.
        if self.config.order.is_some()
            || !staying.any()
            || self.store.reclaim.is_relocating()
            || self.volumes.is_ring_stuck(&self.config)
            || self.is_mutated(Mutation::StuckNotMoved)
        {
            return;
        }
        // What was emptied by the last round is free first.
        let free = self.store.segments.free();
        if self.store.segments.has_emptied() && free <= self.config.segments_reserved {
            self.want_floor();
            return;
        }
        // What is moved now takes half of what is free, so that the header which frees the segments it came from has a place
        // for certain. The oldest segment is moved whole: half of it frees nothing. What lies behind that does not take the
        // room that is kept for it: where something else in the oldest segment is still to go home, moving the rest frees
        // nothing either, however often.
        let payload_blocks = self.store.segments.segment_blocks() - SEGMENT_OVERHEAD_BLOCKS;
        let is_in_part = self.is_mutated(Mutation::StuckMovedInPart);
        let spare = if is_in_part { free.max(2) } else { free.saturating_sub(RELOCATION_SEGMENTS) };
        let mut most = index(spare / 2 * payload_blocks);
        let mut moved = Vec::new();
        for (number, active) in self.store.reclaim.active.iter().enumerate() {
            let Stage::Listed(list) = &active.stage else { break };
            let stays = staying.in_segment(self.store.segments.get(active.segment));
            for &(key, place) in list.iter().filter(|(key, _)| stays(key.volume().at())) {
                let entry = self.store.index.get(key).filter(|entry| entry.place == place && entry.dirty);
                if let Some(entry) = entry {
                    moved.push(Kept { key, place, checksum: entry.checksum });
                }
            }
            if number == 0 {
                most = most.max(moved.len()).min(index(RELOCATING_BLOCKS_MAX));
            }
            if moved.len() >= most {
                break;
            }
        }
        moved.truncate(most);
        self.read_kept(moved, memory);
    }

    /// Whether enough was hit, while the log went round to a place, to tell what of it clients still want. Who copies reads much,
    /// and none of what is cached.
    pub(super) fn was_hit_meanwhile(&self, place: Place) -> bool {
        let LogStore { segments, appender, .. } = &self.store;
        // Counters of a volume that was taken off are gone.
        let before = segments.get(segments.of(place)).hits_before;
        let hit_blocks = self.volumes.hit_blocks().saturating_sub(before);
        !appender.weighs_rounds() || hit_blocks * HIT_ONE_IN >= segments.ring_blocks()
    }

    /// Appends again what was hit in the oldest segment. True when nothing of that is left to do.
    fn keep_hits<M: Memory>(&mut self, memory: &mut M) -> bool {
        let free = self.store.segments.free();
        let is_pressed = free <= self.config.segments_reserved;
        let is_tight = self.store.index.is_near_budget(self.config.index_slack_blocks);
        // At most what a segment holds is appended again for each that is emptied: two suffice for that.
        let is_short = free <= RELOCATION_SEGMENTS || is_tight || !self.budget_allows_relocation();
        let (segment, until, kept) = match self.store.reclaim.active.front() {
            Some(first) => (first.segment, first.kept_until, first.kept_blocks),
            None => return true,
        };
        let has_frames = self.store.appender.has_frames();
        // What is kept here is clean.
        let clean_blocks = self.store.segments.get(segment).used_blocks * self.clean_per_block();
        let limit = match has_frames {
            // What is moved to frames takes no room in the ring.
            true => u32::MAX,
            false => self.store.reclaim.policy.quota_blocks(clean_blocks),
        };
        // A flood of writes would carry away what is hot: what it waits for is the disk, and not so little room.
        let is_flooded = self.is_flooded();
        let pressed_limit =
            if is_flooded { self.store.reclaim.policy.flood_quota_blocks(clean_blocks) } else { 0 };
        if is_flooded && free <= RELOCATION_SEGMENTS && self.store.segments.has_emptied() {
            // What was emptied before is free in a moment, and has room for what is hot here.
            self.want_floor();
            return false;
        }
        let room =
            limit.saturating_sub(kept).min(RELOCATING_BLOCKS_MAX - self.store.reclaim.relocating_blocks);
        let mut chosen = Vec::new();
        let (mut at, mut held) = (until, 0);
        // What a segment takes away of a volume is known when all of it was looked at.
        let slack_blocks = u64::from(self.store.segments.segment_blocks() * self.clean_per_block());
        let is_sparse = self.keeps_unread();
        let volumes = &self.volumes;
        let is_kept = |key: BlockKey| {
            // A volume may have been taken off since the segment was listed.
            volumes[key.volume().at()].as_ref().is_some_and(|volume| volume.is_kept(slack_blocks))
        };
        let LogStore { index: cached, reclaim, appender, segments, once_counts_from, .. } = &mut self.store;
        let Reclaim { active, policy, .. } = reclaim;
        let first = active.front_mut().expect("seen above");
        let Stage::Listed(list) = &mut first.stage else { return false };
        let is_any_kept = volumes.iter().flatten().any(|volume| volume.is_kept(slack_blocks));
        let stays_unread = is_sparse && !is_flooded && !is_pressed;
        if until == 0 && is_any_kept {
            // They come first, while there is quota.
            list.sort_by_key(|(key, _)| !is_kept(*key));
        }
        // What others want to write waits for a minimum, and not for what was merely hit.
        let is_over = is_short || (is_pressed && !is_any_kept && !is_flooded);
        if !is_over {
            while at < list.len() && chosen.len() < index(room) {
                let (key, place) = list[at];
                at += 1;
                let entry = cached.get(key).filter(|entry| entry.place == place);
                let entry = entry.filter(|entry| !is_void(entry.place, segments, *once_counts_from));
                let entry = entry.filter(|entry| match has_frames {
                    true => !is_pressed && appender.frames().is_worth_a_frame(entry.place),
                    false if is_kept(key) => true,
                    false if is_pressed && kept + to_u32(chosen.len()) >= pressed_limit => false,
                    false if volumes.of(key.volume()).is_above_room() => false,
                    false => stays_unread || policy.stays(entry.hits),
                });
                if let Some(entry) = entry {
                    held += u32::from(!has_frames && !policy.stays(entry.hits));
                    chosen.push(Kept { key, place, checksum: entry.checksum });
                }
            }
        }
        let is_done = is_over || at == list.len() || kept + to_u32(chosen.len()) >= limit;
        first.kept_until = at;
        first.kept_blocks += to_u32(chosen.len());
        first.held_blocks += held;
        self.read_kept(chosen, memory);
        is_done && !self.store.reclaim.is_relocating()
    }

    fn read_kept<M: Memory>(&mut self, mut kept: Vec<Kept>, memory: &mut M) {
        kept.sort_unstable_by_key(|kept| kept.place);
        // What lies in memory is not read.
        let LogStore { appender, reclaim: Reclaim { relocating_blocks, gathered, .. }, .. } = &mut self.store;
        kept.retain(|&Kept { key, place: from, checksum }| {
            let Some(slice) = appender.kept_in_memory(key) else { return true };
            memory.retain(slice.buffer);
            *relocating_blocks += 1;
            gathered.push(InternalAppend::Relocate { key, from, checksum, slice });
            false
        });
        let mut rest = kept.as_slice();
        while let Some(first) = rest.first() {
            let is_unreadable = |key: BlockKey| self.volume(key.volume()).destage.unreadable.has(key.block());
            // What could not be read last time is read alone.
            let longest = if is_unreadable(first.key) { 1 } else { KEEP_READ_BLOCKS };
            let count = rest
                .iter()
                .zip(0..longest)
                .take_while(|(kept, step)| {
                    kept.place.0 == first.place.0 + step && (*step == 0 || !is_unreadable(kept.key))
                })
                .count();
            let (now, later) = rest.split_at(count);
            rest = later;
            let bytes = to_u32(wide(count) * BLOCK_BYTES);
            let Some(buffer) = self.allocate(Purpose::Payload, bytes, memory) else {
                // Without a buffer they are dropped (or, if dirty, looked at again).
                break;
            };
            let segment = self.store.segments.of(first.place);
            self.store.segments.get_mut(segment).pins += 1;
            self.store.reclaim.relocating_blocks += to_u32(count);
            self.store.reclaim.relocate_reads += 1;
            let slice = Slice { buffer, offset_bytes: 0, len_bytes: bytes };
            let flight = Flight::Store(LogFlight::RelocateRead { buffer, blocks: now.to_vec(), segment });
            self.read_cache(first.place, slice, flight, None);
        }
        self.append_gathered(memory);
    }

    /// Queues what is to be appended again, when all of it is there. Clean blocks go to frames, if there are any.
    fn append_gathered<M: Memory>(&mut self, memory: &mut M) {
        if self.store.reclaim.relocate_reads > 0 {
            return;
        }
        let has_frames = self.store.appender.has_frames();
        let mut moves = Vec::new();
        for append in core::mem::take(&mut self.store.reclaim.gathered) {
            match append {
                InternalAppend::Relocate { key, from, checksum, slice }
                    if has_frames
                        && self
                            .store
                            .index
                            .get(key)
                            .is_none_or(|entry| entry.place != from || !entry.dirty) =>
                {
                    moves.push(Move { key, from, checksum, slice });
                }
                append => self.store.log.push_internal(append),
            }
        }
        if !moves.is_empty() {
            self.place_moves(moves, memory);
        }
    }

    pub(crate) fn relocate_read_done<M: Memory>(
        &mut self,
        buffer: BufferId,
        blocks: &[Kept],
        segment: u32,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.store.segments.get_mut(segment).pins -= 1;
        for kept in blocks {
            match result {
                Ok(()) => {
                    if let Some(volume) = &mut self.volumes[kept.key.volume().at()] {
                        volume.destage.unreadable.forget(kept.key.block());
                    }
                }
                Err(errno) if errno.is_gone() => (),
                Err(_) => self.dirty_read_failed(kept.key, kept.place, blocks.len() == 1),
            }
        }
        for (step, kept) in (0u32..).zip(blocks) {
            let slice =
                Slice { buffer, offset_bytes: step * to_u32(BLOCK_BYTES), len_bytes: to_u32(BLOCK_BYTES) };
            let entry = self.store.index.get(kept.key).filter(|entry| entry.place == kept.place);
            let is_good = result.is_ok() && memory.checksum(slice) == kept.checksum;
            match entry {
                Some(_) if is_good && self.latched.is_none() => {
                    memory.retain(buffer);
                    self.store.reclaim.gathered.push(InternalAppend::Relocate {
                        key: kept.key,
                        from: kept.place,
                        checksum: kept.checksum,
                        slice,
                    });
                }
                other => {
                    if other.is_some_and(|entry| entry.dirty) && result.is_ok() && !is_good {
                        self.append_lost(kept.key);
                    }
                    self.store.reclaim.relocated(to_u32(BLOCK_BYTES));
                }
            }
        }
        memory.release(buffer);
        self.store.reclaim.relocate_reads -= 1;
        self.append_gathered(memory);
        if self.store.reclaim.relocate_reads == 0 && self.latched.is_some() {
            self.discard_appends(memory);
        }
    }

    /// The oldest segment has nothing that must stay: what is left in it is dropped.
    fn empty_first(&mut self) {
        let Some(first) = self.store.reclaim.active.pop_front() else { return };
        let clean_per_block = self.clean_per_block();
        let clean_blocks = self.store.segments.get(first.segment).used_blocks * clean_per_block;
        let segment_blocks = self.store.segments.segment_blocks() * clean_per_block;
        let ring_blocks = self.store.segments.count() * segment_blocks;
        self.store.reclaim.policy.reclaimed(clean_blocks, first.kept_blocks, ring_blocks);
        let Stage::Listed(list) = first.stage else { unreachable!("it was listed") };
        let is_there = |&(key, place): &(BlockKey, Place)| {
            self.store.index.get(key).is_some_and(|entry| entry.place == place)
        };
        let mut left: Vec<BlockKey> = list.into_iter().filter(is_there).map(|(key, _)| key).collect();
        let hit_blocks = first.kept_blocks.saturating_sub(first.held_blocks);
        let unread_blocks = wide(left.len()) + u64::from(first.held_blocks);
        self.store.policies.trials.tail_left(unread_blocks, u64::from(hit_blocks), segment_blocks);
        // RULE 15: an index near its budget keeps nothing that may go. With a bug planted something may be dirty.
        let is_read_on = self.store.appender.reads_on()
            && !self.store.reclaim.is_tight
            && !left.is_empty()
            && self.store.segments.get(first.segment).must == 0;
        if is_read_on {
            left.shrink_to_fit();
            for key in &left {
                self.volume_mut(key.volume()).lingering_blocks += 1;
            }
            self.store.reclaim.left.push_back((first.segment, left));
        } else {
            self.drop_listed(first.segment, left);
        }
        self.store.segments.empty(first.segment, is_read_on);
        if self.is_mutated(Mutation::ReuseBeforeCacheFlush) {
            self.store.segments.free_flushed(0);
        }
        if self.store.segments.free() < self.store.flood.low() + self.ahead() {
            self.want_floor();
        }
    }

    /// Blocks leave the index, as far as they still lie in that segment.
    fn drop_listed(&mut self, segment: u32, blocks: Vec<BlockKey>) {
        for key in blocks {
            let entry = self.store.index.get(key);
            if let Some(entry) = entry.filter(|entry| self.store.segments.of(entry.place) == segment) {
                self.store.appender.leaves(key, entry.place);
                let dropped = self.drop_entries(key.volume(), Blocks { first: key.block(), count: 1 });
                assert!(dropped == 1, "the block was just seen in the index");
            }
        }
    }

    /// Drops from the index what is left in the oldest segment that is read on.
    fn drop_left(&mut self) {
        let Some((segment, left)) = self.store.reclaim.left.pop_front() else { return };
        assert!(self.store.segments.get(segment).must == 0, "what is left in an emptied segment is clean");
        for key in &left {
            // A volume may have been taken off since, and another one added.
            if let Some(volume) = &mut self.volumes[key.volume().at()] {
                volume.lingering_blocks = volume.lingering_blocks.saturating_sub(1);
            }
        }
        self.drop_listed(segment, left);
        self.store.segments.get_mut(segment).is_read_on = false;
    }

    /// Makes sure that the log can open segments, if any linger.
    pub(super) fn release_lingering(&mut self) {
        while self.store.segments.spare() < SPARE_MIN
            && let Some(segment) = self.store.segments.lingers()
        {
            if self.store.segments.get(segment).is_read_on {
                let oldest = self.store.reclaim.left.front().map(|(oldest, _)| *oldest);
                assert!(oldest == Some(segment), "segments linger in the order of the ring");
                self.drop_left();
            }
            // Whoever reads it had begun before.
            if !self.store.segments.release() {
                return;
            }
        }
    }
}
