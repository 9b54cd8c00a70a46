//! The swarm over keys and buckets: power cuts and process crashes on devices that do not fail otherwise.
//!
//! `LAB_SEEDS=first..end` runs others, `LAB_FAULTY=1` with devices that fail, `LAB_EARLY=1` without `safe`, `EVENTS=1` prints what happens.

use engine::mutation::Mutations;
use lab::swarm::{Knob, Options, Totals, run_with};

/// Histories; each has some ten cuts.
const SEEDS: u64 = 400;
/// Cuts that they must come to at the least.
const CUTS_MIN: u64 = 3_000;

fn seeds() -> (u64, u64) {
    let Ok(text) = std::env::var("LAB_SEEDS") else { return (0, SEEDS) };
    let (first, end) = text.split_once("..").expect("first..end");
    (first.parse().expect("a number"), end.parse().expect("a number"))
}

#[test]
fn buckets_keep_what_was_promised() {
    let mut totals = Totals::default();
    let mut found = Vec::new();
    let (first, end) = seeds();
    let is_faulty = std::env::var("LAB_FAULTY").is_ok();
    let is_early = std::env::var("LAB_EARLY").is_ok();
    let prints = std::env::var("EVENTS").is_ok();
    for seed in first..end {
        let mut options = Options::draw(seed).with_buckets();
        if !is_faulty {
            options.set(Knob::faulty, 0);
        }
        options.set(Knob::early, u64::from(is_early));
        let outcome = run_with(&options, Mutations::NONE, prints);
        totals.add(&outcome.counts, outcome.failure.is_some());
        if let Some(failure) = outcome.failure {
            println!("seed {seed}: {}", failure.violation);
            found.push(failure.to_string());
        }
    }
    let counts = totals.counts;
    println!("{} of {} fail; {counts:?}", found.len(), end - first);
    assert!(found.is_empty(), "{}", found.join("\n"));
    if (first, end) == (0, SEEDS) {
        assert!(counts.cuts >= CUTS_MIN, "{} cuts", counts.cuts);
        assert!(counts.dirty_recoveries > 0 && counts.destaged_blocks > 0 && counts.hits > 0, "{counts:?}");
        assert!(counts.wraps > 0, "{counts:?}");
    }
}
