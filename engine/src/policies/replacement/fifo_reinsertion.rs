//! `fifo-reinsertion`: the oldest segment of the log leaves, and blocks of it that were hit are appended again.
//!
//! A block stays for one lap of the ring for each of its hits, up to `laps_max`: appending it again takes one hit away. A lap
//! in which next to nothing was hit tells nothing of the blocks, and takes none away.
//! Appended blocks take at most a quota of the segment that they come from, or the ring would chase its own tail: a
//! segment that stays whole frees nothing. Hits are not spread evenly over segments, so the quota that recent segments
//! left unused is credit that later segments may spend.
//! Where clients write faster than the disk makes room, a sixth of the quota, with credit of its own: so little costs
//! them next to nothing, and without it a copy carries away all that was hot.
//!
//! Source: FIFO-Reinsertion with a small counter, as in the main queue of S3-FIFO (Yang et al., SOSP 2023). Quota
//! and credit are ours.

use crate::number::to_u32;

/// Parameters of reinsertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reinsertion {
    /// Laps of the ring that hits earn a block, at most: 3, 0 to 3. With 0 nothing is appended again.
    pub laps_max: u32,
    /// Share of a segment's blocks that may be appended again, percent: 50, 0 to 90.
    pub keep_percent: u32,
    /// Unused quota that later segments may spend, at most: percent of the ring. 50, 0 to 100.
    pub credit_percent: u32,
}

impl Reinsertion {
    /// Plain FIFO: nothing is appended again.
    pub const NONE: Reinsertion = Reinsertion { laps_max: 0, keep_percent: 0, credit_percent: 0 };
}

/// The part of the quota that is left in a flood of writes.
const FLOOD_ONE_IN: u32 = 6;

/// Reinsertion with its credit.
#[derive(Clone, Copy, Debug)]
pub struct FifoReinsertion {
    choice: Reinsertion,
    /// Unused part of recent segments' quota, in blocks.
    credit_blocks: u32,
    /// The same of what is left of that in a flood.
    flood_credit_blocks: u32,
}

impl FifoReinsertion {
    /// A ring from which nothing has been reclaimed yet. It begins with all the credit that there can be: what was hit in a new
    /// cache lies in its first segments, before a round of what was not.
    #[must_use]
    pub fn new(choice: Reinsertion) -> FifoReinsertion {
        let credit_blocks = if choice.credit_percent > 0 { u32::MAX } else { 0 };
        FifoReinsertion { choice, credit_blocks, flood_credit_blocks: credit_blocks }
    }

    /// Whether any block is ever appended again.
    #[must_use]
    pub fn keeps_any(&self) -> bool {
        self.choice.laps_max > 0 && self.choice.keep_percent > 0
    }

    /// Whether a block with so many hits is appended again.
    #[must_use]
    pub fn stays(&self, hits: u8) -> bool {
        self.laps(hits) > 0
    }

    /// Hits of a block after it was appended again: one of those that count is spent.
    #[must_use]
    pub fn hits_left(&self, hits: u8) -> u8 {
        self.laps(hits).saturating_sub(1)
    }

    fn laps(&self, hits: u8) -> u8 {
        hits.min(u8::try_from(self.choice.laps_max).unwrap_or(u8::MAX))
    }

    /// Blocks of a segment with `used_blocks` that may be appended again, with what earlier segments left.
    #[must_use]
    pub fn quota_blocks(&self, used_blocks: u32) -> u32 {
        self.own_quota_blocks(used_blocks).saturating_add(self.credit_blocks).min(used_blocks)
    }

    /// The same while clients wait for room that the disk makes.
    #[must_use]
    pub fn flood_quota_blocks(&self, used_blocks: u32) -> u32 {
        let own = self.own_quota_blocks(used_blocks) / FLOOD_ONE_IN;
        own.saturating_add(self.flood_credit_blocks).min(self.quota_blocks(used_blocks))
    }

    fn own_quota_blocks(&self, used_blocks: u32) -> u32 {
        percent_of(used_blocks, self.choice.keep_percent)
    }

    /// A segment with `used_blocks` of a ring of `ring_blocks` was reclaimed, and `kept_blocks` of it appended again.
    pub fn reclaimed(&mut self, used_blocks: u32, kept_blocks: u32, ring_blocks: u32) {
        let credit_blocks_max = percent_of(ring_blocks, self.choice.credit_percent);
        let left = |credit_blocks: u32, own_blocks: u32| {
            (credit_blocks.min(credit_blocks_max) + own_blocks)
                .saturating_sub(kept_blocks)
                .min(credit_blocks_max)
        };
        let own_blocks = self.own_quota_blocks(used_blocks);
        self.credit_blocks = left(self.credit_blocks, own_blocks);
        self.flood_credit_blocks = left(self.flood_credit_blocks, own_blocks / FLOOD_ONE_IN);
    }
}

/// `percent` of `of`, rounded down.
fn percent_of(of: u32, percent: u32) -> u32 {
    assert!(percent <= 100, "a share is at most all");
    to_u32(u64::from(of) * u64::from(percent) / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Reinsertion = Reinsertion { laps_max: 3, keep_percent: 50, credit_percent: 50 };

    #[test]
    fn a_block_stays_a_lap_for_each_hit_that_counts() {
        let mut ring = FifoReinsertion::new(PLAIN);
        assert_eq!([0, 1, 2, 3].map(|hits| ring.hits_left(hits)), [0, 0, 1, 2]);
        assert_eq!([0, 1, 2, 3].map(|hits| ring.stays(hits)), [false, true, true, true]);
        ring.choice.laps_max = 1;
        assert_eq!([0, 1, 2, 3].map(|hits| ring.hits_left(hits)), [0, 0, 0, 0], "one lap, however often");
        assert!(ring.stays(3) && !ring.stays(0));
        assert!(ring.keeps_any());
        ring.choice.laps_max = 0;
        assert!(!ring.stays(3) && !ring.keeps_any(), "plain FIFO");
    }

    #[test]
    fn unused_quota_is_credit_for_later_segments() {
        let mut ring = FifoReinsertion::new(PLAIN);
        assert_eq!(ring.quota_blocks(100), 100, "the first segments may be kept whole");
        ring.reclaimed(100, 100, 240);
        assert_eq!(ring.credit_blocks, 70, "half of the ring, and half of the segment, less the segment");
        ring.reclaimed(100, 100, 240);
        ring.reclaimed(100, 70, 240);
        assert_eq!((ring.credit_blocks, ring.quota_blocks(101)), (0, 50));
        ring.reclaimed(101, 20, 240);
        assert_eq!((ring.credit_blocks, ring.quota_blocks(101)), (30, 80));
        ring.reclaimed(100, 0, 240);
        assert_eq!(ring.quota_blocks(100), 100, "a segment is at most kept whole");
        ring.reclaimed(100, 0, 240);
        assert_eq!(ring.credit_blocks, 120, "no more than at the beginning");
        ring.reclaimed(100, 100, 240);
        assert_eq!(ring.credit_blocks, 70);
        ring.choice.credit_percent = 0;
        ring.reclaimed(100, 0, 240);
        assert_eq!(ring.quota_blocks(100), 50, "nothing is lent");
    }

    #[test]
    fn a_flood_leaves_a_sixth_with_credit_of_its_own() {
        let mut ring = FifoReinsertion::new(PLAIN);
        assert_eq!(ring.flood_quota_blocks(120), 120, "what is hot may lie in few segments");
        ring.reclaimed(120, 120, 240);
        assert_eq!((ring.flood_credit_blocks, ring.flood_quota_blocks(120)), (10, 20));
        ring.reclaimed(120, 20, 240);
        assert_eq!((ring.flood_credit_blocks, ring.flood_quota_blocks(120)), (0, 10));
        ring.reclaimed(120, 0, 240);
        assert_eq!(ring.flood_quota_blocks(120), 20);
        ring.choice.keep_percent = 0;
        ring.reclaimed(120, 40, 240);
        assert_eq!(ring.flood_quota_blocks(120), 0, "nothing is kept");
    }
}
