//! Goal: rot in a slot is never served and never goes home, after a kill as after a stop, and is not blamed on the origin.
//! Method: each way to keep records; 4 MiB are written and flushed, areas have time to close, the daemon is killed or
//! stopped, and bits of the cache file are flipped where the data lies. `nbdcopy` is the client.

use crate::scene::{Place, Scene, overwrite, pattern};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Longer than it takes until areas that are not written are closed.
const CLOSED: Duration = Duration::from_millis(2500);

/// A profile with slots that transactions record.
fn with_transactions(place: &Place, persistence: &str) -> String {
    let mine = place.file(&format!("{persistence}.toml"), 0);
    let text = format!(
        "name = \"mine\"\ndescription = \"\"\nextends = \"dm-cache\"\n[axes]\nadmission = \"always\"\n\
         persistence = \"{persistence}\"\n[tunables]\nslot_bytes = 65536\n"
    );
    fs::write(&mine, text).expect("a profile of the test's own");
    mine
}

fn each_profile(body: impl Fn(&str)) {
    let place = Place::new();
    let mine = ["commit", "bit-tree"].map(|persistence| with_transactions(&place, persistence));
    for profile in ["flashcache", "enhanceio"].into_iter().chain(mine.iter().map(String::as_str)) {
        body(profile);
    }
}

/// Flips a bit of every block of the change that lies in the cache, of one in `every`. Answers the blocks.
pub fn flip(scene: &Scene, every: usize) -> Vec<u64> {
    let change = fs::read(&scene.change).expect("it is there");
    let blocks: BTreeMap<&[u8], u64> = change.chunks(BLOCK).zip(0..).collect();
    let cache = fs::read(&scene.cache).expect("it is there");
    let mut flipped = Vec::new();
    for (bytes, at) in cache.chunks(BLOCK).zip(0u64..) {
        let Some(block) = blocks.get(bytes).filter(|block| **block % every as u64 == 0) else { continue };
        overwrite(&scene.cache, at * BLOCK as u64 + 1000, &[bytes[1000] ^ 0x10]);
        flipped.push(*block);
    }
    flipped
}

/// Flips a bit of the checksums that lie first in the cache, in a sector of their own.
fn flip_checksums(scene: &Scene) {
    let cache = fs::read(&scene.cache).expect("it is there");
    let at = cache.chunks(512).position(|sector| sector.starts_with(b"FBCS")).expect("a page of checksums");
    let at = at * 512 + 100;
    overwrite(&scene.cache, at as u64, &[cache[at] ^ 0x10]);
}

/// Whether the content of each block is one of those that were written, and of all but `flipped` the newest.
fn is_right(content: &[u8], scene: &Scene, flipped: &[u64]) -> bool {
    let (newest, oldest) = (scene.changed(), pattern(1, 16 << 20));
    content.chunks(BLOCK).zip(newest.chunks(BLOCK)).zip(oldest.chunks(BLOCK)).zip(0u64..).all(
        |(((found, newest), oldest), block)| found == newest || flipped.contains(&block) && found == oldest,
    )
}

/// What a client reads of the volume; nothing if it gets an error.
fn read(scene: &Scene, uri: &str) -> Option<Vec<u8>> {
    let to = scene.place.path("copy");
    let to = to.to_str().expect("a plain path");
    let is_read =
        Command::new("nbdcopy").args([uri, to]).output().expect("nbdcopy is installed").status.success();
    is_read.then(|| fs::read(to).expect("just written"))
}

#[test]
fn a_flipped_bit_after_a_kill_is_never_read_and_never_goes_home() {
    each_profile(|profile| {
        let scene = Scene::new(64 * MIB, &["--profile", profile, "--mode", "writeback"]);
        let daemon = scene.serve();
        daemon.write("disk", &scene.change);
        thread::sleep(CLOSED);
        daemon.kill();
        let flipped = flip(&scene, 50);
        assert!(flipped.len() > 10, "{profile}: {flipped:?}");
        let checked = scene.place.forebay(&["check", &scene.cache]);
        assert!(!checked.status.success(), "{profile}: it names what rotted");

        let daemon = scene.serve();
        if let Some(content) = read(&scene, &daemon.uri("disk")) {
            assert!(content == scene.changed(), "{profile}: a rotten block was read");
        }
        let detached = scene.place.forebay(&["detach", &scene.cache, "--verify"]);
        let origin = fs::read(&scene.origin).expect("it is there");
        if detached.status.success() {
            assert!(origin == scene.changed(), "{profile}: verified, and a rotten block went home");
        }
        assert!(
            is_right(&origin, &scene, &(0..1024).collect::<Vec<_>>()),
            "{profile}: a rotten block went home"
        );
    });
}

#[test]
fn rotten_clean_blocks_after_a_stop_are_not_blamed_on_the_origin() {
    each_profile(|profile| {
        let scene = Scene::new(64 * MIB, &["--profile", profile, "--mode", "writeback"]);
        let daemon = scene.serve();
        daemon.write("disk", &scene.change);
        scene.place.done(&["flush", &scene.cache]);
        daemon.stop();
        let flipped = flip(&scene, 1);
        assert!(flipped.len() > 1000, "{profile}: {}", flipped.len());
        let checked = scene.place.forebay(&["check", &scene.cache]);
        assert!(!checked.status.success(), "{profile}: it names what rotted");

        let daemon = scene.serve();
        assert!(daemon.read("disk") == scene.changed(), "{profile}");
        let text = scene.place.done(&["detach", &scene.cache, "--verify"]);
        assert!(text.contains("detached disk"), "{profile}: {text}");
        assert!(fs::read(&scene.origin).expect("it is there") == scene.changed(), "{profile}");
    });
}

#[test]
fn rotten_checksums_are_refused_until_they_are_repaired() {
    each_profile(|profile| {
        let scene = Scene::new(64 * MIB, &["--profile", profile, "--mode", "writeback"]);
        let daemon = scene.serve();
        daemon.write("disk", &scene.change);
        daemon.stop();
        flip_checksums(&scene);
        let serve = ["serve", &scene.cache, "--nbd", "unix:never"];
        scene.place.refused(&serve, 1, &["checksums cannot be trusted", "forebay check"]);
        let checked = scene.place.forebay(&["check", &scene.cache]);
        assert!(!checked.status.success(), "{profile}: it names the page");
        scene.place.done(&["check", &scene.cache, "--repair"]);
        let daemon = scene.serve();
        assert!(daemon.read("disk") == scene.changed(), "{profile}: no data was lost");
        daemon.stop();
    });
}
