//! Reads, from the cache and the origin, and fills of the cache.
//!
//! A partial write reads the blocks that it changes by the same code ([`Machine::fetch`]).

use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, RequestOp, Target};
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Stamp};
use crate::machine::neighbours::{Counts, Neighbour};
use crate::machine::piece::{Checksums, Piece, Source, WaitingRead};
use crate::machine::request::{RequestKey, Stage};
use crate::machine::volume::{Standing, Volume};
use crate::machine::{Machine, work_slice};
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u32, wide};
use crate::policies::replacement::Access;
use crate::status::Bypass;
use crate::store::log::extents::ExtentKind;
use crate::store::{Cached, Store};
use crate::units::{BLOCK_BYTES, BlockKey, Nanos, Place, SECTOR_BYTES, SECTORS_PER_BLOCK, VolumeIndex};
use alloc::vec::Vec;

impl<S: Store> Machine<S> {
    pub(crate) fn start_read<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let RequestOp::Read { range, into } = active.op else { unreachable!("only reads come here") };
        let blocks = active.blocks;
        // A checksum covers a block: what is not whole blocks is read into a buffer of ours.
        let work = if range.is_block_aligned() {
            into
        } else {
            let Some(buffer) = self.take_work(blocks.count, memory) else {
                self.requests.wait_for_buffer(key);
                return;
            };
            self.requests[key].work_buffer = Some(buffer);
            work_slice(buffer, blocks.count)
        };
        let active = &mut self.requests[key];
        active.work = Some(work);
        active.stage = Stage::Fetching;
        self.passes(key, Access::Read);
        if self.slow_cache.is_looked_at(self.now) {
            self.pass_slow_cache_by(key, memory);
        }
        if S::may_fetch(self, key, memory) {
            self.fetch_all(key, memory);
        }
    }

    /// Reads the range that a client asked for.
    pub(crate) fn fetch_all<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.blocks);
        let work = active.work.expect("a read has a buffer");
        let (missed, is_taken) = if self.ahead.is_empty() {
            (self.fetch(key, blocks, work, true, memory), false)
        } else {
            self.fetch_with_ahead(key, blocks, work, memory)
        };
        let is_there = self.requests[key].parts == 0;
        let volume = self.volume_mut(volume_index);
        let is_next = volume.next_read == blocks.first;
        volume.next_read = blocks.end();
        if missed == 0 {
            volume.counters.hits += 1;
        } else {
            volume.counters.misses += 1;
        }
        if is_there {
            self.fetched(key, memory);
        }
        if is_next || is_taken || blocks.count > 1 {
            self.read_on(volume_index, blocks, memory);
        }
    }

    /// Why a request bypasses the cache, if it does. Policies are asked once.
    #[inline]
    pub(crate) fn passes(&mut self, key: RequestKey, access: Access) -> Option<Bypass> {
        match self.requests[key].passes {
            Some(passes) => passes,
            None => self.find_whether_passes(key, access),
        }
    }

    fn find_whether_passes(&mut self, key: RequestKey, access: Access) -> Option<Bypass> {
        let passes = S::passes_by(self, key, access);
        self.requests[key].passes = Some(passes);
        passes
    }

    /// Starts reading `blocks` of the request's volume into `work`; returns how many blocks come from
    /// the origin. When all are there, [`Machine::fetched`] goes on.
    pub(crate) fn fetch<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        work: Slice,
        may_fill: bool,
        memory: &mut M,
    ) -> u64 {
        assert!(
            u64::from(work.len_bytes) == blocks.count * BLOCK_BYTES,
            "blocks are read into a buffer of their size"
        );
        let active = &self.requests[request];
        let (volume_index, passes_slow) = (active.volume, self.passes_slow(request));
        let volume = self.volume(volume_index);
        let has_extents = volume.zero_blocks + volume.lost_blocks > 0;
        let first_key = volume.key(blocks.first);
        let (use_cache, use_clean) = self.uses_cached(volume, passes_slow, first_key, blocks.count);
        let (mut open, mut used) = (None::<Piece>, Vec::new());
        let (mut missed, mut hit) = (0, 0);
        for step in 0..blocks.count {
            let block = blocks.first + step;
            let key = BlockKey(first_key.0 + step);
            let slice = work.part(to_u32(step * BLOCK_BYTES), to_u32(BLOCK_BYTES));
            if let Some(kept) = self.store.in_memory(key) {
                self.issue_open(request, &mut open, may_fill, memory);
                hit += 1;
                self.store.note_hit(key, step == 0);
                memory.copy(kept, slice);
                continue;
            }
            if has_extents && let Some(extent) = self.store.extent(key) {
                self.issue_open(request, &mut open, may_fill, memory);
                match extent {
                    ExtentKind::Zero => memory.zero(slice),
                    ExtentKind::Lost => self.requests[request].error = Some(Errno::IO),
                }
                continue;
            }
            let entry = if use_cache { self.store.hit(key, step == 0, use_clean) } else { None };
            if entry.is_none()
                && let Some(waiting) = S::waiting_fill(self, key)
            {
                self.issue_open(request, &mut open, may_fill, memory);
                memory.copy(waiting, slice);
                hit += 1;
                continue;
            }
            if entry.is_none()
                && !self.neighbours.is_empty()
                && let Some(Neighbour { there, counts }) = self.neighbour(request, key, slice, memory)
            {
                self.issue_open(request, &mut open, may_fill, memory);
                if let Some(there) = there {
                    memory.copy(there, slice);
                    used.push((block, there));
                }
                hit += u64::from(counts == Counts::Hit);
                missed += u64::from(counts == Counts::Miss);
                continue;
            }
            if entry.is_some() {
                hit += 1;
            } else {
                missed += 1;
            }
            let is_joined = match (&mut open, &entry) {
                (Some(piece), Some(entry)) => piece.join_cached(entry.place, entry.checksum, |first| {
                    self.store.is_joinable(first, entry.place)
                }),
                (Some(piece), None) => piece.join_origin(),
                (None, _) => false,
            };
            if is_joined {
                continue;
            }
            let source = match entry {
                Some(entry) => {
                    Source::Cache { place: entry.place, checksums: Checksums::One(entry.checksum) }
                }
                None => Source::Origin { stamp: None, beside: None },
            };
            if let Some(before) = open.replace(Piece { first: block, blocks: 1, slice, source }) {
                self.issue_piece(request, before, may_fill, memory);
            }
        }
        if let Some(piece) = open {
            self.issue_piece(request, piece, may_fill, memory);
        }
        self.end_neighbours(request, &used, memory);
        let failed = if self.latched.is_some() { missed } else { 0 };
        let counters = &mut self.volume_mut(volume_index).counters;
        counters.hit_blocks += hit;
        counters.miss_blocks += missed;
        counters.read_bypasses.failed_blocks += failed;
        missed
    }

    /// Whether a request passes a slow cache by.
    #[inline]
    pub(crate) fn passes_slow(&self, request: RequestKey) -> bool {
        self.requests[request].passes == Some(Some(Bypass::SlowCache))
    }

    /// Whether cached blocks are used for so many blocks of a read, which passes a slow cache by or not, and clean ones
    /// among them.
    #[inline]
    pub(crate) fn uses_cached(
        &self,
        volume: &Volume,
        passes_slow: bool,
        first: BlockKey,
        blocks: u64,
    ) -> (bool, bool) {
        // RULE 19: a failed cache still serves data that no other device has, and so does a slow one.
        let use_cache = !volume.is_given_up()
            && volume.cached_blocks > 0
            && !(passes_slow && self.is_mutated(Mutation::DirtyPassedBy));
        (use_cache, self.latched.is_none() && !passes_slow && self.store.reads_clean(first, blocks))
    }

    /// The last epoch whose writes to the origin may enter the cache as clean (rule 2).
    pub(crate) fn trusted_epoch(&self, volume: &Volume) -> u64 {
        if self.store.trusts_unflushed_origin() { u64::MAX } else { volume.origin.flushed_epoch }
    }

    /// A stamp of blocks that are about to be read from the origin and may enter the cache as clean.
    pub(crate) fn clean_stamp(&self, volume: &Volume, blocks: Blocks) -> Option<Stamp> {
        let epoch = self.trusted_epoch(volume);
        if self.is_any_clean(volume) { volume.guard.stamp(blocks, epoch) } else { None }
    }

    /// Whether anything of the origin may enter the cache as clean. RULE 2: what the process before this one left unflushed there
    /// is not clean.
    pub(crate) fn is_any_clean(&self, volume: &Volume) -> bool {
        self.trusted_epoch(volume) > 0 || self.is_mutated(Mutation::FillBeforeFirstFlush)
    }

    fn issue_open<M: Memory>(
        &mut self,
        request: RequestKey,
        open: &mut Option<Piece>,
        may_fill: bool,
        memory: &mut M,
    ) {
        if let Some(piece) = open.take() {
            self.issue_piece(request, piece, may_fill, memory);
        }
    }

    pub(crate) fn issue_piece<M: Memory>(
        &mut self,
        request: RequestKey,
        mut piece: Piece,
        may_fill: bool,
        memory: &mut M,
    ) {
        let active = &mut self.requests[request];
        active.parts += 1;
        let volume_index = active.volume;
        match &mut piece.source {
            Source::Cache { place, .. } => {
                // RULE 1: a place that is read is not reused.
                self.store.pin_for_client(*place, piece.blocks);
                let (place, slice, issued) = (*place, piece.slice, self.now);
                self.read_cache(place, slice, Flight::CacheRead { request, piece, issued }, None);
            }
            Source::StandIn { .. } => self.read_origin(request, piece),
            Source::Origin { stamp, beside } => {
                let blocks = Blocks { first: piece.first, count: u64::from(piece.blocks) };
                let is_warming = self.requests[request].is_warming();
                let may_fill = may_fill
                    && !self.is_stopping
                    && self.latched.is_none()
                    && (is_warming || self.may_enter(request, blocks.count));
                let volume = self.volume(volume_index);
                let epoch = self.trusted_epoch(volume);
                if may_fill {
                    *stamp = self.clean_stamp(volume, blocks);
                    if stamp.is_none() && epoch > 0 && !volume.guard.is_origin_flushed(blocks, epoch) {
                        self.fill_is_refused(volume_index);
                    }
                }
                if stamp.is_some() && !is_warming {
                    *beside = self.choose_beside(volume_index, blocks, memory);
                }
                self.read_origin(request, piece);
            }
        }
    }

    /// Counts a read that may bring nothing into the cache, for the origin has unflushed writes of it (rule 2). The origin is
    /// flushed when such reads have cost it more than a flush does.
    #[cold]
    fn fill_is_refused(&mut self, volume_index: VolumeIndex) {
        let now = self.now;
        let origin = &mut self.volume_mut(volume_index).origin;
        if origin.fill_is_refused(now) {
            let epoch = origin.epoch;
            self.want_origin_flush(volume_index, epoch);
        }
    }

    /// Reads a piece from the origin, with what is read beside.
    fn read_origin(&mut self, request: RequestKey, piece: Piece) {
        let beside = match &piece.source {
            Source::Origin { beside, .. } => beside.as_deref().copied(),
            Source::StandIn { .. } => None,
            Source::Cache { .. } => unreachable!("read from the origin"),
        };
        let volume_index = self.requests[request].volume;
        let now = self.now;
        let is_warming = self.requests[request].is_warming();
        let volume = self.volume_mut(volume_index);
        if !is_warming {
            volume.origin.begin_read(now);
        }
        volume.origin.last_used = Some(now);
        let (mut offset_bytes, len_bytes) = volume.origin_bytes(piece.first, u64::from(piece.blocks));
        let asked = piece.slice.part(0, to_u32(len_bytes));
        let mut into = Pieces::One(asked);
        if let Some(beside) = beside {
            let [before, behind] = [beside.before, beside.behind].map(|run| run.map(|(_, slice)| slice));
            offset_bytes -= before.map_or(0, |slice| u64::from(slice.len_bytes));
            into = Pieces::Many(before.into_iter().chain([asked]).chain(behind).collect());
        }
        self.neighbours.asked_begins(BlockKey::new(volume_index, piece.first), piece.blocks);
        let op = IoOp::Read { offset_bytes, into };
        self.issue(Target::Origin(volume_index), op, Flight::OriginRead { request, piece, issued: now });
    }

    /// Lets go of the neighbours that a read used, when they were offered to the cache.
    #[inline]
    fn end_neighbours<M: Memory>(&mut self, request: RequestKey, used: &[(u64, Slice)], memory: &mut M) {
        if !used.is_empty() {
            self.offer_neighbours(request, used, memory);
            used.iter().for_each(|(_, there)| memory.release(there.buffer));
        }
    }

    /// Offers neighbours that a client asked for to the cache, like blocks that its read brought.
    fn offer_neighbours<M: Memory>(&mut self, request: RequestKey, used: &[(u64, Slice)], memory: &mut M) {
        let is_read = matches!(self.requests[request].op, RequestOp::Read { .. });
        if !is_read || self.is_stopping || self.latched.is_some() {
            return;
        }
        let mut rest = used;
        while let Some(&(first, start)) = rest.first() {
            let joins = |(step, (block, there)): (u32, &(u64, Slice))| {
                *block == first + u64::from(step)
                    && there.buffer == start.buffer
                    && there.offset_bytes == start.offset_bytes + step * to_u32(BLOCK_BYTES)
            };
            let count = (0..).zip(rest).take_while(|pair| joins(*pair)).count();
            rest = &rest[count..];
            let blocks = Blocks { first, count: wide(count) };
            if !self.may_enter(request, blocks.count) {
                continue;
            }
            let volume = self.volume(self.requests[request].volume);
            let Some(stamp) = self.clean_stamp(volume, blocks) else { continue };
            let slice = Slice { len_bytes: to_u32(blocks.count * BLOCK_BYTES), ..start };
            let source = Source::Origin { stamp: Some(stamp), beside: None };
            let piece = Piece { first, blocks: to_u32(blocks.count), slice, source };
            S::offer_fill(self, request, &piece, stamp, memory);
        }
    }

    /// Whether blocks that a client's read is about to fetch from the origin may enter the cache. If not, they are counted.
    fn may_enter(&mut self, request: RequestKey, blocks: u64) -> bool {
        let volume_index = self.requests[request].volume;
        let volume = self.volume(volume_index);
        let is_cached = volume.standing == Standing::Cached;
        let caches_reads = volume.caches_reads();
        let passes_slow = self.passes_slow(request);
        let why = if caches_reads && (passes_slow || self.slow_cache.is_passed_by()) {
            Some(Bypass::SlowCache)
        } else if caches_reads && !volume.may_have_more(blocks) {
            Some(Bypass::AboveMax)
        } else if caches_reads && !self.budget_allows_fills() {
            Some(Bypass::Budget)
        } else if caches_reads {
            S::bars_fill(self, request)
        } else {
            is_cached.then_some(Bypass::Mode)
        };
        if let Some(why) = why {
            self.volume_mut(volume_index).counters.read_bypasses.add(why, blocks);
        }
        is_cached && why.is_none()
    }

    pub(crate) fn cache_read_done<M: Memory>(
        &mut self,
        request: RequestKey,
        piece: Piece,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let Source::Cache { place, checksums } = &piece.source else { unreachable!("read from the cache") };
        self.store.unpin(*place, piece.blocks);
        self.requests[request].parts -= 1;
        match checksums {
            Checksums::One(checksum) => self.block_read(request, &piece, (0, *checksum), result, memory),
            Checksums::Many(checksums) => {
                for (step, checksum) in (0..).zip(checksums) {
                    self.block_read(request, &piece, (step, *checksum), result, memory);
                }
            }
        }
        if self.requests[request].parts == 0 {
            self.fetched(request, memory);
        }
    }

    /// Looks at a block of a piece that was read from the cache.
    #[inline(always)]
    fn block_read<M: Memory>(
        &mut self,
        request: RequestKey,
        piece: &Piece,
        (step, checksum): (u32, Option<u32>),
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let Source::Cache { place, .. } = piece.source else { unreachable!("read from the cache") };
        let slice = piece.slice.part(step * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
        // HAZARD 10: every cached block is compared with its checksum before anybody sees it.
        let is_good = match checksum {
            Some(checksum) => memory.checksum(slice) == checksum,
            None => self.is_as_learnt(request, piece, step, memory),
        } || self.is_mutated(Mutation::SkipReadChecksum);
        if result.is_err() || !is_good {
            let (block, place) = (piece.first + u64::from(step), Place(place.0 + step));
            self.bad_cache_read(request, BadRead { block, place, checksum, slice }, result, memory);
        }
    }

    /// Whether a block of a piece, of which no checksum was known when its read began, is what is known of it now, if anything
    /// is: a write in its place may have ended since.
    #[cold]
    #[inline(never)]
    fn is_as_learnt<M: Memory>(&self, request: RequestKey, piece: &Piece, step: u32, memory: &M) -> bool {
        let Source::Cache { place, .. } = piece.source else { unreachable!("read from the cache") };
        let key = self.volume(self.requests[request].volume).key(piece.first + u64::from(step));
        let there = self.store.lookup(key).filter(|entry| entry.place == Place(place.0 + step));
        let slice = piece.slice.part(step * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
        there.and_then(|entry| entry.checksum).is_none_or(|checksum| memory.checksum(slice) == checksum)
    }

    /// A cached block could not be read or is not what was written.
    #[cold]
    #[inline(never)]
    fn bad_cache_read<M: Memory>(
        &mut self,
        request: RequestKey,
        bad: BadRead,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let volume_index = self.requests[request].volume;
        let key = self.volume(volume_index).key(bad.block);
        let there = self.store.lookup(key).filter(|entry| entry.place == bad.place);
        if result.is_ok() && there.is_some_and(|entry| entry.checksum == Some(memory.checksum(bad.slice))) {
            // The block was written in its place meanwhile, and the read returned the new content.
            return;
        }
        if result.is_ok() && self.store.is_changing(key) {
            self.requests[request].parts += 1;
            S::wait_for_change(self, WaitingRead { request, key, slice: bad.slice });
            return;
        }
        let entry = there.filter(|entry| entry.checksum == bad.checksum);
        let volume = self.volume(volume_index);
        let is_through = |place| volume.destage.is_written_through(|| (place, self.store.life(place)));
        // A write that the cache's failure cut off has been answered with an error, and is not there.
        let is_cut_off = volume.standing == Standing::Failed;
        let is_at_origin = |place| !volume.owes_origin() && !is_cut_off || is_through(place);
        match entry {
            // Its client wrote it through, and only a flush of the origin is missing until it counts as clean. Or the write is
            // under way, and was answered to nobody.
            Some(entry) if entry.dirty && is_at_origin(entry.place) => {
                let Cached { place, checksum, .. } = entry;
                let source = Source::StandIn { place, checksum, is_through: is_through(place) };
                let piece = Piece { first: bad.block, blocks: 1, slice: bad.slice, source };
                self.issue_piece(request, piece, false, memory);
            }
            // No other copy exists. A device error may pass, a wrong checksum will not.
            Some(entry) if entry.dirty && !self.is_mutated(Mutation::RottenDirtyFromOrigin) => {
                self.requests[request].error = Some(result.err().unwrap_or(Errno::IO));
                if result.is_ok() {
                    S::mark_lost(self, key);
                }
            }
            Some(_) => {
                self.volume_mut(volume_index).counters.corrupt_clean_blocks += 1;
                let (block, errno) = (bad.block, result.err());
                self.push(Effect::Notice(Notice::CorruptClean { volume: volume_index, block, errno }));
                S::drop_rotten(self, key);
                self.refetch(request, bad.block, bad.slice, memory);
            }
            // It was superseded, or written in its place, while it was read: look again.
            None => self.refetch(request, bad.block, bad.slice, memory),
        }
    }

    fn refetch<M: Memory>(&mut self, request: RequestKey, block: u64, into: Slice, memory: &mut M) {
        let count = u64::from(into.len_bytes) / BLOCK_BYTES;
        self.fetch(request, Blocks { first: block, count }, into, false, memory);
    }

    /// Goes on with blocks of a read whose wait is over.
    pub(crate) fn read_changed<M: Memory>(&mut self, read: WaitingRead, memory: &mut M) {
        let WaitingRead { request, key, slice } = read;
        self.requests[request].parts -= 1;
        self.refetch(request, key.block(), slice, memory);
        if self.requests[request].parts == 0 {
            self.fetched(request, memory);
        }
    }

    pub(crate) fn origin_read_done<M: Memory>(
        &mut self,
        request: RequestKey,
        mut piece: Piece,
        issued: Nanos,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let volume_index = self.requests[request].volume;
        self.neighbours.asked_ends(BlockKey::new(volume_index, piece.first), piece.blocks);
        let (stamp, beside) = match &mut piece.source {
            Source::Origin { stamp, beside } => (*stamp, beside.take()),
            Source::StandIn { .. } => (None, None),
            Source::Cache { .. } => unreachable!("read from the origin"),
        };
        if !self.requests[request].is_warming() {
            let now = self.now;
            let blocks = u64::from(piece.blocks) + beside.as_deref().map_or(0, |beside| beside.blocks());
            self.volume_mut(volume_index).origin.end_read(issued, now, result.is_ok().then_some(blocks));
        }
        if result.is_err()
            && let Some(beside) = beside
        {
            // Nobody asked for what could not be read, perhaps.
            self.read_origin(request, piece);
            self.beside_read(beside.runs(), false, memory);
            return;
        }
        if result.is_err()
            && let Some(own_blocks) = self.leave_row(request, &piece)
        {
            if own_blocks > 0 {
                piece.blocks = own_blocks;
                self.read_origin(request, piece);
                return;
            }
            self.requests[request].parts -= 1;
            if self.requests[request].parts == 0 {
                self.fetched(request, memory);
            }
            return;
        }
        self.requests[request].parts -= 1;
        let volume = self.volume_mut(volume_index);
        match result {
            Err(errno) => {
                volume.origin.errors += 1;
                self.push(Effect::Notice(Notice::OriginError { volume: volume_index, errno }));
                self.read_cached_instead(request, &piece, errno, memory);
            }
            Ok(()) => {
                let (_, len_bytes) = volume.origin_bytes(piece.first, u64::from(piece.blocks));
                let len_bytes = to_u32(len_bytes);
                let rest = piece.slice.len_bytes - len_bytes;
                if rest > 0 {
                    // The volume ends inside this block.
                    memory.zero(piece.slice.part(len_bytes, rest));
                }
                if let Some(stamp) = stamp {
                    S::offer_fill(self, request, &piece, stamp, memory);
                }
                if let Source::StandIn { checksum: Some(checksum), is_through: true, .. } = piece.source {
                    self.check_stand_in(request, &piece, checksum, memory);
                }
            }
        }
        if self.requests[request].parts == 0 {
            self.fetched(request, memory);
        }
        if let Some(beside) = beside {
            self.beside_read(beside.runs(), true, memory);
        }
    }

    /// HAZARD 16: the origin may have lost what was written through, and nobody was told yet. Then the copy that could not be read was
    /// the only one.
    fn check_stand_in<M: Memory>(&mut self, request: RequestKey, piece: &Piece, checksum: u32, memory: &M) {
        let key = self.volume(self.requests[request].volume).key(piece.first);
        // A newer write may be there.
        let is_newest = self.store.lookup(key).is_some_and(|entry| entry.checksum == Some(checksum));
        if is_newest
            && memory.checksum(piece.slice) != checksum
            && !self.is_mutated(Mutation::StandInUnchecked)
        {
            self.requests[request].error = Some(Errno::IO);
        }
    }

    /// The origin failed a read: what the cache has of it, which was passed by, is read there after all.
    fn read_cached_instead<M: Memory>(
        &mut self,
        request: RequestKey,
        piece: &Piece,
        errno: Errno,
        memory: &mut M,
    ) {
        let active = &mut self.requests[request];
        if active.passes == Some(Some(Bypass::SlowCache)) {
            active.passes = Some(None);
        }
        let is_read = matches!(active.op, RequestOp::Read { .. }) && self.latched.is_none();
        // The copy that the origin stands in for cannot be read either: asked by turns, they would go on for ever.
        let is_bad = |cached: &Cached| match piece.source {
            Source::StandIn { place, checksum, .. } => (cached.place, cached.checksum) == (place, checksum),
            Source::Origin { .. } | Source::Cache { .. } => false,
        };
        let first_key = self.volume(self.requests[request].volume).key(piece.first);
        for step in 0..piece.blocks {
            let key = BlockKey(first_key.0 + u64::from(step));
            let slice = piece.slice.part(step * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
            let is_read = is_read && self.store.reads_clean(key, 1);
            let cached = self.store.lookup(key).filter(|cached| is_read && !is_bad(cached));
            match cached.filter(|_| !self.is_mutated(Mutation::PassedReadFails)) {
                // A read does without the half that has it alone, if that is silent. Now there is nothing else.
                Some(Cached { place, checksum, .. }) if self.store.half_of(place).is_some() => {
                    let source = Source::Cache { place, checksums: Checksums::One(checksum) };
                    let piece = Piece { first: key.block(), blocks: 1, slice, source };
                    self.issue_piece(request, piece, false, memory);
                }
                Some(_) => self.refetch(request, key.block(), slice, memory),
                None => self.requests[request].error = Some(errno),
            }
        }
    }

    /// All blocks of a request were read, or failed.
    pub(crate) fn fetched<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        assert!(active.parts == 0, "a request goes on when all of its reads have ended");
        if active.is_warming() {
            self.reply(key, memory);
            return;
        }
        let RequestOp::Read { range, into } = active.op else {
            S::merge(self, key, memory);
            return;
        };
        if active.error.is_none() && !S::may_tell(self, key) {
            return;
        }
        let active = &self.requests[key];
        if active.error.is_none() && active.work_buffer.is_some() {
            let work = active.work.expect("set when the read began");
            let skip = to_u32(range.start % SECTORS_PER_BLOCK * SECTOR_BYTES);
            memory.copy(work.part(skip, into.len_bytes), into);
        }
        self.reply(key, memory);
    }
}

/// A cached block that could not be read, or is not what was written.
struct BadRead {
    block: u64,
    place: Place,
    /// The checksum that was to be found there.
    checksum: Option<u32>,
    slice: Slice,
}
