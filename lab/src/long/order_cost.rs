//! The cost of strict order: the same writes and flushes on modelled disks, home in any order and in the order of their flushes.

use super::disk::Disk;
use super::drive::{Trouble, Until};
use super::load::{Load, LoadOptions, Pattern};
use super::run::{Contents, LongRun, Setup, VolumeSetup};
use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::units::Nanos;

const GIB: u64 = 1 << 30;
/// Blocks that are written: 1 GiB, so that the hot ones are overwritten many times.
const AREA_BLOCKS: u64 = 1 << 18;
/// Writes of a row.
const WRITES: u64 = 20_000;

/// One measurement to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whether everything goes home in strict order.
    pub is_strict: bool,
    /// After so many writes there is a flush.
    pub flush_every: u64,
    /// Writes that are under way at the same time.
    pub depth: u32,
}

/// A measurement: of 4 KiB writes, zipf 0.9 over 1 GiB, on the modelled disks ssd and hdd.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Its row.
    pub row: Row,
    /// Writes in a second, until the last one was answered.
    pub writes_per_second: u64,
    /// The median of their latencies.
    pub write_ns_p50: u64,
    /// Their 99th percentile.
    pub write_ns_p99: u64,
    /// The time from the first write to the answer of the last one.
    pub written_ns: u64,
    /// The time from the first write until all was home: then as fast as that goes.
    pub home_ns: u64,
    /// Bytes written to it.
    pub disk_written_bytes: u64,
    /// Its flushes.
    pub disk_flushes: u64,
    /// The time in which any operation of it was under way.
    pub disk_busy_ns: u64,
}

/// All rows: any order and strict order one after the other.
pub fn rows() -> impl Iterator<Item = Row> {
    [1, 32].into_iter().flat_map(|depth| {
        [1, 10, 100, 1000]
            .into_iter()
            .flat_map(move |flush_every| [false, true].map(|is_strict| Row { is_strict, flush_every, depth }))
    })
}

impl Row {
    /// Makes the measurement.
    ///
    /// # Errors
    /// [`Trouble`], which is a defect of the engine or the lab.
    ///
    /// # Panics
    /// Never: the disks are built in.
    pub fn measure(self) -> Result<Measured, Trouble> {
        let model = |name| models::find(name).expect("a disk that is built in");
        let cache = Disk::modelled(&model("ssd"), 8 * GIB, 1);
        let origin = Disk::modelled(&model("hdd"), 64 * GIB, 2);
        let mut composition = Composition::forebay();
        if self.is_strict {
            composition.set("order", "strict").expect("there is such an order");
        }
        let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writeback }];
        let setup = Setup { cache, volumes, contents: Contents::Nothing };
        let mut run = LongRun::composed(setup, &composition, |_| ())?;
        run.idle(Nanos::SECOND)?;
        run.begin_measuring();
        let began = run.now();
        let mut load = Load::new(LoadOptions {
            pattern: Pattern::Zipf { theta_permille: 900 },
            read_permille: 0,
            depth: self.depth,
            flush_every: self.flush_every,
            requests: Some(WRITES),
            ..LoadOptions::reads(AREA_BLOCKS)
        });
        run.run(&mut load, Until::End)?;
        let written = run.statistics();
        run.drain()?;
        let all = run.statistics();
        let disk = all.origins[0];
        Ok(Measured {
            row: self,
            writes_per_second: written.per_second(written.writes.count),
            write_ns_p50: written.writes.latency_ns.value_at_quantile(0.5),
            write_ns_p99: written.writes.latency_ns.value_at_quantile(0.99),
            written_ns: written.elapsed_ns(),
            home_ns: run.now().since(began),
            disk_written_bytes: disk.written_bytes,
            disk_flushes: disk.flushes,
            disk_busy_ns: disk.busy_ns,
        })
    }
}
