//! Calls of the engine in groups, behind which the driver draws the effects of all of them: a thread that comes round finds
//! several requests and answers of devices at once.

use super::World;
use crate::random::Random;

/// A group is over after so long at the most.
const GROUP_NS_MAX: u64 = 200_000;

/// The group of calls under way.
#[derive(Debug)]
pub(super) struct Group {
    random: Random,
    /// When it is over, and the calls that it may still take; none is under way if there is nothing.
    open: Option<(u64, u64)>,
}

impl Group {
    pub fn new(seed: u64) -> Group {
        Group { random: Random::new(seed).fork(22), open: None }
    }

    /// Begins a group of so many calls, which does not end before.
    fn begin(&mut self, calls: u64) {
        self.open = Some((u64::MAX, calls));
    }

    /// When the group under way is over.
    pub fn ends_ns(&self) -> Option<u64> {
        self.open.map(|(ends_ns, _)| ends_ns)
    }

    /// Its effects are drawn, or nobody is there any more who would.
    pub fn end(&mut self) {
        self.open = None;
    }

    /// Counts a call, with which a group of at most `calls_max` begins if none is under way; true if it was the last one.
    fn is_last(&mut self, calls_max: u64, now_ns: u64) -> bool {
        let (ends_ns, left) = match self.open {
            Some(open) => open,
            None => (now_ns + self.random.below(GROUP_NS_MAX), self.random.below(calls_max) + 1),
        };
        self.open = Some((ends_ns, left - 1));
        left == 1
    }
}

impl World {
    /// Makes a group of the next calls.
    pub fn gather(&mut self, calls: usize) {
        self.group.begin(calls as u64);
    }

    /// The engine was called: takes its effects, if no other call of the group follows.
    pub(super) fn called(&mut self) {
        let calls_max = self.setup.group_calls;
        let is_alone = calls_max <= 1 && self.group.ends_ns().is_none();
        if is_alone || self.group.is_last(calls_max, self.clock.now_ns()) {
            self.pump();
            return;
        }
        // What failed because of that may be answered when it is over.
        for volume in self.oracle.explained.seen_absent_once() {
            if self.is_absent(volume) {
                let at = self.oracle.moment();
                self.oracle.explained.seen_absent(volume, at);
            }
        }
    }
}
