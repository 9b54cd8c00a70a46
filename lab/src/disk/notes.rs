//! Records that became durable since something was written.

use super::content::Content;
use crate::content::Sector;

/// A count of the flushes that made a record of the cache's own durable, newer than the flush before.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(u64);

impl Notes {
    pub fn count(&self) -> u64 {
        self.0
    }

    /// Counts what a flush made durable, and what landed after the flush before.
    pub fn add<'a>(&mut self, mut durable: impl Iterator<Item = &'a Content>) {
        self.0 += u64::from(durable.any(has_record));
    }
}

/// Whether any of it is a record of the cache's own.
fn has_record(content: &Content) -> bool {
    match content {
        Content::Data(sectors) => sectors.iter().any(|sector| matches!(sector, Sector::Bytes(_))),
        Content::Zeroes(_) => false,
    }
}
