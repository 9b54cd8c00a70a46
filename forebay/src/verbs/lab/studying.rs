//! Carrying out the runs of studies, several at a time.

use super::parallel;
use crate::arguments::studies::Carrying;
use crate::profile;
use crate::progress::Bar;
use anyhow::Result;
use engine::composition::Composition;
use lab::report::Chapter;
use lab::study::{self, Measured, Outcome, Run, Runner, Study, Subject};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Selection of studies; all, if nothing is named.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    pub systems: Vec<String>,
    pub tests: Vec<String>,
}

impl Wanted {
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

/// One run.
#[derive(Clone, Copy)]
struct Task {
    /// The study.
    study: usize,
    /// Its number there.
    run: usize,
    /// A cache that costs nothing takes the place of its own.
    is_ideal: bool,
}

/// State that all runs share.
struct Shared {
    studies: Vec<Study>,
    tests: Wanted,
    /// Steps that are done, of all runs together.
    done: AtomicU64,
}

/// Carries out the requested part of the studies.
pub(super) fn chapters(studies: Vec<Study>, wanted: &Wanted, carrying: &Carrying) -> Result<Vec<Chapter>> {
    let mut tasks: Vec<Task> = Vec::new();
    for (at, study) in studies.iter().enumerate() {
        for (number, run) in study.runs.iter().enumerate().filter(|(_, run)| wanted.has_system(&run.system)) {
            tasks.push(Task { study: at, run: number, is_ideal: false });
            if study::is_ours(&run.system) {
                tasks.push(Task { study: at, run: number, is_ideal: true });
            }
        }
    }
    let steps = |task: &Task| studies[task.study].steps(&studies[task.study].runs[task.run]);
    // The long ones first, so that none is left alone at the end.
    tasks.sort_by_key(|task| std::cmp::Reverse(steps(task)));
    let all = tasks.iter().map(steps).sum();
    let none: Vec<Vec<Outcome>> =
        studies.iter().map(|study| study.runs.iter().map(|_| None).collect()).collect();
    let (mut outcomes, mut ideals) = (none.clone(), none);
    let shared = Arc::new(Shared { studies, tests: wanted.clone(), done: AtomicU64::new(0) });
    let mut bar = Bar::new(carrying.progress);
    let mut show = || bar.show("running studies", shared.done.load(Ordering::Relaxed), Some(all));
    let work = {
        let shared = Arc::clone(&shared);
        move |task| carry_out(&shared, task)
    };
    let results = parallel::carry_out(tasks.clone(), parallel::threads(carrying.threads), work, &mut show);
    for (task, outcome) in tasks.into_iter().zip(results) {
        let outcomes = if task.is_ideal { &mut ideals } else { &mut outcomes };
        outcomes[task.study][task.run] = Some(outcome);
    }
    let is_wanted = |system: &str, test: &str| wanted.has_system(system) && wanted.has_test(test);
    let chapters =
        shared.studies.iter().zip(outcomes.iter().zip(&ideals)).map(|(study, (outcomes, ideals))| {
            let mut rows = study::rows(study, outcomes, &is_wanted);
            study::note_ideals(study, ideals, &mut rows);
            Chapter::new(study.clone(), rows)
        });
    Ok(chapters.collect())
}

/// One run, or in one line why it has no result.
fn carry_out(shared: &Shared, task: Task) -> Result<Vec<Measured>, String> {
    let study = &shared.studies[task.study];
    let run = &study.runs[task.run];
    let mut told = 0;
    let runner = match task.is_ideal {
        true => Ok(Runner::ideal(study, run).expect("it has a cache")),
        false => compose(run).and_then(|composition| {
            Runner::new(study, run, composition.as_ref()).map_err(|error| error.to_string())
        }),
    };
    let result = runner.and_then(|runner| {
        let is_wanted = |test: &str| shared.tests.has_test(test);
        let mut tell = |done: u64, _: u64| {
            shared.done.fetch_add(done - told, Ordering::Relaxed);
            told = done;
        };
        runner.carry_out(&is_wanted, &mut tell).map_err(|error| error.to_string())
    });
    // Steps that were not needed, or could not be run, count as done, too.
    shared.done.fetch_add(study.steps(run) - told, Ordering::Relaxed);
    result
}

/// Composition of a run's cache; `None` for a bare disk.
fn compose(run: &Run) -> Result<Option<Composition>, String> {
    let Subject::Cache { profile: name, .. } = &run.subject else { return Ok(None) };
    let name = profile::parse_name(name).map_err(|error| format!("{name}: {error}"))?;
    let composition = run.compose(profile::named(name).composition).map_err(|error| error.to_string())?;
    let broken = |coupling: &engine::composition::rules::Coupling| coupling.rule.to_owned();
    composition.validate().map_err(broken)?;
    Ok(Some(composition))
}
