//! Goal: volumes come and go while a cache is served, without a moment in which one is served that a crash would take
//! away. Method: a daemon whose first volume has a client all the time; then `add`, `detach`, kills, reloads, and what may
//! not be added.

use crate::scene::{Place, Scene, pattern};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn second_origin(place: &Place) -> String {
    let origin = place.file("second.img", 16 * MIB);
    fs::write(&origin, pattern(3, 16 * MIB)).expect("a file for the test");
    origin
}

fn volume<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["volumes"].as_array().expect("a list").iter().find(|volume| volume["name"] == name)
}

#[test]
fn a_volume_is_added_while_another_is_served() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let origin = second_origin(&scene.place);
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    let added = scene.place.done(&["add", &scene.cache, "--origin", &origin, "--name", "second", "--json"]);
    let added: Value = serde_json::from_str(&added).expect("a report");
    assert_eq!((&added["name"], &added["mode"]), (&"second".into(), &"writeback".into()), "{added}");
    assert_eq!(daemon.read("second"), pattern(3, 16 * MIB), "clients may come at once");
    daemon.write("second", &scene.change);
    assert_eq!(daemon.read("disk"), scene.changed(), "the first volume is what it was");
    // What the notes say of it is durable before it is served.
    daemon.kill();
    let daemon = scene.serve();
    let written = fs::read(&scene.change).expect("the file is there");
    assert!(daemon.read("second")[..written.len()] == written[..], "what was written is there after a kill");
    assert_eq!(daemon.read("disk"), scene.changed());
    scene.place.done(&["detach", &scene.cache, "second", "--verify"]);
    assert!(fs::read(&origin).expect("it is there")[..written.len()] == written[..]);
    daemon.stop();
    assert_eq!(scene.report("check")["ok"], true);
}

/// The place of a volume that was taken off is used again, and its origin is anybody's.
#[test]
fn an_origin_comes_back_after_a_detach() {
    for profile in ["forebay", "flashcache", "dm-cache", "mapperx"] {
        let scene = Scene::new(128 * MIB, &["--profile", profile, "--mode", "writeback"]);
        let origin = second_origin(&scene.place);
        let daemon = scene.serve();
        let add = ["add", &scene.cache, "--origin", &origin, "--name", "second"];
        for round in 0..3 {
            scene.place.done(&add);
            daemon.write("second", &scene.change);
            scene.place.refused(&add, 1, &["there is a volume second"]);
            scene.place.done(&["detach", &scene.cache, "second"]);
            // Whoever wants may write to it.
            let content = pattern(10 + round, 16 * MIB);
            fs::write(&origin, &content).expect("nobody has it");
            scene.place.done(&add);
            assert!(daemon.read("second") == content, "{profile}: nothing of before is read");
            scene.place.done(&["detach", &scene.cache, "second", "--verify"]);
        }
        daemon.stop();
        let daemon = scene.serve();
        assert_eq!(daemon.read("disk"), pattern(1, 16 * MIB), "{profile}");
        daemon.stop();
    }
}

#[test]
fn what_cannot_be_added_changes_nothing() {
    let scene = Scene::new(64 * MIB, &[]);
    let origin = second_origin(&scene.place);
    let place = &scene.place;
    let daemon = scene.serve();
    let add = |origin: &str, name: &str, words: &[&str]| {
        place.refused(&["add", &scene.cache, "--origin", origin, "--name", name], 1, words);
    };
    add(&origin, "disk", &["there is a volume disk", "choose another --name"]);
    add(&scene.origin, "second", &["is the origin of volume disk"]);
    add(&scene.cache, "second", &["must be two devices"]);
    add(&place.path("missing.img").display().to_string(), "second", &["does not exist", "--origin"]);
    // An origin with dirty data in another cache.
    let other = place.file("other.img", 64 * MIB);
    place.done(&["create", "--origin", &origin, "--cache", &other, "--name", "theirs"]);
    let theirs = place.serve(&other, &[]);
    add(&origin, "second", &["stop the daemon that serves it"]);
    theirs.kill();
    add(&origin, "second", &["may hold data", "--take-over"]);
    let with_take_over = ["--origin", &origin, "--name", "second", "--take-over", &origin];
    place.done(&[&["add", &scene.cache][..], &with_take_over].concat());
    place.done(&["detach", &scene.cache, "second"]);
    let status = scene.status();
    assert!(volume(&status, "second").is_none(), "{status}");
    daemon.stop();
}

/// What a reload adds, a start adds, too: after a `detach`, and to a cache that has no volume left.
#[test]
fn a_start_adds_volumes_that_its_file_names() {
    let scene = Scene::new(64 * MIB, &[]);
    let origin = second_origin(&scene.place);
    let file = scene.place.path("data.toml");
    let table = |name: &str, origin: &str| format!("[[volume]]\nname = \"{name}\"\norigin = \"{origin}\"\n");
    let both = [table("disk", &scene.origin), table("second", &origin)].concat();
    fs::write(&file, format!("cache = \"{}\"\n{both}", scene.cache)).expect("a file for the test");
    let config = file.to_str().expect("a plain path");
    let daemon = scene.place.serve(&scene.cache, &["--config", config]);
    assert!(daemon.ready.starts_with("ready volumes=disk,second "), "{}", daemon.ready);
    assert!(daemon.errors().contains(&format!("volume second of {origin} was added")), "{}", daemon.errors());
    assert_eq!(daemon.read("second"), pattern(3, 16 * MIB));
    for (name, line) in [("second", 6), ("disk", 3)] {
        let said = scene.place.done(&["detach", &scene.cache, name]);
        assert!(said.contains(&format!("data.toml:{line} names volume {name} still")), "{said}");
    }
    daemon.stop();
    scene.place.refused(&["serve", &scene.cache], 1, &["there is no volume on", "forebay add"]);
    scene.place.refused(&["flush", &scene.cache], 1, &["there is no volume on", "forebay add"]);
    let daemon = scene.place.serve(&scene.cache, &["--config", config]);
    assert!(daemon.ready.starts_with("ready volumes=disk,second "), "{}", daemon.ready);
    assert_eq!(daemon.read("disk"), pattern(1, 16 * MIB));
    scene.place.done(&["detach", &scene.cache, "second"]);
    daemon.stop();
    // What cannot be added is told, and does not hold up the others.
    fs::remove_file(&origin).expect("it was there");
    let daemon = scene.place.serve(&scene.cache, &["--config", config]);
    assert!(daemon.ready.starts_with("ready volumes=disk "), "{}", daemon.ready);
    let said = daemon.errors();
    assert!(said.contains("data.toml:6: the origin cannot be used") && said.contains("connect it"), "{said}");
    daemon.stop();
}

/// A new table `[[volume]]` in the configuration is a new volume when the file is read again.
#[test]
fn a_reload_adds_volumes() {
    let scene = Scene::new(64 * MIB, &[]);
    let origin = second_origin(&scene.place);
    let file = scene.place.path("data.toml");
    let first = format!("cache = \"{}\"\n[[volume]]\nname = \"disk\"\n", scene.cache);
    fs::write(&file, &first).expect("a file for the test");
    let file = file.to_str().expect("a plain path");
    let daemon = scene.place.serve(&scene.cache, &["--config", file]);
    let second = format!("[[volume]]\nname = \"second\"\norigin = \"{origin}\"\nmode = \"writethrough\"\n");
    fs::write(file, format!("{first}{second}[[volume]]\nname = \"third\"\n")).expect("a file for the test");
    daemon.signal("HUP");
    let begun = Instant::now();
    while !daemon.errors().contains("third") {
        assert!(begun.elapsed() < Duration::from_secs(20), "it says what it did: {}", daemon.errors());
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = daemon.errors();
    assert!(said.contains("volume second of") && said.contains("was added (writethrough)"), "{said}");
    assert!(said.contains("data.toml:9: there is no volume third"), "{said}");
    assert!(!said.contains("volume.second"), "what was done does not wait for the next start: {said}");
    assert_eq!(daemon.read("second"), pattern(3, 16 * MIB));
    let status = scene.status();
    assert_eq!(volume(&status, "second").expect("it is there")["mode_configured"], "writethrough");
    daemon.stop();
}
