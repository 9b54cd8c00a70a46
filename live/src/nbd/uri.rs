//! Names of NBD exports: the NBD project's standard of URIs, a page beside that of its protocol.
//!
//! `nbd://HOST[:PORT]/EXPORT`, `nbds://` over TLS, `nbd+unix:///EXPORT?socket=PATH`, `nbds+unix://`. Whatever follows
//! the first `/` is the export's name; without a name it is the server's default export.

use fluent_uri::Uri;
use fluent_uri::component::Authority;
use fluent_uri::pct_enc::encoder::{Data, Path as PathEncoder, Query};
use fluent_uri::pct_enc::{EStr, EString, Encoder};
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The port of NBD.
pub const PORT: u16 = 10809;
/// The parameters that are known.
const PARAMETERS: &str = "socket, tls-certificates, tls-hostname";

/// An export as named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// The server.
    pub server: Server,
    /// The export's name; the default export's is empty.
    pub export: String,
    /// The connection is encrypted, and the server proves who it is.
    pub tls: Option<Tls>,
}

/// A server as named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// At a unix socket.
    Unix {
        /// The socket.
        socket: PathBuf,
    },
    /// At a TCP port.
    Tcp {
        /// The host's name or address; an IPv6 address without its brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Parameters of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The directory of `ca-cert.pem`, `client-cert.pem` and `client-key.pem`, as libnbd and qemu have it.
    pub certificates: PathBuf,
    /// The name that the server's certificate must have, if not the host's.
    pub hostname: Option<String>,
}

/// Reason why a text names no export.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NbdUriError {
    /// Not a URI at all.
    #[error(
        "`{text}` is not a URI: {reason}; write for example nbd://host/export or nbd+unix:///export?socket=/path"
    )]
    Syntax {
        /// The text as written.
        text: String,
        /// The error of the parser.
        reason: String,
    },
    /// A scheme that is not one of NBD over TCP or unix sockets.
    #[error("`{scheme}:` is no kind of NBD; known are nbd:, nbds:, nbd+unix: and nbds+unix:")]
    Scheme {
        /// The scheme as written.
        scheme: String,
    },
    /// A TCP URI without a host.
    #[error("`{text}` names no host; write for example {scheme}://host/export")]
    NoHost {
        /// The text as written.
        text: String,
        /// Its scheme.
        scheme: String,
    },
    /// A unix URI with a host.
    #[error(
        "`{text}` names a host and a unix socket; write {scheme}:///export?socket=/path, with three slashes"
    )]
    HostAndSocket {
        /// The text as written.
        text: String,
        /// Its scheme.
        scheme: String,
    },
    /// A unix URI without its socket.
    #[error("`{text}` names no socket; add ?socket=/path")]
    NoSocket {
        /// The text as written.
        text: String,
    },
    /// A port that is none.
    #[error("`{port}` is no port; write a number from 1 to 65535, or nothing for {PORT}")]
    Port {
        /// The port as written.
        port: String,
    },
    /// A user, which only pre-shared keys need.
    #[error(
        "a user in an NBD URI is for pre-shared keys, which are not supported; use certificates (tls-certificates=DIR)"
    )]
    User,
    /// A fragment, which has no meaning.
    #[error("`#{fragment}` has no meaning in an NBD URI; write # as %23")]
    Fragment {
        /// The fragment as written.
        fragment: String,
    },
    /// A parameter that is not known.
    #[error("unknown parameter `{parameter}` of an NBD URI; known are {PARAMETERS}")]
    Unknown {
        /// The parameter as written.
        parameter: String,
    },
    /// A parameter given twice.
    #[error("parameter `{parameter}` of an NBD URI is given twice")]
    Twice {
        /// The parameter.
        parameter: String,
    },
    /// A parameter without a value.
    #[error("parameter `{parameter}` of an NBD URI needs a value")]
    Empty {
        /// The parameter.
        parameter: String,
    },
    /// A parameter where it has no meaning.
    #[error("parameter `{parameter}` has no meaning with `{scheme}:`")]
    OutOfPlace {
        /// The parameter.
        parameter: String,
        /// The scheme.
        scheme: String,
    },
    /// TLS without certificates.
    #[error(
        "`{scheme}:` needs tls-certificates=DIR: a directory with ca-cert.pem, and client-cert.pem and client-key.pem \
         if the server wants to know its clients"
    )]
    NoCertificates {
        /// The scheme.
        scheme: String,
    },
    /// TLS at a unix socket without a name to compare the certificate with.
    #[error("`nbds+unix:` needs tls-hostname=NAME: the name that the server's certificate must have")]
    NoHostname,
    /// A part that is no text, or holds a zero byte, or is too long.
    #[error("the {part} of an NBD URI must be UTF-8 without zero bytes, at most 4096 bytes long")]
    Text {
        /// The part.
        part: &'static str,
    },
}

/// Whether a scheme is one of NBD's.
#[must_use]
pub fn is_nbd_scheme(scheme: &str) -> bool {
    scheme.starts_with("nbd")
}

/// Reads the name of an export.
///
/// # Errors
/// [`NbdUriError`]: one line that says what is wrong and what is right.
pub fn parse(text: &str) -> Result<NbdUri, NbdUriError> {
    let syntax = |reason: String| NbdUriError::Syntax { text: text.to_owned(), reason };
    let uri = Uri::parse(text).map_err(|error| syntax(error.to_string()))?;
    let scheme = uri.scheme().as_str().to_ascii_lowercase();
    let (is_tls, is_unix) = match scheme.as_str() {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        _ => return Err(NbdUriError::Scheme { scheme }),
    };
    if let Some(fragment) = uri.fragment() {
        return Err(NbdUriError::Fragment { fragment: fragment.as_str().to_owned() });
    }
    let no_host = || NbdUriError::NoHost { text: text.to_owned(), scheme: scheme.clone() };
    let authority = uri.authority();
    if authority.is_some_and(|authority| authority.has_userinfo()) {
        return Err(NbdUriError::User);
    }
    let path = uri.path();
    if !path.is_absolute() && !path.is_empty() {
        // `nbd:host:port`, as old programs have it.
        return Err(no_host());
    }
    let export = decode(path, "export name")?;
    let export = export.strip_prefix('/').unwrap_or(&export).to_owned();
    let Parameters { socket, certificates, hostname } = Parameters::parse(uri.query())?;
    let out_of_place =
        |parameter: &str| NbdUriError::OutOfPlace { parameter: parameter.to_owned(), scheme: scheme.clone() };
    let server = if is_unix {
        if authority.is_some_and(|authority| !authority.host().is_empty() || authority.has_port()) {
            return Err(NbdUriError::HostAndSocket { text: text.to_owned(), scheme });
        }
        let socket = socket.ok_or_else(|| NbdUriError::NoSocket { text: text.to_owned() })?;
        Server::Unix { socket: PathBuf::from(socket) }
    } else {
        if socket.is_some() {
            return Err(out_of_place("socket"));
        }
        server_of(authority.ok_or_else(no_host)?, no_host)?
    };
    let tls = if is_tls {
        let certificates = certificates.ok_or(NbdUriError::NoCertificates { scheme })?;
        if is_unix && hostname.is_none() {
            return Err(NbdUriError::NoHostname);
        }
        Some(Tls { certificates: PathBuf::from(certificates), hostname })
    } else {
        match (certificates, hostname) {
            (None, None) => None,
            (Some(_), _) => return Err(out_of_place("tls-certificates")),
            (None, Some(_)) => return Err(out_of_place("tls-hostname")),
        }
    };
    Ok(NbdUri { server, export, tls })
}

fn server_of(authority: Authority<'_>, no_host: impl FnOnce() -> NbdUriError) -> Result<Server, NbdUriError> {
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(no_host());
    }
    let port = match authority.port().map(EStr::as_str) {
        None | Some("") => PORT,
        Some(port) => {
            let number = port.parse().ok().filter(|number| *number != 0);
            number.ok_or_else(|| NbdUriError::Port { port: port.to_owned() })?
        }
    };
    Ok(Server::Tcp { host: host.to_owned(), port })
}

#[derive(Default)]
struct Parameters {
    socket: Option<String>,
    certificates: Option<String>,
    hostname: Option<String>,
}

impl Parameters {
    fn parse(query: Option<&EStr<Query>>) -> Result<Parameters, NbdUriError> {
        let mut parameters = Parameters::default();
        let pairs = query.map(|query| query.split('&')).into_iter().flatten();
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, EStr::EMPTY));
            let place = match name.as_str() {
                "socket" => &mut parameters.socket,
                "tls-certificates" => &mut parameters.certificates,
                "tls-hostname" => &mut parameters.hostname,
                other => return Err(NbdUriError::Unknown { parameter: other.to_owned() }),
            };
            let parameter = name.as_str().to_owned();
            if place.is_some() {
                return Err(NbdUriError::Twice { parameter });
            }
            let value = decode(value, "parameters")?;
            if value.is_empty() {
                return Err(NbdUriError::Empty { parameter });
            }
            *place = Some(value);
        }
        Ok(parameters)
    }
}

fn decode<E: Encoder>(text: &EStr<E>, part: &'static str) -> Result<String, NbdUriError> {
    let wrong = |_| NbdUriError::Text { part };
    let text = text.decode().to_string().map_err(wrong)?.into_owned();
    if text.contains('\0') || text.len() > super::wire::protocol::STRING_BYTES_MAX {
        return Err(NbdUriError::Text { part });
    }
    Ok(text)
}

/// A value of a parameter, where a slash needs no escape.
fn encode(path: &Path) -> EString<Query> {
    let mut text = EString::<Query>::new();
    for (at, part) in path.to_string_lossy().split('/').enumerate() {
        if at > 0 {
            text.push('/');
        }
        text.encode_str::<Data>(part);
    }
    text
}

impl NbdUri {
    /// The same export, valid in any working directory.
    #[must_use]
    pub fn absolute(&self) -> NbdUri {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut same = self.clone();
        if let Server::Unix { socket } = &mut same.server {
            *socket = absolute(socket);
        }
        if let Some(tls) = &mut same.tls {
            tls.certificates = absolute(&tls.certificates);
        }
        same
    }

    /// A name of the export alone, the same however it is reached: without parameters of TLS.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut plain = NbdUri { tls: None, ..self.absolute() };
        match &mut plain.server {
            Server::Unix { socket } => {
                if let Ok(resolved) = socket.canonicalize() {
                    *socket = resolved;
                }
            }
            Server::Tcp { host, .. } => host.make_ascii_lowercase(),
        }
        plain.to_string()
    }
}

impl fmt::Display for Server {
    /// Writes the server as people know it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Unix { socket } => write!(f, "{}", socket.display()),
            Server::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Server::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for NbdUri {
    /// Writes the URI so that [`parse`] reads the same again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls.is_some() { "s" } else { "" };
        let mut export = EString::<PathEncoder>::new();
        export.encode_str::<PathEncoder>(&self.export);
        let mut separator = '?';
        match &self.server {
            Server::Unix { socket } => {
                write!(f, "nbd{tls}+unix:///{export}?socket={}", encode(socket))?;
                separator = '&';
            }
            Server::Tcp { port, .. } => {
                let server = self.server.to_string();
                let server = server.strip_suffix(&format!(":{PORT}")).filter(|_| *port == PORT);
                match server {
                    Some(host) => write!(f, "nbd{tls}://{host}/{export}")?,
                    None => write!(f, "nbd{tls}://{}/{export}", self.server)?,
                }
            }
        }
        if let Some(tls) = &self.tls {
            write!(f, "{separator}tls-certificates={}", encode(&tls.certificates))?;
            if let Some(hostname) = &tls.hostname {
                write!(f, "&tls-hostname={}", encode(Path::new(hostname)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "uri_tests.rs"]
mod tests;
