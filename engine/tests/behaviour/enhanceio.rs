//! The known behaviour of EnhanceIO, read off the operations of its devices.
//!
//! Source: EnhanceIO of October 2015, and its documents.

use crate::rig::{Device, Kind, Op, Rig, bytes, composition};
use forebay_engine::composition::Composition;

/// Blocks of a set: 2 MiB.
const SET: u64 = 512;
const SETS: u32 = 4;

/// In writeback, as the studies had it; as published: nothing waits for a flush.
fn enhanceio() -> Composition {
    let mut enhanceio = composition(&[
        ("writes", "both-if-clean"),
        ("destage", "threshold-sets"),
        ("set_map", "masked"),
        ("free_order", "lowest"),
        ("all_or_nothing", "true"),
        ("splits_requests", "false"),
        ("rereads_whole", "true"),
        ("cleans_per_block", "false"),
    ]);
    enhanceio.safe = false;
    enhanceio
}

fn rig() -> Rig {
    Rig::new(&enhanceio(), SETS * SET as u32, 16 * SET)
}

fn is_origin_write(op: &Op) -> bool {
    op.device == Device::Origin && op.kind == Kind::Write
}

#[test]
fn two_mib_of_consecutive_addresses_share_a_set_from_its_first_slot_on() {
    let mut rig = rig();
    let ops = rig.write(0, 64, 1);
    assert_eq!(rig.slots_written(&ops), [0], "one write for the whole request");
    assert_eq!(bytes(&ops, Device::Cache, Kind::Write), 64 * 4096 + 4096);
    let ops = rig.write(SET, 1, 1);
    assert_eq!(rig.slots_written(&ops), [SET]);
}

#[test]
fn a_new_block_costs_data_and_then_its_record_and_a_dirty_one_data_only() {
    let mut rig = rig();
    let number = rig.submit_write(0, 8, 1);
    rig.run_but(|_| true);
    let first = rig.take_ops();
    assert_eq!(rig.cache_writes(&first), (1, 0), "in series");
    rig.run();
    assert!(rig.is_answered(number));
    let then = rig.take_ops();
    assert_eq!(rig.cache_writes(&then), (0, 1));
    let again = rig.write(0, 1, 2);
    assert_eq!(rig.cache_writes(&again), (1, 0));
}

/// A clean block that is being read or written counts as not cached; a dirty one does not.
#[test]
fn readers_of_a_busy_clean_block_ask_the_origin() {
    let mut rig = rig();
    let is_cache_read = |op: &Op| op.device == Device::Cache && op.kind == Kind::Read;
    rig.read(10, 1);
    rig.write(20, 1, 7);
    rig.take_ops();
    for (block, device) in [(10, Device::Origin), (20, Device::Cache)] {
        let first = rig.submit_read(block * 8, 8);
        rig.run_but(is_cache_read);
        let second = rig.submit_read(block * 8, 8);
        rig.run_but(is_cache_read);
        let ops = rig.take_ops();
        assert_eq!(ops.iter().map(|op| op.device).collect::<Vec<_>>(), [Device::Cache, device]);
        rig.run();
        assert!(rig.is_answered(first) && rig.is_answered(second));
        rig.take_ops();
    }
    assert_eq!((rig.read(10, 1).0, rig.read(20, 1).0), (vec![0], vec![7]));
}

/// Its slot is busy until the disk has what is written through, too, however long the cache has had it.
#[test]
fn readers_of_a_block_that_is_written_through_ask_the_origin_until_that_has_it() {
    let mut through = enhanceio();
    through.set("write_mode", "writethrough").unwrap();
    let mut rig = Rig::new(&through, SETS * SET as u32, 16 * SET);
    rig.write(5, 1, 1);
    rig.take_ops();
    let write = rig.submit_write(40, 8, 2);
    rig.run_but(is_origin_write);
    let ops = rig.take_ops();
    assert_eq!((rig.is_answered(write), rig.cache_writes(&ops)), (false, (1, 0)), "the slot has it");
    let read = rig.submit_read(40, 8);
    rig.run_but(is_origin_write);
    assert_eq!(rig.take_ops().iter().map(|op| op.device).collect::<Vec<_>>(), [Device::Origin]);
    rig.run();
    assert!(rig.is_answered(write) && rig.is_answered(read));
    rig.take_ops();
    let (content, ops) = rig.read(5, 1);
    assert_eq!((content, bytes(&ops, Device::Origin, Kind::Read)), (vec![2], 0));
}

#[test]
fn a_read_that_misses_in_part_is_read_wholly_from_the_origin() {
    let mut rig = rig();
    rig.read(10, 1);
    let (_, ops) = rig.read(10, 1);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 0);
    let (_, ops) = rig.read(10, 8);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 8 * 4096);
    assert_eq!(bytes(&ops, Device::Cache, Kind::Read), 0);
    assert_eq!(bytes(&ops, Device::Cache, Kind::Write), 7 * 4096, "and the seven enter");
    let (_, ops) = rig.read(10, 8);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 0);
}

#[test]
fn what_is_dirty_is_read_from_the_cache_even_then() {
    let mut rig = rig();
    rig.write(20, 1, 7);
    let (content, _) = rig.read(19, 3);
    assert_eq!(content, [0, 7, 0]);
}

#[test]
fn a_part_of_a_dirty_block_stays_in_the_cache_and_one_of_a_clean_block_goes_to_both() {
    let mut rig = rig();
    rig.write(0, 1, 1);
    let ops = rig.write_sectors(2, 1, 2);
    assert_eq!(rig.cache_writes(&ops), (1, 0));
    assert!(!ops.iter().any(is_origin_write));

    rig.read(1, 1);
    let ops = rig.write_sectors(8, 1, 3);
    assert_eq!(rig.cache_writes(&ops), (1, 0), "it stays clean");
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 512);
    assert_eq!(rig.origin_byte(1), 3);
    let (content, ops) = rig.read(1, 1);
    assert_eq!((content, bytes(&ops, Device::Origin, Kind::Read)), (vec![3], 0));

    let ops = rig.write_sectors(16, 1, 4);
    assert_eq!(rig.cache_writes(&ops), (0, 0), "one of a block that is not cached goes to the origin");
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 512);
}

/// Makes a set wholly dirty while nothing gets home.
fn fill_set(rig: &mut Rig, stays: impl Fn(&Op) -> bool) {
    for block in 0..SET {
        rig.submit_write(block * 8, 8, 1);
        rig.run_but(&stays);
    }
    rig.take_ops();
}

#[test]
fn a_request_goes_to_the_cache_wholly_or_not_at_all() {
    // Without cleaning: the set stays full.
    let mut still = enhanceio();
    for (name, value) in [("pause_above_requests", "0"), ("age_by_size", "false")] {
        still.set(name, value).unwrap();
    }
    let mut rig = Rig::new(&still, SETS * SET as u32, 16 * SET);
    fill_set(&mut rig, |_| false);
    // The last block of the full set, and the first of the next.
    let stranger = u64::from(SETS) * SET + SET - 1;
    let ops = rig.write(stranger, 2, 9);
    assert_eq!(rig.cache_writes(&ops), (0, 0));
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 2 * 4096);
    // If one of its blocks is cached, that is written besides.
    let ops = rig.write(SET - 1, 1, 2);
    assert_eq!(rig.cache_writes(&ops), (1, 0));
    rig.read(stranger + 1, 1);
    let ops = rig.write(stranger, 2, 8);
    assert_eq!(rig.cache_writes(&ops), (1, 0));
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 2 * 4096);
    assert_eq!(rig.read(stranger, 2).0, [8, 8]);
}

#[test]
fn above_30_percent_whole_sets_go_home_block_by_block_those_first_that_rested_longest() {
    let mut rig = rig();
    // 30 % of 2048, by hundreds: 600. The last set that is touched has the fewest.
    for (first, blocks) in [(0, 250), (SET, 250), (2 * SET, 99)] {
        (first..first + blocks).for_each(|block| drop(rig.write(block, 1, 1)));
    }
    assert_eq!(rig.dirty_blocks(), 599);
    let ops = rig.write(2 * SET + 99, 1, 1);
    let homes: Vec<u64> =
        ops.iter().filter(|op| is_origin_write(op)).map(|op| op.offset_bytes / 4096).collect();
    // 204 may stay: two sets have more than the 396 that are above.
    let whole_sets: Vec<u64> = (0..250).chain(SET..SET + 250).collect();
    assert_eq!(homes, whole_sets);
    assert!(ops.iter().filter(|op| is_origin_write(op)).all(|op| op.len_bytes == 4096));
    assert_eq!(rig.dirty_blocks(), 100);
}

/// Goal: the records of a set that was cleaned are written together, where another system writes one for each block.
/// Method: the pages that two sets cost which go home.
#[test]
fn a_set_that_was_cleaned_is_recorded_when_all_of_it_is_home() {
    for (value, least, most) in [("false", 3, 3), ("true", 4, 501)] {
        let mut composition = enhanceio();
        composition.set("cleans_per_block", value).unwrap();
        let mut rig = Rig::new(&composition, SETS * SET as u32, 16 * SET);
        for (first, blocks) in [(0, 250), (SET, 250), (2 * SET, 99)] {
            (first..first + blocks).for_each(|block| drop(rig.write(block, 1, 1)));
        }
        let ops = rig.write(2 * SET + 99, 1, 1);
        assert_eq!(rig.dirty_blocks(), 100);
        let (data, records) = rig.cache_writes(&ops);
        // One for the block that was written; the blocks of each set have their records in one page.
        assert_eq!(data, 1);
        assert!((least..=most).contains(&records), "{value}: {records} pages");
    }
}

#[test]
fn nobody_uses_a_set_that_is_being_cleaned() {
    let mut rig = rig();
    for block in (0..300).chain(SET..SET + 300) {
        rig.submit_write(block * 8, 8, 1);
        rig.run_but(is_origin_write);
    }
    // Not one of those that go home.
    let stranger = u64::from(SETS) * SET;
    let write = rig.submit_write(stranger * 8, 8, 9);
    let read = rig.submit_read(stranger * 8 + 8, 8);
    let elsewhere = rig.submit_write(2 * SET * 8, 8, 1);
    rig.run_but(is_origin_write);
    assert!(!rig.is_answered(write) && !rig.is_answered(read));
    assert!(rig.is_answered(elsewhere));
    rig.pass_ms(100);
    assert!(rig.is_answered(write) && rig.is_answered(read));
}

#[test]
fn a_full_set_is_cleaned_down_to_30_percent() {
    let mut rig = Rig::new(&enhanceio(), 8 * SET as u32, 16 * SET);
    for block in 0..SET {
        rig.write(block, 1, 1);
    }
    // 30 % of 512.
    assert_eq!(rig.dirty_blocks(), 153);
}

#[test]
fn writethrough_writes_to_both_and_dirties_nothing() {
    let mut through = enhanceio();
    through.set("write_mode", "writethrough").unwrap();
    let mut rig = Rig::new(&through, SETS * SET as u32, 16 * SET);
    for (fill, writes) in [(1, 4), (2, 1)] {
        let ops = rig.write(5, 4, fill);
        assert_eq!(rig.cache_writes(&ops), (writes, 0), "fills go one by one");
        assert_eq!(bytes(&ops, Device::Cache, Kind::Write), 4 * 4096);
        assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 4 * 4096);
        assert_eq!(rig.dirty_blocks(), 0);
    }
    let (content, ops) = rig.read(5, 4);
    assert_eq!((content, bytes(&ops, Device::Origin, Kind::Read)), (vec![2; 4], 0));
}
