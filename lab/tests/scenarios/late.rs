//! Rule 21: headers that follow what they are of; and rule 5, where memory tells of flushes.

use crate::steps::*;
use forebay_lab::world::{IoView, Setup, World};

crate::scenarios! {
    rule_21_answered_is_remembered: LateForgotten, lasting;
    rule_21_remembered_with_its_checksum: LateWithoutChecksums, lasting;
    rule_21_remembered_until_its_header_is_written: LateRemembered, lasting;
    rule_21_header_follows_its_payload: HeaderBeforePayload, lasting;
    rule_21_flush_waits_for_the_header: FlushWithoutLate, lasting;
    rule_05_a_flush_is_remembered: FlushForgotten, lasting_and_damaged;
}

/// A process with memory that outlives it.
fn lasting() -> Setup {
    Setup { has_lasting_memory: true, ..writeback() }
}

/// The same, whose devices rot.
fn lasting_and_damaged() -> Setup {
    Setup { has_lasting_memory: true, ..damaged() }
}

/// A segment is open, and so is a batch in it whose header is not written; its blocks are answered.
fn begin_late(world: &mut World, first: u64, count: u64) -> Run {
    begin(world)?;
    write(world, 0, 1400, 1)?;
    for at in 0..count {
        write(world, 0, first + at, 1)?;
    }
    Ok(())
}

fn rule_21_answered_is_remembered(world: &mut World) -> Run {
    begin_late(world, 10, 3)?;
    world.kill(|_| true);
    world.open()?;
    world.verify()
}

fn rule_21_remembered_with_its_checksum(world: &mut World) -> Run {
    begin_late(world, 10, 3)?;
    write(world, 0, 100, 20)?;
    world.kill(|_| true);
    world.open()?;
    world.verify()
}

fn rule_21_remembered_until_its_header_is_written(world: &mut World) -> Run {
    begin_late(world, 10, 3)?;
    flush(world, 0)?;
    // What is to be flushed has a header of its own: nothing takes the slot again until the ring came round.
    for step in 0..200 {
        write_fua(world, 1, step * 17 % 1400, 17)?;
    }
    world.kill(|_| true);
    world.open()?;
    world.verify()
}

fn rule_21_header_follows_its_payload(world: &mut World) -> Run {
    begin_late(world, 10, 3)?;
    let is_payload = |io: &IoView| is_batch(io) && io.sectors == 8;
    world.hold(is_payload);
    let _second = world.write(0, blocks(20, 1));
    let part = world.until_pending(is_payload)?;
    let _waits = world.flush(0);
    world.pass(MS)?;
    for header in pending(world, |io| is_batch(io) && io.id != part.id) {
        world.complete(header)?;
    }
    world.kill(|_| false);
    world.open()?;
    world.verify()
}

fn rule_21_flush_waits_for_the_header(world: &mut World) -> Run {
    begin_late(world, 10, 3)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_05_a_flush_is_remembered(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    write(world, 0, 20, 1)?;
    flush(world, 0)?;
    rot(world, 0, 10)?;
    world.kill(|_| true);
    world.open()?;
    read(world, 0, 20, 1)
}
