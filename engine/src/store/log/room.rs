//! Room: where the next batch goes, and what it may have; segments are opened.

use super::{LogStore, Open};
use crate::format::{SegmentHead, SummaryBuilder};
use crate::limits::{ENGINE_BUFFER_BYTES_MAX, SEGMENT_OVERHEAD_BLOCKS};
use crate::machine::Machine;
use crate::machine::volume::Volume;
use crate::memory::{BufferId, Memory, Purpose};
use crate::mutation::Mutation;
use crate::number::const_u32;
use crate::units::BLOCK_BYTES;

/// Payload blocks of a batch at the most: 1 MiB.
pub(super) const BATCH_BLOCKS_MAX: u32 = 256;
/// Room for a header without entries, and what a summary grows by for it: no other batch takes that.
const FLOOR_BLOCKS: u32 = 2;
/// Blocks of a summary at the most.
const SUMMARY_BLOCKS_MAX: u32 = ENGINE_BUFFER_BYTES_MAX / const_u32(BLOCK_BYTES);
/// RULE 9: free segments that are kept for the oldest segment: one for what is appended again, behind whatever else is in the
/// way, and one for the records that the rest of it is home.
pub(super) const RELOCATION_SEGMENTS: u32 = 2;
/// Appends that may wait when one more tombstone comes: all of them fit into one segment.
const TOMBSTONES_WAITING_MAX: usize = 512;
/// A segment with less room than this for payload is sealed.
const PAYLOAD_BLOCKS_MIN: u32 = 8;

/// Limits of a batch that leave room in its segment for the summary and for a last header.
pub(super) struct Limits {
    pub entries: usize,
    /// Blocks of the header.
    pub header_blocks: u32,
    /// Blocks that the segment's summary grows by.
    summary_blocks: u32,
}

/// A batch with as many entries and as much payload fits the blocks given.
const LONG: Limits = Limits { entries: 200, header_blocks: 2, summary_blocks: 2 };
/// The same near the end of a segment, where no batch has more payload than [`SHORT_BLOCKS`].
const SHORT: Limits = Limits { entries: 100, header_blocks: 1, summary_blocks: 1 };
const SHORT_BLOCKS: u32 = 128;

impl Limits {
    fn in_segment(left_blocks: u32) -> &'static Limits {
        if left_blocks <= SHORT_BLOCKS { &SHORT } else { &LONG }
    }

    /// Payload that a batch may have, where so much of a segment is left.
    fn payload_max(&self, left_blocks: u32, summary: &SummaryBuilder) -> u32 {
        let others = self.header_blocks + summary.blocks_needed() + self.summary_blocks + FLOOR_BLOCKS;
        left_blocks.saturating_sub(others).min(BATCH_BLOCKS_MAX)
    }
}

/// Where the next batch goes.
pub(super) struct Room {
    pub segment: u32,
    pub next_block: u32,
    /// Whether the segment begins with it, and its head then.
    pub head: Option<BufferId>,
    pub limits: &'static Limits,
    /// 0 where there is room for a header and nothing else.
    pub payload_max: u32,
}

impl Machine<LogStore> {
    /// Whether clients may take log space now: the reserve is for relocation, tombstones and clean
    /// records, without which the ring would stop (rule 9).
    pub(super) fn clients_may_append(&self) -> bool {
        // HAZARD 12: in a flood clients get what goes home. While nothing is on its way they wait for nothing.
        if self.store.flood.is_spent() && self.is_going_home() && !self.is_stopping {
            return false;
        }
        let free = self.store.segments.free();
        let reserved = self.reserved();
        if self.store.log.open.is_some() { free >= reserved } else { free > reserved }
    }

    #[inline(never)]
    fn is_going_home(&self) -> bool {
        let now = self.now;
        // What was written home makes room when it is flushed.
        let goes_on = |volume: &Volume| {
            let destage = &volume.destage;
            destage.in_flight > 0 || destage.is_being_flushed() || volume.rests_between_runs(now)
        };
        self.store.flood.was_fed(now) && self.volumes.iter().flatten().any(goes_on)
            || self.is_mutated(Mutation::FloodWaitsForNothing)
    }

    /// Whether so many more blocks of clients fit into the room that there is, behind all that waits already.
    pub(super) fn fits_in_room(&self, blocks: u64) -> bool {
        let LogStore { segments, log, .. } = &self.store;
        let open_blocks = log.open.as_ref().map_or(0, |open| segments.segment_blocks() - open.next_block);
        let free = u64::from(segments.free().saturating_sub(self.reserved()));
        let room_blocks = free * u64::from(segments.segment_blocks()) + u64::from(open_blocks);
        log.pending_blocks == 0 || log.pending_blocks + blocks <= room_blocks
    }

    /// HAZARD 12: whether a tombstone is appended whatever goes home meanwhile.
    pub(super) fn has_room_for_tombstones(&self) -> bool {
        self.store.segments.free() > self.kept_for_relocation()
            && self.store.log.internal.len() < TOMBSTONES_WAITING_MAX
    }

    /// RULE 9: segments that clients may not take.
    pub(super) fn reserved(&self) -> u32 {
        if self.is_mutated(Mutation::NoReserve) { 0 } else { self.config.segments_reserved }
    }

    /// RULE 9: the last free segments are for what empties others: relocation, and the floor.
    pub(super) fn kept_for_relocation(&self) -> u32 {
        if self.is_mutated(Mutation::StuckMovedInPart) {
            return 1;
        }
        // What is read already to be appended again keeps the room that there was when that began, and the header behind
        // it has its own.
        let payload_blocks = self.store.segments.segment_blocks() - SEGMENT_OVERHEAD_BLOCKS;
        let moving = self.store.reclaim.relocating_blocks().div_ceil(payload_blocks);
        RELOCATION_SEGMENTS.max(moving + 1)
    }

    /// Whether the oldest segment may begin to be emptied. A stop leaves it as it is, unless what has to be in the log
    /// before its end finds no room otherwise.
    pub(crate) fn may_empty_tail(&self) -> bool {
        let is_stuck = || {
            let LogStore { appender, log, segments, .. } = &self.store;
            log.has_internal() && segments.free() <= self.kept_for_relocation()
                || appender.has_taken() && !self.clients_may_append()
        };
        !self.is_stopping || is_stuck()
    }

    /// The open segment, where the next batch begins in it, and the payload blocks for which it has room without being sealed:
    /// at least so many, behind a header of one block.
    pub(super) fn room_in_open_segment(&self, blocks_min: u32) -> Option<(u32, u32, u32)> {
        let open = self.store.log.open.as_ref()?;
        let left = self.store.segments.segment_blocks() - open.next_block;
        let payload_max = Limits::in_segment(left).payload_max(left, &open.summary);
        let summary_max = open.summary.blocks_needed() + LONG.summary_blocks + FLOOR_BLOCKS;
        (payload_max >= blocks_min && summary_max <= SUMMARY_BLOCKS_MAX).then_some((
            open.segment,
            open.next_block,
            payload_max,
        ))
    }

    /// Makes sure that the open segment has room; seals it and opens the next one if not.
    pub(super) fn room_for_batch<M: Memory>(&mut self, sequence: u64, memory: &mut M) -> Option<Room> {
        self.release_lingering();
        if let Some(open) = &self.store.log.open {
            let left = self.store.segments.segment_blocks() - open.next_block;
            let limits = Limits::in_segment(left);
            let payload_max = limits.payload_max(left, &open.summary);
            let room =
                Room { segment: open.segment, next_block: open.next_block, head: None, limits, payload_max };
            // A summary is read back into one buffer: a segment whose summary would not fit ends early.
            let summary_max = open.summary.blocks_needed() + LONG.summary_blocks + FLOOR_BLOCKS;
            if payload_max >= PAYLOAD_BLOCKS_MIN && summary_max <= SUMMARY_BLOCKS_MAX {
                return Some(room);
            }
            // RULE 9: without a free segment the last room of this one is for the header that frees others.
            if self.store.segments.spare() == 0 && !self.is_mutated(Mutation::FloorWithoutRoom) {
                let has_room = left >= FLOOR_BLOCKS + open.summary.blocks_needed();
                return (self.store.log.is_floor_wanted && has_room)
                    .then_some(Room { payload_max: 0, ..room });
            }
            if !self.seal(memory) {
                return None;
            }
        }
        // After sealing clients may have to wait, while the log's own work goes on.
        let has_internal = !self.store.log.internal.is_empty() || self.store.log.is_floor_wanted;
        if !has_internal && !self.clients_may_append() {
            return None;
        }
        if self.store.segments.free() <= self.kept_for_relocation()
            && !self.store.log.is_floor_wanted
            && !self.store.log.internal.iter().any(|append| append.empties(&self.store.segments))
            && !self.is_mutated(Mutation::StuckMovedInPart)
        {
            return None;
        }
        let head = self.allocate(Purpose::Metadata, const_u32(BLOCK_BYTES), memory)?;
        let generation = self.store.log.generation + 1;
        let Some(segment) = self.store.segments.open_next(generation, sequence) else {
            memory.release(head);
            return None;
        };
        self.store.log.generation = generation;
        self.store.segments.get_mut(segment).hits_before = self.volumes.hit_blocks();
        SegmentHead {
            set_id: self.store.log.set_id,
            ring: 0,
            generation,
            session: self.store.log.session,
            first_sequence: sequence,
            previous_checksum: self.store.log.chain,
        }
        .encode(memory.metadata_mut(head));
        let left = self.store.segments.segment_blocks() - 1;
        let limits = Limits::in_segment(left);
        let summary = core::mem::take(&mut self.store.log.scratch_summary);
        let payload_max = limits.payload_max(left, &summary);
        self.store.log.open = Some(Open { segment, next_block: 1, summary });
        assert!(payload_max >= PAYLOAD_BLOCKS_MIN, "a fresh segment has room for payload");
        if self.unflushed_blocks() > self.config.unflushed_blocks_max {
            self.barrier.want(self.store.log.published());
        }
        Some(Room { segment, next_block: 1, head: Some(head), limits, payload_max })
    }

    /// Blocks of the ring behind the last flush: what a start verifies before anybody is served.
    fn unflushed_blocks(&self) -> u64 {
        let LogStore { log, segments, .. } = &self.store;
        let Some(&(_, segment, _)) = log.ends.front() else { return 0 };
        let segments_behind = log.generation - segments.get(segment).generation;
        segments_behind * u64::from(segments.segment_blocks())
    }
}
