//! What was done to the server of an origin, and which errors of clients that explains.
//!
//! * While the server fails what it is asked for, reads and changes of its volume may fail.
//! * After its death a FLUSH may fail, and those sent before that was answered: what clients changed at the origin alone
//!   may be lost with the server. If a change was answered while that one was under way, it does not speak for it, and the
//!   next one fails as well. Until then what is to be durable by itself may fail, too, which says nothing of others.
//! * If the daemon is killed before that, or a moment after it, the first FLUSH of a later life may fail.
//!
//! Any other error breaks the promise: a server that is away for less than ten seconds is waited for.

use crate::judge::NOTED_WITHIN;
use crate::verifier::{Excuses, Failure, Kind};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time between an operation that failed and the error that a client sees of it, on a busy machine.
const GRACE: Duration = Duration::from_millis(1500);

/// The death of a server.
#[derive(Clone, Copy, Debug)]
struct Death {
    at: Instant,
    /// When FLUSHes told of it: a first one, and one that was sent after that.
    told: [Option<Instant>; 2],
    /// It was in an earlier life: the first FLUSH of this one tells of it, if any does.
    is_earlier: bool,
}

/// The troubles of one server, in one life of the daemon.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Times in which it failed operations, with their ends if they have ended.
    failing: Vec<(Instant, Option<Instant>)>,
    deaths: Vec<Death>,
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
        self.lock().deaths.push(Death { at: Instant::now(), told: [None; 2], is_earlier: false });
    }

    /// The next life of the daemon begins, with a server that works.
    pub fn restart(&self) {
        let mut state = self.lock();
        state.failing.clear();
        state.deaths.retain(|death| {
            let last_told = death.told.iter().flatten().max();
            last_told.is_none_or(|told| told.elapsed() < NOTED_WITHIN)
        });
        for death in &mut state.deaths {
            (death.told, death.is_earlier) = ([None; 2], true);
        }
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
        for death in state.deaths.iter_mut().filter(|death| death.at <= *answered_at) {
            // The first of those that it may be.
            let times = if death.is_earlier { 1 } else { 2 };
            let mut told = death.told[..times].iter_mut();
            let Some(told) = told.find(|told| told.is_none_or(|told| *asked_at <= told)) else { continue };
            is_explained = true;
            if *kind == Kind::Flush {
                told.get_or_insert(*answered_at);
            }
        }
        is_explained
    }

    fn flush_answered(&self, _: Instant) {
        // One that succeeds may have had nothing to do at the origin, but knows of earlier lives.
        for death in self.lock().deaths.iter_mut().filter(|death| death.is_earlier) {
            death.told[0].get_or_insert_with(Instant::now);
        }
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

    #[test]
    fn a_death_in_an_earlier_life_is_told_once() {
        let troubles = Troubles::default();
        troubles.dies();
        troubles.restart();
        assert!(troubles.explain(&failure(Kind::Flush, false)));
        assert!(!troubles.explain(&failure(Kind::Flush, false)), "later");
        troubles.dies();
        troubles.restart();
        troubles.flush_answered(Instant::now());
        assert!(!troubles.explain(&failure(Kind::Flush, false)), "one succeeded");
    }
}
