//! Virtual time: events in their order, and a hash of all events so far.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Virtual time and the events to come, ordered by time and, at the same time, by when they were asked for.
#[derive(Debug, Default)]
pub struct Clock {
    now_ns: u64,
    serial: u64,
    events: BinaryHeap<Reverse<(u64, u64, u64)>>,
}

impl Clock {
    /// Nanoseconds since the world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Lets `event` happen at `at_ns`, or now if that is past.
    pub fn at(&mut self, at_ns: u64, event: u64) {
        self.serial += 1;
        self.events.push(Reverse((at_ns.max(self.now_ns), self.serial, event)));
    }

    /// When the next event happens.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next event; the time is then.
    pub fn pop(&mut self) -> Option<u64> {
        let Reverse((at, _, event)) = self.events.pop()?;
        self.now_ns = self.now_ns.max(at);
        Some(event)
    }

    /// Lets time pass until `at_ns`; events before that stay and are late.
    pub fn advance_to(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Forgets the events to come; time goes on from here.
    pub fn clear(&mut self) {
        self.events.clear();
    }
}

/// A hash of a sequence of numbers: the same on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventHash(u64);

impl EventHash {
    /// Adds a number.
    pub fn add(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// The hash so far.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
