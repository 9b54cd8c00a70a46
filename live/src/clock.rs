//! The daemon's clock: the system's monotonic one, as the engine wants it.

use engine::units::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds since some fixed point before the program started. Never goes back.
#[must_use]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Nanos(seconds * Nanos::SECOND + nanos)
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_does_not_go_back() {
        let earlier = super::now();
        assert!(super::now() >= earlier);
    }
}
