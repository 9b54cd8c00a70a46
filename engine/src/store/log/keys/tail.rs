//! The oldest segment is emptied: keys that still hold are appended again, the rest is history.
//!
//! Data does not move. The ring has room for twice the keys there can be ([`KeyLayout`](crate::format::KeyLayout)), so
//! that a lap always gains something.

use super::super::{InternalAppend, LogFlight, LogStore};
use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::Summary;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::store::log::segments::SegmentState;
use crate::store::{Durability, Lookup};
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, SECTORS_PER_BLOCK};
use alloc::vec::Vec;

/// Blocks of keys that are appended again as one, at the most.
const REKEY_BLOCKS_MAX: u64 = 64;
/// How often a summary is read before the cache counts as failed.
const READS_MAX: u32 = 5;
/// How long after a read that failed it is tried again.
const READ_AGAIN_NS: u64 = 20 * Nanos::MILLISECOND;

/// What is being done about the oldest segment.
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
    pub(in crate::store::log) fn pump_journal<M: Memory>(&mut self, memory: &mut M) {
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
                let keys = self.store.journal.as_mut().and_then(|journal| journal.want_keys()).unwrap_or(0);
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
        self.store.journal.as_ref().expect("there are buckets").tail
    }

    fn set_tail(&mut self, tail: Tail) {
        self.store.journal.as_mut().expect("there are buckets").tail = tail;
    }

    fn read_tail<M: Memory>(&mut self, segment: u32, tries: u32, memory: &mut M) {
        let blocks = self.store.segments.get(segment).summary_blocks;
        assert!(blocks > 0, "a sealed segment has a summary");
        let Some(buffer) = self.allocate(Purpose::Metadata, blocks * BLOCK_BYTES as u32, memory) else {
            return;
        };
        self.store.segments.get_mut(segment).pins += 1;
        let first = self.store.segments.place(segment, self.store.segments.segment_blocks() - blocks);
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: blocks * BLOCK_BYTES as u32 };
        let op = IoOp::Read { offset_bytes: self.store.offset_bytes(first), into: Pieces::One(slice) };
        self.set_tail(Tail::Reading { segment, tries });
        self.issue(Target::Cache, op, Flight::Store(LogFlight::ReclaimRead { segment, buffer }));
    }

    pub(in crate::store::log) fn tail_read_done<M: Memory>(
        &mut self,
        segment: u32,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.store.segments.get_mut(segment).pins -= 1;
        let generation = self.store.segments.get(segment).generation;
        let Tail::Reading { tries, .. } = self.tail() else { unreachable!("a summary was being read") };
        let summary = result.ok().and_then(|()| {
            Summary::decode(memory.metadata(buffer)).ok().filter(|s| s.footer.generation == generation)
        });
        memory.release(buffer);
        if self.latched.is_some() {
            self.set_tail(Tail::Idle);
            return;
        }
        let Some(summary) = summary else {
            if tries + 1 < READS_MAX {
                let again = self.now.plus(READ_AGAIN_NS);
                self.set_tail(Tail::Failed { segment, tries: tries + 1, again });
                self.want_tick(again);
            } else {
                // Nobody knows which keys are in it: the ring cannot go on.
                self.set_tail(Tail::Idle);
                self.latch(result.err().unwrap_or(Errno::IO), memory);
            }
            return;
        };
        let runs = self.live_keys(&summary);
        self.set_tail(Tail::Rekeying { segment, runs: runs.len() as u32 });
        for (first, blocks, place) in runs {
            self.store.log.push_internal(InternalAppend::Rekey { first, blocks, place });
        }
    }

    /// The keys of a segment that still hold, in runs.
    fn live_keys(&self, summary: &Summary) -> Vec<(BlockKey, u64, Place)> {
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
                let place = Place(entry.extra as u32 + step);
                if self.store.index.get(key).is_none_or(|entry| entry.place != place) {
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
    pub(in crate::store::log) fn rekeyed(&mut self) {
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
        self.store.segments.empty(segment);
        self.set_tail(Tail::Idle);
        if self.store.segments.free() < self.config.segments_low {
            self.want_floor();
        }
    }
}
