//! Jobs as the workload of a long run.

use super::job::{Job, JobError};
use super::sequence::Sequence;
use crate::long::{Action, Answer, Demand, Next, Workload};
use engine::units::{Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use std::collections::BTreeMap;

/// Each file begins at a multiple of this: 1 MiB.
const ALIGNMENT_BYTES: u64 = 1 << 20;

/// A job under way.
struct Running {
    sequence: Sequence,
    /// The place of its file on the volume.
    file_bytes: u64,
    under_way: u32,
    /// Writes since the last flush that it asked for.
    writes: u64,
    /// Whether it waits for the answer to a flush.
    is_flushing: bool,
    is_over: bool,
}

/// Jobs beside each other, and after each other where one waits for those before it. Their files lie end to end
/// on one volume, in the order in which they come.
pub struct FioLoad {
    jobs: Vec<Running>,
    volume: VolumeIndex,
    volume_bytes: u64,
    /// The jobs that are now running are those from here ...
    first: usize,
    /// ... to here.
    end: usize,
    began: Option<Nanos>,
    /// The job that is asked next.
    turn: usize,
}

impl FioLoad {
    /// The jobs of a job file on a volume.
    ///
    /// # Errors
    /// [`JobError`] of the first job that cannot be run.
    pub fn new(jobs: &[Job], volume: VolumeIndex) -> Result<FioLoad, JobError> {
        let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
        for job in jobs {
            let bytes = sizes.entry(&job.file).or_default();
            *bytes = job.end_bytes().max(*bytes);
        }
        let (mut starts, mut volume_bytes) = (BTreeMap::new(), 0u64);
        for job in jobs {
            starts.entry(job.file.as_str()).or_insert_with(|| {
                let start_bytes = volume_bytes;
                volume_bytes = (start_bytes + sizes[job.file.as_str()]).next_multiple_of(ALIGNMENT_BYTES);
                start_bytes
            });
        }
        let mut load = FioLoad::placed(jobs, volume, |file| starts[file])?;
        load.volume_bytes = volume_bytes;
        Ok(load)
    }

    /// The jobs of a job file on files that lie on the volume already: `start_bytes` says where each begins.
    ///
    /// # Errors
    /// [`JobError`] of the first job that cannot be run.
    pub fn placed(
        jobs: &[Job],
        volume: VolumeIndex,
        start_bytes: impl Fn(&str) -> u64,
    ) -> Result<FioLoad, JobError> {
        let (mut running, mut volume_bytes) = (Vec::new(), 0);
        for job in jobs {
            let file_bytes = start_bytes(&job.file);
            volume_bytes = volume_bytes.max(file_bytes.saturating_add(job.end_bytes()));
            running.push(Running {
                sequence: Sequence::new(job)?,
                file_bytes,
                under_way: 0,
                writes: 0,
                is_flushing: false,
                is_over: false,
            });
        }
        let mut load =
            FioLoad { jobs: running, volume, volume_bytes, first: 0, end: 0, began: None, turn: 0 };
        load.next_phase();
        Ok(load)
    }

    /// Size that the volume must have.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    /// Goes on to the jobs behind those that ran.
    fn next_phase(&mut self) {
        self.first = self.end;
        let behind = (self.first + 1).min(self.jobs.len());
        let next = self.jobs[behind..].iter().position(|job| job.sequence.job().is_phase);
        self.end = next.map_or(self.jobs.len(), |next| behind + next);
        (self.began, self.turn) = (None, self.first);
    }

    /// The next request of a job, if it has a slot free.
    fn ask(&mut self, at: usize, now: Nanos) -> Option<Demand> {
        let began = *self.began.get_or_insert(now);
        let job = &mut self.jobs[at];
        if job.is_flushing {
            return None;
        }
        if job.sequence.job().writes_per_flush.is_some_and(|writes| job.writes >= writes) {
            // It shall cover those writes, so they are answered first.
            if job.under_way > 0 {
                return None;
            }
            (job.writes, job.is_flushing) = (0, true);
            job.under_way += 1;
            return Some(Demand { job: at as u32, volume: self.volume, action: Action::Flush, due: now });
        }
        let is_late = job.sequence.job().runtime_ns.is_some_and(|runtime_ns| now.since(began) >= runtime_ns);
        job.is_over |= is_late;
        if job.is_over || job.under_way >= job.sequence.job().depth {
            return None;
        }
        let Some(ask) = job.sequence.next() else {
            job.is_over = true;
            return None;
        };
        job.under_way += 1;
        job.writes += u64::from(ask.is_write);
        let range = SectorRange {
            start: (job.file_bytes + ask.offset_bytes) / SECTOR_BYTES,
            sectors: job.sequence.job().block_bytes / SECTOR_BYTES,
        };
        let action = if ask.is_write { Action::Write { range, fua: false } } else { Action::Read(range) };
        Some(Demand { job: at as u32, volume: self.volume, action, due: now })
    }
}

impl Workload for FioLoad {
    fn next(&mut self, now: Nanos) -> Next {
        loop {
            let count = self.end - self.first;
            for step in 0..count {
                let at = self.first + (self.turn - self.first + step) % count;
                if let Some(demand) = self.ask(at, now) {
                    // Each job in its turn, as threads beside each other have it.
                    self.turn = self.first + (at - self.first + 1) % count;
                    return Next::Demand(demand);
                }
            }
            if self.jobs[self.first..self.end].iter().any(|job| job.under_way > 0) {
                return Next::OnAnswer;
            }
            if self.end == self.jobs.len() {
                return Next::End;
            }
            self.next_phase();
        }
    }

    fn answered(&mut self, answer: &Answer) {
        let job = &mut self.jobs[answer.demand.job as usize];
        job.under_way -= 1;
        job.is_flushing &= answer.demand.action != Action::Flush;
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use engine::effect::Errno;

    /// Asks until the load has to wait, and tells what it wants: `w`, `f`, or `r`.
    fn ask(load: &mut FioLoad, demands: &mut Vec<Demand>) -> String {
        let mut kinds = String::new();
        while let Next::Demand(demand) = load.next(Nanos(0)) {
            kinds.push(match demand.action {
                Action::Write { .. } => 'w',
                Action::Flush => 'f',
                _ => 'r',
            });
            demands.push(demand);
        }
        kinds
    }

    fn answer(load: &mut FioLoad, demand: Demand) {
        load.answered(&Answer { demand, answered: Nanos(0), result: Ok::<(), Errno>(()) });
    }

    #[test]
    fn a_flush_comes_behind_the_writes_that_it_covers_and_before_all_others() {
        let jobs = parse("[a]\nrw=write\nsize=20k\nfsync=2\nioengine=libaio\niodepth=3\n").expect("a job");
        let mut load = FioLoad::new(&jobs, VolumeIndex(0)).expect("it can be run");
        let mut demands = Vec::new();
        assert_eq!(ask(&mut load, &mut demands), "ww", "the third waits for the flush");
        answer(&mut load, demands.remove(0));
        assert_eq!(ask(&mut load, &mut demands), "", "one is not answered");
        answer(&mut load, demands.remove(0));
        assert_eq!(ask(&mut load, &mut demands), "f");
        answer(&mut load, demands.remove(0));
        assert_eq!(ask(&mut load, &mut demands), "ww");
        demands.drain(..).for_each(|demand| answer(&mut load, demand));
        assert_eq!(ask(&mut load, &mut demands), "f");
        answer(&mut load, demands.remove(0));
        assert_eq!(ask(&mut load, &mut demands), "w", "one write alone asks for no flush");
        answer(&mut load, demands.remove(0));
        assert_eq!(load.next(Nanos(0)), Next::End);
    }
}
