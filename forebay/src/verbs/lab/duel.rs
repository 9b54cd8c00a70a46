//! `forebay lab duel`: all profiles over traces and sizes of the cache, and whether one of them is the best in each.

use super::parallel;
use super::trace::{DEPTH_DEFAULT, JOBS_EXTENSION, Run, Surveyed, Time};
use crate::arguments::duel::{LabDuel, Loops};
use crate::output::{Output, Size};
use crate::profile::{self, Profile};
use crate::progress::Bar;
use anyhow::{Context, Result, anyhow, bail};
use engine::units::BLOCK_BYTES;
use lab::duel::{self, Cell, Duel, Row, Summary};
use lab::replay::{self, Outcome, Pace, Plan};
use lab::report;
use lab::trace::{self, Head, Layout, Reading, Source, Survey};
use models::Parameters;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The profiles of a duel.
struct Field {
    profiles: Vec<Profile>,
    /// The name of the one on which the verdicts are.
    contender: String,
}

impl Field {
    fn load(arguments: &LabDuel) -> Result<Field> {
        let contender = profile::load(&arguments.contender)?;
        let mut wanted = arguments.profiles.clone();
        let mut profiles = if wanted.is_empty() { profile::newest() } else { Vec::new() };
        wanted.push(arguments.contender.clone());
        for one in wanted.iter().map(profile::load) {
            let one = one?;
            match profiles.iter().find(|known| known.name == one.name) {
                None => profiles.push(one),
                Some(known) if *known == one => (),
                Some(_) => bail!("two profiles have the name {}; give one of them another name", one.name),
            }
        }
        profiles.iter().try_for_each(Profile::runnable)?;
        Ok(Field { profiles, contender: contender.name })
    }
}

/// A trace that was surveyed.
struct Surveying {
    path: PathBuf,
    file: String,
    survey: Survey,
}

impl Surveying {
    fn of(path: &Path, arguments: &LabDuel, bar: &mut Bar) -> Result<Surveying> {
        let file = path.display().to_string();
        if path.extension().is_some_and(|extension| extension == JOBS_EXTENSION) {
            bail!("{file} is a job file, no trace; give it to lab trace");
        }
        let mut source = open(path, arguments.reading(), arguments.requests.map(u64::from))?;
        let survey = Survey::of(source.as_mut(), &mut |done| bar.show("reading requests", done, None))?;
        Layout::new(&survey).map_err(|error| anyhow!("{file}: {error}"))?;
        if arguments.loops == Loops::Open && survey.span_ns.is_none() {
            bail!("{file} has no times; leave --loop open out, or the trace");
        }
        Ok(Surveying { path: path.to_owned(), file, survey })
    }

    /// The paces at which it is replayed.
    fn paces(&self, arguments: &LabDuel) -> Vec<Pace> {
        let depth = arguments.depth.map_or(DEPTH_DEFAULT, u32::from);
        let has_times = self.survey.span_ns.is_some();
        let open = (arguments.loops != Loops::Closed && has_times).then_some(Pace::Timed);
        let closed = (arguments.loops != Loops::Open).then_some(Pace::Depth(depth));
        open.into_iter().chain(closed).collect()
    }
}

/// Opens a trace, or its first requests.
fn open(path: &Path, reading: Reading, requests: Option<u64>) -> Result<Box<dyn Source>, trace::TraceError> {
    let source = trace::open(path, reading)?;
    Ok(match requests {
        None => source,
        Some(requests) => Box::new(Head::new(source, requests)),
    })
}

/// A row before it is run: a trace, a size, a pace.
struct Contest {
    trace: usize,
    size: duel::Size,
    pace: Pace,
}

/// The contests of all traces, in the order of the output.
fn contests(traces: &[Surveying], arguments: &LabDuel) -> Vec<Contest> {
    let mut contests = Vec::new();
    for (trace, surveying) in traces.iter().enumerate() {
        let sizes = duel::sizes(&arguments.sizes, surveying.survey.footprint_blocks * BLOCK_BYTES);
        for pace in surveying.paces(arguments) {
            contests.extend(sizes.iter().map(|size| Contest { trace, size: size.clone(), pace }));
        }
    }
    contests
}

/// State that all replays share.
struct Shared {
    traces: Vec<Surveying>,
    contests: Vec<Contest>,
    profiles: Vec<Profile>,
    reading: Reading,
    requests: Option<u64>,
    mode: Option<engine::effect::WriteMode>,
    origin: Parameters,
    cache: Parameters,
    /// Requests that were answered, of all replays together.
    done: AtomicU64,
}

impl Shared {
    fn mode_of(&self, profile: &Profile) -> engine::effect::WriteMode {
        self.mode.unwrap_or(profile.composition.write_mode)
    }

    /// One replay, or in one line why it has no outcome.
    fn replay(&self, contest: usize, profile: usize) -> Result<Outcome, String> {
        let Contest { trace, size, pace } = &self.contests[contest];
        let (trace, profile) = (&self.traces[*trace], &self.profiles[profile]);
        let plan = Plan {
            composition: &profile.composition,
            cache: &self.cache,
            cache_bytes: size.bytes,
            origin: &self.origin,
            mode: self.mode_of(profile),
        };
        let mut told = 0;
        let mut tell = |count: u64| {
            self.done.fetch_add(count.saturating_sub(told), Ordering::Relaxed);
            told = count;
        };
        let mut source = open(&trace.path, self.reading, self.requests).map_err(|error| error.to_string())?;
        replay::replay(&plan, *pace, &trace.survey, source.as_mut(), |_| (), &mut tell)
            .map_err(|error| error.to_string())
    }
}

pub(super) fn run(arguments: &LabDuel) -> Result<()> {
    if arguments.loops == Loops::Open && arguments.depth.is_some() {
        bail!("--depth is for the closed loop; leave it out, or --loop open");
    }
    if let Some(path) = &arguments.html {
        // Not only after hours of replays.
        let is_writable = OpenOptions::new().create(true).append(true).open(path);
        is_writable.with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let Field { profiles, contender } = Field::load(arguments)?;
    let mut bar = Bar::new(arguments.progress);
    let mut traces: Vec<Surveying> = Vec::new();
    for path in &arguments.traces {
        if traces.iter().all(|known| known.path != *path) {
            traces.push(Surveying::of(path, arguments, &mut bar)?);
        }
    }
    let shared = Arc::new(Shared {
        contests: contests(&traces, arguments),
        traces,
        profiles,
        reading: arguments.reading(),
        requests: arguments.requests.map(u64::from),
        mode: arguments.mode,
        origin: arguments.disks.origin.clone(),
        cache: arguments.disks.cache.clone(),
        done: AtomicU64::new(0),
    });
    let rows = rows(&shared, &contender, parallel::threads(arguments.threads), &mut bar);
    drop(bar);
    let duel = Duel {
        contender,
        origin: arguments.disks.origin.name.clone(),
        cache: arguments.disks.cache.name.clone(),
        rows,
    };
    if let Some(path) = &arguments.html {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("forebay {}", command.join(" "));
        let page = report::duel_page(&duel, &command, env!("CARGO_PKG_VERSION"))?;
        fs::write(path, page).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&Printed::new(&shared, &duel))?;
    } else {
        print(&mut output, &shared, &duel)?;
        if let Some(path) = &arguments.html {
            writeln!(output, "page: {}", path.display())?;
        }
    }
    Ok(output.finish()?)
}

/// Carries out all replays, several at a time.
fn rows(shared: &Arc<Shared>, contender: &str, threads: usize, bar: &mut Bar) -> Vec<Row> {
    let profiles = shared.profiles.len();
    let requests =
        |&(contest, _): &(usize, usize)| shared.traces[shared.contests[contest].trace].survey.requests();
    let mut tasks: Vec<(usize, usize)> = (0..shared.contests.len())
        .flat_map(|contest| (0..profiles).map(move |profile| (contest, profile)))
        .collect();
    let all = tasks.iter().map(requests).sum();
    // The long ones first, so that none is left alone at the end.
    tasks.sort_by_key(|task| std::cmp::Reverse(requests(task)));
    let work = {
        let shared = Arc::clone(shared);
        move |(contest, profile)| shared.replay(contest, profile)
    };
    let mut show = || bar.show("replaying", shared.done.load(Ordering::Relaxed), Some(all));
    let results = parallel::carry_out(tasks.clone(), threads, work, &mut show);
    let mut done: Vec<((usize, usize), Result<Outcome, String>)> = tasks.into_iter().zip(results).collect();
    done.sort_by_key(|(task, _)| *task);
    let mut results = done.into_iter().map(|(_, result)| result);
    let row = |contest: &Contest| {
        let cells = shared.profiles.iter().zip(results.by_ref()).map(|(profile, result)| Cell {
            profile: profile.name.clone(),
            mode: shared.mode_of(profile),
            result,
        });
        let file = shared.traces[contest.trace].file.clone();
        Row::new(file, contest.size.clone(), contest.pace, cells.collect(), contender)
    };
    shared.contests.iter().map(row).collect()
}

#[derive(Serialize)]
struct Printed<'a> {
    origin: &'a str,
    cache: &'a str,
    contender: &'a str,
    profiles: Vec<&'a str>,
    traces: Vec<PrintedTrace<'a>>,
    rows: Vec<PrintedRow<'a>>,
    summary: Summary,
}

#[derive(Serialize)]
struct PrintedTrace<'a> {
    file: &'a str,
    #[serde(flatten)]
    trace: Surveyed,
}

#[derive(Serialize)]
struct PrintedRow<'a> {
    file: &'a str,
    cache_bytes: u64,
    /// The shares of the footprint that come to this size; none if it was given in bytes.
    footprint_percents: &'a [u64],
    #[serde(rename = "loop")]
    loop_name: &'static str,
    /// Requests under way, or none if they come by their times.
    depth: Option<u32>,
    runs: Vec<PrintedRun<'a>>,
    time: &'a duel::Time,
    wear: &'a duel::Wear,
}

#[derive(Serialize)]
struct PrintedRun<'a> {
    #[serde(flatten)]
    figures: Figures<'a>,
    /// Of reads and writes together.
    mean_latency_ns: Option<u64>,
    /// Why there are no figures.
    reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Figures<'a> {
    Known(Box<Run>),
    Missing { profile: &'a str, mode: &'static str, cache_bytes: u64 },
}

impl<'a> Printed<'a> {
    fn new(shared: &'a Shared, duel: &'a Duel) -> Printed<'a> {
        let trace =
            |trace: &'a Surveying| PrintedTrace { file: &trace.file, trace: Surveyed::of(&trace.survey) };
        Printed {
            origin: &duel.origin,
            cache: &duel.cache,
            contender: &duel.contender,
            profiles: shared.profiles.iter().map(|profile| &*profile.name).collect(),
            traces: shared.traces.iter().map(trace).collect(),
            rows: duel.rows.iter().map(PrintedRow::new).collect(),
            summary: duel::summary(&duel.rows),
        }
    }
}

impl<'a> PrintedRow<'a> {
    fn new(row: &'a Row) -> PrintedRow<'a> {
        PrintedRow {
            file: &row.file,
            cache_bytes: row.size.bytes,
            footprint_percents: &row.size.footprint_percents,
            loop_name: duel::loop_name(row.pace),
            depth: depth(row.pace),
            runs: row.cells.iter().map(|cell| PrintedRun::new(cell, row.size.bytes)).collect(),
            time: &row.time,
            wear: &row.wear,
        }
    }
}

impl<'a> PrintedRun<'a> {
    fn new(cell: &'a Cell, cache_bytes: u64) -> PrintedRun<'a> {
        let (profile, mode) = (&*cell.profile, cell.mode.name());
        match &cell.result {
            Ok(outcome) => PrintedRun {
                figures: Figures::Known(Box::new(Run::new(profile, mode, outcome))),
                mean_latency_ns: outcome.mean_latency_ns(),
                reason: None,
            },
            Err(reason) => PrintedRun {
                figures: Figures::Missing { profile, mode, cache_bytes },
                mean_latency_ns: None,
                reason: Some(reason),
            },
        }
    }
}

fn depth(pace: Pace) -> Option<u32> {
    match pace {
        Pace::Depth(depth) => Some(depth),
        Pace::Timed => None,
    }
}

fn print(output: &mut Output, shared: &Shared, duel: &Duel) -> Result<()> {
    writeln!(
        output,
        "origin {}, cache {}, both modelled; the contender is {}",
        duel.origin, duel.cache, duel.contender
    )?;
    for trace in &shared.traces {
        writeln!(output)?;
        Surveyed::of(&trace.survey).print(output, &trace.file)?;
        for row in duel.rows.iter().filter(|row| row.file == trace.file) {
            print_row(output, row)?;
        }
    }
    Ok(writeln!(output, "\n{}", duel::summary(&duel.rows))?)
}

fn print_row(output: &mut Output, row: &Row) -> Result<()> {
    write!(output, "\ncache of {}", Size(row.size.bytes))?;
    let percents: Vec<String> = row.size.footprint_percents.iter().map(u64::to_string).collect();
    if !percents.is_empty() {
        write!(output, " ({} %)", percents.join(", "))?;
    }
    match depth(row.pace) {
        Some(depth) => writeln!(output, ", closed loop, {depth} requests under way")?,
        None => writeln!(output, ", open loop, requests by their times")?,
    }
    writeln!(
        output,
        "  {:<28} {:>11} {:>10} {:>8} {:>12} {:>10}",
        "profile", "time", "mean", "hits", "SSD written", "p99 read"
    )?;
    for cell in &row.cells {
        print_cell(output, cell)?;
    }
    writeln!(output, "  {}: {}", row.time.measure, row.time)?;
    writeln!(output, "  wear: {}", row.wear)?;
    Ok(())
}

fn print_cell(output: &mut Output, cell: &Cell) -> Result<()> {
    let name = format!("{} ({})", cell.profile, cell.mode.name());
    let outcome = match &cell.result {
        Ok(outcome) => outcome,
        Err(reason) => return Ok(writeln!(output, "  {name:<28} {reason}")?),
    };
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| Time(ns).to_string());
    let hits = outcome.hit_ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
    write!(
        output,
        "  {name:<28} {:>11} {:>10} {hits:>8} {:>12} {:>10}",
        format!("{:.2} s", outcome.elapsed_ns as f64 / 1e9),
        time(outcome.mean_latency_ns()),
        Size(outcome.cache.written_bytes),
        time(outcome.reads.map(|reads| reads.p99_ns))
    )?;
    if outcome.errors > 0 {
        write!(output, "  {} errors", outcome.errors)?;
    }
    Ok(writeln!(output)?)
}
