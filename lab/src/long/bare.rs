//! A workload on a bare disk, without any cache: the native case of published measurements. Or with one that costs
//! nothing.

use super::disk::Disk;
use super::drive::{self, Stage, Trouble, Until};
use super::ideal::{Ideal, Place};
use super::statistics::Statistics;
use super::workload::{Action, Answer, Demand, Next, Workload};
use engine::effect::Errno;
use engine::units::{Nanos, SECTOR_BYTES, SectorRange};
use slab::Slab;

/// A disk in virtual time. Requests go to it as they come, uncut.
pub struct Bare {
    now: Nanos,
    disk: Disk,
    cache: Option<Ideal>,
    demands: Slab<Demand>,
    statistics: Statistics,
    before: Statistics,
}

impl Bare {
    /// The disk, idle.
    #[must_use]
    pub fn new(disk: Disk) -> Bare {
        let statistics = Statistics::new(1);
        Bare {
            now: Nanos(0),
            disk,
            cache: None,
            demands: Slab::new(),
            before: statistics.clone(),
            statistics,
        }
    }

    /// The same disk behind a cache that costs nothing.
    #[must_use]
    pub fn behind(self, cache: Ideal) -> Bare {
        Bare { cache: Some(cache), ..self }
    }

    /// Empties that cache.
    pub fn clear_cache(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
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
        totals.cache = self.cache.as_ref().map(|cache| cache.disk.traffic()).unwrap_or_default();
        totals
    }

    fn begin(&mut self, demand: Demand) {
        let (op, range) = match demand.action {
            Action::Read(range) => (models::Op::Read, Some(range)),
            Action::Write { range, .. } | Action::WriteZeroes(range) => (models::Op::Write, Some(range)),
            Action::Discard(range) => (models::Op::Discard, Some(range)),
            Action::Flush => (models::Op::Flush, None),
        };
        let place = self.cache.as_mut().map(|cache| cache.place(&demand.action));
        let token = self.demands.insert(demand) as u64;
        let bytes = |range: SectorRange| (range.start * SECTOR_BYTES, range.sectors * SECTOR_BYTES);
        let (offset_bytes, len_bytes) = range.map_or((0, 0), bytes);
        match (place, &mut self.cache) {
            (Some(Place::Cache(at_bytes)), Some(cache)) => {
                cache.disk.begin(self.now, token, op, at_bytes, len_bytes);
            }
            (Some(Place::Origin(part)), _) => {
                let (offset_bytes, len_bytes) = bytes(part);
                self.disk.begin(self.now, token, op, offset_bytes, len_bytes);
            }
            _ => self.disk.begin(self.now, token, op, offset_bytes, len_bytes),
        }
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
        let of_cache = self.cache.as_mut().and_then(|cache| cache.disk.poll(self.now));
        let Some(token) = of_cache.or_else(|| self.disk.poll(self.now)) else { return Ok(0) };
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

    /// A bare disk gathers nothing: requests went to it as they came.
    fn unplug(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.disk.unplug(self.now);
        }
        self.disk.unplug(self.now);
    }

    fn next_ns(&self) -> Option<u64> {
        let of_cache = self.cache.as_ref().and_then(|cache| cache.disk.next_ns());
        of_cache.into_iter().chain(self.disk.next_ns()).min()
    }

    fn go_to(&mut self, now: Nanos) {
        self.now = now;
    }
}
