//! Report on the clients of a daemon, a part of `status`.

use live::server::ClientFigures;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The clients of a daemon.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ClientsReport {
    /// Those that are connected.
    pub connected: usize,
    /// The most that may be.
    pub limit: usize,
    /// Those that found no place, since the start.
    pub sent_away: u64,
    /// Those that were refused for what they are, since the start: without TLS, or without the right certificate.
    pub refused: u64,
}

impl From<ClientFigures> for ClientsReport {
    fn from(figures: ClientFigures) -> ClientsReport {
        let ClientFigures { connected, limit, sent_away, refused } = figures;
        ClientsReport { connected, limit, sent_away, refused }
    }
}

impl ClientsReport {
    /// Prints it for people.
    ///
    /// # Errors
    /// The error of writing.
    pub fn print(&self, to: &mut impl Write) -> io::Result<()> {
        write!(to, "clients    {} of {} at the most", self.connected, self.limit)?;
        if self.sent_away > 0 {
            write!(to, ", {} found no place", self.sent_away)?;
        }
        if self.refused > 0 {
            write!(to, ", {} refused", self.refused)?;
        }
        writeln!(to)
    }
}
