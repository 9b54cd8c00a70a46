//! Goal: what a start with little memory left out of its index never comes back as older content, whatever happened meanwhile.
//! Method: a cache full of scattered blocks, a start with a part of the memory, and another one with all of it.

use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::units::VolumeIndex;
use forebay_lab::disk::Fate;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Setup, VolumeSetup, World, blocks, sectors};

const SECOND: u64 = 1_000_000_000;
const LITTLE_BYTES: u64 = 1 << 20;
/// Sectors of the small volume: its last block has five that it does not reach.
const SMALL_SECTORS: u64 = 83;
const SEGMENTS: u32 = 128;
const SEGMENT_BLOCKS: u32 = 1024;
/// Blocks behind the segments, for checkpoints.
const BEHIND_BLOCKS: u32 = 4096;

/// A cache with 102 400 blocks of the first volume, no two side by side, and after these the end of a small one.
fn filled(checkpoint_blocks: u32) -> Result<World, Violation> {
    let volume = |sectors| VolumeSetup { sectors, mode: WriteMode::Writearound };
    let mut setup = Setup {
        composition: Composition::plain_log().text(),
        segments: SEGMENTS,
        segment_blocks: SEGMENT_BLOCKS,
        checkpoint_blocks,
        volumes: vec![volume(250_000 * 8), volume(SMALL_SECTORS)],
        ..Setup::new(1)
    };
    setup.config = |config| (config.index_slack_blocks, config.checkpoint_interval_blocks) = (64, 1000);
    let mut world = World::new(setup);
    world.run_dry()?;
    for round in 0..1600 {
        for step in 0..64 {
            let _whenever = world.read(0, blocks((round * 64 + step) * 2, 1));
        }
        world.finish()?;
    }
    let end = world.read(1, sectors(80, 3));
    world.succeed(end)?;
    world.pass(SECOND)?;
    flush(&mut world)?;
    Ok(world)
}

fn flush(world: &mut World) -> Result<(), Violation> {
    let ticket = world.flush(0);
    world.succeed(ticket)
}

/// Starts with so much memory for the index, after a power cut; returns what there was before.
fn start_with(world: &mut World, index_bytes: u64) -> Result<u64, Violation> {
    let before = world.set_index_budget(index_bytes);
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    world.run_dry()?;
    Ok(before)
}

fn cached(world: &World, volume: u8) -> Vec<u64> {
    world.engine().expect("the process runs").cached_blocks(VolumeIndex(volume))
}

#[test]
fn the_end_of_a_volume_that_grew_is_not_hidden() -> Result<(), Violation> {
    let mut world = filled(0)?;
    assert_eq!(cached(&world, 1), [10], "its last block is cached");
    let ample_bytes = start_with(&mut world, LITTLE_BYTES)?;
    assert!(cached(&world, 1).is_empty(), "it is left out");
    let growth = world.grow(1, 80);
    world.succeed(growth)?;
    start_with(&mut world, ample_bytes)?;
    let read = world.read(1, sectors(SMALL_SECTORS, 5));
    world.succeed(read)
}

#[test]
fn a_checkpoint_hides_nothing_that_was_left_out() -> Result<(), Violation> {
    let mut world = filled(BEHIND_BLOCKS)?;
    let before = cached(&world, 0);
    let ample_bytes = start_with(&mut world, LITTLE_BYTES)?;
    assert!(cached(&world, 0).len() + 10_000 < before.len(), "many are left out");
    // The log goes on, as far as it takes for a checkpoint.
    for at in 0..20_000 {
        let read = world.read(0, blocks(210_000 + at * 2, 1));
        world.succeed(read)?;
    }
    world.pass(SECOND)?;
    flush(&mut world)?;
    start_with(&mut world, ample_bytes)?;
    for block in before.iter().step_by(100) {
        let write = world.write_fua(0, blocks(*block, 1));
        world.succeed(write)?;
    }
    // All of the log counts when no checkpoint does.
    let behind = engine::format::SEGMENTS_OFFSET / 512 + u64::from(SEGMENTS * SEGMENT_BLOCKS) * 8;
    for side in [behind, behind + u64::from(BEHIND_BLOCKS) / 2 * 8] {
        world.cache().rot(side, 300);
    }
    start_with(&mut world, ample_bytes)?;
    assert_eq!(world.reports().last().expect("a start").loaded_blocks, 0);
    // One by one: what is cached in part is read from the origin.
    for block in before.iter().step_by(100) {
        let read = world.read(0, blocks(*block, 1));
        world.succeed(read)?;
    }
    Ok(())
}
