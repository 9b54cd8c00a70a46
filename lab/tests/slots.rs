//! The swarm over slots: power cuts and process crashes on devices that do not fail otherwise.

use lab::swarm::{Knob, Options, SLOT_RULES, Totals, run};

/// Histories of the plain rules, and of each of the others; each has some ten cuts.
const SEEDS: u64 = 400;
const SEEDS_OF_OTHERS: u64 = 100;
/// Cuts that they must come to at the least.
const CUTS_MIN: u64 = 3_000;
const CUTS_MIN_OF_OTHERS: u64 = 700;

fn keep_what_was_promised(rules: std::ops::Range<u64>, seeds: u64, cuts_min: u64) {
    let mut found = Vec::new();
    for rules in rules {
        let mut totals = Totals::default();
        for seed in 0..seeds {
            let mut options = Options::draw(seed).with_slots();
            options.set(Knob::faulty, 0);
            options.set(Knob::slot_rules, rules);
            let outcome = run(&options);
            totals.add(&outcome.counts, outcome.failure.is_some());
            found.extend(outcome.failure.map(|failure| failure.to_string()));
        }
        let counts = totals.counts;
        assert!(counts.cuts >= cuts_min, "{} cuts", counts.cuts);
        assert!(counts.dirty_recoveries > 0 && counts.destaged_blocks > 0 && counts.hits > 0, "{counts:?}");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn slots_keep_what_was_promised() {
    keep_what_was_promised(0..1, SEEDS, CUTS_MIN);
}

#[test]
fn whatever_the_rules_are() {
    keep_what_was_promised(1..SLOT_RULES, SEEDS_OF_OTHERS, CUTS_MIN_OF_OTHERS);
}

/// Histories with failing devices that found something once.
const FOUND: [u64; 4] = [297, 1621, 3349, 3576];

#[test]
fn what_was_found_with_failing_devices_stays_mended() {
    let found: Vec<String> = FOUND
        .into_iter()
        .filter_map(|seed| run(&Options::draw(seed).with_slots()).failure)
        .map(|failure| failure.to_string())
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
