//! The studies that are part of the program.

use super::data::Study;
use super::place::StudyError;
use std::fs;
use std::path::Path;

macro_rules! study {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../studies/", $name, "/study.toml")),
            include_str!(concat!("../../studies/", $name, "/results.csv")),
        )
    };
}

/// Name, procedure and figures of each.
const STUDIES: [(&str, &str, &str); 5] = [
    study!("enhanceio-2013"),
    study!("iozone-2014"),
    study!("geomflash-2015"),
    study!("dm-devel-2016"),
    study!("mapperx-2021"),
];

/// The names of all studies, by year.
pub fn names() -> impl Iterator<Item = &'static str> {
    STUDIES.iter().map(|(name, _, _)| *name)
}

/// All studies, by year.
#[must_use]
pub fn all() -> Vec<Study> {
    names().filter_map(named).collect()
}

/// The study of that name.
///
/// # Panics
/// If its files are wrong; a test reads each.
#[must_use]
pub fn named(name: &str) -> Option<Study> {
    let (name, study, figures) = STUDIES.iter().find(|(known, _, _)| *known == name)?;
    match Study::read(&format!("{name}/study.toml"), study, &format!("{name}/results.csv"), figures) {
        Ok(study) => Some(study),
        Err(error) => panic!("the built-in study {error}"),
    }
}

/// The study in a directory: `study.toml` and `results.csv`.
///
/// # Errors
/// [`StudyError`] with file, line and reason.
pub fn load(directory: &Path) -> Result<Study, StudyError> {
    let read = |name| {
        let path = directory.join(name);
        let file = path.display().to_string();
        match fs::read_to_string(&path) {
            Ok(text) => Ok((file, text)),
            Err(error) => Err(StudyError::Read { file, error }),
        }
    };
    let ((file, text), (figures_file, figures)) = (read("study.toml")?, read("results.csv")?);
    Study::read(&file, &text, &figures_file, &figures)
}
