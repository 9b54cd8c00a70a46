//! Counts of each job over time.

use crate::long::{Answer, Next, Workload};
use engine::units::Nanos;

/// fio looks at the rate of each thread so often.
pub(super) const WINDOW_NS: u64 = 500 * Nanos::MILLISECOND;

/// A job's share of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct JobCount {
    /// Requests answered.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the beginning of the step to the last of them.
    pub elapsed_ns: u64,
    /// Requests in each whole window.
    pub windows: Vec<u32>,
    pub(super) in_window: u32,
}

/// A workload, watched.
pub(super) struct Watch<W> {
    workload: W,
    began: Option<Nanos>,
    jobs: Vec<JobCount>,
}

impl<W: Workload> Watch<W> {
    pub(super) fn new(workload: W) -> Watch<W> {
        Watch { workload, began: None, jobs: Vec::new() }
    }

    /// The watched workload.
    pub(super) fn workload(&self) -> &W {
        &self.workload
    }

    /// The counts of the jobs.
    pub(super) fn into_jobs(self) -> Vec<JobCount> {
        self.jobs
    }
}

impl<W: Workload> Workload for Watch<W> {
    fn next(&mut self, now: Nanos) -> Next {
        self.began.get_or_insert(now);
        self.workload.next(now)
    }

    fn answered(&mut self, answer: &Answer) {
        let at = answer.demand.job as usize;
        if self.jobs.len() <= at {
            self.jobs.resize_with(at + 1, JobCount::default);
        }
        let began = self.began.unwrap_or(answer.answered);
        let job = &mut self.jobs[at];
        job.elapsed_ns = answer.answered.since(began);
        let window = (job.elapsed_ns / WINDOW_NS) as usize;
        while job.windows.len() < window {
            job.windows.push(std::mem::take(&mut job.in_window));
        }
        job.in_window += 1;
        job.count += 1;
        job.bytes += answer.demand.action.len_bytes();
        self.workload.answered(answer);
    }
}
