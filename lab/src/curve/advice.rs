//! The curves of a trace, and what follows from them.

use super::Counts;
use super::exact::LruHits;
use super::policy::{POLICIES, simulate};
use super::recommend::Recommendation;
use super::sample::Sample;
use super::service::Service;
use crate::trace::{Layout, LayoutError, Op, Source, Survey, TraceError};
use engine::policies::replacement::Access;
use engine::units::{BLOCK_BYTES, Nanos};
use models::Parameters;

/// Sizes on a curve: ten octaves, two to each.
const SIZES: u32 = 20;
/// The smallest size that is looked at, in blocks.
const SIZE_BLOCKS_MIN: u64 = 16;
/// Where a trace has no times, so much passes between two accesses; only smq looks at it. By taste: a thousand
/// accesses a second.
const UNTIMED_GAP_NS: u64 = Nanos::MILLISECOND;
/// The origin where the trace's addresses are none.
const ORIGIN_BYTES_DEFAULT: u64 = 1 << 40;

/// What advice is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Blocks in the sample, about.
    pub sample_blocks: u32,
    /// The cache device.
    pub cache: &'a Parameters,
    /// The origin.
    pub origin: &'a Parameters,
}

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
    /// Bytes written to the cache: all that is written, and what reads miss.
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

/// What a trace says of caches.
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
    /// What the sample costs in exactness.
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

/// Looks for advice in a trace that was surveyed before. `on_progress` gets steps done and all steps.
///
/// # Errors
/// [`TraceError`].
pub fn advise(
    options: &Options<'_>,
    survey: &Survey,
    source: &mut dyn Source,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<Advice, TraceError> {
    let blocks = survey.footprint_blocks;
    let mut exact = LruHits::default();
    let mut sampled = LruHits::default();
    let mut sample = Sample::new(options.sample_blocks, blocks);
    let sizes = sizes(blocks);
    // Reading is about as much work as the simulation of one policy.
    let steps = (POLICIES.len() * sizes.len()) as u64;
    let (mut requests, reading_steps) = (0, sizes.len() as u64);
    let (mut first_ns, mut now) = (None, Nanos(0));
    while let Some(entry) = source.next_entry()? {
        requests += 1;
        if requests % (1 << 14) == 0 {
            on_progress(reading_steps * requests / survey.requests().max(requests), steps + reading_steps);
        }
        let access = match entry.op {
            Op::Read => Access::Read,
            Op::Write => Access::Write,
            Op::Discard => continue,
        };
        if let Some(at_ns) = entry.at_ns {
            // A request that is late comes with the one before it.
            now = now.max(Nanos(at_ns.saturating_sub(*first_ns.get_or_insert(at_ns))));
        }
        for block in entry.range.first_block()..entry.range.end_block() {
            if entry.at_ns.is_none() {
                now = now.plus(UNTIMED_GAP_NS);
            }
            let block = (entry.volume, block);
            exact.access(block, access);
            if sample.access(block, access, now) {
                sampled.access(block, access);
            }
        }
    }
    let accesses = exact.accesses();
    let footprint_bytes = blocks * BLOCK_BYTES;
    let origin_bytes = match Layout::new(survey) {
        Ok(layout) => layout.origin_bytes(),
        Err(LayoutError::TooLarge | LayoutError::Empty) => ORIGIN_BYTES_DEFAULT,
    };
    let cache_bytes = footprint_bytes.max(1 << 30);
    let service = Service::measure(options.cache, cache_bytes, options.origin, origin_bytes);
    let shares = Shares { sample: &sample, accesses, service };
    let mut curves = Vec::new();
    for (at, (policy, choice)) in POLICIES.iter().enumerate() {
        let mut points = Vec::new();
        for (step, &blocks) in sizes.iter().enumerate() {
            on_progress(reading_steps + (at * sizes.len() + step) as u64, steps + reading_steps);
            points.push(if at == 0 {
                Some(shares.exact(exact.hits(blocks)))
            } else {
                simulate(choice, &sample, blocks).map(|hits| shares.sampled(hits))
            });
        }
        curves.push(Curve { policy, points });
    }
    Ok(Advice {
        accesses,
        footprint_bytes,
        span_ns: survey.span_ns,
        sample_rate: sample.rate(),
        sample_blocks: sample.pieces(),
        sample_error: shares.error(&sizes, &exact, &sampled),
        hit_ratio_max: shares.exact(exact.hits(u64::MAX)).hit_ratio,
        service,
        sizes_bytes: sizes.iter().map(|blocks| blocks * BLOCK_BYTES).collect(),
        curves,
    })
}

/// Powers of two and what lies half-way between them, ascending, the last one enough for all `blocks`.
fn sizes(blocks: u64) -> Vec<u64> {
    let top = blocks.max(SIZE_BLOCKS_MIN).next_power_of_two();
    let mut sizes: Vec<u64> = (0..SIZES)
        .map(|step| (top >> (step / 2)) / 4 * if step % 2 == 0 { 4 } else { 3 })
        .take_while(|&size| size >= SIZE_BLOCKS_MIN)
        .collect();
    sizes.reverse();
    sizes
}

/// From hits to points.
struct Shares<'a> {
    sample: &'a Sample,
    accesses: Counts,
    service: Service,
}

impl Shares<'_> {
    fn exact(&self, hits: Counts) -> Point {
        let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
        let hit_ratio = share(hits.all(), self.accesses.all()).unwrap_or(0.0);
        self.point(hit_ratio, share(hits.reads, self.accesses.reads))
    }

    fn sampled(&self, hits: Counts) -> Point {
        let Shares { sample, accesses, .. } = self;
        let hit_ratio = sample.ratio(hits.all(), sample.counts.all(), accesses.all()).unwrap_or(0.0);
        self.point(hit_ratio, sample.ratio(hits.reads, sample.counts.reads, accesses.reads))
    }

    fn point(&self, hit_ratio: f64, read_hit_ratio: Option<f64>) -> Point {
        let Service { cache_read_ns, cache_write_ns, origin_read_ns, .. } = self.service;
        let [reads, writes] = [self.accesses.reads, self.accesses.writes].map(|count| count as f64);
        let hits = reads * read_hit_ratio.unwrap_or(0.0);
        let misses = reads - hits;
        let ns =
            hits * cache_read_ns as f64 + misses * origin_read_ns as f64 + writes * cache_write_ns as f64;
        Point {
            hit_ratio,
            read_hit_ratio,
            latency_ns: (ns / (reads + writes).max(1.0)) as u64,
            written_bytes: ((writes + misses) * BLOCK_BYTES as f64) as u64,
        }
    }

    fn error(&self, sizes: &[u64], exact: &LruHits, sampled: &LruHits) -> SampleError {
        let differences: Vec<f64> = sizes
            .iter()
            .filter(|&&blocks| self.sample.scaled(blocks) > 0)
            .map(|&blocks| {
                let truth = self.exact(exact.hits(blocks)).hit_ratio;
                (self.sampled(sampled.hits(self.sample.scaled(blocks))).hit_ratio - truth).abs()
            })
            .collect();
        let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
        SampleError { mean, max: differences.into_iter().fold(0.0, f64::max) }
    }
}

impl Advice {
    /// What to do.
    #[must_use]
    pub fn recommendation(&self) -> Recommendation {
        Recommendation::of(self)
    }

    /// The policy with the highest hit ratio at a size, and its point. LRU, unless another one is better by more
    /// than the sample may be wrong.
    #[must_use]
    pub fn best(&self, size: usize) -> (&'static str, Point) {
        let points = self.curves.iter().filter_map(|curve| Some((curve.policy, curve.points[size]?)));
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

    /// What is written to the cache in a day of such a load; `None` without times.
    #[must_use]
    pub fn per_day_bytes(&self, written_bytes: u64) -> Option<u64> {
        let span_ns = self.span_ns.filter(|&ns| ns > 0)?;
        let bytes = u128::from(written_bytes) * u128::from(86_400 * Nanos::SECOND) / u128::from(span_ns);
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
