//! The form of `study.toml`, and how it is read.

use super::data::{Base, Deviation, Device, LeagueRow, Plot, Run, Study, Subject};
use super::figures;
use super::overhead::Overheads;
use super::place::{Place, StudyError};
use super::procedure::{Procedure, ProcedureForm};
use engine::effect::WriteMode;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

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
