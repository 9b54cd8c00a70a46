//! Goal: the journal gets messages with fields, and one that takes none holds up nobody. Method: a socket in the
//! journal's place, read and not read.

use crate::scene::{Place, Scene};
use live::nbd::client::{Address, Client};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A socket in the place of the journal's, and a file that stands for its stream.
struct Journal {
    socket: UnixDatagram,
    stream: File,
}

impl Journal {
    fn new(place: &Place) -> Journal {
        let socket = UnixDatagram::bind(place.path("journal.sock")).expect("a socket for the test");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Journal { socket, stream: File::create(place.path("stream")).expect("a file for the test") }
    }

    /// The command, with standard error in the journal.
    fn command(&self, place: &Place, arguments: &[&str]) -> Command {
        let found = self.stream.metadata().expect("it is there");
        let mut command = place.command(arguments);
        command
            .env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino()))
            .env("FOREBAY_JOURNAL_SOCKET", place.path("journal.sock"))
            .stderr(self.stream.try_clone().expect("a file"));
        command
    }

    /// The fields of the next message.
    fn next(&self) -> Vec<String> {
        let mut bytes = [0; 8192];
        let count = self.socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..count]).lines().map(str::to_owned).collect()
    }
}

fn start(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the daemon starts");
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("it is a pipe");
    BufReader::new(stdout).read_line(&mut ready).expect("it speaks or ends");
    assert!(ready.starts_with("ready "), "{ready}");
    child
}

fn stop(mut child: Child) {
    let stopped = Command::new("kill").arg(child.id().to_string()).status().expect("kill exists");
    assert!(stopped.success() && child.wait().expect("it was started").success());
}

#[test]
fn events_have_fields() {
    let scene = Scene::new(64 << 20, &["--profile", "flashcache", "--unsafe"]);
    let journal = Journal::new(&scene.place);
    let daemon = start(journal.command(&scene.place, &["serve", &scene.cache]));
    let fields = journal.next();
    assert!(fields[0].starts_with("MESSAGE=[F16] WARNING: profile flashcache"), "{fields:?}");
    assert_eq!(fields[1..], ["PRIORITY=4", "SYSLOG_IDENTIFIER=forebay", "FOREBAY_EVENT=F16"]);
    // What is said of a volume names it.
    let door = Address::Unix(scene.place.path("run/disk.nbd"));
    let mut client = Client::connect(&door, "disk").expect("it is served");
    client.write(0, &[1; 4096]).expect("it is connected").expect("it is taken");
    scene.place.done(&["set", &scene.cache, "mode=writethrough"]);
    let fields = journal.next();
    assert!(fields[0].starts_with("MESSAGE=[F08] volume disk"), "{fields:?}");
    assert!(fields.contains(&"FOREBAY_VOLUME=disk".to_owned()), "{fields:?}");
    stop(daemon);
    // The reason of a failed start is an error without an id.
    let serve = ["serve", &scene.cache, "--profile", "bcache"];
    assert!(!journal.command(&scene.place, &serve).status().expect("it starts").success());
    let fields = journal.next();
    assert!(fields[0].contains("was created with profile flashcache"), "{fields:?}");
    assert_eq!(fields[1..], ["PRIORITY=3", "SYSLOG_IDENTIFIER=forebay"]);
    assert_eq!(journal.stream.metadata().expect("it is there").len(), 0, "nothing is said twice");
}

/// A journal that is full, because its disk is or it hangs: the daemon starts, works and stops as ever.
#[test]
fn a_journal_that_takes_nothing_holds_up_nobody() {
    let scene = Scene::new(64 << 20, &["--profile", "flashcache", "--unsafe"]);
    let journal = Journal::new(&scene.place);
    let filler = UnixDatagram::unbound().expect("a socket for the test");
    filler.set_nonblocking(true).expect("a socket");
    while filler.send_to(b"full", scene.place.path("journal.sock")).is_ok() {}
    let daemon = start(journal.command(&scene.place, &["serve", &scene.cache]));
    for mode in ["mode=writethrough", "mode=writeback"].repeat(3) {
        scene.place.done(&["set", &scene.cache, mode]);
    }
    assert_eq!(scene.status()["running"], true);
    stop(daemon);
}
