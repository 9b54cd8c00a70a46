//! A cache without a device that the policy drives.
//!
//! So a store drives it, too; only that a store reclaims whole segments, where this ring reclaims block by block.

use super::Forebay;
use super::blocks::Blocks;
use crate::units::PieceKey;

/// The cache.
#[derive(Clone, Debug)]
pub struct Ring {
    policy: Forebay,
    blocks: Blocks,
}

impl Ring {
    /// An empty cache of `size_blocks`.
    #[must_use]
    pub fn new(size_blocks: u32) -> Ring {
        Ring { policy: Forebay::new(size_blocks), blocks: Blocks::new(size_blocks) }
    }

    /// Blocks in the cache.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Whether `block` is in the cache.
    #[must_use]
    pub fn contains(&self, block: PieceKey) -> bool {
        self.blocks.mark(block).is_some()
    }

    /// Times that a block was appended again.
    #[must_use]
    pub fn appended_again(&self) -> u64 {
        self.blocks.appended_again()
    }

    /// Whether it is a hit. What is missed enters, if the policy wants it.
    pub fn access(&mut self, block: PieceKey) -> bool {
        self.policy.accessed(block, || self.blocks.mark(block));
        self.blocks.access(block, &mut self.policy.judge())
    }

    #[cfg(test)]
    pub(super) fn order(&self) -> super::Order {
        self.policy.duel.order()
    }
}
