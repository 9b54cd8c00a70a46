//! Goal: what only a damaged cache has comes home, or into a file, and what cannot be read is named; nothing is written before
//! somebody says so. Method: 4 MiB are written and dirty, and the head of a segment of the log is damaged, below what was
//! flushed: a start refuses that.

use crate::rot::flip;
use crate::scene::{Scene, overwrite};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;

/// A cache with dirty data that cannot be started; `every` so many blocks rotted as well, if it is not 0.
pub fn damaged(every: usize) -> Scene {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    daemon.stop();
    if every > 0 {
        assert!(!flip(&scene, every).is_empty(), "data lies in the cache");
    }
    let head = heads(&scene)[1];
    overwrite(&scene.cache, head + 40, &[0xff; 8]);
    scene
}

/// The places of the heads of segments.
pub fn heads(scene: &Scene) -> Vec<u64> {
    let cache = fs::read(&scene.cache).expect("it is there");
    let is_head = |at: &usize| cache[*at..].starts_with(b"FBAYHEAD");
    let heads: Vec<u64> = (0..cache.len()).step_by(4096).filter(is_head).map(|at| at as u64).collect();
    assert!(heads.len() > 2, "the log has segments: {heads:?}");
    heads
}

fn report(scene: &Scene, more: &[&str]) -> (Value, bool) {
    let output = scene.place.forebay(&[&["salvage", &scene.cache, "--json"], more].concat());
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("a report: {why}"));
    (said, output.status.success())
}

#[test]
fn dirty_data_of_a_cache_that_cannot_be_started_comes_home() {
    let scene = damaged(0);
    let serve = ["serve", &scene.cache, "--nbd", "unix:never"];
    scene.place.refused(&serve, 1, &["cannot be recovered", "forebay salvage"]);
    let (origin, cache) =
        (fs::read(&scene.origin).expect("it is there"), fs::read(&scene.cache).expect("it is there"));

    let (said, is_good) = report(&scene, &[]);
    assert!(is_good && said["damage"].is_string() && said["written"] == false, "{said}");
    assert!(fs::read(&scene.origin).expect("it is there") == origin, "nothing is written unasked");

    let copy = scene.place.path("copy.img");
    let copy = copy.to_str().expect("a plain path").to_owned();
    let to = format!("disk={copy}");
    scene.place.refused(&["salvage", &scene.cache, "--to", "other=x"], 1, &["there is no volume other"]);
    scene.place.done(&["salvage", &scene.cache, "--to", &to, "--write"]);
    assert!(fs::read(&scene.origin).expect("it is there") == origin, "it went into the file");
    let (newest, copied) = (scene.changed(), fs::read(&copy).expect("just written"));
    assert_eq!(copied.len(), newest.len());
    let is_right = |((found, newest), old): ((&[u8], &[u8]), &[u8])| {
        found == newest || (found.iter().all(|byte| *byte == 0) && old == newest)
    };
    let blocks = copied.chunks(4096).zip(newest.chunks(4096)).zip(origin.chunks(4096));
    assert!(blocks.clone().all(is_right), "the file has what was dirty, and nothing else");
    // A try says so, too; and the origin is there as well.
    let there = ["is there already", "writes over nothing", "name a new file for volume disk"];
    scene.place.refused(&["salvage", &scene.cache, "--to", &to, "--write"], 1, &there);
    scene.place.refused(&["salvage", &scene.cache, "--to", &to], 1, &there);
    scene.place.refused(&["salvage", &scene.cache, "--to", &format!("disk={}", scene.origin)], 1, &there);
    let twice = ["salvage", &scene.cache, "--to", "disk=one", "--to", "disk=two"];
    scene.place.refused(&twice, 1, &["two files for volume disk"]);

    let text = scene.place.done(&["salvage", &scene.cache, "--write"]);
    assert!(text.contains("written to"), "{text}");
    assert!(fs::read(&scene.origin).expect("it is there") == newest, "all of it is home");
    assert!(fs::read(&scene.cache).expect("it is there") == cache, "the cache is only read");
}

#[test]
fn what_cannot_be_read_is_named_and_stays_as_the_origin_has_it() {
    let scene = damaged(50);
    let (said, is_good) = report(&scene, &["--write"]);
    let volumes = said["volumes"].as_array().expect("a list");
    let lost = volumes.iter().map(|volume| volume["lost_bytes"].as_u64().expect("a number")).sum::<u64>();
    assert!(!is_good && lost > 0, "{said}");
    let old = crate::scene::pattern(1, 16 << 20);
    let (found, newest) = (fs::read(&scene.origin).expect("it is there"), scene.changed());
    let older: Vec<u64> = (0u64..)
        .zip(found.chunks(4096).zip(newest.chunks(4096)))
        .filter(|(_, (found, newest))| found != newest)
        .map(|(block, _)| block)
        .collect();
    assert_eq!(older.len() as u64 * 4096, lost, "what is not the newest is what is lost: {said}");
    for block in older {
        let at = block as usize * 4096;
        assert!(found[at..at + 4096] == old[at..at + 4096], "block {block} is the origin's");
    }
}

#[test]
fn what_a_missing_batch_held_may_be_lost() {
    let scene = damaged(0);
    let segment = heads(&scene)[0] + (512 << 10);
    overwrite(&scene.cache, segment, &[0; 512 << 10]);
    let output = scene.place.forebay(&["salvage", &scene.cache]);
    let (text, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{text}{why}");
    assert!(text.contains("of its log held is unknown, and may be lost"), "{text}");
    assert!(text.contains("bytes: in doubt") && !text.contains("1 missing batches"), "{text}");
    assert!(why.contains("of the log of") && why.contains("may be lost; all else is there"), "{why}");
    let (said, is_good) = report(&scene, &[]);
    assert!(!is_good && said["missing_batches"].as_u64() > Some(0), "{said}");
    assert!(said["volumes"][0]["in_doubt_ranges"].as_u64() > Some(0), "{said}");
}

#[test]
fn what_the_last_daemon_kept_in_memory_is_missed() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    daemon.kill();
    scene.place.done(&["salvage", &scene.cache]);
    fs::remove_dir_all(scene.place.path("run")).expect("it is there");
    let (said, is_good) = report(&scene, &[]);
    assert!(!is_good && said["missing_file"].as_str().expect("text").ends_with(".lasting"), "{said}");
    let output = scene.place.forebay(&["salvage", &scene.cache]);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains(".lasting is gone") && why.contains("FOREBAY_RUN_DIR"), "{why}");
}

/// The notes on the damaged cache were moved away, as the start of another cache advises.
#[test]
fn what_another_cache_holds_of_an_origin_is_void_once_that_is_written() {
    let scene = damaged(0);
    let place = &scene.place;
    fs::remove_dir_all(place.path("state")).expect("it is there");
    let second = place.file("second.img", 64 * MIB);
    let create = ["create", "--origin", &scene.origin, "--cache", &second, "--name", "again"];
    place.done(&[&create[..], &["--mode", "writethrough"]].concat());
    let daemon = place.serve(&second, &[]);
    daemon.read("again");
    daemon.stop();
    place.done(&["salvage", &scene.cache, "--write"]);
    let daemon = place.serve(&second, &[]);
    assert!(daemon.read("again") == scene.changed(), "nothing of before is read");
    assert!(daemon.stop().contains("[F15]"), "it is said");
}
