//! `forebay lab trace`: a trace, or the jobs of a fio job file, through the engine, in virtual time on modelled disks.

use super::parallel;
use crate::arguments::traces::LabTrace;
use crate::output::{Output, Size};
use crate::profile::{self, Profile};
use crate::progress::Bar;
use crate::report::{BypassStats, Reasons};
use anyhow::{Context, Result, anyhow, bail};
use engine::units::VolumeIndex;
use lab::replay::{self, Latency, Outcome, Pace, Plan};
use lab::trace::{self, Survey};
use lab::workload::fio::{self, FioLoad, Job};
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Requests under way where neither the trace nor the command line says: as a SATA disk takes.
pub(super) const DEPTH_DEFAULT: u32 = 32;
/// Ending of the names of fio's job files.
pub(super) const JOBS_EXTENSION: &str = "fio";
/// Default sizes of the cache, in percent of the bytes that the trace touches.
const SIZES_PERCENT: [u64; 3] = [1, 10, 50];

/// Interval at which the bar is redrawn.
const REFRESH: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct Report {
    file: String,
    /// The survey of the trace, if the file is one.
    trace: Option<Surveyed>,
    /// The jobs, if the file is a job file.
    jobs: Option<Jobs>,
    origin: String,
    cache: String,
    /// Requests under way, or none if they come by their times.
    depth: Option<u32>,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Jobs {
    jobs: usize,
    /// The size of their files together.
    files_bytes: u64,
    /// How many requests they may come to, if that is known.
    requests_max: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Surveyed {
    requests: u64,
    reads: u64,
    writes: u64,
    discards: u64,
    read_bytes: u64,
    written_bytes: u64,
    footprint_bytes: u64,
    volumes: usize,
    seconds: Option<f64>,
    /// Requests that came earlier than one before them.
    late_requests: u64,
}

#[derive(Serialize)]
pub(super) struct Run {
    profile: String,
    mode: &'static str,
    cache_bytes: u64,
    origin_bytes: u64,
    virtual_seconds: f64,
    requests: u64,
    errors: u64,
    /// The share of the blocks read that the cache had.
    hit_ratio: Option<f64>,
    hits: u64,
    misses: u64,
    read_latency: Option<Latencies>,
    write_latency: Option<Latencies>,
    flush_latency: Option<Latencies>,
    cache_read_bytes: u64,
    cache_written_bytes: u64,
    origin_read_bytes: u64,
    origin_written_bytes: u64,
    /// Bytes that the cache device wrote for each byte that entered the cache.
    write_amplification: Option<f64>,
    /// Bytes that went home for each byte that clients wrote.
    homecoming_ratio: Option<f64>,
    /// Bytes of the origin that the cache held at the end.
    cached_end_bytes: u64,
    dirty_mean_bytes: u64,
    dirty_max_bytes: u64,
    dirty_end_bytes: u64,
    drain_seconds: Option<f64>,
    /// Blocks that bypassed the cache, by reason.
    bypasses: BypassStats,
}

#[derive(Serialize)]
struct Latencies {
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

impl Surveyed {
    pub(super) fn of(survey: &Survey) -> Surveyed {
        Surveyed {
            requests: survey.requests(),
            reads: survey.reads,
            writes: survey.writes,
            discards: survey.discards,
            read_bytes: survey.read_bytes,
            written_bytes: survey.written_bytes,
            footprint_bytes: survey.footprint_blocks * engine::units::BLOCK_BYTES,
            volumes: survey.volume_sectors.len(),
            seconds: survey.span_ns.map(|ns| ns as f64 / 1e9),
            late_requests: survey.late,
        }
    }

    /// Whether the trace has times that say how long it took.
    pub(super) fn is_timed(&self) -> bool {
        self.seconds.is_some_and(|seconds| seconds > 0.0)
    }

    /// Prints the survey in one line.
    pub(super) fn print(&self, output: &mut Output, file: &str) -> Result<()> {
        let Surveyed { requests, reads, writes, discards, volumes, .. } = self;
        write!(output, "{file}: {requests} requests ({reads} reads, {writes} writes, {discards} discards)")?;
        write!(output, " of {} on {volumes} volume(s)", Size(self.footprint_bytes))?;
        match self.seconds {
            Some(seconds) => writeln!(output, " in {seconds:.1} s")?,
            None => writeln!(output, ", without times")?,
        }
        // A recorder of several threads swaps a few.
        if self.late_requests * 100 > self.requests {
            let late = self.late_requests;
            writeln!(
                output,
                "{late} requests are of an earlier time than one in front of them: by their times they would be sent at \
                 once; sort the trace"
            )?;
        }
        Ok(())
    }
}

/// Requests to be replayed: a trace, or a job file.
enum Load {
    Trace { survey: Survey, pace: Pace },
    Jobs(Vec<Job>),
}

impl Load {
    fn read(arguments: &LabTrace, file: &str, bar: &mut Bar) -> Result<Load> {
        let path = &arguments.trace.file;
        if path.extension().is_some_and(|extension| extension == JOBS_EXTENSION) {
            if arguments.depth.is_some() || arguments.timed {
                bail!(
                    "{file} is a job file, which says itself when requests come; leave --depth and --timed out"
                );
            }
            let text =
                std::fs::read_to_string(path).map_err(|error| anyhow!("{file}: cannot be read: {error}"))?;
            let jobs = fio::parse(&text).map_err(|error| anyhow!("{file}, {error}"))?;
            if jobs.is_empty() {
                bail!("{file} has no job");
            }
            return Ok(Load::Jobs(jobs));
        }
        let mut source = trace::open(path, arguments.trace.reading())?;
        let survey = Survey::of(source.as_mut(), &mut |done| bar.show("reading requests", done, None))?;
        let pace = match arguments.depth {
            Some(depth) => Pace::Depth(depth.get()),
            None if arguments.timed && survey.span_ns.is_none() => {
                bail!("{file} has no times; leave --timed out, or give --depth")
            }
            None if survey.span_ns.is_some() => Pace::Timed,
            None => Pace::Depth(DEPTH_DEFAULT),
        };
        Ok(Load::Trace { survey, pace })
    }

    /// Bytes that the load touches.
    fn footprint_bytes(&self) -> Result<u64> {
        Ok(match self {
            Load::Trace { survey, .. } => survey.footprint_blocks * engine::units::BLOCK_BYTES,
            Load::Jobs(jobs) => FioLoad::new(jobs, VolumeIndex(0))?.volume_bytes(),
        })
    }

    /// How many requests it has, if that is known.
    fn requests(&self) -> Option<u64> {
        match self {
            Load::Trace { survey, .. } => Some(survey.requests()),
            Load::Jobs(jobs) => {
                jobs.iter().try_fold(0, |sum: u64, job| Some(sum.saturating_add(job.requests_max()?)))
            }
        }
    }

    fn run_one(
        &self,
        (profile, cache_bytes): Task<'_>,
        arguments: &LabTrace,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Run> {
        let name = &profile.name;
        let plan = Plan {
            composition: &profile.composition,
            cache: &arguments.disks.cache,
            cache_bytes,
            origin: &arguments.disks.origin,
            mode: arguments.mode.unwrap_or(profile.composition.write_mode),
        };
        let outcome = self.run(&plan, arguments, on_progress);
        let outcome = outcome.with_context(|| format!("with {name} on a cache of {}", Size(cache_bytes)))?;
        Ok(Run::new(name, plan.mode.name(), &outcome))
    }

    fn run(
        &self,
        plan: &Plan<'_>,
        arguments: &LabTrace,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Outcome> {
        Ok(match self {
            Load::Trace { survey, pace } => {
                let mut source = trace::open(&arguments.trace.file, arguments.trace.reading())?;
                replay::replay(plan, *pace, survey, source.as_mut(), |_| (), on_progress)?
            }
            Load::Jobs(jobs) => replay::carry_out(plan, jobs, |_| (), on_progress)?,
        })
    }
}

pub(super) fn run(arguments: &LabTrace) -> Result<()> {
    let file = arguments.trace.file.display().to_string();
    let profiles = arguments.profile.iter().map(profile::load).collect::<Result<Vec<Profile>, _>>()?;
    profiles.iter().try_for_each(Profile::runnable)?;
    let mut bar = Bar::new(arguments.progress);
    let load = Load::read(arguments, &file, &mut bar)?;
    let footprint_bytes = load.footprint_bytes().map_err(|error| anyhow!("{file}: {error}"))?;
    let sizes = cache_sizes(arguments, footprint_bytes);
    let tasks = profiles.iter().flat_map(|profile| sizes.iter().map(move |&size| (profile, size)));
    let tasks: Vec<Task<'_>> = tasks.collect();
    let runs =
        replays(&load, arguments, &tasks, &mut bar).with_context(|| format!("{file} cannot be replayed"))?;
    drop(bar);
    let (trace, jobs, depth) = match &load {
        Load::Trace { survey, pace: Pace::Depth(depth) } => (Some(Surveyed::of(survey)), None, Some(*depth)),
        Load::Trace { survey, pace: Pace::Timed } => (Some(Surveyed::of(survey)), None, None),
        Load::Jobs(jobs) => {
            let jobs = Jobs { jobs: jobs.len(), files_bytes: footprint_bytes, requests_max: load.requests() };
            (None, Some(jobs), None)
        }
    };
    let report = Report {
        file,
        trace,
        jobs,
        origin: arguments.disks.origin.name.clone(),
        cache: arguments.disks.cache.name.clone(),
        depth,
        runs,
    };
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&report)?;
    } else {
        report.print(&mut output)?;
    }
    Ok(output.finish()?)
}

/// A replay: its profile, and the size of its cache.
type Task<'t> = (&'t Profile, u64);

/// Carries out all replays, several at a time, in their order.
fn replays(load: &Load, arguments: &LabTrace, tasks: &[Task<'_>], bar: &mut Bar) -> Result<Vec<Run>> {
    let threads = parallel::threads(arguments.threads);
    let all = load.requests().map(|requests| requests.saturating_mul(tasks.len() as u64));
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let mut runs: Vec<Option<Run>> = tasks.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.min(tasks.len()) {
            let (sender, next, done) = (sender.clone(), &next, &done);
            scope.spawn(move || {
                while let Some((at, &task)) = take(next, tasks) {
                    let mut told = 0;
                    let mut tell = |count: u64| {
                        done.fetch_add(count.saturating_sub(told), Ordering::Relaxed);
                        told = count;
                    };
                    let run = load.run_one(task, arguments, &mut tell);
                    if run.is_err() {
                        // The remaining replays are not needed.
                        next.store(tasks.len(), Ordering::Relaxed);
                    }
                    // The receiver is gone only if the program is about to end.
                    drop(sender.send((at, run)));
                }
            });
        }
        drop(sender);
        loop {
            bar.show("replaying", done.load(Ordering::Relaxed), all);
            match receiver.recv_timeout(REFRESH) {
                Ok((at, run)) => runs[at] = Some(run?),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    })
    .map(|()| runs.into_iter().flatten().collect())
}

/// The next replay that no thread has taken, and its number.
fn take<'a, 't>(next: &AtomicUsize, tasks: &'a [Task<'t>]) -> Option<(usize, &'a Task<'t>)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    tasks.get(at).map(|task| (at, task))
}

fn cache_sizes(arguments: &LabTrace, footprint_bytes: u64) -> Vec<u64> {
    if !arguments.cache_size.is_empty() {
        return arguments.cache_size.clone();
    }
    let mut sizes =
        SIZES_PERCENT.map(|percent| replay::share_of_footprint(footprint_bytes, percent)).to_vec();
    sizes.dedup();
    sizes
}

impl Latencies {
    fn of(latency: &Latency) -> Latencies {
        let Latency { mean_ns, p50_ns, p99_ns, p999_ns, max_ns, .. } = *latency;
        Latencies { mean_ns, p50_ns, p99_ns, p999_ns, max_ns }
    }
}

impl Run {
    pub(super) fn new(profile: &str, mode: &'static str, outcome: &Outcome) -> Run {
        Run {
            profile: profile.to_owned(),
            mode,
            cache_bytes: outcome.cache_bytes,
            origin_bytes: outcome.origin_bytes,
            virtual_seconds: outcome.elapsed_ns as f64 / 1e9,
            requests: outcome.requests,
            errors: outcome.errors,
            hit_ratio: outcome.hit_ratio(),
            hits: outcome.hits,
            misses: outcome.misses,
            read_latency: outcome.reads.as_ref().map(Latencies::of),
            write_latency: outcome.writes.as_ref().map(Latencies::of),
            flush_latency: outcome.flushes.as_ref().map(Latencies::of),
            cache_read_bytes: outcome.cache.read_bytes,
            cache_written_bytes: outcome.cache.written_bytes,
            origin_read_bytes: outcome.origin.read_bytes,
            origin_written_bytes: outcome.origin.written_bytes,
            write_amplification: outcome.write_amplification(),
            homecoming_ratio: outcome.homecoming_ratio(),
            cached_end_bytes: outcome.cached_end_bytes,
            dirty_mean_bytes: outcome.backlog.mean_bytes,
            dirty_max_bytes: outcome.backlog.max_bytes,
            dirty_end_bytes: outcome.backlog.at_end_bytes,
            drain_seconds: outcome.backlog.drain_ns.map(|ns| ns as f64 / 1e9),
            bypasses: BypassStats { reads: outcome.read_bypasses, writes: outcome.write_bypasses },
        }
    }
}

impl Report {
    fn print(&self, output: &mut Output) -> Result<()> {
        if let Some(trace) = &self.trace {
            trace.print(output, &self.file)?;
        }
        if let Some(Jobs { jobs, files_bytes, .. }) = &self.jobs {
            writeln!(output, "{}: {jobs} job(s) on files of {}", self.file, Size(*files_bytes))?;
        }
        let pace = match self.depth {
            Some(depth) => format!("{depth} requests under way"),
            None if self.jobs.is_some() => "requests as the jobs say".to_owned(),
            None => "requests by their times".to_owned(),
        };
        writeln!(output, "origin {}, cache {}, both modelled; {pace}", self.origin, self.cache)?;
        for run in &self.runs {
            writeln!(output)?;
            run.print(output)?;
        }
        Ok(())
    }
}

impl Run {
    fn print(&self, output: &mut Output) -> Result<()> {
        let Run { profile, mode, cache_bytes, .. } = self;
        writeln!(output, "{profile} ({mode}), cache of {}", Size(*cache_bytes))?;
        writeln!(output, "  took         {:.1} s of virtual time", self.virtual_seconds)?;
        if self.errors > 0 {
            writeln!(output, "  errors       {} of {} requests", self.errors, self.requests)?;
        }
        if let Some(ratio) = self.hit_ratio {
            let Run { hits, misses, .. } = self;
            writeln!(
                output,
                "  hits         {:.1} % of the blocks read; {hits} reads hit, {misses} missed",
                ratio * 100.0
            )?;
        }
        for (kind, latency) in
            [("reads", &self.read_latency), ("writes", &self.write_latency), ("flushes", &self.flush_latency)]
        {
            if let Some(Latencies { mean_ns, p50_ns, p99_ns, p999_ns, max_ns }) = latency {
                let [mean, p50, p99, p999, max] =
                    [mean_ns, p50_ns, p99_ns, p999_ns, max_ns].map(|ns| Time(*ns));
                writeln!(
                    output,
                    "  {kind:<12} mean {mean}, p50 {p50}, p99 {p99}, p99.9 {p999}, longest {max}"
                )?;
            }
        }
        for (kind, bypasses) in [("read", &self.bypasses.reads), ("written", &self.bypasses.writes)] {
            if bypasses.blocks() > 0 {
                writeln!(output, "  bypassed     blocks {kind}: {}", Reasons(bypasses))?;
            }
        }
        for (device, read, written) in [
            ("cache", self.cache_read_bytes, self.cache_written_bytes),
            ("origin", self.origin_read_bytes, self.origin_written_bytes),
        ] {
            writeln!(output, "  {device:<12} {} read, {} written", Size(read), Size(written))?;
        }
        if let Some(factor) = self.write_amplification {
            writeln!(
                output,
                "  wear         {factor:.2} bytes written to the cache for each that entered it"
            )?;
        }
        if let Some(ratio) = self.homecoming_ratio {
            writeln!(
                output,
                "  home         {ratio:.2} bytes written to the origin for each that clients wrote"
            )?;
        }
        let share = self.cached_end_bytes as f64 / self.cache_bytes as f64;
        writeln!(
            output,
            "  held         {} at the end, {:.1} % of the cache",
            Size(self.cached_end_bytes),
            share * 100.0
        )?;
        let [mean, max, end] = [self.dirty_mean_bytes, self.dirty_max_bytes, self.dirty_end_bytes].map(Size);
        write!(output, "  backlog      mean {mean}, most {max}, at the end {end}")?;
        match self.drain_seconds {
            Some(seconds) => writeln!(output, ", home {seconds:.1} s later")?,
            None => writeln!(output, ", not home an hour later")?,
        }
        Ok(())
    }
}

/// A span of virtual time for people.
pub(super) struct Time(pub u64);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ns @ 0..10_000_000 => write!(f, "{} us", ns / 1000),
            ns @ 10_000_000..10_000_000_000 => write!(f, "{} ms", ns / 1_000_000),
            ns => write!(f, "{:.1} s", ns as f64 / 1e9),
        }
    }
}
