//! The four ways to append, and every hook on which they differ.
//!
//! | way | a client's data goes | folder |
//! | --- | --- | --- |
//! | inline | into the ring, behind the header of its batch | `inline/` |
//! | keys | into a bucket; the ring gets its key | `keys/` |
//! | mirror | as inline, and dirty data stays in memory, too | `mirror/` |
//! | frames | as inline; what reads brought goes to frames, and the ring gets its keys | `frames/` |
//!
//! Each hook is one exhaustive match. Nothing else in the log asks which way its cache has: a fifth one is a folder,
//! and an arm in each hook below.

use super::draft::{Draft, Placing};
use super::fills::Fill;
use super::flood::SWEEP_SEGMENTS_MAX;
use super::frames::{Frames, KeysDue};
use super::index::Index;
use super::inline::Inline;
use super::keys::Keys;
use super::mirror::Mirror;
use super::segments::Segments;
use super::{ClientAppend, LogStore};
use crate::composition::Composition;
use crate::effect::Errno;
use crate::limits::PaceBounds;
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::machine::slow_cache::LookedReads;
use crate::memory::{BufferId, Memory, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::policies::replacement::Access;
use crate::status::CacheStatus;
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, VolumeIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One of the ways to append, with its state.
#[derive(Debug)]
pub(crate) enum Appender {
    Inline(Box<Inline>),
    Keys(Box<Keys>),
    Mirror(Box<Mirror>),
    Frames(Box<Frames>),
}

/// The units in which dirty data holds the cache: segments of a ring, or buckets.
pub(crate) struct DirtyUnits {
    pub count: u32,
    /// Those that hold dirty data.
    pub dirty: u32,
    /// Blocks of each.
    pub unit_blocks: u32,
    /// Those that held dirty data when the appender last counted them, percent of all.
    pub in_use_percent: u32,
}

impl Appender {
    /// The appender of a composition over `cache_blocks` blocks whose data lies in the ring.
    pub fn new(composition: &Composition, cache_blocks: u64) -> Appender {
        match Mirror::new(composition, cache_blocks) {
            Some(mirror) => Appender::Mirror(Box::new(mirror)),
            None => Appender::Inline(Box::default()),
        }
    }

    // ---- the state of one way, for its own code ----------------------------------------------

    #[inline]
    pub(super) fn inline_mut(&mut self) -> &mut Inline {
        match self {
            Appender::Inline(inline) => inline,
            Appender::Frames(frames) => &mut frames.inline,
            Appender::Keys(_) | Appender::Mirror(_) => {
                unreachable!("the hooks call this for inline logs alone")
            }
        }
    }

    pub(super) fn keys(&self) -> &Keys {
        match self {
            Appender::Keys(keys) => keys,
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => {
                unreachable!("the hooks call this for logs of keys alone")
            }
        }
    }

    pub(super) fn keys_mut(&mut self) -> &mut Keys {
        match self {
            Appender::Keys(keys) => keys,
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => {
                unreachable!("the hooks call this for logs of keys alone")
            }
        }
    }

    pub(super) fn mirror(&self) -> &Mirror {
        match self {
            Appender::Mirror(mirror) => mirror,
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => {
                unreachable!("the hooks call this for mirrored logs alone")
            }
        }
    }

    pub(super) fn mirror_mut(&mut self) -> &mut Mirror {
        match self {
            Appender::Mirror(mirror) => mirror,
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => {
                unreachable!("the hooks call this for mirrored logs alone")
            }
        }
    }

    pub(super) fn frames(&self) -> &Frames {
        match self {
            Appender::Frames(frames) => frames,
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => {
                unreachable!("the hooks call this for logs with frames alone")
            }
        }
    }

    pub(super) fn frames_mut(&mut self) -> &mut Frames {
        match self {
            Appender::Frames(frames) => frames,
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => {
                unreachable!("the hooks call this for logs with frames alone")
            }
        }
    }

    /// Whether all data lies in the ring, and nothing else of the cache device can run short.
    #[inline]
    pub fn is_inline(&self) -> bool {
        matches!(self, Appender::Inline(_))
    }

    /// Whether clean data lies in frames.
    pub fn has_frames(&self) -> bool {
        match self {
            Appender::Frames(_) => true,
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => false,
        }
    }

    // ---- what is cached ----------------------------------------------------------------------

    /// The newest content of a block, if it lies in memory.
    #[inline]
    pub fn newest_in_memory(&self, key: BlockKey) -> Option<Slice> {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => None,
            Appender::Mirror(mirror) => mirror.frames.newest(key),
        }
    }

    /// The content of a dirty block as the index has it, if it lies in memory.
    pub fn kept_in_memory(&self, key: BlockKey) -> Option<Slice> {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => None,
            Appender::Mirror(mirror) => mirror.frames.published(key),
        }
    }

    /// Drops the content that memory has of a block: it is not dirty any more, or not cached.
    pub fn forget(&mut self, key: BlockKey) {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => (),
            Appender::Mirror(mirror) => mirror.frames.forget(key),
        }
    }

    /// Notes that a client read the cached copy of a block.
    #[inline]
    pub fn hit(&mut self, key: BlockKey, index: &Index) {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) => (),
            Appender::Keys(keys) => {
                if let Some(entry) = index.get(key) {
                    keys.hit(entry.place);
                }
            }
            Appender::Frames(frames) => {
                if let Some(entry) = index.get(key) {
                    frames.worths.hit(entry.place);
                }
            }
        }
    }

    /// Looks at reads of the device, and whether it has something to write.
    pub fn looked(&mut self, reads: LookedReads, is_writing: bool, bounds: &PaceBounds, now: Nanos) {
        match self {
            Appender::Inline(inline) => inline.pace.looked(reads, is_writing, bounds, now),
            Appender::Frames(frames) => frames.inline.pace.looked(reads, is_writing, bounds, now),
            Appender::Keys(_) | Appender::Mirror(_) => (),
        }
    }

    /// Notes that clients ask for blocks.
    #[inline]
    pub fn accessed(&mut self, first: BlockKey, blocks: u64, index: &Index) {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => (),
            Appender::Frames(frames) => frames.accessed(first, blocks, index),
        }
    }

    /// Notes that the index has no copy of a block at a place any more.
    #[inline]
    pub fn lost(&mut self, key: BlockKey, place: Place) {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => (),
            Appender::Frames(frames) => frames.lost(key, place),
        }
    }

    /// The fill that waits for others and has a block.
    pub fn waiting_fill(&self, key: BlockKey) -> Option<&Fill> {
        let gathering = match self {
            Appender::Inline(inline) => &inline.gathering,
            Appender::Frames(frames) => &frames.inline.gathering,
            Appender::Keys(_) | Appender::Mirror(_) => return None,
        };
        let has_block = |fill: &&Fill| {
            fill.volume == key.volume() && (fill.blocks.first..fill.blocks.end()).contains(&key.block())
        };
        gathering.iter().find(has_block)
    }

    /// Whether what was left in an emptied segment is read until it is written over. The published logs have no such thing.
    pub fn reads_on(&self) -> bool {
        matches!(self, Appender::Inline(_) | Appender::Frames(_))
    }

    /// Whether reclaim weighs what a round of the ring says of its blocks: few dirty ones may stay, and a round without reads
    /// takes no hit away. The published logs do neither.
    pub fn weighs_rounds(&self) -> bool {
        matches!(self, Appender::Inline(_))
    }

    /// Whether a write is answered when all of it is published, and neither before nor after that.
    pub fn answers_when_published(&self) -> bool {
        matches!(self, Appender::Inline(_) | Appender::Frames(_))
    }

    /// Notes that a block is about to leave the cache, whose copy is at a place.
    pub fn leaves(&mut self, key: BlockKey, place: Place) {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => (),
            Appender::Frames(frames) => frames.worths.leaves(key, place),
        }
    }

    /// Notes that a copy is about to be at another place.
    pub fn moved(&mut self, from: Place, place: Place) {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => (),
            Appender::Frames(frames) => frames.worths.moved(from, place),
        }
    }

    /// Whether the copy at a place is about to leave, so that it has no key any more.
    pub fn is_leaving(&self, place: Place) -> bool {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Mirror(_) => false,
            Appender::Frames(frames) => frames.places.is_leaving(place),
        }
    }

    // ---- admission ---------------------------------------------------------------------------

    /// Whether it has a say in which requests enter the cache.
    #[inline]
    pub fn has_admission(&self) -> bool {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => false,
            Appender::Keys(_) => true,
        }
    }

    /// Whether too much of the cache is dirty for a request to enter.
    #[inline]
    pub fn is_over_cutoff(&self, access: Access, is_writeback: bool) -> bool {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => false,
            Appender::Keys(keys) => keys.is_over_cutoff(access, is_writeback),
        }
    }

    /// Clean blocks that may yet enter without pushing any other one out, if the ring keeps so many segments free.
    pub fn room_blocks(&self, segments: &Segments, segments_low: u32) -> u64 {
        match self {
            Appender::Inline(_) => {
                let unused = segments.unused().saturating_sub(segments_low);
                let unused_blocks = u64::from(unused) * u64::from(segments.segment_blocks());
                self.warm_room_blocks(segments, segments_low).max(unused_blocks)
            }
            Appender::Frames(frames) => u64::from(frames.places.room_blocks()),
            Appender::Keys(_) | Appender::Mirror(_) => 0,
        }
    }

    /// Blocks that enter until the ring has gone round, where it decides what leaves; otherwise none.
    pub fn round_blocks(&self, segments: &Segments) -> u64 {
        match self {
            Appender::Inline(_) => segments.ring_blocks(),
            Appender::Frames(_) | Appender::Keys(_) | Appender::Mirror(_) => 0,
        }
    }

    /// Blocks that may enter by the operator's will without pushing any other one out. What lies in buckets is pushed out by
    /// whole buckets, of which some are kept free in any case.
    pub fn warm_room_blocks(&self, segments: &Segments, segments_low: u32) -> u64 {
        match self {
            Appender::Inline(_) => {
                // Those that reclaim empties at the same time are no room, nor is what is on its way: others had to leave.
                let kept = segments_low + segments_low.max(SWEEP_SEGMENTS_MAX);
                u64::from(segments.free().saturating_sub(kept)) * u64::from(segments.segment_blocks())
            }
            Appender::Frames(_) => self.room_blocks(segments, segments_low),
            Appender::Mirror(_) => {
                let free = segments.free().saturating_sub(2 * segments_low);
                u64::from(free) * u64::from(segments.segment_blocks())
            }
            Appender::Keys(keys) => keys.buckets.room_blocks(),
        }
    }

    /// Notes that a client's request goes through the cache.
    #[inline]
    pub fn served(&mut self, sectors: u64) {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => (),
            Appender::Keys(keys) => keys.served(sectors),
        }
    }

    /// Notes that so many blocks were written around the cache.
    pub fn passed(&mut self, blocks: u64, segments: &Segments) {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => (),
            Appender::Keys(keys) => keys.passed(blocks, segments),
        }
    }

    /// Notes that a client's write was queued.
    pub fn write_came(&mut self, now: Nanos) {
        match self {
            Appender::Inline(inline) => inline.group_commit.came(now),
            Appender::Frames(frames) => frames.inline.group_commit.came(now),
            Appender::Keys(_) | Appender::Mirror(_) => (),
        }
    }

    // ---- batches -----------------------------------------------------------------------------

    /// Whether it took data of clients that is in no batch yet: answered for, or the rest of what is in one.
    pub fn has_taken(&self) -> bool {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => false,
            Appender::Mirror(mirror) => !mirror.is_quiet(),
        }
    }

    /// Blocks that a batch covers at the most, given the room for payload and for entries.
    pub fn batch_blocks_max(&self, payload_max: u32, entries_max: usize) -> u32 {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => payload_max,
            Appender::Keys(_) => Keys::batch_blocks_max(payload_max, entries_max),
        }
    }

    /// Checksums that a batch has at the most, of keys and of payload.
    pub fn batch_checksums_max(&self, payload_max: u32, entries_max: usize) -> u32 {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) => payload_max,
            Appender::Keys(_) => u32::MAX,
            Appender::Frames(_) => Keys::batch_blocks_max(payload_max, entries_max),
        }
    }

    /// Where the data of a batch lies.
    pub(super) fn placing(&self) -> Placing {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) => Placing::BehindHeader,
            Appender::Frames(_) => Placing::Both,
            Appender::Keys(_) => Placing::Elsewhere,
        }
    }

    /// Whether anything waits that goes with whatever batch there is.
    pub fn has_company(&self) -> bool {
        match self {
            Appender::Inline(inline) => !inline.gathering.is_empty(),
            Appender::Frames(frames) => frames.has_unlogged(),
            Appender::Keys(_) | Appender::Mirror(_) => false,
        }
    }

    /// Nobody is to ask again whether it may go alone.
    pub fn clear_company_deadline(&mut self) {
        match self {
            Appender::Inline(inline) => inline.gathering.clear_deadline(),
            Appender::Frames(frames) => frames.clear_deadline(),
            Appender::Keys(_) | Appender::Mirror(_) => (),
        }
    }

    /// Notes that the header of a batch says that all up to `flushed` was flushed.
    pub fn carry(&mut self, sequence: u64, flushed: u64) {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => (),
            Appender::Keys(keys) => keys.buckets.carry(sequence, flushed),
        }
    }

    /// Whether the device reads a buffer of a request outside of batches.
    pub fn is_writing(&self, request: RequestKey) -> bool {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => false,
            Appender::Keys(keys) => keys.is_writing(request),
        }
    }

    /// When to ask again whether a batch may go, if nothing else happens before.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        match self {
            Appender::Inline(inline) => inline.deadline(),
            Appender::Frames(frames) => frames.deadline(),
            Appender::Keys(_) => None,
            Appender::Mirror(mirror) => mirror.deadline(),
        }
    }

    /// Whether nothing waits that the log's queues do not have.
    pub fn is_quiet(&self) -> bool {
        match self {
            Appender::Inline(inline) => inline.gathering.is_empty(),
            Appender::Frames(frames) => frames.is_quiet(),
            Appender::Keys(keys) => keys.is_quiet(),
            Appender::Mirror(mirror) => mirror.is_quiet(),
        }
    }

    /// Whether the clock has to come back for work that nobody waits for.
    pub fn is_busy(&self) -> bool {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) => false,
            Appender::Keys(keys) => keys.is_busy(),
            Appender::Frames(frames) => frames.places.has_leaving(),
        }
    }

    // ---- durability --------------------------------------------------------------------------

    /// Acknowledged writes that are not in the log, as a number for [`Appender::are_logged`]; they are wanted there.
    pub fn unlogged(&mut self, segments: &Segments) -> Option<u64> {
        match self {
            Appender::Inline(_) | Appender::Frames(_) => None,
            Appender::Keys(keys) => keys.want_keys(),
            Appender::Mirror(mirror) => {
                let is_skipped = segments.mutations.has(Mutation::FlushBeforeOwed);
                (mirror.hurry() && !is_skipped).then_some(0)
            }
        }
    }

    /// Whether all acknowledged writes up to such a number are in the log.
    pub fn are_logged(&self, number: u64) -> bool {
        match self {
            Appender::Inline(_) | Appender::Frames(_) => true,
            Appender::Keys(keys) => keys.are_published(number),
            Appender::Mirror(mirror) => !mirror.owes(),
        }
    }

    /// Whether acknowledged writes, if lost, would be lost instead of what goes around them.
    pub fn owes(&self) -> bool {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => false,
            Appender::Mirror(mirror) => mirror.owes(),
        }
    }

    /// Asks for those writes to be published soon.
    pub fn hurry(&mut self) {
        match self {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => (),
            Appender::Mirror(mirror) => {
                mirror.hurry();
            }
        }
    }

    /// Whether data counts as home when it is written to an origin that was not flushed.
    pub fn is_home_when_written(&self) -> bool {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => false,
            Appender::Keys(keys) => keys.is_early(),
        }
    }

    /// Whether all places that were given up outside of the ring are void after a crash, too.
    pub fn are_freed(&self, flushed: u64) -> bool {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => true,
            Appender::Keys(keys) => keys.buckets.are_freed(flushed),
        }
    }

    // ---- figures -----------------------------------------------------------------------------

    /// How dirty data holds the cache.
    pub fn dirty_units(&self, segments: &Segments) -> DirtyUnits {
        match self {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => {
                let (count, dirty) = (segments.count(), segments.with_must());
                let in_use_percent = to_u32(u64::from(dirty) * 100 / u64::from(count));
                DirtyUnits { count, dirty, unit_blocks: segments.segment_blocks(), in_use_percent }
            }
            Appender::Keys(keys) => {
                let (_, unit_blocks) = keys.buckets.run_of(0);
                DirtyUnits {
                    count: keys.buckets.count(),
                    dirty: segments.dirty_buckets(),
                    unit_blocks,
                    in_use_percent: keys.buckets.in_use_percent(),
                }
            }
        }
    }

    /// Adds its figures to those of the ring.
    pub fn fill_status(&self, status: &mut CacheStatus) {
        match self {
            Appender::Inline(_) => (),
            Appender::Keys(keys) => status.used_bytes += keys.buckets.used_bytes(),
            Appender::Frames(frames) => status.used_bytes += frames.places.used_bytes(),
            Appender::Mirror(mirror) => {
                status.kept_bytes = mirror.frames.used() * BLOCK_BYTES;
                status.kept_limit_bytes = mirror.frames.room() * BLOCK_BYTES;
            }
        }
    }
}

impl Machine<LogStore> {
    /// Queues a fill; `retain` of its buffer is done here.
    pub(super) fn queue_fill<M: Memory>(&mut self, fill: Fill, memory: &mut M) {
        match self.store.appender {
            Appender::Inline(_) | Appender::Frames(_) => self.gather_fill(fill, memory),
            // It keeps its place among the writes.
            Appender::Keys(_) | Appender::Mirror(_) => {
                memory.retain(fill.slice.buffer);
                self.store.log.pending_fill_blocks += fill.blocks.count;
                self.store.log.push_client(ClientAppend::Fill(fill));
            }
        }
    }

    /// Sends off what is pending, as far as it may go now.
    #[inline]
    pub(super) fn assemble_pending<M: Memory>(&mut self, memory: &mut M) {
        match &self.store.appender {
            Appender::Inline(inline) if inline.is_quiet() && !self.store.log.has_pending() => {
                if inline.late.until.is_some() {
                    self.tend_late(memory);
                }
            }
            Appender::Inline(_) | Appender::Frames(_) => self.assemble_inline(memory),
            Appender::Keys(_) => self.assemble_keys(memory),
            Appender::Mirror(_) => self.assemble_mirror(memory),
        }
    }

    /// Whether what goes with whatever batch there is need not wait for one.
    pub(super) fn is_company_due(&mut self) -> bool {
        let (now, is_ending) = (self.now, self.is_stopping);
        match &mut self.store.appender {
            Appender::Inline(_) => self.are_fills_due(),
            Appender::Frames(frames) => {
                let due = frames.are_keys_due(now, is_ending, &self.barrier);
                if due == KeysDue::Unflushed {
                    self.barrier.want_any();
                    // This turn's flushes were looked at already, and nothing else need be to come.
                    self.pump_barrier();
                }
                due == KeysDue::Now
            }
            Appender::Keys(_) | Appender::Mirror(_) => false,
        }
    }

    /// A run of keys of a segment is published again, or needs not be.
    pub(super) fn rekeyed(&mut self, segment: u32) {
        match self.store.appender {
            Appender::Inline(_) | Appender::Mirror(_) => (),
            Appender::Keys(_) => self.tail_rekeyed(),
            Appender::Frames(_) => self.segment_rekeyed(segment),
        }
    }

    /// A client's write is published: blocks have their newest copies from `place` on.
    #[inline]
    pub(super) fn note_written(&mut self, first: BlockKey, blocks: u64, place: Place) {
        let LogStore { appender, index, .. } = &mut self.store;
        let Appender::Frames(frames) = appender else { return };
        for step in 0..blocks {
            let (key, place) = (BlockKey(first.0 + step), Place(place.0 + to_u32(step)));
            match index.get(key) {
                Some(old) => frames.worths.rewritten(old.place, place),
                None => frames.worths.arrives(key, place),
            }
        }
    }

    /// Puts what has to be there before the log's own work into a batch. False if some of it is left.
    pub(super) fn gather_first(&mut self, draft: &mut Draft) -> bool {
        match self.store.appender {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => true,
            Appender::Keys(_) => self.gather_applied(draft),
        }
    }

    /// Puts what clients brought into a batch.
    pub(super) fn gather_pending<M: Memory>(&mut self, draft: &mut Draft, memory: &mut M) {
        match self.store.appender {
            Appender::Inline(_) => {
                self.gather_clients(draft, memory);
                self.take_fills(draft, memory);
            }
            Appender::Keys(_) => self.gather_keys(draft),
            Appender::Frames(_) => {
                self.gather_clients(draft, memory);
                self.gather_frame_keys(draft);
            }
            Appender::Mirror(_) => {
                if self.gather_taken(draft, memory) {
                    self.gather_clients(draft, memory);
                }
            }
        }
    }

    /// Puts part of a client's write into a batch; returns what has no room in it.
    pub(super) fn gather_data<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        slice: Slice,
        draft: &mut Draft,
        memory: &mut M,
    ) -> Option<ClientAppend> {
        match self.store.appender {
            Appender::Inline(_) | Appender::Frames(_) => {
                self.gather_inline(request, blocks, slice, draft, memory)
            }
            Appender::Keys(_) => unreachable!("data goes to a bucket before its key goes to a batch"),
            Appender::Mirror(_) => self.gather_mirrored(request, blocks, slice, draft, memory),
        }
    }

    /// Makes room in the ring, and wherever else it runs short.
    #[inline]
    pub(super) fn pump_room<M: Memory>(&mut self, memory: &mut M) {
        match self.store.appender {
            Appender::Inline(_) => self.pump_reclaim(memory),
            Appender::Keys(_) => self.pump_keys(memory),
            Appender::Frames(_) => {
                self.pump_frames();
                self.pump_reclaim(memory);
            }
            Appender::Mirror(_) => {
                self.release_frames(memory);
                self.pump_reclaim(memory);
            }
        }
    }

    /// Whether clients wait for room outside of the ring, or soon will.
    pub(super) fn is_appender_short(&self) -> bool {
        match &self.store.appender {
            Appender::Inline(_) | Appender::Frames(_) => false,
            Appender::Keys(keys) => keys.is_starved(),
            Appender::Mirror(mirror) => self.is_memory_full(mirror),
        }
    }

    /// The summary of a segment that is to be emptied was read, or could not be.
    pub(super) fn summary_read<M: Memory>(
        &mut self,
        segment: u32,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let summary = self.decode_summary(segment, buffer, result, memory);
        match self.store.appender {
            Appender::Inline(_) | Appender::Mirror(_) | Appender::Frames(_) => {
                self.list_segment(segment, summary.ok());
            }
            Appender::Keys(_) => self.rekey_tail(segment, summary, memory),
        }
    }

    /// Whether anything that the log's queues do not have belongs to a volume.
    pub(super) fn appender_concerns(&self, volume: VolumeIndex) -> bool {
        match &self.store.appender {
            Appender::Inline(inline) => inline.gathering.iter().any(|fill| fill.volume == volume),
            Appender::Keys(keys) => keys.concern(volume),
            Appender::Frames(frames) => frames.concern(volume),
            // Each belongs to a request.
            Appender::Mirror(_) => false,
        }
    }

    /// The cache stops: takes back what is in no batch and nobody was answered for; the requests, and how many blocks of each.
    pub(super) fn withdraw_taken<M: Memory>(&mut self, memory: &mut M) -> Vec<(RequestKey, u64)> {
        match self.store.appender {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => Vec::new(),
            Appender::Mirror(_) => self.give_up_taken(memory),
        }
    }

    /// The cache failed: throws away what is in no queue of the log's and in no batch.
    pub(super) fn discard_waiting<M: Memory>(&mut self, memory: &mut M) {
        match self.store.appender {
            Appender::Inline(_) => self.drop_fills(memory),
            Appender::Frames(_) => {
                self.drop_fills(memory);
                self.store.appender.frames_mut().forget_keys();
            }
            Appender::Keys(_) => self.discard_keys(memory),
            Appender::Mirror(_) => self.discard_taken(memory),
        }
    }

    /// A clean stop ended: gives back what it has of the driver's memory.
    pub(super) fn release_memory<M: Memory>(&mut self, memory: &mut M) {
        match self.store.appender {
            Appender::Inline(_) | Appender::Keys(_) | Appender::Frames(_) => (),
            Appender::Mirror(_) => self.release_all_frames(memory),
        }
    }
}
