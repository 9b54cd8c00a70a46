//! Hazards 5 and 12, rules 1, 9 and 15: the ring is reused in order, goes on, and keeps its bounds.

use crate::kinds::{self, Kind as Records};
use crate::steps::*;
use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::limits::Config;
use engine::units::Nanos;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::random::Random;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{IoView, Latency, Setup, Ticket, VolumeSetup, World, blocks};
use std::cell::Cell;
use std::rc::Rc;

crate::scenarios! {
    rule_01_segment_reused_before_a_flush: ReuseBeforeCacheFlush, writeback, on SEGMENTS;
    rule_01_segment_reused_under_a_reader: ForgetPins, writeback, with SkipReadChecksum;
    rule_01_lingering_segment_reused_under_a_reader: ForgetPins, writeback, with SkipReadChecksum;
    hazard_05_segment_emptied_with_dirty_blocks: EmptyWithoutDestage, writeback;
    hazard_12_log_keeps_room_for_itself: NoReserve, writeback, with FloorWithoutRoom, with StuckMovedInPart;
    hazard_12_who_waits_for_room_lets_it_be_made: WaitersBlockDestage, large;
    hazard_12_a_flood_waits_for_what_goes_home: FloodWaitsForNothing, that_keeps_hits, on kinds::INLINE;
    rule_09_failing_origin_does_not_stop_the_ring: StuckNotMoved, writeback;
    rule_09_records_leave_room_for_the_oldest_segment: StuckMovedInPart, that_keeps_none;
    rule_09_what_is_moved_leaves_room_for_the_oldest_segment: StuckMovedInPart, writeback;
    rule_09_last_room_is_for_the_floor: FloorWithoutRoom, writeback, with NoReserve, with StuckMovedInPart;
    rule_09_lost_extent_does_not_stop_the_ring: ExtentsNotMoved, writeback;
    rule_09_a_stop_does_not_wait_for_room: StopWaitsForRoom, three_volumes;
    rule_09_a_drain_ends_while_clients_write: WritersOutrunDrain, slow_origin, on kinds::ALL;
    rule_15_index_within_its_budget: IndexOverBudget, much;
    rule_15_partial_writes_within_their_memory: WorkUnbounded, little_memory;
}

/// Whose segments have payload.
const SEGMENTS: &[Records] = &[Records::Inline, Records::Mirror];

/// A ring that keeps what was hit, which writes of others must not flood.
fn that_keeps_hits() -> Setup {
    with_laps(three_volumes(), "3")
}

/// A ring that keeps nothing: it fills to the reserve whatever goes home.
fn that_keeps_none() -> Setup {
    with_laps(writeback(), "0")
}

fn with_laps(mut setup: Setup, laps: &str) -> Setup {
    let mut composition = Composition::plain_log();
    for (name, value) in [("laps_max", laps), ("keep_percent", "50")] {
        composition.set(name, value).expect("every name and value is one of a composition");
    }
    setup.composition = composition.text();
    setup
}

fn large() -> Setup {
    let mut setup = writeback_alone();
    setup.volumes = vec![VolumeSetup { sectors: 4000 * 8, mode: WriteMode::Writeback }];
    setup
}

/// A cache of half a gibibyte with the least memory for its index.
fn much() -> Setup {
    let mut setup = writeback_alone();
    setup.segments = 128;
    setup.segment_blocks = 1024;
    setup.index_budget_bytes = 1 << 20;
    setup.volumes = vec![VolumeSetup { sectors: 250_000 * 8, mode: WriteMode::Writeback }];
    setup
}

fn little_memory() -> Setup {
    let mut setup = writeback_alone();
    setup.config = |config| config.work_bytes_max = 512 << 10;
    setup.volumes = vec![VolumeSetup { sectors: 60_000 * 8, mode: WriteMode::Writeback }];
    setup
}

/// Volumes of twice the size of the cache that rest only when they are told to.
fn three_volumes() -> Setup {
    let mut setup = writeback_alone();
    setup.volumes = vec![VolumeSetup { sectors: 2 * 64 * 32 * 8, mode: WriteMode::Writeback }; 3];
    setup.config = |config| config.idle_ns = u64::MAX;
    setup
}

fn slow_origin() -> Setup {
    let mut setup = writeback_alone();
    setup.origin_latency = Latency { least_ns: 2 * MS, most_ns: 4 * MS };
    setup
}

fn rule_01_segment_reused_before_a_flush(world: &mut World) -> Run {
    begin(world)?;
    // v1 is in the first segment; it does not go home.
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    fill_log(world, 1)?;
    flush(world, 1)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    write(world, 0, 10, 1)?;
    press(world, 1, 60, 100 * MS)?;
    // Of all that is unflushed only what went over the first segment survives.
    world.cut_power(|write| if segment_of(write.first) == Some(0) { Fate::Kept } else { Fate::Lost });
    world.open()?;
    world.verify_cut()
}

fn rule_01_segment_reused_under_a_reader(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    fill_log(world, 1)?;
    reused_under_a_reader(world)
}

fn rule_01_lingering_segment_reused_under_a_reader(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    fill_log(world, 1)?;
    // The oldest segments are emptied, and that is durable.
    press(world, 1, 6, 300 * MS)?;
    flush(world, 1)?;
    world.pass(300 * MS)?;
    assert!(free_segments(world) >= Config::for_cache(64, 32).segments_low, "some count as free");
    reused_under_a_reader(world)
}

/// A block of the first segment is read, which takes long.
fn reused_under_a_reader(world: &mut World) -> Run {
    let is_armed = Rc::new(Cell::new(true));
    let armed = is_armed.clone();
    world.hold(move |io| armed.get() && io.is_cache(Kind::Read));
    let slow = world.read(0, blocks(10, 1));
    let under_way = world.until_pending(|io| io.is_cache(Kind::Read) && segment_of(io.first) == Some(0))?;
    is_armed.set(false);
    press(world, 1, 40, 300 * MS)?;
    world.complete(under_way.id)?;
    world.release();
    world.succeed(slow)?;
    world.finish()
}

fn hazard_05_segment_emptied_with_dirty_blocks(world: &mut World) -> Run {
    begin(world)?;
    // Nothing can go home: the log fills with dirty blocks.
    world.hold(|io| io.is_origin(0, Kind::Write) || io.is_origin(1, Kind::Write));
    write(world, 0, 10, 1)?;
    for volume in [1, 0] {
        press(world, volume, 92, 200 * MS)?;
    }
    world.release();
    world.finish()?;
    world.verify()
}

fn hazard_12_log_keeps_room_for_itself(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write) || io.is_origin(1, Kind::Write));
    for volume in [0, 1] {
        press(world, volume, 92, 200 * MS)?;
    }
    world.release();
    world.finish()?;
    world.verify()
}

fn hazard_12_who_waits_for_room_lets_it_be_made(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    for step in 0..110 {
        let _whenever = world.write(0, blocks(step * 16, 16));
    }
    world.pass(100 * MS)?;
    // The log is full. Now somebody waits for room in every part of what has to go home.
    for step in 0..110 {
        let _whenever = world.write(0, sectors(step * 128 + 1, 3));
    }
    world.pass(100 * MS)?;
    world.release();
    world.finish()?;
    world.verify()
}

fn rule_09_failing_origin_does_not_stop_the_ring(world: &mut World) -> Run {
    begin(world)?;
    for step in 0..4 {
        write_fua(world, 0, step * 16, 16)?;
    }
    world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
    wrap(world, 1)?;
    world.origin(0).faults.heal();
    world.run_dry()?;
    world.verify()
}

/// Of a cache full of dirty blocks clients get what goes home; while nothing does, what is left.
fn hazard_12_a_flood_waits_for_what_goes_home(world: &mut World) -> Run {
    const WELL: usize = 2;
    let is_home = |io: &IoView| io.is_origin(0, Kind::Write) || io.is_origin(1, Kind::Write);
    begin(world)?;
    world.hold(is_home);
    // Until the cache is full.
    for number in 0.. {
        let write = world.write(number % 2, blocks(number as u64 / 2 * 16, 16));
        world.pass(20 * MS)?;
        if world.answer(write).is_none() {
            break;
        }
    }
    // Both disks hang.
    let early = world.write(WELL, blocks(16, 1));
    world.pass(50 * MS)?;
    expect(world.answer(early).is_none(), "nobody waits for what is on its way home")?;
    world.pass(5000 * MS)?;
    expect(world.answer(early).is_some(), "a volume waits for disks of others, which hang")?;
    for id in pending(world, is_home) {
        world.complete_failed(id, Errno::IO)?;
    }
    for volume in [0, 1] {
        world.origin(volume).faults.fail_always(Kind::Write, Errno::IO);
    }
    world.release();
    let other = world.write(WELL, blocks(0, 1));
    world.pass(5 * MS)?;
    expect(world.answer(other).is_some(), "a volume waits for disks of others, which do not work")?;
    for volume in [0, 1] {
        world.origin(volume).faults.heal();
    }
    world.finish()?;
    world.verify()
}

fn rule_09_records_leave_room_for_the_oldest_segment(world: &mut World) -> Run {
    begin(world)?;
    // Dense segments of what cannot go home, as much as a volume may hold; then clean copies.
    world.hold(|io| io.is_origin(0, Kind::Write));
    press(world, 0, 72, 400 * MS)?;
    let reserved = Config::for_cache(64, 32).segments_reserved;
    let mut filled = 0;
    while free_segments(world) > reserved + 1 {
        fill(world, 1, filled, 16)?;
        filled += 16;
    }
    for id in pending(world, |io| io.is_origin(0, Kind::Write)) {
        world.complete_failed(id, Errno::IO)?;
    }
    world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
    world.release();
    // While nothing can be read, and so nothing appended again, each record takes a block.
    world.hold(|io| io.is_cache(Kind::Read));
    for block in 0..filled {
        let _whenever = world.discard(1, blocks(block, 1));
        world.pass(2 * MS)?;
    }
    world.release();
    wrap(world, 1)?;
    world.origin(0).faults.heal();
    world.finish()?;
    world.verify()
}

fn rule_09_what_is_moved_leaves_room_for_the_oldest_segment(world: &mut World) -> Run {
    begin(world)?;
    // All segments have blocks of both volumes: of one whose origin is slow, and of one whose origin fails.
    let are_both_slow = Rc::new(Cell::new(true));
    let both = are_both_slow.clone();
    world.hold(move |io| io.is_origin(1, Kind::Write) || both.get() && io.is_origin(0, Kind::Write));
    for step in 0..46 {
        for volume in [0, 1] {
            let _whenever = world.write(volume, blocks(step * 16, 16));
        }
    }
    world.pass(200 * MS)?;
    are_both_slow.set(false);
    world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
    for id in pending(world, |io| io.is_origin(0, Kind::Write)) {
        world.complete_failed(id, Errno::IO)?;
    }
    // Nothing that is moved away from it empties the oldest one now.
    world.pass(2000 * MS)?;
    world.origin(0).faults.heal();
    world.release();
    world.finish()?;
    world.verify()
}

fn rule_09_last_room_is_for_the_floor(world: &mut World) -> Run {
    hazard_12_log_keeps_room_for_itself(world)
}

fn rule_09_lost_extent_does_not_stop_the_ring(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    rot(world, 0, 10)?;
    let ticket = world.read(0, blocks(10, 1));
    let _an_error = world.wait(ticket)?;
    wrap(world, 1)?;
    world.verify()
}

fn rule_15_index_within_its_budget(world: &mut World) -> Run {
    begin(world)?;
    // Every other block: nothing to join in the index.
    for round in 0..1600 {
        for step in 0..64 {
            let _whenever = world.read(0, blocks((round * 64 + step) * 2, 1));
        }
        world.finish()?;
    }
    world.pass(100 * MS)?;
    world.check_memory()
}

fn rule_15_partial_writes_within_their_memory(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Read));
    for step in 0..100 {
        let _whenever = world.write(0, sectors(step * 640 + 1, 500));
    }
    world.pass(10 * MS)?;
    world.release();
    world.finish()?;
    world.check_memory()
}

/// Two origins fail after their volumes have filled the cache between them: the third volume finds no room.
fn rule_09_a_stop_does_not_wait_for_room(world: &mut World) -> Run {
    const WELL: usize = 2;
    for number in 0..250 {
        for volume in [0, 1] {
            world.write(volume, blocks(number * 16, 16));
        }
    }
    // Nothing of it comes home before they fail.
    let is_home = |io: &IoView| io.is_origin(0, Kind::Write) || io.is_origin(1, Kind::Write);
    world.hold(is_home);
    world.pass(Nanos::SECOND)?;
    for id in pending(world, is_home) {
        world.complete_failed(id, Errno::IO)?;
    }
    for volume in [0, 1] {
        for kind in [Kind::Write, Kind::Discard, Kind::WriteZeroes] {
            world.origin(volume).faults.fail_always(kind, Errno::IO);
        }
    }
    world.release();
    let waiting: Vec<Ticket> = (0..90).map(|number| world.write(WELL, blocks(number * 16, 16))).collect();
    world.pass(60 * Nanos::SECOND)?;
    assert!(waiting.iter().any(|ticket| world.answer(*ticket).is_none()), "there is no room");
    let began_ns = world.now_ns();
    let stop = world.submit(WELL, RequestOp::Stop);
    world.succeed(stop)?;
    assert!(world.now_ns() - began_ns < 5 * Nanos::SECOND, "it does not take long");
    world.kill_by_chance();
    for volume in [0, 1] {
        world.origin(volume).faults.heal();
    }
    world.open()?;
    world.verify_cut()
}

/// Clients write without a pause, half of it to the same few blocks, faster than the origin.
fn rule_09_a_drain_ends_while_clients_write(world: &mut World) -> Run {
    let mut random = Random::new(16);
    let mut under_way: Vec<Ticket> = Vec::new();
    let mut keep_writing = |world: &mut World| {
        under_way.retain(|ticket| world.answer(*ticket).is_none());
        while under_way.len() < 8 {
            let number = random.below(100);
            let block = if number < 50 { number % 4 } else { 10 + 8 * number };
            under_way.push(world.write(0, blocks(block, 1)));
        }
        world.step()
    };
    let until_ns = world.now_ns() + 100 * MS;
    while world.now_ns() < until_ns {
        keep_writing(world)?;
    }
    let began_ns = world.now_ns();
    let drain = world.submit(0, RequestOp::Drain);
    while world.answer(drain).is_none() {
        if world.now_ns() - began_ns > 400 * MS {
            return Err(Violation::new(Broken::Liveness, "the drain goes on and on"));
        }
        keep_writing(world)?;
    }
    world.finish()?;
    world.verify()
}
