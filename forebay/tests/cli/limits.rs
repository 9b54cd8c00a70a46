//! Goal: settings that the daemon keeps are kept, told from those of the configuration file, and refused in one line
//! where they mean nothing.

use crate::config::{Daemon, text_of, write};
use crate::scene::{Place, Scene};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn settings(scene: &Scene) -> Value {
    scene.status()["volumes"][0]["limits"]["settings"].clone()
}

#[test]
fn what_was_set_stays_and_a_reload_brings_the_file_back() {
    let scene = Scene::new(32 * MIB, &[]);
    let volume = "[[volume]]\nname = \"disk\"\niops = 500\nbandwidth = \"8M,burst=1M\"\n";
    let file = write(&scene.place, "data.toml", &text_of(&scene, volume));
    let daemon = Daemon::start(&scene.place, &["serve", "--config", &file]);
    assert_eq!(settings(&scene), json!(["iops=500,burst=50", "bandwidth=8M,burst=1M"]));
    scene.place.done(&["set", &scene.cache, "iops=none", "bandwidth=1M"]);
    assert_eq!(settings(&scene), json!(["bandwidth=1M,burst=256K"]));
    let text = scene.place.done(&["status", &scene.cache]);
    assert!(text.contains("the configuration file says iops=500,burst=50"), "{text}");
    daemon.stop();
    let mut daemon = Daemon::start(&scene.place, &["serve", "--config", &file]);
    let said = daemon.line();
    assert!(said.contains("[F19]") && said.contains("says iops=500,burst=50; forebay set"), "{said}");
    assert!(daemon.line().contains("says bandwidth=8M,burst=1M"));
    write(&scene.place, "data.toml", &text_of(&scene, "[[volume]]\nname = \"disk\"\niops = \"700\"\n"));
    daemon.signal("HUP");
    let said = daemon.line();
    assert!(said.contains("[F22]") && said.contains("volume disk is set to iops=700,burst=70"), "{said}");
    assert_eq!(
        settings(&scene),
        json!(["iops=700,burst=70", "bandwidth=1M,burst=256K"]),
        "the file says nothing of it"
    );
    daemon.stop();
}

#[test]
fn a_cache_that_is_not_served_keeps_settings_too() {
    let scene = Scene::new(32 * MIB, &[]);
    scene.place.done(&["set", &scene.cache, "disk", "bandwidth=100M", "iops=5000,burst=20000"]);
    let daemon = scene.serve();
    assert_eq!(settings(&scene), json!(["iops=5000,burst=20000", "bandwidth=100M,burst=10M"]));
    scene.place.done(&["set", &scene.cache, "iops=none"]);
    daemon.stop();
    let daemon = scene.serve();
    assert_eq!(settings(&scene), json!(["bandwidth=100M,burst=10M"]));
    // A volume that comes back under the name of another one has no settings of that.
    scene.place.done(&["detach", &scene.cache]);
    daemon.stop();
    scene.place.done(&["add", &scene.cache, "--origin", &scene.origin, "--name", "disk"]);
    let daemon = scene.serve();
    assert_eq!(settings(&scene), Value::Null);
    daemon.stop();
}

#[test]
fn settings_that_mean_nothing_are_one_line() {
    let place = Place::new();
    for (setting, words) in [
        ("iop=5000", &["unknown setting `iop`", "did you mean `iops`?"][..]),
        ("bandwidht=1G", &["did you mean `bandwidth`?"]),
        ("iops=fast", &["`fast` is no rate", "iops=5000,burst=20000", "iops=none"]),
        ("iops=5000,burst=1", &["the burst of iops=5000 is at least 50"]),
        ("bandwidth=1", &["bandwidth is at least 64K"]),
        ("destage-hour=22:00-06:00", &["did you mean `destage-hours`?"]),
        ("destage-hours=22-06", &["`22-06` are no hours of the day", "destage-hours=22:00-06:00"]),
        ("cache-min=120%", &["`120%` is no part of a cache", "cache-min=20%"]),
        ("flush-at=25:00", &["`25:00` is no time of the day", "flush-at=03:00"]),
    ] {
        place.refused(&["set", "mem:32M", "disk", setting], 2, words);
    }
}

#[test]
fn a_wear_budget_is_of_the_cache_and_outlives_the_daemon() {
    let scene = Scene::new(32 * MIB, &[]);
    let file = write(&scene.place, "data.toml", &text_of(&scene, "wear-budget = \"16M\"\n"));
    let daemon = Daemon::start(&scene.place, &["serve", "--config", &file]);
    let wear = || scene.status()["cache"]["wear"].clone();
    assert_eq!(wear()["day_bytes"], 16 * MIB);
    scene.place.refused(&["set", &scene.cache, "disk", "wear-budget=1G"], 1, &["leave the volume out"]);
    scene.place.done(&["set", &scene.cache, "wear-budget=64M"]);
    let text = scene.place.done(&["status", &scene.cache]);
    assert!(text.contains("wear       64 MiB a day"), "{text}");
    daemon.stop();
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    let spent = wear()["spent_bytes"].as_u64().expect("a number");
    assert!(spent >= 4 * MIB, "{spent} bytes after 4 MiB were written");
    daemon.stop();
    let daemon = scene.serve();
    assert!(wear()["spent_bytes"].as_u64() > Some(3 * MIB), "{}", wear());
    scene.place.done(&["set", &scene.cache, "wear-budget=none"]);
    assert_eq!(wear(), Value::Null);
    daemon.stop();
    scene.place.refused(
        &["set", &scene.cache, "wear-budget=5"],
        2,
        &["`5` is no wear budget", "wear-budget=200G"],
    );
    scene.place.refused(
        &["serve", &scene.cache, "--wear-budget", "lots"],
        2,
        &["1M or more", "no wear budget"],
    );
}

#[test]
fn a_minimum_is_for_rings_alone() {
    let scene = Scene::new(64 * MIB, &["--profile", "flashcache"]);
    let refused = |words: &[&str]| {
        scene.place.refused(words, 1, &["profile flashcache cannot keep a part of the cache", "cache-max"]);
    };
    refused(&["set", &scene.cache, "cache-min=20%"]);
    let volume = "[[volume]]\nname = \"disk\"\ncache-min = \"20%\"\n";
    let file = write(&scene.place, "data.toml", &text_of(&scene, volume));
    refused(&["serve", "--config", &file]);
    assert_eq!(scene.status()["session"], 0, "no session was begun");
    let daemon = scene.serve();
    refused(&["set", &scene.cache, "cache-min=20%"]);
    scene.place.done(&["set", &scene.cache, "cache-max=50%"]);
    assert_eq!(settings(&scene), json!(["cache-max=50%"]));
    daemon.stop();
}
