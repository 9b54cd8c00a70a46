//! `forebay lab verify`: power cuts and faults, from seeds, against the oracle.
//!
//! Every run is a world of its own, so the threads share nothing but the number of the next run.

use crate::arguments::LabVerify;
use crate::output::Output;
use crate::profile;
use anyhow::{Result, bail};
use engine::composition::Composition;
use engine::mutation::Mutations;
use lab::swarm::{self, Failure, Options, Totals};
use lab::world::ServerCounts;
use serde::Serialize;
use std::cell::RefCell;
use std::io::Write;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Runs that shrinking a violation may take.
const SHRINK_RUNS: u32 = 400;

#[derive(Serialize)]
struct Summary {
    profile: &'static str,
    safe: bool,
    seed: u64,
    runs: u64,
    requests: u64,
    cuts: u64,
    faults: u64,
    violations: u64,
    seconds: f64,
    device_operations: u64,
    recoveries: u64,
    recoveries_with_dirty_data: u64,
    recoveries_cut: u64,
    batches_cut: u64,
    late_headers_restored: u64,
    checkpoints_loaded: u64,
    wraps: u64,
    destaged_blocks: u64,
    explained_errors: u64,
    servers: Servers,
    failed_seeds: Vec<u64>,
}

/// Counters of servers of origins.
#[derive(Serialize)]
struct Servers {
    cuts: u64,
    connections_lost: u64,
    deaths: u64,
    requests_sent_again: u64,
    late_changes: u64,
    odd_answers: u64,
    impostors_refused: u64,
    impostors_alike: u64,
    given_up: u64,
}

impl Servers {
    fn of(counts: &ServerCounts) -> Servers {
        Servers {
            cuts: counts.cuts,
            connections_lost: counts.losses,
            deaths: counts.deaths,
            requests_sent_again: counts.sent_again,
            late_changes: counts.late_changes,
            odd_answers: counts.odd_answers,
            impostors_refused: counts.refused,
            impostors_alike: counts.alike,
            given_up: counts.given_up,
        }
    }
}

thread_local! {
    /// The options under test in this thread, for the panic hook: an assertion of the engine ends the process.
    static RUNNING: RefCell<Option<Options>> = const { RefCell::new(None) };
}

/// State that the threads share.
struct Work<'a> {
    arguments: &'a LabVerify,
    /// One, or all that a seed draws from.
    profiles: Vec<(&'static str, Composition)>,
    first_seed: u64,
    next: AtomicU64,
    has_failed: AtomicBool,
    done: Mutex<(Totals, Vec<Failure>)>,
}

pub(super) fn run(arguments: &LabVerify) -> Result<()> {
    let profiles = match arguments.mixed {
        true => mixed(),
        false => {
            let profile = profile::named(arguments.profile);
            profile.runnable()?;
            vec![(arguments.profile, profile.composition_of(arguments.is_unsafe)?)]
        }
    };
    let first_seed = arguments.seed.unwrap_or_else(seed_of_the_moment);
    say_what_ran_on_panic();
    let work = Work {
        arguments,
        profiles,
        first_seed,
        next: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
        done: Mutex::default(),
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or(cores, |threads| usize::from(threads.get()));
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work.go());
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    let (totals, failures) = work.done.into_inner().expect("no thread panics: a panic ends the process");
    for failure in &failures {
        // With --json only the summary goes to standard output.
        eprintln!("{failure}");
        let simpler = swarm::shrink(failure, Mutations::NONE, SHRINK_RUNS);
        eprintln!("the same, as simple as it gets:\n{simpler}");
    }
    let counts = totals.counts;
    let summary = Summary {
        profile: if arguments.mixed { "mixed" } else { arguments.profile },
        safe: !arguments.is_unsafe,
        seed: first_seed,
        runs: totals.runs,
        requests: counts.requests,
        cuts: counts.cuts,
        faults: counts.faults,
        violations: totals.violations,
        seconds,
        device_operations: counts.operations,
        recoveries: counts.recoveries,
        recoveries_with_dirty_data: counts.dirty_recoveries,
        recoveries_cut: counts.recovery_cuts,
        batches_cut: counts.batches_cut,
        late_headers_restored: counts.headers_restored,
        checkpoints_loaded: counts.checkpoint_loads,
        wraps: counts.wraps,
        destaged_blocks: counts.destaged_blocks,
        explained_errors: counts.errors,
        servers: Servers::of(&counts.servers),
        failed_seeds: failures.iter().map(|failure| failure.options.seed).collect(),
    };
    print(&summary, arguments.report.json)?;
    if summary.violations > 0 {
        bail!("{} of {} runs found a violation; each is told above", summary.violations, summary.runs);
    }
    Ok(())
}

impl Work<'_> {
    /// The profile of a run; of several it is our own in one run of three.
    fn profile_of(&self, seed: u64) -> (&'static str, Composition) {
        let place = if seed.is_multiple_of(3) { 0 } else { (seed / 3) as usize };
        self.profiles[place % self.profiles.len()]
    }

    fn go(&self) {
        while !self.has_failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.arguments.runs {
                return;
            }
            let seed = self.first_seed.wrapping_add(number);
            let mut options = match self.profile_of(seed) {
                (profile::DEFAULT, _) => Options::draw(seed),
                (profile, composition) => Options::draw(seed).like(profile, composition),
            };
            if self.arguments.mixed {
                options = options.with_mixed_troubles();
            }
            if let Some(text) = &self.arguments.options {
                options.change(text).expect("it was parsed with the command line");
            }
            if !self.arguments.report.json {
                // A reader that went away is no reason to stop.
                let _ = writeln!(std::io::stdout(), "{options}");
            }
            RUNNING.set(Some(options.clone()));
            let outcome = swarm::run_with(&options, Mutations::NONE, self.arguments.events);
            RUNNING.set(None);
            let mut done = self.done.lock().expect("no thread panics: a panic ends the process");
            done.0.add(&outcome.counts, outcome.failure.is_some());
            if let Some(failure) = outcome.failure {
                self.has_failed.store(true, Ordering::Relaxed);
                done.1.push(failure);
            }
        }
    }
}

/// The profiles that run, each with a disk's promise; ours is the first.
fn mixed() -> Vec<(&'static str, Composition)> {
    let profiles = profile::names().map(|name| (name, profile::named(name)));
    profiles
        .filter(|(_, profile)| profile.runnable().is_ok())
        .map(|(name, profile)| (name, Composition { safe: true, ..profile.composition }))
        .collect()
}

/// A seed that was not chosen by the user.
fn seed_of_the_moment() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // In six digits or so, to be read out over the phone.
    now.as_nanos() as u64 / 1000 % 1_000_000_000_000
}

/// Reports the run before an assertion of the engine ends the process.
fn say_what_ran_on_panic() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        before(info);
        RUNNING.with_borrow(|running| {
            if let Some(options) = running {
                eprintln!("{options}\nviolation of assertion: {info}\nagain: {}", options.replay_command());
            }
        });
    }));
}

fn print(summary: &Summary, json: bool) -> Result<()> {
    let mut output = Output::stdout();
    if json {
        output.json(summary)?;
    } else {
        writeln!(
            output,
            "{} runs from seed {} in {:.1} s: {} requests, {} cuts, {} faults, {} violations",
            summary.runs,
            summary.seed,
            summary.seconds,
            summary.requests,
            summary.cuts,
            summary.faults,
            summary.violations
        )?;
        writeln!(
            output,
            "{} recoveries ({} with dirty data, {} more were cut), {} batches cut, {} late headers restored, \
             {} checkpoints loaded, \
             {} wraps, {} blocks destaged, {} errors with a reason",
            summary.recoveries,
            summary.recoveries_with_dirty_data,
            summary.recoveries_cut,
            summary.batches_cut,
            summary.late_headers_restored,
            summary.checkpoints_loaded,
            summary.wraps,
            summary.destaged_blocks,
            summary.explained_errors
        )?;
        print_servers(&summary.servers, &mut output)?;
    }
    Ok(output.finish()?)
}

fn print_servers(servers: &Servers, output: &mut Output) -> Result<()> {
    if servers.cuts == 0 {
        return Ok(());
    }
    writeln!(
        output,
        "origins behind servers: {} cuts, {} connections lost ({} servers died), {} requests sent again, {} late \
         changes, {} odd answers, {} waits given up, {} impostors refused ({} more were alike)",
        servers.cuts,
        servers.connections_lost,
        servers.deaths,
        servers.requests_sent_again,
        servers.late_changes,
        servers.odd_answers,
        servers.given_up,
        servers.impostors_refused,
        servers.impostors_alike
    )?;
    Ok(())
}
