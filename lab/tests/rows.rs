//! Rows: a write that ends inside a block, behind one that is dirty, takes the blocks behind along.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp};
use engine::status::Counters;
use engine::units::SECTORS_PER_BLOCK;
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
    let mut composition = Composition::plain_log();
    composition.set("writes", "merge-or-bypass").expect("a choice of that axis");
    let mut world = World::new(Setup { composition: composition.text(), ..Setup::new(1) });
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

/// Goal: writes of parts of blocks that follow nothing read no more than their own. Method: a dirty block elsewhere.
#[test]
fn a_write_that_follows_nothing_takes_no_row() -> Result<(), Violation> {
    let mut world = begun()?;
    let ticket = world.write(0, sectors(17 * SECTORS_PER_BLOCK, 1));
    world.succeed(ticket)?;
    let volume = &world.engine().expect("an engine runs").status().volumes[0];
    assert_eq!(volume.dirty_bytes, 2 * 4096);
    world.verify()
}
