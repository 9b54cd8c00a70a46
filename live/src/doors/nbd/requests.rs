//! Requests of clients under way, and the one place where they are cut into what the core takes.

use engine::effect::Errno;
use engine::limits::{RANGE_BYTES_MAX, REQUEST_BYTES_MAX};
use engine::memory::Slice;
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use std::collections::VecDeque;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
    Trim,
    WriteZeroes,
}

/// How the data of a read goes out.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// Every piece as a chunk of its own when it is there; also the only piece of a small read.
    Chunks,
    /// A simple reply: all pieces together, when it is known that none failed.
    Whole(InOrder),
    /// A simple reply too long for that: in order, piece by piece. Nothing else may be sent in
    /// between, and an error on the way can only end the connection.
    Stream(InOrder),
}

/// Pieces of a read in the order of the volume.
#[derive(Debug, Default)]
pub(crate) struct InOrder {
    pieces: VecDeque<(u64, Slice, bool)>,
}

impl InOrder {
    /// A piece was asked for.
    pub(crate) fn expect(&mut self, offset_bytes: u64, slice: Slice) {
        self.pieces.push_back((offset_bytes, slice, false));
    }

    /// A piece is there.
    pub(crate) fn arrived(&mut self, offset_bytes: u64) {
        let piece = self.pieces.iter_mut().find(|(offset, ..)| *offset == offset_bytes);
        piece.expect("the piece was asked for").2 = true;
    }

    /// The next piece in order, if it is there.
    pub(crate) fn next(&mut self) -> Option<Slice> {
        let (.., true) = self.pieces.front()? else { return None };
        self.pieces.pop_front().map(|(_, slice, _)| slice)
    }

    /// Takes the pieces that are there, in any order.
    pub(crate) fn take_arrived(&mut self) -> Vec<Slice> {
        let arrived = self.pieces.iter().filter(|(.., there)| *there).map(|(_, slice, _)| *slice).collect();
        self.pieces.retain(|(.., there)| !*there);
        arrived
    }
}

/// A client's request.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub connection: usize,
    pub cookie: u64,
    pub kind: Kind,
    pub fua: bool,
    pub volume: VolumeIndex,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// How much of it has been cut into pieces and handed on.
    pub issued_bytes: u64,
    /// Pieces the core has not answered.
    pub outstanding: u32,
    /// The first error.
    pub errno: Option<Errno>,
    pub started: Nanos,
    pub delivery: Delivery,
    /// Of a streamed read: whether the reply's head went out.
    pub head_sent: bool,
}

/// A piece of a request, still without memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

impl Cut {
    pub(crate) fn range(self) -> SectorRange {
        assert!(
            self.offset_bytes.is_multiple_of(SECTOR_BYTES) && self.len_bytes.is_multiple_of(SECTOR_BYTES)
        );
        SectorRange { start: self.offset_bytes / SECTOR_BYTES, sectors: self.len_bytes / SECTOR_BYTES }
    }

    /// The bytes of a buffer for it, and where in the buffer it begins: as in its first block, so that
    /// whole blocks of the volume are whole blocks of the buffer.
    pub(crate) fn buffer(self) -> (u32, u32) {
        let lead_bytes = self.offset_bytes % BLOCK_BYTES;
        let buffer_bytes = (lead_bytes + self.len_bytes).next_multiple_of(BLOCK_BYTES);
        let small = |bytes: u64| u32::try_from(bytes).expect("a piece is small");
        (small(buffer_bytes), small(lead_bytes))
    }

    /// The beginning of it that fits a buffer of `buffer_bytes`, at least a block.
    pub(crate) fn shortened(self, buffer_bytes: u64) -> Cut {
        let whole_bytes = buffer_bytes - buffer_bytes % BLOCK_BYTES;
        assert!(whole_bytes > 0, "a buffer has at least a block");
        Cut { len_bytes: self.len_bytes.min(whole_bytes - self.offset_bytes % BLOCK_BYTES), ..self }
    }
}

impl ClientRequest {
    /// The next piece that the core takes at once; `None` when there is no more.
    pub(crate) fn next_cut(&self) -> Option<Cut> {
        cut(self.kind, self.offset_bytes + self.issued_bytes, self.len_bytes - self.issued_bytes)
    }

    /// Whether nothing more of it will be handed to the core.
    pub(crate) fn is_issued(&self) -> bool {
        self.issued_bytes == self.len_bytes
    }

    /// Hands on no more of it. What was handed on goes its way.
    pub(crate) fn cut_short(&mut self) {
        self.len_bytes = self.issued_bytes;
    }
}

/// The first piece of a range: as long as the core takes, and ending at a block's border if it is
/// not the last one.
fn cut(kind: Kind, offset_bytes: u64, len_bytes: u64) -> Option<Cut> {
    if len_bytes == 0 {
        return None;
    }
    let longest = match kind {
        // Less than the limit by what an unaligned beginning adds to the buffer.
        Kind::Read | Kind::Write => u64::from(REQUEST_BYTES_MAX) - offset_bytes % BLOCK_BYTES,
        Kind::Trim | Kind::WriteZeroes => RANGE_BYTES_MAX - offset_bytes % BLOCK_BYTES,
        Kind::Flush => unreachable!("a flush has no range"),
    };
    Some(Cut { offset_bytes, len_bytes: len_bytes.min(longest) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The pieces of any request cover it exactly, none is too long, and inner borders are
        /// borders of blocks.
        #[test]
        fn pieces_cover_a_request(
            start in 0u64..100_000,
            sectors in 1u64..200_000,
            read: bool,
            room in 4096u64..=262_144,
        ) {
            let kind = if read { Kind::Read } else { Kind::Trim };
            let (mut offset, mut left) = (start * 512, sectors * 512);
            while let Some(piece) = cut(kind, offset, left) {
                prop_assert_eq!(piece.offset_bytes, offset);
                prop_assert!(piece.len_bytes > 0);
                let piece = if read { piece.shortened(room) } else { piece };
                let (buffer_bytes, lead_bytes) = if read { piece.buffer() } else { (0, 0) };
                prop_assert!(!read || u64::from(buffer_bytes) <= room);
                prop_assert!(!read || u64::from(lead_bytes) + piece.len_bytes <= u64::from(buffer_bytes));
                prop_assert!(piece.len_bytes <= RANGE_BYTES_MAX);
                offset += piece.len_bytes;
                left -= piece.len_bytes;
                prop_assert!(left == 0 || offset % BLOCK_BYTES == 0);
            }
            prop_assert_eq!(offset, (start + sectors) * 512);
        }
    }

    #[test]
    fn pieces_leave_in_order() {
        let slice = |at| Slice { buffer: engine::memory::BufferId(at), offset_bytes: 0, len_bytes: 512 };
        let mut pieces = InOrder::default();
        (0..3).for_each(|at| pieces.expect(u64::from(at), slice(at)));
        pieces.arrived(1);
        assert_eq!(pieces.next(), None);
        pieces.arrived(0);
        assert_eq!((pieces.next(), pieces.next(), pieces.next()), (Some(slice(0)), Some(slice(1)), None));
        pieces.arrived(2);
        assert_eq!(pieces.take_arrived(), vec![slice(2)]);
    }
}
