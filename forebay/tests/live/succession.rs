//! Goal: whatever moment of a `replace` or a `resize` the daemon dies or is stopped in, nothing that clients were promised is
//! lost, and exactly one cache is the one. Method: a verifying client under load, the verb, and a kill or a stop at a moment
//! drawn by chance; then both devices are asked, what was cut off is finished, and all is read.
//!
//! `FOREBAY_SUCCESSIONS` is the number of kills (15), and of stops, `FOREBAY_SEED` what load and moments are drawn from.

use crate::daemon::{Daemon, Site};
use crate::settings::number;
use crate::verifier::{Crash, Load, Verifier};
use live::nbd::client::{Address, Client};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const VOLUME_BYTES: u64 = 24 * MIB;
const CONNECTIONS: usize = 2;
const DEPTH: usize = 8;

fn connect(daemon: &Daemon) -> Client {
    Client::connect(&Address::from(daemon.socket()), "disk").expect("the doors are open")
}

/// Whether a start would serve the volume from this device.
fn is_believed(site: &Site, cache: &str) -> bool {
    let output = site.run_unlocked(&["status", cache, "--json"]);
    let report: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    report.is_some_and(|report| report["volumes"].as_array().is_some_and(|volumes| !volumes.is_empty()))
}

/// Finds the one device that is the cache now, and finishes what was cut off.
fn settle(site: &Site, caches: &[String; 2], old: usize) -> usize {
    let new = 1 - old;
    match (is_believed(site, &caches[old]), is_believed(site, &caches[new])) {
        (true, false) => old,
        (false, true) => new,
        (false, false) => {
            site.run(&["replace", &caches[old], &caches[new]]);
            assert!(!is_believed(site, &caches[old]), "it gave its place up");
            new
        }
        (true, true) => panic!("two caches of one line are believed"),
    }
}

#[test]
fn a_kill_at_any_moment_of_a_succession() {
    end_at_any_moment("succession", Daemon::kill);
}

/// A stop is clean, whatever it cuts off: it takes no longer than any other, and the daemon ends without an error.
#[test]
fn a_stop_at_any_moment_of_a_succession() {
    end_at_any_moment("succession-stopped", |daemon| {
        let began = Instant::now();
        daemon.stop();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(30), "a stop does not wait for the end of a succession: {took:?}");
    });
}

/// Ends a daemon again and again at some moment of a succession, and looks at what is left.
fn end_at_any_moment(name: &str, end: fn(Daemon)) {
    let site = Site::new(name);
    let seed = number("FOREBAY_SEED", 20_261_124);
    println!("FOREBAY_SEED={seed}");
    let mut draw = Xoshiro256PlusPlus::seed_from_u64(seed);
    let origin = site.file("origin", VOLUME_BYTES);
    let caches = [site.file("one", 64 * MIB), site.file("two", 96 * MIB)];
    site.run(&[
        "create",
        "--cache",
        &caches[0],
        "--origin",
        &origin,
        "--name",
        "disk",
        "--mode",
        "writeback",
    ]);
    let mut verifier = Verifier::new(seed, VOLUME_BYTES);
    let mut current = 0;
    let (mut done, mut cut) = (0, 0);
    for round in 0..number("FOREBAY_SUCCESSIONS", 15) {
        let daemon = Daemon::start(&site, &caches[current], &[]);
        let wrong = |what: &dyn std::fmt::Display| panic!("seed {seed}, round {round}: {what}");
        verifier.verify_all(&mut connect(&daemon)).unwrap_or_else(|violation| wrong(&violation));
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| connect(&daemon)).collect();
        let is_replaced = round % 3 != 2;
        let (cache, other) = (&caches[current], &caches[1 - current]);
        let size = if round % 2 == 0 { "48M" } else { "56M" };
        let verb: Vec<&str> = if is_replaced {
            vec!["replace", cache, other, "--wipe", other]
        } else {
            vec!["resize", cache, size]
        };
        let life = Duration::from_millis(draw.random_range(20..1500));
        let (ran, told) = std::thread::scope(|scope| {
            let verb = scope.spawn(|| site.try_run(&verb));
            let load = scope.spawn(|| verifier.run(&mut clients, &Load::mixed(u64::MAX, DEPTH)));
            std::thread::sleep(life);
            end(daemon);
            (load.join().expect("the client lives"), verb.join().expect("the verb ends"))
        });
        if let Err(violation) = ran {
            wrong(&violation);
        }
        verifier.after_crash(Crash::Process);
        if told.status.success() {
            done += 1;
        } else {
            cut += 1;
        }
        if is_replaced {
            let now = settle(&site, &caches, current);
            assert!(
                now != current || !told.status.success(),
                "round {round}: who was told of it can rely on it"
            );
            current = now;
        }
    }
    println!("{done} were done before the end, {cut} were cut off");
    let daemon = Daemon::start(&site, &caches[current], &[]);
    site.run(&["replace", &caches[current], &caches[1 - current], "--wipe", &caches[1 - current]]);
    verifier.verify_all(&mut connect(&daemon)).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    site.run(&["detach", &caches[1 - current], "--verify"]);
    daemon.stop();
    let home = std::fs::read(&origin).expect("the origin is a file");
    verifier.verify_home(&home).unwrap_or_else(|violation| panic!("seed {seed}, at home: {violation}"));
}
