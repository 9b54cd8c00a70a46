//! A published system's own time for each request, as far as no device explains it.
//!
//! The one number that may be fitted to a system's figures: for each kind of request from one cell, which the study
//! names. That cell, and whatever says the same of the same test, is left out of the fidelity.

use super::figures::Figure;
use crate::long::{Overhead, OwnTime};
use serde::Deserialize;

/// A system's own time for its requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    /// For each read.
    pub read: Option<Fitted>,
    /// For each write.
    pub write: Option<Fitted>,
}

/// A time, and the cell that it was fitted to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Microseconds for each request.
    pub us: u32,
    /// The time is for each 4 KiB of a request: of systems that do their work page by page.
    #[serde(default)]
    pub per_block: bool,
    /// The cell's test.
    pub test: String,
    /// Its repetition; empty where there is one.
    #[serde(default)]
    pub iteration: String,
    /// Its jobs.
    #[serde(default)]
    pub numjobs: String,
    /// Its metric, and then those that say the same in other words.
    pub metrics: Vec<String>,
}

impl Fitted {
    fn is_test(&self, test: &str, iteration: &str, numjobs: &str) -> bool {
        self.test == test && self.iteration == iteration && self.numjobs == numjobs
    }

    /// The cell, in one line.
    #[must_use]
    pub fn cell(&self) -> String {
        let named = |what: &str, name: &str| match name {
            "" => String::new(),
            name => format!(", {what} {name}"),
        };
        let metric = self.metrics.first().map_or("", String::as_str);
        let (run, jobs) = (named("run", &self.iteration), named("jobs", &self.numjobs));
        format!("{metric} of {}{run}{jobs}", self.test)
    }
}

impl Overheads {
    fn kinds(&self) -> impl Iterator<Item = &Fitted> {
        [&self.read, &self.write].into_iter().flatten()
    }

    /// The overhead as a long run takes it.
    #[must_use]
    pub fn of_run(&self) -> Overhead {
        let of = |fitted: &Option<Fitted>| {
            let fitted = fitted.as_ref();
            fitted.map_or(OwnTime::default(), |fitted| match u64::from(fitted.us) * 1000 {
                block_ns if fitted.per_block => OwnTime { request_ns: 0, block_ns },
                request_ns => OwnTime { request_ns, block_ns: 0 },
            })
        };
        Overhead { read: of(&self.read), write: of(&self.write) }
    }

    /// Whether a figure was fitted to.
    pub(super) fn is_fitted(&self, test: &str, iteration: &str, numjobs: &str, metric: &str) -> bool {
        self.kinds().any(|fitted| {
            fitted.is_test(test, iteration, numjobs) && fitted.metrics.iter().any(|known| known == metric)
        })
    }

    /// Checks that each cell is a published one of the system; else says which is not.
    pub(super) fn check(&self, system: &str, figures: &[Figure]) -> Result<(), String> {
        for fitted in self.kinds() {
            if fitted.metrics.is_empty() {
                return Err("an overhead names the metric that it was fitted to".to_owned());
            }
            for metric in &fitted.metrics {
                let is_cell = |figure: &Figure| {
                    figure.system == system
                        && figure.metric == *metric
                        && fitted.is_test(&figure.test, &figure.iteration, &figure.numjobs)
                };
                if !figures.iter().any(is_cell) {
                    return Err(format!("there is no published {metric} of {system} in {}", fitted.test));
                }
            }
        }
        Ok(())
    }
}
