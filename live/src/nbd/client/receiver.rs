//! Receiving: replies, simple or in chunks, in whatever order they come.

use super::pending::{Pending, PendingRead, lock};
use super::stream::Stream;
use super::{ClientError, Reply};
use crate::nbd::wire::WireError;
use crate::nbd::wire::protocol::{
    CHUNK_HEADER_BYTES, REPLY_FLAG_DONE, REPLY_TYPE_ERROR, REPLY_TYPE_ERROR_OFFSET, REPLY_TYPE_NONE,
    REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_OFFSET_HOLE, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX,
    STRUCTURED_REPLY_MAGIC,
};
use engine::effect::Errno;
use std::io::{self, BufReader, Read};
use std::time::Duration;

/// The half of a client that receives replies.
#[derive(Debug)]
pub struct Receiver {
    pub(super) stream: BufReader<Stream>,
    pub(super) pending: Pending,
}

impl Receiver {
    /// Requests sent and not answered yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        lock(&self.pending).len()
    }

    /// Waits for replies this long at most, `None` for ever; afterwards a [`ClientError::Socket`].
    ///
    /// # Errors
    /// [`ClientError::Socket`] if the socket does not take it, as for a duration of zero.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), ClientError> {
        self.stream.get_ref().set_read_timeout(timeout).map_err(ClientError::Socket)
    }

    /// Waits for the next whole reply.
    ///
    /// # Errors
    /// [`ClientError::Closed`] when the server is gone, even in the middle of a reply; any other
    /// if the server misbehaves. The connection is of no use after an error.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        loop {
            match u32::from_be_bytes(self.array()?) {
                SIMPLE_REPLY_MAGIC => return self.receive_simple(),
                STRUCTURED_REPLY_MAGIC => {
                    if let Some(reply) = self.receive_chunk()? {
                        return Ok(reply);
                    }
                }
                found => {
                    let (found, expected) = (u64::from(found), u64::from(SIMPLE_REPLY_MAGIC));
                    return Err(WireError::Magic { found, expected }.into());
                }
            }
        }
    }

    fn receive_simple(&mut self) -> Result<Reply, ClientError> {
        let rest: [u8; SIMPLE_REPLY_BYTES - 4] = self.array()?;
        let error = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let cookie = u64::from_be_bytes(rest[4..].try_into().expect("eight bytes"));
        let read = lock(&self.pending).remove(&cookie).ok_or(ClientError::Stray { cookie })?;
        if error != 0 {
            return Ok(Reply { cookie, result: Err(errno(error)), data: Vec::new() });
        }
        let mut data = read.map_or_else(Vec::new, |read| read.data);
        self.stream.read_exact(&mut data)?;
        Ok(Reply { cookie, result: Ok(()), data })
    }

    fn receive_chunk(&mut self) -> Result<Option<Reply>, ClientError> {
        let rest: [u8; CHUNK_HEADER_BYTES - 4] = self.array()?;
        let flags = u16::from_be_bytes([rest[0], rest[1]]);
        let kind = u16::from_be_bytes([rest[2], rest[3]]);
        let cookie = u64::from_be_bytes(rest[4..12].try_into().expect("eight bytes"));
        let len_bytes = u32::from_be_bytes(rest[12..].try_into().expect("four bytes"));
        // The entry stays out of the table while its chunk is read; it goes back unless it is done.
        let mut read = lock(&self.pending).remove(&cookie).ok_or(ClientError::Stray { cookie })?;
        let error = self.receive_content(kind, cookie, len_bytes, read.as_mut())?;
        if flags & REPLY_FLAG_DONE == 0 {
            let Some(read) = read.as_mut() else {
                // Only reads come in several chunks.
                return Err(ClientError::Stray { cookie });
            };
            read.error = read.error.or(error);
            lock(&self.pending).insert(cookie, Some(read.take()));
            return Ok(None);
        }
        let error = read.as_ref().and_then(|read| read.error).or(error);
        if let Some(errno) = error {
            return Ok(Some(Reply { cookie, result: Err(errno), data: Vec::new() }));
        }
        let data = match read {
            Some(read) => read.into_data().ok_or(ClientError::Pieces { cookie })?,
            None => Vec::new(),
        };
        Ok(Some(Reply { cookie, result: Ok(()), data }))
    }

    /// Reads a chunk's content; returns the error it carries.
    fn receive_content(
        &mut self,
        kind: u16,
        cookie: u64,
        len_bytes: u32,
        read: Option<&mut PendingRead>,
    ) -> Result<Option<Errno>, ClientError> {
        let wrong_length = WireError::Length { len_bytes: u64::from(len_bytes) };
        match (kind, read) {
            (REPLY_TYPE_NONE, _) if len_bytes == 0 => Ok(None),
            (REPLY_TYPE_OFFSET_DATA, Some(read)) => {
                let data_bytes = len_bytes.checked_sub(8).ok_or(wrong_length)?;
                let offset_bytes = u64::from_be_bytes(self.array()?);
                let (start, end) =
                    read.place(offset_bytes, data_bytes).ok_or(ClientError::Pieces { cookie })?;
                self.stream.read_exact(&mut read.data[start..end])?;
                Ok(None)
            }
            (REPLY_TYPE_OFFSET_HOLE, Some(read)) if len_bytes == 12 => {
                let offset_bytes = u64::from_be_bytes(self.array()?);
                let hole_bytes = u32::from_be_bytes(self.array()?);
                // The buffer began as zeroes, and no piece may come twice.
                read.place(offset_bytes, hole_bytes).ok_or(ClientError::Pieces { cookie })?;
                Ok(None)
            }
            (REPLY_TYPE_ERROR | REPLY_TYPE_ERROR_OFFSET, _) => {
                let error = u32::from_be_bytes(self.array()?);
                let message_bytes = u16::from_be_bytes(self.array()?);
                let offset_bytes = if kind == REPLY_TYPE_ERROR_OFFSET { 8 } else { 0 };
                if usize::from(message_bytes) > STRING_BYTES_MAX
                    || len_bytes != 6 + u32::from(message_bytes) + offset_bytes
                    || error == 0
                {
                    return Err(wrong_length.into());
                }
                self.skip(u64::from(len_bytes - 6))?;
                Ok(Some(errno(error)))
            }
            (found, _) => Err(WireError::Number { what: "chunk", found: u64::from(found) }.into()),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, len_bytes: u64) -> Result<(), ClientError> {
        let skipped = io::copy(&mut (&mut self.stream).take(len_bytes), &mut io::sink())?;
        if skipped == len_bytes { Ok(()) } else { Err(ClientError::Closed) }
    }
}

fn errno(error: u32) -> Errno {
    i32::try_from(error).map_or(Errno::IO, Errno)
}
