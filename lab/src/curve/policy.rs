//! The policies that are compared, each with the parameters that it has by default.

use super::Counts;
use super::buckets::BucketCache;
use super::frames::FrameCache;
use super::sample::{Sample, SampledAccess};
use engine::policies::replacement::ReplacementChoice;
use engine::policies::replacement::bucket_lru::BucketKind;
use engine::policies::replacement::forebay::ring::Ring;
use engine::policies::replacement::free_frames::FreeOrder;
use engine::policies::replacement::mq::MqEra;
use engine::policies::replacement::random::RandomKind;
use engine::policies::replacement::smq::SmqVersion;
use engine::units::PieceKey;

/// A policy to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// One that profiles can name.
    Choice(ReplacementChoice),
    /// The policy `forebay` alone: its ring of blocks. Only `forebay@0.2` runs it, so it is shown and not advised.
    Ring,
}

/// Names and policies, in the order of reports. The first one is the one whose curve is exact.
pub const POLICIES: [(&str, Compared); 10] = [
    ("lru", Compared::Choice(ReplacementChoice::Lru {})),
    ("fifo", Compared::Choice(ReplacementChoice::Fifo { free_order: FreeOrder::Lowest })),
    ("random", Compared::Choice(ReplacementChoice::Random { kind: RandomKind::Seeded })),
    ("warm-hot-lru", Compared::Choice(ReplacementChoice::WarmHotLru { hot_percent: 50, promote_hits: 2 })),
    ("mq", Compared::Choice(ReplacementChoice::Mq { era: MqEra::Split })),
    ("smq-1", Compared::Choice(ReplacementChoice::Smq { version: SmqVersion::One })),
    ("smq", Compared::Choice(ReplacementChoice::Smq { version: SmqVersion::Two })),
    (
        "bucket-lru",
        Compared::Choice(ReplacementChoice::BucketLru { kind: BucketKind::Lru, bucket_sectors: 1024 }),
    ),
    ("s3-fifo", Compared::Choice(ReplacementChoice::S3Fifo { small_permille: 100 })),
    ("forebay", Compared::Ring),
];

/// A small cache with fewer frames tells nothing of a large one.
const FRAMES_MIN: u32 = 32;
/// The same for buckets.
const BUCKETS_MIN: u32 = 8;
/// Seed of the policies that draw at random.
const SEED: u64 = 1;

/// The hits among the sampled accesses in the small cache that stands for one of `blocks` blocks; `None` if
/// that is too small.
pub(super) fn simulate(compared: &Compared, sample: &Sample, blocks: u64) -> Option<Counts> {
    let frames = sample.scaled(blocks);
    let pieces = sample.pieces();
    match *compared {
        Compared::Choice(ReplacementChoice::BucketLru { kind, bucket_sectors }) => {
            let bucket_blocks = sample.scaled(u64::from(bucket_sectors) / 8).max(1);
            let buckets = u32::try_from(frames / bucket_blocks).ok().filter(|&count| count >= BUCKETS_MIN)?;
            let choice = ReplacementChoice::BucketLru { kind, bucket_sectors: bucket_blocks as u32 * 8 };
            let mut cache = BucketCache::new(&choice, buckets, bucket_blocks as u32, pieces, SEED);
            Some(hits(sample, |access| cache.access(access)))
        }
        Compared::Choice(choice) => {
            let frames = u32::try_from(frames).ok().filter(|&frames| frames >= FRAMES_MIN)?;
            let mut cache = FrameCache::new(&choice, frames, pieces, SEED);
            Some(hits(sample, |access| cache.access(access)))
        }
        Compared::Ring => {
            let frames = u32::try_from(frames).ok().filter(|&frames| frames >= FRAMES_MIN)?;
            // More than there are blocks are never used.
            let mut ring = Ring::new(frames.min(pieces.max(FRAMES_MIN)));
            Some(hits(sample, |access| ring.access(PieceKey(u64::from(access.piece)))))
        }
    }
}

fn hits(sample: &Sample, mut is_hit: impl FnMut(SampledAccess) -> bool) -> Counts {
    let mut hits = Counts::default();
    for &access in &sample.accesses {
        if is_hit(access) {
            hits.add(access.access);
        }
    }
    hits
}
