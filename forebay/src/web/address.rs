//! Where the page may be served: on this machine alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use thiserror::Error;

/// An address of this machine that others do not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebAddress(pub SocketAddr);

/// A text that is no address for the page.
#[derive(Debug, Error)]
pub enum WebAddressError {
    /// Not an address.
    #[error("`{0}` is no address for the web page; write :PORT, 127.0.0.1:PORT or [::1]:PORT")]
    Malformed(String),
    /// Other machines would reach it.
    #[error(
        "{0} would open the web page to other machines; write :PORT for this machine alone, and reach it from others \
         with ssh -L"
    )]
    Open(SocketAddr),
}

impl FromStr for WebAddress {
    type Err = WebAddressError;

    fn from_str(text: &str) -> Result<WebAddress, WebAddressError> {
        let malformed = || WebAddressError::Malformed(text.to_owned());
        let address = match text.strip_prefix("localhost").unwrap_or(text).strip_prefix(':') {
            Some(port) => {
                let port = port.parse().map_err(|_| malformed())?;
                SocketAddr::from((Ipv4Addr::LOCALHOST, port))
            }
            None => text.parse().map_err(|_| malformed())?,
        };
        if address.ip().is_loopback() { Ok(WebAddress(address)) } else { Err(WebAddressError::Open(address)) }
    }
}

/// Whether the host of a request is a name of this machine that nobody else can give away. The port does not matter: a
/// tunnel may begin at another one.
pub(super) fn is_ours(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_an_address() {
        for right in [":9420", "127.0.0.1:9420", "127.1.2.3:1", "[::1]:9420", "localhost:9420", ":0"] {
            assert!(right.parse::<WebAddress>().is_ok(), "{right}");
        }
        for wrong in ["9420", "", "localhost", "example.org:1", "unix:/x", ":99999", "127.0.0.1"] {
            let error = wrong.parse::<WebAddress>().expect_err(wrong).to_string();
            assert!(error.contains("no address for the web page"), "{error}");
        }
        for open in ["0.0.0.0:9420", "[::]:9420", "192.168.1.2:80"] {
            let error = open.parse::<WebAddress>().expect_err(open).to_string();
            assert!(error.contains("other machines"), "{error}");
        }
    }
}
