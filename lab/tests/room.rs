//! Goal: a volume keeps its minimum whatever others do, gets no more than its maximum, and what is counted of each volume
//! is what the index has. Method: small rings that go round often, and a count of the index itself.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, Room, WriteMode};
use engine::status::VolumeStatus;
use engine::units::{BLOCK_BYTES, VolumeIndex};
use forebay_lab::random::Random;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Setup, SlotSetup, VolumeSetup, World, blocks};

/// Blocks of the cache, which is the smallest one.
const CACHE_BLOCKS: u64 = 64 * 32;
/// The volume with a room of its own, and the one that takes all there is.
const ONE: usize = 0;
const OTHER: usize = 1;
const MS: u64 = 1_000_000;

fn world(seed: u64, volumes: usize) -> World {
    let mut setup = Setup::new(seed);
    setup.volumes = vec![VolumeSetup { sectors: 4 * CACHE_BLOCKS * 8, mode: WriteMode::Writeback }; volumes];
    let mut composition = Composition::plain_log();
    for (name, value) in [("laps_max", "3"), ("keep_percent", "50"), ("credit_percent", "50")] {
        composition.set(name, value).expect("it is possible");
    }
    setup.composition = composition.text();
    World::new(setup)
}

fn status(world: &World, volume: usize) -> VolumeStatus {
    world.engine().expect("an engine runs").status().volumes[volume].clone()
}

fn cached_blocks(world: &World, volume: usize) -> u64 {
    status(world, volume).cached_bytes / BLOCK_BYTES
}

fn give_room(world: &mut World, volume: usize, room: Room) -> Result<(), Violation> {
    let ticket = world.submit(volume, RequestOp::SetRoom(room));
    world.succeed(ticket)
}

fn read(world: &mut World, volume: usize, first: u64, count: u64) -> Result<(), Violation> {
    let ticket = world.read(volume, blocks(first, count));
    world.succeed(ticket)?;
    // Fills gather for a while.
    world.pass(20 * MS)
}

/// The log goes round, with what another volume writes.
fn go_round(world: &mut World, laps: u64) -> Result<(), Violation> {
    let until = world.counts().wraps + laps;
    let mut step = 0;
    while world.counts().wraps < until {
        let ticket = world.write(OTHER, blocks(step * 16 % (3 * CACHE_BLOCKS), 16));
        world.succeed(ticket)?;
        world.pass(MS)?;
        step += 1;
    }
    Ok(())
}

/// What is left of a volume that read 400 blocks once when the log has gone round, given a minimum.
fn left_of(min_blocks: u64) -> Result<u64, Violation> {
    let mut world = world(1, 2);
    world.run_dry()?;
    give_room(&mut world, ONE, Room { min_bytes: min_blocks * BLOCK_BYTES, max_bytes: None })?;
    for step in 0..25 {
        read(&mut world, ONE, step * 16, 16)?;
    }
    assert!(cached_blocks(&world, ONE) >= 400, "there was room for all");
    go_round(&mut world, 4)?;
    world.verify()?;
    Ok(cached_blocks(&world, ONE))
}

#[test]
fn a_minimum_outlives_what_others_bring() -> Result<(), Violation> {
    let (without, with) = (left_of(0)?, left_of(300)?);
    assert!(without < 20, "{without} blocks of 400 are left that nobody read again");
    // A segment more may stay than has to.
    assert!((300..=300 + 64).contains(&with), "{with} blocks are left of 300 that are to stay");
    Ok(())
}

#[test]
fn minimums_never_take_more_than_half_and_the_ring_goes_on() -> Result<(), Violation> {
    let mut world = world(2, 2);
    world.run_dry()?;
    let all = Room { min_bytes: CACHE_BLOCKS * BLOCK_BYTES, max_bytes: None };
    give_room(&mut world, ONE, all)?;
    for step in 0..80 {
        read(&mut world, ONE, step * 16, 16)?;
    }
    // Every write is answered, or this does not end well.
    go_round(&mut world, 4)?;
    let kept = cached_blocks(&world, ONE);
    assert!(kept <= CACHE_BLOCKS * 6 / 10, "{kept} of {CACHE_BLOCKS} blocks");
    world.verify()
}

#[test]
fn a_maximum_bounds_what_is_read() -> Result<(), Violation> {
    let mut world = world(3, 2);
    world.run_dry()?;
    let max_blocks = 200;
    give_room(&mut world, ONE, Room { min_bytes: 0, max_bytes: Some(max_blocks * BLOCK_BYTES) })?;
    for step in 0..60 {
        read(&mut world, ONE, step * 16, 16)?;
    }
    let cached = cached_blocks(&world, ONE);
    assert!((max_blocks / 2..=max_blocks).contains(&cached), "{cached} of {max_blocks} blocks");
    let bypassed = status(&world, ONE).counters.read_bypasses.above_max_blocks;
    assert!(bypassed >= 60 * 16 - max_blocks, "{bypassed}");
    // What is written enters all the same; the other volume is not held to anything.
    for step in 0..20 {
        let ticket = world.write(ONE, blocks(2000 + step * 16, 16));
        world.succeed(ticket)?;
    }
    assert!(cached_blocks(&world, ONE) > max_blocks);
    for step in 0..30 {
        read(&mut world, OTHER, step * 16, 16)?;
    }
    assert!(cached_blocks(&world, OTHER) >= 400);
    // A volume above its maximum loses what it has, hit or not.
    for _ in 0..3 {
        for step in 0..10 {
            read(&mut world, ONE, step * 16, 16)?;
        }
    }
    go_round(&mut world, 3)?;
    let cached = cached_blocks(&world, ONE);
    assert!(cached <= max_blocks + 64, "{cached}");
    world.verify()
}

#[test]
fn slots_refuse_a_minimum_and_keep_a_maximum() -> Result<(), Violation> {
    let mut setup = Setup::new(4);
    setup.slots = Some(SlotSetup::new(512, Composition::plain_slots()));
    setup.volumes = vec![VolumeSetup { sectors: 8192, mode: WriteMode::Writeback }; 2];
    let mut world = World::new(setup);
    world.run_dry()?;
    let ticket = world.submit(ONE, RequestOp::SetRoom(Room { min_bytes: 4096, max_bytes: None }));
    assert_eq!(world.wait(ticket)?, Err(Errno::OPNOTSUPP));
    give_room(&mut world, ONE, Room { min_bytes: 0, max_bytes: Some(16 * BLOCK_BYTES) })?;
    for step in 0..20 {
        read(&mut world, ONE, step * 16, 16)?;
        read(&mut world, OTHER, step * 16, 16)?;
    }
    let (one, other) = (cached_blocks(&world, ONE), cached_blocks(&world, OTHER));
    assert!(one <= 16 + 16 && other > 2 * one, "{one} and {other} blocks");
    Ok(())
}

/// The counts are those of the index, after anything that changes it.
#[test]
fn the_counts_of_volumes_are_those_of_the_index() -> Result<(), Violation> {
    for seed in 0..12 {
        let mut world = world(seed, 3);
        let mut random = Random::new(seed).fork(0x0_c047);
        world.run_dry()?;
        for step in 0..300 {
            let volume = random.below(3) as usize;
            let range = blocks(random.below(3 * CACHE_BLOCKS), random.between(1, 24));
            match random.below(12) {
                0..4 => read(&mut world, volume, range.start / 8, range.sectors / 8)?,
                4..8 => {
                    let ticket = world.write(volume, range);
                    world.succeed(ticket)?;
                }
                8 => {
                    let ticket = world.discard(volume, range);
                    world.succeed(ticket)?;
                }
                9 => {
                    let ticket = world.write_zeroes(volume, range);
                    world.succeed(ticket)?;
                }
                10 => {
                    let least = random.below(CACHE_BLOCKS) * BLOCK_BYTES;
                    let most = random.one_in(2).then(|| random.below(CACHE_BLOCKS) * BLOCK_BYTES);
                    give_room(&mut world, volume, Room { min_bytes: least, max_bytes: most })?;
                }
                _ => world.pass(random.below(2000) * MS)?,
            }
            if step % 10 == 0 {
                let engine = world.engine().expect("an engine runs");
                for status in engine.status().volumes {
                    let counted = engine.cached_blocks(VolumeIndex(status.index.0)).len() as u64;
                    assert_eq!(status.cached_bytes / BLOCK_BYTES, counted, "volume {}", status.index.0);
                }
            }
        }
        world.verify()?;
    }
    Ok(())
}
