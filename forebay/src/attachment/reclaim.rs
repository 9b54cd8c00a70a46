//! Memory reclaim: a daemon that serves a device of its own machine must not wait for that device to get memory.

use rustix::mm::MlockAllFlags;

/// Tells the kernel that this thread, and those that it starts from now on, write for others: to give them memory, the
/// kernel writes nothing back that they would have to serve. Without the right to do so nothing changes.
pub fn flush_for_others() {
    // It needs CAP_SYS_RESOURCE. Who lacks it cannot attach a device either.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Keeps the pages of this process in memory, those that are in use and those to come. False if the system refuses.
#[must_use]
pub fn stay_in_memory() -> bool {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags).is_ok()
}
