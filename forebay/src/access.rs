//! Access: who may connect to a daemon, as it is carried out.

use crate::arguments::access::Access as Wanted;
use crate::startup::check_machine;
use anyhow::{Context, Result, bail};
use live::server::{Acceptor, ClientLimits, ListenAddress, TlsClients};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;

/// Descriptors of a daemon beside those of its clients.
const OTHER_DESCRIPTORS: u64 = 64;
/// The file that knows the groups of this machine.
const GROUPS: &str = "/etc/group";

/// A group of users, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub u32);

/// A group that is not there.
#[derive(Debug, Error)]
#[error("there is no group {name} in {GROUPS}; groupadd --system {name} makes it, or give its number")]
pub struct GroupError {
    name: String,
}

/// The group of that name or number.
///
/// # Errors
/// [`GroupError`] if there is none of that name.
pub fn group(text: &str) -> Result<Group, GroupError> {
    if let Ok(number) = u32::from_str(text) {
        return Ok(Group(number));
    }
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    find_group(&groups, text).ok_or_else(|| GroupError { name: text.to_owned() })
}

/// The group of that name in the text of `/etc/group`: `name:password:number:members`.
fn find_group(groups: &str, name: &str) -> Option<Group> {
    let mut fields = groups.lines().map(|line| line.split(':'));
    fields.find_map(|mut fields| {
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)?.parse().ok().map(Group)
    })
}

/// Who may use the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlAccess {
    /// The socket's permissions.
    pub mode: u32,
    /// Its group, if it is not the daemon's own.
    pub group: Option<Group>,
    /// Other users who can open it may change things, too.
    pub others_change: bool,
}

impl ControlAccess {
    /// For the user who runs the daemon alone.
    pub const PRIVATE: ControlAccess = ControlAccess { mode: 0o600, group: None, others_change: false };

    /// Whether the user at the other end may change things: the daemon's own and root always.
    #[must_use]
    pub fn may_change(&self, stream: &UnixStream) -> bool {
        if self.others_change {
            return true;
        }
        let own = rustix::process::geteuid();
        // Somebody who cannot be known may look.
        rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
    }
}

/// Who may connect to a daemon, and how much each client may have.
#[derive(Clone, Debug)]
pub struct Access {
    /// The certificates for clients over TCP.
    pub tls: Option<Arc<Acceptor>>,
    /// Limits of clients.
    pub limits: ClientLimits,
    /// The group of unix sockets, if it is not the daemon's own.
    pub group: Option<Group>,
    /// Who may use the control socket.
    pub control: ControlAccess,
}

impl Access {
    /// For the user who runs the daemon alone.
    #[must_use]
    pub fn private() -> Access {
        Access { tls: None, limits: ClientLimits::default(), group: None, control: ControlAccess::PRIVATE }
    }

    /// The access that is wanted at these addresses for NBD, with its certificates read.
    ///
    /// # Errors
    /// If a certificate cannot be used, an address is open to others in the clear and that is not said to be meant, or so
    /// many clients cannot be had.
    pub fn new(wanted: &Wanted, listen: &[ListenAddress]) -> Result<Access> {
        let clients = if wanted.tls_any_client { TlsClients::Any } else { TlsClients::Certified };
        let tls = wanted.tls_certificates.as_ref().map(|directory| Acceptor::open(directory, clients));
        let tls = tls.transpose().context("cannot serve by TLS")?.map(Arc::new);
        let limits = wanted.limits();
        expect_descriptors(limits.clients)?;
        wanted.client_memory.map_or(Ok(()), |bytes| check_machine("--client-memory", bytes))?;
        let group = wanted.socket_group;
        let control =
            ControlAccess { mode: wanted.control_mode, group, others_change: wanted.control_changes };
        let access = Access { tls, limits, group, control };
        access.expect_secure(listen, wanted.insecure)?;
        Ok(access)
    }

    /// Refuses addresses that others can reach in the clear, unless that is meant.
    fn expect_secure(&self, listen: &[ListenAddress], is_insecure_meant: bool) -> Result<()> {
        let open = listen.iter().find(|address| !address.is_local());
        match open {
            Some(address) if self.tls.is_none() && !is_insecure_meant => bail!(
                "{address} would be open to other machines, without encryption and without a password; give it \
                 certificates (--tls-certificates DIR), or say --insecure if that is meant"
            ),
            _ => Ok(()),
        }
    }
}

/// Refuses more clients than the process may have open files.
fn expect_descriptors(clients: usize) -> Result<()> {
    let needed = clients as u64 + OTHER_DESCRIPTORS;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed && clients > live::server::CLIENTS_DEFAULT => bail!(
            "{clients} clients need {needed} open files, and {limit} are allowed; raise the limit, as by: ulimit -n {needed}"
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_number() {
        let groups = "root:x:0:\nforebay:x:987:ann,bob\nbroken\nodd:x:y:\n";
        assert_eq!(find_group(groups, "forebay"), Some(Group(987)));
        assert_eq!(find_group(groups, "root"), Some(Group(0)));
        for none in ["fore", "broken", "odd", "987", ""] {
            assert_eq!(find_group(groups, none), None, "{none}");
        }
        assert_eq!(group("12").ok(), Some(Group(12)));
        assert!(group("no-such-group-here").is_err());
    }

    #[test]
    fn only_this_machine_is_reached_in_the_clear() {
        let access = Access::private();
        let address = |text: &str| vec![text.parse::<ListenAddress>().expect("an address")];
        for local in ["unix:/run/x", "127.0.0.1:1", "[::1]:2", "[::ffff:127.0.0.1]:3", "127.8.8.8:4"] {
            assert!(access.expect_secure(&address(local), false).is_ok(), "{local}");
        }
        for open in ["0.0.0.0:1", "[::]:2", "10.0.0.1:3"] {
            assert!(access.expect_secure(&address(open), false).is_err(), "{open}");
            assert!(access.expect_secure(&address(open), true).is_ok(), "{open}");
        }
    }
}
