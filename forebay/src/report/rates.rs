//! Rates: what a volume did from one look at a daemon to the next. `forebay top` and the web page show the same.

use super::{DurationStats, StatusReport, VolumeStats};
use engine::units::BLOCK_BYTES;
use live::server::STEPS_NS;
use std::time::Duration;

/// Requests by step of [`STEPS_NS`]; the last step has no bound.
pub type Steps = [u64; STEPS_NS.len() + 1];

/// Counts of a volume since the start, and its present bytes, at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub hit_blocks: u64,
    pub miss_blocks: u64,
    pub destaged_blocks: u64,
    pub dirty_bytes: u64,
    pub cached_bytes: u64,
    pub read_steps: Steps,
    pub write_steps: Steps,
}

/// Rates of a volume, in a second each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub reads: f64,
    pub writes: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// The part of the blocks read that the cache had; `None` if nothing was read.
    pub hit_ratio: Option<f64>,
    pub destaged_bytes: f64,
    /// Requests in all, by their time.
    pub read_steps: Steps,
    pub write_steps: Steps,
}

impl Tally {
    /// The tally of a volume.
    #[must_use]
    pub fn of(stats: &VolumeStats, status: &StatusReport) -> Tally {
        let report = status.volumes.iter().find(|report| report.name == stats.name);
        let requests = &stats.requests;
        Tally {
            reads: requests.reads,
            writes: requests.writes,
            read_bytes: requests.read_bytes,
            written_bytes: requests.written_bytes,
            hit_blocks: requests.hit_blocks,
            miss_blocks: requests.miss_blocks,
            destaged_blocks: requests.destaged_blocks,
            dirty_bytes: report.map_or(0, |report| report.dirty_bytes),
            cached_bytes: report.map_or(0, |report| report.cached_bytes),
            read_steps: steps(&stats.durations, "read"),
            write_steps: steps(&stats.durations, "write"),
        }
    }

    /// The sum of this and another volume's.
    #[must_use]
    pub fn plus(&self, other: &Tally) -> Tally {
        let sum = |one: Steps, other: Steps| std::array::from_fn(|at| one[at] + other[at]);
        Tally {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            hit_blocks: self.hit_blocks + other.hit_blocks,
            miss_blocks: self.miss_blocks + other.miss_blocks,
            destaged_blocks: self.destaged_blocks + other.destaged_blocks,
            dirty_bytes: self.dirty_bytes + other.dirty_bytes,
            cached_bytes: self.cached_bytes + other.cached_bytes,
            read_steps: sum(self.read_steps, other.read_steps),
            write_steps: sum(self.write_steps, other.write_steps),
        }
    }

    /// The rates since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Tally, seconds: f64) -> Rates {
        let rate = |now, before| per_second(now, before, seconds);
        let more = |now: Steps, before: Steps| std::array::from_fn(|at| now[at].saturating_sub(before[at]));
        let hits = self.hit_blocks.saturating_sub(before.hit_blocks);
        let misses = self.miss_blocks.saturating_sub(before.miss_blocks);
        Rates {
            reads: rate(self.reads, before.reads),
            writes: rate(self.writes, before.writes),
            read_bytes: rate(self.read_bytes, before.read_bytes),
            written_bytes: rate(self.written_bytes, before.written_bytes),
            hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
            destaged_bytes: rate(self.destaged_blocks, before.destaged_blocks) * BLOCK_BYTES as f64,
            read_steps: more(self.read_steps, before.read_steps),
            write_steps: more(self.write_steps, before.write_steps),
        }
    }
}

/// The growth of a count in a second.
#[must_use]
pub fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

fn steps(durations: &[DurationStats], operation: &str) -> Steps {
    let found = durations.iter().find(|durations| durations.operation == operation);
    let counts = found.map_or(&[][..], |durations| &durations.counts);
    std::array::from_fn(|at| counts.get(at).copied().unwrap_or(0))
}

/// The step that holds the request behind which `permille` of all are no slower, and how many requests of the step are
/// before it. `None` without requests.
fn step_of(steps: &Steps, permille: u64) -> Option<(usize, u64)> {
    let count: u64 = steps.iter().sum();
    let rank = (count * permille).div_ceil(1000).max(1);
    let mut before = 0;
    for (at, step) in steps.iter().enumerate() {
        if before + step >= rank && count > 0 {
            return Some((at, rank - before));
        }
        before += step;
    }
    None
}

/// The bound of the step in which that request is.
#[must_use]
pub fn bound(steps: &Steps, permille: u64) -> Option<Duration> {
    let (at, _) = step_of(steps, permille)?;
    STEPS_NS.get(at).or(STEPS_NS.last()).map(|bound_ns| Duration::from_nanos(*bound_ns))
}

/// About the time of that request: as if the requests of a step lay evenly in it.
#[must_use]
pub fn estimate(steps: &Steps, permille: u64) -> Option<Duration> {
    let (at, rank) = step_of(steps, permille)?;
    let (Some(to_ns), Some(count)) = (STEPS_NS.get(at), steps.get(at)) else { return bound(steps, permille) };
    let from_ns = at.checked_sub(1).map_or(0, |before| STEPS_NS[before]);
    let part = rank as f64 / *count as f64;
    Some(Duration::from_nanos(from_ns) + Duration::from_nanos(to_ns - from_ns).mul_f64(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_in_its_step() {
        let mut steps = Steps::default();
        assert_eq!((bound(&steps, 990), estimate(&steps, 500)), (None, None));
        steps[3] = 99;
        steps[6] = 1;
        assert_eq!(bound(&steps, 990), Some(Duration::from_micros(100)));
        assert_eq!(bound(&steps, 999), Some(Duration::from_millis(1)));
        // The 50th of 99 requests between 50 and 100 us.
        let median = estimate(&steps, 500).expect("there are requests").as_secs_f64() * 1e6;
        assert!((median - 75.25).abs() < 0.1, "{median}");
        steps[16] = 1000;
        assert_eq!(estimate(&steps, 990), Some(Duration::from_secs(30)), "beyond the last bound");
    }

    #[test]
    fn rates_are_the_growth_of_a_tally() {
        let before =
            Tally { reads: 10, hit_blocks: 5, miss_blocks: 5, destaged_blocks: 1, ..Tally::default() };
        let now = Tally { reads: 30, hit_blocks: 20, miss_blocks: 10, destaged_blocks: 3, ..before };
        let rates = now.since(&before, 2.0);
        assert_eq!((rates.reads, rates.hit_ratio, rates.destaged_bytes), (10.0, Some(0.75), 4096.0));
        assert_eq!(now.since(&now, 1.0).hit_ratio, None);
        assert_eq!(before.plus(&now).reads, 40);
    }
}
