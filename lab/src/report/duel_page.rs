//! The page of a duel: verdicts, and for each trace and pace what every profile makes of each size.

use super::html::{Cell, Table, escape, frame, number, text};
use super::plots::{self, Bars};
use crate::DrawError;
use crate::duel::{self, Duel, Row, TimeOutcome, WearOutcome};
use crate::replay::{Outcome, Pace};
use std::fmt::Write;

const MIB: f64 = 1_048_576.0;

/// A figure of a replay: its name, its unit, its value.
type Figure = (&'static str, &'static str, fn(&Outcome) -> Option<f64>);

/// The figures that are drawn and tabled.
const FIGURES: [Figure; 5] = [
    ("time", "s", |outcome| Some(outcome.elapsed_ns as f64 / 1e9)),
    ("mean latency", "ms", |outcome| Some(outcome.mean_latency_ns()? as f64 / 1e6)),
    ("hits", "%", |outcome| Some(outcome.hit_ratio()? * 100.0)),
    ("SSD written", "MiB", |outcome| Some(outcome.cache.written_bytes as f64 / MIB)),
    ("p99 of reads", "ms", |outcome| Some(outcome.reads?.p99_ns as f64 / 1e6)),
];

pub(super) fn page(duel: &Duel, foot: &str) -> Result<String, DrawError> {
    let contender = escape(&duel.contender);
    let mut body = format!(
        "<p>Each profile on each trace, on the modelled disks {} (origin) and {} (cache), each time with a new, empty \
         cache. The verdicts are on <b>{contender}</b>. For time it wins where no other profile is more than 2 % faster: by the \
         time of the whole trace with a number of requests under way (closed loop), by the mean latency where requests come \
         by their times (open loop). For wear it wins where it writes no more to the cache device than the least \
         wearing of the others whose hits are at most 5 points below its own.</p>\n<p>{}.</p>\n<h2>Verdicts</h2>\n{}",
        escape(&duel.origin),
        escape(&duel.cache),
        duel::summary(&duel.rows),
        verdicts(&duel.rows)
    );
    for rows in duel.rows.chunk_by(|one, other| (&one.file, one.pace) == (&other.file, other.pace)) {
        let _ = write!(body, "<h2>{}</h2>\n{}", escape(&title(&rows[0])), pictures(rows)?);
        let _ = writeln!(body, "<details><summary>figures</summary>{}</details>", figures(rows));
    }
    Ok(frame(&format!("Duel of {}", duel.contender), &body, foot))
}

fn title(row: &Row) -> String {
    match row.pace {
        Pace::Timed => format!("{}, open loop", row.file),
        Pace::Depth(depth) => format!("{}, closed loop, {depth} under way", row.file),
    }
}

fn size(row: &Row) -> String {
    format!("{} MiB", (row.size.bytes as f64 / MIB * 100.0).round() / 100.0)
}

/// The verdicts, one row each.
fn verdicts(rows: &[Row]) -> String {
    let mut table = Table::new(&["<trace", "<loop", "cache", "% of the footprint", "<time", "<wear"]);
    for row in rows {
        let percents: Vec<String> = row.size.footprint_percents.iter().map(u64::to_string).collect();
        let time = match row.time.outcome {
            TimeOutcome::Fastest => "t win",
            TimeOutcome::Near => "t",
            TimeOutcome::Slower | TimeOutcome::NotRun => "t loss",
        };
        let wear = if row.wear.outcome == WearOutcome::NoMore { "t" } else { "t loss" };
        table.row(&[
            text(&row.file),
            text(duel::loop_name(row.pace)),
            Cell(size(row), ""),
            Cell(percents.join(", "), ""),
            Cell(format!("{}: {}", row.time.measure, row.time), time),
            Cell(row.wear.to_string(), wear),
        ]);
    }
    table.finish()
}

/// One picture for each figure: a group of bars for each size.
fn pictures(rows: &[Row]) -> Result<String, DrawError> {
    let sizes: Vec<String> = rows.iter().map(size).collect();
    let mut html = "<div class=\"plots\">".to_owned();
    for (name, unit, value) in FIGURES {
        let bars: Vec<Bars> = rows[0]
            .cells
            .iter()
            .enumerate()
            .map(|(at, cell)| Bars {
                label: cell.profile.clone(),
                colour: at,
                is_published: false,
                values: rows.iter().map(|row| row.cells[at].result.as_ref().ok().and_then(value)).collect(),
            })
            .filter(|bars| bars.values.iter().any(Option::is_some))
            .collect();
        if !bars.is_empty() {
            html.push_str(&plots::bars(name, unit, &sizes, &bars)?);
        }
    }
    html.push_str("</div>\n");
    Ok(html)
}

/// The figures of all cells.
fn figures(rows: &[Row]) -> String {
    let names = FIGURES.map(|(name, unit, _)| format!("{name}, {unit}"));
    let mut columns = vec!["cache", "<profile", "<mode"];
    columns.extend(names.iter().map(String::as_str));
    columns.extend(["errors", "<why not"]);
    let mut table = Table::new(&columns);
    for row in rows {
        for cell in &row.cells {
            let outcome = cell.result.as_ref();
            let mut cells = vec![Cell(size(row), ""), text(&cell.profile), text(cell.mode.name())];
            cells.extend(FIGURES.map(|(_, _, value)| number(outcome.ok().and_then(value))));
            cells
                .push(Cell(outcome.map_or_else(|_| String::new(), |outcome| outcome.errors.to_string()), ""));
            cells.push(text(outcome.err().map_or("", |reason| reason)));
            table.row(&cells);
        }
    }
    table.finish()
}
