//! Buckets: so much a second, and so much at once after a rest. Integers alone, and the time is given.

use engine::units::Nanos;

/// A rate that a volume's clients are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units for each second: requests or bytes. At least one.
    pub per_second: u64,
    /// Units that may go at once after a rest. At least one.
    pub burst: u64,
}

/// Units that a rate has let through of late.
///
/// It holds what went, less what time has worked off since. Both are counted in parts of a unit, as many as a second has
/// nanoseconds: the rate is so many parts in each nanosecond, and nothing is ever rounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    parts: u128,
    at: Nanos,
}

/// Parts of a unit.
const PARTS: u128 = Nanos::SECOND as u128;

impl Bucket {
    /// A bucket after a rest.
    pub(super) fn new(rate: Rate, now: Nanos) -> Bucket {
        assert!(rate.per_second > 0 && rate.burst > 0, "a rate lets something through");
        Bucket { rate, parts: 0, at: now }
    }

    fn parts_at(&self, now: Nanos) -> u128 {
        let worked_off = u128::from(now.since(self.at)) * u128::from(self.rate.per_second);
        self.parts.saturating_sub(worked_off)
    }

    /// Parts that may be in it before `units` more go. What is larger than the burst goes when it is empty.
    fn parts_max(&self, units: u64) -> u128 {
        u128::from(self.rate.burst.saturating_sub(units)) * PARTS
    }

    /// The time at which `units` may go, if nothing else goes before.
    pub(super) fn ready_at(&self, units: u64, now: Nanos) -> Nanos {
        let surplus = self.parts_at(now).saturating_sub(self.parts_max(units));
        let wait_ns = surplus.div_ceil(u128::from(self.rate.per_second));
        Nanos(now.0.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    /// Lets `units` go.
    pub(super) fn take(&mut self, units: u64, now: Nanos) {
        self.parts = self.parts_at(now) + u128::from(units) * PARTS;
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_goes_at_once_and_then_so_much_a_second() {
        let mut bucket = Bucket::new(Rate { per_second: 100, burst: 10 }, Nanos(0));
        let mut now = Nanos(0);
        let mut last = Nanos(0);
        for number in 0..1010 {
            now = bucket.ready_at(1, now);
            bucket.take(1, now);
            if number == 9 {
                assert_eq!(now, Nanos(0), "ten at once");
            }
            last = now;
        }
        assert_eq!(last, Nanos(10 * Nanos::SECOND), "a thousand more in ten seconds");
    }

    #[test]
    fn what_is_larger_than_the_burst_goes_and_is_worked_off() {
        let mut bucket = Bucket::new(Rate { per_second: 1000, burst: 10 }, Nanos(0));
        assert_eq!(bucket.ready_at(500, Nanos(0)), Nanos(0));
        bucket.take(500, Nanos(0));
        assert_eq!(bucket.ready_at(10, Nanos(0)), Nanos(Nanos::SECOND / 2));
    }

    #[test]
    fn the_largest_figures_do_not_overflow() {
        let mut bucket = Bucket::new(Rate { per_second: 1, burst: 1 }, Nanos(0));
        for _ in 0..8 {
            bucket.take(u64::MAX, Nanos(0));
        }
        assert_eq!(bucket.ready_at(u64::MAX, Nanos(5)), Nanos(u64::MAX));
        let fast = Bucket::new(Rate { per_second: u64::MAX, burst: u64::MAX }, Nanos(0));
        assert_eq!(fast.ready_at(u64::MAX, Nanos(u64::MAX)), Nanos(u64::MAX));
    }

    proptest! {
        /// In no span of time goes more than the burst, the rate and one request; and what waits, waits no longer
        /// than it has to.
        #[test]
        fn no_span_lets_more_through_than_the_rate(
            per_second in 1u64..1_000_000,
            burst in 1u64..100_000,
            requests in prop::collection::vec((1u64..5_000, 0u64..50_000_000), 1..60),
        ) {
            let mut bucket = Bucket::new(Rate { per_second, burst }, Nanos(0));
            let mut went: Vec<(Nanos, u64)> = Vec::new();
            let mut now = Nanos(0);
            for (units, rest_ns) in requests {
                now = now.plus(rest_ns);
                let ready = bucket.ready_at(units, now);
                if ready > now {
                    let early = Nanos(ready.0 - 1);
                    prop_assert!(bucket.ready_at(units, early) == ready, "not a nanosecond too late");
                }
                now = ready;
                bucket.take(units, now);
                went.push((now, units));
            }
            for first in 0..went.len() {
                let mut sum = 0_u128;
                for &(at, units) in &went[first..] {
                    sum += u128::from(units);
                    let span_ns = u128::from(at.since(went[first].0));
                    let allowed = u128::from(burst) + span_ns * u128::from(per_second) / PARTS + 1;
                    // One request may be larger than the burst.
                    prop_assert!(sum <= allowed + u128::from(units.max(went[first].1)), "{sum} in {span_ns} ns");
                }
            }
        }
    }
}
