//! The blocks of a cache without a device: in a ring, the oldest first, with their marks.

use super::judge::Judge;
use super::{Mark, SAMPLE_BLOCKS};
use crate::number::{index, to_u32};
use crate::prng::Prng;
use crate::table::frame_lists::{FrameLists, List};
use crate::table::key_index::KeyIndex;
use crate::units::PieceKey;
use alloc::vec::Vec;

/// Blocks that are looked at for one that leaves, at most: of so many, the one that is worth least.
const LOOKS_MAX: u32 = 60;
/// The bar is moved at each such miss of a full cache.
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

/// The blocks.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
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

impl Blocks {
    /// None, of `size_blocks` at the most.
    pub(super) fn new(size_blocks: u32) -> Blocks {
        Blocks {
            size_blocks,
            cached: Vec::with_capacity(index(size_blocks)),
            by_block: KeyIndex::new(size_blocks),
            ring: FrameLists::new(1, size_blocks, 1),
            prng: Prng::new(SEED),
            misses: 0,
            appended_again: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.cached.len()
    }

    pub(super) fn appended_again(&self) -> u64 {
        self.appended_again
    }

    /// The mark of `block`, if it is cached.
    pub(super) fn mark(&self, block: PieceKey) -> Option<Mark> {
        self.find(block).map(|slot| self.cached[index(slot)].mark)
    }

    /// Whether it is a hit. What is missed enters, if the judge wants it.
    pub(super) fn access(&mut self, block: PieceKey, judge: &mut Judge<'_>) -> bool {
        if let Some(slot) = self.find(block) {
            let cached = &mut self.cached[index(slot)];
            cached.mark = judge.hit(cached.mark);
            return true;
        }
        let mark = judge.arrives(block);
        let slot = if self.cached.len() < index(self.size_blocks) {
            self.cached.push(Cached { block, mark });
            to_u32(self.cached.len() - 1)
        } else {
            self.gauge(judge);
            if !judge.enters(mark) {
                judge.left(block, mark);
                return false;
            }
            let slot = self.make_room(judge);
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

    fn gauge(&mut self, judge: &mut Judge<'_>) {
        self.misses += 1;
        if self.misses.is_multiple_of(GAUGE_EVERY) {
            let (prng, cached) = (&mut self.prng, &self.cached);
            let size_blocks = self.size_blocks;
            judge.gauge((0..SAMPLE_BLOCKS).map(|_| cached[index(prng.below(size_blocks))].mark));
        }
    }

    /// The slot of a block that left.
    fn make_room(&mut self, judge: &mut Judge<'_>) -> u32 {
        let mut least = None;
        for _ in 0..LOOKS_MAX.min(self.size_blocks) {
            let slot = self.ring.first(RING).expect("a full cache has blocks");
            let mark = self.cached[index(slot)].mark;
            if !judge.stays(mark) {
                return self.drop_block(slot, judge);
            }
            self.ring.remove(slot);
            self.ring.push_back(RING, slot);
            self.appended_again += 1;
            let worth = judge.worth(mark);
            if least.is_none_or(|(least_worth, _)| worth < least_worth) {
                least = Some((worth, slot));
            }
        }
        let (_, slot) = least.expect("at least one was looked at");
        self.appended_again -= 1;
        self.drop_block(slot, judge)
    }

    fn drop_block(&mut self, slot: u32, judge: &mut Judge<'_>) -> u32 {
        let Cached { block, mark } = self.cached[index(slot)];
        judge.left(block, mark);
        let cached = &self.cached;
        self.by_block.remove(block.0, |slot| cached[index(slot)].block.0);
        self.ring.remove(slot);
        slot
    }
}
