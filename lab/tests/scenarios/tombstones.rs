//! Hazard 7, rules 3, 7, 8 and 12: what is dropped must not come back, and must not take along what is newer.

use crate::steps::*;
use engine::effect::{Errno, RequestOp, WriteMode};
use lab::disk::faults::Kind;
use lab::world::World;

crate::scenarios! {
    rule_03_tombstone_while_a_newer_version_is_on_its_way: CopyDuringWrite, damaged;
    rule_03_tombstone_behind_a_newer_version: TombstoneOverNewer, damaged;
    hazard_07_bypass_leaves_a_tombstone: ForgetTombstone, writearound;
    rule_07_tombstone_is_durable_first: TombstoneUnflushed, writearound;
    hazard_07_discard_is_remembered: ForgetDiscard, writeback;
    rule_07_bypass_of_what_was_forgotten: BypassBeforeFloor, writearound;
    rule_07_bypass_of_zeroes_that_are_home: ForgetZeroesHome, writearound;
    rule_07_dirty_block_is_never_bypassed: BypassDirty, writeback;
    rule_08_what_is_dropped_leaves_a_tombstone: DropWithoutTombstone, writearound;
    rule_08_tombstone_is_not_overtaken: OvertakeTombstone, writearound;
}

/// A clean copy rots; while a newer version is on its way into the log, a read finds out.
fn newer_on_its_way_when_rot_is_found(
    world: &mut World,
) -> Result<lab::world::Ticket, lab::violation::Violation> {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    write_fua(world, 0, 500, 1)?;
    rot(world, 0, 10)?;
    world.hold(is_batch);
    let newer = world.write(0, blocks(10, 1));
    world.until_pending(is_batch)?;
    read(world, 0, 10, 1)?;
    Ok(newer)
}

fn rule_03_tombstone_while_a_newer_version_is_on_its_way(world: &mut World) -> Run {
    let newer = newer_on_its_way_when_rot_is_found(world)?;
    // Enough company for a second batch while the first is in flight.
    press(world, 1, 8, MS)?;
    world.complete_all(is_batch)?;
    world.release();
    world.succeed(newer)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_03_tombstone_behind_a_newer_version(world: &mut World) -> Run {
    let newer = newer_on_its_way_when_rot_is_found(world)?;
    world.complete_all(is_batch)?;
    world.release();
    world.succeed(newer)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn hazard_07_bypass_leaves_a_tombstone(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    write(world, 0, 10, 1)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_07_tombstone_is_durable_first(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(50 * MS)?;
    lose_all(world)?;
    world.verify_cut()
}

fn hazard_07_discard_is_remembered(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    let ticket = world.discard(0, blocks(10, 1));
    world.succeed(ticket)?;
    flush(world, 0)?;
    read(world, 0, 10, 1)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_07_bypass_of_what_was_forgotten(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    fill_log(world, 1)?;
    flush(world, 1)?;
    // From here on segments are emptied and nothing of it becomes durable.
    world.hold(|io| io.is_cache(Kind::Flush));
    press(world, 1, 6, 50 * MS)?;
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(50 * MS)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_07_bypass_of_zeroes_that_are_home(world: &mut World) -> Run {
    begin(world)?;
    let ticket = world.write_zeroes(0, blocks(10, 1));
    world.succeed(ticket)?;
    // The record that they are home does not reach the device.
    world.hold(is_batch);
    flush(world, 0)?;
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(50 * MS)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_07_dirty_block_is_never_bypassed(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    // A destage that failed: the next one waits, and the block stays dirty for the moment.
    world.origin(0).faults.gone = Some(Errno::IO);
    world.pass(400 * MS)?;
    world.origin(0).faults.heal();
    assert_eq!(world.ask(0, RequestOp::SetMode(WriteMode::Writearound))?, Ok(()));
    let ticket = world.write(0, sectors(80, 1));
    world.succeed(ticket)?;
    read(world, 0, 10, 1)
}

fn rule_08_what_is_dropped_leaves_a_tombstone(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    world.cache().faults.fail_next(Kind::Read, Errno::IO);
    read(world, 0, 10, 1)?;
    write(world, 0, 10, 1)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_08_tombstone_is_not_overtaken(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    // A batch in flight: the tombstone waits for it.
    world.hold(is_batch);
    let _in_flight = world.write(1, blocks(0, 1));
    world.until_pending(is_batch)?;
    world.cache().faults.fail_next(Kind::Read, Errno::IO);
    read(world, 0, 10, 1)?;
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(50 * MS)?;
    lose_all(world)?;
    world.verify_cut()
}
