//! A workload on a bare disk, without any cache: what published measurements call native.

use super::disk::Disk;
use super::statistics::Statistics;
use super::workload::{Action, Answer, Demand, Idle, Next, Workload};
use super::{Trouble, Until};
use engine::effect::Errno;
use engine::units::{Nanos, SECTOR_BYTES};
use slab::Slab;

/// A disk in virtual time. Requests go to it as they come, uncut.
pub struct Bare {
    now: Nanos,
    disk: Disk,
    demands: Slab<Demand>,
    statistics: Statistics,
    before: Statistics,
}

impl Bare {
    /// The disk, idle.
    #[must_use]
    pub fn new(disk: Disk) -> Bare {
        let statistics = Statistics::new(1);
        Bare { now: Nanos(0), disk, demands: Slab::new(), before: statistics.clone(), statistics }
    }

    /// Lets the workload ask, until it ends or until enough is answered. Returns the number of answers.
    ///
    /// # Errors
    /// [`Trouble::Stuck`] if the workload waits for nothing.
    pub fn run<W: Workload + ?Sized>(&mut self, workload: &mut W, until: Until) -> Result<u64, Trouble> {
        let (limit, horizon) = match until {
            Until::End => (u64::MAX, Nanos(u64::MAX)),
            Until::Answers(limit) => (limit, Nanos(u64::MAX)),
            Until::Time(horizon) => (u64::MAX, horizon),
        };
        let mut answers = 0;
        loop {
            let next = loop {
                match workload.next(self.now) {
                    Next::Demand(demand) => self.begin(demand),
                    other => break other,
                }
            };
            // One at a time: whoever is answered asks before the next one is.
            let mut answered = 0;
            if let Some(token) = self.disk.poll(self.now) {
                let demand = self.demands.remove(token as usize);
                let is_refused = matches!(demand.action, Action::Discard(_)) && !self.disk.can_discard();
                let result = if is_refused { Err(Errno::OPNOTSUPP) } else { Ok(()) };
                let answer = Answer { demand, answered: self.now, result };
                self.statistics.record(&answer);
                workload.answered(&answer);
                answered = 1;
            }
            answers += answered;
            if answers >= limit {
                return Ok(answers);
            }
            if answered > 0 {
                continue;
            }
            if next == Next::End && self.demands.is_empty() || self.now >= horizon {
                return Ok(answers);
            }
            let wanted_ns = if let Next::At(at) = next { at.0 } else { u64::MAX };
            let soonest_ns = wanted_ns.min(self.disk.next_ns().unwrap_or(u64::MAX));
            if soonest_ns == u64::MAX {
                return Err(Trouble::Stuck { requests: self.demands.len() });
            }
            self.now = self.now.max(horizon.min(Nanos(soonest_ns)));
        }
    }

    /// Lets `elapsed_ns` of virtual time pass in which nobody asks anything.
    ///
    /// # Errors
    /// None that are possible.
    pub fn idle(&mut self, elapsed_ns: u64) -> Result<(), Trouble> {
        self.run(&mut Idle { until: self.now.plus(elapsed_ns) }, Until::End).map(|_| ())
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Forgets what was measured so far.
    pub fn begin_measuring(&mut self) {
        self.statistics.clear(self.now);
        self.before = self.totals();
    }

    /// What happened since the run, or [`Bare::begin_measuring`]. The disk is the first origin.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut now = self.totals();
        now.origins[0] = now.origins[0].since(&self.before.origins[0]);
        now
    }

    fn totals(&self) -> Statistics {
        let mut totals = self.statistics.clone();
        totals.now = self.now;
        totals.origins[0] = self.disk.traffic();
        totals
    }

    fn begin(&mut self, demand: Demand) {
        let (op, range) = match demand.action {
            Action::Read(range) => (models::Op::Read, Some(range)),
            Action::Write { range, .. } | Action::WriteZeroes(range) => (models::Op::Write, Some(range)),
            Action::Discard(range) => (models::Op::Discard, Some(range)),
            Action::Flush => (models::Op::Flush, None),
        };
        let offset_bytes = range.map_or(0, |range| range.start * SECTOR_BYTES);
        let len_bytes = range.map_or(0, |range| range.sectors * SECTOR_BYTES);
        let token = self.demands.insert(demand) as u64;
        self.disk.begin(self.now, token, op, offset_bytes, len_bytes);
    }
}
