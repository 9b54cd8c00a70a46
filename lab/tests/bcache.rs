//! The known behaviour of bcache, in the profiles that are named after it.

use engine::effect::{RequestOp, WriteMode};
use engine::format::{Geometry, KeyLayout};
use engine::status::{Counters, Status};
use engine::units::Nanos;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{Latency, Setup, VolumeSetup, World, blocks};

/// What a script returns.
type Run = Result<(), Violation>;

/// The choices of today's bcache, besides those that make its buckets.
const TODAY: &[(&str, &str)] = &[("cutoff", "runs-and-congestion"), ("destage", "pi")];
/// 64 MiB of data in buckets of 512 KiB.
const LAYOUT: KeyLayout =
    KeyLayout { geometry: Geometry { segments: 64, segment_blocks: 64 }, bucket_blocks: 128, buckets: 128 };
const MIB: u64 = 1 << 20;

/// A volume of 256 MiB in writeback mode over a cache that does as published, on devices that are quick.
fn setup(besides: &[(&str, &str)], safe: bool) -> Setup {
    let mut setup = Setup::new(1).with_buckets(LAYOUT, &[TODAY, besides].concat(), safe);
    setup.volumes = vec![VolumeSetup { sectors: 256 * MIB / 512, mode: WriteMode::Writeback }];
    setup.cache_latency = Latency { least_ns: 50_000, most_ns: 80_000 };
    setup.origin_latency = Latency { least_ns: 100_000, most_ns: 200_000 };
    setup
}

fn status(world: &World) -> Status {
    world.engine().expect("an engine runs").status()
}

fn counters(world: &World) -> Counters {
    status(world).volumes[0].counters
}

/// Writes whole blocks, `depth` requests at a time.
fn write_all(world: &mut World, starts: impl Iterator<Item = u64>, count: u64, depth: usize) -> Run {
    for start in starts {
        while world.outstanding() >= depth {
            world.step()?;
        }
        world.write(0, blocks(start, count));
    }
    world.finish()
}

/// Scattered blocks, each once: steps of a prime through all.
fn scattered(count: u64, volume_blocks: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |step| step * 40_503 % volume_blocks)
}

/// geomflash-2015: about 2 % more than the data for random writes of 4 KiB.
#[test]
fn metadata_of_scattered_writes_is_about_two_percent() {
    let mut world = World::new(setup(&[], false));
    world.run_dry().unwrap();
    let before = status(&world).cache.device.written_bytes;
    write_all(&mut world, scattered(8192, 65_536), 1, 32).unwrap();
    let written = status(&world).cache.device.written_bytes - before;
    let data = 8192 * 4096;
    let permille = (written - data) * 1000 / data;
    assert!((15..=25).contains(&permille), "{permille} permille");
}

/// Where no client flushes the engine does, so that a crash leaves little to verify.
#[test]
fn keys_are_flushed_in_time_without_clients_flushes() {
    let mut setup = setup(&[], true);
    setup.config = |config| (config.unflushed_blocks_max, config.idle_ns) = (64, u64::MAX);
    let mut world = World::new(setup);
    write_all(&mut world, scattered(200, 65_536), 1, 1).unwrap();
    world.cut_power(|_| Fate::Lost);
    world.open().unwrap();
    let kept_bytes = status(&world).volumes[0].dirty_bytes;
    assert!(kept_bytes >= (200 - 150) * 4096, "{kept_bytes} bytes were flushed");
    world.verify_cut().unwrap();
}

/// The first 4 MiB of a stream are cached; the rest goes around the cache.
#[test]
fn a_stream_passes_by_from_its_cutoff_on() {
    let mut world = World::new(setup(&[], false));
    world.run_dry().unwrap();
    write_all(&mut world, (0..64).map(|step| step * 32), 32, 1).unwrap();
    let cached = status(&world).volumes[0].cached_bytes;
    assert_eq!(cached, 31 * 128 * 1024);
    assert_eq!(counters(&world).write_bypasses.sequential_blocks, 33 * 32);
    // The same for a reader.
    world.pass(6 * Nanos::SECOND).unwrap();
    for step in 0..64 {
        let read = world.read(0, blocks(32_768 + step * 32, 32));
        world.succeed(read).unwrap();
    }
    world.pass(10 * Nanos::MILLISECOND).unwrap();
    assert_eq!(counters(&world).fill_blocks, 31 * 32);
    assert_eq!(counters(&world).read_bypasses.sequential_blocks, 33 * 32);
}

/// What went around the cache enters when it is read, though nobody has flushed the origin since; with `safe` what the origin
/// may still lose does not (rule 2).
#[test]
fn what_the_origin_may_lose_enters_as_published() {
    let filled = |safe: bool| {
        let mut world = World::new(setup(&[], safe));
        world.run_dry().unwrap();
        write_all(&mut world, (0..64).map(|step| step * 32), 32, 1).unwrap();
        assert_eq!(counters(&world).write_bypasses.sequential_blocks, 33 * 32);
        // Nothing has gone home yet, for which the origin would be flushed.
        let read = world.read(0, blocks(50 * 32, 32));
        world.succeed(read).unwrap();
        world.pass(10 * Nanos::MILLISECOND).unwrap();
        counters(&world).fill_blocks
    };
    assert_eq!(filled(false), 32);
    assert_eq!(filled(true), 0);
}

/// Runs are counted in the order in which requests come, though one that shares a region of the guard with another
/// begins after others that came later.
#[test]
fn a_stream_in_flight_passes_by_as_one() {
    let mut world = World::new(setup(&[], false));
    world.run_dry().unwrap();
    write_all(&mut world, (0..128).map(|step| step * 24), 24, 4).unwrap();
    // 42 requests of 96 KiB are less than 4 MiB.
    assert_eq!(status(&world).volumes[0].cached_bytes, 42 * 96 * 1024);
    assert_eq!(counters(&world).write_bypasses.sequential_blocks, (128 - 42) * 24);
}

/// Above 70 % of the buckets with dirty data writes go to the origin. One dirty block makes a bucket dirty, and what is
/// dirty is counted each time that a sixteenth of the cache was written.
#[test]
fn writes_go_around_a_cache_with_too_many_dirty_buckets() {
    // The first sweep begins when the burst is over, long before that it is ten times too slow to matter.
    let mut world = World::new(setup(&[("cutoff", "none")], false));
    world.run_dry().unwrap();
    write_all(&mut world, scattered(128 * 128, 65_536), 1, 16).unwrap();
    let dirty = status(&world).volumes[0].dirty_bytes / (512 * 1024);
    let passed = counters(&world).write_bypasses.in_use_blocks;
    // 71 % of 128 are 91 buckets; a sixteenth is 8.
    assert!((88..=99).contains(&dirty), "{dirty} buckets are dirty");
    assert!(passed > 20 * 128, "{passed} blocks went around");
}

/// Until Linux 4.13 what goes around the cache brings the next count of dirty buckets nearer, too; since then the cache is passed by
/// for as long as nothing else brings it.
#[test]
fn what_goes_around_is_counted_by_the_first_two_controllers() {
    let passes_by = |besides: &[(&str, &str)]| {
        let mut world = World::new(setup(&[&[("cutoff", "none")], besides].concat(), false));
        world.run_dry().unwrap();
        write_all(&mut world, scattered(128 * 128, 65_536), 1, 16).unwrap();
        let drain = world.submit(0, RequestOp::Drain);
        world.succeed(drain).unwrap();
        // A sixteenth of the cache, and something more.
        write_all(&mut world, scattered(1100, 65_536), 1, 16).unwrap();
        let before = counters(&world).write_bypasses.in_use_blocks;
        write_all(&mut world, scattered(100, 65_536), 1, 16).unwrap();
        counters(&world).write_bypasses.in_use_blocks - before
    };
    assert_eq!(passes_by(&[("pi_era", "b"), ("p_inverse", "6000")]), 0);
    assert_eq!(passes_by(&[]), 100);
}

/// A sweep that has come to the end of what it found is followed by 30 s of rest.
#[test]
fn a_sweep_is_followed_by_a_rest() {
    let mut world = World::new(setup(&[], false));
    world.run_dry().unwrap();
    write_all(&mut world, scattered(4, 65_536), 1, 1).unwrap();
    world.pass(2 * Nanos::SECOND).unwrap();
    assert_eq!(counters(&world).destaged_blocks, 1, "the first sweep begins at once, with what there is");
    write_all(&mut world, scattered(4, 65_536).map(|block| block + 1), 1, 1).unwrap();
    world.pass(25 * Nanos::SECOND).unwrap();
    assert_eq!(counters(&world).destaged_blocks, 1, "it rests");
    world.pass(6 * Nanos::SECOND).unwrap();
    assert_eq!(counters(&world).destaged_blocks, 8);
}

/// After a power cut what went home is dirty again as far as the journal does not say it, and nothing else.
#[test]
fn what_is_home_and_not_recorded_is_dirty_again() {
    let script = |records: bool| -> Result<u64, Violation> {
        let mut world = World::new(setup(&[("destage", "sweep")], true));
        world.run_dry()?;
        for block in 0..8 {
            let write = world.write_fua(0, blocks(block * 100, 1));
            world.succeed(write)?;
        }
        let drain = world.submit(0, RequestOp::Drain);
        world.succeed(drain)?;
        if records {
            world.pass(50 * Nanos::MILLISECOND)?;
            let write = world.write_fua(0, blocks(5000, 1));
            world.succeed(write)?;
        }
        world.cut_power(|_| Fate::Lost);
        world.open()?;
        world.verify_cut()?;
        Ok(world.reports().last().expect("it was opened").redestage_bytes)
    };
    assert_eq!(script(false).unwrap(), 8 * 4096);
    assert_eq!(script(true).unwrap(), 4096, "the block that was written last");
}

/// What is answered for and not in the journal is lost with the process, too, without `safe`; a FLUSH keeps it.
#[test]
fn a_flush_waits_for_the_journal() {
    let script = |flushes: bool| -> Result<u64, Violation> {
        let mut world = World::new(setup(&[], false));
        world.run_dry()?;
        write_all(&mut world, scattered(4, 65_536), 1, 4)?;
        if flushes {
            let flush = world.flush(0);
            world.succeed(flush)?;
        }
        world.kill(|_| false);
        world.open()?;
        world.verify()?;
        Ok(world.reports().last().expect("it was opened").redestage_bytes)
    };
    assert_eq!(script(true).unwrap(), 4 * 4096);
    assert_eq!(script(false).unwrap(), 0);
}

/// bcache does not flush the origin before what was written there counts as clean, written home or written through.
#[test]
fn what_is_written_through_is_clean_without_a_flush_of_the_origin() {
    for safe in [false, true] {
        let mut setup = setup(&[], safe);
        setup.volumes[0].mode = WriteMode::Writethrough;
        let mut world = World::new(setup);
        world.run_dry().unwrap();
        let before = status(&world).volumes[0].counters.origin.flushes;
        write_all(&mut world, scattered(64, 65_536), 1, 4).unwrap();
        let volume = &status(&world).volumes[0];
        let flushes = volume.counters.origin.flushes - before;
        assert_eq!((safe, flushes), (volume.dirty_bytes > 0, 0));
        assert_eq!(volume.cached_bytes, 64 * 4096);
        // In either case a FLUSH keeps it.
        let flush = world.flush(0);
        world.succeed(flush).unwrap();
        world.cut_power(|_| Fate::Lost);
        world.open().unwrap();
        world.verify_cut().unwrap();
    }
}

/// A fill keeps its reader's memory until its data is on the device, and not until its key is: others would wait for memory.
#[test]
fn a_fill_keeps_no_memory_until_the_journal_has_its_key() {
    let mut world = World::new(setup(&[("cutoff", "none")], false));
    world.run_dry().unwrap();
    let (before, began_ns) = (world.pool().live(), world.now_ns());
    for step in 0..100 {
        let read = world.read(0, blocks(step * 32, 32));
        world.succeed(read).unwrap();
    }
    world.pass(Nanos::MILLISECOND).unwrap();
    assert!(world.now_ns() - began_ns < 100 * Nanos::MILLISECOND, "no key had to leave for the journal");
    assert_eq!(counters(&world).fill_blocks, 100 * 32);
    assert_eq!(world.pool().live(), before, "buffers in use");
}

/// While the priorities of a round are on their way, writes have the two buckets that are left of the one before, and then wait.
#[test]
fn writes_wait_for_priorities_when_a_round_is_over() {
    let mut world = World::new(setup(&[("cutoff", "none"), ("priorities_part", "64")], false));
    world.run_dry().unwrap();
    world.hold(|io| io.is_cache(Kind::Write) && io.sectors == MIB / 2 / 512);
    // Four to a bucket: seven buckets of the first round, and two more.
    write_all(&mut world, (0..36).map(|step| step * 32), 32, 1).unwrap();
    let next = world.write(0, blocks(36 * 32, 32));
    world.pass(50 * Nanos::MILLISECOND).unwrap();
    assert!(world.answer(next).is_none(), "it needs a bucket of the next round");
    world.release();
    world.succeed(next).unwrap();
    assert_eq!(status(&world).volumes[0].cached_bytes, 37 * 128 * 1024, "and nothing went around the cache");
}

/// Before each seven buckets of a cache of 2048 priorities are written, which take one more.
#[test]
fn priorities_are_written_before_buckets_are_begun() {
    let written = |part: &str| {
        let mut world = World::new(setup(&[("cutoff", "none"), ("priorities_part", part)], false));
        world.run_dry().unwrap();
        let before = status(&world).cache.device.written_bytes;
        write_all(&mut world, (0..256).map(|step| step * 32), 32, 1).unwrap();
        (status(&world).cache.device.written_bytes - before) / (MIB / 2)
    };
    // 64 buckets are begun: after each seven a bucket of priorities.
    assert_eq!(written("64"), written("0") + 9);
    assert_eq!(written("1024"), written("0"), "bcache takes no cache as small as that");
}

/// Goal: a look for dirty extents ends, wherever the volume's last ones lie. Method: as many as one look takes, to the last region;
/// all are on their way home, and nothing of them can go.
#[test]
fn a_look_that_ends_with_the_volume_ends() {
    let mut world = World::new(setup(&[], true));
    world.run_dry().unwrap();
    world.hold(|io| io.is_origin(0, Kind::Write));
    let first = 65_536 - 1024;
    write_all(&mut world, (0..512).map(|step| first + step * 2), 1, 32).unwrap();
    world.pass(120 * Nanos::SECOND).unwrap();
    world.release();
    world.pass(600 * Nanos::SECOND).unwrap();
    world.verify().unwrap();
}
