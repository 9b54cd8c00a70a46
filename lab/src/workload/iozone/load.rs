//! A test of iozone as the workload of a long run, with iozone's figures of it.

use super::sequence::{Sequence, Test};
use crate::long::{Action, Answer, Demand, Next, Workload};
use engine::units::{Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};

/// iozone's arguments.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// `-r`: bytes of a record, a multiple of 512.
    pub record_bytes: u64,
    /// `-s`: bytes of each file.
    pub file_bytes: u64,
    /// `-t`: processes.
    pub processes: u32,
    /// The volume on which the files lie; end to end from its beginning, if no places are given.
    pub volume: VolumeIndex,
}

impl Setup {
    /// Size that the volume must have.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        self.file_bytes * u64::from(self.processes)
    }
}

/// Counted work of a process.
#[derive(Clone, Copy, Debug)]
struct Counted {
    records: u64,
    elapsed_ns: u64,
}

struct Process {
    sequence: Sequence,
    is_write: bool,
    /// Records done before the first process had finished.
    records: u64,
    is_waiting: bool,
    /// It has nothing more to ask for; one that wrote still has its file to flush.
    is_over: bool,
    owes_flush: bool,
    counted: Option<Counted>,
}

/// iozone's printed figures of a test. Rates are records a second.
#[derive(Clone, Debug)]
pub struct Outcome {
    counted: Vec<Counted>,
    elapsed_ns: u64,
}

impl Outcome {
    fn rates(&self) -> impl Iterator<Item = f64> {
        self.counted.iter().map(|process| process.records as f64 * 1e9 / process.elapsed_ns.max(1) as f64)
    }

    /// All processes together, each by its own time.
    #[must_use]
    pub fn children_throughput(&self) -> f64 {
        self.rates().sum()
    }

    /// All processes together, by the time from the first beginning to the last end.
    #[must_use]
    pub fn parent_throughput(&self) -> f64 {
        let records: u64 = self.counted.iter().map(|process| process.records).sum();
        records as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// The slowest process.
    #[must_use]
    pub fn min_per_process(&self) -> f64 {
        self.rates().fold(f64::INFINITY, f64::min)
    }

    /// The fastest process.
    #[must_use]
    pub fn max_per_process(&self) -> f64 {
        self.rates().fold(0.0, f64::max)
    }

    /// The mean of the processes.
    #[must_use]
    pub fn avg_per_process(&self) -> f64 {
        self.children_throughput() / self.counted.len() as f64
    }

    /// Records of the process that did fewest.
    #[must_use]
    pub fn min_records(&self) -> u64 {
        self.counted.iter().map(|process| process.records).min().unwrap_or(0)
    }
}

/// A test. When the first process has finished, all others stop: readers at once; writers go on to the end of their
/// file, for readers to come, but no longer count. At the end each file is flushed, outside all times.
pub struct IozoneLoad {
    setup: Setup,
    /// The places of the files.
    starts_bytes: Vec<u64>,
    processes: Vec<Process>,
    began: Option<Nanos>,
    is_stopped: bool,
    counted_until: Nanos,
    /// The process that is asked next.
    turn: usize,
}

impl IozoneLoad {
    /// A test at its beginning.
    ///
    /// # Panics
    /// If a record is no multiple of 512 bytes, a file no multiple of records, or there is nobody.
    #[must_use]
    pub fn new(test: Test, setup: Setup) -> IozoneLoad {
        let starts_bytes = (0..u64::from(setup.processes)).map(|file| file * setup.file_bytes).collect();
        IozoneLoad::placed(test, setup, starts_bytes)
    }

    /// A test at its beginning, with each process's file at a place of its own.
    ///
    /// # Panics
    /// As [`IozoneLoad::new`], and if there is not a place for every process.
    #[must_use]
    pub fn placed(test: Test, setup: Setup, starts_bytes: Vec<u64>) -> IozoneLoad {
        assert_eq!(starts_bytes.len(), setup.processes as usize, "a file for every process");
        assert!(setup.record_bytes > 0 && setup.record_bytes.is_multiple_of(SECTOR_BYTES));
        assert!(setup.file_bytes.is_multiple_of(setup.record_bytes) && setup.processes > 0);
        let records = u32::try_from(setup.file_bytes / setup.record_bytes).expect("a file of fewer records");
        let process = |number| Process {
            sequence: Sequence::new(test, number, records),
            is_write: test.writes(number),
            records: 0,
            is_waiting: false,
            is_over: false,
            owes_flush: false,
            counted: None,
        };
        IozoneLoad {
            setup,
            starts_bytes,
            processes: (0..setup.processes).map(process).collect(),
            began: None,
            is_stopped: false,
            counted_until: Nanos(0),
            turn: 0,
        }
    }

    /// iozone's figures, once the test has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let counted = self.processes.iter().map(|process| process.counted).collect::<Option<Vec<_>>>()?;
        Some(Outcome { counted, elapsed_ns: self.counted_until.since(self.began?) })
    }

    /// The time of a process is over.
    fn count(&mut self, at: usize, now: Nanos) {
        let began = self.began.unwrap_or(now);
        let process = &mut self.processes[at];
        if process.counted.is_none() {
            process.counted = Some(Counted { records: process.records, elapsed_ns: now.since(began) });
            self.counted_until = self.counted_until.max(now);
        }
    }

    fn ask(&mut self, at: usize, now: Nanos) -> Option<Demand> {
        let volume = self.setup.volume;
        let process = &self.processes[at];
        if process.is_waiting {
            return None;
        }
        if process.is_over {
            if !self.processes[at].owes_flush {
                return None;
            }
            self.processes[at].owes_flush = false;
            self.processes[at].is_waiting = true;
            return Some(Demand { job: at as u32, volume, action: Action::Flush, due: now });
        }
        if self.is_stopped {
            self.count(at, now);
        }
        let process = &mut self.processes[at];
        let ask = if self.is_stopped && !process.is_write { None } else { process.sequence.next() };
        let Some(ask) = ask else {
            process.is_over = true;
            process.owes_flush = process.is_write;
            self.count(at, now);
            self.is_stopped = true;
            return self.ask(at, now);
        };
        process.is_waiting = true;
        let start_bytes = self.starts_bytes[at] + ask.record * self.setup.record_bytes;
        let range = SectorRange {
            start: start_bytes / SECTOR_BYTES,
            sectors: self.setup.record_bytes / SECTOR_BYTES,
        };
        let action = if ask.is_write { Action::Write { range, fua: false } } else { Action::Read(range) };
        Some(Demand { job: at as u32, volume, action, due: now })
    }
}

impl Workload for IozoneLoad {
    fn next(&mut self, now: Nanos) -> Next {
        self.began.get_or_insert(now);
        for step in 0..self.processes.len() {
            let at = (self.turn + step) % self.processes.len();
            if let Some(demand) = self.ask(at, now) {
                self.turn = (at + 1) % self.processes.len();
                return Next::Demand(demand);
            }
        }
        let is_waited = self.processes.iter().any(|process| process.is_waiting);
        if is_waited { Next::OnAnswer } else { Next::End }
    }

    fn answered(&mut self, answer: &Answer) {
        let process = &mut self.processes[answer.demand.job as usize];
        process.is_waiting = false;
        let is_record = answer.demand.action != Action::Flush;
        process.records += u64::from(is_record && !self.is_stopped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: Setup =
        Setup { record_bytes: 4096, file_bytes: 40_960, processes: 2, volume: VolumeIndex(0) };

    /// Answers the requests of process 0 after `first_ns`, of process 1 after `second_ns`.
    fn play(test: Test, first_ns: u64, second_ns: u64) -> (IozoneLoad, Vec<Demand>) {
        let mut load = IozoneLoad::new(test, SETUP);
        let (mut now, mut under_way, mut asked) = (Nanos(0), Vec::new(), Vec::new());
        loop {
            match load.next(now) {
                Next::Demand(demand) => {
                    asked.push(demand);
                    let ns = if demand.job == 0 { first_ns } else { second_ns };
                    under_way.push((now.plus(ns), demand));
                }
                Next::End => return (load, asked),
                _ => {
                    under_way.sort_by_key(|(done, _)| *done);
                    let (done, demand) = under_way.remove(0);
                    now = done;
                    load.answered(&Answer { demand, answered: now, result: Ok(()) });
                }
            }
        }
    }

    #[test]
    fn readers_stop_when_the_first_has_finished() {
        let (load, asked) = play(Test::Read, 1000, 1900);
        assert_eq!(asked.iter().filter(|demand| demand.job == 1).count(), 6);
        let outcome = load.outcome().expect("it has ended");
        assert!((outcome.max_per_process() - 1e6).abs() < 1.0);
        assert!((outcome.min_per_process() - 5e5).abs() < 1e5, "{outcome:?}");
        assert_eq!(outcome.min_records(), 5);
    }

    #[test]
    fn writers_write_their_file_to_its_end_and_flush_it_but_no_longer_count() {
        let (load, asked) = play(Test::InitialWrite, 1000, 2000);
        let second: Vec<_> = asked.iter().filter(|demand| demand.job == 1).collect();
        assert_eq!(second.len(), 11);
        assert_eq!(second[10].action, Action::Flush);
        let Action::Write { range, .. } = second[9].action else { panic!("a write") };
        assert_eq!(range.start, (40_960 + 9 * 4096) / SECTOR_BYTES);
        assert!(load.outcome().expect("it has ended").min_records() <= 6);
    }

    #[test]
    fn of_a_mixed_test_readers_and_writers_are_counted_alike() {
        let (load, asked) = play(Test::Mixed, 2000, 1000);
        assert!(asked.iter().all(|demand| matches!(demand.action, Action::Read(_)) == (demand.job == 0)));
        assert_eq!(load.outcome().expect("it has ended").min_records(), 5);
    }
}
