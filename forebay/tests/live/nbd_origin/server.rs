//! Servers of NBD that others wrote, as origins: started, killed, started again at the same address.

use crate::daemon::{Site, end_of};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

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
        Server::start(socket.clone(), [&own[..], arguments].concat(), "")
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
        Server::start(socket.clone(), command.to_vec(), "disk")
    }

    fn start(socket: String, command: Vec<&str>, export: &str) -> Server {
        let command = command.into_iter().map(str::to_owned).collect();
        let mut server = Server { child: None, socket, command, export: export.to_owned() };
        server.again();
        server
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
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(&self.command)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv starts");
        self.child = Some(child);
        let start = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            assert!(start.elapsed() < PATIENCE, "{:?} does not listen", self.command);
            std::thread::sleep(Duration::from_millis(5));
        }
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
