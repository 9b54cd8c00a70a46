//! Channel: the TLS of one connection, with records that came and were not opened, and those that are to be sent.

use super::input::Input;
use crate::reactor::backend::Cipher;
use crate::server::Refusal;
use libc::{iovec, msghdr};
use rustls::ServerConnection;
use std::io::{ErrorKind, IoSlice, Read, Write};

/// Bytes that are sealed at once, about: what a socket takes, and what a reactor does without a look at anything else.
const SEAL_BYTES: usize = 128 * 1024;

/// The TLS of a connection.
pub(crate) struct Channel {
    tls: ServerConnection,
    /// Records that were not opened.
    incoming: Input,
    /// The last open filled all the room it had, so there may be more.
    may_have_more: bool,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are sent.
    sent_bytes: usize,
    vector: Box<iovec>,
    message: Box<msghdr>,
    failure: Option<rustls::Error>,
    /// The client has closed the connection.
    has_ended: bool,
}

impl Channel {
    /// A channel whose first records are in `incoming`, as far as they came already.
    pub(crate) fn new(mut tls: ServerConnection, incoming: Input) -> Channel {
        tls.set_buffer_limit(Some(SEAL_BYTES));
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zeroes are a valid message header without parts.
        let message = Box::new(unsafe { std::mem::zeroed() });
        Channel {
            tls,
            incoming,
            may_have_more: false,
            outgoing: Vec::new(),
            sent_bytes: 0,
            vector: Box::new(none),
            message,
            failure: None,
            has_ended: false,
        }
    }

    /// Whether bytes have to come before anything can be opened.
    pub(crate) fn needs_records(&self) -> bool {
        !self.may_have_more && self.failure.is_none() && self.incoming.bytes().is_empty()
    }

    /// Begins to receive records. The message stays valid until [`Channel::received`].
    pub(crate) fn receive(&mut self) -> *mut msghdr {
        self.incoming.begin(None)
    }

    /// Takes the result of a receive; whether it was the end.
    pub(crate) fn received(&mut self, count: usize, is_end: bool) {
        self.incoming.received(count);
        self.has_ended |= is_end;
    }

    /// Whether there is something to seal beside what clients are answered: words of TLS itself.
    pub(crate) fn wants_seal(&self) -> bool {
        self.tls.wants_write()
    }

    /// Begins to send what is sealed, if there is anything. The message stays valid until [`Channel::sent`].
    pub(crate) fn send(&mut self) -> Option<*const msghdr> {
        let rest = self.outgoing.get_mut(self.sent_bytes..).filter(|rest| !rest.is_empty())?;
        *self.vector = iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        self.message.msg_iov = &raw mut *self.vector;
        self.message.msg_iovlen = 1;
        Some(&raw const *self.message)
    }

    /// A send has moved `count` bytes.
    pub(crate) fn sent(&mut self, count: usize) {
        self.sent_bytes += count;
    }

    /// Tells the client that no more will come; once, and to be sealed and sent.
    pub(crate) fn say_goodbye(&mut self) {
        self.tls.send_close_notify();
    }

    /// Why the client is not served, if it is not.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let went_away = || (self.has_ended && self.tls.is_handshaking()).then_some(Refusal::WentAway);
        self.failure.as_ref().map(Refusal::of).or_else(went_away)
    }
}

impl Cipher for Channel {
    fn open(&mut self, into: &mut [&mut [u8]]) -> i32 {
        let mut opened = 0;
        let ended = self.open_into(into, &mut opened);
        if opened > 0 { i32::try_from(opened).expect("a receive is short") } else { ended }
    }

    fn seal(&mut self, from: &[IoSlice<'_>]) -> i32 {
        self.outgoing.clear();
        self.sent_bytes = 0;
        let taken = self.tls.writer().write_vectored(from).unwrap_or(0);
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.outgoing).expect("memory takes all bytes");
        }
        i32::try_from(taken).expect("what is sealed at once is short")
    }
}

impl Channel {
    /// Opens as much as there is; how it ended, as [`Cipher::open`] says it of an open without bytes.
    fn open_into(&mut self, into: &mut [&mut [u8]], opened: &mut usize) -> i32 {
        let mut rooms = into.iter_mut().map(|room| &mut **room).filter(|room| !room.is_empty());
        let mut room = rooms.next();
        loop {
            while let Some(here) = room.take() {
                let count = match self.tls.reader().read(here) {
                    Ok(0) => return 0,
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        room = Some(here);
                        break;
                    }
                    Err(_) => return 0,
                };
                *opened += count;
                let rest = &mut here[count..];
                room = if rest.is_empty() { rooms.next() } else { Some(rest) };
            }
            self.may_have_more = room.is_none();
            if self.failure.is_some() {
                return -libc::EPROTO;
            }
            if self.may_have_more || self.incoming.bytes().is_empty() {
                return -libc::EAGAIN;
            }
            match self.tls.read_tls(&mut self.incoming.bytes()) {
                Ok(0) | Err(_) => return -libc::EIO,
                Ok(count) => self.incoming.consume(count),
            }
            // What was opened before the failure counts.
            self.failure = self.tls.process_new_packets().err();
        }
    }
}
