//! A study: its devices, runs, tables and pictures.

use super::figures::Figure;
use super::overhead::{Fitted, Overheads};
use super::procedure::{Procedure, Step};
use engine::composition::{Composition, SetError};
use engine::effect::WriteMode;
use models::Parameters;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A published measurement.
#[derive(Clone, Debug)]
pub struct Study {
    /// Its name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// When it was published.
    pub year: u32,
    /// Where.
    pub source: String,
    /// Its findings, in our words.
    pub summary: String,
    /// Assumptions where the source leaves something open.
    pub assumptions: Vec<String>,
    /// The metrics that are compared with what is simulated. What is printed twice in other units stands here once.
    pub fidelity: Vec<String>,
    /// The metrics by which systems are ranked.
    pub ranking: Vec<String>,
    /// The devices.
    pub devices: Vec<Device>,
    /// Its runs, in the order of reports.
    pub runs: Vec<Run>,
    /// Against which native figures a test's are held.
    pub bases: Vec<Base>,
    /// The rows of the league.
    pub league: Vec<LeagueRow>,
    /// The pictures of its report.
    pub plots: Vec<Plot>,
    /// Why figures are far off.
    pub deviations: Vec<Deviation>,
    /// The published figures.
    pub figures: Vec<Figure>,
    pub(super) procedures: Vec<Procedure>,
}

/// A device of a study.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name in the study.
    pub name: String,
    /// Its model.
    pub model: Parameters,
    /// How much of it is used.
    pub size_bytes: u64,
    /// The study's scheduler for it was CFQ.
    pub is_cfq: bool,
}

/// The life of one cache, or of a bare disk, through a procedure.
#[derive(Clone, Debug)]
pub struct Run {
    /// The system, as the figures name it.
    pub system: String,
    /// The cache or disk that is run.
    pub subject: Subject,
    /// Which procedure.
    pub procedure: String,
    /// The native figures that stand for its SSD.
    pub native_ssd: String,
    /// Time that the system itself takes for each request.
    pub overhead: Overheads,
    /// The system hands data over to the cache device as writes that are not waited for.
    pub cache_writes_yield: bool,
    /// The system writes to the origin directly: to a scheduler each write is waited for.
    pub origin_writes_are_direct: bool,
}

/// The cache or disk of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A bare disk.
    Native {
        /// Which.
        device: String,
    },
    /// A cache.
    Cache {
        /// The profile.
        profile: String,
        /// Tunables that differ from the profile's.
        tunables: BTreeMap<String, String>,
        /// Whether it promises what a disk promises; published systems are run as published.
        is_safe: bool,
        /// How it treats writes.
        mode: WriteMode,
        /// The cache device.
        cache: String,
        /// The origin.
        origin: String,
    },
}

impl Run {
    /// The profile that is run, or the bare device.
    #[must_use]
    pub fn profile(&self) -> &str {
        match &self.subject {
            Subject::Native { device } => device,
            Subject::Cache { profile, .. } => profile,
        }
    }

    /// Composition of the run's cache: that of its profile, which is given, changed as the study says.
    ///
    /// # Errors
    /// [`SetError`] if the profile does not have what the study changes.
    pub fn compose(&self, mut composition: Composition) -> Result<Composition, SetError> {
        if let Subject::Cache { tunables, is_safe, mode, .. } = &self.subject {
            for (key, value) in tunables {
                composition.set(key, value)?;
            }
            (composition.safe, composition.write_mode) = (*is_safe, *mode);
        }
        Ok(composition)
    }
}

/// Which native figures are the base of a test's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// The tests; none means all.
    #[serde(default)]
    tests: Vec<String>,
    /// The base is in the test itself.
    #[serde(default)]
    is_same_test: bool,
    /// The test in which the bare disk did the same.
    hdd: Option<String>,
    /// The test in which the bare SSD did the same.
    ssd: Option<String>,
    /// Suffix of the SSD's name there.
    #[serde(default)]
    ssd_suffix: String,
}

impl Base {
    /// Whether it holds for a test.
    pub(super) fn is_of(&self, test: &str) -> bool {
        self.tests.is_empty() || self.tests.iter().any(|known| known == test)
    }

    /// The test in which the disk did the same.
    pub(super) fn hdd_test<'a>(&'a self, test: &'a str) -> Option<&'a str> {
        if self.is_same_test { Some(test) } else { self.hdd.as_deref() }
    }

    /// The test in which the SSD did the same, and the name under which.
    pub(super) fn ssd_test<'a>(&'a self, test: &'a str, native: &str) -> Option<(&'a str, String)> {
        let test = if self.is_same_test { test } else { self.ssd.as_deref()? };
        Some((test, format!("{native}{}", self.ssd_suffix)))
    }
}

/// A row of the league: a figure of a test, the best of some repetitions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeagueRow {
    /// Its name.
    pub label: String,
    /// The test.
    pub test: String,
    /// Its metric.
    pub metric: String,
    /// The first and the last repetition; none means that there are no repetitions.
    pub iterations: Option<[u32; 2]>,
    /// With how many jobs.
    #[serde(default)]
    pub numjobs: String,
    /// A system that is left out.
    pub without: Option<String>,
    /// Limit of any cache: `ssd`, `hdd` (the row's bases), a native system, the sum of several;
    /// or `replay`: at disk speed what is new, at SSD speed what a repetition asked for before.
    pub limit: Vec<String>,
    /// A system won it by acknowledging before the data are safe.
    #[serde(default)]
    pub is_early_acknowledged: bool,
}

/// Why simulated figures of a system are far from published ones, as far as anybody can tell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// The system.
    pub system: String,
    /// Its tests; none means all.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Its metrics; none means all.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// The reason that is believed.
    pub reason: String,
}

impl Deviation {
    fn is_of(&self, test: &str, system: &str, metric: &str) -> bool {
        let has = |names: &[String], name: &str| names.is_empty() || names.iter().any(|known| known == name);
        self.system == system && has(&self.tests, test) && has(&self.metrics, metric)
    }
}

/// A picture of some figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// How it is drawn.
    pub kind: PlotKind,
    /// The tests that it shows.
    pub tests: Vec<String>,
    /// The metric that it shows; for percentiles, the beginning of the metrics' names.
    pub metric: String,
}

/// How a picture is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// A panel for each test, over its repetitions.
    Growth,
    /// Over the tests, in their order.
    Sequence,
    /// A panel for each test, over percentiles.
    Percentiles,
    /// A group of bars for each test.
    Bars,
}

impl Study {
    /// How many steps a run has, repetitions counted.
    #[must_use]
    pub fn steps(&self, run: &Run) -> u64 {
        let procedure = self.procedures.iter().find(|procedure| procedure.name == run.procedure);
        procedure.map_or(0, |procedure| procedure.steps.iter().map(Step::repetitions).sum())
    }

    /// Why a figure is far off, if that is believed to be known: the first reason that holds for it.
    #[must_use]
    pub fn deviation(&self, test: &str, system: &str, metric: &str) -> Option<&str> {
        let mut known = self.deviations.iter();
        known.find(|one| one.is_of(test, system, metric)).map(|one| &*one.reason)
    }

    /// Fitted overheads: system, kind of request, time.
    pub fn overheads(&self) -> impl Iterator<Item = (&str, &'static str, &Fitted)> {
        self.runs.iter().flat_map(|run| {
            let kinds = [("read", &run.overhead.read), ("write", &run.overhead.write)];
            kinds.into_iter().filter_map(|(kind, fitted)| Some((&*run.system, kind, fitted.as_ref()?)))
        })
    }

    /// The device of that name.
    pub(super) fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The base of a test's figures.
    pub(super) fn base(&self, test: &str) -> Option<&Base> {
        self.bases.iter().find(|base| base.is_of(test))
    }
}
