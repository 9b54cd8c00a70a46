//! The outcome of a replay, in virtual time.

use super::plan::Plan;
use crate::long::{Answers, Statistics};
use engine::status::{Bypasses, Status};
use engine::units::{BLOCK_BYTES, Nanos};

/// Latencies of one kind of requests, from the time they came to their answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Latency {
    fn of(answers: &Answers) -> Option<Latency> {
        let at = |quantile| answers.latency_ns.value_at_quantile(quantile);
        (answers.count > 0).then(|| Latency {
            count: answers.count,
            mean_ns: answers.latency_ns.mean() as u64,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: answers.latency_ns.max(),
        })
    }
}

/// Bytes to and from a device until the last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Read.
    pub read_bytes: u64,
    /// Written.
    pub written_bytes: u64,
}

/// Dirty data that wait for write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The mean over the time of the trace.
    pub mean_bytes: u64,
    /// The most.
    pub max_bytes: u64,
    /// Bytes left at the last answer.
    pub at_end_bytes: u64,
    /// How long it took from there until nothing was dirty, to a twentieth of a second; `None` if more than an hour.
    pub drain_ns: Option<u64>,
    /// Bytes written to the origin meanwhile.
    pub drain_origin_written_bytes: u64,
}

/// Outcome of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The cache device's size.
    pub cache_bytes: u64,
    /// The origin's size.
    pub origin_bytes: u64,
    /// From the first request to the last answer.
    pub elapsed_ns: u64,
    /// Requests.
    pub requests: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Bytes that clients wrote.
    pub client_written_bytes: u64,
    /// Blocks read that the cache had.
    pub hit_blocks: u64,
    /// Blocks read that it had not.
    pub miss_blocks: u64,
    /// Reads of which the cache had all.
    pub hits: u64,
    /// Reads that needed the origin.
    pub misses: u64,
    /// Reads; `None` if there were none.
    pub reads: Option<Latency>,
    /// Writes; `None` if there were none.
    pub writes: Option<Latency>,
    /// Flushes; `None` if there were none.
    pub flushes: Option<Latency>,
    /// The cache device.
    pub cache: Moved,
    /// The origin.
    pub origin: Moved,
    /// Bytes that clients wrote into the cache or that were filled.
    pub entered_bytes: u64,
    /// Blocks read that the cache had not and that did not enter it.
    pub read_bypasses: Bypasses,
    /// Blocks written to the origin alone.
    pub write_bypasses: Bypasses,
    /// Bytes of the volume that the cache held at the last answer.
    pub cached_end_bytes: u64,
    /// Dirty data that wait for write-back.
    pub backlog: Backlog,
}

impl Outcome {
    pub(super) fn new(
        plan: &Plan<'_>,
        origin_bytes: u64,
        statistics: &Statistics,
        before: &Status,
        after: &Status,
        backlog: Backlog,
    ) -> Outcome {
        let cached_end_bytes = after.volumes[0].cached_bytes;
        let (before, after) = (&before.volumes[0].counters, &after.volumes[0].counters);
        let write_bypasses = after.write_bypasses.since(&before.write_bypasses);
        let filled_blocks = after.fill_blocks - before.fill_blocks;
        let origin = statistics.origins[0];
        let answers = [&statistics.reads, &statistics.writes, &statistics.flushes, &statistics.trims];
        Outcome {
            cache_bytes: plan.cache_bytes,
            origin_bytes,
            elapsed_ns: statistics.elapsed_ns(),
            requests: statistics.answers(),
            errors: answers.iter().map(|answers| answers.errors).sum(),
            client_written_bytes: statistics.writes.bytes,
            hit_blocks: after.hit_blocks - before.hit_blocks,
            miss_blocks: after.miss_blocks - before.miss_blocks,
            hits: after.hits - before.hits,
            misses: after.misses - before.misses,
            reads: Latency::of(&statistics.reads),
            writes: Latency::of(&statistics.writes),
            flushes: Latency::of(&statistics.flushes),
            cache: Moved {
                read_bytes: statistics.cache.read_bytes,
                written_bytes: statistics.cache.written_bytes,
            },
            origin: Moved { read_bytes: origin.read_bytes, written_bytes: origin.written_bytes },
            entered_bytes: statistics.writes.bytes.saturating_sub(write_bypasses.blocks() * BLOCK_BYTES)
                + filled_blocks * BLOCK_BYTES,
            read_bypasses: after.read_bypasses.since(&before.read_bypasses),
            write_bypasses,
            cached_end_bytes,
            backlog,
        }
    }

    /// The share of blocks read that the cache had; `None` if nothing was read.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hit_blocks, self.hit_blocks + self.miss_blocks)
    }

    /// The mean latency of reads and writes; `None` if there were none.
    #[must_use]
    pub fn mean_latency_ns(&self) -> Option<u64> {
        let kinds = || [&self.reads, &self.writes].into_iter().flatten();
        let count: u128 = kinds().map(|latency| u128::from(latency.count)).sum();
        let sum_ns: u128 =
            kinds().map(|latency| u128::from(latency.count) * u128::from(latency.mean_ns)).sum();
        sum_ns.checked_div(count).and_then(|mean_ns| u64::try_from(mean_ns).ok())
    }

    /// Bytes that the cache device wrote for each byte that entered the cache: headers, old parts of
    /// blocks, what was appended again. `None` if nothing entered.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.cache.written_bytes, self.entered_bytes)
    }

    /// Bytes written to the origin, after the trace too, for each byte that clients wrote; less than 1 where
    /// data were written again before they went home. `None` if clients wrote nothing.
    #[must_use]
    pub fn homecoming_ratio(&self) -> Option<f64> {
        let home_bytes = self.origin.written_bytes + self.backlog.drain_origin_written_bytes;
        ratio(home_bytes, self.client_written_bytes)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Dirty bytes over time: each look counts for the time since the one before.
pub(super) struct Dirt {
    began: Nanos,
    at: Nanos,
    bytes: u64,
    byte_ns: u128,
    max_bytes: u64,
}

impl Dirt {
    pub(super) fn new(now: Nanos) -> Dirt {
        Dirt { began: now, at: now, bytes: 0, byte_ns: 0, max_bytes: 0 }
    }

    pub(super) fn look(&mut self, now: Nanos, dirty_bytes: u64) {
        self.byte_ns += u128::from(self.bytes) * u128::from(now.since(self.at));
        (self.at, self.bytes) = (now, dirty_bytes);
        self.max_bytes = self.max_bytes.max(dirty_bytes);
    }

    pub(super) fn mean_bytes(&self) -> u64 {
        let mean = self.byte_ns.checked_div(u128::from(self.at.since(self.began))).unwrap_or(0);
        u64::try_from(mean).unwrap_or(u64::MAX)
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    pub(super) fn left_bytes(&self) -> u64 {
        self.bytes
    }
}
