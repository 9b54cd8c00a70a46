//! The canonical loads by which the lab's own speed is measured: how many requests it simulates in a second
//! of the host's time. The clock is the caller's: `forebay lab bench`.

use super::disk::{Disk, Latencies};
use super::drive::{Trouble, Until};
use super::load::{Load, LoadOptions, Pattern};
use super::run::{Contents, LongRun, Setup, VolumeSetup};
use super::statistics::Statistics;
use engine::effect::WriteMode;
use engine::status::Status;

const GIB: u64 = 1 << 30;
/// Blocks of 4 KiB in a GiB.
const GIB_BLOCKS: u64 = 1 << 18;
/// Without a model: about a SATA SSD.
const CACHE_LATENCIES: Latencies = Latencies { read_ns: 80_000, write_ns: 40_000, flush_ns: 200_000 };
/// Without a model: about a good network disk.
const ORIGIN_LATENCIES: Latencies = Latencies { read_ns: 500_000, write_ns: 500_000, flush_ns: 1_000_000 };

/// Disks of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disks {
    Constant,
    Modelled,
}

/// One row of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its load in words.
    pub description: &'static str,
    /// The speed to reach in simulated requests per second and core, if the row has one.
    pub target_per_second: Option<u64>,
    contents: Contents,
    disks: Disks,
    cache_bytes: u64,
    origin_bytes: u64,
    /// Blocks that are read before the measurement, so that they are cached.
    warm_blocks: u64,
    pattern: Pattern,
    read_permille: u64,
}

const CACHED_READS: Row = Row {
    name: "cached-reads",
    description: "4 KiB random reads of 1 GiB, all cached, depth 32, constant latencies, no contents",
    target_per_second: Some(1_000_000),
    contents: Contents::Nothing,
    disks: Disks::Constant,
    cache_bytes: 8 * GIB,
    origin_bytes: 64 * GIB,
    warm_blocks: GIB_BLOCKS,
    pattern: Pattern::Random,
    read_permille: 1000,
};

/// The rows in the order of reports. The first is the one with a target.
pub const ROWS: [Row; 5] = [
    CACHED_READS,
    Row {
        name: "cached-reads-verified",
        description: "the same with tags, every block read compared with what was written last",
        target_per_second: None,
        contents: Contents::Tags,
        ..CACHED_READS
    },
    Row {
        name: "writes",
        description: "4 KiB random writes to 1 GiB, writeback, the log wraps and destages, constant latencies",
        target_per_second: None,
        cache_bytes: 2 * GIB,
        read_permille: 0,
        ..CACHED_READS
    },
    Row {
        name: "zipf-mix",
        description: "4 KiB, 70 % reads, zipf 0.99 over 1.5 TB behind 128 GB, constant latencies",
        target_per_second: None,
        cache_bytes: 128_000_000_000,
        origin_bytes: 1_500_000_000_000,
        warm_blocks: 0,
        pattern: Pattern::Zipf { theta_permille: 990 },
        read_permille: 700,
        ..CACHED_READS
    },
    Row {
        name: "zipf-mix-modelled",
        description: "the same on the modelled disks ssd and hdd",
        target_per_second: None,
        disks: Disks::Modelled,
        cache_bytes: 128_000_000_000,
        origin_bytes: 1_500_000_000_000,
        warm_blocks: 0,
        pattern: Pattern::Zipf { theta_permille: 990 },
        read_permille: 700,
        ..CACHED_READS
    },
];

/// A row that is ready to be measured.
pub struct Prepared {
    run: LongRun,
    load: Load,
}

impl Row {
    /// Builds the row's world and warms its cache.
    ///
    /// # Errors
    /// [`Trouble`], which is a defect of the engine or the lab.
    pub fn prepare(&self) -> Result<Prepared, Trouble> {
        let (cache, origin) = self.disks();
        let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writeback }];
        let mut run = LongRun::new(Setup { cache, volumes, contents: self.contents }, |_| ())?;
        let mut area_blocks = self.origin_bytes / engine::units::BLOCK_BYTES;
        if self.warm_blocks > 0 {
            area_blocks = self.warm_blocks;
            // Data read before the origin's first flush is not cached: the run waits for that.
            run.run(&mut Load::new(LoadOptions::once(32)), Until::End)?;
            run.idle(ORIGIN_LATENCIES.flush_ns * 100)?;
            run.run(&mut Load::new(LoadOptions::once(area_blocks)), Until::End)?;
            run.idle(ORIGIN_LATENCIES.flush_ns * 100)?;
        }
        let load = Load::new(LoadOptions {
            pattern: self.pattern,
            read_permille: self.read_permille,
            ..LoadOptions::reads(area_blocks)
        });
        run.begin_measuring();
        Ok(Prepared { run, load })
    }

    fn disks(&self) -> (Disk, Disk) {
        match self.disks {
            Disks::Constant => (
                Disk::constant(self.cache_bytes, CACHE_LATENCIES),
                Disk::constant(self.origin_bytes, ORIGIN_LATENCIES),
            ),
            Disks::Modelled => {
                let model = |name| models::find(name).expect("a disk that is built in");
                (
                    Disk::modelled(&model("ssd"), self.cache_bytes, 1),
                    Disk::modelled(&model("hdd"), self.origin_bytes, 2),
                )
            }
        }
    }
}

impl Prepared {
    /// Simulates so many more requests.
    ///
    /// # Errors
    /// [`Trouble`], which is a defect of the engine or the lab.
    pub fn go_on(&mut self, requests: u64) -> Result<(), Trouble> {
        self.run.run(&mut self.load, Until::Answers(requests)).map(|_| ())
    }

    /// Measurements, in virtual time.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.run.statistics()
    }

    /// Status of the engine, warming included.
    #[must_use]
    pub fn status(&self) -> Status {
        self.run.status()
    }
}
