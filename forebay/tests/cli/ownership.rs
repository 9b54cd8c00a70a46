//! Goal: no verb gives an origin a second cache while the first may hold newer data, and none formats an origin, unless
//! the operator names the device once more. Method: the real commands on files, in the wrong order.

use crate::scene::{Scene, pattern};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// udev locks each disk at boot while it looks at it, and shares that lock; a start waits for it.
#[test]
fn a_start_waits_for_programs_that_only_look() {
    let scene = Scene::new(64 * MIB, &[]);
    let mut locks: Vec<_> = [&scene.cache, &scene.origin]
        .map(|device| {
            let ready = scene.place.path("ready");
            let script = format!("touch {}; sleep 3.5", ready.display());
            let lock = Command::new("flock").args(["-s", device, "sh", "-c", &script]).spawn();
            while !ready.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            fs::remove_file(&ready).expect("it was there");
            lock.expect("flock of util-linux is installed")
        })
        .into();
    let began = Instant::now();
    scene.serve().stop();
    assert!(began.elapsed() > Duration::from_millis(1500), "it waited: {:?}", began.elapsed());
    for lock in &mut locks {
        assert!(lock.wait().expect("it was started").success());
    }
}

#[test]
fn a_second_cache_is_refused_while_the_first_may_hold_newer_data() {
    let scene = Scene::new(64 * MIB, &[]);
    let (origin, place) = (&scene.origin, &scene.place);
    let second = place.file("second.img", 64 * MIB);
    let third = place.file("third.img", 64 * MIB);
    let other = place.file("other.img", 16 * MIB);
    place.done(&["create", "--origin", &other, "--cache", &third, "--name", "other"]);
    let create = ["create", "--origin", origin, "--cache", &second, "--name", "again"];
    let add = ["add", &third, "--origin", origin, "--name", "again"];
    scene.leave_dirty();
    let said = [scene.cache.as_str(), "volume disk", "forebay detach", "--take-over"];
    let before = [fs::read(&second).unwrap(), fs::read(&third).unwrap()];
    place.refused(&create, 1, &said);
    place.refused(&add, 1, &said);
    // Another name of the same file, and the name of something else.
    let link = place.path("link.img");
    std::os::unix::fs::symlink(origin, &link).unwrap();
    let linked = ["create", "--origin", link.to_str().unwrap(), "--cache", &second];
    place.refused(&linked, 1, &said);
    let another = [second.as_str(), "is not the origin", origin];
    place.refused(&[&create[..], &["--take-over", &second]].concat(), 1, &another);
    place.refused(&[&add[..], &["--take-over", &second]].concat(), 1, &another);
    assert!(
        [fs::read(&second).unwrap(), fs::read(&third).unwrap()] == before,
        "a refused verb writes nothing"
    );

    // What is clean would be stale after the other cache was used.
    place.done(&["flush", &scene.cache]);
    let said = [scene.cache.as_str(), "is the origin of volume disk", "forebay detach", "--take-over"];
    place.refused(&create, 1, &said);
    place.refused(&add, 1, &said);
    place.refused(&linked, 1, &said);
    let serving = place.serve(&third, &[]);
    place.refused(&add, 1, &said);
    serving.stop();
    place.done(&["detach", &scene.cache]);
    place.done(&create);
}

/// Two that only read do not harm each other, until one of them writes.
#[test]
fn caches_that_only_read_share_an_origin() {
    let scene = Scene::new(64 * MIB, &["--mode", "readonly"]);
    let place = &scene.place;
    let second = place.file("second.img", 64 * MIB);
    let create = ["create", "--origin", &scene.origin, "--cache", &second, "--name", "again"];
    place.refused(&create, 1, &["is the origin of volume disk"]);
    place.done(&[&create[..], &["--mode", "readonly"]].concat());
    let first = scene.serve();
    assert_eq!(first.read("disk"), pattern(1, 16 * MIB));
    assert!(!first.stop().contains("is void"));
    let daemon = place.serve(&second, &[]);
    assert!(!daemon.errors().contains("is void"), "{}", daemon.errors());
    place.done(&["set", &second, "mode=writethrough"]);
    assert!(
        daemon.errors().contains(&format!("without the cache {} now", scene.cache)),
        "{}",
        daemon.errors()
    );
    daemon.write("again", &scene.change);
    daemon.stop();
    place.done(&["detach", &second]);
    let daemon = scene.serve();
    assert!(daemon.read("disk") == scene.changed(), "nothing of before is read");
    assert!(daemon.stop().contains("[F15]"));
}

/// A second cache on the origin of a scene, which no note of before knew of, as notes in two places make it.
fn unnoticed(scene: &Scene, mode: &str) -> String {
    let second = scene.place.file("second.img", 64 * MIB);
    let elsewhere = scene.place.path("elsewhere").display().to_string();
    let create = ["create", "--origin", &scene.origin, "--cache", &second, "--name", "again", "--mode", mode];
    scene.place.done(&[&create[..], &["--state-dir", &elsewhere]].concat());
    second
}

#[test]
fn a_start_is_refused_while_another_cache_may_hold_newer_data() {
    let scene = Scene::new(64 * MIB, &[]);
    let place = &scene.place;
    let daemon = scene.serve();
    assert_eq!(daemon.read("disk"), pattern(1, 16 * MIB));
    daemon.stop();
    let second = unnoticed(&scene, "writeback");
    let daemon = place.serve(&second, &[]);
    daemon.write("again", &scene.change);
    daemon.kill();
    // What the first one holds has been void since the other one was served, and is dropped before anything else.
    let dropped = place.forebay(&["serve", &scene.cache]);
    assert!(String::from_utf8(dropped.stderr).unwrap().contains("[F15]"));
    let before = fs::read(&scene.cache).unwrap();
    let said =
        [second.as_str(), "may hold data", "volume again", "forebay detach", "origin=changed-", "move "];
    for verb in ["serve", "flush", "detach"] {
        place.refused(&[verb, &scene.cache], 1, &said);
    }
    assert!(fs::read(&scene.cache).unwrap() == before, "a start that is refused changes nothing");
    place.done(&["detach", &second]);
    let daemon = scene.serve();
    assert!(
        daemon.read("disk") == scene.changed(),
        "what the other cache held is home, and nothing hides it"
    );
    daemon.stop();
}

#[test]
fn what_another_cache_holds_is_given_up_where_it_is() {
    let scene = Scene::new(64 * MIB, &[]);
    scene.serve().stop();
    let second = unnoticed(&scene, "writeback");
    let daemon = scene.place.serve(&second, &[]);
    daemon.write("again", &scene.change);
    daemon.kill();
    assert_eq!(scene.place.forebay(&["serve", &scene.cache]).status.code(), Some(1));
    scene.place.done(&["set", &second, "again", "origin=changed-discard-dirty"]);
    scene.serve().stop();
}

/// What is clean in one cache is stale when the other one was used, and is never read then.
#[test]
fn caches_that_take_turns_drop_what_they_hold() {
    let scene = Scene::new(64 * MIB, &["--mode", "writethrough"]);
    let place = &scene.place;
    let daemon = scene.serve();
    assert_eq!(daemon.read("disk"), pattern(1, 16 * MIB));
    daemon.stop();
    let second = unnoticed(&scene, "writethrough");
    let daemon = place.serve(&second, &[]);
    assert!(
        daemon.errors().contains(&format!("without the cache {} now", scene.cache)),
        "{}",
        daemon.errors()
    );
    daemon.write("again", &scene.change);
    assert!(daemon.read("again") == scene.changed());
    daemon.stop();
    let daemon = scene.serve();
    assert!(daemon.read("disk") == scene.changed(), "nothing of before is read");
    let newest = place.file("newest.img", 0);
    fs::write(&newest, pattern(5, 16 * MIB)).unwrap();
    daemon.write("disk", &newest);
    assert!(daemon.stop().contains("[F15]"));
    place.done(&["detach", &scene.cache]);
    let daemon = place.serve(&second, &[]);
    assert!(daemon.read("again") == pattern(5, 16 * MIB), "nothing of before is read");
    daemon.stop();
}

#[test]
fn an_origin_is_taken_over_by_name() {
    let scene = Scene::new(64 * MIB, &[]);
    let second = scene.place.file("second.img", 64 * MIB);
    scene.leave_dirty();
    let create = ["create", "--origin", &scene.origin, "--cache", &second, "--name", "again"];
    scene.place.done(&[&create[..], &["--take-over", &scene.origin]].concat());
    // What was given up does not come back.
    let daemon = scene.place.serve(&second, &[]);
    let newest = scene.place.file("newest.img", 0);
    fs::write(&newest, pattern(5, 16 * MIB)).unwrap();
    daemon.write("again", &newest);
    daemon.stop();
    scene.place.done(&["detach", &second]);
    let daemon = scene.serve();
    assert!(daemon.read("disk") == pattern(5, 16 * MIB), "nothing of before is read");
    assert!(daemon.stop().contains("[F15]"));
}

/// A cache that is formatted anew gives its own data up: `--wipe` has named it.
#[test]
fn the_cache_that_is_formatted_does_not_count() {
    let scene = Scene::new(64 * MIB, &[]);
    scene.leave_dirty();
    let create = ["create", "--origin", &scene.origin, "--cache", &scene.cache, "--name", "again"];
    let detach = format!("forebay detach {} disk", scene.cache);
    scene.place.refused(&create, 1, &["may hold data", "MiB, volume disk)", &detach, "--wipe"]);
    // Only what is formatted, or taken over, is named so.
    let stranger = scene.place.file("stranger.img", 64 * MIB);
    scene.place.refused(&[&create[..], &["--wipe", &stranger]].concat(), 1, &[&stranger, "is not the cache"]);
    scene.place.done(&[&create[..], &["--wipe", &scene.cache]].concat());
    // Its old record names nothing that exists, and holds up nobody.
    let second = scene.place.file("second.img", 64 * MIB);
    let create = ["create", "--origin", &scene.origin, "--cache", &second];
    scene.place.refused(&create, 1, &["is the origin of volume again of the cache"]);
    scene.place.done(&["detach", &scene.cache]);
    scene.place.done(&create);
}

#[test]
fn origin_and_cache_are_not_swapped() {
    let scene = Scene::new(64 * MIB, &[]);
    let (origin, cache, place) = (&scene.origin, &scene.cache, &scene.place);
    // Large enough to be formatted.
    fs::File::options().write(true).open(origin).unwrap().set_len(64 * MIB).unwrap();
    let content = fs::read(origin).unwrap();
    let formatted = fs::read(cache).unwrap();
    let swapped = ["create", "--origin", cache, "--cache", origin, "--name", "x"];
    place.refused(&swapped, 1, &[origin, "is a Forebay cache", "swapped", "--take-over"]);
    place.refused(&[&swapped[..], &["--wipe", origin]].concat(), 1, &["is a Forebay cache"]);
    let other = place.file("other.img", 16 * MIB);
    fs::write(&other, pattern(3, 16 * MIB)).unwrap();
    let formats = ["create", "--origin", &other, "--cache", origin, "--name", "x"];
    place.refused(&formats, 1, &["is the origin of volume disk of the cache", cache, "--wipe"]);
    assert!(
        fs::read(origin).unwrap() == content && fs::read(cache).unwrap() == formatted,
        "nothing was written"
    );
    place.done(&[&formats[..], &["--wipe", origin]].concat());
}
