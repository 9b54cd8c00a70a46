//! Rule 16: of a line of caches that take each other's places exactly one is believed, whatever crash comes when.

use crate::kinds::{ALL, RINGS};
use crate::steps::*;
use engine::effect::RequestOp;
use engine::format::SUPERBLOCK_OFFSETS;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::World;

crate::scenarios! {
    rule_16_nothing_dirty_is_left_behind: HandOverDirty, writeback, on ALL;
    rule_16_old_cache_is_retired_first: HeirBeforeRetired, writeback, on ALL;
    rule_16_old_cache_is_retired_durably: RetireUnflushed, writeback, on ALL;
    rule_16_both_copies_of_the_new_cache_say_so: HeirInOneCopy, damaged, on ALL;
    rule_16_made_anew_over_a_crash: RemakeWithoutNote, writeback, on ALL;
    rule_16_made_anew_under_another_id: RemakeKeepsSetId, writeback, on RINGS;
}

/// Writes and flushes of a succession at the most, in these small worlds.
const CHANGES_MAX: u64 = 60;
/// Power cuts at each moment of a succession, each with other fates.
const CUTS: u32 = 6;

/// Stops a cache with everything at the origins.
fn stop_home(world: &mut World) -> Run {
    write_fua(world, 0, 10, 1)?;
    fill(world, 0, 40, 4)?;
    for volume in 0..world.volumes() {
        drain(world, volume)?;
    }
    world.run_dry()?;
    world.stop()
}

fn rule_16_nothing_dirty_is_left_behind(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    // The origin is away, so that nothing goes home before the stop.
    let stop = world.submit(0, RequestOp::Stop);
    world.succeed(stop)?;
    world.stopped()?;
    if world.may_succeed() && !world.replace_cache(70, u64::MAX - 1)? {
        return Err(Violation::new(Broken::Contract, "nobody cut the power"));
    }
    world.open()?;
    world.verify_cut()
}

type Job = fn(&mut World, u64) -> Result<bool, Violation>;

/// Stops a cache, cuts its succession after so many changes, and goes on with it. True if there was nothing left to cut.
fn succeed_over_a_cut(world: &mut World, job: Job, changes: u64) -> Result<bool, Violation> {
    stop_home(world)?;
    let was_done_at_once = job(world, changes)?;
    if !was_done_at_once && !job(world, u64::MAX - 1)? {
        return Err(Violation::new(Broken::Contract, "nobody cut the power"));
    }
    Ok(was_done_at_once)
}

/// Cuts a succession at each of its moments, and goes on with it until it is done.
fn at_each_moment(world: &mut World, job: Job) -> Run {
    begin(world)?;
    for changes in 0..CHANGES_MAX {
        for _ in 0..CUTS {
            let was_done_at_once = succeed_over_a_cut(world, job, changes)?;
            world.start_retired()?;
            world.open()?;
            world.verify_cut()?;
            if was_done_at_once {
                return Ok(());
            }
        }
    }
    Err(Violation::new(Broken::Contract, "it takes longer than it should"))
}

fn replace(world: &mut World, changes: u64) -> Result<bool, Violation> {
    let segments = if changes.is_multiple_of(2) { 70 } else { 65 };
    world.replace_cache(segments, changes)
}

fn remake(world: &mut World, changes: u64) -> Result<bool, Violation> {
    let segments = if changes.is_multiple_of(2) { 72 } else { 64 };
    world.remake_cache(segments, changes)
}

fn rule_16_old_cache_is_retired_first(world: &mut World) -> Run {
    at_each_moment(world, replace)
}

fn rule_16_old_cache_is_retired_durably(world: &mut World) -> Run {
    at_each_moment(world, replace)
}

fn rule_16_both_copies_of_the_new_cache_say_so(world: &mut World) -> Run {
    begin(world)?;
    for changes in 0..CHANGES_MAX {
        for cut in 0..CUTS {
            let was_done_at_once = succeed_over_a_cut(world, replace, changes)?;
            let copy = SUPERBLOCK_OFFSETS[usize::from(cut.is_multiple_of(2))] / 512;
            world.rot_record(copy, 77);
            world.open()?;
            world.verify_cut()?;
            if was_done_at_once {
                return Ok(());
            }
        }
    }
    Err(Violation::new(Broken::Contract, "it takes longer than it should"))
}

fn rule_16_made_anew_over_a_crash(world: &mut World) -> Run {
    at_each_moment(world, remake)
}

fn rule_16_made_anew_under_another_id(world: &mut World) -> Run {
    at_each_moment(world, remake)
}
