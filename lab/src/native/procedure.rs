//! How each study measured its bare disks.

use super::tally::{Side, Tally, run};
use crate::long::{Bare, Disk};
use crate::workload::fio::{self, FioLoad};
use crate::workload::iozone::{IozoneLoad, Setup, Test};
use engine::units::VolumeIndex;
use models::Parameters;

const VOLUME: VolumeIndex = VolumeIndex(0);
const SECOND_NS: u64 = 1_000_000_000;
const MIB: f64 = 1024.0;

/// A value that a study's procedure gives on a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The test, as in the study.
    pub test: String,
    /// The jobs.
    pub numjobs: u32,
    /// The metric, as in the study.
    pub metric: &'static str,
    /// The value, in the study's unit.
    pub value: f64,
}

/// How much of a procedure is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// All of it.
    Full,
    /// A part that gives nearly the same values; for the search.
    Short,
}

impl Scale {
    fn of(self, whole: u64) -> u64 {
        match self {
            Scale::Full => whole,
            Scale::Short => (whole / 8).max(1),
        }
    }
}

/// Runs the native procedure of a study for one of its systems on a model of it. Empty if there is none.
#[must_use]
pub fn measure(study: &str, system: &str, parameters: &Parameters, scale: Scale) -> Vec<Measured> {
    let disk = Disk::modelled(parameters, parameters.size_bytes, 1);
    let mut bench = Bench { disk: Bare::new(disk), scale };
    match (study, system) {
        ("dm-devel-2016", "hdd") => bench.dm_devel(50),
        // The study's three files of 40 GiB are a little more than the disk has.
        ("dm-devel-2016", "ssd") => bench.dm_devel(39),
        ("enhanceio-2013", "hdd") => bench.enhanceio(960, 240),
        ("enhanceio-2013", _) => bench.enhanceio(2, 20),
        ("iozone-2014", _) => bench.iozone(),
        ("geomflash-2015", "hdd") => bench.geomflash_hdd(),
        ("geomflash-2015", "ssd-linux" | "ssd-freebsd") => bench.geomflash_ssd(),
        ("geomflash-2015", _) => bench.geomflash_random(),
        _ => Vec::new(),
    }
}

/// A disk, and how much is run on it.
struct Bench {
    disk: Bare,
    scale: Scale,
}

impl Bench {
    fn fio(&mut self, options: &str, warm_up_ns: u64) -> Tally {
        let text = format!("[job]\nioengine=libaio\n{options}\n");
        let jobs = fio::parse(&text).expect("our own job file");
        let mut load = FioLoad::new(&jobs, VOLUME).expect("our own jobs");
        run(&mut load, &mut self.disk, warm_up_ns)
    }

    /// 4 KiB at random by one, two and three jobs, each on a file of its own. Each run asks for the same blocks again,
    /// so one run stands for the ten of the study.
    fn dm_devel(&mut self, file_gib: u64) -> Vec<Measured> {
        let seconds = self.scale.of(40);
        let mut measured = Vec::new();
        for numjobs in 1..=3 {
            let tally = self.fio(
                &format!("rw=randread\nbs=4k\nsize={file_gib}g\nruntime={seconds}\nnumjobs={numjobs}"),
                0,
            );
            measured.push(Measured {
                test: "A".to_owned(),
                numjobs,
                metric: "bandwidth",
                value: tally.kib_per_s(tally.read),
            });
        }
        measured
    }

    /// Nine reads to one write at random, hot blocks by zipf, by four jobs on one file. How long it ran is not known;
    /// at the published rate 80 GiB take one and a half hours on the disk, so what its memory holds is what it holds
    /// in the long run: four minutes after sixteen. An SSD is at that point at once.
    fn enhanceio(&mut self, warm_up_seconds: u64, seconds: u64) -> Vec<Measured> {
        let (warm_up_seconds, seconds) = match self.scale {
            Scale::Full => (warm_up_seconds, seconds),
            Scale::Short => (warm_up_seconds / 2, seconds / 4),
        };
        let options = format!(
            "rw=randrw\nrwmixread=90\nbs=4k\nfilename=file\nsize=20g\niodepth=8\nnumjobs=4\n\
             random_distribution=zipf:1.2\nruntime={}",
            warm_up_seconds + seconds
        );
        let tally = self.fio(&options, warm_up_seconds * SECOND_NS);
        let value = |metric, value| Measured { test: "baseline".to_owned(), numjobs: 4, metric, value };
        vec![
            value("latency_read", tally.read.latency_ms()),
            value("latency_write", tally.write.latency_ms()),
            value("bandwidth_read", tally.kib_per_s(tally.read) / MIB),
            value("bandwidth_write", tally.kib_per_s(tally.write) / MIB),
        ]
    }

    /// Seven tests with records of 32 KiB by four processes, each on a file of 1 GiB.
    fn iozone(&mut self) -> Vec<Measured> {
        // Not much shorter: how far apart the files lie is part of it.
        let file_bytes = if self.scale == Scale::Full { 1 << 30 } else { 1 << 29 };
        let setup = Setup { record_bytes: 32 << 10, file_bytes, processes: 4, volume: VOLUME };
        let mut measured = Vec::new();
        for test in Test::ALL {
            let mut load = IozoneLoad::new(test, setup);
            run(&mut load, &mut self.disk, 0);
            let outcome = load.outcome().expect("it has ended");
            let mut push = |metric, value| {
                measured.push(Measured { test: test.name().to_owned(), numjobs: 4, metric, value });
            };
            push("summary_avg_per_process", outcome.avg_per_process());
            push("children_throughput", outcome.children_throughput());
            push("parent_throughput", outcome.parent_throughput());
            push("min_per_process", outcome.min_per_process());
            push("max_per_process", outcome.max_per_process());
            push("avg_per_process", outcome.avg_per_process());
            push("min_xfer", outcome.min_records() as f64);
        }
        measured
    }

    /// A job of the geomflash study: its sizes are in MiB.
    fn geomflash(&mut self, test: &str, rw: &str, sizes_mib: [u64; 2], rest: &str) -> Vec<Measured> {
        let [offset_mib, size_mib] = sizes_mib;
        let size_mib = self.scale.of(size_mib);
        let tally = self.fio(&format!("rw={rw}\noffset={offset_mib}m\nsize={size_mib}m\n{rest}"), 0);
        let mut measured = Vec::new();
        let mut push = |side: Side, bandwidth, iops| {
            let test = test.to_owned();
            measured.push(Measured {
                test: test.clone(),
                numjobs: 1,
                metric: bandwidth,
                value: tally.kib_per_s(side),
            });
            measured.push(Measured { test, numjobs: 1, metric: iops, value: tally.iops(side) });
        };
        match (tally.read.requests, tally.write.requests) {
            (_, 0) => push(tally.read, "bandwidth", "iops"),
            (0, _) => push(tally.write, "bandwidth", "iops"),
            _ => {
                push(tally.read, "bandwidth_read", "iops_read");
                push(tally.write, "bandwidth_write", "iops_write");
            }
        }
        measured
    }

    fn geomflash_hdd(&mut self) -> Vec<Measured> {
        let jobs = [("job1", "read", 1, 8), ("job7", "write", 29, 64), ("job13", "write", 477, 64)];
        jobs.into_iter()
            .flat_map(|(test, rw, offset, size)| {
                self.geomflash(test, rw, [offset << 10, size << 10], "bs=128k\niodepth=1")
            })
            .collect()
    }

    /// The cached area, which the jobs read: on the bare disk it was written before.
    fn lay_out(&mut self) {
        self.fio("rw=write\nbs=128k\niodepth=1\noffset=1g\nsize=8g", 0);
        self.disk.idle(SECOND_NS).expect("time passes");
    }

    fn geomflash_ssd(&mut self) -> Vec<Measured> {
        self.lay_out();
        let mut measured = self.geomflash("job3", "read", [1 << 10, 8 << 10], "bs=128k\niodepth=1");
        measured.extend(self.geomflash(
            "job4",
            "randread",
            [1 << 10, 1 << 10],
            "bs=4k\niodepth=1\nfilesize=9g",
        ));
        measured.extend(self.geomflash(
            "job5",
            "randread",
            [1 << 10, 4 << 10],
            "bs=4k\niodepth=32\nfilesize=9g",
        ));
        measured.extend(self.geomflash("job6", "write", [25 << 10, 4 << 10], "bs=128k\niodepth=1"));
        measured
    }

    fn geomflash_random(&mut self) -> Vec<Measured> {
        self.lay_out();
        let mix = "rwmixread=67\nbs=8k\niodepth=32\nfilesize=9g";
        let mut measured = self.geomflash("job19", "randrw", [1 << 10, 4 << 10], mix);
        measured.extend(self.geomflash(
            "job20",
            "randwrite",
            [9 << 10, 1 << 10],
            "bs=4k\niodepth=1\nfilesize=17g",
        ));
        measured.extend(self.geomflash(
            "job21",
            "randwrite",
            [17 << 10, 4 << 10],
            "bs=4k\niodepth=32\nfilesize=25g",
        ));
        measured
    }
}
