//! Patience with a killed daemon: its locks and sockets outlive it until the kernel has ended its last operations
//! (hazard 13). That takes a moment; a daemon that is started again at once tries for so long.

use std::thread;
use std::time::{Duration, Instant};

/// Time for which an attempt is repeated.
const PATIENCE: Duration = Duration::from_secs(2);
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
    mut attempt: impl FnMut() -> Result<T, E>,
    is_held: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let started_at = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_held(&error) && started_at.elapsed() < PATIENCE => thread::sleep(PAUSE),
            result => return result,
        }
    }
}
