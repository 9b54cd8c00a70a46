//! A mirrored cache: clients work while one of its devices fails, the daemon dies, the device is replaced, and the other one
//! fails.
//!
//! `FOREBAY_LOSSES` is the number of devices that are lost (4), `FOREBAY_CUTS` that of power cuts (6), `FOREBAY_SEED` what load
//! and moments are drawn from.

use crate::daemon::{Daemon, Site};
use crate::fuse::{self, FaultyDisk};
use crate::settings::number;
use crate::verifier::{Crash, Excuses, Failure, Load, Progress, Verifier, Violation};
use live::nbd::client::{Address, Client};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use std::fmt::Display;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const CACHE_BYTES: u64 = 32 * MIB;
/// Larger than the cache, so that the log goes round.
const VOLUME_BYTES: u64 = 48 * MIB;
const CONNECTIONS: usize = 2;
const DEPTH: usize = 8;

/// No error is explained: whatever happens to one device, clients do not see it.
struct NoError;

impl Excuses for NoError {
    fn explain(&self, _failure: &Failure) -> bool {
        false
    }

    fn flush_answered(&self, _asked_at: std::time::Instant) {}
}

/// How a device is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All that is asked of it fails.
    Fails,
    /// It answers nothing any more.
    Hangs,
}

/// A mirrored cache of two of three devices, and what is known of its volume.
struct Ordeal<'site> {
    site: &'site Site,
    disks: [FaultyDisk; 3],
    /// The devices that are its halves.
    halves: [usize; 2],
    verifier: Verifier,
    draw: Xoshiro256PlusPlus,
    seed: u64,
    progress: Progress,
}

fn connect(daemon: &Daemon) -> Client {
    Client::connect(&Address::from(daemon.socket()), "disk").expect("the doors are open")
}

/// How each half stands.
fn standings(status: &Value) -> Vec<String> {
    let halves = status["cache"]["mirror"].as_array().expect("the cache is mirrored");
    halves.iter().map(|half| half["standing"].as_str().unwrap_or_default().to_owned()).collect()
}

impl Ordeal<'_> {
    fn wrong(&self, round: u64, what: &dyn Display) -> ! {
        panic!("seed {}, round {round}: {what}", self.seed)
    }

    fn start(&mut self, round: u64) -> Daemon {
        let half = self.draw.random_range(0..2);
        let name = self.disks[self.halves[half]].path().to_owned();
        self.start_as(round, &name)
    }

    fn start_as(&mut self, round: u64, name: &str) -> Daemon {
        let daemon = Daemon::start(self.site, name, &["--device-timeout", "2"]);
        let read = self.verifier.verify_all(&mut connect(&daemon));
        read.unwrap_or_else(|violation| self.wrong(round, &violation));
        daemon
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.draw.random_range(50..900))
    }

    /// Clients work while that happens.
    fn work(&mut self, daemon: &Daemon, round: u64, happens: impl FnOnce(&[FaultyDisk; 3])) {
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| connect(daemon)).collect();
        let (verifier, disks) = (&mut self.verifier, &self.disks);
        let ran: Result<Progress, Box<Violation>> = std::thread::scope(|scope| {
            let load = Load { writes: 60, ..Load::mixed(4000, DEPTH) };
            let load = scope.spawn(move || verifier.run_on_faulty_devices(&mut clients, &load, &NoError));
            happens(disks);
            load.join().expect("the client lives")
        });
        match ran {
            Ok(progress) => {
                assert!(!progress.died, "seed {}, round {round}: the daemon lives", self.seed);
                self.progress.answered += progress.answered;
            }
            Err(violation) => self.wrong(round, &violation),
        }
    }

    /// Clients work until the daemon is killed.
    fn die(&mut self, daemon: Daemon, round: u64, meanwhile: impl FnOnce(&[FaultyDisk; 3])) {
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| connect(&daemon)).collect();
        let life = self.pause();
        let (verifier, disks) = (&mut self.verifier, &self.disks);
        let ran = std::thread::scope(|scope| {
            let load = Load::mixed(u64::MAX, DEPTH);
            let load = scope.spawn(move || verifier.run_on_faulty_devices(&mut clients, &load, &NoError));
            std::thread::sleep(life);
            daemon.kill_and(|| meanwhile(disks));
            load.join().expect("the client lives")
        });
        if let Err(violation) = ran {
            self.wrong(round, &violation);
        }
        self.verifier.after_crash(Crash::Process);
    }

    /// Kills the daemon at a moment of the copy to a half, or just after it, and starts it again.
    fn cut_copy(&mut self, daemon: Daemon, round: u64, name: &str, verb: &[&str]) -> Daemon {
        let site = self.site;
        std::thread::scope(|scope| {
            // The verb may be told that the daemon is gone, or be done before.
            let verb = scope.spawn(|| site.try_run(verb));
            self.die(daemon, round, |disks| disks.iter().for_each(FaultyDisk::go_on));
            verb.join().expect("the verb ends");
        });
        self.start_as(round, name)
    }

    /// Loses a half while clients work, and brings both back to what they were, with another device perhaps.
    fn lose(&mut self, round: u64, half: usize, loss: Loss) {
        let (lost, other) = (self.halves[half], self.halves[1 - half]);
        let daemon = self.start(round);
        let before = self.pause();
        self.work(&daemon, round, |disks| {
            std::thread::sleep(before);
            match loss {
                Loss::Fails => disks[lost].fail(),
                Loss::Hangs => disks[lost].hang(),
            }
        });
        let name = self.disks[other].path().to_owned();
        let status = self.site.wait_for_status(&name, "a half is out", |status| {
            standings(status).iter().any(|standing| standing == "out")
        });
        assert_eq!(standings(&status)[half], "out", "the one that was lost: {status}");
        assert_eq!(status["cache"]["latched"], false, "the cache goes on: {status}");
        let is_killed = self.draw.random_range(0..3) > 0;
        let daemon = if is_killed {
            self.die(daemon, round, |disks| match loss {
                Loss::Fails => {}
                Loss::Hangs => disks[lost].go_on(),
            });
            self.start(round)
        } else {
            daemon
        };
        let spare = 3 - lost - other;
        let comes_back = self.draw.random_range(0..2) == 0;
        match loss {
            Loss::Fails => self.disks[lost].heal(),
            Loss::Hangs if comes_back => self.disks[lost].go_on(),
            // What is under way there is put aside.
            Loss::Hangs => {}
        }
        let new = if comes_back { lost } else { spare };
        let device = self.disks[new].path().to_owned();
        let site = self.site;
        let verb = ["replace", &name, "--mirror", &device, "--wipe", &device];
        let is_cut = self.draw.random_range(0..3) == 0;
        let daemon = if is_cut { self.cut_copy(daemon, round, &name, &verb) } else { daemon };
        let is_out = standings(&site.report(&["status", &name])) != ["in", "in"];
        self.work(&daemon, round, |_| {
            if is_out {
                site.run(&verb);
            }
        });
        self.disks[lost].go_on();
        self.halves[half] = new;
        let status = site.report(&["status", &device]);
        assert_eq!(standings(&status), ["in", "in"], "{status}");
        println!(
            "round {round}: half {half} {loss:?}, killed {is_killed}, the same device {comes_back}, cut {is_cut}"
        );
        if self.draw.random_range(0..2) == 0 {
            self.die(daemon, round, |_| {});
        } else {
            daemon.stop();
            self.verifier.after_crash(Crash::Process);
        }
    }
}

/// Goal: either device of a mirrored cache may be lost, and nobody but its owner notices. Method: verifying clients work that
/// take no error, while halves fail or hang, one after the other; the daemon is killed in between; a device is taken in under
/// load. What was promised is there all along, at last in the origin.
#[test]
fn either_half_may_be_lost() {
    if fuse::is_left_out("the test of a mirrored cache on failing devices") {
        return;
    }
    let seed = number("FOREBAY_SEED", 20_261_126);
    println!("FOREBAY_SEED={seed}");
    let site = Site::new("mirrored");
    let origin = site.file("origin", VOLUME_BYTES);
    let disks = ["one", "two", "three"].map(|name| FaultyDisk::new(&site, name, CACHE_BYTES));
    let devices = ["--cache", disks[0].path(), "--mirror", disks[1].path()];
    site.run(&[&["create", "--origin", &origin, "--name", "disk", "--sparse"][..], &devices].concat());
    let mut ordeal = Ordeal {
        site: &site,
        disks,
        halves: [0, 1],
        verifier: Verifier::new(seed, VOLUME_BYTES),
        draw: Xoshiro256PlusPlus::seed_from_u64(seed),
        seed,
        progress: Progress::default(),
    };
    for round in 0..number("FOREBAY_LOSSES", 4) {
        let loss = if round % 4 == 2 { Loss::Hangs } else { Loss::Fails };
        // Now the one that was copied to is the only one that is left, and then the other one.
        let half = usize::from(round % 2 == 1);
        ordeal.lose(round, half, loss);
    }
    let daemon = ordeal.start(u64::MAX);
    let name = ordeal.disks[ordeal.halves[0]].path();
    site.run(&["detach", name, "--verify"]);
    daemon.stop();
    let home = std::fs::read(&origin).expect("the origin is a file");
    ordeal
        .verifier
        .verify_home(&home)
        .unwrap_or_else(|violation| panic!("seed {seed}, at home: {violation}"));
    println!("{} operations were answered", ordeal.progress.answered);
}

/// A half that hangs for ever keeps its place from nobody: what is under way there is put aside.
#[test]
fn a_half_that_hangs_gives_its_place_up() {
    if fuse::is_left_out("the test of a half that hangs") {
        return;
    }
    let site = Site::new("mirrored-hangs");
    let origin = site.file("origin", VOLUME_BYTES);
    let [one, two, three] = ["one", "two", "three"].map(|name| FaultyDisk::new(&site, name, CACHE_BYTES));
    let devices = ["--cache", one.path(), "--mirror", two.path()];
    site.run(&[&["create", "--origin", &origin, "--name", "disk", "--sparse"][..], &devices].concat());
    let daemon = Daemon::start(&site, one.path(), &["--device-timeout", "2"]);
    let mut client = connect(&daemon);
    client.write(0, &[1; 4096]).expect("the daemon answers").expect("both halves are well");
    one.hang();
    for block in 0..8 {
        client.write(block * MIB, &[2; 4096]).expect("the daemon answers").expect("one half is enough");
    }
    site.run(&["replace", two.path(), "--mirror", three.path(), "--sparse"]);
    let status = site.report(&["status", three.path()]);
    assert_eq!(standings(&status), ["in", "in"], "{status}");
    let back = site.refused(&["replace", two.path(), "--mirror", one.path()]);
    assert!(back.contains("none is out"), "{back}");
    one.go_on();
    two.fail();
    for block in 0..8 {
        let read = client.read(block * MIB, 4096).expect("the daemon answers").expect("one half is enough");
        assert!(read.iter().all(|byte| *byte == 2), "block {block}");
        client.write(block * MIB, &[3; 4096]).expect("the daemon answers").expect("one half is enough");
    }
    two.heal();
    site.run(&["replace", three.path(), "--mirror", one.path()]);
    drop(client);
    daemon.stop();
    site.run(&["check", one.path()]);
}

/// RULE 20: what a power cut left on one half alone is on both, or on none, once it was read. Method: two modelled disks, each
/// of which loses a part of its own of what it had not flushed; all is read and pinned, then one of them is taken away, and all
/// is read again.
#[test]
fn a_power_cut_leaves_both_halves_the_same() {
    let seed = number("FOREBAY_SEED", 20_261_126);
    println!("FOREBAY_SEED={seed}");
    let site = Site::new("mirrored-cut");
    let origin = site.file("origin", VOLUME_BYTES);
    let stores = ["one", "two"].map(|name| site.file(name, CACHE_BYTES));
    let halves = stores.clone().map(|store| format!("model:ssd?store={store}&speed=20"));
    let away = site.path("away");
    let create = ["create", "--origin", &origin, "--name", "disk", "--cache", &halves[0]];
    site.run(&[&create[..], &["--mirror", &halves[1]]].concat());
    let mut verifier = Verifier::new(seed, VOLUME_BYTES);
    let mut draw = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut cut_off = 0;
    for round in 0..number("FOREBAY_CUTS", 6) {
        let wrong = |violation: &dyn Display| -> ! { panic!("seed {seed}, round {round}: {violation}") };
        let daemon = Daemon::start(&site, &halves[draw.random_range(0..2)], &[]);
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| connect(&daemon)).collect();
        let life = Duration::from_millis(draw.random_range(50..900));
        let ran = std::thread::scope(|scope| {
            let load = scope.spawn(|| verifier.run(&mut clients, &Load::mixed(u64::MAX, DEPTH)));
            std::thread::sleep(life);
            daemon.cut_power();
            load.join().expect("the client lives")
        });
        cut_off += ran.unwrap_or_else(|violation| wrong(&violation)).cut_off;
        verifier.after_crash(Crash::Power);
        let daemon = Daemon::start(&site, &halves[draw.random_range(0..2)], &[]);
        verifier.verify_all(&mut connect(&daemon)).unwrap_or_else(|violation| wrong(&violation));
        daemon.kill();
        verifier.after_crash(Crash::Process);
        let lost = draw.random_range(0..2);
        site.run_unlocked(&["status", &halves[lost]]);
        std::fs::rename(&stores[lost], &away).expect("it is taken away");
        let daemon = Daemon::start(&site, &halves[draw.random_range(0..2)], &[]);
        verifier.verify_all(&mut connect(&daemon)).unwrap_or_else(|violation| wrong(&violation));
        std::fs::rename(&away, &stores[lost]).expect("it is brought back");
        site.run(&["replace", &halves[0], "--mirror", &halves[lost]]);
        daemon.stop();
        verifier.after_crash(Crash::Process);
    }
    assert!(cut_off > 0, "clients were at work");
    site.run(&["detach", &halves[0], "--verify"]);
    let home = std::fs::read(&origin).expect("the origin is a file");
    verifier.verify_home(&home).unwrap_or_else(|violation| panic!("seed {seed}, at home: {violation}"));
}

/// HAZARD 9: a half that was left behind is no cache when it comes back alone.
#[test]
fn a_half_that_was_lost_is_refused_alone() {
    let site = Site::new("mirrored-stale");
    let origin = site.file("origin", VOLUME_BYTES);
    let (one, two) = (site.file("one", CACHE_BYTES), site.file("two", CACHE_BYTES));
    site.run(&["create", "--origin", &origin, "--name", "disk", "--cache", &one, "--mirror", &two]);
    Daemon::start(&site, &one, &[]).stop();
    let away = site.path("away");
    std::fs::rename(&two, &away).expect("it is unplugged");
    let daemon = Daemon::start(&site, &two, &[]);
    let status = site.report(&["status", &two]);
    assert_eq!(standings(&status), ["in", "out"], "{status}");
    let mut client = connect(&daemon);
    client.write(0, &[7; 4096]).expect("the daemon answers").expect("one half is enough");
    daemon.kill();
    std::fs::remove_file(&one).expect("it dies");
    std::fs::rename(&away, &two).expect("it is there again");
    let refusal = match Daemon::try_start(&site, &two, &[]) {
        Ok(_) => panic!("it lacks what was written"),
        Err(refusal) => refusal,
    };
    assert!(refusal.contains("older copy"), "{refusal}");
    let refusal = site.refused(&["salvage", &two]);
    assert!(refusal.contains("older copy"), "{refusal}");
}
