//! Latencies of clients' requests, as histograms.

use super::histogram::Histogram;
use super::pieces::Kind;

/// A summary of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Requests answered.
    pub count: u64,
    /// Half of them took at most this long, in nanoseconds.
    pub p50_ns: u64,
    /// 99 % of them took at most this long.
    pub p99_ns: u64,
    /// 99.9 % of them took at most this long.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

/// Summaries of the latencies of a volume's clients, from a request's arrival to its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Reads.
    pub read: Latency,
    /// Writes.
    pub write: Latency,
    /// Flushes.
    pub flush: Latency,
}

/// Upper bounds of the steps of [`Steps`], in nanoseconds.
pub const STEPS_NS: [u64; 16] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    2_500_000_000,
    30_000_000_000,
];

/// A histogram in few steps: how many requests took at most as long as each bound of [`STEPS_NS`], and longer than
/// the one before. Times near a bound may count on its other side: they are known to one part in a hundred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Requests by step.
    pub counts: [u64; STEPS_NS.len()],
    /// Requests that took longer than the last bound.
    pub beyond: u64,
    /// The sum of all times, as far as they are known.
    pub sum_ns: u64,
}

impl Steps {
    fn new(histogram: &Histogram) -> Steps {
        let mut steps = Steps::default();
        for (waited_ns, count) in histogram.recorded() {
            match STEPS_NS.iter().position(|bound_ns| waited_ns <= *bound_ns) {
                Some(at) => steps.counts[at] += count,
                None => steps.beyond += count,
            }
            steps.sum_ns = steps.sum_ns.saturating_add(waited_ns.saturating_mul(count));
        }
        steps
    }

    /// All requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.beyond
    }
}

/// The histograms of one volume, by kind of request.
#[derive(Clone)]
pub struct Histograms([Histogram; Kind::ALL.len()]);

impl Histograms {
    pub(crate) fn new() -> Histograms {
        Histograms(Kind::ALL.map(|_| Histogram::new()))
    }

    /// A request of this kind was answered after so long.
    #[inline]
    pub(crate) fn record(&mut self, kind: Kind, waited_ns: u64) {
        self.0[kind as usize].record(waited_ns);
    }

    fn of(&self, kind: Kind) -> &Histogram {
        &self.0[kind as usize]
    }

    /// Summaries of reads, writes and flushes.
    #[must_use]
    pub fn summary(&self) -> Latencies {
        let [read, write, flush] = [Kind::Read, Kind::Write, Kind::Flush].map(|kind| summary(self.of(kind)));
        Latencies { read, write, flush }
    }

    /// The histograms in few steps, each with its kind of request.
    #[must_use]
    pub fn steps(&self) -> [(&'static str, Steps); Kind::ALL.len()] {
        Kind::ALL.map(|kind| {
            let name = match kind {
                Kind::Read => "read",
                Kind::Write => "write",
                Kind::Flush => "flush",
                Kind::Trim => "discard",
                Kind::WriteZeroes => "write_zeroes",
            };
            (name, Steps::new(self.of(kind)))
        })
    }
}

/// The summary of a histogram.
pub(crate) fn summary(histogram: &Histogram) -> Latency {
    let [p50_ns, p99_ns, p999_ns] = [500, 990, 999].map(|permille| histogram.quantile_ns(permille));
    Latency { count: histogram.count(), p50_ns, p99_ns, p999_ns, max_ns: histogram.max_ns() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_follow_the_samples() {
        let mut histograms = Histograms::new();
        for sample in 1..=1000 {
            histograms.record(Kind::Read, sample * 1000);
        }
        let read = histograms.summary().read;
        assert_eq!(read.count, 1000);
        assert!((495_000..=505_000).contains(&read.p50_ns));
        assert!((985_000..=1_000_000).contains(&read.p99_ns));
        assert!(read.max_ns >= 1_000_000);
        assert_eq!(histograms.summary().flush, Latency::default());
    }

    #[test]
    fn steps_count_every_sample_once() {
        let mut histograms = Histograms::new();
        for waited_ns in [1, 9_000, 11_000, 700_000, 40_000_000_000] {
            histograms.record(Kind::Read, waited_ns);
        }
        let [(_, read), .., (_, none)] = histograms.steps();
        assert_eq!((read.counts[0], read.counts[1], read.counts[6], read.beyond), (2, 1, 1, 1));
        assert_eq!(read.count(), 5);
        let exact_ns = 40_000_720_001_f64;
        assert!((read.sum_ns as f64 / exact_ns - 1.0).abs() < 0.01, "{}", read.sum_ns);
        assert_eq!(none, Steps::default());
    }
}
