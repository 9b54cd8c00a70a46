//! The trial of a cache device at `create`: what was found, and in one line what the device is good for beside its origin.

use crate::output::Size;
use engine::units::{BLOCK_BYTES, Nanos};
use live::devices::Device;
use live::trial::Trial;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The time of a trial of a block device, unless another one is wanted. A trial of anything else has to be asked for.
pub const TRIAL_SECONDS: u32 = 30;
/// A flush that takes as long as this is one of a hard disk: half a turn at 7200 a minute.
const SLOW_FLUSH_NS: u64 = 4 * MILLISECOND_NS;
/// Hard disks write as fast as this, one place behind the other.
const SLOW_WRITES_BYTES: u64 = 150 << 20;
/// A hard disk answers a read as late as this, and nobody waits longer for a miss.
const SLOW_READ_NS: u64 = 12 * MILLISECOND_NS;
/// No flash is written in so short a time: a flush that takes less has nothing to write, or does not.
const UNSEEN_FLUSH_NS: u64 = 100_000;
/// The flush says something if there was as much to be flushed.
const SEEN_BYTES: u64 = 16 << 20;
/// The origin is read for one in so many seconds of the trial.
const ORIGIN_ONE_IN: u32 = 10;
const MILLISECOND_NS: u64 = Nanos::SECOND / 1000;

/// The findings, as they are printed.
#[derive(Serialize)]
pub struct Findings {
    seconds: f64,
    /// Half of the flushes behind a small write took this long, and 99 % at most the second.
    flush_p50_us: u64,
    flush_p99_us: u64,
    /// The flush behind all large writes.
    full_flush_us: u64,
    /// Whether the kernel knows of a write cache that a power cut empties.
    volatile_cache: Option<bool>,
    written_bytes: u64,
    burst_bytes_per_second: u64,
    steady_bytes_per_second: u64,
    read_p50_us: u64,
    read_p999_us: u64,
    read_max_us: u64,
    good_for: String,
    flushes_seen: FlushesSeen,
}

/// Evidence that a flush makes anything durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum FlushesSeen {
    /// The one behind large writes took its time.
    Yes,
    /// The kernel knows of nothing to flush.
    NotNeeded,
    /// It takes no time, whatever was written: there is power-loss protection, or it does nothing.
    No,
    /// Too little was written for that.
    Unknown,
}

impl From<&Trial> for Findings {
    fn from(trial: &Trial) -> Findings {
        Findings {
            seconds: (trial.took.as_secs_f64() * 10.0).round() / 10.0,
            flush_p50_us: trial.flush.p50_ns / 1000,
            flush_p99_us: trial.flush.p99_ns / 1000,
            full_flush_us: trial.full_flush_ns / 1000,
            volatile_cache: trial.has_volatile_cache,
            written_bytes: trial.written_bytes,
            burst_bytes_per_second: trial.burst_bytes_per_second,
            steady_bytes_per_second: trial.steady_bytes_per_second,
            read_p50_us: trial.read.p50_ns / 1000,
            read_p999_us: trial.read.p999_ns / 1000,
            read_max_us: trial.read.max_ns / 1000,
            good_for: good_for(trial),
            flushes_seen: flushes_seen(trial),
        }
    }
}

/// The use of a device with these findings.
fn good_for(trial: &Trial) -> String {
    let mut reasons = Vec::new();
    if trial.read.p999_ns >= SLOW_READ_NS {
        reasons.push(
            "reads wait beside writes as long as for a hard disk, so fill it at night and write around it",
        );
    }
    if trial.steady_bytes_per_second < SLOW_WRITES_BYTES {
        reasons.push("it writes no faster than a hard disk, so long writes are better off in writearound");
    }
    if trial.flush.p50_ns >= SLOW_FLUSH_NS {
        reasons.push(
            "a flush takes as long as on a hard disk, so writeback helps only clients that seldom flush",
        );
    }
    if reasons.is_empty() { "good for every mode".into() } else { reasons.join("; ") }
}

fn flushes_seen(trial: &Trial) -> FlushesSeen {
    match trial.has_volatile_cache {
        _ if trial.full_flush_ns >= UNSEEN_FLUSH_NS.max(2 * trial.flush.p50_ns) => FlushesSeen::Yes,
        _ if trial.flush.p50_ns >= UNSEEN_FLUSH_NS => FlushesSeen::Yes,
        Some(false) => FlushesSeen::NotNeeded,
        _ if trial.written_bytes < SEEN_BYTES => FlushesSeen::Unknown,
        _ => FlushesSeen::No,
    }
}

impl Findings {
    /// A warning where the origin answers reads as soon as this device does beside writes.
    #[must_use]
    pub fn lag(&self, origin_read_us: u64) -> Option<String> {
        (self.read_p50_us >= origin_read_us).then(|| {
            format!(
                "the origin answers a read in {}, the cache in {} beside writes: what is cached is read no sooner, unless the origin \
                 was read where it has no data",
                Time(origin_read_us),
                Time(self.read_p50_us)
            )
        })
    }

    /// A warning where flushes have not been seen to do anything.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        (self.flushes_seen == FlushesSeen::No).then(|| {
            format!(
                "a flush takes {}, even behind {} of writes: the device keeps its write cache over a power cut, or its flushes do \
                 nothing; ask its maker before you use writeback",
                Time(self.full_flush_us),
                Size(self.written_bytes)
            )
        })
    }
}

/// The time that half of the reads of an origin take at most, tried for a part of those seconds; nothing if it cannot be
/// read.
#[must_use]
pub fn origin_read_us(origin: &Device, seconds: u32) -> Option<u64> {
    let time = Duration::from_secs(seconds.into()) / ORIGIN_ONE_IN;
    let is_large_enough = origin.size_bytes() >= BLOCK_BYTES;
    let read = is_large_enough.then(|| live::trial::read(origin, time).ok()).flatten()?;
    (read.count > 0).then_some(read.p50_ns / 1000)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "trial of {:.0} s: flush {} (99 %: {}); writes {}/s, and {}/s at the end of {}; reads beside them {} (99.9 %: {}): {}",
            self.seconds,
            Time(self.flush_p50_us),
            Time(self.flush_p99_us),
            Size(self.burst_bytes_per_second),
            Size(self.steady_bytes_per_second),
            Size(self.written_bytes),
            Time(self.read_p50_us),
            Time(self.read_p999_us),
            self.good_for
        )
    }
}

/// A time in microseconds for people.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us @ ..1000 => write!(f, "{us} us"),
            us => write!(f, "{:.1} ms", us as f64 / 1000.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial() -> Trial {
        let mut trial = Trial {
            took: Duration::from_secs(30),
            flush: Default::default(),
            full_flush_ns: 9 * MILLISECOND_NS,
            has_volatile_cache: Some(true),
            written_bytes: 8 << 30,
            burst_bytes_per_second: 500 << 20,
            steady_bytes_per_second: 300 << 20,
            read: Default::default(),
        };
        trial.flush.p50_ns = 900_000;
        trial.read.p999_ns = MILLISECOND_NS;
        trial
    }

    #[test]
    fn a_device_is_good_for_what_it_does_faster_than_a_hard_disk() {
        assert_eq!(good_for(&trial()), "good for every mode");
        let mut slow = trial();
        slow.flush.p50_ns = 12 * MILLISECOND_NS;
        slow.steady_bytes_per_second = 90 << 20;
        let said = good_for(&slow);
        assert!(said.contains("writeback helps only") && said.contains("writearound"), "{said}");
    }

    #[test]
    fn a_cache_that_is_no_faster_than_its_origin_is_told() {
        let mut trial = trial();
        trial.read.p50_ns = 300_000;
        let findings = Findings::from(&trial);
        assert!(findings.lag(100).is_some_and(|lag| lag.contains("100 us, the cache in 300 us")));
        assert_eq!(findings.lag(8000), None);
    }

    #[test]
    fn flushes_that_take_no_time_are_told() {
        assert_eq!(flushes_seen(&trial()), FlushesSeen::Yes);
        let mut fast = trial();
        (fast.flush.p50_ns, fast.full_flush_ns) = (20_000, 22_000);
        assert_eq!(flushes_seen(&fast), FlushesSeen::No);
        assert!(Findings::from(&fast).doubt().is_some_and(|doubt| doubt.contains("ask its maker")));
        fast.has_volatile_cache = Some(false);
        assert_eq!(flushes_seen(&fast), FlushesSeen::NotNeeded);
        (fast.has_volatile_cache, fast.written_bytes) = (None, 1 << 20);
        assert_eq!(flushes_seen(&fast), FlushesSeen::Unknown);
    }
}
