//! Writes, write-zeroes and discards: what changes a volume, up to where a store takes over, and around the cache.
//!
//! What each route does in the log stands in `store/log/change.rs`, what it does in slots in `store/slots/changes/writes.rs`.

use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, RequestOp, Target, WriteMode};
use crate::machine::flight::Flight;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::lost_changes::Reached;
use crate::machine::origin::OriginWork;
use crate::machine::request::{RequestKey, Route, Stage};
use crate::machine::volume::Standing;
use crate::machine::{Machine, work_slice};
use crate::memory::Memory;
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::policies::admission::Reason;
use crate::policies::replacement::Access;
use crate::status::Bypass;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, VolumeIndex};

impl<S: Store> Machine<S> {
    pub(crate) fn start_change<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (op, blocks, volume_index) = (active.op, active.blocks, active.volume);
        let volume = self.volume(volume_index);
        if volume.mode == WriteMode::Readonly {
            self.fail(key, Errno::PERM, memory);
            return;
        }
        // Sequential runs are counted in the order of arrival, not in the order of getting blocks.
        let is_cached = volume.standing == Standing::Cached
            && matches!(volume.mode, WriteMode::Writeback | WriteMode::Writethrough);
        if is_cached && matches!(op, RequestOp::Write { .. }) {
            self.passes(key, Access::Write);
        }
        let volume = self.volume(volume_index);
        let is_whole = volume.covers_whole_blocks(op);
        let is_append = matches!(op, RequestOp::Write { .. } | RequestOp::WriteZeroes { .. })
            && volume.mode == WriteMode::Writeback
            && volume.standing == Standing::Cached;
        // HAZARD 8: a write of part of a block reads the rest first. It holds the block alone, or a write in
        // between would be lost.
        let may_share = is_whole || self.is_mutated(Mutation::PartialWriteShares);
        let is_around = matches!(op, RequestOp::Write { .. })
            && matches!(volume.mode, WriteMode::Writearound | WriteMode::Passthrough)
            && volume.standing == Standing::Cached;
        let hold = if is_append {
            S::first_hold(self, key, may_share)
        } else if is_around {
            S::hold_around(self, key)
        } else {
            Hold::Merging
        };
        let blocks = if is_append && hold == Hold::Merging { self.with_row(key) } else { blocks };
        self.hold_or_wait(key, blocks, hold, memory);
    }

    /// Begins a change when it holds these blocks.
    #[inline(always)]
    pub(crate) fn hold_or_wait<M: Memory>(
        &mut self,
        key: RequestKey,
        blocks: Blocks,
        hold: Hold,
        memory: &mut M,
    ) {
        let volume_index = self.requests[key].volume;
        let blocks = self.store.held(self.volume(volume_index), blocks);
        let active = &mut self.requests[key];
        active.hold = Some(hold);
        active.held = blocks;
        if self.take_hold(key) {
            self.begin_change(key, memory);
        }
    }

    /// Takes the hold that a request wants on its blocks; if they are not free it waits for them in the guard's queue.
    #[inline(always)]
    pub(crate) fn take_hold(&mut self, key: RequestKey) -> bool {
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.held);
        let hold = active.hold.expect("chosen when the request began");
        let beside = if hold == Hold::Beside { active.written() } else { None };
        let guard = &mut self.volumes.of_mut(volume_index).guard;
        if beside.is_none_or(|range| guard.is_apart(range)) && guard.try_acquire(blocks, hold) {
            if let Some(range) = beside {
                guard.sectors_held(range);
            }
            return true;
        }
        guard.wait(blocks);
        // The request does not hold its blocks yet: queued requests hold nothing.
        self.requests.wait_for_blocks(key);
        false
    }

    /// Gives back the sectors that a write had beside others.
    #[inline(never)]
    pub(crate) fn release_sectors(&mut self, key: RequestKey) {
        let active = &self.requests[key];
        let range = active.written().expect("only writes go beside others");
        if let Some(volume) = &mut self.volumes[active.volume.at()] {
            volume.guard.sectors_released(range);
        }
    }

    pub(crate) fn retry_guard_queue<M: Memory>(&mut self, memory: &mut M) {
        for key in self.requests.for_blocks() {
            let active = &self.requests[key];
            self.volumes.of_mut(active.volume).guard.unwait(active.held);
        }
        for _ in 0..self.requests.for_blocks().count() {
            let Some(key) = self.requests.next_for_blocks() else { break };
            if self.take_hold(key) {
                self.begin_change(key, memory);
            }
        }
    }

    /// The guard is held: decides the route and takes the first step.
    pub(crate) fn begin_change<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (op, blocks, volume_index, hold) = (active.op, active.blocks, active.volume, active.hold);
        match op {
            RequestOp::SetSize(_) => return self.begin_growth(key, memory),
            RequestOp::GiveUpLost => return S::give_up_lost(self, key, memory),
            _ => (),
        }
        let route = match self.volume(volume_index).standing {
            Standing::Uncached => Route::Origin,
            Standing::Cached => self.cached_route(op, volume_index, blocks),
            Standing::Abandoning => {
                self.requests[key].stage = Stage::Abandoning;
                return;
            }
            Standing::Failed | Standing::Detaching => {
                self.fail(key, Errno::IO, memory);
                return;
            }
        };
        // RULE 7: a dirty block is never bypassed, whatever policies say: its older copy would go home over
        // the write.
        // RULE 14: what goes around the cache overtakes what is on its way home. A discard may do nothing.
        let is_ordered = self.config.order.is_some();
        if is_ordered && matches!(op, RequestOp::Discard { .. }) && self.would_overtake(volume_index) {
            self.skip_discard(key, memory);
            return;
        }
        let is_asked = matches!(op, RequestOp::Write { .. }) && route != Route::Origin && !is_ordered;
        let mut passes = None;
        if is_asked {
            passes = self.passes(key, Access::Write);
            if passes.is_none() {
                passes = S::bars_write(self, key);
            }
            if passes.is_none() && self.wear.has_budget() {
                passes = self.budget_bars_write(volume_index);
            }
        }
        let may_bypass = |m: &Self| !m.has_dirty(volume_index, blocks) || m.is_mutated(Mutation::BypassDirty);
        let around = passes.filter(|_| may_bypass(self));
        let route = if around.is_some() { Route::Origin } else { route };
        if around == Some(Bypass::Policy(Reason::InUse)) {
            let now = self.now;
            self.volume_mut(volume_index).destage.goes_around(blocks.count, now);
        }
        // What is cached changed while it waited.
        if hold == Some(Hold::Beside)
            && !(route == Route::Origin && self.stays_beside(key))
            && !self.leave_others(key)
        {
            return;
        }
        if let (Some(why), None) = (passes, around) {
            self.split_off_dirty_edge(key, why);
        }
        // RULE 7: the mode may have changed while the request waited. In the cache overlapping writes may go together,
        // to the origin they may not.
        if route != Route::Log && !self.is_mutated(Mutation::SharersGoHome) && !self.unshare(key) {
            return;
        }
        // RULE 9: beyond its share a volume whose origin fails takes no room from the others.
        if route != Route::Origin && !self.pass_share(key, memory) {
            return;
        }
        let active = &mut self.requests[key];
        (active.route, active.around) = (route, around);
        match (op, route) {
            (RequestOp::Write { .. }, Route::Origin)
            | (RequestOp::WriteZeroes { .. }, Route::Origin)
            | (RequestOp::Discard { .. }, _) => self.begin_bypass(key, memory),
            (RequestOp::Write { .. }, _) => S::begin_write(self, key, memory),
            (RequestOp::WriteZeroes { .. }, _) => S::begin_zero(self, key, memory),
            _ => unreachable!("only changes come here"),
        }
    }

    /// The route of a change of a cached volume, as the volume's mode has it.
    fn cached_route(&self, op: RequestOp, volume_index: VolumeIndex, blocks: Blocks) -> Route {
        match (op, self.volume(volume_index).mode) {
            (RequestOp::Discard { .. }, _) => Route::Origin,
            (_, WriteMode::Writeback) => Route::Log,
            (_, WriteMode::Writethrough) => Route::LogThenOrigin,
            // RULE 7: a dirty block is never bypassed; its newer version follows it home.
            (RequestOp::Write { .. }, _)
                if self.has_dirty(volume_index, blocks) && !self.is_mutated(Mutation::BypassDirty) =>
            {
                // RULE 17: outside writeback what is acknowledged is on the origin. The notes may say that by now.
                if self.is_mutated(Mutation::LogAlone) { Route::Log } else { Route::LogThenOrigin }
            }
            // Zeroes are repeated by recovery if a crash comes before they are home.
            (RequestOp::WriteZeroes { .. }, _) => Route::LogThenOrigin,
            _ => Route::Origin,
        }
    }

    /// Whether the cache has data of `blocks` that the origin lacks.
    pub(crate) fn has_dirty(&self, volume_index: VolumeIndex, blocks: Blocks) -> bool {
        let volume = self.volume(volume_index);
        if !volume.is_dirty() {
            return false;
        }
        (blocks.first..blocks.end()).any(|block| {
            let key = volume.key(block);
            self.store.lookup(key).is_some_and(|cached| cached.dirty) || self.store.extent(key).is_some()
        })
    }

    /// Whether the cache has data of some of these blocks that the origin lacks, and gives it back: it was not given up.
    pub(crate) fn gives_back(&self, volume_index: VolumeIndex, blocks: Blocks) -> bool {
        !self.volume(volume_index).is_given_up() && self.has_dirty(volume_index, blocks)
    }

    // ---- into the log --------------------------------------------------------------------

    /// Reads the sectors of its first and last block that a partial write leaves into a work buffer; then
    /// [`Changing::merge`](crate::store::Changing::merge).
    pub(crate) fn fetch_edges<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        self.take_row(key);
        let active = &self.requests[key];
        let RequestOp::Write { range, .. } = active.op else { unreachable!("a write") };
        let (volume_index, blocks, own) = (active.volume, active.blocks, Blocks::touched_by(range));
        let Some(buffer) = self.take_work(blocks.count, memory) else {
            self.requests.wait_for_buffer(key);
            return;
        };
        let work = work_slice(buffer, blocks.count);
        let active = &mut self.requests[key];
        (active.work, active.work_buffer, active.stage) = (Some(work), Some(buffer), Stage::Fetching);
        // HAZARD 8: the merging hold keeps every other write off these blocks until the merged
        // ones are published.
        let head_is_partial = !range.start.is_multiple_of(SECTORS_PER_BLOCK);
        let tail_is_partial = !range.end().is_multiple_of(SECTORS_PER_BLOCK);
        let last = own.end() - 1;
        let row = blocks.end() - own.end();
        // RULE 13: the sectors that a write does not cover are read first, so that they stay what they were.
        let is_fetched = !self.is_mutated(Mutation::PartialWriteWithoutOld);
        self.requests[key].parts += 1;
        if is_fetched && head_is_partial && own.count > 1 {
            let slice = work.part(0, to_u32(BLOCK_BYTES));
            self.fetch(key, Blocks { first: blocks.first, count: 1 }, slice, false, memory);
        }
        if is_fetched && (tail_is_partial || own.count == 1) {
            let count = 1 + row;
            let slice = work.part(to_u32((own.count - 1) * BLOCK_BYTES), to_u32(count * BLOCK_BYTES));
            let missed = self.fetch(key, Blocks { first: last, count }, slice, false, memory);
            // Nobody asked for the row.
            self.volume_mut(volume_index).counters.miss_blocks -= missed.saturating_sub(1);
        }
        self.requests[key].parts -= 1;
        if self.requests[key].parts == 0 {
            self.fetched(key, memory);
        }
    }

    // ---- around the cache ----------------------------------------------------------------

    pub(crate) fn begin_bypass<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let is_cached = self.volume(self.requests[key].volume).standing != Standing::Uncached;
        if is_cached && !S::may_bypass(self, key, memory) {
            return;
        }
        if self.take_exclusive(key) {
            self.bypass(key, memory);
        }
    }

    /// Turns a request's hold into an exclusive one, but for a beside one; false if it has to wait for destages under way, after
    /// which [`Machine::look_at_settling`] goes on.
    pub(crate) fn take_exclusive(&mut self, key: RequestKey) -> bool {
        let active = &mut self.requests[key];
        let (volume_index, blocks) = (active.volume, active.held);
        let before = active.hold.expect("a change holds its blocks");
        let guard = &mut self.volume_mut(volume_index).guard;
        if !matches!(before, Hold::Exclusive | Hold::Beside) {
            guard.acquire(blocks, Hold::Exclusive);
            guard.release(blocks, before);
            self.requests[key].hold = Some(Hold::Exclusive);
        }
        // RULE 7: a write has content of its own for the blocks that it changes. What a discard, zeroes or another size make of
        // them must not depend on whether their older version, of which the log knows no more then, is durable at home.
        let is_write = matches!(self.requests[key].op, RequestOp::Write { .. });
        let awaits_flush = self.store.overwrites() || !is_write;
        let guard = &self.volume(volume_index).guard;
        if guard.is_settled(blocks) && !(awaits_flush && guard.is_at_home(blocks)) {
            return true;
        }
        self.requests.watch(key, Stage::Settling);
        // What a run wrote holds its blocks until the origin's flush.
        let epoch = self.volume(volume_index).origin.epoch;
        if awaits_flush && self.volume(volume_index).destage.has_written() {
            self.want_origin_flush(volume_index, epoch);
        }
        false
    }

    /// Whether a request that has its blocks to itself may keep them so until the cache has forgotten them. If not, it lets
    /// others bring home what is in the way of that, and begins again.
    pub(crate) fn keep_exclusive(&mut self, key: RequestKey) -> bool {
        // HAZARD 12: what waits for room must not keep off the destage that makes it.
        let active = &self.requests[key];
        let (volume_index, blocks) = (active.volume, active.held);
        let may_keep = S::has_room_to_forget(self) || !S::has_to_forget(self, volume_index, blocks);
        if may_keep || self.is_mutated(Mutation::WaitersBlockDestage) {
            return true;
        }
        self.end_exclusive(key);
        self.requests.watch(key, Stage::Room);
        false
    }

    /// Whether a request that holds its blocks beside others may go to the origin so. Those with another hold need not be asked.
    fn stays_beside(&self, key: RequestKey) -> bool {
        // HAZARD 12: what waits for room must not keep off the destage that makes it.
        let active = &self.requests[key];
        active.hold != Some(Hold::Beside)
            || S::has_room_to_forget(self)
            || !S::has_to_forget(self, active.volume, active.blocks)
    }

    /// Turns an exclusive hold back into a merging one, which keeps no destage off.
    pub(crate) fn end_exclusive(&mut self, key: RequestKey) {
        let active = &mut self.requests[key];
        let (volume_index, blocks) = (active.volume, active.held);
        let before = active.hold.replace(Hold::Merging);
        assert!(before == Some(Hold::Exclusive), "only an exclusive hold is turned back");
        let guard = &mut self.volume_mut(volume_index).guard;
        guard.release(blocks, Hold::Exclusive);
        guard.acquire(blocks, Hold::Merging);
    }

    /// Lets a write that its origin refused go into the cache instead; false if it is not to. It was its store's wish that
    /// it went around, so its client is not to learn of a failure that the cache outlasts.
    fn take_refused<M: Memory>(&mut self, key: RequestKey, errno: Errno, memory: &mut M) -> bool {
        let active = &self.requests[key];
        let volume_index = active.volume;
        if active.around.is_none()
            || self.volume(volume_index).mode != WriteMode::Writeback
            || !S::takes_refused(self)
        {
            return false;
        }
        self.origin_failed(volume_index, OriginWork::Write, errno);
        // No policy sends it there once more.
        self.requests[key].passes = Some(None);
        if self.requests[key].hold == Some(Hold::Beside) {
            // What it does not write of its blocks others may be writing.
            if self.leave_others(key) {
                self.begin_again(key, memory);
            }
            return true;
        }
        // HAZARD 12: in the cache it may wait for room.
        self.end_exclusive(key);
        self.begin_again(key, memory);
        true
    }

    /// The log entry of a write-through is durable: the origin is next.
    pub(crate) fn home<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if self.take_exclusive(key) {
            self.change_origin(key, memory);
        }
    }

    /// Looks whether an exclusive hold has its blocks to itself now.
    pub(crate) fn look_at_settling<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if !self.take_exclusive(key) {
            return;
        }
        match self.requests[key].route {
            _ if matches!(self.requests[key].op, RequestOp::SetSize(_)) => self.grow(key, memory),
            Route::Log => S::settled(self, key, memory),
            Route::LogThenOrigin => self.change_origin(key, memory),
            Route::Origin => self.bypass(key, memory),
        }
    }

    /// The blocks are held exclusively: drops what is cached of them.
    fn bypass<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (op, volume_index, blocks) = (active.op, active.volume, active.blocks);
        let why = active.around.unwrap_or(Bypass::Mode);
        let is_discard = matches!(op, RequestOp::Discard { .. });
        if self.volume(volume_index).standing == Standing::Uncached {
            if !is_discard {
                self.volume_mut(volume_index).counters.write_bypasses.failed_blocks += blocks.count;
            }
            self.change_origin(key, memory);
            return;
        }
        if !self.stays_beside(key) {
            if self.leave_others(key) {
                self.begin_change(key, memory);
            }
            return;
        }
        if !self.keep_exclusive(key) {
            return;
        }
        let whole = match op {
            RequestOp::Discard { range, .. } => {
                // Only whole blocks are discarded; a discard may do less than asked.
                let whole = self.volume(volume_index).whole_blocks(range);
                if whole.count == 0 {
                    self.finish_discard(key, memory);
                    return;
                }
                whole
            }
            _ => {
                self.volume_mut(volume_index).counters.write_bypasses.add(why, blocks.count);
                blocks
            }
        };
        S::forget(self, key, whole, memory);
    }

    /// Before the origin is changed behind the cache: nothing that the cache has forgotten may come back after a
    /// crash (rule 7).
    pub(crate) fn origin_when_forgotten<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let is_discard = matches!(self.requests[key].op, RequestOp::Discard { .. });
        let volume = self.volume(self.requests[key].volume);
        if is_discard && !volume.origin.can_discard {
            // The origin keeps its earlier version, as a discard allows.
            self.finish_discard(key, memory);
            return;
        }
        if !S::is_forgotten(self, key) {
            S::want_forgotten(self, key);
        }
        if S::is_forgotten(self, key) {
            self.change_origin(key, memory);
        } else {
            self.requests.watch(key, Stage::Forgetting);
        }
    }

    /// Ends a discard that did nothing, to the cache or to the origin.
    #[cold]
    #[inline(never)]
    fn skip_discard<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        if self.requests[key].wants_fua() {
            self.release_hold(key);
            self.start_flush(key, memory);
        } else {
            self.reply(key, memory);
        }
    }

    /// Ends a discard. Where it did nothing an earlier version can be read again, and if that was said to be durable
    /// it must not change any more (rule 12): all of the volume is flushed.
    fn finish_discard<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        // Reads now return the origin's content, flushed or not: the next FLUSH includes it.
        self.changed_origin(key);
        self.skip_discard(key, memory);
    }

    // ---- the origin ----------------------------------------------------------------------

    /// Notes that an operation for a client's request changed the origin, or may have.
    pub(crate) fn changed_origin(&mut self, key: RequestKey) {
        let active = &mut self.requests[key];
        let is_first = active.reached == Reached::Nothing;
        if is_first {
            active.reached = Reached::Origin;
        }
        let volume = active.volume;
        self.volume_mut(volume).origin.note_change(is_first);
    }

    /// Issues the request's own operation on the origin.
    pub(crate) fn change_origin<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (volume_index, blocks, op, route) = (active.volume, active.blocks, active.op, active.route);
        let volume = self.volume(volume_index);
        let is_cached = volume.standing != Standing::Uncached;
        let io = match op {
            RequestOp::Write { range, from, .. } => match (route, active.work) {
                // Merged blocks go home whole.
                (Route::LogThenOrigin, Some(work)) => {
                    let (offset_bytes, len_bytes) = volume.origin_bytes(blocks.first, blocks.count);
                    IoOp::Write { offset_bytes, from: Pieces::One(work.part(0, to_u32(len_bytes))) }
                }
                _ => IoOp::Write { offset_bytes: range.start * 512, from: Pieces::One(from) },
            },
            RequestOp::WriteZeroes { range, .. } => {
                IoOp::WriteZeroes { offset_bytes: range.start * 512, len_bytes: range.sectors * 512 }
            }
            RequestOp::Discard { range, .. } => {
                let whole = self.volume(volume_index).whole_blocks(range);
                if whole.count == 0 || !volume.origin.can_discard {
                    self.finish_discard(key, memory);
                    return;
                }
                let (offset_bytes, len_bytes) = volume.origin_bytes(whole.first, whole.count);
                IoOp::Discard { offset_bytes, len_bytes }
            }
            _ => unreachable!("only changes come here"),
        };
        let now = self.now;
        let active = &mut self.requests[key];
        active.stage = Stage::Origin;
        active.parts += 1;
        let volume = self.volume_mut(volume_index);
        let epoch = volume.origin.epoch;
        volume.guard.origin_written(blocks, epoch);
        volume.origin.last_used = Some(now);
        let flight = Flight::OriginChange { request: key };
        if is_cached {
            self.issue_origin_write(volume_index, blocks, io, flight);
        } else {
            self.issue(Target::Origin(volume_index), io, flight);
        }
    }

    pub(crate) fn origin_change_done<M: Memory>(
        &mut self,
        key: RequestKey,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let active = &mut self.requests[key];
        active.parts -= 1;
        let (volume_index, blocks, route, op) = (active.volume, active.blocks, active.route, active.op);
        let is_fua = active.wants_fua();
        let now = self.now;
        let volume = self.volume_mut(volume_index);
        let epoch = volume.origin.epoch;
        volume.origin.note_answer(now);
        volume.guard.origin_written(blocks, epoch);
        if let Err(errno) = result
            && self.take_refused(key, errno, memory)
        {
            return;
        }
        self.changed_origin(key);
        let volume = self.volume_mut(volume_index);
        let is_cached = volume.standing == Standing::Cached;
        match result {
            Err(Errno::OPNOTSUPP) if matches!(op, RequestOp::Discard { .. }) => {
                // A discard may do nothing.
                volume.origin.can_discard = false;
            }
            Err(errno) => {
                volume.origin.errors += 1;
                volume.was_refused |= route == Route::LogThenOrigin;
                self.push(Effect::Notice(Notice::OriginError { volume: volume_index, errno }));
                self.fail(key, errno, memory);
                return;
            }
            Ok(()) => (),
        }
        if route == Route::LogThenOrigin {
            // Only whole blocks of zeroes are home: a block zeroed in part may have been dirty in the rest, and is
            // destaged as a whole later.
            let home = match op {
                RequestOp::WriteZeroes { range, .. } => self.volume(volume_index).whole_blocks(range),
                _ => blocks,
            };
            if home.count > 0 {
                self.note_written_through(volume_index, home);
            }
        }
        if route == Route::Origin && is_cached {
            S::origin_changed(self, key, memory);
        }
        if matches!(op, RequestOp::Discard { .. }) {
            self.finish_discard(key, memory);
        } else if is_fua {
            self.release_hold(key);
            self.wait_for_origin_flush(key, epoch, memory);
        } else {
            self.reply(key, memory);
        }
    }
}
