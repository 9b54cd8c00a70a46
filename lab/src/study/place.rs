//! Places in a study's files, and the errors that name them.

use std::io;
use std::ops::Range;

/// Error in a study's files.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// A line of it is wrong.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// The error, in words.
        reason: String,
    },
}

/// A file whose places can be named.
pub(super) struct Place<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl Place<'_> {
    /// The line at a place, counted from 1.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        let start = span.start.min(self.text.len());
        1 + self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count()
    }

    /// An error at a place.
    pub(super) fn wrong(&self, span: &Range<usize>, reason: impl ToString) -> StudyError {
        self.wrong_line(self.line(span), reason)
    }

    /// An error in a line.
    pub(super) fn wrong_line(&self, line: usize, reason: impl ToString) -> StudyError {
        StudyError::Line { file: self.file.to_owned(), line, reason: reason.to_string() }
    }

    /// Whether a string begins behind a line break that is not part of it.
    pub(super) fn begins_on_next_line(&self, span: &Range<usize>) -> bool {
        self.text.get(span.clone()).is_some_and(|text| text.starts_with("\"\"\"\n"))
    }
}
