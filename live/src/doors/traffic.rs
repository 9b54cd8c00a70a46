//! Traffic: what clients ask for, as other threads may look at it. Nobody waits for them.
//!
//! * A sample, always: accesses to the blocks whose hash is below a threshold (SHARDS), for miss-ratio curves.
//! * Requests, while somebody records them.
//!
//! Each goes into a list with a bound, which another thread changes for an empty one now and then. What a full list has
//! no room for is counted.

use super::pieces::Kind;
use engine::prng::scatter;
use engine::units::{Nanos, SectorRange, VolumeIndex};

/// An access to a block of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledAccess {
    /// The block of the volume.
    pub block: u64,
    /// The volume.
    pub volume: VolumeIndex,
    /// Whether it writes.
    pub is_write: bool,
}

/// Accesses since the sample was taken last.
#[derive(Debug, Default)]
pub struct Sampled {
    /// Those to blocks of the sample, in their order.
    pub accesses: Vec<SampledAccess>,
    /// Accesses to blocks of the sample that the list had no room for.
    pub dropped: u64,
    /// Blocks read, in the sample or not.
    pub read_blocks: u64,
    /// Blocks written.
    pub written_blocks: u64,
}

/// A client's request as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Its arrival.
    pub at: Nanos,
    /// The volume.
    pub volume: VolumeIndex,
    /// Its kind.
    pub kind: Kind,
    /// Its range; empty for a flush.
    pub range: SectorRange,
}

/// Requests since the recording was taken last.
#[derive(Debug, Default)]
pub struct Recorded {
    /// In the order of their arrival.
    pub requests: Vec<RecordedRequest>,
    /// Requests that the list had no room for.
    pub dropped: u64,
}

impl Recorded {
    /// Each instruction here is paid for by every request, while somebody records.
    #[inline(always)]
    fn add(&mut self, request: RecordedRequest) {
        if self.requests.len() < self.requests.capacity() {
            self.requests.push(request);
        } else {
            self.dropped += 1;
        }
    }
}

/// Clients' requests, as others may look at them.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Blocks with a hash below this are in the sample; 0 until somebody wants one.
    threshold: u64,
    sampled: Sampled,
    recorded: Option<Box<Recorded>>,
}

/// A number for each volume, so that the same block of two volumes is in the sample of one and not of the other.
pub(super) fn salt(volume: VolumeIndex) -> u64 {
    scatter(u64::from(volume.0))
}

/// The hash that decides whether a block is in a sample; its upper bits do. Two multiplications and a fold are what that
/// takes: [`scatter`], which mixes all bits, needs twice as many instructions, and every request pays for them.
#[inline(always)]
fn hash(salt: u64, block: u64) -> u64 {
    let product = (salt ^ block).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (product ^ (product >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The hash that decides whether a block of a volume is in a sample.
#[must_use]
pub fn hash_of_block(volume: VolumeIndex, block: u64) -> u64 {
    hash(salt(volume), block)
}

/// The threshold for a sample of one block in `2^log2`.
fn threshold(log2: u32) -> u64 {
    u64::MAX.checked_shr(log2).unwrap_or(0)
}

/// Whether a block is in a sample of one block in `2^log2`.
#[must_use]
pub fn is_sampled(volume: VolumeIndex, block: u64, log2: u32) -> bool {
    hash_of_block(volume, block) < threshold(log2)
}

impl Traffic {
    /// A request has arrived. Each instruction here is paid for by every request.
    #[inline(always)]
    pub(super) fn see(&mut self, volume: VolumeIndex, salt: u64, kind: Kind, range: SectorRange, now: Nanos) {
        if let Some(recorded) = &mut self.recorded {
            recorded.add(RecordedRequest { at: now, volume, kind, range });
        }
        let is_write = kind == Kind::Write;
        if is_write || kind == Kind::Read {
            let (block, end) = (range.first_block(), range.end_block());
            let counted =
                if is_write { &mut self.sampled.written_blocks } else { &mut self.sampled.read_blocks };
            *counted += end - block;
            // Calls come last, and seldom: no register is kept for what comes behind them.
            if end - block > 1 {
                self.see_blocks(volume, salt, is_write, block, end);
            } else if hash(salt, block) < self.threshold {
                self.sample(volume, is_write, block);
            }
        }
    }

    #[inline(never)]
    fn see_blocks(&mut self, volume: VolumeIndex, salt: u64, is_write: bool, first: u64, end: u64) {
        for block in first..end {
            if hash(salt, block) < self.threshold {
                self.sample(volume, is_write, block);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn sample(&mut self, volume: VolumeIndex, is_write: bool, block: u64) {
        let Sampled { accesses, dropped, .. } = &mut self.sampled;
        if accesses.len() < accesses.capacity() {
            accesses.push(SampledAccess { block, volume, is_write });
        } else {
            *dropped += 1;
        }
    }

    /// Takes the sample so far. From now on one block in `2^log2` is in it, and `empty` has room for its accesses.
    #[must_use]
    pub fn take_sample(&mut self, log2: u32, empty: Vec<SampledAccess>) -> Sampled {
        self.threshold = threshold(log2);
        std::mem::replace(&mut self.sampled, Sampled { accesses: empty, ..Sampled::default() })
    }

    /// Begins to record, into `empty`; false if it is recorded already.
    #[must_use]
    pub fn begin_recording(&mut self, empty: Vec<RecordedRequest>) -> bool {
        let is_first = self.recorded.is_none();
        if is_first {
            self.recorded = Some(Box::new(Recorded { requests: empty, dropped: 0 }));
        }
        is_first
    }

    /// Takes the recording so far; `empty` has room for what comes. Nothing if it is not recorded.
    #[must_use]
    pub fn take_recording(&mut self, empty: Vec<RecordedRequest>) -> Recorded {
        match &mut self.recorded {
            Some(recorded) => std::mem::replace(recorded, Recorded { requests: empty, dropped: 0 }),
            None => Recorded::default(),
        }
    }

    /// Records no more; gives back what was not taken.
    pub fn end_recording(&mut self) -> Recorded {
        self.recorded.take().map(|recorded| *recorded).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeIndex = VolumeIndex(3);

    fn see(traffic: &mut Traffic, kind: Kind, first_block: u64, blocks: u64) {
        let range = SectorRange { start: first_block * 8, sectors: blocks * 8 };
        traffic.see(VOLUME, salt(VOLUME), kind, range, Nanos(first_block));
    }

    #[test]
    fn a_sample_is_of_the_same_blocks_each_time() {
        let mut traffic = Traffic::default();
        see(&mut traffic, Kind::Read, 0, 100);
        assert!(traffic.take_sample(4, Vec::with_capacity(10_000)).accesses.is_empty(), "none was wanted");
        see(&mut traffic, Kind::Read, 0, 16_000);
        for block in 0..16_000 {
            see(&mut traffic, Kind::Write, block, 1);
        }
        see(&mut traffic, Kind::Trim, 0, 16_000);
        see(&mut traffic, Kind::Flush, 0, 0);
        let sampled = traffic.take_sample(4, Vec::new());
        assert_eq!((sampled.read_blocks, sampled.written_blocks, sampled.dropped), (16_000, 16_000, 0));
        let (reads, writes) = sampled.accesses.split_at(sampled.accesses.len() / 2);
        assert!((900..1100).contains(&reads.len()), "{} of 16000, not a sixteenth", reads.len());
        for (read, write) in reads.iter().zip(writes) {
            assert_eq!(*write, SampledAccess { is_write: true, ..*read });
            assert!(is_sampled(VOLUME, read.block, 4));
        }
        let is_half = |access: &SampledAccess| is_sampled(VOLUME, access.block, 5);
        let half = reads.iter().filter(|access| is_half(access)).count();
        assert!((reads.len() / 3..reads.len() * 2 / 3).contains(&half), "a lower rate keeps some of them");
    }

    /// Whatever lies between the blocks of a load, its part of the sample is its part of the whole.
    #[test]
    fn no_stride_escapes_the_sample() {
        for volume in [0, 1, 15].map(VolumeIndex) {
            for stride in [1, 2, 3, 7, 8, 64, 96, 255, 256, 1000, 4096, 1 << 16, (1 << 20) - 1, 1 << 30] {
                for log2 in [5, 8] {
                    let blocks = 64_000_u64 << (log2 - 5);
                    let sampled = (0..blocks).filter(|at| is_sampled(volume, at * stride, log2)).count();
                    assert!((1800..2200).contains(&sampled), "{volume:?} {stride} {log2}: {sampled} of 2000");
                }
            }
        }
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut traffic = Traffic::default();
        let _ = traffic.take_sample(0, Vec::with_capacity(4));
        assert!(traffic.begin_recording(Vec::with_capacity(2)));
        assert!(!traffic.begin_recording(Vec::new()), "one at a time");
        for block in 0..10 {
            see(&mut traffic, Kind::Read, block, 1);
        }
        let sampled = traffic.take_sample(0, Vec::new());
        assert_eq!((sampled.accesses.len(), sampled.dropped), (4, 6));
        let recorded = traffic.take_recording(Vec::with_capacity(2));
        assert_eq!((recorded.requests.len(), recorded.dropped), (2, 8));
        assert_eq!(recorded.requests[1].at, Nanos(1));
        see(&mut traffic, Kind::Flush, 0, 0);
        let rest = traffic.end_recording();
        assert_eq!((rest.requests.len(), rest.dropped), (1, 0));
        see(&mut traffic, Kind::Read, 0, 1);
        assert!(traffic.end_recording().requests.is_empty());
    }
}
