//! Handing requests on to the core, piece by piece, as memory allows.

use super::door::{NbdDoor, Progress};
use super::input::{Arriving, STRAIGHT_BYTES_MIN};
use super::requests::Delivery;
use crate::doors::pieces::{Cut, Kind, RANGE_PIECES_MAX};
use crate::doors::share;
use crate::reactor::driver::{Core, Piece, Turn};
use engine::effect::RequestOp;
use engine::memory::{Memory, Slice};
use engine::units::BLOCK_BYTES;

/// Bytes that the buffers of a read can need beyond its length, because it is not aligned.
const WHOLE_EDGE_BYTES: u64 = 2 * BLOCK_BYTES;

impl NbdDoor {
    /// Hands on as many pieces of the connection's first request as it can.
    pub(super) fn advance<C: Core>(&mut self, key: usize, head: usize, turn: &mut Turn<'_, C>) -> Progress {
        match self.requests[head].kind {
            Kind::Flush => {
                self.hand_on(head, RequestOp::Flush, None, 0, turn);
                Progress::Done
            }
            Kind::Trim | Kind::WriteZeroes => {
                // The rest follows as these are answered, beside other requests.
                self.hand_on_range(head, turn);
                Progress::Done
            }
            Kind::Read => self.advance_read(key, head, turn),
            Kind::Write => self.advance_write(key, head, turn),
        }
    }

    /// Hands on the next pieces of a request without data.
    pub(super) fn hand_on_range<C: Core>(&mut self, at: usize, turn: &mut Turn<'_, C>) {
        while self.requests[at].outstanding < RANGE_PIECES_MAX
            && let Some(cut) = self.requests[at].next_cut()
        {
            let request = &mut self.requests[at];
            request.issued_bytes += cut.len_bytes;
            let (range, fua) = (cut.range(), request.fua);
            let op = match request.kind {
                Kind::Trim => RequestOp::Discard { range, fua },
                _ => RequestOp::WriteZeroes { range, fua },
            };
            self.hand_on(at, op, None, cut.offset_bytes, turn);
        }
    }

    fn advance_read<C: Core>(&mut self, key: usize, head: usize, turn: &mut Turn<'_, C>) -> Progress {
        match self.requests[head].delivery {
            // Nothing else may be sent between the parts of a streamed reply, so it goes alone.
            Delivery::Stream(_)
                if self.requests[head].issued_bytes == 0 && self.connections[key].requests > 1 =>
            {
                return Progress::Blocked;
            }
            // All buffers or none: else two such reads could each hold the buffer that the other one needs.
            Delivery::Whole(_) => {
                let request = &self.requests[head];
                let rest_bytes = request.len_bytes - request.issued_bytes + WHOLE_EDGE_BYTES;
                if !share::has_room(turn.driver, self.connections[key].held_bytes, rest_bytes) {
                    return Progress::Blocked;
                }
            }
            _ => {}
        }
        while let Some((cut, slice)) = self.take_memory(key, head, turn) {
            let request = &mut self.requests[head];
            request.issued_bytes += cut.len_bytes;
            if let Delivery::Whole(pieces) | Delivery::Stream(pieces) = &mut request.delivery {
                pieces.expect(cut.offset_bytes, slice);
            }
            // The core releases one reference; the other one is ours until the bytes are sent.
            turn.driver.pool.retain(slice.buffer);
            let op = RequestOp::Read { range: cut.range(), into: slice };
            self.hand_on(head, op, Some(slice), cut.offset_bytes, turn);
        }
        let request = &self.requests[head];
        // A streamed reply keeps its place until it is sent, so that no other reply comes in between.
        if request.is_issued() && !matches!(request.delivery, Delivery::Stream(_)) {
            Progress::Done
        } else {
            Progress::Blocked
        }
    }

    fn advance_write<C: Core>(&mut self, key: usize, head: usize, turn: &mut Turn<'_, C>) -> Progress {
        while !self.requests[head].is_issued() {
            if self.connections[key].arriving.is_none() {
                let Some((cut, slice)) = self.take_memory(key, head, turn) else {
                    return Progress::Blocked;
                };
                let connection = &mut self.connections[key];
                connection.arriving = Some(Arriving { cut, slice, filled: 0 });
                connection.input.expects_payload = slice.len_bytes >= STRAIGHT_BYTES_MIN;
            }
            let connection = &mut self.connections[key];
            let arriving = connection.arriving.as_mut().expect("it was just made");
            let rest = arriving.rest();
            let there = connection.input.bytes();
            let count = there.len().min(rest.len_bytes as usize);
            if count > 0 {
                let count_bytes = u32::try_from(count).expect("at most the rest");
                turn.driver.pool.bytes_mut(rest.part(0, count_bytes)).copy_from_slice(&there[..count]);
                arriving.filled += count_bytes;
                connection.input.consume(count);
            }
            let Arriving { cut, slice, .. } = *arriving;
            if arriving.filled < slice.len_bytes {
                return Progress::Starved;
            }
            connection.arriving = None;
            let request = &mut self.requests[head];
            request.issued_bytes += cut.len_bytes;
            let op = RequestOp::Write { range: cut.range(), from: slice, fua: request.fua };
            self.hand_on(head, op, Some(slice), cut.offset_bytes, turn);
        }
        Progress::Done
    }

    /// The next piece of a read or write with memory for it; `None` if there is no piece, or no memory.
    fn take_memory<C: Core>(
        &mut self,
        key: usize,
        head: usize,
        turn: &mut Turn<'_, C>,
    ) -> Option<(Cut, Slice)> {
        let cut = self.requests[head].next_cut()?;
        let is_promised = matches!(self.requests[head].delivery, Delivery::Whole(_));
        let volume = self.requests[head].volume;
        let held_bytes = &mut self.connections[key].held_bytes;
        let (cut, slice, bytes) = share::take(turn.driver, volume, *held_bytes, cut, is_promised)?;
        *held_bytes += bytes;
        Some((cut, slice))
    }

    fn hand_on<C: Core>(
        &mut self,
        head: usize,
        op: RequestOp,
        slice: Option<Slice>,
        offset_bytes: u64,
        turn: &mut Turn<'_, C>,
    ) {
        let request = &mut self.requests[head];
        request.outstanding += 1;
        let piece = Piece { request: head, slice, offset_bytes };
        turn.ask(self.number, request.volume, op, piece);
    }
}
