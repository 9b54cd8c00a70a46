//! The tally of a workload on a bare disk.

use crate::long::{Action, Answer, Bare, Demand, Next, Until, Workload};
use engine::units::Nanos;

/// Count of reads, or of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their latencies together.
    pub latency_ns: u64,
}

impl Side {
    /// The mean latency in milliseconds; 0 without requests.
    #[must_use]
    pub fn latency_ms(&self) -> f64 {
        self.latency_ns as f64 / self.requests.max(1) as f64 / 1e6
    }
}

/// Tally of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// From the first counted request to the last answer.
    pub elapsed_ns: u64,
}

impl Tally {
    /// Requests of a side in a second.
    #[must_use]
    pub fn iops(&self, side: Side) -> f64 {
        side.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// KiB of a side in a second.
    #[must_use]
    pub fn kib_per_s(&self, side: Side) -> f64 {
        side.bytes as f64 / 1024.0 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Runs a workload on a bare disk until it ends and all is answered. Requests that come within `warm_up_ns` are not
/// counted.
///
/// # Panics
/// If a range is empty or outside the disk, or if the workload waits for an answer that nobody owes.
pub(super) fn run(workload: &mut dyn Workload, disk: &mut Bare, warm_up_ns: u64) -> Tally {
    let counted_from = disk.now().plus(warm_up_ns);
    let mut counting = Counting { workload, counted_from, tally: Tally::default() };
    disk.run(&mut counting, Until::End).expect("nobody waits for an answer that nobody owes");
    counting.tally
}

/// A workload whose answers are counted from a time on.
struct Counting<'a> {
    workload: &'a mut dyn Workload,
    counted_from: Nanos,
    tally: Tally,
}

impl Workload for Counting<'_> {
    fn next(&mut self, now: Nanos) -> Next {
        self.workload.next(now)
    }

    fn answered(&mut self, answer: &Answer) {
        if answer.demand.due >= self.counted_from {
            self.tally.count(&answer.demand, answer.answered);
            self.tally.elapsed_ns = answer.answered.since(self.counted_from);
        }
        self.workload.answered(answer);
    }
}

impl Tally {
    fn count(&mut self, demand: &Demand, now: Nanos) {
        let side = match demand.action {
            Action::Read(_) => &mut self.read,
            Action::Write { .. } | Action::WriteZeroes(_) => &mut self.write,
            Action::Flush | Action::Discard(_) => return,
        };
        side.requests += 1;
        side.bytes += demand.action.len_bytes();
        side.latency_ns += now.since(demand.due);
    }
}
