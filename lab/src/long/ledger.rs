//! The ledger: content that each block of the volumes must read as.
//!
//! The ledger follows requests, not the engine: a block has the content of the last change that was
//! answered. While a change is under way, and for a read that a change overlapped in time, it does not judge;
//! where two changes overlapped it learns from the first undisturbed read which one came last. After a
//! discard a block may read as zeroes or as before: it is not judged until it is written.

use super::sparse::Sparse;
use super::tag::{self, ZEROES, parts};
use engine::units::{SECTOR_BYTES, SectorRange, VolumeIndex};

/// The block was never written.
const IMAGE: u64 = u64::MAX;
/// The block has one of several contents, always the same.
const UNKNOWN: u64 = u64::MAX - 1;
/// The block was discarded.
const DROPPED: u64 = u64::MAX - 2;

/// A read returned data that is not the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Block {block} of volume {} read as {found:#018x}, not {expected:#018x}", volume.0)]
pub struct Mismatch {
    /// The volume.
    pub volume: VolumeIndex,
    /// The block.
    pub block: u64,
    /// The tag that it must have.
    pub expected: u64,
    /// The tag that was read.
    pub found: u64,
}

/// Content that a change puts into its range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Content of the write with this number.
    Write(u64),
    /// Zeroes.
    Zeroes,
    /// Unknown content.
    Discard,
}

#[derive(Clone, Copy)]
struct Block {
    /// Its content: a tag, or one of the three above.
    content: u64,
    /// The time when a change of it last began or ended.
    changed: u64,
    /// Changes of it under way.
    changes: u32,
    /// Whether more than one was under way at some time since there was none.
    is_contested: bool,
}

/// The content of all volumes. Time is a counter of its own.
pub(super) struct Ledger {
    volumes: Vec<Sparse<Block>>,
    time: u64,
    /// Blocks judged.
    pub verified_blocks: u64,
    /// Blocks that could not be.
    pub unverified_blocks: u64,
}

impl Ledger {
    /// A ledger of untouched volumes of so many blocks.
    pub(super) fn new(blocks: impl Iterator<Item = u64>) -> Ledger {
        let empty = Block { content: IMAGE, changed: 0, changes: 0, is_contested: false };
        let volumes = blocks.map(|blocks| Sparse::new(blocks, empty)).collect();
        Ledger { volumes, time: 0, verified_blocks: 0, unverified_blocks: 0 }
    }

    /// Now, for [`Ledger::read_ends`].
    pub(super) fn time(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    pub(super) fn change_begins(&mut self, volume: VolumeIndex, range: SectorRange) {
        let time = self.time();
        for at in range.first_block()..range.end_block() {
            let block = self.volumes[volume.at()].get_mut(at);
            block.is_contested |= block.changes > 0;
            block.changes += 1;
            block.changed = time;
        }
    }

    /// A change was answered, with success or without.
    pub(super) fn change_ends(
        &mut self,
        volume: VolumeIndex,
        range: SectorRange,
        change: Change,
        is_done: bool,
    ) {
        let time = self.time();
        let is_aligned = range.is_block_aligned();
        for part in parts(range.start * SECTOR_BYTES, range.sectors * SECTOR_BYTES) {
            let block = self.volumes[volume.at()].get_mut(part.block);
            assert!(block.changes > 0, "a change ends once");
            block.changes -= 1;
            block.changed = time;
            let old = if block.content == IMAGE { tag::of_image(volume, part.block) } else { block.content };
            let new = match change {
                Change::Write(version) => tag::of_write(version, is_aligned.then_some(part.block)),
                Change::Zeroes => ZEROES,
                Change::Discard => DROPPED,
            };
            block.content = if new == DROPPED || old == DROPPED && !part.is_whole() {
                DROPPED
            } else if block.is_contested || !is_done || old == UNKNOWN && !part.is_whole() {
                UNKNOWN
            } else {
                tag::blend(old, new, &part)
            };
            block.is_contested &= block.changes > 0;
        }
    }

    /// A read of whole blocks that began at `began` returned `found` in the block.
    pub(super) fn read_ends(
        &mut self,
        volume: VolumeIndex,
        block: u64,
        began: u64,
        found: u64,
    ) -> Result<(), Mismatch> {
        let known = self.volumes[volume.at()].get(block);
        if known.changes > 0 || known.changed > began || known.content == DROPPED {
            self.unverified_blocks += 1;
            return Ok(());
        }
        self.verified_blocks += 1;
        let expected = match known.content {
            IMAGE => tag::of_image(volume, block),
            UNKNOWN => {
                self.volumes[volume.at()].get_mut(block).content = found;
                found
            }
            tag => tag,
        };
        if expected == found { Ok(()) } else { Err(Mismatch { volume, block, expected, found }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeIndex = VolumeIndex(0);

    fn blocks(first: u64, count: u64) -> SectorRange {
        SectorRange { start: first * 8, sectors: count * 8 }
    }

    fn write(ledger: &mut Ledger, range: SectorRange, version: u64) {
        ledger.change_begins(VOLUME, range);
        ledger.change_ends(VOLUME, range, Change::Write(version), true);
    }

    fn read(ledger: &mut Ledger, block: u64, found: u64) -> bool {
        let began = ledger.time();
        ledger.read_ends(VOLUME, block, began, found).is_ok()
    }

    #[test]
    fn the_last_write_counts() {
        let mut ledger = Ledger::new([100].into_iter());
        assert!(read(&mut ledger, 5, tag::of_image(VOLUME, 5)));
        write(&mut ledger, blocks(4, 4), 1);
        write(&mut ledger, blocks(5, 1), 2);
        assert!(read(&mut ledger, 4, tag::of_write(1, Some(4))));
        assert!(read(&mut ledger, 5, tag::of_write(2, Some(5))));
        assert!(!read(&mut ledger, 5, tag::of_write(1, Some(5))));
        assert!(!read(&mut ledger, 5, tag::of_image(VOLUME, 5)));
        assert_eq!(ledger.unverified_blocks, 0);
    }

    #[test]
    fn a_read_that_a_write_overlaps_is_not_judged() {
        let mut ledger = Ledger::new([100].into_iter());
        let began = ledger.time();
        write(&mut ledger, blocks(5, 1), 2);
        assert!(ledger.read_ends(VOLUME, 5, began, 999).is_ok());
        assert_eq!(ledger.unverified_blocks, 1);
        assert!(!read(&mut ledger, 5, 999));
    }

    #[test]
    fn of_two_writes_at_once_the_first_read_tells_which() {
        let mut ledger = Ledger::new([100].into_iter());
        ledger.change_begins(VOLUME, blocks(5, 1));
        ledger.change_begins(VOLUME, blocks(5, 1));
        ledger.change_ends(VOLUME, blocks(5, 1), Change::Write(1), true);
        ledger.change_ends(VOLUME, blocks(5, 1), Change::Write(2), true);
        assert!(read(&mut ledger, 5, tag::of_write(1, Some(5))));
        assert!(!read(&mut ledger, 5, tag::of_write(2, Some(5))));
        write(&mut ledger, blocks(5, 1), 3);
        assert!(read(&mut ledger, 5, tag::of_write(3, Some(5))));
    }

    #[test]
    fn a_discarded_block_is_not_judged_until_it_is_written() {
        let mut ledger = Ledger::new([100].into_iter());
        ledger.change_begins(VOLUME, blocks(5, 1));
        ledger.change_ends(VOLUME, blocks(5, 1), Change::Discard, true);
        assert!(read(&mut ledger, 5, 1) && read(&mut ledger, 5, 2));
        write(&mut ledger, blocks(5, 1), 3);
        assert!(!read(&mut ledger, 5, 1));
    }

    #[test]
    fn part_of_a_block_depends_on_what_was_there() {
        let mut ledger = Ledger::new([100].into_iter());
        write(&mut ledger, blocks(5, 1), 1);
        write(&mut ledger, SectorRange { start: 42, sectors: 1 }, 2);
        let part = tag::Part { block: 5, from_byte: 1024, to_byte: 1536, at_bytes: 0 };
        let expected = tag::blend(tag::of_write(1, Some(5)), tag::of_write(2, None), &part);
        assert!(read(&mut ledger, 5, expected));
        assert!(!read(&mut ledger, 5, tag::of_write(1, Some(5))));
    }
}
