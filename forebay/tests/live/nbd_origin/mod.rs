//! Origins behind NBD servers: they go away, come back, grow, shrink, and come back as others.

pub mod bucket;
pub mod cluster;
mod identity;
mod kills;
mod ordeal;
mod recipe;
mod refused;
mod scripts;
pub mod server;
mod tls;
mod troubles;

use crate::daemon::{Daemon, Site, first_difference, tool};
use engine::effect::Errno;
use live::nbd::client::{Address, Client};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use server::Server;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;

fn create(site: &Site, origin: &str, cache_bytes: u64, more: &[&str]) -> String {
    let cache = site.file("cache", cache_bytes);
    let create = ["create", "--origin", origin, "--cache", &cache, "--name", "disk"];
    site.run(&[&create[..], more].concat());
    cache
}

fn connect(daemon: &Daemon) -> Client {
    let mut client = Client::connect(&Address::from(daemon.socket()), "disk").expect("the daemon is ready");
    client.receiver().set_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    client
}

fn volume(site: &Site, cache: &str) -> Value {
    site.report(&["status", cache])["volumes"][0].clone()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the notes beside the cache have a loss of which no FLUSH has told.
fn is_loss_noted(site: &Site) -> bool {
    let files = std::fs::read_dir(site.path("state")).expect("the state directory");
    let mut paths = files.map(|file| file.expect("a name").path());
    paths.any(|path| {
        path.extension().is_some_and(|kind| kind == "toml")
            && std::fs::read_to_string(path).expect("notes").contains("untold")
    })
}

/// A volume as clients should see it.
struct Known {
    bytes: Vec<u8>,
    draw: Xoshiro256PlusPlus,
}

impl Known {
    fn new(size_bytes: u64) -> Known {
        Known { bytes: vec![0; size_bytes as usize], draw: Xoshiro256PlusPlus::seed_from_u64(20) }
    }

    fn of_file(path: &str) -> Known {
        Known { bytes: std::fs::read(path).expect("the file"), ..Known::new(0) }
    }

    /// Writes pieces at random places, and says where.
    fn write(&mut self, client: &mut Client, pieces: usize) -> Vec<u64> {
        let places = self.bytes.len() as u64 / PIECE;
        let places: Vec<u64> = (0..pieces).map(|_| self.draw.random_range(0..places) * PIECE).collect();
        for &at in &places {
            let data: Vec<u8> = (0..PIECE).map(|_| self.draw.random::<u8>()).collect();
            self.bytes[at as usize..][..PIECE as usize].copy_from_slice(&data);
            client.write(at, &data).expect("the daemon answers").expect("the cache takes it");
        }
        places
    }

    /// Writes these pieces again as they are.
    fn write_again(&self, client: &mut Client, places: &[u64]) {
        for &at in places {
            let data = &self.bytes[at as usize..][..PIECE as usize];
            client.write(at, data).expect("the daemon answers").expect("the cache takes it");
        }
    }

    /// Compares all that clients can read.
    fn compare(&self, client: &mut Client) {
        for at in (0..self.bytes.len()).step_by(MIB as usize) {
            let data =
                client.read(at as u64, MIB as u32).expect("the daemon answers").expect("it can be read");
            assert!(
                data == self.bytes[at..at + MIB as usize],
                "MiB {} is as it was written",
                at as u64 / MIB
            );
        }
    }

    fn compare_file(&self, path: &str) {
        let found = std::fs::read(path).expect("the origin's file");
        assert_eq!(found.len(), self.bytes.len());
        let difference = found.iter().zip(&self.bytes).position(|(found, known)| found != known);
        assert_eq!(difference, None, "the origin has all that was written");
    }
}

/// A server that is there, and whose disk takes longer to answer than a server takes to shake hands, as a cluster does
/// that has lost a node.
#[test]
fn a_disk_that_answers_late_is_waited_for() {
    let site = Site::new("origin-late");
    let late = site.path("late");
    let flush = format!("flush=if rm {late}; then sleep 7; fi 2>/dev/null");
    let eval = ["eval", "get_size=echo 32M", "pread=head -c $3 /dev/zero", "pwrite=cat >/dev/null"];
    let more = ["can_write=exit 0", "can_flush=exit 0", &flush];
    let server = Server::nbdkit(&site, "origin", &[&eval[..], &more].concat());
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    std::fs::write(&late, "").expect("a file");
    let daemon = Daemon::start(&site, &cache, &[]);
    assert!(!std::path::Path::new(&late).exists(), "the start flushed its origin, and waited");
    let said = std::fs::read_to_string(site.path("daemon.log")).expect("a log");
    let waits = said.lines().filter(|line| line.contains("waiting for") && line.contains("takes long"));
    assert_eq!(waits.count(), 1, "{said}");
    daemon.stop();
}

/// Each kind of server: a file goes in, through a cache that is smaller, and is at the origin when it is detached.
#[test]
fn servers_that_others_wrote_are_origins() {
    let size_bytes = 96 * MIB;
    type Serve = fn(&Site, &str, &str) -> Server;
    let kinds: [(&str, Serve); 3] =
        [("nbdkit", Server::file), ("forgetful", Server::forgetful), ("qemu-nbd", Server::qemu)];
    for (kind, serve) in kinds {
        let site = Site::new(&format!("origin-{kind}"));
        let input = site.noise("input", size_bytes, 3);
        let image = site.file("image", size_bytes);
        let server = serve(&site, "origin", &image);
        let cache = create(&site, &server.uri(), 64 * MIB, &[]);
        let daemon = Daemon::start(&site, &cache, &[]);
        assert_eq!(volume(&site, &cache)["origin"], server.uri());
        tool("nbdcopy", &["--flush", &input, &daemon.uri("disk")]);
        let output = site.path("output");
        tool("nbdcopy", &[&daemon.uri("disk"), &output]);
        assert_eq!(first_difference(&input, &output), None, "{kind}: read as it was written");
        site.run(&["detach", &cache, "--verify"]);
        daemon.stop();
        drop(server);
        assert_eq!(first_difference(&input, &image), None, "{kind}: it is at home");
    }
}

/// A cache in front of a cache: the door serves the device.
#[test]
fn another_forebay_is_an_origin() {
    let (far, near) = (Site::new("far"), Site::new("near"));
    let image = far.file("image", 64 * MIB);
    let far_cache = create(&far, &image, 32 * MIB, &[]);
    let far_daemon = Daemon::start(&far, &far_cache, &[]);
    let cache = create(&near, &far_daemon.uri("disk"), 32 * MIB, &[]);
    let daemon = Daemon::start(&near, &cache, &[]);
    let mut known = Known::new(64 * MIB);
    let mut client = connect(&daemon);
    known.write(&mut client, 300);
    known.compare(&mut client);
    near.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    far.run(&["detach", &far_cache, "--verify"]);
    far_daemon.stop();
    known.compare_file(&image);
}

/// Blocks that clients wrote at the origin alone.
fn blocks_around(site: &Site, cache: &str) -> u64 {
    let stats = site.report(&["stats", cache]);
    let reasons = stats["volumes"][0]["bypasses"]["writes"].as_object().expect("counts").values();
    reasons.map(|blocks| blocks.as_u64().expect("a count")).sum()
}

/// The server dies under load, with all that it acknowledged and did not flush. Nothing that the cache took is lost. What went
/// around a full cache may be: then a FLUSH fails, and only then, and its client writes again what it does not know to be durable.
#[test]
fn a_server_that_dies_loses_nothing() {
    let site = Site::new("origin-dies");
    let image = site.file("image", 48 * MIB);
    let mut server = Server::forgetful(&site, "origin", &image);
    // Smaller than what is written: much goes home on the way.
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut known = Known::new(48 * MIB);
    let mut client = connect(&daemon);
    let mut around = 0;
    for life in 0..5 {
        let mut places = known.write(&mut client, 150);
        server.kill();
        std::thread::sleep(Duration::from_millis(40 * life));
        server.again();
        places.extend(known.write(&mut client, 50));
        let mut failed_flushes = 0;
        while let Err(errno) = client.flush().expect("the daemon answers") {
            failed_flushes += 1;
            let is_explained = blocks_around(&site, &cache) > around && failed_flushes <= 2;
            assert!(is_explained, "{failed_flushes} FLUSHes of life {life} failed: {errno:?}");
            known.write_again(&mut client, &places);
        }
        around = blocks_around(&site, &cache);
    }
    known.compare(&mut client);
    let away = site.wait_for_status(&cache, "the origin is back", |status| {
        status["volumes"][0]["origin_away_seconds"].is_null()
    });
    assert_eq!(away["volumes"][0]["lost_bytes"], 0);
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    drop(server);
    known.compare_file(&image);
}

/// The server dies with what went around the cache, and the flush that tells of it is one that no client asked for: it brings
/// home what is left before another device takes the cache's place. The clients stay, and the next FLUSH of one fails.
#[test]
fn what_a_server_lost_before_a_replacement_is_told() {
    let site = Site::new("origin-dies-before");
    let image = site.file("image", 48 * MIB);
    let mut server = Server::forgetful(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 64 * MIB, &["--mode", "writearound"]);
    let other = site.file("other", 64 * MIB);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut known = Known::new(48 * MIB);
    let mut client = connect(&daemon);
    let places = known.write(&mut client, 20);
    server.kill();
    server.again();
    site.run(&["replace", &cache, &other]);
    client.flush().expect("the daemon answers").expect_err("writes were lost, and nobody was told");
    known.write_again(&mut client, &places);
    client.flush().expect("the daemon answers").expect("the server lives");
    known.compare(&mut client);
    site.run(&["detach", &other, "--verify"]);
    daemon.stop();
    drop(server);
    known.compare_file(&image);
}

/// The server dies with what went around the cache, and so does the daemon before a client asks for a FLUSH. A client may not have
/// noticed: the first FLUSH of the next daemon fails, once, and is forgotten when that was told.
#[test]
fn what_a_server_lost_before_a_kill_is_told() {
    let site = Site::new("origin-and-daemon-die");
    let image = site.file("image", 48 * MIB);
    let mut server = Server::forgetful(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &["--mode", "writearound"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut known = Known::new(48 * MIB);
    let mut client = connect(&daemon);
    let places = known.write(&mut client, 20);
    server.kill();
    server.again();
    wait_until("the loss is noted", || is_loss_noted(&site));
    daemon.kill();
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon);
    client.flush().expect("the daemon answers").expect_err("writes were lost, and nobody was told");
    known.write_again(&mut client, &places);
    client.flush().expect("the daemon answers").expect("the server lives");
    wait_until("the loss is told", || !is_loss_noted(&site));
    daemon.kill();
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon);
    client.flush().expect("the daemon answers").expect("all was told");
    known.compare(&mut client);
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    known.compare_file(&image);
}

/// The same, and the cache is missing at the next start.
#[test]
fn what_a_server_lost_is_told_without_the_cache() {
    let site = Site::new("origin-and-cache-go");
    let image = site.file("image", 48 * MIB);
    let mut server = Server::forgetful(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &["--mode", "writearound"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let places = Known::new(48 * MIB).write(&mut connect(&daemon), 20);
    server.kill();
    server.again();
    wait_until("the loss is noted", || is_loss_noted(&site));
    daemon.kill();
    std::fs::rename(&cache, site.path("elsewhere")).expect("the cache goes");
    let daemon = Daemon::start(&site, &cache, &["--uncached"]);
    let mut client = connect(&daemon);
    client.flush().expect("the daemon answers").expect_err("writes were lost, and nobody was told");
    client.flush().expect("the daemon answers").expect("it was told");
    wait_until("the loss is told", || !is_loss_noted(&site));
    // The next loss is one of this daemon's.
    client.write(places[0], &[1; 4096]).expect("the daemon answers").expect("the server takes it");
    server.kill();
    server.again();
    wait_until("the loss is noted", || is_loss_noted(&site));
    client.flush().expect("the daemon answers").expect_err("the server lost it");
    client.flush().expect("the daemon answers").expect("it was told");
    daemon.stop();
    assert!(!is_loss_noted(&site), "a clean stop takes the note away");
}

/// The daemon dies, the server lives on.
#[test]
fn a_daemon_that_dies_finds_its_origin_again() {
    let site = Site::new("daemon-dies");
    let image = site.file("image", 48 * MIB);
    let mut server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let mut known = Known::new(48 * MIB);
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(100));
        server.revive();
        let daemon = Daemon::start(&site, &cache, &[]);
        let mut client = connect(&daemon);
        known.compare(&mut client);
        known.write(&mut client, 200);
        daemon.kill();
    }
    std::thread::sleep(Duration::from_millis(100));
    server.revive();
    let daemon = Daemon::start(&site, &cache, &[]);
    known.compare(&mut connect(&daemon));
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    known.compare_file(&image);
}

/// Two reactors ask an export in turns, one for little and one for much: each reply is heard by one of them.
#[test]
fn replies_are_heard_whoever_asks() {
    let site = Site::new("origin-turns");
    let image = site.noise("image", 64 * MIB, 9);
    let server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &["--threads", "2"]);
    let content = std::fs::read(&image).expect("the image");
    let mut clients = [connect(&daemon), connect(&daemon)];
    for turn in 0..60 {
        for (who, offset_bytes, len_bytes) in
            [(0, 0, 4096), (1, 256 << 10, 128 << 10), (1, 512 << 10, 128 << 10)]
        {
            let offset_bytes = turn * MIB + offset_bytes;
            let found = clients[who].read(offset_bytes, len_bytes).expect("the daemon answers");
            let wanted = &content[offset_bytes as usize..][..len_bytes as usize];
            assert!(found.expect("the origin has it") == wanted, "turn {turn}");
        }
    }
    daemon.stop();
}

/// While the server is away the cache goes on; what needs the origin waits, and fails in the end.
#[test]
fn the_cache_goes_on_while_the_origin_is_away() {
    let site = Site::new("origin-away");
    let image = site.noise("image", 64 * MIB, 8);
    let mut server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 64 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon);
    client.write(0, &[1; 4096]).expect("the daemon answers").expect("the cache takes it");
    // The origin was flushed at the start: if that failed, the next flush of a client would say so.
    client.flush().expect("the daemon answers").expect("the origin is there");
    server.kill();
    let status = site.wait_for_status(&cache, "the origin is away", |status| {
        status["volumes"][0]["origin_away_seconds"].is_number()
    });
    let because = status["volumes"][0]["origin_away_because"].as_str().expect("a reason").to_owned();
    assert!(because.contains("closed") || because.contains("reached"), "{because}");
    assert!(site.run(&["status", &cache]).contains("AWAY"));
    assert_eq!(client.read(0, 4096).expect("the daemon answers"), Ok(vec![1; 4096]), "it is cached");
    for piece in 0..50 {
        let written = client.write(piece * PIECE, &[2; PIECE as usize]).expect("the daemon answers");
        assert_eq!(written, Ok(()), "the cache has room");
    }
    client.flush().expect("the daemon answers").expect("the cache makes it durable");
    let began = Instant::now();
    assert_eq!(client.read(48 * MIB, 4096).expect("the daemon answers"), Err(Errno::IO));
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(5) && waited < Duration::from_secs(20), "{waited:?}");
    let began = Instant::now();
    assert_eq!(client.read(48 * MIB, 4096).expect("the daemon answers"), Err(Errno::IO));
    assert!(began.elapsed() < Duration::from_secs(1), "everybody knows by now");
    server.again();
    site.wait_for_status(&cache, "the origin is back", |status| {
        status["volumes"][0]["origin_away_seconds"].is_null()
    });
    assert!(client.read(48 * MIB, 4096).expect("the daemon answers").is_ok());
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    drop(server);
    let image = std::fs::read(&image).expect("the image");
    assert!(image[..50 * PIECE as usize].iter().all(|&byte| byte == 2), "it came home");
}

/// A disk that grows at its server: the volume grows when it is told to, and nothing notices the new connection.
#[test]
fn an_origin_that_has_grown_is_taken_over() {
    let site = Site::new("origin-grows");
    let image = site.file("image", 32 * MIB);
    let server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon);
    client.write(0, &[1; 4096]).expect("the daemon answers").expect("the cache takes it");
    assert!(site.refused(&["set", &cache, "disk", "size=origin"]).contains("already"));
    std::fs::File::options().write(true).open(&image).unwrap().set_len(48 * MIB).unwrap();
    site.run(&["set", &cache, "disk", "size=origin"]);
    assert_eq!(volume(&site, &cache)["size_bytes"], 48 * MIB);
    let mut client = connect(&daemon);
    client.write(40 * MIB, &[2; 4096]).expect("the daemon answers").expect("the cache takes it");
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    let image = std::fs::read(&image).expect("the image");
    assert_eq!((image[0], image[40 * MIB as usize]), (1, 2));
}
