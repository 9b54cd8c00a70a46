//! A server of HTTP for a few readers: metrics, and the web page. Read-only.
//!
//! Heads are parsed by `httparse`. Each connection has one request, little time and a thread of its own, and there are
//! few of them: a reader that is slow or hostile holds up others at most, and never clients of volumes.

mod message;

pub use message::{Answer, Asked};

use crate::access::Group;
use crate::connection_limit::ConnectionLimit;
use crate::interrupt::spawn;
use anyhow::{Context, Result, bail};
use live::server::ListenAddress;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8192;
/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Time for one connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a reader to take its leave.
const LINGER: Duration = Duration::from_millis(500);
/// Reads of what it still says.
const REST_READS_MAX: usize = 16;

/// A site: the answers at an endpoint.
pub trait Site: Send + Sync + 'static {
    /// The answer to a request of GET or HEAD.
    fn answer(&self, asked: &Asked) -> Answer;
}

/// A socket that listens for readers. The file of a unix socket is removed when it is dropped.
pub struct Endpoint {
    /// The name of what is served there, for errors and threads: metrics, web.
    what: &'static str,
    socket: Socket,
    /// The address as bound: port 0 has become a real one.
    address: ListenAddress,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Removes the file of a socket when dropped.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed by hand.
        let _ = fs::remove_file(&self.0);
    }
}

/// A connection of either kind, with one deadline for all that it does.
trait Stream: Read + Write {
    fn set_patience(&self, patience: Duration) -> io::Result<()>;

    /// Says that nothing more is sent.
    fn end(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Endpoint {
    /// Listens at an address; the file of a unix socket gets these permissions and this group.
    ///
    /// # Errors
    /// If somebody listens there, or the system refuses.
    pub fn bind(
        what: &'static str,
        address: &ListenAddress,
        permissions: u32,
        group: Option<Group>,
    ) -> Result<Endpoint> {
        let cannot = || format!("cannot serve {what} at {address}");
        let taken = || format!("{}: somebody listens there already; choose another address", cannot());
        match address {
            ListenAddress::Tcp(to) => {
                let listener = match TcpListener::bind(to) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!("{}", taken()),
                    bound => bound.with_context(cannot)?,
                };
                let address = ListenAddress::Tcp(listener.local_addr().with_context(cannot)?);
                Ok(Endpoint { what, socket: Socket::Tcp(listener), address })
            }
            ListenAddress::Unix(path) => {
                if path.symlink_metadata().is_ok_and(|there| !there.file_type().is_socket()) {
                    bail!("{}: {} is there, and is no socket; choose another path", cannot(), path.display());
                }
                if UnixStream::connect(path).is_ok() {
                    bail!("{}", taken());
                }
                let (listener, file) = bind_unix(path, permissions, group).with_context(cannot)?;
                Ok(Endpoint { what, socket: Socket::Unix(listener, file), address: address.clone() })
            }
        }
    }

    /// The address as bound.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Answers from now on, until the process ends. The socket's file goes when the returned guard is dropped.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn serve(self, site: Arc<impl Site>) -> Result<Option<SocketFile>> {
        match self.socket {
            Socket::Tcp(listener) => {
                spawn(self.what, move || {
                    answer_all(listener.incoming(), &site);
                })?;
                Ok(None)
            }
            Socket::Unix(listener, file) => {
                spawn(self.what, move || {
                    answer_all(listener.incoming(), &site);
                })?;
                Ok(Some(file))
            }
        }
    }
}

fn bind_unix(path: &Path, permissions: u32, group: Option<Group>) -> io::Result<(UnixListener, SocketFile)> {
    // A socket that nobody listens at is left from a daemon that was killed; anything else is not ours.
    if fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(path.to_owned());
    if let Some(Group(group)) = group {
        std::os::unix::fs::chown(path, None, Some(group))?;
    }
    fs::set_permissions(path, Permissions::from_mode(permissions))?;
    Ok((listener, file))
}

fn answer_all<S: Stream + Send + 'static>(
    incoming: impl Iterator<Item = io::Result<S>>,
    site: &Arc<impl Site>,
) {
    let limit = ConnectionLimit::new(CONNECTIONS_MAX);
    for stream in incoming {
        let Ok(mut stream) = stream else {
            // Descriptors may be short for a while.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(admitted) = limit.admit() else { continue };
        let site = Arc::clone(site);
        // Without another thread this one reader gets no answer; the daemon goes on.
        let _ = thread::Builder::new().name("http".to_owned()).spawn(move || {
            let _admitted = admitted;
            // A reader that went away needs no answer.
            let _ = converse(&mut stream, site.as_ref());
        });
    }
}

fn converse(stream: &mut impl Stream, site: &impl Site) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let parsed = loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_patience(left)?;
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&bytes[..count]);
        match Asked::parse(&head) {
            Some(parsed) => break parsed,
            None if head.len() < HEAD_BYTES_MAX => {}
            None => {
                break Err(Answer::text("431 Request Header Fields Too Large", "the head is too long"));
            }
        }
    };
    let (answer, has_body) = match parsed {
        Ok(asked) => (site.answer(&asked), asked.has_body),
        Err(answer) => (answer, true),
    };
    let left = until.saturating_duration_since(Instant::now());
    stream.set_patience(left.max(Duration::from_millis(1)))?;
    stream.write_all(answer.head().as_bytes())?;
    if has_body {
        stream.write_all(answer.body.as_bytes())?;
    }
    stream.flush()?;
    // With bytes of the reader left unread, closing would take back what it has not read of the answer.
    stream.end()?;
    stream.set_patience(LINGER)?;
    let mut rest = [0; 4096];
    for _ in 0..REST_READS_MAX {
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}
