//! Goal: `scrub` names what rotted, drops it where it was clean, and leaves all else as it is, with a daemon and without; a
//! daemon scrubs by itself if it is told to. Method: 4 MiB are written, bits of the cache file are flipped where they lie.

use crate::rot::flip;
use crate::scene::{Scene, overwrite};
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn scene(profile: &str) -> Scene {
    Scene::new(64 * MIB, &["--profile", profile, "--mode", "writeback"])
}

/// What a scrub says, and whether it ends well.
fn scrub(scene: &Scene) -> (Value, bool) {
    let output = scene.place.forebay(&["scrub", &scene.cache, "--json"]);
    let said = serde_json::from_slice(&output.stdout).expect("a report");
    (said, output.status.success())
}

fn count(said: &Value, what: &str) -> u64 {
    said[what].as_u64().unwrap_or_else(|| panic!("{what} is a number: {said}"))
}

#[test]
fn what_is_clean_and_rotten_leaves_and_is_read_from_the_origin() {
    for profile in ["forebay", "flashcache", "enhanceio"] {
        let scene = scene(profile);
        let daemon = scene.serve();
        daemon.write("disk", &scene.change);
        scene.place.done(&["flush", &scene.cache]);
        daemon.stop();
        let flipped = flip(&scene, 50).len() as u64;
        assert!(flipped > 10, "{profile}: {flipped}");
        let (said, is_good) = scrub(&scene);
        assert!(is_good, "{profile}: nothing is lost: {said}");
        assert_eq!(count(&said, "dropped_blocks"), flipped, "{profile}: {said}");
        assert_eq!(count(&said, "lost_blocks") + count(&said, "unreadable_blocks"), 0, "{profile}: {said}");
        assert!(count(&said, "good_blocks") >= 1024 - flipped, "{profile}: {said}");
        let named: u64 =
            said["damaged"].as_array().expect("a list").iter().map(|r| count(r, "len_bytes")).sum();
        assert_eq!(named, flipped * 4096, "{profile}: {said}");

        let daemon = scene.serve();
        let (again, is_good) = scrub(&scene);
        assert!(is_good && count(&again, "dropped_blocks") == 0, "{profile}: {again}");
        assert!(daemon.read("disk") == scene.changed(), "{profile}");
        daemon.stop();
    }
}

#[test]
fn what_is_dirty_and_rotten_is_lost_and_named() {
    let scene = scene("forebay");
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    daemon.stop();
    let flipped = flip(&scene, 50);
    let daemon = scene.serve();
    let (said, is_good) = scrub(&scene);
    let (lost, dropped) = (count(&said, "lost_blocks"), count(&said, "dropped_blocks"));
    assert!(!is_good, "{said}");
    assert_eq!((lost, dropped), (flipped.len() as u64, 0), "{said}");
    let ranges = said["damaged"].as_array().expect("a list");
    for range in ranges {
        let first = count(range, "offset_bytes") / 4096;
        for block in first..first + count(range, "len_bytes") / 4096 {
            assert!(flipped.contains(&block), "block {block} did not rot: {said}");
        }
    }
    let error = scene.place.forebay(&["scrub", &scene.cache]);
    let (told, why) = (String::from_utf8_lossy(&error.stdout), String::from_utf8_lossy(&error.stderr));
    assert!(told.contains("volume disk, byte ") && why.contains("lost=give-up"), "{told} {why}");
    let flushed = scene.place.forebay(&["flush", &scene.cache]);
    let why = String::from_utf8_lossy(&flushed.stderr);
    assert!(why.contains("rotted in the cache, all else is home"), "{why}");
    scene.place.done(&["set", &scene.cache, "lost=give-up"]);
    assert!(scrub(&scene).1, "nothing is lost any more");
    daemon.stop();
}

#[test]
fn a_damaged_summary_is_told_while_the_cache_runs() {
    let scene = scene("forebay");
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    let cache = fs::read(&scene.cache).expect("it is there");
    let summary = cache.chunks(4096).position(|block| block.starts_with(b"FBAYSUMM")).expect("a summary");
    overwrite(&scene.cache, summary as u64 * 4096 + 300, &[cache[summary * 4096 + 300] ^ 0x10]);
    let (said, is_good) = scrub(&scene);
    assert!(!is_good && count(&said, "damaged_segments") == 1, "{said}");
    assert_eq!(scene.status()["scrub"]["last_damaged_blocks"], 1);
    let output = scene.place.forebay(&["scrub", &scene.cache]);
    let (told, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("DAMAGED head or summary: 1") && why.contains("forebay flush"), "{told} {why}");
    daemon.stop();
}

#[test]
fn a_daemon_scrubs_by_itself_if_it_is_told_to() {
    let scene = scene("forebay");
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    let report = || -> Value {
        serde_json::from_str(&scene.place.done(&["status", &scene.cache, "--json"])).expect("a report")
    };
    let before = report();
    assert!(before["scrub"]["days"].is_null() && before["scrub"]["last_ended_seconds"].is_null(), "{before}");
    for days in ["0", "none", "366"] {
        let words = ["give 1 to 365 days", "without the flag"];
        scene.place.refused(&["serve", &scene.cache, "--scrub-days", days], 2, &words);
    }
    scene.place.refused(&["set", &scene.cache, "scrub-days=0"], 2, &["scrub-days=30"]);
    scene.place.refused(&["set", &scene.cache, "disk", "scrub-days=7"], 1, &["leave the volume out"]);
    scene.place.done(&["set", &scene.cache, "scrub-days=7"]);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now = report();
        if now["scrub"]["last_ended_seconds"].is_u64() {
            assert_eq!(now["scrub"]["days"], 7, "{now}");
            assert_eq!(now["scrub"]["last_damaged_blocks"], 0, "{now}");
            assert!(count(&now["scrub"], "last_read_bytes") >= 4 * MIB, "{now}");
            break;
        }
        assert!(Instant::now() < until, "it is never scrubbed: {now}");
        thread::sleep(Duration::from_millis(200));
    }
    let text = scene.place.done(&["status", &scene.cache]);
    assert!(text.contains("scrubbed   "), "{text}");
    daemon.stop();
    assert!(fs::metadata(&scene.cache).is_ok());
}
