//! Goal: `create` and `add` refuse what they must, in one line, and never touch the origin.
//! Method: the real command on files; what it says, how it ends, and what the files hold afterwards.

use crate::scene::{Place, overwrite};
use std::fs;
use std::os::unix::fs::MetadataExt;

const MIB: u64 = 1 << 20;

#[test]
fn a_cache_is_made_and_the_origin_is_untouched() {
    let place = Place::new();
    let origin = place.file("slow.img", 64 * MIB);
    overwrite(&origin, 5 * MIB, b"content");
    let before = fs::read(&origin).unwrap();
    let modified = fs::metadata(&origin).unwrap().modified().unwrap();
    let cache = place.file("fast.img", 32 * MIB);
    let text = place.done(&["create", "--origin", &origin, "--cache", &cache, "--json"]);
    let created: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(created["name"], "slow");
    assert_eq!(created["mode"], "writeback");
    assert_eq!(created["profile"], "forebay");
    assert_eq!(created["origin_bytes"], 64 * MIB);
    assert_eq!(fs::read(&origin).unwrap(), before);
    assert_eq!(fs::metadata(&origin).unwrap().modified().unwrap(), modified);
}

#[test]
fn odd_sizes_are_taken() {
    let place = Place::new();
    let origin = place.file("slow.img", 5 * MIB + 512);
    let cache = place.file("fast.img", 32 * MIB + 12_345);
    place.done(&["create", "--origin", &origin, "--cache", &cache]);
    let tiny = place.file("tiny.img", 512);
    place.done(&["add", &cache, "--origin", &tiny, "--name", "tiny"]);
}

#[test]
fn a_device_is_tried_before_it_is_formatted() {
    let place = Place::new();
    let origin = place.file("slow.img", 16 * MIB);
    let store = place.file("store.img", 64 * MIB);
    let disk = format!("model:hdd?store={store}&write_cache=off");
    let create = ["create", "--origin", &origin, "--cache", &disk, "--trial-seconds", "2"];
    let output = place.forebay(&create);
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("the origin answers a read in") && said.contains("no sooner"), "{said}");
    assert!(text.contains("trial of 2 s: flush"), "{text}");
    assert!(text.contains("as on a hard disk") || text.contains("as for a hard disk"), "{text}");
    place.done(&["check", &disk]);
    let holds = [&create[..], &["--take-over", &origin]].concat();
    place.refused(&holds, 1, &["holds a Forebay cache", "--wipe"]);
    let again = [&create[..], &["--wipe", &disk, "--take-over", &origin, "--json"]].concat();
    let created: serde_json::Value = serde_json::from_str(&place.done(&again)).unwrap();
    let trial = &created["trial"];
    assert!(trial["written_bytes"].as_u64().unwrap() <= 64 * MIB, "{trial}");
    assert!(trial["steady_bytes_per_second"].as_u64().unwrap() < 300 * MIB, "{trial}");
    assert!(trial["read_p50_us"].as_u64().unwrap() > 1000, "{trial}");
    assert!(created["origin_read_p50_us"].as_u64().unwrap() < 1000, "{created}");
}

#[test]
fn a_file_is_not_tried_unless_that_is_wanted() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 32 * MIB));
    let text = place.done(&["create", "--origin", &origin, "--cache", &cache, "--json"]);
    let created: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(created["trial"], serde_json::Value::Null);
}

/// Bytes that a file has on its file system.
fn allocated_bytes(path: &str) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_cache_gets_all_of_its_space_unless_it_shall_not() {
    let place = Place::new();
    let origin = place.file("slow.img", 16 * MIB);
    let (whole, sparse) = (place.file("whole.img", 64 * MIB), place.file("sparse.img", 64 * MIB));
    place.done(&["create", "--origin", &origin, "--cache", &whole]);
    let tried = place.file("tried.img", 64 * MIB);
    let take_over = ["--take-over", origin.as_str(), "--trial-seconds", "1"];
    place.done(&[&["create", "--origin", &origin, "--cache", &tried][..], &take_over].concat());
    assert!(allocated_bytes(&tried) >= 64 * MIB, "a trial leaves the space of a file");
    let take_over = ["--take-over", origin.as_str(), "--sparse"];
    place.done(&[&["create", "--origin", &origin, "--cache", &sparse][..], &take_over].concat());
    assert!(allocated_bytes(&whole) >= 64 * MIB, "{}", allocated_bytes(&whole));
    assert!(allocated_bytes(&sparse) < 8 * MIB, "{}", allocated_bytes(&sparse));
    assert!(allocated_bytes(&origin) < 8 * MIB, "an origin stays as it is");
    // More than any file system of a test has.
    let large = place.file("large.img", 2048 << 30);
    let create = ["create", "--origin", &origin, "--cache", &large, "--take-over", &origin];
    place.refused(&create, 1, &["no room for all of its 2 TiB", "--sparse"]);
    assert_eq!(allocated_bytes(&large), 0, "a refused create takes no space");
}

#[test]
fn the_end_of_an_origin_that_is_no_sector_is_named() {
    let place = Place::new();
    let origin = place.file("slow.img", 16 * MIB + 257);
    let cache = place.file("fast.img", 32 * MIB);
    for arguments in [
        &["create", "--origin", &origin, "--cache", &cache][..],
        &["add", &cache, "--origin", &place.file("other.img", MIB + 257), "--name", "x"],
    ] {
        let output = place.forebay(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("the last 257 bytes of") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn missing_devices_are_refused_with_a_way_on() {
    let place = Place::new();
    let there = place.file("there.img", 64 * MIB);
    let gone = place.path("gone.img").to_str().unwrap().to_owned();
    place.refused(&["create", "--origin", &gone, "--cache", &there], 1, &["does not exist", "--origin"]);
    place.refused(
        &["create", "--origin", &there, "--cache", &gone],
        1,
        &["does not exist", "truncate -s 1G"],
    );
    place.refused(
        &["create", "--origin", &there, "--cache", "/dev/no-such-disk"],
        1,
        &["does not exist", "--cache"],
    );
    let directory = place.path("").to_str().unwrap().to_owned();
    place.refused(
        &["create", "--origin", &directory, "--cache", &there],
        1,
        &["neither a file nor a block device"],
    );
    place.refused(&["add", &gone, "--origin", &there, "--name", "a"], 1, &["does not exist"]);
}

#[test]
fn sizes_outside_the_limits_are_refused() {
    let place = Place::new();
    let origin = place.file("slow.img", 64 * MIB);
    let small = place.file("small.img", 32 * MIB - 1);
    place.refused(&["create", "--origin", &origin, "--cache", &small], 1, &["the least is 32 MiB"]);
    let empty = place.file("empty.img", 0);
    place.refused(&["create", "--origin", &origin, "--cache", &empty], 1, &["empty", "truncate"]);
    let cache = place.file("fast.img", 64 * MIB);
    place.refused(&["create", "--origin", "mem:1G", "--cache", &cache], 1, &["gone when this command ends"]);
    place.refused(&["create", "--origin", &origin, "--cache", "mem:1G"], 1, &["gone when this command ends"]);
}

#[test]
fn an_origin_too_large_for_the_format_is_refused() {
    let place = Place::new();
    // A file system that has no such large files cannot make one; a modelled disk would not help, it has a store.
    let path = place.path("huge.img");
    let huge = fs::File::create(&path).unwrap();
    if huge.set_len((128 << 40) + 4096).is_err() {
        let shm = std::path::Path::new("/dev/shm").join(format!("forebay-huge-{}.img", std::process::id()));
        fs::File::create(&shm).unwrap().set_len((128 << 40) + 4096).expect("tmpfs has large sparse files");
        let cache = place.file("fast.img", 32 * MIB);
        place.refused(
            &["create", "--origin", shm.to_str().unwrap(), "--cache", &cache],
            1,
            &["more than the 128 TiB"],
        );
        fs::remove_file(shm).unwrap();
        return;
    }
    let cache = place.file("fast.img", 32 * MIB);
    place.refused(
        &["create", "--origin", path.to_str().unwrap(), "--cache", &cache],
        1,
        &["more than the 128 TiB"],
    );
}

#[test]
fn one_device_is_not_both() {
    let place = Place::new();
    let one = place.file("one.img", 64 * MIB);
    let link = place.path("link.img");
    fs::hard_link(&one, &link).unwrap();
    let symbolic = place.path("symbolic.img");
    std::os::unix::fs::symlink(&one, &symbolic).unwrap();
    for other in [one.as_str(), link.to_str().unwrap(), symbolic.to_str().unwrap()] {
        place.refused(&["create", "--origin", other, "--cache", &one], 1, &["must be two devices"]);
    }
}

#[test]
fn a_device_that_holds_something_needs_its_name_repeated() {
    let place = Place::new();
    let origin = place.file("slow.img", 64 * MIB);
    let cache = place.file("fast.img", 64 * MIB);
    let create = ["create", "--origin", &origin, "--cache", &cache];
    for (offset_bytes, mark, what) in [
        (1080, &[0x53, 0xef][..], "ext4"),
        (510, &[0x55, 0xaa][..], "partition table"),
        (64 * MIB - 512, &b"EFI PART"[..], "GPT"),
        (536, &b"LABELONE"[..], "LVM"),
        (0, &b"LUKS\xba\xbe"[..], "LUKS"),
        (4086, &b"SWAPSPACE2"[..], "swap"),
    ] {
        let offset_bytes = if what == "LVM" { 512 } else { offset_bytes };
        overwrite(&cache, offset_bytes, mark);
        place.refused(&create, 1, &[what, "--wipe"]);
        overwrite(&cache, offset_bytes, &vec![0; mark.len()]);
    }
    place.done(&create);
    place.refused(&create, 1, &["a Forebay cache (volumes: slow)", "--wipe"]);
    overwrite(&cache, 100, b"garbage");
    overwrite(&cache, 512 * 1024 + 100, b"garbage");
    place.refused(&create, 1, &["a damaged Forebay cache", "--wipe"]);
    let wipe = |device| [&create[..], &["--wipe", device]].concat();
    place.refused(&wipe(&origin), 1, &["--wipe"]);
    overwrite(&cache, 64 * MIB - 512, b"EFI PART");
    place.done(&wipe(&cache));
    // The old marks are gone, not only covered.
    assert_eq!(fs::read(&cache).unwrap()[(64 * MIB - 512) as usize..][..8], [0; 8]);
}

#[test]
fn words_without_meaning_are_usage_errors() {
    let place = Place::new();
    let origin = place.file("slow.img", 64 * MIB);
    let cache = place.file("fast.img", 64 * MIB);
    let create = |more: &[&'static str]| {
        let arguments: Vec<String> = ["create", "--origin", &origin, "--cache", &cache]
            .iter()
            .chain(more)
            .map(|word| (*word).to_owned())
            .collect();
        arguments
    };
    for (more, words) in [
        (&["--mode", "fast"][..], &["unknown mode", "writeback", "readonly"][..]),
        (&["--profile", "turbo"], &["unknown profile", "forebay"]),
        (&["--name", "a b"], &["a volume's name"]),
        (&["--name", ""], &["a volume's name"]),
        (&["--colour", "red"], &["--colour"]),
    ] {
        let arguments = create(more);
        place.refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), 2, words);
    }
    place.refused(&["create", "--origin", "mem:8X", "--cache", &cache], 2, &["size suffix"]);
    place.refused(&["create", "--origin", "model:hdd?size=8Q", "--cache", &cache], 2, &["size suffix"]);
    place.refused(&["create", "--origin", "model:tape?size=8G", "--cache", &cache], 2, &["unknown model"]);
    place.refused(&["create", "--origin", "s3://bucket/x", "--cache", &cache], 2, &["recipes/s3.md"]);
    place.refused(&["create", "--origin", &origin], 2, &["--cache"]);
    place.refused(&["frobnicate"], 2, &["frobnicate"]);
    place.refused(&[], 2, &["--help"]);
}

#[test]
fn a_profile_that_does_not_run_yet_is_refused_and_leaves_the_cache_alone() {
    let place = Place::new();
    let origin = place.file("slow.img", 64 * MIB);
    let cache = place.file("fast.img", 64 * MIB);
    let before = std::fs::read(&cache).unwrap();
    for profile in not_runnable(&place) {
        let name = format!("profile {profile}");
        let create = ["create", "--origin", &origin, "--cache", &cache, "--profile", &profile];
        place.refused(&create, 1, &[&name, "cannot run", "--profile forebay"]);
        place.refused(&["lab", "verify", "--profile", &profile, "--runs", "1"], 1, &[&name]);
    }
    let mine = place.file("mine.toml", 0);
    let profile = |tunables: &str| {
        let head = "name = \"mine\"\ndescription = \"\"\nextends = \"forebay\"\n[axes]\nfetch = \"request\"";
        std::fs::write(&mine, format!("{head}\n[tunables]\n{tunables}\n")).unwrap();
    };
    let create = ["create", "--origin", &origin, "--cache", &cache, "--profile", &mine];
    profile("idle_ms = 0");
    place.refused(&create, 1, &["mine.toml:7", "idle_ms = 0", "1 to 600000 ms"]);
    profile("readahead_bytes = 4096");
    place.refused(&create, 1, &["profile mine", "readahead_bytes = 4096"]);
    assert!(std::fs::read(&cache).unwrap() == before, "not one byte was written");
    profile("idle_ms = 400");
    place.done(&create);
    let status: serde_json::Value = serde_json::from_str(&place.done(&["status", &cache, "--json"])).unwrap();
    assert_eq!(status["cache"]["profile"], "mine");
    let dump: serde_json::Value = serde_json::from_str(&place.done(&["dump", &cache, "--json"])).unwrap();
    let composition = dump["superblock"]["composition"].as_array().unwrap();
    assert!(composition.contains(&"idle_ms = 400".into()), "{composition:?}");
    place.serve(&cache, &["--profile", &mine]).stop();
    place.refused(&["serve", &cache, "--profile", "forebay"], 1, &["profile mine", "not with forebay"]);
}

/// The built-in profiles that this version cannot run.
fn not_runnable(place: &Place) -> Vec<String> {
    let profiles: serde_json::Value = serde_json::from_str(&place.done(&["profiles", "--json"])).unwrap();
    let profiles = profiles["profiles"].as_array().unwrap();
    profiles
        .iter()
        .filter(|profile| profile["runs"] == false)
        .map(|profile| profile["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_is_no_verb_is_refused() {
    let place = Place::new();
    for verb in ["bench", "help"] {
        place.refused(&[verb], 2, &[verb]);
    }
    let help = place.done(&["--help"]);
    for verb in [
        "create", "add", "serve", "status", "stats", "set", "flush", "detach", "check", "scrub", "salvage",
        "dump", "profiles",
    ] {
        assert!(help.contains(verb), "{verb}");
    }
}

#[test]
fn the_simulator_says_what_it_ran() {
    let place = Place::new();
    let report = place.done(&["lab", "verify", "--seed", "1", "--runs", "3", "--threads", "1", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((report["runs"].as_u64(), report["seed"].as_u64()), (Some(3), Some(1)));
    assert_eq!(report["violations"].as_u64(), Some(0));
    assert!(report["cuts"].as_u64() > Some(0) && report["requests"].as_u64() > Some(0));
    assert!(report["faults"].is_u64() && report["seconds"].is_f64());
    place.refused(&["lab", "verify", "--profile", "nobody"], 2, &["nobody", "forebay"]);
}

#[test]
fn a_volume_is_added_once() {
    let place = Place::new();
    let cache = place.file("fast.img", 64 * MIB);
    let (one, two) = (place.file("one.img", 64 * MIB), place.file("two.img", 64 * MIB));
    place.done(&["create", "--origin", &one, "--cache", &cache]);
    place.done(&["add", &cache, "--origin", &two, "--name", "two", "--mode", "writethrough"]);
    place.refused(&["add", &cache, "--origin", &two, "--name", "three"], 1, &["origin of volume two"]);
    let three = place.file("three.img", 64 * MIB);
    place.refused(&["add", &cache, "--origin", &three, "--name", "two"], 1, &["there is a volume two"]);
    place.refused(&["add", &three, "--origin", &two, "--name", "x"], 1, &["three.img"]);
    place.refused(&["add", &cache, "--origin", &three], 2, &["--name"]);
    for number in 2..16 {
        let origin = place.file(&format!("more-{number}.img"), MIB);
        place.done(&["add", &cache, "--origin", &origin, "--name", &format!("more-{number}")]);
    }
    place.refused(&["add", &cache, "--origin", &three, "--name", "x"], 1, &["16 volumes"]);
}

#[test]
fn lists_of_what_is_built_in() {
    let place = Place::new();
    let profiles: serde_json::Value = serde_json::from_str(&place.done(&["profiles", "--json"])).unwrap();
    assert_eq!(profiles["profiles"][0]["axes"]["placement"], "log");
    let models: serde_json::Value = serde_json::from_str(&place.done(&["models", "--json"])).unwrap();
    assert!(models["models"].as_array().unwrap().iter().any(|model| model["name"] == "hdd"));
    assert!(place.done(&["models"]).contains("nvme"));
    let flashcache =
        profiles["profiles"].as_array().unwrap().iter().find(|profile| profile["name"] == "flashcache");
    let ways =
        flashcache.unwrap()["tunables"].as_array().unwrap().iter().find(|tunable| tunable["name"] == "ways");
    let ways = ways.unwrap();
    assert_eq!(
        (ways["value"].as_u64(), ways["default"].as_u64(), ways["most"].as_u64()),
        (Some(512), Some(0), Some(8192))
    );
    assert!(["unit", "meaning", "source"].iter().all(|field| ways[field].is_string()));
    assert_eq!(flashcache.unwrap()["gives_up"].as_array().unwrap().len(), 3);
    assert_eq!(profiles["axes"].as_array().unwrap().len(), 10);
    let text = place.done(&["profiles"]);
    for words in [
        "forebay:",
        "mapperx:",
        "without safety, as published:",
        "threshold-needs-sets",
        "ways = 0 (0 to 8192 slots)",
    ] {
        assert!(text.contains(words), "{words}");
    }
}

/// The ring takes more of a larger cache: eight buckets beside the least ring are no cache of eight buckets.
#[test]
fn a_cache_too_small_for_its_buckets_is_refused_with_the_size_it_needs() {
    let place = Place::new();
    let origin = place.file("slow.img", 64 * MIB);
    let cache = place.file("fast.img", 32 * MIB);
    let path = place.path("keys.toml");
    let text = "name = \"keys\"\ndescription = \"much of it for keys\"\nextends = \"bcache\"\n[tunables]\njournal_permille = 500\nbucket_sectors = 4096\n";
    fs::write(&path, text).expect("a file for the test");
    let create = ["create", "--origin", &origin, "--cache", &cache, "--profile", path.to_str().unwrap()];
    place.refused(&create, 1, &["the least is 33 MiB", "with profile keys"]);
}

/// Goal: what keeps much from being cached is said when the cache is made, in one line, and only then.
#[test]
fn a_cache_that_can_hold_little_is_made_with_a_warning() {
    let place = Place::new();
    let made_with = |profile: &str, bytes: u64| {
        let origin = place.file(&format!("{bytes}.slow.img"), 64 * MIB);
        let cache = place.file(&format!("{bytes}.img"), bytes);
        let create =
            ["create", "--origin", &origin, "--cache", &cache, "--profile", profile, "--name", "disk"];
        let output = place.forebay(&create);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    assert_eq!(made_with("forebay", 32 * MIB), "");
    let said = made_with("bcache", 46 * MIB);
    assert!(said.contains("multiples of 4096 bytes bypass the cache") && said.lines().count() == 1, "{said}");
    let path = place.path("keys.toml");
    let profile = |tunables: &str| {
        let text = format!(
            "name = \"keys\"\ndescription = \"much of it for keys\"\nextends = \"bcache\"\n[tunables]\naligned_sectors = 1\n{tunables}\n"
        );
        fs::write(&path, text).expect("a file for the test");
    };
    let keys = path.to_str().expect("a plain path");
    profile("journal_permille = 500");
    let said = made_with(keys, 64 * MIB);
    assert!(said.contains("can hold blocks") && said.contains("larger device does not change"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    profile("journal_permille = 400\nbucket_sectors = 16384");
    let said = made_with(keys, 112 * MIB);
    assert!(said.contains("can hold blocks") && said.contains("it is half or more"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
