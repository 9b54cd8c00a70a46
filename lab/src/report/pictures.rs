//! Which rows become which picture.

use super::Chapter;
use super::plots::{self, Bars, Line, Lines, Point};
use crate::DrawError;
use crate::study::{Plot, PlotKind, Row};
use std::fmt::Write;

/// The pictures that a study names, in HTML.
pub(super) fn of_study(chapter: &Chapter) -> Result<String, DrawError> {
    let mut html = String::new();
    for plot in &chapter.study.plots {
        let _ = write!(html, "<h3>{}</h3>\n<div class=\"plots\">", super::html::escape(&plot.title));
        match plot.kind {
            PlotKind::Growth => {
                for test in &plot.tests {
                    html.push_str(&growth(chapter, plot, test)?);
                }
            }
            PlotKind::Percentiles => {
                for test in &plot.tests {
                    html.push_str(&percentiles(chapter, plot, test)?);
                }
            }
            PlotKind::Sequence => html.push_str(&sequence(chapter, plot)?),
            PlotKind::Bars => html.push_str(&bars(chapter, plot)?),
        }
        html.push_str("</div>\n");
    }
    Ok(html)
}

/// Published against simulated, all cells that are compared.
pub(super) fn scatter(chapters: &[&Chapter]) -> Result<String, DrawError> {
    let mut points = Vec::new();
    for chapter in chapters {
        let is_compared =
            |row: &&Row| chapter.study.fidelity.contains(&row.metric) && !row.is_native && !row.is_fitted;
        for row in chapter.rows.iter().filter(is_compared) {
            if let (Some(published), Some(simulated)) = (row.published, row.simulated) {
                points.push(Point { group: row.system.clone(), at: (published, simulated) });
            }
        }
    }
    if points.iter().all(|point| point.at.0 <= 0.0 || point.at.1 <= 0.0) {
        return Ok("<p>No cell has both values yet.</p>".to_owned());
    }
    plots::scatter("published against simulated, with the 25 % band", &points)
}

/// The systems of caches, in the order of the study's runs.
fn systems(chapter: &Chapter) -> Vec<&str> {
    let mut systems: Vec<&str> = Vec::new();
    for row in chapter.rows.iter().filter(|row| !row.is_native) {
        if !systems.contains(&&*row.system) {
            systems.push(&row.system);
        }
    }
    systems
}

/// Both lines of each system: the published and the simulated figures.
fn lines_of<'a>(
    chapter: &'a Chapter,
    points: impl Fn(&'a str, fn(&Row) -> Option<f64>) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for (colour, system) in systems(chapter).into_iter().enumerate() {
        for (is_published, value) in
            [(true, (|row: &Row| row.published) as fn(&Row) -> Option<f64>), (false, |row| row.simulated)]
        {
            let points = points(system, value);
            if !points.is_empty() {
                lines.push(Line { label: system.to_owned(), colour, is_published, points });
            }
        }
    }
    lines
}

fn growth(chapter: &Chapter, plot: &Plot, test: &str) -> Result<String, DrawError> {
    let unit = unit(chapter, &plot.metric);
    let lines = lines_of(chapter, |system, value| {
        let is_of = |row: &&Row| row.system == system && row.test == test && row.metric == plot.metric;
        chapter
            .rows
            .iter()
            .filter(is_of)
            .filter_map(|row| Some((row.iteration.parse().ok()?, value(row)?)))
            .collect()
    });
    plots::lines(&Lines {
        title: &format!("test {test}"),
        x: "run",
        y: &unit,
        ticks: None,
        is_log: false,
        lines: &lines,
    })
}

fn percentiles(chapter: &Chapter, plot: &Plot, test: &str) -> Result<String, DrawError> {
    let percent = |row: &Row| row.metric.strip_prefix(&*plot.metric)?.parse::<f64>().ok();
    let mut all: Vec<f64> = chapter.rows.iter().filter(|row| row.test == test).filter_map(percent).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let ticks: Vec<String> = all.iter().map(f64::to_string).collect();
    let unit = chapter.rows.iter().find(|row| percent(row).is_some()).map_or("", |row| &row.unit);
    let lines = lines_of(chapter, |system, value| {
        let mut points: Vec<(f64, f64)> = chapter
            .rows
            .iter()
            .filter(|row| row.system == system && row.test == test)
            .filter_map(|row| {
                let percent = percent(row)?;
                let at = all.iter().position(|known| *known == percent)?;
                Some((at as f64, value(row)?))
            })
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    });
    let ticks = Some(&ticks[..]);
    plots::lines(&Lines { title: test, x: "percentile", y: unit, ticks, is_log: true, lines: &lines })
}

fn sequence(chapter: &Chapter, plot: &Plot) -> Result<String, DrawError> {
    let unit = unit(chapter, &plot.metric);
    let lines = lines_of(chapter, |system, value| {
        let of_test = |test: &str| {
            let mut rows = chapter.rows.iter();
            rows.find(|row| row.system == system && row.test == test && row.metric == plot.metric)
        };
        (0..)
            .zip(&plot.tests)
            .filter_map(|(at, test)| Some((f64::from(at), value(of_test(test)?)?)))
            .collect()
    });
    let ticks = Some(&plot.tests[..]);
    plots::lines(&Lines { title: &plot.title, x: "job", y: &unit, ticks, is_log: false, lines: &lines })
}

fn bars(chapter: &Chapter, plot: &Plot) -> Result<String, DrawError> {
    let value = |system: &str, test: &str, of: fn(&Row) -> Option<f64>| {
        let mut rows = chapter.rows.iter();
        rows.find(|row| row.system == system && row.test == test && row.metric == plot.metric).and_then(of)
    };
    let bars: Vec<Bars> = systems(chapter)
        .into_iter()
        .enumerate()
        .flat_map(|(colour, system)| {
            let of = |is_published, of: fn(&Row) -> Option<f64>| Bars {
                label: system.to_owned(),
                colour,
                is_published,
                values: plot.tests.iter().map(|test| value(system, test, of)).collect(),
            };
            [of(true, |row| row.published), of(false, |row| row.simulated)]
        })
        .filter(|bars| bars.values.iter().any(Option::is_some))
        .collect();
    plots::bars(&plot.title, &unit(chapter, &plot.metric), &plot.tests, &bars)
}

fn unit(chapter: &Chapter, metric: &str) -> String {
    chapter.rows.iter().find(|row| row.metric == metric).map_or_else(String::new, |row| row.unit.clone())
}
