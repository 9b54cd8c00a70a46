//! Rule 9: the ring never stops. Dirty data of an origin that fails is appended again, its volume is held to
//! a share of the cache, and the other volumes go on.

mod world;

use engine::effect::{Errno, RequestOp, WriteMode};
use engine::limits::Config;
use engine::status::{VolumeState, VolumeStatus};
use engine::units::{Nanos, SectorRange};
use world::{Setup, World};

const MIB: u64 = 1 << 20;
const CACHE_BYTES: u64 = 32 * MIB;
/// Blocks of one write of the tests.
const STEP_BLOCKS: u64 = 64;
/// The volume whose origin fails, and the other one.
const SICK: usize = 0;
const WELL: usize = 1;

fn world(seed: u64, volumes: usize) -> World {
    let mut world = World::new(Setup {
        cache_bytes: CACHE_BYTES as usize,
        volume_sectors: vec![2 * CACHE_BYTES / 512; volumes],
        modes: vec![WriteMode::Writeback; volumes],
        seed,
    });
    world.tolerates_errors = true;
    world
}

/// The range of write number `step`.
fn step(step: u64) -> SectorRange {
    SectorRange { start: step * STEP_BLOCKS * 8, sectors: STEP_BLOCKS * 8 }
}

fn status(world: &World, volume: usize) -> VolumeStatus {
    world.engine.as_ref().expect("it runs").status().volumes[volume].clone()
}

fn write(world: &mut World, volume: usize, number: u64) -> Result<(), Errno> {
    world.write(volume, step(number), false);
    world.finish();
    world.last_reply.expect("answered")
}

fn set_sick(world: &mut World, errno: Option<Errno>) {
    world.origins[SICK].fail_writes = errno;
}

fn pass(world: &mut World, seconds: u64) {
    world.let_pass(seconds * Nanos::SECOND);
}

/// Writes round the other volume until the log went round the cache `laps` times more.
fn run_laps(world: &mut World, laps: u64) {
    let wraps = |world: &World| world.engine.as_ref().expect("it runs").status().cache.wraps;
    let end = wraps(world) + laps;
    let mut number = 0;
    while wraps(world) < end {
        assert_eq!(write(world, WELL, number % 100), Ok(()), "the other volume goes on");
        number += 1;
        assert!(number < laps * 1000, "a lap takes at most so many writes");
    }
}

#[test]
fn dirty_blocks_of_a_failing_origin_are_appended_again() {
    let mut world = world(1, 2);
    set_sick(&mut world, Some(Errno::IO));
    for number in 0..4 {
        write(&mut world, SICK, number * 3).unwrap();
    }
    world.flush(SICK);
    run_laps(&mut world, 4);
    let sick = status(&world, SICK);
    assert_eq!(sick.dirty_bytes, 4 * STEP_BLOCKS * 4096, "nothing of it went home, nothing was dropped");
    assert!(sick.counters.relocated_blocks >= 3 * 4 * STEP_BLOCKS, "it moved once in a lap");
    world.verify_all(false, false);
    // The copies are as durable as the first ones were.
    world.crash(true);
    world.open();
    world.verify_all(true, true);
    assert!(status(&world, SICK).dirty_bytes >= 4 * STEP_BLOCKS * 4096);
    set_sick(&mut world, None);
    world.ask(SICK, RequestOp::Drain).expect("a healed origin takes it");
    world.verify_all(false, false);
}

#[test]
fn an_absent_origin_is_limited_to_its_share_and_others_go_on() {
    let mut world = world(2, 2);
    set_sick(&mut world, Some(Errno::IO));
    write(&mut world, SICK, 0).expect("there is room");
    // The first try to bring it home finds out.
    pass(&mut world, 2);
    let mut taken = 1;
    let refused = loop {
        assert!(taken < 200, "twice the cache was taken");
        match write(&mut world, SICK, taken) {
            Ok(()) => taken += 1,
            Err(errno) => break errno,
        }
    };
    assert_eq!(refused, Errno::IO);
    let sick = status(&world, SICK);
    assert_eq!(sick.state, VolumeState::OriginAbsent);
    let limit_bytes = sick.dirty_limit_bytes.expect("a failing origin has a limit");
    assert!(limit_bytes <= CACHE_BYTES / 4, "half of the cache, for two volumes");
    let step_bytes = STEP_BLOCKS * 4096;
    assert!(sick.dirty_bytes <= limit_bytes, "{} of {limit_bytes}", sick.dirty_bytes);
    assert!(sick.dirty_bytes + 2 * step_bytes > limit_bytes, "{} of {limit_bytes}", sick.dirty_bytes);
    // What needs no more room is taken: dirty blocks again, and zeroes.
    write(&mut world, SICK, taken / 2).expect("these blocks are dirty already");
    world.submit(SICK, RequestOp::WriteZeroes { range: step(250), fua: false });
    world.finish();
    assert_eq!(world.last_reply, Some(Ok(())));

    run_laps(&mut world, 5);
    assert_eq!(status(&world, WELL).state, VolumeState::Active);
    assert_eq!(write(&mut world, SICK, taken), Err(Errno::IO), "still");
    assert_eq!(status(&world, SICK).dirty_limit_bytes, Some(limit_bytes));
    world.verify_all(false, false);

    set_sick(&mut world, None);
    pass(&mut world, 3);
    assert_eq!(status(&world, SICK).state, VolumeState::Active);
    for number in taken..taken + 100 {
        write(&mut world, SICK, number).expect("healed");
    }
    world.finish();
    world.verify_all(false, false);
    world.stop();
}

#[test]
fn a_short_failure_makes_writes_wait_and_fails_none() {
    let mut world = world(3, 2);
    world.tolerates_errors = false;
    set_sick(&mut world, Some(Errno::IO));
    for number in 0..100 {
        world.write(SICK, step(number), number % 5 == 0);
    }
    pass(&mut world, 25);
    let sick = status(&world, SICK);
    assert_eq!(sick.state, VolumeState::OriginFailing);
    assert!(world.outstanding() > 50, "those beyond the share wait");
    assert!(sick.dirty_bytes <= sick.dirty_limit_bytes.expect("it fails"));
    run_requests_of_the_other(&mut world);
    set_sick(&mut world, None);
    world.finish();
    world.verify_all(false, false);
    world.stop();
}

/// A few requests of the other volume while requests of the first one wait.
fn run_requests_of_the_other(world: &mut World) {
    let waiting = world.outstanding();
    for number in 0..200 {
        world.write(WELL, step(number % 100), false);
        while world.outstanding() > waiting {
            if !world.complete_one() {
                world.pass_time();
            }
        }
    }
}

#[test]
fn failures_with_success_in_between_never_make_an_origin_absent() {
    let mut world = world(4, 2);
    world.tolerates_errors = false;
    for round in 0..40 {
        set_sick(&mut world, (round % 2 == 0).then_some(Errno::IO));
        for number in 0..20 {
            world.write(SICK, step((round * 7 + number) % 120), false);
        }
        pass(&mut world, 4);
    }
    set_sick(&mut world, None);
    world.finish();
    assert!(status(&world, SICK).origin_errors > 20);
    world.verify_all(false, false);
    world.stop();
}

/// What waits in the log for room when the origin begins to fail must not take that room.
#[test]
fn a_full_cache_whose_origin_goes_answers_everybody() {
    let mut world = world(5, 1);
    for number in 0..250 {
        world.write(SICK, step(number % 256), false);
    }
    for _ in 0..400 {
        world.complete_one();
    }
    set_sick(&mut world, Some(Errno::IO));
    world.finish();
    assert_eq!(world.last_reply, Some(Err(Errno::IO)));
    assert_eq!(status(&world, SICK).state, VolumeState::OriginAbsent);
    world.verify_all(false, false);
    set_sick(&mut world, None);
    pass(&mut world, 3);
    write(&mut world, SICK, 0).expect("healed");
    world.stop();
}

/// An origin that hangs says so late. Until then its volume may fill three quarters of the cache.
#[test]
fn a_volume_that_filled_the_cache_before_its_origin_failed_does_not_stop_the_others() {
    let mut world = world(6, 2);
    let never: fn(&mut Config) = |config| config.idle_ns = u64::MAX;
    world.config_change = never;
    world.stop();
    world.open();
    for number in 0..250 {
        world.write(SICK, step(number), false);
    }
    while status(&world, SICK).dirty_bytes < CACHE_BYTES * 6 / 10 {
        if !world.complete_one() {
            world.pass_time();
        }
    }
    set_sick(&mut world, Some(Errno::IO));
    world.finish();
    let held_bytes = status(&world, SICK).dirty_bytes;
    assert!(held_bytes > CACHE_BYTES / 2 && held_bytes <= CACHE_BYTES * 3 / 4, "{held_bytes}");
    run_laps(&mut world, 4);
    assert_eq!(status(&world, SICK).dirty_bytes, held_bytes);
    world.verify_all(false, false);
}

/// Flushes that fail make an origin as absent as writes that do.
#[test]
fn an_origin_that_takes_writes_and_never_flushes_is_absent() {
    let mut world = world(7, 2);
    world.origins[SICK].fail_flushes = Some(Errno::IO);
    let refused = (0..200).find_map(|number| write(&mut world, SICK, number).err());
    assert_eq!(refused, Some(Errno::IO));
    run_laps(&mut world, 3);
    world.origins[SICK].fail_flushes = None;
    pass(&mut world, 3);
    write(&mut world, SICK, 199).expect("healed");
    world.ask(SICK, RequestOp::Drain).expect("healed");
    world.verify_all(false, false);
}

/// A cache that fails while writes wait for their share: each gets an answer.
#[test]
fn those_who_wait_learn_that_the_cache_failed() {
    let mut world = world(8, 2);
    set_sick(&mut world, Some(Errno::IO));
    for number in 0..100 {
        world.write(SICK, step(number), false);
    }
    pass(&mut world, 2);
    assert!(world.outstanding() > 0);
    world.cache.fail_writes = Some(Errno::IO);
    world.write(WELL, step(0), false);
    world.finish();
    assert!(world.engine.as_ref().unwrap().status().cache.latched);
}

#[test]
fn a_stop_does_not_wait_for_a_failing_origin() {
    let mut world = world(9, 2);
    set_sick(&mut world, Some(Errno::IO));
    for number in 0..100 {
        world.write(SICK, step(number), false);
    }
    pass(&mut world, 2);
    assert!(world.outstanding() > 0);
    let before = world.now();
    world.ask(WELL, RequestOp::Stop).expect("it stops");
    assert_eq!(world.outstanding(), 0);
    assert!(world.now() - before < 5 * Nanos::SECOND);
    world.crash(false);
    world.open();
    world.verify_all(true, false);
}
