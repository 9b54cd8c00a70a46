//! Whether blocks are valued by what was learned, or by recency: two small caches tell.
//!
//! What was learned may be of little use: where a load changes before it is understood, or where what comes back and what is
//! dead look alike. There the order of LRU has more hits. So each order has a cache of its own, of a sample of all blocks and
//! as much smaller, and the order of that one is used which had more hits lately.

use super::Order;
use super::blocks::Blocks;
use super::evidence::Evidence;
use super::judge::{Judge, Memory};
use crate::number::index;
use crate::prng::scatter;
use crate::table::frame_lists::{FrameLists, List};
use crate::table::key_index::KeyIndex;
use crate::units::PieceKey;
use alloc::vec;
use alloc::vec::Vec;

/// Blocks of each of the two caches, at most.
const BLOCKS_MAX: u32 = 1024;
/// The list of [`Recent`].
const USED: List = List(0);

/// The two caches, and which is ahead.
#[derive(Clone, Debug)]
pub(super) struct Duel {
    /// Blocks whose hashes are up to this one are looked at.
    hash_max: u64,
    learned: Blocks,
    memory: Memory,
    recent: Recent,
    /// Hits that what was learned had more than recency, from `-lead_max` to `lead_max`.
    lead: i64,
    /// As many as a cache has blocks. Another order wants other blocks, each of which costs a miss: so an order is left
    /// when it cost as much, and a load that turns to and fro faster than that does not drag the cache along.
    lead_max: i64,
    order: Order,
}

impl Duel {
    /// Nothing was seen yet, in a cache of `size_blocks`.
    pub(super) fn new(size_blocks: u32) -> Duel {
        let blocks = size_blocks.min(BLOCKS_MAX);
        Duel {
            hash_max: u64::MAX / u64::from(size_blocks) * u64::from(blocks),
            learned: Blocks::new(blocks),
            memory: Memory::new(blocks),
            recent: Recent::new(blocks),
            lead: 0,
            lead_max: i64::from(blocks),
            order: Order::Learned,
        }
    }

    /// The order by which blocks are valued.
    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// `block` is asked for.
    pub(super) fn accessed(&mut self, block: PieceKey, evidence: &Evidence) {
        // Other blocks than those that are watched, and other bits than those by which ghosts are found.
        if scatter(scatter(block.0)) > self.hash_max {
            return;
        }
        let mut judge = Judge { evidence, memory: &mut self.memory, order: Order::Learned };
        let is_hit = self.learned.access(block, &mut judge);
        let is_recent_hit = self.recent.access(block);
        self.lead += i64::from(is_hit) - i64::from(is_recent_hit);
        if self.lead >= self.lead_max {
            (self.lead, self.order) = (self.lead_max, Order::Learned);
        } else if self.lead <= -self.lead_max {
            (self.lead, self.order) = (-self.lead_max, Order::Recency);
        }
    }
}

/// A cache of the blocks that were used last.
#[derive(Clone, Debug)]
struct Recent {
    blocks: Vec<PieceKey>,
    by_block: KeyIndex,
    /// From the block that was not used the longest.
    lists: FrameLists,
    used: u32,
}

impl Recent {
    fn new(size_blocks: u32) -> Recent {
        Recent {
            blocks: vec![PieceKey(0); index(size_blocks)],
            by_block: KeyIndex::new(size_blocks),
            lists: FrameLists::new(1, size_blocks, 1),
            used: 0,
        }
    }

    /// Whether it is a hit.
    fn access(&mut self, block: PieceKey) -> bool {
        let blocks = &self.blocks;
        let key_of = |slot: u32| blocks[index(slot)].0;
        if let Some(slot) = self.by_block.find(block.0, key_of) {
            self.lists.remove(slot);
            self.lists.push_back(USED, slot);
            return true;
        }
        let slot = if index(self.used) < self.blocks.len() {
            self.used += 1;
            self.used - 1
        } else {
            let slot = self.lists.first(USED).expect("a full cache has blocks");
            self.by_block.remove(key_of(slot), key_of);
            self.lists.remove(slot);
            slot
        };
        self.blocks[index(slot)] = block;
        self.by_block.insert(block.0, slot);
        self.lists.push_back(USED, slot);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::Ring;
    use super::*;
    use crate::prng::Prng;
    use alloc::collections::VecDeque;

    const SIZE: u32 = 500;

    fn order_after(blocks: impl Iterator<Item = u64>) -> Order {
        let mut ring = Ring::new(SIZE);
        blocks.for_each(|block| {
            ring.access(PieceKey(block));
        });
        ring.order()
    }

    #[test]
    fn a_loop_is_valued_by_what_was_learned() {
        assert_eq!(order_after((0..40_000).map(|at| at % 700)), Order::Learned);
    }

    /// Blocks come back by chance for as long as a window is over them, so their ages tell nothing until they are dead.
    #[test]
    fn a_window_that_moves_on_is_valued_by_recency_and_a_loop_after_it_is_not() {
        let mut prng = Prng::new(5);
        let window: Vec<u64> = (0..150_000).map(|at| at / 10 + u64::from(prng.below(4000))).collect();
        assert_eq!(order_after(window.iter().copied()), Order::Recency);
        let then_loop = (0..20_000).map(|at| (1 << 30) | (at % 700));
        assert_eq!(order_after(window.iter().copied().chain(then_loop)), Order::Learned);
    }

    #[test]
    fn recent_is_lru() {
        let mut prng = Prng::new(6);
        let (mut recent, mut model) = (Recent::new(20), VecDeque::new());
        for _ in 0..5000 {
            let block = u64::from(prng.below(40).min(prng.below(40)));
            let place = model.iter().position(|&other| other == block);
            assert_eq!(recent.access(PieceKey(block)), place.is_some());
            match place {
                Some(place) => drop(model.remove(place)),
                None if model.len() == 20 => drop(model.pop_front()),
                None => (),
            }
            model.push_back(block);
        }
    }
}
