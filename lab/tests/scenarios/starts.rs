//! Hazard 9, rule 11: starts that are refused, origins that somebody changes while no engine runs.

use crate::kinds::ALL;
use crate::steps::*;
use engine::mutation::Mutation;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{Setup, World};

crate::scenarios! {
    rule_11_refused_start_writes_nothing: SessionBeforeChecks, writeback, on ALL;
    rule_11_refused_start_keeps_the_clean_stop: RefusalForgetsStop, writeback, on ALL;
    rule_11_clean_blocks_are_compared: SkipSamples, writeback, on ALL;
    hazard_09_well_known_place_was_changed: TrustChangedOrigin, writeback, on ALL;
    hazard_09_origin_has_shrunk: AcceptShrunk, odd_sized, on ALL;
    hazard_09_origin_has_grown: OverlookGrowth, writeback, on ALL;
    hazard_09_older_copy_of_the_cache: TrustOlderCopy, writeback, on ALL;
}

/// The end of volume 0 is in the middle of a block, which is no well-known place.
fn odd_sized() -> Setup {
    let mut setup = writeback();
    setup.volumes[0].sectors += 4;
    setup
}

/// Whether a planted bug is in the comparison of origins: with any other one the clients alone tell.
pub fn is_of_starts(mutation: Mutation) -> bool {
    SCENARIOS.iter().any(|scenario| scenario.mutation == mutation)
}

/// A cache that was stopped cleanly, with nothing dirty and some clean blocks of volume 0.
fn stopped(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 40, 2)?;
    drain(world, 0)?;
    fill(world, 0, 100, 4)?;
    world.stop()?;
    assert!(world.begin_changes(), "nothing is broken");
    Ok(())
}

/// Two starts are refused; with the origins as they were the third is not, and all is there.
fn refused_twice_and_put_back(world: &mut World) -> Run {
    for _ in 0..2 {
        if world.start_changed()?.is_none() {
            return Err(Violation::new(Broken::Contract, "a changed origin is served"));
        }
    }
    world.put_origins_back();
    world.open()?;
    if !world.reports().last().is_some_and(|report| report.was_clean) {
        return Err(Violation::new(Broken::Contract, "a refused start took the clean stop away"));
    }
    world.verify()
}

fn rule_11_refused_start_writes_nothing(world: &mut World) -> Run {
    stopped(world)?;
    world.write_behind(0, blocks(100, 4));
    refused_twice_and_put_back(world)
}

fn rule_11_refused_start_keeps_the_clean_stop(world: &mut World) -> Run {
    stopped(world)?;
    world.write_behind(0, blocks(0, 1));
    refused_twice_and_put_back(world)
}

fn rule_11_clean_blocks_are_compared(world: &mut World) -> Run {
    stopped(world)?;
    world.write_behind(0, blocks(101, 1));
    refused_twice_and_put_back(world)
}

fn hazard_09_well_known_place_was_changed(world: &mut World) -> Run {
    stopped(world)?;
    world.write_behind(0, sectors(world.volume_sectors(0) - 1, 1));
    refused_twice_and_put_back(world)
}

fn hazard_09_origin_has_shrunk(world: &mut World) -> Run {
    stopped(world)?;
    let size = world.volume_sectors(0);
    world.resize_origin(0, size - 4);
    refused_twice_and_put_back(world)
}

fn hazard_09_origin_has_grown(world: &mut World) -> Run {
    stopped(world)?;
    let size = world.volume_sectors(0);
    world.resize_origin(0, size + 24);
    if let Some(refusal) = world.start_changed()? {
        return Err(Violation::new(Broken::Contract, refusal.to_string()));
    }
    world.verify()
}

fn hazard_09_older_copy_of_the_cache(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 40, 2)?;
    world.stop()?;
    let copy = world.copy_of_cache().expect("it has a superblock");
    world.open()?;
    write_fua(world, 0, 40, 2)?;
    drain(world, 0)?;
    world.stop()?;
    world.start_older_copy(&copy)?;
    world.open()?;
    world.verify()
}
