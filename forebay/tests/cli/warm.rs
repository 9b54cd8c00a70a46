//! Goal: a cache is filled with what a list, a trace or a range names, and says what became of it; what cannot be is refused in one
//! line, and nothing is written. Method: the real command on files, with a daemon and without.

use crate::scene::{Place, Scene, pattern};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;
const CACHE: u64 = 32 * MIB;

fn warm(place: &Place, arguments: &[&str]) -> Value {
    let all = [&["warm"], arguments, &["--rate", "1G", "--json"]].concat();
    serde_json::from_str(&place.done(&all)).expect("a report")
}

fn cached_bytes(scene: &Scene) -> u64 {
    scene.status()["volumes"][0]["cached_bytes"].as_u64().expect("bytes")
}

#[test]
fn a_range_is_read_once_with_each_profile() {
    for profile in ["forebay", "dm-cache", "enhanceio", "flashcache", "bcache", "gflash"] {
        let scene = Scene::new(64 * MIB, &["--profile", profile]);
        let daemon = scene.serve();
        let first = warm(&scene.place, &[&scene.cache, "--range", "1M+2M"]);
        assert_eq!(first["listed_blocks"], 512, "{profile}: {first}");
        assert_eq!((&first["failed_blocks"], &first["without_room_blocks"]), (&0.into(), &0.into()));
        assert_eq!(first["read_blocks"], 512, "{profile}: {first}");
        assert_eq!(first["cached_blocks"], 512, "{profile}: {first}");
        let again = warm(&scene.place, &[&scene.cache, "disk", "--range", "1M+2M"]);
        assert_eq!((&again["skipped_blocks"], &again["read_blocks"]), (&512.into(), &0.into()), "{profile}");
        assert!(daemon.read("disk") == pattern(1, 16 * MIB), "{profile}: the volume is as it was");
        daemon.stop();
    }
}

#[test]
fn it_works_without_a_daemon_and_says_so_in_words() {
    let scene = Scene::new(CACHE, &["--mode", "writethrough"]);
    let said = scene.place.done(&["warm", &scene.cache, "--range", "0+4M", "--rate", "1G"]);
    assert_eq!(said, "warmed: 4 MiB read, 4 MiB of that are cached now, 0 B were cached already\n");
    assert_eq!(cached_bytes(&scene), 4 * MIB);
    assert!(scene.serve().read("disk") == pattern(1, 16 * MIB));
}

#[test]
fn a_full_cache_keeps_what_it_has() {
    let place = Place::new();
    let origin = place.file("slow.img", 96 * MIB);
    let cache = place.file("fast.img", CACHE);
    place.done(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let report = warm(&place, &[&cache, "--range", "0+96M"]);
    let [read, cached, left] = ["read_blocks", "cached_blocks", "without_room_blocks"]
        .map(|key| report[key].as_u64().expect("a number"));
    assert!(read > 4096 && cached >= read * 9 / 10 && read + left == 96 * 256, "{report}");
    let again = warm(&place, &[&cache, "--range", "0+4M"]);
    assert_eq!(again["skipped_blocks"], 1024, "what came first is still there: {again}");
}

#[test]
fn a_trace_is_read_by_how_often_it_touches() {
    let scene = Scene::new(CACHE, &["--mode", "writethrough"]);
    let trace = scene.place.file("trace", 0);
    fs::write(&trace, "7\n8\n7\n100\n7\n").expect("a trace");
    let report = warm(&scene.place, &[&scene.cache, "--trace", &trace]);
    assert_eq!((&report["listed_blocks"], &report["cached_blocks"]), (&3.into(), &3.into()), "{report}");
    fs::write(&trace, "7\n4096\n").expect("a trace");
    let words = ["is of a larger disk", "byte 16777216", "volume disk has 16777216"];
    scene.place.refused(&["warm", &scene.cache, "--trace", &trace], 1, &words);
    fs::write(&trace, "x y\n").expect("a trace");
    scene.place.refused(&["warm", &scene.cache, "--trace", &trace], 1, &["format of the trace"]);
    scene.place.refused(&["warm", &scene.cache, "--range", "1M"], 2, &["OFFSET+LENGTH"]);
    scene.place.refused(&["warm", &scene.cache, "--range", "16M+4K"], 1, &["is of a larger disk"]);
}

#[test]
fn the_list_of_an_ephemeral_cache_fills_the_next_one() {
    let scene = Scene::new(CACHE, &["--ephemeral"]);
    warm(&scene.place, &[&scene.cache, "--range", "2M+3M"]);
    scene.serve().stop();
    fs::write(&scene.cache, vec![0; CACHE as usize]).expect("it is blank");
    let daemon = scene.place.serve(&scene.cache, &["--warm-rate", "1G"]);
    for _ in 0..300 {
        if daemon.errors().contains("[F40]") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(daemon.errors().contains("the new cache is warm: 3 MiB read"), "{}", daemon.errors());
    assert_eq!(cached_bytes(&scene), 3 * MIB);
    daemon.stop();
    // The list went on with the cache that took the place, and is kept no more where that is not wanted.
    let report = warm(&scene.place, &[&scene.cache]);
    assert_eq!((&report["listed_blocks"], &report["skipped_blocks"]), (&768.into(), &768.into()), "{report}");
}

#[test]
fn a_list_is_kept_where_it_is_wanted() {
    let scene = Scene::new(CACHE, &["--mode", "writethrough"]);
    scene.place.refused(&["warm", &scene.cache], 1, &["no warm list is kept", "--list", "--range"]);
    let list = scene.place.path("hot.list").display().to_string();
    let nowhere = scene.place.path("nowhere/hot.list").display().to_string();
    let serve = ["serve", &scene.cache, "--warm-list", &nowhere];
    scene.place.refused(&serve, 1, &["there is no directory for the warm list"]);
    warm(&scene.place, &[&scene.cache, "--range", "0+1M"]);
    scene.place.serve(&scene.cache, &["--warm-list", &list]).stop();
    assert!(fs::metadata(&list).expect("the list").len() < 1000, "runs of blocks are one extent");
    let other = Scene::new(CACHE, &["--mode", "writethrough"]);
    let words = ["is of another volume disk", "its origin was"];
    other.place.refused(&["warm", &other.cache, "--list", &list], 1, &words);
    let report = warm(&scene.place, &[&scene.cache, "--list", &list]);
    assert_eq!(report["skipped_blocks"], 256, "{report}");
}

#[test]
fn bad_lists_are_refused_in_one_line_and_nothing_is_written() {
    let scene = Scene::new(CACHE, &["--mode", "writethrough"]);
    let list = scene.place.path("hot.list").display().to_string();
    warm(&scene.place, &[&scene.cache, "--range", "0+1M"]);
    scene.place.serve(&scene.cache, &["--warm-list", &list]).stop();
    let whole = fs::read(&list).expect("the list");
    let before = fs::read(&scene.cache).expect("the cache");
    let refused = |bytes: &[u8], words: &[&str]| {
        fs::write(&list, bytes).expect("a list");
        scene.place.refused(&["warm", &scene.cache, "--list", &list], 1, words);
        assert!(fs::read(&scene.cache).expect("the cache") == before, "nothing is written");
    };
    refused(&whole[..whole.len() - 1], &["was cut short"]);
    refused(b"", &["was cut short"]);
    refused(&[7; 5000], &["is no warm list", "--trace"]);
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    refused(&damaged, &["cannot be used"]);
    fs::write(&list, &whole).expect("a list");
    scene.place.refused(&["warm", &scene.cache, "other", "--list", &list], 1, &["no volume other"]);
    scene.place.done(&["set", &scene.cache, "mode=passthrough"]);
    scene.place.refused(&["warm", &scene.cache, "--list", &list], 1, &["is in passthrough"]);
}
