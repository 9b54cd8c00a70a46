//! Goal: writes that come faster than the disk takes them wait for the disk, each about as long as the others, and keep
//! nobody else waiting for longer. Method: small caches on modelled disks, random writes to several times as much, and the
//! longest waits; what goes home is counted when the clients are silent.

use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::status::Status;
use engine::units::{Nanos, VolumeIndex};
use forebay_lab::long::{
    Contents, Disk, Latencies, Load, LoadOptions, LongRun, Setup, Statistics, Trouble, Until, VolumeSetup,
};
use forebay_lab::workload::fio::{FioLoad, parse};

const MIB: u64 = 1 << 20;
const CACHE_BYTES: u64 = 512 * MIB;
const ORIGIN_BYTES: u64 = 4 * CACHE_BYTES;
/// The writes have so many eighths of the bytes of the cache.
const EIGHTHS: u64 = 9;
/// A flush of the disk takes three seconds when its memory is full.
const LONGEST_NS: u64 = 10 * Nanos::SECOND;

fn disk(name: &str, bytes: u64) -> Disk {
    let model = models::find(name).expect("a model that is built in");
    Disk::modelled(&model, bytes, 1)
}

/// Writes of that length, 32 at a time, until all are answered.
fn flood(request_bytes: u64) -> Result<Statistics, Trouble> {
    let volumes = vec![VolumeSetup { origin: disk("hdd", ORIGIN_BYTES), mode: WriteMode::Writeback }];
    let setup = Setup { cache: disk("ssd", CACHE_BYTES), volumes, contents: Contents::Tags };
    let mut run = LongRun::composed(setup, &Composition::forebay(), |_| ())?;
    let mut load = Load::new(LoadOptions {
        request_bytes,
        read_permille: 0,
        requests: Some(CACHE_BYTES * EIGHTHS / 8 / request_bytes),
        ..LoadOptions::reads(ORIGIN_BYTES / 4096)
    });
    run.run(&mut load, Until::End)?;
    Ok(run.statistics())
}

#[test]
fn no_write_waits_until_a_flood_is_over() -> Result<(), Trouble> {
    for request_bytes in [4096, 16_384] {
        let writes = flood(request_bytes)?.writes;
        assert_eq!(writes.errors, 0);
        let longest_ns = writes.latency_ns.max();
        assert!(longest_ns < LONGEST_NS, "{request_bytes}: a write waited for {} ms", longest_ns / 1_000_000);
    }
    Ok(())
}

/// A database: a log, of which each write is flushed, pages that are written faster than the disk takes them, and readers.
const DATABASE: &str = "
[global]
filename=volume
filesize=1g
ioengine=libaio
runtime=40
time_based
norandommap
[log]
rw=write
bs=8k
size=64m
fsync=1
[pages]
rw=randwrite
bs=16k
iodepth=16
[readers]
rw=randread
bs=16k
iodepth=8
";

fn jobs(text: &str) -> FioLoad {
    let jobs = parse(text).expect("a job file");
    FioLoad::new(&jobs, VolumeIndex(0)).expect("jobs that can be run")
}

#[test]
fn who_flushes_does_not_wait_for_the_disk_of_a_full_cache() -> Result<(), Trouble> {
    let mut load = jobs(DATABASE);
    let volumes = vec![VolumeSetup { origin: disk("hdd", load.volume_bytes()), mode: WriteMode::Writeback }];
    let setup = Setup { cache: disk("ssd", 128 * MIB), volumes, contents: Contents::Nothing };
    let mut run = LongRun::composed(setup, &Composition::forebay(), |_| ())?;
    // The cache fills up.
    run.run(&mut load, Until::Time(run.now().plus(10 * Nanos::SECOND)))?;
    run.begin_measuring();
    let before = run.status();
    run.run(&mut load, Until::End)?;
    let counters = |status: &Status| status.volumes[0].counters;
    let (before, after) = (counters(&before), counters(&run.status()));
    let around_blocks = after.write_bypasses.since(&before.write_bypasses).blocks();
    assert_eq!(around_blocks, 0, "a FLUSH would have to wait for what went around the cache");
    let Statistics { reads, writes, flushes, .. } = run.statistics();
    let ms = |latency_ns: u64| latency_ns / 1_000_000;
    let (flush_ms, write_ms) = (ms(flushes.latency_ns.max()), ms(writes.latency_ns.max()));
    assert!(flush_ms < 100, "a flush took {flush_ms} ms");
    assert!(write_ms < 10_000, "a write waited for {write_ms} ms");
    // They wait behind sixteen runs and a flush, and have the disk for as long.
    let read_ms = ms(reads.latency_ns.value_at_quantile(0.99));
    assert!(read_ms < 1000, "one read in a hundred took {read_ms} ms");
    Ok(())
}

#[test]
fn what_lies_scattered_goes_home_as_fast_as_the_origin_takes_it() -> Result<(), Trouble> {
    let mut load = jobs("[w]\nrw=randwrite\nfilesize=1g\nsize=16m\niodepth=32\nioengine=libaio\n");
    let latencies = Latencies { read_ns: 100_000, write_ns: 100_000, flush_ns: 100_000 };
    let origin = Disk::constant(load.volume_bytes(), latencies);
    let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writeback }];
    let setup = Setup { cache: disk("ssd", 128 * MIB), volumes, contents: Contents::Nothing };
    let mut run = LongRun::composed(setup, &Composition::forebay(), |_| ())?;
    run.run(&mut load, Until::End)?;
    let dirty_bytes = |run: &LongRun| run.status().volumes[0].dirty_bytes;
    assert!(dirty_bytes(&run) > 15 * MIB, "there is nothing to see");
    // The clients have to be silent for a third of it. Eight runs in a look by the clock would be 400 in a second.
    run.idle(Nanos::SECOND)?;
    assert_eq!(dirty_bytes(&run), 0);
    Ok(())
}

#[test]
fn a_flood_is_told_as_long_as_it_lasts() -> Result<(), Trouble> {
    let mut load = jobs("[w]\nrw=randwrite\nbs=1m\nfilesize=4g\nsize=4g\niodepth=16\nioengine=libaio\n");
    let volumes = vec![VolumeSetup { origin: disk("hdd", load.volume_bytes()), mode: WriteMode::Writeback }];
    let setup = Setup { cache: disk("ssd", 128 * MIB), volumes, contents: Contents::Nothing };
    let mut run = LongRun::composed(setup, &Composition::forebay(), |_| ())?;
    assert!(!run.status().volumes[0].is_flooded, "nothing was written yet");
    run.run(&mut load, Until::Time(Nanos(10 * Nanos::SECOND)))?;
    let volume = &run.status().volumes[0];
    assert!(volume.is_flooded, "the cache was written over several times");
    assert!(volume.counters.write_bypasses.in_use_blocks > 0, "that is what it means");
    run.idle(2 * Nanos::SECOND)?;
    assert!(!run.status().volumes[0].is_flooded, "the clients are silent");
    Ok(())
}

/// Goal: what lies in long rows goes home in long sweeps while clients fill the ring again. Method: sixteen clients who each write
/// a row of their own, one request of 64 KiB at a time, behind a full ring; beside them the disk alone.
#[test]
fn rows_go_home_in_long_sweeps() -> Result<(), Trouble> {
    let mut text = String::new();
    for client in 0..16 {
        text += &format!(
            "[{client}]\nfilename=volume\nfilesize=8g\nruntime=30\ntime_based\nrw=write\nbs=64k\nsize=500m\noffset={}m\n",
            client * 500
        );
    }
    let rate = |mode| -> Result<u64, Trouble> {
        let mut load = jobs(&text);
        let volumes = vec![VolumeSetup { origin: disk("hdd", load.volume_bytes()), mode }];
        let setup = Setup { cache: disk("ssd", 2 * CACHE_BYTES), volumes, contents: Contents::Nothing };
        let mut run = LongRun::composed(setup, &Composition::forebay(), |_| ())?;
        run.run(&mut load, Until::Time(Nanos(12 * Nanos::SECOND)))?;
        run.begin_measuring();
        run.run(&mut load, Until::End)?;
        let statistics = run.statistics();
        Ok(statistics.per_second(statistics.writes.count))
    };
    let (cached, alone) = (rate(WriteMode::Writeback)?, rate(WriteMode::Passthrough)?);
    assert!(cached * 100 > alone * 60, "{cached} writes a second, {alone} of the disk alone");
    Ok(())
}
