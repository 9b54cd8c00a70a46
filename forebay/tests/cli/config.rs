//! Goal: a configuration file does what the command line does, and says what is wrong by file and line.

use crate::scene::{Place, Scene};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Writes a configuration file; its path.
pub fn write(place: &Place, name: &str, text: &str) -> String {
    let path = place.path(name);
    fs::write(&path, text).expect("a file for the test");
    path.to_str().expect("a plain path").to_owned()
}

/// A daemon that has only a file to go by.
pub struct Daemon {
    child: Child,
    ready: String,
    errors: BufReader<std::process::ChildStderr>,
}

impl Daemon {
    pub fn start(place: &Place, arguments: &[&str]) -> Daemon {
        let mut child = place
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the daemon starts");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut ready).expect("it speaks or ends");
        let errors = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut daemon = Daemon { child, ready, errors };
        if !daemon.ready.starts_with("ready ") {
            panic!("the daemon did not get ready: {}", daemon.line());
        }
        daemon
    }

    /// The next line on standard error.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("text");
        line
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status().expect("kill exists");
        assert!(sent.success());
    }

    pub fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.child.wait().expect("it was started").code(), Some(0));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A configuration of the scene's cache, with more lines.
pub fn text_of(scene: &Scene, more: &str) -> String {
    let socket = scene.place.path("data.sock");
    format!("cache = \"{}\"\nnbd = [\"unix:{}\"]\n{more}", scene.cache, socket.display())
}

#[test]
fn a_daemon_serves_what_its_file_says() {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let text = text_of(
        &scene,
        "nbd-mode = \"0640\"\nthreads = 1\n[[volume]]\nname = \"disk\"\nmode = \"writeback\"\n",
    );
    let file = write(&scene.place, "data.toml", &text);
    let daemon = Daemon::start(&scene.place, &["serve", "--config", &file]);
    assert!(daemon.ready.contains("data.sock"), "{}", daemon.ready);
    let status = scene.status();
    assert_eq!(status["config"], file);
    assert_eq!(status["volumes"][0]["mode_configured"], "writeback");
    daemon.stop();
    // What the command line says counts.
    let other = format!("unix:{}", scene.place.path("other.sock").display());
    let daemon = Daemon::start(&scene.place, &["serve", "--nbd", &other, "--config", &file]);
    assert!(daemon.ready.contains("other.sock") && !daemon.ready.contains("data.sock"), "{}", daemon.ready);
    daemon.stop();
}

#[test]
fn a_reload_tells_of_a_cache_that_was_replaced() {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let file = write(&scene.place, "data.toml", &text_of(&scene, ""));
    let mut daemon = Daemon::start(&scene.place, &["serve", "--config", &file]);
    let larger = scene.place.file("larger.img", 48 * MIB);
    scene.place.done(&["replace", &scene.cache, &larger]);
    daemon.signal("HUP");
    // Other lines tell of the device that took its place.
    let said = std::iter::repeat_with(|| daemon.line())
        .find(|line| line.contains("`cache` names") || line.is_empty())
        .expect("lines without end");
    assert!(said.contains("data.toml:1") && said.contains("larger.img now"), "{said}");
    daemon.stop();
}

#[test]
fn a_set_mode_stays_and_a_reload_brings_the_file_back() {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let volume = "[[volume]]\nname = \"disk\"\nmode = \"writeback\"\n";
    let file = write(&scene.place, "data.toml", &text_of(&scene, volume));
    let daemon = Daemon::start(&scene.place, &["serve", "--config", &file]);
    scene.place.done(&["set", &scene.cache, "mode=writethrough"]);
    let text = scene.place.done(&["status", &scene.cache]);
    assert!(text.contains("the configuration file says writeback"), "{text}");
    daemon.stop();
    let mut daemon = Daemon::start(&scene.place, &["serve", "--config", &file]);
    let said = daemon.line();
    assert!(said.contains("is in writethrough") && said.contains("data.toml:4 says writeback"), "{said}");
    // A file with an error changes nothing.
    write(&scene.place, "data.toml", &text_of(&scene, "threads = 99\n"));
    daemon.signal("HUP");
    let said = daemon.line();
    assert!(said.contains("nothing is changed") && said.contains("data.toml:3: `threads`"), "{said}");
    assert_eq!(scene.status()["volumes"][0]["mode_target"], "writethrough");
    write(&scene.place, "data.toml", &text_of(&scene, &format!("threads = 1\n{volume}")));
    daemon.signal("HUP");
    let said = daemon.line();
    assert!(said.contains("volume disk is set to writeback"), "{said}");
    let said = daemon.line();
    assert!(said.contains("`threads` has changed, which the next start takes up"), "{said}");
    let begun = Instant::now();
    while scene.status()["volumes"][0]["mode_target"] != "writeback" {
        assert!(begun.elapsed() < Duration::from_secs(10), "the mode follows");
    }
    daemon.stop();
    // Without a file a hangup is the end, and a clean one.
    let daemon = scene.serve();
    daemon.signal("HUP");
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn a_file_that_does_not_fit_is_one_line() {
    let scene = Scene::new(32 * MIB, &[]);
    let serve = |text: &str, words: &[&str]| {
        let file = write(&scene.place, "data.toml", text);
        scene.place.refused(&["serve", "--config", &file], 1, words);
    };
    serve(&text_of(&scene, "thread = 2\n"), &["data.toml:3: ", "did you mean `threads`?"]);
    serve(&text_of(&scene, "thread = 2\nthreads = 0\n"), &["data.toml:3: ", "config check", "1 more"]);
    let other = "[[volume]]\nname = \"other\"\n";
    serve(&text_of(&scene, other), &["data.toml:4: there is no volume other", "forebay add"]);
    let missing = scene.place.path("missing.toml");
    let missing = missing.to_str().expect("a plain path");
    scene.place.refused(&["serve", "--config", missing], 1, &["cannot read", "missing.toml"]);
    scene.place.refused(&["serve"], 2, &["CACHE"]);
    assert_eq!(scene.status()["session"], 0, "no session was begun");
}

#[test]
fn check_names_every_finding_in_all_files() {
    let place = Place::new();
    let good = write(&place, "a.toml", "cache = \"/dev/disk/by-id/a\"\nmetrics = \":9419\"\n");
    let hint = write(&place, "b.toml", "cache = \"/dev/sdb\"\n");
    let text = place.done(&["config", "check", &good, &hint]);
    assert!(text.contains("a.toml: right") && text.contains("b.toml:1: hint: /dev/sdb may be"), "{text}");
    write(&place, "c.toml", "cache = \"/dev/disk/by-id/a\"\n\nmetrics = \":9419\"\nnbd_mode = \"0600\"\n");
    let mut command = place.command(&["config", "check", "--json"]);
    let output = command.env("FOREBAY_CONFIG_DIR", place.path("")).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["files"].as_array().expect("files").len(), 3);
    let findings = report["findings"].to_string();
    assert!(findings.contains("did you mean `nbd-mode`"), "{findings}");
    write(&place, "c.toml", "cache = \"/dev/disk/by-id/a\"\n\nmetrics = \":9419\"\n");
    let output = place.command(&["config", "check"]).env("FOREBAY_CONFIG_DIR", place.path("")).output();
    let output = output.expect("the command starts");
    let named = place.forebay(&["config", "check", place.path("").to_str().expect("a plain path")]);
    assert!(named.stdout == output.stdout, "a directory can be named, too");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("c.toml:1: /dev/disk/by-id/a stands in") && text.contains("c.toml:3: :9419"),
        "{text}"
    );
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(errors.contains("c.toml has errors") && output.status.code() == Some(1), "{errors}");
    let nowhere = place.path("nowhere");
    let output = place.command(&["config", "check"]).env("FOREBAY_CONFIG_DIR", nowhere).output();
    assert_eq!(output.expect("the command starts").status.code(), Some(1));
}
