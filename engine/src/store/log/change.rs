//! Changes that go through the log: what is appended, merged and forgotten.
//!
//! | route | steps before the reply |
//! | --- | --- |
//! | log | (read what is partly written) → batch written and published |
//! | log, then origin | the same → cache flushed, unless the log has nothing older of the blocks → origin written |
//! | origin | cached copies dropped, tombstone durable → origin written |
//!
//! FUA adds a flush of the cache (log) or of the origin (the others).

use super::{ClientAppend, LogStore, PartSource};
use crate::effect::{Effect, Errno, RequestOp};
use crate::machine::guard::Blocks;
use crate::machine::request::{RequestKey, Route, Stage, Then};
use crate::machine::volume::Volume;
use crate::machine::{Machine, work_slice};
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::{index_wide, to_u32};
use crate::store::Changing;
use crate::store::log::extents::{Change, ExtentKind};
use crate::store::log::index::Entry;
use crate::units::{BLOCK_BYTES, BlockKey, SECTORS_PER_BLOCK, VolumeIndex};

/// Cached blocks that are looked at in one step when a volume leaves.
const PART_ENTRIES: u64 = 4096;
/// A request of more blocks counts as cached in part.
const ASKED_BLOCKS_MAX: u64 = 1024;

impl Machine<LogStore> {
    #[inline(always)]
    pub(super) fn append_write<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        let RequestOp::Write { range, from, .. } = active.op else { unreachable!("a write") };
        if range.is_block_aligned() {
            active.work = Some(from);
            let blocks = active.blocks;
            self.append_data(key, blocks, from);
            return;
        }
        self.fetch_edges(key, memory);
    }

    pub(super) fn append_zeroes<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let RequestOp::WriteZeroes { range, .. } = active.op else { unreachable!("zeroes") };
        let (blocks, volume_index) = (active.blocks, active.volume);
        let inner = self.volume(volume_index).whole_blocks(range);
        if inner.count == blocks.count {
            if self.may_append_zeroes_as_data(key) {
                self.append_zero_data(key, blocks, memory);
            } else {
                self.append_zero(key, inner);
            }
            return;
        }
        // The volume may have grown while the request waited: its last block was whole then.
        if !self.unshare(key) {
            return;
        }
        // At most the first and the last block are partly zeroed; both are read and merged.
        let edges = if blocks.count == 1 { 1 } else { 2 };
        let Some(buffer) = self.take_work(edges, memory) else {
            self.requests.wait_for_buffer(key);
            return;
        };
        let work = work_slice(buffer, edges);
        let active = &mut self.requests[key];
        (active.work, active.work_buffer, active.stage) = (Some(work), Some(buffer), Stage::Fetching);
        active.parts += 1;
        for (edge, block) in (0..).zip([blocks.first, blocks.end() - 1]).take(index_wide(edges)) {
            let slice = work.part(edge * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
            self.fetch(key, Blocks { first: block, count: 1 }, slice, false, memory);
        }
        self.requests[key].parts -= 1;
        if self.requests[key].parts == 0 {
            self.fetched(key, memory);
        }
    }

    /// The old content of a partial write is there: merges the new one and appends the result.
    pub(super) fn append_merged<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        if active.error.is_some() {
            self.reply(key, memory);
            return;
        }
        if self.latched.is_some() {
            // The log takes nothing any more: by another way, or not at all.
            self.begin_again(key, memory);
            return;
        }
        let active = &self.requests[key];
        let blocks = active.blocks;
        let work = active.work.expect("a partial write has a buffer");
        match active.op {
            RequestOp::Write { range, from, .. } => {
                let skip = to_u32(range.start % SECTORS_PER_BLOCK * 512);
                memory.copy(from, work.part(skip, from.len_bytes));
                // The buffer is longer where a row was left.
                self.append_data(key, blocks, work.part(0, to_u32(blocks.count * BLOCK_BYTES)));
            }
            RequestOp::WriteZeroes { range, .. } => {
                let inner = self.volume(self.requests[key].volume).whole_blocks(range);
                let edges = [blocks.first, blocks.end() - 1];
                let count = if blocks.count == 1 { 1 } else { 2 };
                for (edge, &block) in (0..count).zip(&edges) {
                    let slice = work.part(edge * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
                    let from = range.start.max(block * SECTORS_PER_BLOCK) - block * SECTORS_PER_BLOCK;
                    let to = range.end().min((block + 1) * SECTORS_PER_BLOCK) - block * SECTORS_PER_BLOCK;
                    memory.zero(slice.part(to_u32(from * 512), to_u32((to - from) * 512)));
                    self.append_data(key, Blocks { first: block, count: 1 }, slice);
                }
                // What lies between the edges.
                let first = inner.first.max(blocks.first + 1);
                let end = inner.end().min(blocks.end() - 1);
                if inner.count > 0 && first < end {
                    self.append_zero(key, Blocks { first, count: end - first });
                }
            }
            _ => unreachable!("only changes are merged"),
        }
    }

    fn append_data(&mut self, key: RequestKey, blocks: Blocks, slice: Slice) {
        let active = &mut self.requests[key];
        active.stage = Stage::Appending;
        active.unpublished += blocks.count;
        active.unapplied += blocks.count;
        let first = BlockKey::new(active.volume, blocks.first);
        self.store.index.load_ahead(first);
        let data = ClientAppend::Part { request: key, blocks, source: PartSource::Data(slice) };
        self.store.log.push_client(data);
        self.store.appender.write_came(self.now);
        if self.is_mutated(Mutation::AckBeforeWritten) && self.requests[key].is_logged_write() {
            let id = self.requests[key].id;
            self.push(Effect::Reply { id, result: Ok(()) });
        }
    }

    /// Appends zeroes as a client's data.
    fn append_zero_data<M: Memory>(&mut self, key: RequestKey, blocks: Blocks, memory: &mut M) {
        let Some(buffer) = self.take_work(blocks.count, memory) else {
            self.requests.wait_for_buffer(key);
            return;
        };
        let work = work_slice(buffer, blocks.count);
        memory.zero(work);
        (self.requests[key].work, self.requests[key].work_buffer) = (Some(work), Some(buffer));
        self.append_data(key, blocks, work);
    }

    fn append_zero(&mut self, key: RequestKey, blocks: Blocks) {
        let active = &mut self.requests[key];
        active.stage = Stage::Appending;
        active.unpublished += blocks.count;
        self.store.log.push_client(ClientAppend::Part { request: key, blocks, source: PartSource::Zero });
    }

    /// All that the request appended is published.
    #[inline(always)]
    pub(crate) fn appended<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        assert!(active.stage == Stage::Appending, "a request is appended once");
        assert!(active.unpublished == 0, "a request goes on when all its parts are published");
        let sequence = active.sequence;
        if active.error.is_some() {
            // The rest of it was withdrawn.
            self.reply(key, memory);
            return;
        }
        match active.route {
            Route::Log if active.wants_fua() && !self.is_mutated(Mutation::FuaWithoutFlush) => {
                self.release_hold(key);
                // RULE 4: the flush covers the chain up to the batch, not the batch alone.
                self.wait_for_cache_flush(key, sequence, Then::Reply, memory);
            }
            Route::Log => self.reply(key, memory),
            Route::LogThenOrigin if self.is_mutated(Mutation::OriginBeforeLogFlush) => self.home(key, memory),
            // RULE 7: a crash that takes the log entry finds nothing that is older than the origin.
            Route::LogThenOrigin
                if active.is_new_to_log
                    && (LogStore::is_forgotten(self, key)
                        || self.is_mutated(Mutation::NewBehindForgotten)) =>
            {
                self.home(key, memory);
            }
            // RULE 7: the log entry is durable before the origin changes: a crash must not find the old one
            // alone.
            Route::LogThenOrigin => self.wait_for_cache_flush(key, sequence, Then::Origin, memory),
            Route::Origin if self.is_mutated(Mutation::TombstoneUnflushed) => {
                self.origin_when_forgotten(key, memory)
            }
            // RULE 7: the tombstone is durable before the origin changes: a crash must not bring the dropped
            // copy back.
            Route::Origin => self.wait_for_cache_flush(key, sequence, Then::Forgotten, memory),
        }
    }

    /// Takes out of the log's queue what a volume has there and begins it again: it was queued while the
    /// origin worked, and would take the room that the others need.
    pub(super) fn withdraw_appends<M: Memory>(&mut self, index: VolumeIndex, memory: &mut M) {
        let is_absent = self.volume(index).origin.is_absent();
        let requests = &self.requests;
        // A request of which a part is in a batch already stays where it is, as long as there is hope.
        let withdrawn = self.store.log.withdraw(|key| {
            let active = &requests[key];
            active.volume == index && (active.sequence == 0 || is_absent)
        });
        for (key, blocks) in withdrawn {
            if self.requests[key].sequence == 0 {
                self.requests[key].unpublished -= blocks;
                assert!(self.requests[key].unpublished == 0, "what is in no batch was withdrawn as a whole");
                self.begin_again(key, memory);
            } else {
                self.refuse_append(key, blocks, Errno::IO, memory);
            }
        }
    }

    /// Takes out of the log's queue what clients have there: the cache stops, and nothing makes room before that.
    pub(super) fn refuse_appends<M: Memory>(&mut self, memory: &mut M) {
        let taken = self.withdraw_taken(memory);
        for (key, blocks) in taken.into_iter().chain(self.store.log.withdraw(|_| true)) {
            self.refuse_append(key, blocks, Errno::SHUTDOWN, memory);
        }
    }

    /// A part of a change was taken out of the log's queue: it fails, once what else is on its way is published.
    fn refuse_append<M: Memory>(&mut self, key: RequestKey, blocks: u64, errno: Errno, memory: &mut M) {
        let active = &mut self.requests[key];
        active.unpublished -= blocks;
        if active.unpublished == 0 {
            self.fail(key, errno, memory);
        } else {
            active.error = Some(errno);
        }
    }

    /// Whether anything of `blocks` is cached, or a tombstone of them on its way. Of many blocks it is not asked.
    pub(super) fn has_to_forget(&self, volume_index: VolumeIndex, blocks: Blocks) -> bool {
        let first = self.volume(volume_index).key(blocks.first).0;
        let LogStore { index, extents, log, .. } = &self.store;
        let is_cached = |key| index.get(key).is_some() || extents.get(key).is_some();
        blocks.count > ASKED_BLOCKS_MAX
            || self.store.may_have_left_out()
            || (first..first + blocks.count).any(|key| is_cached(BlockKey(key)))
            || log.has_tombstone_pending(volume_index, blocks)
    }

    /// A part of a write-through is about to enter the log: notes whether anything older of its blocks is there, or on its
    /// way there. What was forgotten, and may come back, is looked at when it goes home.
    #[inline(never)]
    pub(super) fn note_whether_new(&mut self, key: RequestKey, blocks: Blocks) {
        let active = &self.requests[key];
        let is_first = active.sequence == 0;
        let is_new = (is_first || active.is_new_to_log)
            && matches!(active.op, RequestOp::Write { .. })
            && self.config.order.is_none()
            && !self.has_to_forget(active.volume, blocks)
            && self.volume(active.volume).guard.is_copied_nowhere(blocks);
        self.requests[key].is_new_to_log = is_new;
    }

    /// Drops whatever the index has in `blocks`; returns how many blocks that were.
    pub(crate) fn drop_entries(&mut self, volume_index: VolumeIndex, blocks: Blocks) -> u64 {
        self.drop_some(volume_index, blocks, None)
    }

    /// Forgets a part of what is cached of a volume that leaves, so that nobody waits for all of it; true when nothing is left.
    pub(super) fn drop_part(&mut self, volume_index: VolumeIndex) -> bool {
        let entries = self.store.index.len();
        let volume = self.volume_mut(volume_index);
        let all = Blocks { first: 0, count: volume.blocks() };
        let parts_at_once = to_u32(entries / PART_ENTRIES).next_power_of_two();
        let (part, parts) = volume.leaving.unwrap_or((0, parts_at_once));
        if part < parts {
            volume.leaving = Some((part + 1, parts));
            self.drop_some(volume_index, all, Some((part, parts)));
        }
        part + 1 >= parts
    }

    fn drop_some(&mut self, volume_index: VolumeIndex, blocks: Blocks, part: Option<(u32, u32)>) -> u64 {
        let is_stale = self.is_mutated(Mutation::KeepStaleFrame);
        let Machine { volumes, store: LogStore { index, segments, appender, .. }, .. } = self;
        let volume = volumes[volume_index.at()].as_mut().expect("the volume exists");
        if volume.cached_blocks == 0 {
            return 0;
        }
        let mut dropped = 0;
        let keys = volume.keys(blocks);
        let removed = |key, entry: Entry| {
            if !is_stale {
                appender.forget(key);
            }
            segments.remove_live(entry.place, entry.dirty);
            appender.lost(key, entry.place);
            volume.dirty_blocks -= u64::from(entry.dirty);
            volume.cached_blocks -= 1;
            dropped += 1;
        };
        match part {
            None => index.remove_range(keys.start, blocks.count, removed),
            Some(part) => index.remove_part(keys, part, removed),
        }
        dropped
    }

    /// Drops whatever extents there are in `blocks`; returns how many pieces changed.
    pub(crate) fn drop_extents(&mut self, volume_index: VolumeIndex, blocks: Blocks) -> u64 {
        let first = self.volume(volume_index).key(blocks.first);
        let mut changed = 0;
        let Machine { volumes, store: LogStore { extents, segments, .. }, .. } = self;
        let volume = volumes[volume_index.at()].as_mut().expect("the volume exists");
        extents.cut(first, blocks.count, |change| {
            changed += 1;
            volume.count_extent(change);
            match change {
                Change::Removed(extent) => segments.remove_must(extent.place),
                Change::Added(extent) => segments.add_must(extent.place, 1),
            }
        });
        changed
    }
}

impl LogStore {
    /// RULE 8: whether the log may have clean copies that the start left out of the index.
    pub(super) fn may_have_left_out(&self) -> bool {
        self.left_out_to.is_some_and(|to| self.segments.floor().is_some_and(|floor| floor < to))
    }
}

impl Volume {
    /// Keeps the sums over extents.
    pub(crate) fn count_extent(&mut self, change: Change) {
        let (extent, is_added) = match change {
            Change::Removed(extent) => (extent, false),
            Change::Added(extent) => (extent, true),
        };
        let sum = match extent.kind {
            ExtentKind::Zero => &mut self.zero_blocks,
            ExtentKind::Lost => &mut self.lost_blocks,
        };
        if is_added {
            *sum += extent.blocks;
        } else {
            *sum -= extent.blocks;
        }
    }
}
