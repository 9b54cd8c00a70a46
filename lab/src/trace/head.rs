//! The first requests of a trace, where the whole of it is more than is wanted.

use super::{Entry, Source, TraceError};

/// A trace that ends after so many requests.
pub struct Head<'a> {
    source: Box<dyn Source + 'a>,
    left: u64,
}

impl<'a> Head<'a> {
    /// The first `requests` of a trace, or all of a shorter one.
    #[must_use]
    pub fn new(source: Box<dyn Source + 'a>, requests: u64) -> Head<'a> {
        Head { source, left: requests }
    }
}

impl Source for Head<'_> {
    fn next_entry(&mut self) -> Result<Option<Entry>, TraceError> {
        // Beyond the end nothing is read: what is malformed there is nobody's concern.
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        self.source.next_entry()
    }
}
