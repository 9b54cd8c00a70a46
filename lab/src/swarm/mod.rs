//! Swarm testing: each run draws its world and its events from its seed, with whole features switched off at random,
//! so that rare combinations get runs of their own.

mod aims;
mod draw;
mod knobs;
mod load;
mod mix;
mod off;
mod options;
mod report;
mod shrink;
mod slot_rules;

pub use knobs::Knob;
pub use options::{Options, UnknownKnob};
pub use report::{Failure, Totals};
pub use shrink::shrink;
pub use slot_rules::SLOT_RULES;

use crate::violation::{Violation, catch};
use crate::world::{Counts, World};
use engine::mutation::Mutations;

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its counters.
    pub counts: Counts,
    /// The hash of all events.
    pub hash: u64,
    /// The reason for an early end, if it ended early.
    pub failure: Option<Failure>,
}

/// Runs one world.
#[must_use]
pub fn run(options: &Options) -> Outcome {
    run_with(options, Mutations::NONE, false)
}

/// Runs one world with planted bugs; prints its events if asked to.
#[must_use]
pub fn run_with(options: &Options, mutations: Mutations, print_events: bool) -> Outcome {
    let mut made: Option<World> = None;
    let result: Result<(), Violation> = catch(|| {
        let mut setup = options.setup();
        setup.mutations = mutations;
        let world = made.insert(World::new(setup));
        if print_events {
            world.print_events();
        }
        load::Load::new(options).run(world)
    });
    let (counts, hash) = made.as_ref().map_or_else(Default::default, |world| {
        // An engine that panicked may not be asked any more.
        let counts = if result.is_ok() { world.counts() } else { world.counts_so_far() };
        (counts, world.trace().hash())
    });
    let failure = result.err().map(|violation| {
        let events = made.as_ref().map_or_else(Vec::new, |world| world.trace().last(50));
        Failure { options: options.clone(), violation, events }
    });
    Outcome { counts, hash, failure }
}
