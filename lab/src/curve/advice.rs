//! The curves of a trace, as they were found.

use super::Counts;
use super::policy::{Compared, POLICIES};
use super::service::Service;
use engine::units::Nanos;

/// A cache of one size with one policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The share of all accesses that are hits.
    pub hit_ratio: f64,
    /// The share of the reads that are; `None` if there are none.
    pub read_hit_ratio: Option<f64>,
    /// The mean time of an access, one at a time: hits and all writes take the cache's, reads that miss the
    /// origin's.
    pub latency_ns: u64,
    /// Bytes written to the cache: all writes, and the misses of reads.
    pub written_bytes: u64,
}

/// A policy over all sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The policy's name.
    pub policy: &'static str,
    /// A point for each of [`Advice::sizes_bytes`]; `None` where the sample is too small to tell.
    pub points: Vec<Option<Point>>,
}

/// By how much LRU's curve from the sample differs from the exact one, over all sizes where it has points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleError {
    /// The mean of the differences of hit ratios.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

/// Curves of a trace over cache sizes, for each policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Accesses to blocks.
    pub accesses: Counts,
    /// Distinct blocks, in bytes.
    pub footprint_bytes: u64,
    /// From the first request to the last; `None` without times.
    pub span_ns: Option<u64>,
    /// The share of the blocks that is in the sample; 1 if it is the whole trace.
    pub sample_rate: f64,
    /// Blocks in the sample.
    pub sample_blocks: u32,
    /// Error that the sample brings.
    pub sample_error: SampleError,
    /// The hit ratio of a cache without end.
    pub hit_ratio_max: f64,
    /// Times of single accesses.
    pub service: Service,
    /// The sizes that were looked at, ascending.
    pub sizes_bytes: Vec<u64>,
    /// A curve for each policy; the first is LRU's, which is exact.
    pub curves: Vec<Curve>,
}

impl Advice {
    /// The policy with the highest hit ratio at a size of those that profiles can name, and its point. LRU, unless
    /// another one is better by more than the sample may be wrong.
    #[must_use]
    pub fn best(&self, size: usize) -> (&'static str, Point) {
        let can_be_named = |name: &str| {
            POLICIES.iter().any(|&(policy, compared)| policy == name && compared != Compared::Ring)
        };
        let curves = self.curves.iter().filter(|curve| can_be_named(curve.policy));
        let points = curves.filter_map(|curve| Some((curve.policy, curve.points[size]?)));
        let mut best: Option<(&'static str, Point)> = None;
        for (policy, point) in points {
            let least = best.map_or(-1.0, |(_, best)| best.hit_ratio);
            let doubt =
                if best.is_some_and(|(best, _)| best == POLICIES[0].0) { self.sample_error.max } else { 0.0 };
            if point.hit_ratio > least + doubt {
                best = Some((policy, point));
            }
        }
        best.expect("LRU has a point at each size")
    }

    /// Bytes written to the cache in a day of such a load; `None` without times.
    #[must_use]
    pub fn per_day_bytes(&self, written_bytes: u64) -> Option<u64> {
        let span_ns = self.span_ns.filter(|&ns| ns > 0)?;
        let bytes = u128::from(written_bytes) * u128::from(86_400 * Nanos::SECOND) / u128::from(span_ns);
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
