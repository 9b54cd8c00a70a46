//! `results.csv`: every published figure, one in a line.

use super::place::StudyError;

/// The first line.
const HEAD: &str = "study,test,iteration,numjobs,system,metric,unit,value";

/// A published figure. Fields that do not apply are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The test.
    pub test: String,
    /// The number of the repetition.
    pub iteration: String,
    /// The number of jobs beside each other.
    pub numjobs: String,
    /// The system that was measured: a cache, or a bare disk.
    pub system: String,
    /// Its metric.
    pub metric: String,
    /// In which unit.
    pub unit: String,
    /// The value as printed.
    pub value: f64,
}

/// Reads the figures of a study.
///
/// # Errors
/// [`StudyError`] with file, line and reason.
pub(super) fn read(study: &str, file: &str, text: &str) -> Result<Vec<Figure>, StudyError> {
    let wrong = |line: usize, reason: String| StudyError::Line { file: file.to_owned(), line, reason };
    let mut lines = (1..).zip(text.lines());
    match lines.next() {
        Some((_, HEAD)) => (),
        _ => return Err(wrong(1, format!("the first line must be {HEAD}"))),
    }
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            let fields: Vec<&str> = line.split(',').collect();
            let [of_study, test, iteration, numjobs, system, metric, unit, value] = fields[..] else {
                return Err(wrong(number, format!("there are {} fields, not 8", fields.len())));
            };
            if of_study != study {
                return Err(wrong(number, format!("the study is {of_study}, not {study}")));
            }
            let value = value.parse().ok().filter(|value: &f64| value.is_finite());
            let value = value.ok_or_else(|| wrong(number, "the value is no number".to_owned()))?;
            let [test, iteration, numjobs, system, metric, unit] =
                [test, iteration, numjobs, system, metric, unit].map(str::to_owned);
            Ok(Figure { test, iteration, numjobs, system, metric, unit, value })
        })
        .collect()
}
