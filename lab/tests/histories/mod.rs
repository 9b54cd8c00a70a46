//! Histories of the swarm, as the tests of one kind of cache run them: none may find anything.
//!
//! `LAB_SEEDS=first..end` runs others, `EVENTS=1` prints what happens.

use engine::mutation::Mutations;
use forebay_lab::swarm::{Options, Totals, run_with};
use forebay_lab::world::Counts;

fn chosen() -> Option<std::ops::Range<u64>> {
    let text = std::env::var("LAB_SEEDS").ok()?;
    let (first, end) = text.split_once("..").expect("first..end");
    Some(first.parse().expect("a number")..end.parse().expect("a number"))
}

/// Runs the histories of the first `count` seeds, each as `change` makes it of what its seed draws. They come to
/// `cuts_min` cuts at the least, and to what a cache does in them. `None` if others were chosen: those prove nothing besides.
pub fn run_all(count: u64, cuts_min: u64, change: impl Fn(Options) -> Options) -> Option<Counts> {
    let counts = run_any(count, cuts_min, change)?;
    assert!(counts.dirty_recoveries > 0 && counts.destaged_blocks > 0, "{counts:?}");
    Some(counts)
}

/// As [`run_all`], for caches that may hold nothing dirty.
pub fn run_any(count: u64, cuts_min: u64, change: impl Fn(Options) -> Options) -> Option<Counts> {
    let mut totals = Totals::default();
    let mut found = Vec::new();
    let seeds = chosen().unwrap_or(0..count);
    let prints = std::env::var("EVENTS").is_ok();
    for seed in seeds {
        let outcome = run_with(&change(Options::draw(seed)), Mutations::NONE, prints);
        totals.add(&outcome.counts, outcome.failure.is_some());
        if let Some(failure) = outcome.failure {
            println!("seed {seed}: {}", failure.violation);
            found.push(failure.to_string());
        }
    }
    let counts = totals.counts;
    println!("{} fail; {counts:?}", found.len());
    assert!(found.is_empty(), "{} histories:\n{}", found.len(), found.join("\n"));
    if chosen().is_some() {
        return None;
    }
    assert!(counts.cuts >= cuts_min, "{} cuts", counts.cuts);
    assert!(counts.hits > 0, "{counts:?}");
    Some(counts)
}
