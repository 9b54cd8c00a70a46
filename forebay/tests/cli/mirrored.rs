//! Goal: a cache on two devices is one cache to every verb, whichever of the two is named or missing, and what cannot be
//! is refused in one line. Method: the real command on small files, `nbdcopy` as the client.

use crate::scene::{Place, Scene};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;
/// The pages in which each half says of itself what it is.
const PAGES: [u64; 2] = [128 << 10, 640 << 10];
const PAGE_BYTES: u64 = 8 << 10;

/// A mirrored cache with the volume `disk`, and its second half.
pub(crate) fn scene(more: &[&str]) -> (Scene, String) {
    let place = Place::new();
    let mirror = place.file("second.img", 64 * MIB);
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 64 * MIB));
    fs::write(&origin, crate::scene::pattern(1, 16 * MIB)).unwrap();
    let change = place.file("change.img", 0);
    fs::write(&change, crate::scene::pattern(2, 4 * MIB)).unwrap();
    let create = ["create", "--origin", &origin, "--cache", &cache, "--mirror", &mirror, "--name", "disk"];
    place.done(&[&create[..], more].concat());
    (Scene { place, origin, cache, change }, mirror)
}

fn standings(status: &Value) -> Vec<&str> {
    let halves = status["cache"]["mirror"].as_array().expect("it is mirrored");
    halves.iter().map(|half| half["standing"].as_str().expect("a word")).collect()
}

/// Whether two halves hold the same, but for what they say of themselves.
fn are_same(one: &str, other: &str) -> bool {
    let [mut one, mut other] = [one, other].map(|path| fs::read(path).unwrap());
    for bytes in [&mut one, &mut other] {
        for at in PAGES {
            bytes[at as usize..(at + PAGE_BYTES) as usize].fill(0);
        }
    }
    one == other
}

#[test]
fn what_cannot_be_mirrored_is_refused() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 64 * MIB));
    let mirror = place.file("second.img", 64 * MIB);
    let with = |mirror: &str, more: &[&str], status: i32, words: &[&str]| {
        let create = ["create", "--origin", &origin, "--cache", &cache, "--mirror", mirror];
        place.refused(&[&create[..], more].concat(), status, words);
    };
    with(&cache, &[], 1, &["are both", "two devices"]);
    with(&origin, &[], 1, &["are both", "two devices"]);
    with(&place.path("nowhere").display().to_string(), &[], 1, &["does not exist", "truncate"]);
    with(&place.file("small.img", MIB), &[], 1, &["small.img would have 1 MiB", "give it more"]);
    with(&mirror, &["--ephemeral", "--mode", "writethrough"], 2, &["--ephemeral"]);
    for profile in ["dm-cache", "bcache", "flashcache", "gflash"] {
        with(&mirror, &["--profile", profile], 1, &[profile, "cannot be mirrored"]);
    }
    assert!(fs::read(&cache).unwrap().iter().all(|&byte| byte == 0), "nothing was written");

    let other = place.file("other.img", 16 * MIB);
    place.done(&["create", "--origin", &other, "--cache", &mirror]);
    with(&mirror, &["--wipe", &cache], 1, &["second.img holds a Forebay cache", "--wipe"]);
    let create = ["create", "--origin", &origin, "--cache", &cache, "--mirror", &mirror, "--wipe", &mirror];
    assert!(place.done(&create).contains("mirrored on"));
    assert!(are_same(&cache, &mirror));
    place.refused(&["resize", &cache], 1, &["is mirrored"]);
    let third = place.file("third.img", 64 * MIB);
    place.refused(&["replace", &cache, &third], 1, &["is mirrored", "--mirror"]);
    place.refused(&["replace", &cache, "--mirror", &third], 1, &["both halves", "none is out"]);
    let alone = place.file("alone.img", 64 * MIB);
    place.done(&["create", "--origin", &other, "--cache", &alone, "--take-over", &other]);
    place.refused(&["replace", &alone, "--mirror", &third], 1, &["is not mirrored"]);
    place.refused(&["serve", &alone, "--mirror", &third], 1, &["is not mirrored", "leave --mirror out"]);
}

#[test]
fn the_smaller_device_says_how_large_it_is() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 64 * MIB));
    let mirror = place.file("second.img", 48 * MIB);
    let create = ["create", "--origin", &origin, "--cache", &cache, "--mirror", &mirror, "--json"];
    let created: Value = serde_json::from_str(&place.done(&create)).unwrap();
    assert_eq!(created["cache_bytes"], 48 * MIB);
    assert_eq!(created["mirror"], mirror.as_str());
    place.serve(&mirror, &[]).stop();
}

#[test]
fn every_verb_takes_either_name() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, origin, change } = &scene;
    let daemon = place.serve(&mirror, &[]);
    daemon.write("disk", change);
    for name in [cache, &mirror] {
        let status: Value = serde_json::from_str(&place.done(&["status", name, "--json"])).unwrap();
        assert_eq!(standings(&status), ["in", "in"]);
        assert_eq!(status["running"], true);
    }
    assert!(place.done(&["flush", cache]).contains("disk"));
    daemon.stop();
    assert!(are_same(cache, &mirror), "a stop leaves both the same");
    // Whatever changes it without a daemon changes both.
    place.done(&["set", &mirror, "disk", "mode=writethrough"]);
    assert!(are_same(cache, &mirror));
    place.done(&["add", cache, "--origin", &place.file("more.img", MIB), "--name", "more"]);
    assert!(are_same(cache, &mirror));
    for verb in ["status", "check", "dump", "salvage"] {
        let said = [cache, &mirror].map(|name| place.done(&[verb, name, "--json"]));
        let told = said.map(|said| serde_json::from_str::<Value>(&said).unwrap()["superblock"].clone());
        assert_eq!(told[0], told[1], "{verb}");
    }
    place.done(&["detach", &mirror, "more"]);
    place.done(&["detach", cache, "disk", "--verify"]);
    assert!(are_same(cache, &mirror));
    assert!(fs::read(origin).unwrap() == scene.changed());
}

/// Flips a bit of each head of a segment on a device, but for the newest one. Answers how many that were.
fn flip_heads(device: &str) -> u64 {
    let bytes = fs::read(device).unwrap();
    let generation = |head: &[u8]| u64::from_le_bytes(head[32..40].try_into().unwrap());
    let heads = bytes.chunks(4096).zip(0u64..).filter(|(block, _)| block.starts_with(b"FBAYHEAD"));
    let mut heads: Vec<(u64, u64)> = heads.map(|(block, at)| (generation(block), at * 4096 + 300)).collect();
    heads.sort_unstable();
    heads.pop();
    for &(_, at) in &heads {
        crate::scene::overwrite(device, at, &[bytes[at as usize] ^ 0x10]);
    }
    heads.len() as u64
}

#[test]
fn a_scrub_writes_again_what_leads_to_the_data() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, change, .. } = &scene;
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", change);
    let heads = flip_heads(&mirror);
    assert!(heads > 4, "{heads}");
    let said: Value = serde_json::from_str(&place.done(&["scrub", cache, "--json"])).unwrap();
    let mended = said["mended_blocks"].as_u64().expect("a number");
    assert!(mended >= heads && said["damaged_segments"] == 0, "{heads} heads: {said}");
    daemon.kill();
    fs::rename(cache, place.path("lost.img")).unwrap();
    let daemon = place.serve(&mirror, &[]);
    assert!(daemon.read("disk") == scene.changed(), "everything is there");
    daemon.stop();
}

#[test]
fn damage_on_one_half_is_named_and_read_from_the_other() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, change, .. } = &scene;
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", change);
    daemon.stop();
    place.done(&["check", &mirror]);
    let rotten: Vec<u8> = fs::read(cache).unwrap().iter().map(|byte| byte ^ 0x10).collect();
    // Behind the superblocks and the pages.
    crate::scene::overwrite(cache, MIB, &rotten[MIB as usize..]);
    for name in [cache, &mirror] {
        let output = place.forebay(&["check", name]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("fast.img; the other half of the mirrored cache has what is right"), "{said}");
    }
    let daemon = scene.serve();
    assert!(daemon.read("disk") == scene.changed(), "the other half has it");
    place.done(&["flush", cache]);
    daemon.stop();
    assert!(fs::read(&scene.origin).unwrap() == scene.changed());
}

#[test]
fn salvage_takes_what_is_wrong_on_one_half_from_the_other() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, change, .. } = &scene;
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", change);
    daemon.stop();
    let written = fs::read(change).unwrap();
    for (name, is_rotten) in [(cache, 0), (&mirror, 1)] {
        // Each half of the client's data rots on one device.
        let mut bytes = fs::read(name).unwrap();
        let ours: std::collections::BTreeMap<&[u8], usize> = written.chunks(4096).zip(0..).collect();
        let of_client = bytes.chunks_mut(4096).filter(|block| ours.contains_key(&**block));
        of_client.enumerate().filter(|(at, _)| at % 2 == is_rotten).for_each(|(_, block)| block[7] ^= 1);
        fs::write(name, bytes).unwrap();
    }
    let said = place.forebay(&["salvage", cache, "--json"]).stdout;
    let report: Value = serde_json::from_slice(&said).unwrap();
    let volume = &report["volumes"][0];
    assert_eq!(
        (&volume["lost_bytes"], &volume["salvaged_bytes"]),
        (&0.into(), &written.len().into()),
        "{report}"
    );
}

#[test]
fn a_cache_goes_on_without_one_of_its_devices() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, change, .. } = &scene;
    scene.serve().stop();
    fs::remove_file(cache).unwrap();
    let text = place.done(&["status", &mirror]);
    assert!(text.contains("not running") && text.contains("DEGRADED"), "{text}");
    assert!(text.contains("mode       writeback, written through until both halves count"), "{text}");
    // The one that is named is gone: the notes know the other one.
    let daemon = place.serve(cache, &[]);
    let said = daemon.errors();
    assert!(said.contains("F44") && said.contains("alone") && said.lines().count() == 1, "{said}");
    daemon.write("disk", change);
    let status = scene.status();
    assert_eq!(standings(&status), ["out", "in"]);
    let volume = &status["volumes"][0];
    assert_eq!(
        (&volume["mode_target"], &volume["lone_half"]),
        (&"writeback".into(), &true.into()),
        "{volume}"
    );
    assert_eq!(volume["mode"], "writethrough", "what is dirty is on one device alone");
    let text = place.done(&["status", &mirror]);
    assert!(text.contains("mode       writeback, written through until both halves count"), "{text}");
    assert!(text.contains("DEGRADED") && text.contains("--mirror"), "{text}");
    place.refused(&["replace", cache, "--mirror", &mirror], 1, &["is the half that counts"]);
    let small = place.file("small.img", 40 * MIB);
    place.refused(&["replace", cache, "--mirror", &small], 1, &["has 40 MiB", "64 MiB"]);
    let used = place.file("used.img", 64 * MIB);
    let other = place.file("other.img", MIB);
    place.done(&["create", "--origin", &other, "--cache", &used]);
    place.refused(&["replace", cache, "--mirror", &used], 1, &["holds a Forebay cache", "--wipe"]);
    let words = ["replace", &mirror, "--mirror", &used, "--wipe", &used, "--json"];
    let rejoined: Value = serde_json::from_str(&place.done(&words)).unwrap();
    assert_eq!((&rejoined["device"], &rejoined["old"]), (&used.clone().into(), &cache.clone().into()));
    let status: Value = serde_json::from_str(&place.done(&["status", &used, "--json"])).unwrap();
    assert_eq!(standings(&status), ["in", "in"]);
    let volume = &status["volumes"][0];
    assert_eq!((&volume["mode_target"], &volume["lone_half"]), (&"writeback".into(), &Value::Null));
    assert_eq!(status["cache"]["device"], used.as_str(), "the former device is no part of it");
    // A read would bring clean data, of which each has its own.
    daemon.stop();
    assert!(are_same(&used, &mirror));

    fs::remove_file(&mirror).unwrap();
    let words = place.done(&["status", &used]);
    assert!(words.contains("(out)"), "{words}");
    // Without a daemon it works, too.
    let last = place.file("last.img", 64 * MIB);
    place.done(&["replace", &used, "--mirror", &last]);
    assert!(are_same(&used, &last));
    let daemon = place.serve(&last, &[]);
    assert!(daemon.errors().is_empty(), "{}", daemon.errors());
    assert!(daemon.read("disk") == scene.changed());
    daemon.stop();

    // Where the first volume was, there may be none.
    place.done(&["add", &last, "--origin", &place.file("more.img", MIB), "--name", "more"]);
    place.done(&["detach", &last, "disk"]);
    fs::remove_file(&used).unwrap();
    place.done(&["replace", &last, "--mirror", &place.file("used.img", 64 * MIB)]);
    assert!(are_same(&used, &last));
}

#[test]
fn a_device_that_was_moved_is_named() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, change, .. } = &scene;
    let moved = place.path("moved.img").display().to_string();
    fs::rename(&mirror, &moved).unwrap();
    let daemon = place.serve(cache, &["--mirror", &moved]);
    assert!(daemon.errors().is_empty(), "{}", daemon.errors());
    assert_eq!(standings(&scene.status()), ["in", "in"]);
    daemon.write("disk", change);
    daemon.stop();
    assert!(are_same(cache, &moved));
    fs::remove_file(cache).unwrap();
    let daemon = place.serve(cache, &["--mirror", &moved]);
    assert!(daemon.read("disk") == scene.changed());
    assert_eq!(standings(&scene.status()), ["out", "in"]);
    daemon.stop();
    fs::remove_file(&moved).unwrap();
    place.refused(&["serve", cache], 1, &["the cache is missing"]);
}

#[test]
fn a_cache_without_one_device_is_not_served_uncached() {
    let (scene, _) = scene(&["--mode", "writethrough"]);
    let Scene { place, cache, .. } = &scene;
    scene.serve().stop();
    fs::remove_file(cache).unwrap();
    place.refused(&["serve", cache, "--uncached"], 1, &["is there", "without --uncached"]);
}

#[test]
fn two_halves_that_parted_are_no_cache() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, .. } = &scene;
    let away = place.path("away.img").display().to_string();
    fs::rename(&mirror, &away).unwrap();
    scene.serve().stop();
    fs::rename(cache, place.path("first.img")).unwrap();
    fs::rename(&away, &mirror).unwrap();
    place.refused(&["serve", &mirror], 1, &["is an older copy"]);
    // Somebody who has no notes goes on with it all the same.
    let elsewhere = place.path("elsewhere").display().to_string();
    place.serve(&mirror, &["--state-dir", &elsewhere]).stop();
    fs::rename(place.path("first.img"), cache).unwrap();
    for name in [cache, &mirror] {
        place.refused(&["serve", name], 1, &["each went on without the other"]);
        place.refused(&["status", name], 1, &["each went on without the other"]);
    }
}

#[test]
fn a_half_that_lost_its_page_needs_the_other_one() {
    let (scene, mirror) = scene(&[]);
    let Scene { place, cache, change, .. } = &scene;
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", change);
    daemon.stop();
    let mut bytes = fs::read(cache).unwrap();
    PAGES.iter().for_each(|at| bytes[*at as usize + 300] ^= 1);
    fs::write(cache, bytes).unwrap();
    let away = place.path("away.img").display().to_string();
    fs::rename(&mirror, &away).unwrap();
    let without_page = ["one of the two devices", "both copies of the page", "connect the other one"];
    for verb in ["serve", "status", "check"] {
        place.refused(&[verb, cache], 1, &without_page);
    }
    // What there is may be had all the same.
    let said = place.forebay(&["salvage", cache, "--json"]);
    let report: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(report["volumes"][0]["salvaged_bytes"], fs::metadata(change).unwrap().len(), "{report}");
    assert!(String::from_utf8_lossy(&said.stderr).contains("both copies of the page"), "{said:?}");
    let dump: Value = serde_json::from_str(&place.done(&["dump", cache, "--json"])).unwrap();
    assert_eq!(dump["superblock"]["is_mirrored"], true, "{dump}");
    // The notes know the other one, which has everything.
    fs::rename(&away, &mirror).unwrap();
    let daemon = place.serve(cache, &[]);
    let said = daemon.errors();
    assert!(said.contains("alone: both copies of the page") && said.lines().count() == 1, "{said}");
    assert!(daemon.read("disk") == scene.changed());
    place.done(&["replace", &mirror, "--mirror", cache, "--wipe", cache]);
    assert_eq!(standings(&scene.status()), ["in", "in"]);
    daemon.stop();
}

#[test]
fn a_lone_device_may_stay_in_writeback() {
    let (scene, _) = scene(&[]);
    scene.serve().stop();
    fs::remove_file(&scene.cache).unwrap();
    let daemon = scene.place.serve(&scene.cache, &["--lone-writeback"]);
    let status = scene.status();
    assert_eq!(
        (standings(&status), &status["volumes"][0]["mode_target"]),
        (vec!["out", "in"], &"writeback".into())
    );
    daemon.stop();
}
