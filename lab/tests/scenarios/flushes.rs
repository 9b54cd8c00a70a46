//! Hazards 3 and 14, rule 4 and the last row of rule 7: what an answer promises.

use crate::kinds::{ALL, Kind as Records, RINGS};
use crate::steps::*;
use engine::effect::{Errno, RequestOp};
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{Setup, World};

crate::scenarios! {
    hazard_03_flush_of_the_cache: FlushWithoutCacheFlush, writeback, on ALL;
    hazard_03_flush_covers_what_was_before_it: CacheFlushCoversLater, writeback, on ALL;
    rule_07_flush_of_the_origin: FlushWithoutOriginFlush, writearound, on ALL;
    rule_04_fua_is_flushed: FuaWithoutFlush, writeback, on ALL;
    rule_04_answered_when_written: AckBeforeWritten, writeback, on RINGS;
    hazard_14_published_in_log_order: PublishOutOfOrder, writeback, on RINGS;
    hazard_10_flush_of_the_cache_fails: IgnoreCacheFlushError, writeback_alone, on ALL;
    hazard_11_flush_of_the_origin_fails: IgnoreOriginFlushError, writeback, on ALL;
    hazard_11_a_failed_flush_does_not_speak_for_later_writes: ToldOnce, writearound, on ALL;
    hazard_11_a_failed_flush_does_not_speak_for_answers_under_way: GivenIsHad, writearound, on ALL;
    hazard_11_loss_is_told_behind_a_kill: LossUnsaid, writearound, on ALL;
    hazard_11_loss_is_told_without_the_cache: ToldBehindCache, writearound, on FLUSHING;
    hazard_11_a_failed_discard_does_not_speak_for_writes: DiscardTellsOfWrites, no_discards, on ALL;
}

/// Where a FLUSH flushes cache and origin side by side.
const FLUSHING: &[Records] =
    &[Records::Inline, Records::SyncSector, Records::Journal, Records::Mirror, Records::Frames];

/// Blocks far from each other: each is a write of its own everywhere.
const FAR: [u64; 8] = [10, 110, 210, 310, 410, 510, 610, 710];

/// Where slots are taken for blocks, that has its own flushes: not now.
fn write_before(world: &mut World, written: &[u64]) -> Run {
    if has_slots(world) {
        for &block in written {
            write(world, 0, block, 1)?;
        }
        flush(world, 0)?;
    }
    Ok(())
}

fn hazard_03_flush_of_the_cache(world: &mut World) -> Run {
    begin(world)?;
    write_before(world, &[10])?;
    write(world, 0, 10, 1)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn hazard_03_flush_covers_what_was_before_it(world: &mut World) -> Run {
    begin(world)?;
    write_before(world, &FAR)?;
    write_before(world, &[5])?;
    write(world, 0, 5, 1)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    let first = world.flush(0);
    let under_way = world.until_pending(|io| io.is_cache(Kind::Flush))?;
    for block in FAR {
        write(world, 0, block, 1)?;
    }
    let _not_covered = world.flush(0);
    world.complete(under_way.id)?;
    world.succeed(first)?;
    world.pass(MS)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_07_flush_of_the_origin(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    flush(world, 0)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_04_fua_is_flushed(world: &mut World) -> Run {
    begin(world)?;
    write_before(world, &[10])?;
    write_fua(world, 0, 10, 1)?;
    lose_all(world)?;
    world.verify_cut()
}

fn rule_04_answered_when_written(world: &mut World) -> Run {
    begin(world)?;
    world.hold(is_batch);
    let _not_written = world.write(0, blocks(10, 1));
    world.pass(MS)?;
    world.kill(|_| false);
    world.open()?;
    world.verify_cut()
}

fn hazard_14_published_in_log_order(world: &mut World) -> Run {
    begin(world)?;
    let has_buckets = world.setup().keys.is_some() && !has_frames(world);
    let is_batch = if has_buckets { is_batch_of_ring } else { is_batch };
    world.hold(is_batch);
    // The first goes alone, the others go when they are enough for a batch of their own.
    let _lost = world.write(0, blocks(10, 1));
    if has_buckets {
        world.until_pending(is_batch)?;
        // So many keys are worth a batch of their own.
        for step in 0..64 {
            let _whenever = world.write(1, blocks(step * 20, 1));
        }
        world.pass(5 * MS)?;
    } else {
        press(world, 1, 8, MS)?;
    }
    let under_way = pending(world, is_batch);
    assert!(under_way.len() >= 2, "two batches are in flight");
    for &later in &under_way[1..] {
        world.complete(later)?;
    }
    world.kill(|_| false);
    world.open()?;
    world.verify_cut()
}

fn hazard_10_flush_of_the_cache_fails(world: &mut World) -> Run {
    begin(world)?;
    write_before(world, &FAR)?;
    for block in FAR {
        write(world, 0, block, 1)?;
    }
    world.cache().faults.fail_next(Kind::Flush, Errno::IO);
    let ticket = world.flush(0);
    let _error_or_not = world.wait(ticket)?;
    lose_all(world)?;
    world.verify_cut()
}

fn hazard_11_flush_of_the_origin_fails(world: &mut World) -> Run {
    begin(world)?;
    for block in FAR {
        write(world, 0, block, 1)?;
    }
    flush(world, 0)?;
    world.origin(0).faults.fail_next(Kind::Flush, Errno::IO);
    world.pass(3000 * MS)?;
    evict(world)
}

/// A write is acknowledged while a FLUSH is under way that fails and takes it: the next FLUSH must not succeed.
fn hazard_11_a_failed_flush_does_not_speak_for_later_writes(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 5, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    let first = world.flush(0);
    let under_way = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    // Which of them are lost is left to chance.
    for block in FAR.iter().flat_map(|far| *far..far + 8) {
        write(world, 0, block, 1)?;
    }
    world.complete_failed(under_way.id, Errno::IO)?;
    world.release();
    assert!(world.wait(first)?.is_err(), "it waits for the flush that fails");
    world.pass(3000 * MS)?;
    let second = world.flush(0);
    assert!(world.wait(second)?.is_err(), "nothing has told of the writes behind the first one");
    flush(world, 0)
}

/// An origin loses writes with a flush of the engine's own, and the process is killed before a client asks for one.
fn hazard_11_loss_is_told_behind_a_kill(world: &mut World) -> Run {
    begin(world)?;
    // Which of them are lost is left to chance.
    for block in FAR.iter().flat_map(|far| *far..far + 8) {
        write(world, 0, block, 1)?;
    }
    world.hold(|io| io.is_origin(0, Kind::Flush));
    let _ended_by_the_kill = world.submit(0, RequestOp::Drain);
    let under_way = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    world.complete_failed(under_way.id, Errno::IO)?;
    world.kill(|_| true);
    world.open()?;
    let first = world.flush(0);
    assert!(world.wait(first)?.is_err(), "the clients are the same, and were told of nothing yet");
    flush(world, 0)
}

/// The flush of the origin that a FLUSH waits for fails while the cache still flushes, and the process is killed.
fn hazard_11_loss_is_told_without_the_cache(world: &mut World) -> Run {
    begin(world)?;
    // Which of them are lost is left to chance.
    for block in FAR.iter().flat_map(|far| *far..far + 8) {
        write(world, 0, block, 1)?;
    }
    write(world, 1, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Flush) || io.is_cache(Kind::Flush));
    let first = world.flush(0);
    let under_way = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    world.complete_failed(under_way.id, Errno::IO)?;
    let told = world.answer(first).map(|answer| answer.result);
    world.kill(|_| true);
    world.open()?;
    flush(world, 0)?;
    assert_eq!(told, Some(Err(Errno::IO)), "it waits for nothing more");
    Ok(())
}

/// A FLUSH comes while the answers to writes are on their way to the client, and fails for the flush that took them: the next one must
/// not succeed.
fn hazard_11_a_failed_flush_does_not_speak_for_answers_under_way(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 5, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Flush) || io.is_origin(0, Kind::Write));
    let first = world.flush(0);
    let under_way = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    // Which of them are lost is left to chance.
    for block in FAR.iter().flat_map(|far| [*far, far + 50]) {
        world.write(0, blocks(block, 1));
    }
    let writes = world.pending(|io| io.is_origin(0, Kind::Write));
    assert!(writes.len() >= 8, "most of them are at the origin");
    world.gather(writes.len() + 2);
    for write in writes {
        world.complete(write.id)?;
    }
    world.complete_failed(under_way.id, Errno::IO)?;
    let beside = world.flush(0);
    world.release();
    assert!(world.wait(first)?.is_err(), "it waits for the flush that fails");
    assert!(world.wait(beside)?.is_err(), "the first one came before the writes were answered");
    let next = world.flush(0);
    assert!(world.wait(next)?.is_err(), "so did the second one");
    flush(world, 0)
}

/// The origin cannot discard, so a durable discard ends like a FLUSH.
fn no_discards() -> Setup {
    Setup { origin_can_discard: false, ..writearound() }
}

fn hazard_11_a_failed_discard_does_not_speak_for_writes(world: &mut World) -> Run {
    begin(world)?;
    // Which of them are lost is left to chance.
    for block in FAR.iter().flat_map(|far| *far..far + 8) {
        write(world, 0, block, 1)?;
    }
    world.hold(|io| io.is_origin(0, Kind::Flush));
    let first = world.discard_fua(0, blocks(900, 1));
    let under_way = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    world.complete_failed(under_way.id, Errno::IO)?;
    world.release();
    assert!(world.wait(first)?.is_err(), "it waits for the flush that fails");
    world.pass(3000 * MS)?;
    let second = world.discard_fua(0, blocks(900, 1));
    assert!(world.wait(second)?.is_err(), "nobody was told yet");
    let told = world.flush(0);
    assert!(world.wait(told)?.is_err(), "no FLUSH has told of the writes before the discards");
    flush(world, 0)
}
