//! Consecutive blocks on their way to a request, and where they come from.

use crate::machine::guard::Stamp;
use crate::machine::neighbours::Beside;
use crate::machine::request::RequestKey;
use crate::memory::Slice;
use crate::number::to_u32;
use crate::units::{BLOCK_BYTES, BlockKey, Place};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Consecutive blocks read by one operation.
pub(crate) struct Piece {
    pub first: u64,
    pub blocks: u32,
    /// The memory that they are read into.
    pub slice: Slice,
    pub source: Source,
}

impl Piece {
    /// Adds a cached block, if it lies behind the others and one operation may read across from the piece's first
    /// place.
    pub fn join_cached(
        &mut self,
        next: Place,
        checksum: Option<u32>,
        is_joinable: impl FnOnce(Place) -> bool,
    ) -> bool {
        let Source::Cache { place, checksums } = &mut self.source else { return false };
        let is_joined = place.0 + self.blocks == next.0 && is_joinable(*place);
        if is_joined {
            checksums.push(checksum);
            self.lengthen();
        }
        is_joined
    }

    /// Adds a block of the origin, if the piece comes from there.
    pub fn join_origin(&mut self) -> bool {
        let is_joined = matches!(self.source, Source::Origin { .. });
        if is_joined {
            self.lengthen();
        }
        is_joined
    }

    fn lengthen(&mut self) {
        self.blocks += 1;
        self.slice.len_bytes += to_u32(BLOCK_BYTES);
    }
}

/// The source of a piece.
pub(crate) enum Source {
    /// From consecutive places of the cache, with the checksums to find there.
    Cache { place: Place, checksums: Checksums },
    /// From the origin; with a stamp if the data may enter the cache, and with what is read beside.
    Origin { stamp: Option<Stamp>, beside: Option<Box<Beside>> },
    /// From the origin, in place of a copy that could not be read. It has the same content if the copy was written through; if not,
    /// no client knows of that yet.
    StandIn { place: Place, checksum: Option<u32>, is_through: bool },
}

/// The checksums of a piece, as far as they are known; one block is the common case.
pub(crate) enum Checksums {
    One(Option<u32>),
    Many(Vec<Option<u32>>),
}

impl Checksums {
    #[inline]
    pub fn as_slice(&self) -> &[Option<u32>] {
        match self {
            Checksums::One(one) => core::slice::from_ref(one),
            Checksums::Many(many) => many,
        }
    }

    pub fn push(&mut self, checksum: Option<u32>) {
        match self {
            Checksums::One(one) => *self = Checksums::Many(alloc::vec![*one, checksum]),
            Checksums::Many(many) => many.push(checksum),
        }
    }
}

/// Blocks of a read that wait: another read brings them, or one was overwritten in its place while it was read, so that it may
/// be neither the old content nor the new one. They count as one part of their request.
pub(crate) struct WaitingRead {
    pub request: RequestKey,
    pub key: BlockKey,
    pub slice: Slice,
}
