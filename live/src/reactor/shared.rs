//! Shared state of all reactors, behind one lock, and the eventfds by which they wake each other.

use crate::reactor::driver::Driver;
use crate::server::ServeError;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The driver (core, memory, devices, exports), and for each reactor the eventfd that wakes it.
///
/// A reactor holds the lock while it goes through what is finished and what follows from that, and gives
/// it back for all that takes long: system calls, sleep.
pub(crate) struct Shared<C> {
    driver: Mutex<Driver<C>>,
    /// Eventfds by reactor.
    wake_events: Vec<Arc<OwnedFd>>,
    /// A reactor has failed: none of the others may go on.
    is_broken: AtomicBool,
}

/// Guard of one reactor: dropped before `is_well` is set, it makes all other reactors end, too.
pub(crate) struct Watch<'t, C> {
    shared: &'t Shared<C>,
    pub is_well: bool,
}

/// An eventfd for each of `count` reactors.
///
/// # Errors
/// If the process may have no more descriptors.
pub(crate) fn wake_events(count: usize) -> io::Result<Vec<Arc<OwnedFd>>> {
    let event = || Ok(Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?));
    (0..count).map(|_| event()).collect()
}

impl<C> Drop for Watch<'_, C> {
    fn drop(&mut self) {
        if !self.is_well {
            self.shared.is_broken.store(true, Ordering::SeqCst);
            (0..self.shared.wake_events.len()).for_each(|reactor| self.shared.wake(reactor));
        }
    }
}

impl<C> Shared<C> {
    /// Shared state for as many reactors as there are eventfds.
    pub(crate) fn new(driver: Driver<C>, wake_events: Vec<Arc<OwnedFd>>) -> Shared<C> {
        Shared { driver: Mutex::new(driver), wake_events, is_broken: AtomicBool::new(false) }
    }

    /// Takes the driver for this reactor alone. It goes back by [`Shared::give_back`], which wakes the others.
    ///
    /// # Errors
    /// [`ServeError::Broken`] when another reactor has failed.
    pub(crate) fn take(&self) -> Result<MutexGuard<'_, Driver<C>>, ServeError> {
        match self.driver.lock() {
            Ok(driver) if !self.is_broken.load(Ordering::SeqCst) => Ok(driver),
            _ => Err(ServeError::Broken),
        }
    }

    /// Gives the driver back, and wakes the reactors that have orders, replies or memory now.
    pub(crate) fn give_back(&self, mut driver: MutexGuard<'_, Driver<C>>, this: usize) {
        let returns = driver.pool.door_returns();
        let woken = driver.wakeups.take_woken(this, returns);
        drop(driver);
        woken.each().for_each(|reactor| self.wake(reactor));
    }

    /// Wakes a reactor.
    pub(crate) fn wake(&self, reactor: usize) {
        // It fails only if the counter is full, and then it is awake.
        let _ = rustix::io::write(&*self.wake_events[reactor], &1u64.to_ne_bytes());
    }

    /// The eventfd that wakes a reactor.
    pub(crate) fn wake_event(&self, reactor: usize) -> RawFd {
        self.wake_events[reactor].as_raw_fd()
    }

    /// A guard to be held by a reactor while it runs.
    pub(crate) fn watch(&self) -> Watch<'_, C> {
        Watch { shared: self, is_well: false }
    }

    /// The driver, when no reactor is left: as it was left behind, if one of them failed.
    pub(crate) fn into_driver(self) -> Driver<C> {
        self.driver.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
