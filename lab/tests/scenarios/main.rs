//! A named scenario for every hazard and every rule of the log store, and the proof that each one bites.
//!
//! A scenario is a script for a world: it brings about the one history that loses data where a line of the engine
//! is missing. It runs twice: as the engine is, where all must be well, and with its line switched off
//! (`engine::mutation`), where the oracle must see it.
//!
//! Most of them run on every way to keep records ([`kinds::Kind`]). What the hazards come to beside our own log; a test
//! compares this table with the scenarios:
//!
//! | hazard | records | scenarios, or why there are none |
//! | --- | --- | --- |
//! | 1 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_01_fill_races_with_write_that_came_and_went`, `hazard_01_fill_while_the_origin_is_written` |
//! | 1 | sync-sector, commit, bit-tree, journal, mirror | `hazard_01_fill_published_behind_a_bypass` |
//! | 1 | frames | `hazard_01_changed_on_its_way_to_a_frame` |
//! | 1 | commit, bit-tree | `hazard_01_promotion_while_the_origin_is_written` |
//! | 2 | sync-sector | a page tears at sectors, which hold whole records, each right for itself; data in place tears as on any disk |
//! | 2 | commit, bit-tree | `hazard_02_page_is_not_written_where_it_counts` |
//! | 2 | journal | `hazard_02_key_of_torn_data`, `hazard_02_key_of_data_between_two_flushes`; of headers and summaries the code is our own log's |
//! | 2 | mirror | `hazard_02_payload_of_a_torn_batch`; of headers and summaries the code is our own log's |
//! | 2 | frames | keys are of durable data alone, and recovery reads none of it; the rest of the code is our own log's |
//! | 3 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_03_flush_of_the_cache`, `hazard_03_flush_covers_what_was_before_it`, `rule_07_flush_of_the_origin`, `rule_04_fua_is_flushed` |
//! | 3 | sync-sector, commit, bit-tree | `hazard_03_recorded_before_the_answer` |
//! | 3 | sync-sector | `hazard_03_data_is_flushed_before_its_record` |
//! | 3 | commit, bit-tree | `hazard_03_data_is_flushed_before_its_mapping` |
//! | 3 | journal, mirror, frames | `rule_04_answered_when_written`, `rule_06_recovery_flushes_first` |
//! | 4 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_04_clean_after_the_origin_was_flushed`, `hazard_04_flush_covers_what_was_home_before_it` |
//! | 4 | sync-sector, commit, bit-tree | `hazard_04_rewritten_after_it_went_home`; what goes home unflushed is dirty or forgotten after a crash, not clean and older |
//! | 4 | bit-tree | `hazard_04_marked_before_it_is_written`, `hazard_04_mark_that_is_on_its_way_away`, `hazard_04_mapping_and_mark_together` |
//! | 4 | journal, mirror, frames | `hazard_04_destaged_after_the_cache_was_flushed`, `hazard_04_rewritten_while_it_goes_home` |
//! | 5 | sync-sector | `hazard_05_record_is_gone_before_the_slot_is_reused`, `hazard_05_record_is_taken_back_before_the_slot_is_reused` |
//! | 5 | commit, bit-tree | `hazard_05_mapping_is_gone_before_the_slot_is_reused`, `hazard_05_removal_counts_when_its_record_is_flushed` |
//! | 5 | journal | `hazard_05_bucket_given_up_is_forgotten`, `rule_01_bucket_refilled_before_a_flush`, `rule_05_bucket_refilled_before_a_header_tells`, `hazard_05_tail_keeps_keys_that_hold` |
//! | 5 | mirror | `rule_01_segment_reused_before_a_flush` |
//! | 5 | frames | `hazard_05_block_that_left_is_forgotten`, `rule_01_frame_written_again_before_a_flush`, `rule_03_key_of_a_block_that_changes` |
//! | 6 | sync-sector | a crash forgets what is clean, and what is written through is: the origin alone tells |
//! | 6 | commit | after a crash every slot is dirty: it alone tells, and goes home |
//! | 6 | bit-tree | `hazard_06_marked_before_it_is_written_to_both` |
//! | 6 | journal, mirror, frames | `hazard_06_writethrough_is_dirty_until_it_is_home`, `hazard_06_writethrough_is_in_the_log_before_it_goes_home` |
//! | 7 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_07_bypass_leaves_a_tombstone` |
//! | 7 | sync-sector | `hazard_07_record_is_gone_before_a_bypass`, `hazard_07_record_is_taken_back_before_a_bypass` |
//! | 7 | commit, bit-tree | `hazard_07_mapping_is_gone_before_a_bypass` |
//! | 7 | journal, mirror, frames | `rule_07_tombstone_is_durable_first`, `hazard_07_discard_is_remembered`, `rule_07_dirty_block_is_never_bypassed` |
//! | 7 | journal | `rule_07_bypass_of_what_a_bucket_had`, `hazard_07_key_before_its_tombstone` |
//! | 8 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_08_two_writes_to_one_block`, `rule_13_the_rest_of_the_block` |
//! | 9 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_09_well_known_place_is_written`, `hazard_09_well_known_place_was_changed`, `hazard_09_origin_has_shrunk`, `hazard_09_origin_has_grown`, `hazard_09_older_copy_of_the_cache`, `rule_11_clean_blocks_are_compared` |
//! | 10 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_10_clean_block_rots`, `hazard_10_dirty_block_rots`, `hazard_10_flush_of_the_cache_fails`, `rule_10_verified_before_it_goes_home` |
//! | 10 | commit, bit-tree, journal, mirror, frames | `hazard_10_cache_fails_and_comes_back` |
//! | 10 | sync-sector, commit, bit-tree | `hazard_10_rotten_slot_after_a_kill`, `hazard_10_rotten_slot_after_a_power_cut`, `hazard_10_rotten_clean_slot_after_a_stop` |
//! | 10 | commit, bit-tree | `hazard_10_rotten_clean_slot_after_a_kill` |
//! | 10 | sync-sector | `hazard_10_cache_fails_before_a_record_is_gone`, `rule_10_lost_in_slots_over_a_kill`, `rule_10_found_again_when_flushed` |
//! | 11 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_11_flush_of_the_origin_fails`, `hazard_11_origin_fails_a_destage`, `hazard_11_a_failed_flush_does_not_speak_for_later_writes`, `hazard_11_a_failed_discard_does_not_speak_for_writes` |
//! | 11 | commit | `hazard_11_written_to_both_beside_a_flush_that_fails`, `hazard_11_copied_before_a_flush_that_fails`, `hazard_11_leaves_after_a_flush_that_fails`, `hazard_11_read_beside_a_flush_that_fails` |
//! | 12 | sync-sector, commit, bit-tree, journal, mirror, frames | `hazard_12_held_back_until_somebody_waits` |
//! | 12 | sync-sector, commit, bit-tree | `hazard_12_who_waits_for_what_is_dirty_to_go_home` |
//! | 12 | journal | what finds no bucket goes around the cache and waits for nobody; a ring that is short is our own log's |
//! | 12 | mirror | `hazard_12_who_waits_for_memory_lets_it_be_made` |
//! | 12 | frames | no request waits for a frame: what finds none is not cached |
//! | 13 | sync-sector, commit, bit-tree, journal, mirror, frames | the lock is on the open file, below all records |
//! | 14 | sync-sector, commit, bit-tree | `hazard_14_one_write_to_a_place_at_a_time` |
//! | 14 | journal, mirror, frames | `hazard_14_published_in_log_order` |
//! | 15 | sync-sector, commit, bit-tree | decoders and recovery refuse what cannot be: their own tests, and `fuzz/` |
//! | 15 | journal | the summaries are our own log's; entries that lead out of the buckets are refused by the decoder, and `fuzz/` |
//! | 15 | mirror | `hazard_15_summary_that_points_elsewhere` |
//! | 15 | frames | entries that lead out of the frames are refused by the decoder, and `fuzz/` |
//! | 16 | sync-sector, commit, bit-tree, journal, mirror, frames | the client of a server is below all records |
//!
//! Not here: hazard 13 is the lock on the open file, a switch of the world and not of the engine. Rule 14 is for our own log
//! alone: no other composition can have strict order.

mod areas;
mod buckets;
mod checkpoints;
mod destage;
mod ephemeral;
mod failures;
mod fills;
mod flushes;
mod frames;
mod halves;
mod kinds;
mod late;
mod lost;
mod mirror;
mod order;
mod records;
mod recovery;
mod scrub;
mod segments;
mod servers;
mod slots;
mod slow_cache;
mod starts;
mod steps;
mod succession;
#[cfg(feature = "mutations")]
mod swarm;
mod tombstones;
mod writes;

use engine::mutation::{Mutation, Mutations};
use forebay_lab::violation::{Violation, catch};
use forebay_lab::world::{Setup, World};
use kinds::Kind;

/// One scenario.
pub struct Scenario {
    /// Its name: the hazard or the rule, and what happens.
    pub name: &'static str,
    /// The bug that it is there to see.
    pub mutation: Mutation,
    /// Bugs that are planted in both runs: where two lines prevent the same, each is proved with the other one off.
    pub with: &'static [Mutation],
    /// The world it begins with, but for its records.
    pub setup: fn() -> Setup,
    /// The ways to keep records that it runs on.
    pub kinds: &'static [Kind],
    /// The script.
    pub run: fn(&mut World) -> Result<(), Violation>,
}

/// The table of a file: `name: Mutation, setup;`, `, with Other` where other bugs are planted in both runs, and `, on KINDS`
/// where it is not our own log alone that it runs on.
#[macro_export]
macro_rules! scenarios {
    (@kinds) => { $crate::kinds::INLINE };
    (@kinds $kinds:expr) => { $kinds };
    ($($name:ident: $mutation:ident, $setup:expr $(, with $with:ident)* $(, on $kinds:expr)?;)+) => {
        /// The scenarios of this file.
        pub const SCENARIOS: &[$crate::Scenario] = &[$($crate::Scenario {
            name: stringify!($name),
            mutation: engine::mutation::Mutation::$mutation,
            with: &[$(engine::mutation::Mutation::$with),*],
            setup: $setup,
            kinds: $crate::scenarios!(@kinds $($kinds)?),
            run: $name,
        }),+];
    };
}

const ALL: &[&[Scenario]] = &[
    areas::SCENARIOS,
    fills::SCENARIOS,
    recovery::SCENARIOS,
    flushes::SCENARIOS,
    destage::SCENARIOS,
    ephemeral::SCENARIOS,
    segments::SCENARIOS,
    servers::SCENARIOS,
    tombstones::SCENARIOS,
    writes::SCENARIOS,
    failures::SCENARIOS,
    buckets::SCENARIOS,
    checkpoints::SCENARIOS,
    frames::SCENARIOS,
    halves::SCENARIOS,
    late::SCENARIOS,
    lost::SCENARIOS,
    mirror::SCENARIOS,
    order::SCENARIOS,
    records::SCENARIOS,
    scrub::SCENARIOS,
    succession::SCENARIOS,
    slots::SCENARIOS,
    slow_cache::SCENARIOS,
    starts::SCENARIOS,
];

fn run(scenario: &Scenario, kind: Kind, mutations: Mutations, is_checked: bool) -> Result<(), Violation> {
    catch(|| {
        let mut setup = kind.of((scenario.setup)());
        setup.mutations = mutations;
        setup.is_checked_on_open &= is_checked;
        setup.are_copies_compared = is_checked;
        setup.are_origins_compared = is_checked || starts::is_of_starts(scenario.mutation);
        let mut world = World::new(setup);
        if std::env::var("EVENTS").is_ok_and(|name| name == scenario.name) {
            world.print_events();
        }
        (scenario.run)(&mut world)
    })
}

/// All scenarios, each on all its kinds, or those whose name has what the variable `SCENARIO` says, and whose kind's has what
/// `KIND` says.
fn chosen() -> impl Iterator<Item = (&'static Scenario, Kind)> {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let kind = std::env::var("KIND").unwrap_or_default();
    let scenarios = ALL.iter().copied().flatten().filter(move |scenario| scenario.name.contains(&wanted));
    let all = scenarios.flat_map(|scenario| scenario.kinds.iter().map(move |kind| (scenario, *kind)));
    all.filter(move |(_, on)| on.name().contains(&kind))
}

fn title(scenario: &Scenario, kind: Kind) -> String {
    format!("{} on {} ({})", scenario.name, kind.name(), scenario.mutation.name())
}

#[test]
fn the_engine_as_it_is_passes_every_scenario() {
    let mut failures = Vec::new();
    for (scenario, kind) in chosen() {
        if let Err(violation) = run(scenario, kind, Mutations::NONE, true) {
            failures.push(format!("{}: {violation}", title(scenario, kind)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[cfg(feature = "mutations")]
mod planted {
    use super::*;
    use forebay_lab::violation::Kind as Broken;

    fn background(scenario: &Scenario) -> Mutations {
        scenario.with.iter().fold(Mutations::NONE, |set, &mutation| set.with(mutation))
    }

    #[test]
    fn one_of_two_lines_is_enough() {
        let mut failures = Vec::new();
        for (scenario, kind) in chosen().filter(|(scenario, _)| !scenario.with.is_empty()) {
            if let Err(violation) = run(scenario, kind, background(scenario), true) {
                failures.push(format!("{}: {violation}", title(scenario, kind)));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn every_scenario_fails_without_its_line() {
        let mut failures = Vec::new();
        for (scenario, kind) in chosen() {
            let name = title(scenario, kind);
            // Without a look into the cache at each start: what clients read has to tell.
            match run(scenario, kind, background(scenario).with(scenario.mutation), false) {
                Ok(()) => {
                    let history = scenario.mutation.history();
                    failures.push(format!("{name}: nothing was noticed of this:\n{history}"));
                }
                Err(violation) if violation.kind == Broken::Assertion => {
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
            .filter(|mutation| !ALL.iter().copied().flatten().any(|scenario| scenario.mutation == **mutation))
            .map(|mutation| mutation.name())
            .collect();
        assert!(missing.is_empty(), "no scenario for {missing:?}");
    }
}

/// Goal: what the table above says is so. Method: each hazard has a row for each way to keep records, and what a row names runs
/// there.
#[test]
fn the_table_of_hazards_is_right() {
    let kinds = || kinds::ALL.iter().copied().filter(|kind| *kind != Kind::Inline);
    let mut wrong = Vec::new();
    let mut rows: Vec<(u32, Kind)> = Vec::new();
    let lines = include_str!("main.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    for line in lines.skip(2) {
        let cells: Vec<&str> = line.trim_end_matches(" |").split(" | ").collect();
        let [hazard, records, text] = cells[..] else { panic!("three cells: {line}") };
        let hazard: u32 = hazard.parse().expect("a hazard's number");
        for name in records.split(", ") {
            let kind = kinds().find(|kind| kind.name() == name).expect("a way to keep records");
            rows.push((hazard, kind));
            for named in text.split('`').skip(1).step_by(2).filter(|named| !named.ends_with('/')) {
                let mut all = ALL.iter().copied().flatten();
                if !all.any(|scenario| scenario.name == named && scenario.kinds.contains(&kind)) {
                    wrong.push(format!("{named} does not run on {name}"));
                }
            }
        }
    }
    for hazard in 1..=16 {
        wrong.extend(
            kinds()
                .filter(|kind| !rows.contains(&(hazard, *kind)))
                .map(|kind| format!("nothing is said of hazard {hazard} with {}", kind.name())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Hazard 13: two daemons on one cache. What keeps them apart is a lock on the open file, which the engine does not
/// see: here the switch is whether writes of a killed process may land while its successor runs.
#[test]
fn hazard_13_two_daemons_on_one_cache() {
    let script = |is_locked: bool| {
        catch(|| {
            let mut world = World::new(steps::writeback());
            steps::begin(&mut world)?;
            world.hold(|io| io.is_cache(forebay_lab::disk::faults::Kind::Write));
            let _never_answered = world.write(0, steps::blocks(10, 1));
            world.until_pending(|io| io.is_cache(forebay_lab::disk::faults::Kind::Write))?;
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
    assert_ne!(violation.kind, forebay_lab::violation::Kind::Assertion, "{violation}");
}
