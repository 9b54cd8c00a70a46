//! `forebay models`: the modelled disks that are built in.

use crate::arguments::Report;
use crate::output::{Output, Size};
use anyhow::Result;
use lab::native::{Fit, published_fits};
use models::{Described, Parameters, Value};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Listing {
    models: Vec<Model>,
}

#[derive(Serialize)]
struct Model {
    name: String,
    kind: &'static str,
    description: String,
    calibrated: bool,
    size_bytes: u64,
    parameters: Vec<Parameter>,
    /// Native figures of a study, and those of the model under the study's procedure.
    fits: Vec<FitRow>,
}

/// A native figure beside the model's.
#[derive(Serialize)]
pub(super) struct FitRow {
    study: &'static str,
    test: String,
    iteration: Option<u32>,
    numjobs: u32,
    system: &'static str,
    model: &'static str,
    metric: String,
    unit: String,
    native_value: f64,
    model_value: f64,
    /// By how much of the native value the model's is above it.
    error: f64,
    /// Whether the numbers of the model were searched by this row.
    fitted: bool,
    /// Why the model does not meet the row, if it does not.
    reason: Option<&'static str>,
}

impl From<Fit> for FitRow {
    fn from(fit: Fit) -> FitRow {
        FitRow {
            study: fit.base.study,
            system: fit.base.system,
            model: fit.base.model,
            native_value: fit.figure.value,
            model_value: fit.model,
            error: fit.error(),
            fitted: fit.is_fitted(),
            reason: fit.exception().map(|exception| exception.reason),
            iteration: fit.figure.iteration.parse().ok(),
            numjobs: fit.figure.numjobs,
            test: fit.figure.test,
            metric: fit.figure.metric,
            unit: fit.figure.unit,
        }
    }
}

/// The rows as a table: test, metric, native value, model value, error.
pub(super) fn write_fits(output: &mut Output, rows: &[FitRow]) -> Result<()> {
    for row in rows {
        let test = match row.iteration {
            Some(iteration) => format!("{} {iteration}", row.test),
            None => row.test.clone(),
        };
        writeln!(
            output,
            "    {:15} {:18} {:16} {:>2} {:24} {:>10.2} {:>10.2} {:6} {:>+6.1} %{}",
            row.study,
            row.system,
            test,
            row.numjobs,
            row.metric,
            row.native_value,
            row.model_value,
            row.unit,
            row.error * 100.0,
            if row.reason.is_some() { " (known)" } else { "" }
        )?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    value: serde_json::Value,
    unit: &'static str,
    meaning: &'static str,
}

impl From<Described> for Parameter {
    fn from(described: Described) -> Parameter {
        let value = match described.value {
            Value::Number(number) => number.into(),
            Value::Flag(flag) => flag.into(),
            Value::Numbers(numbers) => numbers.into(),
        };
        Parameter { name: described.key, value, unit: described.unit, meaning: described.meaning }
    }
}

impl From<Parameters> for Model {
    fn from(parameters: Parameters) -> Model {
        Model {
            kind: parameters.kind().name(),
            parameters: parameters.describe().into_iter().map(Parameter::from).collect(),
            name: parameters.name,
            description: parameters.description,
            calibrated: parameters.calibrated,
            size_bytes: parameters.size_bytes,
            fits: Vec::new(),
        }
    }
}

pub(super) fn run(report: &Report) -> Result<()> {
    let mut listing = Listing { models: ::models::catalogue().into_iter().map(Model::from).collect() };
    for fit in published_fits() {
        if let Some(model) = listing.models.iter_mut().find(|model| model.name == fit.base.model) {
            model.fits.push(fit.into());
        }
    }
    let mut output = Output::stdout();
    if report.json {
        output.json(&listing)?;
    } else {
        for model in &listing.models {
            let source = match model.fits.len() {
                0 => "from data sheets, or assumed".to_owned(),
                rows => {
                    let mean = model.fits.iter().map(|row| row.error.abs()).sum::<f64>() / rows as f64;
                    format!("fitted to {rows} native figures, mean error {:.1} %", mean * 100.0)
                }
            };
            writeln!(
                output,
                "{:28} {} {:9} {} ({source})",
                model.name,
                model.kind,
                Size(model.size_bytes),
                model.description
            )?;
        }
        writeln!(
            output,
            "use one as model:NAME?store=PATH&size=SIZE; --json lists the parameters and the fits"
        )?;
    }
    Ok(output.finish()?)
}
