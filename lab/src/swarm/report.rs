//! Reports of runs.

use super::options::Options;
use crate::violation::Violation;
use crate::world::Counts;
use std::fmt;

/// A run that found something.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its options.
    pub options: Options,
    /// The violation.
    pub violation: Violation,
    /// The last events, oldest first.
    pub events: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.options)?;
        for event in &self.events {
            writeln!(f, "  {event}")?;
        }
        writeln!(f, "violation of {}", self.violation)?;
        write!(f, "again: {}", self.options.replay_command())
    }
}

/// Many runs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs that ended.
    pub runs: u64,
    /// Runs that found something.
    pub violations: u64,
    /// Counters of all runs together.
    pub counts: Counts,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, counts: &Counts, is_violated: bool) {
        self.runs += 1;
        self.violations += u64::from(is_violated);
        self.counts.add(counts);
    }
}
