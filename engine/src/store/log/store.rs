//! The log as a [`Store`](crate::store::Store).

use super::fills::Fill;
use super::{InternalAppend, LogFlight, LogStore};
use crate::effect::{Errno, RequestOp};
use crate::format::SEGMENTS_OFFSET;
use crate::machine::Machine;
use crate::machine::destage::order::ledger::Interval;
use crate::machine::destage::run::Copied;
use crate::machine::guard::{Blocks, Hold, Stamp};
use crate::machine::halves::mending::Spot;
use crate::machine::piece::Piece;
use crate::machine::request::{RequestKey, Stage};
use crate::machine::slow_cache::LookedReads;
use crate::machine::volume::Volume;
use crate::machine::warm::{CachedRun, Cursor};
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::pair::Half;
use crate::policies::fetch::warm_up::Room;
use crate::policies::replacement::Access;
use crate::status::{Bypass, CacheStatus};
use crate::store::log::Kept;
use crate::store::log::extents::ExtentKind;
use crate::store::{
    Cached, Changing, Destaging, Dropping, Durability, Life, Lookup, Operations, Pressure, Readiness, Reading,
};
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, SECTORS_PER_BLOCK, VolumeId, VolumeIndex};
use alloc::vec::Vec;

impl Operations for LogStore {
    type Flight = LogFlight;

    fn is_of_cache(flight: &LogFlight) -> bool {
        // Of a half the other one may do the work.
        !matches!(flight, LogFlight::Scrub { .. })
    }

    fn spots(flight: &LogFlight) -> Vec<Spot> {
        let LogFlight::RelocateRead { buffer, blocks, .. } = flight else { return Vec::new() };
        let spot = |(step, kept): (u32, &Kept)| {
            let offset_bytes = step * to_u32(BLOCK_BYTES);
            let slice = Slice { buffer: *buffer, offset_bytes, len_bytes: to_u32(BLOCK_BYTES) };
            Spot { place: kept.place, slice, checksum: kept.checksum }
        };
        (0u32..).zip(blocks).map(spot).collect()
    }

    fn complete<M: Memory>(
        m: &mut Machine<LogStore>,
        flight: LogFlight,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        match flight {
            LogFlight::Batch { sequence } => m.batch_done(sequence, result, memory),
            LogFlight::LatePart { sequence, number } => m.part_done(sequence, number, result, memory),
            LogFlight::Summary { segment, buffer } => {
                memory.release(buffer);
                m.summary_done(segment, result, memory);
            }
            LogFlight::Checkpoint { buffer } => m.checkpoint_written(buffer, result, memory),
            LogFlight::Data { key, issued } => m.data_done(key, issued, result, memory),
            LogFlight::Frames { write } => m.frames_written(write, result, memory),
            LogFlight::Priorities { bucket, buffer } => m.priorities_written(bucket, buffer, result, memory),
            LogFlight::SummaryRead { segment, buffer } => m.summary_read(segment, buffer, result, memory),
            LogFlight::Scrub { scrub, step } => m.segment_scrub_done(scrub, step, result, memory),
            LogFlight::RelocateRead { buffer, blocks, segment } => {
                m.relocate_read_done(buffer, &blocks, segment, result, memory);
            }
        }
    }
}

impl Lookup for LogStore {
    fn lookup(&self, key: BlockKey) -> Option<Cached> {
        let entry = self.index.get(key).filter(|entry| !self.is_void(entry.place))?;
        Some(Cached { place: entry.place, dirty: entry.dirty, checksum: Some(entry.checksum) })
    }

    // The same as lookup and note, and one search of the index instead of two.
    #[inline(always)]
    fn hit(&mut self, key: BlockKey, _is_first: bool, use_clean: bool) -> Option<Cached> {
        let entry = self.index.hit(key, |entry| entry.dirty || use_clean)?;
        if self.once_counts_from.is_some() && self.is_passed_by(entry.place) {
            return None;
        }
        self.appender.hit(key, &self.index);
        Some(Cached { place: entry.place, dirty: entry.dirty, checksum: Some(entry.checksum) })
    }

    fn extent(&self, key: BlockKey) -> Option<ExtentKind> {
        self.extents.get(key).map(|extent| extent.kind)
    }

    fn lost_blocks(&self, volume: VolumeIndex) -> Vec<Blocks> {
        self.extents
            .iter()
            .filter(|extent| extent.first.volume() == volume && extent.kind == ExtentKind::Lost)
            .map(|extent| Blocks { first: extent.first.block(), count: extent.blocks })
            .collect()
    }

    #[inline]
    fn in_memory(&self, key: BlockKey) -> Option<Slice> {
        self.appender.newest_in_memory(key)
    }

    fn kept_in_memory(&self, key: BlockKey) -> Option<Slice> {
        self.appender.kept_in_memory(key)
    }

    fn note_hit(&mut self, key: BlockKey, _is_first: bool) {
        self.index.touch(key);
        self.appender.hit(key, &self.index);
    }

    fn is_joinable(&self, first: Place, next: Place) -> bool {
        self.segments.of(first) == self.segments.of(next)
    }

    fn life(&self, place: Place) -> u64 {
        self.segments.get(self.segments.of(place)).generation
    }

    #[inline(always)]
    fn pin_for_client(&mut self, place: Place, blocks: u32) {
        let segment = self.segments.of(place);
        self.segments.get_mut(segment).pins += 1;
        if self.policies.lets_all_in_with_room && self.segments.is_old(segment) {
            self.policies.oldest_reads += u64::from(blocks);
        }
    }

    fn pin(&mut self, place: Place, _blocks: u32) {
        let segment = self.segments.of(place);
        self.segments.get_mut(segment).pins += 1;
    }

    #[inline]
    fn unpin(&mut self, place: Place, _blocks: u32) {
        let segment = self.segments.of(place);
        self.segments.get_mut(segment).pins -= 1;
    }

    #[inline]
    fn offset_bytes(&self, place: Place) -> u64 {
        SEGMENTS_OFFSET + u64::from(self.segments.block_of(place)) * BLOCK_BYTES
    }

    #[inline]
    fn half_of(&self, place: Place) -> Option<Half> {
        self.segments.half_of(place)
    }

    fn keeps_minimums(&self) -> bool {
        self.reclaim.policy.keeps_any() && !self.appender.has_frames()
    }

    fn cached_blocks(&self, volume: VolumeIndex) -> Vec<u64> {
        let mut blocks = Vec::new();
        self.index.for_each(|key, _| {
            if key.volume() == volume {
                blocks.push(key.block());
            }
        });
        blocks.sort_unstable();
        blocks
    }
}

impl Reading for LogStore {
    fn offer_fill<M: Memory>(
        m: &mut Machine<LogStore>,
        request: RequestKey,
        piece: &Piece,
        stamp: Stamp,
        memory: &mut M,
    ) {
        let volume = m.requests[request].volume;
        let blocks = u64::from(piece.blocks);
        if !m.has_room_for_fill(blocks) {
            m.volume_mut(volume).counters.read_bypasses.pressure_blocks += blocks;
            return;
        }
        let all = Blocks { first: piece.first, count: blocks };
        if m.requests[request].is_warming() {
            if Self::warm_room_blocks(m) >= blocks {
                m.offer_blocks(request, all, piece.slice, stamp, memory);
            } else {
                m.volume_mut(volume).counters.read_bypasses.pressure_blocks += blocks;
            }
            return;
        }
        if m.store.policies.lets_all_in || Self::room(m).free_blocks >= blocks || m.keeps_unread() {
            m.offer_blocks(request, all, piece.slice, stamp, memory);
            return;
        }
        // What happens to one run of them is nothing to the others.
        for blocks in m.admitted(volume, all) {
            let epoch = m.trusted_epoch(m.volume(volume));
            let guard = &m.volume(volume).guard;
            let is_unchanged = guard.is_as_stamped(stamp, epoch) || m.is_mutated(Mutation::FillAfterChange);
            if let Some(stamp) = guard.stamp(blocks, epoch).filter(|_| is_unchanged) {
                let skip = to_u32((blocks.first - all.first) * BLOCK_BYTES);
                let slice = piece.slice.part(skip, to_u32(blocks.count * BLOCK_BYTES));
                m.offer_blocks(request, blocks, slice, stamp, memory);
            }
        }
    }

    fn waiting_fill(m: &Machine<LogStore>, key: BlockKey) -> Option<Slice> {
        let fill = m.store.appender.waiting_fill(key)?;
        // HAZARD 1: nothing happened to it since it was read, and nothing is about to.
        let volume = m.volume(key.volume());
        let is_same = volume.guard.is_as_stamped(fill.stamp, m.trusted_epoch(volume));
        let block = Blocks { first: key.block(), count: 1 };
        (is_same || m.is_mutated(Mutation::FillAfterChange)).then(|| fill.part(block))
    }

    fn warm<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, memory: &mut M) {
        let (index, blocks) = (m.requests[key].volume, m.requests[key].blocks.count);
        // Before the first flush of the origin, which is on its way, all would be read in vain.
        if m.has_room_for_fill(blocks) && m.is_any_clean(m.volume(index)) {
            m.read_absent(key, memory);
        } else {
            m.fail(key, Errno::NOSPC, memory);
        }
    }

    fn warm_room_blocks(m: &Machine<LogStore>) -> u64 {
        let blocks = m.store.appender.warm_room_blocks(&m.store.segments, m.config.segments_low);
        (blocks * u64::from(m.clean_per_block())).saturating_sub(m.store.log.pending_fill_blocks)
    }

    fn is_filling(&self) -> bool {
        self.log.is_filling()
    }

    fn visit_cached(&self, from: Cursor, steps: u32, visit: &mut dyn FnMut(CachedRun)) -> Option<Cursor> {
        self.index.visit_from(from, steps, visit)
    }

    fn room(m: &Machine<LogStore>) -> Room {
        let LogStore { appender, segments, policies, .. } = &m.store;
        if !policies.lets_all_in_with_room {
            return Room::default();
        }
        let clean_per_block = u64::from(m.clean_per_block());
        Room {
            free_blocks: appender.room_blocks(segments, m.config.segments_low) * clean_per_block,
            round_blocks: appender.round_blocks(segments) * clean_per_block,
            oldest_reads: policies.oldest_reads,
        }
    }

    fn offer_beside<M: Memory>(
        m: &mut Machine<LogStore>,
        volume: VolumeIndex,
        blocks: Blocks,
        slice: Slice,
        stamp: Stamp,
        memory: &mut M,
    ) {
        let target = m.volume(volume);
        let is_wanted = target.caches_reads() && target.may_have_more(blocks.count);
        if !m.has_room_for_fill(blocks.count) || !is_wanted || !m.budget_allows_fills() {
            return;
        }
        m.volume_mut(volume).counters.warm_up_blocks += blocks.count;
        let kept_bytes = u64::from(slice.len_bytes);
        let fill = Fill { volume, blocks, slice, stamp, watch: None, kept_bytes, since: m.now };
        m.queue_fill(fill, memory);
    }

    #[inline]
    fn passes_by(m: &mut Machine<LogStore>, key: RequestKey, access: Access) -> Option<Bypass> {
        m.ask_policies(key, access)
    }

    fn bars_fill(m: &mut Machine<LogStore>, key: RequestKey) -> Option<Bypass> {
        m.ask_fill(key)
    }

    #[inline]
    fn answered(m: &mut Machine<LogStore>, issued: Nanos) {
        m.note_latency(Access::Read, issued);
    }

    fn looked(m: &mut Machine<LogStore>, reads: LookedReads) {
        let (bounds, now) = (m.config.pace, m.now);
        let is_writing = m.store.log.under_way() > 0;
        m.store.appender.looked(reads, is_writing, &bounds, now);
    }

    fn drop_rotten(m: &mut Machine<LogStore>, key: BlockKey) {
        let (volume, blocks) = (key.volume(), Blocks { first: key.block(), count: 1 });
        m.drop_entries(volume, blocks);
        // RULE 8: a copy that could not be read may be readable after a crash: a tombstone keeps it from
        // coming back.
        if !m.is_mutated(Mutation::DropWithoutTombstone) {
            m.append_tombstone(volume, blocks);
        }
    }

    fn mark_lost(m: &mut Machine<LogStore>, key: BlockKey) {
        m.append_lost(key);
    }

    fn scrub_segment<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, segment: u32, memory: &mut M) {
        m.start_segment_scrub(key, segment, memory);
    }
}

impl Changing for LogStore {
    fn held(&self, _volume: &Volume, blocks: Blocks) -> Blocks {
        blocks
    }

    #[inline]
    fn first_hold(m: &Machine<LogStore>, key: RequestKey, is_whole: bool) -> Hold {
        // HAZARD 8: a write of part of a block reads the rest first. It holds the block alone, or a write in
        // between would be lost. One that goes around the cache reads nothing.
        match is_whole {
            true => Hold::Shared,
            false if m.will_bypass_wait(key) => Hold::Beside,
            false => Hold::Merging,
        }
    }

    fn hold_around(m: &Machine<LogStore>, key: RequestKey) -> Hold {
        if m.may_go_beside(key) { Hold::Beside } else { Hold::Merging }
    }

    fn takes_rows(m: &Machine<LogStore>) -> bool {
        m.store.policies.bypasses_waits
            && m.config.order.is_none()
            && m.latched.is_none()
            && !m.is_stopping
            && m.clients_may_append()
    }

    #[inline(always)]
    fn begin_write<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, memory: &mut M) {
        m.append_write(key, memory);
    }

    fn begin_zero<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, memory: &mut M) {
        m.append_zeroes(key, memory);
    }

    // A tombstone covers what is dirty, too.
    fn may_bypass<M: Memory>(_m: &mut Machine<LogStore>, _key: RequestKey, _memory: &mut M) -> bool {
        true
    }

    fn settled<M: Memory>(_m: &mut Machine<LogStore>, _key: RequestKey, _memory: &mut M) {
        unreachable!("a write that is appended to the log waits for no destage");
    }

    #[inline(always)]
    fn bars_write(m: &Machine<LogStore>, key: RequestKey) -> Option<Bypass> {
        if m.store.policies.bypasses_waits { m.bypasses_wait(key) } else { None }
    }

    fn may_split(m: &Machine<LogStore>) -> bool {
        m.store.policies.bypasses_waits && m.store.appender.answers_when_published()
    }

    fn takes_refused(m: &Machine<LogStore>) -> bool {
        m.store.policies.bypasses_waits
    }

    fn origin_changed<M: Memory>(_m: &mut Machine<LogStore>, _key: RequestKey, _memory: &mut M) {}

    fn merge<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, memory: &mut M) {
        m.append_merged(key, memory);
    }

    fn has_room_to_forget(m: &Machine<LogStore>) -> bool {
        m.has_room_for_tombstones()
    }

    fn has_to_forget(m: &Machine<LogStore>, volume: VolumeIndex, blocks: Blocks) -> bool {
        m.has_to_forget(volume, blocks)
    }

    fn forget<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, blocks: Blocks, memory: &mut M) {
        let active = &m.requests[key];
        let (op, volume) = (active.op, active.volume);
        let oldest_dirty_sequence = m.volume(volume).is_dirty().then(|| m.oldest_dirty());
        let dropped = m.drop_entries(volume, blocks) + m.drop_extents(volume, blocks);
        let LogStore { appender, segments, .. } = &mut m.store;
        appender.passed(blocks.count, segments);
        let mutation = match op {
            RequestOp::Discard { .. } => Mutation::ForgetDiscard,
            _ => Mutation::ForgetTombstone,
        };
        let is_dropping = dropped > 0
            || (m.store.may_have_left_out() && !m.is_mutated(Mutation::ForgetLeftOut))
            || (m.store.log.has_tombstone_pending(volume, blocks)
                && !m.is_mutated(Mutation::OvertakeTombstone));
        // HAZARD 7: what is dropped must not come back after a crash.
        if is_dropping && !m.is_mutated(mutation) {
            let active = &mut m.requests[key];
            active.stage = Stage::Appending;
            active.unpublished += 1;
            m.store.log.push_internal(InternalAppend::Tombstone {
                volume,
                blocks,
                request: Some(key),
                oldest_dirty_sequence,
            });
        } else {
            m.origin_when_forgotten(key, memory);
        }
    }

    fn is_forgotten(m: &Machine<LogStore>, _key: RequestKey) -> bool {
        // What is answered for and not in the log is older than what goes around it, and would be lost instead of that.
        m.is_floor_durable() && !m.store.appender.owes()
    }

    fn want_forgotten(m: &mut Machine<LogStore>, _key: RequestKey) {
        m.want_floor();
        m.store.appender.hurry();
    }

    fn is_writing(m: &Machine<LogStore>, key: RequestKey) -> bool {
        m.is_in_batch(key) || m.store.appender.is_writing(key)
    }

    fn withdraw<M: Memory>(m: &mut Machine<LogStore>, volume: VolumeIndex, memory: &mut M) {
        m.withdraw_appends(volume, memory);
    }

    fn refuse_waiting<M: Memory>(m: &mut Machine<LogStore>, memory: &mut M) {
        m.refuse_appends(memory);
    }
}

impl Durability for LogStore {
    fn holds_flush(_m: &mut Machine<LogStore>, _key: RequestKey) -> bool {
        false
    }

    fn completed(&self) -> u64 {
        self.log.published()
    }

    fn answered_sequence(&self) -> u64 {
        let is_off = self.segments.mutations.has(Mutation::FlushWithoutLate);
        if is_off { self.log.published() } else { self.log.answered() }
    }

    fn unlogged(&mut self) -> Option<u64> {
        self.appender.unlogged(&self.segments)
    }

    fn are_logged(&self, number: u64) -> bool {
        self.appender.are_logged(number)
    }

    fn is_home_when_written(&self) -> bool {
        self.appender.is_home_when_written()
    }

    fn may_flush(&self) -> bool {
        // A summary is durable once a flush covers a batch behind it: `check` relies on that.
        self.log.summaries_in_flight == 0
    }

    fn flushed<M: Memory>(m: &mut Machine<LogStore>, sequence: u64, memory: &mut M) {
        m.remember_flush(sequence, memory);
        m.log_flushed(sequence);
    }
}

impl Destaging for LogStore {
    fn unit(&self, _volume: &Volume, block: u64) -> Blocks {
        Blocks { first: block, count: 1 }
    }

    fn overwrites(&self) -> bool {
        false
    }

    fn readiness(&self, dirty: &Cached) -> Readiness {
        if self.segments.is_flushed(dirty.place) { Readiness::Ready } else { Readiness::Unflushed }
    }

    // What is in the log does not change: a newer version lies elsewhere.
    fn run_begins(_m: &mut Machine<LogStore>, _volume: VolumeIndex, _blocks: Blocks) {}

    fn run_ends(m: &mut Machine<LogStore>, _volume: VolumeIndex, blocks: Blocks, is_written: bool) {
        if is_written {
            let segment_blocks = m.store.segments.segment_blocks();
            m.store.flood.went_home(blocks.count, segment_blocks, m.now);
        }
    }

    fn has_controller(&self) -> bool {
        !self.controller.destage.is_sweep()
    }

    fn start_zero_run(m: &mut Machine<LogStore>, volume: VolumeIndex) -> bool {
        m.send_zero_run(volume)
    }

    fn interval_is_home(m: &mut Machine<LogStore>, volume: VolumeIndex, home: &Interval) {
        m.unlist(home);
        m.store.log.push_internal(InternalAppend::Home { volume, sequence: home.last_sequence() });
    }

    fn interval_is_free(m: &mut Machine<LogStore>, left: &Interval) {
        m.unlist(left);
    }

    fn record_home(m: &mut Machine<LogStore>, volume: VolumeIndex, sequence: u64) {
        m.store.log.push_internal(InternalAppend::Home { volume, sequence });
    }

    fn copy_is_home(m: &mut Machine<LogStore>, volume: VolumeIndex, copy: Copied) {
        if copy.is_zero {
            m.zero_is_home(volume, copy);
        } else {
            m.block_is_home(volume, copy);
        }
    }

    fn written_through(m: &Machine<LogStore>, volume: VolumeIndex, blocks: Blocks) -> Vec<Copied> {
        let mut copies: Vec<Copied> = Vec::new();
        for block in blocks.first..blocks.end() {
            let key = m.volume(volume).key(block);
            let (place, is_zero) = match (m.store.index.get(key), m.store.extents.get(key)) {
                (Some(entry), _) if entry.dirty => (entry.place, false),
                (_, Some(extent)) if extent.kind == ExtentKind::Zero => (extent.place, true),
                _ => continue,
            };
            match copies.last_mut() {
                Some(last)
                    if last.is_zero == is_zero
                        && last.first + u64::from(last.blocks) == block
                        && last.place.0 + if is_zero { 0 } else { last.blocks } == place.0 =>
                {
                    last.blocks += 1;
                }
                _ => {
                    let life = m.store.life(place);
                    copies.push(Copied { first: block, blocks: 1, place, life, is_zero });
                }
            }
        }
        copies
    }

    fn pressure(m: &Machine<LogStore>) -> Pressure {
        let LogStore { segments, extents, appender, .. } = &m.store;
        let units = appender.dirty_units(segments);
        let is_waited_for = m.is_appender_short();
        Pressure {
            held_permille: u64::from(units.dirty) * 1000 / u64::from(units.count),
            blocks: u64::from(units.count) * u64::from(units.unit_blocks),
            extents: extents.len(),
            is_short: segments.free() < m.config.segments_low.max(m.store.flood.low()) || is_waited_for,
            is_waited_for,
            has_waiting: !m.store.log.client.is_empty() && !m.clients_may_append(),
        }
    }
}

impl Life for LogStore {
    fn stop<M: Memory>(m: &mut Machine<LogStore>, _memory: &mut M) -> bool {
        m.note_end();
        true
    }

    fn superblock_goes_out(m: &mut Machine<LogStore>) {
        m.note_in_superblock();
    }

    #[inline]
    fn is_at_rest(m: &Machine<LogStore>) -> bool {
        m.store.reclaim.is_at_rest()
    }

    fn repair<M: Memory>(m: &mut Machine<LogStore>, memory: &mut M) {
        if m.store.log.has_missing_summaries() {
            m.write_missing_summaries(memory);
        }
    }

    fn once_counts_from(&mut self, half: Half, generation: u64) {
        if let Some(counts_from) = &mut self.once_counts_from {
            counts_from[half.at()] = generation;
        }
    }

    fn pass_half_by(&mut self, half: Half, is_passed: bool) {
        self.passed_halves[half.at()] = is_passed;
    }

    fn next_generation(&self) -> u64 {
        self.log.generation + 1
    }

    fn request_ended<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, memory: &mut M) {
        if m.is_stopping && matches!(m.requests[key].op, RequestOp::Stop) {
            m.release_memory(memory);
        }
    }

    #[inline(always)]
    fn pump<M: Memory>(m: &mut Machine<LogStore>, memory: &mut M) {
        m.pump_room(memory);
        m.pump_controller(memory);
        m.pump_note(memory);
    }

    fn assemble<M: Memory>(m: &mut Machine<LogStore>, memory: &mut M) {
        m.assemble_pending(memory);
    }

    fn deadline(&self) -> Option<Nanos> {
        self.appender.deadline()
    }

    fn is_busy(&self) -> bool {
        self.reclaim.is_active() || self.appender.is_busy()
    }

    fn is_quiet(&self) -> bool {
        self.log.is_quiet() && !self.reclaim.is_relocating() && self.appender.is_quiet()
    }

    fn concerns(m: &Machine<LogStore>, volume: VolumeIndex) -> bool {
        m.log_concerns(volume)
    }

    fn discard_pending<M: Memory>(m: &mut Machine<LogStore>, memory: &mut M) {
        m.discard_waiting(memory);
        m.discard_appends(memory);
    }

    fn drop_volume(m: &mut Machine<LogStore>, volume: VolumeIndex) {
        let count = m.volume(volume).blocks();
        m.drop_entries(volume, Blocks { first: 0, count });
        m.drop_extents(volume, Blocks { first: 0, count });
    }

    fn drop_part(m: &mut Machine<LogStore>, volume: VolumeIndex) -> bool {
        m.drop_part(volume)
    }

    fn volume_comes(m: &mut Machine<LogStore>, volume: VolumeIndex, _id: VolumeId, _blocks: u64) -> u64 {
        m.store.controller.volume_comes(volume);
        // No entry has its number: none can count.
        0
    }

    fn drop_end(m: &mut Machine<LogStore>, volume: VolumeIndex) -> Dropping {
        let end = m.volume(volume);
        let blocks = Blocks { first: end.blocks() - 1, count: 1 };
        if end.size_sectors.is_multiple_of(SECTORS_PER_BLOCK) {
            return Dropping::Done;
        }
        // What is home of that block may go home once more after a crash, as long as it was then.
        if end.destage.order.as_ref().is_some_and(|ledger| !ledger.is_settled()) {
            return Dropping::Impossible;
        }
        let key = end.key(blocks.first);
        if m.store.index.get(key).is_some_and(|entry| entry.dirty) || m.store.extents.get(key).is_some() {
            return Dropping::Impossible;
        }
        // RULE 8: a copy that a start left out may count for the next one.
        let has_left_out = m.store.may_have_left_out() && !m.is_mutated(Mutation::ForgetLeftOut);
        if m.drop_entries(volume, blocks) > 0 || has_left_out {
            m.append_tombstone(volume, blocks);
        }
        Dropping::Done
    }

    fn give_up_lost<M: Memory>(m: &mut Machine<LogStore>, key: RequestKey, _memory: &mut M) {
        let volume = m.requests[key].volume;
        for blocks in m.store.lost_blocks(volume) {
            m.drop_extents(volume, blocks);
            // A lost extent is never clean, whatever headers say.
            m.append_tombstone(volume, blocks);
        }
        m.watch(key, Stage::Quiet);
    }

    fn is_dropped_durably(m: &mut Machine<LogStore>, volume: VolumeIndex) -> bool {
        let all = Blocks { first: 0, count: m.volume(volume).blocks() };
        m.want_floor();
        // RULE 7: copies that left with an emptied segment come back after a crash, too, until the floor is
        // durable.
        !m.store.log.has_tombstone_pending(volume, all) && m.is_floor_durable()
    }

    fn fill_status(&self, status: &mut CacheStatus) {
        status.used_bytes = self.segments.used_bytes();
        self.appender.fill_status(status);
        status.segments = self.segments.count();
        status.segments_free = self.segments.free();
        status.segment_bytes = u64::from(self.segments.segment_blocks()) * BLOCK_BYTES;
        status.index_bytes = self.index.allocated_bytes();
        status.index_blocks = self.index.len();
        status.wraps = self.segments.wraps();
        status.next_sequence = self.log.next_sequence;
        status.oldest_dirty_sequence = self.segments.oldest_dirty().unwrap_or(self.log.next_sequence);
    }

    fn describe(&self, f: &mut core::fmt::DebugStruct<'_, '_>) {
        let ring: Vec<_> = self.segments.ring().take(6).map(|at| (at, self.segments.get(at))).collect();
        f.field("appender", &self.appender).field("free_segments", &self.segments.free());
        f.field("log", &self.log).field("reclaim", &self.reclaim).field("tail", &ring);
    }
}

impl Machine<LogStore> {
    fn has_room_for_fill(&self, blocks: u64) -> bool {
        self.store.log.pending_fill_blocks + blocks <= self.config.fill_blocks_max
            && self.store.segments.free() > self.config.segments_reserved
            && self.latched.is_none()
            && !self.is_stopping
    }

    fn offer_blocks<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        slice: Slice,
        stamp: Stamp,
        memory: &mut M,
    ) {
        let active = &self.requests[request];
        let (volume, kept_bytes) = (active.volume, active.blocks.count * BLOCK_BYTES);
        let fill = Fill { volume, blocks, slice, stamp, watch: None, kept_bytes, since: self.now };
        self.queue_fill(fill, memory);
    }
}
