//! A trace, or the jobs of a fio job file, through the engine, in virtual time over modelled disks: what the cache
//! would have done.
//!
//! The volumes of the trace lie end to end on one origin ([`Layout`]), in front of which is a new, empty
//! cache. Requests come by their times ([`Pace::Timed`]: open loop, whatever the answers) or as fast as a
//! number of them under way allows ([`Pace::Depth`]: closed loop). After the trace the run goes on until
//! nothing is dirty, which is measured apart.

mod outcome;
mod plan;
mod workload;

pub use outcome::{Backlog, Latency, Moved, Outcome};
pub use plan::{CACHE_BYTES_MIN, Pace, Plan, ReplayError, share_of_footprint};

use crate::long::{Contents, Disk, LongRun, Setup, Until, VolumeSetup, Workload};
use crate::trace::{Layout, ORIGIN_BYTES_MAX, Source, Survey};
use crate::workload::fio::{FioLoad, Job};
use engine::limits::Config;
use engine::units::{Nanos, VolumeIndex};
use outcome::Dirt;
use workload::Replay;

/// Before the trace begins the engine gets this long to open the cache: only after the first flush of the
/// origin is anything filled.
const OPENING_NS: u64 = Nanos::SECOND;
/// Virtual time between two looks at the dirty data and the progress.
const SLICE_NS: u64 = 50 * Nanos::MILLISECOND;
/// The longest trace whose times are believed: a hundred years.
const SPAN_NS_MAX: u64 = 100 * 365 * 86_400 * Nanos::SECOND;
/// Time after the trace in which dirty data must be written back; longer counts as not drained: an hour.
const DRAIN_NS_MAX: u64 = 3600 * Nanos::SECOND;

/// Replays a trace that was surveyed before. `configure` may change the engine's bounds; `on_progress` gets the
/// number of requests that are answered, now and then.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(
    plan: &Plan<'_>,
    pace: Pace,
    survey: &Survey,
    source: &mut dyn Source,
    configure: impl FnOnce(&mut Config),
    on_progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    if pace == Pace::Timed {
        let span_ns = survey.span_ns.ok_or(ReplayError::NoTimes)?;
        if span_ns > SPAN_NS_MAX {
            return Err(ReplayError::TooLong);
        }
    }
    let layout = Layout::new(survey)?;
    let mut workload = Replay::new(source, &layout, pace);
    let outcome = measure(plan, layout.origin_bytes(), &mut workload, configure, on_progress);
    workload.end()?;
    outcome
}

/// Carries out fio's jobs in the same way; their files lie end to end on the origin, and hold something already.
///
/// # Errors
/// [`ReplayError`].
pub fn carry_out(
    plan: &Plan<'_>,
    jobs: &[Job],
    configure: impl FnOnce(&mut Config),
    on_progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let mut load = FioLoad::new(jobs, VolumeIndex(0))?;
    let origin_bytes = load.volume_bytes();
    if origin_bytes > ORIGIN_BYTES_MAX {
        return Err(ReplayError::LargeFiles);
    }
    measure(plan, origin_bytes, &mut load, configure, on_progress)
}

/// A workload on a new cache, and then nothing until nothing is dirty.
fn measure(
    plan: &Plan<'_>,
    origin_bytes: u64,
    workload: &mut dyn Workload,
    configure: impl FnOnce(&mut Config),
    on_progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let origin = Disk::modelled(plan.origin, origin_bytes, 1);
    let cache = Disk::modelled(plan.cache, plan.cache_bytes, 2);
    let volumes = vec![VolumeSetup { origin, mode: plan.mode }];
    let setup = Setup { cache, volumes, contents: Contents::Nothing };
    let mut run = LongRun::composed(setup, plan.composition, configure)?;
    run.idle(OPENING_NS)?;
    run.begin_measuring();
    let before = run.status();
    let mut dirt = Dirt::new(run.now());
    let mut answered = 0;
    loop {
        let slice_end = run.now().plus(SLICE_NS);
        answered += run.run(workload, Until::Time(slice_end))?;
        dirt.look(run.now(), run.status().volumes[0].dirty_bytes);
        on_progress(answered);
        // Only the end of the workload ends a slice early.
        if run.now() < slice_end {
            break;
        }
    }
    let (statistics, status, began) = (run.statistics(), run.status(), run.now());
    let at_end_bytes = dirt.left_bytes();
    while run.status().volumes[0].dirty_bytes > 0 && run.now().since(began) < DRAIN_NS_MAX {
        run.idle(SLICE_NS)?;
    }
    let is_drained = run.status().volumes[0].dirty_bytes == 0;
    let drained = run.statistics();
    let backlog = Backlog {
        mean_bytes: dirt.mean_bytes(),
        max_bytes: dirt.max_bytes(),
        at_end_bytes,
        drain_ns: is_drained.then(|| run.now().since(began)),
        drain_origin_written_bytes: drained.origins[0].written_bytes - statistics.origins[0].written_bytes,
    };
    Ok(Outcome::new(plan, origin_bytes, &statistics, &before, &status, backlog))
}

#[cfg(test)]
mod tests;
