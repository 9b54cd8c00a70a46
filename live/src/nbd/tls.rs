//! TLS of connections: certificates, and a socket's two directions used by two threads.

use crate::nbd::client::Stream;
use crate::nbd::uri::{NbdUri, Server, Tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Bytes that are taken from the socket at once.
const SOCKET_BYTES: usize = 16 << 10;

/// Reason why there can be no TLS with these certificates.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be used.
    #[error("cannot use {file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// A certificate and a key that are not of each other, or of a kind that is not supported.
    #[error("the certificate {certificate} does not fit its key: {reason}")]
    Unfit {
        /// The file of the certificate.
        certificate: String,
        /// Why.
        reason: String,
    },
    /// A name that no certificate can have.
    #[error("`{name}` is no name that a certificate can have; add tls-hostname=NAME")]
    Name {
        /// The name.
        name: String,
    },
}

/// A connection in its handshake, encrypted or not.
pub(crate) enum Channel {
    Plain(Stream),
    Secure(Box<StreamOwned<ClientConnection, Stream>>),
}

impl Channel {
    /// The socket under it.
    pub(crate) fn socket(&self) -> &Stream {
        match self {
            Channel::Plain(socket) => socket,
            Channel::Secure(secure) => &secure.sock,
        }
    }

    /// The socket, and what encrypts it.
    pub(crate) fn into_parts(self) -> (Stream, Option<Cipher>) {
        match self {
            Channel::Plain(socket) => (socket, None),
            Channel::Secure(secure) => {
                let (connection, socket) = secure.into_parts();
                (socket, Some(Cipher(Arc::new(Mutex::new(connection)))))
            }
        }
    }
}

impl Read for Channel {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(socket) => socket.read(bytes),
            Channel::Secure(secure) => secure.read(bytes),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(socket) => socket.write(bytes),
            Channel::Secure(secure) => secure.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Channel::Plain(socket) => socket.flush(),
            Channel::Secure(secure) => secure.flush(),
        }
    }
}

/// The certificates of a directory, and the name that the server must prove.
pub(crate) fn prepare(uri: &NbdUri, tls: &Tls) -> Result<ClientConnection, TlsError> {
    let host = match &uri.server {
        Server::Tcp { host, .. } => host.as_str(),
        Server::Unix { .. } => "",
    };
    let name = tls.hostname.as_deref().unwrap_or(host).to_owned();
    let server = ServerName::try_from(name.clone()).map_err(|_| TlsError::Name { name: name.clone() })?;
    let config = configure(&tls.certificates)?;
    ClientConnection::new(Arc::new(config), server).map_err(|_| TlsError::Name { name })
}

fn configure(directory: &Path) -> Result<ClientConfig, TlsError> {
    let authorities = directory.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&authorities)? {
        roots.add(certificate).map_err(|error| wrong(&authorities, &error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the ciphers of these versions")
        .with_root_certificates(roots);
    let own = directory.join("client-cert.pem");
    if !own.exists() {
        return Ok(builder.with_no_client_auth());
    }
    let key_file = directory.join("client-key.pem");
    builder
        .with_client_auth_cert(certificates(&own)?, key(&key_file)?)
        .map_err(|error| wrong(&key_file, &error))
}

/// The error of a file.
pub(super) fn wrong(file: &Path, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { file: file.display().to_string(), reason: reason.to_string() }
}

/// All certificates in a file, at least one.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(file, &plain(&error)))?;
    if found.is_empty() { Err(wrong(file, &"it holds no certificate")) } else { Ok(found) }
}

/// The key in a file.
pub(super) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            wrong(file, &"it holds no key, or one that is locked by a password")
        }
        error => wrong(file, &plain(&error)),
    })
}

fn plain(error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(error) => match error.kind() {
            io::ErrorKind::NotFound => "it does not exist".to_owned(),
            io::ErrorKind::PermissionDenied => "it may not be read".to_owned(),
            kind => kind.to_string(),
        },
        other => other.to_string(),
    }
}

/// The encryption of a connection in use: one thread sends, another one may hear.
#[derive(Clone)]
pub(crate) struct Cipher(Arc<Mutex<ClientConnection>>);

impl Cipher {
    fn lock(&self) -> MutexGuard<'_, ClientConnection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encrypts as much of the slices as fits, and appends it to `output`; the number of bytes taken.
    pub(crate) fn encrypt(&self, slices: &[IoSlice<'_>], output: &mut Vec<u8>) -> io::Result<usize> {
        let mut connection = self.lock();
        let taken = connection.writer().write_vectored(slices)?;
        while connection.wants_write() {
            connection.write_tls(output)?;
        }
        Ok(taken)
    }
}

/// The hearing end of an encrypted connection.
pub(crate) struct SecureReader<S> {
    socket: S,
    cipher: Cipher,
    /// Bytes from the socket, of which those from `next` to `end` were not decrypted.
    bytes: Vec<u8>,
    next: usize,
    end: usize,
}

impl<S> SecureReader<S> {
    /// The hearing end of this socket.
    pub(crate) fn new(socket: S, cipher: Cipher) -> SecureReader<S> {
        SecureReader { socket, cipher, bytes: vec![0; SOCKET_BYTES], next: 0, end: 0 }
    }

    /// The socket.
    pub(crate) fn socket(&mut self) -> &mut S {
        &mut self.socket
    }
}

impl<S: Read> Read for SecureReader<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut connection = self.cipher.lock();
            match connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if self.next < self.end {
                self.next += connection.read_tls(&mut &self.bytes[self.next..self.end])?;
                connection.process_new_packets().map_err(io::Error::other)?;
                continue;
            }
            drop(connection);
            // Should there be none for now, those are not to be decrypted again.
            (self.next, self.end) = (0, 0);
            self.end = self.socket.read(&mut self.bytes)?;
            if self.end == 0 {
                return Ok(0);
            }
        }
    }
}
