//! The core's answers on their way to the clients.

use super::connection::Phase;
use super::door::NbdDoor;
use super::requests::Delivery;
use super::secured::Secrecy;
use crate::doors::pieces::Kind;
use crate::doors::share::buffer_bytes;
use crate::nbd::wire::{completion, data_head};
use crate::reactor::backend::Operation;
use crate::reactor::driver::{Core, Piece, Turn};
use engine::effect::Errno;
use engine::memory::Slice;

impl NbdDoor {
    /// The core has answered a piece.
    pub(super) fn take_answer<C: Core>(
        &mut self,
        piece: Piece,
        result: Result<(), Errno>,
        turn: &mut Turn<'_, C>,
    ) {
        let request = &mut self.requests[piece.request];
        request.outstanding -= 1;
        if let Err(errno) = result {
            // The first error wins, and nothing more of it is worth doing. The data of a write comes all the same.
            request.errno.get_or_insert(errno);
            if request.kind != Kind::Write {
                request.cut_short();
            }
        }
        let key = request.connection;
        if matches!(request.kind, Kind::Trim | Kind::WriteZeroes) {
            if self.connections[key].is_closed() {
                request.cut_short();
            }
            self.hand_on_range(piece.request, turn);
        }
        let request = &self.requests[piece.request];
        let is_over = request.is_issued() && request.outstanding == 0;
        match (request.kind, piece.slice) {
            (Kind::Read, Some(slice)) => match request.delivery {
                Delivery::Chunks => self.answer_chunk(piece, slice, is_over, turn),
                Delivery::Whole(_) => self.answer_whole(piece, is_over, turn),
                Delivery::Stream(_) => self.answer_stream(piece, is_over, turn),
            },
            (_, slice) => {
                // The core has released a write's buffer, or will when it no longer needs it.
                let held_bytes = slice.map_or(0, buffer_bytes);
                self.connections[key].held_bytes -= u64::from(held_bytes);
                if is_over {
                    self.reply_result(piece.request, turn);
                }
            }
        }
        if is_over {
            self.forget(piece.request);
            self.leave_if_done(key, turn);
            self.bury(key, turn);
        }
    }

    fn answer_chunk<C: Core>(&mut self, piece: Piece, slice: Slice, is_over: bool, turn: &mut Turn<'_, C>) {
        let request = &self.requests[piece.request];
        let connection = &mut self.connections[request.connection];
        if request.errno.is_some() || connection.is_closed() {
            self.drop_data(request.connection, slice, turn);
            if is_over {
                self.reply_result(piece.request, turn);
            }
            return;
        }
        let session = connection.session.expect("a request has a session");
        let head = data_head(session, request.cookie, piece.offset_bytes, slice.len_bytes, is_over);
        connection.outbox.push_head(&head);
        connection.outbox.push_payload(slice, buffer_bytes(slice));
        let (key, arrival) = (request.connection, request.arrival);
        if is_over {
            turn.driver.offers.answered(arrival, turn.driver.now);
        }
        self.note_outgoing(key);
    }

    fn answer_whole<C: Core>(&mut self, piece: Piece, is_over: bool, turn: &mut Turn<'_, C>) {
        let request = &mut self.requests[piece.request];
        let Delivery::Whole(pieces) = &mut request.delivery else { return };
        pieces.arrived(piece.offset_bytes);
        if !is_over {
            return;
        }
        let slices = pieces.take_arrived();
        let connection = &mut self.connections[request.connection];
        let key = request.connection;
        if request.errno.is_some() || connection.is_closed() {
            slices.into_iter().for_each(|slice| self.drop_data(key, slice, turn));
            return self.reply_result(piece.request, turn);
        }
        let session = connection.session.expect("a request has a session");
        connection.outbox.push_head(&data_head(session, request.cookie, request.offset_bytes, 0, true));
        for slice in slices {
            connection.outbox.push_payload(slice, buffer_bytes(slice));
        }
        turn.driver.offers.answered(request.arrival, turn.driver.now);
        self.note_outgoing(key);
    }

    fn answer_stream<C: Core>(&mut self, piece: Piece, is_over: bool, turn: &mut Turn<'_, C>) {
        let request = &mut self.requests[piece.request];
        let Delivery::Stream(pieces) = &mut request.delivery else { return };
        pieces.arrived(piece.offset_bytes);
        let key = request.connection;
        let connection = &mut self.connections[key];
        if request.errno.is_some() || connection.is_closed() {
            let slices = if is_over { pieces.take_arrived() } else { Vec::new() };
            let head_sent = request.head_sent;
            slices.into_iter().for_each(|slice| self.drop_data(key, slice, turn));
            if head_sent {
                // The client was told that it went well: the connection is all there is to take back.
                self.connections[key].head = None;
                self.close(key, turn);
            } else if is_over {
                self.reply_result(piece.request, turn);
            }
            return;
        }
        let session = connection.session.expect("a request has a session");
        while let Some(slice) = pieces.next() {
            if !request.head_sent {
                request.head_sent = true;
                connection.outbox.push_head(&data_head(
                    session,
                    request.cookie,
                    request.offset_bytes,
                    0,
                    true,
                ));
            }
            connection.outbox.push_payload(slice, buffer_bytes(slice));
        }
        if is_over {
            turn.driver.offers.answered(request.arrival, turn.driver.now);
        }
        self.note_outgoing(key);
    }

    /// Gives back the memory of a read whose data is not sent.
    pub(super) fn drop_data<C: Core>(&mut self, key: usize, slice: Slice, turn: &mut Turn<'_, C>) {
        self.connections[key].held_bytes -= u64::from(buffer_bytes(slice));
        turn.release(slice);
    }

    /// Answers a request that brings no data, or failed.
    fn reply_result<C: Core>(&mut self, request: usize, turn: &mut Turn<'_, C>) {
        let request = &self.requests[request];
        let key = request.connection;
        let connection = &mut self.connections[key];
        if connection.is_closed() {
            return;
        }
        let session = connection.session.expect("a request has a session");
        let result = request.errno.map_or(Ok(()), Err);
        let kind = request.kind;
        connection.outbox.push_head(&completion(session, kind == Kind::Read, request.cookie, result));
        turn.driver.offers.answered(request.arrival, turn.driver.now);
        self.note_outgoing(key);
    }

    /// Remembers that a connection has something to send.
    pub(super) fn note_outgoing(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        if !connection.outgoing {
            connection.outgoing = true;
            self.outgoing.push(key);
        }
    }

    /// Sends the replies that are ready: one message for each connection.
    pub(super) fn send_all<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
        for key in std::mem::take(&mut self.outgoing) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.outgoing = false;
            if connection.is_closed() || !connection.wants_send() {
                continue;
            }
            if matches!(connection.secrecy, Secrecy::Tls(_)) {
                self.begin_seal(key, turn);
                continue;
            }
            let socket = connection.raw_fd();
            let (message, is_long) = connection.outbox.begin(&turn.driver.pool);
            let offload = is_long && turn.is_alone();
            let token = self.token(super::door::Waiting::Send(key));
            // SAFETY: message and vectors are boxed in the connection, which stays until the send has come
            // back; they point into the batch being sent, which does not change meanwhile, and into
            // buffers whose references the batch holds.
            unsafe { turn.backend.push(token, Operation::Send { socket, message, offload }) };
        }
    }

    /// A send has moved something, or failed.
    pub(super) fn sent<C: Core>(&mut self, key: usize, result: i32, turn: &mut Turn<'_, C>) {
        let connection = &mut self.connections[key];
        let count = usize::try_from(result).unwrap_or(0);
        // Over TLS a send may have been of nothing in it.
        if connection.outbox.in_flight() {
            connection.held_bytes -= connection.outbox.sent(count, &mut turn.driver.pool);
        }
        connection.moved = turn.driver.now;
        if connection.is_closed() {
            return self.bury(key, turn);
        }
        if result <= 0 && !matches!(-result, libc::EAGAIN | libc::EINTR) {
            return self.close(key, turn);
        }
        if connection.wants_send() {
            self.note_outgoing(key);
        }
        self.begin_tls(key, turn);
        self.leave_if_done(key, turn);
    }

    /// Closes a connection that has taken its leave and got all its replies.
    pub(super) fn leave_if_done<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let connection = &self.connections[key];
        if matches!(connection.phase, Phase::Leaving)
            && connection.requests == 0
            && connection.outbox.is_empty()
            && !self.says_goodbye(key)
        {
            self.close(key, turn);
        }
    }
}
