//! Steps: which workload follows which.

use super::place::{Place, StudyError};
use crate::workload::fio::{self, Job};
use engine::units::{Nanos, SECTOR_BYTES};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

/// The name of the file that is the whole volume.
const VOLUME: &str = "volume";
/// Files begin at multiples of this: 1 MiB.
const ALIGNMENT_BYTES: u64 = 1 << 20;
/// Heading of the section that holds for all jobs of a job file.
const GLOBAL: &str = "[global]\n";

/// A procedure: steps in their order, and the files that they use.
#[derive(Clone, Debug)]
pub(super) struct Procedure {
    pub name: String,
    /// Time without requests between two steps, and two repetitions.
    pub pause_ns: u64,
    /// Files, by name: where each begins on the volume, and its size.
    pub files: BTreeMap<String, File>,
    pub steps: Vec<Step>,
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub start_bytes: u64,
    pub size_bytes: u64,
}

/// A step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The test whose figures it gives.
    pub test: Option<String>,
    /// The first and the last number of its repetitions; none if it is done once.
    pub iterations: Option<[u32; 2]>,
    /// Writes the files of its jobs first that were not written yet.
    pub lays_out: bool,
    pub doing: Doing,
}

/// Action of a step.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// fio's jobs.
    Fio(Vec<Job>),
    /// The iozone test of the step's name.
    Iozone(Iozone),
    /// Nothing.
    Pause { elapsed_ns: u64 },
    /// The cache is empty again.
    ClearCache,
    /// Files are written, by the beginning of their names.
    Write { directory: String },
    /// Files are copied, by the beginning of their names.
    Copy { from: String, to: String },
}

/// iozone's processes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Iozone {
    pub processes: u32,
    pub file_bytes: u64,
    pub record_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcedureForm {
    name: String,
    #[serde(default)]
    pause_s: u32,
    #[serde(default)]
    files: Vec<FileForm>,
    #[serde(default)]
    common: Option<String>,
    #[serde(default)]
    step: Vec<Spanned<StepForm>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    name: String,
    size_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepForm {
    test: Option<String>,
    iterations: Option<[u32; 2]>,
    #[serde(default)]
    lays_out: bool,
    fio: Option<Spanned<String>>,
    iozone: Option<Iozone>,
    pause_s: Option<u32>,
    #[serde(default)]
    clears_cache: bool,
    writes: Option<String>,
    copy: Option<CopyForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyForm {
    from: String,
    to: String,
}

impl Procedure {
    pub(super) fn read(place: &Place<'_>, form: ProcedureForm) -> Result<Procedure, StudyError> {
        let mut files = BTreeMap::new();
        let mut start_bytes = 0u64;
        for FileForm { name, size_bytes } in form.files {
            files.insert(name, File { start_bytes, size_bytes });
            start_bytes = start_bytes.saturating_add(size_bytes).next_multiple_of(ALIGNMENT_BYTES);
        }
        let common = form.common.unwrap_or_default();
        let steps = form
            .step
            .into_iter()
            .map(|step| read_step(place, &common, &step.span(), step.into_inner()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Procedure { name: form.name, pause_ns: seconds(form.pause_s), files, steps })
    }

    /// Whether its files and jobs fit on a volume; else why not.
    pub(super) fn check(&self, volume_bytes: u64) -> Result<(), String> {
        if let Some((name, _)) =
            self.files.iter().find(|(_, file)| file.start_bytes + file.size_bytes > volume_bytes)
        {
            return Err(format!("the file {name} is behind the end of the volume"));
        }
        for step in &self.steps {
            if step.iterations.is_some_and(|[first, last]| first > last || first == 0) {
                return Err("repetitions are counted from 1 upwards".to_owned());
            }
            match &step.doing {
                Doing::Fio(jobs) => {
                    for job in jobs {
                        let file = self.file(&job.file, volume_bytes);
                        let file = file.ok_or_else(|| format!("there is no file {}", job.file))?;
                        if job.end_bytes() > file.size_bytes {
                            return Err(format!("job {} goes past the end of {}", job.name, job.file));
                        }
                    }
                }
                Doing::Iozone(iozone) => {
                    let is_whole = iozone.record_bytes > 0
                        && iozone.record_bytes.is_multiple_of(SECTOR_BYTES)
                        && iozone.file_bytes.is_multiple_of(iozone.record_bytes);
                    let bytes = iozone.file_bytes.saturating_mul(u64::from(iozone.processes));
                    if !is_whole || bytes == 0 || bytes > volume_bytes {
                        return Err("iozone's files are whole records, and fit on the volume".to_owned());
                    }
                }
                Doing::Write { directory } => {
                    if self.files_of(directory).is_empty() {
                        return Err(format!("there is no file in {directory}"));
                    }
                }
                Doing::Copy { from, to } => {
                    let (from, to) = (self.files_of(from), self.files_of(to));
                    if from.is_empty() || from.len() != to.len() {
                        return Err("there are as many copies as files".to_owned());
                    }
                    if from.iter().zip(&to).any(|(from, to)| from.size_bytes > to.size_bytes) {
                        return Err("a copy has room for its file".to_owned());
                    }
                }
                Doing::Pause { .. } | Doing::ClearCache => (),
            }
        }
        Ok(())
    }

    /// The place of a file.
    pub(super) fn file(&self, name: &str, volume_bytes: u64) -> Option<File> {
        if name == VOLUME {
            return Some(File { start_bytes: 0, size_bytes: volume_bytes });
        }
        self.files.get(name).copied()
    }

    /// The files of a directory.
    pub(super) fn files_of(&self, directory: &str) -> Vec<File> {
        let is_in = |name: &str| name.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        self.files.iter().filter(|(name, _)| is_in(name)).map(|(_, file)| *file).collect()
    }

    /// The end of the last step that a wanted test needs, counted from 0.
    pub(super) fn end_for(&self, is_wanted: &dyn Fn(&str) -> bool) -> usize {
        let last = self.steps.iter().rposition(|step| step.test.as_deref().is_some_and(is_wanted));
        last.map_or(0, |last| last + 1)
    }
}

impl Step {
    /// The number of its repetitions.
    pub(super) fn repetitions(&self) -> u64 {
        self.iterations.map_or(1, |[first, last]| u64::from(last.saturating_sub(first)) + 1)
    }

    /// The number of jobs beside each other, as tables name it.
    pub(super) fn numjobs(&self) -> String {
        match &self.doing {
            Doing::Fio(jobs) => jobs.len().to_string(),
            Doing::Iozone(iozone) => iozone.processes.to_string(),
            Doing::Pause { .. } | Doing::ClearCache | Doing::Write { .. } | Doing::Copy { .. } => {
                String::new()
            }
        }
    }
}

fn read_step(
    place: &Place<'_>,
    common: &str,
    span: &Range<usize>,
    form: StepForm,
) -> Result<Step, StudyError> {
    let StepForm { test, iterations, lays_out, fio, iozone, pause_s, clears_cache, writes, copy } = form;
    let pause = pause_s.map(|pause_s| Doing::Pause { elapsed_ns: seconds(pause_s) });
    let fio = fio.map(|text| read_jobs(place, common, &text)).transpose()?;
    let writes = writes.map(|directory| Doing::Write { directory });
    let copy = copy.map(|CopyForm { from, to }| Doing::Copy { from, to });
    let clear = clears_cache.then_some(Doing::ClearCache);
    let mut all = [fio, iozone.map(Doing::Iozone), pause, clear, writes, copy].into_iter().flatten();
    match (all.next(), all.next()) {
        (Some(doing), None) => Ok(Step { test, iterations, lays_out, doing }),
        _ => Err(place.wrong(span, "a step has one of fio, iozone, pause_s, clears_cache, writes and copy")),
    }
}

/// A step's jobs: the procedure's common options, and the step's own sections.
fn read_jobs(place: &Place<'_>, common: &str, text: &Spanned<String>) -> Result<Doing, StudyError> {
    let jobs = fio::parse(&format!("{GLOBAL}{common}{}", text.as_ref()));
    let jobs = jobs.map_err(|error| {
        let before = 1 + common.lines().count();
        let own =
            (error.line).saturating_sub(before + 1) + usize::from(place.begins_on_next_line(&text.span()));
        place.wrong_line(place.line(&text.span()) + own, error.reason)
    })?;
    if jobs.is_empty() {
        return Err(place.wrong(&text.span(), "there is no job"));
    }
    Ok(Doing::Fio(jobs))
}

fn seconds(seconds: u32) -> u64 {
    u64::from(seconds) * Nanos::SECOND
}
