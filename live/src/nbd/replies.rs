//! Replies as a client hears them: simple or in chunks, in whatever order they come.
//!
//! The parser trusts nothing: each reply must be to a request that is under way, and the pieces of a read's data must
//! make up its range exactly once, in a bounded number of chunks. Data goes straight to where it is wanted. An input
//! that has no more for now may say so anywhere, even in the middle of a number: the parser goes on from there when
//! it is called again.

use crate::nbd::client::ClientError;
use crate::nbd::wire::WireError;
use crate::nbd::wire::protocol::{
    CHUNK_HEADER_BYTES, REPLY_FLAG_DONE, REPLY_TYPE_ERROR, REPLY_TYPE_ERROR_OFFSET, REPLY_TYPE_NONE,
    REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_OFFSET_HOLE, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX,
    STRUCTURED_REPLY_MAGIC,
};
use engine::effect::Errno;
use engine::units::SECTOR_BYTES;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};

/// The longest head of a chunk: with its range, if it is a hole.
const HEAD_BYTES_MAX: usize = CHUNK_HEADER_BYTES + 12;

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

    /// Takes some bytes of a read's data from `input`, at most so many; 0 if it has ended. They lie inside the request's
    /// range.
    ///
    /// # Errors
    /// Those of `input`.
    fn take(
        &mut self,
        cookie: u64,
        at_bytes: u32,
        len_bytes: u32,
        input: &mut impl Read,
    ) -> io::Result<usize>;

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
    /// The stretches of the range that have come: their ends by their starts. Pieces that meet are one stretch.
    stretches: BTreeMap<u32, u32>,
    error: Option<Errno>,
    /// Chunks so far that told of errors.
    errors: u64,
}

impl Partial {
    /// Adds a piece. False if some of it has come before.
    fn add(&mut self, mut start: u32, mut end: u32) -> bool {
        let before = self.stretches.range(..end).next_back().map(|(start, end)| (*start, *end));
        match before {
            Some((_, before_end)) if before_end > start => return false,
            Some((before_start, before_end)) if before_end == start => start = before_start,
            _ => {}
        }
        end = self.stretches.remove(&end).unwrap_or(end);
        self.stretches.insert(start, end);
        true
    }

    /// Whether it is in more parts than a server has reason to send: a hole in each second sector, an error in each one.
    /// Stretches are kept, and errors could come for ever.
    fn is_endless(&self, read_bytes: u32) -> bool {
        let sectors = u64::from(read_bytes) / SECTOR_BYTES;
        self.stretches.len() as u64 > sectors / 2 + 1 || self.errors > sectors + 1
    }

    /// Whether all of `len_bytes` has come.
    fn is_whole(&self, len_bytes: u32) -> bool {
        self.stretches.get(&0).copied().unwrap_or(0) == len_bytes
    }
}

/// A reply, or a chunk of one, whose head has come.
#[derive(Debug)]
struct Piece {
    cookie: u64,
    /// The bytes that the whole reply brings.
    read_bytes: u32,
    partial: Partial,
    /// The part of its data that is yet to come.
    from: u32,
    to: u32,
    /// Bytes that nobody wants: words to an error.
    skipped_bytes: u32,
    is_last: bool,
}

/// The parser of a connection's replies.
#[derive(Debug, Default)]
pub struct Replies {
    partial: BTreeMap<u64, Partial>,
    /// The beginning of a head, and how much of it has come.
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// A piece whose content has not come as a whole.
    piece: Option<Piece>,
}

impl Replies {
    /// Hears replies until a request has ended.
    ///
    /// # Errors
    /// [`ClientError::Socket`] with [`ErrorKind::WouldBlock`] if `input` says that it has no more for now: then the
    /// parser may be called again. [`ClientError::Closed`] when the server is gone, even in the middle of a reply; any
    /// other if the server misbehaves. The connection is of no use after these.
    pub fn hear(
        &mut self,
        input: &mut impl Read,
        requests: &mut impl Requests,
    ) -> Result<Ending, ClientError> {
        loop {
            let mut piece = match self.piece.take() {
                Some(piece) => piece,
                None => self.begin(input, requests)?,
            };
            if let Err(error) = piece.go_on(input, requests) {
                self.piece = Some(piece);
                return Err(error);
            }
            let Piece { cookie, read_bytes, partial, is_last, .. } = piece;
            if !is_last {
                self.partial.insert(cookie, partial);
                continue;
            }
            let result = match partial.error {
                Some(errno) => Err(errno),
                None if partial.is_whole(read_bytes) => Ok(()),
                None => return Err(ClientError::Pieces { cookie }),
            };
            return Ok(Ending { cookie, result });
        }
    }

    /// Hears a head. Until it has come as a whole, nothing else changes.
    fn begin(&mut self, input: &mut impl Read, requests: &mut impl Requests) -> Result<Piece, ClientError> {
        let piece = match u32::from_be_bytes(self.field(input, 0)?) {
            SIMPLE_REPLY_MAGIC => self.simple(input, requests)?,
            STRUCTURED_REPLY_MAGIC => self.chunk(input, requests)?,
            found => {
                let (found, expected) = (u64::from(found), u64::from(SIMPLE_REPLY_MAGIC));
                return Err(WireError::Magic { found, expected }.into());
            }
        };
        self.head_bytes = 0;
        Ok(piece)
    }

    /// The field of a head at this place, as soon as all up to its end has come.
    fn field<const N: usize>(&mut self, input: &mut impl Read, at: usize) -> Result<[u8; N], ClientError> {
        while self.head_bytes < at + N {
            match input.read(&mut self.head[self.head_bytes..at + N]) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(some) => self.head_bytes += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.head[at..at + N].try_into().expect("a slice of that length"))
    }

    fn simple(&mut self, input: &mut impl Read, requests: &mut impl Requests) -> Result<Piece, ClientError> {
        let rest: [u8; SIMPLE_REPLY_BYTES - 4] = self.field(input, 4)?;
        let error = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let cookie = u64::from_be_bytes(rest[4..].try_into().expect("eight bytes"));
        let Asked { read_bytes, .. } = requests.asked(cookie).ok_or(ClientError::Stray { cookie })?;
        if self.partial.contains_key(&cookie) {
            return Err(ClientError::Stray { cookie });
        }
        let mut piece = Piece::new(cookie, read_bytes, Partial::default(), true);
        if error != 0 {
            piece.partial.error = Some(errno(error));
        } else if read_bytes > 0 {
            piece.partial.add(0, read_bytes);
            piece.to = read_bytes;
        }
        Ok(piece)
    }

    fn chunk(&mut self, input: &mut impl Read, requests: &mut impl Requests) -> Result<Piece, ClientError> {
        let rest: [u8; CHUNK_HEADER_BYTES - 4] = self.field(input, 4)?;
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
        let content = self.content(input, kind, len_bytes)?;
        let partial = self.partial.remove(&cookie).unwrap_or_default();
        let mut piece = Piece::new(cookie, asked.read_bytes, partial, is_last);
        match content {
            Content::None if is_last => {}
            // It can only end a reply; without this check a server could send them for ever.
            Content::None => return Err(ClientError::Parts { cookie }),
            Content::Data { offset_bytes, len_bytes } => {
                (piece.from, piece.to) = piece.place(asked, offset_bytes, len_bytes)?;
            }
            Content::Hole { offset_bytes, len_bytes } => {
                let (start, _) = piece.place(asked, offset_bytes, len_bytes)?;
                requests.zero(cookie, start, len_bytes);
            }
            Content::Error { errno, skipped_bytes } => {
                piece.partial.error = piece.partial.error.or(Some(errno));
                piece.partial.errors += 1;
                piece.skipped_bytes = skipped_bytes;
            }
        }
        if piece.partial.is_endless(asked.read_bytes) {
            return Err(ClientError::Parts { cookie });
        }
        Ok(piece)
    }

    /// The content that a chunk's head announces.
    fn content(&mut self, input: &mut impl Read, kind: u16, len_bytes: u32) -> Result<Content, ClientError> {
        let wrong_length = WireError::Length { len_bytes: u64::from(len_bytes) };
        let after = CHUNK_HEADER_BYTES;
        match kind {
            REPLY_TYPE_NONE if len_bytes == 0 => Ok(Content::None),
            REPLY_TYPE_OFFSET_DATA => {
                let len_bytes = len_bytes.checked_sub(8).ok_or(wrong_length)?;
                let offset_bytes = u64::from_be_bytes(self.field(input, after)?);
                Ok(Content::Data { offset_bytes, len_bytes })
            }
            REPLY_TYPE_OFFSET_HOLE if len_bytes == 12 => {
                let offset_bytes = u64::from_be_bytes(self.field(input, after)?);
                let len_bytes = u32::from_be_bytes(self.field(input, after + 8)?);
                Ok(Content::Hole { offset_bytes, len_bytes })
            }
            REPLY_TYPE_ERROR | REPLY_TYPE_ERROR_OFFSET => {
                let error = u32::from_be_bytes(self.field(input, after)?);
                let message_bytes = u16::from_be_bytes(self.field(input, after + 4)?);
                let offset_bytes = if kind == REPLY_TYPE_ERROR_OFFSET { 8 } else { 0 };
                if usize::from(message_bytes) > STRING_BYTES_MAX
                    || len_bytes != 6 + u32::from(message_bytes) + offset_bytes
                    || error == 0
                {
                    return Err(wrong_length.into());
                }
                Ok(Content::Error { errno: errno(error), skipped_bytes: len_bytes - 6 })
            }
            found => Err(WireError::Number { what: "chunk", found: u64::from(found) }.into()),
        }
    }
}

/// The content of a chunk.
enum Content {
    None,
    Data { offset_bytes: u64, len_bytes: u32 },
    Hole { offset_bytes: u64, len_bytes: u32 },
    Error { errno: Errno, skipped_bytes: u32 },
}

impl Piece {
    fn new(cookie: u64, read_bytes: u32, partial: Partial, is_last: bool) -> Piece {
        Piece { cookie, read_bytes, partial, from: 0, to: 0, skipped_bytes: 0, is_last }
    }

    /// Notes a part of the range, and says where it lies in that.
    fn place(&mut self, asked: Asked, offset_bytes: u64, len_bytes: u32) -> Result<(u32, u32), ClientError> {
        let start = offset_bytes.checked_sub(asked.offset_bytes).and_then(|start| u32::try_from(start).ok());
        let part = start.and_then(|start| Some((start, start.checked_add(len_bytes)?)));
        // An empty part is not allowed; without this check a server could send them for ever. Nor can a part come
        // twice: there are no more parts than bytes.
        let part = part.filter(|(start, end)| start < end && *end <= asked.read_bytes);
        let part = part.filter(|(start, end)| self.partial.add(*start, *end));
        part.ok_or(ClientError::Pieces { cookie: self.cookie })
    }

    /// Takes what is yet to come of its content.
    fn go_on(&mut self, input: &mut impl Read, requests: &mut impl Requests) -> Result<(), ClientError> {
        while self.from < self.to || self.skipped_bytes > 0 {
            let taken = if self.skipped_bytes > 0 {
                let mut words = [0; 256];
                let some = words.len().min(self.skipped_bytes as usize);
                input.read(&mut words[..some])
            } else {
                requests.take(self.cookie, self.from, self.to - self.from, input)
            };
            let some = match taken {
                Ok(0) => return Err(ClientError::Closed),
                Ok(some) => u32::try_from(some).expect("no more than was asked for"),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if self.skipped_bytes > 0 {
                self.skipped_bytes -= some;
            } else {
                self.from += some;
            }
        }
        Ok(())
    }
}

fn errno(error: u32) -> Errno {
    i32::try_from(error).map_or(Errno::IO, Errno)
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
