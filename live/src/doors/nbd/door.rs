//! NBD door of a reactor: listeners, connections, and what happens to them.
//! Each reactor has one; only the first one's has listeners, and gives clients away to the others.
//!
//! Bytes are taken from a socket only when there is memory for what they announce: a client
//! that sends more waits, and nobody else does ([`crate::doors::share`]).

use super::connection::{Connection, Phase};
use super::listener::{Listener, prepare_pair};
use super::requests::ClientRequest;
use crate::doors::{Door, DoorNumber, Newcomer};
use crate::kernel::KernelClient;
use crate::nbd::wire::Session;
use crate::reactor::backend::{Operation, Token};
use crate::reactor::driver::{Asker, Core, Piece, Turn};
use crate::reactor::wakeups::Order;
use crate::server::ServerNotice;
use engine::effect::Errno;
use engine::units::Nanos;
use slab::Slab;
use std::os::fd::{FromRawFd, OwnedFd};

/// Longest wait of a new client for a place.
const PLACE_NS_MAX: u64 = 2 * Nanos::SECOND;
/// Pause between two looks for a place.
const PLACE_PAUSE_NS: u64 = 20 * Nanos::MILLISECOND;
/// Time that a client has to ask for something while others wait for its place.
const IDLE_NS_MAX: u64 = Nanos::SECOND;
/// Clients of one door that lose their places at once.
const IDLE_CLOSED_MAX: usize = 16;
/// Pause after the system had no descriptor for a connection.
const ACCEPT_PAUSE_NS: u64 = 100 * Nanos::MILLISECOND;
/// Longest wait of a client for its first memory; then others have to give up theirs.
const STARVING_NS_MAX: u64 = Nanos::SECOND;
/// Longest time for which a client may hold memory and do nothing while others wait for memory.
const STALL_NS_MAX: u64 = 5 * Nanos::SECOND;

/// Operation that the door has given to the backend, by listener or connection; packed into the event of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Accept(usize),
    Receive(usize),
    Send(usize),
    /// A receive of records of TLS, which are to be opened.
    Records(usize),
    /// A cipher.
    Sealed(usize),
    /// A send of what it has sealed.
    SealedSend(usize),
}

impl Waiting {
    const KINDS: u64 = 6;

    fn event(self) -> u64 {
        let (kind, key) = match self {
            Waiting::Accept(key) => (0, key),
            Waiting::Receive(key) => (1, key),
            Waiting::Send(key) => (2, key),
            Waiting::Records(key) => (3, key),
            Waiting::Sealed(key) => (4, key),
            Waiting::SealedSend(key) => (5, key),
        };
        key as u64 * Waiting::KINDS + kind
    }

    fn of(event: u64) -> Waiting {
        let key = usize::try_from(event / Waiting::KINDS).expect("a key of ours");
        match event % Waiting::KINDS {
            0 => Waiting::Accept(key),
            1 => Waiting::Receive(key),
            2 => Waiting::Send(key),
            3 => Waiting::Records(key),
            4 => Waiting::Sealed(key),
            _ => Waiting::SealedSend(key),
        }
    }
}

/// NBD door of one reactor.
pub(crate) struct NbdDoor {
    pub(super) listeners: Vec<Listener>,
    /// Whether an accept is under way, by listener.
    pub(super) accepting: Vec<bool>,
    pub(super) accept_again: Option<Nanos>,
    pub(super) open: bool,
    /// A client for whom there is no place yet, and the end of its wait. Nobody else is accepted meanwhile.
    newcomer: Option<(Newcomer, Nanos)>,
    pub(super) connections: Slab<Box<Connection>>,
    pub(super) requests: Slab<ClientRequest>,
    /// Connections that wait for memory or for replies.
    pub(super) blocked: Vec<usize>,
    /// Connections with something to send.
    pub(super) outgoing: Vec<usize>,
    pub(super) handshakes: usize,
    /// Time since which some client waits for its first memory, or of the last relief by others' memory.
    pub(super) starving: Option<Nanos>,
    pub(super) number: DoorNumber,
    /// Whether bytes came from a client since [`Door::expects_bytes_soon`].
    pub(super) has_moved: bool,
}

/// Outcome of handing on a request.
pub(super) enum Progress {
    /// The request was handed on wholly.
    Done,
    /// More bytes are needed from the client.
    Starved,
    /// Memory or replies are needed.
    Blocked,
}

impl NbdDoor {
    pub(crate) fn new(number: DoorNumber, listeners: Vec<Listener>) -> NbdDoor {
        let accepting = vec![false; listeners.len()];
        NbdDoor {
            accept_again: (!listeners.is_empty()).then_some(Nanos(0)),
            listeners,
            accepting,
            open: true,
            newcomer: None,
            connections: Slab::new(),
            requests: Slab::with_capacity(1024),
            blocked: Vec::new(),
            outgoing: Vec::new(),
            handshakes: 0,
            starving: None,
            number,
            has_moved: false,
        }
    }

    /// Closes idle connections that hold memory, at all doors, while a client can get no memory at all.
    fn relieve_starving<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
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

    pub(super) fn token(&self, waiting: Waiting) -> Token {
        self.number.token(waiting.event())
    }

    fn accept<C: Core>(&mut self, listener: usize, turn: &mut Turn<'_, C>) {
        if !self.open || self.accepting[listener] || self.newcomer.is_some() {
            return;
        }
        self.accepting[listener] = true;
        let operation = Operation::Accept { socket: self.listeners[listener].raw_fd() };
        // SAFETY: an accept that asks for no address points to nothing.
        unsafe { turn.backend.push(self.token(Waiting::Accept(listener)), operation) };
    }

    /// A listener has a connection, or an error.
    fn accepted<C: Core>(&mut self, listener: usize, result: i32, turn: &mut Turn<'_, C>) {
        self.accepting[listener] = false;
        if result < 0 {
            // Out of descriptors, or the connection went away while it waited.
            self.accept_again = Some(turn.driver.now.plus(ACCEPT_PAUSE_NS));
            return;
        }
        // SAFETY: the kernel has just made this descriptor for this call, and no other owner exists.
        let socket = unsafe { OwnedFd::from_raw_fd(result) };
        if self.open {
            self.listeners[listener].prepare(&socket);
            let wants_tls = turn.driver.tls.is_some() && self.listeners[listener].is_tcp();
            let client = Newcomer { socket, wants_tls };
            if turn.driver.wakeups.clients() < turn.driver.limits.clients {
                self.admit(client, turn);
            } else if self.newcomer.is_none() {
                self.newcomer = Some((client, turn.driver.now.plus(PLACE_NS_MAX)));
                self.accept_again = Some(turn.driver.now);
            }
        }
        self.accept(listener, turn);
    }

    /// Gives a client to the reactor that has the fewest.
    fn admit<C: Core>(&mut self, client: Newcomer, turn: &mut Turn<'_, C>) {
        match turn.driver.wakeups.admit() {
            this if this == turn.reactor => self.adopt(client, turn),
            other => turn.driver.wakeups.order(other, Order::Adopt { door: self.number, client }),
        }
    }

    /// Gives the new client a place, or makes room, or sends it away.
    fn place_newcomer<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
        let Some((client, end)) = self.newcomer.take() else { return };
        let (clients, now) = (turn.driver.wakeups.clients(), turn.driver.now);
        if clients < turn.driver.limits.clients {
            self.admit(client, turn);
        } else if now < end {
            self.newcomer = Some((client, end));
            self.accept_again = Some(now.plus(PLACE_PAUSE_NS));
            turn.driver.wakeups.order_all(|| Order::MakeRoom);
        } else {
            turn.driver.turned_away.sent_away += 1;
            turn.driver.notices.push(ServerNotice::TooManyClients { clients });
        }
    }

    /// Closes a connection. Its memory goes back when the core and the kernel are done with it.
    pub(super) fn close<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        if self.connections[key].is_closed() {
            return;
        }
        self.tell_refusal(key, turn);
        let connection = &mut self.connections[key];
        if matches!(connection.phase, Phase::Handshake { .. }) {
            self.handshakes -= 1;
        }
        connection.phase = Phase::Closed;
        connection.shut();
        if let Some(head) = connection.head {
            self.requests[head].cut_short();
            if self.requests[head].outstanding == 0 {
                // No answer comes after which what has arrived would go.
                let arrived = self.requests[head].delivery.take_arrived();
                arrived.into_iter().for_each(|slice| self.drop_data(key, slice, turn));
                self.forget(head);
            } else {
                self.connections[key].head = None;
            }
        }
        let connection = &self.connections[key];
        if let Some(session) = connection.session.filter(|_| connection.requests > 0) {
            // Nobody waits for them any more, and the volume's other clients would.
            let (this, number, requests) = (turn.reactor, self.number, &self.requests);
            let volume = turn.driver.offers.volume(session.export);
            turn.driver.withdraw(volume, |asker| match asker {
                Asker::Door { reactor, door, piece } => {
                    *reactor == this && *door == number && requests[piece.request].connection == key
                }
                Asker::Control(_) => false,
            });
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
}

impl<C: Core> Door<C> for NbdDoor {
    fn tick(&mut self, turn: &mut Turn<'_, C>) {
        if self.accept_again.is_some_and(|again| again <= turn.driver.now) {
            self.accept_again = None;
            self.place_newcomer(turn);
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
            self.relieve_starving(turn);
        }
    }

    fn deadline(&self) -> Option<Nanos> {
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

    fn finished(&mut self, event: u64, result: i32, turn: &mut Turn<'_, C>) {
        match Waiting::of(event) {
            Waiting::Accept(listener) => self.accepted(listener, result, turn),
            Waiting::Receive(key) => self.received(key, result, turn),
            Waiting::Send(key) => self.sent(key, result, turn),
            Waiting::Records(key) => self.records_received(key, result, turn),
            Waiting::Sealed(key) => self.sealed(key, result, turn),
            Waiting::SealedSend(key) => self.sealed_sent(key, result, turn),
        }
    }

    fn answered(&mut self, piece: Piece, result: Result<(), Errno>, turn: &mut Turn<'_, C>) {
        self.take_answer(piece, result, turn);
    }

    fn send(&mut self, turn: &mut Turn<'_, C>) {
        self.send_all(turn);
    }

    fn adopt(&mut self, client: Newcomer, turn: &mut Turn<'_, C>) {
        if !self.open {
            return turn.driver.wakeups.left(turn.reactor);
        }
        let connection = Box::new(Connection::new(client, turn.driver.now));
        let key = self.connections.insert(connection);
        self.handshakes += 1;
        self.note_outgoing(key);
        self.listen(key, turn);
    }

    fn serve(&mut self, client: KernelClient, place: usize, turn: &mut Turn<'_, C>) {
        let (true, KernelClient::Socket(socket)) = (self.open, client) else {
            return turn.driver.wakeups.left(turn.reactor);
        };
        prepare_pair(&socket);
        // The kernel understands simple replies alone.
        let session = Session { export: place, structured: false };
        let connection = Box::new(Connection::without_handshake(socket, session, turn.driver.now));
        let key = self.connections.insert(connection);
        self.listen(key, turn);
    }

    fn disconnect(&mut self, place: usize, turn: &mut Turn<'_, C>) {
        let concerned: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.session.is_some_and(|session| session.export == place))
            .map(|(key, _)| key)
            .collect();
        concerned.into_iter().for_each(|key| self.close(key, turn));
    }

    fn relieve(&mut self, turn: &mut Turn<'_, C>) {
        self.close_stalled(turn);
    }

    fn make_room(&mut self, turn: &mut Turn<'_, C>) {
        let then = Nanos(turn.driver.now.0.saturating_sub(IDLE_NS_MAX));
        let idle = self.connections.iter().filter(|(_, connection)| connection.idles_since(then));
        let mut idle: Vec<(Nanos, usize)> = idle.map(|(key, connection)| (connection.came, key)).collect();
        idle.sort_unstable();
        idle.into_iter().take(IDLE_CLOSED_MAX).for_each(|(_, key)| self.close(key, turn));
    }

    fn shut(&mut self, turn: &mut Turn<'_, C>) {
        self.open = false;
        self.newcomer = None;
        self.accept_again = None;
        self.listeners.iter().for_each(Listener::shut);
        let all: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
        all.into_iter().for_each(|key| self.close(key, turn));
    }

    fn hang_up(&mut self) {
        self.newcomer = None;
        self.listeners.drain(..).for_each(|listener| listener.shut());
        self.connections.iter().for_each(|(_, connection)| connection.shut());
    }

    fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    fn expects_bytes_soon(&mut self) -> bool {
        let has_moved = std::mem::take(&mut self.has_moved);
        let mut connections = self.connections.iter();
        let (Some((_, only)), None) = (connections.next(), connections.next()) else { return false };
        has_moved && only.input.in_flight() && (only.requests <= 1 || only.arriving.is_some())
    }
}
