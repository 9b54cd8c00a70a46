//! Goal: a start that is refused opens no door to the next one, though a service manager repeats it unattended. Method: each way
//! to keep records, stopped cleanly; then the origin is changed in all places but those of the fingerprint, and `serve`
//! is run several times. It must be refused each time, and leave cache and notes as they are to the byte. So must a start
//! that lacks an address, its control socket, or file descriptors.

use crate::scene::{Place, Scene, overwrite, pattern};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Everything that a start could change: the cache, and all notes.
fn remains(scene: &Scene) -> BTreeMap<String, Vec<u8>> {
    let notes = fs::read_dir(scene.place.path("state")).expect("there are notes");
    let notes = notes.map(|entry| entry.expect("it can be listed").path());
    let files = notes.chain([scene.cache.clone().into()]);
    files.map(|path| (path.display().to_string(), fs::read(&path).expect("it can be read"))).collect()
}

/// Changes each block of the origin but those that the fingerprint looks at.
fn change_behind(scene: &Scene) {
    let places = engine::fingerprint::offsets_bytes(16 * MIB / 512);
    for at in 0..16 * MIB / BLOCK {
        let bytes = at * BLOCK..(at + 1) * BLOCK;
        if !places.iter().flatten().any(|place| bytes.contains(place)) {
            overwrite(&scene.origin, bytes.start, &pattern(100 + at, BLOCK));
        }
    }
}

/// A cache that holds something clean and was stopped cleanly.
fn stopped(profile: &str) -> Scene {
    let scene = Scene::new(64 * MIB, &["--profile", profile, "--mode", "writeback"]);
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    scene.place.done(&["flush", &scene.cache]);
    daemon.stop();
    let status = scene.status();
    assert_eq!(status["volumes"][0]["dirty_bytes"], 0, "{profile}: {status}");
    assert!(status["volumes"][0]["cached_bytes"].as_u64() > Some(0), "{profile}: {status}");
    scene
}

fn starts_stay_refused(profile: &str) {
    let scene = stopped(profile);
    change_behind(&scene);
    let before = remains(&scene);
    for start in 1..=3 {
        scene.place.refused(&["serve", &scene.cache], 1, &["changed behind the cache", "origin=changed"]);
        assert!(remains(&scene) == before, "{profile}: start {start} was refused and changed something");
    }
}

#[test]
fn of_a_log() {
    ["forebay", "bcache", "gflash"].into_iter().for_each(starts_stay_refused);
}

#[test]
fn of_slots_with_pages() {
    ["flashcache", "enhanceio"].into_iter().for_each(starts_stay_refused);
}

/// A profile that calls every slot dirty after a crash, or many: it must not be told that there was one.
fn with_transactions(place: &Place, persistence: &str) -> String {
    let mine = place.file("mine.toml", 0);
    let text = format!(
        "name = \"mine\"\ndescription = \"\"\nextends = \"dm-cache\"\n[axes]\nadmission = \"always\"\n\
         persistence = \"{persistence}\"\n[tunables]\nslot_bytes = 65536\n"
    );
    fs::write(&mine, text).expect("a profile of the test's own");
    mine
}

#[test]
fn of_slots_with_transactions() {
    for persistence in ["commit", "bit-tree"] {
        starts_stay_refused(&with_transactions(&Place::new(), persistence));
    }
}

/// Goal: what an older copy of a cache calls dirty does not go home over newer data. Method: it is put in the cache's place when
/// that was served once more.
#[test]
fn of_an_older_copy_of_the_cache() {
    let scene = stopped("forebay");
    let [older, newer] = ["older.img", "newer.img"].map(|name| scene.place.path(name));
    fs::copy(&scene.cache, &older).expect("a copy");
    scene.serve().stop();
    fs::copy(&scene.cache, &newer).expect("a copy");
    fs::copy(&older, &scene.cache).expect("rolled back");
    let before = remains(&scene);
    for start in 1..=2 {
        scene.place.refused(&["serve", &scene.cache], 1, &["older copy", "connect the newer one", "move "]);
        assert!(remains(&scene) == before, "start {start} was refused and changed something");
    }
    fs::copy(&newer, &scene.cache).expect("put back");
    scene.serve().stop();
}

#[test]
fn without_an_address_or_a_control_socket() {
    let place = Place::new();
    for profile in ["forebay", &with_transactions(&place, "commit")] {
        let scene = stopped(profile);
        let before = remains(&scene);
        let path = scene.place.path("taken.sock");
        let _unix = UnixListener::bind(&path).expect("a free address");
        let unix = format!("unix:{}", path.display());
        let port = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let tcp = port.local_addr().expect("it is bound").to_string();
        for address in [&unix, &tcp, &unix] {
            scene.place.refused(&["serve", &scene.cache, "--nbd", address], 1, &[address, "in use"]);
            assert!(remains(&scene) == before, "{profile}: {address} was in use, and something changed");
        }
        let free = format!("unix:{}", scene.place.path("free.sock").display());
        let mut command = scene.place.command(&["serve", &scene.cache, "--nbd", &free]);
        let output = command.env("FOREBAY_RUN_DIR", &scene.origin).output().expect("the command starts");
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
        assert!(remains(&scene) == before, "{profile}: there was no control socket, and something changed");
        scene.serve().stop();
    }
}

/// Whatever the number of descriptors is at which a start fails: it says so in one line, and changes nothing.
#[test]
fn without_descriptors() {
    let scene = stopped("forebay");
    let before = remains(&scene);
    let address = format!("unix:{}", scene.place.path("free.sock").display());
    for limit in 6..200 {
        let plain = scene.place.command(&["serve", &scene.cache, "--nbd", &address]);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n $0; exec \"$@\"", &limit.to_string()]).arg(plain.get_program());
        command
            .args(plain.get_args())
            .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the shell starts");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut ready).expect("it speaks or ends");
        if ready.is_empty() {
            let output = child.wait_with_output().expect("it has ended");
            let errors = String::from_utf8(output.stderr).expect("text");
            let said = errors.lines().filter(|line| !line.contains("io_uring is not available")).count();
            assert_eq!((output.status.code(), said), (Some(1), 1), "{limit} descriptors: {errors}");
            assert!(remains(&scene) == before, "{limit} descriptors were too few, and something changed");
            continue;
        }
        assert!(limit > 20, "{limit} descriptors leave none for clients");
        // A volume that is ready has room for some clients, and for a verb.
        let uri = format!("nbd+unix:///disk?socket={}", scene.place.path("free.sock").display());
        let seen = Command::new("nbdinfo").args(["--size", &uri]).output().expect("nbdinfo is installed");
        assert!(seen.status.success(), "{}", String::from_utf8_lossy(&seen.stderr));
        assert_eq!(scene.status()["running"], true);
        let stopped = Command::new("kill").arg(child.id().to_string()).status().expect("kill exists");
        assert!(stopped.success() && child.wait().expect("it was started").success(), "{limit} descriptors");
        return;
    }
    panic!("200 descriptors are enough");
}
