//! Rows: a write that ends inside a block, behind one that is dirty, takes the blocks behind along.

use engine::effect::{Errno, RequestOp, WearBudget};
use engine::status::Counters;
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, SectorRange};
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Setup, World, blocks, sectors};

/// Blocks that one write reads.
const ROW_BLOCKS: u64 = 32;

fn counters(world: &World) -> Counters {
    world.engine().expect("an engine runs").status().volumes[0].counters
}

/// A world with a dirty block, and a client that flushes.
fn begun() -> Result<World, Violation> {
    let mut world = World::new(Setup::new(1).without_waits());
    world.run_dry()?;
    let ticket = world.write(0, blocks(15, 1));
    world.succeed(ticket)?;
    assert_eq!(world.ask(0, RequestOp::Flush)?, Ok(()));
    Ok(world)
}

/// Goal: who writes sectors in a row and flushes, as a journal does, reads the origin once for many blocks. Method: all sectors of
/// two rows, one write and one flush after the other; misses are counted, and the content compared.
#[test]
fn a_journal_of_sectors_reads_its_origin_seldom() -> Result<(), Violation> {
    let mut world = begun()?;
    for sector in 16 * SECTORS_PER_BLOCK..(16 + 2 * ROW_BLOCKS) * SECTORS_PER_BLOCK {
        let ticket = world.write(0, sectors(sector, 1));
        world.succeed(ticket)?;
        assert_eq!(world.ask(0, RequestOp::Flush)?, Ok(()));
    }
    let Counters { miss_blocks, write_bypasses, .. } = counters(&world);
    assert!(miss_blocks <= 2, "{miss_blocks} blocks were asked of the origin");
    assert_eq!(write_bypasses.unaligned_blocks, 0);
    world.verify()
}

/// Goal: nobody pays for what he did not write. Method: the origin fails the read of a row, and the write goes on without it.
#[test]
fn a_row_that_cannot_be_read_fails_no_write() -> Result<(), Violation> {
    let mut world = begun()?;
    let before = world.engine().expect("an engine runs").status().volumes[0].dirty_bytes;
    world.origin(0).faults.fail_next(Kind::Read, Errno::IO);
    let ticket = world.write(0, sectors(16 * SECTORS_PER_BLOCK, 1));
    world.succeed(ticket)?;
    let volume = &world.engine().expect("an engine runs").status().volumes[0];
    assert_eq!((volume.origin_errors, volume.dirty_bytes - before), (0, 4096));
    world.verify()
}

/// How many blocks are dirty behind a write.
fn dirty_blocks_behind(world: &mut World, range: SectorRange) -> Result<u64, Violation> {
    let ticket = world.write(0, range);
    world.succeed(ticket)?;
    world.verify()?;
    Ok(world.engine().expect("an engine runs").status().volumes[0].dirty_bytes / BLOCK_BYTES)
}

/// Goal: writes of parts of blocks that follow nothing read no more than their own. Method: a dirty block elsewhere.
#[test]
fn a_write_that_follows_nothing_takes_no_row() -> Result<(), Violation> {
    assert_eq!(dirty_blocks_behind(&mut begun()?, sectors(17 * SECTORS_PER_BLOCK, 1))?, 2);
    Ok(())
}

/// Goal: a row is taken along only where many writes will need it. Method: a write of an eighth of a row, and one that is longer.
#[test]
fn a_long_write_takes_no_row() -> Result<(), Violation> {
    let first = 16 * SECTORS_PER_BLOCK;
    let short = ROW_BLOCKS * SECTORS_PER_BLOCK / 8 - 1;
    assert_eq!(dirty_blocks_behind(&mut begun()?, sectors(first, short))?, 1 + 3 + ROW_BLOCKS);
    assert_eq!(dirty_blocks_behind(&mut begun()?, sectors(first, short + 2))?, 1 + 5);
    Ok(())
}

/// Goal: where the SSD is short of wear nothing is written to it that nobody wrote. Method: a budget of one byte a day.
#[test]
fn a_short_budget_takes_no_row() -> Result<(), Violation> {
    let mut world = begun()?;
    let budget = WearBudget { day_bytes: 1, spent_bytes: 0 };
    assert_eq!(world.ask(0, RequestOp::SetWearBudget(Some(budget)))?, Ok(()));
    let dirty = dirty_blocks_behind(&mut world, sectors(16 * SECTORS_PER_BLOCK, 1))?;
    assert!(dirty <= 2, "{dirty} blocks are dirty");
    Ok(())
}
