//! What the cache holds of a volume, for whoever wants to compare it with the origin.

use crate::engine::Engine;
use crate::units::VolumeIndex;
use alloc::vec::Vec;

impl Engine {
    /// The blocks that the cache holds of a volume, in rising order. Takes time and memory in proportion to
    /// the whole index.
    #[must_use]
    pub fn cached_blocks(&self, volume: VolumeIndex) -> Vec<u64> {
        let mut blocks = Vec::new();
        self.index.for_each(|key, _| {
            if key.volume() == volume {
                blocks.push(key.block());
            }
        });
        blocks.sort_unstable();
        blocks
    }
}
