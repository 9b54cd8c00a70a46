//! Writes whose header and checksums follow.

use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK};
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{IoView, Setup, World, blocks};

/// Blocks of a long write.
const LONG: u64 = 32;
/// Blocks in front of the next header at the most.
const LATE_BLOCKS: u64 = 192;

fn world(catches_up: bool) -> Result<World, Violation> {
    let mut world = World::new(Setup {
        has_lasting_memory: true,
        catches_up,
        segments: 64,
        segment_blocks: 1024,
        ..Setup::new(1)
    });
    world.run_dry()?;
    Ok(world)
}

fn is_batch(io: &IoView) -> bool {
    io.is_cache(Kind::Write)
}

/// The content of a write that is alone goes first; what else it needs is done while the device works, or at its answer.
#[test]
fn a_write_that_is_alone_is_on_its_way_before_its_checksums_are_taken() -> Result<(), Violation> {
    for (catches_up, while_it_works) in [(true, LONG), (false, 0)] {
        let mut world = world(catches_up)?;
        let first = world.write(0, blocks(0, 1));
        world.succeed(first)?;
        let before = world.pool().checksums_taken();
        world.hold(is_batch);
        let ticket = world.write(0, blocks(100, LONG));
        let part = world.until_pending(is_batch)?;
        assert_eq!(part.sectors, LONG * SECTORS_PER_BLOCK, "its header is not in front of it");
        assert_eq!(world.pool().checksums_taken() - before, while_it_works, "catches up: {catches_up}");
        world.complete(part.id)?;
        world.succeed(ticket)?;
        assert_eq!(world.pool().checksums_taken() - before, LONG, "each block has one checksum, taken once");
        world.release();
        world.kill(|_| true);
        world.open()?;
        world.verify()?;
    }
    Ok(())
}

/// What comes beside such a write may go before that has its checksums, but not past them.
#[test]
fn checksums_of_writes_that_overtake_each_other_are_those_of_their_blocks() -> Result<(), Violation> {
    for catches_up in [true, false] {
        let mut world = world(catches_up)?;
        world.hold(is_batch);
        let tickets =
            [(100, LONG), (300, 1), (400, 7)].map(|(first, count)| world.write(0, blocks(first, count)));
        world.pass(engine::units::Nanos::MILLISECOND)?;
        for part in world.pending(is_batch).into_iter().rev() {
            world.complete(part.id)?;
        }
        world.release();
        for ticket in tickets {
            world.succeed(ticket)?;
        }
        world.kill(|_| true);
        world.open()?;
        world.verify()?;
    }
    Ok(())
}

/// Long writes in a row share a header.
#[test]
fn long_writes_that_wait_for_each_other_share_a_header() -> Result<(), Violation> {
    let mut world = world(true)?;
    let written = |world: &World| {
        let status = world.engine().expect("an engine runs").status();
        status.cache.written.header_bytes / BLOCK_BYTES
    };
    let before = written(&world);
    let writes = 4 * LATE_BLOCKS / LONG;
    for at in 0..writes {
        let ticket = world.write(0, blocks(at * LONG, LONG));
        world.succeed(ticket)?;
    }
    let headers = written(&world) - before;
    assert!(headers <= 4 + 1, "{writes} writes have {headers} blocks of headers");
    Ok(())
}
