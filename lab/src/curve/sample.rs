//! The sample: all accesses to the blocks whose hash is below a threshold.

use super::Counts;
use crate::trace::spread::{self, BlockMap, TracedBlock};
use engine::policies::replacement::Access;
use engine::units::Nanos;

/// An access to a sampled block.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampledAccess {
    /// The block's number in the sample, in order of arrival.
    pub(super) piece: u32,
    pub(super) access: Access,
    pub(super) at: Nanos,
}

/// The sampled accesses, in their order.
pub(super) struct Sample {
    /// Blocks with a hash below this are in it; `None`: all are.
    threshold: Option<u64>,
    pieces: BlockMap<u32>,
    pub(super) accesses: Vec<SampledAccess>,
    pub(super) counts: Counts,
}

impl Sample {
    /// A sample of about `wanted` of `blocks` blocks.
    pub(super) fn new(wanted: u32, blocks: u64) -> Sample {
        let threshold = (u128::from(wanted) << 64).checked_div(u128::from(blocks)).unwrap_or(u128::MAX);
        Sample {
            threshold: u64::try_from(threshold).ok(),
            pieces: BlockMap::default(),
            accesses: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The share of all blocks that is looked at, as it was aimed at.
    pub(super) fn rate(&self) -> f64 {
        self.threshold.map_or(1.0, |threshold| threshold as f64 / (u64::MAX as f64 + 1.0))
    }

    /// Distinct blocks in it.
    pub(super) fn pieces(&self) -> u32 {
        self.pieces.len() as u32
    }

    /// Takes an access in if it is to a block of the sample, and tells whether it is.
    pub(super) fn access(&mut self, block: TracedBlock, access: Access, at: Nanos) -> bool {
        if self.threshold.is_some_and(|threshold| spread::of_block(block) >= threshold) {
            return false;
        }
        let next = self.pieces();
        let piece = *self.pieces.entry(block).or_insert(next);
        self.accesses.push(SampledAccess { piece, access, at });
        self.counts.add(access);
        true
    }

    /// The size of the small cache that stands for one of `blocks` blocks.
    pub(super) fn scaled(&self, blocks: u64) -> u64 {
        (blocks as f64 * self.rate()).round() as u64
    }

    /// The hits among `all` accesses, from those in the sample.
    ///
    /// A block that is accessed much more than others, and so is nearly always hit, is in the sample or is
    /// not: either way the sample's number of accesses is not what it should be. The difference is counted as
    /// hits (SHARDS-adj). Never less than none, nor more than all; `None` if there is nothing to tell from.
    pub(super) fn ratio(&self, hits: u64, sampled: u64, all: u64) -> Option<f64> {
        corrected(hits as f64, sampled as f64, all as f64 * self.rate())
    }
}

/// The hit ratio of all accesses, from the hits and the accesses of a sample that should have had `expected` of them.
pub(super) fn corrected(hits: f64, sampled: f64, expected: f64) -> Option<f64> {
    (sampled > 0.0 && expected > 0.0).then(|| ((hits + expected - sampled) / expected).clamp(0.0, 1.0))
}
