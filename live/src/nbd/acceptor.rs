//! Acceptor: the certificates with which a server secures the connections of its clients.

use super::tls::{TlsError, certificates, key, wrong};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Clients that may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsClients {
    /// Those with a certificate of the authority in `ca-cert.pem`.
    Certified,
    /// Those without a certificate, too. One that a client presents must be right.
    Any,
}

/// A server's certificate and key, and the authority of its clients: `server-cert.pem`, `server-key.pem` and
/// `ca-cert.pem` of a directory, named as libvirt, QEMU and nbdkit name them.
#[derive(Debug)]
pub struct Acceptor {
    directory: PathBuf,
    clients: TlsClients,
    config: RwLock<Arc<ServerConfig>>,
}

impl Acceptor {
    /// Reads the certificates of a directory.
    ///
    /// # Errors
    /// [`TlsError`]: a file that is missing, or that does not fit the others.
    pub fn open(directory: &Path, clients: TlsClients) -> Result<Acceptor, TlsError> {
        let config = RwLock::new(configure(directory, clients)?);
        Ok(Acceptor { directory: directory.to_owned(), clients, config })
    }

    /// Reads them again, for the clients that come from now on. With an error the former ones stay.
    ///
    /// # Errors
    /// As [`Acceptor::open`].
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = configure(&self.directory, self.clients)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The server's side of a new connection.
    pub(crate) fn connection(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn configure(directory: &Path, clients: TlsClients) -> Result<Arc<ServerConfig>, TlsError> {
    let [authorities, own, key_file] =
        ["ca-cert.pem", "server-cert.pem", "server-key.pem"].map(|name| directory.join(name));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the ciphers of these versions");
    let builder = if clients == TlsClients::Any && !authorities.exists() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&authorities)? {
            roots.add(certificate).map_err(|error| wrong(&authorities, &error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = if clients == TlsClients::Any { verifier.allow_unauthenticated() } else { verifier };
        builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&authorities, &error))?)
    };
    let mut config = builder.with_single_cert(certificates(&own)?, key(&key_file)?).map_err(|error| {
        TlsError::Unfit { certificate: own.display().to_string(), reason: error.to_string() }
    })?;
    // Each client proves who it is each time, and nothing is kept of those that left.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
