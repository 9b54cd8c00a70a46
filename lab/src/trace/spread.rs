//! A hash that spreads block numbers evenly: for tables of blocks, and to choose blocks by (SHARDS).
//!
//! The same on every machine and in every run; no protection against somebody who chooses block numbers so
//! that they meet: such a trace is slow, not wrong.

use engine::prng::scatter;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A block of a volume of a trace: the volume's number and the block's.
pub type TracedBlock = (u32, u64);

/// A table of blocks.
pub type BlockMap<V> = HashMap<TracedBlock, V, BuildHasherDefault<Spread>>;
/// A set of blocks.
pub type BlockSet = HashSet<TracedBlock, BuildHasherDefault<Spread>>;

/// The finalizer of splitmix64 over all that is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    state: u64,
}

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.state = scatter(self.state ^ number);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

/// The hash of a block.
#[must_use]
pub fn of_block((volume, block): TracedBlock) -> u64 {
    let mut spread = Spread::default();
    spread.write_u32(volume);
    spread.write_u64(block);
    spread.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_chosen_evenly_and_always_the_same() {
        assert_eq!(of_block((0, 0)), 0xa706_dd2f_4d19_7e6f);
        let chosen = (0..100_000).filter(|&block| of_block((3, block)) < u64::MAX / 100).count();
        assert!((900..1100).contains(&chosen), "{chosen} of 100000, not a hundredth");
    }
}
