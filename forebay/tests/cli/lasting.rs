//! Goal: what a daemon answered and had not written yet outlives it, whoever looks next; and nobody goes on without it. Method: a
//! client that sends writes one after the other and flushes nothing, a kill, and then verbs and another daemon.

use crate::scene::{Daemon, Scene, pattern};
use engine::format::BatchHeader;
use live::nbd::client::{Address, Client};
use std::fs;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Writes that the daemon answers in a row.
const WRITES: u64 = 12;

fn content(round: u64, at: u64) -> Vec<u8> {
    pattern(round * 100 + at + 1, BLOCK)
}

/// Lets a client write blocks one by one, and kills the daemon when the last one is answered.
fn write_and_kill(scene: &Scene, daemon: Daemon, round: u64) {
    let mut client = Client::connect(&Address::Unix(daemon.socket.clone()), "disk").expect("it is served");
    for at in 0..WRITES {
        let written = client.write(at * 3 * BLOCK, &content(round, at)).expect("it is connected");
        written.expect("the cache takes it");
    }
    assert!(!files(scene).is_empty(), "the daemon has memory that outlives it");
    daemon.kill();
}

/// A client reads what was written in a round.
fn expect_found(daemon: &Daemon, round: u64) {
    let found = daemon.read("disk");
    for at in 0..WRITES {
        let from = (at * 3 * BLOCK) as usize;
        assert!(found[from..from + BLOCK as usize] == content(round, at), "round {round}, write {at}");
    }
}

/// The files of memory that outlives daemons.
fn files(scene: &Scene) -> Vec<PathBuf> {
    let all = fs::read_dir(scene.place.path("run")).expect("the run directory is there");
    let paths = all.map(|entry| entry.expect("it can be listed").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "lasting")).collect()
}

#[test]
fn what_was_answered_is_there_after_a_kill() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    for round in 0..6 {
        let daemon = scene.serve();
        write_and_kill(&scene, daemon, round);
        // Who looks at the cache sees it, and changes nothing.
        scene.place.done(&["check", &scene.cache]);
        let status = scene.status();
        let dirty_bytes = status["volumes"][0]["dirty_bytes"].as_u64().expect("a number");
        assert!(dirty_bytes >= WRITES * BLOCK, "{status}");
        let daemon = scene.serve();
        expect_found(&daemon, round);
        match round % 2 {
            0 => daemon.kill(),
            _ => {
                daemon.stop();
                assert_eq!(files(&scene), Vec::<PathBuf>::new(), "a clean stop needs none");
            }
        }
    }
}

#[test]
fn a_repair_keeps_it() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let daemon = scene.serve();
    write_and_kill(&scene, daemon, 1);
    scene.place.done(&["check", &scene.cache, "--repair"]);
    let daemon = scene.serve();
    expect_found(&daemon, 1);
    daemon.stop();
}

#[test]
fn a_cache_is_not_served_without_it() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let daemon = scene.serve();
    write_and_kill(&scene, daemon, 1);
    files(&scene).iter().for_each(|file| fs::remove_file(file).expect("it is there"));
    scene.place.refused(&["serve", &scene.cache], 1, &[".lasting", "FOREBAY_RUN_DIR", "check", "--repair"]);
    let told = scene.place.forebay(&["check", &scene.cache]);
    let (report, why) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.code() == Some(1) && report.contains("NOT OK"), "{told:?}");
    assert!(
        why.contains("cannot be started") && why.contains(".lasting") && why.contains("--repair"),
        "{why}"
    );
    let repaired = scene.place.forebay(&["check", &scene.cache, "--repair"]);
    let why = String::from_utf8_lossy(&repaired.stderr);
    assert!(repaired.status.code() == Some(3) && why.contains("not without a loss"), "{why}");
    scene.serve().stop();
}

#[test]
fn a_cache_that_took_anothers_place_has_it_too() {
    let scene = Scene::new(128 * MIB, &["--mode", "writeback"]);
    let larger = scene.place.file("larger.img", 192 * MIB);
    let daemon = scene.serve();
    scene.place.done(&["replace", &scene.cache, &larger]);
    write_and_kill(&scene, daemon, 3);
    let daemon = scene.place.serve(&larger, &[]);
    expect_found(&daemon, 3);
    scene.place.done(&["resize", &larger, "128M"]);
    write_and_kill(&scene, daemon, 4);
    let daemon = scene.place.serve(&larger, &[]);
    expect_found(&daemon, 4);
    daemon.stop();
    assert_eq!(files(&scene), Vec::<PathBuf>::new(), "no name of it is left");
}

/// The block of the cache that has the header of its log's last batch.
fn last_header(cache: &[u8]) -> usize {
    let block = BLOCK as usize;
    let sequence_at = |at: &usize| {
        let bytes = &cache[at * block..];
        let blocks = BatchHeader::peek_blocks(&bytes[..block]).ok()?;
        Some(BatchHeader::decode(bytes.get(..blocks as usize * block)?).ok()?.header.sequence)
    };
    let headers = (0..cache.len() / block).filter(|at| sequence_at(at).is_some());
    headers.max_by_key(sequence_at).expect("the log has batches")
}

#[test]
fn damage_in_what_was_flushed_is_refused_after_a_kill() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let daemon = scene.serve();
    let mut client = Client::connect(&Address::Unix(daemon.socket.clone()), "disk").expect("it is served");
    client.write(0, &content(1, 0)).expect("it is connected").expect("the cache takes it");
    client.flush().expect("it is connected").expect("it is durable");
    daemon.kill();
    let mut cache = fs::read(&scene.cache).expect("it is a file");
    let at = last_header(&cache) * BLOCK as usize;
    cache[at + 100] ^= 1;
    fs::write(&scene.cache, &cache).expect("nobody has it");
    scene.place.refused(&["serve", &scene.cache], 1, &["cannot be recovered", "forebay check"]);
    let told = scene.place.forebay(&["check", &scene.cache]);
    let report = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.code() == Some(1) && report.contains("NOT OK"), "{told:?}");
    let repaired = scene.place.forebay(&["check", &scene.cache, "--repair"]);
    assert_eq!(repaired.status.code(), Some(3), "not without a loss: {repaired:?}");
    scene.serve().stop();
}

/// A start that is refused at its last step leaves no file behind that says nothing, and keeps one that says something.
#[test]
fn a_start_that_is_refused_leaves_no_file() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let nowhere = format!("unix:{}", scene.place.path("nowhere/door").display());
    let refuse = || {
        let serve = ["serve", &scene.cache, "--nbd", &nowhere];
        scene.place.refused(&serve, 1, &["could not listen", "make its directory first"]);
    };
    refuse();
    assert!(files(&scene).is_empty(), "nothing was ever answered");
    scene.serve().stop();
    refuse();
    assert!(files(&scene).is_empty(), "it stopped cleanly");
    write_and_kill(&scene, scene.serve(), 1);
    refuse();
    let daemon = scene.serve();
    expect_found(&daemon, 1);
    daemon.stop();
}
