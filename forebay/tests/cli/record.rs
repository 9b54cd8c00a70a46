//! Goal: what is recorded is what clients did, the file is a trace at any end, and the daemon does not care. Method: the
//! real verb beside the real daemon, clients that are known, and the readers of `lab`.

use crate::scene::{Place, Scene};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A recording that has begun.
struct Recorder {
    child: Child,
    file: String,
}

impl Recorder {
    fn start(place: &Place, command: &mut Command, file: &str) -> Recorder {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let path = place.path(file);
        let begun = Instant::now();
        // The file has its first line when the daemon has begun to record.
        while !fs::metadata(&path).is_ok_and(|made| made.len() > 0) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no recording began");
            std::thread::sleep(Duration::from_millis(20));
        }
        Recorder { child, file: path.to_str().expect("a plain path").to_owned() }
    }

    fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill exists").success());
    }

    /// Its exit status, what it printed, and what it said.
    fn end(self) -> (Option<i32>, String, String) {
        let output = self.child.wait_with_output().expect("it was started");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

fn survey(place: &Place, file: &str) -> Value {
    let report = place.done(&["lab", "advise", file, "--json"]);
    serde_json::from_str::<Value>(&report).expect("a report")["trace"].clone()
}

#[test]
fn a_recording_is_what_clients_did() {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let daemon = scene.serve();
    let file = scene.place.path("day.zst").to_str().expect("a plain path").to_owned();
    let mut command = scene.place.command(&["record", &scene.cache, &file, "--json"]);
    let recorder = Recorder::start(&scene.place, &mut command, "day.zst");
    let before = scene.report("stats")["total"].clone();
    daemon.write("disk", &scene.change);
    daemon.read("disk");
    let after = scene.report("stats")["total"].clone();
    // A second one is refused while the first one goes on.
    scene.place.refused(
        &["record", &scene.cache, &format!("{file}.zst")],
        1,
        &["somebody records this cache already"],
    );
    assert!(!scene.place.path("day.zst.zst").exists(), "nothing is made for it");
    // What the reactors have seen is taken in a moment.
    std::thread::sleep(Duration::from_millis(500));
    recorder.interrupt();
    let (status, printed, said) = recorder.end();
    assert_eq!((status, said.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&printed).expect("a report");
    assert_eq!((report["ended_by"].as_str(), report["dropped"].as_u64()), (Some("interrupt"), Some(0)));
    let more = |name: &str| after[name].as_u64().unwrap_or(0) - before[name].as_u64().unwrap_or(0);
    let trace = survey(&scene.place, &file);
    // The engine counts pieces of requests; bytes are the same.
    assert_eq!(trace["read_bytes"].as_u64(), Some(more("read_bytes")), "{trace}");
    assert_eq!(trace["written_bytes"].as_u64(), Some(more("written_bytes")), "{trace}");
    let requests = report["requests"].as_u64().expect("a number");
    assert!(requests > trace["reads"].as_u64().expect("a number"), "flushes are in it, too: {report}");
    assert_eq!(report["file_bytes"].as_u64(), Some(fs::metadata(&file).expect("the file").len()));
    // Nothing of the content is in it, and the daemon does not record any more.
    let replayed = scene.place.done(&["lab", "trace", &file, "--cache-size", "32M", "--json"]);
    assert!(replayed.contains("hit"), "{replayed}");
    let again = scene.place.done(&["record", &scene.cache, &file, "--force", "--duration", "1"]);
    assert!(again.starts_with("0 requests in ") && !again.contains("lab advise"), "{again}");
    daemon.stop();
}

#[test]
fn a_full_disk_ends_a_recording_and_nothing_else() {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let daemon = scene.serve();
    let file = scene.place.path("full.zst").to_str().expect("a plain path").to_owned();
    // 8 KiB are all that this process may write: its disk is full then.
    let words = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let mut command = Command::new("bash");
    command
        .args(["-c", words, "bash", env!("CARGO_BIN_EXE_forebay"), "record", &scene.cache, &file])
        .args(["--limit", "64K"])
        .env("FOREBAY_STATE_DIR", scene.place.path("state"))
        .env("FOREBAY_RUN_DIR", scene.place.path("run"));
    let mut recorder = Recorder::start(&scene.place, &mut command, "full.zst");
    let begun = Instant::now();
    while recorder.child.try_wait().expect("it was started").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not end");
        daemon.read("disk");
    }
    let file = recorder.file.clone();
    let (status, printed, said) = recorder.end();
    assert_eq!((status, printed.as_str(), said.lines().count()), (Some(1), "", 1), "{said}");
    assert!(said.contains("full.zst: ") && said.contains("requests are in it"), "{said}");
    // What is in the file is a trace.
    let counted: u64 = said.split_whitespace().find_map(|word| word.parse().ok()).expect("a number");
    let trace = survey(&scene.place, &file);
    assert!(counted > 0 && trace["reads"].as_u64().expect("a number") <= counted, "{trace} {said}");
    daemon.read("disk");
    daemon.stop();
}

#[test]
fn what_cannot_be_recorded_is_one_line() {
    let scene = Scene::new(32 * MIB, &[]);
    let file = |name: &str| scene.place.path(name).to_str().expect("a plain path").to_owned();
    let record = |name: &str, status, words: &[&str]| {
        scene.place.refused(&["record", &scene.cache, &file(name)], status, words);
    };
    record("x.zst", 1, &["is not running", "forebay serve"]);
    record("x.csv", 1, &["x.csv.zst"]);
    let daemon = scene.serve();
    fs::write(file("there.zst"), "precious").expect("a file for the test");
    record("there.zst", 1, &["exists", "--force"]);
    assert_eq!(fs::read(file("there.zst")).expect("the file"), b"precious");
    record("none/x.zst", 1, &["cannot make", "none/x.zst"]);
    fs::create_dir(file("folder.zst")).expect("a folder for the test");
    scene.place.refused(&["record", &scene.cache, &file("folder.zst"), "--force"], 1, &["no ordinary file"]);
    scene.place.refused(&["record", &scene.cache, &file("y.zst"), "--duration", "0"], 2, &["whole seconds"]);
    daemon.stop();
}
