//! Devices that hang, and a daemon that is stopped itself.
//!
//! Goal: a device that hangs holds up no other one, however many operations wait for it; a daemon that was stopped for a
//! while blames no device for that. Method: a FUSE file, or a block device over one, whose server is stopped; an origin
//! and a cache beside it that are sound.

use crate::daemon::{Daemon, Site};
use crate::fuse::{self, FaultyDisk, LoopDevice};
use engine::effect::Errno;
use live::nbd::client::{Address, Client};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// More than the kernel's threads, a queue of a block device, and the requests that FUSE takes.
const OPERATIONS: u64 = 200;
/// The byte that fills the origin that hangs.
const FILL: u8 = 0x5a;
const TIMEOUT: Duration = Duration::from_secs(3);

fn connect(daemon: &Daemon, export: &str) -> Client {
    let mut client = Client::connect(&Address::from(daemon.socket()), export).expect("the daemon is ready");
    client.receiver().set_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    client
}

fn start(site: &Site, cache: &str, threads: &str) -> Daemon {
    let timeout = TIMEOUT.as_secs().to_string();
    Daemon::start(site, cache, &["--device-timeout", &timeout, "--threads", threads])
}

/// Serves the origin that hangs beside a sound one. `origin` is `hanging`, or stands on it.
fn hangs_alone(site: &Site, hanging: &FaultyDisk, origin: &str) {
    std::fs::write(site.path("hanging.img"), vec![FILL; 64 * MIB as usize]).expect("the origin's image");
    let sound = FaultyDisk::new(site, "sound", 64 * MIB);
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", origin, "--cache", &cache, "--name", "hanging"]);
    site.run(&["add", &cache, "--origin", sound.path(), "--name", "sound"]);
    let daemon = start(site, &cache, "1");
    let (mut one, mut other) = (connect(&daemon, "hanging"), connect(&daemon, "sound"));
    hanging.hang();
    for number in 0..OPERATIONS {
        // Behind the origin's start, which `create` has read: a block device over a file may have that in memory.
        one.sender().send_read(number, MIB + number * 128 * 1024, 4096).expect("the daemon takes it");
    }
    let start = Instant::now();
    let mut answers = Vec::new();
    for mebibyte in 0..8 {
        answers.push(other.read(mebibyte * MIB, 4096).expect("the daemon answers").map(|_| ()));
        answers.push(other.write((32 + mebibyte) * MIB, &[7; 4096]).expect("the daemon answers"));
        answers.push(other.flush().expect("the daemon answers"));
    }
    let took = start.elapsed();
    let replies: Vec<_> = (0..OPERATIONS).map(|_| one.receive().expect("the daemon answers")).collect();
    let (refused, answered): (Vec<_>, Vec<_>) =
        replies.iter().partition(|reply| reply.result == Err(Errno::IO));
    let status = site.report(&["status", &cache]);
    // The daemon cannot even be killed while a device hangs, so that nothing is judged before it goes on.
    hanging.go_on();
    assert_eq!(answers, [Ok(()); 24], "the cache and the other origin are sound");
    assert!(took < TIMEOUT, "nothing waits for the origin that hangs: {took:?}");
    // The kernel may have had a few of a block device's in memory.
    assert!(refused.len() > replies.len() / 4 * 3, "{} operations that hang are given up", refused.len());
    for reply in answered {
        assert_eq!(reply.result, Ok(()), "what is not given up is answered");
        assert!(reply.data.iter().all(|&byte| byte == FILL), "what is answered is what the origin holds");
    }
    assert_eq!(status["cache"]["latched"], false, "the cache is sound: {status}");
    assert_eq!(status["volumes"][1]["state"], "active", "the other origin is sound: {status}");
    drop((one, other));
    daemon.stop();
}

#[test]
fn a_file_that_hangs_holds_up_no_other_device() {
    if fuse::is_left_out("the test of a file that hangs beside others") {
        return;
    }
    let site = Site::new("hangs-alone");
    let hanging = FaultyDisk::new(&site, "hanging", 64 * MIB);
    hangs_alone(&site, &hanging, hanging.path());
}

#[test]
fn a_file_that_hangs_holds_up_no_other_device_without_io_uring() {
    if fuse::is_left_out("the test of a file that hangs beside others") {
        return;
    }
    let site = Site::new("hangs-alone-threads").with("FOREBAY_NO_IO_URING", "1");
    let hanging = FaultyDisk::new(&site, "hanging", 64 * MIB);
    hangs_alone(&site, &hanging, hanging.path());
}

#[test]
fn a_block_device_that_hangs_holds_up_no_other_device() {
    if fuse::is_left_out("the test of a block device that hangs beside others") {
        return;
    }
    let site = Site::new("hangs-alone-block");
    let hanging = FaultyDisk::new(&site, "hanging", 64 * MIB);
    let block_device = LoopDevice::over(hanging.path());
    hangs_alone(&site, &hanging, block_device.path());
}

/// The devices answer while the daemon is stopped for longer than they may take: it takes the answers.
fn is_stopped_itself(site: &Site) {
    let origin = FaultyDisk::new(site, "origin", 64 * MIB);
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", origin.path(), "--cache", &cache, "--name", "disk"]);
    let daemon = start(site, &cache, "2");
    let mut clients = [connect(&daemon, "disk"), connect(&daemon, "disk")];
    origin.hang();
    for (client, half) in clients.iter_mut().zip(0..) {
        for number in 0..4 {
            let offset_bytes = half * 32 * MIB + number * MIB;
            client.sender().send_read(number, offset_bytes, 4096).expect("the daemon takes it");
        }
    }
    // Long enough that the operations have begun.
    std::thread::sleep(Duration::from_millis(300));
    daemon.pause();
    origin.go_on();
    std::thread::sleep(TIMEOUT + Duration::from_millis(500));
    daemon.go_on();
    for client in &mut clients {
        for _ in 0..4 {
            assert_eq!(client.receive().expect("the daemon answers").result, Ok(()), "the origin answered");
        }
    }
    assert_eq!(site.report(&["status", &cache])["volumes"][0]["state"], "active");
    drop(clients);
    daemon.stop();
    assert!(!site.last_words().contains("did not answer in time"), "{}", site.last_words());
}

#[test]
fn a_daemon_that_was_stopped_gives_up_no_device() {
    if !fuse::is_left_out("the test of a daemon that is stopped") {
        is_stopped_itself(&Site::new("stopped"));
    }
}

#[test]
fn a_daemon_that_was_stopped_gives_up_no_device_without_io_uring() {
    if !fuse::is_left_out("the test of a daemon that is stopped") {
        is_stopped_itself(&Site::new("stopped-threads").with("FOREBAY_NO_IO_URING", "1"));
    }
}
