//! Goal: a cache with dirty data in memory is a cache: made, served, killed, served again, looked at, emptied and taken
//! away. Method: the real command on small files, `nbdcopy` as the client.

use crate::scene::{Place, Scene};
use std::fs;

const MIB: u64 = 1 << 20;

#[test]
fn a_life_with_dirty_data_in_memory() {
    for safety in [None, Some("--unsafe")] {
        let words: Vec<&str> = ["--profile", "gflash"].into_iter().chain(safety).collect();
        let scene = Scene::new(64 * MIB, &words);
        let Scene { place, origin, cache, change } = &scene;

        // nbdcopy flushes: nothing of it is lost.
        let daemon = scene.serve();
        assert_eq!(daemon.errors().contains("WARNING"), safety.is_some(), "{}", daemon.errors());
        daemon.write("disk", change);
        daemon.kill();
        let daemon = scene.serve();
        assert!(daemon.read("disk") == scene.changed());
        let status = scene.status();
        // A cache of 64 MiB has no use for more.
        assert_eq!(status["cache"]["kept_limit_bytes"].as_u64(), Some(64 * MIB), "{status}");
        assert!(status["cache"]["kept_bytes"].as_u64().is_some());
        daemon.write("disk", change);
        assert!(daemon.read("disk") == scene.changed());
        place.done(&["flush", cache]);
        assert!(fs::read(origin).unwrap() == scene.changed());
        assert_eq!(scene.status()["cache"]["kept_bytes"].as_u64(), Some(0));
        daemon.stop();
        assert_eq!(scene.report("check")["ok"], true);
        assert!(place.done(&["dump", cache]).contains("persistence = mirror"));
        assert!(place.done(&["detach", cache, "--verify"]).contains("detached disk"));
        assert!(fs::read(origin).unwrap() == scene.changed());
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
