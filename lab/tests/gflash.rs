//! The known behaviour of gflash.
//!
//! Source: gflash 14 in geomflash-2015, observed from outside.

use engine::effect::{RequestOp, WriteMode};
use engine::status::{Counters, Status};
use engine::units::Nanos;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Latency, Setup, VolumeSetup, World, blocks};

/// What a script returns.
type Run = Result<(), Violation>;

const MIB: u64 = 1 << 20;
/// Room for dirty blocks in memory.
const MEMORY_BLOCKS: u64 = 1024;

/// A volume of 128 MiB over a cache of 64 MiB, on devices that are quick.
fn world(safe: bool) -> World {
    let mut setup = Setup::new(1).with_mirror(MEMORY_BLOCKS, safe);
    setup.segment_blocks = 256;
    setup.volumes = vec![VolumeSetup { sectors: 128 * MIB / 512, mode: WriteMode::Writeback }];
    setup.cache_latency = Latency { least_ns: 50_000, most_ns: 80_000 };
    setup.origin_latency = Latency { least_ns: 100_000, most_ns: 200_000 };
    let mut world = World::new(setup);
    world.run_dry().expect("nothing is asked yet");
    world
}

fn status(world: &World) -> Status {
    world.engine().expect("an engine runs").status()
}

fn counters(world: &World) -> Counters {
    status(world).volumes[0].counters
}

/// Bytes that the SSD has read and written.
fn ssd(world: &World) -> (u64, u64) {
    let device = status(world).cache.device;
    (device.read_bytes, device.written_bytes)
}

/// Writes whole blocks, `depth` requests at a time, until all are answered and the last group has left.
fn write_all(world: &mut World, starts: impl Iterator<Item = u64>, count: u64, depth: usize) -> Run {
    let others = world.outstanding();
    for start in starts {
        while world.outstanding() >= others + depth {
            world.step()?;
        }
        world.write(0, blocks(start, count));
    }
    while world.outstanding() > others {
        world.step()?;
    }
    world.pass(30 * Nanos::MILLISECOND)
}

/// Scattered blocks, each once: steps of a prime through all.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |step| step * 40_503 % 32_768)
}

/// geomflash-2015, jobs 1 to 3: the second pass over new data is as slow as the first, the third reads the SSD alone.
#[test]
fn what_is_read_for_the_second_time_enters() {
    let mut world = world(true);
    let mut pass = || {
        let before = (counters(&world), ssd(&world));
        for step in 0..64 {
            let read = world.read(0, blocks(step * 32, 32));
            world.succeed(read).expect("read");
        }
        world.pass(100 * Nanos::MILLISECOND).expect("the last group leaves");
        let now = counters(&world);
        let blocks = now.fill_blocks - before.0.fill_blocks;
        let origin = now.origin.read_bytes - before.0.origin.read_bytes;
        (blocks, origin / 4096, (ssd(&world).0 - before.1.0) / 4096)
    };
    assert_eq!([pass(), pass(), pass()], [(0, 2048, 0), (2048, 2048, 0), (0, 0, 2048)]);
}

/// One block of metadata for four writes: 25 % for 4 KiB whatever the depth, 0.8 % for 128 KiB; besides, what a segment has for
/// itself.
#[test]
fn four_writes_share_a_block_of_metadata() {
    for (count, depth, least, most) in [(1, 1, 250, 290), (1, 32, 250, 290), (32, 1, 8, 32), (32, 4, 8, 32)] {
        let mut world = world(false);
        // What comes home is recorded, too; not now.
        world.hold(|io| io.is_origin(0, Kind::Write));
        let before = ssd(&world).1;
        let writes = 512 / count;
        write_all(&mut world, (0..writes).map(|step| step * 64), count, depth).expect("written");
        let data = writes * count * 4096;
        let written = ssd(&world).1 - before;
        println!("{count} blocks at depth {depth}: {written} bytes for {data}");
        let permille = (written.saturating_sub(data)) * 1000 / data;
        assert!((least..=most).contains(&permille), "{count} blocks at depth {depth}: {permille} permille");
    }
}

/// Four writes are answered before the SSD has anything of them; with `safe` none is.
#[test]
fn four_writes_are_answered_early() {
    for (safe, answered) in [(false, 4), (true, 0)] {
        let mut world = world(safe);
        world.hold(|io| io.is_cache(Kind::Write));
        let tickets: Vec<_> = scattered(12).map(|block| world.write(0, blocks(block, 1))).collect();
        world.pass(100 * Nanos::MILLISECOND).expect("time passes");
        let early = tickets.iter().filter(|ticket| world.answer(**ticket).is_some()).count();
        assert_eq!(early, answered, "safe: {safe}");
        world.release();
        world.finish().expect("all are answered in the end");
    }
}

/// What goes home is taken from memory; after a crash from the SSD.
#[test]
fn what_goes_home_is_not_read_from_the_ssd() {
    let mut world = world(true);
    write_all(&mut world, scattered(256), 1, 8).expect("written");
    let drain = world.submit(0, RequestOp::Drain);
    world.succeed(drain).expect("drained");
    assert_eq!((ssd(&world).0, counters(&world).destaged_blocks), (0, 256));

    world.hold(|io| io.is_origin(0, Kind::Write));
    write_all(&mut world, scattered(64), 1, 8).expect("written");
    world.kill(|_| false);
    world.open().expect("recovered");
    let drain = world.submit(0, RequestOp::Drain);
    world.succeed(drain).expect("drained");
    assert_eq!(ssd(&world).0, 64 * 4096);
    assert_eq!(counters(&world).destaged_blocks, 64);
}

/// geomflash-2015, jobs 6 and 16: nothing goes home while a client writes and memory has room; then all of it does.
#[test]
fn nothing_goes_home_while_a_client_writes() {
    let mut world = world(true);
    for block in scattered(100) {
        let write = world.write(0, blocks(block, 1));
        world.succeed(write).expect("written");
        world.pass(20 * Nanos::MILLISECOND).expect("time passes");
    }
    assert_eq!(counters(&world).destaged_blocks, 0);
    world.pass(2 * Nanos::SECOND).expect("time passes");
    assert_eq!(counters(&world).destaged_blocks, 100);
}

/// A reader of the origin is not disturbed, as long as there is room in memory.
#[test]
fn nothing_goes_home_while_a_client_reads_the_origin() {
    let mut world = world(true);
    world.hold(|io| io.is_origin(0, Kind::Read));
    let read = world.read(0, blocks(20_000, 1));
    write_all(&mut world, scattered(MEMORY_BLOCKS / 2), 1, 8).expect("written");
    world.pass(Nanos::SECOND).expect("time passes");
    assert_eq!(counters(&world).destaged_blocks, 0);
    // Memory is full: whoever reads, it has to go home.
    write_all(&mut world, scattered(2 * MEMORY_BLOCKS), 1, 8).expect("written");
    let forced = counters(&world).destaged_blocks;
    assert!(forced >= MEMORY_BLOCKS / 2, "{forced}");
    world.release();
    world.succeed(read).expect("read");
    world.pass(5 * Nanos::SECOND).expect("time passes");
    assert_eq!(status(&world).volumes[0].dirty_bytes, 0);
}

/// Dirty data is read from memory.
#[test]
fn what_is_dirty_is_read_from_memory() {
    let mut world = world(true);
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_all(&mut world, scattered(64), 1, 8).expect("written");
    for block in scattered(64) {
        let read = world.read(0, blocks(block, 1));
        world.succeed(read).expect("read");
    }
    assert_eq!((ssd(&world).0, counters(&world).origin.read_bytes), (0, 0));
    assert_eq!(counters(&world).hits, 64);
}
