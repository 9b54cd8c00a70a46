//! `forebay studies`: the published measurements that are built in.

use crate::arguments::Report;
use crate::output::Output;
use anyhow::Result;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Listing {
    studies: Vec<Study>,
}

#[derive(Serialize)]
struct Study {
    name: String,
    year: u32,
    title: String,
    source: String,
    summary: String,
    assumptions: Vec<String>,
    systems: Vec<String>,
    figures: usize,
}

impl From<lab::study::Study> for Study {
    fn from(study: lab::study::Study) -> Study {
        let mut systems: Vec<String> = Vec::new();
        for run in &study.runs {
            if !systems.contains(&run.system) {
                systems.push(run.system.clone());
            }
        }
        Study {
            name: study.id,
            year: study.year,
            title: study.title,
            source: study.source,
            summary: study.summary,
            assumptions: study.assumptions,
            systems,
            figures: study.figures.len(),
        }
    }
}

pub(super) fn run(report: &Report) -> Result<()> {
    let listing = Listing { studies: lab::study::all().into_iter().map(Study::from).collect() };
    let mut output = Output::stdout();
    if report.json {
        output.json(&listing)?;
    } else {
        for Study { name, title, figures, systems, .. } in &listing.studies {
            writeln!(output, "{name:16} {title} ({figures} figures)")?;
            writeln!(output, "{:16} {}", "", systems.join(", "))?;
        }
        writeln!(output, "run one with: forebay lab study NAME; --json lists sources and assumptions")?;
    }
    Ok(output.finish()?)
}
