//! The NBD protocol: fixed newstyle handshake, requests, simple and structured replies.
//!
//! A server connection goes through two states. A [`Handshake`] is fed bytes as they come until
//! it says [`Outcome::Serve`] or [`Outcome::Close`]; if it says [`Outcome::StartTls`], what it is fed
//! from then on comes over TLS. After that every request begins with [`REQUEST_BYTES`] bytes for
//! [`decode_request`], whose result [`validate`] judges: below that one function everybody may
//! assume a request that is valid for its export. Replies are encoded into small arrays, and the
//! payload never passes through here.
//!
//! [`crate::nbd::client`] is the other side.
//!
//! Source: the protocol document of the NBD project (`doc/proto.md`). Not offered: block status,
//! extended headers, resize, cache hints, fast zeroing. TLS is either not offered, or comes before all else.

mod export;
mod handshake;
pub(crate) mod option;
pub mod protocol;
mod reply;
mod request;

pub use export::Export;
pub use handshake::{Handshake, Outcome, Step};
pub use protocol::{PAYLOAD_BYTES_MAX, PREFERRED_BLOCK_BYTES, REQUEST_BYTES, SKIPPED_PAYLOAD_BYTES_MAX};
pub use reply::{
    ReplyHead, Session, completion, data_head, error_chunk, error_offset_chunk, nbd_errno, none_chunk,
    simple_reply, structured_header,
};
pub use request::{Command, RawRequest, Verdict, decode_request, encode_request, validate};

/// Bytes that are not NBD. The connection cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes do not begin with the number that they must begin with.
    #[error("Wrong magic number {found:#x}, expected {expected:#x}")]
    Magic {
        /// The number found.
        found: u64,
        /// The number expected.
        expected: u64,
    },
    /// Something announced a length that it cannot have.
    #[error("Length of {len_bytes} bytes is not allowed here")]
    Length {
        /// The announced length.
        len_bytes: u64,
    },
    /// A number that means nothing in this place.
    #[error("Unexpected {what} number {found}")]
    Number {
        /// The kind of number.
        what: &'static str,
        /// The number.
        found: u64,
    },
}
