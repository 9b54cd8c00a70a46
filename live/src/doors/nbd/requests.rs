//! Requests of NBD clients that are under way.

use crate::doors::offers::Arrival;
use crate::doors::pieces::{Cut, Kind, cut};
use engine::effect::Errno;
use engine::memory::Slice;
use engine::units::VolumeIndex;
use std::collections::VecDeque;

/// Way in which the data of a read goes out.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// Every piece as a chunk of its own as soon as it has come; also the only piece of a small read.
    Chunks,
    /// A simple reply: all pieces together, when it is known that none failed.
    Whole(InOrder),
    /// A simple reply too long for that: in order, piece by piece. Nothing else may be sent in
    /// between, and an error on the way can only end the connection.
    Stream(InOrder),
}

impl Delivery {
    /// Takes the pieces that are there and wait for others.
    pub(crate) fn take_arrived(&mut self) -> Vec<Slice> {
        match self {
            Delivery::Chunks => Vec::new(),
            Delivery::Whole(pieces) | Delivery::Stream(pieces) => pieces.take_arrived(),
        }
    }
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

    /// Notes that a piece has come.
    pub(crate) fn arrived(&mut self, offset_bytes: u64) {
        let piece = self.pieces.iter_mut().find(|(offset, ..)| *offset == offset_bytes);
        piece.expect("the piece was asked for").2 = true;
    }

    /// The next piece in order, if it has come.
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
    /// Bytes of the request that were cut into pieces and handed on.
    pub issued_bytes: u64,
    /// Pieces the core has not answered.
    pub outstanding: u32,
    /// The first error.
    pub errno: Option<Errno>,
    pub arrival: Arrival,
    pub delivery: Delivery,
    /// Whether the reply's head of a streamed read went out.
    pub head_sent: bool,
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

    /// Stops handing on pieces. Those handed on are carried out.
    pub(crate) fn cut_short(&mut self) {
        self.len_bytes = self.issued_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn only_pieces_that_wait_for_others_are_left_to_be_taken() {
        let slice = Slice { buffer: engine::memory::BufferId(1), offset_bytes: 0, len_bytes: 512 };
        let mut pieces = InOrder::default();
        pieces.expect(0, slice);
        pieces.arrived(0);
        let mut whole = Delivery::Whole(pieces);
        assert_eq!((whole.take_arrived(), whole.take_arrived()), (vec![slice], vec![]));
        assert_eq!(Delivery::Chunks.take_arrived(), vec![]);
    }
}
