//! NBD client: blocking, over a unix or TCP socket, with any number of requests under way.
//!
//! A [`Client`] is two halves, which may be used by two threads after [`Client::split`]: a
//! [`Sender`] that sends requests and a [`Receiver`] that returns replies in whatever order they
//! come. Both share only the table of reads under way, because the wire does not say how much
//! data follows a simple reply.

use super::replies::Replies;
use super::wire::WireError;
use engine::effect::Errno;
use pending::Pending;
use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
pub(crate) use stream::Stream;

pub(crate) mod negotiation;
mod pending;
mod receiver;
mod sender;
mod stream;

pub use negotiation::{ExportInfo, list};
pub use receiver::Receiver;
pub use sender::Sender;

/// Address of a server.
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

/// Reason why a client cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection was closed or reset: an orderly server does so at its end, and so does one that died.
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
    /// A reply in more parts than its request can have.
    #[error("The reply with cookie {cookie:#x} has more parts than it may")]
    Parts {
        /// The request.
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

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's cookie.
    pub cookie: u64,
    /// Its result.
    pub result: Result<(), Errno>,
    /// The data of a read that succeeded, else empty.
    pub data: Vec<u8>,
}

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
        negotiation::greet(&mut stream)?;
        let info = negotiation::enter(&mut stream, export, structured)?;
        let pending = Pending::default();
        let writer = stream.try_clone().map_err(ClientError::Socket)?;
        Ok(Client {
            sender: Sender { stream: writer, pending: pending.clone(), frame: Vec::new() },
            receiver: Receiver {
                stream: BufReader::with_capacity(128 << 10, stream),
                pending,
                replies: Replies::default(),
            },
            info,
        })
    }

    /// The server's description of the export.
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
