//! Dialling: a connection to a server, its handshake, and a few reads before it is used.

use crate::clock;
use crate::nbd::client::negotiation::{self, ExportInfo};
use crate::nbd::client::{ClientError, Stream};
use crate::nbd::replies::{Asked, Replies, Requests};
use crate::nbd::tls::{self, Channel, Cipher};
use crate::nbd::uri::{NbdUri, Server};
use crate::nbd::wire::protocol::{
    CMD_FLUSH, CMD_READ, FLAG_SEND_FLUSH, OPT_GO, OPT_STARTTLS, REP_ERR_TLS_REQD, REP_ERR_UNKNOWN,
    REP_ERR_UNSUP,
};
use crate::nbd::wire::{RawRequest, encode_request};
use engine::effect::Errno;
use engine::remote::places::{self, Place, Places};
use engine::units::{BLOCK_BYTES, Nanos, payload_checksum};
use rustix::io::retry_on_intr;
use rustls::StreamOwned;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Longest wait for a server to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for a server's next word in the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for an answer of the disk behind a server that has shaken hands. A cluster that lost a node answers when it
/// has noticed (Ceph: after 20 s) and agreed on who goes on.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for all of a handshake, or for all of an answer: a server may send a byte of it now and then.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// A server whose host says nothing for about this long counts as gone.
const SILENCE: Duration = Duration::from_secs(15);
/// `NBD_REP_ERR_POLICY`: the server's settings forbid it.
const REP_ERR_POLICY: u32 = 1 << 31 | 2;

/// Reason why an export cannot be had now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum DialError {
    /// Nobody answers at the address.
    #[error("{server} cannot be reached: {reason}")]
    Unreachable { server: String, reason: String },
    /// Somebody answers, and it does not work out.
    #[error("{server} {reason}")]
    Refused { server: String, reason: String },
}

/// A connection in its transmission phase.
pub(super) struct Dialed {
    channel: Channel,
    pub info: ExportInfo,
}

/// Connects to an export.
pub(super) fn dial(uri: &NbdUri) -> Result<Dialed, DialError> {
    let server = uri.server.to_string();
    let unreachable =
        |error: io::Error| DialError::Unreachable { server: server.clone(), reason: plain(&error) };
    let tls = uri.tls.as_ref().map(|tls| tls::prepare(uri, tls)).transpose();
    let tls = tls.map_err(|error| {
        let reason = format!("is not connected to: {error}");
        DialError::Refused { server: server.clone(), reason }
    })?;
    let mut socket = connect(&uri.server).map_err(unreachable)?;
    socket.set_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(unreachable)?;
    let refused =
        |error: ClientError| DialError::Refused { server: server.clone(), reason: reason(&error, uri) };
    let start = clock::now();
    negotiation::greet(&mut Timed { stream: &mut socket, start, limit: WHOLE_TIMEOUT }).map_err(refused)?;
    let mut channel = match tls {
        None => Channel::Plain(socket),
        Some(connection) => {
            negotiation::start_tls(&mut socket).map_err(refused)?;
            let mut secure = StreamOwned::new(connection, socket);
            // The handshake, so that what is wrong with it is not taken for something else.
            let done = secure.conn.complete_io(&mut secure.sock);
            done.map_err(|error| refused(ClientError::Socket(error)))?;
            Channel::Secure(Box::new(secure))
        }
    };
    let mut timed = Timed { stream: &mut channel, start, limit: WHOLE_TIMEOUT };
    let info = negotiation::enter(&mut timed, &uri.export, true).map_err(refused)?;
    channel.socket().set_timeout(Some(ANSWER_TIMEOUT)).map_err(unreachable)?;
    Ok(Dialed { channel, info })
}

fn connect(server: &Server) -> io::Result<Stream> {
    match server {
        Server::Unix { socket } => Ok(Stream::Unix(connect_unix(socket, CONNECT_TIMEOUT)?)),
        Server::Tcp { host, port } => {
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                    Ok(stream) => {
                        prepare(&stream)?;
                        return Ok(Stream::Tcp(stream));
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// Connects to a unix socket. Where as many wait to be taken as may, it waits for a place, at most so long.
fn connect_unix(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The system's limit for a send is the one for this wait, too.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
    match retry_on_intr(|| net::connect(&socket, &address)) {
        Ok(()) => Ok(UnixStream::from(socket)),
        Err(rustix::io::Errno::AGAIN) => Err(rustix::io::Errno::TIMEDOUT.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes a TCP socket send at once, and notice a host that is gone.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE / 3)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 5)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).expect("seconds"))?;
    Ok(())
}

/// An error without the system's number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// An error of TLS in one line.
fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(reason) => format!("its certificate is not valid ({reason})"),
        rustls::Error::AlertReceived(alert) => format!("it refused us ({alert:?}); see its tls-certificates"),
        other => other.to_string(),
    }
}

fn reason(error: &ClientError, uri: &NbdUri) -> String {
    match error {
        ClientError::Closed => "closed the connection in the handshake".to_owned(),
        error if is_silence(error) => {
            "does not answer: it may serve one client at a time, and have one".to_owned()
        }
        ClientError::Socket(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => format!("is not trusted: {}", of_tls(error)),
            None => format!("failed in the handshake: {}", plain(error)),
        },
        ClientError::Refused { reply: REP_ERR_UNKNOWN, .. } => {
            format!("has no export `{}`", uri.export)
        }
        ClientError::Refused { reply: REP_ERR_TLS_REQD, .. } => {
            "wants TLS; name it with nbds: and tls-certificates=DIR".to_owned()
        }
        ClientError::Refused { option: OPT_STARTTLS, .. } => "does not offer TLS".to_owned(),
        ClientError::Refused { reply: REP_ERR_POLICY, .. } => {
            format!("does not let this client use export `{}`", uri.export)
        }
        ClientError::Refused { option: OPT_GO, reply: REP_ERR_UNSUP } => {
            "is too old: it does not know NBD_OPT_GO".to_owned()
        }
        ClientError::Refused { option, reply } => format!("refused option {option} with {reply:#x}"),
        ClientError::Wire(error) => format!("does not speak NBD: {error}"),
        other => format!("does not keep to the protocol: {other}"),
    }
}

/// Whether the server said nothing for as long as it was waited for.
fn is_silence(error: &ClientError) -> bool {
    let ClientError::Socket(error) = error else { return false };
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Why a connection in use is lost.
pub(super) fn lost_because(error: &ClientError) -> String {
    match error {
        ClientError::Closed => "the server closed the connection".to_owned(),
        ClientError::Socket(error) => format!("the connection failed: {}", plain(error)),
        other => format!("the server does not keep to the protocol: {other}"),
    }
}

/// A stream from which nothing is read any more after a limit of time.
struct Timed<'s, S> {
    stream: &'s mut S,
    start: Nanos,
    limit: Duration,
}

impl<S: Read> Read for Timed<'_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if u128::from(clock::now().since(self.start)) > self.limit.as_nanos() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.read(bytes)
    }
}

impl<S: Write> Write for Timed<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A request that is alone on a connection that is not in use yet.
struct Alone<'b> {
    asked: Asked,
    into: &'b mut [u8],
}

impl Requests for Alone<'_> {
    fn asked(&mut self, cookie: u64) -> Option<Asked> {
        (cookie == 1).then_some(self.asked)
    }

    fn take(
        &mut self,
        _cookie: u64,
        at_bytes: u32,
        len_bytes: u32,
        input: &mut impl Read,
    ) -> io::Result<usize> {
        input.read(&mut self.into[at_bytes as usize..(at_bytes + len_bytes) as usize])
    }

    fn zero(&mut self, _cookie: u64, at_bytes: u32, len_bytes: u32) {
        self.into[at_bytes as usize..(at_bytes + len_bytes) as usize].fill(0);
    }
}

impl Dialed {
    /// Makes a request and waits for its reply. Nothing else is under way.
    fn ask(
        &mut self,
        command: u16,
        offset_bytes: u64,
        into: &mut [u8],
    ) -> Result<Result<(), Errno>, ClientError> {
        let len_bytes = u32::try_from(into.len()).expect("a short read");
        let request = RawRequest { flags: 0, command, cookie: 1, offset_bytes, len_bytes };
        self.channel.write_all(&encode_request(&request))?;
        let asked = Asked { offset_bytes, read_bytes: len_bytes };
        let mut timed = Timed { stream: &mut self.channel, start: clock::now(), limit: WHOLE_TIMEOUT };
        let ending = Replies::default().hear(&mut timed, &mut Alone { asked, into })?;
        Ok(ending.result)
    }

    /// The checksum of the block at an offset.
    pub(super) fn checksum_at(&mut self, uri: &NbdUri, offset_bytes: u64) -> Result<u32, DialError> {
        let mut block = [0; BLOCK_BYTES as usize];
        let result = self.ask(CMD_READ, offset_bytes, &mut block);
        settle(result, uri, "be read")?;
        Ok(payload_checksum(&block))
    }

    /// Flushes an export that can be flushed.
    fn flush(&mut self) -> Result<Result<(), Errno>, ClientError> {
        let can_flush = self.info.flags & FLAG_SEND_FLUSH != 0 && !self.info.is_read_only();
        if can_flush { self.ask(CMD_FLUSH, 0, &mut []) } else { Ok(Ok(())) }
    }

    /// The time that a flush takes now, in nanoseconds. One that fails says as much: what it may have lost is told by others.
    pub(super) fn flush_ns(&mut self, uri: &NbdUri) -> Result<u64, DialError> {
        let start = clock::now();
        let flushed = self.flush();
        settle(flushed.map(|_| Ok(())), uri, "be flushed")?;
        Ok(clock::now().since(start))
    }

    /// The places spread over the export, made durable before they are read.
    pub(super) fn spread_places(&mut self, uri: &NbdUri) -> Result<Places, DialError> {
        // A power cut must not take back what is remembered.
        settle(self.flush(), uri, "be flushed")?;
        let mut places = Places::default();
        for offset_bytes in places::spread_offsets(self.info.size_bytes) {
            places.add_read(Place { offset_bytes, checksum: self.checksum_at(uri, offset_bytes)? });
        }
        Ok(places)
    }

    /// Ends the limits of time: from now on a server may take as long as it likes.
    pub(super) fn into_parts(self) -> io::Result<(Stream, Option<Cipher>)> {
        self.channel.socket().set_timeout(None)?;
        Ok(self.channel.into_parts())
    }
}

fn settle(result: Result<Result<(), Errno>, ClientError>, uri: &NbdUri, what: &str) -> Result<(), DialError> {
    let reason = match result {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(errno)) => {
            format!("has an export that cannot {what}: {}", plain(&io::Error::from_raw_os_error(errno.0)))
        }
        Err(error) if is_silence(&error) => {
            format!(
                "has an export that could not {what} in {} s: is its disk away?",
                ANSWER_TIMEOUT.as_secs()
            )
        }
        Err(error) => reason(&error, uri),
    };
    Err(DialError::Refused { server: uri.server.to_string(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_takes_nobody_is_not_waited_for_for_ever() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        rustix::net::listen(&listener, 0).expect("the shortest backlog there is");
        let mut waiting = Vec::new();
        let error = loop {
            match connect_unix(&path, Duration::from_millis(10)) {
                Ok(socket) => waiting.push(socket),
                Err(error) => break error,
            }
            assert!(waiting.len() < 10, "the backlog is full");
        };
        assert_eq!(plain(&error), "connection timed out");
        drop(listener);
        assert!(connect_unix(&path, CONNECT_TIMEOUT).is_err(), "nobody listens");
    }

    #[test]
    fn a_server_that_trickles_is_not_waited_for_for_ever() {
        let mut trickle = io::repeat(0);
        let mut timed = Timed { stream: &mut trickle, start: clock::now(), limit: Duration::from_millis(10) };
        let error = io::copy(&mut timed, &mut io::sink()).expect_err("the time is over");
        assert!(is_silence(&ClientError::Socket(error)), "it counts as a server that does not answer");
    }

    #[test]
    fn parts_without_end_are_said_in_one_line() {
        let uri: NbdUri = crate::nbd::uri::parse("nbd://host/disk").expect("a URI");
        let error =
            settle(Err(ClientError::Parts { cookie: 1 }), &uri, "be read").expect_err("it is refused");
        assert_eq!(
            error.to_string(),
            "host:10809 does not keep to the protocol: The reply with cookie 0x1 has more parts than it may"
        );
    }

    #[test]
    fn a_silent_disk_is_not_taken_for_a_busy_server() {
        let uri: NbdUri = crate::nbd::uri::parse("nbd://host/disk").expect("a URI");
        let silence = || ClientError::Socket(io::ErrorKind::WouldBlock.into());
        assert!(reason(&silence(), &uri).starts_with("does not answer"));
        let error = settle(Err(silence()), &uri, "be read").expect_err("it was silent").to_string();
        assert!(error.contains("could not be read in 60 s"), "{error}");
    }
}
