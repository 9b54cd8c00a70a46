//! Goal: the service manager knows when clients may come, that the daemon is alive, and when it stops; the unit is
//! one that systemd takes, and hardened. Method: a socket in the manager's place; `systemd-analyze`.

use crate::scene::{Place, Scene};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A socket in the place of the service manager.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(place: &Place) -> Manager {
        let path = place.path("notify.sock");
        let socket = UnixDatagram::bind(&path).expect("a socket for the test");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Manager { socket, path }
    }

    /// Waits for a message with this line.
    fn wait_for(&self, line: &str) -> String {
        let begun = Instant::now();
        loop {
            let mut bytes = [0; 4096];
            let count = self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("no {line}: {error}"));
            let message = String::from_utf8_lossy(&bytes[..count]).into_owned();
            if message.lines().any(|said| said == line) {
                return message;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{line} was not said; last: {message}");
        }
    }

    fn start(&self, place: &Place, arguments: &[&str]) -> Child {
        place
            .command(arguments)
            .env("NOTIFY_SOCKET", &self.path)
            .env("WATCHDOG_USEC", "1500000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the daemon starts")
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.expect("kill exists").success());
}

#[test]
fn the_manager_is_told() {
    let scene = Scene::new(32 * MIB, &[]);
    let manager = Manager::new(&scene.place);
    let file = scene.place.path("data.toml");
    fs::write(&file, format!("cache = \"{}\"\n", scene.cache)).expect("a file for the test");
    let mut daemon =
        manager.start(&scene.place, &["serve", "--config", file.to_str().expect("a plain path")]);
    assert!(manager.wait_for("READY=1").contains("STATUS=serving disk"));
    assert_eq!(scene.status()["running"], true, "it is ready when it says so");
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    signal(&daemon, "HUP");
    assert!(manager.wait_for("RELOADING=1").contains("MONOTONIC_USEC="));
    manager.wait_for("READY=1");
    signal(&daemon, "TERM");
    manager.wait_for("STOPPING=1");
    assert_eq!(daemon.wait().expect("it was started").code(), Some(0));
}

#[test]
fn a_stopped_daemon_does_not_pat_the_watchdog() {
    let scene = Scene::new(32 * MIB, &[]);
    let manager = Manager::new(&scene.place);
    let mut daemon = manager.start(&scene.place, &["serve", &scene.cache]);
    manager.wait_for("WATCHDOG=1");
    signal(&daemon, "STOP");
    std::thread::sleep(Duration::from_millis(200));
    manager.socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let mut bytes = [0; 4096];
    while manager.socket.recv(&mut bytes).is_ok() {}
    manager.socket.set_read_timeout(Some(Duration::from_secs(3))).expect("a timeout");
    assert!(manager.socket.recv(&mut bytes).is_err(), "a process that stands says nothing");
    signal(&daemon, "CONT");
    signal(&daemon, "TERM");
    assert_eq!(daemon.wait().expect("it was started").code(), Some(0));
}

#[test]
fn without_its_cache_the_manager_is_told_too() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 32 * MIB));
    place.done(&[
        "create",
        "--origin",
        &origin,
        "--cache",
        &cache,
        "--name",
        "disk",
        "--mode",
        "writethrough",
    ]);
    place.serve(&cache, &[]).stop();
    fs::remove_file(&cache).expect("the cache is there");
    let manager = Manager::new(&place);
    let mut daemon = manager.start(&place, &["serve", &cache, "--uncached"]);
    manager.wait_for("READY=1");
    manager.wait_for("WATCHDOG=1");
    signal(&daemon, "TERM");
    manager.wait_for("STOPPING=1");
    assert_eq!(daemon.wait().expect("it was started").code(), Some(0));
}

/// The folder of units; `None` if this crate stands alone.
fn units() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("packaging/systemd");
    folder.is_dir().then_some(folder)
}

#[test]
fn the_unit_is_hardened() {
    let Some(folder) = units() else { return };
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(folder.join("forebay@.service"))
        .output()
        .expect("systemd-analyze of systemd is installed");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let level =
        text.lines().rev().find_map(|line| line.split_once("exposure level for ")?.1.split_once(": "));
    let (_, level) = level.unwrap_or_else(|| panic!("no level in {text}"));
    let level: f64 = level.split_whitespace().next().expect("a level").parse().expect("a number");
    assert!(level <= 3.0, "{text}");
}

#[test]
fn systemd_takes_the_unit() {
    let Some(folder) = units() else { return };
    let place = Place::new();
    let unit = fs::read_to_string(folder.join("forebay@.service")).expect("the unit");
    // The program is where it was built.
    let here = unit.replace("/usr/bin/forebay", env!("CARGO_BIN_EXE_forebay"));
    let path = place.path("forebay@x.service");
    fs::write(&path, here).expect("a file for the test");
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output()
        .expect("systemd-analyze of systemd is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("forebay@x"), "{said}");
}

/// An event has its id in any log, and its level at the journal's end of standard error, if the journal takes no messages.
#[test]
fn the_journal_gets_the_level_of_an_event() {
    use std::os::unix::fs::MetadataExt;
    let scene = Scene::new(64 * MIB, &["--profile", "flashcache", "--unsafe"]);
    let manager = Manager::new(&scene.place);
    for (is_journal, expected) in [(true, "<4>forebay: [F16] WARNING"), (false, "forebay: [F16] WARNING")] {
        let path = scene.place.path("journal");
        let journal = fs::File::create(&path).expect("a file for the test");
        let found = journal.metadata().expect("it is there");
        let inode = if is_journal { found.ino() } else { found.ino() + 1 };
        let mut daemon = scene
            .place
            .command(&["serve", &scene.cache])
            .env("JOURNAL_STREAM", format!("{}:{inode}", found.dev()))
            .env("FOREBAY_JOURNAL_SOCKET", scene.place.path("nowhere"))
            .env("NOTIFY_SOCKET", &manager.path)
            .stdout(Stdio::null())
            .stderr(journal)
            .spawn()
            .expect("the daemon starts");
        manager.wait_for("READY=1");
        let said = fs::read_to_string(&path).expect("text");
        assert!(said.starts_with(expected), "{said}");
        signal(&daemon, "TERM");
        assert_eq!(daemon.wait().expect("it was started").code(), Some(0));
    }
}
