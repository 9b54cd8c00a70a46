//! The vocabulary between the engine and its driver.

use crate::memory::Slice;
use crate::pair::Half;
use crate::units::{SectorRange, VolumeIndex};
use alloc::vec::Vec;

/// An errno of the system, as a device or the engine states it; always positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The client lacks the permission.
    pub const PERM: Errno = Errno(1);
    /// The device failed, or data is lost.
    pub const IO: Errno = Errno(5);
    /// Something else uses it.
    pub const BUSY: Errno = Errno(16);
    /// No such device.
    pub const NODEV: Errno = Errno(19);
    /// A range or a length that is not allowed.
    pub const INVAL: Errno = Errno(22);
    /// No room.
    pub const NOSPC: Errno = Errno(28);
    /// The device answered too late.
    pub const TIMEDOUT: Errno = Errno(110);
    /// The engine is stopping.
    pub const SHUTDOWN: Errno = Errno(108);
    /// The device cannot do this operation (`EOPNOTSUPP`).
    pub const OPNOTSUPP: Errno = Errno(95);

    /// Whether the error says that the device is gone and will answer nothing before the next start, and not that one
    /// operation failed.
    #[must_use]
    pub fn is_gone(self) -> bool {
        matches!(self, Errno::NODEV | Errno::TIMEDOUT)
    }
}

/// A client request's number, chosen by the driver; must not be reused before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A device operation's number, chosen by the engine; answered exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// The treatment of a volume's writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// A write is acknowledged when the cache has it; it goes home later.
    Writeback,
    /// A write is acknowledged when both the cache and the origin have it.
    Writethrough,
    /// A write goes to the origin, the cached copy is dropped; reads are cached.
    Writearound,
    /// Reads and writes go to the origin; the cached copy of a written block is dropped.
    Passthrough,
    /// Clients may not write; reads are cached.
    Readonly,
}

impl WriteMode {
    /// All modes, with the names used everywhere.
    pub const ALL: [(WriteMode, &'static str); 5] = [
        (WriteMode::Writeback, "writeback"),
        (WriteMode::Writethrough, "writethrough"),
        (WriteMode::Writearound, "writearound"),
        (WriteMode::Passthrough, "passthrough"),
        (WriteMode::Readonly, "readonly"),
    ];

    /// The mode's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        WriteMode::ALL.iter().find(|(mode, _)| *mode == self).map_or("", |(_, name)| name)
    }

    /// The mode of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<WriteMode> {
        WriteMode::ALL.iter().find(|(_, n)| *n == name).map(|(mode, _)| *mode)
    }
}

/// The engine's table of requests is full: submit again after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// A request of a client or of the operator.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The number to answer with.
    pub id: RequestId,
    /// The volume it is about.
    pub volume: VolumeIndex,
    /// The operation.
    pub op: RequestOp,
}

/// The room of a volume in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// So much of it is kept whatever other volumes bring, as far as it was cached once.
    pub min_bytes: u64,
    /// With more than that, nothing enters that is only read; `None`: any.
    pub max_bytes: Option<u64>,
}

/// How much the cache device may be written in a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearBudget {
    /// The bytes of a day.
    pub day_bytes: u64,
    /// Bytes of it that count as written a moment ago.
    pub spent_bytes: u64,
}

/// The operations of clients and of the operator.
///
/// A `Slice` comes with one reference to its buffer, which the engine releases when it needs the
/// buffer no more (not before its reply; a driver that still wants the bytes of a read keeps
/// a reference of its own). Its length is that of the range, at most
/// [`crate::limits::REQUEST_BYTES_MAX`]. Where the range is block-aligned, so is the slice.
/// Ranges are not empty and inside the volume: the driver has checked that.
#[derive(Clone, Copy, Debug)]
pub enum RequestOp {
    /// Read the range into the slice.
    Read {
        /// The range to read.
        range: SectorRange,
        /// The memory to read into.
        into: Slice,
    },
    /// Write the slice to the range.
    Write {
        /// The range to write to.
        range: SectorRange,
        /// The new content.
        from: Slice,
        /// Durable before the reply.
        fua: bool,
    },
    /// Bring what is not cached of the range into the cache, as far as there is room; the range is of whole blocks, and the
    /// memory is needed for that until the reply. Refused with [`Errno::OPNOTSUPP`] where reads are not cached, and with
    /// [`Errno::NOSPC`] where too much is on its way already, or the origin was not flushed since the start: ask again a little
    /// later.
    Warm {
        /// The range to warm.
        range: SectorRange,
        /// The memory to read into; its content afterwards says nothing.
        into: Slice,
    },
    /// Compare what is cached of the range with its checksums: see [`crate::engine::Engine::take_scrubbed`]. At most
    /// [`crate::limits::REQUEST_BYTES_MAX`]. Refused with [`Errno::OPNOTSUPP`] where the cache does not serve the volume, or
    /// stops.
    Scrub(SectorRange),
    /// Compare the head and the summary of this segment of a log with their checksums, on each device of the cache. What is
    /// damaged on one half of a mirrored cache is written again from the other one. `volume` is any. Answered with
    /// [`Errno::IO`] if either is damaged and cannot be mended, and without a look while the segment is being written.
    ScrubSegment(u32),
    /// Make durable all that was acknowledged before.
    Flush,
    /// The content is not needed any more. Any length.
    Discard {
        /// The range.
        range: SectorRange,
        /// Durable before the reply.
        fua: bool,
    },
    /// The range shall read as zeroes. Any length.
    WriteZeroes {
        /// The range.
        range: SectorRange,
        /// Durable before the reply.
        fua: bool,
    },
    /// From now on writes follow this mode. Answered when that is durable, not when drained.
    SetMode(WriteMode),
    /// The volume has this many sectors from now on (it may only grow).
    SetSize(u64),
    /// Destage the volume's dirty data with all speed. Answered when none is left and the
    /// origin was flushed. A later request to cancel ends the haste.
    Drain,
    /// Ends a running drain, which is answered with [`Errno::SHUTDOWN`].
    CancelDrain,
    /// Destage only what somebody waits for, or no longer so: at an hour at which a sleeping disk should not be woken
    /// for more. Not remembered: a start destages as it likes.
    HoldDestage(bool),
    /// Let the volume go home in strict order, or in any (rule 14). Changes wait until all that is dirty is home; refused with
    /// [`Errno::INVAL`] where the composition cannot have it, and beside other volumes.
    SetOrder(bool),
    /// Give the volume this room in the cache. Not remembered. Refused with [`Errno::OPNOTSUPP`] where the store cannot
    /// keep a minimum ([`crate::composition::Composition::keeps_minimums`]).
    SetRoom(Room),
    /// Give the cache device a wear budget, or take it away. `volume` is any. Not remembered.
    SetWearBudget(Option<WearBudget>),
    /// Take the volume off the cache: refused with [`Errno::IO`] while it has dirty data.
    /// Answered when its removal is durable. The volume takes no other request afterwards.
    Detach,
    /// Put the volume on the cache that [`crate::engine::Engine::propose`] named, at a place without one. Answered when
    /// that is durable; it takes requests from then on. Refused with [`Errno::INVAL`] where the place is taken, and on a cache in strict
    /// order beside another volume or in another mode than writeback.
    Add,
    /// Bring the half of a mirrored cache that does not count up to date: the driver has put a device in its place. `volume`
    /// is any. Answered when both halves count. Refused with [`Errno::INVAL`] where both do, or the cache is not mirrored, and
    /// with [`Errno::BUSY`] while a half is brought up to date.
    Rejoin,
    /// Give up the volume's lost blocks: they read as the origin has them. Answered when that is durable.
    GiveUpLost,
    /// Stop cleanly: destage nothing more, finish what is under way, leave the clean flag. `volume`
    /// is ignored. Answered when the last byte is durable; nothing may be submitted after.
    Stop,
}

/// The next thing that the driver has to do.
#[derive(Debug)]
pub enum Effect {
    /// Start this operation. Operations may be done in any order and at the same time.
    Io(Io),
    /// Answer this request.
    Reply {
        /// The request.
        id: RequestId,
        /// Its outcome.
        result: Result<(), Errno>,
    },
    /// Something for the operator's log.
    Notice(Notice),
}

/// One device operation.
#[derive(Debug)]
pub struct Io {
    /// The number to complete it with.
    pub id: IoId,
    /// The device.
    pub target: Target,
    /// The operation.
    pub op: IoOp,
}

/// The device of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The cache device; of a mirrored cache the first half.
    Cache,
    /// The second half of a mirrored cache.
    Mirror,
    /// The origin of a volume.
    Origin(VolumeIndex),
    /// The driver's own durable notes beside the devices ([`IoOp::Abandon`] only).
    State,
}

/// Device operations. Offsets and lengths are multiples of 512 on origins, of 4096 on the cache.
#[derive(Clone, Debug)]
pub enum IoOp {
    /// Read `into`'s total length from the offset, scattered over the pieces in order.
    Read {
        /// The offset on the device.
        offset_bytes: u64,
        /// The memory to read into.
        into: Pieces,
    },
    /// Write the pieces, one after the other, from the offset on.
    Write {
        /// The offset on the device.
        offset_bytes: u64,
        /// The new content.
        from: Pieces,
    },
    /// All writes completed before this was issued are durable when it completes.
    Flush,
    /// The range is not needed. A device that cannot do it answers [`Errno::OPNOTSUPP`].
    Discard {
        /// The offset on the device.
        offset_bytes: u64,
        /// The length of the range.
        len_bytes: u64,
    },
    /// The range reads as zeroes afterwards; the driver writes zeroes where the device has no
    /// operation for it.
    WriteZeroes {
        /// The offset on the device.
        offset_bytes: u64,
        /// The length of the range.
        len_bytes: u64,
    },
    /// Note durably, outside the cache device, that the cached content of this volume must
    /// never be used again (hazard 10).
    Abandon(VolumeIndex),
}

/// The memory of one transfer: one piece or several.
#[derive(Clone, Debug)]
pub enum Pieces {
    /// One piece.
    One(Slice),
    /// Several, in order.
    Many(Vec<Slice>),
}

impl Pieces {
    /// The pieces in order.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Slice] {
        match self {
            Pieces::One(slice) => core::slice::from_ref(slice),
            Pieces::Many(slices) => slices,
        }
    }

    /// Their total length in bytes.
    #[inline]
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.as_slice().iter().map(|slice| u64::from(slice.len_bytes)).sum()
    }
}

/// News for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An origin failed an operation of the engine's own, which is retried.
    OriginError {
        /// The volume.
        volume: VolumeIndex,
        /// The error that it gave.
        errno: Errno,
    },
    /// An origin failed a flush, and may have lost changes that clients were answered for. Their next FLUSH fails: who keeps the
    /// clients over a crash of the process notes it until then ([`crate::engine::Engine::untold_losses`]).
    ChangesLost {
        /// The volume.
        volume: VolumeIndex,
        /// The error that FLUSH gets.
        errno: Errno,
    },
    /// The cache failed a write or a flush and is not written any more.
    CacheLatched {
        /// The error that it gave.
        errno: Errno,
    },
    /// One device of a mirrored cache failed: the cache goes on with the other one.
    HalfLost {
        /// The half that does not count any more.
        half: Half,
        /// The error that it gave.
        errno: Errno,
    },
    /// Both devices of a mirrored cache count again.
    HalfBack {
        /// The half that was brought up to date.
        half: Half,
    },
    /// The cache device has been slow for seconds: reads pass it by where the origin is faster.
    CacheSlow {
        /// The time that half of its reads kept within before, in microseconds.
        usual_us: u64,
        /// The time that they take now, in microseconds.
        slow_us: u64,
    },
    /// The cache device is as fast as before, and is used again.
    CacheWell {
        /// It was passed by for so long, in milliseconds.
        passed_ms: u64,
    },
    /// A clean block did not match its checksum or could not be read: the origin serves it.
    CorruptClean {
        /// The volume.
        volume: VolumeIndex,
        /// The block.
        block: u64,
        /// The error of the read; `None` if what was read does not match the checksum.
        errno: Option<Errno>,
    },
    /// A dirty block did not match its checksum: reads of it fail until it is written.
    Lost {
        /// The volume.
        volume: VolumeIndex,
        /// The block.
        block: u64,
    },
    /// A scrub could not read a dirty block: it stays dirty, and is tried again.
    DirtyUnread {
        /// The volume.
        volume: VolumeIndex,
        /// The block.
        block: u64,
        /// The error of the read.
        errno: Errno,
    },
    /// A volume goes on without its cache.
    Uncached {
        /// The volume.
        volume: VolumeIndex,
    },
    /// A volume left writeback mode and has no dirty data any more.
    Drained {
        /// The volume.
        volume: VolumeIndex,
    },
}
