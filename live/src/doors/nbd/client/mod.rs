//! The client's side: blocking, over a unix or TCP socket, with any number of requests under way.
//!
//! A [`Client`] is two halves, which may be used by two threads after [`Client::split`]: a
//! [`Sender`] that sends requests and a [`Receiver`] that returns replies in whatever order they
//! come. Both share only the table of reads under way, because the wire does not say how much
//! data follows a simple reply.

use super::wire::WireError;
use super::wire::protocol::{
    CHUNK_HEADER_BYTES, CMD_DISC, CMD_FLAG_FUA, CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES,
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, PAYLOAD_BYTES_MAX, REPLY_FLAG_DONE, REPLY_TYPE_ERROR,
    REPLY_TYPE_ERROR_OFFSET, REPLY_TYPE_NONE, REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_OFFSET_HOLE,
    SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC,
};
use super::wire::{RawRequest, encode_request};
use engine::effect::Errno;
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod negotiation;

pub use negotiation::{ExportInfo, list};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Address {
        Address::Unix(path.to_owned())
    }
}

/// Why a client cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection was closed or reset: what an orderly server does at its end, and what is
    /// seen of one that died.
    #[error("The server closed the connection")]
    Closed,
    /// The socket failed otherwise, a timeout included.
    #[error("The socket failed")]
    Socket(#[source] io::Error),
    /// The server does not speak the protocol.
    #[error("The server sent something that is not NBD")]
    Wire(#[from] WireError),
    /// The server answered an option with an error.
    #[error("The server refused option {option} with {reply:#x}")]
    Refused {
        /// The option, `OPT_*`.
        option: u32,
        /// The reply, `REP_ERR_*`.
        reply: u32,
    },
    /// A reply to something that was not asked, or asked otherwise.
    #[error("The server answered a request that is not under way: cookie {cookie:#x}")]
    Stray {
        /// The cookie it named.
        cookie: u64,
    },
    /// The pieces of a read's data overlap, leave gaps or lie outside.
    #[error("The pieces of the read with cookie {cookie:#x} do not make up its range")]
    Pieces {
        /// The read.
        cookie: u64,
    },
}

impl ClientError {
    /// Whether the server is gone, as opposed to misbehaving.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, ClientError::Closed)
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => ClientError::Closed,
            _ => ClientError::Socket(error),
        }
    }
}

/// An answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's cookie.
    pub cookie: u64,
    /// How it went.
    pub result: Result<(), Errno>,
    /// The data of a read that succeeded, else empty.
    pub data: Vec<u8>,
}

/// A connected socket of either kind.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Stream> {
        Ok(match address {
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }

    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(bytes),
            Stream::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A read under way: its range, and what of it has come so far.
#[derive(Debug)]
struct PendingRead {
    offset_bytes: u64,
    data: Vec<u8>,
    /// The pieces that have come, as (start, end) within `data`.
    pieces: Vec<(usize, usize)>,
    error: Option<Errno>,
}

/// All requests under way by cookie; `None` for those that bring no data.
type Pending = Arc<Mutex<BTreeMap<u64, Option<PendingRead>>>>;

/// A connection in its transmission phase.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    receiver: Receiver,
    info: ExportInfo,
}

impl Client {
    /// Connects and enters transmission with the export of that name; `""` is the default export.
    ///
    /// Structured replies are used if the server has them.
    ///
    /// # Errors
    /// Any [`ClientError`]; [`ClientError::Refused`] if there is no such export.
    pub fn connect(address: &Address, export: &str) -> Result<Client, ClientError> {
        Client::connect_as(address, export, true)
    }

    /// Like [`Client::connect`], with simple replies only.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_simple(address: &Address, export: &str) -> Result<Client, ClientError> {
        Client::connect_as(address, export, false)
    }

    fn connect_as(address: &Address, export: &str, structured: bool) -> Result<Client, ClientError> {
        let mut stream = Stream::connect(address).map_err(ClientError::Socket)?;
        let info = negotiation::enter(&mut stream, export, structured)?;
        let pending = Pending::default();
        let writer = stream.try_clone().map_err(ClientError::Socket)?;
        Ok(Client {
            sender: Sender { stream: writer, pending: pending.clone(), frame: Vec::new() },
            receiver: Receiver { stream: BufReader::with_capacity(128 << 10, stream), pending },
            info,
        })
    }

    /// What the server said about the export.
    #[must_use]
    pub fn info(&self) -> &ExportInfo {
        &self.info
    }

    /// The export's size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.info.size_bytes
    }

    /// The half that sends.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The half that receives.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Both halves, for two threads that end before the client does.
    pub fn halves(&mut self) -> (&mut Sender, &mut Receiver) {
        (&mut self.sender, &mut self.receiver)
    }

    /// The halves, for two threads.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        self.receiver.receive()
    }

    /// Reads a range and waits for it. Nothing else may be under way.
    ///
    /// # Errors
    /// [`ClientError`] if the connection fails; the inner error is the server's refusal.
    pub fn read(&mut self, offset_bytes: u64, len_bytes: u32) -> Result<Result<Vec<u8>, Errno>, ClientError> {
        self.sender.send_read(0, offset_bytes, len_bytes)?;
        let reply = self.receiver.receive()?;
        Ok(reply.result.map(|()| reply.data))
    }

    /// Writes a range and waits for it. Nothing else may be under way.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<Result<(), Errno>, ClientError> {
        self.sender.send_write(0, offset_bytes, data, false)?;
        Ok(self.receiver.receive()?.result)
    }

    /// Flushes and waits for it. Nothing else may be under way.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn flush(&mut self) -> Result<Result<(), Errno>, ClientError> {
        self.sender.send_flush(0)?;
        Ok(self.receiver.receive()?.result)
    }
}

/// The half of a client that sends requests. Cookies are the caller's, each used once at a time.
#[derive(Debug)]
pub struct Sender {
    stream: Stream,
    pending: Pending,
    /// A request in front of its payload, so that both leave in one system call.
    frame: Vec<u8>,
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

    /// Asks to make durable what was acknowledged before.
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

    /// Takes leave: the server answers what is under way, then closes.
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
            pieces: Vec::new(),
            error: None,
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
        // The socket may be gone already, which is what was asked for.
        let _already_gone = self.stream.shutdown();
    }
}

/// The half of a client that receives replies.
#[derive(Debug)]
pub struct Receiver {
    stream: BufReader<Stream>,
    pending: Pending,
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

impl PendingRead {
    /// Notes a piece and says where in the data it goes; `None` if it lies outside.
    fn place(&mut self, offset_bytes: u64, len_bytes: u32) -> Option<(usize, usize)> {
        let start = usize::try_from(offset_bytes.checked_sub(self.offset_bytes)?).ok()?;
        let end = start.checked_add(len_bytes as usize)?;
        // An empty piece is not allowed; without this check a server could send them for ever.
        if start == end || end > self.data.len() {
            return None;
        }
        self.pieces.push((start, end));
        Some((start, end))
    }

    /// The data, if the pieces tile it.
    fn into_data(mut self) -> Option<Vec<u8>> {
        self.pieces.sort_unstable();
        let mut end = 0;
        for (piece_start, piece_end) in self.pieces {
            if piece_start != end {
                return None;
            }
            end = piece_end;
        }
        (end == self.data.len()).then_some(self.data)
    }

    fn take(&mut self) -> PendingRead {
        PendingRead {
            offset_bytes: self.offset_bytes,
            data: std::mem::take(&mut self.data),
            pieces: std::mem::take(&mut self.pieces),
            error: self.error,
        }
    }
}

fn errno(error: u32) -> Errno {
    i32::try_from(error).map_or(Errno::IO, Errno)
}

fn lock(
    pending: &Mutex<BTreeMap<u64, Option<PendingRead>>>,
) -> std::sync::MutexGuard<'_, BTreeMap<u64, Option<PendingRead>>> {
    // No code panics while it holds the lock in a way that leaves the table half changed.
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}
