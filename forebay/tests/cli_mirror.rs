//! Goal: a cache with dirty data in memory is a cache: made, served, killed, served again, looked at, emptied and taken
//! away. Method: the real command on small files, `nbdcopy` as the client.

mod cli_support;

use cli_support::Place;
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;

fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut state = seed;
    (0..bytes / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state.to_le_bytes()
        })
        .collect()
}

#[test]
fn a_life_with_dirty_data_in_memory() {
    for safety in [None, Some("--unsafe")] {
        let place = Place::new();
        let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 64 * MIB));
        fs::write(&origin, pattern(1, 16 * MIB)).unwrap();
        let change = place.file("change.img", 0);
        fs::write(&change, pattern(2, 4 * MIB)).unwrap();
        let mut changed = pattern(1, 16 * MIB);
        changed[..4 * MIB as usize].copy_from_slice(&pattern(2, 4 * MIB));
        let mut create = vec!["create", "--origin", &origin, "--cache", &cache, "--name", "disk"];
        create.extend(["--profile", "gflash"].into_iter().chain(safety));
        place.done(&create);
        let report =
            |verb: &str| -> Value { serde_json::from_str(&place.done(&[verb, &cache, "--json"])).unwrap() };

        // nbdcopy flushes: nothing of it is lost.
        let daemon = place.serve(&cache, &[]);
        assert_eq!(daemon.errors().contains("WARNING"), safety.is_some(), "{}", daemon.errors());
        daemon.write("disk", &change);
        daemon.kill();
        let daemon = place.serve(&cache, &[]);
        assert!(daemon.read("disk") == changed);
        let status = report("status");
        // A cache of 64 MiB has no use for more.
        assert_eq!(status["cache"]["kept_limit_bytes"].as_u64(), Some(64 * MIB), "{status}");
        assert!(status["cache"]["kept_bytes"].as_u64().is_some());
        daemon.write("disk", &change);
        assert!(daemon.read("disk") == changed);
        place.done(&["flush", &cache]);
        assert!(fs::read(&origin).unwrap() == changed);
        assert_eq!(report("status")["cache"]["kept_bytes"].as_u64(), Some(0));
        daemon.stop();
        assert_eq!(report("check")["ok"], true);
        assert!(place.done(&["dump", &cache]).contains("persistence = mirror"));
        assert!(place.done(&["detach", &cache, "--verify"]).contains("detached disk"));
        assert!(fs::read(&origin).unwrap() == changed);
    }
}

#[test]
fn memory_for_dirty_data_is_part_of_what_serve_may_take() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 256 * MIB));
    place.done(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk", "--profile", "gflash"]);
    place.refused(&["serve", &cache, "--memory", "200M"], 1, &["--memory must be at least", "for buffers"]);
    place.serve(&cache, &["--memory", "512M"]).stop();
}
