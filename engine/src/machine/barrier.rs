//! Flushes of the cache device: what they cover, and which one is wanted next.

use alloc::collections::BTreeSet;

/// The sequences that flushes of the cache cover, and those that requests wait for.
#[derive(Debug)]
pub(crate) struct CacheBarrier {
    /// All batches up to this sequence are covered by a flush.
    pub flushed: u64,
    wanted: BTreeSet<u64>,
    /// A flush is wanted whatever was published.
    is_any_wanted: bool,
    is_flushing: bool,
    /// Flushes issued.
    issued: u64,
    /// The last flush that succeeded, counted from 1.
    succeeded: u64,
}

/// A moment in the order of the cache's flushes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushMoment(u64);

impl CacheBarrier {
    /// A barrier over a cache that has everything up to `flushed` durably.
    pub fn new(flushed: u64) -> CacheBarrier {
        CacheBarrier {
            flushed,
            wanted: BTreeSet::new(),
            is_any_wanted: false,
            is_flushing: false,
            issued: 0,
            succeeded: 0,
        }
    }

    /// Asks for a flush that covers `sequence`, as soon as that is published.
    pub fn want(&mut self, sequence: u64) {
        if sequence > self.flushed {
            self.wanted.insert(sequence);
        }
    }

    /// Asks for a flush of what the device has by now besides batches.
    pub fn want_any(&mut self) {
        self.is_any_wanted = true;
    }

    /// Whether a flush is wanted, for a sequence that is published or not, and none is under way.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        !self.is_flushing && (self.is_any_wanted || !self.wanted.is_empty())
    }

    /// Whether a flush is wanted that covers `sequence`.
    pub fn wants(&self, sequence: u64) -> bool {
        self.wanted.last().is_some_and(|&wanted| wanted >= sequence)
    }

    /// Begins a flush, if none is under way and one is wanted for a sequence that is published. True if it is to be issued.
    pub fn begin(&mut self, published: u64) -> bool {
        let is_wanted = self.is_any_wanted || self.wanted.first().is_some_and(|&wanted| wanted <= published);
        let is_due = !self.is_flushing && is_wanted;
        if is_due {
            self.is_any_wanted = false;
            self.is_flushing = true;
            self.issued += 1;
        }
        is_due
    }

    /// The flush under way was answered; `covered` is the sequence that it covers, if it succeeded.
    pub fn end(&mut self, covered: Option<u64>) {
        self.is_flushing = false;
        let Some(sequence) = covered else { return };
        assert!(sequence >= self.flushed, "a flush covers no less than the one before it");
        self.flushed = sequence;
        // There is one at a time.
        self.succeeded = self.issued;
        self.wanted = self.wanted.split_off(&(sequence + 1));
    }

    /// The present moment.
    pub fn moment(&self) -> FlushMoment {
        FlushMoment(self.issued)
    }

    /// Whether a flush issued after `moment` has succeeded: writes completed by then are durable.
    pub fn has_flushed_since(&self, moment: FlushMoment) -> bool {
        self.succeeded > moment.0
    }
}
