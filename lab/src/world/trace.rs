//! Events of a world in their order: a hash of all, and the last ones for a report.

use crate::clock::EventHash;
use crate::disk::faults::{Fault, Kind};
use engine::effect::{Notice, Target};
use engine::units::SectorRange;
use std::collections::VecDeque;
use std::fmt;

/// Events that are kept for a report.
const KEPT: usize = 200;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request was submitted.
    Submit {
        /// Its number.
        request: u64,
        /// The volume.
        volume: usize,
        /// Its operation's name.
        op: &'static str,
        /// Where, if that matters.
        range: Option<SectorRange>,
    },
    /// A request was answered.
    Reply {
        /// Its number.
        request: u64,
        /// The errno, or 0.
        errno: i32,
    },
    /// The engine began a device operation.
    Issue {
        /// Its number.
        op: u64,
        /// The device.
        target: Target,
        /// Its kind.
        kind: Kind,
        /// The first sector.
        first: u64,
        /// How many.
        sectors: u64,
        /// The fault that it meets.
        fault: Option<Fault>,
    },
    /// A device operation had its effect.
    Land {
        /// Its number.
        op: u64,
    },
    /// A device operation was answered.
    Done {
        /// Its number.
        op: u64,
        /// The errno, or 0.
        errno: i32,
    },
    /// A sector rotted.
    Rot {
        /// The device.
        target: Target,
        /// The sector.
        sector: u64,
    },
    /// The engine told something.
    Notice(Notice),
    /// The engine's deadline came.
    Tick,
    /// The power was cut or the process ended.
    Crash {
        /// Whether the power was cut.
        power: bool,
        /// Writes that were unflushed or in flight.
        at_stake: u64,
        /// Writes at stake that were kept, at least in part.
        kept: u64,
    },
    /// Recovery ended and an engine began.
    Open {
        /// Its session.
        session: u64,
        /// Bytes that count as dirty.
        dirty_bytes: u64,
    },
    /// A start was refused.
    Refused,
    /// Somebody changed an origin while no engine ran.
    Behind {
        /// Its volume.
        volume: usize,
        /// The change.
        what: &'static str,
    },
    /// Something happened to the connection to a server.
    Server {
        /// The volume of its origin.
        volume: usize,
        /// Its state now.
        what: &'static str,
    },
}

/// The events of a world.
#[derive(Debug, Default)]
pub struct Trace {
    hash: EventHash,
    count: u64,
    last: VecDeque<(u64, What)>,
    /// Prints every event as it happens.
    pub is_printing: bool,
}

impl Trace {
    pub(super) fn add(&mut self, now_ns: u64, what: What) {
        self.count += 1;
        self.hash.add(now_ns);
        for part in what.parts() {
            self.hash.add(part);
        }
        if self.is_printing {
            println!("{}", Line(now_ns, what));
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back((now_ns, what));
    }

    /// A hash of all events so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// How many events there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last `count` events, one a line, oldest first.
    #[must_use]
    pub fn last(&self, count: usize) -> Vec<String> {
        let skip = self.last.len().saturating_sub(count);
        self.last.iter().skip(skip).map(|&(now_ns, what)| Line(now_ns, what).to_string()).collect()
    }
}

impl What {
    fn parts(&self) -> [u64; 6] {
        let range = |range: &Option<SectorRange>| range.map_or((0, 0), |range| (range.start, range.sectors));
        match self {
            What::Submit { request, volume, op, range: at } => {
                let (start, sectors) = range(at);
                [1, *request, *volume as u64, op.len() as u64, start, sectors]
            }
            What::Reply { request, errno } => [2, *request, *errno as u64, 0, 0, 0],
            What::Issue { op, target, kind, first, sectors, fault } => {
                let target = match target {
                    Target::Cache => 100,
                    Target::Mirror => 102,
                    Target::State => 101,
                    Target::Origin(volume) => u64::from(volume.0),
                };
                let fault = u64::from(fault.is_some());
                [3 + 16 * fault, *op, target, *kind as u64, *first, *sectors]
            }
            What::Land { op } => [4, *op, 0, 0, 0, 0],
            What::Done { op, errno } => [5, *op, *errno as u64, 0, 0, 0],
            What::Rot { sector, .. } => [6, *sector, 0, 0, 0, 0],
            What::Notice(_) => [7, 0, 0, 0, 0, 0],
            What::Tick => [8, 0, 0, 0, 0, 0],
            What::Crash { power, at_stake, kept } => [9, u64::from(*power), *at_stake, *kept, 0, 0],
            What::Open { session, dirty_bytes } => [10, *session, *dirty_bytes, 0, 0, 0],
            What::Refused => [11, 0, 0, 0, 0, 0],
            What::Behind { volume, what } => [12, *volume as u64, what.len() as u64, 0, 0, 0],
            What::Server { volume, what } => [13, *volume as u64, what.len() as u64, 0, 0, 0],
        }
    }
}

struct Line(u64, What);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(now_ns, what) = self;
        write!(f, "{:>12.6} ms  ", *now_ns as f64 / 1e6)?;
        match what {
            What::Submit { request, volume, op, range } => {
                write!(f, "{:<8} #{request:<6} {op:<13} volume {volume}", "submit")?;
                match range {
                    Some(range) => write!(f, " sectors {}+{}", range.start, range.sectors),
                    None => Ok(()),
                }
            }
            What::Reply { request, errno: 0 } => write!(f, "{:<8} #{request:<6} ok", "reply"),
            What::Reply { request, errno } => write!(f, "{:<8} #{request:<6} errno {errno}", "reply"),
            What::Issue { op, target, kind, first, sectors, fault } => {
                let target = match target {
                    Target::Cache => "cache".to_string(),
                    Target::Mirror => "mirror".to_string(),
                    Target::State => "state".to_string(),
                    Target::Origin(volume) => format!("origin {}", volume.0),
                };
                let kind = format!("{kind:?}").to_lowercase();
                write!(f, "{:<8} @{op:<6} {kind:<13} {target}", "issue")?;
                if *sectors > 0 {
                    write!(f, " sectors {first}+{sectors}")?;
                }
                fault.map_or(Ok(()), |fault| write!(f, " fault {fault:?}"))
            }
            What::Land { op } => write!(f, "{:<8} @{op}", "land"),
            What::Done { op, errno: 0 } => write!(f, "{:<8} @{op:<6} ok", "done"),
            What::Done { op, errno } => write!(f, "{:<8} @{op:<6} errno {errno}", "done"),
            What::Rot { target, sector } => write!(f, "{:<8} {target:?} sector {sector}", "rot"),
            What::Notice(notice) => write!(f, "{:<8} {notice:?}", "notice"),
            What::Tick => write!(f, "tick"),
            What::Crash { power, at_stake, kept } => {
                let kind = if *power { "power cut" } else { "process crash" };
                write!(f, "{:<8} {kind}, {at_stake} writes at stake, {kept} kept", "crash")
            }
            What::Open { session, dirty_bytes } => {
                write!(f, "{:<8} session {session}, {dirty_bytes} bytes dirty", "open")
            }
            What::Refused => write!(f, "refused"),
            What::Behind { volume, what } => write!(f, "{:<8} origin {volume} is {what}", "behind"),
            What::Server { volume, what } => write!(f, "{:<8} that of origin {volume} {what}", "server"),
        }
    }
}
