//! What a volume with a real cluster or bucket behind it goes through: load, deaths, and the way home.

use super::server::Server;
use super::troubles::Troubles;
use crate::daemon::{Daemon, Site, first_difference, tool};
use crate::verifier::{Crash, Load, Verifier};
use live::nbd::client::{Address, Client};
use std::process::Command;
use std::time::Duration;

const CONNECTIONS: usize = 2;

/// A volume called `disk`, its server, and what clients know of it.
pub struct Ordeal<'site> {
    site: &'site Site,
    cache: String,
    server: Server,
    verifier: Verifier,
    troubles: Troubles,
    depth: usize,
    known_bytes: u64,
    size_bytes: u64,
}

/// Somebody at the server while clients are at work.
pub struct Operator<'o> {
    server: &'o mut Server,
    troubles: &'o Troubles,
}

impl Operator<'_> {
    /// The server dies and comes back.
    pub fn restart_server(&mut self) {
        self.troubles.dies();
        self.server.kill();
        self.server.again();
    }
}

impl<'site> Ordeal<'site> {
    /// Makes a cache in front of the server. Of the volume the last quarter is fio's, the rest the verifier's.
    pub fn new(
        site: &'site Site,
        server: Server,
        cache_bytes: u64,
        size_bytes: u64,
        depth: usize,
    ) -> Ordeal<'site> {
        let cache = site.file("cache", cache_bytes);
        site.run(&["create", "--origin", &server.uri(), "--cache", &cache, "--name", "disk"]);
        let known_bytes = size_bytes / 4 * 3;
        let verifier = Verifier::new(20, known_bytes);
        let troubles = Troubles::default();
        Ordeal { site, cache, server, verifier, troubles, depth, known_bytes, size_bytes }
    }

    fn start(&self) -> Daemon {
        // What a cluster waits for is no failure.
        Daemon::start(self.site, &self.cache, &["--device-timeout", "120"])
    }

    /// Starts the daemon and reads everything.
    fn begin(&mut self) -> Daemon {
        // It ends soon after its client, if it does.
        std::thread::sleep(Duration::from_millis(100));
        self.server.revive();
        let daemon = self.start();
        self.troubles.restart();
        self.verifier
            .verify_all(&mut connect(&daemon))
            .unwrap_or_else(|wrong| panic!("after a start: {wrong}"));
        daemon
    }

    /// A life under load, with something done to the origin, until the daemon is killed.
    pub fn live(&mut self, life: Duration, deed: impl FnOnce(&mut Operator<'_>)) {
        let daemon = self.begin();
        let mut lanes: Vec<Client> = (0..CONNECTIONS).map(|_| connect(&daemon)).collect();
        let Ordeal { server, verifier, troubles, depth, .. } = self;
        let progress = std::thread::scope(|scope| {
            let load = Load::mixed(u64::MAX, *depth);
            let troubles = &*troubles;
            let load = scope.spawn(move || verifier.run_on_faulty_devices(&mut lanes, &load, troubles));
            std::thread::sleep(life / 2);
            deed(&mut Operator { server, troubles });
            std::thread::sleep(life / 2);
            daemon.kill();
            load.join().expect("the load does not panic")
        });
        let progress = progress.unwrap_or_else(|wrong| panic!("under load: {wrong}"));
        println!("{progress:?}");
        assert!(progress.reads > 0 && progress.changes > 0, "clients were at work");
        self.verifier.after_crash(Crash::Process);
    }

    /// fio writes at random places of its part and reads all of it again, while something is done to the origin.
    pub fn fio(&mut self, deed: impl FnOnce(&mut Operator<'_>)) {
        let daemon = self.begin();
        let (offset, size) = (self.known_bytes, self.size_bytes - self.known_bytes);
        let fio = Command::new("timeout")
            .args(["300", "fio", "--name=verified", "--ioengine=nbd", "--rw=randwrite", "--bsrange=4k-64k"])
            .args([
                "--iodepth=8",
                "--verify=crc32c",
                "--do_verify=1",
                "--verify_state_save=0",
                "--randseed=7",
                "--output-format=terse",
            ])
            .args([
                format!("--uri={}", daemon.uri("disk")),
                format!("--offset={offset}"),
                format!("--size={size}"),
            ])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("timeout starts");
        std::thread::sleep(Duration::from_millis(300));
        deed(&mut Operator { server: &mut self.server, troubles: &self.troubles });
        let output = fio.wait_with_output().expect("it is our child");
        let told = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "fio: {}: {}", output.status, String::from_utf8_lossy(&told));
        daemon.kill();
        self.verifier.after_crash(Crash::Process);
    }

    /// Takes the volume off the cache. `content` reads the origin without Forebay and its server: it must be what clients
    /// saw.
    pub fn come_home(mut self, content: impl FnOnce() -> String) {
        let daemon = self.begin();
        let view = self.site.path("view");
        tool("nbdcopy", &[&daemon.uri("disk"), &view]);
        self.site.run(&["detach", &self.cache, "--verify"]);
        daemon.stop();
        self.server.kill();
        let content = content();
        assert_eq!(first_difference(&view, &content), None, "the origin is what clients saw");
        self.verifier.after_crash(Crash::Process);
        let home = std::fs::read(&content).expect("the content");
        assert_eq!(home.len() as u64, self.size_bytes);
        self.verifier.verify_home(&home).unwrap_or_else(|wrong| panic!("the origin alone: {wrong}"));
    }
}

fn connect(daemon: &Daemon) -> Client {
    Client::connect(&Address::from(daemon.socket()), "disk").expect("the doors are open")
}
