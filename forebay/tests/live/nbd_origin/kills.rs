//! The daemon and the servers of its origins die again and again under load, on origins that are slow and fail.
//!
//! `FOREBAY_KILLS` is the number of deaths of the daemon (4), and the least number of deaths of servers; `FOREBAY_SEED`
//! is what load and moments are drawn from.

use super::server::Server;
use super::troubles::Troubles;
use super::{MIB, volume};
use crate::daemon::{Daemon, Site, first_difference, tool};
use crate::settings::number;
use crate::verifier::{Crash, Load, Progress, Verifier};
use live::nbd::client::{Address, Client};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// Less than the volumes, so that dirty data goes home all the time.
const CACHE_BYTES: u64 = 32 * MIB;
const CONNECTIONS: usize = 2;
const DEPTH: usize = 8;
/// How long a daemon lives under load, in milliseconds: changes go to a server a second after the start.
const LIFE_MS: Range<u64> = 300..2500;
/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What it acknowledged is there when it comes back, so that modes may change on the way.
    Faithful,
    /// It has a cache of its own, which dies with it. What clients do around ours may be lost with it, so they do nothing of
    /// that: their writes wait for room (`writes = "merge"`), and they discard nothing.
    Forgetful,
}

impl Kind {
    fn load(self) -> Load {
        let load = Load::mixed(u64::MAX, DEPTH);
        if self == Kind::Forgetful { Load { discards: 0, ..load } } else { load }
    }

    /// The profile of the cache.
    fn profile(self, site: &Site) -> String {
        if self == Kind::Faithful {
            return "forebay".to_owned();
        }
        let own = include_str!("../../../profiles/forebay.toml");
        let (merging, name) = ("writes = \"merge\"", "name = \"waiting\"");
        let text = own.replace("writes = \"merge-or-bypass\"", merging).replace("name = \"forebay\"", name);
        assert!(text.contains(merging) && text.contains(name), "the profile has both");
        let path = site.path("waiting.toml");
        std::fs::write(&path, text).expect("room for a profile");
        path
    }
}

/// A volume, its server, and what is known of both.
struct Side {
    name: &'static str,
    image: String,
    server: Server,
    /// While this file is there, operations fail.
    failing: String,
    verifier: Verifier,
    troubles: Troubles,
}

impl Side {
    fn new(site: &Site, name: &'static str, size_bytes: u64, kind: Kind, seed: u64) -> Side {
        let image = site.file(name, size_bytes);
        let failing = site.path(&format!("{name}-fails"));
        let error_file = format!("error-file={failing}");
        let mut words = vec!["--filter=error", "--filter=delay"];
        if kind == Kind::Forgetful {
            words.push("--filter=cache");
        }
        // Operations take their time, and while a file is there, a third of them fails.
        words.extend(["file", &image, "delay-read=1ms", "delay-write=2ms", "error-rate=33%", &error_file]);
        if kind == Kind::Forgetful {
            words.push("cache=writeback");
        }
        let server = Server::nbdkit(site, &format!("{name}-server"), &words);
        let verifier = Verifier::new(seed, size_bytes);
        Side { name, image, server, failing, verifier, troubles: Troubles::default() }
    }
}

/// What has to be seen, or the test proves less than it says.
#[derive(Debug, Default)]
struct Seen {
    daemon_kills: u64,
    server_kills: u64,
    failing_times: u64,
    answered: u64,
    errors: u64,
    cut_off: u64,
    flushes: u64,
    recovered_dirty_bytes: u64,
    destaged_blocks: u64,
}

impl Seen {
    fn add(&mut self, progress: &Progress) {
        self.answered += progress.answered;
        self.errors += progress.errors;
        self.cut_off += progress.cut_off;
        self.flushes += progress.flushes;
    }
}

/// What is done to the servers of a running daemon.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The server dies, and comes back after so many milliseconds.
    Kill(u64),
    /// Operations fail for so many milliseconds.
    Fail(u64),
    /// The mode changes, if it may.
    Mode(&'static str),
}

struct Ordeal<'site> {
    site: &'site Site,
    kind: Kind,
    cache: String,
    sides: Vec<Side>,
    draw: Xoshiro256PlusPlus,
    seed: u64,
    seen: Seen,
}

impl<'site> Ordeal<'site> {
    fn new(site: &'site Site, kind: Kind) -> Ordeal<'site> {
        let seed = number("FOREBAY_SEED", 20_261_124);
        println!("FOREBAY_SEED={seed}");
        let side = |name, size_bytes, seed| Side::new(site, name, size_bytes, kind, seed);
        let sides = vec![side("one", 24 * MIB, seed), side("two", 16 * MIB, seed + 1)];
        let cache = site.file("cache", CACHE_BYTES);
        let (first, second) = (sides[0].server.uri(), sides[1].server.uri());
        let create = ["create", "--cache", &cache, "--origin", &first, "--name", "one", "--profile"];
        site.run(&[&create[..], &[&kind.profile(site)]].concat());
        site.run(&["add", &cache, "--origin", &second, "--name", "two"]);
        let draw = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ordeal { site, kind, cache, sides, draw, seed, seen: Seen::default() }
    }

    /// Starts the servers that have ended by themselves; how many.
    fn revive(&mut self) -> u64 {
        let ended: u64 = self.sides.iter_mut().map(|side| u64::from(side.server.revive())).sum();
        self.seen.server_kills += ended;
        ended
    }

    /// Starts the daemon and reads everything.
    fn begin(&mut self, round: u64) -> Daemon {
        let daemon = loop {
            self.revive();
            let daemon = Daemon::start(self.site, &self.cache, &[]);
            // A volume whose server is not there at the start is not served.
            if self.revive() == 0 {
                break daemon;
            }
            daemon.kill();
        };
        let status = self.site.report(&["status", &self.cache]);
        self.seen.recovered_dirty_bytes += status["recovery"]["redestage_bytes"].as_u64().expect("a number");
        for side in &mut self.sides {
            side.troubles.restart();
            let result = side.verifier.verify_all(&mut connect(&daemon, side.name));
            result
                .unwrap_or_else(|wrong| panic!("seed {}, round {round}, {}: {wrong}", self.seed, side.name));
        }
        daemon
    }

    fn draw_deeds(&mut self, round: u64) -> Vec<(Duration, usize, Deed)> {
        let life_ms = self.draw.random_range(LIFE_MS);
        // One server dies in each life, the two of them in turns.
        let mut deeds = vec![(usize::from(round % 2 == 1), Deed::Kill(self.draw.random_range(0..400)))];
        for _ in 0..self.draw.random_range(0..3) {
            let side = self.draw.random_range(0..self.sides.len());
            let modes = ["writeback", "writeback", "writethrough", "writearound"];
            let deed = match self.draw.random_range(0..6) {
                0 => Deed::Kill(self.draw.random_range(0..400)),
                1..=3 => Deed::Fail(self.draw.random_range(20..600)),
                _ => Deed::Mode(modes[self.draw.random_range(0..modes.len())]),
            };
            deeds.insert(self.draw.random_range(0..=deeds.len()), (side, deed));
        }
        let pause = life_ms / deeds.len() as u64;
        let deeds = deeds
            .into_iter()
            .map(|(side, deed)| (Duration::from_millis(self.draw.random_range(0..=pause)), side, deed));
        deeds.collect()
    }

    /// One life under load, in which servers die and fail, until the daemon dies.
    fn live(&mut self, daemon: Daemon, round: u64) {
        let deeds = self.draw_deeds(round);
        let rest = Duration::from_millis(self.draw.random_range(0..300));
        let Ordeal { site, kind, cache, sides, seed, seen, .. } = self;
        let mut parts = Vec::new();
        let mut hands = Vec::new();
        for side in sides.iter_mut() {
            let lanes: Vec<Client> = (0..CONNECTIONS).map(|_| connect(&daemon, side.name)).collect();
            let Side { name, server, failing, verifier, troubles, .. } = side;
            parts.push((verifier, lanes, &*troubles));
            hands.push((*name, server, &*failing, &*troubles));
        }
        let progress = std::thread::scope(|scope| {
            let loads: Vec<_> = parts
                .into_iter()
                .map(|(verifier, mut lanes, troubles)| {
                    let load = kind.load();
                    scope.spawn(move || verifier.run_on_faulty_devices(&mut lanes, &load, troubles))
                })
                .collect();
            for (pause, side, deed) in &deeds {
                std::thread::sleep(*pause);
                let (name, server, failing, troubles) = &mut hands[*side];
                match deed {
                    Deed::Kill(away_ms) => {
                        troubles.dies();
                        server.kill();
                        std::thread::sleep(Duration::from_millis(*away_ms));
                        server.again();
                        seen.server_kills += 1;
                    }
                    Deed::Fail(lasts_ms) => {
                        troubles.fails();
                        std::fs::write(*failing, "").expect("room for an empty file");
                        std::thread::sleep(Duration::from_millis(*lasts_ms));
                        std::fs::remove_file(*failing).expect("it is there");
                        troubles.works();
                        seen.failing_times += 1;
                    }
                    Deed::Mode(mode) if *kind == Kind::Faithful => {
                        site.run(&["set", cache, name, &format!("mode={mode}")]);
                    }
                    Deed::Mode(_) => {}
                }
            }
            std::thread::sleep(rest);
            // Not always, so that most deaths come without a control request just before.
            if round % 3 == 2 {
                let stats = site.report(&["stats", cache]);
                seen.destaged_blocks += stats["total"]["destaged_blocks"].as_u64().expect("a number");
            }
            daemon.kill();
            seen.daemon_kills += 1;
            let results = loads.into_iter().map(|load| load.join().expect("the load does not panic"));
            results.collect::<Vec<_>>()
        });
        for (side, result) in sides.iter_mut().zip(progress) {
            let progress = result.unwrap_or_else(|wrong| {
                panic!("seed {seed}, round {round}, {}: {wrong}\ndeeds: {deeds:?}", side.name)
            });
            seen.add(&progress);
            side.verifier.after_crash(Crash::Process);
        }
    }

    /// What happens while no daemon runs.
    fn pass(&mut self, round: u64) {
        if round % 4 == 1 {
            // The server dies, too, with what the dead daemon's last flush did not cover.
            let side = &mut self.sides[usize::from(self.draw.random::<bool>())];
            side.server.kill();
            side.server.again();
            self.seen.server_kills += 1;
        }
        if round % 5 == 3 {
            let daemon = Daemon::spawn(self.site, &self.cache, &[]);
            std::thread::sleep(Duration::from_millis(self.draw.random_range(0..200)));
            daemon.kill();
            self.seen.daemon_kills += 1;
            self.sides.iter_mut().for_each(|side| side.verifier.after_crash(Crash::Process));
        }
        if round % 10 == 9 {
            let report = self.site.report(&["check", &self.cache]);
            assert_eq!(report["ok"], true, "seed {}, round {round}: {report}", self.seed);
        }
    }

    /// Takes the volumes off the cache: each origin must then be what its clients saw.
    fn finish(mut self, rounds: u64) {
        let daemon = self.begin(rounds);
        for side in &self.sides {
            assert_eq!(volume(self.site, &self.cache)["lost_bytes"], 0);
            let view = self.site.path("view");
            tool("nbdcopy", &[&daemon.uri(side.name), &view]);
            self.site.run(&["detach", &self.cache, side.name, "--verify"]);
            assert_eq!(first_difference(&view, &side.image), None, "seed {}, {}", self.seed, side.name);
        }
        daemon.stop();
        println!("{:?}, {rounds} rounds: {:?}", self.kind, self.seen);
        for side in &mut self.sides {
            side.server.kill();
            side.verifier.after_crash(Crash::Process);
            let home = std::fs::read(&side.image).expect("the image");
            side.verifier.verify_home(&home).unwrap_or_else(|wrong| panic!("{}: {wrong}", side.name));
        }
        let Seen { recovered_dirty_bytes, cut_off, flushes, destaged_blocks, .. } = self.seen;
        assert!(recovered_dirty_bytes > 0, "no dirty data was recovered");
        assert!(destaged_blocks > 0, "nothing was destaged");
        assert!(cut_off > 0 && flushes > 0, "clients were at work");
    }
}

fn kill_again_and_again(kind: Kind) {
    let site = Site::new("origin-kills");
    let mut ordeal = Ordeal::new(&site, kind);
    let kills = number("FOREBAY_KILLS", 4);
    for round in 0..kills {
        let daemon = ordeal.begin(round);
        ordeal.live(daemon, round);
        ordeal.pass(round);
    }
    ordeal.finish(kills);
}

#[test]
fn kills_of_daemon_and_servers_lose_nothing() {
    kill_again_and_again(Kind::Faithful);
}

#[test]
fn kills_of_daemon_and_forgetful_servers_lose_nothing() {
    kill_again_and_again(Kind::Forgetful);
}

fn connect(daemon: &Daemon, export: &str) -> Client {
    Client::connect(&Address::from(daemon.socket()), export).expect("the doors are open")
}
