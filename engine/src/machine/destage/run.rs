//! Runs of blocks on their way home, and copies that were written there.

use crate::machine::guard::{Blocks, Hold};
use crate::memory::{BufferId, Memory, Slice};
use crate::number::to_u32;
use crate::units::{BLOCK_BYTES, Place, VolumeIndex};
use alloc::vec::Vec;

/// A copy that was written home: these blocks, from this place on.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    pub first: u64,
    pub blocks: u32,
    pub place: Place,
    /// The life of the place at that time: the place may be freed and rewritten before the origin's flush.
    pub life: u64,
    /// Zeroes recorded at `place`, not a copy of them.
    pub is_zero: bool,
}

impl Copied {
    /// The places of its blocks, with their life.
    pub fn places(&self) -> impl Iterator<Item = (Place, u64)> + use<> {
        let (first, life) = (self.place.0, self.life);
        let blocks = if self.is_zero { 0 } else { self.blocks };
        (first..first + blocks).map(move |place| (Place(place), life))
    }
}

/// A run on its way home.
pub(crate) struct Run {
    pub volume: VolumeIndex,
    pub blocks: Blocks,
    pub copies: Vec<Copied>,
    /// The checksum of each block, as far as they are known.
    pub checksums: Vec<Option<u32>>,
    pub buffer: Option<BufferId>,
    /// Reads of the cache under way.
    pub reads: u32,
    /// Some blocks turned out rotten or unreadable.
    pub is_bad: bool,
}

impl Run {
    /// Blocks in the buffer whose content is not what was written to the cache, with their places.
    pub fn rotten<M: Memory>(&self, memory: &mut M) -> Vec<(u64, Place)> {
        let buffer = self.buffer.expect("a run of data has a buffer");
        let mut rotten = Vec::new();
        for (step, checksum) in (0u32..).zip(&self.checksums) {
            let offset_bytes = to_u32(u64::from(step) * BLOCK_BYTES);
            let slice = Slice { buffer, offset_bytes, len_bytes: to_u32(BLOCK_BYTES) };
            if checksum.is_some_and(|checksum| memory.checksum(slice) != checksum) {
                let block = self.blocks.first + u64::from(step);
                rotten.push((block, self.place_of(block)));
            }
        }
        rotten
    }

    /// The place of one of its blocks.
    pub fn place_of(&self, block: u64) -> Place {
        let copy =
            self.copies.iter().rfind(|copy| copy.first <= block).expect("a run has copies of all its blocks");
        Place(copy.place.0 + to_u32(block - copy.first))
    }

    /// A run of zeroes that lie nowhere.
    pub fn of_zeroes(volume: VolumeIndex, copy: Copied) -> Run {
        Run {
            volume,
            blocks: Blocks { first: copy.first, count: u64::from(copy.blocks) },
            copies: alloc::vec![copy],
            checksums: Vec::new(),
            buffer: None,
            reads: 0,
            is_bad: false,
        }
    }
}

/// Blocks that were written home and wait for the origin's flush.
pub(crate) struct Written {
    pub blocks: Blocks,
    pub copies: Vec<Copied>,
    /// The run's hold of the guard (a client's write-through has none).
    pub hold: Option<Hold>,
}
