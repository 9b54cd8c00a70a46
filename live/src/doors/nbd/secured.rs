//! Connections over TLS: between the socket and the connection's input and outbox stands a [`Channel`].
//!
//! A receive becomes two steps: records come from the socket, and a cipher opens them straight into the buffers that a
//! receive would have filled. A send becomes two as well. The rest of the door does not know of it.

use super::channel::Channel;
use super::connection::{Connection, Phase};
use super::door::{NbdDoor, Waiting};
use super::input::Input;
use crate::reactor::backend::{Cipher, Operation, Work};
use crate::reactor::driver::{Core, Turn};
use crate::server::{Refusal, ServerNotice};
use libc::msghdr;
use rustls::ServerConnection;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Secrecy of a connection.
pub(crate) enum Secrecy {
    /// Bytes are sent as they are.
    None,
    /// TLS begins as soon as the client has been told so.
    Begins(Box<ServerConnection>),
    /// TLS.
    Tls(Secured),
}

/// A channel, and how far its next send is.
pub(crate) struct Secured {
    channel: Rc<RefCell<Channel>>,
    /// Bytes of the outbox that the send under way stands for, once they are sealed; `None` if none is under way.
    sending: Option<i32>,
    /// The client was told that no more will come.
    said_goodbye: bool,
}

impl Secured {
    /// Whether the kernel or a cipher has something of it.
    pub(super) fn in_flight(&self) -> bool {
        self.sending.is_some()
    }

    /// Whether TLS itself has something to say.
    fn wants_seal(&self) -> bool {
        self.sending.is_none() && self.channel.borrow().wants_seal()
    }
}

impl Connection {
    /// Whether it has something to send, and no send is under way.
    pub(super) fn wants_send(&self) -> bool {
        match &self.secrecy {
            Secrecy::Tls(secured) => {
                secured.wants_seal() || (!secured.in_flight() && self.outbox.wants_send())
            }
            Secrecy::None | Secrecy::Begins(_) => self.outbox.wants_send(),
        }
    }

    /// Tells a client over TLS that no more will come. `true` if that is to be sent first.
    fn says_goodbye(&mut self) -> bool {
        let Secrecy::Tls(secured) = &mut self.secrecy else { return false };
        if !secured.said_goodbye {
            secured.said_goodbye = true;
            secured.channel.borrow_mut().say_goodbye();
        }
        secured.in_flight() || secured.wants_seal()
    }

    /// Why the client is refused, if it is for what it lacks or did.
    fn refusal(&self) -> Option<Refusal> {
        match (&self.phase, &self.secrecy) {
            (_, Secrecy::Tls(secured)) => secured.channel.borrow().refusal(),
            (Phase::Handshake { machine, .. }, _) if machine.lacked_tls() => Some(Refusal::NoTls),
            _ => None,
        }
    }
}

impl NbdDoor {
    /// Makes ready for TLS, which begins when the answer that says so is sent.
    pub(super) fn prepare_tls<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        match turn.driver.tls.as_ref().map(|acceptor| acceptor.connection()) {
            Some(Ok(tls)) => self.connections[key].secrecy = Secrecy::Begins(Box::new(tls)),
            Some(Err(_)) | None => self.close(key, turn),
        }
    }

    /// Begins TLS if it is time: whatever the client has sent since are records.
    pub(super) fn begin_tls<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let connection = &mut self.connections[key];
        if !matches!(connection.secrecy, Secrecy::Begins(_)) || !connection.outbox.is_empty() {
            return;
        }
        let Secrecy::Begins(tls) = std::mem::replace(&mut connection.secrecy, Secrecy::None) else { return };
        let came = std::mem::replace(&mut connection.input, Input::new());
        let channel = Rc::new(RefCell::new(Channel::new(*tls, came)));
        connection.secrecy = Secrecy::Tls(Secured { channel, sending: None, said_goodbye: false });
        if let Phase::Handshake { machine, .. } = &mut connection.phase {
            machine.secured();
        }
        self.listen(key, turn);
    }

    /// Begins to receive into a message: records from the socket, or out of those that are there.
    pub(super) fn listen_secured<C: Core>(
        &mut self,
        key: usize,
        message: *mut msghdr,
        turn: &mut Turn<'_, C>,
    ) {
        let Secrecy::Tls(secured) = &self.connections[key].secrecy else { return };
        let mut channel = secured.channel.borrow_mut();
        if !channel.needs_records() {
            drop(channel);
            return self.open(key, message, turn);
        }
        let socket = self.connections[key].raw_fd();
        let message = channel.receive();
        let token = self.token(Waiting::Records(key));
        // SAFETY: message and vector are boxed in the channel, and so is what they point to; the connection keeps the
        // channel until the receive has come back.
        unsafe { turn.backend.push(token, Operation::Receive { socket, message, offload: false }) };
    }

    /// Records have come, or the end.
    pub(super) fn records_received<C: Core>(&mut self, key: usize, result: i32, turn: &mut Turn<'_, C>) {
        let connection = &mut self.connections[key];
        let Secrecy::Tls(secured) = &connection.secrecy else { return };
        // 0 bytes are the end.
        secured.channel.borrow_mut().received(usize::try_from(result).unwrap_or(0), result == 0);
        if result <= 0 || connection.is_closed() {
            return self.received(key, result.min(0), turn);
        }
        let message = connection.input.message();
        self.open(key, message, turn);
    }

    fn open<C: Core>(&mut self, key: usize, message: *mut msghdr, turn: &mut Turn<'_, C>) {
        let Secrecy::Tls(secured) = &self.connections[key].secrecy else { return };
        let cipher: Rc<RefCell<dyn Cipher>> = secured.channel.clone();
        let token = self.token(Waiting::Receive(key));
        // SAFETY: the message and its vectors are boxed in the connection, which stays until the work has come back;
        // they point into its input, and into a buffer whose reference is in `arriving`.
        unsafe { turn.backend.push_work(token, cipher, Work::Open { message }) };
    }

    /// After an open: what TLS has to say is to be sent, and a client that cannot go on is told why. `true` if it cannot.
    pub(super) fn after_open<C: Core>(&mut self, key: usize, result: i32, turn: &mut Turn<'_, C>) -> bool {
        let connection = &mut self.connections[key];
        let Secrecy::Tls(secured) = &connection.secrecy else { return false };
        let has_words = secured.wants_seal();
        let is_refused =
            result == -libc::EPROTO && matches!(connection.phase, Phase::Handshake { .. } | Phase::Leaving);
        if is_refused && matches!(connection.phase, Phase::Handshake { .. }) {
            self.tell_refusal(key, turn);
            self.handshakes -= 1;
            self.connections[key].phase = Phase::Leaving;
        }
        if has_words {
            self.note_outgoing(key);
        }
        if is_refused {
            self.leave_if_done(key, turn);
        }
        is_refused
    }

    /// Begins a send over TLS: of the outbox, or of what TLS itself has to say.
    pub(super) fn begin_seal<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let token = self.token(Waiting::Sealed(key));
        let connection = &mut self.connections[key];
        let Secrecy::Tls(secured) = &mut connection.secrecy else { return };
        secured.sending = Some(0);
        let cipher: Rc<RefCell<dyn Cipher>> = secured.channel.clone();
        let message = connection.outbox.wants_send().then(|| connection.outbox.begin(&turn.driver.pool).0);
        // SAFETY: message and vectors are boxed in the connection, which stays until the work has come back; they point
        // into the batch being sent, which does not change meanwhile, and into buffers whose references the batch holds.
        unsafe { turn.backend.push_work(token, cipher, Work::Seal { message }) };
    }

    /// Something is sealed: it is sent.
    pub(super) fn sealed<C: Core>(&mut self, key: usize, taken: i32, turn: &mut Turn<'_, C>) {
        let Secrecy::Tls(secured) = &mut self.connections[key].secrecy else { return };
        secured.sending = Some(taken);
        self.send_sealed(key, 0, turn);
    }

    /// A send of sealed bytes has moved something, or failed.
    pub(super) fn sealed_sent<C: Core>(&mut self, key: usize, result: i32, turn: &mut Turn<'_, C>) {
        let Secrecy::Tls(secured) = &self.connections[key].secrecy else { return };
        secured.channel.borrow_mut().sent(usize::try_from(result).unwrap_or(0));
        self.send_sealed(key, result, turn);
    }

    /// Sends the rest of what is sealed, or ends the send, whose last step had this result.
    fn send_sealed<C: Core>(&mut self, key: usize, result: i32, turn: &mut Turn<'_, C>) {
        let token = self.token(Waiting::SealedSend(key));
        let connection = &mut self.connections[key];
        let socket = connection.raw_fd();
        connection.moved = turn.driver.now;
        let has_failed = result < 0 && !matches!(-result, libc::EAGAIN | libc::EINTR);
        let is_over = has_failed || connection.is_closed();
        let Secrecy::Tls(secured) = &mut connection.secrecy else { return };
        let rest = if is_over { None } else { secured.channel.borrow_mut().send() };
        if let Some(message) = rest {
            // SAFETY: message and vector are boxed in the channel, which seals nothing more into the bytes that they point
            // to until this send has come back; the connection keeps the channel.
            unsafe { turn.backend.push(token, Operation::Send { socket, message, offload: false }) };
            return;
        }
        let taken = secured.sending.take().unwrap_or(0);
        let result = match result {
            failed if has_failed => failed,
            _ if taken == 0 => -libc::EAGAIN,
            _ => taken,
        };
        self.sent(key, result, turn);
    }

    /// Tells the operator why a client is refused, if it is.
    pub(super) fn tell_refusal<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let connection = &mut self.connections[key];
        if connection.is_told {
            return;
        }
        let Some(refusal) = connection.refusal() else { return };
        connection.is_told = true;
        turn.driver.turned_away.refused += 1;
        let peer = connection.peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
        turn.driver.notices.push(ServerNotice::ClientRefused { peer, refusal });
    }

    /// Whether a connection that is to be closed has something to say first.
    pub(super) fn says_goodbye(&mut self, key: usize) -> bool {
        let waits = self.connections[key].says_goodbye();
        if waits && self.connections[key].wants_send() {
            self.note_outgoing(key);
        }
        waits
    }
}

/// The address of a client that came over TCP.
pub(super) fn peer_of(socket: &impl std::os::fd::AsFd) -> Option<SocketAddr> {
    rustix::net::getpeername(socket).ok().and_then(|peer| SocketAddr::try_from(peer?).ok())
}
