//! Salvage: what only a cache has, as far as it can be found, although the cache cannot be started any more.
//!
//! A start refuses a log that is damaged where it was durable, and a repair cuts it there: what was written after the damage,
//! and is dirty, is given up ([`given_up`]). A salvage takes all batches that can be read, before and behind the damage, and of each block
//! the newest copy among them. Where a batch is missing nobody knows whether it had a newer one: what is older than the
//! last missing batch is *in doubt*. Below the last flush an older copy never takes the place of a newer one that is known and
//! cannot be read: that block is lost.
//!
//! Nothing is written to the cache. Slots are found as a start finds them; records that a start refuses are not searched.

use crate::format::{Layout, Superblock};
use crate::image::Image;
use crate::mutation::Mutations;
use crate::recovery::{OpenError, Options, inspect, load_superblock};
use crate::store::log;
use crate::store::log::scan::ScanError;
use crate::units::{VOLUMES_MAX, VolumeIndex};
use alloc::vec::Vec;

/// The content of dirty blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyContent {
    /// One block at this place of the cache device, with this checksum if one is known.
    At {
        /// The offset on the cache device.
        offset_bytes: u64,
        /// The checksum to find there.
        checksum: Option<u32>,
    },
    /// Zeroes, which lie nowhere.
    Zeroes,
    /// It is known to be lost.
    Lost,
}

/// Blocks that only the cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// The volume.
    pub volume: VolumeIndex,
    /// The first block.
    pub first_block: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// Their content.
    pub content: DirtyContent,
    /// Whether something newer may have been in a batch that is missing.
    pub is_in_doubt: bool,
}

/// All that only a cache has, as far as it can be found.
#[derive(Clone, Debug)]
pub struct Salvage {
    /// The superblock.
    pub superblock: Superblock,
    /// Dirty blocks, by volume and place.
    pub dirty: Vec<Dirty>,
    /// Why a start would refuse the log; `None` if it would not.
    pub damage: Option<ScanError>,
    /// Batches of the log that were durable and cannot be found.
    pub missing_batches: u64,
}

/// Finds all that only the cache on `image` has; nothing is written.
///
/// # Errors
/// [`OpenError`], if the superblock cannot be trusted, or the records of slots.
pub fn find<I: Image>(image: &mut I, index_budget_bytes: u64) -> Result<Salvage, OpenError> {
    let options = Options { index_budget_bytes, repair: false, mutations: Mutations::NONE };
    let mut salvage = match inspect(image, options) {
        Ok(opened) => {
            let dirty = opened.dirty();
            Salvage { superblock: opened.superblock, dirty, damage: None, missing_batches: 0 }
        }
        Err(OpenError::Scan(damage @ (ScanError::Corrupt { .. } | ScanError::Device { .. }))) => {
            let (superblock, _) = load_superblock(image)?;
            if matches!(superblock.layout, Layout::Slots(_)) {
                return Err(damage.into());
            }
            let found = log::salvage::of_fragments(image, superblock, options)?;
            Salvage { damage: Some(damage), ..found }
        }
        Err(error) => return Err(error),
    };
    salvage.dirty.sort_unstable_by_key(|dirty| (dirty.volume.0, dirty.first_block));
    Ok(salvage)
}

/// All that a repair of a damaged log gives up: what a salvage finds and the log does not have any more once it is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// The number of dirty blocks, by volume.
    pub blocks: [u64; VOLUMES_MAX],
    /// Batches of the log that were durable and cannot be found: what they held is not known.
    pub missing_batches: u64,
}

/// Finds what a repair of the log on `image` gives up; nothing is written.
///
/// # Errors
/// As [`find`], and if the log cannot be cut either.
pub fn given_up<I: Image>(image: &mut I, index_budget_bytes: u64) -> Result<GivenUp, OpenError> {
    let options = Options { index_budget_bytes, repair: true, mutations: Mutations::NONE };
    let mut kept = inspect(image, options)?.dirty();
    kept.sort_unstable_by_key(|dirty| (dirty.volume.0, dirty.first_block));
    let found = find(image, index_budget_bytes)?;
    let mut given_up = GivenUp { missing_batches: found.missing_batches, ..GivenUp::default() };
    for dirty in found.dirty.iter().filter(|dirty| dirty.content != DirtyContent::Lost) {
        given_up.blocks[dirty.volume.at()] += dirty.blocks - dirty.blocks_among(&kept);
    }
    Ok(given_up)
}

impl Dirty {
    fn end_block(&self) -> u64 {
        self.first_block + self.blocks
    }

    /// How many of these blocks have the same content in a list that is sorted and says nothing twice.
    fn blocks_among(&self, list: &[Dirty]) -> u64 {
        let is_before =
            |other: &Dirty| (other.volume.0, other.end_block()) <= (self.volume.0, self.first_block);
        let from = list.partition_point(is_before);
        let near = list[from..]
            .iter()
            .take_while(|other| other.volume == self.volume && other.first_block < self.end_block());
        near.filter(|other| other.content == self.content)
            .map(|other| other.end_block().min(self.end_block()) - other.first_block.max(self.first_block))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{EntryKind, VolumeRecord};
    use crate::number::index_wide;
    use crate::store::log::scan::testlog::{Dice, GEOMETRY, TestLog};
    use crate::units::VolumeId;
    use alloc::collections::BTreeMap;

    const BUDGET: u64 = 64 << 20;

    /// A log of one volume, all of it flushed.
    fn log(batches: u64) -> TestLog {
        let mut log = TestLog::new();
        log.superblock =
            log.superblock.with_volumes([VolumeRecord::new(VolumeId(1), "data", "/dev/x", 1 << 30)]);
        log.write_superblock();
        let mut dice = Dice(5);
        for _ in 0..batches {
            log.append(3, &mut dice);
        }
        log.flush();
        log.append(1, &mut dice);
        log.flush();
        log
    }

    /// The newest copy of each block that the history of the log has as dirty, without some batches.
    fn newest(log: &TestLog, without: impl Fn(u64) -> bool) -> BTreeMap<u64, u32> {
        let mut newest = BTreeMap::new();
        for (sequence, appended) in &log.history {
            if without(*sequence) {
                continue;
            }
            let mut checksums = appended.checksums.iter();
            for entry in &appended.entries {
                let first = entry.start_sector / 8;
                for block in first..first + u64::from(entry.sectors / 8) {
                    let checksum = entry.kind.has_payload().then(|| checksums.next().copied()).flatten();
                    match (entry.kind, checksum) {
                        (EntryKind::Dirty, Some(checksum)) => newest.insert(block, checksum),
                        _ => newest.remove(&block),
                    };
                }
            }
        }
        newest
    }

    fn found(salvage: &Salvage) -> BTreeMap<u64, u32> {
        let at = |dirty: &Dirty| match dirty.content {
            DirtyContent::At { checksum, .. } => checksum.map(|checksum| (dirty.first_block, checksum)),
            _ => None,
        };
        salvage.dirty.iter().filter_map(at).collect()
    }

    #[test]
    fn a_sound_log_gives_all_of_it() {
        let mut log = log(60);
        let salvage = find(&mut log.disk, BUDGET).expect("it can be started");
        assert_eq!((salvage.damage, salvage.missing_batches), (None, 0));
        assert!(salvage.dirty.iter().all(|dirty| !dirty.is_in_doubt));
        assert_eq!(found(&salvage), newest(&log, |_| false));
    }

    #[test]
    fn a_log_without_a_head_gives_all_of_it_too() {
        let mut log = log(60);
        log.disk.bytes[index_wide(GEOMETRY.offset_bytes(2, 0))] ^= 1;
        let salvage = find(&mut log.disk, BUDGET).expect("what is left");
        assert!(salvage.damage.is_some());
        assert_eq!(salvage.missing_batches, 0, "the headers tell the life of the segment");
        assert_eq!(found(&salvage), newest(&log, |_| false));
    }

    /// Goal: what a repair gives up is known before it is done. Method: the head of a segment is damaged, and the cut log
    /// is compared with the history.
    #[test]
    fn a_repair_gives_up_what_was_written_behind_the_damage() {
        let mut log = log(60);
        assert_eq!(given_up(&mut log.disk, BUDGET).expect("it is sound"), GivenUp::default());
        log.disk.bytes[index_wide(GEOMETRY.offset_bytes(2, 0))] ^= 1;
        let told = given_up(&mut log.disk, BUDGET).expect("what is left");
        crate::check::repair(&mut log.disk, BUDGET).expect("it is cut");
        let left = found(&find(&mut log.disk, BUDGET).expect("it can be started"));
        let newest = newest(&log, |_| false);
        let lost = newest.iter().filter(|(block, checksum)| left.get(*block) != Some(checksum)).count();
        assert!(lost > 0 && lost < newest.len(), "{lost} of {}", newest.len());
        assert_eq!((told.blocks[0], told.missing_batches), (lost as u64, 0));
    }

    #[test]
    fn a_part_of_an_extent_may_be_kept() {
        let dirty = |first_block, blocks, content| Dirty {
            volume: VolumeIndex(1),
            first_block,
            blocks,
            content,
            is_in_doubt: false,
        };
        let at = |offset_bytes| DirtyContent::At { offset_bytes, checksum: Some(7) };
        let kept =
            [dirty(0, 4, DirtyContent::Zeroes), dirty(4, 1, at(8192)), dirty(6, 9, DirtyContent::Zeroes)];
        assert_eq!(dirty(2, 6, DirtyContent::Zeroes).blocks_among(&kept), 4);
        assert_eq!(dirty(4, 1, at(8192)).blocks_among(&kept), 1);
        assert_eq!(dirty(4, 1, at(4096)).blocks_among(&kept), 0, "it is older");
        let other = Dirty { volume: VolumeIndex(0), ..dirty(0, 4, DirtyContent::Zeroes) };
        assert_eq!(other.blocks_among(&kept), 0);
    }

    #[test]
    fn a_batch_that_is_gone_leaves_what_is_before_it_in_doubt() {
        // The last two batches are in one segment, which has no summary yet.
        let is_open = |log: &TestLog| {
            let last = log.next_sequence - 1;
            log.segment_of(last) == log.segment_of(last - 1)
        };
        let mut log = (55..65).map(log).find(is_open).expect("some of them are so");
        let gone = log.next_sequence - 2;
        let at = log.offset_of(gone);
        log.disk.bytes[at + 50] ^= 1;
        let salvage = find(&mut log.disk, BUDGET).expect("what is left");
        assert!(salvage.damage.is_some());
        assert_eq!(salvage.missing_batches, 1);
        assert_eq!(found(&salvage), newest(&log, |sequence| sequence == gone));
        assert!(salvage.dirty.iter().any(|dirty| dirty.is_in_doubt));
    }

    /// Goal: whatever batch is gone, all others are found, nothing else is, and nothing older than what is known. Method: logs
    /// of any length, round the device as well; a batch is gone from the headers and from its segment's summary.
    #[test]
    fn nothing_but_the_batch_that_is_gone_is_missing() {
        for seed in 1..40 {
            let mut dice = Dice(seed);
            let mut log = log(20 + dice.below(500));
            let known: Vec<u64> = log.history.keys().copied().collect();
            let gone = known[index_wide(dice.below(known.len() as u64 - 1))];
            let (segment, at) = (log.segment_of(gone), log.offset_of(gone));
            log.disk.bytes[at + 50] ^= 1;
            let footer = GEOMETRY.offset_bytes(segment, GEOMETRY.segment_blocks - 1);
            log.disk.bytes[index_wide(footer) + 20] ^= 1;
            let salvage = find(&mut log.disk, BUDGET).expect("what is left");
            assert_eq!(found(&salvage), newest(&log, |sequence| sequence == gone), "seed {seed}, {gone}");
            assert!(salvage.damage.is_none() || salvage.missing_batches == 1, "seed {seed}, {gone}");
        }
    }
}
