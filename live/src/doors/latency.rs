//! Latencies of clients' requests, as histograms.

use engine::units::Nanos;
use hdrhistogram::Histogram;

/// The longest latency that is told apart: an hour.
const LATENCY_NS_MAX: u64 = 3600 * Nanos::SECOND;
/// Decimal digits that are exact.
const DIGITS: u8 = 2;

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

/// The histograms of one volume.
pub(crate) struct Histograms {
    pub read: Histogram<u64>,
    pub write: Histogram<u64>,
    pub flush: Histogram<u64>,
}

impl Histograms {
    pub(crate) fn new() -> Histograms {
        let histogram = || Histogram::new_with_max(LATENCY_NS_MAX, DIGITS).expect("the bounds are valid");
        Histograms { read: histogram(), write: histogram(), flush: histogram() }
    }

    pub(crate) fn summary(&self) -> Latencies {
        Latencies { read: summary(&self.read), write: summary(&self.write), flush: summary(&self.flush) }
    }
}

fn summary(histogram: &Histogram<u64>) -> Latency {
    Latency {
        count: histogram.len(),
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        p999_ns: histogram.value_at_quantile(0.999),
        max_ns: histogram.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_follow_the_samples() {
        let mut histograms = Histograms::new();
        for sample in 1..=1000 {
            histograms.read.saturating_record(sample * 1000);
        }
        let read = histograms.summary().read;
        assert_eq!(read.count, 1000);
        assert!((495_000..=505_000).contains(&read.p50_ns));
        assert!((985_000..=1_000_000).contains(&read.p99_ns));
        assert!(read.max_ns >= 1_000_000);
        assert_eq!(histograms.summary().flush, Latency::default());
    }
}
