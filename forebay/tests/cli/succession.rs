//! Goal: another device takes a cache's place, or a cache gets another size, while clients work and nothing is lost; the old
//! device is never believed again. Method: a daemon whose volume is written and read all the time; then `replace` and
//! `resize`, what they refuse, and the devices put back.

use crate::scene::{Daemon, Scene, pattern};
use engine::composition::Composition;
use engine::format::Succession;
use engine::mutation::Mutations;
use engine::recovery::{load_superblock, write_superblock};
use live::devices::{Access, BlockingDevice};
use serde_json::Value;
use std::fs::{self, File};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("a report")
}

/// Does `job` while a client writes to the volume and reads what it wrote. Returns how often it did.
fn under_load<T>(daemon: &Daemon, scene: &Scene, job: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut rounds = 0_u32;
            while !is_over.load(Ordering::Relaxed) || rounds < 3 {
                daemon.write("disk", &scene.change);
                assert!(daemon.read("disk") == scene.changed(), "a client reads what it wrote");
                rounds += 1;
            }
        });
        let done = job();
        is_over.store(true, Ordering::Relaxed);
        client.join().expect("the client is satisfied");
        done
    })
}

#[test]
fn a_device_is_replaced_while_a_client_works() {
    for profile in ["forebay", "flashcache", "mapperx", "bcache", "gflash"] {
        let scene = Scene::new(128 * MIB, &["--profile", profile, "--mode", "writeback"]);
        let daemon = scene.serve();
        let (larger, smaller) =
            (scene.place.file("larger.img", 192 * MIB), scene.place.file("smaller.img", 96 * MIB));
        let told =
            under_load(&daemon, &scene, || scene.place.done(&["replace", &scene.cache, &larger, "--json"]));
        let told = json(&told);
        assert_eq!(told["cache_bytes"], 192 * MIB, "{profile}: {told}");
        assert!(told["held_seconds"].as_f64().expect("a number") < 10.0, "{profile}: {told}");
        let status = json(&scene.place.done(&["status", &larger, "--json"]));
        assert_eq!((&status["cache"]["device"], &status["running"]), (&larger.as_str().into(), &true.into()));
        scene.place.refused(&["status", &scene.cache], 1, &["was replaced by", "larger.img"]);
        // The old device may be used for something else, when somebody says so.
        let create = ["create", "--origin", &scene.origin, "--cache", &scene.cache];
        scene.place.refused(&create, 1, &["stop the daemon that serves it"]);
        // A smaller one, by a name that is relative, and back to one that held a cache.
        under_load(&daemon, &scene, || scene.place.done(&["replace", &larger, &smaller]));
        scene.place.refused(
            &["replace", &smaller, &scene.cache],
            1,
            &["holds a Forebay cache that was replaced", "--wipe"],
        );
        scene.place.done(&["replace", &smaller, &scene.cache, "--wipe", &scene.cache]);
        assert!(daemon.read("disk") == scene.changed(), "{profile}");
        daemon.write("disk", &scene.change);
        daemon.kill();
        for old in [&larger, &smaller] {
            scene.place.refused(&["serve", old], 1, &["was replaced by"]);
            scene.place.refused(&["serve", old, "--uncached"], 1, &["is there"]);
            scene.place.refused(&["check", old], 1, &["was replaced by"]);
        }
        let daemon = scene.serve();
        assert!(daemon.read("disk") == scene.changed(), "{profile}");
        daemon.stop();
        assert_eq!(scene.report("check")["ok"], true, "{profile}");
    }
}

#[test]
fn a_cache_gets_another_size_while_a_client_works() {
    for profile in ["forebay", "flashcache", "dm-cache", "bcache"] {
        let scene = Scene::new(96 * MIB, &["--profile", profile, "--mode", "writeback"]);
        let daemon = scene.serve();
        let size = || scene.status()["cache"]["size_bytes"].as_u64();
        scene.place.refused(&["resize", &scene.cache], 1, &["has 96 MiB already"]);
        scene.place.refused(&["resize", &scene.cache, "1G"], 1, &["make it larger first"]);
        scene.place.refused(
            &["resize", &scene.cache, "1M"],
            1,
            &["would have 1 MiB, the least is 32 MiB", "give it more"],
        );
        let file = File::options().write(true).open(&scene.cache).expect("it is there");
        file.set_len(160 * MIB).expect("room for a sparse file");
        under_load(&daemon, &scene, || scene.place.done(&["resize", &scene.cache]));
        assert_eq!(size(), Some(160 * MIB), "{profile}");
        under_load(&daemon, &scene, || scene.place.done(&["resize", &scene.cache, "80M"]));
        assert_eq!(size(), Some(80 * MIB), "{profile}");
        daemon.write("disk", &scene.change);
        daemon.kill();
        // What is behind the end is nobody's any more.
        file.set_len(80 * MIB).expect("a file can be cut");
        let daemon = scene.serve();
        assert!(daemon.read("disk") == scene.changed(), "{profile}");
        let written = scene.status()["cache"]["lifetime_written_bytes"].as_u64();
        assert!(written > Some(4 * MIB), "what was written to the device counts on: {written:?}");
        daemon.stop();
        assert_eq!(scene.report("check")["ok"], true, "{profile}");
    }
}

#[test]
fn both_work_without_a_daemon() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    scene.leave_dirty();
    let other = scene.place.file("other.img", 96 * MIB);
    let told = scene.place.done(&["replace", &scene.cache, &other]);
    assert!(told.contains("from now on: forebay serve") && told.contains("other.img"), "{told}");
    assert!(fs::read(&scene.origin).expect("it is there") == scene.changed(), "what was dirty is home");
    scene.place.done(&["resize", &other, "64M"]);
    let daemon = scene.place.serve(&other, &[]);
    assert!(daemon.read("disk") == scene.changed());
    daemon.stop();
    scene.place.refused(&["serve", &scene.cache], 1, &["was replaced by", "other.img"]);
    scene.place.refused(&["set", &scene.cache, "mode=writethrough"], 1, &["was replaced by"]);
}

#[test]
fn what_cannot_take_its_place_changes_nothing() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let place = &scene.place;
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    let replace = |device: &str, words: &[&str]| place.refused(&["replace", &scene.cache, device], 1, words);
    replace(&scene.cache, &["is the cache already", "forebay resize"]);
    replace(&scene.origin, &["is the origin of volume disk"]);
    replace(&place.file("tiny.img", 2 * MIB), &["the least is", "give it more"]);
    replace(&place.path("missing.img").display().to_string(), &["does not exist", "truncate"]);
    replace("nbd://127.0.0.1:1/x", &["cannot be a cache"]);
    let full = place.file("full.img", 64 * MIB);
    let made = Command::new("mke2fs").args(["-q", "-F", &full]).status();
    if made.is_ok_and(|status| status.success()) {
        replace(&full, &["holds", "--wipe"]);
    }
    // Another cache, which a daemon serves.
    let origin = place.file("second.img", 16 * MIB);
    let theirs = place.file("theirs.img", 64 * MIB);
    place.done(&["create", "--origin", &origin, "--cache", &theirs, "--name", "theirs"]);
    let other = place.serve(&theirs, &[]);
    replace(&theirs, &["stop the daemon that serves it"]);
    other.stop();
    replace(&theirs, &["holds a Forebay cache (volumes: theirs)"]);
    assert!(daemon.read("disk") == scene.changed(), "all that was refused left no trace");
    // An origin that is gone keeps its data in the cache.
    daemon.stop();
    scene.leave_dirty();
    let aside = place.path("aside.img");
    let two = place.file("two.img", 16 * MIB);
    fs::write(&two, pattern(5, 16 * MIB)).expect("a file for the test");
    place.done(&["add", &scene.cache, "--origin", &two, "--name", "two"]);
    fs::rename(&scene.origin, &aside).expect("it can be moved");
    let new = place.file("new.img", 64 * MIB);
    let daemon = scene.serve();
    replace(&new, &["the origin of volume disk is missing"]);
    daemon.stop();
    fs::rename(&aside, &scene.origin).expect("it can be moved");
    assert!(
        fs::read(&new).expect("it is there")[..4096].iter().all(|byte| *byte == 0),
        "nothing is left behind"
    );
    let daemon = scene.serve();
    assert!(daemon.read("disk") == scene.changed());
    daemon.stop();
}

/// The last changes of settings are told, whoever made them.
#[test]
fn changes_have_a_history() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    scene.place.done(&["set", &scene.cache, "mode=writethrough"]);
    let daemon = scene.serve();
    scene.place.done(&["set", &scene.cache, "mode=writearound"]);
    scene.place.done(&["set", &scene.cache, "mode=writearound"]);
    let other = scene.place.file("other.img", 96 * MIB);
    scene.place.done(&["replace", &scene.cache, &other]);
    let told = scene.place.done(&["status", &other, "--history"]);
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("changed ")).collect();
    assert_eq!(lines.len(), 5, "{told}");
    assert!(lines[0].ends_with("the cache: profile forebay"), "{told}");
    assert!(lines[1].contains("volume disk: origin ") && lines[1].ends_with("slow.img"), "{told}");
    assert!(lines[2].ends_with("volume disk: mode writeback -> writethrough"), "{told}");
    assert!(lines[3].ends_with("volume disk: mode writethrough -> writearound"), "{told}");
    assert!(lines[3].contains("T") && lines[3].contains("Z  "), "with the time: {told}");
    assert!(lines[4].contains("the cache: device ") && lines[4].ends_with("other.img"), "{told}");
    assert!(!scene.place.done(&["status", &other]).contains("changed "), "only if it is asked for");
    daemon.stop();
    let dump = json(&scene.place.done(&["dump", &other, "--json"]));
    assert_eq!(dump["superblock"]["history"][3]["new"], "writearound", "{dump}");
}

/// The superblock of a cache as a crash may leave it.
fn leave_as(cache: &str, succession: Succession) {
    let device = open(cache);
    let mut image = BlockingDevice::new(&device);
    let (mut superblock, _) = load_superblock(&mut image).expect("a cache");
    superblock.update += 1;
    superblock.line.succession = succession;
    write_superblock(&mut image, &superblock, Mutations::NONE).expect("it can be written");
}

#[test]
fn what_a_crash_cut_off_is_finished() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let place = &scene.place;
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    place.done(&["flush", &scene.cache]);
    daemon.stop();
    // It was to be made anew, and nothing of that was written but the word of it.
    leave_as(&scene.cache, Succession::Remade { by: [9; 16], cache_bytes: 48 * MIB });
    place.refused(&["status", &scene.cache], 1, &["gets another size", "forebay serve"]);
    place.refused(&["set", &scene.cache, "mode=writethrough"], 1, &["gets another size"]);
    let daemon = place.serve(&scene.cache, &["--profile", "forebay"]);
    assert_eq!(scene.status()["cache"]["size_bytes"], 48 * MIB);
    assert!(daemon.read("disk") == scene.changed());
    daemon.stop();
    // It was replaced, and the other device has no volumes yet.
    let heir = place.file("heir.img", 96 * MIB);
    let (old, new) = (open(&scene.cache), open(&heir));
    let (superblock, _) = load_superblock(&mut BlockingDevice::new(&old)).expect("a cache");
    let layout =
        Composition::of(&superblock).expect("it is kept").divide(96 * MIB).expect("it is large enough");
    let made = engine::recovery::heir(&superblock, [5; 16], 96 * MIB, layout);
    engine::recovery::write_heir(&mut BlockingDevice::new(&new), &made, Mutations::NONE)
        .expect("it can be written");
    drop((old, new));
    place.refused(&["serve", &heir], 1, &["was to replace", "fast.img", "forebay replace"]);
    leave_as(&scene.cache, Succession::Replaced { by: [5; 16] });
    place.refused(&["serve", &scene.cache], 1, &["was replaced by", "forebay replace"]);
    let stranger = place.file("stranger.img", 64 * MIB);
    place.done(&["create", "--origin", &place.file("x.img", 16 * MIB), "--cache", &stranger, "--name", "x"]);
    place.refused(&["replace", &scene.cache, &stranger], 1, &["was replaced by another device, and not by"]);
    place.done(&["replace", &scene.cache, &heir]);
    place.done(&["replace", &scene.cache, &heir]);
    let daemon = place.serve(&heir, &[]);
    assert!(daemon.read("disk") == scene.changed());
    daemon.stop();
    place.refused(&["serve", &scene.cache], 1, &["was replaced by", "heir.img"]);
}

fn open(cache: &str) -> live::devices::Device {
    let spec = live::devices::parse(cache).expect("a path");
    live::devices::open(&spec, Access::Exclusive).expect("nobody has it")
}
