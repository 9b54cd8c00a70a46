//! Servers of NBD that others wrote, as origins: started, killed, started again at the same address.

use crate::daemon::{Site, end_of};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a unix socket; killed when it goes.
pub struct Server {
    child: Option<Child>,
    socket: String,
    command: Vec<String>,
    export: String,
}

impl Server {
    /// nbdkit with these arguments behind its own.
    pub fn nbdkit(site: &Site, name: &str, arguments: &[&str]) -> Server {
        let socket = site.path(&format!("{name}.sock"));
        let own = ["nbdkit", "--foreground", "--exit-with-parent", "--unix", &socket];
        Server::start(&socket, &[&own[..], arguments].concat(), "")
    }

    /// nbdkit's file plugin.
    pub fn file(site: &Site, name: &str, image: &str) -> Server {
        Server::nbdkit(site, name, &["file", image])
    }

    /// A server that holds what it acknowledged in a cache of its own until a flush, and loses it when it dies.
    pub fn forgetful(site: &Site, name: &str, image: &str) -> Server {
        Server::nbdkit(site, name, &["--filter=cache", "file", image, "cache=writeback"])
    }

    /// qemu-nbd, which serves one client at a time.
    pub fn qemu(site: &Site, name: &str, image: &str) -> Server {
        let socket = site.path(&format!("{name}.sock"));
        let command =
            ["qemu-nbd", "--persistent", "--format=raw", "--export-name=disk", "--socket", &socket, image];
        Server::start(&socket, &command, "disk")
    }

    /// A command that serves on this socket.
    pub fn command(socket: &str, command: Vec<String>, export: &str) -> Server {
        let mut server =
            Server { child: None, socket: socket.to_owned(), command, export: export.to_owned() };
        server.again();
        server
    }

    fn start(socket: &str, command: &[&str], export: &str) -> Server {
        Server::command(socket, command.iter().map(|word| (*word).to_owned()).collect(), export)
    }

    /// Its socket.
    pub fn socket(&self) -> &str {
        &self.socket
    }

    /// The name of its export.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.export, self.socket)
    }

    /// Starts it again, after a kill.
    pub fn again(&mut self) {
        assert!(self.child.is_none(), "it was killed");
        let _ = std::fs::remove_file(&self.socket);
        let log = File::options().create(true).append(true).open(self.log()).expect("a log");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(&self.command)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("setpriv starts");
        self.child = Some(child);
        let start = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            assert!(start.elapsed() < PATIENCE, "{:?} does not listen: {}", self.command, self.last_words());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log(&self) -> String {
        format!("{}.log", self.socket)
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Starts it again if it has ended by itself, as nbdkit 1.32 does when a client is gone before its reply is sent: an
    /// assertion about the socket fails in its connections.c. Whether it had.
    pub fn revive(&mut self) -> bool {
        let ended = self.child.as_mut().expect("it was started").try_wait().expect("it is our child");
        if let Some(status) = ended {
            println!("{:?} has ended with {status}: {}", self.command, self.last_words());
            self.child = None;
            self.again();
        }
        ended.is_some()
    }

    /// Starts it again with another image, under the same name.
    pub fn again_with(&mut self, image: &str) {
        let last = self.command.iter().rposition(|word| word.starts_with('/')).expect("it serves a file");
        image.clone_into(&mut self.command[last]);
        self.again();
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it runs");
        end_of(&mut child).expect("a killed process ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
