//! The oldest segment is emptied: keys that still hold are appended again, the rest is history.
//!
//! Data does not move. The ring has room for twice the keys there can be ([`KeyLayout`](crate::format::KeyLayout)), so
//! that a lap always gains something.

use super::super::{InternalAppend, LogStore};
use super::KeyAppend;
use crate::effect::Errno;
use crate::format::Summary;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::store::Durability;
use crate::store::log::segments::SegmentState;
use crate::units::{BlockKey, Nanos, Place, SECTORS_PER_BLOCK};
use alloc::vec::Vec;

/// Blocks of keys that are appended again as one, at the most.
const REKEY_BLOCKS_MAX: u64 = 64;
/// How often a summary is read before the cache counts as failed.
const READS_MAX: u32 = 5;
/// How long after a read that failed it is tried again.
const READ_AGAIN_NS: u64 = 20 * Nanos::MILLISECOND;

/// The steps of emptying the oldest segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing.
    Idle,
    /// Its summary is being read.
    Reading { segment: u32, tries: u32 },
    /// That failed; it is read again later.
    Failed { segment: u32, tries: u32, again: Nanos },
    /// Its keys are being appended again: so many runs are not published yet.
    Rekeying { segment: u32, runs: u32 },
    /// They are; keys below this number superseded the others, and are not published yet.
    Superseded { segment: u32, keys: u64 },
}

impl Machine<LogStore> {
    /// Buckets and ring: whatever is short is made free.
    pub(in crate::store::log) fn pump_keys<M: Memory>(&mut self, memory: &mut M) {
        if self.latched.is_some() || self.superblock.clean_stop {
            return;
        }
        if self.store.segments.has_emptied() {
            self.store.segments.free_flushed(self.barrier.flushed);
        }
        let is_low = self.store.segments.free() < self.config.segments_low;
        if is_low && self.store.segments.has_emptied() {
            self.want_floor();
        }
        self.pump_buckets();
        match self.tail() {
            Tail::Idle if is_low && self.may_empty_tail() => {
                let next = self
                    .store
                    .segments
                    .ring()
                    .find(|&at| !matches!(self.store.segments.get(at).state, SegmentState::Emptied(_)));
                if let Some(segment) = next.filter(|&at| self.is_settled(at)) {
                    self.read_tail(segment, 0, memory);
                }
            }
            Tail::Failed { segment, tries, again } => {
                if self.now >= again {
                    self.read_tail(segment, tries, memory);
                } else {
                    self.want_tick(again);
                }
            }
            Tail::Rekeying { segment, runs: 0 } => {
                // HAZARD 5: a key that the index has and the ring has not supersedes nothing yet.
                let keys = self.store.appender.keys_mut().want_keys().unwrap_or(0);
                self.set_tail(Tail::Superseded { segment, keys });
                if LogStore::are_logged(&self.store, keys) {
                    self.empty_tail(segment);
                }
            }
            Tail::Superseded { segment, keys } if LogStore::are_logged(&self.store, keys) => {
                self.empty_tail(segment);
            }
            _ => (),
        }
    }

    fn tail(&self) -> Tail {
        self.store.appender.keys().tail
    }

    fn set_tail(&mut self, tail: Tail) {
        self.store.appender.keys_mut().tail = tail;
    }

    fn read_tail<M: Memory>(&mut self, segment: u32, tries: u32, memory: &mut M) {
        if self.read_summary(segment, memory) {
            self.set_tail(Tail::Reading { segment, tries });
        }
    }

    /// Appends again the keys of the oldest segment that still hold; without its summary that is tried again.
    pub(in crate::store::log) fn rekey_tail<M: Memory>(
        &mut self,
        segment: u32,
        summary: Result<Summary, Errno>,
        memory: &mut M,
    ) {
        let Tail::Reading { tries, .. } = self.tail() else { unreachable!("a summary was being read") };
        if self.latched.is_some() {
            self.set_tail(Tail::Idle);
            return;
        }
        let summary = match summary {
            Ok(summary) => summary,
            Err(_) if tries + 1 < READS_MAX => {
                let again = self.now.plus(READ_AGAIN_NS);
                self.set_tail(Tail::Failed { segment, tries: tries + 1, again });
                self.want_tick(again);
                return;
            }
            Err(errno) => {
                // Nobody knows which keys are in it: the ring cannot go on.
                self.set_tail(Tail::Idle);
                self.latch(errno, memory);
                return;
            }
        };
        let runs = self.live_keys(&summary);
        self.set_tail(Tail::Rekeying { segment, runs: to_u32(runs.len()) });
        for (first, blocks, place) in runs {
            let rekey = KeyAppend::Rekey { segment, first, blocks, place };
            self.store.log.push_internal(InternalAppend::Keys(rekey));
        }
    }

    /// The keys of a segment that still hold, in runs.
    pub(in crate::store::log) fn live_keys(&self, summary: &Summary) -> Vec<(BlockKey, u64, Place)> {
        let mut runs: Vec<(BlockKey, u64, Place)> = Vec::new();
        // HAZARD 5: a key that still holds is appended again before its segment is reused; else a crash would
        // find an older one, or none.
        if self.is_mutated(Mutation::DropTailKeys) {
            return runs;
        }
        for entry in summary.batches.iter().flat_map(|batch| &batch.entries) {
            let volume = self.volumes.iter().flatten().find(|volume| volume.id == entry.volume);
            let Some(volume) = volume.filter(|_| entry.kind.is_key()) else { continue };
            for step in 0..entry.payload_blocks {
                let key = volume.key(entry.start_sector / SECTORS_PER_BLOCK + u64::from(step));
                let place = Place(to_u32(entry.extra) + step);
                let is_there = self.store.index.get(key).is_some_and(|entry| entry.place == place);
                if !is_there || self.store.appender.is_leaving(place) {
                    continue;
                }
                match runs.last_mut() {
                    Some((first, blocks, at))
                        if first.0 + *blocks == key.0
                            && u64::from(at.0) + *blocks == u64::from(place.0)
                            && first.volume() == key.volume()
                            && self.store.segments.of(*at) == self.store.segments.of(place)
                            && *blocks < REKEY_BLOCKS_MAX =>
                    {
                        *blocks += 1;
                    }
                    _ => runs.push((key, 1, place)),
                }
            }
        }
        runs
    }

    /// A run of keys is published again, or needs not be.
    pub(in crate::store::log) fn tail_rekeyed(&mut self) {
        let Tail::Rekeying { segment, runs } = self.tail() else { return };
        assert!(runs > 0, "a run is published once");
        self.set_tail(Tail::Rekeying { segment, runs: runs - 1 });
        // The last one may have needed no batch, and nothing else need be to come.
        self.want_tick(self.now.plus(self.config.tick_ns));
    }

    /// All keys of the segment that hold are in newer ones.
    fn empty_tail(&mut self, segment: u32) {
        if self.store.segments.get(segment).must > 0 {
            self.move_extents(segment);
            self.want_tick(self.now.plus(self.config.tick_ns));
            return;
        }
        self.store.segments.empty(segment, false);
        self.set_tail(Tail::Idle);
        if self.store.segments.free() < self.config.segments_low {
            self.want_floor();
        }
    }
}
