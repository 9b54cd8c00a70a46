//! The service manager: systemd is told when clients may come, when the daemon stops, and that it is alive.
//!
//! Without a manager that listens (`NOTIFY_SOCKET`) nobody is told, and nothing is amiss.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// Tells the manager; one that does not listen cannot be told of that either.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

/// Clients may come, and how it stands.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The daemon stops.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// The manager's watchdog: it ends a daemon that does not say in time that it is alive.
pub struct Watchdog {
    interval: Option<Duration>,
    patted: Instant,
}

impl Watchdog {
    /// The watchdog that the manager has set up, if it has.
    #[must_use]
    pub fn of_service() -> Watchdog {
        Watchdog { interval: sd_notify::watchdog_enabled().map(|time| time / 3), patted: Instant::now() }
    }

    /// Says that the daemon is alive, three times as often as it must.
    pub fn pat(&mut self) {
        if self.interval.is_some_and(|interval| self.patted.elapsed() >= interval) {
            self.patted = Instant::now();
            tell(&[NotifyState::Watchdog]);
        }
    }
}
