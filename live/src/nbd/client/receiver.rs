//! Receiving: replies, simple or in chunks, in whatever order they come.

use super::pending::{Pending, PendingRead, lock};
use super::stream::Stream;
use super::{ClientError, Reply};
use crate::nbd::replies::{Asked, Ending, Replies, Requests};
use std::io::{self, BufReader, Read};
use std::time::Duration;

/// The half of a client that receives replies.
#[derive(Debug)]
pub struct Receiver {
    pub(super) stream: BufReader<Stream>,
    pub(super) pending: Pending,
    pub(super) replies: Replies,
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
        let Receiver { stream, pending, replies } = self;
        let Ending { cookie, result } = replies.hear(stream, &mut Table(pending))?;
        let read = lock(pending).remove(&cookie).flatten();
        let data = read.filter(|_| result.is_ok()).map_or_else(Vec::new, |read| read.data);
        Ok(Reply { cookie, result, data })
    }
}

/// The table of requests under way, as the parser wants it.
struct Table<'t>(&'t Pending);

impl Table<'_> {
    /// Lets the parser fill a read's data, which stays out of the table meanwhile: the sender needs that.
    fn with(
        &mut self,
        cookie: u64,
        fill: impl FnOnce(&mut PendingRead) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(Some(read)) = lock(self.0).get_mut(&cookie).map(Option::take) else {
            unreachable!("the parser has just seen this read");
        };
        let mut read = read;
        let filled = fill(&mut read);
        lock(self.0).insert(cookie, Some(read));
        filled
    }
}

impl Requests for Table<'_> {
    fn asked(&mut self, cookie: u64) -> Option<Asked> {
        let pending = lock(self.0);
        let read = pending.get(&cookie)?.as_ref();
        let read_bytes = read.map_or(0, |read| u32::try_from(read.data.len()).expect("a read's length"));
        Some(Asked { offset_bytes: read.map_or(0, |read| read.offset_bytes), read_bytes })
    }

    fn take(
        &mut self,
        cookie: u64,
        at_bytes: u32,
        len_bytes: u32,
        input: &mut impl Read,
    ) -> io::Result<usize> {
        let (start, end) = (at_bytes as usize, (at_bytes + len_bytes) as usize);
        self.with(cookie, |read| input.read(&mut read.data[start..end]))
    }

    fn zero(&mut self, _cookie: u64, _at_bytes: u32, _len_bytes: u32) {
        // The buffer began as zeroes, and no piece comes twice.
    }
}
