//! Transactions over power cuts and deaths.

use crate::store::slots::persistence::commit_world::{Bug, lives};

const SEEDS: u64 = 2000;

#[test]
fn what_was_flushed_survives_cuts_and_what_was_answered_survives_deaths() {
    let mut transactions = 0;
    for seed in 0..SEEDS {
        let world = lives(seed, false, Bug::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        transactions += world.transactions;
    }
    assert!(transactions > 5 * SEEDS, "the histories are not trivial: {transactions}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in [
        Bug::DropPageFlush,
        Bug::DropRecordFlush,
        Bug::OverwriteCommittedPage,
        Bug::AckEarly,
        Bug::KeepDeadPages,
    ] {
        assert!((0..SEEDS).any(|seed| lives(seed, false, bug).is_err()), "{bug:?}");
    }
}
