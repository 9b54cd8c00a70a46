//! Runs the real command in a place of its own.

use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static PLACES: AtomicU32 = AtomicU32::new(0);

/// A directory with devices, notes and sockets; removed at the end.
pub struct Place {
    path: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        Place::below(&std::env::temp_dir())
    }

    /// A place whose files are as fast as memory, whatever else keeps this machine's disks busy.
    pub fn in_memory() -> Place {
        Place::below(Path::new("/dev/shm"))
    }

    fn below(parent: &Path) -> Place {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("forebay-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory for the test");
        Place { path }
    }

    /// The path of a file in this place.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A sparse file.
    pub fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file for the test");
        path.to_str().expect("a plain path").to_owned()
    }

    /// The command, with its notes and sockets in this place.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command
            .args(arguments)
            .env("FOREBAY_STATE_DIR", self.path("state"))
            .env("FOREBAY_RUN_DIR", self.path("run"));
        command
    }

    /// Runs the command to its end.
    pub fn forebay(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command starts")
    }

    /// Runs the command, which must succeed; returns what it printed.
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.forebay(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs the command, which must be refused with this status and one line that has all the words.
    pub fn refused(&self, arguments: &[&str], status: i32, words: &[&str]) {
        let output = self.forebay(arguments);
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?} is refused in one line: {errors}");
        assert!(errors.starts_with("forebay: "), "{errors}");
        for word in words {
            assert!(errors.contains(word), "{arguments:?}: `{word}` is missing in: {errors}");
        }
        assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left is in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Bytes that repeat nowhere soon, other ones for each seed.
pub fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut state = seed;
    (0..bytes / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state.to_le_bytes()
        })
        .collect()
}

/// An origin with content, a cache on it, and new content to write.
pub struct Scene {
    pub place: Place,
    pub origin: String,
    pub cache: String,
    /// 4 MiB that differ from the origin's.
    pub change: String,
}

impl Scene {
    /// A volume `disk` of 16 MiB, and a cache created with these words besides.
    pub fn new(cache_bytes: u64, more: &[&str]) -> Scene {
        let place = Place::new();
        let origin = place.file("slow.img", 16 << 20);
        fs::write(&origin, pattern(1, 16 << 20)).expect("a file for the test");
        let cache = place.file("fast.img", cache_bytes);
        let change = place.file("change.img", 0);
        fs::write(&change, pattern(2, 4 << 20)).expect("a file for the test");
        let create = ["create", "--origin", &origin, "--cache", &cache, "--name", "disk"];
        place.done(&[&create[..], more].concat());
        Scene { place, origin, cache, change }
    }

    /// Lets nothing go home by itself for the next hours.
    pub fn hold_back(&self) {
        let clock = |from_now: &str| {
            let date = Command::new("date").args(["-d", from_now, "+%H:%M"]).output().expect("a clock");
            String::from_utf8(date.stdout).expect("text").trim().to_owned()
        };
        let hours = format!("destage-hours={}-{}", clock("+6 hours"), clock("+7 hours"));
        self.place.done(&["set", &self.cache, "disk", &hours]);
    }

    pub fn serve(&self) -> Daemon {
        self.place.serve(&self.cache, &[])
    }

    pub fn report(&self, verb: &str) -> Value {
        serde_json::from_str(&self.place.done(&[verb, &self.cache, "--json"])).expect("a report")
    }

    pub fn status(&self) -> Value {
        self.report("status")
    }

    /// What clients must see once the change was written.
    pub fn changed(&self) -> Vec<u8> {
        let mut content = pattern(1, 16 << 20);
        content[..4 << 20].copy_from_slice(&fs::read(&self.change).expect("the file is there"));
        content
    }

    /// Leaves dirty data in the cache: it is written and the daemon killed at once.
    pub fn leave_dirty(&self) {
        for _ in 0..20 {
            let daemon = self.serve();
            daemon.write("disk", &self.change);
            daemon.kill();
            if self.status()["volumes"][0]["dirty_bytes"].as_u64() > Some(0) {
                return;
            }
        }
        panic!("destage was faster than the kill every time");
    }
}

/// Overwrites part of a file.
pub fn overwrite(path: impl AsRef<Path>, offset_bytes: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = File::options().write(true).open(path).expect("the file is there");
    file.write_all_at(bytes, offset_bytes).expect("the file can be written");
}

/// A daemon that was started in a place; killed at the end if it still runs.
pub struct Daemon {
    child: Child,
    /// Its `ready` line.
    pub ready: String,
    /// Where its clients connect.
    pub socket: PathBuf,
    stderr: PathBuf,
}

impl Place {
    /// Serves a cache on a unix socket, and waits until it is ready.
    pub fn serve(&self, cache: &str, more: &[&str]) -> Daemon {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let socket = self.path(&format!("nbd-{number}.sock"));
        let stderr = self.path(&format!("stderr-{number}"));
        let address = format!("unix:{}", socket.display());
        let mut arguments = vec!["serve", cache, "--nbd", &address];
        arguments.extend(more);
        let mut child = self
            .command(&arguments)
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr).expect("a file for the errors"))
            .spawn()
            .expect("the daemon starts");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut ready).expect("it speaks or ends");
        let errors = fs::read_to_string(&stderr).expect("text");
        assert!(ready.starts_with("ready "), "the daemon did not get ready: {ready}{errors}");
        Daemon { child, ready, socket, stderr }
    }
}

impl Daemon {
    /// The URI of a volume.
    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket.display())
    }

    /// What it wrote to standard error so far.
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.stderr).expect("text")
    }

    /// Asks it to stop; it must do so cleanly.
    pub fn stop(mut self) -> String {
        self.signal("TERM");
        let status = self.child.wait().expect("it was started");
        assert_eq!(status.code(), Some(0), "{}", self.errors());
        self.errors()
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill exists");
        assert!(sent.success());
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was started");
    }

    /// Its exit status, once it has ended.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("it was started").code()
    }

    /// Writes the content of a file to the beginning of a volume, and flushes.
    pub fn write(&self, volume: &str, file: &str) {
        copy(&["--flush", file, &self.uri(volume)]);
    }

    /// The content of a volume.
    pub fn read(&self, volume: &str) -> Vec<u8> {
        let to = self.socket.with_extension("copy");
        copy(&[&self.uri(volume), to.to_str().expect("a plain path")]);
        fs::read(to).expect("just written")
    }
}

fn copy(arguments: &[&str]) {
    let output =
        Command::new("nbdcopy").args(arguments).output().expect("nbdcopy of libnbd-bin is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
