//! What the engine cannot run yet: the one place that says so.

use super::Composition;

impl Composition {
    /// What the engine lacks for a possible composition; `None`: nothing. Of compositions over a log it says
    /// nothing.
    #[must_use]
    pub fn unsupported(&self) -> Option<&'static str> {
        None
    }
}
