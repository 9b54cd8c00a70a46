//! A workload on a bare disk, without any cache: the native case of published measurements.

use super::disk::Disk;
use super::drive::{self, Stage, Trouble, Until};
use super::statistics::Statistics;
use super::workload::{Action, Answer, Demand, Next, Workload};
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
        drive::run(self, workload, until)
    }

    /// Lets `elapsed_ns` of virtual time pass without requests.
    ///
    /// # Errors
    /// None that are possible.
    pub fn idle(&mut self, elapsed_ns: u64) -> Result<(), Trouble> {
        drive::idle(self, elapsed_ns)
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Forgets the measurements so far.
    pub fn begin_measuring(&mut self) {
        self.statistics.clear(self.now);
        self.before = self.totals();
    }

    /// Measurements since the run began, or since [`Bare::begin_measuring`]. The disk is the first origin.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.totals().since(&self.before)
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

impl Stage for Bare {
    fn now(&self) -> Nanos {
        self.now
    }

    fn feed<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Next {
        loop {
            match workload.next(self.now) {
                Next::Demand(demand) => self.begin(demand),
                other => return other,
            }
        }
    }

    /// One answer at a time: a client that is answered asks before the next one is.
    fn answer<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Result<u64, Trouble> {
        let Some(token) = self.disk.poll(self.now) else { return Ok(0) };
        let demand = self.demands.remove(token as usize);
        let is_refused = matches!(demand.action, Action::Discard(_)) && !self.disk.can_discard();
        let result = if is_refused { Err(Errno::OPNOTSUPP) } else { Ok(()) };
        let answer = Answer { demand, answered: self.now, result };
        self.statistics.record(&answer);
        workload.answered(&answer);
        Ok(1)
    }

    fn unanswered(&self) -> usize {
        self.demands.len()
    }

    /// Nothing is gathered: requests went to the disk as they came.
    fn unplug(&mut self) {}

    fn next_ns(&self) -> Option<u64> {
        self.disk.next_ns()
    }

    fn go_to(&mut self, now: Nanos) {
        self.now = now;
    }
}
