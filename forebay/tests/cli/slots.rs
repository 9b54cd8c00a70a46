//! Goal: a cache with slots is a cache: made, served, killed, served again, looked at, emptied and taken away, and whatever
//! does not fit is refused in one line. Method: the real command on small files, `nbdcopy` as the client.

use crate::scene::{Place, Scene, overwrite, pattern};
use engine::format::{Layout, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, SlotPage, Superblock};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;
const PROFILES: [&str; 2] = ["flashcache", "enhanceio"];

/// A cache with slots, in writeback mode.
fn scene(profile: &str, more: &[&str]) -> Scene {
    Scene::new(32 * MIB, &[&["--profile", profile, "--mode", "writeback"], more].concat())
}

fn superblock(scene: &Scene) -> Superblock {
    let bytes = fs::read(&scene.cache).unwrap();
    Superblock::decode(&bytes[..SUPERBLOCK_BYTES]).unwrap()
}

/// Writes what nobody should have written, with everything else right.
fn store(scene: &Scene, superblock: &Superblock) {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    superblock.encode(&mut bytes);
    SUPERBLOCK_OFFSETS.iter().for_each(|offset| overwrite(&scene.cache, *offset, &bytes));
}

#[test]
fn a_life_with_slots() {
    for profile in PROFILES {
        let scene = scene(profile, &[]);
        scene.leave_dirty();
        let status = scene.status();
        assert_eq!(status["running"], false);
        let cache = &status["cache"];
        assert_eq!((&cache["profile"], &cache["safe"]), (&profile.into(), &true.into()));
        assert_eq!((&cache["slot_bytes"], &cache["ways"]), (&4096.into(), &512.into()));
        assert!(cache["slots_dirty"].as_u64().unwrap() > 0, "{cache}");
        assert!(cache["segments"].is_null());

        let daemon = scene.serve();
        assert!(!daemon.errors().contains("WARNING"), "{}", daemon.errors());
        assert_eq!(daemon.read("disk"), scene.changed(), "{profile}");
        let status = scene.status();
        assert_eq!(status["running"], true);
        let [free, slots] =
            ["slots_free", "slots"].map(|field| status["cache"][field].as_u64().expect("a number"));
        assert!(free < slots, "{status}");
        let text = scene.place.done(&["status", &scene.cache]);
        for words in
            [&format!("profile    {profile} ("), "slots of 4 KiB in sets of 512", "destage    threshold"]
        {
            assert!(text.contains(words), "{words} in {text}");
        }
        scene.place.done(&["set", &scene.cache, "mode=writethrough"]);
        daemon.write("disk", &scene.change);
        scene.place.done(&["set", &scene.cache, "mode=writeback"]);
        let stats = scene.report("stats");
        assert!(stats["total"]["writes"].as_u64() > Some(0) && stats["total"]["hits"].as_u64().is_some());
        assert!(stats["cache"]["written_bytes"].as_u64() > Some(0));
        scene.place.done(&["flush", &scene.cache]);
        assert_eq!(fs::read(&scene.origin).unwrap(), scene.changed());
        daemon.stop();

        assert_eq!(scene.report("check")["ok"], true);
        let text = scene.place.done(&["detach", &scene.cache, "--verify"]);
        assert!(text.contains("detached disk"), "{text}");
        assert_eq!(fs::read(&scene.origin).unwrap(), scene.changed());
    }
}

#[test]
fn what_a_dump_tells() {
    let scene = scene("flashcache", &[]);
    scene.leave_dirty();
    let dump: Value =
        serde_json::from_str(&scene.place.done(&["dump", &scene.cache, "--entries", "--json"])).unwrap();
    let composition = dump["superblock"]["composition"].as_array().unwrap();
    assert!(composition.contains(&"persistence = sync-sector".into()), "{composition:?}");
    let slots = &dump["slots"];
    assert_eq!((&slots["persistence"], &slots["errors"]), (&"sync-sector".into(), &0.into()));
    let records = dump["records"].as_array().unwrap();
    assert_eq!(records.len() as u64, slots["recorded"].as_u64().unwrap() + slots["void"].as_u64().unwrap());
    let dirty: u64 = records.iter().filter(|record| record["dirty"] == true).count() as u64;
    assert_eq!(dirty * 4096, scene.status()["volumes"][0]["dirty_bytes"].as_u64().unwrap());
    // The data is where the record says.
    let cache = fs::read(&scene.cache).unwrap();
    for record in records.iter().take(100) {
        let [at, sector] =
            ["data_offset_bytes", "start_sector"].map(|field| record[field].as_u64().unwrap() as usize);
        assert!(cache[at..at + 4096] == scene.changed()[sector * 512..sector * 512 + 4096], "{record}");
    }
    let text = scene.place.done(&["dump", &scene.cache, "--entries"]);
    for words in ["made of    destage = threshold", "region     records", "slot       ", " dirty", "0 wrong"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
    scene.place.refused(
        &["dump", &scene.cache, "--segment", "0"],
        1,
        &["slots and no segments", "--entries"],
    );
}

/// Where transactions record slots each mapping is listed, dirty or clean as a start now would take it.
#[test]
fn a_dump_lists_mappings() {
    const SLOT: usize = 65_536;
    for (persistence, regions) in [("commit", 2), ("bit-tree", 3)] {
        let place = Place::new();
        let mine = place.file("mine.toml", 0);
        let text = format!(
            "name = \"mine\"\ndescription = \"\"\nextends = \"dm-cache\"\n[axes]\nadmission = \"always\"\n\
             persistence = \"{persistence}\"\n[tunables]\nslot_bytes = {SLOT}\n"
        );
        fs::write(&mine, text).unwrap();
        let scene = scene(&mine, &[]);
        scene.leave_dirty();
        let dump = || -> Value {
            serde_json::from_str(&scene.place.done(&["dump", &scene.cache, "--entries", "--json"])).unwrap()
        };
        let dirty_of = |dump: &Value| {
            let records = dump["records"].as_array().unwrap();
            records.iter().filter(|record| record["dirty"] == true && record["void"] == false).count()
        };
        let crashed = dump();
        let slots = &crashed["slots"];
        assert_eq!((&slots["persistence"], &slots["errors"]), (&persistence.into(), &0.into()));
        assert!(slots["regions"].as_array().unwrap().len() >= regions, "{slots}");
        let records = crashed["records"].as_array().unwrap();
        let count = |field: &str| slots[field].as_u64().unwrap() as usize;
        assert_eq!(records.len(), count("recorded") + count("void"));
        let dirty_bytes = scene.status()["volumes"][0]["dirty_bytes"].as_u64().unwrap() as usize;
        assert_eq!((dirty_of(&crashed) * SLOT, count("dirty") * SLOT), (dirty_bytes, dirty_bytes));
        // The data is where the mapping says.
        let (cache, changed) = (fs::read(&scene.cache).unwrap(), scene.changed());
        for record in records {
            let field = |name: &str| record[name].as_u64().unwrap() as usize;
            let (at, from) = (field("data_offset_bytes"), field("start_sector") * 512);
            assert_eq!(field("sectors") * 512, SLOT);
            assert!(cache[at..at + SLOT] == changed[from..from + SLOT], "{persistence}: {record}");
        }
        let daemon = scene.serve();
        scene.place.done(&["flush", &scene.cache]);
        daemon.stop();
        let stopped = dump();
        assert_eq!(dirty_of(&stopped), 0, "{persistence}: all is home, and a clean stop says so");
        assert!(stopped["slots"]["recorded"].as_u64() > Some(0), "{stopped}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_the_cache_alone() {
    let place = Place::new();
    let origin = place.file("slow.img", 64 * MIB);
    let cache = place.file("fast.img", 32 * MIB);
    let before = fs::read(&cache).unwrap();
    let mine = place.file("mine.toml", 0);
    let create = |tunables: &str, more: &[&str], words: &[&str]| {
        let text = format!("name = \"mine\"\ndescription = \"\"\nextends = \"flashcache\"\n{tunables}\n");
        fs::write(&mine, text).unwrap();
        let base = ["create", "--origin", &origin, "--cache", &cache, "--profile", &mine];
        place.refused(&[&base[..], more].concat(), 1, words);
    };
    create(
        "[tunables]\nslot_bytes = 12288",
        &[],
        &["profile mine", "12288", "power of two or a multiple of 32 KiB"],
    );
    create("[tunables]\nways = 3", &[], &["profile mine", "3 slots in a set", "power of two from 4 to 8192"]);
    create(
        "[tunables]\nslot_bytes = 65536\nways = 1024",
        &[],
        &["32 MiB, the least is", "with profile mine", "give it more"],
    );
    create(
        "[axes]\nreplacement = \"s3-fifo\"\ndestage = \"pi\"\n[tunables]\nways = 0\nghost_pieces = 4294967294",
        &[],
        &["profile mine", "4294967294 pieces", "at most"],
    );
    create("[tunables]\nslot_bytes = 1000", &[], &["mine.toml:5", "slot_bytes = 1000"]);
    create("[axes]\npersistence = \"inline\"", &[], &["mine.toml", "inline-needs-log"]);
    place.refused(
        &["create", "--origin", &origin, "--cache", &cache, "--unsafe"],
        1,
        &["profile forebay gives nothing up", "--unsafe"],
    );
    fs::write(&mine, "name = \"\"\ndescription = \"\"\nextends = \"flashcache\"\n").unwrap();
    place.refused(
        &["create", "--origin", &origin, "--cache", &cache, "--profile", &mine],
        1,
        &["mine.toml", "name"],
    );
    assert!(fs::read(&cache).unwrap() == before, "not one byte was written");
}

#[test]
fn a_cache_is_opened_with_its_own_profile_only() {
    let scene = scene("flashcache", &[]);
    scene.place.refused(
        &["serve", &scene.cache, "--profile", "enhanceio"],
        1,
        &["created with profile flashcache", "not with enhanceio", "forebay create"],
    );
    // Only its own values count, not the name.
    let mine = scene.place.file("mine.toml", 0);
    let text = "name = \"flashcache\"\ndescription = \"\"\nextends = \"flashcache\"\n[tunables]\nset_dirty_percent = 30\n";
    fs::write(&mine, text).unwrap();
    scene.place.refused(
        &["serve", &scene.cache, "--profile", &mine],
        1,
        &["created with profile flashcache", "as it is now"],
    );
    scene.place.serve(&scene.cache, &["--profile", "flashcache"]).stop();
}

#[test]
fn a_profile_of_ones_own_is_kept_with_the_cache() {
    let place = Place::new();
    let origin = place.file("slow.img", 8 * MIB);
    let cache = place.file("fast.img", 34 * MIB);
    let mine = place.file("mine.toml", 0);
    let text = "name = \"my own\"\ndescription = \"\"\nextends = \"enhanceio\"\n[tunables]\nslot_bytes = 32768\nways = 64\n";
    fs::write(&mine, text).unwrap();
    let created =
        place.done(&["create", "--origin", &origin, "--cache", &cache, "--profile", &mine, "--json"]);
    let created: Value = serde_json::from_str(&created).unwrap();
    assert_eq!((&created["profile"], &created["mode"]), (&"my own".into(), &"writethrough".into()));
    assert_eq!((&created["slot_bytes"], &created["ways"]), (&32768.into(), &64.into()));
    fs::remove_file(&mine).unwrap();
    let daemon = place.serve(&cache, &[]);
    let status: Value = serde_json::from_str(&place.done(&["status", &cache, "--json"])).unwrap();
    assert_eq!((&status["cache"]["profile"], &status["cache"]["ways"]), (&"my own".into(), &64.into()));
    daemon.stop();
    // A volume that is added writes as the profile says.
    let second = place.file("second.img", MIB);
    place.done(&["add", &cache, "--origin", &second, "--name", "second"]);
    let status: Value = serde_json::from_str(&place.done(&["status", &cache, "--json"])).unwrap();
    assert_eq!(status["volumes"][1]["mode"], "writethrough");
    place.refused(
        &["serve", &cache, "--memory", "64M"],
        1,
        &["--memory must be at least", "index of cached blocks"],
    );
}

#[test]
fn all_that_is_cached_of_an_odd_volume_is_compared_and_no_more() {
    let place = Place::new();
    let origin_bytes = 2 * MIB + 5 * 4096 + 512;
    let origin = place.file("slow.img", 0);
    fs::write(&origin, pattern(3, origin_bytes)).unwrap();
    let cache = place.file("fast.img", 40 * MIB);
    let mine = place.file("mine.toml", 0);
    let text = "name = \"mine\"\ndescription = \"\"\nextends = \"flashcache\"\n[tunables]\nslot_bytes = 65536\nways = 64\n";
    fs::write(&mine, text).unwrap();
    place.done(&["create", "--origin", &origin, "--cache", &cache, "--profile", &mine]);
    let daemon = place.serve(&cache, &[]);
    let content = place.file("content.img", 0);
    fs::write(&content, pattern(4, origin_bytes)).unwrap();
    daemon.write("slow", &content);
    assert!(daemon.read("slow") == pattern(4, origin_bytes));
    let detached: Value =
        serde_json::from_str(&place.done(&["detach", &cache, "--verify", "--json"])).unwrap();
    let verified_bytes = detached["verified_bytes"].as_u64().unwrap();
    assert!((MIB..origin_bytes + 4096).contains(&verified_bytes), "{verified_bytes}");
    daemon.stop();
    assert!(fs::read(&origin).unwrap() == pattern(4, origin_bytes));
}

#[test]
fn without_safety_there_is_one_warning_that_says_what_is_given_up() {
    let scene = scene("flashcache", &["--unsafe"]);
    assert_eq!(scene.status()["cache"]["safe"], false);
    assert!(scene.place.done(&["status", &scene.cache]).contains("WITHOUT SAFETY"));
    let daemon = scene.serve();
    let warnings: Vec<String> =
        daemon.errors().lines().filter(|line| line.contains("WARNING")).map(str::to_owned).collect();
    assert_eq!(warnings.len(), 1, "{}", daemon.errors());
    for words in ["flashcache without safety", "FLUSH does not wait", "power-loss protection"] {
        assert!(warnings[0].contains(words), "{words} in {}", warnings[0]);
    }
    daemon.write("disk", &scene.change);
    assert_eq!(daemon.read("disk"), scene.changed());
    daemon.stop();
}

#[test]
fn damaged_records_are_refused_and_taken_back_on_order() {
    let scene = scene("flashcache", &[]);
    scene.leave_dirty();
    let Layout::Slots(layout) = superblock(&scene).layout else { panic!("slots") };
    let bytes = fs::read(&scene.cache).unwrap();
    let page = |page: u32| layout.slot_page_offset_bytes(page, 0) as usize;
    let at = (0..layout.slot_pages())
        .flat_map(|number| (0..SlotPage::BYTES).step_by(16).map(move |at| page(number) + at))
        .find(|at| bytes[*at..at + 16].iter().any(|byte| *byte != 0))
        .expect("something is recorded");
    overwrite(&scene.cache, at as u64 + 1, &[bytes[at + 1] ^ 1]);
    scene.place.refused(&["serve", &scene.cache], 1, &["cannot be recovered", "forebay check"]);
    scene.place.refused(&["status", &scene.cache], 1, &["cannot be recovered", "forebay check"]);
    let output = scene.place.forebay(&["check", &scene.cache, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["ok"]), (Some(1), &false.into()));
    assert!(report["errors"][0]["slot"].is_u64() && report["fatal"].is_string(), "{report}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("--repair takes damaged records back"), "{errors}");
    let output = scene.place.forebay(&["check", &scene.cache, "--repair"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("1 slot may have held data") && errors.contains("origins decide"), "{errors}");
    let daemon = scene.serve();
    let now = daemon.read("disk");
    // All but that slot have the change.
    let (changed, before) = (scene.changed(), pattern(1, 16 * MIB));
    let blocks = || now.chunks(4096).zip(changed.chunks(4096)).zip(before.chunks(4096));
    assert!(blocks().all(|((now, changed), before)| now == changed || now == before));
    assert!(blocks().filter(|((now, changed), _)| now != changed).count() <= 1);
    daemon.stop();
}

/// Goal: the page of mappings that counts rots, and the version before it is not believed. Method: a bit of it, after a kill.
#[test]
fn a_rotten_page_of_mappings_is_refused_and_taken_back_on_order() {
    let scene = scene("dm-cache", &[]);
    scene.leave_dirty();
    let Layout::Slots(layout) = superblock(&scene).layout else { panic!("slots") };
    let bytes = fs::read(&scene.cache).unwrap();
    let places = [0, 1].map(|place| layout.slot_page_offset_bytes(0, place) as usize);
    let transaction = |at: &usize| u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
    let newer = places.into_iter().max_by_key(transaction).unwrap();
    overwrite(&scene.cache, newer as u64 + 100, &[bytes[newer + 100] ^ 1]);
    scene.place.refused(&["serve", &scene.cache], 1, &["a page of them is damaged; see forebay check"]);
    let refusal = String::from_utf8(scene.place.forebay(&["serve", &scene.cache]).stderr).unwrap();
    assert!(!refusal.contains("salvage"), "it finds nothing without these records: {refusal}");
    let output = scene.place.forebay(&["check", &scene.cache]);
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && report.contains(&format!("byte {newer}")), "{report}");
    let output = scene.place.forebay(&["check", &scene.cache, "--repair"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && errors.contains("may have held data"), "{errors}");
    let daemon = scene.serve();
    // A mapping is kept or taken back as a whole.
    let now = daemon.read("disk");
    let (changed, before) = (scene.changed(), pattern(1, 16 * MIB));
    let mut blocks = now.chunks(4096).zip(changed.chunks(4096)).zip(before.chunks(4096));
    assert!(blocks.all(|((now, changed), before)| now == changed || now == before));
    daemon.stop();
}

#[test]
fn a_superblock_that_nobody_wrote_is_refused() {
    let scene = scene("flashcache", &[]);
    let right = superblock(&scene);
    for (composition, words) in [
        (String::new(), "divided otherwise"),
        ("forebay composition 1\nsafe = maybe\n".to_owned(), "line 2"),
        (right.composition.replace("ways = 512", "ways = 256"), "divided"),
        (right.composition.replace("ways = 512", "ways = 0"), "threshold-needs-sets"),
        (format!("{}\u{1b}[2J = 1\n", right.composition), "nothing more belongs there"),
    ] {
        store(&scene, &Superblock { composition, ..right.clone() });
        for verb in ["serve", "status", "check"] {
            let output = scene.place.forebay(&[verb, &scene.cache]);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
            assert!(errors.contains(words), "{verb}: {words} in {errors}");
        }
        let output = scene.place.forebay(&["dump", &scene.cache]);
        assert!(!output.stdout.contains(&0x1b), "nothing garbles a terminal");
    }
    store(&scene, &right);
    scene.serve().stop();
}

/// The records of a volume that has another number now stay void, whenever the next crash comes.
#[test]
fn what_was_thrown_away_does_not_come_back_after_a_crash() {
    let scene = scene("flashcache", &[]);
    scene.leave_dirty();
    let copy = scene.place.file("copy.img", 0);
    fs::write(&copy, pattern(7, 16 * MIB)).unwrap();
    let changed = ["set", &scene.cache, "disk", "origin=changed-discard-dirty", "--origin", &copy];
    assert!(scene.place.done(&changed).contains("thrown away"));
    for _ in 0..2 {
        let daemon = scene.serve();
        assert_eq!(scene.status()["volumes"][0]["dirty_bytes"], 0);
        assert!(daemon.read("disk") == pattern(7, 16 * MIB), "what was thrown away is back");
        daemon.kill();
    }
}

/// A clean stop leaves the cache warm, and a disk that was changed meanwhile is found out by what is cached of it.
#[test]
fn a_stop_leaves_it_warm_and_a_changed_origin_is_found_by_chance() {
    let scene = scene("flashcache", &[]);
    scene.place.done(&["set", &scene.cache, "mode=writethrough"]);
    let daemon = scene.serve();
    daemon.read("disk");
    daemon.read("disk");
    daemon.stop();
    let status = scene.status();
    assert!(status["volumes"][0]["cached_bytes"].as_u64() > Some(8 * MIB), "{status}");
    assert_eq!(scene.report("check")["ok"], true);
    let daemon = scene.serve();
    assert!(daemon.read("disk") == pattern(1, 16 * MIB));
    assert!(scene.report("stats")["total"]["hit_blocks"].as_u64() > Some(8 * MIB / 4096));
    daemon.stop();
    overwrite(&scene.origin, MIB, &pattern(9, 14 * MIB));
    scene.place.refused(&["serve", &scene.cache], 1, &["changed behind the cache", "origin=changed"]);
}

/// What a slot has behind the volume's old end is not the origin's, and only a cache that runs sees to that.
#[test]
fn a_volume_that_ends_inside_a_slot_grows_only_while_it_runs() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB + 4096), place.file("fast.img", 32 * MIB));
    let create =
        ["create", "--origin", &origin, "--cache", &cache, "--name", "disk", "--profile", "dm-cache"];
    place.done(&create);
    fs::File::options().write(true).open(&origin).unwrap().set_len(20 * MIB).unwrap();
    let size_bytes = || {
        let status: Value = serde_json::from_str(&place.done(&["status", &cache, "--json"])).unwrap();
        status["volumes"][0]["size_bytes"].as_u64().unwrap()
    };
    let set = ["set", &cache, "disk", "size=origin"];
    place.refused(&set, 1, &["volume disk", "set size=origin while it runs"]);
    assert_eq!(size_bytes(), 16 * MIB + 4096, "what is refused changes nothing");
    let daemon = place.serve(&cache, &[]);
    place.done(&set);
    assert_eq!(daemon.read("disk").len() as u64, 20 * MIB);
    daemon.stop();
    assert_eq!(size_bytes(), 20 * MIB);
}
