//! The NBD door: listeners, connections, and the way of a request from the socket to the core and back.
//! Each reactor has one; only the first one's has listeners, and gives clients away to the others.
//!
//! Bytes are taken from a socket only when there is memory for what they announce: a client
//! that sends more waits, and nobody else does. No client holds more than a quarter of the doors'
//! memory, nor more than what is left for the others.

use super::connection::{Connection, Phase, REQUESTS_MAX};
use super::input::{OFFLOAD_BYTES_MIN, STRAIGHT_BYTES_MIN};
use super::listener::Listener;
use super::requests::{ClientRequest, Delivery, InOrder, Kind};
use crate::doors::nbd::wire::{
    Command, Outcome, REQUEST_BYTES, Session, Verdict, completion, decode_request, validate,
};
use crate::reactor::backend::{Operation, Token};
use crate::reactor::driver::{Core, Turn};
use crate::reactor::wakeups::Order;
use engine::limits::REQUEST_BYTES_MAX;
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SectorRange};
use slab::Slab;
use std::os::fd::{FromRawFd, OwnedFd};

/// Connections at the most; one more is closed at once.
const CONNECTIONS_MAX: usize = 256;
/// How long the door waits after the system had no descriptor for a connection.
const ACCEPT_PAUSE_NS: u64 = 100 * Nanos::MILLISECOND;
/// How long a client may wait for its first memory before others have to give up theirs.
const STARVING_NS_MAX: u64 = Nanos::SECOND;
/// How long a client may hold memory and do nothing, when others wait for it.
const STALL_NS_MAX: u64 = 5 * Nanos::SECOND;
/// Replies without payload that may wait to be sent; a client that takes none is not listened to.
const BACKLOG_BYTES_MAX: usize = 64 * 1024;
/// One client's share of the doors' memory: one part in so many.
pub(super) const SHARE: u64 = 4;

/// What is never cut, wherever it begins.
const PIECE_BYTES_MIN: u64 = REQUEST_BYTES_MAX as u64 - BLOCK_BYTES;

/// What the door waits for: the kinds of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Accept(usize),
    Receive(usize),
    Send(usize),
}

/// The door.
pub(crate) struct NbdDoor {
    pub(super) listeners: Vec<Listener>,
    /// Whether an accept is under way, by listener.
    pub(super) accepting: Vec<bool>,
    pub(super) accept_again: Option<Nanos>,
    pub(super) open: bool,
    pub(super) connections: Slab<Box<Connection>>,
    pub(super) requests: Slab<ClientRequest>,
    /// Connections that wait for memory or for replies.
    pub(super) blocked: Vec<usize>,
    /// Connections with something to send.
    pub(super) outgoing: Vec<usize>,
    pub(super) handshakes: usize,
    /// Since when some client has waited for its first memory, or when that was last looked after.
    pub(super) starving: Option<Nanos>,
    /// Makes a token out of what is waited for.
    pub(super) token: fn(Waiting) -> Token,
    /// Whether bytes came from a client since somebody asked.
    pub(super) has_moved: bool,
}

/// How far a request got.
pub(super) enum Progress {
    /// All of it was handed on.
    Done,
    /// More bytes are needed from the client.
    Starved,
    /// Memory or replies are needed.
    Blocked,
}

impl NbdDoor {
    pub(crate) fn new(listeners: Vec<Listener>, token: fn(Waiting) -> Token) -> NbdDoor {
        let accepting = vec![false; listeners.len()];
        NbdDoor {
            accept_again: (!listeners.is_empty()).then_some(Nanos(0)),
            listeners,
            accepting,
            open: true,
            connections: Slab::new(),
            requests: Slab::with_capacity(1024),
            blocked: Vec::new(),
            outgoing: Vec::new(),
            handshakes: 0,
            starving: None,
            token,
            has_moved: false,
        }
    }

    /// Does what is due by now.
    pub(crate) fn tick<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
        if self.accept_again.is_some_and(|again| again <= turn.driver.now) {
            self.accept_again = None;
            for listener in 0..self.listeners.len() {
                self.accept(listener, turn);
            }
        }
        if self.handshakes > 0 {
            let late: Vec<usize> = self
                .connections
                .iter()
                .filter(|(_, connection)| {
                    matches!(connection.phase, Phase::Handshake { deadline, .. } if deadline <= turn.driver.now)
                })
                .map(|(key, _)| key)
                .collect();
            late.into_iter().for_each(|key| self.close(key, turn));
        }
        for key in std::mem::take(&mut self.blocked) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.blocked = false;
                self.proceed(key, turn);
            }
        }
        if !self.blocked.is_empty() || self.starving.is_some() {
            self.relieve(turn);
        }
    }

    /// While a client can get no memory at all, those that hold some and do nothing have to go, at all doors.
    fn relieve<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
        if !self.connections.iter().any(|(_, connection)| connection.starves()) {
            self.starving = None;
            return;
        }
        let now = turn.driver.now;
        if now.since(*self.starving.get_or_insert(now)) < STARVING_NS_MAX {
            return;
        }
        self.starving = Some(now);
        turn.driver.wakeups.order_others(turn.reactor, || Order::Relieve);
        self.close_stalled(turn);
    }

    /// Closes the connections that hold memory and do nothing.
    fn close_stalled<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
        let then = Nanos(turn.driver.now.0.saturating_sub(STALL_NS_MAX));
        let stalled = self.connections.iter().filter(|(_, connection)| connection.stalls_since(then));
        let stalled: Vec<usize> = stalled.map(|(key, _)| key).collect();
        stalled.into_iter().for_each(|key| self.close(key, turn));
    }

    /// When [`NbdDoor::tick`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let handshakes = if self.handshakes == 0 {
            None
        } else {
            let deadlines = self.connections.iter().filter_map(|(_, connection)| match connection.phase {
                Phase::Handshake { deadline, .. } => Some(deadline),
                _ => None,
            });
            deadlines.min()
        };
        let starving = self.starving.map(|since| since.plus(STARVING_NS_MAX));
        [handshakes, self.accept_again, starving].into_iter().flatten().min()
    }

    fn accept<C: Core>(&mut self, listener: usize, turn: &mut Turn<'_, C>) {
        if !self.open || self.accepting[listener] {
            return;
        }
        self.accepting[listener] = true;
        let operation = Operation::Accept { socket: self.listeners[listener].raw_fd() };
        // SAFETY: an accept that asks for no address points to nothing.
        unsafe { turn.backend.push((self.token)(Waiting::Accept(listener)), operation) };
    }

    /// A listener has a connection, or an error.
    pub(crate) fn accepted<C: Core>(&mut self, listener: usize, result: i32, turn: &mut Turn<'_, C>) {
        self.accepting[listener] = false;
        if result < 0 {
            // Out of descriptors, or the connection went away while it waited.
            self.accept_again = Some(turn.driver.now.plus(ACCEPT_PAUSE_NS));
            return;
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(result) };
        if self.open && turn.driver.wakeups.clients() < CONNECTIONS_MAX {
            self.listeners[listener].prepare(&socket);
            match turn.driver.wakeups.admit() {
                this if this == turn.reactor => self.adopt(socket, turn),
                other => turn.driver.wakeups.order(other, Order::Adopt(socket)),
            }
        }
        self.accept(listener, turn);
    }

    /// Serves a client, which was admitted to this reactor's seat.
    fn adopt<C: Core>(&mut self, socket: OwnedFd, turn: &mut Turn<'_, C>) {
        if !self.open {
            return turn.driver.wakeups.left(turn.reactor);
        }
        let connection = Box::new(Connection::new(socket, turn.driver.now));
        let key = self.connections.insert(connection);
        self.handshakes += 1;
        self.note_outgoing(key);
        self.listen(key, turn);
    }

    /// Does what another reactor wants done.
    pub(crate) fn obey<C: Core>(&mut self, order: Order, turn: &mut Turn<'_, C>) {
        match order {
            Order::Adopt(socket) => self.adopt(socket, turn),
            Order::Disconnect { place, receipt } => {
                self.disconnect(place, turn);
                drop(receipt);
            }
            Order::Shut { receipt } => {
                self.shut(turn);
                drop(receipt);
            }
            Order::Relieve => self.close_stalled(turn),
            Order::Look => {}
        }
    }

    /// Closes a connection. Its memory goes back when the core and the kernel are done with it.
    pub(super) fn close<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let connection = &mut self.connections[key];
        if connection.is_closed() {
            return;
        }
        if matches!(connection.phase, Phase::Handshake { .. }) {
            self.handshakes -= 1;
        }
        connection.phase = Phase::Closed;
        connection.shut();
        if let Some(head) = connection.head {
            self.requests[head].cut_short();
            if self.requests[head].outstanding == 0 {
                self.forget(head);
            } else {
                self.connections[key].head = None;
            }
        }
        self.bury(key, turn);
    }

    /// Removes a closed connection that nothing refers to any more.
    pub(super) fn bury<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.is_closed() {
            return;
        }
        if !connection.input.in_flight()
            && let Some(arriving) = connection.arriving.take()
        {
            turn.release(arriving.slice);
        }
        if !connection.outbox.in_flight() {
            connection.outbox.clear(&mut turn.driver.pool);
        }
        if connection.is_done() {
            self.connections.remove(key);
            turn.driver.wakeups.left(turn.reactor);
        }
    }

    pub(super) fn forget(&mut self, key: usize) {
        let request = self.requests.remove(key);
        let connection = &mut self.connections[request.connection];
        connection.requests -= 1;
        if connection.head == Some(key) {
            connection.head = None;
        }
    }

    /// Takes no new connections and closes those there are.
    pub(crate) fn shut<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
        self.open = false;
        self.accept_again = None;
        self.listeners.iter().for_each(Listener::shut);
        let all: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
        all.into_iter().for_each(|key| self.close(key, turn));
    }

    /// Whether a client waits for memory or replies.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    fn disconnect<C: Core>(&mut self, place: usize, turn: &mut Turn<'_, C>) {
        let concerned: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.session.is_some_and(|session| session.export == place))
            .map(|(key, _)| key)
            .collect();
        concerned.into_iter().for_each(|key| self.close(key, turn));
    }

    /// Whether the next bytes can be expected at once: the only client works with one request at a time,
    /// or is in the middle of sending a payload. Asked again, it needs new bytes to say so again.
    pub(crate) fn expects_bytes_soon(&mut self) -> bool {
        let has_moved = std::mem::take(&mut self.has_moved);
        let mut connections = self.connections.iter();
        let (Some((_, only)), None) = (connections.next(), connections.next()) else { return false };
        has_moved && only.input.in_flight() && (only.requests <= 1 || only.arriving.is_some())
    }

    /// Begins a receive if the connection wants bytes.
    fn listen<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
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
        let token = (self.token)(Waiting::Receive(key));
        // SAFETY: the message and its vectors are boxed in the connection, which stays until the receive has
        // come back; they point into its input, and into a buffer whose reference is in `arriving`.
        unsafe { turn.backend.push(token, Operation::Receive { socket, message, offload }) };
    }

    /// A receive has brought something, or the end.
    pub(crate) fn received<C: Core>(&mut self, key: usize, result: i32, turn: &mut Turn<'_, C>) {
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
        match -result {
            libc::EAGAIN | libc::EINTR => self.listen(key, turn),
            _ if result <= 0 => self.close(key, turn),
            _ => self.proceed(key, turn),
        }
    }

    /// Goes through what is there as far as it can, then listens for more.
    fn proceed<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
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
                    if connection.requests >= REQUESTS_MAX {
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
            Some(Outcome::Close) => {
                connection.phase = Phase::Leaving;
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
                let is_read = raw.command == crate::doors::nbd::wire::protocol::CMD_READ;
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
        let delivery = delivery(kind, len_bytes, session, turn.driver.pool.door_quota_bytes());
        connection.requests += 1;
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
            started: turn.driver.now,
            delivery,
            head_sent: false,
        });
        self.connections[key].head = Some(request);
        true
    }
}

/// How the data of a read is to go out.
fn delivery(kind: Kind, len_bytes: u64, session: Session, quota_bytes: u64) -> Delivery {
    if kind != Kind::Read || session.structured || len_bytes <= PIECE_BYTES_MIN {
        Delivery::Chunks
    } else if len_bytes <= quota_bytes / SHARE / 2 {
        Delivery::Whole(InOrder::default())
    } else {
        Delivery::Stream(InOrder::default())
    }
}
