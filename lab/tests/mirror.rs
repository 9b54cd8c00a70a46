//! The swarm over caches with dirty data in memory, too: power cuts and process crashes, on devices that work and on devices
//! that fail, with `safe` and without.

use crate::histories::run_all;
use forebay_lab::swarm::{Knob, Options};

fn with_mirror(mut options: Options, is_faulty: bool, is_early: bool) -> Options {
    options = options.with_mirror();
    if !is_faulty {
        options.set(Knob::faulty, 0);
    }
    options.set(Knob::early, u64::from(is_early));
    options
}

#[test]
fn memory_and_ring_keep_what_was_promised() {
    let counts = run_all(300, 2_500, |options| with_mirror(options, false, false));
    assert!(counts.is_none_or(|counts| counts.wraps > 0), "{counts:?}");
}

#[test]
fn they_keep_it_on_devices_that_fail() {
    let counts = run_all(300, 2_000, |options| with_mirror(options, true, false));
    assert!(counts.is_none_or(|counts| counts.faults > 0), "{counts:?}");
}

/// A crash of the process takes the newest four writes of a volume at the most, and those only if no FLUSH covers them.
#[test]
fn without_safe_the_newest_four_writes_may_be_lost_and_no_others() {
    run_all(300, 2_000, |options| with_mirror(options, true, true));
}
