//! `forebay config`: looks after configuration files.

use crate::arguments::{ConfigCheck, ConfigVerb};
use crate::configuration::{self, Configuration, Finding};
use crate::output::Output;
use anyhow::{Context, Result, bail};
use live::devices;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// `config check --json`.
#[derive(Debug, Serialize)]
struct CheckReport {
    /// The files that were read.
    files: Vec<String>,
    /// The findings in them.
    findings: Vec<FindingReport>,
}

#[derive(Debug, Serialize)]
struct FindingReport {
    file: String,
    line: usize,
    text: String,
    hint: bool,
}

pub(super) fn run(verb: &ConfigVerb) -> Result<()> {
    match verb {
        ConfigVerb::Check(arguments) => check(arguments),
    }
}

fn check(arguments: &ConfigCheck) -> Result<()> {
    let mut files = Vec::new();
    for path in &arguments.files {
        if path.is_dir() { files.extend(files_in(path)?) } else { files.push(path.clone()) }
    }
    if arguments.files.is_empty() {
        files = files_in(&configuration::directory())?;
    }
    let (mut read, mut findings) = (Vec::new(), Vec::new());
    for path in &files {
        let (configuration, found) = Configuration::read(path)?;
        findings.extend(found);
        read.extend(configuration);
    }
    findings.extend(collisions(&read));
    print(arguments, &files, &findings)?;
    let mut wrong: Vec<&Path> =
        findings.iter().filter(|finding| !finding.is_hint).map(|finding| finding.path.as_path()).collect();
    wrong.sort_unstable();
    wrong.dedup();
    match wrong.as_slice() {
        [] => Ok(()),
        [one] => bail!("{} has errors", one.display()),
        more => bail!("{} of {} files have errors", more.len(), files.len()),
    }
}

/// The configuration files of a directory.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}; name the files to check", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            files.push(path);
        }
    }
    files.sort_unstable();
    if files.is_empty() {
        bail!("there is no .toml file in {}; name the files to check", directory.display());
    }
    Ok(files)
}

/// Devices and addresses that only one daemon can have, and two files claim.
fn collisions(files: &[Configuration]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut claimed: BTreeMap<String, (&Path, usize)> = BTreeMap::new();
    for file in files {
        let whole = |device: &str| {
            devices::parse(device).map_or_else(|_| device.to_owned(), |spec| spec.absolute().to_string())
        };
        let devices = file.volumes.iter().filter_map(|wish| Some((wish.origin.as_ref()?, wish.line)));
        let devices = devices.map(|(origin, line)| (origin.absolute().to_string(), line));
        let claims = devices
            .chain([(whole(file.cache()), file.cache_line())])
            .chain(file.addresses().into_iter().map(|(address, line)| (address.to_owned(), line)));
        for (claim, line) in claims {
            if let Some((path, at)) = claimed.get(&claim) {
                let text = format!("{claim} stands in {}:{at}, too", path.display());
                found.push(Finding { path: file.path.clone(), line, text, is_hint: false });
            } else {
                claimed.insert(claim, (&file.path, line));
            }
        }
    }
    found
}

fn print(arguments: &ConfigCheck, files: &[PathBuf], findings: &[Finding]) -> Result<()> {
    let mut output = Output::stdout();
    if arguments.report.json {
        let report = CheckReport {
            files: files.iter().map(|path| path.display().to_string()).collect(),
            findings: findings
                .iter()
                .map(|finding| FindingReport {
                    file: finding.path.display().to_string(),
                    line: finding.line,
                    text: finding.text.clone(),
                    hint: finding.is_hint,
                })
                .collect(),
        };
        output.json(&report)?;
        return Ok(output.finish()?);
    }
    for finding in findings {
        writeln!(output, "{finding}")?;
    }
    for path in files {
        if findings.iter().all(|finding| finding.is_hint || finding.path != *path) {
            writeln!(output, "{}: right", path.display())?;
        }
    }
    Ok(output.finish()?)
}
