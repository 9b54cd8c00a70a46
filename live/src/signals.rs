//! The signals of a daemon, as something a thread waits for.

use std::io;

/// A signal that a daemon obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop cleanly.
    Terminate,
    /// SIGINT: stop cleanly.
    Interrupt,
    /// SIGHUP: read the configuration again, or stop cleanly if there is none.
    HangUp,
    /// SIGUSR1: lose what modelled devices have not flushed, and end at once.
    LoseUnflushed,
}

/// The signals, blocked in this thread and in those it starts: they come to [`Signals::wait`] only.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals. To be called before any thread is started.
    ///
    /// # Errors
    /// What the system says.
    pub fn install() -> io::Result<Signals> {
        // SAFETY: a signal set is plain memory; the calls fill it and change this thread's mask only.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
                libc::sigaddset(&raw mut set, signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(Signals { set }),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// Waits for the next signal, in whatever thread.
    #[must_use]
    pub fn wait(&self) -> Signal {
        loop {
            let mut signal = 0;
            // SAFETY: both are plain memory of ours.
            let result = unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
            match (result, signal) {
                (0, libc::SIGTERM) => return Signal::Terminate,
                (0, libc::SIGINT) => return Signal::Interrupt,
                (0, libc::SIGHUP) => return Signal::HangUp,
                (0, libc::SIGUSR1) => return Signal::LoseUnflushed,
                _ => {}
            }
        }
    }
}

/// Makes a write beyond the largest file that this process may have (`ulimit -f`) an error, EFBIG, like any other. By
/// default SIGXFSZ ends the process.
pub fn survive_file_size_limit() {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Keeps the allocator from reserving address space for each thread, which a limit of it (`ulimit -v`) would count.
pub fn reserve_little_address_space() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call changes a number of the allocator's; it is made before other threads exist.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Ends the process at once: nothing is flushed, no destructor runs, other threads stop where they are.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: ending the process touches no memory of it.
    unsafe { libc::_exit(status) }
}
