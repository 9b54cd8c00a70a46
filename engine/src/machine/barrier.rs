//! Flushes: of the cache up to a sequence, of an origin up to an epoch, and the superblock's
//! four-step writing.

use crate::effect::Effect;
use crate::effect::{Errno, IoOp, Notice, Pieces, RequestOp, Target};
use crate::format::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS};
use crate::machine::guard::Blocks;
use crate::machine::request::{RequestKey, Stage, Then};
use crate::machine::share::OriginWork;
use crate::machine::volume::Standing;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, VolumeIndex};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What is durable in the cache and who waits for more.
#[derive(Debug)]
pub(crate) struct CacheBarrier {
    /// All batches up to this sequence are covered by a flush.
    pub flushed: u64,
    wanted: BTreeSet<u64>,
    is_flushing: bool,
    /// Flushes issued.
    issued: u64,
    /// The last of them that succeeded, counted from 1.
    succeeded: u64,
}

/// A moment in the order of the cache's flushes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushMoment(u64);

impl CacheBarrier {
    pub fn new(flushed: u64) -> CacheBarrier {
        CacheBarrier { flushed, wanted: BTreeSet::new(), is_flushing: false, issued: 0, succeeded: 0 }
    }

    /// Asks for a flush that covers `sequence`, as soon as that is published.
    pub fn want(&mut self, sequence: u64) {
        if sequence > self.flushed {
            self.wanted.insert(sequence);
        }
    }

    /// Now.
    pub fn moment(&self) -> FlushMoment {
        FlushMoment(self.issued)
    }

    /// Whether a flush that was issued after a moment has succeeded: what the device had then is durable.
    pub fn has_flushed_since(&self, moment: FlushMoment) -> bool {
        self.succeeded > moment.0
    }
}

/// A step of writing the superblock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Write(usize),
    Flush(usize),
}

/// The writer of the superblock's two copies: one after the other, a flush after each, so that one
/// of them is whole at any moment (rule 6).
pub(crate) struct SuperblockWriter<T> {
    /// The update number that is durable in both copies.
    durable: u64,
    is_wanted: bool,
    writing: Option<(u64, Step, BufferId)>,
    /// Writes to origins that wait for an update.
    deferred: Vec<(u64, Target, IoOp, Flight<T>)>,
}

impl<T> Default for SuperblockWriter<T> {
    fn default() -> SuperblockWriter<T> {
        SuperblockWriter { durable: 0, is_wanted: false, writing: None, deferred: Vec::new() }
    }
}

impl<T> SuperblockWriter<T> {
    pub fn is_quiet(&self) -> bool {
        self.writing.is_none() && !self.is_wanted && self.deferred.is_empty()
    }
}

impl<S: Store> Machine<S> {
    // ---- the cache ---------------------------------------------------------------------------

    /// Lets a request go on with `then` when a flush covers `sequence`.
    pub(crate) fn wait_for_cache_flush<M: Memory>(
        &mut self,
        key: RequestKey,
        sequence: u64,
        then: Then,
        memory: &mut M,
    ) {
        self.requests[key].stage = Stage::CacheFlush(sequence, then);
        if sequence <= self.barrier.flushed {
            self.go_on(key, then, memory);
        } else {
            self.barrier.want(sequence);
            self.watched.push(key);
        }
    }

    fn go_on<M: Memory>(&mut self, key: RequestKey, then: Then, memory: &mut M) {
        match then {
            Then::Reply => self.reply(key, memory),
            Then::Origin => self.home(key, memory),
            Then::OriginFlush => {
                let epoch = self.volume(self.requests[key].volume).origin.client_epoch;
                self.wait_for_origin_flush(key, epoch, memory);
            }
            Then::Forgotten => self.origin_when_forgotten(key, memory),
        }
    }

    /// Issues a flush of the cache if somebody wants one that would cover something.
    pub(crate) fn pump_barrier(&mut self) {
        if self.barrier.is_flushing || self.latched.is_some() || !self.store.may_flush() {
            return;
        }
        let published = self.store.completed();
        if self.barrier.wanted.first().is_some_and(|&wanted| wanted <= published) {
            self.barrier.is_flushing = true;
            self.barrier.issued += 1;
            self.issue(Target::Cache, IoOp::Flush, Flight::CacheFlush { sequence: published });
        }
    }

    pub(crate) fn cache_flush_done<M: Memory>(
        &mut self,
        sequence: u64,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.barrier.is_flushing = false;
        // HAZARD 3: a flush covers what was published when it was issued, and no more.
        let is_later = self.is_mutated(Mutation::CacheFlushCoversLater);
        let sequence = if is_later { self.store.completed() } else { sequence };
        match result {
            // After a failed flush what was written since the last good one counts as not written.
            Err(errno) if !self.is_mutated(Mutation::IgnoreCacheFlushError) => self.latch(errno, memory),
            _ => {
                assert!(sequence >= self.barrier.flushed);
                self.barrier.flushed = sequence;
                // There is one at a time.
                self.barrier.succeeded = self.barrier.issued;
                self.barrier.wanted = self.barrier.wanted.split_off(&(sequence + 1));
                S::flushed(self, sequence);
                for volume in self.volumes.iter_mut().flatten() {
                    // Those in a hurry waited for just this; the others look again by the clock.
                    if volume.destage.drains > 0 || volume.destage.has_urgent() {
                        volume.destage.wake();
                    }
                }
            }
        }
    }

    /// Requests that wait for a condition: those whose condition holds go on.
    pub(crate) fn look_at_watched<M: Memory>(&mut self, memory: &mut M) {
        let watched = core::mem::take(&mut self.watched);
        for key in watched {
            let active = &self.requests[key];
            let volume_index = active.volume;
            match active.stage {
                Stage::CacheFlush(sequence, then) if sequence <= self.barrier.flushed => {
                    self.go_on(key, then, memory);
                }
                Stage::Forgetting if matches!(active.op, RequestOp::SetSize(_)) => {
                    self.begin_growth(key, memory);
                }
                Stage::Forgetting if S::is_forgotten(self, key) => self.change_origin(key, memory),
                Stage::Forgetting => {
                    S::want_forgotten(self, key);
                    if S::is_forgotten(self, key) {
                        self.change_origin(key, memory);
                    } else {
                        self.watched.push(key);
                    }
                }
                Stage::OriginFlush(epoch) if epoch <= self.volume(volume_index).origin.flushed_epoch => {
                    self.reply(key, memory);
                }
                Stage::Barrier { sequence, epoch } => {
                    let is_origin_done = self.volume(volume_index).origin.flushed_epoch >= epoch;
                    let is_cache_done = self.barrier.flushed >= sequence || self.latched.is_some();
                    if is_origin_done && is_cache_done {
                        self.reply(key, memory);
                    } else {
                        self.watched.push(key);
                    }
                }
                Stage::Keys(number) if self.latched.is_some() || self.store.are_logged(number) => {
                    self.start_flush(key, memory);
                }
                Stage::Superblock(update) if update <= self.superblock_writer.durable => {
                    self.superblock_durable(key, memory);
                }
                Stage::Settling => self.look_at_settling(key, memory),
                Stage::Draining | Stage::Quiet => self.look_at_control(key, memory),
                Stage::CacheFlush(..) | Stage::OriginFlush(_) | Stage::Superblock(_) | Stage::Keys(_) => {
                    self.watched.push(key)
                }
                // It went on by another way since it was put on the list.
                _ => unreachable!("only those who wait are watched"),
            }
        }
    }

    // ---- FLUSH -------------------------------------------------------------------------------

    pub(crate) fn start_flush<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let volume_index = self.requests[key].volume;
        if self.volume(volume_index).standing == Standing::Failed {
            // What was acknowledged may be gone: nothing may be promised any more.
            self.fail(key, Errno::IO, memory);
            return;
        }
        if self.latched.is_none()
            && let Some(number) = self.store.unlogged()
        {
            self.requests[key].stage = Stage::Keys(number);
            self.watched.push(key);
            return;
        }
        if let Some(errno) = self.volume_mut(volume_index).origin.owed.take() {
            self.fail(key, errno, memory);
            return;
        }
        if !S::holds_flush(self, key) {
            self.flush_devices(key, memory);
        }
    }

    /// All that a FLUSH promises is written: both devices are flushed, as far as they have any of it.
    pub(crate) fn flush_devices<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let volume_index = self.requests[key].volume;
        let is_cache_void = self.latched.is_some()
            || !self.store.flush_waits_for_cache()
            || self.is_mutated(Mutation::FlushWithoutCacheFlush);
        let sequence = if is_cache_void { 0 } else { self.store.completed() };
        let is_origin_void = self.is_mutated(Mutation::FlushWithoutOriginFlush);
        let origin = &self.volume(volume_index).origin;
        let is_written = origin.client_epoch > origin.flushed_epoch && !is_origin_void;
        let epoch = if is_written { origin.client_epoch } else { 0 };
        self.barrier.want(sequence);
        if epoch > 0 {
            self.want_origin_flush(volume_index, epoch);
        }
        if sequence <= self.barrier.flushed && epoch == 0 {
            self.reply(key, memory);
            return;
        }
        self.requests[key].stage = Stage::Barrier { sequence, epoch };
        self.watched.push(key);
    }

    // ---- origins -----------------------------------------------------------------------------

    pub(crate) fn wait_for_origin_flush<M: Memory>(&mut self, key: RequestKey, epoch: u64, memory: &mut M) {
        let volume_index = self.requests[key].volume;
        if self.volume(volume_index).origin.flushed_epoch >= epoch {
            self.reply(key, memory);
            return;
        }
        self.requests[key].stage = Stage::OriginFlush(epoch);
        self.watched.push(key);
        self.want_origin_flush(volume_index, epoch);
    }

    /// Asks for a flush of an origin that ends `epoch` or a later one.
    pub(crate) fn want_origin_flush(&mut self, volume_index: VolumeIndex, epoch: u64) {
        let origin = &mut self.volume_mut(volume_index).origin;
        origin.flush_wanted = origin.flush_wanted.max(epoch);
        self.pump_origin_flush(volume_index);
    }

    pub(crate) fn pump_origin_flushes(&mut self) {
        for at in 0..self.volumes.len() {
            if self.volumes[at].is_some() {
                self.pump_origin_flush(VolumeIndex(at as u8));
            }
        }
    }

    pub(crate) fn pump_origin_flush(&mut self, volume_index: VolumeIndex) {
        let now = self.now;
        let volume = self.volume_mut(volume_index);
        let origin = &mut volume.origin;
        let is_due = origin.flush_wanted > origin.flushed_epoch && origin.flushing.is_none();
        if !is_due {
            return;
        }
        if now < origin.backoff_until {
            let until = origin.backoff_until;
            self.want_tick(until);
            return;
        }
        let epoch = origin.epoch;
        origin.epoch += 1;
        origin.flushing = Some(epoch);
        volume.destage.flush_begins();
        self.issue(
            Target::Origin(volume_index),
            IoOp::Flush,
            Flight::OriginFlush { volume: volume_index, epoch },
        );
    }

    pub(crate) fn origin_flush_done(
        &mut self,
        volume_index: VolumeIndex,
        epoch: u64,
        result: Result<(), Errno>,
    ) {
        let result = if self.is_mutated(Mutation::IgnoreOriginFlushError) { Ok(()) } else { result };
        let volume = self.volume_mut(volume_index);
        assert!(volume.origin.flushing == Some(epoch), "one flush at a time");
        volume.origin.flushing = None;
        match result {
            Ok(()) => {
                volume.origin.flushed_epoch = epoch;
                self.origin_worked(volume_index, OriginWork::Flush);
                self.destaged_durably(volume_index);
            }
            Err(errno) => {
                self.origin_failed(volume_index, OriginWork::Flush, errno);
                self.destage_flush_failed(volume_index);
                S::origin_flush_failed(self, volume_index);
                // Whoever waits for a promise gets an error: it cannot be kept. That includes those who came while
                // the flush was under way: a device that fails a flush may have dropped any unflushed write.
                let waiting: Vec<RequestKey> = self
                    .watched
                    .iter()
                    .copied()
                    .filter(|&key| {
                        let active = &self.requests[key];
                        active.volume == volume_index
                            && match active.stage {
                                Stage::OriginFlush(wanted) => wanted > 0,
                                Stage::Barrier { epoch: wanted, .. } => wanted > 0,
                                _ => false,
                            }
                    })
                    .collect();
                let is_told =
                    waiting.iter().any(|&key| matches!(self.requests[key].stage, Stage::Barrier { .. }));
                let origin = &mut self.volume_mut(volume_index).origin;
                if !is_told && origin.client_epoch > origin.flushed_epoch {
                    origin.owed = Some(errno);
                }
                for key in waiting {
                    let active = &mut self.requests[key];
                    active.error = Some(errno);
                    active.stage = match active.stage {
                        Stage::Barrier { sequence, .. } => Stage::Barrier { sequence, epoch: 0 },
                        _ => Stage::OriginFlush(0),
                    };
                }
            }
        }
        // Somebody may have come for a later epoch meanwhile.
        self.pump_origin_flush(volume_index);
    }

    /// An origin failed an operation of ours: it is left alone for a while.
    pub(crate) fn origin_failed(&mut self, volume_index: VolumeIndex, work: OriginWork, errno: Errno) {
        let (now, until) = (self.now, self.now.plus(self.config.backoff_ns));
        let absent_after_ns = self.config.absent_after_ns;
        let origin = &mut self.volume_mut(volume_index).origin;
        let before = (origin.is_failing(), origin.is_absent());
        origin.errors += 1;
        origin.note_failure(work, errno, now, absent_after_ns);
        origin.backoff_until = until;
        if before != (origin.is_failing(), origin.is_absent()) {
            self.share.origin_got_worse(volume_index);
        }
        self.push(Effect::Notice(Notice::OriginError { volume: volume_index, errno }));
        self.want_tick(until);
    }

    /// An origin did what we asked.
    pub(crate) fn origin_worked(&mut self, volume_index: VolumeIndex, work: OriginWork) {
        if self.volume_mut(volume_index).origin.note_success(work) {
            self.share.wake();
        }
    }

    /// Issues an operation that changes an origin. If it touches a well-known place whose checksum the
    /// superblock has, that checksum is taken back durably first (rule 11).
    pub(crate) fn issue_origin_write(
        &mut self,
        volume_index: VolumeIndex,
        blocks: Blocks,
        op: IoOp,
        flight: Flight<S::Flight>,
    ) {
        let target = Target::Origin(volume_index);
        let mut is_changed = false;
        let is_kept = self.is_mutated(Mutation::KeepFingerprint);
        if let Some(record) = &mut self.superblock.volumes[volume_index.at()] {
            for place in &mut record.fingerprint {
                let is_touched = place.as_ref().is_some_and(|place| {
                    let block = place.offset_bytes / BLOCK_BYTES;
                    // A place may begin inside a block where the volume's size is odd.
                    block + 1 >= blocks.first && block <= blocks.end()
                });
                if is_touched && !is_kept {
                    *place = None;
                    is_changed = true;
                }
            }
        }
        if is_changed && self.latched.is_none() {
            let update = self.change_superblock();
            self.superblock_writer.deferred.push((update, target, op, flight));
        } else if self.superblock_writer.deferred.is_empty() {
            self.issue(target, op, flight);
        } else {
            // A place taken back by an operation before this one is not durable yet.
            let update = self.superblock_writer.deferred.last().map_or(0, |(update, ..)| *update);
            self.superblock_writer.deferred.push((update, target, op, flight));
        }
    }

    // ---- the superblock ----------------------------------------------------------------------

    /// The superblock in memory was changed: it shall become durable. Returns its update number.
    pub(crate) fn change_superblock(&mut self) -> u64 {
        self.superblock.update += 1;
        self.superblock_writer.is_wanted = true;
        self.superblock.update
    }

    /// Starts writing the superblock if it changed and nobody is at it.
    pub(crate) fn pump_superblock<M: Memory>(&mut self, memory: &mut M) {
        let writer = &self.superblock_writer;
        if !writer.is_wanted || writer.writing.is_some() || self.latched.is_some() {
            return;
        }
        let Some(buffer) = self.allocate(Purpose::Metadata, SUPERBLOCK_BYTES as u32, memory) else {
            return;
        };
        self.superblock_writer.is_wanted = false;
        let update = self.superblock.update;
        self.superblock.encode(memory.metadata_mut(buffer));
        self.superblock_writer.writing = Some((update, Step::Write(0), buffer));
        self.issue_superblock_step();
    }

    fn issue_superblock_step(&mut self) {
        let (_, step, buffer) = self.superblock_writer.writing.expect("being written");
        let op = match step {
            Step::Write(copy) => {
                let slice = Slice { buffer, offset_bytes: 0, len_bytes: SUPERBLOCK_BYTES as u32 };
                IoOp::Write { offset_bytes: SUPERBLOCK_OFFSETS[copy], from: Pieces::One(slice) }
            }
            Step::Flush(_) => IoOp::Flush,
        };
        self.issue(Target::Cache, op, Flight::Superblock);
    }

    pub(crate) fn superblock_step_done<M: Memory>(&mut self, result: Result<(), Errno>, memory: &mut M) {
        let (update, step, buffer) = self.superblock_writer.writing.expect("being written");
        let is_latched = self.latched.is_some();
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        let next = match step {
            Step::Write(0) if self.is_mutated(Mutation::SuperblockCopiesTogether) => Some(Step::Write(1)),
            // RULE 6: a flush between the two copies of the superblock: a power cut may tear one of them,
            // never both.
            Step::Write(copy) => Some(Step::Flush(copy)),
            Step::Flush(0) => Some(Step::Write(1)),
            Step::Flush(_) => None,
        };
        match next {
            Some(next) if result.is_ok() && !is_latched => {
                self.superblock_writer.writing = Some((update, next, buffer));
                self.issue_superblock_step();
            }
            _ => {
                memory.release(buffer);
                self.superblock_writer.writing = None;
                if result.is_ok() && !is_latched {
                    self.superblock_writer.durable = update;
                }
                self.release_deferred(memory);
            }
        }
    }

    /// Lets the writes go whose update is durable. When the cache failed the superblock does not count any
    /// more, except for a volume whose dirty data may be asked for again: its origin stays as it is.
    pub(crate) fn release_deferred<M: Memory>(&mut self, memory: &mut M) {
        let durable = self.superblock_writer.durable;
        let is_latched = self.latched.is_some();
        let deferred = core::mem::take(&mut self.superblock_writer.deferred);
        for (update, target, op, flight) in deferred {
            if update <= durable {
                self.issue(target, op, flight);
            } else if !is_latched {
                self.superblock_writer.deferred.push((update, target, op, flight));
            } else {
                match flight {
                    Flight::DestageWrite { run } => self.destage_write_done(run, Err(Errno::IO), memory),
                    Flight::OriginChange { request }
                        if self.volume(self.requests[request].volume).standing == Standing::Failed =>
                    {
                        self.origin_change_done(request, Err(Errno::IO), memory);
                    }
                    flight => self.issue(target, op, flight),
                }
            }
        }
    }

    pub(crate) fn wait_for_superblock(&mut self, key: RequestKey, update: u64) {
        self.requests[key].stage = Stage::Superblock(update);
        self.watched.push(key);
    }
}
