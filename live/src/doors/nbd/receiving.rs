//! Receiving: bytes from a client's socket become a handshake, then requests.

use super::connection::{Connection, Phase};
use super::door::{NbdDoor, Progress, Waiting};
use super::input::{OFFLOAD_BYTES_MIN, STRAIGHT_BYTES_MIN};
use super::requests::{ClientRequest, Delivery, InOrder};
use super::secured::Secrecy;
use crate::doors::pieces::Kind;
use crate::nbd::wire::protocol::CMD_READ;
use crate::nbd::wire::{
    Command, Outcome, REQUEST_BYTES, Session, Verdict, completion, decode_request, validate,
};
use crate::reactor::backend::Operation;
use crate::reactor::driver::{Core, Turn};
use engine::limits::REQUEST_BYTES_MAX;
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, SectorRange};

/// Replies without payload that may wait to be sent; a client that takes none is not listened to.
const BACKLOG_BYTES_MAX: usize = 64 * 1024;
/// Longest request that is never cut, wherever it begins.
const PIECE_BYTES_MIN: u64 = REQUEST_BYTES_MAX as u64 - BLOCK_BYTES;

impl NbdDoor {
    /// Begins a receive if the connection wants bytes.
    pub(super) fn listen<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.listens() || connection.input.in_flight() {
            return;
        }
        let straight = connection
            .arriving
            .map(|arriving| arriving.rest())
            .filter(|rest| rest.len_bytes >= STRAIGHT_BYTES_MIN);
        let is_long = straight.is_some_and(|rest| rest.len_bytes >= OFFLOAD_BYTES_MIN);
        let offload = is_long && turn.is_alone();
        let straight = straight.map(|rest| (turn.driver.pool.pointer(rest), rest.len_bytes as usize));
        let socket = connection.raw_fd();
        let message = connection.input.begin(straight);
        if matches!(connection.secrecy, Secrecy::Tls(_)) {
            return self.listen_secured(key, message, turn);
        }
        let token = self.token(Waiting::Receive(key));
        // SAFETY: the message and its vectors are boxed in the connection, which stays until the receive has
        // come back; they point into its input, and into a buffer whose reference is in `arriving`.
        unsafe { turn.backend.push(token, Operation::Receive { socket, message, offload }) };
    }

    /// A receive has brought something, or the end.
    pub(super) fn received<C: Core>(&mut self, key: usize, result: i32, turn: &mut Turn<'_, C>) {
        let connection = &mut self.connections[key];
        let count = usize::try_from(result).unwrap_or(0);
        let straight = match &mut connection.arriving {
            Some(arriving) if arriving.rest().len_bytes >= STRAIGHT_BYTES_MIN => {
                let straight = count.min(arriving.rest().len_bytes as usize);
                arriving.filled += u32::try_from(straight).expect("at most the rest");
                straight
            }
            _ => 0,
        };
        connection.input.received(count - straight);
        connection.moved = turn.driver.now;
        self.has_moved = true;
        if connection.is_closed() {
            return self.bury(key, turn);
        }
        if self.after_open(key, result, turn) {
            return;
        }
        match -result {
            libc::EAGAIN | libc::EINTR => self.listen(key, turn),
            _ if result <= 0 => self.close(key, turn),
            _ => self.proceed(key, turn),
        }
    }

    /// Takes as much of the received bytes as possible, then listens for more.
    pub(super) fn proceed<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            // A buffer that is being received into is not looked at.
            if connection.input.in_flight() {
                return;
            }
            if connection.outbox.backlog_bytes() > BACKLOG_BYTES_MAX {
                return self.block(key);
            }
            if connection.skip_bytes > 0 {
                let there = connection.input.bytes().len() as u64;
                let count = there.min(connection.skip_bytes);
                connection.skip_bytes -= count;
                connection.input.consume(usize::try_from(count).expect("it was there"));
                if connection.skip_bytes > 0 {
                    break;
                }
            }
            if let Some(head) = connection.head {
                match self.advance(key, head, turn) {
                    Progress::Done => self.connections[key].head = None,
                    Progress::Starved => break,
                    Progress::Blocked => return self.block(key),
                }
                continue;
            }
            let again = match connection.phase {
                Phase::Handshake { .. } => self.shake(key, turn),
                Phase::Serving => {
                    if connection.input.bytes().len() < REQUEST_BYTES {
                        break;
                    }
                    if connection.requests >= turn.driver.limits.requests {
                        return self.block(key);
                    }
                    self.take_request(key, turn)
                }
                Phase::Leaving | Phase::Closed => return,
            };
            if !again {
                break;
            }
        }
        self.listen(key, turn);
    }

    fn block(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        if !connection.blocked {
            connection.blocked = true;
            self.blocked.push(key);
        }
    }

    /// Feeds the handshake. `true` if there may be more to do.
    fn shake<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) -> bool {
        let connection = &mut self.connections[key];
        let Connection { phase: Phase::Handshake { machine, .. }, input, outbox, .. } = &mut **connection
        else {
            return false;
        };
        let mut step = None;
        outbox.push_with(|output| {
            step = Some(machine.feed(input.bytes(), turn.driver.offers.exports(), output))
        });
        let step = step.expect("it was fed");
        input.consume(step.consumed);
        match step.outcome {
            None => {}
            Some(Outcome::Serve(session)) => {
                connection.phase = Phase::Serving;
                connection.session = Some(session);
                self.handshakes -= 1;
            }
            Some(Outcome::StartTls) => {
                self.prepare_tls(key, turn);
                if self.connections.contains(key) {
                    self.note_outgoing(key);
                }
                return false;
            }
            Some(Outcome::Close) => {
                self.tell_refusal(key, turn);
                self.connections[key].phase = Phase::Leaving;
                self.handshakes -= 1;
            }
        }
        self.note_outgoing(key);
        self.leave_if_done(key, turn);
        step.outcome.is_some()
    }

    /// Takes the next request from the input. `true` if there may be more to do.
    fn take_request<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) -> bool {
        let connection = &mut self.connections[key];
        let session = connection.session.expect("the handshake is over");
        let header: [u8; REQUEST_BYTES] =
            connection.input.bytes()[..REQUEST_BYTES].try_into().expect("the length was checked");
        connection.input.consume(REQUEST_BYTES);
        connection.has_asked = true;
        let Some(export) = &turn.driver.offers.exports()[session.export] else {
            self.close(key, turn);
            return false;
        };
        let Ok(raw) = decode_request(&header) else {
            self.close(key, turn);
            return false;
        };
        let (kind, range, fua) = match validate(&raw, export) {
            Verdict::Accept(Command::Read { range }) => (Kind::Read, range, false),
            Verdict::Accept(Command::Write { range, fua }) => (Kind::Write, range, fua),
            Verdict::Accept(Command::Flush) => (Kind::Flush, SectorRange { start: 0, sectors: 0 }, false),
            Verdict::Accept(Command::Trim { range, fua }) => (Kind::Trim, range, fua),
            Verdict::Accept(Command::WriteZeroes { range, fua }) => (Kind::WriteZeroes, range, fua),
            Verdict::Reject { errno, skip_payload_bytes } => {
                connection.skip_bytes = u64::from(skip_payload_bytes);
                let is_read = raw.command == CMD_READ;
                connection.outbox.push_head(&completion(session, is_read, raw.cookie, Err(errno)));
                self.note_outgoing(key);
                return true;
            }
            Verdict::Finish => {
                connection.phase = Phase::Leaving;
                self.leave_if_done(key, turn);
                return false;
            }
            Verdict::Disconnect => {
                self.close(key, turn);
                return false;
            }
        };
        let len_bytes = range.sectors * SECTOR_BYTES;
        let delivery = delivery(kind, len_bytes, session, turn.driver.client_share_bytes());
        connection.requests += 1;
        let now = turn.driver.now;
        let arrival = turn.driver.offers.arrived(session.export, kind, range, now);
        let request = self.requests.insert(ClientRequest {
            connection: key,
            cookie: raw.cookie,
            kind,
            fua,
            volume: turn.driver.offers.volume(session.export),
            offset_bytes: range.start * SECTOR_BYTES,
            len_bytes,
            issued_bytes: 0,
            outstanding: 0,
            errno: None,
            arrival,
            delivery,
            head_sent: false,
        });
        self.connections[key].head = Some(request);
        true
    }
}

/// Way in which the data of a read is to go out.
fn delivery(kind: Kind, len_bytes: u64, session: Session, share_bytes: u64) -> Delivery {
    if kind != Kind::Read || session.structured || len_bytes <= PIECE_BYTES_MIN {
        Delivery::Chunks
    } else if len_bytes <= share_bytes / 2 {
        Delivery::Whole(InOrder::default())
    } else {
        Delivery::Stream(InOrder::default())
    }
}
