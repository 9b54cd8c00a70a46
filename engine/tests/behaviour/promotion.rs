//! Promotion of whole slots, as dm-cache has it: what a part of a piece asks for brings all of it.

use crate::rig::{Device, Kind, Rig, bytes, composition};
use forebay_engine::composition::Composition;

const SLOT: u64 = 16;

/// Slots of 64 KiB anywhere. `waits`: until Linux 4.11 a request waited for the copy.
fn frames(waits: bool) -> Composition {
    let waits = if waits { "true" } else { "false" };
    composition(&[("slot_bytes", "65536"), ("ways", "0"), ("fetch", "frame"), ("waits", waits)])
}

#[test]
fn a_read_waits_for_the_whole_slot_and_is_served_from_it() {
    let mut rig = Rig::new(&frames(true), 32, 64 * SLOT);
    let (_, ops) = rig.read(SLOT + 3, 1);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), SLOT * 4096);
    assert_eq!(bytes(&ops, Device::Cache, Kind::Write), SLOT * 4096);
    assert_eq!(bytes(&ops, Device::Cache, Kind::Read), 4096, "served from the slot");
    assert_eq!(ops.last().map(|op| op.device), Some(Device::Cache));
    let (_, ops) = rig.read(SLOT + 9, 1);
    assert_eq!((ops.len(), bytes(&ops, Device::Cache, Kind::Read)), (1, 4096));
}

/// dm-cache until Linux 4.11: what a copy held up goes on when its mapping is committed.
#[test]
fn and_for_the_commit_where_promotions_are_committed() {
    for is_committed in ["true", "false"] {
        let mut composition = frames(true);
        for (key, value) in [("persistence", "commit"), ("commits_promotions", is_committed)] {
            composition.set(key, value).expect("names of the tables");
        }
        let mut rig = Rig::new(&composition, 32, 64 * SLOT);
        // The first copy opens the area of checksums, which takes a flush of its own.
        rig.read(0, 1);
        let read = rig.submit_read((SLOT + 3) * 8, 8);
        rig.run_but(|op| op.kind == Kind::Flush);
        assert_eq!(rig.is_answered(read), is_committed == "false");
        rig.run();
        assert!(rig.is_answered(read));
    }
}

#[test]
fn or_the_origin_answers_and_is_read_again_for_the_copy() {
    let mut rig = Rig::new(&frames(false), 32, 64 * SLOT);
    let read = rig.submit_read((SLOT + 3) * 8, 8);
    rig.run_but(|op| op.len_bytes > 4096);
    assert!(rig.is_answered(read), "nobody waits for the copy");
    rig.run();
    let ops = rig.take_ops();
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 4096 + SLOT * 4096);
    assert_eq!(bytes(&ops, Device::Cache, Kind::Write), SLOT * 4096);
    assert_eq!(rig.read(SLOT, 16).1.len(), 1);
}

/// In turns the worker that copies comes before the client's next request, and after it.
#[test]
fn a_copy_begins_when_the_read_that_asked_for_it_has_ended() {
    let mut rig = Rig::new(&frames(false), 32, 64 * SLOT);
    let read_bytes = |rig: &mut Rig| bytes(&rig.take_ops(), Device::Origin, Kind::Read);
    for (slot, is_worker_first) in [(1, true), (2, false), (3, true)] {
        let read = rig.submit_read((slot * SLOT + 3) * 8, 8);
        rig.run_but(|_| true);
        assert_eq!(read_bytes(&mut rig), 4096, "slot {slot}: the client's alone");
        rig.run();
        assert!(rig.is_answered(read));
        assert_eq!(read_bytes(&mut rig), if is_worker_first { SLOT * 4096 } else { 0 }, "slot {slot}");
        rig.pass_ms(1);
        assert_eq!(read_bytes(&mut rig), if is_worker_first { 0 } else { SLOT * 4096 }, "slot {slot}");
    }
}

#[test]
fn a_part_that_is_written_waits_for_the_rest_of_its_piece() {
    let mut rig = Rig::new(&frames(true), 32, 64 * SLOT);
    let ops = rig.write(SLOT + 3, 1, 7);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), SLOT * 4096);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 0);
    let (content, ops) = rig.read(SLOT, SLOT);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 0);
    assert_eq!(content, [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.dirty_blocks(), SLOT);
}

#[test]
fn or_it_goes_to_the_origin_and_the_piece_is_copied_then() {
    let mut rig = Rig::new(&frames(false), 32, 64 * SLOT);
    let ops = rig.write(SLOT + 3, 1, 7);
    let kinds: Vec<(Device, Kind, u64)> = ops.iter().map(|op| (op.device, op.kind, op.len_bytes)).collect();
    let whole = SLOT * 4096;
    let expected = [
        (Device::Origin, Kind::Write, 4096),
        (Device::Origin, Kind::Read, whole),
        (Device::Cache, Kind::Write, whole),
    ];
    assert_eq!(kinds, expected);
    let (content, ops) = rig.read(SLOT + 3, 1);
    assert_eq!((content, ops.len()), (vec![7], 1));
    assert_eq!(rig.dirty_blocks(), 0);
}

#[test]
fn a_write_of_the_whole_piece_reads_nothing() {
    for waits in [true, false] {
        let mut rig = Rig::new(&frames(waits), 32, 64 * SLOT);
        let ops = rig.write(2 * SLOT, SLOT, 3);
        assert_eq!(bytes(&ops, Device::Origin, Kind::Read) + bytes(&ops, Device::Origin, Kind::Write), 0);
        // What is around it is filled, and it is not.
        let ops = rig.write(3 * SLOT - 2, SLOT + 4, 4);
        let is_read = bytes(&ops, Device::Origin, Kind::Read);
        assert_eq!(is_read, SLOT * 4096, "waits: {waits}");
        assert_eq!(rig.read(3 * SLOT - 3, 4).0, [3, 4, 4, 4]);
        assert_eq!(rig.read(4 * SLOT, 4).0, [4, 4, 0, 0]);
    }
}

#[test]
fn writers_wait_for_a_copy_under_way_and_win() {
    let mut rig = Rig::new(&frames(false), 32, 64 * SLOT);
    rig.submit_read(SLOT * 8, 8);
    rig.run_but(|op| op.len_bytes > 4096);
    let write = rig.submit_write((SLOT + 1) * 8, 8, 9);
    rig.run_but(|op| op.len_bytes > 4096);
    assert!(!rig.is_answered(write));
    rig.pass_ms(100);
    assert!(rig.is_answered(write));
    assert_eq!(rig.read(SLOT, 3).0, [0, 9, 0]);
}

#[test]
fn the_end_of_a_volume_is_a_short_piece() {
    let mut rig = Rig::new(&frames(true), 32, 2 * SLOT + 3);
    let (_, ops) = rig.read(2 * SLOT + 1, 1);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Read), 3 * 4096);
    rig.write(2 * SLOT + 2, 1, 5);
    assert_eq!(rig.read(2 * SLOT, 3).0, [0, 0, 5]);
}
