//! Pages about studies and duels: each one file that needs nothing else, with the pictures inside.
//!
//! | file | subject |
//! | --- | --- |
//! | `study_page.rs` | the page of one study |
//! | `overview.rs` | the page of all |
//! | `tables.rs` | what both have |
//! | `duel_page.rs` | the page of a duel |
//! | `html.rs` | text, tables, the frame of a page |
//! | `pictures.rs` | which rows become which picture |
//! | `plots.rs` | lines, bars, scatter as SVG |

mod duel_page;
mod html;
mod overview;
mod pictures;
mod plots;
mod study_page;
mod tables;

use crate::DrawError;
use crate::duel::Duel;
use crate::league::Standing;
use crate::study::{Fidelity, Ranking, Row, Study};

/// A study that was run, with its results.
pub struct Chapter {
    /// The study.
    pub study: Study,
    /// Published beside simulated.
    pub rows: Vec<Row>,
    /// How far apart they are.
    pub fidelity: Vec<Fidelity>,
    /// Whether systems come in the published order.
    pub ranking: Ranking,
    /// The standings of the systems.
    pub league: Vec<Standing>,
}

impl Chapter {
    /// Everything that follows from a study's rows.
    #[must_use]
    pub fn new(study: Study, rows: Vec<Row>) -> Chapter {
        let fidelity = crate::study::fidelity(&study, &rows);
        let ranking = crate::study::rankings(&study, &rows);
        let league = crate::league::league(&study, &rows);
        Chapter { study, rows, fidelity, ranking, league }
    }
}

/// A file of a report.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its name.
    pub file: String,
    /// Its content.
    pub html: String,
}

/// The pages: an overview, and one for each study. `command` made them, with `version`.
///
/// # Errors
/// [`DrawError`].
pub fn pages(chapters: &[Chapter], command: &str, version: &str) -> Result<Vec<Page>, DrawError> {
    let foot = html::foot(command, version);
    let mut pages = vec![overview::page(chapters, &foot)?];
    for chapter in chapters {
        pages.push(study_page::page(chapter, &foot)?);
    }
    Ok(pages)
}

/// The page of a duel. `command` made it, with `version`.
///
/// # Errors
/// [`DrawError`].
pub fn duel_page(duel: &Duel, command: &str, version: &str) -> Result<String, DrawError> {
    duel_page::page(duel, &html::foot(command, version))
}

#[cfg(test)]
mod tests;
