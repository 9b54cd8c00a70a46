//! What bypasses the cache is counted, reads and writes apart, by the reason that keeps it out.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::format::{Geometry, KeyLayout};
use engine::status::{Bypasses, Counters};
use engine::units::{Nanos, SectorRange};
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{IoView, Latency, Setup, SlotSetup, Ticket, VolumeSetup, World, blocks, sectors};

/// 16 MiB of data in buckets of 512 KiB.
const LAYOUT: KeyLayout =
    KeyLayout { geometry: Geometry { segments: 64, segment_blocks: 64 }, bucket_blocks: 128, buckets: 32 };
const NONE: Bypasses = Bypasses {
    mode_blocks: 0,
    failed_blocks: 0,
    pressure_blocks: 0,
    above_max_blocks: 0,
    budget_blocks: 0,
    slow_cache_blocks: 0,
    sequential_blocks: 0,
    congested_blocks: 0,
    seldom_blocks: 0,
    copies_blocks: 0,
    in_use_blocks: 0,
    unaligned_blocks: 0,
    later_gap_blocks: 0,
};

fn counters(world: &World) -> Counters {
    world.engine().expect("an engine runs").status().volumes[0].counters
}

fn opened(setup: Setup) -> World {
    let mut world = World::new(setup);
    world.run_dry().unwrap();
    world
}

fn with_slots(besides: &[(&str, &str)]) -> Setup {
    let mut composition = Composition::plain_slots();
    for (name, value) in besides {
        composition.set(name, value).unwrap();
    }
    let mut setup = Setup::new(1);
    setup.slots = Some(SlotSetup::new(512, composition));
    setup
}

fn write(world: &mut World, range: SectorRange) {
    let ticket = world.write(0, range);
    world.succeed(ticket).unwrap();
}

fn read(world: &mut World, range: SectorRange) {
    let ticket = world.read(0, range);
    world.succeed(ticket).unwrap();
    world.pass(20 * Nanos::MILLISECOND).unwrap();
}

#[test]
fn a_mode_that_goes_around_is_the_reason() {
    for with in [Setup::new, |_| with_slots(&[])] {
        let mut world = opened(with(1).with_modes(&[WriteMode::Writearound]));
        write(&mut world, blocks(3, 2));
        read(&mut world, blocks(3, 2));
        let Counters { read_bypasses, write_bypasses, .. } = counters(&world);
        assert_eq!(write_bypasses, Bypasses { mode_blocks: 2, ..NONE });
        assert_eq!(read_bypasses, NONE, "reads are cached");
        let ticket = world.submit(0, RequestOp::SetMode(WriteMode::Passthrough));
        world.succeed(ticket).unwrap();
        write(&mut world, blocks(100, 4));
        read(&mut world, blocks(200, 8));
        let Counters { read_bypasses, write_bypasses, .. } = counters(&world);
        assert_eq!(write_bypasses, Bypasses { mode_blocks: 6, ..NONE });
        assert_eq!(read_bypasses, Bypasses { mode_blocks: 8, ..NONE });
    }
}

/// Slots are asked piece by piece: of a read that is not aligned only its first and last block are counted there.
#[test]
fn what_is_not_aligned_is_counted_as_that() {
    let cutoff: &[(&str, &str)] = &[("cutoff", "none"), ("aligned_sectors", "8")];
    let setups = [(Setup::new(1).with_buckets(LAYOUT, cutoff, true), 3), (with_slots(&cutoff[1..]), 2)];
    for (setup, of_read) in setups {
        let mut world = opened(setup);
        write(&mut world, SectorRange { start: 80, sectors: 3 });
        read(&mut world, SectorRange { start: 801, sectors: 16 });
        write(&mut world, blocks(40, 2));
        read(&mut world, blocks(40, 2));
        let Counters { read_bypasses, write_bypasses, .. } = counters(&world);
        assert_eq!(write_bypasses, Bypasses { unaligned_blocks: 1, ..NONE });
        assert_eq!(read_bypasses, Bypasses { unaligned_blocks: of_read, ..NONE });
    }
}

/// A read hits the block in the middle: what is missing before it enters, and what is missing behind it does not.
#[test]
fn of_two_gaps_of_a_read_the_second_is_counted() {
    let setup = Setup::new(1).with_buckets(LAYOUT, &[("cutoff", "none"), ("first_gap_only", "true")], false);
    let mut world = opened(setup);
    write(&mut world, blocks(12, 1));
    read(&mut world, blocks(10, 6));
    assert_eq!(counters(&world).read_bypasses, Bypasses { later_gap_blocks: 3, ..NONE });
}

#[test]
fn a_read_that_comes_too_seldom_is_counted_until_it_enters() {
    let mut composition = Composition::plain_log();
    composition.set("admission", "second-read").unwrap();
    let mut setup = Setup::new(1);
    setup.composition = composition.text();
    let mut world = opened(setup);
    // What the origin holds unflushed does not enter; the first flush is behind this.
    write(&mut world, blocks(0, 1));
    let drain = world.submit(0, RequestOp::Drain);
    world.succeed(drain).unwrap();
    read(&mut world, blocks(50, 4));
    assert_eq!(counters(&world).read_bypasses, Bypasses { seldom_blocks: 4, ..NONE });
    read(&mut world, blocks(50, 4));
    read(&mut world, blocks(50, 4));
    let Counters { read_bypasses, fill_blocks, .. } = counters(&world);
    assert_eq!((read_bypasses, fill_blocks), (Bypasses { seldom_blocks: 4, ..NONE }, 4));
}

/// A plain log whose origin has nothing unflushed: what is read from it may enter.
fn flushed(besides: &[(&str, &str)]) -> World {
    let mut composition = Composition::plain_log();
    for (name, value) in besides {
        composition.set(name, value).unwrap();
    }
    let mut world = opened(Setup { composition: composition.text(), ..Setup::new(1) });
    write(&mut world, blocks(0, 1));
    let drain = world.submit(0, RequestOp::Drain);
    world.succeed(drain).unwrap();
    world
}

/// Two reads under way at the same time share a block, as those of a file system that is not aligned do: the second one's
/// other blocks enter all the same.
#[test]
fn reads_that_overlap_are_both_cached() {
    let mut world = flushed(&[]);
    world.hold(|io| io.is_origin(0, Kind::Read));
    let reads = [world.read(0, blocks(20, 5)), world.read(0, blocks(24, 5))];
    world.until_pending(|io| io.is_origin(0, Kind::Read)).unwrap();
    let [first, second] = world.pending(|io| io.is_origin(0, Kind::Read))[..] else { panic!("both miss") };
    for (io, read) in [first, second].into_iter().zip(reads) {
        world.complete(io.id).unwrap();
        world.succeed(read).unwrap();
        world.pass(20 * Nanos::MILLISECOND).unwrap();
    }
    let Counters { read_bypasses, fill_blocks, fill_dropped_blocks, .. } = counters(&world);
    assert_eq!((read_bypasses, fill_blocks, fill_dropped_blocks), (NONE, 9, 0));
}

#[test]
fn what_is_read_once_enters_while_there_is_room() {
    let mut world = flushed(&[("admission", "room-or-second-read")]);
    let reads = 4 * world.volume_sectors(0) / 8 / 5;
    for step in 0..reads / 4 {
        read(&mut world, blocks(1 + step * 4, 4));
    }
    let Counters { read_bypasses, fill_blocks, .. } = counters(&world);
    assert!(fill_blocks > 200, "{fill_blocks} while there was room");
    assert!(read_bypasses.seldom_blocks > 200, "{read_bypasses:?} when there was none");
    let filled = fill_blocks;
    (0..2).for_each(|_| read(&mut world, blocks(1 + (reads / 4 - 1) * 4, 4)));
    assert_eq!(counters(&world).fill_blocks, filled + 4, "the second read");
}

/// A write-through to slots goes to the origin and then into a slot: it bypasses nothing.
#[test]
fn a_write_through_that_enters_is_none() {
    let mut world = opened(with_slots(&[]).with_modes(&[WriteMode::Writethrough]));
    write(&mut world, blocks(7, 3));
    write(&mut world, blocks(7, 3));
    assert_eq!(counters(&world).write_bypasses, NONE);
}

#[test]
fn a_write_waits_for_no_read_of_the_origin() {
    let mut world = opened(Setup::new(1).without_waits());
    world.hold(|io| io.is_origin(0, Kind::Read));
    write(&mut world, sectors(83, 8));
    assert_eq!(counters(&world).write_bypasses, Bypasses { unaligned_blocks: 2, ..NONE });
    // What the cache has is read from there.
    write(&mut world, blocks(10, 2));
    write(&mut world, sectors(83, 8));
    // FUA waits for no flush of the origin.
    let durable = world.write_fua(0, sectors(401, 2));
    world.pass(Nanos::SECOND).unwrap();
    assert_eq!(world.outstanding_of(0), 1, "it reads the origin first");
    world.release();
    world.succeed(durable).unwrap();
    assert_eq!(counters(&world).write_bypasses, Bypasses { unaligned_blocks: 2, ..NONE });
    world.verify().unwrap();
}

/// Goal: what is read again and again enters, though nobody flushes what was written of it around the cache. Method: one such
/// write, and reads of its first block, of an origin with an arm.
#[test]
fn what_is_read_of_writes_around_the_cache_enters_in_the_end() {
    let origin_latency = Latency { least_ns: 4 * Nanos::MILLISECOND, most_ns: 8 * Nanos::MILLISECOND };
    let mut world = opened(Setup { origin_latency, ..Setup::new(1).without_waits() });
    write(&mut world, sectors(83, 8));
    assert_eq!(counters(&world).write_bypasses, Bypasses { unaligned_blocks: 2, ..NONE });
    for _ in 0..300 {
        read(&mut world, blocks(10, 1));
    }
    let Counters { hit_blocks, miss_blocks, .. } = counters(&world);
    assert!(hit_blocks >= 32, "{hit_blocks} hits, {miss_blocks} misses");
    world.verify().unwrap();
}

/// Goal: an origin without an arm is not flushed for what is read of such writes: the flush costs more than the reads. Method: the
/// same load, where a read takes a tenth of a millisecond. What lies beside such a write enters at once.
#[test]
fn an_origin_without_an_arm_is_not_flushed_for_reads() {
    let mut world = opened(Setup::new(1).without_waits());
    write(&mut world, sectors(83, 8));
    for _ in 0..1000 {
        read(&mut world, blocks(10, 1));
    }
    assert_eq!((counters(&world).hit_blocks, counters(&world).miss_blocks), (0, 1000));
    for _ in 0..1000 {
        read(&mut world, blocks(13, 1));
    }
    assert!(counters(&world).hit_blocks > 900, "{} hits", counters(&world).hit_blocks);
}

/// What follows a write that entered does not have to enter, too.
#[test]
fn of_a_write_with_a_dirty_block_at_its_edge_that_alone_enters() {
    let mut world = opened(Setup::new(1).without_waits());
    world.hold(|io| io.is_origin(0, Kind::Read));
    write(&mut world, blocks(10, 1));
    let unaligned = |world: &World| counters(world).write_bypasses.unaligned_blocks;
    // From its middle on, up to its middle, and what follows the first one.
    for (range, around) in [(sectors(84, 14), 2), (sectors(70, 12), 4), (sectors(98, 8), 6)] {
        write(&mut world, range);
        assert_eq!(unaligned(&world), around);
    }
    // A dirty block in the midst of it, and one at each edge: all of it enters, and reads the origin.
    write(&mut world, blocks(21, 1));
    let around_it = world.write(0, sectors(163, 20));
    world.pass(10 * Nanos::MILLISECOND).unwrap();
    assert!(world.answer(around_it).is_none(), "it reads the origin first");
    world.release();
    world.succeed(around_it).unwrap();
    assert_eq!(unaligned(&world), 6);
    world.verify().unwrap();
}

/// Two writes around the cache share a block and no sector, and go together. One that has to enter after all reads the rest of
/// the block when the other one is there.
#[test]
fn a_write_that_the_origin_refuses_waits_for_the_one_beside_it() {
    let mut world = opened(Setup::new(1).without_waits());
    let is_write = |io: &IoView| io.is_origin(0, Kind::Write);
    world.hold(is_write);
    let (refused, beside) = (world.write(0, sectors(81, 2)), world.write(0, sectors(83, 4)));
    world.pass(Nanos::MILLISECOND).unwrap();
    let [first, _] = world.pending(is_write)[..] else { panic!("neither waits for the other") };
    world.complete_failed(first.id, Errno::IO).unwrap();
    world.pass(10 * Nanos::MILLISECOND).unwrap();
    assert!(world.answer(refused).is_none(), "it waits");
    world.release();
    world.succeed(beside).unwrap();
    world.succeed(refused).unwrap();
    world.pass(5 * Nanos::SECOND).unwrap();
    world.verify().unwrap();
}

/// Volumes whose writes always go around the cache: those that share a block and no sector go together.
#[test]
fn writes_of_one_block_go_together_in_modes_that_cache_none() {
    let is_write = |io: &IoView| io.is_origin(0, Kind::Write);
    for mode in [WriteMode::Passthrough, WriteMode::Writearound] {
        let mut world = opened(Setup::new(1).with_modes(&[mode]));
        let read = world.read(0, blocks(10, 1));
        world.succeed(read).unwrap();
        world.pass(Nanos::SECOND).unwrap();
        world.hold(is_write);
        let both = [world.write(0, sectors(81, 2)), world.write(0, sectors(83, 4))];
        let overlapping = world.write(0, sectors(82, 2));
        world.pass(10 * Nanos::MILLISECOND).unwrap();
        assert_eq!(world.pending(is_write).len(), 2, "one waits in mode {}", mode.name());
        world.release();
        for ticket in both.into_iter().chain([overlapping]) {
            world.succeed(ticket).unwrap();
        }
        world.pass(5 * Nanos::SECOND).unwrap();
        world.verify().unwrap();
    }
}

#[test]
fn a_write_waits_for_no_room_that_comes_slowly() {
    // Nothing of the steps comes home. They have gaps between them, or not.
    let is_home = |io: &IoView| io.is_origin(0, Kind::Write) || io.is_origin(1, Kind::Write);
    for (stride, goes_around) in [(17, true), (16, false)] {
        let mut world = opened(Setup::new(1).without_waits().with_modes(&[WriteMode::Writeback; 2]));
        world.hold(move |io| is_home(io) && io.sectors >= 128);
        let steps: Vec<Ticket> =
            (0..116).map(|at| world.write(at % 2, blocks(at as u64 / 2 * stride, 16))).collect();
        world.pass(Nanos::SECOND).unwrap();
        assert!(world.outstanding_of(0) > 2, "the log is full");
        let before = counters(&world).write_bypasses.in_use_blocks;
        let last = world.write(0, blocks(992, 12));
        world.pass(Nanos::SECOND).unwrap();
        assert_eq!(world.answer(last).is_some(), goes_around, "runs of {stride} blocks and more");
        assert_eq!(counters(&world).write_bypasses.in_use_blocks - before, if goes_around { 12 } else { 0 });
        world.release();
        steps.into_iter().chain([last]).try_for_each(|step| world.succeed(step)).unwrap();
        world.verify().unwrap();
    }
}

#[test]
fn long_writes_go_around_a_full_cache_until_much_of_it_is_home() {
    let is_home = |io: &IoView| io.is_origin(0, Kind::Write) || io.is_origin(1, Kind::Write);
    for has_flooded in [false, true] {
        // A long write fits into one batch, and in a large volume the guard keeps the last one apart from what is held back.
        let volumes = vec![VolumeSetup { sectors: 40_000 * 8, mode: WriteMode::Writeback }; 2];
        let mut world = opened(Setup { segment_blocks: 64, volumes, ..Setup::new(1).without_waits() });
        let before = if has_flooded { 800 } else { 50 };
        for at in 0..before {
            write(&mut world, blocks(at % 29 * 32, 32));
        }
        world.hold(move |io| is_home(io) && io.first < 2000 * 8);
        let steps: Vec<Ticket> =
            (0..240).map(|at| world.write(at % 2, blocks(at as u64 / 2 * 16, 16))).collect();
        world.pass(Nanos::SECOND).unwrap();
        let passed = |world: &World| counters(world).write_bypasses.in_use_blocks;
        assert!(world.outstanding_of(0) > 2, "the log is full");
        assert_eq!(passed(&world), 0, "a short write waits: what goes home makes room for many");
        let long = world.write(0, blocks(20_000, 32));
        world.pass(Nanos::SECOND).unwrap();
        assert_eq!(world.answer(long).is_some(), has_flooded, "what was written may be read");
        assert_eq!(passed(&world), if has_flooded { 32 } else { 0 });
        world.release();
        steps.into_iter().chain([long]).try_for_each(|step| world.succeed(step)).unwrap();
        for volume in 0..2 {
            let drain = world.submit(volume, RequestOp::Drain);
            world.succeed(drain).unwrap();
        }
        world.pass(Nanos::SECOND).unwrap();
        write(&mut world, blocks(3100, 32));
        assert_eq!(passed(&world), if has_flooded { 32 } else { 0 }, "the flood is over");
        world.verify().unwrap();
    }
}

#[test]
fn a_write_waits_for_an_origin_that_fails() {
    let mut world = opened(Setup::new(1).without_waits().with_modes(&[WriteMode::Writeback; 2]));
    world.hold(|io| io.is_origin(0, Kind::Write) || io.is_origin(1, Kind::Write));
    for at in 0..116 {
        let _whenever = world.write(at % 2, blocks(at as u64 / 2 * 16, 16));
    }
    world.pass(Nanos::SECOND).unwrap();
    for volume in 0..2 {
        world.origin(volume).faults.gone = Some(Errno::IO);
    }
    world.release();
    world.pass(500 * Nanos::MILLISECOND).unwrap();
    let waiting = world.write(0, blocks(992, 1));
    world.pass(Nanos::SECOND).unwrap();
    assert!(world.answer(waiting).is_none(), "around the cache it would have failed");
    for volume in 0..2 {
        world.origin(volume).faults.heal();
    }
    world.succeed(waiting).unwrap();
}

/// Around the cache every flush would have to wait for the origin's write cache.
#[test]
fn a_write_between_flushes_reads_the_origin_first() {
    let mut world = opened(Setup::new(1).without_waits());
    let flush = world.flush(0);
    world.succeed(flush).unwrap();
    write(&mut world, sectors(83, 2));
    write(&mut world, sectors(85, 2));
    assert_eq!(counters(&world).write_bypasses, NONE);
    world.pass(2 * Nanos::SECOND).unwrap();
    write(&mut world, sectors(403, 2));
    assert_eq!(counters(&world).write_bypasses, Bypasses { unaligned_blocks: 1, ..NONE });
    world.verify().unwrap();
}

/// A write that went around the cache so that it need not wait goes into it when the origin refuses it.
#[test]
fn a_write_that_the_origin_refuses_goes_into_the_cache() {
    let mut world = opened(Setup::new(1).without_waits());
    world.origin(0).faults.fail_next(Kind::Write, Errno::IO);
    write(&mut world, sectors(83, 8));
    let status = world.engine().expect("an engine runs").status().volumes[0].clone();
    assert_eq!((status.dirty_bytes, status.origin_errors), (8192, 1));
    world.pass(5 * Nanos::SECOND).unwrap();
    world.verify().unwrap();
}

/// So does one that a policy sent around the cache: it does not send it there once more.
#[test]
fn a_long_run_that_the_origin_refuses_goes_into_the_cache() {
    let mut composition = Composition::forebay();
    for (name, value) in [("cutoff", "runs"), ("cutoff_bytes", "262144"), ("average_weight", "0")] {
        composition.set(name, value).unwrap();
    }
    let mut world = opened(Setup { composition: composition.text(), ..Setup::new(1) });
    (0..12).for_each(|step| write(&mut world, blocks(step * 8, 8)));
    assert!(counters(&world).write_bypasses.sequential_blocks > 0, "it goes around");
    world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
    write(&mut world, blocks(12 * 8, 8));
    world.origin(0).faults.heal();
    world.pass(5 * Nanos::SECOND).unwrap();
    world.verify().unwrap();
}

/// It waits for room there like others.
#[test]
fn a_write_that_the_origin_refuses_waits_for_room() {
    let mut world = opened(Setup::new(1).without_waits().with_modes(&[WriteMode::Writeback; 2]));
    // Nothing goes home that no flush covers.
    world.hold(|io| io.is_cache(Kind::Flush));
    let steps: Vec<Ticket> = (0..116).map(|at| world.write(at % 2, blocks(at as u64 / 2 * 16, 15))).collect();
    world.pass(Nanos::SECOND).unwrap();
    assert!(world.outstanding_of(0) > 2, "the log is full");
    world.origin(0).faults.fail_next(Kind::Write, Errno::IO);
    let refused = world.write(0, sectors(121, 4));
    world.pass(Nanos::SECOND).unwrap();
    assert_eq!(world.engine().expect("an engine runs").status().volumes[0].origin_errors, 1);
    world.release();
    world.succeed(refused).unwrap();
    steps.into_iter().try_for_each(|step| world.succeed(step)).unwrap();
    world.verify().unwrap();
}
