//! Our daemon beside the caches of the kernel, as `versus/run` measures them: a page and a picture of its figures.
//!
//! | file | subject |
//! | --- | --- |
//! | `page.rs` | tables, and the sentences around them |
//! | `plot.rs` | each figure as a part of what the SSD does alone |

mod page;
mod plot;
#[cfg(test)]
mod tests;

pub use page::{page, rates};
pub use plot::plot;

use serde::Deserialize;

/// A system with its figures.
#[derive(Clone, Debug, Deserialize)]
pub struct System {
    /// Its name.
    pub system: String,
    /// The name of the kernel.
    pub kernel: String,
    /// The packages that measured it, with their versions.
    pub tools: String,
    /// The day on which it was measured.
    pub day: String,
    /// Options of the modelled disks; empty if they were as they come.
    pub disks: String,
    /// The version of our daemon, if that is what was measured.
    pub forebay: Option<String>,
    /// The jobs that it did, in this order.
    pub jobs: Vec<Job>,
}

/// A job as a system did it, in the time of the modelled disks.
#[derive(Clone, Debug, Deserialize)]
pub struct Job {
    /// Its name.
    pub job: String,
    /// Requests a second: the median of the rounds.
    pub per_second: f64,
    /// Requests a second in each round, the least first. The other figures are those of the median one.
    #[serde(default)]
    pub rounds: Vec<f64>,
    /// The median of the latencies.
    pub p50_us: f64,
    /// Their 99th percentile.
    pub p99_us: f64,
    /// Instructions of the whole computer for a request, those of fio among them.
    pub instructions: f64,
    /// Instructions of our daemon and of the kernel in its name for a request.
    pub daemon_instructions: f64,
}

impl Job {
    /// The least and the most of its rounds, if chance has a say in it.
    fn spread(&self) -> Option<(f64, f64)> {
        let (least, most) = (*self.rounds.first()?, *self.rounds.last()?);
        (most > least * (1.0 + SPREAD)).then_some((least, most))
    }
}

impl System {
    fn job(&self, name: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.job == name)
    }
}

/// The caches of the kernel.
const KERNELS: [&str; 3] = ["bcache", "dm-cache", "dm-writecache"];
/// Part by which rounds of a job differ at the least that hangs on chance.
const SPREAD: f64 = 0.20;
/// The device limit.
const SSD: &str = "ssd";

/// The cache of the kernel whose profile a system of ours runs with.
fn imitated(name: &str) -> Option<&str> {
    name.strip_prefix("as-")
}

fn system<'a>(systems: &'a [System], name: &str) -> Option<&'a System> {
    systems.iter().find(|system| system.system == name)
}

fn rate(systems: &[System], name: &str, job: &str) -> Option<f64> {
    Some(system(systems, name)?.job(job)?.per_second)
}

/// The best cache of the kernel in a job.
fn best_kernel(systems: &[System], job: &str) -> Option<f64> {
    KERNELS.iter().filter_map(|name| rate(systems, name, job)).reduce(f64::max)
}

/// The names of all jobs, in the order in which they ran.
fn jobs(systems: &[System]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for job in systems.iter().flat_map(|system| &system.jobs) {
        if !names.contains(&&*job.job) {
            names.push(&job.job);
        }
    }
    names
}
