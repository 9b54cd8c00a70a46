//! Requests that bypass slots before admission is asked: long runs, and with a slow cache device short ones, too.

use crate::rig::{Device, Kind, Op, Rig, bytes, composition};
use forebay_engine::composition::Composition;

const SLOTS: u32 = 1024;
const ORIGIN_BLOCKS: u64 = 8192;

/// Runs of 256 KiB pass by; each counts for itself.
fn runs(cutoff: &str) -> Composition {
    composition(&[("ways", "0"), ("cutoff", cutoff), ("cutoff_bytes", "262144"), ("average_weight", "0")])
}

fn is_cache_read(op: &Op) -> bool {
    op.device == Device::Cache && op.kind == Kind::Read
}

#[test]
fn a_stream_of_writes_goes_to_the_origin_from_its_cutoff_on() {
    let mut rig = Rig::new(&runs("runs"), SLOTS, ORIGIN_BLOCKS);
    let (mut cached, mut passed) = (Vec::new(), Vec::new());
    for step in 0..16 {
        let ops = rig.write(step * 8, 8, 1);
        cached.push(rig.slots_written(&ops).len() as u64);
        passed.push(bytes(&ops, Device::Origin, Kind::Write) / 4096);
    }
    // The run is counted block by block: the 64th of it has 256 KiB.
    assert_eq!(passed.iter().sum::<u64>(), 128 - 63, "{passed:?}");
    assert!(passed[..7].iter().all(|&blocks| blocks == 0) && passed[8..].iter().all(|&blocks| blocks == 8));
    assert_eq!(rig.dirty_blocks(), 63);
    // Who writes elsewhere is no stream; and what is cached is not passed by.
    let ops = rig.write(4000, 1, 2);
    assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 0);
    for step in 0..16 {
        let ops = rig.write(step * 8, 8, 3);
        let hits = 63u64.saturating_sub(step * 8).min(8);
        assert_eq!(bytes(&ops, Device::Origin, Kind::Write) / 4096, 8 - hits, "request {step}");
    }
    assert_eq!((rig.read(62, 2).0, rig.origin_byte(63)), (vec![3, 3], 3));
}

#[test]
fn a_stream_of_reads_leaves_the_cache_alone_from_its_cutoff_on() {
    for (cutoff, entered) in [("runs", 63), ("none", 128)] {
        let composition = match cutoff {
            "none" => composition(&[("ways", "0")]),
            _ => runs(cutoff),
        };
        let mut rig = Rig::new(&composition, SLOTS, ORIGIN_BLOCKS);
        let mut filled = 0;
        for step in 0..16 {
            let (_, ops) = rig.read(step * 8, 8);
            filled += rig.slots_written(&ops).len();
        }
        let again = (0..16).map(|step| bytes(&rig.read(step * 8, 8).1, Device::Cache, Kind::Read) / 4096);
        assert_eq!(again.sum::<u64>(), entered, "{cutoff}");
        assert!(filled > 0);
    }
}

/// A read that hits and that the cache answers after so many milliseconds.
fn slow_hit(rig: &mut Rig, block: u64, ms: u64) {
    let read = rig.submit_read(block * 8, 8);
    rig.run_but(is_cache_read);
    rig.pass_ms_but(ms, is_cache_read);
    assert!(!rig.is_answered(read));
    rig.run();
    assert!(rig.is_answered(read));
    rig.take_ops();
}

#[test]
fn a_slow_cache_is_passed_by_until_it_has_rested() {
    for (cutoff, is_passed) in [("runs", false), ("runs-and-congestion", true)] {
        let mut rig = Rig::new(&runs(cutoff), SLOTS, ORIGIN_BLOCKS);
        let ops = rig.write(10, 1, 1);
        assert_eq!((bytes(&ops, Device::Origin, Kind::Write), rig.slots_written(&ops).len()), (0, 1));
        for _ in 0..2 {
            slow_hit(&mut rig, 10, 900);
        }
        // Now single blocks, far from each other, are too long.
        let ops = rig.write(1000, 1, 2);
        assert_eq!(bytes(&ops, Device::Origin, Kind::Write) > 0, is_passed, "{cutoff}");
        assert_eq!(rig.slots_written(&ops).is_empty(), is_passed, "{cutoff}");
        rig.read(2000, 1);
        let (_, again) = rig.read(2000, 1);
        assert_eq!(
            bytes(&again, Device::Origin, Kind::Read) > 0,
            is_passed,
            "{cutoff}: a read does not enter"
        );
        // What is cached is not passed by.
        let ops = rig.write(10, 1, 3);
        assert_eq!(bytes(&ops, Device::Origin, Kind::Write), 0);
        // 1024 of bcache's milliseconds.
        rig.pass_ms(1_100);
        let ops = rig.write(3000, 1, 4);
        assert_eq!((bytes(&ops, Device::Origin, Kind::Write), rig.slots_written(&ops).len()), (0, 1));
    }
}

/// dm-cache's mq: in a sequential phase nothing is promoted.
#[test]
fn nothing_is_promoted_in_a_sequential_phase() {
    for (threshold, is_promoted) in [("4", false), ("512", true)] {
        let mq = composition(&[
            ("ways", "0"),
            ("admission", "mq"),
            ("replacement", "mq"),
            ("read_promote_adjustment", "0"),
            ("sequential_threshold", threshold),
        ]);
        let mut rig = Rig::new(&mq, SLOTS, ORIGIN_BLOCKS);
        // The same stream, several times: what it reads was read often enough.
        let mut from_cache = 0;
        for _ in 0..6 {
            for step in 0..32 {
                from_cache += bytes(&rig.read(step, 1).1, Device::Cache, Kind::Read) / 4096;
            }
        }
        // The first requests of each pass are no stream yet.
        assert_eq!(from_cache > 64, is_promoted, "{threshold}: {from_cache} blocks");
    }
}
