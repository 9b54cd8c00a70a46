//! Devices that fail under a running daemon.
//!
//! Writes fail by a limit on the size of the daemon's files, reads by a file that gets shorter behind its
//! back, and whole devices by nbdkit's error filter under FUSE.

use crate::daemon::{Daemon, Site};
use crate::fuse::{self, FaultyDisk};
use engine::effect::Errno;
use live::nbd::client::{Address, Client};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn connect(daemon: &Daemon, export: &str) -> Client {
    let mut client = Client::connect(&Address::from(daemon.socket()), export).expect("the daemon is ready");
    client.receiver().set_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    client
}

fn write(client: &mut Client, offset_bytes: u64, fill: u8) -> Result<(), Errno> {
    client.write(offset_bytes, &vec![fill; MIB as usize]).expect("the daemon answers")
}

/// The byte that fills the MiB there.
fn read(client: &mut Client, offset_bytes: u64) -> Result<u8, Errno> {
    let data = client.read(offset_bytes, MIB as u32).expect("the daemon answers")?;
    assert!(data.iter().all(|&byte| byte == data[0]), "one write, one value");
    Ok(data[0])
}

/// Hazard 11: what the origin does not take stays dirty, is visible, and goes home when it can.
#[test]
fn an_origin_that_fails_writes_gets_them_later() {
    let site = Site::new("destage-fails");
    let origin = site.file("origin", 96 * MIB);
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    // The cache lies below the limit, and the end of the origin above it.
    daemon.limit_file_size(Some(80 * MIB));
    let mut client = connect(&daemon, "disk");
    for (number, mebibyte) in (84..92).enumerate() {
        write(&mut client, mebibyte * MIB, 1 + number as u8).expect("the cache takes it");
    }
    client.flush().expect("the daemon answers").expect("the cache can be flushed");
    let status = site.wait_for_status(&cache, "the origin fails", |status| {
        status["volumes"][0]["origin_errors"].as_u64().is_some_and(|errors| errors > 0)
    });
    assert_eq!(status["volumes"][0]["dirty_bytes"], 8 * MIB);
    for (number, mebibyte) in (84..92).enumerate() {
        assert_eq!(read(&mut client, mebibyte * MIB), Ok(1 + number as u8));
    }
    write(&mut client, 0, 9).expect("other places go on");
    assert_eq!(read(&mut client, 0), Ok(9));

    daemon.limit_file_size(None);
    site.run(&["flush", &cache]);
    let origin = std::fs::read(&origin).expect("the origin");
    for (number, mebibyte) in (84..92).enumerate() {
        let at = (mebibyte * MIB) as usize;
        assert!(origin[at..at + MIB as usize].iter().all(|&byte| byte == 1 + number as u8), "MiB {mebibyte}");
    }
    daemon.stop();
}

/// A client whose flushed MiB the origin, which ends at 80 MiB now, does not take: it fails.
fn beside_failing_origin(site: &Site, cache: &str, daemon: &Daemon) -> Client {
    daemon.limit_file_size(Some(80 * MIB));
    let mut client = connect(daemon, "disk");
    write(&mut client, 84 * MIB, 1).expect("the cache takes it");
    client.flush().expect("the daemon answers").expect("the cache can be flushed");
    site.wait_for_status(cache, "the origin fails", |status| {
        status["volumes"][0]["state"] == "origin-failing"
    });
    client
}

/// A mode that does not go with a change of order that waits is refused in words, and nothing is noted of it.
#[test]
fn a_mode_beside_an_order_that_waits_is_refused_in_words() {
    let site = Site::new("order-waits");
    let origin = site.file("origin", 96 * MIB);
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let client = beside_failing_origin(&site, &cache, &daemon);
    std::thread::scope(|scope| {
        let order = scope.spawn(|| site.try_run(&["set", &cache, "disk", "order=strict"]));
        std::thread::sleep(Duration::from_secs(2));
        assert!(!order.is_finished(), "it waits for the origin");
        let message = site.refused(&["set", &cache, "disk", "mode=readonly"]);
        assert!(message.contains("the order of volume disk is being changed"), "{message}");
        assert!(message.contains("set mode=readonly after that"), "{message}");
        daemon.limit_file_size(None);
        assert!(order.join().expect("it ends").status.success(), "the origin took everything");
    });
    site.run(&["set", &cache, "disk", "order=free", "mode=readonly"]);
    drop(client);
    daemon.stop();
}

/// A stop gives what waits for an origin that fails a few seconds, and no more: the origin would count as absent after 30 s
/// only.
#[test]
fn a_stop_does_not_wait_for_an_origin_that_fails() {
    let site = Site::new("stop-beside-waiting");
    let origin = site.file("origin", 160 * MIB);
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = beside_failing_origin(&site, &cache, &daemon);
    // More than the half of the cache that it may hold now, and less than the daemon has memory for.
    let writes = 40;
    for number in 0..writes {
        let data = vec![2; MIB as usize];
        client.sender().send_write(number, (90 + number) * MIB, &data, false).expect("the daemon takes it");
    }
    let began = Instant::now();
    let written =
        std::thread::spawn(move || (0..writes).map_while(|_| client.receive().ok()?.result.ok()).count());
    daemon.stop();
    let took = began.elapsed();
    let written = written.join().expect("the replies are read");
    assert!(written > 10 && written < 35, "{written} of {writes} were written, the others waited");
    assert!(took < Duration::from_secs(20), "nobody waits for the origin: {took:?}");
    site.run(&["detach", &cache, "--verify"]);
    assert_eq!(std::fs::read(&origin).expect("the origin")[(84 * MIB) as usize], 1, "it came home");
}

/// An origin that has lost its end gives errors there, and only there.
#[test]
fn a_read_that_the_origin_cannot_answer_is_an_error() {
    let site = Site::new("truncated");
    let origin = site.file("origin", 64 * MIB);
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    std::fs::File::options()
        .write(true)
        .open(&origin)
        .and_then(|file| file.set_len(32 * MIB))
        .expect("shorter");
    let mut client = connect(&daemon, "disk");
    assert_eq!(read(&mut client, 48 * MIB), Err(Errno::IO));
    assert_eq!(read(&mut client, 8 * MIB), Ok(0));
    drop(client);
    daemon.stop();
    let message = site.refused(&["serve", &cache, "--nbd", &format!("unix:{}", site.path("door"))]);
    assert_eq!(message.lines().filter(|line| line.starts_with("forebay: ")).count(), 1, "{message}");
}

/// A whole origin that fails gives its errors to the client, and is used again when it is back.
#[test]
fn an_origin_may_fail_and_come_back() {
    if fuse::is_left_out("the test of a failing origin") {
        return;
    }
    let site = Site::new("origin-fails");
    let origin = FaultyDisk::new(&site, "origin", 64 * MIB);
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", origin.path(), "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon, "disk");
    write(&mut client, 0, 1).expect("all is well");
    origin.fail();
    write(&mut client, MIB, 2).expect("the cache takes it");
    assert_eq!(read(&mut client, 0), Ok(1), "it is cached");
    assert_eq!(read(&mut client, MIB), Ok(2), "it is cached");
    assert_eq!(read(&mut client, 40 * MIB), Err(Errno::IO));
    origin.heal();
    assert_eq!(read(&mut client, 40 * MIB), Ok(0));
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
}

/// An origin that does not answer at all counts as gone after the time that was stated; what the cache holds
/// goes on, and is brought home at the next start.
#[test]
fn an_origin_that_hangs_is_given_up() {
    if fuse::is_left_out("the test of a hanging origin") {
        return;
    }
    let site = Site::new("origin-hangs");
    let origin = FaultyDisk::new(&site, "origin", 64 * MIB);
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", origin.path(), "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &["--device-timeout", "2"]);
    let mut client = connect(&daemon, "disk");
    write(&mut client, 0, 1).expect("all is well");
    origin.hang();
    let start = Instant::now();
    assert_eq!(read(&mut client, 40 * MIB), Err(Errno::IO), "nobody waits for ever");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(2), "it had its time: {waited:?}");
    assert!(waited < Duration::from_secs(20), "and no more: {waited:?}");
    assert_eq!(read(&mut client, 0), Ok(1), "it is cached");
    write(&mut client, MIB, 2).expect("the cache takes it");
    assert_eq!(read(&mut client, MIB), Ok(2));
    let status = site.wait_for_status(&cache, "the origin fails", |status| {
        status["volumes"][0]["state"] == "origin-failing"
    });
    assert!(status["volumes"][0]["dirty_bytes"].as_u64() >= Some(MIB), "{status}");
    assert!(status["volumes"][0]["dirty_limit_bytes"].is_u64(), "{status}");
    origin.go_on();
    assert_eq!(read(&mut client, 40 * MIB), Err(Errno::IO), "gone is gone, until the next start");
    drop(client);
    daemon.stop();
    let log = std::fs::read_to_string(site.path("daemon.log")).expect("its log");
    assert!(log.contains("did not answer in time"), "{log}");

    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon, "disk");
    assert_eq!(read(&mut client, 40 * MIB), Ok(0));
    assert_eq!(read(&mut client, MIB), Ok(2));
    drop(client);
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
}

/// Hazard 10: the cache dies. A volume without dirty data goes on uncached, the other one gives errors
/// where its data is lost; and when the SSD is back, it brings no old data with it.
#[test]
fn a_cache_that_fails_takes_only_dirty_data_with_it() {
    if fuse::is_left_out("the test of a failing cache") {
        return;
    }
    let site = Site::new("cache-fails");
    let cache = FaultyDisk::new(&site, "cache", 64 * MIB);
    let (clean_origin, dirty_origin) = (site.file("clean", 32 * MIB), site.file("dirty", 96 * MIB));
    let clean = ["--origin", &clean_origin, "--name", "clean", "--mode", "writethrough"];
    site.run(&[&["create", "--cache", cache.path()][..], &clean].concat());
    site.run(&["add", cache.path(), "--origin", &dirty_origin, "--name", "dirty", "--mode", "writeback"]);

    let daemon = Daemon::start(&site, cache.path(), &[]);
    let (mut one, mut other) = (connect(&daemon, "clean"), connect(&daemon, "dirty"));
    write(&mut one, 0, 1).expect("all is well");
    one.flush().expect("the daemon answers").expect("all is well");
    site.wait_for_status(cache.path(), "all is clean", |status| status["volumes"][0]["dirty_bytes"] == 0);
    // The end of this origin takes no writes, so that its data stays dirty.
    daemon.limit_file_size(Some(80 * MIB));
    write(&mut other, 84 * MIB, 2).expect("the cache takes it");
    other.flush().expect("the daemon answers").expect("the cache takes it");

    cache.fail();
    // The first write may fail: it was on its way into the cache.
    let _ = write(&mut one, MIB, 3);
    site.wait_for_status(cache.path(), "the cache is given up", |status| {
        status["cache"]["latched"] == true && status["volumes"][0]["uncached"] == true
    });
    write(&mut one, 0, 4).expect("uncached, but alive");
    assert_eq!(read(&mut one, 0), Ok(4));
    assert_eq!(read(&mut other, 84 * MIB), Err(Errno::IO), "never the old data");
    assert!(write(&mut other, 0, 5).is_err(), "no write passes a cache that holds dirty data");
    drop((one, other));
    // Its clean end has to be written to the cache, which fails: how it ends is not the point.
    daemon.kill();

    cache.heal();
    let daemon = Daemon::start(&site, cache.path(), &[]);
    let (mut one, mut other) = (connect(&daemon, "clean"), connect(&daemon, "dirty"));
    assert_eq!(read(&mut one, 0), Ok(4), "the cache has an older copy, which must not come back");
    assert_eq!(read(&mut other, 84 * MIB), Ok(2), "what was flushed is there again");
    drop((one, other));
    daemon.stop();
}
