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
        ("flush-at=25:00", &["`25:00` is no time of the day", "flush-at=03:00"]),
    ] {
        place.refused(&["set", "mem:32M", "disk", setting], 2, words);
    }
}
