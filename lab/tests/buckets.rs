//! The swarm over keys and buckets: power cuts and process crashes, first on devices that do not fail otherwise.

use lab::swarm::{Knob, Options, Totals, run};

/// Histories; each has some ten cuts.
const SEEDS: u64 = 400;
/// Cuts that they must come to at the least.
const CUTS_MIN: u64 = 3_000;

#[test]
fn buckets_keep_what_was_promised() {
    let mut totals = Totals::default();
    let mut found = Vec::new();
    for seed in 0..SEEDS {
        let mut options = Options::draw(seed).with_buckets();
        options.set(Knob::faulty, 0);
        let outcome = run(&options);
        totals.add(&outcome.counts, outcome.failure.is_some());
        found.extend(outcome.failure.map(|failure| failure.to_string()));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let counts = totals.counts;
    assert!(counts.cuts >= CUTS_MIN, "{} cuts", counts.cuts);
    assert!(counts.dirty_recoveries > 0 && counts.destaged_blocks > 0 && counts.hits > 0, "{counts:?}");
}
