//! Goal: the cache device is written no more in a day than its budget, as far as the cache has the choice; what has to be
//! written is. Method: days in virtual time on a small cache, with a budget far below what it would write without one.

use engine::composition::Composition;
use engine::effect::{RequestOp, WearBudget, WriteMode};
use engine::status::{CacheStatus, VolumeStatus};
use engine::units::BLOCK_BYTES;
use forebay_lab::random::Random;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Setup, VolumeSetup, World, blocks};

const SECOND: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 24 * 3600;
const VOLUME_BLOCKS: u64 = 8192;
const MIB: u64 = 1 << 20;

fn world(mode: WriteMode) -> World {
    let mut setup = Setup::new(1);
    setup.volumes = vec![VolumeSetup { sectors: VOLUME_BLOCKS * 8, mode }];
    let mut composition = Composition::plain_log();
    let choices = [("writes", "merge-or-bypass"), ("laps_max", "3"), ("keep_percent", "50")];
    for (name, value) in choices {
        composition.set(name, value).expect("it is possible");
    }
    setup.composition = composition.text();
    World::new(setup)
}

fn cache(world: &World) -> CacheStatus {
    world.engine().expect("an engine runs").status().cache
}

fn volume(world: &World) -> VolumeStatus {
    world.engine().expect("an engine runs").status().volumes[0].clone()
}

fn give_budget(world: &mut World, day_bytes: u64) -> Result<(), Violation> {
    let budget = WearBudget { day_bytes, spent_bytes: 0 };
    let ticket = world.submit(0, RequestOp::SetWearBudget(Some(budget)));
    world.succeed(ticket)
}

/// A day of reads anywhere, and a write now and then; bytes written to the cache device.
fn day_of_reads(world: &mut World, random: &mut Random) -> Result<u64, Violation> {
    let before = cache(world).device.written_bytes;
    for step in 0..DAY_SECONDS / 60 {
        let range = blocks(random.below(VOLUME_BLOCKS - 16), 16);
        let ticket = if step % 60 == 0 { world.write(0, range) } else { world.read(0, range) };
        world.succeed(ticket)?;
        world.pass(60 * SECOND)?;
    }
    Ok(cache(world).device.written_bytes - before)
}

#[test]
fn a_day_of_reads_stays_within_the_budget_and_uses_it() -> Result<(), Violation> {
    let mut random = Random::new(5).fork(1);
    let mut free = world(WriteMode::Writeback);
    free.run_dry()?;
    let without = day_of_reads(&mut free, &mut random)?;
    let day_bytes = 16 * MIB;
    assert!(without > 2 * day_bytes, "without a budget it is {without} bytes");
    let mut bounded = world(WriteMode::Writeback);
    bounded.run_dry()?;
    give_budget(&mut bounded, day_bytes)?;
    for day in 0..3 {
        let written = day_of_reads(&mut bounded, &mut random)?;
        assert!((day_bytes / 2..=day_bytes).contains(&written), "{written} bytes in day {day}");
    }
    let wear = cache(&bounded).wear.expect("it has a budget");
    assert_eq!(wear.day_bytes, day_bytes);
    assert!(wear.left_bytes <= day_bytes / 8 && wear.spent_bytes > 0, "{wear:?}");
    assert!(volume(&bounded).counters.read_bypasses.budget_blocks > 0);
    bounded.verify()
}

#[test]
fn without_budget_writes_go_around_and_what_is_dirty_goes_on() -> Result<(), Violation> {
    let mut world = world(WriteMode::Writeback);
    world.run_dry()?;
    let ticket = world.write(0, blocks(0, 16));
    world.succeed(ticket)?;
    give_budget(&mut world, MIB)?;
    // The eighth of a mebibyte is soon spent.
    for step in 1..40 {
        let ticket = world.write(0, blocks(step * 16, 16));
        world.succeed(ticket)?;
    }
    let around = volume(&world).counters.write_bypasses.budget_blocks;
    assert!(around >= 30 * 16, "{around} blocks went around");
    let before = cache(&world).device.written_bytes;
    // A block that is dirty is written to the cache all the same: its older copy would go home over it.
    let dirty = volume(&world).dirty_bytes / BLOCK_BYTES;
    assert!(dirty > 0);
    let ticket = world.write(0, blocks(0, 16));
    world.succeed(ticket)?;
    assert!(cache(&world).device.written_bytes >= before + 16 * BLOCK_BYTES);
    let ticket = world.submit(0, RequestOp::Drain);
    world.succeed(ticket)?;
    assert_eq!(volume(&world).dirty_bytes, 0, "no budget keeps anything from going home");
    world.verify()?;
    // Time brings the budget back.
    world.pass(DAY_SECONDS * SECOND)?;
    let ticket = world.write(0, blocks(4000, 16));
    world.succeed(ticket)?;
    assert!(volume(&world).dirty_bytes > 0);
    Ok(())
}
