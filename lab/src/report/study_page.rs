//! The page of one study.

use super::html::{Cell, Table, escape, frame, text};
use super::pictures;
use super::tables;
use super::{Chapter, Page};
use crate::DrawError;
use crate::study::{Row, Study, Subject};
use std::fmt::Write;

/// Cells that are shown as the worst.
const WORST: usize = 10;

pub(super) fn page(chapter: &Chapter, foot: &str) -> Result<Page, DrawError> {
    let Chapter { study, rows, fidelity, league, .. } = chapter;
    let mut body = format!(
        "<p><a href=\"index.html\">all studies</a></p>\n<p>{}. {}</p>\n<h2>What is assumed</h2>\n<ul>\n",
        escape(&study.source),
        escape(&study.summary)
    );
    for assumption in &study.assumptions {
        let _ = writeln!(body, "<li>{}</li>", escape(assumption));
    }
    body.push_str("</ul>\n<h2>What is run</h2>\n");
    body.push_str(&runs(study));
    body.push_str(&devices(study));
    let pictures = pictures::of_study(chapter)?;
    let _ = write!(
        body,
        "<h2>Pictures</h2>\n<p>Published figures are pale or dashed, simulated ones full.</p>\n{pictures}"
    );
    let _ = write!(body, "<h2>How near to what was published</h2>\n{}", tables::fidelity(fidelity));
    if !study.fidelity.is_empty() {
        let _ = writeln!(body, "<div class=\"plots\">{}</div>", pictures::scatter(&[chapter])?);
    }
    let _ = write!(body, "<h3>Order of the systems</h3>\n{}", tables::rankings(&[chapter]));
    if !study.fidelity.is_empty() {
        let _ = write!(
            body,
            "<h3>The {WORST} cells that are furthest off</h3>\n{}",
            tables::worst(&[chapter], WORST)
        );
    }
    let _ = write!(
        body,
        "<h2>League</h2>\n<p>{}. Ratios to the native SSD, or the native disk where there is no SSD figure; below 1 is better \
         for latencies.</p>\n{}",
        tables::outcomes(league),
        tables::league(league)
    );
    let natives: Vec<&Row> = rows.iter().filter(|row| row.is_native).collect();
    if !natives.is_empty() {
        let _ = write!(
            body,
            "<h2>The models against the native figures</h2>\n<details><summary>{} rows</summary>{}</details>\n",
            natives.len(),
            tables::figures(&natives)
        );
    }
    body.push_str("<h2>All figures</h2>\n");
    body.push_str(&all_figures(rows));
    let html = frame(&format!("{}: {}", study.id, study.title), &body, foot);
    Ok(Page { file: format!("{}.html", study.id), html })
}

/// The runs of a study, one in a row.
fn runs(study: &Study) -> String {
    let mut table =
        Table::new(&["<system", "<runs as", "<changed", "<mode", "<devices", "<own time, fitted"]);
    for run in &study.runs {
        let overheads = [("read", &run.overhead.read), ("write", &run.overhead.write)];
        let fitted = overheads.into_iter().filter_map(|(kind, fitted)| {
            let fitted = fitted.as_ref()?;
            Some(format!("{} us for each {kind}, to {}", fitted.us, fitted.cell()))
        });
        let fitted = text(fitted.collect::<Vec<_>>().join("; "));
        let cells = match &run.subject {
            Subject::Native { device } => {
                [text(&run.system), text("the bare device"), text(""), text(""), text(device), fitted]
            }
            Subject::Cache { tunables, is_safe, mode, cache, origin, .. } => {
                let mut changed: Vec<String> =
                    tunables.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                changed.push(format!("safe = {is_safe}"));
                [
                    text(&run.system),
                    text(run.profile()),
                    text(changed.join(", ")),
                    text(mode.name()),
                    text(format!("{cache} before {origin}")),
                    fitted,
                ]
            }
        };
        table.row(&cells);
    }
    table.finish()
}

/// The devices of a study, one in a row.
fn devices(study: &Study) -> String {
    let mut table = Table::new(&["<device", "<model", "<what it is", "bytes", "<numbers from"]);
    for device in &study.devices {
        table.row(&[
            text(&device.name),
            text(&device.model.name),
            text(&device.model.description),
            Cell(device.size_bytes.to_string(), ""),
            text(if device.model.calibrated {
                "a fit to native figures"
            } else {
                "data sheets and assumptions"
            }),
        ]);
    }
    table.finish()
}

/// The figures of the caches, folded by test.
fn all_figures(rows: &[Row]) -> String {
    let mut body = String::new();
    let mut tests: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| !row.is_native) {
        if !tests.contains(&&*row.test) {
            tests.push(&row.test);
        }
    }
    for test in tests {
        let of_test: Vec<&Row> = rows.iter().filter(|row| !row.is_native && row.test == test).collect();
        let _ = writeln!(
            body,
            "<details><summary>{}: {} rows</summary>{}</details>",
            escape(test),
            of_test.len(),
            tables::figures(&of_test)
        );
    }
    body
}
