//! A mirrored cache as its devices hold it: damage of one half, and what each half has alone.

use super::{OpenError, Options, inspect, open};
use crate::effect::Errno;
use crate::format::{
    COUNTER_MAX, Entry, EntryKind, PAIR_MARK_BYTES, PAIR_PAGE_BYTES, PAIR_PAGE_OFFSETS, PairPage,
    VolumeRecord,
};
use crate::image::{Image, ReadAt};
use crate::mutation::Mutations;
use crate::pair::Pair;
use crate::recovery::SuperblockError;
use crate::salvage;
use crate::store::log::scan::testlog::{CACHE_BYTES, Dice, Disk, GEOMETRY, TestLog};
use crate::units::{VolumeId, payload_checksum};
use core::ops::Range;
use std::boxed::Box;
use std::string::String;
use std::vec;
use std::vec::Vec;

const OPTIONS: Options = Options { index_budget_bytes: 64 << 20, repair: false, mutations: Mutations::NONE };
const BLOCK: usize = 4096;

fn mirrored_log() -> TestLog {
    let mut log = TestLog::new();
    log.superblock.is_mirrored = true;
    log.superblock = log.superblock.with_volumes([VolumeRecord::new(VolumeId(1), "data", "/dev/x", 1 << 30)]);
    log.write_superblock();
    log
}

fn entry(kind: EntryKind, block: u64, blocks: u32) -> Entry {
    let (volume, sectors) = (VolumeId(1), blocks * 8);
    Entry { kind, ring: 0, volume, start_sector: block * 8, sectors, payload_blocks: blocks, extra: 0 }
}

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK]
}

fn checksum(fill: u8) -> u32 {
    payload_checksum(&block(fill))
}

/// Makes a disk a half; all its regions may differ from the other one's.
fn make_half<I: Image>(disk: &mut I, half: u8) {
    make_half_with(disk, half, [0xff; PAIR_MARK_BYTES]);
}

fn make_half_with<I: Image>(disk: &mut I, half: u8, marks: [u8; PAIR_MARK_BYTES]) {
    let mut bytes = vec![0; PAIR_PAGE_BYTES];
    for update in [8, 9] {
        let page = PairPage {
            set_id: [7; 16],
            half,
            is_other_out: false,
            out_since_update: 0,
            is_behind: false,
            update,
            size_bytes: CACHE_BYTES,
            region_bytes: 64 << 10,
            names: [String::new(), String::new()],
            once_counts_from: [0; 2],
            marks: Box::new(marks),
        };
        page.encode(&mut bytes);
        disk.write(PAIR_PAGE_OFFSETS[usize::try_from(update % 2).unwrap()], &bytes).unwrap();
    }
    disk.flush().unwrap();
}

#[test]
fn a_block_that_one_half_has_alone_is_not_copied_over() {
    let mut log = mirrored_log();
    log.append(1, &mut Dice(3));
    log.flush();
    // Three blocks: the first half has two, the second one has one, at the same place.
    let sums = (1..=3).map(checksum).collect();
    let sequence = log.append_entries(vec![entry(EntryKind::CleanOnce, 500, 3)], &[block(0), block(0)], sums);
    log.flush();
    let at = log.offset_of(sequence) + BLOCK;
    let mut first = log.disk.clone();
    // A batch more, which a crash kept from the first half: the second one is read.
    log.append(1, &mut Dice(4));
    log.disk.flush().unwrap();
    let mut second = log.disk.clone();
    first.bytes[at..at + BLOCK].fill(1);
    first.bytes[at + BLOCK..at + 2 * BLOCK].fill(2);
    second.bytes[at..at + BLOCK].fill(3);
    second.bytes[at + BLOCK..at + 2 * BLOCK].fill(0xee);
    make_half(&mut first, 0);
    make_half(&mut second, 1);
    let mut pair = Pair::join([Some(first), Some(second)]).unwrap();
    open(&mut pair, OPTIONS).unwrap();
    let [Some(first), Some(second)] = pair.into_halves() else { panic!("both count") };
    let own = [first.bytes[at], first.bytes[at + BLOCK], second.bytes[at]];
    assert_eq!(own, [1, 2, 3]);
}

/// Goal: a start after a crash lists no checksums but those that it may have to compare, however much is dirty.
#[test]
fn checksums_are_listed_where_copies_may_differ() {
    let mut log = mirrored_log();
    for _ in 0..60 {
        log.append(3, &mut Dice(3));
    }
    log.flush();
    let region_bytes = 64 << 10;
    let at = u64::try_from(log.offset_of(40)).unwrap();
    let region = usize::try_from(at / region_bytes).unwrap();
    let mut marks = [0; PAIR_MARK_BYTES];
    marks[region / 8] |= 1 << (region % 8);
    let halves = [0, 1].map(|half| {
        let mut disk = log.disk.clone();
        make_half_with(&mut disk, half, marks);
        Some(disk)
    });
    let opened = inspect(&mut Pair::join(halves).unwrap(), OPTIONS).unwrap();
    assert_eq!(opened.report.blocks, 180);
    let listed = opened.checksums();
    assert!(listed.contains_key(&(at + 4096)), "of the region that was being written");
    let segment = GEOMETRY.offset_bytes(log.segment_of(40), 0);
    let of_segment = segment..segment + GEOMETRY.segment_bytes();
    assert!(listed.keys().all(|offset| of_segment.contains(offset)), "and of its segment at the most");
}

/// A disk with bytes that cannot be read.
#[derive(Clone)]
struct Bad {
    disk: Disk,
    bytes: Range<u64>,
}

impl Image for Bad {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        self.disk.read_group(reads);
        for read in reads {
            let end = read.offset_bytes + read.bytes.len() as u64;
            if read.offset_bytes < self.bytes.end && self.bytes.start < end {
                read.result = Err(Errno::IO);
                read.bytes.fill(0);
            }
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.disk.write(offset_bytes, bytes)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.disk.flush()
    }
}

#[test]
fn a_region_that_one_half_cannot_read_is_in_nobodys_way() {
    let mut log = mirrored_log();
    let mut dice = Dice(3);
    (0..40).for_each(|_| log.append(3, &mut dice));
    log.flush();
    let (mut first, mut second) = (log.disk.clone(), log.disk.clone());
    make_half(&mut first, 0);
    make_half(&mut second, 1);
    for bytes in [4096, 60 << 10, 64 << 10, 256 << 10] {
        let first = Bad { disk: first.clone(), bytes: 2 << 20..(2 << 20) + bytes };
        let second = Bad { disk: second.clone(), bytes: 0..0 };
        let mut pair = Pair::join([Some(first), Some(second)]).unwrap();
        open(&mut pair, OPTIONS).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
    }
}

/// The dirty blocks that salvage finds at a place of which the newest copy is of that kind, and the one before it is lost.
fn salvaged(kind: EntryKind) -> usize {
    let mut log = mirrored_log();
    log.append_entries(vec![entry(EntryKind::Dirty, 500, 1)], &[block(1)], vec![checksum(1)]);
    log.append_entries(vec![entry(EntryKind::Dirty, 900, 1)], &[block(9)], vec![checksum(9)]);
    log.flush();
    let gone = log.append_entries(vec![entry(EntryKind::Dirty, 500, 1)], &[block(2)], vec![checksum(2)]);
    log.append_entries(vec![entry(kind, 500, 1)], &[block(2)], vec![checksum(2)]);
    log.flush();
    log.append(1, &mut Dice(4));
    log.flush();
    let at = log.offset_of(gone);
    log.disk.bytes[at + 50] ^= 1;
    make_half(&mut log.disk, 0);
    let mut pair = Pair::join([Some(log.disk.clone()), None]).unwrap();
    let found = salvage::find(&mut pair, 64 << 20).unwrap();
    assert!(found.dirty.iter().any(|dirty| dirty.first_block == 900), "the rest is found");
    found.dirty.iter().filter(|dirty| dirty.first_block == 500).count()
}

#[test]
fn salvage_knows_that_the_newest_copy_is_clean() {
    assert_eq!(salvaged(EntryKind::Dirty), 1);
    assert_eq!(salvaged(EntryKind::Clean), 0);
    assert_eq!(salvaged(EntryKind::CleanOnce), 0, "one half has it alone");
}

/// HAZARD 15: whoever starts counts on from what the device says.
#[test]
fn a_counter_at_its_end_is_no_panic() {
    let start = |change: fn(&mut TestLog)| {
        let mut log = TestLog::new();
        change(&mut log);
        log.write_superblock();
        open(&mut log.disk, OPTIONS).map(drop)
    };
    start(|log| log.superblock.update = COUNTER_MAX).unwrap();
    start(|log| log.superblock.session = COUNTER_MAX).unwrap();
    let refused = start(|log| log.superblock.session = COUNTER_MAX + 1).unwrap_err();
    assert!(matches!(refused, OpenError::Superblock(SuperblockError::Damaged)), "{refused:?}");
}
