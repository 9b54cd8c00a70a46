//! Who may connect to a daemon, and how much each client may have.

use super::{ValueError, permissions};
use crate::access::Group;
use clap::Args;
use live::devices;
use live::server::{CLIENT_MEMORY_BYTES_MIN, ClientLimits};
use std::path::PathBuf;

/// The most clients that can be asked for.
const CLIENTS_MAX: i64 = 65_536;
/// The most requests under way that can be asked for.
const REQUESTS_MAX: i64 = 65_536;

/// Who may connect, and how much each client may have.
#[derive(Clone, Debug, Args)]
pub struct Access {
    /// Serve NBD over TCP by TLS alone, with ca-cert.pem, server-cert.pem and server-key.pem in DIR. Clients need a
    /// certificate of that authority.
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,
    /// Take clients without a certificate, too; then ca-cert.pem may be missing.
    #[arg(long, requires = "tls_certificates")]
    pub tls_any_client: bool,
    /// Serve NBD at an address that other machines reach without TLS: there is no password, and no encryption.
    #[arg(long)]
    pub insecure: bool,
    /// Give unix sockets to this group, a name or a number; what its members may do is said by their modes.
    #[arg(long, value_name = "GROUP", value_parser = crate::access::group)]
    pub socket_group: Option<Group>,
    /// Permissions of the control socket, octal: with 0660 the group may ask (status, stats, top, advise).
    #[arg(long, value_name = "OCTAL", default_value = "0600", value_parser = permissions)]
    pub control_mode: u32,
    /// Let whoever can open the control socket change things, too: set, flush, detach, attach.
    #[arg(long)]
    pub control_changes: bool,
    /// The most clients at a time, each connection counted.
    #[arg(long, value_name = "N", default_value = "256",
        value_parser = clap::value_parser!(u32).range(1..=CLIENTS_MAX))]
    pub clients: u32,
    /// The most requests of one client under way; the next one waits.
    #[arg(long, value_name = "N", default_value = "512",
        value_parser = clap::value_parser!(u32).range(1..=REQUESTS_MAX))]
    pub client_requests: u32,
    /// The most memory for data of one client, 256K or more [default: a quarter of that of all, which is the most].
    #[arg(long, value_name = "SIZE", value_parser = client_memory)]
    pub client_memory: Option<u64>,
}

impl Access {
    /// The limits of clients.
    #[must_use]
    pub fn limits(&self) -> ClientLimits {
        ClientLimits {
            clients: self.clients as usize,
            requests: self.client_requests as usize,
            memory_bytes: self.client_memory.unwrap_or(u64::MAX),
        }
    }
}

fn client_memory(text: &str) -> Result<u64, ValueError> {
    let size_bytes = devices::parse_size(text).map_err(|_| ValueError::ClientMemory)?;
    if size_bytes < CLIENT_MEMORY_BYTES_MIN { Err(ValueError::ClientMemory) } else { Ok(size_bytes) }
}
