//! Carrying out the runs of studies, several at a time.

use crate::arguments::studies::Carrying;
use crate::profile;
use crate::progress::Bar;
use anyhow::Result;
use engine::composition::Composition;
use lab::long::Overhead;
use lab::report::Chapter;
use lab::study::{self, Measured, Outcome, Run, Runner, Study, Subject};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How often the bar is looked at.
const REFRESH: Duration = Duration::from_millis(200);

/// What of the studies is run; nothing named is all.
pub(super) struct Wanted<'a> {
    pub systems: &'a [String],
    pub tests: &'a [String],
}

impl Wanted<'_> {
    /// Whether a system is wanted: a name stands for all that are the same with something behind it.
    pub(super) fn has_system(&self, system: &str) -> bool {
        self.systems.is_empty()
            || self.systems.iter().any(|wanted| {
                system.strip_prefix(&**wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            })
    }

    /// Whether a test is wanted.
    pub(super) fn has_test(&self, test: &str) -> bool {
        self.tests.is_empty() || self.tests.iter().any(|wanted| wanted == test)
    }
}

/// One run: its study and its number there.
type Task = (usize, usize);

/// How far all runs together are.
struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

/// Carries out what is wanted of the studies.
pub(super) fn chapters(
    studies: Vec<Study>,
    wanted: &Wanted<'_>,
    carrying: &Carrying,
) -> Result<Vec<Chapter>> {
    let mut tasks: Vec<Task> = Vec::new();
    for (at, study) in studies.iter().enumerate() {
        let runs = study.runs.iter().enumerate();
        tasks.extend(runs.filter(|(_, run)| wanted.has_system(&run.system)).map(|(number, _)| (at, number)));
    }
    // The long ones first, so that none is left alone at the end.
    tasks.sort_by_key(|&(study, run)| {
        let study = &studies[study];
        std::cmp::Reverse(study.steps(&study.runs[run]))
    });
    let threads = carrying.threads.map_or_else(
        || thread::available_parallelism().map_or(1, usize::from),
        |threads| usize::from(threads.get()),
    );
    let (next, progress) =
        (AtomicUsize::new(0), Progress { done: AtomicU64::new(0), all: AtomicU64::new(0) });
    for &(study, run) in &tasks {
        progress.all.fetch_add(studies[study].steps(&studies[study].runs[run]), Ordering::Relaxed);
    }
    let mut outcomes: Vec<Vec<Outcome>> =
        studies.iter().map(|study| study.runs.iter().map(|_| None).collect()).collect();
    let (studies_ref, tasks, next, shared) = (&studies, &tasks, &next, &progress);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.min(tasks.len()) {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(&(study, run)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let study_of = &studies_ref[study];
                    let outcome = carry_out(study_of, &study_of.runs[run], wanted, shared);
                    // Nobody listens any more only if this is about to end.
                    let _ = sender.send((study, run, outcome));
                }
            });
        }
        drop(sender);
        let mut bar = Bar::new(carrying.progress);
        loop {
            let (done, all) = (shared.done.load(Ordering::Relaxed), shared.all.load(Ordering::Relaxed));
            bar.show("running studies", done, Some(all));
            match receiver.recv_timeout(REFRESH) {
                Ok((study, run, outcome)) => outcomes[study][run] = Some(outcome),
                Err(mpsc::RecvTimeoutError::Timeout) => (),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    let is_wanted = |system: &str, test: &str| wanted.has_system(system) && wanted.has_test(test);
    let chapters = studies.into_iter().zip(outcomes).map(|(study, outcomes)| {
        let rows = study::rows(&study, &outcomes, &is_wanted);
        Chapter::new(study, rows)
    });
    Ok(chapters.collect())
}

/// One run, or in one line why it has no result.
fn carry_out(
    study: &Study,
    run: &Run,
    wanted: &Wanted<'_>,
    progress: &Progress,
) -> Result<Vec<Measured>, String> {
    let steps = study.steps(run);
    let mut told = 0;
    let result = compose(run).and_then(|composition| {
        let runner = Runner::new(study, run, composition.as_ref(), Overhead::default());
        let runner = runner.map_err(|error| error.to_string())?;
        let is_wanted = |test: &str| wanted.has_test(test);
        let mut tell = |done: u64, _: u64| {
            progress.done.fetch_add(done - told, Ordering::Relaxed);
            told = done;
        };
        runner.carry_out(&is_wanted, &mut tell).map_err(|error| error.to_string())
    });
    // What was not needed, or could not be run, is done with, too.
    progress.done.fetch_add(steps - told, Ordering::Relaxed);
    result
}

/// What a run's cache is made of; `None` for a bare disk.
fn compose(run: &Run) -> Result<Option<Composition>, String> {
    let Subject::Cache { profile: name, .. } = &run.subject else { return Ok(None) };
    let name = profile::parse_name(name).map_err(|error| format!("{name}: {error}"))?;
    let composition = run.compose(profile::named(name).composition).map_err(|error| error.to_string())?;
    let broken = |coupling: &engine::composition::rules::Coupling| coupling.rule.to_owned();
    composition.validate().map_err(broken)?;
    Ok(Some(composition))
}
