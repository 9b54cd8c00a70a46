//! A run: one cache, one bare disk, or a cache that costs nothing, through a procedure, in virtual time.

use super::data::{Run, Study, Subject};
use super::layout::FileLoad;
use super::measured::{Latencies, Measured};
use super::procedure::{Doing, File, Iozone, Procedure, Step};
use super::watch::Watch;
use crate::long::{
    Bare, Contents, Disk, Ideal, LongRun, Setup, Statistics, Trouble, Until, VolumeSetup, Workload,
};
use crate::workload::fio::{FioLoad, JobError};
use crate::workload::iozone::{self, IozoneLoad, Test};
use engine::composition::Composition;
use engine::units::{Nanos, VolumeIndex};
use std::collections::BTreeSet;

/// A new cache gets this long to open before the first step: only after the origin's first flush is anything filled.
const OPENING_NS: u64 = Nanos::SECOND;
/// Seeds of the disks' random effects.
pub const ORIGIN_SEED: u64 = 1;
/// The cache device's.
pub const CACHE_SEED: u64 = 2;

/// The reason why a run has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The engine does not carry the profile out yet.
    #[error("this version cannot run {0} yet")]
    NotYet(String),
    /// The world cannot be made, or the engine has a defect.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// A job cannot be run.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A step asks for an unknown test.
    #[error("there is no iozone test {0}")]
    UnknownTest(String),
}

/// A run that is about to be carried out.
pub struct Runner<'a> {
    procedure: &'a Procedure,
    world: World,
    volume_bytes: u64,
    /// Files that were laid out, by where they begin.
    written: BTreeSet<u64>,
    measured: Vec<Measured>,
}

enum World {
    Cached(Box<LongRun>),
    Bare(Box<Bare>),
}

impl<'a> Runner<'a> {
    /// Makes the world of a run. A cache is made of `composition`, which is not looked at for a bare disk; the
    /// run's own tunables are part of it already.
    ///
    /// # Errors
    /// [`RunError`].
    ///
    /// # Panics
    /// If the run is none of the study's, or a cache has no composition.
    pub fn new(
        study: &'a Study,
        run: &'a Run,
        composition: Option<&Composition>,
    ) -> Result<Runner<'a>, RunError> {
        let (world, volume_bytes) = match &run.subject {
            Subject::Native { device } => {
                let disk = disk(study, device, ORIGIN_SEED);
                let size_bytes = disk.size_bytes();
                (World::Bare(Box::new(Bare::new(disk))), size_bytes)
            }
            Subject::Cache { cache, origin, mode, .. } => {
                let composition = composition.expect("a cache is made of something");
                if let Some(lack) = composition.lack() {
                    return Err(RunError::NotYet(lack.to_string()));
                }
                let [cache, origin] = disks(study, run, cache, origin);
                let size_bytes = origin.size_bytes();
                let volumes = vec![VolumeSetup { origin, mode: *mode }];
                let setup = Setup { cache, volumes, contents: Contents::Nothing };
                let mut long = LongRun::composed(setup, composition, |_| ())?;
                long.set_overhead(run.overhead.of_run());
                (World::Cached(Box::new(long)), size_bytes)
            }
        };
        Ok(Runner::through(study, run, world, volume_bytes))
    }

    /// The same procedure on the same disks, with a cache that costs nothing; `None` for a bare disk.
    ///
    /// # Panics
    /// If the run is none of the study's.
    #[must_use]
    pub fn ideal(study: &'a Study, run: &'a Run) -> Option<Runner<'a>> {
        let Subject::Cache { cache, origin, mode, .. } = &run.subject else { return None };
        let [cache, origin] = disks(study, run, cache, origin);
        let volume_bytes = origin.size_bytes();
        let bare = Bare::new(origin).behind(Ideal::new(cache, volume_bytes, *mode));
        let world = World::Bare(Box::new(bare));
        Some(Runner::through(study, run, world, volume_bytes))
    }

    fn through(study: &'a Study, run: &Run, world: World, volume_bytes: u64) -> Runner<'a> {
        let procedure = study.procedures.iter().find(|known| known.name == run.procedure);
        let procedure = procedure.expect("reading the study looked for it");
        Runner { procedure, world, volume_bytes, written: BTreeSet::new(), measured: Vec::new() }
    }

    /// Carries out all steps that the wanted tests need. `on_progress` is told of each repetition how many
    /// are done, and how many there are.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn carry_out(
        mut self,
        is_wanted: &dyn Fn(&str) -> bool,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Measured>, RunError> {
        let procedure = self.procedure;
        let steps = &procedure.steps[..procedure.end_for(is_wanted)];
        let all = steps.iter().map(Step::repetitions).sum();
        let mut done = 0;
        self.world.idle(OPENING_NS)?;
        for step in steps {
            let [first, last] = step.iterations.unwrap_or([0, 0]);
            for iteration in first..=last {
                let iteration = step.iterations.map_or(String::new(), |_| iteration.to_string());
                self.step(step, iteration)?;
                done += 1;
                on_progress(done, all);
            }
        }
        Ok(self.measured)
    }

    fn step(&mut self, step: &Step, iteration: String) -> Result<(), RunError> {
        match &step.doing {
            Doing::Fio(jobs) => {
                let procedure = self.procedure;
                let files: Vec<File> = jobs
                    .iter()
                    .map(|job| procedure.file(&job.file, self.volume_bytes).expect("it was looked for"))
                    .collect();
                if step.lays_out {
                    self.lay_out(&files)?;
                }
                let start_bytes = |file: &str| {
                    procedure.file(file, self.volume_bytes).expect("it was looked for").start_bytes
                };
                let load = FioLoad::placed(jobs, VolumeIndex(0), start_bytes)?;
                self.measure(step, iteration, load, |_| None)?;
            }
            Doing::Iozone(plan) => {
                let test = step.test.as_deref().unwrap_or_default();
                let unknown = || RunError::UnknownTest(test.to_owned());
                let test = Test::ALL.into_iter().find(|known| known.name() == test).ok_or_else(unknown)?;
                let Iozone { processes, file_bytes, record_bytes } = *plan;
                let setup = iozone::Setup { processes, file_bytes, record_bytes, volume: VolumeIndex(0) };
                self.measure(step, iteration, IozoneLoad::new(test, setup), IozoneLoad::outcome)?;
            }
            Doing::Pause { elapsed_ns } => self.world.idle(*elapsed_ns)?,
            Doing::ClearCache => {
                match &mut self.world {
                    World::Cached(long) => long.renew_cache()?,
                    World::Bare(bare) => bare.clear_cache(),
                }
                self.world.idle(OPENING_NS)?;
            }
            Doing::Write { directory } => {
                let files = self.procedure.files_of(directory);
                self.world.run(&mut FileLoad::layout(&files), Until::End)?;
            }
            Doing::Copy { from, to } => {
                let (from, to) = (self.procedure.files_of(from), self.procedure.files_of(to));
                self.world.run(&mut FileLoad::copy(&from, &to), Until::End)?;
            }
        }
        Ok(self.world.idle(self.procedure.pause_ns)?)
    }

    /// Writes the files that were not written yet.
    fn lay_out(&mut self, files: &[File]) -> Result<(), RunError> {
        let new: Vec<File> =
            files.iter().copied().filter(|file| self.written.insert(file.start_bytes)).collect();
        if !new.is_empty() {
            self.world.run(&mut FileLoad::layout(&new), Until::End)?;
            self.world.idle(self.procedure.pause_ns)?;
        }
        Ok(())
    }

    fn measure<W: Workload>(
        &mut self,
        step: &Step,
        iteration: String,
        load: W,
        of_processes: impl FnOnce(&W) -> Option<iozone::Outcome>,
    ) -> Result<(), RunError> {
        let mut watch = Watch::new(load);
        self.world.begin_measuring();
        self.world.run(&mut watch, Until::End)?;
        let Some(test) = &step.test else { return Ok(()) };
        let statistics = self.world.statistics();
        self.measured.push(Measured {
            test: test.clone(),
            iteration,
            numjobs: step.numjobs(),
            elapsed_ns: statistics.elapsed_ns(),
            reads: Latencies::of(&statistics.reads),
            writes: Latencies::of(&statistics.writes),
            cache: statistics.cache,
            origin: statistics.origins[0],
            dirty_bytes: self.world.dirty_bytes(),
            processes: of_processes(watch.workload()),
            jobs: watch.into_jobs(),
        });
        Ok(())
    }
}

fn disk(study: &Study, name: &str, seed: u64) -> Disk {
    let device = study.device(name).expect("reading the study looked for it");
    Disk::modelled(&device.model, device.model.size_bytes, seed).part(device.size_bytes)
}

/// The cache and the origin of a run, behind the schedulers of its kernel.
fn disks(study: &Study, run: &Run, cache: &str, origin: &str) -> [Disk; 2] {
    let is_cfq = study.device(origin).is_some_and(|device| device.is_cfq);
    let origin = disk(study, origin, ORIGIN_SEED);
    let is_scheduled = is_cfq && !run.origin_writes_are_direct;
    let origin = if is_scheduled { origin.scheduled() } else { origin.plugged() };
    let cache = disk(study, cache, CACHE_SEED);
    [if run.cache_writes_yield { cache.yielding() } else { cache.plugged() }, origin]
}

impl World {
    fn run<W: Workload>(&mut self, workload: &mut W, until: Until) -> Result<u64, Trouble> {
        match self {
            World::Cached(long) => long.run(workload, until),
            World::Bare(bare) => bare.run(workload, until),
        }
    }

    fn idle(&mut self, elapsed_ns: u64) -> Result<(), Trouble> {
        match self {
            World::Cached(long) => long.idle(elapsed_ns),
            World::Bare(bare) => bare.idle(elapsed_ns),
        }
    }

    fn begin_measuring(&mut self) {
        match self {
            World::Cached(long) => long.begin_measuring(),
            World::Bare(bare) => bare.begin_measuring(),
        }
    }

    fn statistics(&self) -> Statistics {
        match self {
            World::Cached(long) => long.statistics(),
            World::Bare(bare) => bare.statistics(),
        }
    }

    fn dirty_bytes(&self) -> u64 {
        match self {
            World::Cached(long) => long.status().volumes.iter().map(|volume| volume.dirty_bytes).sum(),
            World::Bare(_) => 0,
        }
    }
}
