//! What was done to the server of an origin, and which errors of clients that explains.
//!
//! * While the server fails what it is asked for, reads and changes of its volume may fail.
//! * After its death a FLUSH may fail, and those sent before that was answered: what clients changed at the origin alone
//!   may be lost with the server. If a change was answered while that one was under way, it does not speak for it, and the
//!   next one fails as well. Until then what is to be durable by itself may fail, too, which says nothing of others.
//!
//! Any other error breaks the promise: a server that is away for less than ten seconds is waited for.

use crate::verifier::{Excuses, Failure, Kind};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time between an operation that failed and the error that a client sees of it, on a busy machine.
const GRACE: Duration = Duration::from_millis(1500);

/// The troubles of one server, in one life of the daemon.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Times in which it failed operations, with their ends if they have ended.
    failing: Vec<(Instant, Option<Instant>)>,
    /// Its deaths, and when FLUSHes told of them: a first one, and one that was sent after that.
    deaths: Vec<(Instant, [Option<Instant>; 2])>,
}

impl Troubles {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }

    /// From now on it fails operations.
    pub fn fails(&self) {
        self.lock().failing.push((Instant::now(), None));
    }

    /// It fails nothing any more.
    pub fn works(&self) {
        if let Some((_, end)) = self.lock().failing.last_mut() {
            *end = Some(Instant::now());
        }
    }

    /// It is about to die.
    pub fn dies(&self) {
        self.lock().deaths.push((Instant::now(), [None; 2]));
    }

    /// The next life of the daemon begins, with a server that works.
    pub fn restart(&self) {
        *self.lock() = State::default();
    }
}

impl Excuses for Troubles {
    fn explain(&self, failure: &Failure) -> bool {
        let Failure { kind, fua, asked_at, answered_at, .. } = failure;
        let mut state = self.lock();
        let is_durable = *kind == Kind::Flush || *fua;
        let has_failed = state.failing.iter().any(|(from, to)| {
            *from <= *answered_at && to.is_none_or(|to| to + GRACE >= *asked_at) && *kind != Kind::Flush
        });
        if has_failed || !is_durable {
            return has_failed;
        }
        let mut is_explained = false;
        for (_, told) in state.deaths.iter_mut().filter(|(death, _)| *death <= *answered_at) {
            // The first of the two that it may be.
            let Some(at) = told.iter().position(|told| told.is_none_or(|told| *asked_at <= told)) else {
                continue;
            };
            is_explained = true;
            if *kind == Kind::Flush {
                told[at].get_or_insert(*answered_at);
            }
        }
        is_explained
    }

    fn flush_answered(&self, _: Instant) {
        // One that succeeds may have had nothing to do at the origin.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::effect::Errno;

    fn failure(kind: Kind, fua: bool) -> Failure {
        let now = Instant::now();
        Failure { kind, fua, start: 0, sectors: 8, errno: Errno::IO, asked_at: now, answered_at: now }
    }

    #[test]
    fn a_server_that_works_explains_nothing() {
        let troubles = Troubles::default();
        for kind in [Kind::Read, Kind::Write, Kind::Flush, Kind::Discard, Kind::Zeroes] {
            assert!(!troubles.explain(&failure(kind, true)), "{kind:?}");
        }
        troubles.fails();
        assert!(troubles.explain(&failure(Kind::Read, false)));
        assert!(!troubles.explain(&failure(Kind::Flush, false)), "flushes do not fail there");
        troubles.works();
        troubles.restart();
        assert!(!troubles.explain(&failure(Kind::Read, false)));
    }

    #[test]
    fn a_death_is_told_twice_at_the_most() {
        let troubles = Troubles::default();
        troubles.dies();
        assert!(!troubles.explain(&failure(Kind::Write, false)));
        assert!(!troubles.explain(&failure(Kind::Read, false)));
        let beside = failure(Kind::Flush, false);
        troubles.flush_answered(beside.asked_at);
        assert!(troubles.explain(&failure(Kind::Write, true)));
        assert!(troubles.explain(&beside), "it was sent before that was answered");
        assert!(troubles.explain(&failure(Kind::Flush, false)), "the first one did not speak for everything");
        assert!(!troubles.explain(&failure(Kind::Flush, false)), "later");
    }
}
