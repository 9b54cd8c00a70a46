//! Goal: a volume behind a cache is not slower than its origin alone, cold, full or dirty, in the modes in which it caches;
//! where it is, no more than is known and written here.
//! Method: fio's jobs on modelled disks, a cache of an eighth of what they touch, and the same jobs around it.

use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::units::{Nanos, VolumeIndex};
use forebay_lab::long::{Contents, Disk, LongRun, Setup, Trouble, Until, VolumeSetup};
use forebay_lab::workload::fio::{FioLoad, parse};

const CACHE_BYTES: u64 = 1 << 30;
const FILE: &str = "filename=volume\nfilesize=8g\nioengine=libaio\nruntime=20\ntime_based\nnorandommap\n";

/// A job, and the least share of the origin's own requests that it gets, in percent.
struct Row {
    options: &'static str,
    writeback: u64,
    writethrough: u64,
}

/// Two clients who read in a row, each one request at a time.
const TWO_STREAMS: &str = "rw=read\nbs=64k\nsize=2g\n[other]\nfilename=volume\nfilesize=8g\nruntime=20\ntime_based\n\
    rw=read\nbs=64k\noffset=4g\nsize=2g";

/// A hard disk behind a SATA SSD. What is written through shares the disk with flushes, which make it clean in the cache.
const DISK: [Row; 7] = [
    Row { options: "rw=randread\nbs=4k\niodepth=32", writeback: 95, writethrough: 95 },
    Row { options: "rw=read\nbs=128k\niodepth=4\nsize=8g", writeback: 98, writethrough: 98 },
    Row { options: TWO_STREAMS, writeback: 500, writethrough: 500 },
    Row { options: "rw=randwrite\nbs=4k\niodepth=1", writeback: 100, writethrough: 90 },
    Row { options: "rw=randwrite\nbs=64k\niodepth=8", writeback: 100, writethrough: 75 },
    Row { options: "rw=write\nbs=128k\niodepth=4\nsize=8g", writeback: 95, writethrough: 92 },
    Row { options: "rw=randrw\nrwmixread=70\nbs=8k\niodepth=16", writeback: 100, writethrough: 80 },
];

/// A SATA SSD behind NVMe. A write-through of what is cached waits until the cache has it durably.
const FLASH: [Row; 4] = [
    Row { options: "rw=randread\nbs=4k\niodepth=32", writeback: 95, writethrough: 95 },
    Row { options: "rw=read\nbs=128k\niodepth=4\nsize=8g", writeback: 98, writethrough: 98 },
    Row { options: "rw=randwrite\nbs=4k\niodepth=32", writeback: 100, writethrough: 92 },
    Row { options: "rw=write\nbs=128k\niodepth=4\nsize=8g", writeback: 98, writethrough: 92 },
];

/// A network disk behind a SATA SSD. Wide reads are no bargain there, and requests cost little beside the bytes.
const NETWORK: [Row; 7] = [
    Row { options: "rw=read\nbs=128k\niodepth=1\nsize=8g", writeback: 150, writethrough: 150 },
    Row { options: "rw=randread\nbs=4k\niodepth=32", writeback: 98, writethrough: 98 },
    Row {
        options: "rw=randread\nbs=4k\niodepth=16\nrandom_distribution=zipf:0.9",
        writeback: 160,
        writethrough: 160,
    },
    Row { options: "rw=randwrite\nbs=4k\niodepth=1", writeback: 500, writethrough: 94 },
    Row { options: "rw=randwrite\nbs=4k\niodepth=8\nfsync=32", writeback: 300, writethrough: 97 },
    Row { options: "rw=write\nbs=128k\niodepth=4\nsize=8g", writeback: 98, writethrough: 98 },
    Row { options: "rw=randrw\nrwmixread=70\nbs=8k\niodepth=16", writeback: 125, writethrough: 96 },
];

/// The requests of a job that are answered in a second.
fn rate(options: &str, disks: [&str; 2], mode: WriteMode) -> Result<u64, Trouble> {
    let jobs = parse(&format!("[job]\n{FILE}{options}\n")).expect("a job file");
    let mut load = FioLoad::new(&jobs, VolumeIndex(0)).expect("a job that can be run");
    let disk = |name: &str, bytes: u64| {
        Disk::modelled(&models::find(name).expect("a model that is built in"), bytes, 1)
    };
    let volumes = vec![VolumeSetup { origin: disk(disks[0], load.volume_bytes()), mode }];
    let setup = Setup { cache: disk(disks[1], CACHE_BYTES), volumes, contents: Contents::Nothing };
    let mut run = LongRun::composed(setup, &Composition::forebay(), |_| ())?;
    run.idle(Nanos::SECOND)?;
    run.begin_measuring();
    run.run(&mut load, Until::End)?;
    let statistics = run.statistics();
    Ok(statistics.per_second(statistics.answers()))
}

fn judge(rows: &[Row], disks: [&str; 2]) -> Result<(), Trouble> {
    let mut slow = String::new();
    for row in rows {
        let alone = rate(row.options, disks, WriteMode::Passthrough)?;
        for (mode, least) in
            [(WriteMode::Writeback, row.writeback), (WriteMode::Writethrough, row.writethrough)]
        {
            let cached = rate(row.options, disks, mode)?;
            if cached * 100 < alone * least {
                let options = row.options.replace('\n', " ");
                slow += &format!("\n{options} {mode:?}: {cached} a second, {alone} around the cache");
            }
        }
    }
    assert!(slow.is_empty(), "slower than the origin alone:{slow}");
    Ok(())
}

#[test]
fn a_disk_behind_an_ssd_is_not_slower_than_alone() -> Result<(), Trouble> {
    judge(&DISK, ["hdd", "ssd"])
}

#[test]
fn a_network_disk_behind_an_ssd_is_not_slower_than_alone() -> Result<(), Trouble> {
    judge(&NETWORK, ["network", "ssd"])
}

#[test]
fn an_ssd_behind_nvme_is_not_slower_than_alone() -> Result<(), Trouble> {
    judge(&FLASH, ["ssd", "nvme"])
}
