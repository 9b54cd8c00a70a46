//! Goal: every profile that runs serves a disk. Method: fio and ext4 over NBD, with stops and kills in between; at last
//! the origin alone has it all.

use crate::clients::{fio_job, run_fio};
use crate::daemon::{Daemon, Site, first_difference, tool};
use crate::filesystem::ext4_survives;
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;
const ORIGIN_BYTES: u64 = 96 * MIB;
/// Less than what is written.
const CACHE_BYTES: u64 = 32 * MIB;

/// fio reads back what it wrote; after a stop, after a kill, and without the cache the disk is the same.
fn fio_verifies(profile: &str) {
    let site = Site::new(&format!("fio-{profile}"));
    let origin = site.file("origin", ORIGIN_BYTES);
    let cache = site.file("cache", CACHE_BYTES);
    let create = ["create", "--origin", &origin, "--cache", &cache, "--name", "disk", "--mode", "writeback"];
    site.run(&[&create[..], &["--profile", profile]].concat());
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut job = fio_job(&daemon, "verify", 48);
    job.extend(["--iodepth=16".to_owned(), "--end_fsync=1".to_owned()]);
    run_fio(&job);
    let view = site.path("view");
    tool("nbdcopy", &[&daemon.uri("disk"), &view]);
    let is_same = |daemon: &Daemon, when: &str| {
        let now = site.path(when);
        tool("nbdcopy", &[&daemon.uri("disk"), &now]);
        assert_eq!(first_difference(&view, &now), None, "{profile} after {when}");
    };
    daemon.stop();
    let daemon = Daemon::start(&site, &cache, &[]);
    is_same(&daemon, "a-stop");
    daemon.kill();
    let daemon = Daemon::start(&site, &cache, &[]);
    is_same(&daemon, "a-kill");
    daemon.stop();
    assert_eq!(site.report(&["check", &cache])["ok"], true, "{profile}");
    site.run(&["detach", &cache, "disk", "--verify"]);
    assert_eq!(first_difference(&view, &origin), None, "{profile}: the origin alone");
}

macro_rules! profiles {
    ($($module:ident = $profile:literal),+ $(,)?) => {
        const PROFILES: &[&str] = &[$($profile),+];

        $(mod $module {
            #[test]
            fn fio_verifies() {
                super::fio_verifies($profile);
            }

            #[test]
            fn ext4_survives() {
                super::ext4_survives($profile, &[], [super::ORIGIN_BYTES, super::CACHE_BYTES], super::MIB / 2);
            }
        })+
    };
}

profiles! {
    forebay_0_2 = "forebay@0.2",
    flashcache = "flashcache",
    enhanceio = "enhanceio",
    dm_cache = "dm-cache",
    dm_cache_4_5 = "dm-cache@4.5",
    dm_cache_3_16 = "dm-cache@3.16",
    dm_cache_3_9 = "dm-cache@3.9",
    mapperx = "mapperx",
    bcache = "bcache",
    bcache_4_5 = "bcache@4.5",
    bcache_3_16 = "bcache@3.16",
    bcache_3_10 = "bcache@3.10",
    gflash = "gflash",
}

/// Our own has more tests than these.
#[test]
fn all_that_run_are_here() {
    let site = Site::new("profiles");
    let report = site.report(&["profiles"]);
    let profiles = report["profiles"].as_array().expect("a list").iter();
    let running: BTreeSet<&str> = profiles
        .filter(|profile| profile["runs"] == true)
        .map(|profile| profile["name"].as_str().expect("a name"))
        .filter(|name| *name != "forebay")
        .collect();
    assert_eq!(running, PROFILES.iter().copied().collect());
}
