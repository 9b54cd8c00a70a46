//! Device operations under way, and what each is for.

use crate::machine::ahead::AheadRead;
use crate::machine::halves::mending::Spot;
use crate::machine::piece::Piece;
use crate::machine::request::RequestKey;
use crate::memory::BufferId;
use crate::pair::Half;
use crate::units::{BlockKey, Nanos, Place, VolumeIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The purpose of an operation under way; `T` is that of the store's own operations.
pub(crate) enum Flight<T> {
    /// Cached blocks for a request.
    CacheRead { request: RequestKey, piece: Piece, issued: Nanos },
    /// Cached blocks that a client is about to ask for.
    AheadRead(Box<AheadRead>),
    /// Cached blocks that are scrubbed, for the first or for the second time.
    ScrubRead { request: RequestKey, piece: Piece, is_second: bool },
    /// Blocks of the origin for a request.
    OriginRead { request: RequestKey, piece: Piece, issued: Nanos },
    /// Blocks of the origin that a stream is about to ask for.
    OriginAhead { volume: VolumeIndex, firsts: Vec<BlockKey> },
    /// A flush that covers the store's writes up to a sequence.
    CacheFlush { sequence: u64 },
    /// A step of the superblock's writing.
    Superblock,
    /// A flush that ends an epoch.
    OriginFlush { volume: VolumeIndex, epoch: u64 },
    /// A request's own write, write-zeroes or discard.
    OriginChange { request: RequestKey },
    /// A piece of a run on its way home is being read.
    DestageRead { run: usize, place: Place, blocks: u32 },
    /// A run goes home.
    DestageWrite { run: usize },
    /// A read of the cache that nobody waits for: its time counts, its content does not.
    Probe { buffer: BufferId, issued: Nanos },
    /// The durable note that a volume's cache is given up.
    Abandon { volume: VolumeIndex },
    /// A well-known place of an origin, at a clean stop.
    Fingerprint { volume: VolumeIndex, at: usize, buffer: BufferId },
    /// The part of a half in an operation of a mirrored cache.
    Leg { joint: usize, half: Half },
    /// A half's page is written, or made durable.
    Page { half: Half },
    /// A step of bringing a half up to date.
    Copy,
    /// A block that is wrong on one half is read from the other one.
    Mend { mend: usize, spot: Spot },
    /// A block that is wrong on a half is written again.
    WriteAgain { half: Half, place: Place, buffer: BufferId },
    /// The store's own.
    Store(T),
}

impl<T> Flight<T> {
    /// Whether it is an operation of the cache device; `is_of_cache` says so of the store's own.
    pub fn is_of_cache(&self, is_of_cache: impl FnOnce(&T) -> bool) -> bool {
        match self {
            Flight::CacheRead { .. }
            | Flight::AheadRead(_)
            | Flight::ScrubRead { .. }
            | Flight::Probe { .. }
            | Flight::CacheFlush { .. }
            | Flight::Superblock
            | Flight::DestageRead { .. } => true,
            Flight::Store(flight) => is_of_cache(flight),
            // Of a half the other one may do the work.
            Flight::Leg { .. }
            | Flight::Page { .. }
            | Flight::Copy
            | Flight::Mend { .. }
            | Flight::WriteAgain { .. }
            | Flight::OriginRead { .. }
            | Flight::OriginAhead { .. }
            | Flight::OriginFlush { .. }
            | Flight::OriginChange { .. }
            | Flight::DestageWrite { .. }
            | Flight::Abandon { .. }
            | Flight::Fingerprint { .. } => false,
        }
    }
}
