//! The daemon dies again and again under load, and what was promised is checked each time.
//!
//! `FOREBAY_KILLS` is the number of kills (50), `FOREBAY_SEED` what load and moments are drawn from, `FOREBAY_PROFILES`
//! the published systems that die.

use crate::daemon::{Daemon, Site, first_difference, tool};
use crate::settings::{number, profiles};
use crate::verifier::{Crash, Load, Verifier};
use live::nbd::client::{Address, Client};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use std::ops::Range;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Small enough for the log to go around the device many times.
const CACHE_BYTES: u64 = 32 * MIB;
/// The volumes, together larger than the cache.
const VOLUMES: [(&str, u64); 2] = [("one", 40 * MIB), ("two", 12 * MIB)];
const CONNECTIONS: usize = 2;
const DEPTH: usize = 8;
/// How long a daemon lives, in milliseconds.
const LIFE_MS: Range<u64> = 30..700;

/// What the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    profile: &'static str,
    /// Under this load the log goes around the device, and dirty data goes home on the way; the others may send it
    /// home only when asked to.
    is_busy: bool,
}

const FOREBAY: Kind = Kind { profile: "forebay", is_busy: true };
/// The published systems, one of each way to keep records.
const PUBLISHED: [&str; 6] = ["flashcache", "enhanceio", "dm-cache", "mapperx", "bcache", "gflash"];

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Cut,
    Stop,
}

impl End {
    fn come(self, daemon: Daemon) {
        match self {
            End::Kill => daemon.kill(),
            End::Cut => daemon.cut_power(),
            End::Stop => daemon.stop(),
        }
    }

    fn crash(self) -> Crash {
        if self == End::Cut { Crash::Power } else { Crash::Process }
    }
}

/// What has to be seen, or the test proves less than it says.
#[derive(Debug, Default)]
struct Seen {
    wraps: u64,
    destaged_blocks: u64,
    hit_blocks: u64,
    recovered_dirty_bytes: u64,
    cut_off: u64,
    flushes: u64,
}

/// Two volumes under load, their daemon, and what is known about them.
struct Ordeal<'site> {
    site: &'site Site,
    kind: Kind,
    cache: String,
    /// The files under all devices.
    files: Vec<String>,
    daemon: Option<Daemon>,
    verifiers: Vec<Verifier>,
    draw: Xoshiro256PlusPlus,
    seen: Seen,
    seed: u64,
}

impl<'site> Ordeal<'site> {
    fn new(
        site: &'site Site,
        kind: Kind,
        cache: String,
        origins: [String; 2],
        files: Vec<String>,
    ) -> Ordeal<'site> {
        let seed = number("FOREBAY_SEED", 20_261_121);
        println!("FOREBAY_SEED={seed}");
        let [(first, _), (second, _)] = VOLUMES;
        let create = ["create", "--cache", &cache, "--origin", &origins[0], "--name", first];
        let like = ["--profile", kind.profile, "--mode", "writeback"];
        site.run(&[&create[..], &like].concat());
        site.run(&["add", &cache, "--origin", &origins[1], "--name", second, "--mode", "writeback"]);
        let verifiers =
            VOLUMES.iter().zip(0..).map(|((_, bytes), index)| Verifier::new(seed + index, *bytes));
        Ordeal {
            site,
            kind,
            cache,
            files,
            daemon: None,
            verifiers: verifiers.collect(),
            draw: Xoshiro256PlusPlus::seed_from_u64(seed),
            seen: Seen::default(),
            seed,
        }
    }

    /// Starts the daemon and reads everything.
    fn begin(&mut self, round: u64) {
        let daemon = Daemon::start(self.site, &self.cache, &[]);
        let status = self.site.report(&["status", &self.cache]);
        self.seen.recovered_dirty_bytes += status["recovery"]["redestage_bytes"].as_u64().expect("a number");
        for ((name, _), verifier) in VOLUMES.iter().zip(&mut self.verifiers) {
            let result = verifier.verify_all(&mut connect(&daemon, name));
            result
                .unwrap_or_else(|wrong| panic!("seed {}, round {round}, volume {name}: {wrong}", self.seed));
        }
        self.daemon = Some(daemon);
    }

    /// One life under load, from open doors to the end.
    fn live(&mut self, round: u64, end: End) {
        let daemon = self.daemon.take().expect("it was started");
        let life = Duration::from_millis(self.draw.random_range(LIFE_MS));
        // Not always, so that most ends come without a control request just before.
        let looks = round % 3 == 2;
        let (volume, mode) = self.draw_mode();
        let mut lanes: Vec<Vec<Client>> = VOLUMES
            .iter()
            .map(|(name, _)| (0..CONNECTIONS).map(|_| connect(&daemon, name)).collect())
            .collect();
        let (site, cache, seed) = (self.site, &self.cache, self.seed);
        let (progress, stats) = std::thread::scope(|scope| {
            let loads: Vec<_> = (self.verifiers.iter_mut().zip(&mut lanes))
                .map(|(verifier, clients)| {
                    scope.spawn(|| verifier.run(clients, &Load::mixed(u64::MAX, DEPTH)))
                })
                .collect();
            std::thread::sleep(life / 2);
            if let Some(mode) = mode {
                site.run(&["set", cache, volume, &format!("mode={mode}")]);
            }
            std::thread::sleep(life / 2);
            let stats = looks.then(|| site.report(&["stats", cache]));
            end.come(daemon);
            let progress = loads.into_iter().map(|load| {
                let result = load.join().expect("the load does not panic");
                result.unwrap_or_else(|wrong| panic!("seed {seed}, round {round}: {wrong}"))
            });
            (progress.collect::<Vec<_>>(), stats)
        });
        for progress in progress {
            // A clean stop may refuse what comes too late, and a device without power may fail what comes
            // just before the end. A kill gives nobody the time to answer.
            assert!(progress.errors == 0 || end != End::Kill, "round {round}: {progress:?}");
            self.seen.cut_off += progress.cut_off;
            self.seen.flushes += progress.flushes;
        }
        if let Some(stats) = stats {
            self.look(&stats);
        }
        self.verifiers.iter_mut().for_each(|verifier| verifier.after_crash(end.crash()));
    }

    fn look(&mut self, stats: &Value) {
        self.seen.wraps += stats["cache_wraps"].as_u64().expect("a number");
        self.seen.destaged_blocks += stats["total"]["destaged_blocks"].as_u64().expect("a number");
        self.seen.hit_blocks += stats["total"]["hit_blocks"].as_u64().expect("a number");
    }

    /// Mostly no change; writeback is where the danger is, so the way back to it is likelier.
    fn draw_mode(&mut self) -> (&'static str, Option<&'static str>) {
        let (volume, _) = VOLUMES[self.draw.random_range(0..VOLUMES.len())];
        let mode = match self.draw.random_range(0..12) {
            0 => Some("writethrough"),
            1 => Some("writearound"),
            2 => Some("passthrough"),
            3..=6 => Some("writeback"),
            _ => None,
        };
        (volume, mode)
    }

    /// A daemon that dies while it recovers, or a little later.
    fn stumble(&mut self, end: End) {
        // The kernel ends the last operations of a killed process a little later, and its locks with
        // them; this one shall not end because of that.
        for file in &self.files {
            tool("flock", &["--wait", "10", file, "true"]);
        }
        let daemon = Daemon::spawn(self.site, &self.cache, &[]);
        std::thread::sleep(Duration::from_micros(self.draw.random_range(0..60_000)));
        end.come(daemon);
        self.verifiers.iter_mut().for_each(|verifier| verifier.after_crash(end.crash()));
    }

    /// Every so often the cache as a crash left it is checked: a torn tail is no corruption.
    fn check(&self, round: u64) {
        let report = self.site.report(&["check", &self.cache]);
        assert_eq!(report["ok"], true, "seed {}, round {round}: {report}", self.seed);
    }

    /// Takes the volumes off the cache: each origin must then be what its clients saw.
    fn finish(mut self, rounds: u64, origins: [String; 2]) {
        self.begin(rounds);
        let daemon = self.daemon.take().expect("it was just started");
        if !self.kind.is_busy {
            self.site.run(&["flush", &self.cache]);
            let stats = self.site.report(&["stats", &self.cache]);
            self.look(&stats);
        }
        for ((name, _), origin) in VOLUMES.iter().zip(&origins) {
            let view = self.site.path("view");
            tool("nbdcopy", &[&daemon.uri(name), &view]);
            self.site.run(&["detach", &self.cache, name, "--verify"]);
            assert_eq!(first_difference(&view, origin), None, "seed {}, volume {name}", self.seed);
        }
        daemon.stop();
        println!("{} {rounds} rounds: {:?}", self.kind.profile, self.seen);
        assert!(self.seen.wraps > 0 || !self.kind.is_busy, "the log never went past the device's end");
        assert!(self.seen.hit_blocks > 0, "nothing was read from the cache");
        assert!(self.seen.destaged_blocks > 0, "nothing was destaged");
        assert!(self.seen.recovered_dirty_bytes > 0, "no dirty data was recovered");
        assert!(self.seen.cut_off > 0, "no request was cut off");
        assert!(self.seen.flushes > 0, "nothing was flushed");
    }
}

/// SIGKILL at random moments, with modes changed on the way, and now and then during recovery too.
fn kill_again_and_again(kind: Kind, rounds: u64) {
    let site = Site::new(&format!("kills-{}", kind.profile));
    let cache = site.file("cache", CACHE_BYTES);
    let origins = VOLUMES.map(|(name, bytes)| site.file(name, bytes));
    let files = [vec![cache.clone()], origins.to_vec()].concat();
    let mut ordeal = Ordeal::new(&site, kind, cache, origins.clone(), files);
    for round in 0..rounds {
        ordeal.begin(round);
        ordeal.live(round, End::Kill);
        if round % 5 == 4 {
            ordeal.stumble(End::Kill);
        }
        if round % 10 == 9 {
            ordeal.check(round);
        }
    }
    ordeal.finish(rounds, origins);
}

/// Power cuts: both devices lose what they have not flushed, or a random part of it. Two cuts for five
/// kills of the other test; one life in seven ends cleanly instead.
fn cut_again_and_again(kind: Kind, cuts: u64) {
    let site = Site::new(&format!("cuts-{}", kind.profile));
    let store = site.file("cache", CACHE_BYTES);
    let stores = VOLUMES.map(|(name, bytes)| site.file(name, bytes));
    let origins = stores.clone().map(|store| format!("model:hdd?store={store}&speed=500"));
    let cache = format!("model:ssd?store={store}&speed=20");
    let files = [vec![store], stores.to_vec()].concat();
    let mut ordeal = Ordeal::new(&site, kind, cache, origins, files);
    let mut rounds = 0;
    let mut done = 0;
    while done < cuts {
        let end = if rounds % 7 == 6 { End::Stop } else { End::Cut };
        ordeal.begin(rounds);
        ordeal.live(rounds, end);
        done += u64::from(end == End::Cut);
        if rounds % 5 == 4 {
            ordeal.stumble(End::Cut);
        }
        if rounds % 10 == 9 {
            ordeal.check(rounds);
        }
        rounds += 1;
    }
    ordeal.finish(rounds, stores);
}

#[test]
fn kills_lose_nothing_that_was_acknowledged() {
    kill_again_and_again(FOREBAY, kills());
}

#[test]
fn power_cuts_lose_nothing_that_was_flushed() {
    cut_again_and_again(FOREBAY, (kills() * 2).div_ceil(5));
}

/// Fewer for each of the published systems: there are several.
#[test]
fn kills_lose_nothing_in_published_systems() {
    for profile in profiles(&PUBLISHED) {
        kill_again_and_again(Kind { profile, is_busy: false }, kills().div_ceil(7));
    }
}

#[test]
fn power_cuts_lose_nothing_in_published_systems() {
    for profile in profiles(&PUBLISHED) {
        cut_again_and_again(Kind { profile, is_busy: false }, kills().div_ceil(14));
    }
}

fn kills() -> u64 {
    number("FOREBAY_KILLS", 50)
}

fn connect(daemon: &Daemon, export: &str) -> Client {
    Client::connect(&Address::from(daemon.socket()), export).expect("the doors are open")
}
