//! `forebay lab study`: published studies run again.

use super::studying::{self, Wanted};
use crate::arguments::studies::LabStudy;
use crate::output::Output;
use anyhow::{Context, Result, bail};
use lab::report::{self, Chapter};
use lab::study::{self, Fidelity, Ranking, Row, Study};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Studies, as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    rows: Vec<&'a Row>,
    fidelity: Vec<&'a Fidelity>,
    rankings: Vec<&'a Ranking>,
    origin_seed: u64,
    cache_seed: u64,
}

pub(super) fn run(arguments: &LabStudy) -> Result<()> {
    let studies = match &arguments.name {
        None => study::all(),
        Some(name) => vec![find(name)?],
    };
    let wanted = Wanted { systems: arguments.system.clone(), tests: arguments.test.clone() };
    check(&studies, &wanted)?;
    let chapters = studying::chapters(studies, &wanted, &arguments.carrying)?;
    if let Some(directory) = &arguments.report {
        write_report(&chapters, directory)?;
    }
    let mut output = Output::stdout();
    if arguments.printing.json {
        output.json(&Printed {
            rows: chapters.iter().flat_map(|chapter| &chapter.rows).collect(),
            fidelity: chapters.iter().flat_map(|chapter| &chapter.fidelity).collect(),
            rankings: chapters.iter().map(|chapter| &chapter.ranking).collect(),
            origin_seed: study::ORIGIN_SEED,
            cache_seed: study::CACHE_SEED,
        })?;
    } else {
        for chapter in &chapters {
            print(&mut output, chapter)?;
        }
        if let Some(directory) = &arguments.report {
            writeln!(output, "pages: {}", directory.join("index.html").display())?;
        }
    }
    Ok(output.finish()?)
}

fn find(name: &str) -> Result<Study> {
    if let Some(study) = study::named(name) {
        return Ok(study);
    }
    let directory = Path::new(name);
    if directory.is_dir() {
        return Ok(study::load(directory)?);
    }
    let known: Vec<&str> = study::names().collect();
    bail!(
        "there is no study {name}; there are {}, and directories with study.toml and results.csv",
        known.join(", ")
    )
}

/// Whether there is something of each name.
fn check(studies: &[Study], wanted: &Wanted) -> Result<()> {
    for system in &wanted.systems {
        let only = Wanted { systems: vec![system.clone()], tests: Vec::new() };
        let mut runs = studies.iter().flat_map(|study| &study.runs);
        if !runs.any(|run| only.has_system(&run.system)) {
            let mut known: Vec<&str> =
                studies.iter().flat_map(|study| &study.runs).map(|run| &*run.system).collect();
            known.sort_unstable();
            known.dedup();
            bail!("there is no system {system}; there are {}", known.join(", "));
        }
    }
    for test in &wanted.tests {
        if !studies.iter().flat_map(|study| &study.figures).any(|figure| figure.test == *test) {
            let mut known: Vec<&str> = Vec::new();
            for figure in studies.iter().flat_map(|study| &study.figures) {
                if !known.contains(&&*figure.test) {
                    known.push(&figure.test);
                }
            }
            bail!("there is no test {test}; there are {}", known.join(", "));
        }
    }
    Ok(())
}

fn write_report(chapters: &[Chapter], directory: &Path) -> Result<()> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let command = format!("forebay {}", command.join(" "));
    let pages = report::pages(chapters, &command, env!("CARGO_PKG_VERSION"))?;
    let shown = directory.display();
    fs::create_dir_all(directory).with_context(|| format!("{shown}: the directory cannot be made"))?;
    for page in pages {
        let path = directory.join(&page.file);
        fs::write(&path, &page.html).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(())
}

fn print(output: &mut Output, chapter: &Chapter) -> Result<()> {
    let Chapter { study, rows, fidelity, ranking, .. } = chapter;
    writeln!(output, "{}: {}", study.id, study.title)?;
    writeln!(
        output,
        "  {:<20} {:>3} {:>4}  {:<22} {:<24} {:>12} {:>12} {:>6}",
        "test", "run", "jobs", "system", "metric", "published", "simulated", "off"
    )?;
    for row in rows.iter().filter(|row| row.simulated.is_some()) {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let off = match row.error() {
            None => String::new(),
            Some(error) if error.is_finite() => format!("{:.0} %", error * 100.0),
            Some(_) => "0".to_owned(),
        };
        let metric = format!("{}, {}", row.metric, row.unit);
        let Row { test, iteration, numjobs, system, published, simulated, .. } = row;
        let (published, simulated) = (number(*published), number(*simulated));
        writeln!(
            output,
            "  {test:<20} {iteration:>3} {numjobs:>4}  {system:<22} {metric:<24} {published:>12} {simulated:>12} {off:>6}"
        )?;
    }
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for reason in rows.iter().filter_map(|row| row.reason.as_deref()) {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    for (reason, count) in reasons {
        writeln!(output, "  {count} without a simulated value: {reason}")?;
    }
    for (system, kind, fitted) in study.overheads() {
        let (us, cell) = (fitted.us, fitted.cell());
        writeln!(
            output,
            "  fitted: {us} us for each {kind} of {system}, to {cell}; left out of the fidelity"
        )?;
    }
    for Fidelity { system, cells, missing, .. } in fidelity {
        write!(output, "  fidelity of {}: {cells} cells", system.as_deref().unwrap_or("all"))?;
        if *missing > 0 {
            write!(output, " ({missing} not simulated)")?;
        }
        writeln!(output, "{}", shares(fidelity, system.as_deref()))?;
    }
    let Ranking { tests, tests_kept, .. } = ranking;
    writeln!(
        output,
        "  order of systems: as published in {tests_kept} of {tests} tests with more than 25 % between two"
    )?;
    Ok(writeln!(output)?)
}

/// Counts of cells by distance from the published value.
fn shares(fidelity: &[Fidelity], system: Option<&str>) -> String {
    let Some(one) = fidelity.iter().find(|one| one.system.as_deref() == system) else { return String::new() };
    let (Some(ten), Some(quarter), Some(half), Some(median)) =
        (one.within_10_percent, one.within_25_percent, one.within_50_percent, one.median_error)
    else {
        return String::new();
    };
    let percent = |share: f64| share * 100.0;
    format!(
        ", {:.0} % within 10 %, {:.0} % within 25 %, {:.0} % within 50 %, median {:.0} % off",
        percent(ten),
        percent(quarter),
        percent(half),
        percent(median)
    )
}
