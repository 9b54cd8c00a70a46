//! Goal: `attach`, `unattach` and `serve --attach` refuse what they must in one line, and leave nothing behind.
//! Method: the real command on a machine whose kernel has not loaded the driver. With the driver they are tested in a
//! virtual machine: `make test-guest`.

use crate::scene::Scene;
use std::path::Path;

fn scene() -> Scene {
    Scene::new(32 << 20, &[])
}

/// Where the driver is loaded these commands would make a device.
fn has_driver() -> bool {
    Path::new("/sys/module/nbd").exists()
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
    if has_driver() {
        return;
    }
    let scene = scene();
    let session = scene.status()["session"].clone();
    scene.place.refused(&["serve", &scene.cache, "--attach"], 1, &["module nbd", "cannot attach"]);
    assert_eq!(scene.status()["session"], session, "a start that is refused changes nothing");
    let daemon = scene.serve();
    scene.place.refused(&["attach", &scene.cache], 1, &["module nbd", "volume disk"]);
    assert_eq!(scene.status()["volumes"][0].get("device"), None);
    daemon.stop();
    assert!(!Path::new("/dev/forebay/disk").exists());
}

#[test]
fn numbers_that_no_device_has_are_wrong_usage() {
    let scene = scene();
    for (option, value) in
        [("--connections", "0"), ("--connections", "17"), ("--index", "40000"), ("--hold", "0")]
    {
        scene.place.refused(&["attach", &scene.cache, option, value], 2, &[option]);
    }
    scene.place.refused(&["serve", &scene.cache, "--attach", "--uncached"], 2, &["--uncached"]);
}
