//! What the engine cannot run yet: the one place that says so.

use super::Composition;
use super::axes::{PersistenceChoice, Placement};

impl Composition {
    /// What the engine lacks for a possible composition; `None`: nothing. Of compositions over a log it says
    /// nothing.
    #[must_use]
    pub fn unsupported(&self) -> Option<&'static str> {
        match (self.placement, self.persistence) {
            (Placement::Log { .. }, _) => None,
            (Placement::Slots(_), PersistenceChoice::Commit(_)) => Some("persistence = commit"),
            (Placement::Slots(_), PersistenceChoice::BitTree(_)) => Some("persistence = bit-tree"),
            (Placement::Slots(_), _) => None,
        }
    }
}
