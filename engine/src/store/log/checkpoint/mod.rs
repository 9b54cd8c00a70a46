//! Checkpoints: copies of the index behind the segments, so that a start replays the end of the log alone.
//!
//! One is written while the log goes on, a chunk at a time: part by part of the index, each as it is at that moment. So it is of
//! no single moment, and a start replays all from where it began. What that says of a block comes after what the checkpoint
//! says of it; of what nothing is said there, the checkpoint has the last word.
//!
//! RULE 22: a checkpoint counts where the log has all that it tells of.
//!
//! * Its record names the last batch of which it may tell anything, and the tombstones of all that had left the index dirty by
//!   then. If a power cut takes one of these, the checkpoint is void: what it says is there is not, or is no more.
//! * It stays void when the log has grown past that number. A record names a session, and each start writes a new one into the
//!   record of what it believes ([`load`]), when the log is durable.
//! * What it says lies in a segment counts if that was opened before the checkpoint began, and is in the log still. All that
//!   lies in later ones is in the log behind it.
//!
//! Nothing waits for a checkpoint, and no flush: one that is not whole is none. Segments are reused in the order of the ring, so
//! one that is older than a round says nothing, and does no harm.
//!
//! Not where the index is not all there is to know: where clean data lies in buckets or frames, on a mirrored cache, in
//! strict order.

pub(crate) mod compare;
pub(crate) mod load;

use super::{InternalAppend, LogFlight, LogStore};
use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{
    CHECKPOINT_RECORD_BYTES, CheckpointArea, CheckpointId, CheckpointRecord, ChunkCounts, ChunkExtent,
    ChunkWriter, Side, rows_bytes,
};
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{index, to_u32, wide};
use crate::store::log::extents::{ExtentKind, Extents};
use crate::store::log::index::Index;
use crate::units::{BLOCK_BYTES, BlockKey, VOLUMES_MAX};

/// Blocks that the log goes on for each block of a checkpoint, at the least: clients hardly notice it then.
const PACE: u64 = 4;
/// Blocks that the log goes on between the beginnings of two checkpoints for each of one: that is what the SSD is written more.
const WRITTEN_FOR_ONE: u64 = 32;
/// Parts of the index in a chunk, about: what is left free at its end is the rest of one.
const PARTS_IN_CHUNK: u32 = 16;
/// The index may grow by one part in so many while a checkpoint of it is written, and still have room.
const GROWTH_ONE_IN: u64 = 8;

/// The checkpoints of a cache.
pub(crate) struct Checkpoints {
    area: CheckpointArea,
    /// The side of the next one.
    side: Side,
    /// Where in the log the last one began, or was given up, in blocks since its beginning.
    last: u64,
    /// The last batch that was published when it began: no two of a session share it.
    last_sequence: u64,
    /// Where in the log there is something to do next; `u64::MAX` for what is not up to the log.
    due: u64,
    work: Option<Work>,
    /// Whether a chunk, or a record, is on its way.
    is_writing: bool,
}

/// A checkpoint in the making.
struct Work {
    id: CheckpointId,
    begun: u64,
    volumes: [u32; VOLUMES_MAX],
    parts: u32,
    step: Step,
    chunks: u32,
    singles: u64,
    groups: u64,
}

/// The next thing to write.
#[derive(Clone, Copy)]
enum Step {
    /// A part of the index.
    Part(u32),
    /// The extents from a key on.
    Extents(BlockKey),
    /// Nothing, before all that left the index dirty has its tombstone in a batch.
    Tombstones,
    /// Nothing any more: the record is on its way.
    Record,
}

impl Checkpoints {
    /// The checkpoints of a cache whose next one goes to `side`.
    pub fn new(area: CheckpointArea, side: Side, last: u64) -> Checkpoints {
        Checkpoints { area, side, last, last_sequence: 0, due: 0, work: None, is_writing: false }
    }

    /// Gives up the one that is in the making; the next one comes as if it had been written.
    fn give_up(&mut self, appended: u64) {
        self.work = None;
        self.last = self.last.max(appended);
        self.due = 0;
    }
}

impl Work {
    /// Fills a chunk as far as there is something for it. False if a part is longer than a chunk.
    fn fill(
        &mut self,
        cached: &Index,
        extents: &Extents,
        chunk: &mut ChunkWriter<'_>,
        has_extents: bool,
    ) -> bool {
        if let Step::Part(first) = self.step {
            let mut part = first;
            while part < self.parts {
                let before = chunk.counts();
                if !cached.write_part(part, self.parts, chunk) {
                    chunk.back_to(before);
                    break;
                }
                part += 1;
            }
            if part == first {
                return false;
            }
            self.step = if part < self.parts { Step::Part(part) } else { Step::Extents(BlockKey(0)) };
        }
        if let Step::Extents(mut from) = self.step {
            self.step = Step::Tombstones;
            while let Some(extent) = extents.next(from).filter(|_| has_extents) {
                let (key, is_lost) = (extent.first.0, extent.kind == ExtentKind::Lost);
                let stored = ChunkExtent { key, blocks: extent.blocks, is_lost, place: extent.place.0 };
                if !chunk.push_extent(stored) {
                    self.step = Step::Extents(from);
                    break;
                }
                if key + extent.blocks >= BlockKey::END {
                    break;
                }
                from = BlockKey(key + extent.blocks);
            }
        }
        let ChunkCounts { singles, groups, .. } = chunk.counts();
        self.singles += u64::from(singles);
        self.groups += u64::from(groups);
        true
    }
}

impl LogStore {
    /// Blocks that the log went on since its beginning, as if each segment had been filled.
    fn appended(&self) -> u64 {
        let in_open = self.log.open.as_ref().map_or(0, |open| u64::from(open.next_block));
        self.log.generation.saturating_mul(u64::from(self.segments.segment_blocks())).saturating_add(in_open)
    }
}

impl Machine<LogStore> {
    /// Goes on with a checkpoint if the log is far enough.
    #[inline]
    pub(super) fn pump_checkpoint<M: Memory>(&mut self, memory: &mut M) {
        if let Some(checkpoints) = &self.store.checkpoints
            && checkpoints.due <= self.store.appended()
        {
            self.go_on_checkpoint(memory);
        }
    }

    #[inline(never)]
    fn go_on_checkpoint<M: Memory>(&mut self, memory: &mut M) {
        let appended = self.store.appended();
        let volumes = self.volume_ids();
        // A start that loads it would not know what the one before it left out.
        let forgets = self.store.may_have_left_out() && !self.is_mutated(Mutation::ForgetLeftOut);
        let Some(checkpoints) = &mut self.store.checkpoints else { return };
        checkpoints.due = u64::MAX;
        if self.latched.is_some() || self.is_stopping || checkpoints.is_writing {
            return;
        }
        // In strict order what is home is in a ledger.
        if self.config.order.is_some() || forgets {
            checkpoints.give_up(appended);
            checkpoints.due = appended.saturating_add(1);
            return;
        }
        let Some(work) = &mut checkpoints.work else {
            let by_cost = self.store.index.rows_bytes() / BLOCK_BYTES * WRITTEN_FOR_ONE;
            let interval = self.config.checkpoint_interval_blocks.max(by_cost);
            let due = checkpoints.last.saturating_add(interval);
            if due > appended {
                checkpoints.due = due;
            } else {
                self.begin_checkpoint(appended, memory);
            }
            return;
        };
        if work.volumes != volumes {
            // Keys name other volumes now.
            checkpoints.give_up(appended);
            return;
        }
        match work.step {
            Step::Part(_) | Step::Extents(_) => {
                let pace = PACE * u64::from(checkpoints.area.chunk_blocks);
                let due = work.begun.saturating_add(u64::from(work.chunks) * pace);
                if due > appended {
                    checkpoints.due = due;
                } else {
                    self.write_chunk(appended, memory);
                }
            }
            Step::Tombstones => self.end_checkpoint(memory),
            Step::Record => unreachable!("the record is written"),
        }
    }

    /// The ids of the volumes by slot; 0 where there is none.
    fn volume_ids(&self) -> [u32; VOLUMES_MAX] {
        core::array::from_fn(|at| self.volumes[at].as_ref().map_or(0, |volume| volume.id.0))
    }

    fn begin_checkpoint<M: Memory>(&mut self, appended: u64, memory: &mut M) {
        let volumes = self.volume_ids();
        let LogStore { index, extents, log, checkpoints, .. } = &mut self.store;
        let Some(checkpoints) = checkpoints else { return };
        let chunk_bytes = checkpoints.area.chunk_bytes();
        let index_bytes = index.rows_bytes();
        let extents_bytes = rows_bytes(0, 0, wide(extents.len()));
        let wanted_bytes = index_bytes + index_bytes / GROWTH_ONE_IN + extents_bytes;
        if wanted_bytes > u64::from(checkpoints.area.chunks) * u64::from(chunk_bytes) {
            // The segments leave too little room for an index like this.
            checkpoints.give_up(appended);
            return;
        }
        let start_sequence = log.published();
        if start_sequence == checkpoints.last_sequence {
            // Chunks of the one could pass for those of the other.
            checkpoints.due = appended + 1;
            return;
        }
        checkpoints.last_sequence = start_sequence;
        let id = CheckpointId { set_id: log.set_id, session: log.session, start_sequence };
        checkpoints.work = Some(Work {
            id,
            begun: appended,
            volumes,
            parts: index.parts_of(chunk_bytes / PARTS_IN_CHUNK),
            step: Step::Part(0),
            chunks: 0,
            singles: 0,
            groups: 0,
        });
        self.write_chunk(appended, memory);
    }

    fn write_chunk<M: Memory>(&mut self, appended: u64, memory: &mut M) {
        let Some(Checkpoints { area, side, .. }) = self.store.checkpoints.as_deref() else { return };
        let (area, side, len_bytes) = (*area, *side, area.chunk_bytes());
        let Some(buffer) = self.allocate(Purpose::Metadata, len_bytes, memory) else {
            if let Some(checkpoints) = &mut self.store.checkpoints {
                checkpoints.due = appended + 1;
            }
            return;
        };
        let has_extents = !self.is_mutated(Mutation::CheckpointWithoutExtents);
        let LogStore { index: cached, extents, checkpoints, .. } = &mut self.store;
        let Some(Checkpoints { work: Some(work), .. }) = checkpoints.as_deref_mut() else {
            unreachable!("a checkpoint is in the making")
        };
        let mut chunk = ChunkWriter::new(&mut memory.metadata_mut(buffer)[..index(len_bytes)]);
        let number = work.chunks;
        if number == area.chunks || !work.fill(cached, extents, &mut chunk, has_extents) {
            memory.release(buffer);
            if let Some(checkpoints) = checkpoints {
                checkpoints.give_up(appended);
            }
            return;
        }
        chunk.finish(&work.id, number);
        work.chunks += 1;
        self.write_of_checkpoint(area.chunk_at(side, number), buffer, len_bytes);
    }

    /// All is written but the record, which names the tombstones of what had left the index dirty.
    fn end_checkpoint<M: Memory>(&mut self, memory: &mut M) {
        let is_tombstone = |append: &InternalAppend| matches!(append, InternalAppend::Tombstone { .. });
        let has_pending = self.store.log.internal.iter().any(is_tombstone);
        let is_hasty = self.is_mutated(Mutation::CheckpointBeforeTombstones);
        let len_bytes = to_u32(CHECKPOINT_RECORD_BYTES);
        let buffer = match has_pending && !is_hasty {
            // A batch takes them soon.
            true => None,
            false => self.allocate(Purpose::Metadata, len_bytes, memory),
        };
        let session = self.store.log.session;
        let end_sequence =
            if is_hasty { self.store.log.answered() } else { self.store.log.next_sequence - 1 };
        let Some(checkpoints) = &mut self.store.checkpoints else { return };
        let Some(buffer) = buffer else {
            checkpoints.due = 0;
            return;
        };
        let Checkpoints { area, side, work: Some(work), .. } = checkpoints.as_mut() else {
            unreachable!("a checkpoint is in the making")
        };
        work.step = Step::Record;
        let Work { id, chunks, parts, singles, groups, volumes, .. } = *work;
        let record = CheckpointRecord { id, session, end_sequence, chunks, parts, singles, groups, volumes };
        let offset_bytes = area.record_at(*side);
        record.encode(&mut memory.metadata_mut(buffer)[..CHECKPOINT_RECORD_BYTES]);
        self.write_of_checkpoint(offset_bytes, buffer, len_bytes);
    }

    fn write_of_checkpoint(&mut self, offset_bytes: u64, buffer: BufferId, len_bytes: u32) {
        if let Some(checkpoints) = &mut self.store.checkpoints {
            checkpoints.is_writing = true;
        }
        let slice = Slice { buffer, offset_bytes: 0, len_bytes };
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(LogFlight::Checkpoint { buffer }));
    }

    /// The chunk or the record that was on its way is on the device.
    pub(crate) fn checkpoint_written<M: Memory>(
        &mut self,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        memory.release(buffer);
        if let Some(checkpoints) = &mut self.store.checkpoints {
            checkpoints.is_writing = false;
            if let Some(Work { step: Step::Record, begun, .. }) = checkpoints.work {
                checkpoints.work = None;
                checkpoints.side = checkpoints.side.other();
                checkpoints.last = begun;
            }
            checkpoints.due = 0;
        }
        match result {
            Ok(()) => self.pump_checkpoint(memory),
            Err(errno) => self.latch(errno, memory),
        }
    }
}
