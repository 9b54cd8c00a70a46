//! The real daemon, as tests use it: a directory of its own, started, watched, killed in several ways
//! and started again. It dies with the thread that started it, however that ends.

use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a daemon may take to recover and open its doors, and to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the locks of a killed daemon may outlive it: the kernel still ends its last operations.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// One test's directory: images, sockets, and the daemon's state and run directories.
pub struct Site {
    root: PathBuf,
    /// Environment variables of all that runs here.
    environment: Vec<(&'static str, &'static str)>,
}

impl Site {
    /// Makes an empty site; `name` shows in its path.
    pub fn new(name: &str) -> Site {
        static SITES: AtomicU32 = AtomicU32::new(0);
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("forebay-{name}-{}-{number}", std::process::id()));
        fs::create_dir(&root).expect("a new directory for the test");
        Site { root, environment: Vec::new() }
    }

    /// Sets an environment variable for all that runs here.
    pub fn with(mut self, variable: &'static str, value: &'static str) -> Site {
        self.environment.push((variable, value));
        self
    }

    /// The end of the daemons' log.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.root.join("daemon.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// A path in the site, as text.
    pub fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().expect("temporary directories have plain names").to_owned()
    }

    /// A sparse file of that size.
    pub fn file(&self, name: &str, size_bytes: u64) -> String {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(size_bytes)).expect("a new file");
        path
    }

    /// A file of that size whose content is different for each seed, with a hole in every fourth MiB.
    pub fn noise(&self, name: &str, size_bytes: u64, seed: u64) -> String {
        let path = self.file(name, size_bytes);
        let mut file = File::options().write(true).open(&path).expect("the file just made");
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        let mut chunk = vec![0; 1 << 20];
        for mebibyte in 0..size_bytes >> 20 {
            if mebibyte % 4 == 3 {
                continue;
            }
            for word in chunk.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            file.seek(SeekFrom::Start(mebibyte << 20))
                .and_then(|_| file.write_all(&chunk))
                .expect("room on the disk");
        }
        path
    }

    /// A program that finds the site's daemon: `forebay` itself for most.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("FOREBAY_STATE_DIR", self.path("state")).env("FOREBAY_RUN_DIR", self.path("run"));
        command.envs(self.environment.iter().copied());
        command
    }

    /// Runs `forebay` with these arguments.
    pub fn try_run(&self, arguments: &[&str]) -> Output {
        finish(
            self.command("timeout")
                .args(["--kill-after=5", "300", env!("CARGO_BIN_EXE_forebay")])
                .args(arguments),
        )
    }

    /// Runs `forebay` with these arguments, which must work; its standard output.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.run_unlocked(arguments);
        let (told, wrong) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "forebay {arguments:?}: {}: {wrong}{told}", output.status);
        told
    }

    /// Runs `forebay` with these arguments, when a daemon that was killed has let go of the devices.
    pub fn run_unlocked(&self, arguments: &[&str]) -> Output {
        let start = Instant::now();
        loop {
            let output = self.try_run(arguments);
            if !is_locked(&text(&output.stderr)) || start.elapsed() >= LOCK_PATIENCE {
                return output;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs `forebay` with these arguments, which must be refused; its standard error.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.try_run(arguments);
        assert_eq!(output.status.code(), Some(1), "forebay {arguments:?} says {}", text(&output.stderr));
        text(&output.stderr)
    }

    /// Runs a verb that reports, as JSON.
    pub fn report(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&output)
            .unwrap_or_else(|error| panic!("forebay {arguments:?}: {error} in {output}"))
    }

    /// Waits until the status of the cache satisfies the condition.
    pub fn wait_for_status(&self, cache: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let status = self.report(&["status", cache]);
            if condition(&status) {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's last words:\n{}", self.last_words());
            if std::env::var_os("FOREBAY_KEEP").is_some() {
                eprintln!("kept {}", self.root.display());
                return;
            }
        }
        // What is mounted by a failed test may hold the directory; that is no second failure.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A running daemon, its doors open.
pub struct Daemon {
    child: Child,
    socket: String,
    ready: String,
    /// Asks it for its status.
    status: Command,
}

impl Daemon {
    /// Serves the cache on a unix socket and waits until the doors are open.
    pub fn start(site: &Site, cache: &str, options: &[&str]) -> Daemon {
        Daemon::try_start(site, cache, options).unwrap_or_else(|last| panic!("the daemon ended: {last}"))
    }

    /// The same, or the last line of its log if it refuses to start.
    pub fn try_start(site: &Site, cache: &str, options: &[&str]) -> Result<Daemon, String> {
        let start = Instant::now();
        loop {
            let status = match Daemon::spawn(site, cache, options).until_ready() {
                Ok(daemon) => return Ok(daemon),
                Err(status) => status,
            };
            let log = std::fs::read_to_string(site.path("daemon.log")).expect("its log");
            let last = log.lines().last().unwrap_or_default();
            if !is_locked(last) || start.elapsed() >= LOCK_PATIENCE {
                return Err(format!("{status}: {last}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until its doors are open, or it ends.
    fn until_ready(mut self) -> Result<Daemon, ExitStatus> {
        let (send, lines) = mpsc::channel();
        let stdout = self.child.stdout.take().expect("it is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let start = Instant::now();
        loop {
            match lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(line) if line.starts_with("ready") => {
                    self.ready = line;
                    return Ok(self);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.wait()),
                Err(RecvTimeoutError::Timeout) => panic!("no ready line within {PATIENCE:?}"),
            }
        }
    }

    /// Starts the daemon and does not wait: it may be killed while it recovers.
    pub fn spawn(site: &Site, cache: &str, options: &[&str]) -> Daemon {
        let log = File::options().create(true).append(true).open(site.path("daemon.log")).expect("a log");
        let socket = site.path("door");
        // SIGXFSZ is ignored so that a limit on the file size (see `limit_file_size`) is an error of
        // the device, not the end of the daemon.
        let child = site
            .command("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "sh",
                "-c",
                "trap '' XFSZ; exec \"$@\"",
                "sh",
                env!("CARGO_BIN_EXE_forebay"),
            ])
            .args(["serve", cache, "--nbd", &format!("unix:{socket}")])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("setpriv starts");
        let mut status = site.command("timeout");
        status.args(["10", env!("CARGO_BIN_EXE_forebay"), "status", cache, "--json"]);
        Daemon { child, socket, ready: String::new(), status }
    }

    /// The line it printed when its doors opened.
    pub fn ready(&self) -> &str {
        &self.ready
    }

    /// Its NBD socket.
    pub fn socket(&self) -> &Path {
        Path::new(&self.socket)
    }

    /// The NBD URI of an export.
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket)
    }

    /// Ends the process at once, as `kill -9` does, and leaves the devices alone.
    pub fn kill(self) {
        self.kill_and(|| {});
    }

    /// The same; `meanwhile` ends what its last operations may wait for.
    pub fn kill_and(mut self, meanwhile: impl FnOnce()) {
        self.child.kill().expect("it runs");
        meanwhile();
        let status = self.wait();
        assert_eq!(status.signal(), Some(9), "it ended by itself: {status}");
    }

    /// Loses what the modelled devices have not flushed, as a power cut does.
    pub fn cut_power(mut self) {
        self.signal("USR1");
        let status = self.wait();
        assert!(!status.success(), "a power cut is no clean end");
    }

    /// Stops it cleanly.
    pub fn stop(self) {
        let status = self.stop_and(|| {});
        assert!(status.success(), "the daemon ended with {status}");
    }

    /// Asks it for a clean stop, and waits for the end, which devices that fail may spoil.
    pub fn stop_and(mut self, meanwhile: impl FnOnce()) -> ExitStatus {
        self.signal("TERM");
        meanwhile();
        self.wait()
    }

    /// Makes every write of the daemon past this size of any file fail; `None` ends that.
    pub fn limit_file_size(&self, bytes: Option<u64>) {
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        // Only the soft limit, so that it can be lifted again.
        tool("prlimit", &["--pid", &self.child.id().to_string(), &format!("--fsize={limit}:")]);
    }

    /// Stops all its threads where they are.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it run again.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    /// Asks it to read again what it can.
    pub fn reload(&self) {
        self.signal("HUP");
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill`: no package has to bring one.
        tool("sh", &["-c", &format!("kill -{name} {}", self.child.id())]);
    }

    fn wait(&mut self) -> ExitStatus {
        end_of(&mut self.child).unwrap_or_else(|| {
            let status =
                self.status.output().map_or_else(|error| error.to_string(), |said| text(&said.stdout));
            panic!("the daemon does not end; its status: {status}")
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already in most tests. In a failed one a device may hold it.
        let _ = self.child.kill();
        end_of(&mut self.child);
    }
}

/// Waits for the end of a child; `None` if it does not come within the patience of the tests.
pub fn end_of(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// Runs a program that must work within two minutes; its standard output.
pub fn tool(program: &str, arguments: &[&str]) -> String {
    let output = try_tool(program, arguments);
    let both = || text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{}", output.status, both());
    text(&output.stdout)
}

/// Runs a program for two minutes at the most.
pub fn try_tool(program: &str, arguments: &[&str]) -> Output {
    // /usr/sbin is not in the path of everybody who may run these programs. The new path is set by `env`: for a command with a path
    // of its own the process of the tests would be forked, which copies the page tables of all that they remember.
    let path = format!("PATH={}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    finish(Command::new("env").args([&path, "timeout", "--kill-after=5", "120", program]).args(arguments))
}

/// Where two files differ first, if they do; the second may be longer.
pub fn first_difference(one: &str, other: &str) -> Option<u64> {
    let mut one = File::open(one).expect("the first file");
    let mut other = File::open(other).expect("the second file");
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut offset = 0;
    loop {
        let length = one.read(&mut left).expect("it can be read");
        if length == 0 {
            return None;
        }
        other.read_exact(&mut right[..length]).expect("the second file is as long as the first");
        if let Some(at) = (0..length).find(|&at| left[at] != right[at]) {
            return Some(offset + at as u64);
        }
        offset += length as u64;
    }
}

/// Whether that is the refusal to touch what another process has locked, or a block device that it has claimed:
/// both last until the last operation of a killed daemon has ended.
fn is_locked(message: &str) -> bool {
    message.contains("its lock is taken") || message.contains("claimed by the system")
}

fn finish(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
