//! The loop of every long run: a workload asks, time goes on, answers go back.
//!
//! A cache and a bare disk are driven by the same loop; a [`Stage`] says what differs. The world of the crash runs
//! is driven otherwise on purpose: a scenario may look, hold back or cut between any two events, so that world
//! delivers one event at a time and lets the engine act after each. A long run delivers all completions of an
//! instant and then lets the engine act once, which is faster and puts neighbours into one command.

use super::ledger::Mismatch;
use super::workload::{Idle, Next, Workload};
use engine::composition::stored::DivideError;
use engine::units::Nanos;

/// End of a call of [`LongRun::run`](super::LongRun::run).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the workload has ended and all is answered.
    End,
    /// After so many answers, or at the end. Requests may be under way then: go on with the same workload.
    Answers(u64),
    /// At this time, or at the end, in the same way.
    Time(Nanos),
}

/// Reason why a long run is over too early.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The cache device is too small.
    #[error(transparent)]
    Geometry(#[from] DivideError),
    /// A read returned other data than was written last.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// Requests are under way, and nothing will ever happen again.
    #[error("{requests} requests are never answered")]
    Stuck {
        /// How many.
        requests: usize,
    },
}

/// The storage that a workload asks, in virtual time.
pub(super) trait Stage {
    /// The virtual time.
    fn now(&self) -> Nanos;
    /// Takes requests until the workload has none now, or there is no room for more.
    fn feed<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Next;
    /// Answers all requests that can be answered at this time; returns their number.
    fn answer<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Result<u64, Trouble>;
    /// Requests that are not answered.
    fn unanswered(&self) -> usize;
    /// Starts the operations gathered at this instant on the devices: time is about to go on.
    fn unplug(&mut self);
    /// The time of the next event inside; `None` if nothing will ever happen by itself.
    fn next_ns(&self) -> Option<u64>;
    /// Lets it be `now`, and lets all happen that is due.
    fn go_to(&mut self, now: Nanos);
}

/// Lets the workload ask, until it ends or until enough is answered. Returns the number of answers.
pub(super) fn run<S: Stage, W: Workload + ?Sized>(
    stage: &mut S,
    workload: &mut W,
    until: Until,
) -> Result<u64, Trouble> {
    let (limit, horizon) = match until {
        Until::End => (u64::MAX, Nanos(u64::MAX)),
        Until::Answers(limit) => (limit, Nanos(u64::MAX)),
        Until::Time(horizon) => (u64::MAX, horizon),
    };
    let mut answers = 0;
    loop {
        let next = stage.feed(workload);
        let answered = stage.answer(workload)?;
        answers += answered;
        if answers >= limit {
            return Ok(answers);
        }
        if answered > 0 {
            // A client that got an answer may ask again before time goes on.
            continue;
        }
        if next == Next::End && stage.unanswered() == 0 || stage.now() >= horizon {
            return Ok(answers);
        }
        stage.unplug();
        let mut soonest_ns = stage.next_ns().unwrap_or(u64::MAX);
        if let Next::At(at) = next {
            assert!(at > stage.now(), "a workload waits only for a time that has not come");
            soonest_ns = soonest_ns.min(at.0);
        }
        if soonest_ns == u64::MAX {
            return Err(Trouble::Stuck { requests: stage.unanswered() });
        }
        stage.go_to(stage.now().max(horizon.min(Nanos(soonest_ns))));
    }
}

/// Lets `elapsed_ns` of virtual time pass without requests.
pub(super) fn idle<S: Stage>(stage: &mut S, elapsed_ns: u64) -> Result<(), Trouble> {
    let until = stage.now().plus(elapsed_ns);
    run(stage, &mut Idle { until }, Until::End).map(|_| ())
}
