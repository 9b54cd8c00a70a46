//! Goal: a scrub finds every rotten block and names it, leaves all others as they are, and says how many there were.
//! Method: scripts in small worlds with our own log; what is lost and dropped is compared with what was made to rot.

use engine::effect::{Errno, WriteMode};
use engine::engine::{Bad, Scrubbed};
use engine::status::ScrubCounts;
use engine::units::VolumeIndex;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Setup, World, blocks};

const MS: u64 = 1_000_000;

fn world() -> World {
    let mut setup = Setup::new(1).with_modes(&[WriteMode::Writeback]);
    setup.is_checked_on_open = false;
    World::new(setup)
}

fn scrub(world: &mut World, first: u64, count: u64) -> Result<Vec<Scrubbed>, Violation> {
    let ticket = world.scrub(0, blocks(first, count));
    world.succeed(ticket)?;
    Ok(world.take_scrubbed())
}

fn counts(world: &World) -> ScrubCounts {
    world.engine().expect("it runs").status().volumes[0].counters.scrub
}

fn write(world: &mut World, first: u64, count: u64) -> Result<(), Violation> {
    let ticket = world.write_fua(0, blocks(first, count));
    world.succeed(ticket)
}

fn rot(world: &mut World, block: u64) {
    let copies = world.copies_of(0, block * 8);
    assert!(!copies.is_empty(), "block {block} is in the cache");
    for sector in copies {
        assert!(world.rot_cache(sector, 77), "the copy is durable");
    }
}

/// Blocks 10 to 17 are cached and clean, 40 to 47 are dirty.
fn with_content() -> Result<World, Violation> {
    let mut world = world();
    world.run_dry()?;
    let ticket = world.read(0, blocks(10, 8));
    world.succeed(ticket)?;
    world.pass(20 * MS)?;
    write(&mut world, 40, 8)?;
    Ok(world)
}

fn bad(block: u64, bad: Bad) -> Scrubbed {
    Scrubbed { volume: VolumeIndex(0), block, bad }
}

/// The blocks that are cached.
fn cached(world: &World) -> Vec<u64> {
    world.engine().expect("it runs").cached_blocks(VolumeIndex(0))
}

#[test]
fn what_rotted_is_named_and_the_rest_stays() -> Result<(), Violation> {
    let mut world = with_content()?;
    let before = cached(&world);
    assert!([10, 17, 40, 47].iter().all(|block| before.contains(block)), "{before:?}");
    assert_eq!(scrub(&mut world, 0, 64)?, []);
    let good_blocks = before.len() as u64;
    assert_eq!(counts(&world), ScrubCounts { good_blocks, ..ScrubCounts::default() });
    rot(&mut world, 12);
    rot(&mut world, 41);
    let mut found = scrub(&mut world, 0, 64)?;
    found.sort_by_key(|found| found.block);
    assert_eq!(found, [bad(12, Bad::Dropped(None)), bad(41, Bad::Lost)]);
    let good_blocks = 2 * good_blocks - 2;
    let expected = ScrubCounts { good_blocks, dropped_blocks: 1, lost_blocks: 1, ..ScrubCounts::default() };
    assert_eq!(counts(&world), expected);
    world.pass(20 * MS)?;
    let lost = |world: &World| world.engine().expect("it runs").lost_blocks(VolumeIndex(0));
    assert_eq!(lost(&world), [(41, 1)]);
    let left: Vec<u64> = before.into_iter().filter(|block| ![12, 41].contains(block)).collect();
    assert_eq!(cached(&world), left);
    assert_eq!(scrub(&mut world, 0, 64)?, [], "nothing is found twice");
    let ticket = world.read(0, blocks(10, 8));
    world.succeed(ticket)?;
    let ticket = world.read(0, blocks(41, 1));
    assert_eq!(world.wait(ticket)?, Err(Errno::IO));
    world.kill(|_| true);
    world.open()?;
    assert_eq!(lost(&world), [(41, 1)], "it stays lost");
    let ticket = world.read(0, blocks(40, 1));
    world.succeed(ticket)
}

#[test]
fn a_block_that_cannot_be_read_leaves_only_if_it_is_clean() -> Result<(), Violation> {
    let mut world = with_content()?;
    for (block, what) in [(12, Bad::Dropped(Some(Errno::IO))), (41, Bad::Unreadable(Errno::IO))] {
        for _ in 0..2 {
            world.cache().faults.fail_next(Kind::Read, Errno::IO);
        }
        assert_eq!(scrub(&mut world, block, 1)?, [bad(block, what)]);
    }
    let expected = ScrubCounts { dropped_blocks: 1, unreadable_blocks: 1, ..ScrubCounts::default() };
    assert_eq!(counts(&world), expected);
    for block in [12, 41] {
        let ticket = world.read(0, blocks(block, 1));
        world.succeed(ticket)?;
    }
    // A bad moment is none: of a run that failed as a whole each block is read once more.
    world.cache().faults.fail_next(Kind::Read, Errno::IO);
    assert_eq!(scrub(&mut world, 40, 8)?, []);
    assert_eq!(counts(&world), ScrubCounts { good_blocks: 8, ..expected });
    Ok(())
}

#[test]
fn a_cache_that_is_gone_has_no_bad_blocks() -> Result<(), Violation> {
    let mut world = with_content()?;
    world.cache().faults.gone = Some(Errno::NODEV);
    let ticket = world.scrub(0, blocks(0, 64));
    assert_eq!(world.wait(ticket)?, Err(Errno::NODEV));
    let ticket = world.scrub(0, blocks(0, 64));
    assert_eq!(world.wait(ticket)?, Err(Errno::OPNOTSUPP));
    assert_eq!((world.take_scrubbed(), counts(&world)), (Vec::new(), ScrubCounts::default()));
    Ok(())
}
