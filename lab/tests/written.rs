//! What a log writes to the cache device is counted by reason.

use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::status::{Counters, WrittenBytes};
use engine::units::{BLOCK_BYTES, Nanos};
use forebay_lab::violation::Violation;
use forebay_lab::world::{Setup, VolumeSetup, World, blocks};

/// A cache of 32 MiB before a volume of 64 MiB.
fn world() -> Result<World, Violation> {
    let mut setup = Setup { composition: Composition::plain_log().text(), segments: 256, ..Setup::new(1) };
    setup.volumes = vec![VolumeSetup { sectors: 16 * 1024 * 8, mode: WriteMode::Writeback }];
    let mut world = World::new(setup);
    world.run_dry()?;
    Ok(world)
}

fn figures(world: &World) -> (WrittenBytes, Counters) {
    let status = world.engine().expect("an engine runs").status();
    let WrittenBytes { user_bytes, fill_bytes, relocation_bytes, header_bytes } = status.cache.written;
    let sum_bytes = user_bytes + fill_bytes + relocation_bytes + header_bytes;
    assert_eq!(sum_bytes, status.cache.device.written_bytes, "every byte has a reason");
    (status.cache.written, status.volumes[0].counters)
}

#[test]
fn writes_fills_and_relocations_are_told_apart() -> Result<(), Violation> {
    let mut world = world()?;
    let ticket = world.write(0, blocks(0, 8));
    world.succeed(ticket)?;
    let (written, _) = figures(&world);
    assert_eq!((written.user_bytes, written.fill_bytes), (8 * BLOCK_BYTES, 0));
    assert!(written.header_bytes >= BLOCK_BYTES, "a batch has a header");

    let ticket = world.read(0, blocks(100, 8));
    world.succeed(ticket)?;
    world.pass(Nanos::SECOND)?;
    let (written, counters) = figures(&world);
    assert_eq!(counters.fill_blocks, 8);
    assert_eq!((written.user_bytes, written.fill_bytes), (8 * BLOCK_BYTES, 8 * BLOCK_BYTES));

    // What is hit is appended again when the ring comes round.
    for lap in 0..4 {
        let ticket = world.read(0, blocks(100, 8));
        world.succeed(ticket)?;
        for first in (0..8192).step_by(64) {
            let ticket = world.write(0, blocks(4096 + (lap * 8192 + first) % 12_000, 64));
            world.succeed(ticket)?;
        }
        world.pass(Nanos::SECOND)?;
    }
    let (written, counters) = figures(&world);
    assert!(counters.relocated_blocks >= 8, "{counters:?}");
    assert_eq!(written.relocation_bytes, counters.relocated_blocks * BLOCK_BYTES);
    assert_eq!(written.user_bytes, counters.written_bytes);
    world.verify()
}
