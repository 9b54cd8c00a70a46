//! Congestion: slow answers of the cache device let shorter runs bypass it.
//!
//! Source: bcache of Linux 3.10 to 5.x (`bch_get_congested` and the accounting of its
//! completions, both read), in our own words. A counter goes down by its latency for each slow
//! answer, and up by one for each answer that was not slow; time since the last slow answer
//! counts like answers that were not slow. The counter, from -1024 to 0, gives the length in
//! sectors from which on a run passes by: it falls by half for every 64.

use crate::policies::replacement::Access;
use crate::units::Nanos;

/// The counter's floor, below zero.
const COUNT_MAX: i64 = 1024;
/// Bcache's millisecond.
const MILLISECOND_US: u64 = 1024;

/// The latencies above which an answer of the cache device is slow. Both 0: never congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionChoice {
    /// A read is slow above this, in microseconds; default 2000, 0 to 10 000 000; 0: reads do not count.
    pub read_us: u32,
    /// A write is slow above this, in microseconds; default 20 000, 0 to 10 000 000; 0: writes do not count.
    pub write_us: u32,
}

impl CongestionChoice {
    /// The published defaults.
    pub const PUBLISHED: CongestionChoice = CongestionChoice { read_us: 2000, write_us: 20_000 };
}

/// The counter.
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    choice: CongestionChoice,
    /// From `-COUNT_MAX` to 0; below zero: slow answers weigh more than others.
    count: i64,
    last_slow_us: u64,
}

impl Congestion {
    /// A device that has not answered yet.
    #[must_use]
    pub fn new(choice: CongestionChoice) -> Congestion {
        Congestion { choice, count: 0, last_slow_us: 0 }
    }

    /// Takes the latency `latency_ns` of the cache device's answer to a client's request.
    pub fn device_answered(&mut self, access: Access, latency_ns: u64, now: Nanos) {
        let slow_us = match access {
            Access::Read => self.choice.read_us,
            Access::Write => self.choice.write_us,
        };
        if slow_us == 0 {
            return;
        }
        let latency_us = latency_ns / 1000;
        if latency_us > u64::from(slow_us) {
            let weight = i64::try_from(latency_us / MILLISECOND_US).unwrap_or(i64::MAX);
            self.count -= weight.min(COUNT_MAX + self.count);
            self.last_slow_us = now.0 / 1000;
        } else if self.count < 0 {
            self.count += 1;
        }
        assert!((-COUNT_MAX..=0).contains(&self.count), "the counter has a floor and a ceiling");
    }

    /// Runs of this many sectors and more bypass the cache, before jitter; at least 1. `None`: not congested.
    #[must_use]
    pub fn limit_sectors(&self, now: Nanos) -> Option<u32> {
        if self.choice.read_us == 0 && self.choice.write_us == 0 {
            return None;
        }
        let quiet_ms = (now.0 / 1000).saturating_sub(self.last_slow_us) / MILLISECOND_US;
        let relief = self.count + i64::try_from(quiet_ms).unwrap_or(i64::MAX - COUNT_MAX);
        if relief >= 0 {
            return None;
        }
        let step = u32::try_from(relief + COUNT_MAX).expect("the counter has a floor");
        Some(power_of_two(step))
    }
}

/// `2^(step / 64)` for a step below 1024, straight lines between the powers.
fn power_of_two(step: u32) -> u32 {
    let whole = 1u32 << (step >> 6);
    whole + ((whole * (step & 63)) >> 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(reads: u32, latency_us: u64) -> (Congestion, Nanos) {
        let now = Nanos(5 * Nanos::SECOND);
        let mut congestion = Congestion::new(CongestionChoice::PUBLISHED);
        (0..reads).for_each(|_| congestion.device_answered(Access::Read, latency_us * 1000, now));
        (congestion, now)
    }

    /// 3000 us are 2 of bcache's milliseconds, so 20 slow reads count 40; 1024 - 40 = 984 = 15 * 64 + 24,
    /// and 2^15 + 2^15 * 24 / 64 = 45 056.
    #[test]
    fn twenty_slow_reads() {
        let (congestion, now) = after(20, 3000);
        assert_eq!(congestion.count, -40);
        assert_eq!(congestion.limit_sectors(now), Some(45_056));
        // 39 ms later a count of one is left: 1023 = 15 * 64 + 63; 40 ms later none.
        assert_eq!(congestion.limit_sectors(now.plus(39 * 1_024_000)), Some(32_768 + 32_256));
        assert_eq!(congestion.limit_sectors(now.plus(40 * 1_024_000)), None);
    }

    #[test]
    fn answers_that_are_not_slow_bring_relief() {
        let (mut congestion, now) = after(20, 3000);
        (0..39).for_each(|_| congestion.device_answered(Access::Read, 2_000_000, now));
        assert_eq!(congestion.count, -1);
        (0..5).for_each(|_| congestion.device_answered(Access::Write, 20_000_999, now));
        assert_eq!((congestion.count, congestion.limit_sectors(now)), (0, None));
        congestion.device_answered(Access::Write, 20_001_000, now);
        assert_eq!(congestion.count, -19);
    }

    #[test]
    fn the_counter_has_a_floor() {
        let (congestion, now) = after(2, 900_000);
        // 878 for the first, the rest to the floor for the second.
        assert_eq!(congestion.count, -1024);
        assert_eq!(congestion.limit_sectors(now), Some(1));
    }

    #[test]
    fn a_threshold_of_zero_does_not_count() {
        let now = Nanos(Nanos::SECOND);
        let mut congestion = Congestion::new(CongestionChoice { read_us: 0, write_us: 20_000 });
        congestion.device_answered(Access::Read, Nanos::SECOND, now);
        assert_eq!(congestion.limit_sectors(now), None);
        congestion.device_answered(Access::Write, Nanos::SECOND, now);
        assert_eq!(congestion.limit_sectors(now), Some(1));
    }
}
