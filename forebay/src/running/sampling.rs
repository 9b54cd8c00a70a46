//! Sampling: the curve of the load of a running cache, fed once a second with what clients accessed.

use super::Running;
use anyhow::Result;
use engine::engine::Engine;
use engine::policies::replacement::Access;
use engine::units::{BLOCK_BYTES, VolumeIndex};
use lab::curve::{Counts, Ongoing};
use live::server::{Handle, SampledAccess, is_sampled};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Accesses that the reactors may leave from one second to the next.
const ACCESSES_MAX: usize = 8192;
const HOUR: Duration = Duration::from_secs(3600);

/// The sampled load of a cache.
pub(super) struct Sampling {
    curve: Ongoing,
    cache_bytes: u64,
    /// Since when the load is looked at.
    since: Instant,
    hour: Instant,
    /// A list to give to the reactors.
    spare: Vec<SampledAccess>,
}

impl Sampling {
    pub(super) fn new(cache_bytes: u64) -> Sampling {
        let now = Instant::now();
        let curve = Ongoing::new(cache_bytes / BLOCK_BYTES);
        Sampling { curve, cache_bytes, since: now, hour: now, spare: Vec::with_capacity(ACCESSES_MAX) }
    }

    /// The curve so far.
    pub(super) fn curve(&self) -> &Ongoing {
        &self.curve
    }

    /// The time that the curve tells of.
    pub(super) fn span(&self) -> Duration {
        self.since.elapsed().min(HOUR * 24)
    }

    /// Takes what the reactors saw since the last time.
    fn take(&mut self, handle: &Handle<Engine>) -> Result<()> {
        let (log2, spare) = (self.curve.log2(), std::mem::take(&mut self.spare));
        let sampled = handle.with_traffic(move |traffic| traffic.take_sample(log2, spare))?;
        let all = Counts { reads: sampled.read_blocks, writes: sampled.written_blocks };
        let accesses = sampled.accesses.iter().map(|access| {
            let kind = if access.is_write { Access::Write } else { Access::Read };
            ((u32::from(access.volume.0), access.block), kind)
        });
        self.curve.take(accesses, all, sampled.dropped);
        if sampled.dropped > 0 {
            self.curve.halve(|(volume, block), log2| {
                u8::try_from(volume).is_ok_and(|volume| is_sampled(VolumeIndex(volume), block, log2))
            });
        }
        self.spare = sampled.accesses;
        self.spare.clear();
        self.spare.reserve_exact(ACCESSES_MAX);
        if self.hour.elapsed() >= HOUR {
            self.hour += HOUR;
            self.curve.next_hour();
        }
        Ok(())
    }
}

impl Running {
    /// Takes the sample of the last second. A cache of another size begins anew.
    pub(super) fn sample(&self, cache_bytes: u64) -> Result<()> {
        let mut sampling = self.sampling.lock().unwrap_or_else(PoisonError::into_inner);
        if sampling.cache_bytes != cache_bytes {
            *sampling = Sampling::new(cache_bytes);
        }
        sampling.take(&self.handle)
    }
}
