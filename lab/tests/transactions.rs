//! The swarm over slots that are recorded by transactions, with trees of dirty bits and without: power cuts, process
//! crashes and clean stops.

use crate::histories::run_all;
use engine::composition::Composition;
use engine::effect::RequestOp;
use forebay_lab::disk::Fate;
use forebay_lab::swarm::{Knob, Options};
use forebay_lab::world::{Setup, SlotSetup, World, blocks};

/// Histories of each kind; each has some ten cuts.
const SEEDS: u64 = 400;
/// Cuts that they must come to at the least.
const CUTS_MIN: u64 = 3_000;

fn run_kind(change: impl Fn(Options) -> Options) {
    run_all(SEEDS, CUTS_MIN, change);
}

fn faultless(mut options: Options) -> Options {
    options.set(Knob::faulty, 0);
    options
}

#[test]
fn mappings_keep_what_was_promised() {
    run_kind(|options| faultless(options.with_transactions(false)));
}

#[test]
fn trees_keep_what_was_promised() {
    run_kind(|options| faultless(options.with_transactions(true)));
}

#[test]
fn mappings_keep_it_on_devices_that_fail() {
    run_kind(|options| options.with_transactions(false));
}

#[test]
fn trees_keep_it_on_devices_that_fail() {
    run_kind(|options| options.with_transactions(true));
}

/// What a start found dirty, in bytes, after a write to a new slot, answered, and a kill; with a FLUSH in between or not.
fn dirty_after_a_kill(is_safe: bool, is_flushed: bool) -> u64 {
    let mut composition = Composition::plain_slots();
    composition.set("persistence", "commit").expect("it is possible");
    composition.set("commit_ms", "60000").expect("it is possible");
    composition.safe = is_safe;
    let mut setup = Setup::new(1);
    setup.slots = Some(SlotSetup::new(512, composition));
    setup = setup.with_promise(&composition.contract());
    let mut world = World::new(setup);
    let ticket = world.write(0, blocks(3, 1));
    world.succeed(ticket).expect("written");
    if is_flushed {
        let ticket = world.flush(0);
        world.succeed(ticket).expect("flushed");
    }
    world.kill(|_| false);
    world.open().expect("opened");
    world.verify().expect("all that was promised is there");
    world.reports().last().expect("a start").redestage_bytes
}

/// Goal: without `safe`, and where promotions are not committed at once, the mappings of the last moments are lost with the
/// process, and a FLUSH commits them.
#[test]
fn a_mapping_is_durable_before_the_answer_or_with_the_flush() {
    assert_eq!(dirty_after_a_kill(true, false), 4096);
    assert_eq!(dirty_after_a_kill(false, false), 0, "as dm-cache with smq 2.0");
    assert_eq!(dirty_after_a_kill(false, true), 4096);
}

/// Goal: after a clean stop it is known again what is dirty, and what is cached stays.
#[test]
fn a_clean_stop_tells_what_is_dirty() {
    for persistence in ["commit", "bit-tree"] {
        let mut composition = Composition::plain_slots();
        composition.set("persistence", persistence).expect("it is possible");
        let mut setup = Setup::new(1);
        setup.slots = Some(SlotSetup::new(512, composition));
        let mut world = World::new(setup);
        let ticket = world.write(0, blocks(0, 64));
        world.succeed(ticket).expect("written");
        world.ask(0, RequestOp::Drain).expect("sound").expect("all goes home");
        let ticket = world.write(0, blocks(5, 2));
        world.succeed(ticket).expect("written");
        world.stop().expect("stopped");
        world.open().expect("opened");
        let report = *world.reports().last().expect("a start");
        assert!(report.was_clean);
        assert_eq!((report.blocks, report.redestage_bytes), (64, 2 * 4096), "{persistence}");
        // That counts once: what the next crash finds is judged by itself.
        world.cut_power(|_| Fate::Lost);
        world.open().expect("opened");
        let report = *world.reports().last().expect("a start");
        assert_eq!((report.blocks, report.redestage_bytes), (64, 64 * 4096), "{persistence}: a root for all");
        world.verify().expect("all is there");
    }
}

/// Goal: a volume whose end is cached grows at the first attempt. Method: the last piece, which is short, in a slot.
#[test]
fn a_volume_grows_though_its_end_is_cached() {
    for persistence in ["sync-sector", "commit", "bit-tree"] {
        let mut composition = Composition::plain_slots();
        for (name, value) in [("persistence", persistence), ("slot_bytes", "65536"), ("ways", "0")] {
            composition.set(name, value).expect("it is possible");
        }
        let mut setup = Setup::new(1);
        setup.slots = Some(SlotSetup::new(128, composition));
        let mut world = World::new(setup);
        world.run_dry().expect("at rest");
        for _ in 0..2 {
            let ticket = world.read(0, blocks(1488, 12));
            world.succeed(ticket).expect("read");
            world.pass(5_000_000).expect("it enters the cache");
        }
        assert!(world.counts().hits > 0, "{persistence}: the end is cached");
        let ticket = world.grow(0, 40);
        world.succeed(ticket).unwrap_or_else(|violation| panic!("{persistence}: {violation}"));
        world.verify().expect("the old end and what comes after it are the origin's");
        world.kill(|_| true);
        world.open().expect("opened");
        world.verify().expect("after a crash too");
    }
}

#[cfg(feature = "mutations")]
mod planted {
    use engine::mutation::{Mutation, Mutations};
    use forebay_lab::swarm::{Knob, Options, run_with};
    use forebay_lab::violation::Kind;

    /// Histories that a planted bug is tried with at the most.
    const SEEDS_MAX: u64 = 1500;

    /// Bugs that no history was seen to find yet: they are tried only by name. Each has a script (`scenarios/slots.rs`).
    const NOT_FOUND: [Mutation; 3] =
        [Mutation::MarkInFlight, Mutation::MappingBeforeMark, Mutation::OverwriteUnflushedRecord];

    /// The first history that finds the bug; panics of the engine do not count.
    fn first_found(mutation: Mutation) -> Result<(u64, String), String> {
        let mut asserted = String::new();
        for seed in 0..SEEDS_MAX {
            let mut options = Options::draw(seed).with_transactions(seed % 2 == 0);
            options.set(Knob::faulty, 0);
            let Some(failure) = run_with(&options, Mutations::NONE.with(mutation), false).failure else {
                continue;
            };
            let what: String = failure.violation.to_string().chars().take(160).collect();
            if failure.violation.kind != Kind::Assertion {
                return Ok((seed, what));
            }
            if asserted.is_empty() {
                asserted = format!("; seed {seed}: {what}");
            }
        }
        Err(format!("{} is not found{asserted}", mutation.name()))
    }

    /// `MUTATION=name` tries one.
    #[test]
    fn the_swarm_finds_planted_bugs() {
        let chosen = std::env::var("MUTATION").ok();
        let is_wanted = |mutation: &&Mutation| {
            let is_chosen = chosen.as_deref().map(|name| name == mutation.name());
            mutation.is_of_transactions() && is_chosen.unwrap_or(!NOT_FOUND.contains(mutation))
        };
        let mut missed = Vec::new();
        for &mutation in Mutation::ALL.iter().filter(is_wanted) {
            match first_found(mutation) {
                Ok((seed, what)) => println!("{}: seed {seed}: {what}", mutation.name()),
                Err(what) => missed.push(what),
            }
        }
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }
}
