//! Hours of the day: destage that waits for them, and a flush at its time. The time zone is one in which it is noon now,
//! so that no hour of the tests is at midnight.

use crate::daemon::{Daemon, Site};
use live::nbd::client::{Address, Client};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Minutes from midnight to the noon of the tests.
const NOON: u64 = 12 * 60;

/// A time zone in which the next full hour of UTC is noon, and the first minute of the day there that begins after some time.
fn noon() -> (&'static str, impl Fn(Duration) -> u64) {
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let hours_behind = (seconds() / 3600 % 24) as i64 - 12;
    // In these names west of Greenwich counts up.
    let zone: &str = format!("TEST{hours_behind}").leak();
    let minute_after = move |wait: Duration| {
        let minute = (seconds() + wait.as_secs()) / 60 + 1;
        (minute as i64 - hours_behind * 60).rem_euclid(24 * 60) as u64
    };
    (zone, minute_after)
}

fn clock(minute: u64) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

fn dirty_bytes(site: &Site, cache: &str) -> u64 {
    site.report(&["status", cache])["volumes"][0]["dirty_bytes"].as_u64().expect("a number")
}

fn write(daemon: &Daemon, block: u64) {
    let mut client = Client::connect(&Address::from(daemon.socket()), "disk").expect("the daemon is ready");
    client.write(block * BLOCK as u64, &[7; BLOCK]).expect("the daemon answers").expect("it may write");
}

#[test]
fn destage_waits_for_its_hours_and_a_flush_comes_at_its_time() {
    let (zone, minute_after) = noon();
    let now = minute_after(Duration::ZERO);
    assert!((NOON..NOON + 62).contains(&now), "{now}");
    let site = Site::new("hours").with("TZ", zone);
    let origin = site.file("origin", 32 * MIB);
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let hours = |from: u64, to: u64| format!("destage-hours={}-{}", clock(from), clock(to));
    site.run(&["set", &cache, "disk", &hours(now + 180, now + 240)]);
    let daemon = Daemon::start(&site, &cache, &[]);
    write(&daemon, 1);
    // Otherwise a volume without requests is destaged after less than a second.
    std::thread::sleep(Duration::from_secs(4));
    let status = site.report(&["status", &cache]);
    assert_eq!(status["volumes"][0]["dirty_bytes"], BLOCK, "{status}");
    assert_eq!(status["volumes"][0]["destage_held_back"], true, "{status}");
    assert!(site.run(&["status", &cache]).contains("held back for its hours"));
    // What somebody waits for does not wait.
    site.run(&["flush", &cache]);
    assert_eq!(dirty_bytes(&site, &cache), 0);
    daemon.stop();

    let daemon = Daemon::start(&site, &cache, &[]);
    write(&daemon, 2);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(dirty_bytes(&site, &cache), BLOCK as u64, "the next daemon knows the hours, too");
    site.run(&["set", &cache, "disk", &hours(now - 60, now + 120)]);
    site.wait_for_status(&cache, "its hours have come", |status| status["volumes"][0]["dirty_bytes"] == 0);
    daemon.stop();

    site.run(&["set", &cache, "disk", &hours(now + 180, now + 240)]);
    let daemon = Daemon::start(&site, &cache, &[]);
    write(&daemon, 3);
    let begun = Instant::now();
    // A time that has come by the time the daemon hears of it would be that of tomorrow.
    let flush_at = minute_after(Duration::from_secs(20));
    site.run(&["set", &cache, "disk", &format!("flush-at={}", clock(flush_at))]);
    site.wait_for_status(&cache, "it is time", |status| status["volumes"][0]["dirty_bytes"] == 0);
    let said = std::fs::read_to_string(site.path("daemon.log")).expect("its log");
    assert!(said.contains("[F37] volume disk was flushed on schedule: 4 KiB"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(119), "{:?}", begun.elapsed());
    daemon.stop();
}
