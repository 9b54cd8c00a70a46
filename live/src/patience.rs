//! Patience with a killed daemon: its locks and sockets outlive it until the kernel has ended its last operations
//! (hazard 13). That takes a moment; a daemon that is started again at once tries for so long.

use std::thread;
use std::time::{Duration, Instant};

/// Time for which an attempt is repeated.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Time for which a program is waited for that only looks at a device: udev does so with each disk at boot, and a busy
/// machine may need long for all of them.
pub const FOR_PROBES: Duration = Duration::from_secs(30);
/// Time for which an operation waits for an origin whose server is away. A restart takes less; a client waits no longer
/// for data that only the origin has.
pub const FOR_ORIGIN: Duration = Duration::from_secs(10);
/// Pause between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Repeats `attempt` for a moment while its error says that another process holds the resource; returns the last
/// result.
///
/// # Errors
/// The error of the last attempt.
pub fn try_patiently<T, E>(
    attempt: impl FnMut() -> Result<T, E>,
    is_held: impl Fn(&E) -> bool,
) -> Result<T, E> {
    try_for(attempt, |error| if is_held(error) { PATIENCE } else { Duration::ZERO })
}

/// Repeats `attempt` while its error deserves patience; returns the last result. All patience counts from the beginning.
///
/// # Errors
/// The error of the last attempt.
pub fn try_for<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    patience: impl Fn(&E) -> Duration,
) -> Result<T, E> {
    let started_at = Instant::now();
    loop {
        match attempt() {
            Err(error) if started_at.elapsed() < patience(&error) => thread::sleep(PAUSE),
            result => return result,
        }
    }
}
