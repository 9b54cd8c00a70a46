//! Devices that fail while the engine runs: what is served then, and what is refused.

mod world;

use engine::effect::{Errno, Notice, RequestOp, WriteMode};
use engine::status::VolumeState;
use engine::units::SectorRange;
use world::{Setup, World};

fn world(seed: u64, mode: WriteMode) -> World {
    let mut world =
        World::new(Setup { cache_bytes: 32 << 20, volume_sectors: vec![65536], modes: vec![mode], seed });
    world.tolerates_errors = true;
    world
}

fn blocks(first: u64, count: u64) -> SectorRange {
    SectorRange { start: first * 8, sectors: count * 8 }
}

/// Rots every copy of what is now in the cache.
fn rot(world: &mut World) {
    let start = 1 << 20;
    for at in (start + 8192..world.cache.bytes().len()).step_by(4096) {
        world.cache.bytes_mut()[at + 77] ^= 0x10;
    }
}

fn read(world: &mut World, range: SectorRange) -> Result<(), Errno> {
    world.read(0, range);
    world.finish();
    world.last_reply.expect("answered")
}

fn write(world: &mut World, range: SectorRange) -> Result<(), Errno> {
    world.write(0, range, false);
    world.finish();
    world.last_reply.expect("answered")
}

#[test]
fn a_rotten_clean_block_is_served_by_the_origin() {
    let mut world = world(1, WriteMode::Writethrough);
    // Nothing is cached before the origin was flushed once.
    world.pass_time();
    while world.complete_one() {}
    for _ in 0..2 {
        read(&mut world, blocks(10, 20)).unwrap();
        while world.complete_one() {}
    }
    while world.complete_one() {}
    let before = world.engine.as_ref().unwrap().status().volumes[0].counters;
    assert_eq!(before.hit_blocks, 20, "the second read hits");
    rot(&mut world);
    read(&mut world, blocks(10, 20)).unwrap();
    let after = world.engine.as_ref().unwrap().status().volumes[0].counters;
    assert_eq!(after.corrupt_clean_blocks, 20);
    assert!(
        world.notices.contains(&Notice::CorruptClean { volume: engine::units::VolumeIndex(0), block: 10 })
    );
    read(&mut world, blocks(10, 20)).unwrap();
}

#[test]
fn a_rotten_dirty_block_is_an_error_and_never_old_data() {
    let mut world = world(2, WriteMode::Writeback);
    write(&mut world, blocks(100, 4)).unwrap();
    rot(&mut world);
    assert_eq!(read(&mut world, blocks(101, 1)), Err(Errno::IO));
    while world.complete_one() {}
    assert_eq!(read(&mut world, blocks(101, 1)), Err(Errno::IO));
    let status = world.engine.as_ref().unwrap().status();
    assert_eq!(status.volumes[0].lost_bytes, 4096);
    // Neighbours are not concerned, others are found when they are read or destaged.
    read(&mut world, blocks(90, 10)).unwrap();
    assert_eq!(read(&mut world, blocks(100, 4)), Err(Errno::IO));
    while world.complete_one() {}
    world.flush(0);
    world.crash(true);
    world.open();
    assert_eq!(read(&mut world, blocks(101, 1)), Err(Errno::IO), "lost stays lost over a crash");
    // A new write heals it.
    write(&mut world, blocks(100, 4)).unwrap();
    read(&mut world, blocks(100, 4)).unwrap();
    let status = world.engine.as_ref().unwrap().status();
    assert_eq!(status.volumes[0].lost_bytes, 0);
}

#[test]
fn an_origin_that_fails_keeps_the_data_dirty_until_it_heals() {
    let mut world = world(3, WriteMode::Writeback);
    write(&mut world, blocks(0, 64)).unwrap();
    world.flush(0);
    world.origins[0].fail_writes = Some(Errno::IO);
    for _ in 0..200 {
        world.pass_time();
        while world.complete_one() {}
    }
    let status = world.engine.as_ref().unwrap().status();
    assert_eq!(status.volumes[0].dirty_bytes, 64 * 4096);
    assert!(status.volumes[0].origin_errors > 0);
    assert_eq!(status.volumes[0].state, VolumeState::OriginFailing);
    read(&mut world, blocks(0, 64)).unwrap();
    world.origins[0].fail_writes = None;
    world.ask(0, RequestOp::Drain).expect("a healed origin drains");
    assert_eq!(world.engine.as_ref().unwrap().status().volumes[0].dirty_bytes, 0);
}

#[test]
fn an_origin_whose_flush_fails_makes_nothing_clean() {
    let mut world = world(4, WriteMode::Writeback);
    world.origins[0].fail_flushes = Some(Errno::IO);
    write(&mut world, blocks(0, 64)).unwrap();
    for _ in 0..200 {
        world.pass_time();
        while world.complete_one() {}
    }
    assert_eq!(world.engine.as_ref().unwrap().status().volumes[0].dirty_bytes, 64 * 4096);
    world.origins[0].fail_flushes = None;
    world.ask(0, RequestOp::Drain).expect("a healed origin drains");
}

#[test]
fn a_failed_cache_leaves_a_clean_volume_served_by_its_origin() {
    let mut world = world(5, WriteMode::Writethrough);
    write(&mut world, blocks(0, 8)).unwrap();
    world.ask(0, RequestOp::Drain).unwrap();
    world.cache.fail_writes = Some(Errno::IO);
    for round in 0..20 {
        world.write(0, blocks(round * 3, 8), round % 3 == 0);
        world.write(0, SectorRange { start: round * 24 + 3, sectors: 7 }, false);
        world.read(0, blocks(round, 30));
    }
    world.finish();
    assert_eq!(world.last_reply, Some(Ok(())));
    let status = world.engine.as_ref().unwrap().status();
    assert!(status.cache.latched);
    assert_eq!(status.volumes[0].state, VolumeState::Uncached);
    world.flush(0);
    world.verify_all(false, false);
}

#[test]
fn a_failed_cache_with_dirty_data_takes_no_more_writes() {
    let mut world = world(6, WriteMode::Writeback);
    write(&mut world, blocks(0, 8)).unwrap();
    world.cache.fail_writes = Some(Errno::IO);
    assert_eq!(write(&mut world, blocks(50, 8)), Err(Errno::IO));
    let status = world.engine.as_ref().unwrap().status();
    assert_eq!(status.volumes[0].state, VolumeState::Failed);
    // What it can still read is right; the origin serves the rest.
    read(&mut world, blocks(0, 8)).unwrap();
    read(&mut world, blocks(200, 8)).unwrap();
    world.cache.fail_reads = Some(Errno::IO);
    assert_eq!(read(&mut world, blocks(0, 8)), Err(Errno::IO));
    assert_eq!(write(&mut world, blocks(51, 1)), Err(Errno::IO));
}

#[test]
fn a_full_cache_of_dirty_data_slows_down_and_never_fails() {
    let mut world = world(7, WriteMode::Writeback);
    for round in 0..400 {
        world.write(0, blocks(round * 61 % 8000, 64), false);
        if round % 8 == 7 {
            while world.outstanding() > 4 {
                if !world.complete_one() {
                    world.pass_time();
                }
            }
        }
    }
    world.finish();
    assert_eq!(world.last_reply, Some(Ok(())));
    world.verify_all(false, false);
    world.stop();
    assert!(world.wraps > 0 && world.destaged > 0);
}
