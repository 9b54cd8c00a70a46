//! The part that all caches share: requests and their order, operations under way, and the step after each call that
//! lets every request go on that can. The [`Store`] keeps the blocks.
//!
//! Two kinds of files lie here. Some own a part of the state and know nothing of the machine: `requests`, `volumes`
//! (`volume`, `guard`, `origin`), `outbox` (`flight`, `piece`), `barrier`, `superblock`, `share_queue`, and `destage`'s
//! `state`, `run`, `choice` and `level`. The others add calls to [`Machine`] that bring such parts together: `read`,
//! `neighbours` and `ahead` (what is read before it is asked for), `change` (writes, discards, write-zeroes), `warm` (what
//! the operator wants cached), `scrub` (whether it is still what was written), `share` (who may hold how much dirty),
//! `flush`, `destage`, `control` and `room` (the operator), `adding` (of them, a new volume) and `failure` (a cache that
//! fails).

pub(crate) mod adding;
pub(crate) mod ahead;
pub(crate) mod barrier;
pub(crate) mod change;
pub(crate) mod control;
pub(crate) mod destage;
pub(crate) mod failure;
pub mod fingerprint;
pub(crate) mod flight;
pub(crate) mod flush;
pub(crate) mod guard;
pub(crate) mod halves;
pub mod lost_changes;
pub(crate) mod neighbours;
pub(crate) mod origin;
pub(crate) mod outbox;
pub(crate) mod piece;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod requests;
pub(crate) mod room;
pub(crate) mod row;
pub mod scrub;
pub(crate) mod share;
pub(crate) mod share_queue;
pub(crate) mod slow_cache;
pub(crate) mod split;
pub(crate) mod superblock;
mod unflushed;
pub(crate) mod volume;
pub(crate) mod volumes;
pub mod warm;
pub(crate) mod wear;

use crate::composition::Composition;
use crate::effect::{Busy, Effect, Errno, IoId, IoOp, Notice, Request, RequestOp, Target, WearBudget};
use crate::format::Superblock;
use crate::limits::{Config, RANGE_BYTES_MAX, REQUEST_BYTES_MAX, REQUESTS_MAX};
use crate::machine::adding::Proposed;
use crate::machine::ahead::ReadAhead;
use crate::machine::barrier::CacheBarrier;
use crate::machine::destage::run::Run;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::halves::Halves;
use crate::machine::lost_changes::Group;
use crate::machine::neighbours::Neighbours;
use crate::machine::outbox::Outbox;
use crate::machine::request::{Active, RequestKey};
use crate::machine::requests::Requests;
use crate::machine::scrub::Scrubbed;
use crate::machine::share_queue::ShareQueue;
use crate::machine::slow_cache::SlowCache;
use crate::machine::superblock::SuperblockWriter;
use crate::machine::volume::{Standing, Volume};
use crate::machine::volumes::Volumes;
use crate::machine::wear::Wear;
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::status::{Bypass, Content, WearStatus};
use crate::store::{Operations, Store};
use crate::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SectorRange, VOLUMES_MAX, VolumeIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;
use slab::Slab;

pub(crate) use crate::machine::flight::Flight;

/// The findings of recovery, for a machine over them.
pub(crate) struct Start<S> {
    pub superblock: Superblock,
    pub volumes: [Option<Volume>; VOLUMES_MAX],
    pub store: S,
}

/// A running cache over one kind of store.
pub(crate) struct Machine<S: Operations> {
    pub(crate) config: Config,
    pub(crate) now: Nanos,
    pub(crate) superblock: Superblock,
    pub(crate) volumes: Volumes,
    pub(crate) store: S,
    pub(crate) barrier: CacheBarrier,
    pub(crate) superblock_writer: SuperblockWriter<S::Flight>,
    pub(crate) requests: Requests,
    /// A hold ended: requests that wait for blocks are looked at.
    is_guard_released: bool,
    /// Something changed since everything that can go on was last let go on.
    is_unsettled: bool,
    /// The group of calls whose effects are not drawn yet.
    group: Group,
    pub(crate) neighbours: Neighbours,
    pub(crate) ahead: ReadAhead,
    pub(crate) share: ShareQueue,
    /// Bad blocks that scrubs found, and that nobody was told of.
    pub(crate) scrubbed: Vec<Scrubbed>,
    wear: Wear,
    pub(crate) slow_cache: SlowCache,
    outbox: Outbox<S::Flight>,
    /// The two devices of a mirrored cache.
    pub(crate) halves: Option<Box<Halves<S::Flight>>>,
    pub(crate) runs: Slab<Run>,
    /// Why the cache is not written any more.
    pub(crate) latched: Option<Errno>,
    /// The time of day, as it was told last: for what is noted of settings.
    pub(crate) unix_seconds: u64,
    /// The volume that is to be added next.
    proposed: Option<Proposed>,
    /// Volumes that begin when the superblock with them is durable, and whether their origins can drop ranges.
    entered: Vec<(VolumeIndex, bool)>,
    pub(crate) is_stopping: bool,
    /// Since when requests wait beside a stop, and no device has anything to do.
    still_since: Option<Nanos>,
    pub(crate) last_client: Nanos,
    pub(crate) next_tick: Option<Nanos>,
}

impl<S: Store> Machine<S> {
    /// A machine over what recovery found.
    pub(crate) fn new(start: Start<S>, mut config: Config) -> Machine<S> {
        let Start { superblock, mut volumes, store } = start;
        // The cache says whether its order is strict; what it was tuned for may be from before that was changed.
        let own = Composition::of(&superblock).ok().and_then(|own| Config::order_of(&own, &config));
        config.order = own.map(|own| config.order.unwrap_or(own));
        for (volume, can_discard) in volumes.iter_mut().zip(config.origin_can_discard) {
            if let Some(volume) = volume {
                volume.origin.can_discard = can_discard;
                volume.guard.mutations = config.mutations;
            }
        }
        let sequence = store.completed();
        Machine {
            config,
            now: Nanos(0),
            superblock,
            volumes: Volumes::new(volumes),
            store,
            barrier: CacheBarrier::new(sequence),
            superblock_writer: SuperblockWriter::default(),
            requests: Requests::default(),
            is_guard_released: false,
            is_unsettled: false,
            group: Group::default(),
            neighbours: Neighbours::new(config.neighbour_bytes_max),
            ahead: ReadAhead::new(config.ahead_bytes_max),
            share: ShareQueue::default(),
            scrubbed: Vec::new(),
            wear: Wear::default(),
            slow_cache: SlowCache::new(config.slowness),
            outbox: Outbox::new(),
            halves: None,
            runs: Slab::new(),
            latched: None,
            unix_seconds: 0,
            proposed: None,
            entered: Vec::new(),
            is_stopping: false,
            still_since: None,
            last_client: Nanos(0),
            next_tick: Some(Nanos(0)),
        }
    }

    /// Takes a request. `now` never goes back from one call to the next.
    ///
    /// # Errors
    /// [`Busy`] when too many are under way; the request was not taken, its buffer still
    /// belongs to the driver.
    pub(crate) fn submit<M: Memory>(
        &mut self,
        now: Nanos,
        request: Request,
        memory: &mut M,
    ) -> Result<(), Busy> {
        self.set_now(now);
        if self.requests.len() >= REQUESTS_MAX {
            return Err(Busy);
        }
        let range = checked_range(request.op);
        let blocks = range.map_or(Blocks { first: 0, count: 0 }, Blocks::touched_by);
        let key = self.requests.insert(Active::new(request, blocks, self.group));
        let is_stop = matches!(request.op, RequestOp::Stop);
        match self.volumes.get_mut(request.volume) {
            // A stop may name any volume, even one that does not exist or is just taken off.
            _ if is_stop && self.is_stopping => self.fail(key, Errno::SHUTDOWN, memory),
            _ if is_stop => self.start(key, memory),
            None if matches!(request.op, RequestOp::Add) && self.is_stopping => {
                self.fail(key, Errno::SHUTDOWN, memory);
            }
            None if matches!(request.op, RequestOp::Add) => self.start(key, memory),
            Some(volume) => {
                volume.active += 1;
                if volume.standing == Standing::Detaching || self.is_stopping {
                    self.fail(key, Errno::SHUTDOWN, memory);
                } else if range.is_some_and(|range| range.sectors == 0 || range.end() > volume.size_sectors) {
                    // The door checked against the size it announced; the engine does not rely on it.
                    self.fail(key, Errno::INVAL, memory);
                } else {
                    self.start(key, memory);
                }
            }
            None => self.fail(key, Errno::NODEV, memory),
        }
        // A read asks devices, or is answered from memory: it leaves nothing to do until a device has answered. But what waits in
        // the store may have waited for long enough.
        let leaves_work = !matches!(request.op, RequestOp::Read { .. }) || !self.store.is_quiet();
        self.settle_soon(leaves_work, memory);
        Ok(())
    }

    fn start<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let op = self.requests[key].op;
        let volume_index = self.requests[key].volume;
        if let Some(volume) = &mut self.volumes[volume_index.at()] {
            let counters = &mut volume.counters;
            match op {
                RequestOp::Read { range, .. } => {
                    counters.reads += 1;
                    counters.read_bytes += range.sectors * SECTOR_BYTES;
                }
                RequestOp::Write { range, .. } => {
                    counters.writes += 1;
                    counters.written_bytes += range.sectors * SECTOR_BYTES;
                }
                RequestOp::Flush => counters.flushes += 1,
                RequestOp::Discard { .. } => counters.discards += 1,
                RequestOp::WriteZeroes { .. } => counters.write_zeroes += 1,
                _ => (),
            }
        }
        match op {
            RequestOp::Read { .. } => {
                self.last_client = self.now;
                self.start_read(key, memory);
            }
            RequestOp::Write { .. } | RequestOp::Discard { .. } | RequestOp::WriteZeroes { .. } => {
                self.last_client = self.now;
                self.start_change(key, memory);
            }
            RequestOp::Warm { .. } => self.start_warm(key, memory),
            RequestOp::Scrub(_) => self.start_scrub(key, memory),
            RequestOp::ScrubSegment(segment) => S::scrub_segment(self, key, segment, memory),
            RequestOp::Flush => self.start_flush(key, memory),
            _ => self.start_control(key, memory),
        }
    }

    /// Takes a device's answer to operation `io`.
    pub(crate) fn complete<M: Memory>(
        &mut self,
        now: Nanos,
        io: IoId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.set_now(now);
        let flight = self.outbox.land(io);
        if self.halves.is_some() {
            self.landed_on_halves(flight, result, memory);
        } else {
            self.landed(flight, result, memory);
        }
        self.settle_soon(true, memory);
    }

    /// Takes the outcome of an operation of a device, or of both halves of a mirrored cache.
    #[inline]
    pub(crate) fn landed<M: Memory>(
        &mut self,
        flight: Flight<S::Flight>,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        // HAZARD 10: a cache that is gone fails reads, too, and no write may come that would show it.
        let gone = result.err().filter(|errno| errno.is_gone() && flight.is_of_cache(S::is_of_cache));
        match flight {
            Flight::CacheRead { request, piece, issued } => {
                self.slow_cache.answered(self.now.since(issued));
                S::answered(self, issued);
                self.cache_read_done(request, piece, result, memory);
            }
            Flight::AheadRead(read) => {
                self.slow_cache.answered(self.now.since(read.issued));
                S::answered(self, read.issued);
                self.ahead_read_done(*read, result, memory);
            }
            Flight::ScrubRead { request, piece, is_second } => {
                self.scrub_read_done(request, piece, is_second, result, memory);
            }
            Flight::OriginRead { request, piece, issued } => {
                self.origin_read_done(request, piece, issued, result, memory);
            }
            Flight::OriginAhead { volume, firsts } => self.origin_ahead_read(volume, firsts, result, memory),
            Flight::Probe { buffer, issued } => self.probe_done(buffer, issued, memory),
            Flight::CacheFlush { sequence } => self.cache_flush_done(sequence, result, memory),
            Flight::Superblock => self.superblock_step_done(result, memory),
            Flight::OriginFlush { volume, epoch } => self.origin_flush_done(volume, epoch, result),
            Flight::OriginChange { request } => self.origin_change_done(request, result, memory),
            Flight::DestageRead { run, place, blocks } => {
                self.destage_read_done(run, (place, blocks), result, memory);
            }
            Flight::DestageWrite { run } => self.destage_write_done(run, result, memory),
            Flight::Store(flight) => S::complete(self, flight, result, memory),
            Flight::Abandon { volume } => self.abandon_done(volume, result, memory),
            Flight::Fingerprint { volume, at, buffer } => {
                self.fingerprint_done(volume, at, buffer, result, memory);
            }
            Flight::Leg { .. }
            | Flight::Page { .. }
            | Flight::Copy
            | Flight::Mend { .. }
            | Flight::WriteAgain { .. } => unreachable!("a half's own operations end with it"),
        }
        if let Some(errno) = gone {
            self.latch(errno, memory);
        }
    }

    /// Lets time pass: call it when [`Machine::deadline`] was reached.
    pub(crate) fn advance<M: Memory>(&mut self, now: Nanos, memory: &mut M) {
        self.set_now(now);
        let is_due = self.next_tick.is_none_or(|tick| tick <= now);
        if is_due {
            self.next_tick = None;
        }
        self.settle(memory);
        if is_due {
            self.tick(memory);
        }
    }

    /// The next thing to do, until `None`. Call it until then after every group of the calls
    /// above: writes that wait for group commit are sent off when the driver has no more input.
    #[inline]
    pub(crate) fn poll_effect<M: Memory>(&mut self, memory: &mut M) -> Option<Effect> {
        if self.outbox.is_empty() {
            self.find_effects(memory);
        }
        self.outbox.next()
    }

    #[inline(never)]
    fn find_effects<M: Memory>(&mut self, memory: &mut M) {
        // All answers so far are drawn.
        self.group.0 += 1;
        if self.is_unsettled {
            self.settle(memory);
        }
        S::assemble(self, memory);
        if self.halves.is_some() {
            self.pump_halves(memory);
        }
    }

    /// The time at which the engine wants [`Machine::advance`] called, if nothing else happens before.
    #[inline]
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.next_tick.into_iter().chain(self.store.deadline()).min()
    }

    #[inline]
    fn set_now(&mut self, now: Nanos) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
    }

    /// Settles at once if somebody may wait for what a call changed, or the store has something to do. Else one look for a group
    /// of calls is enough, before the driver has drawn the last effect of it, and none if no call left anything to do.
    #[inline]
    fn settle_soon<M: Memory>(&mut self, leaves_work: bool, memory: &mut M) {
        let may_concern_others =
            self.requests.any_waiting() || self.share.is_changed() || self.halves.is_some();
        if may_concern_others || !S::is_at_rest(self) {
            self.settle(memory);
        } else {
            self.is_unsettled |= leaves_work;
        }
    }

    /// Lets everything go on that can.
    fn settle<M: Memory>(&mut self, memory: &mut M) {
        self.is_unsettled = false;
        loop {
            if self.halves.is_some() {
                self.pump_halves(memory);
            }
            self.let_go_on(memory);
            S::repair(self, memory);
            self.pump_superblock(memory);
            self.pump_barrier();
            S::pump(self, memory);
            // A request that the store ended just now may have held blocks that another waits for, and no other call may come.
            if !self.is_guard_released || !self.requests.any_for_blocks() {
                break;
            }
        }
        self.pump_destage(memory);
    }

    /// Lets requests go on that waited for blocks, buffers, a condition or their share.
    #[inline]
    fn let_go_on<M: Memory>(&mut self, memory: &mut M) {
        if self.requests.any_waiting() || self.share.is_changed() {
            self.let_waiting_go_on(memory);
        } else {
            self.is_guard_released = false;
        }
    }

    fn let_waiting_go_on<M: Memory>(&mut self, memory: &mut M) {
        loop {
            let is_released = core::mem::take(&mut self.is_guard_released);
            if is_released && self.requests.any_for_blocks() {
                self.retry_guard_queue(memory);
            }
            if self.requests.for_buffer() > 0 {
                self.retry_buffer_queue(memory);
            }
            if !self.requests.watched().is_empty() {
                self.look_at_watched(memory);
            }
            self.retry_shares(memory);
            // A request that was answered just now may have held blocks that another waits for, and no other call may come.
            if !self.is_guard_released || !self.requests.any_for_blocks() {
                break;
            }
        }
    }

    /// Does the work that only the clock triggers.
    fn tick<M: Memory>(&mut self, memory: &mut M) {
        for volume in self.volumes.indices() {
            if self.volumes[volume.at()].is_some() {
                self.pump_origin_flush(volume);
            }
        }
        self.share.wake();
        self.let_waiting_go_on(memory);
        self.pump_destage(memory);
        for at in 0..self.volumes.end() {
            let owing = self.volumes[at].as_ref().filter(|volume| volume.is_leaving || volume.was_refused);
            let Some(volume) = owing.map(|volume| volume.index).filter(|volume| !self.is_behind(*volume))
            else {
                continue;
            };
            self.volume_mut(volume).was_refused = false;
            if core::mem::take(&mut self.volume_mut(volume).is_leaving) {
                self.push(Effect::Notice(Notice::Drained { volume }));
            }
        }
        let is_work_left = !self.runs.is_empty()
            || self.volumes.iter().flatten().any(|volume| {
                // Lost data cannot be destaged, and nothing can while the cache is latched.
                (volume.has_destageable() && self.latched.is_none() && !self.rests(volume))
                    || volume.destage.has_written()
            })
            || self.store.is_busy()
            || !self.requests.watched().is_empty()
            || !self.share.is_empty();
        if is_work_left {
            self.want_tick(self.now.plus(self.config.tick_ns));
        }
    }

    /// Whether a bug is planted: the line that prevents it is switched off.
    pub(crate) fn is_mutated(&self, mutation: Mutation) -> bool {
        self.config.mutations.has(mutation)
    }

    #[inline]
    pub(crate) fn want_tick(&mut self, at: Nanos) {
        self.next_tick = Some(self.next_tick.map_or(at, |old| old.min(at)));
    }

    // ---- wear ----------------------------------------------------------------------------

    pub(crate) fn set_wear_budget(&mut self, budget: Option<WearBudget>) {
        self.wear.set(budget, self.outbox.cache_bytes().written_bytes, self.now);
    }

    /// Whether what was read may enter the cache by its wear budget.
    #[inline]
    pub(crate) fn budget_allows_fills(&mut self) -> bool {
        !self.wear.has_budget() || self.wear.allows_fills(self.outbox.cache_bytes().written_bytes, self.now)
    }

    /// Whether clean blocks may be written again by the wear budget.
    #[inline]
    pub(crate) fn budget_allows_relocation(&mut self) -> bool {
        !self.wear.has_budget()
            || self.wear.allows_relocation(self.outbox.cache_bytes().written_bytes, self.now)
    }

    /// Why a write goes around the cache by the wear budget, if it does: where writes may, and the origin works.
    pub(crate) fn budget_bars_write(&mut self, volume: VolumeIndex) -> Option<Bypass> {
        let is_over = !self.wear.allows_writes(self.outbox.cache_bytes().written_bytes, self.now);
        let may_bypass = is_over && S::takes_refused(self) && !self.volume(volume).origin.is_failing();
        may_bypass.then_some(Bypass::Budget)
    }

    /// The wear budget and what is left of it.
    pub(crate) fn wear_status(&self) -> Option<WearStatus> {
        self.wear.status(self.outbox.cache_bytes().written_bytes, self.now)
    }

    // ---- effects -------------------------------------------------------------------------

    /// Issues an operation; `flight` comes back with its completion.
    #[inline]
    pub(crate) fn issue(&mut self, target: Target, op: IoOp, flight: Flight<S::Flight>) {
        if target == Target::Cache && self.halves.is_some() {
            self.issue_on_halves(op, flight);
        } else {
            self.outbox.issue(target, op, flight);
        }
    }

    /// Counts content in the write to the cache that is issued now.
    #[inline]
    pub(crate) fn count_content(&mut self, why: Content, bytes: u64) {
        self.outbox.count_content(why, bytes);
    }

    /// Sends off a reply or a notice.
    #[inline]
    pub(crate) fn push(&mut self, effect: Effect) {
        self.outbox.push(effect);
    }

    // ---- requests ------------------------------------------------------------------------

    #[inline]
    pub(crate) fn volume(&self, index: VolumeIndex) -> &Volume {
        self.volumes.of(index)
    }

    #[inline]
    pub(crate) fn volume_mut(&mut self, index: VolumeIndex) -> &mut Volume {
        self.volumes.of_mut(index)
    }

    /// Answers a request and forgets it.
    pub(crate) fn reply<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (is_holding, has_share) = (active.hold.is_some(), active.reserved_blocks > 0);
        if active.has_later && self.carries_on(key, memory) {
            return;
        }
        if is_holding {
            self.release_hold(key);
        }
        if has_share {
            self.release_share(key, u64::MAX);
        }
        S::request_ended(self, key, memory);
        let is_early = self.is_mutated(Mutation::AckBeforeWritten);
        let (volumes, group) = (&mut self.volumes, self.group);
        let see = |active: &Active| {
            assert!(active.parts == 0, "no operation is under way for a request that is answered");
            if let Some(volume) = volumes.get_mut(active.volume)
                && !matches!(active.op, RequestOp::Stop)
            {
                volume.active = volume.active.saturating_sub(1);
                volume.origin.changes.answered(active.reached, group);
            }
            let is_answered = active.is_answered || is_early && active.is_logged_write();
            (!is_answered).then(|| Effect::Reply { id: active.id, result: active.error.map_or(Ok(()), Err) })
        };
        let reply = self.requests.remove(key, see, memory);
        if let Some(reply) = reply {
            self.push(reply);
        }
    }

    /// Answers a request that stays until its effects are durable.
    pub(crate) fn answer<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.release_hold(key);
        self.requests.release_buffers(key, memory);
        let active = &mut self.requests[key];
        active.is_answered = true;
        let id = active.id;
        self.push(Effect::Reply { id, result: Ok(()) });
    }

    pub(crate) fn fail<M: Memory>(&mut self, key: RequestKey, errno: Errno, memory: &mut M) {
        self.requests[key].error = Some(errno);
        self.reply(key, memory);
    }

    #[inline]
    pub(crate) fn release_hold(&mut self, key: RequestKey) {
        let active = &mut self.requests[key];
        let Some(hold) = active.hold.take() else { return };
        let (volume, blocks) = (active.volume, active.held);
        if hold == Hold::Beside {
            self.release_sectors(key);
        }
        self.release_guard(volume, blocks, hold);
    }

    #[inline]
    pub(crate) fn release_guard(&mut self, volume: VolumeIndex, blocks: Blocks, hold: Hold) {
        if let Some(volume) = &mut self.volumes[volume.at()] {
            volume.guard.release(blocks, hold);
        }
        self.is_guard_released = true;
    }

    /// A buffer of the driver's pool. If there is none, the clock brings the engine back to the requests that wait
    /// for it, because no completion may come.
    pub(crate) fn allocate<M: Memory>(
        &mut self,
        purpose: Purpose,
        len_bytes: u32,
        memory: &mut M,
    ) -> Option<BufferId> {
        let buffer = memory.allocate(purpose, len_bytes);
        if buffer.is_none() {
            self.want_tick(self.now.plus(self.config.tick_ns));
        }
        buffer
    }

    /// A buffer of whole blocks for a request; `None` if it has to wait.
    pub(crate) fn take_work<M: Memory>(&mut self, blocks: u64, memory: &mut M) -> Option<BufferId> {
        let bytes = blocks * BLOCK_BYTES;
        // RULE 15: memory for partial requests is bounded; a request that finds none waits.
        if self.requests.work_bytes() + bytes > self.config.work_bytes_max
            && !self.is_mutated(Mutation::WorkUnbounded)
        {
            return None;
        }
        let buffer = self.allocate(Purpose::Payload, to_u32(bytes), memory)?;
        self.requests.add_work(bytes);
        Some(buffer)
    }

    fn retry_buffer_queue<M: Memory>(&mut self, memory: &mut M) {
        for _ in 0..self.requests.for_buffer() {
            let Some(key) = self.requests.next_for_buffer() else { break };
            match self.requests[key].op {
                RequestOp::Read { .. } => self.start_read(key, memory),
                RequestOp::Scrub(_) => self.start_scrub(key, memory),
                RequestOp::ScrubSegment(segment) => S::scrub_segment(self, key, segment, memory),
                _ => self.begin_change(key, memory),
            }
            if self.requests.is_still_for_buffer(key) {
                break;
            }
        }
    }
}

/// The range of a request, if it has one. The door limits its length.
#[inline]
fn checked_range(op: RequestOp) -> Option<SectorRange> {
    let (range, bytes_max) = match op {
        RequestOp::Read { range, into: slice }
        | RequestOp::Warm { range, into: slice }
        | RequestOp::Write { range, from: slice, .. } => {
            assert!(
                u64::from(slice.len_bytes) == range.sectors * SECTOR_BYTES,
                "the buffer of a request is as long as its range"
            );
            (range, u64::from(REQUEST_BYTES_MAX))
        }
        RequestOp::Scrub(range) => (range, u64::from(REQUEST_BYTES_MAX)),
        RequestOp::Discard { range, .. } | RequestOp::WriteZeroes { range, .. } => (range, RANGE_BYTES_MAX),
        _ => return None,
    };
    assert!(range.sectors * SECTOR_BYTES <= bytes_max, "the door cuts requests that are too long");
    Some(range)
}

/// The slice of a work buffer of whole blocks.
pub(crate) fn work_slice(buffer: BufferId, blocks: u64) -> Slice {
    Slice { buffer, offset_bytes: 0, len_bytes: to_u32(blocks * BLOCK_BYTES) }
}
