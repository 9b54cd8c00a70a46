//! Answers before keys are in the ring: what bcache does, and `safe` does not.
//!
//! A write is answered when the device has its data and the index its place. Its key goes to the ring when somebody
//! flushes, when a journal entry is full, or after `journal_delay_ms`; until then a crash of the process loses it, too.
//! The request stays, answered and without its hold, until its key is published. Keys leave in the order in which the
//! index got them, before anything that was decided with them in the index: a tombstone of the same block, `Freed`.
//!
//! Source: bcache's `bch_data_insert_keys` and `journal_write_work` (read): the key is in the b-tree in memory and in the
//! journal's buffer when the write is answered.

use super::super::LogStore;
use super::{KeyState, Keys, Source};
use crate::effect::RequestOp;
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::{RequestKey, Route};
use crate::memory::Memory;
use crate::number::{index_wide, wide};
use crate::store::log::index::Run as IndexRun;
use crate::units::{BlockKey, Nanos, VolumeIndex};

/// Keys that fill a journal entry of 32 KiB.
const KEYS_FULL: usize = 32_768 / 40;

/// Which keys wait for what.
#[derive(Debug)]
pub(super) struct Early {
    delay_ns: u64,
    /// When the first key that waits was answered for.
    since: Option<Nanos>,
    /// All keys below this number are in the index, or never will be.
    applied: u64,
    /// All keys below this number are wanted in the ring.
    wanted: u64,
    /// Zeroes in batches that are not published: what comes behind them waits.
    zeroes: u32,
}

impl Early {
    pub fn new(delay_ms: u32) -> Early {
        let delay_ns = u64::from(delay_ms) * Nanos::MILLISECOND;
        Early { delay_ns, since: None, applied: 0, wanted: 0, zeroes: 0 }
    }
}

impl Keys {
    /// Whether keys are answered for early.
    pub fn is_early(&self) -> bool {
        self.early.is_some()
    }

    /// The number behind the last key that came.
    pub(super) fn keys_end(&self) -> u64 {
        self.first_key + wide(self.waiting.len())
    }

    /// Whether a key is in the index and in no batch.
    pub fn has_applied(&self) -> bool {
        self.waiting.front().is_some_and(|key| key.state == KeyState::Applied)
    }

    /// How many of the first keys that wait are in the index, or never will be.
    pub(super) fn applied(&self) -> usize {
        self.early.as_ref().map_or(0, |early| index_wide(early.applied.saturating_sub(self.first_key)))
    }

    /// The number below which all keys must be published before a FLUSH is answered. They are wanted from now on.
    pub fn want_keys(&mut self) -> Option<u64> {
        let end = self.first_key + wide(self.applied());
        let early = self.early.as_mut()?;
        early.wanted = early.wanted.max(end);
        (self.published_keys < end).then_some(end)
    }

    /// All that came so far is wanted in the ring.
    pub(super) fn want_all_keys(&mut self) {
        let end = self.keys_end();
        if let Some(early) = &mut self.early {
            early.wanted = early.wanted.max(end);
        }
    }

    /// Whether all keys below a number are published.
    pub fn are_published(&self, end: u64) -> bool {
        self.published_keys >= end
    }

    /// Until when keys that are ready may wait for others; none if they need not.
    pub(super) fn may_wait_until(&self, now: Nanos, ready: usize) -> Option<Nanos> {
        let early = self.early.as_ref()?;
        let until = early.since?.plus(early.delay_ns);
        let is_wanted = early.wanted > self.first_key;
        (!is_wanted && ready < KEYS_FULL && now < until).then_some(until)
    }

    /// Keys went into a batch.
    pub(super) fn keys_left(&mut self, now: Nanos) {
        let has_applied = self.has_applied();
        if let Some(early) = &mut self.early {
            early.since = has_applied.then_some(now);
        }
    }

    /// Zeroes went into a batch, or were published.
    pub(super) fn count_zeroes(&mut self, is_begun: bool) {
        if let Some(early) = &mut self.early {
            early.zeroes = if is_begun { early.zeroes + 1 } else { early.zeroes.saturating_sub(1) };
        }
    }
}

impl Machine<LogStore> {
    /// Puts keys whose data is written into the index, in their order, and answers for them.
    pub(super) fn apply_keys<M: Memory>(&mut self, memory: &mut M) {
        let now = self.now;
        loop {
            let keys = self.store.appender.keys_mut();
            let at = keys.applied();
            let Some(early) = &mut keys.early else { return };
            let Some(key) = keys.waiting.get_mut(at) else { return };
            match key.state {
                KeyState::Applied | KeyState::Gone => {
                    early.applied = keys.first_key + wide(at) + 1;
                    continue;
                }
                KeyState::Writing => return,
                KeyState::Ready => (),
            }
            // What comes behind zeroes has to come behind them in the index, too.
            let Some(place) = key.place.filter(|_| early.zeroes == 0) else { return };
            key.state = KeyState::Applied;
            early.since.get_or_insert(now);
            let checksums = core::mem::take(&mut key.checksums);
            let (source, volume, blocks) = (key.source, key.volume, key.blocks);
            let dirty = match source {
                Source::Write { .. } => true,
                Source::Read { .. } => false,
            };
            // The device has the data, and whoever reads it finds it there.
            if let Source::Read { buffer } = &mut key.source
                && let Some(buffer) = buffer.take()
            {
                memory.release(buffer);
            }
            let first = BlockKey::new(volume, blocks.first);
            self.insert_run(volume, blocks, IndexRun { first, place, dirty, hits: 0, checksums: &checksums });
            let keys = self.store.appender.keys_mut();
            keys.waiting[at].checksums = checksums;
            match source {
                Source::Write { request } => {
                    self.release_share(request, blocks.count);
                    self.answer_early(request, blocks.count, memory);
                }
                Source::Read { .. } => (),
            }
        }
    }

    /// So many blocks more of a request are in the index: with all of them it is answered.
    fn answer_early<M: Memory>(&mut self, request: RequestKey, blocks: u64, memory: &mut M) {
        let active = &mut self.requests[request];
        active.unapplied = active.unapplied.saturating_sub(blocks);
        let is_answered_now = active.unapplied == 0
            && active.unpublished > 0
            && active.route == Route::Log
            && active.error.is_none()
            && !active.wants_fua()
            && matches!(active.op, RequestOp::Write { .. });
        if !is_answered_now || self.latched.is_some() {
            self.store.appender.keys_mut().want_all_keys();
            return;
        }
        self.answer(request, memory);
    }

    /// A key that the index has is in the ring.
    pub(in crate::store::log) fn publish_applied<M: Memory>(
        &mut self,
        request: Option<RequestKey>,
        volume: VolumeIndex,
        blocks: Blocks,
        memory: &mut M,
    ) {
        let Some(request) = request else {
            self.release_guard(volume, blocks, Hold::Copying);
            return;
        };
        self.release_guard(volume, blocks, Hold::Publishing);
        self.part_published(request, blocks.count, memory);
    }
}
