//! Goal: `attach`, `unattach` and `serve --attach` refuse what they must in one line, and leave nothing behind.
//! Method: the real command on a machine whose kernel has not loaded the driver. With the driver they are tested in a
//! virtual machine: `make test-guest`.

use crate::scene::Scene;
use std::path::Path;

fn scene() -> Scene {
    Scene::new(32 << 20, &[])
}

/// Where the driver is loaded these commands would make a device.
fn has_driver(module: &str) -> bool {
    Path::new("/sys/module").join(module).exists()
}

#[test]
fn what_is_not_served_or_not_attached_is_refused() {
    let scene = scene();
    scene.place.refused(&["attach", &scene.cache], 1, &["no daemon serves", "serve", "--attach"]);
    scene.place.refused(&["unattach", &scene.cache], 1, &["volume disk is not attached"]);
    scene.place.refused(&["unattach", &scene.cache, "other"], 1, &["no volume other"]);
    let daemon = scene.serve();
    scene.place.refused(&["attach", &scene.cache, "other"], 1, &["no volume other"]);
    scene.place.refused(&["unattach", &scene.cache], 1, &["volume disk is not attached"]);
    daemon.stop();
}

#[test]
fn without_the_driver_one_line_says_what_to_do() {
    for (door, module) in [("nbd", "nbd"), ("ublk", "ublk_drv")] {
        if has_driver(module) {
            continue;
        }
        let scene = scene();
        let session = scene.status()["session"].clone();
        let serve = ["serve", &scene.cache, "--attach", "--door", door];
        let missing = format!("module {module}");
        scene.place.refused(&serve, 1, &[&missing, "cannot attach"]);
        assert_eq!(scene.status()["session"], session, "a start that is refused changes nothing");
        let daemon = scene.serve();
        scene.place.refused(&["attach", &scene.cache, "--door", door], 1, &[&missing, "volume disk"]);
        assert_eq!(scene.status()["volumes"][0].get("device"), None);
        daemon.stop();
        assert!(!Path::new("/dev/forebay/disk").exists());
    }
}

#[test]
fn what_the_ublk_driver_does_not_have_is_refused() {
    let scene = scene();
    let held = ["--door", "ublk", "--hold", "5"];
    let serve = [&["serve", &scene.cache, "--attach"][..], &held].concat();
    scene.place.refused(&serve, 1, &["--hold", "--door nbd"]);
    let daemon = scene.serve();
    let attach = [&["attach", &scene.cache][..], &held].concat();
    scene.place.refused(&attach, 1, &["--hold", "--door nbd", "volume disk"]);
    daemon.stop();
}

#[test]
fn numbers_that_no_device_has_are_wrong_usage() {
    let scene = scene();
    for (option, value) in [
        ("--connections", "0"),
        ("--connections", "17"),
        ("--index", "40000"),
        ("--hold", "0"),
        ("--door", "front"),
    ] {
        scene.place.refused(&["attach", &scene.cache, option, value], 2, &[option]);
    }
    scene.place.refused(&["serve", &scene.cache, "--attach", "--uncached"], 2, &["--uncached"]);
}
