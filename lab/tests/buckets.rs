//! The swarm over keys and buckets: power cuts and process crashes, on devices that work and on devices that fail, with `safe`
//! and without.

use crate::histories::run_all;
use forebay_lab::swarm::{Knob, Options};

fn with_buckets(mut options: Options, is_faulty: bool, is_early: bool) -> Options {
    options = options.with_buckets();
    if !is_faulty {
        options.set(Knob::faulty, 0);
    }
    options.set(Knob::early, u64::from(is_early));
    options
}

#[test]
fn buckets_keep_what_was_promised() {
    let counts = run_all(400, 3_000, |options| with_buckets(options, false, false));
    assert!(counts.is_none_or(|counts| counts.wraps > 0), "{counts:?}");
}

#[test]
fn buckets_keep_it_on_devices_that_fail() {
    let counts = run_all(200, 1_400, |options| with_buckets(options, true, false));
    assert!(counts.is_none_or(|counts| counts.faults > 0), "{counts:?}");
}

/// Of what is not flushed the last moments may be lost; and origins keep what they acknowledge.
#[test]
fn without_safe_the_published_promise_is_kept() {
    run_all(200, 1_400, |options| with_buckets(options, true, true));
}
