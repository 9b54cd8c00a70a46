//! Report of `stats`.

use crate::output::Size;
use engine::status::{Bypasses, Counters, DeviceBytes, Status, VolumeStatus};
use live::limits::HeldBack;
use live::server::{Histograms, Latencies, Latency, STEPS_NS};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Write};

/// `stats`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatsReport {
    /// Whether a daemon serves it now.
    pub running: bool,
    /// The volumes.
    pub volumes: Vec<VolumeStats>,
    /// All volumes together.
    pub total: RequestStats,
    /// Bytes to and from the cache device.
    pub cache: DeviceStats,
    /// Number of times that the log went past the device's end since the start.
    pub cache_wraps: u64,
    /// The bounds of the steps in `durations`: a request is counted in the first step whose bound its time does not exceed.
    #[serde(default)]
    pub duration_bounds_seconds: Vec<f64>,
}

/// One volume in `stats`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeStats {
    /// Its name.
    pub name: String,
    /// Counts of its clients' requests.
    #[serde(flatten)]
    pub requests: RequestStats,
    /// Bytes to and from its origin.
    pub origin: DeviceStats,
    /// Latencies of its clients' requests.
    pub latency: LatencyStats,
    /// The same as histograms in few steps, by operation.
    #[serde(default)]
    pub durations: Vec<DurationStats>,
    /// Requests that its limits held back.
    #[serde(default)]
    pub held_back: HeldBackStats,
}

/// Requests that limits held back.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HeldBackStats {
    /// Requests; one of more than 256 KiB counts as several.
    pub requests: u64,
    /// The time that they waited for that, added up.
    pub seconds: f64,
}

impl From<HeldBack> for HeldBackStats {
    fn from(held_back: HeldBack) -> HeldBackStats {
        HeldBackStats { requests: held_back.requests, seconds: held_back.wait_ns as f64 / 1e9 }
    }
}

/// Latencies of one operation, as a histogram in few steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DurationStats {
    /// The operation.
    pub operation: String,
    /// Requests by step: one for each bound in `duration_bounds_seconds`, and a last one for what took longer.
    pub counts: Vec<u64>,
    /// The sum of all times, in seconds.
    pub sum_seconds: f64,
}

/// Latencies of one volume, as the server measured them.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// In percentiles.
    pub latency: LatencyStats,
    /// In steps.
    pub durations: Vec<DurationStats>,
    /// Requests that were held back.
    pub held_back: HeldBackStats,
}

impl From<&Histograms> for Measured {
    fn from(histograms: &Histograms) -> Measured {
        let durations = histograms.steps().map(|(operation, steps)| DurationStats {
            operation: operation.to_owned(),
            counts: steps.counts.into_iter().chain([steps.beyond]).collect(),
            sum_seconds: steps.sum_ns as f64 / 1e9,
        });
        let latency = (&histograms.summary()).into();
        Measured { latency, durations: durations.into(), held_back: HeldBackStats::default() }
    }
}

/// Counts of clients' requests since the start; their names are those of [`Counters`], which explains them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RequestStats {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub write_zeroes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub hits: u64,
    pub misses: u64,
    pub hit_blocks: u64,
    pub miss_blocks: u64,
    pub beside_blocks: u64,
    pub beside_hit_blocks: u64,
    pub ahead_blocks: u64,
    pub ahead_hit_blocks: u64,
    pub warm_up_blocks: u64,
    pub fill_blocks: u64,
    pub fill_dropped_blocks: u64,
    pub destaged_blocks: u64,
    pub relocated_blocks: u64,
    pub corrupt_clean_blocks: u64,
    /// Blocks that bypassed the cache, by reason.
    pub bypasses: BypassStats,
}

/// Blocks that bypassed the cache, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct BypassStats {
    /// Blocks read that the cache had not and that did not enter it.
    #[serde(with = "BypassesForm")]
    pub reads: Bypasses,
    /// Blocks written to the origin alone.
    #[serde(with = "BypassesForm")]
    pub writes: Bypasses,
}

/// The form of [`Bypasses`], which explains each.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Bypasses")]
struct BypassesForm {
    mode_blocks: u64,
    failed_blocks: u64,
    pressure_blocks: u64,
    #[serde(default)]
    above_max_blocks: u64,
    #[serde(default)]
    budget_blocks: u64,
    #[serde(default)]
    slow_cache_blocks: u64,
    sequential_blocks: u64,
    congested_blocks: u64,
    seldom_blocks: u64,
    copies_blocks: u64,
    in_use_blocks: u64,
    unaligned_blocks: u64,
    later_gap_blocks: u64,
}

/// Prints the reasons that occurred, each with its count.
pub struct Reasons<'a>(pub &'a Bypasses);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.0.by_reason().into_iter().filter(|(_, blocks)| *blocks > 0);
        let reasons: Vec<String> = reasons.map(|(reason, blocks)| format!("{blocks} {reason}")).collect();
        f.write_str(if reasons.is_empty() { "none".into() } else { reasons.join(", ") }.as_str())
    }
}

/// Bytes to and from a device.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DeviceStats {
    /// Read from it.
    pub read_bytes: u64,
    /// Written to it.
    pub written_bytes: u64,
    /// Flushes of it.
    pub flushes: u64,
}

/// Latencies of clients' requests, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LatencyStats {
    /// Reads.
    pub read: Percentiles,
    /// Writes.
    pub write: Percentiles,
    /// Flushes.
    pub flush: Percentiles,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Requests measured.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// 999 of 1000 took no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl RequestStats {
    fn add(&mut self, other: &RequestStats) {
        let RequestStats {
            reads, writes, flushes, discards, write_zeroes, read_bytes, written_bytes, ..
        } = other;
        self.reads += reads;
        self.writes += writes;
        self.flushes += flushes;
        self.discards += discards;
        self.write_zeroes += write_zeroes;
        self.read_bytes += read_bytes;
        self.written_bytes += written_bytes;
        self.hits += other.hits;
        self.misses += other.misses;
        self.hit_blocks += other.hit_blocks;
        self.miss_blocks += other.miss_blocks;
        self.beside_blocks += other.beside_blocks;
        self.beside_hit_blocks += other.beside_hit_blocks;
        self.ahead_blocks += other.ahead_blocks;
        self.ahead_hit_blocks += other.ahead_hit_blocks;
        self.warm_up_blocks += other.warm_up_blocks;
        self.fill_blocks += other.fill_blocks;
        self.fill_dropped_blocks += other.fill_dropped_blocks;
        self.destaged_blocks += other.destaged_blocks;
        self.relocated_blocks += other.relocated_blocks;
        self.corrupt_clean_blocks += other.corrupt_clean_blocks;
        self.bypasses.reads += other.bypasses.reads;
        self.bypasses.writes += other.bypasses.writes;
    }
}

impl From<&Counters> for RequestStats {
    fn from(counters: &Counters) -> RequestStats {
        RequestStats {
            reads: counters.reads,
            writes: counters.writes,
            flushes: counters.flushes,
            discards: counters.discards,
            write_zeroes: counters.write_zeroes,
            read_bytes: counters.read_bytes,
            written_bytes: counters.written_bytes,
            hits: counters.hits,
            misses: counters.misses,
            hit_blocks: counters.hit_blocks,
            miss_blocks: counters.miss_blocks,
            beside_blocks: counters.beside_blocks,
            beside_hit_blocks: counters.beside_hit_blocks,
            ahead_blocks: counters.ahead_blocks,
            ahead_hit_blocks: counters.ahead_hit_blocks,
            warm_up_blocks: counters.warm_up_blocks,
            fill_blocks: counters.fill_blocks,
            fill_dropped_blocks: counters.fill_dropped_blocks,
            destaged_blocks: counters.destaged_blocks,
            relocated_blocks: counters.relocated_blocks,
            corrupt_clean_blocks: counters.corrupt_clean_blocks,
            bypasses: BypassStats { reads: counters.read_bypasses, writes: counters.write_bypasses },
        }
    }
}

impl From<DeviceBytes> for DeviceStats {
    fn from(bytes: DeviceBytes) -> DeviceStats {
        DeviceStats {
            read_bytes: bytes.read_bytes,
            written_bytes: bytes.written_bytes,
            flushes: bytes.flushes,
        }
    }
}

impl From<&Latency> for Percentiles {
    fn from(latency: &Latency) -> Percentiles {
        let microseconds = |ns: u64| ns as f64 / 1000.0;
        Percentiles {
            count: latency.count,
            p50_us: microseconds(latency.p50_ns),
            p99_us: microseconds(latency.p99_ns),
            p999_us: microseconds(latency.p999_ns),
            max_us: microseconds(latency.max_ns),
        }
    }
}

impl From<&Latencies> for LatencyStats {
    fn from(latencies: &Latencies) -> LatencyStats {
        LatencyStats {
            read: (&latencies.read).into(),
            write: (&latencies.write).into(),
            flush: (&latencies.flush).into(),
        }
    }
}

fn duration_bounds_seconds() -> Vec<f64> {
    STEPS_NS.iter().map(|bound_ns| *bound_ns as f64 / 1e9).collect()
}

impl StatsReport {
    /// The report on a running engine; `measured` are in the order of the volumes.
    #[must_use]
    pub fn new(status: &Status, measured: Vec<Measured>) -> StatsReport {
        assert!(status.volumes.len() == measured.len(), "every volume was measured");
        let volume = |(volume, measured): (&VolumeStatus, Measured)| VolumeStats {
            name: volume.name.clone(),
            requests: (&volume.counters).into(),
            origin: volume.counters.origin.into(),
            latency: measured.latency,
            durations: measured.durations,
            held_back: measured.held_back,
        };
        let mut report = StatsReport {
            running: true,
            volumes: status.volumes.iter().zip(measured).map(volume).collect(),
            total: RequestStats::default(),
            cache: status.cache.device.into(),
            cache_wraps: status.cache.wraps,
            duration_bounds_seconds: duration_bounds_seconds(),
        };
        report.add_up();
        report
    }

    /// The report on volumes that their origins serve alone.
    #[must_use]
    pub fn without_cache(volumes: Vec<VolumeStats>) -> StatsReport {
        let mut report = StatsReport {
            running: true,
            volumes,
            total: RequestStats::default(),
            cache: DeviceStats::default(),
            cache_wraps: 0,
            duration_bounds_seconds: duration_bounds_seconds(),
        };
        report.add_up();
        report
    }

    fn add_up(&mut self) {
        self.total = RequestStats::default();
        for volume in &self.volumes {
            self.total.add(&volume.requests);
        }
    }

    /// Keeps only the volume of that name. False if there is none.
    #[must_use]
    pub fn keep_only(&mut self, volume: &str) -> bool {
        self.volumes.retain(|stats| stats.name == volume);
        self.add_up();
        !self.volumes.is_empty()
    }

    /// Prints it for people.
    ///
    /// # Errors
    /// The error of writing.
    pub fn print(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(
            to,
            "cache      {} read, {} written, {} flushes, {} wraps",
            Size(self.cache.read_bytes),
            Size(self.cache.written_bytes),
            self.cache.flushes,
            self.cache_wraps
        )?;
        for volume in &self.volumes {
            volume.print(to)?;
        }
        Ok(())
    }
}

impl VolumeStats {
    fn print(&self, to: &mut impl Write) -> io::Result<()> {
        let requests = &self.requests;
        writeln!(to)?;
        writeln!(to, "volume     {}", self.name)?;
        writeln!(
            to,
            "requests   {} reads ({}), {} writes ({}), {} flushes, {} discards, {} write-zeroes",
            requests.reads,
            Size(requests.read_bytes),
            requests.writes,
            Size(requests.written_bytes),
            requests.flushes,
            requests.discards,
            requests.write_zeroes
        )?;
        writeln!(
            to,
            "reads      {} hits, {} misses; by block {} hits, {} misses",
            requests.hits, requests.misses, requests.hit_blocks, requests.miss_blocks
        )?;
        writeln!(
            to,
            "beside     {} blocks read, {} of them asked for later, {} taken to warm up",
            requests.beside_blocks, requests.beside_hit_blocks, requests.warm_up_blocks
        )?;
        writeln!(
            to,
            "ahead      {} blocks read, {} of them asked for",
            requests.ahead_blocks, requests.ahead_hit_blocks
        )?;
        writeln!(
            to,
            "blocks     {} filled, {} fills dropped, {} destaged, {} relocated, {} corrupt but clean",
            requests.fill_blocks,
            requests.fill_dropped_blocks,
            requests.destaged_blocks,
            requests.relocated_blocks,
            requests.corrupt_clean_blocks
        )?;
        writeln!(
            to,
            "bypassed   blocks read: {}; written: {}",
            Reasons(&requests.bypasses.reads),
            Reasons(&requests.bypasses.writes)
        )?;
        writeln!(
            to,
            "origin     {} read, {} written, {} flushes",
            Size(self.origin.read_bytes),
            Size(self.origin.written_bytes),
            self.origin.flushes
        )?;
        if self.held_back.requests > 0 {
            let HeldBackStats { requests, seconds } = self.held_back;
            let mean_ms = seconds * 1e3 / requests as f64;
            writeln!(to, "limits     {requests} requests held back, for {mean_ms:.1} ms on average")?;
        }
        let kinds =
            [("read", &self.latency.read), ("write", &self.latency.write), ("flush", &self.latency.flush)];
        for (name, latency) in kinds.into_iter().filter(|(_, latency)| latency.count > 0) {
            writeln!(
                to,
                "latency    {name}: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us",
                latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us
            )?;
        }
        Ok(())
    }
}
