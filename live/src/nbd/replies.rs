//! Replies as a client hears them: simple or in chunks, in whatever order they come.
//!
//! The parser trusts nothing: each reply must be to a request that is under way, and the pieces of a read's data must
//! make up its range exactly once. Data goes straight to where it is wanted.

use crate::nbd::client::ClientError;
use crate::nbd::wire::WireError;
use crate::nbd::wire::protocol::{
    CHUNK_HEADER_BYTES, REPLY_FLAG_DONE, REPLY_TYPE_ERROR, REPLY_TYPE_ERROR_OFFSET, REPLY_TYPE_NONE,
    REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_OFFSET_HOLE, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX,
    STRUCTURED_REPLY_MAGIC,
};
use engine::effect::Errno;
use std::collections::BTreeMap;
use std::io::{self, Read};

/// A request under way, as far as its reply is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Where its range begins.
    pub offset_bytes: u64,
    /// The bytes that its reply brings: 0 if it is no read.
    pub read_bytes: u32,
}

/// The requests under way on a connection.
pub trait Requests {
    /// The request with that cookie; `None` if there is none.
    fn asked(&mut self, cookie: u64) -> Option<Asked>;

    /// Takes a piece of a read's data from `input`. It lies inside the request's range.
    ///
    /// # Errors
    /// Those of `input`.
    fn take(&mut self, cookie: u64, at_bytes: u32, len_bytes: u32, input: &mut impl Read) -> io::Result<()>;

    /// A piece of a read is zeroes. It lies inside the request's range.
    fn zero(&mut self, cookie: u64, at_bytes: u32, len_bytes: u32);
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Its cookie.
    pub cookie: u64,
    /// Its result.
    pub result: Result<(), Errno>,
}

/// A reply of which more chunks are to come.
#[derive(Debug, Default)]
struct Partial {
    /// The pieces that have come, as (start, end) within the range.
    pieces: Vec<(u32, u32)>,
    error: Option<Errno>,
}

/// The parser of a connection's replies.
#[derive(Debug, Default)]
pub struct Replies {
    partial: BTreeMap<u64, Partial>,
}

impl Replies {
    /// Hears replies until a request has ended.
    ///
    /// # Errors
    /// [`ClientError::Closed`] when the server is gone, even in the middle of a reply; any other if the server
    /// misbehaves. The connection is of no use after an error.
    pub fn hear(
        &mut self,
        input: &mut impl Read,
        requests: &mut impl Requests,
    ) -> Result<Ending, ClientError> {
        loop {
            match u32::from_be_bytes(array(input)?) {
                SIMPLE_REPLY_MAGIC => return self.simple(input, requests),
                STRUCTURED_REPLY_MAGIC => {
                    if let Some(ending) = self.chunk(input, requests)? {
                        return Ok(ending);
                    }
                }
                found => {
                    let (found, expected) = (u64::from(found), u64::from(SIMPLE_REPLY_MAGIC));
                    return Err(WireError::Magic { found, expected }.into());
                }
            }
        }
    }

    fn simple(&mut self, input: &mut impl Read, requests: &mut impl Requests) -> Result<Ending, ClientError> {
        let rest: [u8; SIMPLE_REPLY_BYTES - 4] = array(input)?;
        let error = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let cookie = u64::from_be_bytes(rest[4..].try_into().expect("eight bytes"));
        let asked = requests.asked(cookie).ok_or(ClientError::Stray { cookie })?;
        if self.partial.contains_key(&cookie) {
            return Err(ClientError::Stray { cookie });
        }
        if error != 0 {
            return Ok(Ending { cookie, result: Err(errno(error)) });
        }
        if asked.read_bytes > 0 {
            requests.take(cookie, 0, asked.read_bytes, input)?;
        }
        Ok(Ending { cookie, result: Ok(()) })
    }

    fn chunk(
        &mut self,
        input: &mut impl Read,
        requests: &mut impl Requests,
    ) -> Result<Option<Ending>, ClientError> {
        let rest: [u8; CHUNK_HEADER_BYTES - 4] = array(input)?;
        let flags = u16::from_be_bytes([rest[0], rest[1]]);
        let kind = u16::from_be_bytes([rest[2], rest[3]]);
        let cookie = u64::from_be_bytes(rest[4..12].try_into().expect("eight bytes"));
        let len_bytes = u32::from_be_bytes(rest[12..].try_into().expect("four bytes"));
        let asked = requests.asked(cookie).ok_or(ClientError::Stray { cookie })?;
        let is_last = flags & REPLY_FLAG_DONE != 0;
        if !is_last && asked.read_bytes == 0 {
            // Only reads come in several chunks.
            return Err(ClientError::Stray { cookie });
        }
        let mut partial = self.partial.remove(&cookie).unwrap_or_default();
        let head = Head { kind, cookie, len_bytes };
        let error = content(input, requests, head, asked, &mut partial.pieces)?;
        partial.error = partial.error.or(error);
        if !is_last {
            self.partial.insert(cookie, partial);
            return Ok(None);
        }
        let result = match partial.error {
            Some(errno) => Err(errno),
            None if tile(&mut partial.pieces, asked.read_bytes) => Ok(()),
            None => return Err(ClientError::Pieces { cookie }),
        };
        Ok(Some(Ending { cookie, result }))
    }
}

#[derive(Clone, Copy)]
struct Head {
    kind: u16,
    cookie: u64,
    len_bytes: u32,
}

/// Takes a chunk's content; returns the error it carries.
fn content(
    input: &mut impl Read,
    requests: &mut impl Requests,
    Head { kind, cookie, len_bytes }: Head,
    asked: Asked,
    pieces: &mut Vec<(u32, u32)>,
) -> Result<Option<Errno>, ClientError> {
    let wrong_length = WireError::Length { len_bytes: u64::from(len_bytes) };
    let mut place = |offset_bytes: u64, piece_bytes: u32| {
        let start = offset_bytes.checked_sub(asked.offset_bytes).and_then(|start| u32::try_from(start).ok());
        let piece = start.and_then(|start| Some((start, start.checked_add(piece_bytes)?)));
        // An empty piece is not allowed; without this check a server could send them for ever. Nor can a piece come
        // twice: there are no more pieces than bytes.
        let piece = piece.filter(|(start, end)| start < end && *end <= asked.read_bytes);
        let (start, end) = piece.ok_or(ClientError::Pieces { cookie })?;
        if pieces.iter().any(|(other_start, other_end)| start < *other_end && *other_start < end) {
            return Err(ClientError::Pieces { cookie });
        }
        pieces.push((start, end));
        Ok(start)
    };
    match kind {
        REPLY_TYPE_NONE if len_bytes == 0 => Ok(None),
        REPLY_TYPE_OFFSET_DATA => {
            let data_bytes = len_bytes.checked_sub(8).ok_or(wrong_length)?;
            let start = place(u64::from_be_bytes(array(input)?), data_bytes)?;
            requests.take(cookie, start, data_bytes, input)?;
            Ok(None)
        }
        REPLY_TYPE_OFFSET_HOLE if len_bytes == 12 => {
            let offset_bytes = u64::from_be_bytes(array(input)?);
            let hole_bytes = u32::from_be_bytes(array(input)?);
            let start = place(offset_bytes, hole_bytes)?;
            requests.zero(cookie, start, hole_bytes);
            Ok(None)
        }
        REPLY_TYPE_ERROR | REPLY_TYPE_ERROR_OFFSET => {
            let error = u32::from_be_bytes(array(input)?);
            let message_bytes = u16::from_be_bytes(array(input)?);
            let offset_bytes = if kind == REPLY_TYPE_ERROR_OFFSET { 8 } else { 0 };
            if usize::from(message_bytes) > STRING_BYTES_MAX
                || len_bytes != 6 + u32::from(message_bytes) + offset_bytes
                || error == 0
            {
                return Err(wrong_length.into());
            }
            skip(input, u64::from(len_bytes - 6))?;
            Ok(Some(errno(error)))
        }
        found => Err(WireError::Number { what: "chunk", found: u64::from(found) }.into()),
    }
}

/// Whether the pieces make up `len_bytes`, each byte once.
fn tile(pieces: &mut [(u32, u32)], len_bytes: u32) -> bool {
    pieces.sort_unstable();
    let mut end = 0;
    for (piece_start, piece_end) in pieces {
        if *piece_start != end {
            return false;
        }
        end = *piece_end;
    }
    end == len_bytes
}

fn array<const N: usize>(input: &mut impl Read) -> Result<[u8; N], ClientError> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn skip(input: &mut impl Read, len_bytes: u64) -> Result<(), ClientError> {
    let skipped = io::copy(&mut input.take(len_bytes), &mut io::sink())?;
    if skipped == len_bytes { Ok(()) } else { Err(ClientError::Closed) }
}

fn errno(error: u32) -> Errno {
    i32::try_from(error).map_or(Errno::IO, Errno)
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
