//! Sequential runs as bcache counts them: by their ends, and by their senders.
//!
//! Source: `check_should_bypass` of bcache (read in 3.10's and 4.9's source and in one of the 5.x
//! series; older name `check_should_skip`), in our own words. A request that begins where
//! a remembered run ended, no longer than 5 s ago, extends that run. Any other begins a run in the
//! place of the one that was extended least lately; then what its sender has sent in a row is
//! folded into the sender's average. A request passes by if the run or the average reaches the
//! cutoff. So a sender with a sequential past passes by with random requests, too, until the
//! average has decayed.
//!
//! ```text
//! cutoff 4 MiB    128 KiB requests of one run     4 KiB anywhere, after a run of 100 MiB
//! admitted        1 .. 31                         10 ..
//! passed          32 ..                           1 .. 9
//! ```
//!
//! All counts are 32-bit as in the source: a run stops growing short of 4 GiB, and the average
//! of runs above 585 MiB wraps.

use super::Asked;
use super::Reason;
use super::recency::Recency;
use crate::number::{index, to_u32};
use crate::policies::replacement::Access;
use crate::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, VOLUMES_MAX};
use alloc::vec;
use alloc::vec::Vec;

/// Streams whose average is remembered; a further one takes the place of the one silent for
/// longest, and its own average begins at 0. The kernel has one for every task.
const STREAMS_MAX: u32 = 1024;
/// Bytes in a sector, as the kernel calculates with them here: in signed numbers.
const SECTOR_BYTES_SIGNED: i64 = 512;

/// How runs are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunsChoice {
    /// Runs of this many bytes and more bypass the cache; default 4 MiB, 0 to 4 GiB - 1; 0: only congestion counts.
    pub cutoff_bytes: u32,
    /// Runs remembered for each volume; default 128, 1 to 65 536.
    pub runs: u32,
    /// A run that was not extended for this long is over; default 5000 ms, 0 to 3 600 000; 0: never.
    pub forget_ms: u32,
    /// One run is this part of its sender's average; default 8, 0 to 64; 0: no average.
    pub average_weight: u32,
    /// Writes that are [`Asked::is_sync_writeback`] are admitted unless the cache is congested; default off.
    ///
    /// Bcache does so in 3.10 to 4.9 (read); gone in 5.x.
    pub exempts_sync_writes: bool,
    /// The random number is taken off the cutoff, and congestion's limit replaces the cutoff, as in
    /// 3.10; default off: it is taken off congestion's limit, which comes beside the cutoff.
    pub jitters_cutoff: bool,
    /// Requests are joined to runs; default on. Off (possible in 3.10): each counts for itself.
    pub merges: bool,
}

impl RunsChoice {
    /// Today's bcache.
    pub const PUBLISHED: RunsChoice = RunsChoice {
        cutoff_bytes: 4 << 20,
        runs: 128,
        forget_ms: 5000,
        average_weight: 8,
        exempts_sync_writes: false,
        jitters_cutoff: false,
        merges: true,
    };

    /// Flashcache's `skip_seq_thresh_kb`, for parts of one 4 KiB block each: 32 runs, never forgotten, no
    /// averages, and a run passes by when it is longer than the threshold.
    ///
    /// Source: flashcache 1.0's `skip_sequential_io`, read. Not imitated: there, a request for the
    /// same block as the one before leaves the run as it is. Off (0) by default.
    #[must_use]
    pub fn flashcache(threshold_kib: u32) -> RunsChoice {
        let above = |kib: u32| (kib / 4).saturating_add(1).saturating_mul(to_u32(BLOCK_BYTES));
        RunsChoice {
            cutoff_bytes: if threshold_kib == 0 { 0 } else { above(threshold_kib) },
            runs: 32,
            forget_ms: 0,
            average_weight: 0,
            ..RunsChoice::PUBLISHED
        }
    }
}

/// The runs of all volumes, and the averages of their senders.
#[derive(Clone, Debug)]
pub struct Runs {
    choice: RunsChoice,
    /// By the volume's slot.
    volumes: Vec<VolumeRuns>,
    streams: Recency,
    /// Bytes that a stream has sent in a row, by its slot.
    row_bytes: Vec<u32>,
    /// The average of its rows before that, by its slot.
    average_bytes: Vec<u32>,
}

#[derive(Clone, Debug)]
struct VolumeRuns {
    /// By the sector where the run would continue.
    recency: Recency,
    bytes: Vec<u32>,
    /// The time from which the run is over.
    over_at: Vec<Nanos>,
}

impl Runs {
    /// No run yet.
    #[must_use]
    pub fn new(choice: RunsChoice) -> Runs {
        let volume = VolumeRuns {
            recency: Recency::new(choice.runs),
            bytes: vec![0; index(choice.runs)],
            over_at: vec![Nanos(0); index(choice.runs)],
        };
        Runs {
            choice,
            volumes: vec![volume; VOLUMES_MAX],
            streams: Recency::new(STREAMS_MAX),
            row_bytes: vec![0; index(STREAMS_MAX)],
            average_bytes: vec![0; index(STREAMS_MAX)],
        }
    }

    /// The reason why a request bypasses the cache. `limit_sectors`: congestion's, before jitter. `random`: 32 random
    /// bits, asked for only where the published system does.
    pub fn decide(
        &mut self,
        asked: &Asked,
        limit_sectors: Option<u32>,
        random: impl FnOnce() -> u32,
    ) -> Option<Reason> {
        if limit_sectors.is_none() {
            let is_exempt = self.choice.exempts_sync_writes && asked.is_sync_writeback;
            assert!(!asked.is_sync_writeback || asked.access == Access::Write, "a read is no write");
            if self.choice.cutoff_bytes == 0 || is_exempt {
                // Admitted without a trace in runs and averages, as published.
                return None;
            }
        }
        let sectors = i64::from(self.count(asked)) / SECTOR_BYTES_SIGNED;
        let cutoff_sectors = i64::from(self.choice.cutoff_bytes) / SECTOR_BYTES_SIGNED;
        if self.choice.jitters_cutoff {
            let cutoff = limit_sectors.map_or(cutoff_sectors, i64::from) - jitter(random());
            let reason = if limit_sectors.is_some() { Reason::Congested } else { Reason::Sequential };
            return (cutoff <= sectors).then_some(reason);
        }
        // The published order: the random number is drawn when the limit is, before the cutoff is looked at.
        let limit = limit_sectors.map(|limit| (i64::from(limit) - jitter(random())).max(1));
        if self.choice.cutoff_bytes > 0 && sectors >= cutoff_sectors {
            return Some(Reason::Sequential);
        }
        limit.is_some_and(|limit| sectors >= limit).then_some(Reason::Congested)
    }

    /// Notes a request. Returns the larger of its run and its sender's average, in bytes.
    fn count(&mut self, asked: &Asked) -> u32 {
        let stream = self.stream(asked.stream);
        let bytes = u32::try_from(asked.range.sectors * SECTOR_BYTES).unwrap_or(u32::MAX);
        if self.choice.merges {
            let (run_bytes, is_new) = self.extend(asked, bytes);
            if is_new {
                self.fold(stream);
            }
            self.row_bytes[stream] = run_bytes;
        } else {
            self.row_bytes[stream] = bytes;
            self.fold(stream);
        }
        self.row_bytes[stream].max(self.average_bytes[stream])
    }

    /// The length of the run with the request, and whether it begins it.
    fn extend(&mut self, asked: &Asked, bytes: u32) -> (u32, bool) {
        let forget_ms = u64::from(self.choice.forget_ms);
        let volume = &mut self.volumes[asked.piece.volume().at()];
        let over_at = &volume.over_at;
        let found =
            volume.recency.find(asked.range.start, |run| forget_ms == 0 || asked.now < over_at[index(run)]);
        let run = found.unwrap_or_else(|| volume.recency.oldest());
        let at = index(run);
        if found.is_none() {
            volume.bytes[at] = 0;
        }
        if let Some(sum) = volume.bytes[at].checked_add(bytes) {
            volume.bytes[at] = sum;
        }
        volume.over_at[at] = asked.now.plus(forget_ms * Nanos::MILLISECOND);
        volume.recency.use_slot(run, asked.range.end());
        (volume.bytes[at], found.is_none())
    }

    /// Folds a stream's present row into its average.
    fn fold(&mut self, stream: usize) {
        let (weight, row) = (self.choice.average_weight, self.row_bytes[stream]);
        let average = self.average_bytes[stream];
        if let Some(kept) = weight.checked_sub(1) {
            self.average_bytes[stream] = average.wrapping_mul(kept).wrapping_add(row) / weight;
        }
        self.row_bytes[stream] = 0;
    }

    /// The slot of a stream, just used.
    fn stream(&mut self, stream: u32) -> usize {
        let key = u64::from(stream);
        let slot = self.streams.find(key, |_| true).unwrap_or_else(|| {
            let oldest = self.streams.oldest();
            self.row_bytes[index(oldest)] = 0;
            self.average_bytes[index(oldest)] = 0;
            oldest
        });
        self.streams.use_slot(slot, key);
        index(slot)
    }
}

/// Random reduction in sectors: 16 on average, at most 32.
fn jitter(random: u32) -> i64 {
    i64::from(random.count_ones())
}
