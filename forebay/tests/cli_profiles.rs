//! Goal: every profile that runs keeps what it promises. Method: the simulator's swarm, a thousand cuts for each.

mod cli_support;

use cli_support::Place;
use serde_json::Value;

/// Histories of each profile; each has some ten cuts.
const RUNS: &str = "130";
const CUTS_MIN: u64 = 1000;

#[test]
fn a_thousand_power_cuts_for_every_profile_that_runs() {
    let place = Place::new();
    let profiles: Value = serde_json::from_str(&place.done(&["profiles", "--json"])).unwrap();
    let profiles = profiles["profiles"].as_array().unwrap();
    let names = profiles.iter().filter(|profile| profile["runs"] == true).map(|profile| &profile["name"]);
    let mut seen = Vec::new();
    for name in names.map(|name| name.as_str().unwrap()) {
        let verify = ["lab", "verify", "--profile", name, "--seed", "1", "--runs", RUNS, "--json"];
        let report: Value = serde_json::from_str(&place.done(&verify)).unwrap();
        assert_eq!((&report["profile"], &report["violations"]), (&name.into(), &0.into()));
        assert!(report["cuts"].as_u64() >= Some(CUTS_MIN), "{name}: {report}");
        assert!(report["recoveries_with_dirty_data"].as_u64() > Some(0), "{name}: {report}");
        seen.push(name);
    }
    for name in ["forebay", "flashcache", "enhanceio", "bcache", "gflash"] {
        assert!(seen.contains(&name), "{name}");
    }
}
