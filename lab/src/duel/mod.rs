//! Duels: each profile on each trace, at each size of the cache, by the trace's times and with a number of requests
//! under way; and whether one of them, the contender, is the best.
//!
//! A cell is one replay ([`crate::replay`]). A row is the cells of one trace, one size and one pace: there the contender
//! wins or loses twice, for time and for wear. Nothing here knows which profile is ours.

mod size;
mod verdict;

pub use size::{Size, SizeWanted, sizes};
pub use verdict::{Measure, Summary, Tally, Time, TimeOutcome, TimeTally, Wear, WearOutcome, summary};

use crate::replay::{Outcome, Pace};
use engine::effect::WriteMode;

/// One profile in a row.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The profile's name.
    pub profile: String,
    /// How writes are treated.
    pub mode: WriteMode,
    /// The replay, or in one line why it has no outcome.
    pub result: Result<Outcome, String>,
}

impl Cell {
    /// The replay as far as it can be compared: not one in which requests failed.
    #[must_use]
    pub fn comparable(&self) -> Option<&Outcome> {
        self.result.as_ref().ok().filter(|outcome| outcome.errors == 0)
    }
}

/// All profiles on one trace, with one size of the cache, at one pace.
#[derive(Clone, Debug)]
pub struct Row {
    /// The trace's file.
    pub file: String,
    /// The size of the cache.
    pub size: Size,
    /// When requests come.
    pub pace: Pace,
    /// The profiles.
    pub cells: Vec<Cell>,
    /// Whether the contender is the fastest.
    pub time: Time,
    /// Whether another one that hits as much wears the cache device less.
    pub wear: Wear,
}

impl Row {
    /// The row with its verdicts on `contender`.
    #[must_use]
    pub fn new(file: String, size: Size, pace: Pace, cells: Vec<Cell>, contender: &str) -> Row {
        let (time, wear) = (verdict::time(&cells, pace, contender), verdict::wear(&cells, contender));
        Row { file, size, pace, cells, time, wear }
    }
}

/// A duel that was carried out.
#[derive(Clone, Debug)]
pub struct Duel {
    /// The profile on which the verdicts are.
    pub contender: String,
    /// The modelled origin.
    pub origin: String,
    /// The modelled cache device.
    pub cache: String,
    /// The rows: those of a trace and a pace one after the other, each with the same profiles.
    pub rows: Vec<Row>,
}

/// The word for a pace.
#[must_use]
pub fn loop_name(pace: Pace) -> &'static str {
    match pace {
        Pace::Timed => "open",
        Pace::Depth(_) => "closed",
    }
}

#[cfg(test)]
mod tests;
