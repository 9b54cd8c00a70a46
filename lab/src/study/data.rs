//! The form of `study.toml`, and what is wrong with one.

use super::figures::{self, Figure};
use super::overhead::{Fitted, Overheads};
use super::procedure::{Procedure, ProcedureForm, Step};
use engine::composition::{Composition, SetError};
use engine::effect::WriteMode;
use models::Parameters;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use toml::Spanned;

/// A published measurement.
#[derive(Clone, Debug)]
pub struct Study {
    /// Its name.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// When it was published.
    pub year: u32,
    /// Where.
    pub source: String,
    /// What it found, in our words.
    pub summary: String,
    /// What the source leaves open, and how it is run here.
    pub assumptions: Vec<String>,
    /// The metrics that are compared with what is simulated. What is printed twice in other units stands here once.
    pub fidelity: Vec<String>,
    /// The metrics by which systems are ranked.
    pub ranking: Vec<String>,
    /// The devices.
    pub devices: Vec<Device>,
    /// What is run, in the order of reports.
    pub runs: Vec<Run>,
    /// Against which native figures a test's are held.
    pub bases: Vec<Base>,
    /// The rows of the league.
    pub league: Vec<LeagueRow>,
    /// What the report draws.
    pub plots: Vec<Plot>,
    /// Why figures are far off.
    pub deviations: Vec<Deviation>,
    /// What was published.
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
    /// What is run.
    pub subject: Subject,
    /// Which procedure.
    pub procedure: String,
    /// The native figures that stand for its SSD.
    pub native_ssd: String,
    /// What the system itself takes for each request.
    pub overhead: Overheads,
    /// The system hands data over to the cache device without saying that somebody waits for it.
    pub cache_writes_yield: bool,
    /// The system writes to the origin directly: to a scheduler somebody waits for each write.
    pub origin_writes_are_direct: bool,
}

/// What a run is of.
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
        /// What it has otherwise than the profile.
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

    /// What the cache is made of, if it is one: the profile, which is given, changed as the study says.
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
    /// What is added to the SSD's name there.
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
    /// What of it.
    pub metric: String,
    /// The first and the last repetition; none means that there are no repetitions.
    pub iterations: Option<[u32; 2]>,
    /// With how many jobs.
    #[serde(default)]
    pub numjobs: String,
    /// A system that is left out.
    pub without: Option<String>,
    /// What no cache can exceed: `ssd`, `hdd` (the row's bases), a native system, the sum of several;
    /// or `replay`: at disk speed what is new, at SSD speed what a repetition asked for before.
    pub limit: Vec<String>,
    /// Somebody won it by acknowledging before the data are safe.
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
    /// What it shows.
    pub title: String,
    /// How it is drawn.
    pub kind: PlotKind,
    /// Of which tests.
    pub tests: Vec<String>,
    /// Of which metric; of percentiles, how the metrics begin.
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

/// What is wrong with a study's files.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// A line of it is wrong.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

/// `study.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    id: String,
    title: String,
    year: u32,
    source: String,
    summary: String,
    assumptions: Vec<String>,
    fidelity: Vec<String>,
    ranking: Vec<String>,
    #[serde(default)]
    device: Vec<DeviceForm>,
    #[serde(default)]
    run: Vec<Spanned<RunForm>>,
    #[serde(default)]
    base: Vec<Base>,
    #[serde(default)]
    procedure: Vec<ProcedureForm>,
    #[serde(default)]
    league: Vec<LeagueRow>,
    #[serde(default)]
    plot: Vec<Plot>,
    #[serde(default)]
    deviation: Vec<Deviation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceForm {
    name: String,
    model: Spanned<String>,
    size_bytes: Option<Spanned<u64>>,
    #[serde(default)]
    is_cfq: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunForm {
    system: String,
    procedure: Spanned<String>,
    native: Option<Spanned<String>>,
    profile: Option<String>,
    #[serde(default)]
    tunables: BTreeMap<String, toml::Value>,
    #[serde(default)]
    is_safe: bool,
    mode: Option<Spanned<String>>,
    cache: Option<Spanned<String>>,
    origin: Option<Spanned<String>>,
    native_ssd: Option<String>,
    overhead: Option<Spanned<Overheads>>,
    #[serde(default)]
    cache_writes_yield: bool,
    #[serde(default)]
    origin_writes_are_direct: bool,
}

/// Where in a file something is.
pub(super) struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    /// The line at a place, counted from 1.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        let start = span.start.min(self.text.len());
        1 + self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count()
    }

    /// An error at a place.
    pub(super) fn wrong(&self, span: &Range<usize>, reason: impl ToString) -> StudyError {
        self.wrong_line(self.line(span), reason)
    }

    /// An error in a line.
    pub(super) fn wrong_line(&self, line: usize, reason: impl ToString) -> StudyError {
        StudyError::Line { file: self.file.to_owned(), line, reason: reason.to_string() }
    }

    /// Whether a string begins behind a line break that is not part of it.
    pub(super) fn begins_on_next_line(&self, span: &Range<usize>) -> bool {
        self.text.get(span.clone()).is_some_and(|text| text.starts_with("\"\"\"\n"))
    }
}

impl Study {
    /// Reads a study.
    ///
    /// # Errors
    /// [`StudyError`] with file, line and reason.
    pub fn read(file: &str, text: &str, figures_file: &str, figures_text: &str) -> Result<Study, StudyError> {
        let place = Place { file, text };
        let form: Form = toml::from_str(text).map_err(|error| {
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            place.wrong(&error.span().unwrap_or(0..0), message)
        })?;
        let devices = form
            .device
            .into_iter()
            .map(|device| read_device(&place, device))
            .collect::<Result<Vec<_>, _>>()?;
        let procedures = form
            .procedure
            .into_iter()
            .map(|procedure| Procedure::read(&place, procedure))
            .collect::<Result<Vec<_>, _>>()?;
        let runs = form
            .run
            .iter()
            .map(|run| read_run(&place, &run.span(), run.get_ref(), &devices, &procedures))
            .collect::<Result<Vec<_>, _>>()?;
        let figures = figures::read(&form.id, figures_file, figures_text)?;
        for run in form.run.iter().map(Spanned::get_ref) {
            if let Some(overhead) = &run.overhead {
                let check = overhead.get_ref().check(&run.system, &figures);
                check.map_err(|reason| place.wrong(&overhead.span(), reason))?;
            }
        }
        Ok(Study {
            figures,
            id: form.id,
            title: form.title,
            year: form.year,
            source: form.source,
            summary: form.summary.trim().to_owned(),
            assumptions: form.assumptions,
            fidelity: form.fidelity,
            ranking: form.ranking,
            devices,
            runs,
            bases: form.base,
            league: form.league,
            plots: form.plot,
            deviations: form.deviation,
            procedures,
        })
    }

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

    /// What was fitted: to whom, for each request of which kind.
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

fn read_device(place: &Place<'_>, form: DeviceForm) -> Result<Device, StudyError> {
    let model = models::find(form.model.as_ref());
    let model = model.ok_or_else(|| {
        place.wrong(&form.model.span(), format!("there is no modelled disk {}", form.model.as_ref()))
    })?;
    let size_bytes = match form.size_bytes {
        None => model.size_bytes,
        Some(bytes) if (1 << 20..=model.size_bytes).contains(bytes.as_ref()) => bytes.into_inner(),
        Some(bytes) => {
            return Err(
                place.wrong(&bytes.span(), "a device has at least 1 MiB, and at most what its model has")
            );
        }
    };
    Ok(Device { name: form.name, model, size_bytes, is_cfq: form.is_cfq })
}

fn read_run(
    place: &Place<'_>,
    span: &Range<usize>,
    form: &RunForm,
    devices: &[Device],
    procedures: &[Procedure],
) -> Result<Run, StudyError> {
    let device = |name: &Option<Spanned<String>>, what: &str| {
        let name = name.as_ref().ok_or_else(|| place.wrong(span, format!("the run has no {what}")))?;
        if devices.iter().any(|device| device.name == *name.as_ref()) {
            return Ok(name.as_ref().clone());
        }
        Err(place.wrong(&name.span(), format!("there is no device {}", name.as_ref())))
    };
    let Some(procedure) = procedures.iter().find(|known| known.name == *form.procedure.as_ref()) else {
        let reason = format!("there is no procedure {}", form.procedure.as_ref());
        return Err(place.wrong(&form.procedure.span(), reason));
    };
    let subject = match &form.profile {
        None => Subject::Native { device: device(&form.native, "profile and no native device")? },
        Some(_) if form.native.is_some() => {
            return Err(place.wrong(span, "the run has a profile and is native"));
        }
        Some(profile) => {
            let mode = form.mode.as_ref().ok_or_else(|| place.wrong(span, "the run has no mode"))?;
            let reason = || place.wrong(&mode.span(), format!("there is no mode {}", mode.as_ref()));
            Subject::Cache {
                profile: profile.clone(),
                tunables: form.tunables.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
                is_safe: form.is_safe,
                mode: WriteMode::parse(mode.as_ref()).ok_or_else(reason)?,
                cache: device(&form.cache, "cache")?,
                origin: device(&form.origin, "origin")?,
            }
        }
    };
    let volume = match &subject {
        Subject::Native { device } => device,
        Subject::Cache { origin, .. } => origin,
    };
    let volume_bytes = devices.iter().find(|device| device.name == *volume).map_or(0, |one| one.size_bytes);
    procedure
        .check(volume_bytes)
        .map_err(|reason| place.wrong(span, format!("procedure {}: {reason}", procedure.name)))?;
    Ok(Run {
        system: form.system.clone(),
        subject,
        procedure: form.procedure.as_ref().clone(),
        native_ssd: form.native_ssd.clone().unwrap_or_else(|| "ssd".to_owned()),
        overhead: form.overhead.as_ref().map(|overhead| overhead.get_ref().clone()).unwrap_or_default(),
        cache_writes_yield: form.cache_writes_yield,
        origin_writes_are_direct: form.origin_writes_are_direct,
    })
}

/// A value as the table of tunables takes it.
fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
