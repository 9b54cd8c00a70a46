//! The swarm over caches with dirty data in memory, too: power cuts and process crashes, on devices that work and on devices
//! that fail, with `safe` and without.
//!
//! `LAB_SEEDS=first..end` runs others, `EVENTS=1` prints what happens.

use engine::mutation::Mutations;
use lab::swarm::{Knob, Options, Totals, run_with};
use lab::world::Counts;

fn seeds(count: u64) -> (u64, u64) {
    let Ok(text) = std::env::var("LAB_SEEDS") else { return (0, count) };
    let (first, end) = text.split_once("..").expect("first..end");
    (first.parse().expect("a number"), end.parse().expect("a number"))
}

/// Runs histories, each of which has some ten cuts; none may find anything.
fn run_all(count: u64, is_faulty: bool, is_early: bool) -> Counts {
    let mut totals = Totals::default();
    let mut found = Vec::new();
    let (first, end) = seeds(count);
    let prints = std::env::var("EVENTS").is_ok();
    for seed in first..end {
        let mut options = Options::draw(seed).with_mirror();
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
    println!("{} of {} fail; {:?}", found.len(), end - first, totals.counts);
    assert!(found.is_empty(), "{}", found.join("\n"));
    totals.counts
}

#[test]
fn memory_and_ring_keep_what_was_promised() {
    let counts = run_all(300, false, false);
    if std::env::var("LAB_SEEDS").is_err() {
        assert!(counts.cuts >= 2_500, "{} cuts", counts.cuts);
        assert!(counts.dirty_recoveries > 0 && counts.destaged_blocks > 0 && counts.hits > 0, "{counts:?}");
        assert!(counts.wraps > 0, "{counts:?}");
    }
}

#[test]
fn they_keep_it_on_devices_that_fail() {
    let counts = run_all(300, true, false);
    assert!(counts.faults > 0, "{counts:?}");
}

/// A crash of the process takes the newest four writes of a volume at the most, and those only if no FLUSH covers them.
#[test]
fn without_safe_the_newest_four_writes_may_be_lost_and_no_others() {
    let counts = run_all(300, true, true);
    assert!(counts.cuts > 0, "{counts:?}");
}
