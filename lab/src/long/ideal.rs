//! A workload on a cache that costs nothing: the bound of what caches can make of two disks.
//!
//! It keeps every block that was ever read or written, without an end, and knows where without asking. A request is one
//! operation of one disk, as if what else a cache does were done by then: fills, destage, its own records. A read goes to
//! the origin for the blocks that nobody asked for before, and otherwise to the cache; a write goes to the cache, or
//! outside writeback to the origin.
//!
//! So a cache can be faster only by reading what nobody asked for yet, by sending hits to both disks at once, or by
//! answering writes from memory.

use super::disk::Disk;
use super::drive::{self, Stage, Trouble, Until};
use super::statistics::Statistics;
use super::workload::{Action, Answer, Demand, Next, Workload};
use engine::effect::{Errno, WriteMode};
use engine::units::{Nanos, SECTOR_BYTES, SECTORS_PER_BLOCK, SectorRange};
use slab::Slab;

/// The two disks, and what the cache has.
pub struct Ideal {
    now: Nanos,
    cache: Disk,
    origin: Disk,
    mode: WriteMode,
    /// A bit for each block of the origin.
    cached: Vec<u64>,
    /// Where the cache is written next: a log suits an SSD best.
    head_bytes: u64,
    demands: Slab<Demand>,
    statistics: Statistics,
    before: Statistics,
}

impl Ideal {
    /// Idle disks, and nothing cached.
    #[must_use]
    pub fn new(cache: Disk, origin: Disk, mode: WriteMode) -> Ideal {
        let blocks = origin.size_bytes().div_ceil(SECTOR_BYTES * SECTORS_PER_BLOCK);
        let statistics = Statistics::new(1);
        Ideal {
            now: Nanos(0),
            cache,
            origin,
            mode,
            cached: vec![0; blocks.div_ceil(64) as usize],
            head_bytes: 0,
            demands: Slab::new(),
            before: statistics.clone(),
            statistics,
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

    /// Forgets all that is cached.
    pub fn renew_cache(&mut self) {
        self.cached.fill(0);
    }

    /// Forgets the measurements so far.
    pub fn begin_measuring(&mut self) {
        self.statistics.clear(self.now);
        self.before = self.totals();
    }

    /// Measurements since the run began, or since [`Ideal::begin_measuring`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.totals().since(&self.before)
    }

    fn totals(&self) -> Statistics {
        let mut totals = self.statistics.clone();
        totals.now = self.now;
        totals.cache = self.cache.traffic();
        totals.origins[0] = self.origin.traffic();
        totals
    }

    fn begin(&mut self, demand: Demand) {
        let is_back = self.mode == WriteMode::Writeback;
        let (op, range, is_cache) = match demand.action {
            Action::Read(range) => match self.missing(range) {
                Some(missing) => (models::Op::Read, Some(missing), false),
                None => (models::Op::Read, Some(range), true),
            },
            Action::Write { range, .. } | Action::WriteZeroes(range) => {
                (models::Op::Write, Some(range), is_back)
            }
            Action::Discard(range) => (models::Op::Discard, Some(range), false),
            Action::Flush => (models::Op::Flush, None, is_back),
        };
        if let (Some(range), true) = (range, matches!(op, models::Op::Read | models::Op::Write)) {
            self.keep(range);
        }
        let token = self.demands.insert(demand) as u64;
        let len_bytes = range.map_or(0, |range| range.sectors * SECTOR_BYTES);
        let offset_bytes = range.map_or(0, |range| range.start * SECTOR_BYTES);
        if is_cache {
            let at_bytes = self.place(op, offset_bytes, len_bytes);
            self.cache.begin(self.now, token, op, at_bytes, len_bytes);
        } else {
            self.origin.begin(self.now, token, op, offset_bytes, len_bytes);
        }
    }

    /// Where an operation of the cache is: writes follow each other, reads are as far apart as what they ask for.
    fn place(&mut self, op: models::Op, offset_bytes: u64, len_bytes: u64) -> u64 {
        let room_bytes = self.cache.size_bytes().saturating_sub(len_bytes).max(1);
        match op {
            models::Op::Write => {
                let at_bytes = if self.head_bytes > room_bytes { 0 } else { self.head_bytes };
                self.head_bytes = at_bytes + len_bytes;
                at_bytes
            }
            models::Op::Read => offset_bytes % room_bytes,
            models::Op::Discard | models::Op::Flush => 0,
        }
    }

    /// The part of a range from the first to the last of its blocks that are not cached.
    fn missing(&self, range: SectorRange) -> Option<SectorRange> {
        let is_missing = |&block: &u64| self.cached[(block / 64) as usize] & 1 << (block % 64) == 0;
        let mut blocks = range.first_block()..range.end_block();
        let first = blocks.find(is_missing)?;
        let last = blocks.rfind(is_missing).unwrap_or(first);
        let start = range.start.max(first * SECTORS_PER_BLOCK);
        Some(SectorRange { start, sectors: range.end().min((last + 1) * SECTORS_PER_BLOCK) - start })
    }

    fn keep(&mut self, range: SectorRange) {
        for block in range.first_block()..range.end_block() {
            self.cached[(block / 64) as usize] |= 1 << (block % 64);
        }
    }
}

impl Stage for Ideal {
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
        let Some(token) = self.cache.poll(self.now).or_else(|| self.origin.poll(self.now)) else {
            return Ok(0);
        };
        let demand = self.demands.remove(token as usize);
        let is_refused = matches!(demand.action, Action::Discard(_)) && !self.origin.can_discard();
        let result = if is_refused { Err(Errno::OPNOTSUPP) } else { Ok(()) };
        let answer = Answer { demand, answered: self.now, result };
        self.statistics.record(&answer);
        workload.answered(&answer);
        Ok(1)
    }

    fn unanswered(&self) -> usize {
        self.demands.len()
    }

    fn unplug(&mut self) {
        self.cache.unplug(self.now);
        self.origin.unplug(self.now);
    }

    fn next_ns(&self) -> Option<u64> {
        self.cache.next_ns().into_iter().chain(self.origin.next_ns()).min()
    }

    fn go_to(&mut self, now: Nanos) {
        self.now = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::long::{Latencies, Load, LoadOptions};

    const BLOCKS: u64 = 64;

    /// Disks of one operation at a time, of which reads of the cache take 1 us, and those of the origin 100 us.
    fn ideal(mode: WriteMode) -> Ideal {
        let fast = Latencies { read_ns: 1000, write_ns: 2000, flush_ns: 1 };
        let slow = Latencies { read_ns: 100_000, write_ns: 200_000, flush_ns: 1 };
        Ideal::new(Disk::constant(BLOCKS * 4096, fast), Disk::constant(BLOCKS * 4096, slow), mode)
    }

    fn load(read_permille: u64, requests: u64) -> Load {
        let one =
            LoadOptions { depth: 1, pattern: crate::long::Pattern::Sequential, ..LoadOptions::reads(BLOCKS) };
        Load::new(LoadOptions { read_permille, requests: Some(requests), ..one })
    }

    #[test]
    fn what_was_asked_for_once_costs_the_cache_alone() {
        let mut ideal = ideal(WriteMode::Writeback);
        ideal.run(&mut load(1000, 2 * BLOCKS), Until::End).expect("it ends");
        let statistics = ideal.statistics();
        assert_eq!((statistics.origins[0].reads, statistics.cache.reads), (BLOCKS, BLOCKS));
        assert_eq!(statistics.elapsed_ns(), BLOCKS * 101_000);
        ideal.renew_cache();
        ideal.begin_measuring();
        ideal.run(&mut load(1000, BLOCKS), Until::End).expect("it ends");
        assert_eq!(ideal.statistics().origins[0].reads, BLOCKS);
    }

    #[test]
    fn writes_go_to_one_disk_by_the_mode_and_are_cached() {
        for (mode, cache, origin) in [(WriteMode::Writeback, BLOCKS, 0), (WriteMode::Writethrough, 0, BLOCKS)]
        {
            let mut ideal = ideal(mode);
            ideal.run(&mut load(0, BLOCKS), Until::End).expect("it ends");
            let statistics = ideal.statistics();
            assert_eq!((statistics.cache.writes, statistics.origins[0].writes), (cache, origin), "{mode:?}");
            ideal.run(&mut load(1000, BLOCKS), Until::End).expect("it ends");
            assert_eq!(ideal.statistics().origins[0].reads, 0, "{mode:?}");
        }
    }

    #[test]
    fn of_a_read_the_origin_gives_what_lies_between_the_first_and_the_last_missing_block() {
        let mut ideal = ideal(WriteMode::Writeback);
        let range = |start, sectors| SectorRange { start, sectors };
        [range(0, 8), range(16, 8), range(40, 24)].into_iter().for_each(|range| ideal.keep(range));
        assert_eq!(ideal.missing(range(3, 60)), Some(range(8, 32)));
        assert_eq!(ideal.missing(range(9, 3)), Some(range(9, 3)));
        assert_eq!(ideal.missing(range(44, 20)), None);
    }
}
