//! Connections of NBD clients, as they are between two turns of the loop.

use super::input::{Arriving, Input};
use super::outbox::Outbox;
use super::secured::{Secrecy, peer_of};
use crate::doors::Newcomer;
use crate::nbd::wire::{Handshake, Session};
use engine::units::Nanos;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Longest handshake.
pub(crate) const HANDSHAKE_NS_MAX: u64 = 10 * Nanos::SECOND;

/// Stage of a connection.
pub(crate) enum Phase {
    /// The client agrees on an export.
    Handshake {
        machine: Box<Handshake>,
        /// The end of the time for it.
        deadline: Nanos,
    },
    /// Requests are served.
    Serving,
    /// The client has taken its leave, or must be told why it goes: the last replies are on their way.
    Leaving,
    /// Closed; the core or the kernel may still work on its requests.
    Closed,
}

/// A client's connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    pub phase: Phase,
    /// The session that the handshake agreed on, once it has.
    pub session: Option<Session>,
    pub input: Input,
    pub outbox: Outbox,
    pub secrecy: Secrecy,
    /// Its address, where the log may have to tell of it.
    pub peer: Option<SocketAddr>,
    /// The operator knows why it is refused.
    pub is_told: bool,
    /// The request whose pieces are not all handed on; bytes behind it on the socket wait.
    pub head: Option<usize>,
    /// The payload that the head is receiving.
    pub arriving: Option<Arriving>,
    /// Payload of a refused request that is thrown away.
    pub skip_bytes: u64,
    /// Requests that have not been answered.
    pub requests: usize,
    /// Memory of the pool that it holds.
    pub held_bytes: u64,
    /// Time at which it came.
    pub came: Nanos,
    /// Whether it has sent a request.
    pub has_asked: bool,
    /// Time at which bytes last went to or came from the client.
    pub moved: Nanos,
    /// The connection is on the list of those that wait for room.
    pub blocked: bool,
    /// The connection is on the list of those with something to send.
    pub outgoing: bool,
}

impl Connection {
    pub(crate) fn new(client: Newcomer, now: Nanos) -> Connection {
        let Newcomer { socket, wants_tls } = client;
        let mut outbox = Outbox::new();
        let mut machine = None;
        let begin = if wants_tls { Handshake::with_tls } else { Handshake::new };
        outbox.push_with(|output| machine = Some(begin(output)));
        let machine = Box::new(machine.expect("the greeting was made"));
        let phase = Phase::Handshake { machine, deadline: now.plus(HANDSHAKE_NS_MAX) };
        let peer = if wants_tls { peer_of(&socket) } else { None };
        Connection { outbox, peer, ..Connection::begun(socket, phase, now) }
    }

    /// A connection that is in this session from its beginning.
    pub(crate) fn without_handshake(socket: OwnedFd, session: Session, now: Nanos) -> Connection {
        // It keeps its place without having asked: nobody could connect it again from outside.
        Connection {
            session: Some(session),
            has_asked: true,
            ..Connection::begun(socket, Phase::Serving, now)
        }
    }

    fn begun(socket: OwnedFd, phase: Phase, now: Nanos) -> Connection {
        Connection {
            socket,
            phase,
            session: None,
            input: Input::new(),
            outbox: Outbox::new(),
            secrecy: Secrecy::None,
            peer: None,
            is_told: false,
            head: None,
            arriving: None,
            skip_bytes: 0,
            requests: 0,
            held_bytes: 0,
            came: now,
            has_asked: false,
            moved: now,
            blocked: false,
            outgoing: false,
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Ends all that waits on the socket.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Whether bytes from the client are wanted.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.phase, Phase::Handshake { .. } | Phase::Serving)
            && !self.blocked
            && !matches!(self.secrecy, Secrecy::Begins(_))
    }

    /// Whether it holds memory that only the client can free, and has done nothing since `then`.
    pub(crate) fn stalls_since(&self, then: Nanos) -> bool {
        let waits_for_client = self.outbox.in_flight() || self.arriving.is_some();
        self.held_bytes > 0 && waits_for_client && self.moved <= then && !self.is_closed()
    }

    /// Whether it has a place since `then` at least, and has asked for nothing or has taken its leave.
    pub(crate) fn idles_since(&self, then: Nanos) -> bool {
        let is_of_use = matches!(self.phase, Phase::Serving) && self.has_asked;
        !is_of_use && self.requests == 0 && self.came <= then && !self.is_closed()
    }

    /// Whether it waits for memory and holds none.
    pub(crate) fn starves(&self) -> bool {
        self.blocked && self.held_bytes == 0 && self.head.is_some()
    }

    /// Whether nothing refers to it any more.
    pub(crate) fn is_done(&self) -> bool {
        let is_sending = match &self.secrecy {
            Secrecy::Tls(secured) => secured.in_flight(),
            Secrecy::None | Secrecy::Begins(_) => false,
        };
        self.is_closed()
            && self.requests == 0
            && !self.input.in_flight()
            && !self.outbox.in_flight()
            && !is_sending
    }
}
