//! The known behaviour of dm-cache in its ages, and of MapperX, which was made from one of them, read off the
//! operations of their devices.
//!
//! Source: dm-cache of Linux 3.9 to 4.12; geomflash-2015 for what follows from it; mapperx-2021.

use crate::rig::{Device, Kind, Op, Rig, bytes, composition};
use forebay_engine::composition::Composition;
use forebay_engine::effect::RequestOp;

/// Blocks of a slot, as in the studies: 256 KiB.
const SLOT: u64 = 64;
const SLOT_BYTES: u64 = SLOT * 4096;
const SLOTS: u32 = 32;

/// What all ages have, as published: nothing waits for a flush of the origin.
fn dm_cache(settings: &[(&str, &str)]) -> Composition {
    let common = [
        ("slot_bytes", "262144"),
        ("ways", "0"),
        ("writes", "in-place"),
        ("splits_requests", "true"),
        ("persistence", "commit"),
        ("destage", "idle"),
        ("fetch", "frame"),
    ];
    let mut composition = composition(&[&common, settings].concat());
    composition.safe = false;
    composition
}

const MQ: &[(&str, &str)] = &[
    ("admission", "mq"),
    ("replacement", "mq"),
    ("commits_promotions", "true"),
    ("waits", "true"),
    ("promotion_era", "split"),
    ("mq_era", "split"),
    ("idle_era", "mq"),
];
/// Linux 3.9.
const MQ_1: &[(&str, &str)] = &[("promotion_era", "single"), ("mq_era", "single"), ("idle_era", "mq1")];
const SMQ_1: &[(&str, &str)] = &[
    ("admission", "smq-hotspot"),
    ("replacement", "smq"),
    ("promotion_version", "1.0"),
    ("smq_version", "1.0"),
    ("commits_promotions", "true"),
    ("waits", "true"),
    ("idle_era", "smq1"),
];
const SMQ_2: &[(&str, &str)] = &[
    ("admission", "smq-hotspot"),
    ("replacement", "smq"),
    ("promotion_version", "2.0"),
    ("smq_version", "2.0"),
    ("commits_promotions", "false"),
    ("waits", "false"),
    ("idle_era", "smq2"),
];

fn rig(settings: &[(&str, &str)]) -> Rig {
    Rig::new(&dm_cache(settings), SLOTS, u64::from(2 * SLOTS) * SLOT)
}

fn homes(ops: &[Op]) -> Vec<u64> {
    let homes = ops.iter().filter(|op| op.device == Device::Origin && op.kind == Kind::Write);
    homes.map(|op| op.len_bytes).collect()
}

/// Puts a piece into a slot and lets it come to rest there, clean: it is asked for until it is.
fn promote(rig: &mut Rig, piece: u64) -> u32 {
    for reads in 1..200 {
        let (_, ops) = rig.read(piece * SLOT, 1);
        if bytes(&ops, Device::Origin, Kind::Read) == 0 {
            rig.pass_ms(5_000);
            rig.take_ops();
            return reads;
        }
        rig.pass_ms(50);
    }
    panic!("piece {piece} never enters");
}

/// A small write that hits, and what follows within 100 ms.
fn hit(rig: &mut Rig, block: u64, fill: u8) -> Vec<Op> {
    let mut ops = rig.write(block, 1, fill);
    let (data, _) = rig.cache_writes(&ops);
    assert_eq!(data, 1, "it hits");
    rig.pass_ms(100);
    ops.extend(rig.take_ops());
    ops
}

/// geomflash-2015, jobs 6 and 7: 4 KiB to the cache are 256 KiB to the disk, each time.
#[test]
fn in_3_16_every_small_write_that_hits_sends_its_whole_slot_home() {
    let mut rig = rig(MQ);
    promote(&mut rig, 3);
    let mut home_bytes = 0;
    for step in 0..10 {
        let ops = hit(&mut rig, 3 * SLOT + step * 5, 1 + step as u8);
        assert_eq!(homes(&ops), [SLOT_BYTES], "write {step}");
        assert_eq!(bytes(&ops, Device::Cache, Kind::Read), SLOT_BYTES, "all of it is read for that");
        assert_eq!(rig.dirty_blocks(), 0);
        assert_eq!(rig.origin_byte(3 * SLOT + step * 5), 1 + step as u8);
        home_bytes += SLOT_BYTES;
    }
    assert_eq!(home_bytes, 10 * 64 * 4096, "64 times what was written");
}

/// A piece enters when it was asked for often enough, a reader of it earlier than a writer.
#[test]
fn in_3_16_a_piece_enters_at_its_fifth_read() {
    let mut rig = rig(MQ);
    let mut brought = Vec::new();
    for _ in 0..6 {
        let (_, ops) = rig.read(0, 1);
        brought.push(bytes(&ops, Device::Origin, Kind::Read));
        rig.pass_ms(1);
    }
    let mut expected = [4096; 6];
    // The one that brings it in waits for it, and is served from the slot.
    (expected[4], expected[5]) = (SLOT_BYTES, 0);
    assert_eq!(brought, expected);
}

#[test]
fn in_3_9_nothing_goes_home_before_somebody_needs_the_place() {
    let mut rig = rig(&[MQ, MQ_1].concat());
    promote(&mut rig, 3);
    let ops = hit(&mut rig, 3 * SLOT, 7);
    assert_eq!(homes(&ops), []);
    rig.pass_ms(60_000);
    assert_eq!((homes(&rig.take_ops()), rig.dirty_blocks()), (vec![], SLOT));
}

/// Dirty data goes home when the origin rests, however busy the cache is.
#[test]
fn hits_do_not_keep_dirty_data_from_going_home() {
    for settings in [SMQ_1, SMQ_2] {
        let mut rig = rig(settings);
        promote(&mut rig, 3);
        promote(&mut rig, 5);
        hit(&mut rig, 3 * SLOT, 7);
        let mut ops = Vec::new();
        // Reads of another slot, less than a second between any two, for as long as a frame takes to be old.
        for _ in 0..100 {
            ops.extend(rig.read(5 * SLOT + 1, 1).1);
            rig.pass_ms(600);
            ops.extend(rig.take_ops());
        }
        assert_eq!(homes(&ops), [SLOT_BYTES], "while somebody reads");
        assert_eq!(rig.dirty_blocks(), 0);
    }
}

#[test]
fn since_4_12_nobody_waits_for_a_copy_and_before_all_do() {
    for (settings, waits) in [(SMQ_1, true), (SMQ_2, false)] {
        let mut rig = rig(settings);
        let is_copy =
            |op: &Op| op.device == Device::Cache && op.kind == Kind::Write && op.len_bytes == SLOT_BYTES;
        let mut has_copied = false;
        for _ in 0..200 {
            let read = rig.submit_read(3 * SLOT * 8, 8);
            rig.run_but(is_copy);
            if rig.take_ops().iter().any(is_copy) {
                assert_eq!(rig.is_answered(read), !waits);
                has_copied = true;
                break;
            }
            rig.pass_ms(50);
        }
        assert!(has_copied, "the piece never enters");
    }
}

/// A disk that reads a stream would turn once more if the copy went first.
#[test]
fn since_4_12_a_request_goes_to_the_origin_before_the_copy_that_it_asks_for() {
    let mut rig = rig(SMQ_2);
    let asked = (0..200).find_map(|_| {
        let (_, ops) = rig.read(3 * SLOT, 1);
        rig.pass_ms(50);
        let reads = ops.iter().filter(|op| op.device == Device::Origin && op.kind == Kind::Read);
        let lens: Vec<u64> = reads.map(|op| op.len_bytes).collect();
        (lens.len() > 1).then_some(lens)
    });
    assert_eq!(asked, Some(vec![4096, SLOT_BYTES]));
}

/// Pieces in slots, clean and recorded so.
fn clean_pieces(rig: &mut Rig, pieces: u64) {
    for piece in 0..pieces {
        rig.write(piece * SLOT, SLOT, 1);
    }
    rig.submit(RequestOp::Drain);
    // A little more, so that nobody looks for what could go home just now.
    rig.pass_ms(5_100);
    assert_eq!(rig.dirty_blocks(), 0);
    rig.take_ops();
}

/// What MapperX adds: the first write below a leaf pays for its mark, the others nothing; and a crash knows them.
#[test]
fn in_mapperx_a_leaf_is_marked_before_its_first_dirty_byte_and_in_dm_cache_none_is() {
    let plain = [("admission", "always"), ("replacement", "smq"), ("waits", "true")];
    for (persistence, marks) in [("commit", false), ("bit-tree", true)] {
        let mut rig =
            rig(&[&plain[..], &[("persistence", persistence), ("commits_promotions", "true")]].concat());
        clean_pieces(&mut rig, 4);
        let ops = rig.write(0, 1, 2);
        let data = rig.layout.slot_offset_bytes(forebay_engine::units::Frame(0));
        let writes: Vec<&Op> =
            ops.iter().filter(|op| op.device == Device::Cache && op.kind == Kind::Write).collect();
        let first_data = writes.iter().position(|op| op.offset_bytes >= data).expect("it is written");
        // The page with the mark, and the record of its transaction.
        assert_eq!(first_data, if marks { 2 } else { 0 }, "{persistence}: {ops:?}");
        let beside = rig.write(SLOT, 1, 3);
        assert_eq!(rig.cache_writes(&beside), (1, 0), "{persistence}: the leaf is marked by now");
        assert_eq!(rig.dirty_blocks(), 2 * SLOT);
        rig.crash();
        assert_eq!(rig.dirty_blocks(), 4 * SLOT, "{persistence}: all, or all below the leaf");
        assert_eq!(rig.read(0, 2).0, [2, 1]);
    }
    // With nothing dirty the two differ.
    for (persistence, expected) in [("commit", 4 * SLOT), ("bit-tree", 0)] {
        let mut rig =
            rig(&[&plain[..], &[("persistence", persistence), ("commits_promotions", "true")]].concat());
        clean_pieces(&mut rig, 4);
        rig.crash();
        assert_eq!(rig.dirty_blocks(), expected, "{persistence}");
    }
}
