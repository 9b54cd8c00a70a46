//! `forebay models`: the modelled disks that are built in.

use crate::arguments::Report;
use crate::output::{Output, Size};
use anyhow::Result;
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
        }
    }
}

pub(super) fn run(report: &Report) -> Result<()> {
    let listing = Listing { models: ::models::catalogue().into_iter().map(Model::from).collect() };
    let mut output = Output::stdout();
    if report.json {
        output.json(&listing)?;
    } else {
        for model in &listing.models {
            let source = if model.calibrated { "calibrated" } else { "from data sheets" };
            writeln!(
                output,
                "{:16} {} {:9} {} ({source})",
                model.name,
                model.kind,
                Size(model.size_bytes),
                model.description
            )?;
        }
        writeln!(output, "use one as model:NAME?store=PATH&size=SIZE; --json lists the parameters")?;
    }
    Ok(output.finish()?)
}
