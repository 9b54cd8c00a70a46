//! A published system's own time for each request, as far as no device explains it.

use super::workload::{Action, Answer};
use engine::units::{Nanos, SECTORS_PER_BLOCK, SectorRange};
use std::collections::VecDeque;

/// Time that answers wait for besides the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// For each read.
    pub read: OwnTime,
    /// For each write.
    pub write: OwnTime,
}

/// A system's own time for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTime {
    /// Whatever its length.
    pub request_ns: u64,
    /// For each 4 KiB of it.
    pub block_ns: u64,
}

impl OwnTime {
    fn of(&self, range: SectorRange) -> u64 {
        self.request_ns + self.block_ns * range.sectors.div_ceil(SECTORS_PER_BLOCK)
    }
}

/// Answers that wait for the overhead of their kind: reads, and writes.
#[derive(Default)]
pub(super) struct Late {
    pub(super) overhead: Overhead,
    /// Each in the order in which its answers are due.
    kinds: [VecDeque<Answer>; 2],
}

impl Late {
    /// Keeps an answer whose kind has an overhead, and gives back any other one.
    pub(super) fn hold(&mut self, mut answer: Answer) -> Option<Answer> {
        let (kind, overhead_ns) = match answer.demand.action {
            Action::Read(range) => (0, self.overhead.read.of(range)),
            Action::Write { range, .. } => (1, self.overhead.write.of(range)),
            _ => (0, 0),
        };
        if overhead_ns == 0 {
            return Some(answer);
        }
        answer.answered = answer.answered.plus(overhead_ns);
        let late = &mut self.kinds[kind];
        let at = late.partition_point(|other| other.answered <= answer.answered);
        late.insert(at, answer);
        None
    }

    /// The next answer that has waited long enough.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Answer> {
        let is_due = |kind: &&mut VecDeque<Answer>| kind.front().is_some_and(|answer| answer.answered <= now);
        self.kinds.iter_mut().find(is_due)?.pop_front()
    }

    /// When the next answer has waited long enough.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.kinds.iter().filter_map(VecDeque::front).map(|answer| answer.answered.0).min()
    }

    /// How many answers wait.
    pub(super) fn len(&self) -> usize {
        self.kinds.iter().map(VecDeque::len).sum()
    }
}
