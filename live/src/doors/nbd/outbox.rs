//! Outbox of a connection: replies that wait to be sent. All that is ready goes out in one system call.
//!
//! Two batches take turns: one is being sent and does not move, the other one fills.

use crate::buffers::Pool;
use engine::memory::{Memory, Slice};
use libc::{iovec, msghdr};
use std::collections::VecDeque;

/// Vectors in one message.
const VECTORS_MAX: usize = 1024;
/// Shortest payload with which a thread of the kernel copies the message, if only this reactor has clients. Measured with
/// fio over NBD and long reads: the copy into the socket costs several times more where the client does not
/// run.
const OFFLOAD_BYTES_MIN: u32 = 64 * 1024;
/// Bytes of reply heads that a batch keeps room for when it is empty.
const HEADS_BYTES: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
enum Part {
    /// A range of `heads`.
    Head { start: usize, end: usize },
    /// Payload, with the buffer's reference and the bytes the connection is charged for it.
    Payload { slice: Slice, held_bytes: u32 },
}

#[derive(Default)]
struct Batch {
    heads: Vec<u8>,
    parts: VecDeque<Part>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// The replies of a connection.
pub(crate) struct Outbox {
    filling: Batch,
    sending: Batch,
    /// Bytes of the first part of `sending` that are sent already.
    sent_bytes: usize,
    vectors: Vec<iovec>,
    message: Box<msghdr>,
    in_flight: bool,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        // SAFETY: all zeroes are a valid message header without parts.
        let message = Box::new(unsafe { std::mem::zeroed() });
        Outbox {
            filling: Batch::default(),
            sending: Batch::default(),
            sent_bytes: 0,
            vectors: Vec::new(),
            message,
            in_flight: false,
        }
    }

    /// Appends bytes.
    pub(crate) fn push_head(&mut self, bytes: &[u8]) {
        let start = self.filling.heads.len();
        self.filling.heads.extend_from_slice(bytes);
        let end = start + bytes.len();
        match self.filling.parts.back_mut() {
            Some(Part::Head { end: last, .. }) => *last = end,
            _ => self.filling.parts.push_back(Part::Head { start, end }),
        }
    }

    /// Appends what `fill` appends to the vector it is given.
    pub(crate) fn push_with(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        fill(&mut bytes);
        if !bytes.is_empty() {
            self.push_head(&bytes);
        }
    }

    /// Appends payload and takes over a reference to its buffer.
    pub(crate) fn push_payload(&mut self, slice: Slice, held_bytes: u32) {
        self.filling.parts.push_back(Part::Payload { slice, held_bytes });
    }

    /// Whether a send is under way.
    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Whether there is something to send and nothing under way.
    pub(crate) fn wants_send(&self) -> bool {
        !self.in_flight && !self.is_empty()
    }

    /// Bytes of heads that wait behind the send under way.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.filling.heads.len()
    }

    /// Whether all that was pushed is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.filling.is_empty() && self.sending.is_empty()
    }

    /// Begins a send; the message stays valid until [`Outbox::sent`]. Second, whether it is long:
    /// for a thread of the kernel, if the reactor is alone.
    pub(crate) fn begin(&mut self, pool: &Pool) -> (*const msghdr, bool) {
        assert!(
            self.wants_send(),
            "a send begins only when there is something to send and none is under way"
        );
        if self.sending.is_empty() {
            std::mem::swap(&mut self.filling, &mut self.sending);
            self.filling.heads.clear();
            self.filling.heads.shrink_to(HEADS_BYTES);
        }
        self.vectors.clear();
        let heads = self.sending.heads.as_ptr();
        let mut is_long = false;
        for part in self.sending.parts.iter().take(VECTORS_MAX) {
            let (base, len) = match *part {
                Part::Head { start, end } => (heads.wrapping_add(start).cast_mut(), end - start),
                Part::Payload { slice, .. } => {
                    is_long |= slice.len_bytes >= OFFLOAD_BYTES_MIN;
                    (pool.pointer(slice), slice.len_bytes as usize)
                }
            };
            self.vectors.push(iovec { iov_base: base.cast(), iov_len: len });
        }
        let first = &mut self.vectors[0];
        first.iov_base = first.iov_base.wrapping_byte_add(self.sent_bytes);
        first.iov_len -= self.sent_bytes;
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len();
        self.in_flight = true;
        (&raw const *self.message, is_long)
    }

    /// A send has moved `bytes`: gives back the buffers that are sent wholly. The number of
    /// bytes the connection is no longer charged for.
    pub(crate) fn sent(&mut self, bytes: usize, pool: &mut Pool) -> u64 {
        assert!(self.in_flight, "a send ends only after it has begun");
        self.in_flight = false;
        let mut freed_bytes = 0;
        self.sent_bytes += bytes;
        while let Some(part) = self.sending.parts.front() {
            let len = match *part {
                Part::Head { start, end } => end - start,
                Part::Payload { slice, .. } => slice.len_bytes as usize,
            };
            if self.sent_bytes < len {
                break;
            }
            self.sent_bytes -= len;
            if let Part::Payload { slice, held_bytes } = *part {
                pool.release(slice.buffer);
                freed_bytes += u64::from(held_bytes);
            }
            self.sending.parts.pop_front();
        }
        if self.sending.is_empty() {
            assert!(self.sent_bytes == 0, "no more is sent than there was");
            self.sending.heads.clear();
        }
        freed_bytes
    }

    /// Throws everything away; no send may be under way.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        assert!(!self.in_flight, "replies are thrown away only when the kernel has let go of them");
        for batch in [&mut self.filling, &mut self.sending] {
            for part in batch.parts.drain(..) {
                if let Part::Payload { slice, .. } = part {
                    pool.release(slice.buffer);
                }
            }
            batch.heads.clear();
        }
        self.sent_bytes = 0;
    }
}
