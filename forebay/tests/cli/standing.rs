//! Goal: whoever looks at a cache that does not run learns whether it can be served, before `serve` refuses it. Method: each reason
//! for a refusal that can be seen from outside; `status` names it as `serve` does, and changes nothing.

use crate::scene::Scene;
use serde_json::Value;
use std::fs::{self, File};

const MIB: u64 = 1 << 20;

/// A cache with dirty data whose daemon was killed.
fn killed() -> Scene {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    scene.hold_back();
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    daemon.kill();
    assert_eq!(scene.status()["refused"], Value::Null, "it can be served");
    scene
}

/// Both verbs say so.
fn expect_refused(scene: &Scene, words: &[&str]) {
    scene.place.refused(&["serve", &scene.cache, "--nbd", "unix:never"], 1, words);
    let text = scene.place.done(&["status", &scene.cache]);
    let line = text.lines().find(|line| line.starts_with("REFUSED    cannot be served: "));
    let line = line.unwrap_or_else(|| panic!("a line about it: {text}"));
    words.iter().for_each(|word| assert!(line.contains(word), "`{word}` is missing in: {line}"));
    let refused = scene.status()["refused"].clone();
    assert_eq!(refused.as_array().map(Vec::len), Some(1), "{refused}");
}

#[test]
fn memory_of_the_last_daemon_that_is_gone() {
    let scene = killed();
    fs::remove_dir_all(scene.place.path("run")).expect("it is there");
    expect_refused(&scene, &[".lasting", "FOREBAY_RUN_DIR", "forebay salvage", "--repair"]);
}

#[test]
fn an_older_copy() {
    let scene = killed();
    let older = scene.place.path("older.img");
    fs::copy(&scene.cache, &older).expect("a copy");
    scene.serve().stop();
    fs::copy(&older, &scene.cache).expect("rolled back");
    expect_refused(&scene, &["older copy", "connect the newer one"]);
}

#[test]
fn an_origin_that_is_gone_shrunk_or_changed() {
    let scene = killed();
    let away = scene.place.path("away.img");
    fs::rename(&scene.origin, &away).expect("it is there");
    expect_refused(&scene, &["slow.img does not exist", "connect it", "--origin"]);
    fs::rename(&away, &scene.origin).expect("it is there");
    let origin = File::options().write(true).open(&scene.origin).expect("it is there");
    origin.set_len(8 * MIB).expect("it can be cut");
    expect_refused(&scene, &["has shrunk", "give it its size back"]);
    fs::write(&scene.origin, vec![7; 16 << 20]).expect("it can be written");
    expect_refused(&scene, &["changed behind the cache", "origin=changed"]);
}
