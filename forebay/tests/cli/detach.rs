//! Goal: `detach` and `flush` never report data home that nobody will find there. Method: a served volume whose origin is
//! renamed, removed, replaced or cut short; then the verbs, and what they say.

use crate::scene::{Daemon, Scene, pattern};
use live::nbd::client::{Address, Client};
use std::fs;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;

/// A served volume with something in the cache.
fn served() -> (Scene, Daemon) {
    let scene = Scene::new(64 * MIB, &[]);
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    (scene, daemon)
}

fn stays_refused(scene: &Scene, words: &[&str]) {
    for more in [&["--verify"][..], &[]] {
        let detach = [&["detach", &scene.cache][..], more].concat();
        scene.place.refused(&detach, 1, &[words, &[&scene.origin, "disk", "put it back"]].concat());
        assert_eq!(
            scene.status()["volumes"][0]["name"],
            "disk",
            "a refused detach leaves the volume on its cache"
        );
    }
}

#[test]
fn an_origin_that_was_renamed_or_replaced_or_removed() {
    let (scene, daemon) = served();
    let aside = scene.place.path("aside.img");
    fs::rename(&scene.origin, &aside).unwrap();
    stays_refused(&scene, &["renamed or removed"]);
    fs::write(&scene.origin, pattern(9, 16 * MIB)).unwrap();
    stays_refused(&scene, &["replaced by another one"]);
    assert_eq!(daemon.read("disk"), scene.changed(), "clients go on meanwhile");
    fs::rename(&aside, &scene.origin).unwrap();
    let said = scene.place.done(&["detach", "--verify", &scene.cache]);
    assert!(said.contains("verified"), "{said}");
    assert!(fs::read(&scene.origin).unwrap() == scene.changed(), "a detached origin has all of the volume");
    daemon.stop();
}

#[test]
fn an_origin_that_was_removed() {
    let (scene, daemon) = served();
    fs::remove_file(&scene.origin).unwrap();
    stays_refused(&scene, &["renamed or removed"]);
    daemon.write("disk", &scene.change);
    // What was written is home already, or is not: only then there is something to say.
    let output = scene.place.forebay(&["flush", &scene.cache]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() || errors.contains("renamed or removed"), "{errors}");
    daemon.stop();
}

#[test]
fn an_origin_that_was_cut_short() {
    let (scene, daemon) = served();
    // What goes home would make the file longer again.
    scene.place.done(&["flush", &scene.cache]);
    let origin = fs::File::options().write(true).open(&scene.origin).unwrap();
    origin.set_len(8 * MIB).unwrap();
    stays_refused(&scene, &["has shrunk from 16777216 to 8388608 bytes"]);
    origin.set_len(0).unwrap();
    stays_refused(&scene, &["was cut short"]);
    daemon.stop();
}

/// Clients were sent away for it, and can come again.
#[test]
fn a_volume_that_was_not_detached_is_served_again() {
    let (scene, daemon) = served();
    scene.place.done(&["flush", &scene.cache]);
    let origin = fs::File::options().read(true).write(true).open(&scene.origin).unwrap();
    let mut home = [0];
    origin.read_exact_at(&mut home, 5000).unwrap();
    origin.write_all_at(&[!home[0]], 5000).unwrap();
    let detach = ["detach", "--verify", &scene.cache];
    scene.place.refused(&detach, 1, &["differ at byte 5000", "served as before"]);
    assert_eq!(daemon.read("disk"), scene.changed(), "clients go on");
    scene.place.done(&["set", &scene.cache, "mode=readonly"]);
    scene.place.refused(&detach, 1, &["differ at byte 5000"]);
    let address = Address::Unix(daemon.socket.clone());
    let mut client = Client::connect(&address, "disk").expect("it is served");
    assert!(client.write(0, &[0; 4096]).expect("it is connected").is_err(), "it is offered as it was");
    origin.write_all_at(&home, 5000).unwrap();
    scene.place.done(&detach);
    assert!(Client::connect(&address, "disk").is_err(), "it is taken off");
    daemon.stop();
}

/// Nothing is on the cache any more: then it does not matter that it is missing.
#[test]
fn a_cache_without_volumes_is_missing() {
    let (scene, daemon) = served();
    scene.place.done(&["detach", &scene.cache]);
    daemon.stop();
    fs::remove_file(&scene.cache).unwrap();
    scene.place.refused(
        &["serve", &scene.cache, "--uncached"],
        1,
        &["nothing is noted of volumes on this cache"],
    );
    scene.place.refused(&["serve", &scene.cache], 1, &["does not exist", "name the cache"]);
}

/// The origin is free as soon as the volume is off the cache, whether that can be noted or not; and the notes follow.
#[test]
fn a_detach_that_cannot_be_noted_lets_go_of_the_origin() {
    let (scene, daemon) = served();
    let place = &scene.place;
    let (state, aside) = (place.path("state"), place.path("aside"));
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, "in the way").unwrap();
    place.refused(
        &["detach", &scene.cache],
        1,
        &["volume disk is off its cache", "holds all of it", "cannot write the notes"],
    );
    assert!(fs::read(&scene.origin).unwrap() == scene.changed(), "it does");
    let second = place.file("second.img", 64 * MIB);
    let create = ["create", "--origin", &scene.origin, "--cache", &second, "--name", "again"];
    let elsewhere = place.path("elsewhere").display().to_string();
    place.done(&[&create[..], &["--state-dir", &elsewhere]].concat());
    fs::remove_file(&state).unwrap();
    fs::rename(&aside, &state).unwrap();
    daemon.stop();
    place.done(&[&create[..], &["--wipe", &second]].concat());
}
