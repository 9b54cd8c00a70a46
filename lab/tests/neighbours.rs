//! What a miss reads beside what was asked for.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::status::{Counters, VolumeStatus};
use engine::units::Nanos;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{IoView, Latency, Setup, VolumeSetup, World, blocks, sectors};

/// A cache of 32 MiB before a volume of 64 MiB that ends in the middle of a block, on a disk that has to search.
fn world(fetch: &str) -> Result<World, Violation> {
    let mut composition = Composition::plain_log();
    composition.set("fetch", fetch).expect("a choice of that axis");
    let mut setup = Setup { composition: composition.text(), segments: 256, ..Setup::new(1) };
    setup.origin_latency = Latency { least_ns: 3 * Nanos::MILLISECOND, most_ns: 12 * Nanos::MILLISECOND };
    setup.volumes = vec![VolumeSetup { sectors: 16 * 1024 * 8 - 3, mode: WriteMode::Writeback }];
    let mut world = World::new(setup);
    world.run_dry()?;
    Ok(world)
}

fn is_read_of_origin(io: &IoView) -> bool {
    io.is_origin(0, Kind::Read)
}

fn read(world: &mut World, first: u64, count: u64) -> Result<(), Violation> {
    let ticket = world.read(0, blocks(first, count));
    world.succeed(ticket)
}

fn status(world: &World) -> VolumeStatus {
    world.engine().expect("an engine runs").status().volumes[0].clone()
}

#[test]
fn what_lies_beside_a_miss_is_read_with_it() -> Result<(), Violation> {
    for (fetch, is_there) in [("neighbourhood", true), ("request", false)] {
        let mut world = world(fetch)?;
        read(&mut world, 70, 2)?;
        world.hold(is_read_of_origin);
        let beside: Vec<_> = [64, 69, 72, 127].map(|block| world.read(0, blocks(block, 1))).into();
        let farther = [63, 128].map(|block| world.read(0, blocks(block, 1)));
        world.pass(Nanos::SECOND)?;
        for ticket in beside {
            assert_eq!(world.answer(ticket).is_some(), is_there, "{fetch}");
        }
        assert!(farther.iter().all(|ticket| world.answer(*ticket).is_none()));
        world.release();
        world.finish()?;
        world.verify()?;
    }
    Ok(())
}

/// The cache device gets a neighbour when a client asks for it, and not before.
#[test]
fn a_neighbour_enters_the_cache_when_it_is_used() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    read(&mut world, 70, 2)?;
    world.pass(Nanos::SECOND)?;
    assert_eq!(status(&world).counters.fill_blocks, 2);
    read(&mut world, 80, 3)?;
    world.pass(Nanos::SECOND)?;
    assert_eq!(status(&world).counters.fill_blocks, 5);
    let Counters { hit_blocks, miss_blocks, beside_blocks, beside_hit_blocks, .. } = status(&world).counters;
    assert_eq!((hit_blocks, miss_blocks, beside_blocks, beside_hit_blocks), (3, 2, 62, 3));
    world.verify()
}

#[test]
fn who_wants_what_is_on_its_way_waits_for_it() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    world.hold(is_read_of_origin);
    let tickets = [70, 90, 71, 64].map(|block| world.read(0, blocks(block, 1)));
    world.pass(Nanos::SECOND)?;
    assert_eq!(world.pending(is_read_of_origin).len(), 1, "one read brings all of them");
    world.release();
    tickets.into_iter().try_for_each(|ticket| world.succeed(ticket))?;
    world.verify()
}

/// What was written meanwhile is not taken from the read that began before.
#[test]
fn who_waits_for_a_neighbour_that_changes_reads_again() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    world.hold(is_read_of_origin);
    let asked = world.read(0, blocks(70, 1));
    let waiting = world.read(0, blocks(90, 1));
    let fetch = world.until_pending(is_read_of_origin)?;
    world.land_op(fetch.id);
    let written = world.write(0, blocks(90, 1));
    world.succeed(written)?;
    world.release();
    world.succeed(asked)?;
    world.succeed(waiting)?;
    world.verify()
}

#[test]
fn a_neighbour_that_cannot_be_read_does_no_harm() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    world.origin(0).faults.fail_next(Kind::Read, Errno::IO);
    world.hold(is_read_of_origin);
    let tickets = [70, 90].map(|block| world.read(0, blocks(block, 1)));
    world.pass(Nanos::SECOND)?;
    world.release();
    tickets.into_iter().try_for_each(|ticket| world.succeed(ticket))?;
    assert_eq!(status(&world).origin_errors, 0, "nobody asked for what could not be read");
    world.verify()
}

/// The volume's last block is short, and is read by itself.
#[test]
fn the_end_of_a_volume_is_no_neighbour() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    let last = 16 * 1024 - 1;
    read(&mut world, last - 3, 1)?;
    world.hold(is_read_of_origin);
    let end = world.read(0, sectors(last * 8, 5));
    world.pass(Nanos::SECOND)?;
    assert!(world.answer(end).is_none());
    world.release();
    world.succeed(end)?;
    world.verify()
}

#[test]
fn memory_for_neighbours_is_bounded_and_given_back() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for step in 0..250 {
        read(&mut world, step * 64 + 5, 1)?;
    }
    world.check_memory()?;
    let stop = world.submit(0, RequestOp::Stop);
    world.succeed(stop)?;
    world.stopped()
}

/// A cache with room takes what lies beside a miss as well, if misses come back to it.
#[test]
fn a_cache_with_room_is_warmed_by_what_lies_beside() -> Result<(), Violation> {
    // Regions that are missed again and again, or once.
    for (regions, is_warmed) in [(48, true), (256, false)] {
        let mut world = world("neighbourhood")?;
        for at in 0..1000 {
            read(&mut world, at * 7 % regions * 64 + at / regions * 11 % 64, 1)?;
        }
        let Counters { misses, warm_up_blocks, fill_blocks, .. } = status(&world).counters;
        assert_eq!(misses < 400, is_warmed, "{misses} misses in {regions} regions");
        assert_eq!(warm_up_blocks > 1000, is_warmed, "{warm_up_blocks} blocks in {regions} regions");
        assert!(fill_blocks <= 8192, "no more than the cache holds");
        world.verify()?;
    }
    Ok(())
}

/// A cache that is full of what nobody reads any more takes what lies beside a miss, too; one whose oldest blocks are read does not.
#[test]
fn a_full_cache_is_warmed_where_nobody_reads_what_it_holds() -> Result<(), Violation> {
    for is_read in [false, true] {
        let mut world = world("neighbourhood")?;
        for at in 0..160 {
            read(&mut world, (64 + at) * 64, 64)?;
        }
        let full = status(&world).counters.warm_up_blocks;
        for at in 0..1600 {
            read(&mut world, at * 7 % 40 * 64 + at / 40 * 11 % 64, 1)?;
            for turn in 0..if is_read { 8 } else { 0 } {
                // What came last of it, which is all there, and is the oldest when others have come.
                read(&mut world, (112 + (at * 8 + turn) * 13 % 112) * 64 + at % 64, 1)?;
            }
        }
        let taken = status(&world).counters.warm_up_blocks - full;
        assert_eq!(taken > 1000, !is_read, "{taken} blocks");
        world.verify()?;
    }
    Ok(())
}
