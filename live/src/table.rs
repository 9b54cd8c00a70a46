//! What all reactors share, and how they wake each other.

use crate::driver::Driver;
use crate::server::ServeError;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The one core with its memory and devices, and a bell for each reactor.
///
/// A reactor holds the lock while it goes through what is finished and what follows from that, and gives
/// it back for all that takes long: system calls on sockets, copies within memory, sleep.
pub(crate) struct Table<C> {
    driver: Mutex<Driver<C>>,
    /// By reactor: the eventfd that wakes it.
    bells: Vec<Arc<OwnedFd>>,
    /// A reactor ended before its time: nobody may go on.
    is_broken: AtomicBool,
}

/// Breaks the table off unless it is told that all is well: a reactor that fails takes the others along.
pub(crate) struct Watch<'t, C> {
    table: &'t Table<C>,
    pub is_well: bool,
}

impl<C> Drop for Watch<'_, C> {
    fn drop(&mut self) {
        if !self.is_well {
            self.table.is_broken.store(true, Ordering::SeqCst);
            (0..self.table.bells.len()).for_each(|reactor| self.table.ring(reactor));
        }
    }
}

impl<C> Table<C> {
    /// A table for as many reactors as the driver has seats; the first one's bell is there already.
    pub(crate) fn new(driver: Driver<C>, first: Arc<OwnedFd>, count: usize) -> io::Result<Table<C>> {
        let mut bells = vec![first];
        while bells.len() < count {
            bells.push(Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?));
        }
        Ok(Table { driver: Mutex::new(driver), bells, is_broken: AtomicBool::new(false) })
    }

    /// The driver, for this reactor alone; to be given back by [`Table::give_back`], or others may sleep on.
    ///
    /// # Errors
    /// [`ServeError::Broken`] when another reactor has failed.
    pub(crate) fn take(&self) -> Result<MutexGuard<'_, Driver<C>>, ServeError> {
        match self.driver.lock() {
            Ok(driver) if !self.is_broken.load(Ordering::SeqCst) => Ok(driver),
            _ => Err(ServeError::Broken),
        }
    }

    /// Gives the driver back, and wakes whom the turn of this reactor concerns.
    pub(crate) fn give_back(&self, mut driver: MutexGuard<'_, Driver<C>>, this: usize) {
        let returns = driver.pool.door_returns();
        let calls = driver.seats.take_calls(this, returns);
        drop(driver);
        calls.each().for_each(|reactor| self.ring(reactor));
    }

    /// Wakes a reactor.
    pub(crate) fn ring(&self, reactor: usize) {
        // It fails only if the counter is full, and then it is awake.
        let _ = rustix::io::write(&*self.bells[reactor], &1u64.to_ne_bytes());
    }

    pub(crate) fn bell(&self, reactor: usize) -> RawFd {
        self.bells[reactor].as_raw_fd()
    }

    pub(crate) fn watch(&self) -> Watch<'_, C> {
        Watch { table: self, is_well: false }
    }

    /// The driver, when no reactor is left.
    ///
    /// # Errors
    /// [`ServeError::Broken`] when one of them failed.
    pub(crate) fn into_driver(self) -> Result<Driver<C>, ServeError> {
        self.driver.into_inner().map_err(|_| ServeError::Broken)
    }
}
