//! Goal: an ephemeral cache that is gone again and again takes nothing with it, whatever dies in the middle of making it anew and
//! of filling it; and a new one is soon as good as the one before. Method: the real daemon with a file as the instance
//! store, which is made blank between two lives; a load of which every answer is judged.
//!
//! `FOREBAY_KILLS` is the number of kills (20), `FOREBAY_SEED` what they are drawn from.

use crate::daemon::{Daemon, Site};
use crate::settings::number;
use crate::verifier::{Crash, Load, Verifier};
use live::nbd::client::{Address, Client};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use std::fs::File;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const CACHE_BYTES: u64 = 32 * MIB;
const VOLUME_BYTES: u64 = 48 * MIB;

fn make_blank(cache: &str) {
    let file = File::create(cache).expect("the file is there");
    file.set_len(CACHE_BYTES).expect("it gets its size");
}

fn connect(daemon: &Daemon, volume: &str) -> Client {
    Client::connect(&Address::Unix(daemon.socket().into()), volume).expect("it serves")
}

fn seed() -> u64 {
    number("FOREBAY_SEED", 1)
}

/// Goal: kills in the middle of a renewal, and of the warm-up behind it, lose nothing and do not keep the next start from working.
/// Method: the cache is blank at each start but every third; each daemon is killed at a moment by chance, mostly before or
/// soon after it is ready. What was acknowledged is there each time.
#[test]
fn kills_while_a_cache_is_made_anew_and_filled_lose_nothing() {
    let site = Site::new("renewal");
    let origin = site.file("slow.img", VOLUME_BYTES);
    let cache = site.file("fast.img", CACHE_BYTES);
    site.run(&["create", "--ephemeral", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let mut draw = Xoshiro256PlusPlus::seed_from_u64(seed());
    let mut verifier = Verifier::new(seed(), VOLUME_BYTES);
    let (mut renewals, mut cut_short) = (0, 0);
    for kill in 0..number("FOREBAY_KILLS", 20) {
        if kill % 3 > 0 {
            make_blank(&cache);
        }
        let before = site.path("state");
        let is_record = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".toml");
        let caches = |path: &str| {
            let notes = std::fs::read_dir(path).expect("notes");
            notes.filter(|entry| is_record(&entry.as_ref().expect("a file").file_name())).count()
        };
        let noted = caches(&before);
        if draw.random_bool(0.5) {
            // Somewhere between the lock, the notes, the superblock and the first request.
            let daemon = Daemon::spawn(&site, &cache, &["--warm-rate", "8M"]);
            std::thread::sleep(Duration::from_millis(draw.random_range(5..120)));
            daemon.kill();
            cut_short += 1;
        } else {
            let daemon = Daemon::start(&site, &cache, &["--warm-rate", "8M"]);
            let mut client = connect(&daemon, "disk");
            verifier.verify_all(&mut client).unwrap_or_else(|violation| panic!("kill {kill}: {violation}"));
            let load = Load::mixed(draw.random_range(100..600), 8);
            let mut clients = [client];
            verifier.run(&mut clients, &load).unwrap_or_else(|violation| panic!("kill {kill}: {violation}"));
            if draw.random_bool(0.3) {
                daemon.stop();
            } else {
                daemon.kill();
            }
            verifier.after_crash(Crash::Process);
        }
        renewals += usize::from(caches(&before) > noted);
        wait_until_needless(&site, &cache);
    }
    make_blank(&cache);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon, "disk");
    verifier.verify_all(&mut client).unwrap_or_else(|violation| panic!("at the end: {violation}"));
    println!("{renewals} renewals, {cut_short} starts cut short");
    assert!(renewals > 2, "{renewals} renewals");
}

/// A crash may leave something in the cache alone, and then the notes keep it from being replaced: it is brought home.
fn wait_until_needless(site: &Site, cache: &str) {
    let notes = std::fs::read_dir(site.path("state")).expect("there are notes");
    let texts = notes.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let is_needed =
        texts.into_iter().any(|text| text.contains("may_be_dirty = true") && text.contains(cache));
    let is_there = Daemon::try_start(site, cache, &["--warm-rate", "off"]);
    match is_there {
        Ok(daemon) => {
            site.run(&["flush", cache]);
            daemon.stop();
        }
        Err(last) => assert!(!is_needed, "what is needed cannot be served: {last}"),
    }
}

/// Reads of one block each, by zipf: the blocks of a region by their rank, spread over the volume.
struct Zipf {
    sums: Vec<f64>,
    blocks: u64,
}

impl Zipf {
    fn new(blocks: u64, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=blocks)
            .map(|rank| {
                sum += 1.0 / (rank as f64).powf(exponent);
                sum
            })
            .collect();
        Zipf { sums, blocks }
    }

    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let all = self.sums.last().expect("some blocks");
        let at = random.random_range(0.0..*all);
        let rank = self.sums.partition_point(|sum| *sum < at) as u64;
        // Neighbours in rank are no neighbours on the disk.
        rank.wrapping_mul(0x9e37_79b1) % self.blocks
    }
}

fn reads(client: &mut Client, zipf: &Zipf, random: &mut Xoshiro256PlusPlus, count: u64) {
    for _ in 0..count {
        let offset = zipf.draw(random) * BLOCK;
        client.read(offset, BLOCK as u32).expect("the daemon answers").expect("it reads");
    }
}

/// Blocks that were hit, and those that were looked for.
fn hits(site: &Site, cache: &str) -> (u64, u64) {
    let stats = site.report(&["stats", cache]);
    let of =
        |name: &str| stats["volumes"][0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {stats}"));
    (of("hit_blocks"), of("hit_blocks") + of("miss_blocks"))
}

/// The hit ratio of reads so few that they hardly warm a blank cache.
fn ratio(site: &Site, cache: &str, client: &mut Client, zipf: &Zipf, random: &mut Xoshiro256PlusPlus) -> f64 {
    let (hit, all) = hits(site, cache);
    reads(client, zipf, random, 3_000);
    let (hit_now, all_now) = hits(site, cache);
    (hit_now - hit) as f64 / (all_now - all) as f64
}

fn origin_read_bytes(site: &Site, cache: &str) -> u64 {
    let stats = site.report(&["stats", cache]);
    stats["volumes"][0]["origin"]["read_bytes"].as_u64().unwrap_or_else(|| panic!("no bytes in {stats}"))
}

/// Goal: a blank cache is soon as good as the one before: 90 % of the former hit ratio after reading 1.2 times the hot bytes at the
/// most. Method: reads by zipf over a volume that is larger than the cache, until the cache is full; stop, which writes the
/// list; blank; a start that warms up by itself; the same reads again. Hot bytes are those of the list.
#[test]
fn a_new_cache_is_soon_as_good_as_the_one_before() {
    let site = Site::new("warm");
    let origin = site.noise("slow.img", 128 * MIB, 9);
    let cache = site.file("fast.img", CACHE_BYTES);
    site.run(&["create", "--ephemeral", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let zipf = Zipf::new(128 * MIB / BLOCK, 0.9);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed());
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon, "disk");
    reads(&mut client, &zipf, &mut random, 60_000);
    let before = ratio(&site, &cache, &mut client, &zipf, &mut random);
    daemon.stop();
    let cached = site.report(&["status", &cache])["volumes"][0]["cached_bytes"].as_u64().expect("bytes");
    make_blank(&cache);
    let cold = {
        let daemon = Daemon::start(&site, &cache, &["--warm-rate", "off", "--warm-list", "off"]);
        let mut client = connect(&daemon, "disk");
        let cold = ratio(&site, &cache, &mut client, &zipf, &mut random);
        daemon.kill();
        cold
    };
    make_blank(&cache);
    let daemon = Daemon::start(&site, &cache, &["--warm-rate", "1G"]);
    let warm_up_is_over = |status: &Value| status["warming_left_bytes"].is_null() && has_said(&site, "[F40]");
    site.wait_for_status(&cache, "the cache is warm", warm_up_is_over);
    let read_bytes = origin_read_bytes(&site, &cache);
    let mut client = connect(&daemon, "disk");
    let after = ratio(&site, &cache, &mut client, &zipf, &mut random);
    let reached = after / before;
    let cost = read_bytes as f64 / cached as f64;
    println!(
        "hit ratio before {before:.3}, blank {cold:.3}, warmed {after:.3}: {:.1} % of the former one after reading {cost:.3} x \
         the {} MiB that were hot",
        reached * 100.0,
        cached / MIB
    );
    assert!(cold < 0.8 * before, "a blank cache has {cold:.3} of {before:.3}: the reads tell nothing");
    assert!(reached >= 0.9, "{:.1} % of the former hit ratio", reached * 100.0);
    assert!(cost <= 1.2, "{cost:.3} x the hot bytes were read");
    daemon.stop();
}

/// Whether a daemon of the site said something with these words.
fn has_said(site: &Site, words: &str) -> bool {
    std::fs::read_to_string(site.path("daemon.log")).is_ok_and(|log| log.contains(words))
}

/// Goal: a warm-up that is cut short goes on at the next start. Method: it is slow, and killed in its middle; the next one is fast,
/// and reads only what is left.
#[test]
fn a_warm_up_that_was_killed_goes_on() {
    let site = Site::new("warm-kill");
    let origin = site.noise("slow.img", VOLUME_BYTES, 4);
    let cache = site.file("fast.img", CACHE_BYTES);
    site.run(&["create", "--ephemeral", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    site.run(&["warm", &cache, "--range", "0+16M", "--rate", "1G"]);
    Daemon::start(&site, &cache, &[]).stop();
    let cached = |status: &Value| status["volumes"][0]["cached_bytes"].as_u64().expect("bytes");
    assert_eq!(cached(&site.report(&["status", &cache])), 16 * MIB);
    make_blank(&cache);
    let daemon = Daemon::start(&site, &cache, &["--warm-rate", "2M"]);
    let status = site.wait_for_status(&cache, "a part is warm", |status| cached(status) > MIB);
    assert!(status["warming_left_bytes"].as_u64() > Some(0), "{status}");
    daemon.kill();
    let daemon = Daemon::start(&site, &cache, &["--warm-rate", "1G"]);
    let status = site.wait_for_status(&cache, "all is warm", |status| cached(status) == 16 * MIB);
    assert!(status["cache"]["ephemeral"] == true, "{status}");
    assert!(origin_read_bytes(&site, &cache) < 15 * MIB, "what was cached is not read again");
    daemon.stop();
}
