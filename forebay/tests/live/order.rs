//! Strict order under a file system: the only SSD is thrown away, and the origin alone is a disk that can be mounted.
//!
//! `FOREBAY_LOSSES` is the number of SSDs (3), `FOREBAY_SEED` what moments are drawn from.

use crate::daemon::{Daemon, Site, first_difference, tool};
use crate::filesystem::Mount;
use crate::fuse::{self, FuseFile, LoopDevice};
use crate::nbd_origin::server::Server;
use crate::settings::number;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// How long a cache lives, in milliseconds.
const LIFE_MS: Range<u64> = 300..4000;
/// Time between the answer of `status` and the moment that its figures are of, at the most.
const LOOK: Duration = Duration::from_millis(500);

/// A file that was written, and when its fsync was answered.
struct Synced {
    name: String,
    at: Instant,
}

/// Writes files one after the other, each with an fsync, until it is told to end, or until the file system fails.
fn write_files(directory: &str, seed: u64, is_over: &AtomicBool) -> Vec<Synced> {
    let mut synced = Vec::new();
    for number in 0.. {
        let name = format!("file-{number}");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(format!("{directory}/{name}"))?;
            file.write_all(&content(seed, number))?;
            file.sync_all()?;
            // The name is in the directory.
            File::open(directory)?.sync_all()
        };
        if is_over.load(Ordering::Relaxed) || write().is_err() {
            break;
        }
        synced.push(Synced { name, at: Instant::now() });
    }
    synced
}

/// The content of a file, of up to 64 KiB.
fn content(seed: u64, number: u64) -> Vec<u8> {
    let mut draw = Xoshiro256PlusPlus::seed_from_u64(seed ^ number);
    let mut bytes = vec![0; draw.random_range(1..65_536)];
    draw.fill(&mut bytes[..]);
    bytes
}

/// Goal: who loses the only SSD loses the last seconds, and no file system. Method: ext4 on a volume in strict order, files with
/// an fsync each; the daemon is killed and its cache deleted; the origin's journal is replayed, e2fsck has nothing to say, and
/// each file is there that was synced before what `status` said just before.
#[test]
fn ext4_outlives_the_only_ssd() {
    if fuse::is_left_out("the test of a lost SSD") {
        return;
    }
    let seed = number("FOREBAY_SEED", 20_261_125);
    println!("FOREBAY_SEED={seed}");
    let mut draw = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut kept, mut lost) = (0, 0);
    let rounds = number("FOREBAY_LOSSES", 3);
    for round in 0..rounds * 4 {
        let is_proved = kept > 20 && lost > 0;
        if round >= rounds && is_proved {
            break;
        }
        let life = Duration::from_millis(draw.random_range(LIFE_MS));
        // On a disk that others keep busy little goes home in such a life.
        let life = if round >= rounds { 3 * life } else { life };
        let (kept_now, lost_now) = lose_an_ssd(seed + round, life);
        println!("round {round}: {} ms, {kept_now} files kept, {lost_now} lost", life.as_millis());
        kept += kept_now;
        lost += lost_now;
    }
    assert!(kept > 20 && lost > 0, "{kept} files were kept and {lost} lost: nothing is proved");
}

/// Loses one; how many files the origin had, and how many it lacked.
fn lose_an_ssd(seed: u64, life: Duration) -> (usize, usize) {
    let site = Site::new("order");
    let image = site.file("origin", 96 * MIB);
    let cache = site.file("cache", 64 * MIB);
    // A disk that takes its time for each write, so that much is lost.
    let slow = Server::nbdkit(&site, "slow", &["--filter=delay", "file", &image, "wdelay=4ms"]);
    let origin = slow.uri();
    let create = ["create", "--origin", &origin, "--cache", &cache, "--name", "disk", "--order", "strict"];
    site.run(&create);
    let daemon = Daemon::start(&site, &cache, &[]);
    let is_over = AtomicBool::new(false);
    let (synced, lag, asked) = {
        let file = FuseFile::mount(&site, "fuse", &daemon.uri("disk"));
        let device = LoopDevice::attach(&file);
        tool("mkfs.ext4", &["-q", "-F", device.path()]);
        let mount = Mount::new(&site, &device);
        site.run(&["flush", &cache]);
        std::thread::scope(|scope| {
            let directory = mount.path("");
            let is_over = &is_over;
            let writer = scope.spawn(move || write_files(&directory, seed, is_over));
            std::thread::sleep(life);
            let asked = Instant::now();
            let status = site.report(&["status", &cache]);
            let lag = status["volumes"][0]["order"]["lag_seconds"].as_f64().expect("the order is strict");
            daemon.kill();
            is_over.store(true, Ordering::Relaxed);
            (writer.join().expect("it only writes"), Duration::from_secs_f64(lag), asked)
        })
    };
    drop(slow);
    std::fs::remove_file(&cache).expect("the SSD is thrown away");
    tool("e2fsck", &["-p", "-E", "journal_only", &image]);
    tool("e2fsck", &["-f", "-n", &image]);
    let found = site.path("found");
    std::fs::create_dir_all(&found).expect("a directory");
    tool("debugfs", &["-R", &format!("rdump / {found}"), &image]);
    let (mut kept, mut lost) = (0, 0);
    for (number, Synced { name, at }) in (0..).zip(&synced) {
        let wanted = site.path("wanted");
        std::fs::write(&wanted, content(seed, number)).expect("room");
        let path = format!("{found}/{name}");
        let is_there = std::path::Path::new(&path).exists() && first_difference(&wanted, &path).is_none();
        let must_be = *at + lag + LOOK < asked;
        assert!(is_there || !must_be, "{name} was synced {:?} before, and {lag:?} may be lost", asked - *at);
        kept += usize::from(is_there);
        lost += usize::from(!is_there);
    }
    (kept, lost)
}
