//! Tables that several pages have.

use super::Chapter;
use super::html::{Cell, Table, error, number, percent, text};
use crate::league::{Entry, Outcome, Standing};
use crate::study::{Fidelity, Row};

/// How near simulated values are.
pub(super) fn fidelity(rows: &[Fidelity]) -> String {
    if rows.is_empty() {
        return "<p>No cells of this study are compared one by one: only the order counts.</p>\n".to_owned();
    }
    let mut table = Table::new(&[
        "<study",
        "<system",
        "cells",
        "within 10 %",
        "within 25 %",
        "within 50 %",
        "median error",
        "not simulated",
    ]);
    for row in rows {
        table.row(&[
            text(&row.study),
            text(row.system.as_deref().unwrap_or("all")),
            Cell(row.cells.to_string(), ""),
            percent(row.within_10_percent),
            percent(row.within_25_percent),
            percent(row.within_50_percent),
            percent(row.median_error),
            Cell(row.missing.to_string(), ""),
        ]);
    }
    table.finish()
}

/// Whether systems come in the published order.
pub(super) fn rankings(chapters: &[&Chapter]) -> String {
    let mut table = Table::new(&[
        "<study",
        "tests with systems more than 25 % apart",
        "of them in the published order",
        "pairs",
        "in order",
    ]);
    for chapter in chapters {
        let ranking = &chapter.ranking;
        let numbers = [ranking.tests, ranking.tests_kept, ranking.pairs, ranking.pairs_kept];
        let mut cells = vec![text(&ranking.study)];
        cells.extend(numbers.map(|number| Cell(number.to_string(), "")));
        table.row(&cells);
    }
    table.finish()
}

/// The league.
pub(super) fn league(rows: &[Standing]) -> String {
    let mut table = Table::new(&[
        "<row",
        "<measure",
        "<best published",
        "to base",
        "<best simulated",
        "to base",
        "forebay",
        "to base",
        "device limit",
        "ideal cache",
        "<base",
        "<outcome",
        "<note",
    ]);
    for row in rows {
        let ratio = |entry: &Option<Entry>| number(entry.as_ref().and_then(|entry| entry.ratio(row.base)));
        let who = |entry: &Option<Entry>| {
            let name = |entry: &Entry| format!("{} {}", entry.system, super::html::short(entry.value));
            text(entry.as_ref().map_or_else(|| "–".to_owned(), name))
        };
        let outcome = match row.outcome {
            Some(Outcome::Win) => Cell("win".to_owned(), "t win"),
            Some(Outcome::Tie) => text("tie"),
            Some(Outcome::Loss) => Cell("loss".to_owned(), "t loss"),
            Some(Outcome::OutOfReach) => text("out of reach"),
            Some(Outcome::NoBase) => text("no base"),
            None => text("not run"),
        };
        table.row(&[
            text(&row.label),
            text(format!("{}, {}", row.metric, row.unit)),
            who(&row.published),
            ratio(&row.published),
            who(&row.simulated),
            ratio(&row.simulated),
            number(row.forebay.as_ref().map(|entry| entry.value)),
            ratio(&row.forebay),
            number(row.device_limit),
            ratio(&row.ideal),
            text(row.base.unwrap_or("–")),
            outcome,
            text(&row.note),
        ]);
    }
    table.finish()
}

/// How many rows of the league ended how.
pub(super) fn outcomes(rows: &[Standing]) -> String {
    let count = |outcome| rows.iter().filter(|row| row.outcome == Some(outcome)).count();
    format!(
        "{} rows: {} wins, {} ties, {} losses, {} out of reach of the modelled disks, {} without a base",
        rows.len(),
        count(Outcome::Win),
        count(Outcome::Tie),
        count(Outcome::Loss),
        count(Outcome::OutOfReach),
        count(Outcome::NoBase)
    )
}

/// Published beside simulated.
pub(super) fn figures(rows: &[&Row]) -> String {
    let mut table = Table::new(&[
        "<test",
        "run",
        "jobs",
        "<system",
        "<measure",
        "<unit",
        "published",
        "simulated",
        "error",
        "native HDD",
        "native SSD",
        "<why not",
    ]);
    for row in rows {
        table.row(&[
            text(&row.test),
            Cell(row.iteration.clone(), ""),
            Cell(row.numjobs.clone(), ""),
            text(&row.system),
            text(&row.metric),
            text(&row.unit),
            number(row.published),
            number(row.simulated),
            error(row.error()),
            number(row.native_hdd),
            number(row.native_ssd),
            text(row.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table.finish()
}

/// The cells that are furthest off, of those that are compared.
pub(super) fn worst<'a>(chapters: &[&'a Chapter], count: usize) -> String {
    let of_chapter = |chapter: &'a Chapter| {
        let study = &chapter.study;
        let rows = chapter.rows.iter().filter(|row| study.fidelity.contains(&row.metric));
        rows.map(move |row| (row, study.deviation(&row.test, &row.system, &row.metric)))
    };
    let mut rows: Vec<(&Row, Option<&str>)> = chapters
        .iter()
        .flat_map(|chapter| of_chapter(chapter))
        .filter(|(row, _)| !row.is_native && !row.is_fitted && row.error().is_some())
        .collect();
    if rows.is_empty() {
        return "<p>No cell has both values.</p>\n".to_owned();
    }
    let error_of = |row: &Row| row.error().unwrap_or(0.0);
    rows.sort_by(|(one, _), (other, _)| error_of(other).total_cmp(&error_of(one)));
    let mut table = Table::new(&[
        "<study",
        "<test",
        "run",
        "<system",
        "<measure",
        "published",
        "simulated",
        "error",
        "<why, as far as is believed",
    ]);
    for (row, reason) in rows.into_iter().take(count) {
        table.row(&[
            text(&row.study),
            text(&row.test),
            Cell(row.iteration.clone(), ""),
            text(&row.system),
            text(format!("{}, {}", row.metric, row.unit)),
            number(row.published),
            number(row.simulated),
            error(row.error()),
            text(reason.unwrap_or("not known")),
        ]);
    }
    table.finish()
}
