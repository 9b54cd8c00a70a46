//! Input of a connection: bytes that were received and not decoded yet.

use crate::doors::pieces::Cut;
use engine::memory::Slice;
use libc::{iovec, msghdr};

/// Bytes that one receive can bring besides a payload that goes straight to its buffer: a
/// few dozen small writes.
pub(crate) const INPUT_BYTES: usize = 128 * 1024;
/// Bytes that are received ahead of a long payload: its request and some more.
const AHEAD_BYTES: usize = 1024;
/// Shortest rest of a payload that is received straight into its buffer. A shorter one
/// arrives together with the requests behind it and is copied: measured with fio over NBD,
/// that is faster for 4 KiB writes than a system call for each.
pub(crate) const STRAIGHT_BYTES_MIN: u32 = 16 * 1024;

/// Shortest rest of a payload that a thread of the kernel copies, if only this reactor has clients. Measured with fio
/// over NBD: the kernel then copies where the client runs, whose caches have the bytes.
pub(crate) const OFFLOAD_BYTES_MIN: u32 = 32 * 1024;

/// The receiving side of a connection.
pub(crate) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    vectors: Box<[iovec; 2]>,
    message: Box<msghdr>,
    in_flight: bool,
    /// The client sends long payloads: bytes taken ahead of them would have to be copied.
    pub expects_payload: bool,
}

impl Input {
    pub(crate) fn new() -> Input {
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zeroes are a valid message header without parts.
        let message = Box::new(unsafe { std::mem::zeroed() });
        Input {
            bytes: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            vectors: Box::new([none; 2]),
            message,
            in_flight: false,
            expects_payload: false,
        }
    }

    /// The bytes that are not consumed yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Takes the first `count` bytes off.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "no more bytes are consumed than were received");
        self.start += count;
        if self.start == self.end && !self.in_flight {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Whether a receive is under way.
    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Begins a receive: first into `straight`, the rest behind the bytes that are there. The message stays valid
    /// until [`Input::received`].
    pub(crate) fn begin(&mut self, straight: Option<(*mut u8, usize)>) -> *mut msghdr {
        assert!(!self.in_flight, "one receive at a time");
        // The start of a request may be left: it moves to the front, so that the rest has room.
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        assert!(self.end < self.bytes.len(), "there is room to receive");
        let room = if self.expects_payload { AHEAD_BYTES } else { INPUT_BYTES };
        let rest = &mut self.bytes[self.end..INPUT_BYTES.min(self.end + room)];
        let own = iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        self.message.msg_iovlen = match straight {
            Some((base, len)) => {
                *self.vectors = [iovec { iov_base: base.cast(), iov_len: len }, own];
                2
            }
            None => {
                self.vectors[0] = own;
                1
            }
        };
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.in_flight = true;
        &raw mut *self.message
    }

    /// The message of the receive under way.
    pub(crate) fn message(&mut self) -> *mut msghdr {
        assert!(self.in_flight, "a receive is under way");
        &raw mut *self.message
    }

    /// Takes the result of a receive: `own` bytes here, besides those that went straight.
    pub(crate) fn received(&mut self, own: usize) {
        assert!(self.in_flight && own <= self.bytes.len() - self.end, "a receive was under way");
        self.in_flight = false;
        self.end += own;
    }
}

/// A payload on its way into a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arriving {
    /// Range of the request that it belongs to.
    pub cut: Cut,
    /// Buffer that it goes into.
    pub slice: Slice,
    /// Bytes of the payload that have arrived.
    pub filled: u32,
}

impl Arriving {
    /// The part of the buffer that is not filled yet.
    pub(crate) fn rest(&self) -> Slice {
        self.slice.part(self.filled, self.slice.len_bytes - self.filled)
    }
}
