//! The judge of a server's client: an operation fails only for a reason. It knows of the connection what the world does to
//! it, and of the client its answers alone.

use super::{OWN, PATIENCE_NS};
use crate::disk::faults::Kind;
use engine::effect::Errno;
use engine::units::{BLOCK_BYTES, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// Knowledge of what a client may answer.
#[derive(Default)]
pub(super) struct Judge {
    /// Changes that were acknowledged or failed, and those of them that a flush covers.
    changes: u64,
    flushed: u64,
    /// Operations that were asked for and not answered, with the changes acknowledged before.
    under_way: BTreeMap<u64, u64>,
    /// Operations that may fail: their server said so, or they waited too long.
    may_fail: BTreeSet<u64>,
    /// A connection was lost with changes that no flush covers, and no flush has failed since.
    owes: bool,
    /// When the connection was lost.
    away_since: Option<Nanos>,
    /// The wait for it is over.
    is_given_up: bool,
    /// The device counts as gone.
    is_ended: bool,
    /// Places that were read at the start, and that nobody asked to change.
    untouched: BTreeSet<u64>,
}

impl Judge {
    pub fn new(places: impl Iterator<Item = u64>) -> Judge {
        Judge { untouched: places.collect(), ..Judge::default() }
    }

    /// Whether an operation may fail yet.
    pub fn owes(&self) -> bool {
        self.owes || !self.may_fail.is_empty()
    }

    /// Whether a place is there that the client knows for certain.
    pub fn is_any_place_known(&self) -> bool {
        !self.untouched.is_empty()
    }

    /// An operation is asked for.
    pub fn asked(&mut self, op: u64, kind: Kind, first: u64, sectors: u64) {
        self.under_way.insert(op, self.changes);
        // A loss may be told at once; the next one has to be told by another flush, even if it comes before this answer.
        let is_told = kind == Kind::Flush && op != OWN && std::mem::take(&mut self.owes);
        if self.is_given_up || self.is_ended || is_told {
            self.may_fail.insert(op);
        }
        if kind.is_change() {
            let (start, end) = (first * 512, (first + sectors) * 512);
            self.untouched.retain(|place| end <= *place || *place + BLOCK_BYTES <= start);
        }
    }

    /// An operation has the answer of its server.
    pub fn heard(&mut self, op: u64, kind: Kind, result: Result<(), Errno>, can_flush: bool) {
        match result {
            Err(_) => {
                self.may_fail.insert(op);
                // It may have been carried out in part.
                self.changes += u64::from(kind.is_change() && can_flush);
            }
            Ok(()) if kind.is_change() => {
                self.changes += 1;
                if !can_flush {
                    self.flushed = self.changes;
                }
            }
            Ok(()) if kind == Kind::Flush => {
                let covers = self.under_way.get(&op).copied().unwrap_or(0);
                self.flushed = self.flushed.max(covers);
            }
            Ok(()) => (),
        }
    }

    /// The connection is lost.
    pub fn lost(&mut self, now: Nanos) {
        self.away_since = Some(now);
    }

    /// The client was told of it, or gave it away.
    pub fn taken_back(&mut self) {
        self.owes |= self.changes > self.flushed;
    }

    /// The server was looked for and not found. True if that is the end of the wait.
    pub fn sought_in_vain(&mut self, now: Nanos) -> bool {
        let since = *self.away_since.get_or_insert(now);
        let is_over = now.since(since) >= PATIENCE_NS;
        if is_over {
            self.may_fail.extend(self.under_way.keys());
        }
        is_over && !std::mem::replace(&mut self.is_given_up, true)
    }

    /// A connection is in use.
    pub fn is_back(&mut self) {
        (self.away_since, self.is_given_up) = (None, false);
    }

    /// The device counts as gone.
    pub fn ended(&mut self) {
        self.is_ended = true;
        self.may_fail.extend(self.under_way.keys());
    }

    /// The engine is told of an answer.
    ///
    /// # Errors
    /// Why it may not be that one.
    pub fn answered(&mut self, op: u64, kind: Kind, result: Result<(), Errno>) -> Result<(), String> {
        self.under_way.remove(&op);
        let may_fail = self.may_fail.remove(&op);
        let Err(errno) = result else { return Ok(()) };
        if may_fail || kind == Kind::Flush && std::mem::take(&mut self.owes) {
            return Ok(());
        }
        Err(format!("its client fails a {kind:?} with errno {} for no reason", errno.0))
    }
}
