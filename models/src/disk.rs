//! A disk of either kind.

use crate::hdd::Hdd;
use crate::operation::{Completion, Submit};
use crate::parameters::{Media, Parameters};
use crate::ssd::Ssd;
use alloc::boxed::Box;

/// A modelled disk.
///
/// Time never goes back: each `now_ns` must be at least as large as the one before, over all
/// calls (asserted).
#[derive(Debug)]
pub enum Disk {
    /// A hard disk.
    Hdd(Box<Hdd>),
    /// A solid-state disk.
    Ssd(Box<Ssd>),
}

impl Disk {
    /// A disk of `size_bytes`, idle and with empty caches.
    ///
    /// A hard disk that is made smaller than the nominal size keeps its tracks, its rates and its
    /// whole seek range: it is a small copy of the disk, not its outer edge. `seed` decides what a real
    /// disk leaves to chance: where the platter stands, and which channel holds which page.
    ///
    /// # Panics
    /// If `size_bytes` is 0, or if the parameters were changed by hand to something that
    /// [`Parameters::validate`] refuses.
    #[must_use]
    pub fn new(parameters: &Parameters, size_bytes: u64, seed: u64) -> Disk {
        assert!(size_bytes > 0, "a disk has at least one byte");
        if let Err(error) = parameters.validate() {
            panic!("{}: {error}", parameters.name);
        }
        match &parameters.media {
            Media::Hdd(hdd) => Disk::Hdd(Box::new(Hdd::new(hdd, size_bytes, seed))),
            Media::Ssd(ssd) => Disk::Ssd(Box::new(Ssd::new(ssd, size_bytes, seed))),
        }
    }

    /// Queues an operation at time `now_ns`; `token` comes back from [`Disk::poll`], exactly once.
    ///
    /// The disk takes any number of operations and works on as many as its queue is deep.
    ///
    /// # Panics
    /// If the range is empty or outside the disk, or if time went back.
    pub fn submit(&mut self, now_ns: u64, token: u64, submit: Submit) {
        match self {
            Disk::Hdd(hdd) => hdd.submit(now_ns, token, submit),
            Disk::Ssd(ssd) => ssd.submit(now_ns, token, submit),
        }
    }

    /// The next completion due at or before `now_ns`, with its exact time. Completions come in the
    /// order of their times.
    ///
    /// # Panics
    /// If time went back.
    pub fn poll(&mut self, now_ns: u64) -> Option<Completion> {
        match self {
            Disk::Hdd(hdd) => hdd.poll(now_ns),
            Disk::Ssd(ssd) => ssd.poll(now_ns),
        }
    }

    /// When to poll next; `None` when no operation is under way.
    ///
    /// No completion is due before this time. If a completion still depends on something in between
    /// (the arm must first come back from writing behind), the time is that of the step in
    /// between: `poll` then has nothing yet, and `next_ns` has moved on.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        match self {
            Disk::Hdd(hdd) => hdd.next_ns(),
            Disk::Ssd(ssd) => ssd.next_ns(),
        }
    }

    /// The size given to [`Disk::new`].
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Disk::Hdd(hdd) => hdd.size_bytes(),
            Disk::Ssd(ssd) => ssd.size_bytes(),
        }
    }

    /// Whether this kind of disk carries out discards. A disk that does not takes the command and ignores it.
    #[must_use]
    pub fn supports_discard(&self) -> bool {
        matches!(self, Disk::Ssd(_))
    }

    /// Whether a power cut at `now_ns` would take some byte of the range that was written, and whose
    /// write was done. Writes that are still under way do not count.
    ///
    /// # Panics
    /// If time went back.
    #[must_use]
    pub fn is_volatile(&mut self, now_ns: u64, offset_bytes: u64, len_bytes: u64) -> bool {
        let end_bytes = offset_bytes.saturating_add(len_bytes);
        match self {
            Disk::Hdd(hdd) => hdd.is_volatile(now_ns, offset_bytes, end_bytes),
            Disk::Ssd(ssd) => ssd.is_volatile(now_ns, offset_bytes, end_bytes),
        }
    }

    /// The number of bytes that a power cut at `now_ns` would take.
    ///
    /// # Panics
    /// If time went back.
    #[must_use]
    pub fn volatile_bytes(&mut self, now_ns: u64) -> u64 {
        match self {
            Disk::Hdd(hdd) => hdd.volatile_bytes(now_ns),
            Disk::Ssd(ssd) => ssd.volatile_bytes(now_ns),
        }
    }
}
