//! The curve of a load that goes on: LRU's hit ratio around the size of a cache, from a sample of its accesses.
//!
//! Only distances up to [`LARGEST`] times the cache matter, so only so many blocks are remembered: memory has a bound,
//! the rate of the sample stays as it is, and what nobody accesses any more leaves by itself. (SHARDS of a fixed
//! size lowers its rate for each block that was ever seen.) The rate is halved if more comes in than can be taken.
//!
//! Counts are kept by hour, for a day. There is no clock here: who feeds it says when an hour is over.

use super::Counts;
use super::distances::StackDistances;
use super::sample::corrected;
use crate::trace::spread::{BlockMap, TracedBlock};
use engine::policies::replacement::Access;
use engine::units::BLOCK_BYTES;
use std::collections::VecDeque;

/// Sampled blocks that are remembered at the most, about. A cache of the size that is asked about has an eighth of them:
/// with so many the SHARDS paper finds hit ratios that are wrong by less than a point.
const BLOCKS_MAX: u64 = 32_768;
/// The highest rate of a sample: one block in 2^5, so that the sample of a small cache costs its clients little.
const LOG2_MIN: u32 = 5;
/// The lowest rate.
const LOG2_MAX: u32 = 40;
/// The largest size that is looked at, in caches.
const LARGEST: u64 = 8;
/// Octaves of sizes, below the cache and above it, and sizes in each.
const OCTAVES_BELOW: u32 = 5;
const OCTAVES_ABOVE: u32 = 3;
const STEPS: [u64; 4] = [1000, 1189, 1414, 1682];
/// A size with fewer sampled blocks than this says nothing.
const SAMPLED_BLOCKS_MIN: u64 = 8;
/// Hours that are counted.
const HOURS: usize = 24;

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePoint {
    /// The size of the cache.
    pub size_bytes: u64,
    /// The share of all accesses that such a cache of LRU has as hits.
    pub hit_ratio: f64,
    /// The share of the reads; `None` if there were none.
    pub read_hit_ratio: Option<f64>,
}

/// Accesses to one volume, estimated from the sample, and what a cache of the present size does for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Blocks read, and written.
    pub accesses: Counts,
    /// Of them, those that were accessed before, and not too long ago for the cache.
    pub hits: Counts,
    /// Reads of what was last written, and not too long ago.
    pub reads_of_written: u64,
    /// Writes of what was written before, and not too long ago.
    pub writes_of_written: u64,
}

impl Reuse {
    fn plus(self, other: &Reuse) -> Reuse {
        Reuse {
            accesses: self.accesses.plus(other.accesses),
            hits: self.hits.plus(other.hits),
            reads_of_written: self.reads_of_written + other.reads_of_written,
            writes_of_written: self.writes_of_written + other.writes_of_written,
        }
    }
}

/// Counts of one hour. What comes from the sample is multiplied by what a sampled block stands for.
#[derive(Clone, Debug)]
struct Hour {
    /// All accesses.
    accesses: Counts,
    sampled: Counts,
    /// Sampled accesses as they came.
    sampled_accesses: u64,
    /// Hits by the smallest size that has them.
    hits: Vec<Counts>,
    /// By volume.
    reuse: Vec<Reuse>,
}

impl Hour {
    fn new(sizes: usize) -> Hour {
        Hour {
            accesses: Counts::default(),
            sampled: Counts::default(),
            sampled_accesses: 0,
            hits: vec![Counts::default(); sizes],
            reuse: Vec::new(),
        }
    }
}

/// The curve of a load that goes on.
pub struct Ongoing {
    /// One block in `2^log2` is in the sample.
    log2: u32,
    /// The sizes that are looked at, ascending, in blocks; and of how many blocks of the sample they are.
    sizes: Vec<u64>,
    scaled: Vec<u64>,
    /// The place of the present size among them.
    present: usize,
    distances: StackDistances,
    /// Blocks that were written, and whether that was their last access.
    written: BlockMap<bool>,
    /// The last one is the present hour.
    hours: VecDeque<Hour>,
}

impl Ongoing {
    /// The curve around a cache of so many blocks.
    #[must_use]
    pub fn new(cache_blocks: u64) -> Ongoing {
        let cache_blocks = cache_blocks.max(1);
        let blocks = cache_blocks.saturating_mul(LARGEST);
        let log2 = (LOG2_MIN..LOG2_MAX).find(|log2| blocks >> log2 <= BLOCKS_MAX).unwrap_or(LOG2_MAX);
        let steps = (0..OCTAVES_BELOW + OCTAVES_ABOVE).flat_map(|octave| STEPS.map(|step| (octave, step)));
        let size = |(octave, step): (u32, u64)| {
            let size = (u128::from(cache_blocks) * u128::from(step)) << octave;
            u64::try_from((size >> OCTAVES_BELOW) / 1000).unwrap_or(u64::MAX)
        };
        let sizes: Vec<u64> = steps.map(size).chain([blocks]).filter(|size| *size > 0).collect();
        let present = sizes.partition_point(|size| *size < cache_blocks);
        let hours = VecDeque::from([Hour::new(sizes.len())]);
        let mut ongoing = Ongoing {
            log2,
            sizes,
            scaled: Vec::new(),
            present,
            distances: StackDistances::bounded(1),
            written: BlockMap::default(),
            hours,
        };
        ongoing.scale();
        ongoing.distances =
            StackDistances::bounded(usize::try_from(ongoing.blocks_max()).unwrap_or(1).max(1));
        ongoing
    }

    fn scale(&mut self) {
        self.scaled = self.sizes.iter().map(|size| size >> self.log2).collect();
    }

    fn blocks_max(&self) -> u64 {
        self.scaled.last().copied().unwrap_or(1)
    }

    /// One block in `2^log2` is wanted in the sample.
    #[must_use]
    pub fn log2(&self) -> u32 {
        self.log2
    }

    /// Blocks of the sample that are remembered.
    #[must_use]
    pub fn sampled_blocks(&self) -> u64 {
        self.distances.blocks()
    }

    /// An hour is over.
    pub fn next_hour(&mut self) {
        if self.hours.len() == HOURS {
            self.hours.pop_front();
        }
        self.hours.push_back(Hour::new(self.sizes.len()));
    }

    /// Takes accesses to blocks of the sample, in their order. So many accesses there were in all, and so many to
    /// blocks of the sample that are missing.
    pub fn take(
        &mut self,
        accesses: impl ExactSizeIterator<Item = (TracedBlock, Access)>,
        mut all: Counts,
        missing: u64,
    ) {
        let came = accesses.len() as u64;
        if missing > 0 {
            // Those that came stand for their part of the load.
            let part =
                |count: u64| (u128::from(count) * u128::from(came) / u128::from(came + missing)) as u64;
            all = Counts { reads: part(all.reads), writes: part(all.writes) };
        }
        self.hour().accesses = self.hour().accesses.plus(all);
        self.hour().sampled_accesses += came;
        for (block, access) in accesses {
            self.access(block, access);
        }
        if self.written.len() as u64 > 2 * self.distances.blocks() + 1024 {
            self.written.retain(|block, _| self.distances.remembers(*block));
        }
    }

    fn hour(&mut self) -> &mut Hour {
        self.hours.back_mut().expect("there is always a present hour")
    }

    fn access(&mut self, block: TracedBlock, access: Access) {
        let weight = 1 << self.log2;
        let distance = self.distances.access(block);
        let size = distance.map(|distance| self.scaled.partition_point(|blocks| *blocks <= distance));
        let is_hit = size.is_some_and(|size| size <= self.present);
        let was_written = match access {
            Access::Write => self.written.insert(block, true).is_some(),
            Access::Read => {
                self.written.get_mut(&block).is_some_and(|was_last| std::mem::replace(was_last, false))
            }
        };
        let hour = self.hours.back_mut().expect("there is always a present hour");
        hour.sampled.add_many(access, weight);
        if let Some(hits) = size.and_then(|size| hour.hits.get_mut(size)) {
            hits.add_many(access, weight);
        }
        let volume = block.0 as usize;
        if hour.reuse.len() <= volume {
            hour.reuse.resize(volume + 1, Reuse::default());
        }
        let reuse = &mut hour.reuse[volume];
        reuse.accesses.add_many(access, weight);
        if is_hit {
            reuse.hits.add_many(access, weight);
            match access {
                Access::Read => reuse.reads_of_written += if was_written { weight } else { 0 },
                Access::Write => reuse.writes_of_written += if was_written { weight } else { 0 },
            }
        }
    }

    /// Halves the rate: more comes in than can be taken. `is_kept` says which blocks are in a sample of one in `2^log2`.
    pub fn halve(&mut self, is_kept: impl Fn(TracedBlock, u32) -> bool) {
        if self.log2 == LOG2_MAX {
            return;
        }
        self.log2 += 1;
        self.scale();
        let log2 = self.log2;
        self.distances.retain(|block| is_kept(block, log2));
        self.written.retain(|block, _| is_kept(*block, log2));
    }

    /// All accesses of the last day.
    #[must_use]
    pub fn accesses(&self) -> Counts {
        self.hours.iter().fold(Counts::default(), |sum, hour| sum.plus(hour.accesses))
    }

    /// Accesses in the sample, of the last day.
    #[must_use]
    pub fn sampled_accesses(&self) -> u64 {
        self.hours.iter().map(|hour| hour.sampled_accesses).sum()
    }

    /// The curve of the last day; without the sizes that are too small for the sample, and empty before there was any
    /// access.
    #[must_use]
    pub fn curve(&self) -> Vec<SizePoint> {
        let all = self.accesses();
        let sampled = self.hours.iter().fold(Counts::default(), |sum, hour| sum.plus(hour.sampled));
        let mut hits = Counts::default();
        let mut points = Vec::new();
        for (at, (size, scaled)) in self.sizes.iter().zip(&self.scaled).enumerate() {
            hits = self.hours.iter().fold(hits, |sum, hour| sum.plus(hour.hits[at]));
            let ratio =
                |hits: u64, sampled: u64, all: u64| corrected(hits as f64, sampled as f64, all as f64);
            let Some(hit_ratio) = ratio(hits.all(), sampled.all(), all.all()) else { break };
            if *scaled >= SAMPLED_BLOCKS_MIN {
                let read_hit_ratio = ratio(hits.reads, sampled.reads, all.reads);
                points.push(SizePoint {
                    size_bytes: size.saturating_mul(BLOCK_BYTES),
                    hit_ratio,
                    read_hit_ratio,
                });
            }
        }
        points
    }

    /// Accesses to a volume over the last day, and what a cache of the present size does for them.
    #[must_use]
    pub fn reuse(&self, volume: u32) -> Reuse {
        let of_hours = self.hours.iter().filter_map(|hour| hour.reuse.get(volume as usize));
        of_hours.fold(Reuse::default(), Reuse::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::exact::LruHits;
    use crate::random::Random;
    use crate::trace::spread::of_block;

    fn is_kept(block: TracedBlock, log2: u32) -> bool {
        of_block(block) < u64::MAX >> log2
    }

    /// Feeds accesses in batches, as a daemon does; each is told to `exact`, too.
    fn feed(
        ongoing: &mut Ongoing,
        exact: &mut LruHits,
        accesses: u64,
        mut next: impl FnMut() -> (TracedBlock, Access),
    ) {
        let mut left = accesses;
        while left > 0 {
            let (mut batch, mut all) = (Vec::new(), Counts::default());
            for _ in 0..left.min(1000) {
                let (block, access) = next();
                exact.access(block, access);
                all.add(access);
                if is_kept(block, ongoing.log2()) {
                    batch.push((block, access));
                }
            }
            left -= all.all();
            ongoing.take(batch.into_iter(), all, 0);
        }
    }

    /// A load in which a few blocks are accessed much more often than others.
    fn skewed(random: &mut Random, blocks: u64) -> (TracedBlock, Access) {
        let block = random.below(blocks).min(random.below(blocks)).min(random.below(blocks));
        let access = if random.below(4) == 0 { Access::Write } else { Access::Read };
        ((random.below(2) as u32, block), access)
    }

    #[test]
    fn the_curve_of_a_skewed_load_is_about_that_of_lru() {
        let mut ongoing = Ongoing::new(16_384);
        let (mut exact, mut random) = (LruHits::default(), Random::new(11));
        feed(&mut ongoing, &mut exact, 1_000_000, || skewed(&mut random, 50_000));
        let points = ongoing.curve();
        assert!(points.len() > 20 && points.is_sorted_by(|one, next| one.hit_ratio <= next.hit_ratio));
        assert_eq!(ongoing.accesses(), exact.accesses());
        let mut sum = 0.0;
        for point in &points {
            let truth = exact.hits(point.size_bytes / BLOCK_BYTES).all() as f64 / 1e6;
            let error = (point.hit_ratio - truth).abs();
            assert!(error < 0.04, "{point:?} is {truth}");
            sum += error;
        }
        let mean = sum / points.len() as f64;
        assert!(mean < 0.015, "{mean}");
        let present = points.iter().find(|point| point.size_bytes == 16_384 * BLOCK_BYTES);
        let reads = exact.hits(16_384).reads as f64 / exact.accesses().reads as f64;
        let found = present.and_then(|point| point.read_hit_ratio).expect("it is looked at");
        assert!((found - reads).abs() < 0.03, "{found} {reads}");
    }

    #[test]
    fn memory_has_a_bound_and_a_loop_its_step() {
        let mut ongoing = Ongoing::new(1 << 14);
        let (blocks_max, mut exact) = (ongoing.blocks_max(), LruHits::default());
        let mut at = 0;
        // Ten times the cache, again and again: no size that is looked at has a hit.
        feed(&mut ongoing, &mut exact, 3 * 163_840, || {
            at += 1;
            ((0, at % 163_840), Access::Read)
        });
        assert!(ongoing.curve().iter().all(|point| point.hit_ratio < 0.06), "{:?}", ongoing.curve());
        assert!(ongoing.sampled_blocks() <= 2 * blocks_max + 1, "{}", ongoing.sampled_blocks());
        // Three quarters of the cache: all sizes from there on have them all, and a day later nothing else counts.
        for _ in 0..HOURS {
            ongoing.next_hour();
            feed(&mut ongoing, &mut exact, 12_288, || {
                at += 1;
                ((0, at % 12_288), Access::Read)
            });
        }
        for SizePoint { size_bytes, hit_ratio, .. } in ongoing.curve() {
            let blocks = size_bytes / BLOCK_BYTES;
            if !(11_000..13_500).contains(&blocks) {
                let expected = if blocks > 12_288 { 1.0 } else { 0.0 };
                assert!((hit_ratio - expected).abs() < 0.15, "{blocks}: {hit_ratio}");
            }
        }
    }

    #[test]
    fn a_lower_rate_goes_on_with_the_same_curve() {
        let mut ongoing = Ongoing::new(16_384);
        let (mut exact, mut random) = (LruHits::default(), Random::new(12));
        feed(&mut ongoing, &mut exact, 500_000, || skewed(&mut random, 50_000));
        let before = ongoing.sampled_blocks();
        ongoing.halve(is_kept);
        assert!(ongoing.sampled_blocks() < before * 2 / 3);
        feed(&mut ongoing, &mut exact, 500_000, || skewed(&mut random, 50_000));
        for point in ongoing.curve() {
            let truth = exact.hits(point.size_bytes / BLOCK_BYTES).all() as f64 / 1e6;
            assert!((point.hit_ratio - truth).abs() < 0.06, "{point:?} is {truth}");
        }
        // Half of the sampled accesses are missing: the others stand for half of the load.
        let accesses = ongoing.accesses();
        let all = Counts { reads: 1000, writes: 0 };
        ongoing.take((0..10_u32).map(|block| ((0, u64::from(block)), Access::Read)), all, 10);
        assert_eq!(ongoing.accesses().reads, accesses.reads + 500);
    }

    #[test]
    fn reuse_tells_what_modes_would_do() {
        let mut ongoing = Ongoing::new(1 << 12);
        let mut batch = Vec::new();
        for round in 0..10 {
            for block in 0..100 {
                batch.push(((1, block), Access::Write));
                batch.push(((1, block), Access::Read));
                batch.push(((1, block), Access::Read));
                batch.push(((0, round * 100 + block), Access::Read));
            }
        }
        ongoing.take(batch.into_iter(), Counts { reads: 3000 << LOG2_MIN, writes: 1000 << LOG2_MIN }, 0);
        let (once, often) = (ongoing.reuse(0), ongoing.reuse(1));
        assert_eq!(
            (once.accesses.reads, once.hits, once.reads_of_written),
            (1000 << 5, Counts::default(), 0)
        );
        assert_eq!(often.accesses, Counts { reads: 2000 << 5, writes: 1000 << 5 });
        // The reads that come straight behind the write, and all writes but the first round's: 200 blocks lie between.
        assert_eq!((often.reads_of_written, often.hits.reads), (1000 << 5, 2000 << 5));
        assert_eq!(ongoing.reuse(7), Reuse::default());
    }

    #[test]
    fn any_size_has_a_curve() {
        for blocks in [0, 1, 8192, 1 << 26, 1 << 40, u64::MAX] {
            let mut ongoing = Ongoing::new(blocks);
            assert!(ongoing.curve().is_empty(), "nothing was accessed");
            ongoing.take(
                std::iter::repeat_n(((0, 7), Access::Write), 100),
                Counts { reads: 0, writes: 100 },
                0,
            );
            ongoing.halve(|_, _| true);
            ongoing.next_hour();
            for point in ongoing.curve() {
                assert!((0.0..=1.0).contains(&point.hit_ratio) && point.read_hit_ratio.is_none());
            }
        }
    }
}
