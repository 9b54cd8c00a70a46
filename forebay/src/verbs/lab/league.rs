//! `forebay lab league`: who is best at each test of the studies.

use super::studying::{self, Wanted};
use crate::arguments::studies::LabLeague;
use crate::output::Output;
use anyhow::Result;
use lab::league::{Entry, Outcome, Standing};
use lab::study;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Printed<'a> {
    rows: Vec<&'a Standing>,
}

pub(super) fn run(arguments: &LabLeague) -> Result<()> {
    let chapters = studying::chapters(study::all(), &Wanted::default(), &arguments.carrying)?;
    let rows: Vec<&Standing> = chapters.iter().flat_map(|chapter| &chapter.league).collect();
    let mut output = Output::stdout();
    if arguments.printing.json {
        output.json(&Printed { rows })?;
        return Ok(output.finish()?);
    }
    let mut shown = "";
    for row in &rows {
        if row.study != shown {
            shown = &row.study;
            writeln!(output, "{shown}, as ratio to the native SSD, or disk where there is no SSD")?;
        }
        print(&mut output, row)?;
    }
    let count = |outcome| rows.iter().filter(|row| row.outcome == Some(outcome)).count();
    writeln!(
        output,
        "{} rows: {} wins, {} ties, {} losses, {} out of reach of the modelled disks, {} without a native figure",
        rows.len(),
        count(Outcome::Win),
        count(Outcome::Tie),
        count(Outcome::Loss),
        count(Outcome::OutOfReach),
        count(Outcome::NoBase)
    )?;
    Ok(output.finish()?)
}

fn print(output: &mut Output, row: &Standing) -> Result<()> {
    let entry = |entry: &Option<Entry>| {
        let Some(entry) = entry else { return "-".to_owned() };
        match entry.ratio(row.base) {
            Some(ratio) => format!("{} {ratio:.3}", entry.system),
            None => format!("{} {:.0}", entry.system, entry.value),
        }
    };
    let outcome = match row.outcome {
        Some(Outcome::Win) => "win",
        Some(Outcome::Tie) => "tie",
        Some(Outcome::Loss) => "loss",
        Some(Outcome::OutOfReach) => "out of reach",
        Some(Outcome::NoBase) => "no base",
        None => "not run",
    };
    let number = |limit: Option<f64>| limit.map_or_else(|| "-".to_owned(), |limit| format!("{limit:.3}"));
    let limit = number(row.device_limit);
    let ideal = number(row.ideal.as_ref().and_then(|ideal| ideal.ratio(row.base)));
    let [published, simulated, ours] = [&row.published, &row.simulated, &row.forebay].map(entry);
    writeln!(
        output,
        "  {:<22} {:<24} published {published:<28} simulated {simulated:<28} {ours:<16} limit {limit:<6} ideal {ideal:<6} {outcome}",
        row.label, row.metric
    )?;
    if row.outcome == Some(Outcome::OutOfReach) {
        writeln!(output, "    {}", row.note)?;
    }
    Ok(())
}
