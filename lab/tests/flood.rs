//! Goal: writes that come faster than the disk takes them wait for the disk, each about as long as the others. Method: a cache
//! of 512 MiB on modelled disks, random writes to four times as much, and the longest wait among them.

use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::units::Nanos;
use forebay_lab::long::{
    Contents, Disk, Load, LoadOptions, LongRun, Setup, Statistics, Trouble, Until, VolumeSetup,
};

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
