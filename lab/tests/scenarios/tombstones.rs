//! Hazard 7, rules 2, 3, 5, 7, 8 and 12: what is dropped must not come back, and must not take along what is newer.

use crate::kinds::{ALL, INLINE, MIRROR, RINGS};
use crate::steps::*;
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::limits::Config;
use engine::units::VolumeIndex;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{IoView, Setup, World};

crate::scenarios! {
    rule_05_summary_says_no_more_than_its_last_batch: FooterAheadOfBatches, wide;
    rule_02_dirty_until_the_tombstone_is_in_the_log: CleanBeforeTombstone, wide;
    rule_03_tombstone_while_a_newer_version_is_on_its_way: CopyDuringWrite, damaged;
    rule_03_tombstone_behind_a_newer_version: TombstoneOverNewer, damaged;
    rule_03_tombstone_behind_newer_zeroes: TombstoneOverNewer, damaged;
    hazard_07_bypass_leaves_a_tombstone: ForgetTombstone, writearound, on ALL;
    rule_07_tombstone_is_durable_first: TombstoneUnflushed, writearound, on RINGS;
    hazard_07_discard_is_remembered: ForgetDiscard, writeback, on RINGS;
    rule_07_bypass_of_what_was_forgotten: BypassBeforeFloor, writearound, on MIRROR;
    rule_07_bypass_of_zeroes_that_are_home: ForgetZeroesHome, writearound;
    rule_07_dirty_block_is_never_bypassed: BypassDirty, writeback, on RINGS;
    rule_07_part_of_a_dirty_block_bypasses_nothing: BypassDirty, without_waits, on INLINE;
    rule_07_writes_around_the_cache_overlap_nowhere: OverlapAtOrigin, without_waits, on INLINE;
    rule_07_tombstone_of_the_write_beside: TombstoneUnflushed, without_waits, on INLINE;
    rule_08_what_is_dropped_leaves_a_tombstone: DropWithoutTombstone, writearound;
    rule_08_tombstone_is_not_overtaken: OvertakeTombstone, writearound;
    rule_08_what_a_start_left_out_gets_a_tombstone: ForgetLeftOut, much;
}

/// A cache of half a gibibyte.
fn much() -> Setup {
    let mut setup = writearound_alone();
    setup.segments = 128;
    setup.segment_blocks = 1024;
    setup.volumes[0].sectors = 250_000 * 8;
    setup.config = |config| config.index_slack_blocks = 64;
    setup
}

/// A clean copy rots; while a newer version is on its way into the log, a read finds out.
fn newer_on_its_way_when_rot_is_found(
    world: &mut World,
    newer: impl FnOnce(&mut World) -> forebay_lab::world::Ticket,
) -> Result<forebay_lab::world::Ticket, forebay_lab::violation::Violation> {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    write_fua(world, 0, 500, 1)?;
    rot(world, 0, 10)?;
    world.hold(is_batch);
    let newer = newer(world);
    world.until_pending(is_batch)?;
    read(world, 0, 10, 1)?;
    Ok(newer)
}

fn rule_03_tombstone_while_a_newer_version_is_on_its_way(world: &mut World) -> Run {
    let newer = newer_on_its_way_when_rot_is_found(world, |world| world.write(0, blocks(10, 1)))?;
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
    let newer = newer_on_its_way_when_rot_is_found(world, |world| world.write(0, blocks(10, 1)))?;
    world.complete_all(is_batch)?;
    world.release();
    world.succeed(newer)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_03_tombstone_behind_newer_zeroes(world: &mut World) -> Run {
    let newer = newer_on_its_way_when_rot_is_found(world, |world| world.write_zeroes(0, blocks(10, 1)))?;
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
    read(world, 0, 10, 1)?;
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

fn rule_07_part_of_a_dirty_block_bypasses_nothing(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    // Before the block goes home.
    let ticket = world.write(0, sectors(84, 8));
    world.succeed(ticket)?;
    read(world, 0, 10, 2)
}

/// Two writes around the cache share a block, and go together; a third one shares a sector with one of them, and waits.
fn rule_07_writes_around_the_cache_overlap_nowhere(world: &mut World) -> Run {
    begin(world)?;
    let is_write = |io: &IoView| io.is_origin(0, Kind::Write);
    world.hold(is_write);
    let (one, beside) = (world.write(0, sectors(81, 2)), world.write(0, sectors(83, 4)));
    world.pass(5 * MS)?;
    assert_eq!(world.pending(is_write).len(), 2, "neither waits for the other");
    let over = world.write(0, sectors(86, 8));
    world.pass(5 * MS)?;
    assert_eq!(world.pending(is_write).len(), 2, "it waits");
    world.release();
    for ticket in [one, beside, over] {
        world.succeed(ticket)?;
    }
    read(world, 0, 10, 2)
}

/// Of two writes around the cache that share a block the first one has the tombstone of it, and the second one waits for that.
fn rule_07_tombstone_of_the_write_beside(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    // Who asked for a flush of late would have it merged.
    world.pass(2000 * MS)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    let _forgets = world.write(0, sectors(83, 8));
    world.pass(5 * MS)?;
    let _beside = world.write(0, sectors(78, 4));
    world.pass(50 * MS)?;
    cache_loses(world)?;
    verify_and_evict(world)
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

/// Blocks of which a tombstone each is more than one batch takes.
const MANY: u64 = 300;
/// Blocks this far apart, in a volume this wide, are discarded at the same time: hardly any waits for another.
const APART: u64 = 16;
const WIDE_BLOCKS: u64 = 1 << 16;

/// The second volume is wide.
fn wide() -> Setup {
    let mut setup = writeback();
    setup.volumes[1].sectors = WIDE_BLOCKS * 8;
    setup
}

/// A dirty block is discarded, and a power cut takes the tombstone: the block is dirty again, and stays it.
fn discarded_and_dirty_again(world: &mut World) -> Run {
    world.open()?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    read(world, 0, 10, 1)?;
    lose_all(world)?;
    verify_and_evict(world)
}

fn rule_05_summary_says_no_more_than_its_last_batch(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_fua(world, 0, 10, 1)?;
    // Clean blocks: nothing has to go home yet.
    let low = Config::for_cache(64, 32).segments_low;
    let mut next = 1000;
    while free_segments(world) > low + 1 {
        fill(world, 1, next, 16)?;
        next += 16;
    }
    // Batches in flight fill some segments to their ends, and the log begins to empty the oldest.
    world.hold(is_batch);
    for step in 0..12 {
        let _company = world.write(1, blocks(step * 16, 16));
    }
    let _unfinished = world.discard(0, blocks(10, 1));
    world.pass(20 * MS)?;
    let in_flight = world.pending(is_batch);
    for batch in &in_flight {
        world.complete(batch.id)?;
    }
    let lost = world.until_pending(is_batch)?;
    let last = in_flight.last().expect("batches were in flight");
    assert_ne!(segment_of(lost.first), segment_of(last.first), "the tombstone begins a segment");
    world.cut_power(|write| if write.first == lost.first { Fate::Lost } else { Fate::Kept });
    discarded_and_dirty_again(world)
}

fn rule_02_dirty_until_the_tombstone_is_in_the_log(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_fua(world, 0, 10, 1)?;
    for at in 0..MANY {
        fill(world, 1, at * APART, 1)?;
    }
    // While a batch is in flight tombstones gather, more than the next one takes.
    world.hold(is_batch);
    let _company = world.write(1, blocks(MANY * APART, 1));
    let company = world.until_pending(is_batch)?;
    for at in 0..MANY {
        let _unfinished = world.discard(1, blocks(at * APART, 1));
    }
    let _unfinished = world.discard(0, blocks(10, 1));
    world.complete(company.id)?;
    let first = world.until_pending(is_batch)?;
    world.complete(first.id)?;
    let second = world.until_pending(is_batch)?;
    world.cut_power(|write| if write.first == second.first { Fate::Lost } else { Fate::Kept });
    discarded_and_dirty_again(world)
}

/// A start has memory for a part of what is cached, and the one after it for all.
fn rule_08_what_a_start_left_out_gets_a_tombstone(world: &mut World) -> Run {
    begin(world)?;
    // Every other block: nothing to join in the index.
    for round in 0..1600 {
        for step in 0..64 {
            let _whenever = world.read(0, blocks((round * 64 + step) * 2, 1));
        }
        world.finish()?;
    }
    world.pass(1000 * MS)?;
    flush(world, 0)?;
    let ample_bytes = world.set_index_budget(1 << 20);
    lose_all(world)?;
    begin(world)?;
    let cached = world.engine().map_or(0, |engine| engine.cached_blocks(VolumeIndex(0)).len());
    assert!((10_000..100_000).contains(&cached), "the index has room for a part: {cached}");
    for number in 0..200 {
        write_fua(world, 0, number * 1024, 1)?;
    }
    world.set_index_budget(ample_bytes);
    lose_all(world)?;
    world.verify_cut()
}
