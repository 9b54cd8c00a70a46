//! The rows that a model does not meet within 15 %, and why.

use super::fit::Fit;

/// Rows that a model does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    study: &'static str,
    system: &'static str,
    test: &'static str,
    metrics: &'static [&'static str],
    /// Why, in a sentence.
    pub reason: &'static str,
}

/// All of them.
const EXCEPTIONS: [Exception; 0] = [];

/// What is stated of a row.
pub fn exception(fit: &Fit) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|exception| {
        exception.study == fit.base.study
            && exception.system == fit.base.system
            && exception.test == fit.figure.test
            && exception.metrics.contains(&fit.figure.metric.as_str())
    })
}
