//! Dirty data in memory: what is answered early is seen, bounded and flushed; what is superseded is gone.

use crate::kinds::{Kind as Records, MEMORY_BLOCKS};
use crate::steps::*;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{Setup, World};

crate::scenarios! {
    hazard_12_who_waits_for_memory_lets_it_be_made: WaitersBlockDestage, little, on MEMORY;
    what_is_answered_early_is_read: DropFrameEarly, early, on MEMORY;
    what_is_superseded_is_not_read: KeepStaleFrame, safe, on MEMORY;
    no_more_is_answered_early_than_may_be_lost: AnswerBeyondWindow, early, on MEMORY;
    flush_waits_for_what_was_answered_early: FlushBeforeOwed, early, on MEMORY;
}

const MEMORY: &[Records] = &[Records::Mirror];

/// Two volumes in writeback mode, with room in memory for 512 dirty blocks.
fn safe() -> Setup {
    writeback().with_mirror(MEMORY_BLOCKS, true)
}

/// Writes are answered when they are in memory.
fn early() -> Setup {
    writeback().with_mirror(MEMORY_BLOCKS, false)
}

/// Room for hardly more than the writes of a group.
fn little() -> Setup {
    writeback_alone().with_mirror(64, true)
}

fn hazard_12_who_waits_for_memory_lets_it_be_made(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    for step in 0..10 {
        let _whenever = world.write(0, blocks(step * 16, 16));
    }
    world.pass(100 * MS)?;
    // Memory is full. Now somebody waits for room in every part of what has to go home.
    for step in 0..10 {
        let _whenever = world.write(0, sectors(step * 128 + 1, 3));
    }
    world.pass(100 * MS)?;
    world.release();
    world.finish()?;
    world.verify()
}

fn what_is_answered_early_is_read(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_cache(Kind::Write));
    write(world, 0, 10, 1)?;
    read(world, 0, 10, 1)?;
    // Its batch leaves.
    world.pass(50 * MS)?;
    read(world, 0, 10, 1)?;
    world.release();
    world.finish()
}

fn what_is_superseded_is_not_read(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write(world, 0, 10, 1)?;
    let zeroes = world.write_zeroes(0, blocks(10, 1));
    world.succeed(zeroes)?;
    read(world, 0, 10, 1)?;
    world.release();
    world.finish()
}

fn no_more_is_answered_early_than_may_be_lost(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_cache(Kind::Write));
    for step in 0..6 {
        let _some_wait = world.write(0, blocks(10 + step, 1));
    }
    world.pass(50 * MS)?;
    world.kill(|_| false);
    world.open()?;
    world.verify()
}

fn flush_waits_for_what_was_answered_early(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_cache(Kind::Write));
    write(world, 0, 10, 1)?;
    let _waits = world.flush(0);
    world.pass(50 * MS)?;
    world.kill(|_| false);
    world.open()?;
    world.verify()
}
