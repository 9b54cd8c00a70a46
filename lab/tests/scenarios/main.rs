//! A named scenario for every hazard and every rule of the log store, and the proof that each one bites.
//!
//! A scenario is a script for a world: it brings about the one history that loses data where a line of the engine
//! is missing. It runs twice: as the engine is, where all must be well, and with its line switched off
//! (`engine::mutation`), where the oracle must see it.
//!
//! Not here: rule 14, which has no code before there is ordered destage; the refusal of a wrong origin (hazard 9), which
//! is the daemon's. Hazard 13 is the lock on the open file: a switch of the world, not of the engine.

mod buckets;
mod destage;
mod failures;
mod fills;
mod flushes;
mod lost;
mod mirror;
mod recovery;
mod segments;
mod steps;
#[cfg(feature = "mutations")]
mod swarm;
mod tombstones;
mod writes;

use engine::mutation::{Mutation, Mutations};
use lab::violation::{Violation, catch};
use lab::world::{Setup, World};

/// One scenario.
pub struct Scenario {
    /// Its name: the hazard or the rule, and what happens.
    pub name: &'static str,
    /// The bug that it is there to see.
    pub mutation: Mutation,
    /// Bugs that are planted in both runs: where two lines prevent the same, each is proved with the other one off.
    pub with: &'static [Mutation],
    /// The world it begins with.
    pub setup: fn() -> Setup,
    /// The script.
    pub run: fn(&mut World) -> Result<(), Violation>,
}

/// The table of a file: `name: Mutation, setup;`, and `, with Other` where other bugs are planted in both runs.
#[macro_export]
macro_rules! scenarios {
    ($($name:ident: $mutation:ident, $setup:expr $(, with $with:ident)*;)+) => {
        /// The scenarios of this file.
        pub const SCENARIOS: &[$crate::Scenario] = &[$($crate::Scenario {
            name: stringify!($name),
            mutation: engine::mutation::Mutation::$mutation,
            with: &[$(engine::mutation::Mutation::$with),*],
            setup: $setup,
            run: $name,
        }),+];
    };
}

const ALL: &[&[Scenario]] = &[
    fills::SCENARIOS,
    recovery::SCENARIOS,
    flushes::SCENARIOS,
    destage::SCENARIOS,
    segments::SCENARIOS,
    tombstones::SCENARIOS,
    writes::SCENARIOS,
    failures::SCENARIOS,
    buckets::SCENARIOS,
    lost::SCENARIOS,
    mirror::SCENARIOS,
];

fn run(scenario: &Scenario, mutations: Mutations, is_checked: bool) -> Result<(), Violation> {
    catch(|| {
        let mut setup = (scenario.setup)();
        setup.mutations = mutations;
        setup.is_checked_on_open &= is_checked;
        setup.are_copies_compared = is_checked;
        let mut world = World::new(setup);
        if std::env::var("EVENTS").is_ok_and(|name| name == scenario.name) {
            world.print_events();
        }
        (scenario.run)(&mut world)
    })
}

/// All scenarios, or those whose name has what the variable `SCENARIO` says.
fn chosen() -> impl Iterator<Item = &'static Scenario> {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    ALL.iter().copied().flatten().filter(move |scenario| scenario.name.contains(&wanted))
}

#[test]
fn the_engine_as_it_is_passes_every_scenario() {
    let mut failures = Vec::new();
    for scenario in chosen() {
        if let Err(violation) = run(scenario, Mutations::NONE, true) {
            failures.push(format!("{} ({}): {violation}", scenario.name, scenario.mutation.name()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[cfg(feature = "mutations")]
mod planted {
    use super::*;
    use lab::violation::Kind;

    fn background(scenario: &Scenario) -> Mutations {
        scenario.with.iter().fold(Mutations::NONE, |set, &mutation| set.with(mutation))
    }

    #[test]
    fn one_of_two_lines_is_enough() {
        let mut failures = Vec::new();
        for scenario in chosen().filter(|scenario| !scenario.with.is_empty()) {
            if let Err(violation) = run(scenario, background(scenario), true) {
                failures.push(format!("{}: {violation}", scenario.name));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn every_scenario_fails_without_its_line() {
        let mut failures = Vec::new();
        for scenario in chosen() {
            let name = format!("{} ({})", scenario.name, scenario.mutation.name());
            // Without a look into the cache at each start: what clients read has to tell.
            match run(scenario, background(scenario).with(scenario.mutation), false) {
                Ok(()) => {
                    let history = scenario.mutation.history();
                    failures.push(format!("{name}: nothing was noticed of this:\n{history}"));
                }
                Err(violation) if violation.kind == Kind::Assertion => {
                    failures.push(format!("{name}: an assertion of the engine was in the way: {violation}"));
                }
                Err(violation) => println!("{name}: {violation}"),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn every_mutation_has_a_scenario() {
        let missing: Vec<&str> = Mutation::ALL
            .iter()
            .filter(|mutation| !mutation.is_of_transactions())
            .filter(|mutation| !ALL.iter().copied().flatten().any(|scenario| scenario.mutation == **mutation))
            .map(|mutation| mutation.name())
            .collect();
        assert!(missing.is_empty(), "no scenario for {missing:?}");
    }
}

/// Hazard 13: two daemons on one cache. What keeps them apart is a lock on the open file, which the engine does not
/// see: here the switch is whether writes of a killed process may land while its successor runs.
#[test]
fn hazard_13_two_daemons_on_one_cache() {
    let script = |is_locked: bool| {
        catch(|| {
            let mut world = World::new(steps::writeback());
            steps::begin(&mut world)?;
            world.hold(|io| io.is_cache(lab::disk::faults::Kind::Write));
            let _never_answered = world.write(0, steps::blocks(10, 1));
            world.until_pending(|io| io.is_cache(lab::disk::faults::Kind::Write))?;
            if is_locked {
                world.kill(|_| true);
            } else {
                world.kill_without_lock(|_| true);
            }
            world.open()?;
            steps::write_fua(&mut world, 0, 20, 1)?;
            world.land_late();
            world.verify_cut()
        })
    };
    assert_eq!(script(true), Ok(()));
    let violation = script(false).expect_err("a write of the predecessor went over one of the successor");
    assert_ne!(violation.kind, lab::violation::Kind::Assertion, "{violation}");
}
