//! Requests under way: one struct for all kinds, and where each is in its life.

use crate::effect::{Errno, Request, RequestId, RequestOp};
use crate::machine::guard::{Blocks, Hold};
use crate::machine::lost_changes::{Group, Reached};
use crate::machine::split::Part;
use crate::memory::{BufferId, Memory, Slice};
use crate::number::to_u32;
use crate::status::Bypass;
use crate::units::{SECTORS_PER_BLOCK, SectorRange, VolumeIndex};

/// A request's slot in the engine's table.
pub(crate) type RequestKey = usize;

/// The stage of a request: what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Just taken.
    New,
    /// Others are busy with its blocks.
    Guard,
    /// No buffer was free.
    Buffer,
    /// Its volume may hold no more dirty blocks.
    Share,
    /// All keys below this number to be in the log.
    Keys(u64),
    /// Its blocks are being read.
    Fetching,
    /// Its blocks are queued for the cache or on their way there.
    Appending,
    /// A flush of the cache that covers this sequence; then `Then`.
    CacheFlush(u64, Then),
    /// Destages under way in its blocks to end.
    Settling,
    /// Room for the word that what is cached of it is void.
    Room,
    /// A slot that it needs, and that others are busy with.
    Slot,
    /// A FLUSH: the mappings of what was written.
    Commit,
    /// Nothing that the cache forgot may come back after a crash.
    Forgetting,
    /// The origin writes, zeroes or discards.
    Origin,
    /// A flush of the origin that covers this epoch.
    OriginFlush(u64),
    /// A FLUSH: this sequence and this epoch.
    Barrier { sequence: u64, epoch: u64 },
    /// The superblock with this update number.
    Superblock(u64),
    /// Its volume is being given up by the cache.
    Abandoning,
    /// All dirty data to go home.
    Draining,
    /// Everything else to end (detach, stop).
    Quiet,
}

/// The step that follows a flush of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The reply.
    Reply,
    /// The write to the origin.
    Origin,
    /// A look whether anything forgotten could come back, then the origin.
    Forgotten,
    /// A flush of the origin, for the part of the request that went there.
    OriginFlush,
}

/// The way of a change: through the cache, to the origin, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Into the log; it goes home later.
    Log,
    /// Into the log, then to the origin.
    LogThenOrigin,
    /// To the origin alone.
    Origin,
}

/// A request under way.
pub(crate) struct Active {
    pub id: RequestId,
    pub volume: VolumeIndex,
    pub op: RequestOp,
    /// The blocks it touches.
    pub blocks: Blocks,
    pub stage: Stage,
    pub route: Route,
    pub hold: Option<Hold>,
    /// The blocks that it holds: its own, or all that share marks with them.
    pub held: Blocks,
    /// Whole blocks: the client's own slice if its range is aligned, else a buffer of ours.
    pub work: Option<Slice>,
    /// The buffer behind `work`, if it is ours.
    pub work_buffer: Option<BufferId>,
    /// Whether the client's buffer was released.
    pub is_client_buffer_released: bool,
    /// Why it bypasses the cache, if the policies say so; `None`: they were not asked yet.
    pub passes: Option<Option<Bypass>>,
    /// Why its route leads around the cache, if the mode does not say so.
    pub around: Option<Bypass>,
    /// A part of it went to the origin, around the cache.
    pub is_around: bool,
    /// A change: how far it came at the origin.
    pub reached: Reached,
    /// The group of calls in which it came.
    pub came_in: Group,
    /// Device operations under way for it.
    pub parts: u32,
    /// Units (blocks, zero extents, tombstones) not yet published.
    pub unpublished: u64,
    /// Blocks of a write that the index does not have yet; the write is answered when it has all.
    pub unapplied: u64,
    /// It was answered, and stays until its keys are in the log.
    pub is_answered: bool,
    /// Dirty blocks that its volume's share holds ready for it.
    pub reserved_blocks: u64,
    /// A write-through: when it entered the log, that had nothing older of its blocks.
    pub is_new_to_log: bool,
    /// The sequence of the last batch with a part of it.
    pub sequence: u64,
    pub error: Option<Errno>,
    /// Part of the write was put off until the other one is done.
    pub has_later: bool,
}

impl Active {
    /// A request that was just taken.
    #[inline]
    pub fn new(request: Request, blocks: Blocks, came_in: Group) -> Active {
        Active {
            id: request.id,
            volume: request.volume,
            op: request.op,
            blocks,
            stage: Stage::New,
            route: Route::Log,
            hold: None,
            held: blocks,
            work: None,
            work_buffer: None,
            is_client_buffer_released: false,
            passes: None,
            around: None,
            is_around: false,
            reached: Reached::Nothing,
            came_in,
            parts: 0,
            unpublished: 0,
            unapplied: 0,
            is_answered: false,
            reserved_blocks: 0,
            is_new_to_log: false,
            sequence: 0,
            error: None,
            has_later: false,
        }
    }

    /// The sectors that a write is for.
    pub fn written(&self) -> Option<SectorRange> {
        match self.op {
            RequestOp::Write { range, .. } => Some(range),
            _ => None,
        }
    }

    /// Makes it a write of that part alone.
    pub fn becomes(&mut self, (range, from): Part) {
        self.op = RequestOp::Write { range, from, fua: self.wants_fua() };
        self.blocks = Blocks::touched_by(range);
    }

    /// The client's buffer.
    #[inline]
    pub fn client_slice(&self) -> Option<Slice> {
        match self.op {
            RequestOp::Read { into, .. } | RequestOp::Warm { into, .. } => Some(into),
            RequestOp::Write { from, .. } => Some(from),
            _ => None,
        }
    }

    /// Gives back the work buffer, if there is one: returns its bytes.
    #[inline]
    pub fn release_work<M: Memory>(&mut self, memory: &mut M) -> u64 {
        let work = self.work.take();
        let Some(buffer) = self.work_buffer.take() else { return 0 };
        memory.release(buffer);
        u64::from(work.expect("a work buffer has a slice").len_bytes)
    }

    /// Gives back the client's buffer, which nothing reads or writes any more.
    #[inline]
    pub fn release_client_buffer<M: Memory>(&mut self, memory: &mut M) {
        let is_released = core::mem::replace(&mut self.is_client_buffer_released, true);
        if let Some(slice) = self.client_slice().filter(|_| !is_released) {
            memory.release(slice.buffer);
        }
    }

    /// Slice with the content of `part` of a write, in whole blocks.
    pub fn content_of(&self, part: Blocks) -> Slice {
        let RequestOp::Write { range, from, .. } = self.op else { unreachable!("a write") };
        let (work, start) = match self.work {
            Some(work) => (work, self.blocks.first * SECTORS_PER_BLOCK),
            None => (from, range.start),
        };
        let skip = (part.first * SECTORS_PER_BLOCK - start) * 512;
        work.part(to_u32(skip), to_u32(part.count * SECTORS_PER_BLOCK * 512))
    }

    /// Whether it warms the cache, and nobody waits for what it reads.
    #[inline]
    pub fn is_warming(&self) -> bool {
        matches!(self.op, RequestOp::Warm { .. })
    }

    /// Whether it is answered only when it is durable.
    pub fn wants_fua(&self) -> bool {
        matches!(
            self.op,
            RequestOp::Write { fua: true, .. }
                | RequestOp::Discard { fua: true, .. }
                | RequestOp::WriteZeroes { fua: true, .. }
        )
    }

    /// Whether it is a write that is answered when its batch is published.
    pub fn is_logged_write(&self) -> bool {
        matches!(self.op, RequestOp::Write { fua: false, .. }) && self.route == Route::Log && !self.has_later
    }
}
