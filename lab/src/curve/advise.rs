//! The search for advice: a trace is read once, then the policies are simulated.

use super::Counts;
use super::advice::{Advice, Curve, Point, SampleError};
use super::exact::LruHits;
use super::policy::{POLICIES, simulate};
use super::sample::Sample;
use super::service::Service;
use crate::trace::{Layout, LayoutError, Op, Source, Survey, TraceError};
use engine::policies::replacement::Access;
use engine::units::{BLOCK_BYTES, Nanos};
use models::Parameters;
use std::num::NonZeroU32;

/// Sizes on a curve: ten octaves, two to each.
const SIZES: u32 = 20;
/// The smallest size that is looked at, in blocks.
const SIZE_BLOCKS_MIN: u64 = 16;
/// Where a trace has no times, so much passes between two accesses; only smq looks at it. By taste: a thousand
/// accesses a second.
const UNTIMED_GAP_NS: u64 = Nanos::MILLISECOND;
/// The origin where the trace's addresses are none.
const ORIGIN_BYTES_DEFAULT: u64 = 1 << 40;

/// Question to which advice is the answer.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Blocks in the sample, about; `None`: all blocks are looked at.
    pub sample_blocks: Option<NonZeroU32>,
    /// Sizes to look at, in blocks; none: as the footprint suggests.
    pub sizes_blocks: &'a [NonZeroU32],
    /// The cache device.
    pub cache: &'a Parameters,
    /// The origin.
    pub origin: &'a Parameters,
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
    let sizes = chosen_sizes(options.sizes_blocks, survey.footprint_blocks);
    // Reading is about as much work as the simulation of one policy.
    let reading_steps = sizes.len() as u64;
    let steps = (POLICIES.len() * sizes.len()) as u64;
    let Reading { exact, sampled, sample } = read(options.sample_blocks, survey, source, &mut |requests| {
        on_progress(reading_steps * requests / survey.requests().max(requests), steps + reading_steps);
    })?;
    let accesses = exact.accesses();
    let footprint_bytes = survey.footprint_blocks * BLOCK_BYTES;
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

/// Accesses of a trace, counted for LRU and kept as a sample for the other policies.
struct Reading {
    exact: LruHits,
    /// LRU on the sample alone: its distance from the exact one is the error of the sample.
    sampled: LruHits,
    sample: Sample,
}

/// Reads a trace; `on_progress` gets the number of requests that were read.
fn read(
    sample_blocks: Option<NonZeroU32>,
    survey: &Survey,
    source: &mut dyn Source,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Reading, TraceError> {
    let mut exact = LruHits::default();
    let mut sampled = LruHits::default();
    let mut sample = Sample::new(sample_blocks.map_or(u32::MAX, NonZeroU32::get), survey.footprint_blocks);
    let mut requests = 0;
    let (mut first_ns, mut now) = (None, Nanos(0));
    while let Some(entry) = source.next_entry()? {
        requests += 1;
        if requests % (1 << 14) == 0 {
            on_progress(requests);
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
    Ok(Reading { exact, sampled, sample })
}

/// The sizes that were asked for, ascending, or those that the footprint suggests.
fn chosen_sizes(asked: &[NonZeroU32], footprint_blocks: u64) -> Vec<u64> {
    if asked.is_empty() {
        return sizes(footprint_blocks);
    }
    let mut chosen: Vec<u64> = asked.iter().map(|size| u64::from(size.get())).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Powers of two and the numbers half-way between them, ascending, the last one enough for all `blocks`.
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
