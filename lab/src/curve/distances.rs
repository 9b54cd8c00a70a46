//! Stack distances: how many other blocks were accessed since a block was accessed last.
//!
//! An LRU cache of `n` blocks has a block if and only if that number is below `n`, so one pass gives the whole
//! curve (Mattson et al., 1970). The numbers are counted with a binary indexed tree over the order of last
//! accesses, in logarithmic time; some 30 bytes for each distinct block.

use crate::trace::spread::{BlockMap, TracedBlock};

/// Positions that there are room for at the least.
const POSITIONS_MIN: usize = 1024;

/// The blocks in the order of their last access.
pub struct StackDistances {
    /// Where each block's last access stands.
    last: BlockMap<u32>,
    /// Sums of the positions that are a last access, as a binary indexed tree; position 0 is its index 1.
    tree: Vec<u32>,
    /// The position that the next access gets.
    next: usize,
    /// Blocks that are remembered when there is no room for more positions.
    blocks_max: usize,
}

impl Default for StackDistances {
    fn default() -> StackDistances {
        StackDistances::bounded(usize::MAX)
    }
}

impl StackDistances {
    /// No block was accessed.
    #[must_use]
    pub fn new() -> StackDistances {
        StackDistances::default()
    }

    /// No block was accessed. The `blocks_max` blocks that were accessed last are remembered at the least, and twice as
    /// many at the most; the access of any other block counts as its first.
    #[must_use]
    pub fn bounded(blocks_max: usize) -> StackDistances {
        StackDistances { last: BlockMap::default(), tree: Vec::new(), next: 0, blocks_max }
    }

    /// Distinct blocks that are remembered.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.last.len() as u64
    }

    /// Whether a block is remembered.
    #[must_use]
    pub fn remembers(&self, block: TracedBlock) -> bool {
        self.last.contains_key(&block)
    }

    /// Forgets all blocks but these.
    pub fn retain(&mut self, is_kept: impl Fn(TracedBlock) -> bool) {
        self.last.retain(|block, _| is_kept(*block));
        self.compact();
    }

    /// Accesses a block: how many others were accessed since its last time, `None` if this is its first.
    ///
    /// # Panics
    /// If there are more than 2^31 distinct blocks.
    pub fn access(&mut self, block: TracedBlock) -> Option<u64> {
        if self.next == self.tree.len() {
            self.compact();
        }
        let position = u32::try_from(self.next).expect("compacted below 2^32 positions");
        self.next += 1;
        let before = self.last.insert(block, position);
        self.add(position, 1);
        let before = before?;
        let later = self.last.len() as u32 + 1 - self.up_to(before);
        self.add(before, u32::MAX);
        // The access itself is later too.
        Some(u64::from(later - 1))
    }

    /// Adds to a position, modulo 2^32.
    fn add(&mut self, position: u32, what: u32) {
        let mut at = position as usize + 1;
        while at <= self.tree.len() {
            self.tree[at - 1] = self.tree[at - 1].wrapping_add(what);
            at += at & at.wrapping_neg();
        }
    }

    /// Last accesses at this position and before it.
    fn up_to(&self, position: u32) -> u32 {
        let (mut at, mut sum) = (position as usize + 1, 0u32);
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at - 1]);
            at -= at & at.wrapping_neg();
        }
        sum
    }

    /// Moves the last accesses together, and makes room for as many again. The oldest ones go if there are too many.
    fn compact(&mut self) {
        if self.last.len() > self.blocks_max {
            let mut positions: Vec<u32> = self.last.values().copied().collect();
            let too_many = positions.len() - self.blocks_max;
            let (_, oldest, _) = positions.select_nth_unstable(too_many);
            let oldest = *oldest;
            self.last.retain(|_, position| *position >= oldest);
        }
        let mut positions: Vec<&mut u32> = self.last.values_mut().collect();
        positions.sort_unstable();
        for (new, position) in (0..).zip(positions) {
            *position = new;
        }
        self.next = self.last.len();
        self.tree = vec![0; (self.next * 2).max(POSITIONS_MIN)];
        // Every tree node is the sum of the positions below it: pass each on to the next larger one.
        for at in 1..=self.tree.len() {
            self.tree[at - 1] += u32::from(at <= self.next);
            let parent = at + (at & at.wrapping_neg());
            if parent <= self.tree.len() {
                self.tree[parent - 1] += self.tree[at - 1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_bound_forgets_the_oldest_and_changes_nothing_nearer() {
        let mut random = Random::new(4);
        let (mut bounded, mut whole) = (StackDistances::bounded(700), StackDistances::new());
        let mut far = 0;
        for _ in 0..50_000 {
            let block = (0, random.below(3000));
            match (bounded.access(block), whole.access(block)) {
                (None, Some(distance)) => {
                    assert!(distance >= 700, "a block at {distance} was forgotten");
                    far += 1;
                }
                (one, other) => assert_eq!(one, other),
            }
            assert!(bounded.blocks() <= 1401 && bounded.tree.len() <= 1400, "{}", bounded.blocks());
        }
        assert!(far > 10_000, "{far}");
        for distances in [&mut bounded, &mut whole] {
            distances.retain(|(_, block)| block % 2 == 0);
        }
        let near: Vec<u64> = (0..3000).filter(|block| bounded.remembers((0, *block))).collect();
        assert!(near.len() > 300 && near.iter().all(|block| block % 2 == 0), "{}", near.len());
        for block in near {
            assert_eq!(
                bounded.access((0, block)),
                whole.access((0, block)),
                "what is kept keeps its distance"
            );
        }
    }

    #[test]
    fn distances_are_those_of_a_list_that_moves_to_the_front() {
        for (seed, blocks) in [(1, 3), (2, 50), (3, 3000)] {
            let mut random = Random::new(seed);
            let mut distances = StackDistances::new();
            let mut list: Vec<TracedBlock> = Vec::new();
            for _ in 0..20_000 {
                let block = (random.below(2) as u32, random.below(blocks));
                let expected = list.iter().rev().position(|&other| other == block);
                if let Some(back) = expected {
                    list.remove(list.len() - 1 - back);
                }
                list.push(block);
                assert_eq!(distances.access(block), expected.map(|back| back as u64));
            }
            assert_eq!(distances.blocks(), list.len() as u64);
        }
    }
}
