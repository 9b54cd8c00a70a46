//! The lock on an export: on one machine one process at a time has it as an origin (hazard 13).
//!
//! It is an abstract unix socket with a name made of the server's address and the export's name: it needs no directory,
//! no permission, and is gone when its process is, however that ended. Any user of the machine can take the name first: then the
//! export is refused. So it would be with a file in a directory of all users; one in a user's own would not keep the daemons
//! of two users apart.

use crate::nbd::uri::{NbdUri, Server};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

/// A lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct ExportLock {
    _sockets: Vec<UnixListener>,
}

impl ExportLock {
    /// Takes the lock of an export; `None` if another process has it.
    pub(super) fn take(uri: &NbdUri) -> io::Result<Option<ExportLock>> {
        let mut sockets = Vec::new();
        for key in keys(uri)? {
            let name = UnixAddr::from_abstract_name(name_of(&key))?;
            match UnixListener::bind_addr(&name) {
                Ok(socket) => sockets.push(socket),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(ExportLock { _sockets: sockets }))
    }
}

/// Texts that stand for the export: one for each address of its server.
fn keys(uri: &NbdUri) -> io::Result<Vec<String>> {
    match &uri.server {
        Server::Unix { .. } => Ok(vec![uri.canonical()]),
        Server::Tcp { host, port } => {
            let key = |address: SocketAddr| {
                let ip = match address.ip() {
                    IpAddr::V4(ip) if ip.is_loopback() => "localhost".to_owned(),
                    IpAddr::V6(ip) if ip.is_loopback() => "localhost".to_owned(),
                    ip => ip.to_canonical().to_string(),
                };
                format!("{ip} {port} {}", uri.export)
            };
            let mut keys: Vec<String> = (host.as_str(), *port).to_socket_addrs()?.map(key).collect();
            keys.sort();
            keys.dedup();
            Ok(keys)
        }
    }
}

/// A name short enough for a socket.
fn name_of(key: &str) -> String {
    let sum = |algorithm| crc_fast::checksum(algorithm, key.as_bytes());
    let (first, second) = (sum(crc_fast::CrcAlgorithm::Crc64Nvme), sum(crc_fast::CrcAlgorithm::Crc64Xz));
    format!("forebay/nbd/{first:016x}{second:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::uri::parse;

    #[test]
    fn an_export_is_locked_by_whatever_name() {
        let take = |text: &str| ExportLock::take(&parse(text).unwrap()).unwrap();
        let held = take("nbd://127.0.0.1:1/lock-test").expect("nobody has it");
        assert!(take("nbd://localhost:1/lock-test").is_none());
        assert!(take("nbd://127.0.0.1:1/another").is_some());
        assert!(take("nbd://127.0.0.1:2/lock-test").is_some());
        drop(held);
        assert!(take("nbds://127.0.0.1:1/lock-test?tls-certificates=/x").is_some());
    }
}
