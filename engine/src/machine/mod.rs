//! What every cache does: requests and their order, operations under way, and the step after each call that
//! puts all back into a known shape. How blocks are kept is the [`Store`]'s.
//!
//! The machine's parts are files of this crate that each add calls to [`Machine`]: `read`, `change`
//! (writes, discards, write-zeroes), `share` (who may hold how much dirty), `barrier` (flushes), `destage`,
//! `control` (the operator) and `failure` (a cache that fails).

pub(crate) mod barrier;
pub(crate) mod change;
pub(crate) mod control;
pub(crate) mod destage;
pub(crate) mod failure;
pub mod fingerprint;
pub(crate) mod guard;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod share;
pub(crate) mod volume;

use crate::effect::{Effect, Errno, Io, IoId, IoOp, Notice, Request, RequestOp, Target};
use crate::engine::Busy;
use crate::format::Superblock;
use crate::limits::{Config, REQUEST_BYTES_MAX, REQUESTS_MAX};
use crate::machine::barrier::{CacheBarrier, SuperblockWriter};
use crate::machine::destage::Run;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::read::Piece;
use crate::machine::request::{Active, RequestKey, Route, Stage};
use crate::machine::share::ShareQueue;
use crate::machine::volume::{Standing, Volume};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::status::DeviceBytes;
use crate::store::{Operations, Store};
use crate::units::{BLOCK_BYTES, Nanos, Place, VOLUMES_MAX, VolumeIndex};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slab::Slab;

/// What an operation under way is for.
pub(crate) enum Flight<T> {
    /// Cached blocks for a request.
    CacheRead { request: RequestKey, piece: Piece, issued: Nanos },
    /// Blocks of the origin for a request.
    OriginRead { request: RequestKey, piece: Piece },
    /// A flush that covers the store's writes up to a sequence.
    CacheFlush { sequence: u64 },
    /// A step of the superblock's writing.
    Superblock,
    /// A flush that ends an epoch.
    OriginFlush { volume: VolumeIndex, epoch: u64 },
    /// A request's own write, write-zeroes or discard.
    OriginChange { request: RequestKey },
    /// A piece of a run on its way home is being read.
    DestageRead { run: usize, place: Place, blocks: u32 },
    /// A run goes home.
    DestageWrite { run: usize },
    /// The durable note that a volume's cache is given up.
    Abandon { volume: VolumeIndex },
    /// A well-known place of an origin, at a clean stop.
    Fingerprint { volume: VolumeIndex, at: usize, buffer: BufferId },
    /// The store's own.
    Store(T),
}

impl<T> Flight<T> {
    fn is_of_cache<S: Store<Flight = T>>(&self) -> bool {
        match self {
            Flight::CacheRead { .. }
            | Flight::CacheFlush { .. }
            | Flight::Superblock
            | Flight::DestageRead { .. } => true,
            Flight::Store(flight) => S::is_of_cache(flight),
            Flight::OriginRead { .. }
            | Flight::OriginFlush { .. }
            | Flight::OriginChange { .. }
            | Flight::DestageWrite { .. }
            | Flight::Abandon { .. }
            | Flight::Fingerprint { .. } => false,
        }
    }
}

/// What recovery found, for a machine over it.
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
    pub(crate) volumes: [Option<Volume>; VOLUMES_MAX],
    /// One more than the highest slot with a volume.
    pub(crate) volumes_end: usize,
    pub(crate) store: S,
    pub(crate) barrier: CacheBarrier,
    pub(crate) superblock_writer: SuperblockWriter<S::Flight>,
    pub(crate) requests: Slab<Active>,
    /// Requests in [`Stage::Guard`], first come first.
    pub(crate) guard_queue: VecDeque<RequestKey>,
    pub(crate) is_guard_released: bool,
    /// Requests in [`Stage::Buffer`].
    pub(crate) buffer_queue: VecDeque<RequestKey>,
    pub(crate) share: ShareQueue,
    /// Requests in a stage that [`Machine::settle`] looks at.
    pub(crate) watched: Vec<RequestKey>,
    flights: Slab<(u32, Flight<S::Flight>)>,
    flight_serial: u32,
    pub(crate) runs: Slab<Run>,
    effects: VecDeque<Effect>,
    /// Why the cache is not written any more.
    pub(crate) latched: Option<Errno>,
    pub(crate) is_stopping: bool,
    pub(crate) cache_bytes: DeviceBytes,
    pub(crate) work_bytes: u64,
    pub(crate) last_client: Nanos,
    pub(crate) next_tick: Option<Nanos>,
}

impl<S: Store> Machine<S> {
    /// A machine over what recovery found.
    pub(crate) fn new(start: Start<S>, config: Config) -> Machine<S> {
        let Start { superblock, mut volumes, store } = start;
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
            volumes_end: volumes.iter().rposition(Option::is_some).map_or(0, |last| last + 1),
            volumes,
            store,
            barrier: CacheBarrier::new(sequence),
            superblock_writer: SuperblockWriter::default(),
            requests: Slab::new(),
            guard_queue: VecDeque::new(),
            is_guard_released: false,
            buffer_queue: VecDeque::new(),
            share: ShareQueue::default(),
            watched: Vec::new(),
            flights: Slab::new(),
            flight_serial: 0,
            runs: Slab::new(),
            effects: VecDeque::new(),
            latched: None,
            is_stopping: false,
            cache_bytes: DeviceBytes::default(),
            work_bytes: 0,
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
        let range = match request.op {
            RequestOp::Read { range, into } => {
                assert!(
                    u64::from(into.len_bytes) == range.sectors * 512 && into.len_bytes <= REQUEST_BYTES_MAX
                );
                Some(range)
            }
            RequestOp::Write { range, from, .. } => {
                assert!(
                    u64::from(from.len_bytes) == range.sectors * 512 && from.len_bytes <= REQUEST_BYTES_MAX
                );
                Some(range)
            }
            RequestOp::Discard { range, .. } | RequestOp::WriteZeroes { range, .. } => {
                assert!(range.sectors * 512 <= crate::limits::RANGE_BYTES_MAX);
                Some(range)
            }
            _ => None,
        };
        let blocks = range.map_or(Blocks { first: 0, count: 0 }, Blocks::touched_by);
        let key = self.requests.insert(Active {
            id: request.id,
            volume: request.volume,
            op: request.op,
            blocks,
            stage: Stage::New,
            route: Route::Log,
            hold: None,
            held: blocks,
            work: None,
            work_buffer: None,
            is_client_buffer_released: false,
            passes: None,
            is_around: false,
            parts: 0,
            unpublished: 0,
            unapplied: 0,
            is_answered: false,
            reserved_blocks: 0,
            sequence: 0,
            error: None,
        });
        let is_stop = matches!(request.op, RequestOp::Stop);
        match self.volumes.get_mut(request.volume.at()).and_then(Option::as_mut) {
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
            None if is_stop => self.start(key, memory),
            None => self.fail(key, Errno::NODEV, memory),
        }
        self.settle(memory);
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
                    counters.read_bytes += range.sectors * 512;
                }
                RequestOp::Write { range, .. } => {
                    counters.writes += 1;
                    counters.written_bytes += range.sectors * 512;
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
            RequestOp::Flush => self.start_flush(key, memory),
            _ => self.start_control(key, memory),
        }
    }

    /// A device answered operation `io`.
    pub(crate) fn complete<M: Memory>(
        &mut self,
        now: Nanos,
        io: IoId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.set_now(now);
        let key = (io.0 & 0xffff_ffff) as usize;
        let serial = (io.0 >> 32) as u32;
        assert!(
            self.flights.get(key).is_some_and(|(s, _)| *s == serial),
            "an operation is completed once, by the number it was issued with"
        );
        let (_, flight) = self.flights.remove(key);
        // HAZARD 10: a cache that is gone fails reads, too, and there may be no write to come that would tell.
        let gone = result.err().filter(|errno| errno.is_gone() && flight.is_of_cache::<S>());
        match flight {
            Flight::CacheRead { request, piece, issued } => {
                S::answered(self, issued);
                self.cache_read_done(request, piece, result, memory);
            }
            Flight::OriginRead { request, piece } => self.origin_read_done(request, piece, result, memory),
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
        }
        if let Some(errno) = gone {
            self.latch(errno, memory);
        }
        self.settle(memory);
    }

    /// Time passed: call it when [`Machine::deadline`] was reached.
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
    /// above: what waits for company (group commit) is sent off when the driver has no more input.
    pub(crate) fn poll_effect<M: Memory>(&mut self, memory: &mut M) -> Option<Effect> {
        if self.effects.is_empty() {
            S::assemble(self, memory);
        }
        self.effects.pop_front()
    }

    /// When the engine wants [`Machine::advance`] called, if nothing else happens before.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.next_tick.into_iter().chain(self.store.deadline()).min()
    }

    fn set_now(&mut self, now: Nanos) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
    }

    /// Restores what must hold between two calls: whoever can go on, goes on.
    fn settle<M: Memory>(&mut self, memory: &mut M) {
        self.let_go_on(memory);
        S::repair(self, memory);
        self.pump_superblock(memory);
        self.pump_barrier();
        S::pump(self, memory);
        self.pump_destage(memory);
    }

    /// Lets requests go on that waited for blocks, buffers, a condition or their share.
    fn let_go_on<M: Memory>(&mut self, memory: &mut M) {
        loop {
            let is_released = core::mem::take(&mut self.is_guard_released);
            if is_released && !self.guard_queue.is_empty() {
                self.retry_guard_queue(memory);
            }
            if !self.buffer_queue.is_empty() {
                self.retry_buffer_queue(memory);
            }
            if !self.watched.is_empty() {
                self.look_at_watched(memory);
            }
            self.retry_shares(memory);
            // Whoever was answered just now may have been in somebody's way, and nothing else need be to come.
            if !self.is_guard_released || self.guard_queue.is_empty() {
                break;
            }
        }
    }

    /// What happens by the clock alone.
    fn tick<M: Memory>(&mut self, memory: &mut M) {
        self.pump_origin_flushes();
        self.share.wake();
        self.let_go_on(memory);
        self.pump_destage(memory);
        for at in 0..self.volumes_end {
            if let Some(volume) = &mut self.volumes[at]
                && volume.is_leaving
                && !volume.is_dirty()
            {
                volume.is_leaving = false;
                let volume = volume.index;
                self.push(Effect::Notice(Notice::Drained { volume }));
            }
        }
        let is_work_left = !self.runs.is_empty()
            || self.volumes.iter().flatten().any(|volume| {
                // Nothing brings home what is lost, nor anything while the cache is latched.
                (volume.has_destageable() && self.latched.is_none()) || volume.destage.has_written()
            })
            || self.store.is_busy()
            || !self.watched.is_empty()
            || !self.share.is_empty();
        if is_work_left {
            self.want_tick(self.now.plus(self.config.tick_ns));
        }
    }

    /// Whether the line that prevents that bug is switched off.
    pub(crate) fn is_mutated(&self, mutation: Mutation) -> bool {
        self.config.mutations.has(mutation)
    }

    pub(crate) fn want_tick(&mut self, at: Nanos) {
        self.next_tick = Some(self.next_tick.map_or(at, |old| old.min(at)));
    }

    // ---- effects -------------------------------------------------------------------------

    pub(crate) fn issue(&mut self, target: Target, op: IoOp, flight: Flight<S::Flight>) {
        let bytes = match target {
            Target::Cache => Some(&mut self.cache_bytes),
            Target::Origin(volume) => {
                self.volumes[volume.at()].as_mut().map(|volume| &mut volume.counters.origin)
            }
            Target::State => None,
        };
        if let Some(bytes) = bytes {
            match &op {
                IoOp::Read { into, .. } => bytes.read_bytes += into.len_bytes(),
                IoOp::Write { from, .. } => bytes.written_bytes += from.len_bytes(),
                IoOp::Flush => bytes.flushes += 1,
                IoOp::Discard { .. } | IoOp::WriteZeroes { .. } | IoOp::Abandon(_) => (),
            }
        }
        self.flight_serial = self.flight_serial.wrapping_add(1);
        let key = self.flights.insert((self.flight_serial, flight));
        let id = IoId((u64::from(self.flight_serial) << 32) | key as u64);
        self.effects.push_back(Effect::Io(Io { id, target, op }));
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(crate) fn flights_in_air(&self) -> usize {
        self.flights.len()
    }

    // ---- requests ------------------------------------------------------------------------

    pub(crate) fn volume(&self, index: VolumeIndex) -> &Volume {
        self.volumes[index.at()].as_ref().expect("the volume of a request under way exists")
    }

    pub(crate) fn volume_mut(&mut self, index: VolumeIndex) -> &mut Volume {
        self.volumes[index.at()].as_mut().expect("the volume of a request under way exists")
    }

    /// Answers a request and forgets it.
    pub(crate) fn reply<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.release_hold(key);
        S::request_ended(self, key, memory);
        self.release_share(key, u64::MAX);
        self.release_work(key, memory);
        self.release_client_buffer(key, memory);
        let is_answered = self.requests[key].is_answered
            || self.is_mutated(Mutation::AckBeforeWritten) && self.is_logged_write(key);
        let active = self.requests.remove(key);
        assert!(active.parts == 0, "no operation is under way for a request that is answered");
        if let Some(volume) = &mut self.volumes[active.volume.at()] {
            // A stop may name any volume.
            volume.active = volume.active.saturating_sub(1);
        }
        let result = active.error.map_or(Ok(()), Err);
        if !is_answered {
            self.push(Effect::Reply { id: active.id, result });
        }
    }

    /// Answers a request that stays: what it did is to be made durable yet.
    pub(crate) fn answer<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.release_hold(key);
        self.release_work(key, memory);
        self.release_client_buffer(key, memory);
        let active = &mut self.requests[key];
        active.is_answered = true;
        let id = active.id;
        self.push(Effect::Reply { id, result: Ok(()) });
    }

    pub(crate) fn fail<M: Memory>(&mut self, key: RequestKey, errno: Errno, memory: &mut M) {
        self.requests[key].error = Some(errno);
        self.reply(key, memory);
    }

    pub(crate) fn release_hold(&mut self, key: RequestKey) {
        let active = &mut self.requests[key];
        let Some(hold) = active.hold.take() else { return };
        let (volume, blocks) = (active.volume, active.held);
        self.release_guard(volume, blocks, hold);
    }

    pub(crate) fn release_guard(&mut self, volume: VolumeIndex, blocks: Blocks, hold: Hold) {
        if let Some(volume) = &mut self.volumes[volume.at()] {
            volume.guard.release(blocks, hold);
        }
        self.is_guard_released = true;
    }

    /// A buffer of the driver's pool. If there is none, the clock brings the engine back to whoever waits for it:
    /// no completion may be to come.
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
        // RULE 15: memory for partial requests is bounded; who finds none waits.
        if self.work_bytes + bytes > self.config.work_bytes_max && !self.is_mutated(Mutation::WorkUnbounded) {
            return None;
        }
        let buffer = self.allocate(Purpose::Payload, bytes as u32, memory)?;
        self.work_bytes += bytes;
        Some(buffer)
    }

    pub(crate) fn release_work<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        let work = active.work.take();
        if let Some(buffer) = active.work_buffer.take() {
            let slice = work.expect("a work buffer has a slice");
            self.work_bytes -= u64::from(slice.len_bytes);
            memory.release(buffer);
        }
    }

    pub(crate) fn release_client_buffer<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        if !active.is_client_buffer_released {
            active.is_client_buffer_released = true;
            if let Some(slice) = active.client_slice() {
                memory.release(slice.buffer);
            }
        }
    }

    fn retry_buffer_queue<M: Memory>(&mut self, memory: &mut M) {
        for _ in 0..self.buffer_queue.len() {
            let Some(key) = self.buffer_queue.pop_front() else { break };
            assert!(self.requests[key].stage == Stage::Buffer);
            match self.requests[key].op {
                RequestOp::Read { .. } => self.start_read(key, memory),
                _ => self.begin_change(key, memory),
            }
            // Still without one: the others would not fare better.
            if self.buffer_queue.back() == Some(&key) {
                let key = self.buffer_queue.pop_back().expect("just seen");
                self.buffer_queue.push_front(key);
                break;
            }
        }
    }
}

/// The slice of a work buffer of whole blocks.
pub(crate) fn work_slice(buffer: BufferId, blocks: u64) -> Slice {
    Slice { buffer, offset_bytes: 0, len_bytes: (blocks * BLOCK_BYTES) as u32 }
}
