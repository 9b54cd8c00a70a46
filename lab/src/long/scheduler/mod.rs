//! CFQ of Linux, as far as a cache's devices are concerned: commands that somebody waits for go before those that
//! nobody waits for (asynchronous ones: what the page cache and kernel threads write).
//!
//! On a disk that turns ([`Turning`]) it gives both kinds turns, and idles so that a reader keeps the arm. On an SSD
//! ([`Solid`]) it does not idle and has no turns: asynchronous commands are only held back while others are under way.

mod solid;
mod turning;

use engine::units::Nanos;
use models::{Completion, Disk, Submit};
use solid::Solid;
use turning::Turning;

/// Order in which commands begin.
#[derive(Default)]
pub(super) enum Scheduler {
    /// As they come.
    #[default]
    None,
    /// CFQ's on an SSD.
    Solid(Solid),
    /// CFQ's on a disk that turns.
    Turning(Turning),
}

impl Scheduler {
    pub(super) fn solid() -> Scheduler {
        Scheduler::Solid(Solid::default())
    }

    pub(super) fn turning() -> Scheduler {
        Scheduler::Turning(Turning::default())
    }

    /// Takes a command; `is_async` if no request waits for it.
    pub(super) fn submit(&mut self, now: Nanos, token: u64, submit: Submit, is_async: bool, disk: &mut Disk) {
        match self {
            Scheduler::None => disk.submit(now.0, token, submit),
            Scheduler::Solid(solid) => solid.submit(now, token, submit, is_async, disk),
            Scheduler::Turning(turning) => turning.submit(now, token, submit, is_async, disk),
        }
    }

    /// Notes that all commands of this instant were submitted.
    pub(super) fn unplug(&mut self, now: Nanos, disk: &mut Disk) {
        if let Scheduler::Solid(solid) = self {
            solid.go_on(now, disk);
        }
    }

    /// When to look again, whatever the disk does.
    pub(super) fn next_ns(&self) -> Option<u64> {
        match self {
            Scheduler::None | Scheduler::Solid(_) => None,
            Scheduler::Turning(turning) => turning.next_ns(),
        }
    }

    /// The next command that is done by now.
    pub(super) fn poll(&mut self, now: Nanos, disk: &mut Disk) -> Option<Completion> {
        match self {
            Scheduler::None => disk.poll(now.0),
            Scheduler::Solid(solid) => solid.poll(now, disk),
            Scheduler::Turning(turning) => turning.poll(now, disk),
        }
    }
}
