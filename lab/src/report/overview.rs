//! The page of all studies.

use super::html::{Cell, Table, escape, frame, text};
use super::pictures;
use super::tables;
use super::{Chapter, Page};
use crate::DrawError;
use crate::study::Fidelity;
use std::fmt::Write;

/// Cells that are shown as the worst.
const WORST: usize = 10;

pub(super) fn page(chapters: &[Chapter], foot: &str) -> Result<Page, DrawError> {
    let all: Vec<&Chapter> = chapters.iter().collect();
    let mut body = String::from(
        "<p>Published measurements of SSD caches, run again in virtual time on modelled disks: each published figure beside \
         what came out here, and beside what our own cache does on the same devices.</p>\n<h2>Studies</h2>\n",
    );
    let mut table = Table::new(&["<study", "year", "<what it is about", "<source"]);
    for Chapter { study, .. } in chapters {
        table.row(&[
            text(&study.id),
            Cell(study.year.to_string(), ""),
            text(&study.title),
            text(&study.source),
        ]);
    }
    body.push_str(&table.finish());
    body.push_str("<p>Pages: ");
    for Chapter { study, .. } in chapters {
        let id = escape(&study.id);
        let _ = write!(body, "<a href=\"{id}.html\">{id}</a> ");
    }
    body.push_str("</p>\n<h2>How near to what was published</h2>\n");
    let fidelity: Vec<Fidelity> =
        chapters.iter().flat_map(|chapter| chapter.fidelity.iter().cloned()).collect();
    body.push_str(&tables::fidelity(&fidelity));
    let _ = writeln!(body, "<div class=\"plots\">{}</div>", pictures::scatter(&all)?);
    body.push_str("<h3>Order of the systems</h3>\n");
    body.push_str(&tables::rankings(&all));
    let _ = write!(body, "<h3>The {WORST} cells that are furthest off</h3>\n{}", tables::worst(&all, WORST));
    body.push_str("<h2>League</h2>\n<p>Ratios to the native SSD, or the native disk where the study has no SSD figure; below 1 is \
                   better for latencies. The outcome compares forebay with the better of the best published and the best \
                   simulated system; within 2 % is a tie.</p>\n");
    for chapter in chapters {
        let id = escape(&chapter.study.id);
        let outcomes = tables::outcomes(&chapter.league);
        let _ = write!(body, "<h3>{id}</h3>\n<p>{outcomes}.</p>\n{}", tables::league(&chapter.league));
    }
    let html = frame("Published studies of SSD caches, simulated", &body, foot);
    Ok(Page { file: "index.html".to_owned(), html })
}
