//! Sending: requests, right ones and wrong ones.

use super::ClientError;
use super::pending::{Pending, PendingRead, lock};
use super::stream::Stream;
use crate::nbd::wire::protocol::{
    CMD_DISC, CMD_FLAG_FUA, CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES, PAYLOAD_BYTES_MAX,
};
use crate::nbd::wire::{RawRequest, encode_request};
use std::io::Write;

/// The half of a client that sends requests. Cookies are the caller's, each used once at a time.
#[derive(Debug)]
pub struct Sender {
    pub(super) stream: Stream,
    pub(super) pending: Pending,
    /// A request in front of its payload, so that both leave in one system call.
    pub(super) frame: Vec<u8>,
}

impl Sender {
    /// Asks for a range's content.
    ///
    /// # Errors
    /// [`ClientError::Closed`] or [`ClientError::Socket`].
    ///
    /// # Panics
    /// If the cookie is in use, or the length above [`PAYLOAD_BYTES_MAX`].
    pub fn send_read(&mut self, cookie: u64, offset_bytes: u64, len_bytes: u32) -> Result<(), ClientError> {
        assert!(len_bytes <= PAYLOAD_BYTES_MAX, "the server would refuse it");
        self.send(&RawRequest { flags: 0, command: CMD_READ, cookie, offset_bytes, len_bytes }, &[])
    }

    /// Sends data for a range.
    ///
    /// # Errors
    /// As [`Sender::send_read`].
    ///
    /// # Panics
    /// If the cookie is in use, or the data is longer than a request can say.
    pub fn send_write(
        &mut self,
        cookie: u64,
        offset_bytes: u64,
        data: &[u8],
        fua: bool,
    ) -> Result<(), ClientError> {
        let len_bytes = u32::try_from(data.len()).expect("a write of less than 4 GiB");
        let flags = if fua { CMD_FLAG_FUA } else { 0 };
        self.send(&RawRequest { flags, command: CMD_WRITE, cookie, offset_bytes, len_bytes }, data)
    }

    /// Asks to make acknowledged changes durable.
    ///
    /// # Errors
    /// As [`Sender::send_read`].
    ///
    /// # Panics
    /// If the cookie is in use.
    pub fn send_flush(&mut self, cookie: u64) -> Result<(), ClientError> {
        self.send(&RawRequest { flags: 0, command: CMD_FLUSH, cookie, offset_bytes: 0, len_bytes: 0 }, &[])
    }

    /// Discards a range.
    ///
    /// # Errors
    /// As [`Sender::send_read`].
    ///
    /// # Panics
    /// If the cookie is in use.
    pub fn send_trim(
        &mut self,
        cookie: u64,
        offset_bytes: u64,
        len_bytes: u32,
        fua: bool,
    ) -> Result<(), ClientError> {
        let flags = if fua { CMD_FLAG_FUA } else { 0 };
        self.send(&RawRequest { flags, command: CMD_TRIM, cookie, offset_bytes, len_bytes }, &[])
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// As [`Sender::send_read`].
    ///
    /// # Panics
    /// If the cookie is in use.
    pub fn send_write_zeroes(
        &mut self,
        cookie: u64,
        offset_bytes: u64,
        len_bytes: u32,
        fua: bool,
    ) -> Result<(), ClientError> {
        let flags = if fua { CMD_FLAG_FUA } else { 0 };
        self.send(&RawRequest { flags, command: CMD_WRITE_ZEROES, cookie, offset_bytes, len_bytes }, &[])
    }

    /// Asks to disconnect: the server answers requests under way, then closes.
    ///
    /// # Errors
    /// As [`Sender::send_read`].
    pub fn send_disconnect(&mut self) -> Result<(), ClientError> {
        let request = RawRequest { flags: 0, command: CMD_DISC, cookie: 0, offset_bytes: 0, len_bytes: 0 };
        Ok(self.stream.write_all(&encode_request(&request))?)
    }

    /// Sends any request at all, wrong ones included; a reply is expected unless it is a `DISC`.
    ///
    /// # Errors
    /// As [`Sender::send_read`].
    ///
    /// # Panics
    /// If the cookie is in use.
    pub fn send(&mut self, request: &RawRequest, payload: &[u8]) -> Result<(), ClientError> {
        let read = (request.command == CMD_READ).then(|| PendingRead {
            offset_bytes: request.offset_bytes,
            // A read that is too long gets an error and no data.
            data: if request.len_bytes <= PAYLOAD_BYTES_MAX {
                vec![0; request.len_bytes as usize]
            } else {
                Vec::new()
            },
        });
        let earlier = lock(&self.pending).insert(request.cookie, read);
        assert!(earlier.is_none(), "cookie {:#x} is in use", request.cookie);
        self.frame.clear();
        self.frame.extend_from_slice(&encode_request(request));
        self.frame.extend_from_slice(payload);
        Ok(self.stream.write_all(&self.frame)?)
    }

    /// Closes the connection at once, in both directions, whatever is under way.
    pub fn hang_up(&mut self) {
        // The socket may be gone already, which is the aim.
        let _already_gone = self.stream.shutdown();
    }
}
