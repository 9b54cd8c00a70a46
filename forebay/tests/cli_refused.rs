//! Goal: a start that is refused opens no door to the next one, though a service manager repeats it unattended. Method: each way
//! to keep records, stopped cleanly; then the origin is changed in all places but those of the fingerprint, and `serve`
//! is run several times. It must be refused each time, and leave cache and notes as they are to the byte.

mod cli_support;

use cli_support::{Scene, overwrite, pattern};
use std::collections::BTreeMap;
use std::fs;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Everything that a start could change: the cache, and all notes.
fn remains(scene: &Scene) -> BTreeMap<String, Vec<u8>> {
    let notes = fs::read_dir(scene.place.path("state")).expect("there are notes");
    let notes = notes.map(|entry| entry.expect("it can be listed").path());
    let files = notes.chain([scene.cache.clone().into()]);
    files.map(|path| (path.display().to_string(), fs::read(&path).expect("it can be read"))).collect()
}

/// Changes each block of the origin but those that the fingerprint looks at.
fn change_behind(scene: &Scene) {
    let places = engine::fingerprint::offsets_bytes(16 * MIB / 512);
    for at in 0..16 * MIB / BLOCK {
        let bytes = at * BLOCK..(at + 1) * BLOCK;
        if !places.iter().flatten().any(|place| bytes.contains(place)) {
            overwrite(&scene.origin, bytes.start, &pattern(100 + at, BLOCK));
        }
    }
}

fn starts_stay_refused(profile: &str) {
    let scene = Scene::new(64 * MIB, &["--profile", profile, "--mode", "writeback"]);
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    scene.place.done(&["flush", &scene.cache]);
    daemon.stop();
    let status = scene.status();
    assert_eq!(status["volumes"][0]["dirty_bytes"], 0, "{profile}: {status}");
    assert!(status["volumes"][0]["cached_bytes"].as_u64() > Some(0), "{profile}: {status}");

    change_behind(&scene);
    let before = remains(&scene);
    for start in 1..=3 {
        scene.place.refused(&["serve", &scene.cache], 1, &["changed behind the cache", "origin=changed"]);
        assert!(remains(&scene) == before, "{profile}: start {start} was refused and changed something");
    }
}

#[test]
fn of_a_log() {
    ["forebay", "bcache", "gflash"].into_iter().for_each(starts_stay_refused);
}

#[test]
fn of_slots_with_pages() {
    ["flashcache", "enhanceio"].into_iter().for_each(starts_stay_refused);
}

/// After a crash these call every slot dirty, or many: they must not be told that there was one.
#[test]
fn of_slots_with_transactions() {
    for persistence in ["commit", "bit-tree"] {
        let place = cli_support::Place::new();
        let mine = place.file("mine.toml", 0);
        let text = format!(
            "name = \"mine\"\ndescription = \"\"\nextends = \"dm-cache\"\n[axes]\nadmission = \"always\"\n\
             persistence = \"{persistence}\"\n[tunables]\nslot_bytes = 65536\n"
        );
        fs::write(&mine, text).expect("a profile of the test's own");
        starts_stay_refused(&mine);
    }
}
