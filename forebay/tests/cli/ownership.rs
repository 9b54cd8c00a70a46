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
    place.refused(&[&create[..], &["--take-over", &second]].concat(), 1, &said);
    assert!(
        [fs::read(&second).unwrap(), fs::read(&third).unwrap()] == before,
        "a refused verb writes nothing"
    );

    // Once nothing is dirty, and nothing may get dirty any more, it is the operator's choice.
    place.done(&["flush", &scene.cache]);
    scene.place.done(&["detach", &scene.cache]);
    place.done(&create);
}

#[test]
fn an_origin_is_taken_over_by_name() {
    let scene = Scene::new(64 * MIB, &[]);
    let second = scene.place.file("second.img", 64 * MIB);
    scene.leave_dirty();
    let create = ["create", "--origin", &scene.origin, "--cache", &second, "--name", "again"];
    scene.place.done(&[&create[..], &["--take-over", &scene.origin]].concat());
}

/// A cache that is formatted anew gives its own data up: `--wipe` has named it.
#[test]
fn the_cache_that_is_formatted_does_not_count() {
    let scene = Scene::new(64 * MIB, &[]);
    scene.leave_dirty();
    let create = ["create", "--origin", &scene.origin, "--cache", &scene.cache, "--name", "again"];
    scene.place.refused(&create, 1, &["--wipe"]);
    scene.place.done(&[&create[..], &["--wipe", &scene.cache]].concat());
    // Its old record names nothing that exists, and holds up nobody.
    let second = scene.place.file("second.img", 64 * MIB);
    scene.place.done(&["create", "--origin", &scene.origin, "--cache", &second]);
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
