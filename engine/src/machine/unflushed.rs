//! The blocks that were written to an origin, and that no flush of it is known to cover.
//!
//! The slots of a [guard](super::guard) say the same of regions of 16 blocks, and regions share slots: on a volume of a
//! tebibyte a few thousand scattered writes would keep nearly everything that is read out of the cache until
//! the next flush (rule 2). So this is asked where a slot says so.

use crate::machine::guard::Blocks;
use alloc::collections::BTreeMap;

/// Ranges that are remembered: some 200 KiB of them. What finds no room is left to the slots.
const RANGES_MAX: usize = 4096;

/// The end of a range, and the epoch in which it was last written.
#[derive(Clone, Copy)]
struct Written {
    end: u64,
    epoch: u64,
}

/// The blocks of one volume that were written and are not flushed.
#[derive(Default)]
pub(super) struct Unflushed {
    /// Ranges that do not overlap, by their first blocks.
    ranges: BTreeMap<u64, Written>,
    /// The last epoch of a write for which there was no room.
    forgotten_epoch: u64,
}

impl Unflushed {
    /// Notes that blocks were written in an epoch.
    pub fn note(&mut self, blocks: Blocks, mut epoch: u64) {
        let (mut first, end) = (blocks.first, blocks.end());
        while let Some((start, written)) = self.last_before(end)
            && written.end > first
        {
            self.ranges.remove(&start);
            epoch = epoch.max(written.epoch);
            if written.end > end {
                self.ranges.insert(end, written);
            }
            if start < first {
                self.ranges.insert(start, Written { end: first, ..written });
            }
        }
        // Writes in a row are one range.
        if let Some((start, written)) = self.last_before(first)
            && (written.end, written.epoch) == (first, epoch)
        {
            first = start;
        }
        if self.ranges.len() < RANGES_MAX || self.ranges.contains_key(&first) {
            self.ranges.insert(first, Written { end, epoch });
        } else {
            self.forgotten_epoch = self.forgotten_epoch.max(epoch);
        }
    }

    /// Notes that a flush covered all writes up to an epoch.
    pub fn flushed(&mut self, epoch: u64) {
        self.ranges.retain(|_, written| written.epoch > epoch);
    }

    /// Whether some of these blocks may have been written after the epoch that a flush covered.
    pub fn has_any(&self, blocks: Blocks, flushed_epoch: u64) -> bool {
        let back = self.ranges.range(..blocks.end()).rev();
        let mut touched = back.take_while(|(_, written)| written.end > blocks.first);
        self.forgotten_epoch > flushed_epoch || touched.any(|(_, written)| written.epoch > flushed_epoch)
    }

    /// The last range that begins before a block.
    fn last_before(&self, block: u64) -> Option<(u64, Written)> {
        self.ranges.range(..block).next_back().map(|(&first, &written)| (first, written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const BLOCKS: u64 = 64;

    proptest! {
        /// The same as a list of the last epoch of each block.
        #[test]
        fn ranges_say_what_single_blocks_do(
            steps in proptest::collection::vec((0..BLOCKS, 1..20u64, 0..8u8, 0..4u64), 1..60),
        ) {
            let mut unflushed = Unflushed::default();
            let mut epochs = vec![0; BLOCKS as usize + 20];
            let (mut epoch, mut flushed_epoch) = (1, 0);
            for (first, count, kind, back) in steps {
                match kind {
                    0 => {
                        flushed_epoch = flushed_epoch.max(epoch - back.min(epoch));
                        unflushed.flushed(flushed_epoch);
                    }
                    1 => epoch += 1,
                    _ => {
                        unflushed.note(Blocks { first, count }, epoch);
                        epochs[first as usize..(first + count) as usize].fill(epoch);
                    }
                }
                for at in 0..BLOCKS {
                    let asked = Blocks { first: at, count };
                    let expected = epochs[at as usize..(at + count) as usize].iter().any(|&e| e > flushed_epoch);
                    prop_assert_eq!(unflushed.has_any(asked, flushed_epoch), expected, "{:?}", asked);
                }
            }
        }
    }

    #[test]
    fn what_finds_no_room_counts_as_written_everywhere_until_a_flush() {
        let mut unflushed = Unflushed::default();
        for number in 0..RANGES_MAX as u64 {
            unflushed.note(Blocks { first: 2 * number, count: 1 }, 1);
        }
        assert!(!unflushed.has_any(Blocks { first: 1, count: 1 }, 0));
        unflushed.note(Blocks { first: 1 << 40, count: 1 }, 2);
        assert!(unflushed.has_any(Blocks { first: 1, count: 1 }, 1));
        unflushed.flushed(2);
        assert!(!unflushed.has_any(Blocks { first: 0, count: 1 << 41 }, 2));
        unflushed.note(Blocks { first: 8, count: 1 }, 3);
        assert!(!unflushed.has_any(Blocks { first: 1, count: 1 }, 2));
    }
}
