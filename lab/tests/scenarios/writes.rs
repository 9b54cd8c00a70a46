//! Hazards 6 and 8, rules 7 and 13: writes through the cache, and writes of part of a block.

use crate::kinds::{ALL, INLINE, RINGS};
use crate::steps::*;
use engine::effect::{Errno, RequestOp, Target, WriteMode};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::World;

crate::scenarios! {
    hazard_06_writethrough_is_dirty_until_it_is_home: WritethroughLogsClean, writethrough, on RINGS;
    hazard_06_writethrough_is_in_the_log_before_it_goes_home: OriginBeforeLogFlush, writethrough, on RINGS;
    rule_07_first_of_a_block_behind_a_copy: NewBehindCopy, writethrough, on INLINE;
    rule_07_first_of_a_block_behind_one_forgotten: NewBehindForgotten, writethrough, on INLINE;
    rule_07_no_two_writes_to_one_place_of_the_origin: OverlapAtOrigin, writeback, on RINGS;
    rule_07_who_shared_a_block_goes_home_alone: SharersGoHome, writeback;
    hazard_08_two_writes_to_one_block: PartialWriteShares, writeback, on ALL;
    hazard_08_the_row_behind_a_write: RowNotHeld, without_waits;
    rule_13_the_rest_of_the_block: PartialWriteWithoutOld, writeback, on ALL;
}

/// A copy that is recorded, in slots: what has none there is not written to both devices.
fn fill_slot(world: &mut World, block: u64) -> Run {
    if has_slots(world) {
        fill(world, 0, block, 1)?;
        world.run_dry()?;
    }
    Ok(())
}

pub fn hazard_06_writethrough_is_dirty_until_it_is_home(world: &mut World) -> Run {
    begin(world)?;
    fill_slot(world, 10)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    let _unfinished = world.write(0, blocks(10, 1));
    world.until_pending(|io| io.is_origin(0, Kind::Write))?;
    world.pass(10 * MS)?;
    origins_lose(world)?;
    verify_and_evict(world)
}

fn hazard_06_writethrough_is_in_the_log_before_it_goes_home(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    let _unfinished = world.write(0, blocks(10, 1));
    world.pass(50 * MS)?;
    cache_loses(world)?;
    verify_and_evict(world)
}

/// A write-through of what the log has never had need not be durable there before it goes home. This one is behind a fill.
fn rule_07_first_of_a_block_behind_a_copy(world: &mut World) -> Run {
    begin(world)?;
    make_known(world, 0, 10, 1)?;
    world.hold(is_batch);
    read(world, 0, 10, 1)?;
    world.until_pending(is_batch)?;
    let fill_at = world.pending(is_batch).first().map(|io| io.first);
    let _unfinished = world.write(0, blocks(10, 1));
    world.pass(10 * MS)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    world.complete_all(is_batch)?;
    world.pass(50 * MS)?;
    world.cut_power(|write| match write.target {
        Target::Cache if Some(write.first) != fill_at => Fate::Lost,
        _ => Fate::Kept,
    });
    world.open()?;
    verify_and_evict(world)
}

/// This one is behind a copy that could not be read, and was forgotten.
fn rule_07_first_of_a_block_behind_one_forgotten(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    forget_memory(world)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    world.cache().faults.fail_next(Kind::Read, Errno::IO);
    read(world, 0, 10, 1)?;
    world.pass(10 * MS)?;
    let _unfinished = world.write(0, blocks(10, 1));
    world.pass(50 * MS)?;
    cache_loses(world)?;
    verify_and_evict(world)
}

fn rule_07_no_two_writes_to_one_place_of_the_origin(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    world.until_pending(|io| io.is_origin(0, Kind::Write))?;
    assert_eq!(world.ask(0, RequestOp::SetMode(WriteMode::Writethrough))?, Ok(()));
    let newer = world.write(0, blocks(10, 1));
    world.pass(50 * MS)?;
    world.release();
    world.succeed(newer)?;
    world.verify()
}

fn rule_07_who_shared_a_block_goes_home_alone(world: &mut World) -> Run {
    begin(world)?;
    // Two writes of a whole block wait for one of a part of it.
    world.hold(|io| io.is_origin(0, Kind::Read) || io.is_origin(0, Kind::Write));
    let part = world.write(0, sectors(80, 1));
    world.until_pending(|io| io.is_origin(0, Kind::Read))?;
    let (one, other) = (world.write(0, blocks(10, 1)), world.write(0, blocks(10, 1)));
    assert_eq!(world.ask(0, RequestOp::SetMode(WriteMode::Writethrough))?, Ok(()));
    world.complete_all(|io| io.is_origin(0, Kind::Read))?;
    world.pass(50 * MS)?;
    world.release();
    for ticket in [part, one, other] {
        world.succeed(ticket)?;
    }
    world.verify()
}

fn hazard_08_two_writes_to_one_block(world: &mut World) -> Run {
    begin(world)?;
    fill_slot(world, 10)?;
    world.hold(|io| io.is_origin(0, Kind::Read) || io.is_cache(Kind::Read));
    let one = world.write(0, sectors(80, 1));
    let other = world.write(0, sectors(83, 1));
    world.pass(5 * MS)?;
    world.release();
    world.succeed(one)?;
    world.succeed(other)?;
    read(world, 0, 10, 1)
}

/// A write that follows a dirty block reads 31 blocks behind its own with it.
fn hazard_08_the_row_behind_a_write(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 15, 1)?;
    flush(world, 0)?;
    world.hold(|io| io.is_origin(0, Kind::Read));
    let part = world.write(0, sectors(128, 1));
    world.until_pending(|io| io.is_origin(0, Kind::Read))?;
    // Regions of the guard have 16 blocks.
    let newer = world.write(0, blocks(40, 1));
    world.pass(5 * MS)?;
    world.release();
    world.succeed(part)?;
    world.succeed(newer)?;
    read(world, 0, 40, 1)
}

fn rule_13_the_rest_of_the_block(world: &mut World) -> Run {
    begin(world)?;
    let ticket = world.write(0, sectors(83, 2));
    world.succeed(ticket)?;
    read(world, 0, 10, 1)
}
