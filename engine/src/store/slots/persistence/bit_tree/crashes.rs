//! Trees of dirty bits over power cuts and deaths.

use crate::store::slots::persistence::commit_world::{Bug, lives, lives_of_a_record};

const SEEDS: u64 = 2000;

#[test]
fn whatever_is_dirty_at_a_crash_is_below_a_mark() {
    let mut clean = 0;
    for seed in 0..SEEDS {
        let world = lives(seed, true, Bug::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        clean += world.clean_found;
    }
    assert!(clean > SEEDS / 2, "and what is clean is often known to be: {clean}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in [
        Bug::DropPageFlush,
        Bug::DropRecordFlush,
        Bug::OverwriteCommittedPage,
        Bug::AckEarly,
        Bug::BitAfterData,
        Bug::ClearBitInFlight,
    ] {
        assert!((0..SEEDS).any(|seed| lives(seed, true, bug).is_err()), "{bug:?}");
    }
}

#[test]
fn a_start_makes_durable_what_it_found() {
    for seed in 0..SEEDS {
        lives_of_a_record(seed, Bug::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!((0..SEEDS).any(|seed| lives_of_a_record(seed, Bug::SkipStartFlush).is_err()));
}
