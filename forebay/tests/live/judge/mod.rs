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
mod planted;
mod run;
mod steps;
mod trial;

use crate::fuse;
use medium::Plant;
use run::{Setup, run};

/// A seed for everybody who names none.
const SEED: u64 = 20_261_122;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")),
        Err(_) => default,
    }
}

/// Runs a trial of that profile, and says how to repeat it. `offset` tells the tests of one run apart.
fn judge(test: &str, profile: &'static str, offset: u64, has_threads: bool) {
    if fuse::is_left_out("the test on failing devices") {
        return;
    }
    let default = if profile == "forebay" { 2 } else { 1 };
    let (given, crashes) = (number("FOREBAY_SEED", SEED), number("FOREBAY_KILLS", default));
    let setup = Setup {
        profile,
        seed: given + offset,
        crashes,
        has_threads,
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
                if has_threads { "threads" } else { "io_uring" }
            );
        }
    }
}

macro_rules! trials {
    ($($test:ident = $profile:literal, $offset:literal, $has_threads:expr;)+) => {
        $(#[test]
        fn $test() {
            judge(stringify!($test), $profile, $offset, $has_threads);
        })+
    };
}

/// Whether the daemon takes threads in a run with that seed, where a profile is judged once.
fn by_seed(offset: u64) -> bool {
    (number("FOREBAY_SEED", SEED) + offset) % 2 == 1
}

trials! {
    forebay_on_io_uring = "forebay", 0, false;
    forebay_on_threads = "forebay", 100, true;
    flashcache = "flashcache", 1, by_seed(1);
    enhanceio = "enhanceio", 2, by_seed(3);
    dm_cache = "dm-cache", 3, by_seed(3);
    dm_cache_4_5 = "dm-cache@4.5", 4, by_seed(4);
    dm_cache_3_16 = "dm-cache@3.16", 5, by_seed(5);
    dm_cache_3_9 = "dm-cache@3.9", 6, by_seed(6);
    mapperx = "mapperx", 7, by_seed(7);
    bcache = "bcache", 8, by_seed(9);
    bcache_4_5 = "bcache@4.5", 9, by_seed(10);
    bcache_3_16 = "bcache@3.16", 10, by_seed(10);
    bcache_3_10 = "bcache@3.10", 11, by_seed(11);
    gflash = "gflash", 12, by_seed(12);
}
