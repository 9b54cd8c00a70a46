//! Hazards 4, 11 and 12, rules 2 and 10: what goes home, and when it counts as being there.

use crate::kinds::{ALL, RINGS};
use crate::steps::*;
use engine::effect::{Errno, RequestOp};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::World;

crate::scenarios! {
    hazard_04_clean_after_the_origin_was_flushed: CleanBeforeOriginFlush, writeback, on ALL;
    hazard_04_destaged_after_the_cache_was_flushed: DestageBeforeCacheFlush, writeback, on RINGS;
    hazard_04_flush_covers_what_was_home_before_it: OriginFlushCoversLater, writeback, on ALL;
    hazard_04_rewritten_while_it_goes_home: CleanThoughRewritten, writeback, on RINGS;
    hazard_04_place_reused_before_it_is_home: CleanThoughReused, writeback;
    rule_02_clean_record_behind_a_newer_version: ReplayCleansNewer, writeback;
    rule_02_zeroes_at_home_under_a_newer_version: ReplayMistakesZeroes, writeback;
    rule_02_clean_is_recorded: CleanNotRecorded, writeback;
    rule_02_oldest_dirty_with_batches_in_flight: OldestDirtyTooHigh, writeback;
    hazard_11_origin_fails_a_destage: IgnoreDestageError, writeback, on ALL;
    hazard_12_held_back_until_somebody_waits: HoldBackAll, writeback, on ALL;
    rule_10_verified_before_it_goes_home: DestageUnverified, writeback, on ALL;
    rule_12_zeroes_are_home_when_flushed: ZeroDroppedEarly, writeback;
}

/// A volume without requests for this long is destaged.
const IDLE: u64 = 400 * MS;

fn hazard_04_clean_after_the_origin_was_flushed(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    world.pass(IDLE)?;
    // Makes durable what the log says meanwhile.
    write_fua(world, 0, 500, 1)?;
    crowd_slots(world)?;
    origins_lose(world)?;
    verify_and_evict(world)
}

/// After a crash what is in slots may count as dirty again, clean or not; what has left its slot does not.
fn crowd_slots(world: &mut World) -> Run {
    if has_slots(world) { crowd(world) } else { Ok(()) }
}

fn hazard_04_destaged_after_the_cache_was_flushed(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.run_dry()?;
    write_fua(world, 0, 500, 1)?;
    write(world, 0, 10, 1)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    // bcache's controller looks once a second.
    world.pass(IDLE + 1000 * MS)?;
    cache_loses(world)?;
    verify_and_evict(world)
}

fn hazard_04_flush_covers_what_was_home_before_it(world: &mut World) -> Run {
    begin(world)?;
    for block in [10, 800, 880, 960, 1040, 1120] {
        write(world, 0, block, 1)?;
    }
    flush(world, 0)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    world.hold(|io| io.is_origin(0, Kind::Write) && io.first >= 800 * 8);
    let under_way = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    world.complete_all(|io| io.is_origin(0, Kind::Write))?;
    world.complete(under_way.id)?;
    write_fua(world, 0, 500, 1)?;
    crowd_slots(world)?;
    origins_lose(world)?;
    verify_and_evict(world)
}

fn hazard_04_rewritten_while_it_goes_home(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    world.until_pending(|io| io.is_origin(0, Kind::Write))?;
    write(world, 0, 10, 1)?;
    world.release();
    world.pass(2000 * MS)?;
    evict(world)
}

fn hazard_04_place_reused_before_it_is_home(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    let place = world.copies_of(0, 80)[0];
    let older = world.cache().read(place, 1)[0].tag();
    world.hold(|io| io.is_origin(0, Kind::Flush));
    world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    // Nothing else is written, and sooner or later a newer version lies where the older one was.
    for writes in 0.. {
        let tag = world.cache().read(place, 1)[0].tag();
        if tag != older && world.oracle().place_of(tag) == Some((0, 80)) {
            break;
        }
        assert!(writes < 10_000, "the log comes round to every place");
        write(world, 0, 10, 1)?;
    }
    world.release();
    flush(world, 0)?;
    drain(world, 0)?;
    world.verify()?;
    world.expect_origin_equals_view(0)
}

fn rule_02_clean_record_behind_a_newer_version(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    let home = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    world.hold(is_batch);
    let newer = world.write(0, blocks(10, 1));
    world.until_pending(is_batch)?;
    world.complete(home.id)?;
    world.complete_all(is_batch)?;
    world.release();
    world.succeed(newer)?;
    flush(world, 0)?;
    lose_all(world)?;
    verify_and_evict(world)
}

fn rule_02_clean_is_recorded(world: &mut World) -> Run {
    begin(world)?;
    // A dirty block at the very beginning of the log that cannot go home.
    world.hold(|io| io.is_origin(1, Kind::Write));
    write(world, 1, 0, 1)?;
    for step in 0..40 {
        write(world, 0, step * 32, 16)?;
    }
    drain(world, 0)?;
    write_fua(world, 0, 1400, 1)?;
    let limit_bytes = world.engine().map_or(0, |engine| engine.status().cache.false_dirty_limit_bytes);
    lose_all(world)?;
    let dirty_bytes = world.reports().last().map_or(0, |report| report.redestage_bytes);
    if dirty_bytes > limit_bytes + 2 * 4096 {
        let what = format!("{dirty_bytes} bytes count as dirty, 8192 are, {limit_bytes} more may");
        return Err(Violation::new(Broken::Contract, what));
    }
    world.verify_cut()
}

fn rule_02_oldest_dirty_with_batches_in_flight(world: &mut World) -> Run {
    begin(world)?;
    world.hold(is_batch);
    press(world, 0, 12, MS)?;
    let under_way = pending(world, is_batch);
    assert!(under_way.len() >= 3, "batches are in flight in more than one segment");
    for id in under_way {
        world.complete(id)?;
    }
    // What was answered becomes durable; what goes on after it does not reach the device.
    flush(world, 0)?;
    lose_all(world)?;
    verify_and_evict(world)
}

fn hazard_11_origin_fails_a_destage(world: &mut World) -> Run {
    begin(world)?;
    for block in [10, 110, 210, 310, 410, 510] {
        write(world, 0, block, 1)?;
    }
    flush(world, 0)?;
    world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
    world.pass(1500 * MS)?;
    world.origin(0).faults.heal();
    world.pass(3000 * MS)?;
    evict(world)
}

fn hazard_12_held_back_until_somebody_waits(world: &mut World) -> Run {
    begin(world)?;
    let ticket = world.submit(0, RequestOp::HoldDestage(true));
    world.succeed(ticket)?;
    // A disk that was used a moment ago does not sleep.
    world.pass(31_000 * MS)?;
    write_fua(world, 0, 10, 1)?;
    world.pass(5000 * MS)?;
    let dirty_bytes = world.engine().map_or(0, |engine| engine.status().volumes[0].dirty_bytes);
    if dirty_bytes == 0 {
        return Err(Violation::new(Broken::Contract, "nobody waits for it, and it went home"));
    }
    drain(world, 0)?;
    world.pass(31_000 * MS)?;
    // More than the cache has room for.
    for step in 0..150 {
        write(world, 0, step * 16 % 1472, 16)?;
    }
    drain(world, 0)?;
    evict(world)
}

fn rule_10_verified_before_it_goes_home(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    forget_memory(world)?;
    rot(world, 0, 10)?;
    world.pass(2000 * MS)?;
    let ticket = world.read(0, blocks(10, 1));
    let _an_error_or_never_garbage = world.wait(ticket)?;
    Ok(())
}

fn rule_12_zeroes_are_home_when_flushed(world: &mut World) -> Run {
    begin(world)?;
    let ticket = world.write_zeroes(0, blocks(10, 4));
    world.succeed(ticket)?;
    flush(world, 0)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    world.pass(IDLE)?;
    write_fua(world, 0, 500, 1)?;
    origins_lose(world)?;
    world.verify_cut()
}

fn rule_02_zeroes_at_home_under_a_newer_version(world: &mut World) -> Run {
    begin(world)?;
    let op = RequestOp::WriteZeroes { range: blocks(10, 5), fua: true };
    let ticket = world.submit(0, op);
    world.succeed(ticket)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    let home = world.until_pending(|io| io.is_origin(0, Kind::Flush))?;
    // Behind the header of the zeroes lie a batch of one block, a header, and, as far behind it as in the range, block 14.
    world.hold(is_batch);
    let _company = world.write(1, blocks(0, 1));
    let company = world.until_pending(is_batch)?;
    let last = world.write(0, blocks(14, 1));
    let others = world.write(0, blocks(10, 4));
    world.complete(company.id)?;
    let newer = world.until_pending(is_batch)?;
    world.complete(home.id)?;
    world.complete(newer.id)?;
    let record = world.until_pending(is_batch)?;
    world.complete(record.id)?;
    world.succeed(last)?;
    world.succeed(others)?;
    world.cut_power(|_| Fate::Kept);
    world.open()?;
    verify_and_evict(world)
}
