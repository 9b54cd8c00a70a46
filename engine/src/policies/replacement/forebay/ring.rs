//! A cache without a device that the policy drives: a ring of blocks, the oldest first, and what is known of each.
//!
//! So a store drives it, too; only that a store reclaims whole segments, where this ring reclaims block by block.

use super::{Forebay, Mark, SAMPLE_BLOCKS};
use crate::number::{index, to_u32};
use crate::prng::Prng;
use crate::table::frame_lists::{FrameLists, List};
use crate::table::key_index::KeyIndex;
use crate::units::PieceKey;
use alloc::vec::Vec;

/// Blocks that are looked at for one that leaves, at most: of so many, the one that is worth least.
const LOOKS_MAX: u32 = 60;
/// The policy's bar is moved at each such miss of a full cache.
const GAUGE_EVERY: u64 = 4;
/// The ring.
const RING: List = List(0);
/// Seed of the draws.
const SEED: u64 = 1;

/// A cached block.
#[derive(Clone, Copy, Debug)]
struct Cached {
    block: PieceKey,
    mark: Mark,
}

/// The cache.
#[derive(Clone, Debug)]
pub struct Ring {
    policy: Forebay,
    size_blocks: u32,
    cached: Vec<Cached>,
    by_block: KeyIndex,
    ring: FrameLists,
    prng: Prng,
    /// Misses of the full cache.
    misses: u64,
    /// Blocks that were appended again.
    appended_again: u64,
}

impl Ring {
    /// An empty cache of `size_blocks`.
    #[must_use]
    pub fn new(size_blocks: u32) -> Ring {
        Ring {
            policy: Forebay::new(size_blocks),
            size_blocks,
            cached: Vec::with_capacity(index(size_blocks)),
            by_block: KeyIndex::new(size_blocks),
            ring: FrameLists::new(1, size_blocks, 1),
            prng: Prng::new(SEED),
            misses: 0,
            appended_again: 0,
        }
    }

    /// Blocks in the cache.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.cached.len()
    }

    /// Whether `block` is in the cache.
    #[must_use]
    pub fn contains(&self, block: PieceKey) -> bool {
        self.find(block).is_some()
    }

    /// Times that a block was appended again.
    #[must_use]
    pub fn appended_again(&self) -> u64 {
        self.appended_again
    }

    /// Whether it is a hit. What is missed enters, if the policy wants it.
    pub fn access(&mut self, block: PieceKey) -> bool {
        self.policy.accessed(block);
        if let Some(slot) = self.find(block) {
            let cached = &mut self.cached[index(slot)];
            cached.mark = self.policy.hit(cached.mark);
            return true;
        }
        let mark = self.policy.arrives(block);
        let slot = if self.cached.len() < index(self.size_blocks) {
            self.cached.push(Cached { block, mark });
            to_u32(self.cached.len() - 1)
        } else {
            self.gauge();
            if !self.policy.enters(mark) {
                self.policy.left(block, mark);
                return false;
            }
            let slot = self.make_room();
            self.cached[index(slot)] = Cached { block, mark };
            slot
        };
        self.by_block.insert(block.0, slot);
        self.ring.push_back(RING, slot);
        false
    }

    fn find(&self, block: PieceKey) -> Option<u32> {
        self.by_block.find(block.0, |slot| self.cached[index(slot)].block.0)
    }

    fn gauge(&mut self) {
        self.misses += 1;
        if self.misses.is_multiple_of(GAUGE_EVERY) {
            let (prng, cached) = (&mut self.prng, &self.cached);
            let size_blocks = self.size_blocks;
            self.policy.gauge((0..SAMPLE_BLOCKS).map(|_| cached[index(prng.below(size_blocks))].mark));
        }
    }

    /// The slot of a block that left.
    fn make_room(&mut self) -> u32 {
        let mut least = None;
        for _ in 0..LOOKS_MAX.min(self.size_blocks) {
            let slot = self.ring.first(RING).expect("a full cache has blocks");
            let mark = self.cached[index(slot)].mark;
            if !self.policy.stays(mark) {
                return self.drop_block(slot);
            }
            self.ring.remove(slot);
            self.ring.push_back(RING, slot);
            self.appended_again += 1;
            let worth = self.policy.worth(mark);
            if least.is_none_or(|(least_worth, _)| worth < least_worth) {
                least = Some((worth, slot));
            }
        }
        let (_, slot) = least.expect("at least one was looked at");
        self.appended_again -= 1;
        self.drop_block(slot)
    }

    fn drop_block(&mut self, slot: u32) -> u32 {
        let Cached { block, mark } = self.cached[index(slot)];
        self.policy.left(block, mark);
        let cached = &self.cached;
        self.by_block.remove(block.0, |slot| cached[index(slot)].block.0);
        self.ring.remove(slot);
        slot
    }
}
