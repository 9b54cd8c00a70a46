//! The exact curve of LRU.

use super::Counts;
use super::distances::StackDistances;
use crate::trace::spread::TracedBlock;
use engine::policies::replacement::Access;

/// Hits of LRU caches of every size at once.
#[derive(Default)]
pub(super) struct LruHits {
    distances: StackDistances,
    /// Accesses by stack distance.
    at: Vec<Counts>,
    accesses: Counts,
}

impl LruHits {
    pub(super) fn access(&mut self, block: TracedBlock, access: Access) {
        self.accesses.add(access);
        if let Some(distance) = self.distances.access(block) {
            let distance = distance as usize;
            if self.at.len() <= distance {
                self.at.resize(distance + 1, Counts::default());
            }
            self.at[distance].add(access);
        }
    }

    /// All accesses.
    pub(super) fn accesses(&self) -> Counts {
        self.accesses
    }

    /// The hits of a cache of `blocks` blocks; so many as there are without end if it is `u64::MAX`.
    pub(super) fn hits(&self, blocks: u64) -> Counts {
        let end = usize::try_from(blocks).unwrap_or(usize::MAX).min(self.at.len());
        self.at[..end].iter().fold(Counts::default(), |sum, counts| sum.plus(*counts))
    }
}
