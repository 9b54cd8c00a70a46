//! The HTTP endpoint of metrics: one page, read-only, for few scrapers.
//!
//! Heads are parsed by `httparse`. Each connection has one request, little time and a thread of its own, and there are
//! few of them: a scraper that is slow or hostile holds up others at most, and never clients of volumes.

use super::{MetricsAddress, Source, page};
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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8192;
/// Headers of a request at the most.
const HEADERS_MAX: usize = 64;
/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Time for one connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a scraper to take its leave.
const LINGER: Duration = Duration::from_millis(500);
/// Reads of what it still says.
const REST_READS_MAX: usize = 16;

/// A socket that listens for scrapers. The file of a unix socket is removed when it is dropped.
pub struct Endpoint {
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
    /// Listens at an address; the file of a unix socket gets these permissions.
    ///
    /// # Errors
    /// If somebody listens there, or the system refuses.
    pub fn bind(MetricsAddress(address): &MetricsAddress, permissions: u32) -> Result<Endpoint> {
        let cannot = || format!("cannot serve metrics at {address}");
        match address {
            ListenAddress::Tcp(to) => {
                let listener = TcpListener::bind(to).with_context(cannot)?;
                let address = ListenAddress::Tcp(listener.local_addr().with_context(cannot)?);
                Ok(Endpoint { socket: Socket::Tcp(listener), address })
            }
            ListenAddress::Unix(path) => {
                if UnixStream::connect(path).is_ok() {
                    bail!("{}: somebody listens there already; choose another address", cannot());
                }
                let (listener, file) = bind_unix(path, permissions).with_context(cannot)?;
                Ok(Endpoint { socket: Socket::Unix(listener, file), address: address.clone() })
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
    pub fn serve(self, source: Arc<impl Source>) -> Result<Option<SocketFile>> {
        match self.socket {
            Socket::Tcp(listener) => {
                spawn("metrics", move || {
                    answer_all(listener.incoming(), &source);
                })?;
                Ok(None)
            }
            Socket::Unix(listener, file) => {
                spawn("metrics", move || {
                    answer_all(listener.incoming(), &source);
                })?;
                Ok(Some(file))
            }
        }
    }
}

fn bind_unix(path: &Path, permissions: u32) -> io::Result<(UnixListener, SocketFile)> {
    // A socket that nobody listens at is left from a daemon that was killed; anything else is not ours.
    if fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, Permissions::from_mode(permissions))?;
    Ok((listener, file))
}

fn answer_all<S: Stream + Send + 'static>(
    incoming: impl Iterator<Item = io::Result<S>>,
    source: &Arc<impl Source>,
) {
    let connections = Arc::new(AtomicUsize::new(0));
    for stream in incoming {
        let Ok(mut stream) = stream else {
            // Descriptors may be short for a while.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (source, place) = (Arc::clone(source), Place(Arc::clone(&connections)));
        // Without another thread this one scraper gets no answer; the daemon goes on.
        let _ = thread::Builder::new().name("scrape".to_owned()).spawn(move || {
            let _place = place;
            // A scraper that went away needs no answer.
            let _ = converse(&mut stream, source.as_ref());
        });
    }
}

/// The place of a connection among those that may be.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(stream: &mut impl Stream, source: &impl Source) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let asked = loop {
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
        match parse(&head) {
            Parsed::Whole(asked) => break asked,
            Parsed::Part if head.len() < HEAD_BYTES_MAX => {}
            Parsed::Part => break Asked::TooLong,
            Parsed::Wrong => break Asked::Nothing,
        }
    };
    stream.set_patience(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))?;
    let answer = answer(asked, source);
    stream.write_all(answer.head().as_bytes())?;
    if answer.has_body {
        stream.write_all(answer.body.as_bytes())?;
    }
    stream.flush()?;
    // With bytes of the scraper left unread, closing would take back what it has not read of the answer.
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

/// A request, by what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics { has_body: bool },
    Start,
    Other,
    Method,
    Nothing,
    TooLong,
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Whole(Asked),
    Part,
    Wrong,
}

fn parse(head: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return Parsed::Part,
        Err(_) => return Parsed::Wrong,
        Ok(httparse::Status::Complete(_)) => {}
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let has_body = request.method == Some("GET");
    Parsed::Whole(match (request.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => Asked::Metrics { has_body },
        (Some("GET" | "HEAD"), "/") => Asked::Start,
        (Some("GET" | "HEAD"), _) => Asked::Other,
        _ => Asked::Method,
    })
}

struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
    has_body: bool,
}

impl Answer {
    fn head(&self) -> String {
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             X-Content-Type-Options: nosniff\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        )
    }
}

fn answer(asked: Asked, source: &impl Source) -> Answer {
    let text = |status, body: &str| Answer {
        status,
        kind: "text/plain; charset=utf-8",
        body: format!("{body}\n"),
        has_body: true,
    };
    match asked {
        Asked::Metrics { has_body } => match source.figures().map(|figures| page::encode(&figures)) {
            Ok(Ok(body)) => Answer { status: "200 OK", kind: page::CONTENT_TYPE, body, has_body },
            Ok(Err(_)) => text("500 Internal Server Error", "the page could not be made"),
            Err(error) => text("503 Service Unavailable", &format!("{error:#}")),
        },
        Asked::Start => text("200 OK", "forebay: the metrics are at /metrics"),
        Asked::Other => text("404 Not Found", "the metrics are at /metrics"),
        Asked::Method => text("405 Method Not Allowed", "only GET and HEAD"),
        Asked::Nothing => text("400 Bad Request", "not a request of HTTP"),
        Asked::TooLong => text("431 Request Header Fields Too Large", "the head is too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let whole = |text: &str| parse(format!("{text} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!(whole("GET /metrics"), Parsed::Whole(Asked::Metrics { has_body: true }));
        assert_eq!(whole("GET /metrics?x=1"), Parsed::Whole(Asked::Metrics { has_body: true }));
        assert_eq!(whole("HEAD /metrics"), Parsed::Whole(Asked::Metrics { has_body: false }));
        assert_eq!(whole("GET /"), Parsed::Whole(Asked::Start));
        assert_eq!(whole("GET /../etc/passwd"), Parsed::Whole(Asked::Other));
        assert_eq!(whole("POST /metrics"), Parsed::Whole(Asked::Method));
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHo"), Parsed::Part);
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01"), Parsed::Wrong);
    }
}
