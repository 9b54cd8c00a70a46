//! A workload on a bare disk, in virtual time.

use crate::long::{Action, Answer, Demand, Next, Workload};
use engine::units::{Nanos, SECTOR_BYTES, SectorRange};
use models::{Disk, Op, Submit};
use slab::Slab;

/// What was read, or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
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

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// From the first counted request to the last answer.
    pub elapsed_ns: u64,
    /// The time at the end.
    pub ended: Nanos,
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

/// Runs a workload on a bare disk from `start` on until it ends and all is answered. Requests that come within
/// `warm_up_ns` are not counted. The volume of a request is not looked at.
///
/// # Panics
/// If a range is empty or outside the disk, or if the workload waits for an answer that nobody owes.
pub fn run(workload: &mut dyn Workload, disk: &mut Disk, start: Nanos, warm_up_ns: u64) -> Tally {
    let mut now = start;
    let counted_from = start.plus(warm_up_ns);
    let mut under_way: Slab<Demand> = Slab::new();
    let mut tally = Tally::default();
    loop {
        let wakes = loop {
            match workload.next(now) {
                Next::Demand(demand) => {
                    let token = under_way.insert(demand) as u64;
                    disk.submit(now.0, token, submit(&demand.action));
                }
                Next::At(at) => break Some(at),
                Next::OnAnswer => {
                    assert!(!under_way.is_empty(), "somebody waits for an answer that nobody owes");
                    break None;
                }
                Next::End if under_way.is_empty() => {
                    tally.ended = now;
                    return tally;
                }
                Next::End => break None,
            }
        };
        let due = disk.next_ns().map(Nanos);
        now = match (due, wakes) {
            (Some(due), Some(wakes)) => due.min(wakes),
            (due, wakes) => due.or(wakes).expect("something will happen"),
        }
        .max(now);
        if let Some(completion) = disk.poll(now.0) {
            let demand = under_way.remove(completion.token as usize);
            if demand.due >= counted_from {
                tally.count(&demand, now);
                tally.elapsed_ns = now.since(counted_from);
            }
            workload.answered(&Answer { demand, answered: now, result: Ok(()) });
        }
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

fn submit(action: &Action) -> Submit {
    let of = |op, range: &SectorRange| Submit {
        op,
        offset_bytes: range.start * SECTOR_BYTES,
        len_bytes: range.sectors * SECTOR_BYTES,
    };
    match action {
        Action::Read(range) => of(Op::Read, range),
        Action::Write { range, .. } | Action::WriteZeroes(range) => of(Op::Write, range),
        Action::Flush => Submit { op: Op::Flush, offset_bytes: 0, len_bytes: 0 },
        Action::Discard(range) => of(Op::Discard, range),
    }
}
