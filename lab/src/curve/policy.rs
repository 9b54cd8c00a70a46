//! The policies that are compared, each with the parameters that it has by default.

use super::Counts;
use super::buckets::BucketCache;
use super::frames::FrameCache;
use super::sample::Sample;
use engine::policies::replacement::ReplacementChoice;
use engine::policies::replacement::bucket_lru::BucketKind;
use engine::policies::replacement::free_frames::FreeOrder;
use engine::policies::replacement::mq::MqEra;
use engine::policies::replacement::random::RandomKind;
use engine::policies::replacement::smq::SmqVersion;

/// Names and policies, in the order of reports. The first one is the one whose curve is exact.
pub const POLICIES: [(&str, ReplacementChoice); 9] = [
    ("lru", ReplacementChoice::Lru {}),
    ("fifo", ReplacementChoice::Fifo { free_order: FreeOrder::Lowest }),
    ("random", ReplacementChoice::Random { kind: RandomKind::Seeded }),
    ("warm-hot-lru", ReplacementChoice::WarmHotLru { hot_percent: 50, promote_hits: 2 }),
    ("mq", ReplacementChoice::Mq { era: MqEra::Split }),
    ("smq-1", ReplacementChoice::Smq { version: SmqVersion::One }),
    ("smq", ReplacementChoice::Smq { version: SmqVersion::Two }),
    ("bucket-lru", ReplacementChoice::BucketLru { kind: BucketKind::Lru, bucket_sectors: 1024 }),
    ("s3-fifo", ReplacementChoice::S3Fifo { small_permille: 100 }),
];

/// A small cache with fewer frames tells nothing of a large one.
const FRAMES_MIN: u64 = 32;
/// The same for buckets.
const BUCKETS_MIN: u64 = 8;
/// Seed of the policies that draw at random.
const SEED: u64 = 1;

/// The hits among the sampled accesses in the small cache that stands for one of `blocks` blocks; `None` if
/// that is too small.
pub(super) fn simulate(choice: &ReplacementChoice, sample: &Sample, blocks: u64) -> Option<Counts> {
    let frames = sample.scaled(blocks);
    let pieces = sample.pieces();
    let mut hits = Counts::default();
    if let ReplacementChoice::BucketLru { kind, bucket_sectors } = *choice {
        let bucket_blocks = sample.scaled(u64::from(bucket_sectors) / 8).max(1);
        let buckets = frames / bucket_blocks;
        if buckets < BUCKETS_MIN {
            return None;
        }
        let choice = ReplacementChoice::BucketLru { kind, bucket_sectors: bucket_blocks as u32 * 8 };
        let mut cache =
            BucketCache::new(&choice, u32::try_from(buckets).ok()?, bucket_blocks as u32, pieces, SEED);
        for &access in &sample.accesses {
            if cache.access(access) {
                hits.add(access.access);
            }
        }
    } else {
        if frames < FRAMES_MIN {
            return None;
        }
        let mut cache = FrameCache::new(choice, u32::try_from(frames).ok()?, pieces, SEED);
        for &access in &sample.accesses {
            if cache.access(access) {
                hits.add(access.access);
            }
        }
    }
    Some(hits)
}
