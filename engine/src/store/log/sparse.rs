//! A sparse ring: most of what was written to it was written over since.
//!
//! Who writes over few blocks all the time sends the ring round and round, and a round tells nothing of what others read. So
//! while little in the ring lives, what lives stays, hit or not, and what is read enters: there is room. It costs a block
//! written for each that is written over, at the most.

use super::LogStore;
use crate::machine::Machine;

/// A ring is sparse while at most so much of it lives, in percent.
const SPARSE_PERCENT: u64 = 50;

impl Machine<LogStore> {
    /// Whether the ring is sparse, and clients read what it holds.
    pub(super) fn keeps_unread(&self) -> bool {
        let LogStore { index, segments, policies, reclaim, appender, .. } = &self.store;
        let lingering_blocks: u64 = self.volumes.iter().flatten().map(|volume| volume.lingering_blocks).sum();
        let live_blocks = index.len().saturating_sub(lingering_blocks);
        policies.lets_all_in_with_room
            && !policies.lets_all_in
            && appender.weighs_rounds()
            && reclaim.policy.keeps_any()
            && policies.trials.is_read()
            && live_blocks * 100 <= segments.ring_blocks() * SPARSE_PERCENT
    }
}
