//! Devices that fail while the engine runs: what is served then, and what is refused.

use engine::effect::{Errno, RequestOp, WriteMode};
use engine::format::SEGMENTS_OFFSET;
use engine::status::{Status, VolumeState};
use engine::units::{Nanos, SectorRange};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::{Fault, Kind};
use forebay_lab::violation::Violation;
use forebay_lab::world::{Latency, Setup, VolumeSetup, World, blocks, sectors};

fn world(seed: u64, mode: WriteMode) -> World {
    let mut setup = Setup::new(seed);
    setup.volumes = vec![VolumeSetup { sectors: 8192 * 8, mode }];
    setup.is_checked_on_open = false;
    World::new(setup)
}

fn status(world: &World) -> Status {
    world.engine().expect("an engine runs").status()
}

fn dirty_blocks(world: &World) -> u64 {
    status(world).volumes[0].dirty_bytes / 4096
}

fn read(world: &mut World, range: SectorRange) -> Result<Result<(), Errno>, Violation> {
    let ticket = world.read(0, range);
    world.wait(ticket)
}

fn write(world: &mut World, range: SectorRange) -> Result<Result<(), Errno>, Violation> {
    let ticket = world.write(0, range);
    world.wait(ticket)
}

/// Rots every copy of the range that is in the cache.
fn rot(world: &mut World, range: SectorRange) {
    for sector in (range.start..range.end()).step_by(8) {
        for copy in world.copies_of(0, sector) {
            world.cache().flush_all();
            assert!(world.rot_cache(copy, 77), "it is on the medium");
        }
    }
}

#[test]
fn a_rotten_clean_block_is_served_by_the_origin() -> Result<(), Violation> {
    let mut world = world(1, WriteMode::Writethrough);
    // Nothing is cached before the origin was flushed once.
    world.run_dry()?;
    for _ in 0..2 {
        assert_eq!(read(&mut world, blocks(10, 20))?, Ok(()));
        world.run_dry()?;
    }
    assert_eq!(status(&world).volumes[0].counters.hit_blocks, 20, "the second read hits");
    rot(&mut world, blocks(10, 20));
    assert_eq!(read(&mut world, blocks(10, 20))?, Ok(()));
    assert_eq!(status(&world).volumes[0].counters.corrupt_clean_blocks, 20);
    assert_eq!(read(&mut world, blocks(10, 20))?, Ok(()));
    world.run_dry()
}

#[test]
fn a_rotten_dirty_block_is_an_error_and_never_old_data() -> Result<(), Violation> {
    let mut world = world(2, WriteMode::Writeback);
    assert_eq!(write(&mut world, blocks(100, 4))?, Ok(()));
    // Until a header says that they were flushed, recovery takes rotten blocks for torn ones.
    for block in [300, 301] {
        let ticket = world.write_fua(0, blocks(block, 1));
        world.succeed(ticket)?;
    }
    rot(&mut world, blocks(100, 4));
    for _ in 0..2 {
        assert_eq!(read(&mut world, blocks(101, 1))?, Err(Errno::IO));
        world.pass(Nanos::MILLISECOND)?;
    }
    assert_eq!(status(&world).volumes[0].lost_bytes, 4096);
    // Neighbours are not concerned, others are found when they are read or destaged.
    assert_eq!(read(&mut world, blocks(90, 10))?, Ok(()));
    assert_eq!(read(&mut world, blocks(100, 4))?, Err(Errno::IO));
    world.run_dry()?;
    let ticket = world.flush(0);
    world.succeed(ticket)?;
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    assert_eq!(read(&mut world, blocks(101, 1))?, Err(Errno::IO), "lost stays lost over a crash");
    // A new write heals it.
    assert_eq!(write(&mut world, blocks(100, 4))?, Ok(()));
    assert_eq!(read(&mut world, blocks(100, 4))?, Ok(()));
    assert_eq!(status(&world).volumes[0].lost_bytes, 0);
    world.run_dry()
}

#[test]
fn an_origin_that_fails_keeps_the_data_dirty_until_it_heals() -> Result<(), Violation> {
    let mut world = world(3, WriteMode::Writeback);
    assert_eq!(write(&mut world, blocks(0, 64))?, Ok(()));
    let ticket = world.flush(0);
    world.succeed(ticket)?;
    world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
    world.pass(4 * Nanos::SECOND)?;
    assert_eq!(dirty_blocks(&world), 64);
    assert!(status(&world).volumes[0].origin_errors > 0);
    assert_eq!(status(&world).volumes[0].state, VolumeState::OriginFailing);
    assert_eq!(read(&mut world, blocks(0, 64))?, Ok(()));
    world.origin(0).faults.heal();
    assert_eq!(world.ask(0, RequestOp::Drain)?, Ok(()), "a healed origin drains");
    assert_eq!(dirty_blocks(&world), 0);
    world.expect_origin_equals_view(0)?;
    world.run_dry()
}

#[test]
fn an_origin_whose_flush_fails_makes_nothing_clean() -> Result<(), Violation> {
    let mut world = world(4, WriteMode::Writeback);
    world.origin(0).faults.fail_always(Kind::Flush, Errno::IO);
    assert_eq!(write(&mut world, blocks(0, 64))?, Ok(()));
    world.pass(4 * Nanos::SECOND)?;
    assert_eq!(dirty_blocks(&world), 64);
    world.origin(0).faults.heal();
    assert_eq!(world.ask(0, RequestOp::Drain)?, Ok(()));
    world.expect_origin_equals_view(0)
}

/// Goal: nothing is asked of a device when a clean stop is answered.
/// Method: the flush of an origin that failed is due again while a slow cache records the stop.
#[test]
fn a_stop_does_not_try_a_failing_origin_again() -> Result<(), Violation> {
    let mut setup = Setup::new(5);
    setup.cache_latency = Latency { least_ns: 400 * Nanos::MILLISECOND, most_ns: 400 * Nanos::MILLISECOND };
    let mut world = World::new(setup);
    world.run_dry()?;
    world.origin(0).faults.fail_always(Kind::Flush, Errno::IO);
    assert_eq!(write(&mut world, blocks(0, 64))?, Ok(()));
    world.pass(20 * Nanos::SECOND)?;
    assert_eq!(status(&world).volumes[0].state, VolumeState::OriginFailing);
    let stop = world.submit(0, RequestOp::Stop);
    world.until_pending(|io| io.is_cache(Kind::Write) && io.first * 512 < SEGMENTS_OFFSET)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    world.succeed(stop)?;
    world.stopped()
}

/// No client was told of the failed flush before: the next FLUSH must not promise lost writes.
#[test]
fn a_flush_after_a_failed_one_that_nobody_saw_fails() -> Result<(), Violation> {
    for seed in 0..8 {
        let mut world = world(seed, WriteMode::Passthrough);
        world.run_dry()?;
        assert_eq!(write(&mut world, blocks(0, 64))?, Ok(()));
        world.origin(0).faults.fail_next(Kind::Flush, Errno::IO);
        world.pass(4 * Nanos::SECOND)?;
        let ticket = world.flush(0);
        let _told = world.wait(ticket)?;
        assert_eq!(write(&mut world, blocks(0, 64))?, Ok(()));
        world.pass(4 * Nanos::SECOND)?;
        let ticket = world.flush(0);
        world.succeed(ticket)?;
        world.cut_power(|_| Fate::Lost);
        world.open()?;
        world.verify_cut()?;
    }
    Ok(())
}

#[test]
fn a_failed_cache_leaves_a_clean_volume_served_by_its_origin() -> Result<(), Violation> {
    let mut world = world(5, WriteMode::Writethrough);
    assert_eq!(write(&mut world, blocks(0, 8))?, Ok(()));
    assert_eq!(world.ask(0, RequestOp::Drain)?, Ok(()));
    world.cache().faults.fail_always(Kind::Write, Errno::IO);
    let mut last = None;
    for round in 0..20 {
        if round % 3 == 0 {
            world.write_fua(0, blocks(round * 3, 8))
        } else {
            world.write(0, blocks(round * 3, 8))
        };
        last = Some(world.write(0, sectors(round * 24 + 3, 7)));
        world.read(0, blocks(round, 30));
    }
    world.finish()?;
    assert_eq!(world.answer(last.expect("a write")).expect("it was answered").result, Ok(()));
    assert!(status(&world).cache.latched);
    assert_eq!(status(&world).volumes[0].state, VolumeState::Uncached);
    let ticket = world.flush(0);
    world.succeed(ticket)?;
    world.verify()?;
    // The cache comes back: what it holds is void.
    world.cache().faults.heal();
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    world.verify_cut()
}

/// What was written through only waits for the origin's flush: a cache that dies takes nothing with it, and no client learns of
/// that.
#[test]
fn a_volume_that_is_written_through_outlives_a_cache_that_dies() -> Result<(), Violation> {
    for seed in 0..48 {
        let mut world = world(seed, WriteMode::Writethrough);
        world.run_dry()?;
        let mut tickets = Vec::new();
        for round in 0..60 {
            match (round, seed % 4) {
                (20, 0) => world.cache().faults.fail_always(Kind::Write, Errno::IO),
                (20, 1) => world.cache().faults.fail_always(Kind::Flush, Errno::IO),
                (20, _) => world.cache().faults.gone = Some(Errno::NODEV),
                _ => (),
            }
            let block = round * 7 + seed;
            tickets.push(world.write(0, blocks(block, 4)));
            tickets.push(world.write_fua(0, blocks(block + 2, 1)));
            tickets.push(world.write(0, sectors(block * 8 + 27, 7)));
            tickets.push(world.write_zeroes(0, sectors(block * 8 + 61, 20)));
            tickets.push(world.read(0, blocks(block.saturating_sub(9), 12)));
            if round % 5 == seed % 5 {
                tickets.push(world.flush(0));
            }
            world.pass((seed / 4 % 6) * 200_000)?;
        }
        for ticket in tickets {
            world.succeed(ticket)?;
        }
        assert_eq!(status(&world).volumes[0].state, VolumeState::Uncached);
        world.verify()?;
        world.cache().faults.heal();
        world.cut_power(|_| Fate::Lost);
        world.open()?;
        world.verify_cut()?;
    }
    Ok(())
}

/// It is the same content at the origin, before the origin was flushed as after that.
#[test]
fn what_was_written_through_is_read_from_the_origin_if_it_rots() -> Result<(), Violation> {
    let mut world = world(11, WriteMode::Writethrough);
    world.run_dry()?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    assert_eq!(write(&mut world, blocks(10, 20))?, Ok(()));
    assert_eq!(dirty_blocks(&world), 20);
    rot(&mut world, blocks(10, 10));
    assert_eq!(read(&mut world, blocks(10, 20))?, Ok(()));
    assert_eq!(status(&world).volumes[0].lost_bytes, 0);
    world.cache().faults.fail_always(Kind::Read, Errno::IO);
    assert_eq!(read(&mut world, blocks(10, 20))?, Ok(()));
    world.cache().faults.heal();
    world.release();
    world.finish()?;
    world.verify()
}

/// What neither device can give is an error, and is not asked for again and again.
#[test]
fn what_rots_and_cannot_be_read_from_the_origin_is_an_error_at_once() -> Result<(), Violation> {
    let mut world = world(11, WriteMode::Writethrough);
    world.run_dry()?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    assert_eq!(write(&mut world, blocks(10, 1))?, Ok(()));
    assert_eq!(dirty_blocks(&world), 1);
    rot(&mut world, blocks(10, 1));
    world.origin(0).faults.fail_always(Kind::Read, Errno::IO);
    let refused = world.read(0, blocks(10, 1));
    world.pass(Nanos::SECOND)?;
    assert_eq!(world.answer(refused).map(|answer| answer.result), Some(Err(Errno::IO)));
    world.origin(0).faults.heal();
    assert_eq!(read(&mut world, blocks(10, 1))?, Ok(()), "a bad moment of the origin");
    world.release();
    world.finish()?;
    world.verify()
}

/// What an origin refused, or may have dropped with a flush that failed, the cache alone has: clients may have read it.
#[test]
fn a_failed_cache_is_not_given_up_while_the_origin_refuses() -> Result<(), Violation> {
    for (refused, answer) in [(Kind::Write, Err(Errno::IO)), (Kind::Flush, Ok(()))] {
        let mut world = world(12, WriteMode::Writethrough);
        world.run_dry()?;
        world.origin(0).faults.fail_always(refused, Errno::IO);
        assert_eq!(write(&mut world, blocks(10, 4))?, answer);
        world.pass(20 * Nanos::SECOND)?;
        world.cache().faults.fail_always(Kind::Write, Errno::IO);
        assert_eq!(write(&mut world, blocks(50, 4))?, Err(Errno::IO));
        assert_eq!(status(&world).volumes[0].state, VolumeState::Failed);
    }
    Ok(())
}

#[test]
fn a_failed_cache_with_dirty_data_takes_no_more_writes() -> Result<(), Violation> {
    let mut world = world(6, WriteMode::Writeback);
    assert_eq!(write(&mut world, blocks(0, 8))?, Ok(()));
    world.cache().faults.fail_always(Kind::Write, Errno::IO);
    assert_eq!(write(&mut world, blocks(50, 8))?, Err(Errno::IO));
    assert_eq!(status(&world).volumes[0].state, VolumeState::Failed);
    // What it can still read is right; the origin serves the rest.
    assert_eq!(read(&mut world, blocks(0, 8))?, Ok(()));
    assert_eq!(read(&mut world, blocks(200, 8))?, Ok(()));
    world.cache().faults.fail_always(Kind::Read, Errno::IO);
    assert_eq!(read(&mut world, blocks(0, 8))?, Err(Errno::IO));
    assert_eq!(write(&mut world, blocks(51, 1))?, Err(Errno::IO));
    world.run_dry()
}

#[test]
fn a_full_cache_of_dirty_data_slows_down_and_never_fails() -> Result<(), Violation> {
    let mut setup = Setup::new(7);
    setup.volumes = vec![VolumeSetup { sectors: 8192 * 8, mode: WriteMode::Writeback }];
    setup.origin_latency = Latency { least_ns: 1_000_000, most_ns: 5_000_000 };
    let mut world = World::new(setup);
    for round in 0..400 {
        let ticket = world.write(0, blocks(round * 61 % 8000, 64));
        if round % 8 == 7 {
            world.succeed(ticket)?;
        }
    }
    world.finish()?;
    world.verify()?;
    world.run_dry()?;
    let counts = world.counts();
    assert!(counts.wraps > 0 && counts.destaged_blocks > 0 && counts.errors == 0);
    world.stop()
}

/// What the oldest segments had is dropped to make room, and room it is only when a flush has said so.
#[test]
fn a_cache_that_takes_long_to_flush_keeps_what_it_has() -> Result<(), Violation> {
    let mut setup = Setup { segments: 256, ..Setup::new(1) };
    setup.volumes = vec![VolumeSetup { sectors: 16 * 1024 * 8, mode: WriteMode::Writeback }];
    let mut world = World::new(setup);
    world.run_dry()?;
    let cached = |world: &World| status(world).cache.index_blocks;
    let mut most = 0;
    for at in 0..256 {
        if at == 16 {
            world.hold(|io| io.is_cache(Kind::Flush));
        }
        let ticket = world.read(0, blocks(at * 64, 64));
        world.succeed(ticket)?;
        world.pass(10 * Nanos::MILLISECOND)?;
        most = most.max(cached(&world));
    }
    assert!(most > 5000, "{most} blocks were cached at one time");
    world.pass(Nanos::SECOND)?;
    let kept = cached(&world);
    assert!(kept >= most * 8 / 10, "{kept} of {most} blocks are still cached");
    world.release();
    world.finish()?;
    world.verify()
}

#[test]
fn an_origin_that_is_gone_and_back_gets_its_data() -> Result<(), Violation> {
    let mut world = world(8, WriteMode::Writeback);
    assert_eq!(write(&mut world, blocks(0, 64))?, Ok(()));
    world.origin(0).faults.gone = Some(Errno::NODEV);
    world.pass(3 * Nanos::SECOND)?;
    assert_eq!(read(&mut world, blocks(0, 64))?, Ok(()));
    assert_eq!(read(&mut world, blocks(500, 1))?, Err(Errno::NODEV));
    assert_eq!(write(&mut world, blocks(60, 64))?, Ok(()));
    world.origin(0).faults.heal();
    assert_eq!(read(&mut world, blocks(500, 1))?, Ok(()));
    world.run_dry()?;
    assert_eq!(dirty_blocks(&world), 0);
    world.expect_origin_equals_view(0)
}

#[test]
fn a_cache_that_hangs_counts_as_gone_until_the_next_start() -> Result<(), Violation> {
    let mut world = world(9, WriteMode::Writeback);
    assert_eq!(write(&mut world, blocks(0, 8))?, Ok(()));
    world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
    world.cache().faults.plan(Kind::Write, Fault::Hang, 1);
    assert_eq!(write(&mut world, blocks(20, 8))?, Err(Errno::IO));
    assert!(world.now_ns() >= 30 * Nanos::SECOND, "the driver's timeout");
    assert_eq!(read(&mut world, blocks(0, 1))?, Err(Errno::TIMEDOUT));
    world.origin(0).faults.heal();
    world.kill_by_chance();
    world.open()?;
    assert_eq!(read(&mut world, blocks(0, 8))?, Ok(()));
    world.verify_cut()
}

#[test]
fn an_origin_without_space_refuses_a_client_and_is_asked_again_by_destage() -> Result<(), Violation> {
    let mut world = world(10, WriteMode::Writethrough);
    world.origin(0).faults.plan(Kind::Write, Fault::Error(Errno::NOSPC), 1);
    assert_eq!(write(&mut world, blocks(0, 8))?, Err(Errno::NOSPC));
    assert_eq!(write(&mut world, blocks(0, 8))?, Ok(()));
    world.run_dry()?;
    world.expect_origin_equals_view(0)
}
