//! Goal: destage that is held back rests as long as nobody waits for it, and no longer. Method: one volume, its destage
//! held back, and each reason to let go for itself.

use engine::effect::{RequestOp, WriteMode};
use engine::status::VolumeStatus;
use engine::units::BLOCK_BYTES;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Setup, World, blocks};

const SECOND: u64 = 1_000_000_000;
/// Longer than a disk counts as awake after it was used.
const SLEEPS: u64 = 31 * SECOND;

fn status(world: &World) -> VolumeStatus {
    world.engine().expect("an engine runs").status().volumes[0].clone()
}

fn write(world: &mut World, first: u64, count: u64) -> Result<(), Violation> {
    let ticket = world.write(0, blocks(first, count));
    world.succeed(ticket)
}

fn ask(world: &mut World, op: RequestOp) -> Result<(), Violation> {
    let ticket = world.submit(0, op);
    world.succeed(ticket)
}

/// A volume whose destage is held back, whose disk sleeps, and that has a dirty block.
fn held_back() -> Result<World, Violation> {
    let mut world = World::new(Setup::new(1).with_modes(&[WriteMode::Writeback]));
    world.run_dry()?;
    ask(&mut world, RequestOp::HoldDestage(true))?;
    world.pass(SLEEPS)?;
    write(&mut world, 10, 1)?;
    Ok(world)
}

fn hours_pass(world: &mut World) -> Result<(), Violation> {
    world.pass(3600 * SECOND)
}

#[test]
fn what_nobody_waits_for_rests_for_hours_and_costs_no_time() -> Result<(), Violation> {
    let mut world = held_back()?;
    hours_pass(&mut world)?;
    let status = status(&world);
    assert_eq!((status.dirty_bytes, status.is_held_back), (BLOCK_BYTES, true));
    assert_eq!(status.counters.destaged_blocks, 0);
    let engine = world.engine().expect("an engine runs");
    assert_eq!(engine.deadline(), None, "the clock does not come back for it");
    Ok(())
}

#[test]
fn what_is_held_back_goes_home_when_it_may() -> Result<(), Violation> {
    let mut world = held_back()?;
    hours_pass(&mut world)?;
    ask(&mut world, RequestOp::HoldDestage(false))?;
    world.pass(5 * SECOND)?;
    assert_eq!(status(&world).dirty_bytes, 0);
    Ok(())
}

#[test]
fn what_is_held_back_goes_home_when_it_has_to() -> Result<(), Violation> {
    // An operator's flush.
    let mut world = held_back()?;
    ask(&mut world, RequestOp::Drain)?;
    assert_eq!(status(&world).dirty_bytes, 0);
    // A volume that leaves writeback.
    let mut world = held_back()?;
    ask(&mut world, RequestOp::SetMode(WriteMode::Writethrough))?;
    world.pass(5 * SECOND)?;
    assert_eq!(status(&world).dirty_bytes, 0);
    // Half of the cache is dirty.
    let mut world = held_back()?;
    for step in 0..60 {
        write(&mut world, step * 16, 16)?;
    }
    world.pass(5 * SECOND)?;
    assert_eq!(status(&world).dirty_bytes, 0, "the disk is awake: everything goes");
    Ok(())
}

/// The memory of a mirror is small beside its log: it is full long before half of the cache is dirty.
#[test]
fn what_is_held_back_goes_home_when_writes_wait_for_memory() -> Result<(), Violation> {
    for safe in [true, false] {
        let setup = Setup::new(1).with_modes(&[WriteMode::Writeback]).with_mirror(64, safe);
        let mut world = World::new(setup);
        world.run_dry()?;
        ask(&mut world, RequestOp::HoldDestage(true))?;
        world.pass(SLEEPS)?;
        for step in 0..20 {
            write(&mut world, step * 16, 16)?;
        }
        assert!(status(&world).counters.destaged_blocks > 0);
    }
    Ok(())
}

#[test]
fn what_is_held_back_goes_home_when_a_client_woke_the_disk() -> Result<(), Violation> {
    let mut world = held_back()?;
    hours_pass(&mut world)?;
    let ticket = world.read(0, blocks(900, 1));
    world.succeed(ticket)?;
    world.pass(5 * SECOND)?;
    assert_eq!(status(&world).dirty_bytes, 0);
    // It sleeps again.
    world.pass(SLEEPS)?;
    write(&mut world, 10, 1)?;
    hours_pass(&mut world)?;
    assert_eq!(status(&world).dirty_bytes, BLOCK_BYTES);
    Ok(())
}

#[test]
fn a_stop_and_a_detach_do_not_wait_for_an_hour() -> Result<(), Violation> {
    let mut world = held_back()?;
    world.stop()?;
    world.open()?;
    world.verify_cut()?;
    assert_eq!(status(&world).dirty_bytes, BLOCK_BYTES, "a stop destages nothing");
    ask(&mut world, RequestOp::HoldDestage(true))?;
    ask(&mut world, RequestOp::Drain)?;
    ask(&mut world, RequestOp::Detach)
}
