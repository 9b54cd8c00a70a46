//! Goal: several settings in one line are set together or not at all, with a daemon and without one. Method: lines that are good,
//! and lines of which one setting is refused, each on a cache that runs and on one that does not.

use crate::scene::Scene;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn scene(mode: &str) -> Scene {
    Scene::new(64 * MIB, &["--mode", mode])
}

/// The settings that a daemon works by.
fn kept(scene: &Scene) -> Value {
    scene.status()["volumes"][0]["limits"]["settings"].clone()
}

#[test]
fn an_order_and_a_rate_are_set_without_a_daemon() {
    let scene = scene("writeback");
    let set = |words: &[&str]| scene.place.done(&[&["set", &scene.cache, "disk"], words].concat());
    set(&["order=strict", "iops=1000"]);
    set(&["order=free", "mode=writethrough", "iops=79", "cache-max=50%"]);
    let daemon = scene.serve();
    assert_eq!(kept(&scene), json!(["iops=79,burst=7", "cache-max=50%"]));
    assert_eq!(scene.status()["volumes"][0]["mode"], "writethrough");
    daemon.stop();
}

#[test]
fn strict_order_without_writeback_says_what_it_needs() {
    let scene = scene("writethrough");
    let set = ["set", &scene.cache, "disk", "order=strict"];
    let words =
        ["strict order goes with writeback alone", "volume disk is in writethrough", "mode=writeback"];
    scene.place.refused(&set, 1, &words);
    let daemon = scene.serve();
    scene.place.refused(&set, 1, &words);
    scene.place.done(&["set", &scene.cache, "disk", "mode=writeback", "order=strict"]);
    scene.place.done(&["set", &scene.cache, "disk", "order=free", "mode=writethrough"]);
    daemon.stop();
    assert!(scene.place.done(&["set", "--help"]).contains("order=strict|free"));
}

/// Lines that are refused and change nothing.
fn refuse_all(scene: &Scene) {
    let refused = |words: &[&str], told: &[&str]| {
        scene.place.refused(&[&["set", &scene.cache], words].concat(), 1, told);
    };
    refused(&["disk", "mode=writethrough", "mode=readonly"], &["mode is given twice"]);
    refused(&["disk", "origin=changed", "origin=changed-discard-dirty"], &["origin is given twice"]);
    refused(&["disk", "iops=77", "wear-budget=1G"], &["leave the volume out"]);
    refused(&["disk", "iops=77", "size=origin", "cache-min=9%", "cache-max=8%"], &[]);
    refused(&["disk", "iops=77", "cache-min=9%", "cache-max=8%"], &["cache-min=9% is above cache-max=8%"]);
    refused(&["disk", "iops=77", "cache-min=1G"], &["cache-min=1G is above cache-max=20%"]);
    refused(&["other", "iops=77"], &["there is no volume other"]);
    refused(&["nope"], &["KEY=VALUE", "volume nope"]);
}

#[test]
fn a_line_of_which_one_setting_is_refused_changes_nothing() {
    let scene = scene("writeback");
    scene.place.done(&["set", &scene.cache, "cache-max=20%"]);
    refuse_all(&scene);
    let daemon = scene.serve();
    assert_eq!(kept(&scene), json!(["cache-max=20%"]));
    refuse_all(&scene);
    assert_eq!(kept(&scene), json!(["cache-max=20%"]));
    let ephemeral = ["set", &scene.cache, "iops=77", "origin=changed"];
    scene.place.refused(&ephemeral, 1, &["stop it first"]);
    assert_eq!(kept(&scene), json!(["cache-max=20%"]));
    // Both bounds move past each other in one line.
    scene.place.done(&["set", &scene.cache, "cache-min=30%", "cache-max=40%"]);
    scene.place.done(&["set", &scene.cache, "cache-max=20%", "cache-min=10%"]);
    daemon.stop();
    scene.place.done(&["set", &scene.cache, "cache-min=30%", "cache-max=40%"]);
}
