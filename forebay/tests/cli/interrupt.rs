//! Goal: long jobs show their progress, can be interrupted, and go on where they were; a stop is fast.
//! Method: scattered writes into a cache over a modelled hard disk in real time, which needs many
//! seconds to take them home.

use crate::scene::{Daemon, Place};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

struct Slow {
    place: Place,
    cache: String,
}

impl Slow {
    fn new() -> Slow {
        // Were the cache slower than the modelled disk, little would be dirty.
        let place = Place::in_memory();
        let store = place.file("slow.img", 4096 * MIB);
        let cache = place.file("fast.img", 64 * MIB);
        let origin = format!("model:hdd?store={store}&size=4G&speed=0.5&write_cache=off");
        place.done(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
        Slow { place, cache }
    }

    /// A daemon with some 24 MiB of scattered dirty data.
    fn serve_dirty(&self) -> Daemon {
        let daemon = self.place.serve(&self.cache, &[]);
        let output = Command::new("fio")
            .args(["--name=scatter", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"])
            .args(["--size=4G", "--io_size=24M", "--randseed=7"])
            .arg(format!("--uri={}", daemon.uri("disk")))
            .current_dir(self.place.path(""))
            .output()
            .expect("fio is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(self.dirty_bytes() > 4 * MIB);
        daemon
    }

    fn dirty_bytes(&self) -> u64 {
        let status: Value =
            serde_json::from_str(&self.place.done(&["status", &self.cache, "--json"])).unwrap();
        status["volumes"][0]["dirty_bytes"].as_u64().unwrap()
    }

    /// Starts a job, waits until it has shown its progress, and interrupts it. Its last words.
    fn interrupt(&self, arguments: &[&str]) -> (Option<i32>, Vec<String>) {
        // Whoever runs the tests in the background may have interrupts ignored, and children inherit that.
        let command = self.place.command(arguments);
        let mut child: Child = Command::new("env")
            .arg("--default-signal=INT")
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
        let first = lines.next().expect("it shows progress").expect("text");
        assert!(first.contains("dirty left"), "{first}");
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill exists").success());
        let rest = lines.map(|line| line.expect("text")).collect();
        (child.wait().expect("it was started").code(), rest)
    }
}

#[test]
fn a_stop_is_fast_and_a_flush_without_daemon_can_be_interrupted_and_resumed() {
    let slow = Slow::new();
    let daemon = slow.serve_dirty();
    let before = Instant::now();
    daemon.stop();
    assert!(before.elapsed() < Duration::from_secs(5), "a stop does not wait for the destage of everything");
    let left = slow.dirty_bytes();
    assert!(left > 0);
    let (status, words) = slow.interrupt(&["flush", &slow.cache, "--progress"]);
    assert_eq!(status, Some(1), "{words:?}");
    assert!(words.last().unwrap().contains("run it again"), "{words:?}");
    let less = slow.dirty_bytes();
    assert!(less < left, "what was flushed stays flushed: {less} of {left}");
}

#[test]
fn a_flush_by_the_daemon_ends_with_the_verb() {
    let slow = Slow::new();
    let daemon = slow.serve_dirty();
    // Interrupted before it can say anything more: by the signal itself.
    let (status, _) = slow.interrupt(&["detach", &slow.cache, "--progress"]);
    assert_eq!(status, None);
    let status: Value = serde_json::from_str(&slow.place.done(&["status", &slow.cache, "--json"])).unwrap();
    assert_eq!(status["volumes"][0]["name"], "disk");
    daemon.stop();
}

/// The daemon notices the end of the first verb when it tells it the progress, and must not end the second one's job then.
#[test]
fn a_job_goes_on_when_another_one_of_the_volume_is_interrupted() {
    let slow = Slow::new();
    let daemon = slow.serve_dirty();
    let (status, _) = slow.interrupt(&["flush", &slow.cache, "--progress"]);
    assert_eq!(status, None);
    let mut detach = slow.place.command(&["detach", &slow.cache, "--progress"]);
    let mut detach = detach.stderr(Stdio::piped()).spawn().expect("the command starts");
    std::thread::sleep(Duration::from_secs(2));
    let left = slow.dirty_bytes();
    let ended = detach.try_wait().expect("it was started");
    assert!(ended.is_none() || left == 0, "a detach ended with {left} bytes left: {ended:?}");
    detach.kill().expect("it was started");
    let output = detach.wait_with_output().expect("it was started");
    let lines = String::from_utf8(output.stderr).expect("text").lines().count();
    assert!(lines <= 1, "a log gets no more than a line of progress in ten seconds: {lines} in two");
    daemon.stop();
}
