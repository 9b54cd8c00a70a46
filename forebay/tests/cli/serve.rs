//! Goal: `serve` refuses what it must, and the verbs on a cache do the same with a daemon and without.
//! Method: the real command on small files, `nbdcopy` as the client.

use crate::scene::{Place, Scene, overwrite, pattern};
use serde_json::Value;
use std::fs;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A cache of 32 MiB for a volume in this mode.
fn scene(mode: &str) -> Scene {
    Scene::new(32 * MIB, &["--mode", mode])
}

fn is_changed_at_home(scene: &Scene) -> bool {
    fs::read(&scene.origin).unwrap()[..4 * MIB as usize] == fs::read(&scene.change).unwrap()
}

#[test]
fn a_killed_daemon_loses_nothing_and_a_stopped_one_recovers_nothing() {
    let scene = scene("writeback");
    let daemon = scene.serve();
    assert!(daemon.ready.contains("volumes=disk"), "{}", daemon.ready);
    daemon.write("disk", &scene.change);
    daemon.kill();
    let daemon = scene.serve();
    assert_eq!(daemon.read("disk"), scene.changed());
    daemon.stop();
    let status = scene.status();
    assert_eq!(status["running"], false);
    assert_eq!(status["session"], 2);
    assert_eq!(status["recovery"]["batches_cut"], 0);
    let daemon = scene.serve();
    assert_eq!(daemon.read("disk"), scene.changed());
    daemon.stop();
}

#[test]
fn flush_and_detach_without_a_daemon() {
    let scene = scene("writeback");
    scene.leave_dirty();
    let flushed: Value = serde_json::from_str(&scene.place.done(&["flush", &scene.cache, "--json"])).unwrap();
    assert!(flushed["dirty_bytes"].as_u64().unwrap() > 0);
    assert!(is_changed_at_home(&scene));
    assert_eq!(scene.status()["volumes"][0]["dirty_bytes"], 0);
    let text = scene.place.done(&["detach", &scene.cache, "--verify"]);
    assert!(text.contains("equal") && text.contains("detached disk"), "{text}");
    assert_eq!(scene.status()["volumes"], Value::Array(Vec::new()));
    scene.place.refused(&["serve", &scene.cache], 1, &["no volume", "forebay add"]);
    scene.place.refused(&["detach", &scene.cache], 1, &["no volume"]);
    scene.place.done(&["add", &scene.cache, "--origin", &scene.origin, "--name", "again"]);
    let daemon = scene.serve();
    assert_eq!(daemon.read("again"), scene.changed());
    daemon.stop();
}

#[test]
fn flush_set_and_detach_with_a_daemon() {
    let scene = scene("writeback");
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    scene.place.done(&["flush", &scene.cache, "disk", "--progress"]);
    assert!(is_changed_at_home(&scene));
    scene.place.done(&["set", &scene.cache, "disk", "mode=writearound"]);
    let status = scene.status();
    assert_eq!(status["running"], true);
    assert_eq!(status["volumes"][0]["mode_target"], "writearound");
    let stats: Value =
        serde_json::from_str(&scene.place.done(&["stats", &scene.cache, "disk", "--json"])).unwrap();
    assert!(stats["total"]["writes"].as_u64().unwrap() > 0);
    assert!(stats["volumes"][0]["latency"]["write"]["p99_us"].as_f64().unwrap() > 0.0);
    assert!(stats["cache"]["written_bytes"].as_u64().unwrap() >= 4 * MIB);
    scene.place.refused(&["set", &scene.cache, "origin=changed"], 1, &["stop it first"]);
    scene.place.refused(&["set", &scene.cache, "size=origin"], 1, &["disk"]);
    scene.place.refused(&["status", &scene.cache, "other"], 1, &["no volume other"]);
    scene.place.refused(&["flush", &scene.cache, "other"], 1, &["no volume other"]);
    let text = scene.place.done(&["detach", &scene.cache, "--verify", "--json"]);
    let detached: Value = serde_json::from_str(&text).unwrap();
    assert!(detached["verified_bytes"].as_u64().unwrap() > 0);
    assert_eq!(fs::read(&scene.origin).unwrap(), scene.changed());
    daemon.stop();
}

#[test]
fn what_a_second_daemon_is_told() {
    let scene = scene("writeback");
    let daemon = scene.serve();
    scene.place.refused(&["serve", &scene.cache], 1, &["in use", "stop the daemon"]);
    let other = scene.place.file("other.img", 32 * MIB);
    scene.place.refused(&["create", "--origin", &scene.origin, "--cache", &other], 1, &["origin", "in use"]);
    scene.place.refused(&["create", "--origin", &other, "--cache", &scene.cache], 1, &["cache", "in use"]);
    scene.place.refused(&["check", &scene.cache], 1, &["in use", "stop the daemon"]);
    scene.place.refused(&["dump", &scene.cache], 1, &["in use"]);
    daemon.stop();
    // The origin alone may be in use too.
    let twin = ["create", "--origin", &scene.origin, "--cache", &other, "--name", "twin"];
    scene.place.done(&[&twin[..], &["--take-over", &scene.origin]].concat());
    let daemon = scene.serve();
    let output = scene.place.forebay(&["serve", &other]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("origin of volume twin cannot be used") && errors.contains("in use"), "{errors}");
    assert_eq!(output.status.code(), Some(1));
    daemon.stop();
}

#[test]
fn a_changed_origin_is_refused_with_two_ways_on() {
    let scene = scene("writeback");
    overwrite(&scene.origin, 16 * MIB - 100, b"changed behind the cache");
    let changed_at = (16 * MIB - 4096).to_string();
    scene.place.refused(
        &["serve", &scene.cache],
        1,
        &["changed behind", &changed_at, "right disk", "origin=changed"],
    );
    scene.place.done(&["set", &scene.cache, "disk", "origin=changed"]);
    scene.serve().stop();
}

#[test]
fn the_wrong_origin_is_refused_and_dirty_data_is_not_thrown_away_by_accident() {
    let scene = scene("writeback");
    scene.leave_dirty();
    let copy = scene.place.file("copy.img", 0);
    fs::copy(&scene.origin, &copy).unwrap();
    scene.place.refused(
        &["serve", &scene.cache, "--origin", &copy],
        1,
        &["not the origin", &format!("origin=changed --origin {copy}")],
    );
    let named = format!("disk={copy}");
    scene.place.refused(&["serve", &scene.cache, "--origin", &named], 1, &["not the origin"]);
    let changed = ["set", scene.cache.as_str(), "disk", "origin=changed", "--origin", copy.as_str()];
    scene.place.refused(&changed, 1, &["dirty data", "origin=changed-discard-dirty"]);
    let text =
        scene.place.done(&["set", &scene.cache, "disk", "origin=changed-discard-dirty", "--origin", &copy]);
    assert!(text.contains("thrown away"), "{text}");
    let daemon = scene.serve();
    assert_eq!(daemon.read("disk"), fs::read(&copy).unwrap());
    daemon.stop();
}

#[test]
fn a_block_changed_outside_the_well_known_places_is_found_by_chance() {
    let scene = scene("writethrough");
    let daemon = scene.serve();
    // All of it is read, so all of it is cached; on a busy machine not at the first time.
    (0..3).for_each(|_| drop(daemon.read("disk")));
    daemon.stop();
    assert!(scene.status()["volumes"][0]["cached_bytes"].as_u64().unwrap() > 8 * MIB);
    overwrite(&scene.origin, MIB, &pattern(9, 14 * MIB));
    scene.place.refused(&["serve", &scene.cache], 1, &["changed behind the cache"]);
}

#[test]
fn an_origin_that_grows_or_shrinks() {
    let scene = scene("writeback");
    let file = fs::File::options().write(true).open(&scene.origin).unwrap();
    file.set_len(20 * MIB).unwrap();
    let daemon = scene.serve();
    assert!(daemon.errors().contains("size=origin"), "{}", daemon.errors());
    assert_eq!(daemon.read("disk").len() as u64, 16 * MIB);
    scene.place.done(&["set", &scene.cache, "disk", "size=origin"]);
    assert_eq!(daemon.read("disk").len() as u64, 20 * MIB);
    daemon.stop();
    file.set_len(24 * MIB).unwrap();
    scene.place.done(&["set", &scene.cache, "disk", "size=origin"]);
    assert_eq!(scene.status()["volumes"][0]["size_bytes"], 24 * MIB);
    file.set_len(8 * MIB).unwrap();
    scene.place.refused(&["serve", &scene.cache], 1, &["shrunk", "origin=changed"]);
}

#[test]
fn a_cache_that_cannot_be_trusted_is_refused() {
    let scene = scene("writeback");
    let cache = fs::File::options().write(true).open(&scene.cache).unwrap();
    cache.set_len(31 * MIB).unwrap();
    for verb in ["serve", "status"] {
        let said = ["fast.img", "has 31 MiB, and had 32 MiB", "give it its size back"];
        scene.place.refused(&[verb, &scene.cache], 1, &said);
    }
    cache.set_len(32 * MIB).unwrap();
    overwrite(&scene.cache, 50, b"garbage");
    scene.serve().stop();
    overwrite(&scene.cache, 50, b"garbage");
    overwrite(&scene.cache, 512 * 1024 + 50, b"garbage");
    for verb in ["serve", "status", "check", "dump", "flush", "detach"] {
        scene.place.refused(&[verb, &scene.cache], 1, &["damaged"]);
    }
    let output = scene.place.forebay(&["check", &scene.cache, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checked["ok"], false);
    assert!(checked["fatal"].as_str().unwrap().contains("damaged"));
    scene.place.refused(&["status", &scene.origin], 1, &["not formatted as a cache"]);
    scene.place.refused(&["status", "/no/such/cache"], 1, &["does not exist"]);
    scene.place.refused(&["stats", &scene.cache], 1, &["not running"]);
}

#[test]
fn check_and_dump_say_what_is_there() {
    let scene = scene("writeback");
    scene.leave_dirty();
    let checked: Value = serde_json::from_str(&scene.place.done(&["check", &scene.cache, "--json"])).unwrap();
    assert_eq!(checked["ok"], true);
    assert!(checked["payload_blocks_verified"].as_u64().unwrap() >= 1024);
    let dump: Value =
        serde_json::from_str(&scene.place.done(&["dump", &scene.cache, "--entries", "--json"])).unwrap();
    assert_eq!(dump["superblock"]["volumes"][0]["name"], "disk");
    let entry = &dump["entries"][0];
    let payload = entry["payload_offset_bytes"].as_u64().unwrap();
    assert!(scene.place.done(&["dump", &scene.cache, "--segment", "0"]).contains("entry"));
    scene.place.refused(&["dump", &scene.cache, "--segment", "100000"], 1, &["no segment"]);
    // What was written before a crash and never flushed may be torn; what a new session has seen may not.
    scene.serve().stop();
    overwrite(&scene.cache, payload + 5, b"rot");
    let output = scene.place.forebay(&["check", &scene.cache, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checked["ok"], false);
    assert!(checked["errors"][0]["what"].as_str().unwrap().contains("checksum"));
}

#[test]
fn a_log_that_no_crash_explains_is_cut_only_on_demand() {
    let scene = scene("writeback");
    scene.leave_dirty();
    // A new session knows which batches were there, so damage before it is no torn end.
    scene.serve().stop();
    let dump: Value = serde_json::from_str(&scene.place.done(&["dump", &scene.cache, "--json"])).unwrap();
    let segment = &dump["segments"][0];
    let at = segment["offset_bytes"].as_u64().unwrap();
    overwrite(&scene.cache, at, &[0xff; 8192]);
    scene.place.refused(&["serve", &scene.cache], 1, &["cannot be recovered", "forebay check"]);
    let output = scene.place.forebay(&["check", &scene.cache]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--repair"));
    scene.place.forebay(&["check", &scene.cache, "--repair"]);
    scene.serve().stop();
}

#[test]
fn without_its_cache_a_volume_is_served_only_if_it_has_no_dirty_data() {
    let scene = scene("writeback");
    scene.leave_dirty();
    let away = scene.place.path("away.img");
    fs::rename(&scene.cache, &away).unwrap();
    scene.place.refused(&["serve", &scene.cache], 1, &["missing", "connect"]);
    scene.place.refused(&["serve", &scene.cache, "--uncached"], 1, &["may hold data", "disk"]);
    fs::rename(&away, &scene.cache).unwrap();
    scene.place.refused(&["serve", &scene.cache, "--uncached"], 1, &["is there"]);
    scene.place.done(&["flush", &scene.cache]);
    fs::rename(&scene.cache, &away).unwrap();
    scene.place.refused(&["serve", &scene.cache], 1, &["missing", "--uncached"]);
    let daemon = scene.place.serve(&scene.cache, &["--uncached"]);
    let status = scene.status();
    assert_eq!(status["volumes"][0]["uncached"], true);
    assert_eq!(status["volumes"][0]["state"], "uncached");
    scene.place.refused(&["flush", &scene.cache], 1, &["cache is missing"]);
    // The origin goes its own way; what the cache remembers is void.
    let other = scene.place.file("other.img", 0);
    fs::write(&other, pattern(3, 4 * MIB)).unwrap();
    daemon.write("disk", &other);
    daemon.kill();
    fs::rename(&away, &scene.cache).unwrap();
    let status = scene.status();
    assert_eq!(status["volumes"][0]["state"], "abandoned");
    assert_eq!(status["volumes"][0]["cached_bytes"], 0, "{status}");
    assert!(status["cache"]["index_blocks"].as_u64().unwrap() > 0, "the content is there, and void");
    let daemon = scene.serve();
    assert!(daemon.errors().contains("dropped"), "{}", daemon.errors());
    let mut expected = pattern(1, 16 * MIB);
    expected[..4 * MIB as usize].copy_from_slice(&fs::read(&other).unwrap());
    assert_eq!(daemon.read("disk"), expected);
    daemon.stop();
}

#[test]
fn a_volume_without_its_origin_does_not_stop_the_others() {
    let scene = scene("writeback");
    let second = scene.place.file("second.img", 8 * MIB);
    scene.place.done(&["add", &scene.cache, "--origin", &second, "--name", "second"]);
    scene.place.refused(&["flush", &scene.cache, "third"], 1, &["no volume third"]);
    scene.place.refused(&["detach", &scene.cache], 1, &["several volumes", "disk, second"]);
    scene.place.refused(&["set", &scene.cache, "mode=readonly"], 1, &["several volumes"]);
    fs::remove_file(&second).unwrap();
    let daemon = scene.serve();
    assert!(daemon.errors().contains("second"), "{}", daemon.errors());
    daemon.write("disk", &scene.change);
    assert_eq!(scene.status()["volumes"][1]["state"], "origin-missing");
    daemon.stop();
    fs::remove_file(&scene.origin).unwrap();
    scene.place.refused(&["serve", &scene.cache], 1, &["does not exist", "--origin"]);
}

#[test]
fn wrong_words_for_a_cache_that_exists() {
    let scene = scene("writeback");
    let cache = scene.cache.as_str();
    for (arguments, words) in [
        (&["set", cache, "mode=fast"][..], &["unknown mode"][..]),
        (&["set", cache, "disk", "colour=red"], &["unknown setting"]),
        (&["set", cache], &["KEY=VALUE"]),
        (&["serve", cache, "--memory", "8X"], &["size suffix"]),
        (&["serve", cache, "--device-timeout", "0"], &["whole seconds"]),
        (&["serve", cache, "--nbd", "nonsense"], &["--nbd"]),
        (&["serve"], &["CACHE"]),
    ] {
        scene.place.refused(arguments, 2, words);
    }
    scene.place.refused(&["set", cache, "disk"], 1, &["KEY=VALUE"]);
    scene.place.refused(&["serve", cache, "--memory", "1M"], 1, &["--memory must be at least"]);
    scene.place.refused(&["serve", cache, "--origin", "other=/dev/null"], 1, &["no volume other"]);
    let there = scene.place.file("in-the-way", 10);
    scene.place.refused(&["serve", cache, "--nbd", &format!("unix:{there}")], 1, &["in-the-way"]);
}

#[test]
fn a_mode_is_set_without_a_daemon_too() {
    let scene = scene("writeback");
    scene.place.done(&["set", &scene.cache, "mode=readonly"]);
    assert_eq!(scene.status()["volumes"][0]["mode"], "readonly");
    let daemon = scene.serve();
    assert_eq!(daemon.read("disk"), pattern(1, 16 * MIB));
    daemon.stop();
}

#[test]
fn a_power_cut_of_modelled_disks_keeps_what_was_flushed() {
    let place = Place::new();
    let (slow, fast) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 32 * MIB));
    let origin = format!("model:hdd?store={slow}&size=16M&speed=1000");
    let cache = format!("model:ssd?store={fast}&size=32M&speed=1000");
    place.done(&["create", "--origin", &origin, "--cache", &cache]);
    let change = place.file("change.img", 0);
    fs::write(&change, pattern(5, 4 * MIB)).unwrap();
    let daemon = place.serve(&cache, &[]);
    daemon.write("slow", &change);
    daemon.signal("USR1");
    assert_eq!(daemon.wait(), Some(137));
    let daemon = place.serve(&cache, &[]);
    assert_eq!(daemon.read("slow")[..4 * MIB as usize], fs::read(&change).unwrap());
    // The daemon is found by the name of the store as well.
    place.done(&["status", &fast]);
    daemon.stop();
}

/// Goal: a start that is told to waits for devices that come late. Method: the origin, then the cache, and then the second half of
/// a mirrored one are away for a while.
#[test]
fn a_start_waits_for_devices_that_come_late() {
    let (scene, mirror) = crate::mirrored::scene(&[]);
    let place = &scene.place;
    for late in [&scene.origin, &scene.cache, &mirror] {
        let away = format!("{late}.away");
        fs::rename(late, &away).unwrap();
        let daemon = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(700));
                fs::rename(&away, late).unwrap();
            });
            place.serve(&scene.cache, &["--wait-for-devices", "30"])
        });
        let said = daemon.errors();
        assert!(said.contains("waiting for") && said.contains("not there yet"), "{said}");
        assert!(!said.contains("goes on with"), "no half was left out: {said}");
        daemon.stop();
    }
    fs::rename(&scene.origin, format!("{}.away", scene.origin)).unwrap();
    let refused = place.forebay(&["serve", &scene.cache, "--wait-for-devices", "1"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.lines().last().is_some_and(|line| line.contains("does not exist")), "{said}");
}
