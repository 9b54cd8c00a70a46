//! A closed-loop load: jobs that each keep a number of requests under way.

use super::workload::{Action, Answer, Demand, Next, Workload};
use super::zipf::Zipf;
use crate::random::Random;
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use std::collections::VecDeque;

/// Which part of its area a request touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One after the other, round and round; each job begins at its share of the area.
    Sequential,
    /// Any, each as often as the others.
    Random,
    /// Some more often than others, as [`Zipf`] says; the frequent ones are scattered over the area.
    Zipf {
        /// A thousand times theta.
        theta_permille: u32,
    },
}

/// Options of a [`Load`].
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// The volume.
    pub volume: VolumeIndex,
    /// The first block of the area that is used.
    pub first_block: u64,
    /// Blocks of the area.
    pub blocks: u64,
    /// Bytes of each request; a multiple of 512. Requests begin at multiples of it from the area's start.
    pub request_bytes: u64,
    /// Where.
    pub pattern: Pattern,
    /// Reads among a thousand requests; the others are writes.
    pub read_permille: u64,
    /// Jobs.
    pub jobs: u32,
    /// Requests that each job keeps under way.
    pub depth: u32,
    /// After so many writes of all jobs together one of them flushes; 0 is never.
    pub flush_every: u64,
    /// From an answer to the next request of the same job.
    pub think_ns: u64,
    /// The first requests come one after the other at this distance, so that not all are answered at once for ever.
    pub start_gap_ns: u64,
    /// Requests in all, flushes aside; then the load ends. `None` is without end.
    pub requests: Option<u64>,
    /// The seed of the draws.
    pub seed: u64,
}

impl LoadOptions {
    /// Random reads of 4 KiB over an area, 32 at a time, without end.
    #[must_use]
    pub fn reads(blocks: u64) -> LoadOptions {
        LoadOptions {
            volume: VolumeIndex(0),
            first_block: 0,
            blocks,
            request_bytes: BLOCK_BYTES,
            pattern: Pattern::Random,
            read_permille: 1000,
            jobs: 1,
            depth: 32,
            flush_every: 0,
            think_ns: 0,
            start_gap_ns: 1000,
            requests: None,
            seed: 1,
        }
    }

    /// Every block of an area once, in order, by requests of 128 KiB, to warm a cache.
    ///
    /// # Panics
    /// If the area is no multiple of 128 KiB.
    #[must_use]
    pub fn once(blocks: u64) -> LoadOptions {
        const REQUEST_BLOCKS: u64 = 32;
        assert!(blocks.is_multiple_of(REQUEST_BLOCKS));
        LoadOptions {
            request_bytes: REQUEST_BLOCKS * BLOCK_BYTES,
            pattern: Pattern::Sequential,
            depth: 8,
            requests: Some(blocks / REQUEST_BLOCKS),
            ..LoadOptions::reads(blocks)
        }
    }
}

enum Chooser {
    /// The next place of each job.
    Sequential(Vec<u64>),
    Random,
    Zipf {
        zipf: Zipf,
        stride: u64,
    },
}

/// A closed-loop load.
pub struct Load {
    options: LoadOptions,
    chooser: Chooser,
    random: Random,
    /// Places in the area.
    units: u64,
    left: u64,
    writes_until_flush: u64,
    /// Slots that have never been used.
    unused: u32,
    /// The time of the first request.
    began: Option<Nanos>,
    /// Jobs with a free slot, by the time from which on they may use it.
    free: VecDeque<(Nanos, u32)>,
}

impl Load {
    /// A load at its beginning.
    ///
    /// # Panics
    /// If the area has no room for a request, or there are no jobs or no depth.
    #[must_use]
    pub fn new(options: LoadOptions) -> Load {
        assert!(options.request_bytes > 0 && options.request_bytes.is_multiple_of(SECTOR_BYTES));
        assert!(options.jobs > 0 && options.depth > 0 && options.read_permille <= 1000);
        let units = options.blocks * BLOCK_BYTES / options.request_bytes;
        assert!(units > 0, "the area has room for a request");
        let chooser = match options.pattern {
            Pattern::Sequential => {
                let jobs = u64::from(options.jobs);
                Chooser::Sequential((0..jobs).map(|job| units * job / jobs).collect())
            }
            Pattern::Random => Chooser::Random,
            Pattern::Zipf { theta_permille } => {
                Chooser::Zipf { zipf: Zipf::new(units, theta_permille), stride: stride(units) }
            }
        };
        Load {
            chooser,
            random: Random::new(options.seed),
            units,
            left: options.requests.unwrap_or(u64::MAX),
            writes_until_flush: options.flush_every,
            unused: options.jobs * options.depth,
            began: None,
            free: VecDeque::new(),
            options,
        }
    }

    fn choose(&mut self, job: u32) -> u64 {
        match &mut self.chooser {
            Chooser::Sequential(cursors) => {
                let cursor = &mut cursors[job as usize];
                let unit = *cursor;
                *cursor = (unit + 1) % self.units;
                unit
            }
            Chooser::Random => self.random.below(self.units),
            Chooser::Zipf { zipf, stride } => {
                let rank = zipf.draw(&mut self.random);
                (u128::from(rank) * u128::from(*stride) % u128::from(self.units)) as u64
            }
        }
    }

    fn demand(&mut self, job: u32, due: Nanos) -> Demand {
        let volume = self.options.volume;
        if self.options.flush_every > 0 && self.writes_until_flush == 0 {
            self.writes_until_flush = self.options.flush_every;
            return Demand { job, volume, action: Action::Flush, due };
        }
        self.left -= 1;
        let request_sectors = self.options.request_bytes / SECTOR_BYTES;
        let start = self.options.first_block * SECTORS_PER_BLOCK + self.choose(job) * request_sectors;
        let range = SectorRange { start, sectors: request_sectors };
        let is_read = match self.options.read_permille {
            1000 => true,
            0 => false,
            permille => self.random.below(1000) < permille,
        };
        let action = if is_read { Action::Read(range) } else { Action::Write { range, fua: false } };
        self.writes_until_flush = self.writes_until_flush.saturating_sub(u64::from(!is_read));
        Demand { job, volume, action, due }
    }
}

/// A number without a common divisor with `units`, near its golden section: its multiples meet each
/// unit once, and neighbours are far from each other.
fn stride(units: u64) -> u64 {
    let mut stride = (u128::from(units) * 618_033_988 / 1_000_000_000) as u64 | 1;
    while divisor(stride, units) != 1 {
        stride += 2;
    }
    stride
}

fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Workload for Load {
    fn next(&mut self, now: Nanos) -> Next {
        if self.left == 0 {
            return Next::End;
        }
        let waits = self.free.front().copied();
        if let Some((due, job)) = waits
            && due <= now
        {
            self.free.pop_front();
            return Next::Demand(self.demand(job, due));
        }
        let mut next = waits.map(|(due, _)| due);
        if self.unused > 0 {
            let slot = self.options.jobs * self.options.depth - self.unused;
            let due = self.began.get_or_insert(now).plus(u64::from(slot) * self.options.start_gap_ns);
            if due <= now {
                self.unused -= 1;
                return Next::Demand(self.demand(slot % self.options.jobs, due));
            }
            next = Some(next.map_or(due, |other| other.min(due)));
        }
        next.map_or(Next::OnAnswer, Next::At)
    }

    fn answered(&mut self, answer: &Answer) {
        self.free.push_back((answer.answered.plus(self.options.think_ns), answer.demand.job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks and answers at once; the first blocks asked for.
    fn asked(options: LoadOptions) -> Vec<u64> {
        let mut load = Load::new(options);
        let mut blocks = Vec::new();
        loop {
            match load.next(Nanos(0)) {
                Next::Demand(demand) => {
                    if let Action::Read(range) | Action::Write { range, .. } = demand.action {
                        blocks.push(range.first_block());
                    }
                    load.answered(&Answer { demand, answered: Nanos(0), result: Ok(()) });
                }
                Next::End => return blocks,
                other => panic!("nothing to wait for: {other:?}"),
            }
        }
    }

    #[test]
    fn once_is_every_block_once() {
        let blocks = asked(LoadOptions::once(320));
        assert_eq!(blocks, (0..10).map(|at| at * 32).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_are_under_way_than_the_depth() {
        let options = LoadOptions { jobs: 2, depth: 3, start_gap_ns: 0, ..LoadOptions::reads(100) };
        let mut load = Load::new(options);
        let demands: Vec<_> = (0..6)
            .map(|_| match load.next(Nanos(5)) {
                Next::Demand(demand) => demand,
                other => panic!("a slot is free: {other:?}"),
            })
            .collect();
        assert_eq!(load.next(Nanos(5)), Next::OnAnswer);
        load.answered(&Answer { demand: demands[4], answered: Nanos(9), result: Ok(()) });
        let Next::Demand(demand) = load.next(Nanos(9)) else { panic!("a slot is free") };
        assert_eq!((demand.job, demand.due), (demands[4].job, Nanos(9)));
        assert_eq!(load.next(Nanos(9)), Next::OnAnswer);
    }

    #[test]
    fn zipf_meets_the_whole_area_and_favours_some() {
        let options = LoadOptions {
            pattern: Pattern::Zipf { theta_permille: 1100 },
            requests: Some(100_000),
            start_gap_ns: 0,
            ..LoadOptions::reads(100)
        };
        let mut counts = [0; 100];
        for block in asked(options) {
            counts[block as usize] += 1;
        }
        counts.sort_unstable();
        assert!(counts[0] > 100 && counts[99] > 20_000, "{counts:?}");
    }

    #[test]
    fn a_flush_follows_every_so_many_writes() {
        let options =
            LoadOptions { read_permille: 0, flush_every: 3, requests: Some(9), ..LoadOptions::reads(100) };
        let mut load = Load::new(options);
        let mut kinds = String::new();
        while let Next::Demand(demand) = load.next(Nanos(1 << 40)) {
            kinds.push(if demand.action == Action::Flush { 'f' } else { 'w' });
            load.answered(&Answer { demand, answered: Nanos(1 << 40), result: Ok(()) });
        }
        assert_eq!(kinds, "wwwfwwwfwww");
    }
}
