//! Cost of an access on the disks: service times of single requests on the models.

use engine::units::BLOCK_BYTES;
use models::{Disk, Op, Parameters, Submit};

use crate::random::Random;

/// Requests that are measured of each kind.
const REQUESTS: u64 = 1000;
/// A pause after each, so that a disk's write buffer can empty: the device is not the bottleneck here.
const PAUSE_NS: u64 = 20_000_000;

/// Mean times of single random accesses to 4 KiB, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// A read of the cache device.
    pub cache_read_ns: u64,
    /// A write to it.
    pub cache_write_ns: u64,
    /// A read of the origin.
    pub origin_read_ns: u64,
    /// A write to it.
    pub origin_write_ns: u64,
}

impl Service {
    /// Measures the two models on disks of these sizes.
    #[must_use]
    pub fn measure(cache: &Parameters, cache_bytes: u64, origin: &Parameters, origin_bytes: u64) -> Service {
        Service {
            cache_read_ns: mean_ns(cache, cache_bytes, Op::Read),
            cache_write_ns: mean_ns(cache, cache_bytes, Op::Write),
            origin_read_ns: mean_ns(origin, origin_bytes, Op::Read),
            origin_write_ns: mean_ns(origin, origin_bytes, Op::Write),
        }
    }
}

fn mean_ns(parameters: &Parameters, size_bytes: u64, op: Op) -> u64 {
    let mut disk = Disk::new(parameters, size_bytes, 1);
    let mut random = Random::new(1);
    let (mut now_ns, mut sum_ns) = (0, 0);
    for token in 0..REQUESTS {
        let offset_bytes = random.below(size_bytes / BLOCK_BYTES) * BLOCK_BYTES;
        disk.submit(now_ns, token, Submit { op, offset_bytes, len_bytes: BLOCK_BYTES });
        let began_ns = now_ns;
        while disk.poll(now_ns).is_none() {
            now_ns = disk.next_ns().expect("a request is under way");
        }
        sum_ns += now_ns - began_ns;
        now_ns += PAUSE_NS;
    }
    sum_ns / REQUESTS
}
