//! One size and one policy, and why.

use super::advice::{Advice, Point};

/// A cache that has so much of the hits that any size would have is large enough. By taste: behind that the
/// curves are flat.
const ENOUGH: f64 = 0.9;
/// A load of which no cache would serve more than this has nothing to cache. By taste.
const NOTHING: f64 = 0.05;

/// Size and policy that follow from the curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recommendation {
    /// Nothing is accessed twice.
    NoCache {
        /// The hit ratio of a cache without end.
        hit_ratio_max: f64,
    },
    /// None of the sizes that were looked at is large enough.
    LargerCache {
        /// The largest size that was looked at, and the best policy there.
        size_bytes: u64,
        /// Its policy.
        policy: &'static str,
        /// Its point on the policy's curve.
        point: Point,
        /// The hit ratio of a cache without end.
        hit_ratio_max: f64,
    },
    /// The smallest cache that is good enough.
    Cache {
        /// Its size.
        size_bytes: u64,
        /// Its policy.
        policy: &'static str,
        /// Its point on the policy's curve.
        point: Point,
        /// The hit ratio of a cache without end.
        hit_ratio_max: f64,
        /// By how much the hit ratio would be higher with twice the size; `None` if that was not looked at.
        doubled_gain: Option<f64>,
    },
}

impl Advice {
    /// The size and the policy to choose.
    #[must_use]
    pub fn recommendation(&self) -> Recommendation {
        Recommendation::of(self)
    }
}

impl Recommendation {
    fn of(advice: &Advice) -> Recommendation {
        let hit_ratio_max = advice.hit_ratio_max;
        let Some(largest) = advice.sizes_bytes.len().checked_sub(1).filter(|_| hit_ratio_max >= NOTHING)
        else {
            return Recommendation::NoCache { hit_ratio_max };
        };
        let is_enough = |size: &usize| advice.best(*size).1.hit_ratio >= hit_ratio_max * ENOUGH;
        let size = (0..advice.sizes_bytes.len()).find(is_enough);
        let Some(size) = size else {
            let (policy, point) = advice.best(largest);
            let size_bytes = advice.sizes_bytes[largest];
            return Recommendation::LargerCache { size_bytes, policy, point, hit_ratio_max };
        };
        let (policy, point) = advice.best(size);
        let size_bytes = advice.sizes_bytes[size];
        let doubled = advice.sizes_bytes.iter().position(|&bytes| bytes == size_bytes * 2);
        let doubled_gain =
            doubled.map(|doubled| (advice.best(doubled).1.hit_ratio - point.hit_ratio).max(0.0));
        Recommendation::Cache { size_bytes, policy, point, hit_ratio_max, doubled_gain }
    }
}
