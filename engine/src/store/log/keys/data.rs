//! From the clients' queue to a bucket.

use super::super::fills::Fill;
use super::super::{ClientAppend, LogFlight, LogStore, PartSource};
use super::buckets::Space;
use super::{KEYS_MAX, Key, KeyState, Source};
use crate::effect::{Errno, IoOp, Pieces, RequestOp, Target};
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::RequestKey;
use crate::machine::{Flight, Machine};
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::{index_wide, to_u32};
use crate::policies::replacement::Access;
use crate::status::{Bypass, Content};
use crate::store::{Changing, Lookup};
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, VolumeIndex};
use alloc::vec::Vec;

impl Machine<LogStore> {
    /// Takes what clients have queued, in order, and writes it to buckets, as far as there is room.
    pub(super) fn place_data<M: Memory>(&mut self, memory: &mut M) {
        self.keys().is_starved = false;
        while self.latched.is_none() && self.may_place() {
            let Some(append) = self.store.log.client.pop_front() else { break };
            let has_room = match append {
                ClientAppend::Part { request, blocks, source: PartSource::Zero } => {
                    self.place_zero(request, blocks, append)
                }
                ClientAppend::Part { request, blocks, source: PartSource::Data(slice) } => {
                    self.place_part(request, blocks, slice, memory)
                }
                ClientAppend::Fill(Fill { volume, blocks, slice, stamp, .. }) => {
                    self.store.log.pending_blocks -= blocks.count;
                    self.store.log.pending_fill_blocks -= blocks.count;
                    let is_current = self.volumes[volume.at()].as_ref().is_some_and(|target| {
                        // HAZARD 1: nothing was written, destaged, discarded, bypassed or dropped here since the read
                        // began, and nothing is about to be.
                        let is_same = target.guard.is_as_stamped(stamp, self.trusted_epoch(target));
                        (is_same || self.is_mutated(Mutation::FillAfterChange)) && target.caches_reads()
                    });
                    self.place_fill(volume, blocks, slice, is_current, memory);
                    true
                }
            };
            if !has_room {
                break;
            }
        }
    }

    /// Whether more data may be placed: keys need room in the ring.
    fn may_place(&self) -> bool {
        let keys = self.store.appender.keys();
        keys.waiting.len() < KEYS_MAX && self.clients_may_append()
    }

    fn keys(&mut self) -> &mut super::Keys {
        self.store.appender.keys_mut()
    }

    /// Zeroes need no bucket; they keep their place among the others.
    fn place_zero(&mut self, request: RequestKey, blocks: Blocks, append: ClientAppend) -> bool {
        // As a key it would hold up those of fills behind it, and with them who waits for their blocks, perhaps with the blocks
        // of those zeroes that it waits for.
        let keys = self.store.appender.keys();
        if self.must_zeroes_wait(keys.waiting.iter().filter(|key| key.space.is_none()).count()) {
            self.store.log.client.push_front(append);
            return false;
        }
        let volume = self.requests[request].volume;
        self.requests[request].sequence = self.store.log.next_sequence;
        self.push_key(Key {
            source: Source::Write { request },
            volume,
            blocks,
            place: None,
            checksums: Vec::new(),
            space: None,
            state: KeyState::Ready,
            written: None,
        });
        // They are not in the index before their batch is published, and what comes behind them waits for that.
        self.keys().want_all_keys();
        true
    }

    fn place_part<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        slice: Slice,
        memory: &mut M,
    ) -> bool {
        let volume = self.requests[request].volume;
        let first = self.volume(volume).key(blocks.first);
        if !self.has_place_in_round(first, memory) {
            self.store.log.client.push_front(ClientAppend::Part {
                request,
                blocks,
                source: PartSource::Data(slice),
            });
            return false;
        }
        let LogStore { appender, segments, .. } = &mut self.store;
        let keys = appender.keys_mut();
        let Some(space) = keys.buckets.take(first, blocks.count, segments) else {
            let source = PartSource::Data(slice);
            self.store.log.client.push_front(ClientAppend::Part { request, blocks, source });
            return self.pass_starved(request, memory);
        };
        let now = Blocks { first: blocks.first, count: u64::from(space.blocks) };
        let bytes = space.blocks * to_u32(BLOCK_BYTES);
        self.store.log.pending_blocks -= now.count;
        // Part of it is on its way: it cannot be begun again as if nothing had happened.
        self.requests[request].sequence = self.store.log.next_sequence;
        self.write_data(Source::Write { request }, volume, now, slice.part(0, bytes), &space, memory);
        if now.count < blocks.count {
            let rest = Blocks { first: now.end(), count: blocks.count - now.count };
            let source = PartSource::Data(slice.part(bytes, slice.len_bytes - bytes));
            self.store.log.client.push_front(ClientAppend::Part { request, blocks: rest, source });
        }
        true
    }

    fn place_fill<M: Memory>(
        &mut self,
        volume: VolumeIndex,
        blocks: Blocks,
        slice: Slice,
        is_current: bool,
        memory: &mut M,
    ) {
        let is_new = is_current
            && !self.store.index.is_tight(blocks.count)
            && (blocks.first..blocks.end())
                .all(|block| self.store.index.get(BlockKey::new(volume, block)).is_none())
            && self.has_place_in_round(BlockKey::new(volume, blocks.first), memory);
        let space = is_new
            .then(|| {
                let LogStore { appender, segments, .. } = &mut self.store;
                let keys = appender.keys_mut();
                keys.buckets.take(BlockKey::new(volume, blocks.first), blocks.count, segments)
            })
            .flatten();
        let Some(space) = space else {
            if let Some(target) = &mut self.volumes[volume.at()] {
                let counters = &mut target.counters;
                let counter = if is_current {
                    &mut counters.read_bypasses.pressure_blocks
                } else {
                    &mut counters.fill_dropped_blocks
                };
                *counter += blocks.count;
            }
            memory.release(slice.buffer);
            return;
        };
        // What does not fit a bucket's end is not worth a second write.
        let now = Blocks { first: blocks.first, count: u64::from(space.blocks) };
        let target = self.volume_mut(volume);
        target.guard.acquire(now, Hold::Copying);
        target.counters.fill_blocks += now.count;
        let part = slice.part(0, space.blocks * to_u32(BLOCK_BYTES));
        self.write_data(Source::Read { buffer: Some(slice.buffer) }, volume, now, part, &space, memory);
    }

    fn write_data<M: Memory>(
        &mut self,
        source: Source,
        volume: VolumeIndex,
        blocks: Blocks,
        slice: Slice,
        space: &Space,
        memory: &M,
    ) {
        let len_bytes = to_u32(BLOCK_BYTES);
        let checksums = (0..slice.len_bytes / len_bytes)
            .map(|step| memory.checksum(slice.part(step * len_bytes, len_bytes)))
            .collect();
        let segment = self.keys().buckets.segment_of(space.bucket);
        let why = match &source {
            Source::Write { .. } => Content::User,
            Source::Read { .. } => Content::Fill,
        };
        self.count_content(why, slice.len_bytes.into());
        let key = self.push_key(Key {
            source,
            volume,
            blocks,
            place: Some(space.place),
            checksums,
            space: Some((segment, space.end_block)),
            state: KeyState::Writing,
            written: None,
        });
        let op = IoOp::Write { offset_bytes: self.store.offset_bytes(space.place), from: Pieces::One(slice) };
        let issued = self.now;
        self.issue(Target::Cache, op, Flight::Store(LogFlight::Data { key, issued }));
    }

    fn push_key(&mut self, key: Key) -> u64 {
        let keys = self.keys();
        keys.waiting.push_back(key);
        keys.keys_end() - 1
    }

    /// The device has the data of a key, or failed.
    pub(in crate::store::log) fn data_done<M: Memory>(
        &mut self,
        key: u64,
        issued: Nanos,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.note_latency(Access::Write, issued);
        let moment = self.barrier.moment();
        let keys = self.keys();
        let at = index_wide(key - keys.first_key);
        keys.waiting[at].state = KeyState::Ready;
        keys.waiting[at].written = Some(moment);
        let request = keys.waiting[at].request();
        let was_latched = self.latched.is_some();
        if result.is_ok() && !was_latched {
            self.apply_keys(memory);
        }
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        if was_latched {
            self.discard_keys(memory);
            if let Some(request) = request
                && !LogStore::is_writing(self, request)
            {
                self.cut_off(request, memory);
            }
        }
    }

    /// The cache failed: keys whose data nobody writes any more never were.
    pub(in crate::store::log) fn discard_keys<M: Memory>(&mut self, memory: &mut M) {
        let keys = self.store.appender.keys_mut();
        let mut fills = Vec::new();
        for key in keys.waiting.iter_mut() {
            if !matches!(key.state, KeyState::Ready | KeyState::Applied) {
                continue;
            }
            key.state = KeyState::Gone;
            match key.source {
                Source::Read { buffer } => fills.push((key.volume, key.blocks, buffer)),
                Source::Write { .. } => (),
            }
        }
        while keys.waiting.front().is_some_and(|key| key.state == KeyState::Gone) {
            keys.waiting.pop_front();
            keys.first_key += 1;
            keys.published_keys += 1;
        }
        for (volume, blocks, buffer) in fills {
            if let Some(buffer) = buffer {
                memory.release(buffer);
            }
            self.release_guard(volume, blocks, Hold::Copying);
        }
    }

    /// No bucket is free, and clients wait. What only waits for its turn goes around the cache, if nothing is on its way
    /// to be free: a cache full of dirty data slows down to the origin's speed. False if the first one has to wait.
    fn pass_starved<M: Memory>(&mut self, request: RequestKey, memory: &mut M) -> bool {
        self.keys().is_starved = true;
        // Data is placed when the driver has no more input: nothing else need be to come.
        self.want_tick(self.now.plus(self.config.tick_ns));
        self.give_up_buckets();
        let LogStore { appender, segments, .. } = &mut self.store;
        let keys = appender.keys_mut();
        if keys.buckets.has_leaving() {
            return false;
        }
        keys.buckets.recount(segments);
        let mut queued: Vec<RequestKey> = Vec::new();
        for append in &self.store.log.client {
            match append {
                ClientAppend::Part { request, .. } => {
                    if queued.last() != Some(request) {
                        queued.push(*request);
                    }
                }
                ClientAppend::Fill(_) => (),
            }
        }
        // RULE 7: a dirty block is never bypassed; its newer version follows it home.
        queued.retain(|&key| {
            let active = &self.requests[key];
            let is_write = matches!(active.op, RequestOp::Write { .. });
            is_write && active.sequence == 0 && !self.has_dirty(active.volume, active.blocks)
        });
        let is_first = queued.first() == Some(&request);
        for (key, blocks) in self.store.log.withdraw(|key| queued.contains(&key)) {
            let active = &mut self.requests[key];
            active.unpublished -= blocks;
            active.passes = Some(Some(Bypass::Pressure));
            assert!(active.unpublished == 0, "what is in no batch was withdrawn as a whole");
            self.begin_again(key, memory);
        }
        // What goes around may have to wait for the superblock.
        self.pump_superblock(memory);
        is_first
    }
}
