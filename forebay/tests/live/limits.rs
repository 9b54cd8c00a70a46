//! Limits of volumes: fio's figures, with and without them, side by side.

use crate::daemon::{Daemon, Site, tool};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Two volumes, `slow` and `free`, on one cache.
fn two_volumes(site: &Site) -> String {
    let cache = site.file("cache", 96 * MIB);
    let (one, other) = (site.file("one", 64 * MIB), site.file("other", 64 * MIB));
    site.run(&["create", "--origin", &one, "--cache", &cache, "--name", "slow"]);
    site.run(&["add", &cache, "--origin", &other, "--name", "free"]);
    cache
}

/// A job of fio on a volume, for some seconds.
fn job(daemon: &Daemon, volume: &str, seconds: u32, options: &[&str]) -> Vec<String> {
    let mut arguments = vec![
        format!("--name={volume}"),
        "--ioengine=nbd".to_owned(),
        format!("--uri={}", daemon.uri(volume)),
        "--size=32M".to_owned(),
        "--iodepth=16".to_owned(),
        "--time_based".to_owned(),
        format!("--runtime={seconds}"),
    ];
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    arguments
}

/// Runs jobs beside each other; the figures of each, reads and writes together.
fn run(jobs: &[Vec<String>]) -> Vec<Figures> {
    let mut arguments = vec!["--output-format=json", "--thread"];
    arguments.extend(jobs.iter().flatten().map(String::as_str));
    let told = tool("fio", &arguments);
    let told: Value = serde_json::from_str(&told[told.find('{').expect("JSON")..]).expect("fio speaks JSON");
    let jobs = told["jobs"].as_array().expect("jobs");
    jobs.iter().map(|job| Figures::of(&job["read"]).plus(Figures::of(&job["write"]))).collect()
}

struct Figures {
    requests: f64,
    bytes: f64,
    seconds: f64,
}

impl Figures {
    fn of(direction: &Value) -> Figures {
        let number = |key: &str| direction[key].as_f64().expect("a number");
        Figures { requests: number("total_ios"), bytes: number("io_bytes"), seconds: number("runtime") / 1e3 }
    }

    fn plus(self, other: Figures) -> Figures {
        Figures {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            seconds: self.seconds.max(other.seconds),
        }
    }

    fn iops(&self) -> f64 {
        self.requests / self.seconds
    }

    fn bandwidth(&self) -> f64 {
        self.bytes / self.seconds
    }
}

fn stats_of(site: &Site, cache: &str, volume: &str) -> Value {
    let stats = site.report(&["stats", cache]);
    let volumes = stats["volumes"].as_array().expect("volumes");
    volumes.iter().find(|stats| stats["name"] == volume).expect("it is served").clone()
}

/// A limit holds within a tenth, for requests as for bytes, and the volume beside it is not held back.
#[test]
fn a_limit_holds_and_the_other_volume_is_untouched() {
    let site = Site::new("limits");
    let cache = two_volumes(&site);
    let daemon = Daemon::start(&site, &cache, &[]);
    site.run(&["set", &cache, "slow", "iops=300,burst=10"]);
    let mixed = ["--rw=randrw", "--bs=4k"];
    let figures = run(&[job(&daemon, "slow", 5, &mixed), job(&daemon, "free", 5, &mixed)]);
    let (slow, free) = (figures[0].iops(), figures[1].iops());
    assert!((270.0..=330.0).contains(&slow), "{slow} requests a second where 300 may be");
    assert!(free > 3.0 * slow, "{free} beside {slow}");

    site.run(&["set", &cache, "slow", "iops=none", "bandwidth=8M,burst=256K"]);
    let long = ["--rw=write", "--bs=128k"];
    let figures = run(&[job(&daemon, "slow", 5, &long), job(&daemon, "free", 5, &mixed)]);
    let mebibytes = figures[0].bandwidth() / MIB as f64;
    assert!((7.2..=8.8).contains(&mebibytes), "{mebibytes} MiB a second where 8 may be");

    let status = site.report(&["status", &cache]);
    let limits = &status["volumes"][0]["limits"];
    assert_eq!(
        (&limits["bandwidth_bytes"], &limits["iops"]),
        (&Value::from(8 * MIB), &Value::Null),
        "{limits}"
    );
    let held = &stats_of(&site, &cache, "slow")["held_back"];
    assert!(held["requests"].as_u64() > Some(1000) && held["seconds"].as_f64() > Some(1.0), "{held}");
    assert_eq!(stats_of(&site, &cache, "free")["held_back"]["requests"], 0);

    // What was set outlives the daemon; without limits everything goes.
    daemon.stop();
    let daemon = Daemon::start(&site, &cache, &[]);
    let shown = site.run(&["status", &cache]);
    assert!(shown.contains("limits     bandwidth=8M,burst=256K"), "{shown}");
    site.run(&["set", &cache, "slow", "bandwidth=none"]);
    let figures = run(&[job(&daemon, "slow", 2, &mixed)]);
    assert!(figures[0].iops() > 900.0, "{}", figures[0].iops());
    assert_eq!(stats_of(&site, &cache, "slow")["held_back"]["requests"], 0);
    daemon.stop();
}
