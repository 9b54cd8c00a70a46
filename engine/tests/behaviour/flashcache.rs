//! The known behaviour of flashcache, read off the operations of its devices.
//!
//! Source: flashcache 3.1.1 and its documents; geomflash-2015 for what follows from them.

use crate::rig::{Device, Kind, Op, Rig, bytes, composition, count};
use forebay_engine::composition::Composition;

/// Blocks of a set: 2 MiB.
const SET: u64 = 512;
const SETS: u32 = 4;

/// As published: nothing waits for a flush.
fn flashcache() -> Composition {
    let mut flashcache = composition(&[
        ("writes", "invalidate"),
        ("destage", "threshold"),
        ("free_order", "last-freed"),
        ("splits_requests", "true"),
        ("cleans_per_block", "true"),
        ("fetch", "filled-request"),
    ]);
    flashcache.safe = false;
    flashcache
}

fn rig() -> Rig {
    Rig::new(&flashcache(), SETS * SET as u32, 16 * SET)
}

fn is_origin_write(op: &Op) -> bool {
    op.device == Device::Origin && op.kind == Kind::Write
}

#[test]
fn two_mib_of_consecutive_addresses_share_a_set_and_the_next_two_go_to_the_next() {
    let mut rig = rig();
    let mut slots = Vec::new();
    for block in (0..SET).step_by(64) {
        let ops = rig.write(block, 64, 1);
        slots.extend(rig.slots_written(&ops));
    }
    // The free ones are a stack, at first with the highest on top.
    assert_eq!(slots, (0..SET).rev().collect::<Vec<u64>>());
    let ops = rig.write(SET, 1, 1);
    assert_eq!(rig.slots_written(&ops), [2 * SET - 1]);
    let ops = rig.write(u64::from(SETS) * SET + SET, 1, 1);
    assert_eq!(rig.slots_written(&ops), [2 * SET - 2], "modulo the number of sets");
}

#[test]
fn a_large_write_is_32_writes_and_its_records_go_together() {
    let mut rig = rig();
    let ops = rig.write(0, 32, 1);
    let (data, records) = rig.cache_writes(&ops);
    assert_eq!(data, 32);
    // The first one's, and that of all who waited for it.
    assert_eq!(records, 2);
    assert!(ops.iter().all(|op| op.len_bytes == 4096), "{ops:?}");
    assert_eq!(rig.read(0, 32).1.len(), 32, "so are reads that hit");
    let again = rig.write(0, 32, 2);
    assert_eq!(rig.cache_writes(&again), (32, 0), "what is dirty costs data only");
}

#[test]
fn a_read_waits_until_what_it_brought_is_in_the_cache() {
    let mut rig = rig();
    let is_fill = |op: &Op| op.device == Device::Cache && op.kind == Kind::Write;
    let read = rig.submit_read(0, 32 * 8);
    rig.run_but(is_fill);
    assert!(!rig.is_answered(read), "the origin has answered, and the cache has not");
    assert_eq!(count(&rig.take_ops(), Device::Cache, Kind::Write), 32);
    rig.run();
    assert!(rig.is_answered(read));
    assert_eq!(bytes(&rig.read(0, 32).1, Device::Origin, Kind::Read), 0);
}

#[test]
fn nothing_is_flushed_and_nothing_is_written_home_before_the_limit() {
    let mut rig = rig();
    let mut ops = Vec::new();
    for number in 0..102 {
        ops.extend(rig.write(number * 2, 1, 1));
    }
    rig.pass_ms(5_000);
    ops.extend(rig.take_ops());
    assert_eq!(count(&ops, Device::Cache, Kind::Flush) + count(&ops, Device::Origin, Kind::Write), 0);
    assert_eq!(rig.dirty_blocks(), 102);
    // 20 % of 512 are 102: with one more, one goes home.
    let ops = rig.write(102 * 2, 1, 1);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 4096);
    assert_eq!(rig.dirty_blocks(), 102);
}

#[test]
fn two_copies_of_a_set_and_four_of_the_cache_are_under_way() {
    let mut rig = rig();
    let mut under_way = Vec::new();
    for set in 0..3 {
        for number in 0..200 {
            rig.submit_write((set * SET + number * 2) * 8, 8, 1);
            rig.run_but(is_origin_write);
        }
        under_way.push(rig.take_ops().iter().filter(|op| is_origin_write(op)).count());
    }
    assert_eq!(under_way, [2, 2, 0], "none ends, so none follows");
    rig.pass_ms(20_000);
    // What is under way counts as dirty: the last one of a set may be one too many.
    assert!((3 * 101..=3 * 102).contains(&rig.dirty_blocks()), "{}", rig.dirty_blocks());
}

#[test]
fn dirty_neighbours_go_home_together() {
    let mut rig = rig();
    rig.write(0, 64, 1);
    let ops = rig.write(64, 64, 1);
    let homes: Vec<u64> = ops.iter().filter(|op| is_origin_write(op)).map(|op| op.len_bytes).collect();
    assert!(homes.iter().any(|&len| len > 4096), "{homes:?}");
}

#[test]
fn a_set_full_of_dirty_blocks_passes_by() {
    let mut rig = rig();
    let of_first_set = |op: &Op| is_origin_write(op) && op.offset_bytes < SET * 4096;
    for block in 0..SET {
        rig.submit_write(block * 8, 8, 1);
        rig.run_but(of_first_set);
    }
    rig.take_ops();
    let stranger = u64::from(SETS) * SET;
    rig.submit_write(stranger * 8, 8, 9);
    rig.run_but(of_first_set);
    let ops = rig.take_ops();
    assert_eq!(rig.cache_writes(&ops), (0, 0), "there is no room");
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 4096);
    assert_eq!(rig.origin_byte(stranger), 9);
}

#[test]
fn what_is_not_a_block_is_invalidated_and_goes_to_the_origin() {
    let mut rig = rig();
    rig.write(7, 1, 1);
    let number = rig.submit_write(7 * 8 + 3, 1, 2);
    rig.pass_ms(100);
    assert!(rig.is_answered(number));
    let ops = rig.take_ops();
    let homes: Vec<u64> = ops.iter().filter(|op| is_origin_write(op)).map(|op| op.len_bytes).collect();
    assert_eq!(homes, [4096, 512], "what is dirty goes home first");
    assert_eq!(rig.origin_byte(7), 1);
    let (_, ops) = rig.read(7, 1);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 4096, "the block is not cached any more");
    assert_eq!(bytes(&ops, Device::Cache, Kind::Read), 0);
    assert_eq!(rig.read(7, 1).1.len(), 1, "but now it is");
}

#[test]
fn reads_enter_at_their_first_touch_and_are_not_recorded() {
    let mut rig = rig();
    let (_, ops) = rig.read(100, 8);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 8 * 4096);
    assert_eq!(rig.cache_writes(&ops), (8, 0));
    let (_, ops) = rig.read(100, 8);
    assert_eq!((ops.len(), bytes(&ops, Device::Cache, Kind::Read)), (8, 8 * 4096));
}

#[test]
fn a_crash_keeps_what_is_dirty_and_forgets_the_rest() {
    let mut rig = rig();
    rig.write(0, 8, 5);
    rig.read(100, 8);
    rig.crash();
    assert_eq!(rig.dirty_blocks(), 8);
    let (content, ops) = rig.read(0, 8);
    assert_eq!((content, bytes(&ops, Device::Origin, Kind::Read)), (vec![5; 8], 0));
    assert_eq!(bytes(&rig.read(100, 8).1, Device::Cache, Kind::Read), 0);
}

#[test]
fn with_safe_data_is_flushed_before_its_record_and_the_origin_before_it_is_clean() {
    let safe = Composition { safe: true, ..flashcache() };
    let mut rig = Rig::new(&safe, SETS * SET as u32, 16 * SET);
    let kinds: Vec<Kind> = rig.write(0, 1, 1).iter().map(|op| op.kind).collect();
    // The page that opens its area; the data; the record.
    assert_eq!(kinds, [Kind::Write, Kind::Flush, Kind::Write, Kind::Flush, Kind::Write]);
    let kinds: Vec<Kind> = rig.write(2, 1, 1).iter().map(|op| op.kind).collect();
    assert_eq!(kinds, [Kind::Write, Kind::Flush, Kind::Write], "the area is open");
    for number in 2..103 {
        rig.write(number * 2, 1, 1);
    }
    assert_eq!(rig.dirty_blocks(), 103, "one was written home, and may be lost there");
    rig.pass_ms(1_000);
    assert_eq!(rig.dirty_blocks(), 102);
}

#[test]
fn a_clean_stop_keeps_everything_until_the_next_crash() {
    let mut rig = rig();
    rig.write(0, 8, 5);
    rig.read(100, 8);
    rig.restart();
    assert_eq!(rig.dirty_blocks(), 8);
    let (content, ops) = rig.read(100, 8);
    assert_eq!((content, bytes(&ops, Device::Cache, Kind::Read)), (vec![0; 8], 8 * 4096));
    assert_eq!(rig.read(0, 8).0, [5; 8]);
    // From its start on a cache does not count on what the stop before recorded as clean.
    rig.write(100, 1, 6);
    rig.crash();
    assert_eq!(rig.dirty_blocks(), 9);
    assert_eq!(rig.read(100, 2).0, [6, 0]);
    assert_eq!(bytes(&rig.read(102, 6).1, Device::Cache, Kind::Read), 0);
}
