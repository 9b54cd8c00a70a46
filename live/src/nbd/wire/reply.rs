//! Replies of the transmission phase: headers before (or instead of) a payload.

use super::protocol::{
    CHUNK_HEADER_BYTES, REPLY_FLAG_DONE, REPLY_TYPE_ERROR, REPLY_TYPE_ERROR_OFFSET, REPLY_TYPE_NONE,
    REPLY_TYPE_OFFSET_DATA, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};
use engine::effect::Errno;

/// Bytes of the longest [`ReplyHead`].
const HEAD_BYTES_MAX: usize = CHUNK_HEADER_BYTES + 14;

/// Agreement that a handshake ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The export, as its place in the list the handshake was given.
    pub export: usize,
    /// Reads are answered in structured chunks, in pieces of any length and order.
    pub structured: bool,
}

/// The bytes of a reply without its payload; no allocation.
#[derive(Clone, Copy)]
pub struct ReplyHead {
    bytes: [u8; HEAD_BYTES_MAX],
    len: u8,
}

impl ReplyHead {
    fn of(parts: &[&[u8]]) -> ReplyHead {
        let mut head = ReplyHead { bytes: [0; HEAD_BYTES_MAX], len: 0 };
        for part in parts {
            let at = usize::from(head.len);
            head.bytes[at..at + part.len()].copy_from_slice(part);
            head.len += part.len() as u8;
        }
        head
    }

    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::ops::Deref for ReplyHead {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::fmt::Debug for ReplyHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_bytes()).finish()
    }
}

/// The whole reply to a request that brings no data: a WRITE, FLUSH, TRIM or WRITE_ZEROES that is
/// done, anything that failed, and (`is_read`) the end of a READ.
///
/// A READ that succeeded needs this only in a structured session, after chunks that were not
/// marked as the last one. A READ that failed must have got no simple reply head before.
#[must_use]
pub fn completion(session: Session, is_read: bool, cookie: u64, result: Result<(), Errno>) -> ReplyHead {
    if !(session.structured && is_read) {
        return ReplyHead::of(&[&simple_reply(cookie, result)]);
    }
    match result {
        Ok(()) => ReplyHead::of(&[&none_chunk(cookie)]),
        Err(errno) => ReplyHead::of(&[&error_chunk(cookie, errno, true)]),
    }
}

/// Bytes before the data of a READ.
///
/// In a structured session it begins a chunk of `len_bytes` from `offset_bytes` on, `last` if no
/// other follows. In a simple session the data of the whole READ must follow, and `offset_bytes`
/// is not sent.
///
/// # Panics
/// If in a simple session the chunk is not the last one, so not the whole.
#[must_use]
pub fn data_head(session: Session, cookie: u64, offset_bytes: u64, len_bytes: u32, last: bool) -> ReplyHead {
    if session.structured {
        let header = structured_header(flags(last), REPLY_TYPE_OFFSET_DATA, cookie, len_bytes + 8);
        ReplyHead::of(&[&header, &offset_bytes.to_be_bytes()])
    } else {
        assert!(last, "a simple reply is one piece");
        ReplyHead::of(&[&simple_reply(cookie, Ok(()))])
    }
}

/// A simple reply.
#[must_use]
pub fn simple_reply(cookie: u64, result: Result<(), Errno>) -> [u8; SIMPLE_REPLY_BYTES] {
    let error = result.err().map_or(0, nbd_errno);
    let mut reply = [0; SIMPLE_REPLY_BYTES];
    reply[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply[4..8].copy_from_slice(&error.to_be_bytes());
    reply[8..16].copy_from_slice(&cookie.to_be_bytes());
    reply
}

/// The header of a structured chunk whose content has `len_bytes`.
#[must_use]
pub fn structured_header(flags: u16, kind: u16, cookie: u64, len_bytes: u32) -> [u8; CHUNK_HEADER_BYTES] {
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[0..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&flags.to_be_bytes());
    header[6..8].copy_from_slice(&kind.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..20].copy_from_slice(&len_bytes.to_be_bytes());
    header
}

/// The chunk that ends a reply and says nothing else.
#[must_use]
pub fn none_chunk(cookie: u64) -> [u8; CHUNK_HEADER_BYTES] {
    structured_header(REPLY_FLAG_DONE, REPLY_TYPE_NONE, cookie, 0)
}

/// A chunk that says that the request failed; without a message for people.
#[must_use]
pub fn error_chunk(cookie: u64, errno: Errno, last: bool) -> [u8; CHUNK_HEADER_BYTES + 6] {
    let mut chunk = [0; CHUNK_HEADER_BYTES + 6];
    chunk[..20].copy_from_slice(&structured_header(flags(last), REPLY_TYPE_ERROR, cookie, 6));
    chunk[20..24].copy_from_slice(&nbd_errno(errno).to_be_bytes());
    chunk
}

/// A chunk with the offset in the export at which a READ failed.
#[must_use]
pub fn error_offset_chunk(
    cookie: u64,
    errno: Errno,
    offset_bytes: u64,
    last: bool,
) -> [u8; CHUNK_HEADER_BYTES + 14] {
    let mut chunk = [0; CHUNK_HEADER_BYTES + 14];
    chunk[..20].copy_from_slice(&structured_header(flags(last), REPLY_TYPE_ERROR_OFFSET, cookie, 14));
    chunk[20..24].copy_from_slice(&nbd_errno(errno).to_be_bytes());
    chunk[26..34].copy_from_slice(&offset_bytes.to_be_bytes());
    chunk
}

/// The number that an NBD client understands for an errno: the protocol knows eight.
#[must_use]
pub fn nbd_errno(errno: Errno) -> u32 {
    match errno.0 {
        1 => 1,     // EPERM
        12 => 12,   // ENOMEM
        22 => 22,   // EINVAL
        28 => 28,   // ENOSPC
        75 => 75,   // EOVERFLOW
        95 => 95,   // ENOTSUP
        108 => 108, // ESHUTDOWN
        _ => 5,     // EIO
    }
}

fn flags(last: bool) -> u16 {
    if last { REPLY_FLAG_DONE } else { 0 }
}
