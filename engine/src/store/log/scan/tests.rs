use super::testlog::{Dice, GEOMETRY, TestLog};
use super::*;
use crate::format::{BatchHeader, SegmentHead};
use crate::image::{Image, ReadAt};
use std::cell::Cell;
use std::vec;

const BLOCK: usize = 4096;

fn log_of(batches: u64, payload: u32) -> (TestLog, Dice) {
    let mut log = TestLog::new();
    let mut dice = Dice(1);
    for _ in 0..batches {
        log.append(payload, &mut dice);
    }
    (log, dice)
}

fn assert_reads_all(log: &mut TestLog) -> Scan {
    let last = log.next_sequence - 1;
    assert_reads(log, last)
}

fn assert_reads(log: &mut TestLog, last: u64) -> Scan {
    let (found, visited) = log.scan(false).unwrap();
    assert_eq!(found.end.next_sequence, last + 1);
    log.assert_matches(&found, &visited);
    found
}

fn next_session(log: &mut TestLog, dice: &mut Dice) {
    let (found, _) = log.scan(false).unwrap();
    assert!(log.recover(found, 9, dice));
}

#[test]
fn a_new_cache_has_an_empty_log() {
    let mut log = TestLog::new();
    let found = assert_reads(&mut log, 0);
    assert!(found.segments.is_empty() && found.end.open.is_none());
    assert_eq!((found.floor_sequence, found.oldest_dirty_sequence, found.batches_cut), (1, 1, 0));
}

#[test]
fn reads_sealed_and_open_segments_over_many_rounds_of_the_ring() {
    let (mut log, mut dice) = log_of(0, 0);
    for round in 0..700 {
        log.append(round % 9, &mut dice);
        if round % 31 == 0 {
            let found = assert_reads_all(&mut log);
            assert_eq!(found.batches_cut, 0);
            let (_, sealed) = found.segments.split_last().unwrap();
            assert!(sealed.iter().all(|span| span.sealed && span.summary_blocks > 0 && span.used_blocks > 1));
        }
    }
    assert!(log.next_sequence > 700 && log.history.len() < 500, "the ring was reused");
}

/// Goal: a segment without a summary gets one that has all of its batches. Method: the last header, with a right checksum, says
/// that some batches in the middle of the segment before it do not count.
#[test]
fn a_floor_within_a_segment_is_that_of_the_segment() {
    let (mut log, _) = log_of(60, 3);
    log.flush();
    let last = log.next_sequence - 1;
    let at = log.offset_of(last);
    let mut header = BatchHeader::decode(&log.disk.bytes[at..]).unwrap().header;
    let segment = log.segment_of(last) - 1;
    let first = (1..last).find(|sequence| log.segment_of(*sequence) == segment).unwrap();
    header.floor_sequence = first + 1;
    let appended = &log.history[&last];
    let mut bytes = vec![0; BLOCK];
    header.encode(&appended.entries, &appended.checksums, &mut bytes);
    log.disk.bytes[at..at + BLOCK].copy_from_slice(&bytes);
    let footer = GEOMETRY.offset_bytes(segment, GEOMETRY.segment_blocks - 1) as usize;
    log.disk.bytes[footer..footer + BLOCK].fill(0);
    let (found, visited) = log.scan(false).unwrap();
    assert_eq!((found.floor_sequence, visited[0].1.sequence), (first, first));
}

/// A disk that counts the batches that were visited beside its reads.
struct Beside<'d> {
    disk: &'d mut super::testlog::Disk,
    visited: &'d Cell<u64>,
    visited_beside: u64,
}

impl Image for Beside<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        self.disk.read_group(reads);
    }

    fn read_group_beside(&mut self, reads: &mut [ReadAt], beside: &mut dyn FnMut()) {
        let before = self.visited.get();
        self.disk.read_group_beside(reads, beside);
        if !reads.is_empty() {
            self.visited_beside += self.visited.get() - before;
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
fn summaries_are_visited_while_the_next_ones_are_read() {
    let (mut log, _) = log_of(300, 2);
    log.flush();
    let visited = Cell::new(0);
    let mut image = Beside { disk: &mut log.disk, visited: &visited, visited_beside: 0 };
    let found = scan(&mut image, &log.superblock, false, &mut |_, _| visited.set(visited.get() + 1)).unwrap();
    assert!(found.segments.len() > 8, "several groups: {}", found.segments.len());
    let beside = image.visited_beside;
    assert!(beside * 5 > visited.get() * 2, "{beside} of {} batches: groups grow twofold", visited.get());
}

#[test]
fn cuts_at_the_lowest_missing_batch_whatever_else_arrived() {
    // All subsets of the last writes, which cross a border between segments.
    for kept in 0..1u32 << 7 {
        let (mut log, mut dice) = log_of(7, 2);
        log.flush();
        let mut pending_of = vec![];
        while log.disk.pending() < 7 {
            let before = log.disk.pending();
            log.append(3, &mut dice);
            pending_of.push((log.next_sequence - 1, before..log.disk.pending()));
        }
        log.disk.keep_only(|at| kept & (1 << at) != 0);
        let mut last = log.flushed;
        while log.is_intact(last + 1) {
            last += 1;
        }
        let found = assert_reads(&mut log, last);
        assert!(matches!(found.flushed_sequence, 0 | 7), "it is known if any header arrived");
        next_session(&mut log, &mut dice);
        assert_reads(&mut log, last);
    }
}

#[test]
fn torn_payload_is_as_good_as_no_batch() {
    let (mut log, _) = log_of(9, 3);
    log.disk.flush().unwrap();
    let torn = log.offset_of(8) + 3 * BLOCK;
    log.disk.bytes[torn + 77] ^= 1;
    let found = assert_reads(&mut log, 7);
    assert_eq!(found.batches_cut, 2);
}

#[test]
fn flushed_payload_is_not_read_and_its_loss_cuts_nothing() {
    let (mut log, mut dice) = log_of(9, 3);
    log.flush();
    log.append(1, &mut dice);
    log.disk.flush().unwrap();
    let rotten = log.offset_of(8) + 3 * BLOCK;
    log.disk.bytes[rotten] ^= 1;
    assert_reads(&mut log, 10);
}

#[test]
fn a_break_in_what_was_flushed_is_corruption() {
    let (mut log, mut dice) = log_of(40, 3);
    log.flush();
    log.append(1, &mut dice);
    log.disk.flush().unwrap();
    let intact = log.disk.bytes.clone();
    // A header of the open segment.
    let offset = log.offset_of(39);
    let segment = log.segment_of(39);
    assert_eq!(segment, log.segment_of(41), "the segment is open");
    log.disk.bytes[offset + 200] ^= 4;
    let error = log.scan(false).unwrap_err();
    let what = Damage::Header(FormatError::Checksum);
    assert_eq!(error, ScanError::Corrupt { segment, offset_bytes: offset as u64, what });
    let (found, visited) = log.scan(true).unwrap();
    log.assert_matches(&found, &visited);
    assert_eq!((found.end.next_sequence, found.repaired), (39, Some(error)));
    assert!(log.recover(found, 9, &mut dice));
    assert_reads(&mut log, 38);

    // The head of a segment in the middle.
    log.disk.bytes = intact;
    let (mut log, mut dice) = log_of(40, 3);
    log.flush();
    log.append(1, &mut dice);
    log.disk.flush().unwrap();
    let offset = GEOMETRY.offset_bytes(2, 0) as usize;
    log.disk.bytes[offset + 33] ^= 1;
    let error = log.scan(false).unwrap_err();
    assert_eq!(error, ScanError::Corrupt { segment: 2, offset_bytes: offset as u64, what: Damage::Segment });
    let (found, visited) = log.scan(true).unwrap();
    log.assert_matches(&found, &visited);
    assert_eq!(found.segments.len(), 2);
    assert!(log.recover(found, 9, &mut dice));
    let found = assert_reads_all(&mut log);
    assert_eq!(found.batches_cut, 0);
}

#[test]
fn a_log_without_its_beginning_is_corrupt_and_a_repair_keeps_the_rest() {
    let (mut log, mut dice) = log_of(40, 3);
    log.flush();
    let offset = GEOMETRY.offset_bytes(0, 0) as usize;
    log.disk.bytes[offset..offset + BLOCK].fill(0);
    log.append(1, &mut dice);
    log.flush();
    let error = log.scan(false).unwrap_err();
    // Above, the segment before the first one found: around the ring.
    assert_eq!(error, ScanError::Corrupt { segment: 0, offset_bytes: offset as u64, what: Damage::Segment });
    let (found, visited) = log.scan(true).unwrap();
    log.assert_matches(&found, &visited);
    assert_eq!(found.base_sequence, found.segments[0].first_sequence);
    assert_eq!(found.end.next_sequence, 42);
    assert!(log.recover(found, 9, &mut dice));
    log.append(2, &mut dice);
    assert_reads(&mut log, 42);
}

#[test]
fn a_log_of_which_nothing_is_left_can_be_begun_anew() {
    let (mut log, mut dice) = log_of(5, 3);
    log.flush();
    next_session(&mut log, &mut dice);
    let segments = GEOMETRY.offset_bytes(0, 0) as usize;
    log.disk.bytes[segments..].fill(0);
    assert!(matches!(log.scan(false), Err(ScanError::Corrupt { segment: 0, what: Damage::Segment, .. })));
    let (found, _) = log.scan(true).unwrap();
    assert!(found.segments.is_empty() && found.end.next_sequence == 6);
    assert!(log.recover(found, 9, &mut dice));
    assert_reads(&mut log, 5);
    log.append(2, &mut dice);
    assert_reads(&mut log, 6);
}

#[test]
fn the_dead_tail_of_an_earlier_life_never_joins_the_log() {
    // Batch 8 is lost, 9 and what follows arrived, in further segments, too: their summaries speak of 8 as well.
    let (mut log, mut dice) = log_of(7, 2);
    log.flush();
    for _ in 0..30 {
        log.append(3, &mut dice);
    }
    log.disk.keep_only(|at| at != 0);
    let found = assert_reads(&mut log, 7);
    assert_eq!(found.batches_cut, 30);
    assert!(found.stale_blocks.len() > 3, "heads, and the footer of the segment that goes on");
    assert!(log.recover(found, 9, &mut dice));
    // The new life is shorter, then as long, then longer than the dead one.
    for last in 8..60 {
        log.append(3, &mut dice);
        assert_reads(&mut log, last);
        if last % 7 == 0 {
            log.flush();
            next_session(&mut log, &mut dice);
            let found = assert_reads(&mut log, last);
            assert!(found.stale_blocks.is_empty());
        }
    }
}

#[test]
fn the_footer_of_a_dead_life_does_not_count() {
    // Without the wiping of stale blocks: what protects before the new session is durable.
    let (mut log, mut dice) = log_of(7, 2);
    log.flush();
    for _ in 0..30 {
        log.append(3, &mut dice);
    }
    log.disk.keep_only(|at| at != 0);
    let (mut found, _) = log.scan(false).unwrap();
    found.stale_blocks.clear();
    assert!(log.recover(found, 9, &mut dice));
    assert_reads(&mut log, 7);
    log.append(1, &mut dice);
    let found = assert_reads(&mut log, 8);
    assert_eq!(found.end.open.map(|open| open.segment), Some(0));
}

#[test]
fn a_repair_cuts_where_a_summary_and_a_header_are_damaged() {
    let (mut log, mut dice) = log_of(40, 3);
    log.flush();
    log.append(1, &mut dice);
    log.flush();
    let footer = GEOMETRY.offset_bytes(1, 0) as usize - BLOCK;
    log.disk.bytes[footer - BLOCK] ^= 4;
    assert_reads(&mut log, 41);
    let header = log.offset_of(2);
    log.disk.bytes[header + 200] ^= 4;
    assert!(matches!(log.scan(false), Err(ScanError::Corrupt { segment: 0, .. })));
    let (found, visited) = log.scan(true).unwrap();
    log.assert_matches(&found, &visited);
    assert_eq!(found.end.next_sequence, 2);
    assert!(log.recover(found, 9, &mut dice));
    log.append(2, &mut dice);
    assert_reads(&mut log, 2);
}

#[test]
fn what_a_repair_cut_off_stays_off() {
    // A header that was unreadable once and is whole again.
    let (mut log, mut dice) = log_of(40, 3);
    log.flush();
    log.append(1, &mut dice);
    log.flush();
    let offset = log.offset_of(39);
    log.disk.bytes[offset + 200] ^= 4;
    let (found, _) = log.scan(true).unwrap();
    assert!(log.recover(found, 9, &mut dice));
    log.disk.bytes[offset + 200] ^= 4;
    assert_reads(&mut log, 38);

    // Segments behind a lost one, even were they not wiped.
    let (mut log, mut dice) = log_of(40, 3);
    log.flush();
    log.append(1, &mut dice);
    log.flush();
    let offset = GEOMETRY.offset_bytes(2, 0) as usize;
    log.disk.bytes[offset..offset + BLOCK].fill(0);
    let (mut found, _) = log.scan(true).unwrap();
    assert_eq!(found.stale_blocks.len(), 3);
    found.stale_blocks.clear();
    assert!(log.recover(found, 9, &mut dice));
    let found = assert_reads_all(&mut log);
    assert!(found.end.next_sequence < 40 && found.stale_blocks.len() == 3);
}

#[test]
fn a_summary_that_is_lost_or_rotten_is_replaced_by_the_headers() {
    let (mut log, mut dice) = log_of(60, 2);
    log.flush();
    log.append(1, &mut dice);
    log.flush();
    let footer = GEOMETRY.offset_bytes(1, GEOMETRY.segment_blocks - 1) as usize;
    let body = GEOMETRY.offset_bytes(3, GEOMETRY.segment_blocks - 2) as usize;
    log.disk.bytes[footer] ^= 1;
    log.disk.bytes[body] ^= 1;
    let found = assert_reads(&mut log, 61);
    let unsealed: Vec<u32> =
        found.segments.iter().filter(|span| !span.sealed).map(|span| span.segment).collect();
    assert_eq!(unsealed, [1, 3, found.segments.last().unwrap().segment]);
}

#[test]
fn a_superblock_older_than_the_log_is_refused() {
    let (mut log, mut dice) = log_of(7, 2);
    log.flush();
    let old = log.superblock.clone();
    next_session(&mut log, &mut dice);
    log.append(1, &mut dice);
    log.flush();
    let new = core::mem::replace(&mut log.superblock, old);
    let stale = ScanError::SuperblockStale { segment: 0, found_session: 2, superblock_session: 1 };
    assert_eq!(log.scan(false).unwrap_err(), stale);
    assert_eq!(log.scan(true).unwrap_err(), stale);
    log.superblock = new;
    assert_reads(&mut log, 8);
}

#[test]
fn a_segment_half_overwritten_by_a_lost_opening_is_history() {
    let (mut log, mut dice) = log_of(0, 0);
    while log.history.first_key_value().is_none_or(|(first, _)| *first < 300) {
        log.append(5, &mut dice);
        if log.next_sequence.is_multiple_of(50) {
            log.flush();
        }
    }
    log.flush();
    // The oldest segment that is free keeps its old head, while its blocks are garbage.
    let newest = log.segment_of(log.next_sequence - 1);
    let oldest = (newest + 1) % GEOMETRY.segments;
    let from = GEOMETRY.offset_bytes(oldest, 4) as usize;
    let to = GEOMETRY.offset_bytes(oldest, GEOMETRY.segment_blocks) as usize;
    assert!(SegmentHead::decode(&log.disk.bytes[GEOMETRY.offset_bytes(oldest, 0) as usize..]).is_ok());
    log.disk.bytes[from..to].fill(0xa5);
    assert_reads_all(&mut log);
}

#[test]
fn a_device_error_is_not_taken_for_the_end() {
    let (mut log, _) = log_of(9, 3);
    log.flush();
    log.disk.bad_block = Some(log.offset_of(8) as u64 / 4096);
    assert!(matches!(log.scan(false), Err(ScanError::Device { errno: Errno::IO, .. })));
    log.disk.bad_block = Some(GEOMETRY.offset_bytes(0, 0) / 4096);
    assert!(matches!(log.scan(false), Err(ScanError::Device { errno: Errno::IO, .. })));
}

#[test]
fn every_crash_leaves_a_log_that_keeps_what_was_flushed() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut log = TestLog::new();
        log.keep = [3, 20, 50][dice.below(3) as usize];
        for _life in 0..12 {
            for _ in 0..dice.below(120) {
                let payload = dice.below(12) as u32;
                log.append(payload, &mut dice);
                if dice.one_in(15) {
                    log.flush();
                }
            }
            let promised = log.flushed;
            if dice.one_in(4) {
                // The process alone dies: all that was written is there.
                log.disk.flush().unwrap();
            } else {
                log.disk.crash(&mut dice);
            }
            let mut last = promised;
            while log.is_intact(last + 1) {
                last += 1;
            }
            let mut stop_after = dice.below(12);
            loop {
                let (found, visited) = log.scan(false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                log.assert_matches(&found, &visited);
                assert!(found.end.next_sequence > last, "seed {seed}: a batch was lost");
                // More only if what is missing is below the floor.
                if found.end.next_sequence > last + 1 {
                    assert!(found.floor_sequence > last + 1, "seed {seed}: a batch was invented");
                }
                if log.recover(found, stop_after, &mut dice) {
                    break;
                }
                stop_after = dice.below(12);
            }
        }
    }
}
