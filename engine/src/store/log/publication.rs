//! Publication: a batch is on the device, and the index learns of it; or the device failed, and it never was.

use super::mirror::Mirrored;
use super::once::OnceLayout;
use super::{Batch, ClientAppend, InternalAppend, LogStore, Publish};
use crate::effect::{Effect, Errno, Notice};
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::RequestKey;
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::{index_wide, to_u32};
use crate::store::log::extents::{Extent, ExtentKind};
use crate::store::log::index::Run as IndexRun;
use crate::store::{Changing, Lookup};
use crate::units::{BLOCK_BYTES, BlockKey, Place, VolumeIndex};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Machine<LogStore> {
    pub(crate) fn batch_done<M: Memory>(&mut self, sequence: u64, result: Result<(), Errno>, memory: &mut M) {
        let at = self.store.log.in_flight.iter().position(|batch| batch.sequence == sequence);
        let at = at.expect("a batch was in flight");
        self.store.log.in_flight[at].is_done = true;
        if self.is_mutated(Mutation::PublishOutOfOrder) {
            let batch = self.store.log.in_flight.remove(at).expect("just found");
            self.store.log.in_flight.push_front(batch);
        }
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        self.take_done(memory);
        self.go_on_late(memory);
    }

    /// Publishes batches that are on the device, or gives them up if the cache failed.
    pub(super) fn take_done<M: Memory>(&mut self, memory: &mut M) {
        // HAZARD 14, RULE 4: published in log order, whatever order the device answers in: a crash cuts the
        // log at the first batch that is missing.
        while self.store.log.in_flight.front().is_some_and(|batch| batch.is_done) {
            let mut batch = self.store.log.in_flight.pop_front().expect("just seen");
            self.store.log.in_flight_writes -= batch.writes;
            memory.release(batch.header);
            self.end_late(&mut batch, memory);
            if self.latched.is_some() {
                self.discard_publishes(batch.publish, memory);
                continue;
            }
            self.store.log.published = self.store.log.published.max(batch.sequence);
            self.store.log.ends.push_back((batch.sequence, batch.segment, batch.end_block));
            if self.config.order.is_some() {
                self.list_versions(&batch);
            }
            for publish in batch.publish {
                self.publish(publish, &batch.checksums, batch.header_place, batch.once, memory);
            }
            for extent in core::mem::take(&mut self.store.log.moved_late) {
                self.zeroes_went_home(extent);
            }
        }
        self.pump_checkpoint(memory);
    }

    /// Does what the publication of one append does.
    pub(super) fn publish<M: Memory>(
        &mut self,
        publish: Publish,
        checksums: &[u32],
        header_place: Place,
        once: OnceLayout,
        memory: &mut M,
    ) {
        match publish {
            Publish::Part { request, volume, blocks, place, checksums_at } => {
                match place {
                    Some(place) => {
                        let checksums = checksums_of(checksums, checksums_at, blocks);
                        let first = BlockKey::new(volume, blocks.first);
                        let run = IndexRun { first, place, dirty: true, hits: 0, checksums };
                        self.note_written(first, blocks.count, place);
                        let dirty_before = self.insert_run(volume, blocks, run);
                        self.store.policies.rewriting.wrote(blocks.count, dirty_before);
                        self.release_share(request, blocks.count);
                    }
                    None => self.publish_zeroes(volume, blocks, header_place),
                }
                self.release_guard(volume, blocks, Hold::Publishing);
                self.part_published(request, blocks.count, memory);
            }
            Publish::Fill { volume, blocks, place, checksums_at, buffer } => {
                memory.release(buffer);
                for (skip, count, place) in once.runs(place, blocks.count) {
                    let run = Blocks { first: blocks.first + skip, count };
                    let checksums = checksums_of(checksums, checksums_at + index_wide(skip), run);
                    let first = BlockKey::new(volume, run.first);
                    self.insert_run(volume, run, IndexRun { first, place, dirty: false, hits: 0, checksums });
                }
                self.release_guard(volume, blocks, Hold::Copying);
            }
            Publish::Tombstone { request } => {
                if let Some(request) = request {
                    self.requests[request].sequence = self.store.log.published;
                    self.part_published(request, 1, memory);
                }
            }
            Publish::Relocate { key, from, place, dirty, checksums_at, buffer } => {
                memory.release(buffer);
                self.store.reclaim.relocated(to_u32(BLOCK_BYTES));
                let blocks = Blocks { first: key.block(), count: 1 };
                // It may have been destaged or found rotten meanwhile, but not superseded.
                if let Some(entry) = self.store.index.get(key).filter(|entry| entry.place == from) {
                    let dirty = dirty && entry.dirty;
                    let hits = match self.was_hit_meanwhile(from) {
                        true => self.store.reclaim.policy.hits_left(entry.hits),
                        false => entry.hits,
                    };
                    let checksums = checksums_of(checksums, checksums_at, blocks);
                    let place = once.place(place);
                    let run = IndexRun { first: key, place, dirty, hits, checksums };
                    self.store.appender.moved(from, place);
                    self.insert_run(key.volume(), blocks, run);
                    self.volume_mut(key.volume()).counters.relocated_blocks += 1;
                }
                self.release_guard(key.volume(), blocks, Hold::Copying);
            }
            Publish::Extent { extent, from } => self.publish_extent(extent, from),
            Publish::Head { buffer } => memory.release(buffer),
            Publish::Mirrored(mirrored) => self.publish_mirrored(mirrored, checksums, memory),
            Publish::Keys(publish) => self.publish_keys(publish, memory),
        }
    }

    fn publish_zeroes(&mut self, volume: VolumeIndex, blocks: Blocks, header_place: Place) {
        self.drop_entries(volume, blocks);
        let first = BlockKey::new(volume, blocks.first);
        let kind = ExtentKind::Zero;
        self.insert_extent(Extent { first, blocks: blocks.count, kind, place: header_place });
    }

    fn publish_extent(&mut self, extent: Extent, from: Option<Place>) {
        let volume = extent.first.volume();
        let blocks = Blocks { first: extent.first.block(), count: extent.blocks };
        let is_current = self.store.extents.get(extent.first).is_some_and(|now| Some(now.place) == from)
            || self.store.index.get(extent.first).is_some_and(|now| Some(now.place) == from);
        if is_current {
            if extent.kind == ExtentKind::Lost && self.store.extents.get(extent.first).is_none() {
                self.push(Effect::Notice(Notice::Lost { volume, block: blocks.first }));
            }
            self.drop_entries(volume, blocks);
            self.insert_extent(extent);
        } else if extent.kind == ExtentKind::Zero {
            self.store.log.moved_late.push(extent);
        }
        self.release_guard(volume, blocks, Hold::Copying);
    }

    /// So many parts more of what a request appended are published.
    #[inline(always)]
    pub(super) fn part_published<M: Memory>(&mut self, request: RequestKey, parts: u64, memory: &mut M) {
        let active = &mut self.requests[request];
        active.unpublished -= parts;
        if active.unpublished == 0 {
            self.appended(request, memory);
        }
    }

    /// Puts a run into the index and keeps all sums. Answers how many of its blocks were dirty before.
    #[inline]
    pub(super) fn insert_run(&mut self, volume_index: VolumeIndex, blocks: Blocks, run: IndexRun<'_>) -> u64 {
        let is_dirty = run.dirty;
        let place = run.place;
        if !self.store.extents.is_empty() {
            self.drop_extents(volume_index, blocks);
        }
        let Machine { volumes, store: LogStore { index, segments, appender, .. }, .. } = self;
        let volume = volumes[volume_index.at()].as_mut().expect("the volume exists");
        let mut dirty_before = 0;
        index.insert(run, |key, old| {
            segments.remove_live(old.place, old.dirty);
            appender.lost(key, old.place);
            dirty_before += u64::from(old.dirty);
            volume.cached_blocks -= 1;
        });
        volume.dirty_blocks -= dirty_before;
        segments.add_live(place, to_u32(blocks.count), is_dirty);
        volume.cached_blocks += blocks.count;
        if is_dirty {
            volume.dirty_blocks += blocks.count;
            volume.destage.dirtied(blocks);
        }
        dirty_before
    }

    pub(crate) fn insert_extent(&mut self, extent: Extent) {
        let volume_index = extent.first.volume();
        self.drop_extents(volume_index, Blocks { first: extent.first.block(), count: extent.blocks });
        self.store.extents.insert(extent);
        self.store.segments.add_must(extent.place, 1);
        self.volume_mut(volume_index).count_extent(crate::store::log::extents::Change::Added(extent));
    }

    /// RULE 7: zeroes went home, all or some, while their record was on its way from one segment to another. The new record
    /// does not bring them back after a crash; what is not home is there from now on, whatever moved it before. Newer
    /// zeroes of the same batch are recorded in the same place.
    fn zeroes_went_home(&mut self, moved: Extent) {
        let volume = moved.first.volume();
        let end = moved.first.block() + moved.blocks;
        let mut block = moved.first.block();
        while block < end {
            let (there, place) = self.next_zeroes(volume, Blocks { first: block, count: end - block });
            if there.first > block {
                self.store.log.push_internal(InternalAppend::Cleaned {
                    volume,
                    blocks: Blocks { first: block, count: there.first - block },
                    place: moved.place,
                    life: self.store.life(moved.place),
                    is_zero: true,
                });
            }
            if there.count > 0 && place != moved.place {
                let first = BlockKey::new(volume, there.first);
                self.insert_extent(Extent { first, blocks: there.count, ..moved });
            }
            block = there.end();
        }
    }

    /// The first zeroes in `within`, and where they are recorded; nothing, at the end of it, if there are none.
    fn next_zeroes(&self, volume: VolumeIndex, within: Blocks) -> (Blocks, Place) {
        let mut block = within.first;
        while let Some(extent) = self.store.extents.next(BlockKey::new(volume, block)) {
            let (first, end) = (extent.first.block(), extent.first.block() + extent.blocks);
            if extent.first.volume() != volume || first >= within.end() {
                break;
            }
            if extent.kind == ExtentKind::Zero {
                let first = first.max(within.first);
                return (Blocks { first, count: end.min(within.end()) - first }, extent.place);
            }
            if end >= within.end() {
                break;
            }
            block = end;
        }
        (Blocks { first: within.end(), count: 0 }, Place(0))
    }

    /// The cache failed: what was on its way into it never happened.
    pub(super) fn discard_publishes<M: Memory>(&mut self, publishes: Vec<Publish>, memory: &mut M) {
        let mut cut_off: BTreeSet<RequestKey> = BTreeSet::new();
        for publish in publishes {
            match publish {
                Publish::Fill { volume, blocks, buffer, .. } => {
                    memory.release(buffer);
                    self.release_guard(volume, blocks, Hold::Copying);
                }
                Publish::Relocate { key, buffer, .. } => {
                    memory.release(buffer);
                    self.store.reclaim.relocated(to_u32(BLOCK_BYTES));
                    self.release_guard(key.volume(), Blocks { first: key.block(), count: 1 }, Hold::Copying);
                }
                Publish::Extent { extent, .. } => {
                    let blocks = Blocks { first: extent.first.block(), count: extent.blocks };
                    self.release_guard(extent.first.volume(), blocks, Hold::Copying);
                }
                Publish::Head { buffer } => memory.release(buffer),
                Publish::Part { request, volume, blocks, .. } => {
                    self.release_guard(volume, blocks, Hold::Publishing);
                    cut_off.insert(request);
                }
                Publish::Mirrored(mirrored) => {
                    cut_off.insert(self.discard_mirrored(mirrored, memory));
                }
                Publish::Tombstone { request } => cut_off.extend(request),
                Publish::Keys(publish) => cut_off.extend(self.discard_key_publish(publish)),
            }
        }
        for request in cut_off {
            // Another batch may still be reading its buffer.
            if !LogStore::is_writing(self, request) {
                self.cut_off(request, memory);
            }
        }
    }

    /// Throws away all that waits to be appended; the requests behind it learn of it by themselves.
    pub(crate) fn discard_appends<M: Memory>(&mut self, memory: &mut M) {
        while let Some(append) = self.store.log.client.pop_front() {
            self.store.log.pending_blocks -= append.weight();
            match append {
                ClientAppend::Fill(fill) => {
                    self.store.log.pending_fill_blocks -= fill.blocks.count;
                    memory.release(fill.slice.buffer);
                }
                ClientAppend::Part { .. } => (),
            }
        }
        while let Some(append) = self.store.log.internal.pop_front() {
            self.forget_internal(append, memory);
        }
        self.store.log.is_floor_wanted = false;
    }

    /// Requests with a part in a batch in flight: their buffers are still being read.
    pub(crate) fn is_in_batch(&self, request: RequestKey) -> bool {
        let mut in_flight = self.store.log.in_flight.iter().flat_map(Batch::publishes);
        in_flight.any(|publish| publish.request() == Some(request))
    }

    /// Whether anything on its way into the log belongs to a volume.
    pub(crate) fn log_concerns(&self, index: VolumeIndex) -> bool {
        let of_request = |request: RequestKey| self.requests[request].volume == index;
        let is_pending = self.store.log.client.iter().any(|append| match append {
            ClientAppend::Part { request, .. } => of_request(*request),
            ClientAppend::Fill(fill) => fill.volume == index,
        });
        let is_internal = self.store.log.internal.iter().any(|append| append.volume() == Some(index));
        let mut in_flight = self.store.log.in_flight.iter().flat_map(Batch::publishes);
        let is_in_flight = in_flight.any(|publish| publish.volume() == Some(index));
        is_pending || is_internal || is_in_flight || self.appender_concerns(index)
    }

    /// A flush of the cache covered the log up to `sequence`.
    pub(crate) fn log_flushed(&mut self, sequence: u64) {
        self.store.log.note.flushed(self.now, sequence);
        while let Some(&(end, segment, block)) = self.store.log.ends.front() {
            if end > sequence {
                break;
            }
            self.store.log.ends.pop_front();
            self.store.segments.get_mut(segment).flushed_blocks = block;
        }
        self.store.segments.free_flushed(sequence);
    }

    /// Whether `segment` may be reclaimed: it is sealed and nothing of its own is in flight.
    pub(crate) fn is_settled(&self, segment: u32) -> bool {
        !self.store.log.is_open(segment)
            && self.store.segments.get(segment).is_summary_written
            && self.store.segments.get(segment).last_sequence <= self.store.log.published
    }
}

impl Publish {
    /// The place of its payload, if that lies behind the batch's header.
    pub(super) fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Publish::Part { place, .. } => place.as_mut(),
            Publish::Fill { place, .. }
            | Publish::Mirrored(Mirrored { place, .. })
            | Publish::Relocate { place, .. } => Some(place),
            Publish::Tombstone { .. } | Publish::Extent { .. } | Publish::Head { .. } | Publish::Keys(_) => {
                None
            }
        }
    }

    /// The request that waits for it.
    fn request(&self) -> Option<RequestKey> {
        match self {
            Publish::Part { request, .. } | Publish::Mirrored(Mirrored { request, .. }) => Some(*request),
            Publish::Tombstone { request } => *request,
            Publish::Keys(publish) => publish.request(),
            Publish::Fill { .. }
            | Publish::Relocate { .. }
            | Publish::Extent { .. }
            | Publish::Head { .. } => None,
        }
    }

    /// The volume that has to stay for it.
    fn volume(&self) -> Option<VolumeIndex> {
        match self {
            Publish::Part { volume, .. }
            | Publish::Fill { volume, .. }
            | Publish::Mirrored(Mirrored { volume, .. }) => Some(*volume),
            Publish::Relocate { key, .. } => Some(key.volume()),
            Publish::Extent { extent, .. } => Some(extent.first.volume()),
            Publish::Keys(publish) => publish.volume(),
            Publish::Tombstone { .. } | Publish::Head { .. } => None,
        }
    }
}

/// The checksums of an append in those of its batch.
pub(super) fn checksums_of(checksums: &[u32], at: usize, blocks: Blocks) -> &[u32] {
    &checksums[at..at + index_wide(blocks.count)]
}
