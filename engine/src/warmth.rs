//! Warmth: the choice of what a warm list keeps, in bounded memory, from blocks that come in any order.

use crate::engine::CachedRun;
use crate::format::ListedExtent;
use crate::number::{index, to_u16, wide};
use crate::units::{VOLUME_BLOCKS_MAX, VOLUMES_MAX};
use alloc::vec::Vec;

/// Bits of an entry: how little it is worth, then where it is, then how long it is less one.
const LENGTH_BITS: u32 = 17;
const BLOCK_BITS: u32 = 35;
const VOLUME_BITS: u32 = 4;
const WORTH_BITS: u32 = 8;
/// The highest worth that is told from others.
pub const WORTH_MAX: u32 = (1 << WORTH_BITS) - 1;

const _: () = assert!(LENGTH_BITS + BLOCK_BITS + VOLUME_BITS + WORTH_BITS == u64::BITS);
const _: () = assert!(VOLUME_BLOCKS_MAX <= 1 << BLOCK_BITS && VOLUMES_MAX <= 1 << VOLUME_BITS);

/// Runs of blocks, of which the least worth are given up when there are too many.
#[derive(Debug)]
pub struct Warmth {
    entries: Vec<u64>,
    entries_max: usize,
}

impl Warmth {
    /// Nothing yet, and never more than `entries_max` runs: 8 bytes of memory each.
    #[must_use]
    pub fn new(entries_max: u32) -> Warmth {
        Warmth { entries: Vec::new(), entries_max: index(entries_max.max(16)) }
    }

    /// Adds blocks that are cached.
    pub fn add_cached(&mut self, run: CachedRun) {
        let CachedRun { volume, first_block, blocks, hits } = run;
        self.add(ListedExtent {
            worth: u32::from(hits),
            volume: u16::from(volume.0),
            first_block,
            blocks: u64::from(blocks),
        });
    }

    /// Adds blocks; more worth than [`WORTH_MAX`] counts as that.
    ///
    /// # Panics
    /// If volume or blocks are beyond what a cache can have.
    pub fn add(&mut self, extent: ListedExtent) {
        assert!(usize::from(extent.volume) < VOLUMES_MAX, "a cache has no more volumes");
        let end = extent.first_block + extent.blocks;
        assert!(end <= VOLUME_BLOCKS_MAX, "a volume has no more blocks");
        let mut first_block = extent.first_block;
        while first_block < end {
            let blocks = (end - first_block).min(1 << LENGTH_BITS);
            self.entries.push(pack(ListedExtent { first_block, blocks, ..extent }));
            first_block += blocks;
            if self.entries.len() >= self.entries_max {
                self.make_room();
            }
        }
    }

    /// The runs, the most worth first, then by volume, rising and joined.
    #[must_use]
    pub fn chosen(mut self) -> Vec<ListedExtent> {
        self.join();
        self.entries.into_iter().map(unpack).collect()
    }

    /// Gives up a quarter of the runs, or more: every second one of the least worth, until that is enough.
    fn make_room(&mut self) {
        self.join();
        while self.entries.len() > self.entries_max / 4 * 3 {
            let least = worth_of(*self.entries.last().expect("there are many"));
            let start = self.entries.partition_point(|entry| worth_of(*entry) > least);
            // They came in the order of hashes: what is given up lies anywhere.
            let mut seen = 0;
            self.entries.retain(|_| {
                seen += 1;
                seen <= start || (seen - start) % 2 == 0
            });
        }
    }

    fn join(&mut self) {
        self.entries.sort_unstable();
        let mut joined: Vec<u64> = Vec::with_capacity(self.entries.len());
        for &entry in &self.entries {
            let next = unpack(entry);
            if let Some(last) = joined.last_mut() {
                let before = unpack(*last);
                let end = before.first_block + before.blocks;
                let blocks = end.max(next.first_block + next.blocks) - before.first_block;
                if (before.worth, before.volume) == (next.worth, next.volume) && next.first_block <= end {
                    if blocks <= 1 << LENGTH_BITS {
                        *last = pack(ListedExtent { blocks, ..before });
                        continue;
                    }
                    let rest = (next.first_block + next.blocks).saturating_sub(end);
                    if rest > 0 {
                        joined.push(pack(ListedExtent { first_block: end, blocks: rest, ..next }));
                    }
                    continue;
                }
            }
            joined.push(entry);
        }
        self.entries = joined;
    }
}

fn pack(extent: ListedExtent) -> u64 {
    let ListedExtent { worth, volume, first_block, blocks } = extent;
    let worthless = u64::from(WORTH_MAX - worth.min(WORTH_MAX));
    let place = u64::from(volume) << BLOCK_BITS | first_block;
    (worthless << (VOLUME_BITS + BLOCK_BITS) | place) << LENGTH_BITS | (blocks - 1)
}

fn worth_of(entry: u64) -> u32 {
    WORTH_MAX - crate::number::to_u32(entry >> (VOLUME_BITS + BLOCK_BITS + LENGTH_BITS))
}

fn unpack(entry: u64) -> ListedExtent {
    let place = entry >> LENGTH_BITS;
    ListedExtent {
        worth: worth_of(entry),
        volume: to_u16(place >> BLOCK_BITS & (wide(VOLUMES_MAX) - 1)),
        first_block: place & ((1 << BLOCK_BITS) - 1),
        blocks: (entry & ((1 << LENGTH_BITS) - 1)) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(worth: u32, volume: u16, first_block: u64, blocks: u64) -> ListedExtent {
        ListedExtent { worth, volume, first_block, blocks }
    }

    #[test]
    fn what_is_worth_most_comes_first_and_neighbours_are_one() {
        let mut warmth = Warmth::new(1000);
        for added in [
            extent(0, 0, 5, 1),
            extent(3, 1, 16, 16),
            extent(3, 1, 0, 16),
            extent(3, 0, 9, 1),
            extent(3, 0, 9, 1),
            extent(700, 15, VOLUME_BLOCKS_MAX - 1, 1),
            extent(0, 0, 4, 1),
        ] {
            warmth.add(added);
        }
        let expected = [
            extent(WORTH_MAX, 15, VOLUME_BLOCKS_MAX - 1, 1),
            extent(3, 0, 9, 1),
            extent(3, 1, 0, 32),
            extent(0, 0, 4, 2),
        ];
        assert_eq!(warmth.chosen(), expected);
    }

    #[test]
    fn long_runs_are_kept_whole() {
        let mut warmth = Warmth::new(1000);
        warmth.add(extent(1, 0, 3, 1 << 20));
        warmth.add(extent(1, 0, 1 << 19, 1 << 20));
        let chosen = warmth.chosen();
        let mut end = 3;
        for run in &chosen {
            assert_eq!(run.first_block, end, "{chosen:?}");
            end += run.blocks;
        }
        assert_eq!(end, (1 << 19) + (1 << 20));
    }

    #[test]
    fn too_many_runs_cost_the_least_worth_first() {
        let mut warmth = Warmth::new(1024);
        for at in 0..10_000 {
            let worth = if at % 40 == 0 { 3 } else { 0 };
            warmth.add(extent(worth, 0, crate::prng::scatter(at) >> 30, 1));
            assert!(warmth.entries.len() < 1024);
        }
        let chosen = warmth.chosen();
        let best = chosen.iter().filter(|run| run.worth == 3).map(|run| run.blocks).sum::<u64>();
        assert_eq!(best, 250, "all that is worth most is kept");
        assert!(chosen.len() > 500, "{}", chosen.len());
    }
}
