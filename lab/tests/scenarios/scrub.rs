//! Rule 18: a scrub finds what rotted, and makes nothing worse.

use crate::kinds::BUT_MIRROR;
use crate::steps::*;
use engine::effect::RequestOp;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::World;

crate::scenarios! {
    rule_18_scrub_of_a_rotten_dirty_block: ScrubDropsDirty, damaged, on BUT_MIRROR;
    rule_18_written_while_it_is_scrubbed: ScrubForgetsChange, damaged;
    rule_18_scrubbed_on_its_way_home: ScrubLosesWhatIsHome, damaged;
    rule_18_garbage_once: ScrubBelievesOnce, damaged;
}

fn scrub(world: &mut World, first: u64, count: u64) -> Run {
    let ticket = world.scrub(0, blocks(first, count));
    world.succeed(ticket)
}

fn rule_18_scrub_of_a_rotten_dirty_block(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    forget_memory(world)?;
    // What went home is not lost with its copy.
    world.hold(|io| io.is_origin(0, Kind::Write));
    rot(world, 0, 10)?;
    scrub(world, 8, 8)?;
    let ticket = world.read(0, blocks(10, 1));
    let _an_error_and_never_old_data = world.wait(ticket)?;
    world.release();
    Ok(())
}

/// Waits until the scrub has read a block twice, with both answers held back, and lets the first one come.
fn until_second_look(world: &mut World) -> Run {
    let first = world.until_pending(|io| io.is_cache(Kind::Read))?;
    world.complete(first.id)?;
    world.until_pending(|io| io.is_cache(Kind::Read))?;
    Ok(())
}

fn rule_18_written_while_it_is_scrubbed(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    // The log tells of the copy durably.
    write_fua(world, 0, 500, 1)?;
    rot(world, 0, 10)?;
    world.hold(|io| io.is_cache(Kind::Read));
    let ticket = world.scrub(0, blocks(10, 1));
    until_second_look(world)?;
    write_fua(world, 0, 10, 1)?;
    world.release();
    world.succeed(ticket)?;
    read(world, 0, 10, 1)
}

fn rule_18_scrubbed_on_its_way_home(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    let drain = world.submit(0, RequestOp::Drain);
    world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    rot(world, 0, 10)?;
    scrub(world, 10, 1)?;
    world.pass(20 * MS)?;
    world.release();
    world.succeed(drain)?;
    read(world, 0, 10, 1)
}

fn rule_18_garbage_once(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    let sectors = world.copies_of(0, 80);
    let flip = |world: &mut World| {
        for sector in &sectors {
            assert!(world.rot_cache(*sector, 77), "the script made the copy durable");
        }
    };
    flip(world);
    world.hold(|io| io.is_cache(Kind::Read));
    let ticket = world.scrub(0, blocks(10, 1));
    let first = world.until_pending(|io| io.is_cache(Kind::Read))?;
    world.complete(first.id)?;
    // What rots once more is as it was.
    flip(world);
    world.release();
    world.succeed(ticket)?;
    world.pass(20 * MS)?;
    read(world, 0, 10, 1)
}
