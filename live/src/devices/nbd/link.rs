//! A connection in use: requests go out in order, and replies are heard as they come.
//!
//! Invariants:
//! - I1: memory of an operation is touched only by the thread of the link on which it is under way, by the caller of
//!   [`Link::send`] with the outgoing frames locked, and by who hears ([`super::hearing`]). After [`Link::close`], the end
//!   of the thread and [`Hearing::let_go`](super::hearing::Hearing::let_go) nobody does.
//! - I2: nothing counts as asked before its frame is wholly sent ([`Link::is_sent`]). So no answer gives memory back
//!   that is still being sent, whenever the server says it.

use super::memory::Span;
use crate::nbd::client::Stream;
use crate::nbd::replies::{Asked, Requests};
use crate::nbd::tls::Cipher;
use crate::nbd::wire::protocol::{CMD_DISC, CMD_READ, CMD_WRITE};
use crate::nbd::wire::{RawRequest, encode_request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The longest payload that is copied to the socket by the thread that asks; a longer one holds up what else it has to
/// do.
const DIRECT_BYTES_MAX: u64 = 16 << 10;
/// Slices that one system call takes.
const SLICES_MAX: usize = 512;

/// A request on its way out.
struct Frame {
    /// Its number on this link, from 1: they go out in this order.
    number: u64,
    header: [u8; crate::nbd::wire::REQUEST_BYTES],
    /// The data of a write.
    payload: Span,
    payload_at: u64,
    payload_bytes: u64,
    sent_bytes: u64,
}

#[derive(Default)]
struct Outgoing {
    frames: VecDeque<Frame>,
    /// Requests so far.
    count: u64,
    /// The thread is sending a frame that it took off the front.
    is_busy: bool,
    is_closed: bool,
}

/// A request that waits for its reply on this link.
struct Awaited {
    asked: Asked,
    /// The number of its frame.
    number: u64,
    /// Where a read's data goes; taken out while it is filled.
    into: Span,
    into_at: u64,
}

/// A connection in use.
pub(super) struct Link {
    socket: Stream,
    cipher: Option<Cipher>,
    outgoing: Mutex<Outgoing>,
    comes: Condvar,
    /// The last frame that is wholly sent: what it and those before it have sent is not touched any more.
    sent: AtomicU64,
    /// Held by the thread while it gives some of a frame to the socket, and until that is noted.
    sending: Mutex<()>,
    awaited: Mutex<HashMap<u64, Awaited>>,
    in_flight: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks in a way that leaves something half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// A link over a socket in its transmission phase.
    pub(super) fn new(socket: Stream, cipher: Option<Cipher>) -> Arc<Link> {
        Arc::new(Link {
            socket,
            cipher,
            outgoing: Mutex::default(),
            comes: Condvar::new(),
            sent: AtomicU64::new(0),
            sending: Mutex::default(),
            awaited: Mutex::default(),
            in_flight: AtomicUsize::new(0),
        })
    }

    /// Requests on it that were not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Sends a request whose data begins at `at_bytes` of the operation's memory. On a closed link nothing happens.
    pub(super) fn send(&self, request: &RawRequest, span: &Span, at_bytes: u64) {
        let is_write = request.command == CMD_WRITE;
        let is_read = request.command == CMD_READ;
        let mut outgoing = lock(&self.outgoing);
        if outgoing.is_closed {
            return;
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        outgoing.count += 1;
        let number = outgoing.count;
        let asked = Asked {
            offset_bytes: request.offset_bytes,
            read_bytes: if is_read { request.len_bytes } else { 0 },
        };
        let into = if is_read { span.clone() } else { Span::default() };
        lock(&self.awaited).insert(request.cookie, Awaited { asked, number, into, into_at: at_bytes });
        let mut frame = Frame {
            number,
            header: encode_request(request),
            payload: if is_write { span.clone() } else { Span::default() },
            payload_at: at_bytes,
            payload_bytes: if is_write { u64::from(request.len_bytes) } else { 0 },
            sent_bytes: 0,
        };
        let is_first = outgoing.frames.is_empty() && !outgoing.is_busy;
        if is_first && self.cipher.is_none() && frame.payload_bytes <= DIRECT_BYTES_MAX {
            // An error shows itself to who hears.
            if frame.send_more(&self.socket).is_ok() && frame.is_sent() {
                self.note_sent(&frame);
                return;
            }
        }
        outgoing.frames.push_back(frame);
        drop(outgoing);
        self.comes.notify_one();
    }

    /// Ends the connection at once; its thread ends soon.
    pub(super) fn close(&self) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.is_closed = true;
        outgoing.frames.clear();
        drop(outgoing);
        let _already_gone = self.socket.shutdown();
        self.comes.notify_all();
    }

    /// Takes leave of the server, if that takes no time.
    pub(super) fn say_goodbye(&self) {
        let outgoing = lock(&self.outgoing);
        let is_idle = outgoing.frames.is_empty() && !outgoing.is_busy && !outgoing.is_closed;
        if is_idle && self.cipher.is_none() {
            let request =
                RawRequest { flags: 0, command: CMD_DISC, cookie: 0, offset_bytes: 0, len_bytes: 0 };
            let header = encode_request(&request);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ =
                sendmsg(&self.socket, &[IoSlice::new(&header)], &mut SendAncillaryBuffer::default(), flags);
        }
    }

    /// Sends frames until the link is closed; the thread of those that did not go out at once.
    pub(super) fn send_all(&self) {
        let mut encrypted = Vec::new();
        let mut outgoing = lock(&self.outgoing);
        loop {
            if outgoing.is_closed {
                return;
            }
            let Some(mut frame) = outgoing.frames.pop_front() else {
                outgoing = self.comes.wait(outgoing).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            outgoing.is_busy = true;
            drop(outgoing);
            if self.send_wholly(&mut frame, &mut encrypted).is_err() {
                // Who hears notices, and says so.
                let _already_gone = self.socket.shutdown();
            }
            outgoing = lock(&self.outgoing);
            outgoing.is_busy = false;
        }
    }

    /// Sends what is left of a frame, however long that takes.
    fn send_wholly(&self, frame: &mut Frame, encrypted: &mut Vec<u8>) -> io::Result<()> {
        while !frame.is_sent() {
            if let Some(cipher) = &self.cipher {
                frame.encrypt_more(cipher, encrypted)?;
                // What is sent from here on is a copy.
                self.note_sent(frame);
                self.send_bytes(encrypted)?;
                continue;
            }
            let sending = lock(&self.sending);
            let sent = frame.send_more(&self.socket);
            self.note_sent(frame);
            drop(sending);
            match sent {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ if frame.is_sent() => {}
                _ => self.await_room()?,
            }
        }
        Ok(())
    }

    /// Waits until the socket takes more, or is shut.
    fn await_room(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Notes that a frame is sent, if it is.
    fn note_sent(&self, frame: &Frame) {
        if frame.is_sent() {
            self.sent.store(frame.number, Ordering::Release);
        }
    }

    /// Whether the frame of that number is wholly sent.
    fn is_sent(&self, number: u64) -> bool {
        let is_sent = || self.sent.load(Ordering::Acquire) >= number;
        if is_sent() {
            return true;
        }
        // A fast server answers before it is noted that the last byte went. Whoever sends holds one of these until then,
        // and waits for nobody meanwhile.
        drop(lock(&self.outgoing));
        drop(lock(&self.sending));
        is_sent()
    }

    /// Sends all of these bytes.
    fn send_bytes(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = [IoSlice::new(&bytes[sent..])];
            match sendmsg(&self.socket, &rest, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Ok(some) => sent += some,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        bytes.clear();
        Ok(())
    }

    /// A request was answered.
    pub(super) fn forget(&self, cookie: u64) {
        lock(&self.awaited).remove(&cookie);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn socket(&self) -> &Stream {
        &self.socket
    }

    pub(super) fn cipher(&self) -> Option<&Cipher> {
        self.cipher.as_ref()
    }

    /// Receives what has come, without waiting.
    pub(super) fn receive(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let count = slices.len().min(SLICES_MAX);
        self.socket.receive_now(&mut slices[..count])
    }
}

impl Frame {
    fn len_bytes(&self) -> u64 {
        self.header.len() as u64 + self.payload_bytes
    }

    fn is_sent(&self) -> bool {
        self.sent_bytes == self.len_bytes()
    }

    /// The bytes that are left.
    fn rest(&self) -> Vec<IoSlice<'_>> {
        let header_bytes = self.header.len() as u64;
        let (header, payload_sent) = match self.sent_bytes.checked_sub(header_bytes) {
            Some(payload_sent) => (&[][..], payload_sent),
            None => (&self.header[usize::try_from(self.sent_bytes).expect("inside the header")..], 0),
        };
        let payload = self.payload.slices(self.payload_at + payload_sent, self.payload_bytes - payload_sent);
        let header = std::iter::once(IoSlice::new(header)).filter(|header| !header.is_empty());
        header.chain(payload).take(SLICES_MAX).collect()
    }

    /// Encrypts some of what is left.
    fn encrypt_more(&mut self, cipher: &Cipher, output: &mut Vec<u8>) -> io::Result<()> {
        self.sent_bytes += cipher.encrypt(&self.rest(), output)? as u64;
        Ok(())
    }

    /// Sends some of what is left, without waiting.
    fn send_more(&mut self, socket: &Stream) -> io::Result<()> {
        let slices = self.rest();
        loop {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => {
                    drop(slices);
                    self.sent_bytes += sent as u64;
                    return Ok(());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Requests for &Link {
    fn asked(&mut self, cookie: u64) -> Option<Asked> {
        let (asked, number) =
            lock(&self.awaited).get(&cookie).map(|awaited| (awaited.asked, awaited.number))?;
        self.is_sent(number).then_some(asked)
    }

    fn take(
        &mut self,
        cookie: u64,
        at_bytes: u32,
        len_bytes: u32,
        input: &mut impl Read,
    ) -> io::Result<usize> {
        let (mut into, into_at) = self.borrow(cookie);
        let mut slices = into.slices_mut(into_at + u64::from(at_bytes), u64::from(len_bytes));
        let taken = input.read_vectored(&mut slices);
        drop(slices);
        self.give_back(cookie, into);
        taken
    }

    fn zero(&mut self, cookie: u64, at_bytes: u32, len_bytes: u32) {
        let (mut into, into_at) = self.borrow(cookie);
        let slices = into.slices_mut(into_at + u64::from(at_bytes), u64::from(len_bytes));
        slices.into_iter().for_each(|mut slice| slice.fill(0));
        self.give_back(cookie, into);
    }
}

impl Link {
    fn borrow(&self, cookie: u64) -> (Span, u64) {
        let mut awaited = lock(&self.awaited);
        let awaited = awaited.get_mut(&cookie).expect("the parser has just seen this request");
        (std::mem::take(&mut awaited.into), awaited.into_at)
    }

    fn give_back(&self, cookie: u64, into: Span) {
        if let Some(awaited) = lock(&self.awaited).get_mut(&cookie) {
            awaited.into = into;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::wire::REQUEST_BYTES;
    use std::os::unix::net::UnixStream;

    fn write(cookie: u64, len_bytes: u32) -> (RawRequest, Span) {
        let request = RawRequest { flags: 0, command: CMD_WRITE, cookie, offset_bytes: 0, len_bytes };
        (request, Span::zeroes(u64::from(len_bytes)))
    }

    fn is_asked(link: &Link, cookie: u64) -> bool {
        let mut requests = link;
        requests.asked(cookie).is_some()
    }

    fn send_by_thread(link: &Arc<Link>) {
        let link = Arc::clone(link);
        std::thread::spawn(move || link.send_all());
    }

    #[test]
    fn what_is_not_wholly_sent_is_not_asked_yet() {
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        let link = Link::new(Stream::Unix(ours), None);
        // One that goes out at once, one that does not fit into the socket, and one behind it.
        for (cookie, len_bytes) in [(1, 512), (2, 64 << 20), (3, 512)] {
            let (request, span) = write(cookie, len_bytes);
            link.send(&request, &span, 0);
        }
        assert!(is_asked(&link, 1) && !is_asked(&link, 2) && !is_asked(&link, 3));
        send_by_thread(&link);
        let mut begin = vec![0; 2 * REQUEST_BYTES + 512 + 1];
        theirs.read_exact(&mut begin).expect("the first one and some of the second");
        assert!(is_asked(&link, 1) && !is_asked(&link, 2) && !is_asked(&link, 3));
        link.close();
    }

    /// An answer may come before the thread that sent the last byte goes on.
    #[test]
    fn what_has_come_as_a_whole_is_asked() {
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        let link = Link::new(Stream::Unix(ours), None);
        send_by_thread(&link);
        for cookie in 0..2000 {
            // By turns through the thread and at once.
            let len_bytes = if cookie % 2 == 0 { 32 << 10 } else { 4 << 10 };
            let (request, span) = write(cookie, len_bytes);
            link.send(&request, &span, 0);
            let mut frame = vec![0; REQUEST_BYTES + len_bytes as usize];
            theirs.read_exact(&mut frame).expect("a frame");
            assert!(is_asked(&link, cookie), "the server has all of it");
            link.forget(cookie);
        }
        link.close();
    }
}
