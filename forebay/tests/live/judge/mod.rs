//! The judge: the real daemon on devices that fail, judged by the histories of all its sectors.
//!
//! Goal: what is promised holds for every profile, with io_uring and with threads, whatever the devices do. Method: all
//! is drawn from one seed. Clients of several volumes are at work while devices fail operations, hang, vanish, run full or
//! lose their power; the daemon is killed, stopped, and started again, also in vain. `ledger` says which errors that
//! explains; every other error, and every sector that is not what it may be, is a finding. At last each origin alone
//! must be what its clients saw.
//!
//! `FOREBAY_KILLS` is the number of crashes for each profile (1, and 2 for our own), `FOREBAY_SEED` what all is
//! drawn from.

mod caches;
mod layer;
mod ledger;
mod medium;
mod noted;
mod planted;
mod run;
mod steps;
mod trial;

use crate::fuse;
use crate::settings::number;
pub use ledger::NOTED_WITHIN;
use medium::Plant;
use run::{Setup, run};

/// A seed for everybody who names none.
const SEED: u64 = 20_261_122;

/// What carries out the daemon's system calls in a trial.
enum Backend {
    IoUring,
    Threads,
    /// One of the two, by the trial's seed: for a profile that is judged once.
    BySeed,
}

impl Backend {
    fn has_threads(&self, seed: u64) -> bool {
        match self {
            Backend::IoUring => false,
            Backend::Threads => true,
            Backend::BySeed => !seed.is_multiple_of(2),
        }
    }
}

/// Runs a trial of that profile, and says how to repeat it. `offset` tells the tests of one run apart.
fn judge(test: &str, profile: &'static str, offset: u64, backend: Backend) {
    if fuse::is_left_out("the test on failing devices") {
        return;
    }
    let default = if profile == "forebay" { 2 } else { 1 };
    let (given, crashes) = (number("FOREBAY_SEED", SEED), number("FOREBAY_KILLS", default));
    let seed = given + offset;
    let setup = Setup {
        profile,
        seed,
        crashes,
        has_threads: backend.has_threads(seed),
        is_layered: false,
        plant_in_cache: Plant::None,
        plant_in_origins: Plant::None,
    };
    match run(&setup) {
        Ok((seen, faults)) => {
            println!("{test}, seed {given}: {faults} faults, {seen:?}");
            assert!(seen.changes > 0 && seen.reads > 0, "clients were at work");
        }
        Err(finding) => {
            let again = format!(
                "FOREBAY_SEED={given} FOREBAY_KILLS={crashes} cargo test --release -p forebay --test live -- \
                 --nocapture --exact judge::{test}"
            );
            panic!(
                "{profile}, {}: {finding}\nagain: {again}",
                if setup.has_threads { "threads" } else { "io_uring" }
            );
        }
    }
}

macro_rules! trials {
    ($($test:ident = $profile:literal, $offset:literal, $backend:ident;)+) => {
        $(#[test]
        fn $test() {
            judge(stringify!($test), $profile, $offset, Backend::$backend);
        })+
    };
}

trials! {
    forebay_on_io_uring = "forebay", 0, IoUring;
    forebay_on_threads = "forebay", 100, Threads;
    flashcache = "flashcache", 1, BySeed;
    enhanceio = "enhanceio", 2, BySeed;
    dm_cache = "dm-cache", 3, BySeed;
    dm_cache_4_5 = "dm-cache@4.5", 4, BySeed;
    dm_cache_3_16 = "dm-cache@3.16", 5, BySeed;
    dm_cache_3_9 = "dm-cache@3.9", 6, BySeed;
    mapperx = "mapperx", 7, BySeed;
    bcache = "bcache", 8, BySeed;
    bcache_4_5 = "bcache@4.5", 9, BySeed;
    bcache_3_16 = "bcache@3.16", 10, BySeed;
    bcache_3_10 = "bcache@3.10", 11, BySeed;
    gflash = "gflash", 12, BySeed;
    forebay_0_2 = "forebay@0.2", 13, BySeed;
}
