//! A histogram of times, to two decimal digits. To record is a few instructions: every request pays for it.
//!
//! Times below [`EXACT_NS`] have a bucket each. Above, each power of two is divided into the same number of buckets, so
//! that a bucket is never wider than one part in 128 of what it holds.

use engine::units::Nanos;

/// The longest time that is told apart: an hour.
const LONGEST_NS: u64 = 3600 * Nanos::SECOND;
/// Binary digits that are exact.
const DIGITS: u32 = 8;
/// Times below this are exact.
const EXACT_NS: u64 = 1 << DIGITS;
/// Buckets: one for each time up to the longest that is told apart.
const BUCKETS: usize = bucket(LONGEST_NS) + 1;

/// The bucket of a time.
const fn bucket(time_ns: u64) -> usize {
    // Binary digits that are left out. Each one more is half of an exact range further on.
    let shift = (time_ns | (EXACT_NS - 1)).ilog2() + 1 - DIGITS;
    (shift as usize) * (EXACT_NS as usize / 2) + (time_ns >> shift) as usize
}

/// The longest time in a bucket.
fn longest_ns(bucket: usize) -> u64 {
    let half = EXACT_NS / 2;
    let bucket = bucket as u64;
    if bucket < EXACT_NS {
        return bucket;
    }
    let shift = bucket / half - 1;
    ((bucket - shift * half + 1) << shift) - 1
}

/// How often which times were recorded.
#[derive(Clone)]
pub(crate) struct Histogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        let counts = vec![0; BUCKETS].into_boxed_slice().try_into().expect("so many were made");
        Histogram { counts }
    }

    /// Records a time. What is longer than an hour counts as an hour.
    #[inline]
    pub(crate) fn record(&mut self, time_ns: u64) {
        self.counts[bucket(time_ns.min(LONGEST_NS))] += 1;
    }

    /// Times recorded.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest time of those recorded, to two digits like all others; 0 if there are none.
    pub(crate) fn max_ns(&self) -> u64 {
        self.counts.iter().rposition(|count| *count > 0).map_or(0, longest_ns)
    }

    /// So long, or shorter, was this part of the times, in thousandths; 0 if there are none.
    pub(crate) fn quantile_ns(&self, permille: u64) -> u64 {
        let wanted = (u128::from(self.count()) * u128::from(permille)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (time_ns, count) in self.recorded() {
            seen += u128::from(count);
            if seen >= wanted {
                return time_ns;
            }
        }
        0
    }

    /// Times and how often each was recorded, ascending; a time stands for its bucket.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (longest_ns(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_the_bucket_that_says_it_to_two_digits() {
        let mut last = 0;
        let powers = (0..42).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + 1]);
        let steps = (0..4000_u64).map(|step| step * step * step * 56);
        let mut times: Vec<u64> = (0..5000).chain(powers).chain(steps).chain([LONGEST_NS]).collect();
        times.sort_unstable();
        for time_ns in times.into_iter().filter(|time_ns| *time_ns <= LONGEST_NS) {
            let bucket = bucket(time_ns);
            assert!(bucket < BUCKETS && bucket >= last, "{time_ns}: {bucket} after {last}");
            last = bucket;
            let longest_ns = longest_ns(bucket);
            assert!(
                longest_ns >= time_ns && longest_ns - time_ns <= time_ns / 128,
                "{time_ns}: {longest_ns}"
            );
            assert_eq!(super::bucket(longest_ns), bucket);
            assert_eq!(super::bucket(longest_ns + 1), bucket + 1);
        }
    }

    #[test]
    fn quantiles_are_of_what_was_recorded() {
        let mut histogram = Histogram::new();
        assert_eq!((histogram.quantile_ns(999), histogram.count(), histogram.max_ns()), (0, 0, 0));
        for time_ns in [5, 7, 7, 200] {
            histogram.record(time_ns);
        }
        assert_eq!(
            [0, 250, 251, 750, 751, 1000].map(|permille| histogram.quantile_ns(permille)),
            [5, 5, 7, 7, 200, 200]
        );
        assert_eq!(histogram.recorded().collect::<Vec<_>>(), [(5, 1), (7, 2), (200, 1)]);
        histogram.record(u64::MAX);
        let longest_ns = histogram.max_ns();
        assert!((LONGEST_NS..LONGEST_NS / 100 * 101).contains(&longest_ns), "{longest_ns}");
        assert_eq!((histogram.quantile_ns(1000), histogram.count()), (longest_ns, 5));
    }
}
