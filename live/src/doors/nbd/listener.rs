//! Addresses to listen on, and the sockets there.

use crate::patience::try_patiently;
use rustix::fs::{Gid, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Connections that may wait to be accepted; the kernel takes no more than its own limit, which is 4096 by default. A
/// client that finds the queue full gets EAGAIN from a unix socket.
const BACKLOG: i32 = 4096;
/// The port that NBD has by convention.
const NBD_PORT: u16 = 10809;
/// The send buffer to ask for on a connection (the kernel doubles it). Measured with long reads over four
/// connections: a larger one lets replies pile up beyond what the caches hold, a smaller one cuts them into more
/// steps.
const SEND_BUFFER_BYTES: usize = 106 * 1024;
/// Time after which a client that says nothing is asked whether it is there; one that does not answer is gone after twice as long.
const SILENCE: Duration = Duration::from_secs(60);
/// How often it is asked.
const PROBES: u32 = 6;

/// Address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is no address to listen on; write unix:PATH, or HOST:PORT with a numeric host, or :PORT")]
pub struct AddressError {
    /// The text as written.
    text: String,
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    /// `unix:PATH`, `HOST:PORT`, `:PORT` or `localhost:PORT`. Without a host it is 127.0.0.1, so that an export is
    /// not offered to a network by accident.
    fn from_str(text: &str) -> Result<ListenAddress, AddressError> {
        let wrong = || AddressError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(ListenAddress::Unix(PathBuf::from(path))) };
        }
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        if let Ok(address) = text.parse() {
            return Ok(ListenAddress::Tcp(address));
        }
        if let Ok(host) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(ListenAddress::Tcp(SocketAddr::new(host, NBD_PORT)));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        if !host.is_empty() && host != "localhost" {
            return Err(wrong());
        }
        let port = port.parse().map_err(|_| wrong())?;
        Ok(ListenAddress::Tcp(SocketAddr::new(loopback, port)))
    }
}

impl ListenAddress {
    /// Whether only this machine reaches it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            ListenAddress::Unix(_) => true,
            ListenAddress::Tcp(address) => address.ip().to_canonical().is_loopback(),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Tcp(address) => address.fmt(f),
        }
    }
}

/// Permissions and group of a unix socket's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOwner {
    pub permissions: u32,
    /// `None` for the process's own.
    pub group: Option<u32>,
}

/// A socket that listens. A unix socket's file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    address: ListenAddress,
}

impl Listener {
    /// Listens at the address. The file of a unix socket without a listener is replaced; it gets this owner,
    /// whatever the umask.
    pub(crate) fn bind(address: &ListenAddress, owner: SocketOwner) -> io::Result<Listener> {
        let permissions = Mode::from_raw_mode(owner.permissions);
        match address {
            ListenAddress::Unix(path) => {
                remove_stale(path)?;
                let socket = rustix::net::socket_with(
                    AddressFamily::UNIX,
                    SocketType::STREAM,
                    SocketFlags::CLOEXEC,
                    None,
                )?;
                // The file is made with the socket's own permissions, less the umask: at no time has it more.
                rustix::fs::fchmod(&socket, permissions)?;
                rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
                let listener = Listener { socket, address: address.clone() };
                if let Some(group) = owner.group {
                    rustix::fs::chown(path, None, Some(Gid::from_raw(group)))?;
                }
                // What the umask took is given back before anybody can connect.
                rustix::fs::chmod(path, permissions)?;
                rustix::net::listen(&listener.socket, BACKLOG)?;
                Ok(listener)
            }
            ListenAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                // The library asks for a short queue; a second call makes it longer.
                rustix::net::listen(&listener, BACKLOG)?;
                let address = ListenAddress::Tcp(listener.local_addr()?);
                Ok(Listener { socket: listener.into(), address })
            }
        }
    }

    /// As [`Listener::bind`]; an address that is in use is tried again for a moment.
    pub(crate) fn bind_patiently(address: &ListenAddress, owner: SocketOwner) -> io::Result<Listener> {
        try_patiently(
            || Listener::bind(address, owner),
            |error: &io::Error| error.raw_os_error() == Some(libc::EADDRINUSE),
        )
    }

    /// The address as bound: port 0 has become a real one.
    pub(crate) fn address(&self) -> &ListenAddress {
        &self.address
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether its clients come over TCP.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, ListenAddress::Tcp(_))
    }

    /// Ends an accept that waits.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Sets a new connection's options. Without them it is slower, and the place of a client that is gone stays taken.
    pub(crate) fn prepare(&self, connection: &OwnedFd) {
        use rustix::net::sockopt;
        let connection = connection.as_fd();
        if self.is_tcp() {
            let _ = sockopt::set_tcp_nodelay(connection, true);
            // A client's machine that lost its power says nothing any more.
            let _ = sockopt::set_tcp_keepidle(connection, SILENCE);
            let _ = sockopt::set_tcp_keepintvl(connection, SILENCE / PROBES);
            let _ = sockopt::set_tcp_keepcnt(connection, PROBES);
            let _ = sockopt::set_socket_keepalive(connection, true);
        }
        let _ = sockopt::set_socket_send_buffer_size(connection, SEND_BUFFER_BYTES);
    }
}

/// Sets the options of a socket whose other end is the kernel's. They only make it faster.
pub(super) fn prepare_pair(socket: &OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES);
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let ListenAddress::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes a socket's file if it has no listener.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let in_use = || io::Error::from_raw_os_error(libc::EADDRINUSE);
    if !metadata.file_type().is_socket() {
        return Err(in_use());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => std::fs::remove_file(path),
        _ => Err(in_use()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const OWN: SocketOwner = SocketOwner { permissions: 0o600, group: None };

    fn bind(address: &ListenAddress) -> io::Result<Listener> {
        Listener::bind(address, OWN)
    }

    #[test]
    fn addresses_are_read() {
        let tcp = |text: &str| ListenAddress::Tcp(text.parse().unwrap());
        for (text, address) in [
            ("unix:/run/x.sock", ListenAddress::Unix(PathBuf::from("/run/x.sock"))),
            ("127.0.0.1:1", tcp("127.0.0.1:1")),
            ("0.0.0.0:5", tcp("0.0.0.0:5")),
            ("[::1]:7", tcp("[::1]:7")),
            (":10809", tcp("127.0.0.1:10809")),
            ("localhost:2", tcp("127.0.0.1:2")),
            ("10.0.0.1", tcp("10.0.0.1:10809")),
        ] {
            assert_eq!(text.parse(), Ok(address.clone()), "{text}");
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for text in ["", "unix:", "example.org:1", "1.2.3.4:99999", "/run/x.sock", "localhost"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_address_of_a_daemon_that_is_going_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let address = ListenAddress::Unix(directory.path().join("s"));
        let before = bind(&address).unwrap();
        let going = std::thread::spawn(move || {
            std::thread::sleep(crate::patience::PAUSE * 3);
            drop(before);
        });
        assert!(Listener::bind_patiently(&address, OWN).is_ok());
        going.join().unwrap();
    }

    #[test]
    fn a_socket_has_the_permissions_that_were_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        // The umask takes the write permission of others, most often.
        for permissions in [0o600, 0o666, 0o660] {
            let owner = SocketOwner { permissions, group: Some(rustix::process::getgid().as_raw()) };
            let listener = Listener::bind(&ListenAddress::Unix(path.clone()), owner).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, permissions);
            drop(listener);
        }
    }

    #[test]
    fn two_hundred_clients_connect_before_the_first_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = bind(&ListenAddress::Unix(path.clone())).unwrap();
        let clients = (0..200).map(|_| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let client = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::connect(&client, &SocketAddrUnix::new(&path)?).map(|()| client)
        });
        assert_eq!(clients.collect::<Result<Vec<_>, _>>().map(|clients| clients.len()), Ok(200));
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let address = ListenAddress::Unix(path.clone());
        let first = bind(&address).unwrap();
        assert_eq!(bind(&address).unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
        drop(first);
        assert!(!path.exists());
        // A killed daemon leaves the file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = bind(&address).unwrap();
        drop(second);
        assert!(!path.exists());
        std::fs::write(&path, b"a file of somebody's").unwrap();
        assert!(bind(&address).is_err());
        assert!(path.exists());
    }
}
