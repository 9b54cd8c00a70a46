//! Published beside simulated.

use super::data::{Run, Study, Subject};
use super::measured::Measured;
use super::metric::{no_result, value};
use super::overhead::Overheads;
use crate::long::Traffic;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Our own system, as tables name it.
pub const OUR_SYSTEM: &str = "forebay";

/// A figure, published and simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The study.
    pub study: String,
    /// The test.
    pub test: String,
    /// The repetition; empty where there is one.
    pub iteration: String,
    /// Jobs beside each other.
    pub numjobs: String,
    /// The system.
    pub system: String,
    /// Its metric.
    pub metric: String,
    /// In which unit.
    pub unit: String,
    /// The published value; none for systems that the study did not have.
    pub published: Option<f64>,
    /// The simulated value.
    pub simulated: Option<f64>,
    /// The reason for a missing result.
    pub reason: Option<String>,
    /// The published figure of the bare disk.
    pub native_hdd: Option<f64>,
    /// The published figure of the bare SSD.
    pub native_ssd: Option<f64>,
    /// The same on the modelled disk.
    pub native_hdd_simulated: Option<f64>,
    /// The same on the modelled SSD.
    pub native_ssd_simulated: Option<f64>,
    /// The row is of a bare disk.
    pub is_native: bool,
    /// The row was fitted to, and says nothing about fidelity.
    pub is_fitted: bool,
    /// The figure of a cache that costs nothing, on the same disks; for our own rows.
    pub ideal: Option<Ideal>,
    /// The system's own time for each read, in microseconds.
    pub overhead_read_us: Option<u32>,
    /// The same for each write.
    pub overhead_write_us: Option<u32>,
}

/// A figure of a cache that costs nothing, and what its disks did meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ideal {
    /// In the unit of the row.
    pub value: f64,
    /// How long it took, in virtual time.
    pub elapsed_ns: u64,
    /// To and from the cache device.
    pub cache: Traffic,
    /// To and from the origin.
    pub origin: Traffic,
}

/// Key of a figure, its unit aside.
type Key<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

impl Row {
    fn key(&self) -> Key<'_> {
        (&self.test, &self.iteration, &self.numjobs, &self.system, &self.metric)
    }

    /// Distance of the simulated value from the published one, as a share of that.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let (published, simulated) = (self.published?, self.simulated?);
        let distance = (simulated - published).abs();
        Some(if distance == 0.0 { 0.0 } else { distance / published.abs() })
    }
}

/// Whether a system of a table is ours.
#[must_use]
pub fn is_ours(system: &str) -> bool {
    system == OUR_SYSTEM || system.strip_prefix(OUR_SYSTEM).is_some_and(|rest| rest.starts_with('-'))
}

/// Outcome of a run; `None` if it was not carried out.
pub type Outcome = Option<Result<Vec<Measured>, String>>;

/// All figures of a study: every published one of the wanted systems and tests in the order of its file, then those
/// of systems that it did not have. `outcomes` belong to [`Study::runs`].
///
/// # Panics
/// If there is not an outcome for each run.
#[must_use]
pub fn rows(study: &Study, outcomes: &[Outcome], is_wanted: &dyn Fn(&str, &str) -> bool) -> Vec<Row> {
    assert_eq!(outcomes.len(), study.runs.len(), "each run has an outcome");
    let table = Table { study, outcomes };
    let mut rows: Vec<Row> = study
        .figures
        .iter()
        .map(|figure| {
            let key = (&*figure.test, &*figure.iteration, &*figure.numjobs, &*figure.system, &*figure.metric);
            table.row(key, &figure.unit, Some(figure.value))
        })
        .collect();
    for system in table.unpublished() {
        let mut seen = BTreeSet::new();
        for figure in &study.figures {
            let head = (&figure.test, &figure.iteration, &figure.numjobs, &figure.metric);
            let is_of_cache =
                !table.is_native(&figure.system) && no_result(&figure.test, &figure.metric).is_none();
            if is_of_cache && seen.insert(head) && table.has_test(system, &figure.test) {
                let key = (&*figure.test, &*figure.iteration, &*figure.numjobs, system, &*figure.metric);
                rows.push(table.row(key, &figure.unit, None));
            }
        }
    }
    let natives = natives(&rows);
    let bases: Vec<_> = rows.iter().map(|row| table.bases(row, &natives)).collect();
    for (row, [hdd, ssd]) in rows.iter_mut().zip(bases) {
        (row.native_hdd, row.native_hdd_simulated) = hdd;
        (row.native_ssd, row.native_ssd_simulated) = ssd;
    }
    rows.retain(|row| is_wanted(&row.system, &row.test));
    rows
}

/// Notes beside our own figures what caches that cost nothing made of the same disks; `outcomes` belong to [`Study::runs`].
///
/// # Panics
/// If there is not an outcome for each run.
pub fn note_ideals(study: &Study, outcomes: &[Outcome], rows: &mut [Row]) {
    assert_eq!(outcomes.len(), study.runs.len(), "each run has an outcome");
    let table = Table { study, outcomes };
    for row in rows.iter_mut().filter(|row| is_ours(&row.system)) {
        let found = table.measured(row.key()).ok();
        row.ideal = found.and_then(|measured| {
            let value = value(&row.metric, &row.unit, measured)?;
            let Measured { elapsed_ns, cache, origin, .. } = *measured;
            Some(Ideal { value, elapsed_ns, cache, origin })
        });
    }
}

/// Figures of the bare disks, by key: published and simulated.
type Natives = BTreeMap<[String; 5], (Option<f64>, Option<f64>)>;

fn owned(key: Key<'_>) -> [String; 5] {
    [key.0, key.1, key.2, key.3, key.4].map(str::to_owned)
}

fn natives(rows: &[Row]) -> Natives {
    let natives = rows.iter().filter(|row| row.is_native);
    natives.map(|row| (owned(row.key()), (row.published, row.simulated))).collect()
}

struct Table<'a> {
    study: &'a Study,
    outcomes: &'a [Outcome],
}

impl<'a> Table<'a> {
    fn runs(&self, system: &str) -> impl Iterator<Item = (&'a Run, &'a Outcome)> {
        self.study.runs.iter().zip(self.outcomes).filter(move |(run, _)| run.system == system)
    }

    fn is_native(&self, system: &str) -> bool {
        self.runs(system).any(|(run, _)| matches!(run.subject, Subject::Native { .. }))
    }

    /// Systems that are run and of which nothing was published.
    fn unpublished(&self) -> Vec<&'a str> {
        let mut systems: Vec<&str> = Vec::new();
        for Run { system, .. } in &self.study.runs {
            let is_published = self.study.figures.iter().any(|figure| figure.system == *system);
            if !is_published && !systems.contains(&&**system) {
                systems.push(system);
            }
        }
        systems
    }

    /// Whether a system's procedures have a test.
    fn has_test(&self, system: &str, test: &str) -> bool {
        self.runs(system).any(|(run, _)| self.run_has_test(run, test))
    }

    fn run_has_test(&self, run: &Run, test: &str) -> bool {
        let procedure = self.study.procedures.iter().find(|procedure| procedure.name == run.procedure);
        procedure.is_some_and(|known| known.steps.iter().any(|step| step.test.as_deref() == Some(test)))
    }

    fn row(&self, key: Key<'_>, unit: &str, published: Option<f64>) -> Row {
        let (simulated, reason) = match self.simulated(key, unit) {
            Ok(simulated) => (Some(simulated), None),
            Err(reason) => (None, Some(reason)),
        };
        let (test, iteration, numjobs, system, metric) = key;
        let overhead = self.overhead(system, test);
        Row {
            study: self.study.id.clone(),
            test: test.to_owned(),
            iteration: iteration.to_owned(),
            numjobs: numjobs.to_owned(),
            system: system.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            published,
            simulated,
            reason,
            native_hdd: None,
            native_ssd: None,
            native_hdd_simulated: None,
            native_ssd_simulated: None,
            is_native: self.is_native(system),
            ideal: None,
            is_fitted: overhead.is_some_and(|known| known.is_fitted(test, iteration, numjobs, metric)),
            overhead_read_us: overhead.and_then(|known| Some(known.read.as_ref()?.us)),
            overhead_write_us: overhead.and_then(|known| Some(known.write.as_ref()?.us)),
        }
    }

    /// A system's own time in a test.
    fn overhead(&self, system: &str, test: &str) -> Option<&'a Overheads> {
        let mut runs = self.runs(system);
        runs.find(|(run, _)| self.run_has_test(run, test)).map(|(run, _)| &run.overhead)
    }

    /// The simulated value, or why there is none.
    fn simulated(&self, key: Key<'_>, unit: &str) -> Result<f64, String> {
        let (test, metric) = (key.0, key.4);
        if let Some(reason) = no_result(test, metric) {
            return Err(reason.to_owned());
        }
        value(metric, unit, self.measured(key)?).ok_or_else(|| format!("the test has no {metric}"))
    }

    /// The measurement behind a figure, or why there is none.
    fn measured(&self, key: Key<'_>) -> Result<&'a Measured, String> {
        let (test, iteration, numjobs, system, _) = key;
        let mut reason = format!("no procedure has the test {test} for {system}");
        for (run, outcome) in self.runs(system).filter(|(run, _)| self.run_has_test(run, test)) {
            match outcome {
                None => "it was not run".clone_into(&mut reason),
                Some(Err(error)) => reason = format!("{}: {error}", run.profile()),
                Some(Ok(measured)) => {
                    let is_it = |one: &&Measured| {
                        one.test == test && one.iteration == iteration && one.numjobs == numjobs
                    };
                    match measured.iter().find(is_it) {
                        Some(measured) => return Ok(measured),
                        None => "it was not run".clone_into(&mut reason),
                    }
                }
            }
        }
        Err(reason)
    }

    /// The native figures of the disk and of the SSD that a row is held against: published and simulated.
    fn bases(&self, row: &Row, natives: &Natives) -> [(Option<f64>, Option<f64>); 2] {
        let Some(base) = self.study.base(&row.test) else { return [(None, None); 2] };
        let find = |test: &str, system: &str| {
            let key = owned((test, &row.iteration, &row.numjobs, system, &row.metric));
            natives.get(&key).copied().unwrap_or((None, None))
        };
        let native_ssd = self.runs(&row.system).map(|(run, _)| &*run.native_ssd).next().unwrap_or("ssd");
        let hdd = base.hdd_test(&row.test).map_or((None, None), |test| find(test, "hdd"));
        let ssd =
            base.ssd_test(&row.test, native_ssd).map_or((None, None), |(test, system)| find(test, &system));
        [hdd, ssd]
    }
}
