//! Goal: a start takes from a checkpoint of the index what the log says before it, start after start, and does without what is
//! damaged. Method: small rings with room behind them, and what a start reports.

use engine::format::{CHECKPOINT_RECORD_BYTES, CheckpointRecord, SEGMENTS_OFFSET};
use engine::units::{BLOCK_BYTES, VolumeIndex};
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{IoView, Setup, World, blocks};

/// The first sector behind the segments.
const BEHIND: u64 = SEGMENTS_OFFSET / 512 + 64 * 32 * 8;
/// Blocks there: each side has a record and 31 chunks of a block.
const ROOM_BLOCKS: u32 = 64;
/// The first sectors of both sides.
const SIDES: [u64; 2] = [BEHIND, BEHIND + ROOM_BLOCKS as u64 / 2 * 8];
/// Blocks that are written, one by one.
const BLOCKS: u64 = 900;
const MS: u64 = 1_000_000;

fn setup(checkpoint_blocks: u32) -> Setup {
    let mut setup = Setup { checkpoint_blocks, ..Setup::new(3) };
    if checkpoint_blocks > 0 {
        setup.config = |config| config.checkpoint_interval_blocks = 200;
    }
    setup
}

fn is_checkpoint(io: &IoView) -> bool {
    io.is_cache(Kind::Write) && io.first >= BEHIND
}

/// Writes some blocks of the volume, not in their order, and lets what follows come to an end.
fn write_blocks(world: &mut World, count: u64) -> Result<(), Violation> {
    for at in 0..count {
        let ticket = world.write(0, blocks(at * 617 % BLOCKS, 1));
        world.succeed(ticket)?;
    }
    let flushed = world.flush(0);
    world.succeed(flushed)?;
    world.pass(20 * MS)
}

/// Kills the process, and answers how many blocks the next start takes from a checkpoint.
fn loaded_by_next_start(world: &mut World) -> Result<u64, Violation> {
    world.kill(|_| false);
    world.open()?;
    Ok(world.reports().last().expect("a start").loaded_blocks)
}

/// Blocks that the cache has now.
fn cached(world: &World) -> u64 {
    let engine = world.engine().expect("the process runs");
    engine.cached_blocks(VolumeIndex(0)).len() as u64
}

fn record(world: &mut World, side: u64) -> CheckpointRecord {
    let mut bytes = vec![0; CHECKPOINT_RECORD_BYTES];
    for (sector, into) in world.cache().read(side, 8).iter().zip(bytes.chunks_mut(512)) {
        sector.expand(into);
    }
    CheckpointRecord::decode(&bytes).expect("a checkpoint was written there")
}

#[test]
fn each_start_goes_on_with_the_last_checkpoint() -> Result<(), Violation> {
    let mut world = World::new(setup(ROOM_BLOCKS));
    write_blocks(&mut world, 1200)?;
    world.hold(is_checkpoint);
    for start in 0..4 {
        let most = cached(&world) / 2;
        assert!(loaded_by_next_start(&mut world)? > most, "start {start}");
        write_blocks(&mut world, 5)?;
    }
    world.verify()
}

#[test]
fn a_start_does_without_a_checkpoint_that_is_damaged() -> Result<(), Violation> {
    let mut world = World::new(Setup { is_checked_on_open: false, ..setup(ROOM_BLOCKS) });
    write_blocks(&mut world, 1500)?;
    world.hold(is_checkpoint);
    let newest = SIDES.into_iter().max_by_key(|side| record(&mut world, *side).id.start_sequence);
    let newest = newest.expect("there are two sides");
    let other = SIDES.into_iter().find(|side| *side != newest).expect("there are two sides");
    assert!(world.rot_cache(newest + 8, 800), "a chunk of it rots");
    let some = cached(&world) / 4;
    assert!(loaded_by_next_start(&mut world)? > some, "the other one is loaded");
    assert!(world.rot_cache(other + 8, 800));
    assert_eq!(loaded_by_next_start(&mut world)?, 0, "the log is replayed as a whole");
    world.verify()
}

#[test]
fn checkpoints_wear_the_cache_little() -> Result<(), Violation> {
    let written_bytes = |checkpoint_blocks| -> Result<u64, Violation> {
        let mut world = World::new(setup(checkpoint_blocks));
        write_blocks(&mut world, 6000)?;
        Ok(world.engine().expect("an engine runs").status().cache.device.written_bytes)
    };
    let (with, without) = (written_bytes(ROOM_BLOCKS)?, written_bytes(0)?);
    assert!(with > without + 20 * BLOCK_BYTES, "there are some: {with} and {without} bytes");
    assert!(with <= without + without / 25, "4 % at the most: {with} and {without} bytes");
    Ok(())
}

/// What a checkpoint lacks, the log has.
#[cfg(feature = "mutations")]
#[test]
fn check_compares_a_checkpoint_with_the_log() -> Result<(), Violation> {
    use engine::effect::WriteMode;
    use engine::mutation::{Mutation, Mutations};
    let is_of_log =
        |io: &IoView| io.is_cache(Kind::Write) && io.first >= SEGMENTS_OFFSET / 512 && io.first < BEHIND;
    let mutations = Mutations::NONE.with(Mutation::CheckpointBeforeTombstones);
    let mut setup = Setup { mutations, ..setup(ROOM_BLOCKS) }.with_modes(&[WriteMode::Writeback; 2]);
    setup.config = |config| config.checkpoint_interval_blocks = 40;
    let mut world = World::new(setup);
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_blocks(&mut world, 60)?;
    world.hold(is_of_log);
    let _company = world.write(1, blocks(0, 60));
    let company = world.until_pending(is_of_log)?;
    let _unfinished = world.discard(0, blocks(0, 1));
    world.pass(MS)?;
    world.complete(company.id)?;
    world.pass(20 * MS)?;
    world.kill(|_| false);
    let found = world.open().expect_err("the checkpoint lacks a block that is dirty in the log");
    assert!(found.to_string().contains("CheckpointDiffers"), "{found}");
    Ok(())
}
