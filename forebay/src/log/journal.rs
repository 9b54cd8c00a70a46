//! The journal of systemd: messages with fields, by its native protocol.
//!
//! A message is one datagram: `NAME=value` and a line feed for each field. Source: "Native Journal Protocol" of systemd.
//! It is sent without waiting: a journal that takes nothing, because its disk is full or it hangs, loses messages and
//! holds up nobody.

use super::{Message, is_of};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The environment variable that names another socket, for tests.
const SOCKET_VARIABLE: &str = "FOREBAY_JOURNAL_SOCKET";
/// Bytes of a value at the most; a datagram has its limits.
const VALUE_BYTES_MAX: usize = 32 * 1024;

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The journal has it, or takes nothing now, and it is lost.
    Done,
    /// There is no journal to send it to.
    NoJournal,
}

/// The way to the journal.
pub(super) struct Journal {
    socket: OwnedFd,
    address: SocketAddrUnix,
    /// Messages that it did not take.
    lost: AtomicU64,
}

impl Journal {
    /// The journal that has our standard error, if one has.
    pub(super) fn of_stderr() -> Option<&'static Journal> {
        static JOURNAL: OnceLock<Option<Journal>> = OnceLock::new();
        let open = || {
            is_of(&std::env::var("JOURNAL_STREAM").ok()?).then_some(())?;
            let path = std::env::var_os(SOCKET_VARIABLE).unwrap_or_else(|| SOCKET.into());
            Journal::open(SocketAddrUnix::new(path).ok()?)
        };
        JOURNAL.get_or_init(open).as_ref()
    }

    fn open(address: SocketAddrUnix) -> Option<Journal> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
        Some(Journal { socket, address, lost: AtomicU64::new(0) })
    }

    /// Sends a message, and with it how many were lost before.
    pub(super) fn send(&self, message: &Message<'_>) -> Fate {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let datagram = datagram(message, lost);
        match sendto(&self.socket, &datagram, SendFlags::NOSIGNAL, &self.address) {
            Ok(_) => Fate::Done,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED) => {
                self.lost.fetch_add(lost, Ordering::Relaxed);
                Fate::NoJournal
            }
            Err(_) => {
                self.lost.fetch_add(lost + 1, Ordering::Relaxed);
                Fate::Done
            }
        }
    }
}

/// The datagram of a message.
fn datagram(message: &Message<'_>, lost: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut field = |name: &str, value: &str| {
        // All our texts are one line; what came from elsewhere may not be.
        let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut end = value.len().min(VALUE_BYTES_MAX);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(&value.as_bytes()[..end]);
        bytes.push(b'\n');
    };
    let mut text = message.line();
    if lost > 0 {
        text = format!("{text} ({lost} messages before it were lost: the journal did not take them)");
    }
    field("MESSAGE", &text);
    field("PRIORITY", &(message.level as u8).to_string());
    field("SYSLOG_IDENTIFIER", "forebay");
    if let Some(event) = message.event {
        field("FOREBAY_EVENT", event.id());
    }
    if let Some(volume) = message.volume {
        field("FOREBAY_VOLUME", volume);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Event, Level};
    use std::os::unix::net::UnixDatagram;

    fn message(text: &str) -> Message<'_> {
        Message { event: Some(Event::OriginFailed), level: Level::Error, volume: Some("data"), text }
    }

    #[test]
    fn a_message_is_fields_of_one_line_each() {
        let text = String::from_utf8(datagram(&message("it\nfailed"), 3)).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let said = "MESSAGE=[F02] it failed (3 messages before it were lost: the journal did not take them)";
        let rest = ["PRIORITY=3", "SYSLOG_IDENTIFIER=forebay", "FOREBAY_EVENT=F02", "FOREBAY_VOLUME=data"];
        assert_eq!(lines, [&[said][..], &rest].concat());
        let long = "ä".repeat(VALUE_BYTES_MAX);
        assert!(datagram(&message(&long), 0).len() < VALUE_BYTES_MAX + 200);
    }

    /// A journal that reads nothing fills up; messages are lost and counted, and nobody waits.
    #[test]
    fn a_full_journal_holds_up_nobody() {
        let place = std::env::temp_dir().join(format!("forebay-journal-{}", std::process::id()));
        let _left_from_before = std::fs::remove_file(&place);
        let reader = UnixDatagram::bind(&place).expect("a socket for the test");
        let journal = Journal::open(SocketAddrUnix::new(&place).expect("short")).expect("a socket");
        for _ in 0..10_000 {
            assert_eq!(journal.send(&message("again")), Fate::Done);
        }
        let lost = journal.lost.load(Ordering::Relaxed);
        assert!(lost > 0, "a queue is not so long");
        reader.set_nonblocking(true).expect("a socket");
        let (mut bytes, mut read) = ([0; 4096], 0);
        while reader.recv(&mut bytes).is_ok() {
            read += 1;
        }
        assert_eq!(read + lost, 10_000, "what is lost is counted");
        assert_eq!(journal.send(&message("later")), Fate::Done);
        let count = reader.recv(&mut bytes).expect("there is room again");
        let said = String::from_utf8_lossy(&bytes[..count]);
        assert!(said.contains(&format!("{lost} messages before it were lost")), "{said}");
        drop(reader);
        assert_eq!(journal.send(&message("nobody")), Fate::NoJournal);
        std::fs::remove_file(&place).expect("what the test made");
        assert_eq!(journal.send(&message("nowhere")), Fate::NoJournal);
    }
}
