//! Goal: an ephemeral cache whose device is blank is made anew and served without a question, and only where nothing can be
//! lost by that; what comes back of an older one is refused; a refusal is one line and writes nothing. Method: the device
//! is a file that is made blank, put back, or filled with something else between two starts, and the notes are edited.

use crate::scene::{Place, Scene, overwrite, pattern};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const CACHE: u64 = 32 * MIB;

/// Everything that a start could change: the cache, and all notes.
fn remains(scene: &Scene) -> BTreeMap<PathBuf, Vec<u8>> {
    let notes = fs::read_dir(scene.place.path("state")).into_iter().flatten();
    let notes = notes.map(|entry| entry.expect("it can be listed").path());
    let files = notes.chain([scene.cache.clone().into()]);
    files.map(|path| (path.clone(), fs::read(path).expect("it can be read"))).collect()
}

/// An ephemeral cache that was written through and stopped.
fn stopped(more: &[&str]) -> Scene {
    let scene = Scene::new(CACHE, &[&["--ephemeral"], more].concat());
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    daemon.stop();
    scene
}

fn make_blank(cache: &str) {
    let file = fs::File::create(cache).expect("the file is there");
    file.set_len(CACHE).expect("it gets its size");
}

/// A start is refused in one line with these words, again and again, and writes nothing.
fn stays_refused(scene: &Scene, words: &[&str]) {
    let before = remains(scene);
    for start in 1..=2 {
        scene.place.refused(&["serve", &scene.cache], 1, words);
        assert!(remains(scene) == before, "start {start} was refused and changed something");
    }
}

/// The notes on the cache that was served last, as a text to be edited.
fn edit_notes(scene: &Scene, old: &str, new: &str) {
    let set_id = scene_set_id(scene);
    let path = scene.place.path("state").join(format!("{set_id}.toml"));
    let text = fs::read_to_string(&path).expect("there are notes");
    assert!(text.contains(old), "the notes have no {old}: {text}");
    fs::write(path, text.replace(old, new)).expect("they can be written");
}

/// The set id of the notes that are under the name of the cache.
fn scene_set_id(scene: &Scene) -> String {
    let notes = fs::read_dir(scene.place.path("state")).expect("there are notes");
    let paths = notes.map(|entry| entry.expect("a file").path());
    let records = paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    let mut texts = records.map(|path| fs::read_to_string(path).expect("a text"));
    let text = texts.find(|text| text.contains(&scene.cache)).expect("it has notes");
    text.lines().find_map(|line| line.strip_prefix("set_id = ")).expect("an id").trim_matches('"').to_owned()
}

#[test]
fn a_blank_device_is_formatted_and_served() {
    for profile in ["forebay", "dm-cache", "enhanceio", "bcache"] {
        let scene = stopped(&["--profile", profile]);
        let second = scene.place.file("second.img", 8 * MIB);
        let add = ["add", &scene.cache, "--origin", &second, "--name", "more", "--mode", "writearound"];
        scene.place.done(&add);
        let before = scene.status();
        assert_eq!(before["cache"]["ephemeral"], true, "{before}");
        make_blank(&scene.cache);
        let daemon = scene.serve();
        assert!(daemon.ready.contains("volumes=disk,more"), "{}", daemon.ready);
        assert!(daemon.read("disk") == scene.changed(), "{profile}: a volume has another content");
        let after = scene.status();
        assert_ne!(after["cache"]["set_id"], before["cache"]["set_id"], "no set id is used twice");
        for at in 0..2 {
            for key in ["name", "origin", "mode", "size_bytes"] {
                assert_eq!(after["volumes"][at][key], before["volumes"][at][key], "{profile}: {key}");
            }
        }
        assert_eq!(after["cache"]["composition"], before["cache"]["composition"]);
        let errors = daemon.stop();
        assert!(errors.contains("[F39]") && errors.contains("was blank"), "{errors}");
        // It is served again like any other cache, and may be blank again.
        scene.serve().stop();
        make_blank(&scene.cache);
        assert!(scene.serve().read("disk") == scene.changed(), "{profile}: the second time");
    }
}

#[test]
fn it_says_what_it_is() {
    let scene = stopped(&[]);
    assert!(scene.place.done(&["status", &scene.cache]).contains("\nephemeral  a blank device"));
    assert_eq!(scene.status()["volumes"][0]["mode"], "writethrough", "the default is one that it may have");
    let plain = Scene::new(CACHE, &[]);
    assert_eq!(plain.status()["cache"]["ephemeral"], false);
    assert!(!plain.place.done(&["status", &plain.cache]).contains("ephemeral"));
}

#[test]
fn writeback_is_refused_wherever_it_is_asked_for() {
    let place = Place::new();
    let origin = place.file("slow.img", 16 * MIB);
    let cache = place.file("fast.img", CACHE);
    let create = ["create", "--origin", &origin, "--cache", &cache, "--ephemeral"];
    let words = ["an ephemeral cache may be gone", "use writethrough"];
    place.refused(&[&create[..], &["--mode", "writeback"]].concat(), 1, &words);
    place.refused(&[&create[..], &["--unsafe"]].concat(), 2, &["--ephemeral"]);
    assert!(fs::read(&cache).expect("the file").iter().all(|byte| *byte == 0), "nothing is written");
    place.done(&create);
    let other = place.file("other.img", 16 * MIB);
    let add = ["add", &cache, "--origin", &other, "--name", "other", "--mode", "writeback"];
    place.refused(&add, 1, &words);
    place.refused(&["set", &cache, "mode=writeback"], 1, &words);
    let daemon = place.serve(&cache, &[]);
    place.refused(&["set", &cache, "mode=writeback"], 1, &words);
    place.done(&["set", &cache, "mode=writearound"]);
    daemon.stop();
    let config = place.file("forebay.toml", 0);
    let text = format!("cache = \"{cache}\"\n[[volume]]\nname = \"slow\"\nmode = \"writeback\"\n");
    fs::write(&config, text).expect("a configuration");
    place.refused(&["serve", "--config", &config], 1, &["forebay.toml:3: volume slow", "ephemeral"]);
}

#[test]
fn a_mode_that_was_set_is_kept() {
    let scene = stopped(&[]);
    scene.place.done(&["set", &scene.cache, "mode=writearound"]);
    make_blank(&scene.cache);
    scene.serve().stop();
    assert_eq!(scene.status()["volumes"][0]["mode"], "writearound", "set while it was not served");
    let daemon = scene.serve();
    scene.place.done(&["set", &scene.cache, "mode=readonly"]);
    daemon.kill();
    make_blank(&scene.cache);
    let daemon = scene.serve();
    assert_eq!(scene.status()["volumes"][0]["mode"], "readonly", "set while it was served");
    daemon.stop();
}

/// The kernel lets go of a killed daemon's lock a moment after its end.
#[test]
fn a_lock_that_is_gone_soon_is_waited_for() {
    let scene = stopped(&[]);
    make_blank(&scene.cache);
    let file = fs::File::open(&scene.cache).expect("the file is there");
    file.lock().expect("nobody has it");
    let lets_go = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(file);
    });
    scene.serve().stop();
    lets_go.join().expect("it lets go");
}

#[test]
fn nothing_is_formatted_without_the_notes() {
    let scene = stopped(&[]);
    make_blank(&scene.cache);
    fs::remove_dir_all(scene.place.path("state")).expect("there are notes");
    stays_refused(&scene, &["not formatted as a cache", "name the cache"]);
    let plain = Scene::new(CACHE, &["--mode", "writethrough"]);
    plain.serve().stop();
    make_blank(&plain.cache);
    stays_refused(&plain, &["not formatted as a cache", "--uncached"]);
}

#[test]
fn nothing_is_formatted_where_something_dirty_may_be_lost() {
    let scene = stopped(&[]);
    make_blank(&scene.cache);
    edit_notes(&scene, "may_be_dirty = false", "may_be_dirty = true");
    stays_refused(&scene, &["is blank", "volume disk", "does not have", "--take-over"]);
    // Nobody needs it where the origin was written without the cache.
    edit_notes(&scene, "abandoned = false", "abandoned = true");
    assert!(scene.serve().read("disk") == scene.changed());
}

#[test]
fn a_device_that_holds_something_is_refused() {
    for (at, bytes) in [(1080, &[0x53, 0xef][..]), (5000, b"x"), (20 * MIB, &[7; 65536]), (CACHE - 1, b"x")] {
        let scene = stopped(&[]);
        make_blank(&scene.cache);
        overwrite(&scene.cache, at, bytes);
        stays_refused(&scene, &["holds ", "the right device", "--wipe"]);
    }
    let scene = stopped(&[]);
    overwrite(&scene.cache, 100, &[0xee; 4000]);
    overwrite(&scene.cache, (512 << 10) + 100, &[0xee; 4000]);
    stays_refused(&scene, &["is not blank", "damaged"]);
}

#[test]
fn a_cache_that_was_replaced_is_refused_when_it_comes_back() {
    let scene = stopped(&[]);
    let [older, newer] = ["older.img", "newer.img"].map(|name| scene.place.path(name));
    fs::copy(&scene.cache, &older).expect("a copy");
    make_blank(&scene.cache);
    let other = scene.place.file("other-change.img", 0);
    fs::write(&other, pattern(3, 4 * MIB)).expect("a file");
    let daemon = scene.serve();
    daemon.write("disk", &other);
    daemon.stop();
    let right = fs::read(&scene.origin).expect("the origin");
    fs::copy(&scene.cache, &newer).expect("a copy");
    fs::copy(&older, &scene.cache).expect("it comes back");
    stays_refused(&scene, &["holds an older cache", "void", "--wipe"]);
    let add = ["add", &scene.cache, "--origin", other.as_str(), "--name", "more"];
    scene.place.refused(&add, 1, &["holds an older cache"]);
    fs::copy(&newer, &scene.cache).expect("put back");
    assert!(scene.serve().read("disk") == right, "the newer one is served");
}

#[test]
fn another_origin_is_refused_as_far_as_the_notes_know_it() {
    let scene = stopped(&[]);
    let right = fs::read(&scene.origin).expect("the origin");
    make_blank(&scene.cache);
    overwrite(&scene.origin, 0, &[9; 512]);
    let words = ["changed behind the cache at byte 0", "connect the right disk", "create --ephemeral"];
    stays_refused(&scene, &words);
    overwrite(&scene.origin, 0, &right[..512]);
    let file = fs::File::options().write(true).open(&scene.origin).expect("the origin");
    file.set_len(15 * MIB).expect("it shrinks");
    stays_refused(&scene, &["has shrunk", "give it its size back"]);
    fs::write(&scene.origin, &right).expect("it is as it was");
    // A daemon that was killed left no word of the places, which its clients may have changed.
    scene.serve().stop();
    scene.serve().kill();
    make_blank(&scene.cache);
    let daemon = scene.serve();
    assert!(daemon.read("disk") == right);
    daemon.stop();
    let moved = scene.place.path("moved.img");
    fs::rename(&scene.origin, &moved).expect("it moves away");
    make_blank(&scene.cache);
    scene.place.refused(&["serve", &scene.cache], 1, &["origin of volume disk", "connect it"]);
    fs::rename(&moved, &scene.origin).expect("it is back");
    scene.serve().stop();
}

/// Goal: a crash anywhere in the middle of a renewal is no end. Method: the notes say that a cache was being formed, and the device
/// has what a crash may leave of its superblock.
#[test]
fn a_renewal_that_was_cut_goes_on() {
    // All of it is what a renewal leaves that was cut after its last write.
    for remains in [0, 512, 4096, 40_000, CACHE as usize] {
        let scene = stopped(&[]);
        let whole = fs::read(&scene.cache).expect("the cache");
        make_blank(&scene.cache);
        edit_notes(&scene, "is_forming = false", "is_forming = true");
        overwrite(&scene.cache, 0, &whole[..remains]);
        let before = scene_set_id(&scene);
        let daemon = scene.serve();
        assert!(daemon.read("disk") == scene.changed(), "{remains} bytes of a superblock");
        let is_same = scene.status()["cache"]["set_id"] == before.as_str();
        assert_eq!(
            is_same,
            remains == CACHE as usize,
            "a superblock that is whole counts, {remains} bytes of it do not"
        );
        daemon.stop();
    }
    let scene = stopped(&[]);
    make_blank(&scene.cache);
    edit_notes(&scene, "is_forming = false", "is_forming = true");
    overwrite(&scene.cache, 1080, &[0x53, 0xef]);
    stays_refused(&scene, &["holds an ext2"]);
}

#[test]
fn an_origin_is_no_blank_device() {
    let scene = stopped(&[]);
    make_blank(&scene.cache);
    let other = scene.place.file("other-fast.img", CACHE);
    scene.place.done(&["create", "--origin", &scene.cache, "--cache", &other, "--name", "swapped"]);
    stays_refused(&scene, &["is the origin of volume swapped"]);
    assert!(Path::new(&scene.cache).exists());
}
