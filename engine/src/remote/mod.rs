//! A remote origin: what the client of an export decides while its server goes away and comes back.
//!
//! A disk never goes away and comes back; a server does. What was not answered is sent again on the next connection. What
//! was acknowledged and not flushed may be lost with the server, so the next flush fails, and the engine does all of it
//! again. Whether an export is the one that was there before is judged before anything is sent to it. This module does
//! no I/O: threads with sockets drive it in the daemon, a simulator in virtual time.
//!
//! Invariants:
//! - I1: an operation is answered exactly once: when its last request is, when the origin is away for too long, or at the
//!   end.
//! - I2: answers are given in the order in which they came. So a failed flush comes after all changes that it takes back.
//! - I3: after a connection was lost, changes that were acknowledged and not flushed may be lost with it: the flush that is
//!   under way, or else the next one, fails.
//! - I4: a request has a cookie of its own, for ever, and a connection a number: what is answered twice, or on a connection
//!   that is over, is no answer to anything else.

pub mod facts;
pub mod places;

mod ledger;
#[cfg(test)]
mod tests;

use crate::effect::Errno;
use crate::mutation::{Mutation, Mutations};
use crate::number::to_u32;
use crate::units::Nanos;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use facts::{Facts, Known};
use places::{Place, Places};

/// Changes wait for so long after a connection ended on which some were not answered, and the use of an export begins so
/// long after that of the process before may have ended: a server that goes on with what it got must not overwrite newer
/// data, nor change what was read.
pub const SETTLE_NS: u64 = Nanos::SECOND;
/// A server that is slow may take as long as so many flushes of now, ...
const SETTLE_FLUSHES: u64 = 10;
/// ... and not longer than this.
const SETTLE_NS_MAX: u64 = 30 * Nanos::SECOND;
/// The longest range that is dropped or zeroed by one request.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// The time for which a server may go on with requests of a connection that is over, if a flush takes it so long now.
#[must_use]
pub fn settle_ns(flush_ns: u64, mutations: Mutations) -> u64 {
    let is_ignored = mutations.has(Mutation::SlownessIgnored);
    let flushes = if is_ignored { 0 } else { SETTLE_FLUSHES };
    flush_ns.saturating_mul(flushes).clamp(SETTLE_NS, SETTLE_NS_MAX)
}

/// The time from which an export may be used that was locked at `taken`, and whose server took `flush_ns` for a flush: until
/// then it may go on with requests of the process before (hazard 16).
#[must_use]
pub fn settled_at(taken: Nanos, flush_ns: u64, mutations: Mutations) -> Nanos {
    if mutations.has(Mutation::UnsettledStart) { taken } else { taken.plus(settle_ns(flush_ns, mutations)) }
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read into memory.
    Read,
    /// Write from memory.
    Write,
    /// Make acknowledged changes durable.
    Flush,
    /// Drop a range.
    Discard,
    /// Zero a range.
    Zero,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Its kind.
    pub kind: Kind,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub len_bytes: u64,
}

impl Operation {
    /// A flush.
    pub const FLUSH: Operation = Operation { kind: Kind::Flush, offset_bytes: 0, len_bytes: 0 };

    fn is_change(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Discard | Kind::Zero)
    }
}

/// Whose an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The engine, which is told of losses by a flush that fails.
    Engine,
    /// The driver itself.
    Driver,
}

/// A request to the server: an operation, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its cookie.
    pub cookie: u64,
    /// Its kind.
    pub kind: Kind,
    /// The change is durable before it is answered.
    pub is_fua: bool,
    /// Zeroes are written, and not the memory of the operation.
    pub is_zeroes: bool,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub len_bytes: u32,
    /// Where its data begins in the memory of the operation.
    pub at_bytes: u64,
}

/// An answer to an operation.
#[derive(Debug)]
pub struct Answer<C> {
    /// The driver's note on the operation.
    pub carried: C,
    /// The result.
    pub result: Result<(), Errno>,
}

/// Meaning of an answer that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An operation is answered.
    Done,
    /// An operation goes on with another request.
    More {
        /// The cookie of that.
        cookie: u64,
    },
    /// Nothing: it belongs to a connection that is over.
    Late,
    /// Nobody asked for it: the connection is of no use any more.
    Stray,
    /// The server is about to go: the connection is of no use any more.
    ShuttingDown,
}

/// The stage of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Operations go out.
    Up,
    /// A new connection is wanted, and nothing goes out until all that is under way is answered.
    Draining,
    /// There is no connection: operations wait.
    Away,
    /// No operation is taken any more.
    Ended,
}

/// Work for whoever makes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Nothing until something happens.
    Wait,
    /// Nothing until this time, or until something happens.
    WaitUntil(Nanos),
    /// Send what waited until changes may go out.
    Release,
    /// Make a new connection in the place of one that works.
    Renew,
    /// Make a new connection.
    Reconnect,
    /// All is over.
    End,
}

/// An operation that is not answered.
struct Entry<C> {
    operation: Operation,
    owner: Owner,
    carried: C,
    done_bytes: u64,
    /// The length of the request under way.
    part_bytes: u64,
    /// That request writes zeroes byte by byte.
    are_bytes_sent: bool,
    /// A request of it is under way on the connection.
    is_sent: bool,
    /// It begins anew: neither what was answered of it counts, nor what is under way.
    is_void: bool,
    /// The changes that a flush covers.
    covers: u64,
    /// The block that is remembered of a write.
    sample: Option<Place>,
}

/// The state of a remote origin. `C` is what the driver keeps of an operation: its memory, and who waits for it.
pub struct Remote<C> {
    phase: Phase,
    facts: Facts,
    /// Counts connections, and their ends.
    generation: u64,
    entries: BTreeMap<u64, Entry<C>>,
    /// Entries that are under way on no connection.
    waiting: BTreeSet<u64>,
    next_cookie: u64,
    answers: VecDeque<Answer<C>>,
    places: Places,
    /// Changes acknowledged so far, and how many of them are durable.
    changes: u64,
    flushed: u64,
    /// The next flush of the engine fails (I3).
    owes_failure: bool,
    /// Time since which the server is away.
    away_since: Option<Nanos>,
    /// The wait is over: what needs the origin fails at once.
    is_given_up: bool,
    /// The connection was lost with changes that were not answered: when it was last, if ever.
    changes_lost_at: Option<Nanos>,
    /// No change goes out before.
    held_until: Nanos,
    /// The longest wait for the server.
    patience_ns: u64,
    mutations: Mutations,
}

impl<C> Remote<C> {
    /// An export that was found, with nothing under way and no connection in use. What waits for its server longer than
    /// `patience_ns` fails.
    #[must_use]
    pub fn new(facts: Facts, places: Places, patience_ns: u64, mutations: Mutations) -> Remote<C> {
        Remote {
            phase: Phase::Away,
            facts,
            generation: 0,
            entries: BTreeMap::new(),
            waiting: BTreeSet::new(),
            next_cookie: 1,
            answers: VecDeque::new(),
            places,
            changes: 0,
            flushed: 0,
            owes_failure: false,
            away_since: None,
            is_given_up: false,
            changes_lost_at: None,
            held_until: Nanos(0),
            patience_ns,
            mutations,
        }
    }

    /// The stage of the connection.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The facts about the export.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The time since which the server is away.
    #[must_use]
    pub fn away_since(&self) -> Option<Nanos> {
        self.away_since
    }

    /// Whether no request is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.entries.values().all(|entry| !entry.is_sent)
    }

    /// Whether changes were acknowledged that no flush has covered.
    #[must_use]
    pub fn is_unflushed(&self) -> bool {
        self.changes > self.flushed
    }

    /// The driver's note on an operation that has no answer yet.
    #[must_use]
    pub fn carried(&self, cookie: u64) -> Option<&C> {
        self.entries.get(&cookie).map(|entry| &entry.carried)
    }

    /// Whether there are answers to be taken.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The next answer, in the order in which they came (I2).
    pub fn take_answer(&mut self) -> Option<Answer<C>> {
        self.answers.pop_front()
    }

    /// The work that is to be done now by whoever makes connections.
    #[must_use]
    pub fn task(&self, now: Nanos) -> Task {
        match self.phase {
            Phase::Ended => Task::End,
            Phase::Away => Task::Reconnect,
            Phase::Draining if self.is_quiet() => Task::Renew,
            Phase::Draining => Task::Wait,
            Phase::Up if self.waiting.is_empty() => Task::Wait,
            Phase::Up if now >= self.held_until => Task::Release,
            Phase::Up => Task::WaitUntil(self.held_until),
        }
    }

    // ---- connections -------------------------------------------------------------------------

    /// Knowledge by which the export is recognised.
    #[must_use]
    pub fn known(&self) -> Known {
        Known { facts: self.facts.clone(), places: self.places.known(), mutations: self.mutations }
    }

    /// The export was recognised, these are the facts about it now, and a flush took its server so long.
    pub fn recognised(&mut self, now: Facts, flush_ns: u64) {
        self.settle(flush_ns);
        // The name and the smallest transfer are those that were known.
        let name = self.facts.name.take().or_else(|| now.name.clone());
        self.facts = Facts { name, sector_bytes: self.facts.sector_bytes, ..now };
    }

    /// Operations go out on a connection, which gets a number.
    pub fn go_up(&mut self) -> u64 {
        self.generation += 1;
        if self.phase != Phase::Ended {
            self.phase = Phase::Up;
            self.is_given_up = false;
            self.away_since = None;
        }
        self.generation
    }

    /// A connection has ended. False if it is not in use any more.
    pub fn lost(&mut self, generation: u64, now: Nanos) -> bool {
        let is_in_use = matches!(self.phase, Phase::Up | Phase::Draining);
        if self.generation != generation || !is_in_use {
            return false;
        }
        self.phase = Phase::Away;
        self.away_since = Some(now);
        true
    }

    /// The server was looked for, and not found.
    pub fn sought_in_vain(&mut self, now: Nanos) {
        if self.phase != Phase::Away {
            return;
        }
        let since = *self.away_since.get_or_insert(now);
        if now.since(since) >= self.patience_ns {
            self.is_given_up = true;
            self.fail_waiting(Errno::IO);
        }
    }

    /// A new connection is wanted in the place of one that works. False if there is none that works.
    pub fn want_renewal(&mut self) -> bool {
        let is_up = self.phase == Phase::Up;
        if is_up {
            self.phase = Phase::Draining;
        }
        is_up
    }

    /// The connection works, nothing is under way on it, and another one shall take its place.
    pub fn give_away(&mut self) {
        if self.phase == Phase::Draining {
            self.phase = Phase::Away;
        }
    }

    /// No operation is taken any more.
    pub fn end(&mut self) {
        self.phase = Phase::Ended;
    }

    // ---- operations --------------------------------------------------------------------------

    /// Takes an operation: returns the cookie of its first request, or nothing if it is answered at once. `checksum_at`
    /// is asked for the checksum of a block of what is written, by its offset on the export.
    pub fn submit(
        &mut self,
        operation: Operation,
        owner: Owner,
        carried: C,
        checksum_at: impl FnOnce(&C, u64) -> u32,
    ) -> Option<u64> {
        if let Some(result) = self.answer_at_once(&operation, owner) {
            self.answers.push_back(Answer { carried, result });
            return None;
        }
        let mut sample = None;
        if operation.is_change() {
            let Operation { offset_bytes, len_bytes, .. } = operation;
            if !self.mutations.has(Mutation::ChangedPlacesKept) {
                self.places.forget(offset_bytes, len_bytes);
            }
            if operation.kind == Kind::Write && self.places.wants_sample() {
                let place = places::sample_of(offset_bytes, len_bytes);
                sample = place.map(|offset_bytes| {
                    let checksum = checksum_at(&carried, offset_bytes);
                    Place { offset_bytes, checksum }
                });
            }
        }
        let covers = self.changes;
        let entry = Entry {
            operation,
            owner,
            carried,
            done_bytes: 0,
            part_bytes: 0,
            are_bytes_sent: false,
            is_sent: false,
            is_void: false,
            covers,
            sample,
        };
        Some(self.add(entry))
    }

    /// The answer to an operation that needs no server, or gets none.
    fn answer_at_once(&mut self, operation: &Operation, owner: Owner) -> Option<Result<(), Errno>> {
        if self.phase == Phase::Ended {
            return Some(Err(Errno::TIMEDOUT));
        }
        if operation.is_change() && self.facts.is_read_only {
            return Some(Err(Errno::PERM));
        }
        match operation.kind {
            Kind::Flush if self.owes_failure && owner == Owner::Engine => {
                self.owes_failure = false;
                return Some(Err(Errno::IO));
            }
            // Each change is durable by itself, or none can be made so.
            Kind::Flush if !self.facts.can_flush => {
                self.note_flushed(self.changes);
                return Some(Ok(()));
            }
            Kind::Discard if !self.facts.can_trim => return Some(Err(Errno::OPNOTSUPP)),
            _ if operation.kind != Kind::Flush && operation.len_bytes == 0 => return Some(Ok(())),
            _ => {}
        }
        (self.phase == Phase::Away && self.is_given_up).then_some(Err(Errno::IO))
    }

    /// Makes the next request of an operation, if it may go out.
    pub fn begin(&mut self, cookie: u64, now: Nanos) -> Option<Request> {
        let entry = self.entries.get_mut(&cookie).filter(|entry| !entry.is_sent)?;
        let Operation { kind, offset_bytes, len_bytes } = entry.operation;
        let is_own_flush = kind == Kind::Flush && entry.owner == Owner::Driver;
        let may_go = self.phase == Phase::Up || self.phase == Phase::Draining && is_own_flush;
        let is_change = entry.operation.is_change();
        if !may_go || is_change && now < self.held_until {
            return None;
        }
        let is_zeroes = kind == Kind::Zero && !self.facts.can_zero;
        let kind = if is_zeroes { Kind::Write } else { kind };
        let part_bytes_max = match kind {
            Kind::Read | Kind::Write => u64::from(self.facts.payload_bytes_max),
            Kind::Flush => 0,
            Kind::Discard | Kind::Zero => RANGE_BYTES_MAX,
        };
        entry.part_bytes = (len_bytes - entry.done_bytes).min(part_bytes_max);
        (entry.is_sent, entry.are_bytes_sent) = (true, is_zeroes);
        self.waiting.remove(&cookie);
        let needs_fua = is_change && !self.facts.can_flush && self.facts.can_fua;
        Some(Request {
            cookie,
            kind,
            is_fua: needs_fua && !self.mutations.has(Mutation::FuaForgotten),
            is_zeroes,
            offset_bytes: offset_bytes + entry.done_bytes,
            len_bytes: to_u32(entry.part_bytes),
            at_bytes: entry.done_bytes,
        })
    }

    /// The cookies of all operations that wait to go out.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().copied()
    }
}
