//! Measurements of a test, before tables give them names.

use super::watch::JobCount;
use crate::long::{Answers, Traffic};
use crate::workload::iozone;

/// The percentiles that tables have.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// fio's buckets of latencies: their upper ends in microseconds, and their names.
const BUCKETS: [(u64, &str); 12] = [
    (100, "100us"),
    (250, "250us"),
    (500, "500us"),
    (750, "750us"),
    (1000, "1000us"),
    (2000, "2ms"),
    (4000, "4ms"),
    (10_000, "10ms"),
    (20_000, "20ms"),
    (50_000, "50ms"),
    (100_000, "100ms"),
    (250_000, "250ms"),
];

/// Requests of one kind, and how long they took.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Their number.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    pub(super) mean_ns: f64,
    stdev_ns: f64,
    min_ns: u64,
    max_ns: u64,
    percentiles_ns: [u64; PERCENTILES.len()],
    /// The number of requests not slower than the end of each bucket.
    buckets: [u64; BUCKETS.len()],
}

impl Latencies {
    pub(super) fn of(answers: &Answers) -> Latencies {
        let all = &answers.latency_ns;
        Latencies {
            count: answers.count,
            bytes: answers.bytes,
            mean_ns: all.mean(),
            stdev_ns: all.stdev(),
            min_ns: all.min(),
            max_ns: all.max(),
            percentiles_ns: PERCENTILES.map(|percent| all.value_at_quantile(percent / 100.0)),
            buckets: BUCKETS.map(|(us, _)| all.count_between(0, us * 1000)),
        }
    }

    pub(super) fn value(&self, of: &str) -> Option<f64> {
        Some(match of {
            "min" => self.min_ns as f64,
            "max" => self.max_ns as f64,
            "avg" => self.mean_ns,
            "stdev" => self.stdev_ns,
            _ => {
                let percent: f64 = of.strip_prefix('p')?.parse().ok()?;
                let at = PERCENTILES.iter().position(|known| *known == percent)?;
                self.percentiles_ns[at] as f64
            }
        })
    }

    /// The share of a bucket, in percent.
    pub(super) fn share(&self, name: &str) -> Option<f64> {
        let at = BUCKETS.iter().position(|(_, known)| *known == name)?;
        let below = if at == 0 { 0 } else { self.buckets[at - 1] };
        (self.count > 0).then(|| (self.buckets[at] - below) as f64 * 100.0 / self.count as f64)
    }
}

/// Measurements of one repetition of a test.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The test.
    pub test: String,
    /// Which repetition; empty if there is one.
    pub iteration: String,
    /// Jobs beside each other.
    pub numjobs: String,
    /// From the first request to the last answer.
    pub elapsed_ns: u64,
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// To and from the cache device.
    pub cache: Traffic,
    /// To and from the origin.
    pub origin: Traffic,
    /// Dirty data at the end.
    pub dirty_bytes: u64,
    pub(super) jobs: Vec<JobCount>,
    /// iozone's figures of its processes.
    pub(super) processes: Option<iozone::Outcome>,
}
