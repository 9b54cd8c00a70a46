//! Rule 22: checkpoints of the index.

use crate::steps::*;
use engine::effect::{RequestOp, WriteMode};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{IoView, Setup, World};

crate::scenarios! {
    rule_22_what_the_log_lost_is_not_there: BelieveCutCheckpoint, frequent;
    rule_22_what_is_void_stays_void: BelieveVoidCheckpoint, frequent;
    rule_22_what_left_dirty_is_in_it_or_has_a_tombstone: CheckpointBeforeTombstones, rare;
    rule_22_what_a_repair_made_void_stays_void: VoidIsReplayed, repaired;
    rule_22_zeroes_are_in_it: CheckpointWithoutExtents, frequent;
    rule_22_a_segment_in_its_next_life: CheckpointInNewSegments, rare;
    rule_22_keys_of_another_volume: CheckpointOfOtherVolume, frequent;
}

/// Behind the segments of these worlds.
const BEHIND_SEGMENTS: u64 = SEGMENTS_SECTOR + 64 * SEGMENT_SECTORS;

/// The first sectors of their records.
const RECORDS: [u64; 2] = [BEHIND_SEGMENTS, BEHIND_SEGMENTS + CHECKPOINT_BLOCKS as u64 * 8 / 2];
/// Blocks for checkpoints.
const CHECKPOINT_BLOCKS: u32 = 64;

/// A checkpoint follows the last one as soon as the log went on.
fn frequent() -> Setup {
    Setup {
        checkpoint_blocks: CHECKPOINT_BLOCKS,
        config: |config| config.checkpoint_interval_blocks = 1,
        ..writeback()
    }
}

/// A checkpoint comes when the log went on for some segments.
fn rare() -> Setup {
    Setup {
        checkpoint_blocks: CHECKPOINT_BLOCKS,
        config: |config| config.checkpoint_interval_blocks = 40,
        ..writeback()
    }
}

/// A checkpoint follows the last one as soon as the log went on, and a start repairs.
fn repaired() -> Setup {
    Setup { repair: true, is_checked_on_open: false, ..frequent() }
}

/// Whether an operation writes a part of a checkpoint.
fn is_checkpoint(io: &IoView) -> bool {
    is_batch(io) && io.first >= BEHIND_SEGMENTS
}

fn is_of_log(io: &IoView) -> bool {
    is_batch(io) && io.first < BEHIND_SEGMENTS
}

/// What is written next is in another segment.
fn close_segment(world: &mut World) -> Run {
    for at in 0..4 {
        write_fua(world, 1, at * 16, 16)?;
    }
    Ok(())
}

/// A power cut that takes one write of the log, and nothing else.
fn lose(world: &mut World, lost: u64) -> Run {
    world.cut_power(|write| if write.first == lost { Fate::Lost } else { Fate::Kept });
    world.open()
}

/// A block is durable as v1; v2 is in the log, in a checkpoint, and in no flush. Answers where in the log.
fn written_twice(world: &mut World) -> Result<u64, Violation> {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_fua(world, 0, 10, 1)?;
    // What is open is replayed: v1 is in a segment before.
    close_segment(world)?;
    world.hold(is_of_log);
    let second = world.write(0, blocks(10, 1));
    let batch = world.until_pending(is_of_log)?;
    world.complete(batch.id)?;
    world.succeed(second)?;
    // The checkpoint behind it.
    world.pass(20 * MS)?;
    Ok(batch.first)
}

fn rule_22_what_the_log_lost_is_not_there(world: &mut World) -> Run {
    let lost = written_twice(world)?;
    lose(world, lost)?;
    verify_and_evict(world)
}

fn rule_22_what_is_void_stays_void(world: &mut World) -> Run {
    let lost = written_twice(world)?;
    lose(world, lost)?;
    // The log goes past the end of that checkpoint, and no other one is written.
    world.hold(is_checkpoint);
    for at in 0..6 {
        write_fua(world, 1, at * 20, 1)?;
    }
    world.kill(|_| false);
    world.open()?;
    verify_and_evict(world)
}

fn rule_22_what_left_dirty_is_in_it_or_has_a_tombstone(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_fua(world, 0, 10, 1)?;
    close_segment(world)?;
    // So much that a checkpoint comes behind it.
    world.hold(is_of_log);
    let _company = world.write(1, blocks(0, 60));
    let company = world.until_pending(is_of_log)?;
    let _unfinished = world.discard(0, blocks(10, 1));
    world.pass(MS)?;
    let tombstone = world.pending(is_of_log).into_iter().find(|io| io.id != company.id);
    let tombstone = tombstone.expect("the tombstone is in a batch of its own");
    world.complete(company.id)?;
    world.pass(20 * MS)?;
    lose(world, tombstone.first)?;
    world.hold(|io| io.is_origin(0, Kind::Write) || is_checkpoint(io));
    read(world, 0, 10, 1)?;
    // What was read stays, also where the log alone tells of it.
    for record in RECORDS {
        world.rot_cache(record, 99);
    }
    world.kill(|_| false);
    world.open()?;
    world.verify()
}

fn rule_22_what_a_repair_made_void_stays_void(world: &mut World) -> Run {
    begin(world)?;
    // That of this life has to be none of the next one's.
    world.hold(is_checkpoint);
    write_fua(world, 0, 10, 1)?;
    drain(world, 0)?;
    write_fua(world, 0, 500, 1)?;
    write_fua(world, 0, 600, 1)?;
    let payload = world.copies_of(0, 600 * 8)[0];
    write_fua(world, 0, 10, 1)?;
    drain(world, 0)?;
    world.cut_power(|_| Fate::Lost);
    // The header of a batch between the two versions.
    assert!(world.rot_cache(payload - 8, 400));
    world.open()?;
    // The log goes on in the same segment, and there is a checkpoint.
    write_fua(world, 0, 700, 1)?;
    world.pass(20 * MS)?;
    world.kill(|_| false);
    world.open()?;
    read(world, 0, 10, 1)
}

fn rule_22_zeroes_are_in_it(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write) || io.is_origin(0, Kind::Discard));
    let zeroes = world.submit(0, RequestOp::WriteZeroes { range: blocks(10, 4), fua: true });
    world.succeed(zeroes)?;
    // Their segment is closed, and so is the next one.
    for at in 0..80 {
        write_fua(world, 1, at * 4, 1)?;
    }
    world.pass(20 * MS)?;
    world.kill(|_| false);
    world.open()?;
    world.verify()
}

fn rule_22_a_segment_in_its_next_life(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    write(world, 1, 0, 60)?;
    write(world, 1, 0, 60)?;
    world.pass(20 * MS)?;
    // The last checkpoint says that the block is dirty, and where.
    world.hold(is_checkpoint);
    drain(world, 0)?;
    for step in 0..112 {
        if step == 85 {
            // What is in the segment then stays dirty.
            world.hold(|io| io.is_origin(1, Kind::Write) || is_checkpoint(io));
        }
        write(world, 1, 1000 + step * 16 % 480, 16)?;
    }
    flush(world, 1)?;
    world.kill(|_| false);
    world.open()?;
    read(world, 0, 10, 1)?;
    world.verify()
}

fn rule_22_keys_of_another_volume(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    write_fua(world, 1, 500, 1)?;
    world.pass(20 * MS)?;
    world.hold(is_checkpoint);
    drain(world, 0)?;
    let detach = world.submit(0, RequestOp::Detach);
    world.succeed(detach)?;
    world.write_behind(0, blocks(10, 1));
    let add = world.add(0, WriteMode::Writeback);
    world.succeed(add)?;
    world.kill(|_| false);
    world.open()?;
    world.verify_cut()
}
