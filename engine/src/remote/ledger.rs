//! The ledger of a remote origin: what is under way, what is answered, and what a lost connection takes back.

use super::{Answer, Entry, Heard, Kind, Owner, Remote, settle_ns};
use crate::effect::Errno;
use crate::mutation::Mutation;
use crate::units::Nanos;
use alloc::vec::Vec;
use core::mem;

impl<C> Remote<C> {
    /// Adds an operation that waits.
    pub(super) fn add(&mut self, entry: Entry<C>) -> u64 {
        // I4: an answer that comes twice must not find another request.
        let is_reused = self.mutations.has(Mutation::CookiesComeAgain);
        let free = (1..self.next_cookie).find(|cookie| is_reused && !self.entries.contains_key(cookie));
        let cookie = free.unwrap_or(self.next_cookie);
        self.next_cookie = self.next_cookie.max(cookie + 1);
        self.entries.insert(cookie, entry);
        self.waiting.insert(cookie);
        cookie
    }

    /// Takes the answer to a request, as it was heard on a connection.
    pub fn heard(&mut self, generation: u64, cookie: u64, result: Result<(), Errno>) -> Heard {
        // I4: what is heard on a connection that is over says nothing of what was sent again.
        if generation != self.generation && !self.mutations.has(Mutation::LateAnswersCount) {
            return Heard::Late;
        }
        let Some(mut entry) = self.take_sent(cookie) else { return Heard::Stray };
        match result {
            Err(Errno::SHUTDOWN) => {
                // As good as gone, and another one may take it.
                self.entries.insert(cookie, entry);
                return Heard::ShuttingDown;
            }
            Err(Errno::OPNOTSUPP | Errno::INVAL)
                if entry.operation.kind == Kind::Zero && !entry.are_bytes_sent =>
            {
                // It says it can, and cannot do it here: from now on zeroes are written.
                self.facts.can_zero = false;
            }
            Err(errno) => {
                let is_believed = self.mutations.has(Mutation::FailedFlushBelieved);
                if entry.operation.kind == Kind::Flush && !is_believed {
                    // The server may have dropped what it had not kept, and a later flush says nothing of that.
                    self.places.lose_unflushed();
                    self.void_parts();
                }
                // HAZARD 16: what it did of a change may be read from now on, and is lost with the server all the same.
                self.changes += u64::from(entry.operation.is_change() && self.facts.can_flush);
                self.answers.push_back(Answer { carried: entry.carried, result: Err(errno) });
                return Heard::Done;
            }
            Ok(()) if mem::take(&mut entry.is_void) => entry.done_bytes = 0,
            Ok(()) => {
                entry.done_bytes += entry.part_bytes;
                if entry.done_bytes >= entry.operation.len_bytes {
                    self.succeed(entry);
                    return Heard::Done;
                }
            }
        }
        entry.is_sent = false;
        Heard::More { cookie: self.add(entry) }
    }

    /// A flush failed: of changes that are not answered as a whole, the server may have dropped what it had. The engine is told of
    /// them behind the failed flush, and counts them as written behind it (I2).
    fn void_parts(&mut self) {
        if self.mutations.has(Mutation::PartsOutliveFailedFlush) {
            return;
        }
        for entry in self.entries.values_mut().filter(|entry| entry.operation.is_change()) {
            entry.is_void = entry.is_sent;
            entry.done_bytes = if entry.is_sent { entry.done_bytes } else { 0 };
        }
    }

    fn take_sent(&mut self, cookie: u64) -> Option<Entry<C>> {
        let is_under_way = self.entries.get(&cookie).is_some_and(|entry| entry.is_sent);
        if is_under_way { self.entries.remove(&cookie) } else { None }
    }

    fn succeed(&mut self, entry: Entry<C>) {
        if entry.operation.is_change() {
            self.changes += 1;
            if let Some(place) = entry.sample {
                self.places.add_written(place, self.changes);
            }
            if !self.facts.can_flush && self.facts.can_fua {
                self.note_flushed(self.changes);
            }
        }
        if entry.operation.kind == Kind::Flush {
            self.note_flushed(entry.covers);
        }
        self.answers.push_back(Answer { carried: entry.carried, result: Ok(()) });
    }

    /// All changes up to the `count`th are durable.
    pub(super) fn note_flushed(&mut self, count: u64) {
        self.flushed = self.flushed.max(count);
        self.places.flushed(count, self.mutations);
    }

    /// The connection is over, and nobody touches the memory of operations any more: what was under way on it waits for
    /// the next one. What was acknowledged and not flushed may be lost: whoever relies on it is told (I3).
    pub fn take_back(&mut self, now: Nanos) {
        self.generation += 1;
        let may_be_lost = self.is_unflushed();
        if !self.mutations.has(Mutation::LostPlacesKept) {
            self.places.lose_unflushed();
        }
        let (mut is_told, mut flushes, mut under_way) = (false, Vec::new(), Vec::new());
        for (cookie, entry) in &mut self.entries {
            let was_sent = mem::take(&mut entry.is_sent);
            entry.is_void = false;
            self.waiting.insert(*cookie);
            // HAZARD 16: parts of a change that were answered may be lost as well, and no flush tells of them.
            if entry.operation.is_change() && !self.mutations.has(Mutation::PartsNotSentAgain) {
                entry.done_bytes = 0;
            }
            if was_sent && entry.operation.is_change() {
                under_way.push(*cookie);
            }
            if entry.operation.kind == Kind::Flush && may_be_lost {
                is_told |= entry.owner == Owner::Engine;
                flushes.push(*cookie);
            }
        }
        let has_changes = !under_way.is_empty();
        if self.mutations.has(Mutation::UnderWayCounts) {
            for cookie in under_way {
                self.waiting.remove(&cookie);
                if let Some(entry) = self.entries.remove(&cookie) {
                    self.succeed(entry);
                }
            }
        }
        if self.mutations.has(Mutation::FlushSentAgain) {
            (is_told, flushes) = (true, Vec::new());
        }
        for cookie in flushes {
            self.fail(cookie, Errno::IO);
        }
        self.owes_failure |= may_be_lost && !is_told && !self.mutations.has(Mutation::LossNotOwed);
        // Whoever was told may try a flush once more before the next loss: until one succeeds, each loss is told.
        if self.mutations.has(Mutation::LossToldOnce) {
            self.flushed = self.changes;
        }
        if has_changes {
            self.changes_lost_at = Some(now);
            self.settle(0);
        }
    }

    /// HAZARD 16: the server may go on for a while with what it got, longer if a flush takes it long.
    pub(super) fn settle(&mut self, flush_ns: u64) {
        let lost_at = self.changes_lost_at.filter(|_| !self.mutations.has(Mutation::SentAgainAtOnce));
        if let Some(lost_at) = lost_at {
            let until = lost_at.plus(settle_ns(flush_ns, self.mutations));
            self.held_until = self.held_until.max(until);
        }
    }

    fn fail(&mut self, cookie: u64, errno: Errno) {
        self.waiting.remove(&cookie);
        let Some(Entry { operation, carried, .. }) = self.entries.remove(&cookie) else { return };
        let answer = Answer { carried, result: Err(errno) };
        // I2: the engine counts what is answered behind a failed flush as written behind it.
        if operation.kind == Kind::Flush && self.mutations.has(Mutation::FailedFlushOvertakes) {
            self.answers.push_front(answer);
        } else {
            self.answers.push_back(answer);
        }
    }

    /// Whether the next flush fails, for what the server may have lost.
    #[must_use]
    pub fn owes_failure(&self) -> bool {
        self.owes_failure
    }

    /// Fails all that waits.
    pub fn fail_waiting(&mut self, errno: Errno) {
        let cookies: Vec<u64> = self.waiting.iter().copied().collect();
        cookies.into_iter().for_each(|cookie| self.fail(cookie, errno));
    }
}
