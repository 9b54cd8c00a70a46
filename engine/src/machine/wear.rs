//! The wear budget: how much the cache device may be written in a day.
//!
//! A bucket in virtual time: seven eighths of the budget flow off evenly over a day, and an eighth may gather. So
//! in no day is more written than the budget, as far as the engine has the choice. What it has no choice about is
//! written anyway, and counts: dirty data, tombstones, headers. The rest stops in turns, the least useful first:
//!
//! | left of the eighth | what stops |
//! | --- | --- |
//! | less than a half | fills: what was read can be read again |
//! | less than a quarter | clean blocks that would be appended again |
//! | nothing | writes that may go around the cache do |

use crate::effect::WearBudget;
use crate::status::WearStatus;
use crate::units::Nanos;

/// A day.
const DAY_NS: u64 = 24 * 3600 * Nanos::SECOND;
/// The budget in parts of which one may gather and the others flow off.
const PARTS: u64 = 8;

/// The bytes written of late, less those that flowed off.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    day_bytes: u64,
    /// Bytes that have not flowed off, times the nanoseconds of a day: nothing is rounded.
    spent: u128,
    at: Nanos,
}

impl Bucket {
    fn spent_at(&self, now: Nanos) -> u128 {
        let flows_off = u128::from(self.day_bytes / PARTS * (PARTS - 1));
        self.spent.saturating_sub(u128::from(now.since(self.at)) * flows_off)
    }

    fn left_bytes(&self, now: Nanos) -> u64 {
        let spent_bytes = self.spent_at(now).div_ceil(u128::from(DAY_NS));
        (self.day_bytes / PARTS).saturating_sub(u64::try_from(spent_bytes).unwrap_or(u64::MAX))
    }
}

/// The wear budget, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wear {
    bucket: Option<Bucket>,
    /// Bytes written to the device when that was last looked at.
    seen_bytes: u64,
}

impl Wear {
    /// Sets the budget; what was written before counts as `spent_bytes` of it.
    pub fn set(&mut self, budget: Option<WearBudget>, written_bytes: u64, now: Nanos) {
        self.seen_bytes = written_bytes;
        self.bucket = budget.map(|WearBudget { day_bytes, spent_bytes }| Bucket {
            day_bytes,
            spent: u128::from(spent_bytes) * u128::from(DAY_NS),
            at: now,
        });
    }

    /// Whether at least so many parts of four of what may gather are left, after all that was written.
    fn has_left(&mut self, quarters: u64, written_bytes: u64, now: Nanos) -> bool {
        let Some(bucket) = &mut self.bucket else { return true };
        let new_bytes = written_bytes - self.seen_bytes;
        bucket.spent = bucket.spent_at(now) + u128::from(new_bytes) * u128::from(DAY_NS);
        bucket.at = now;
        self.seen_bytes = written_bytes;
        bucket.left_bytes(now) > bucket.day_bytes / PARTS / 4 * quarters
    }

    /// Whether there is one.
    #[inline]
    pub fn has_budget(&self) -> bool {
        self.bucket.is_some()
    }

    /// Whether what was read may enter the cache.
    pub fn allows_fills(&mut self, written_bytes: u64, now: Nanos) -> bool {
        self.has_left(2, written_bytes, now)
    }

    /// Whether clean blocks may be written again.
    pub fn allows_relocation(&mut self, written_bytes: u64, now: Nanos) -> bool {
        self.has_left(1, written_bytes, now)
    }

    /// Whether writes may enter the cache that may as well go around it.
    pub fn allows_writes(&mut self, written_bytes: u64, now: Nanos) -> bool {
        self.has_left(0, written_bytes, now)
    }

    /// The budget and what is left of it, given the bytes written so far.
    pub fn status(mut self, written_bytes: u64, now: Nanos) -> Option<WearStatus> {
        self.has_left(0, written_bytes, now);
        let bucket = self.bucket?;
        let spent_bytes = bucket.spent_at(now).div_ceil(u128::from(DAY_NS));
        Some(WearStatus {
            day_bytes: bucket.day_bytes,
            spent_bytes: u64::try_from(spent_bytes).unwrap_or(u64::MAX),
            left_bytes: bucket.left_bytes(now),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const HOUR_NS: u64 = 3600 * Nanos::SECOND;

    fn wear(day_bytes: u64, spent_bytes: u64) -> Wear {
        let mut wear = Wear::default();
        wear.set(Some(WearBudget { day_bytes, spent_bytes }), 0, Nanos(0));
        wear
    }

    #[test]
    fn without_a_budget_everything_is_allowed() {
        let mut wear = Wear::default();
        assert!(wear.allows_fills(u64::MAX, Nanos(0)) && wear.allows_writes(u64::MAX, Nanos(0)));
        assert_eq!(wear.status(5, Nanos(0)), None);
    }

    #[test]
    fn what_is_least_useful_stops_first_and_goes_on_last() {
        let mut wear = wear(8000, 0);
        let allows = |wear: &mut Wear, written, now| {
            [
                wear.allows_fills(written, now),
                wear.allows_relocation(written, now),
                wear.allows_writes(written, now),
            ]
        };
        assert_eq!(allows(&mut wear, 499, Nanos(0)), [true, true, true]);
        assert_eq!(allows(&mut wear, 500, Nanos(0)), [false, true, true]);
        assert_eq!(allows(&mut wear, 750, Nanos(0)), [false, false, true]);
        assert_eq!(allows(&mut wear, 1000, Nanos(0)), [false, false, false]);
        // 7000 a day are 291 an hour.
        assert_eq!(allows(&mut wear, 1000, Nanos(HOUR_NS)), [false, true, true]);
        assert_eq!(allows(&mut wear, 1000, Nanos(2 * HOUR_NS)), [true, true, true]);
    }

    #[test]
    fn what_was_spent_before_a_restart_counts() {
        let status = wear(8000, 900).status(50, Nanos(0)).expect("there is a budget");
        assert_eq!((status.day_bytes, status.spent_bytes, status.left_bytes), (8000, 950, 50));
        assert_eq!(wear(8000, 5000).status(0, Nanos(0)).expect("there is a budget").left_bytes, 0);
    }

    proptest! {
        /// Whatever comes when: who writes only what is allowed, a little at a time, stays within the budget of each day.
        #[test]
        fn no_day_has_more_than_the_budget(
            day_bytes in 80_000_u64..1 << 40,
            pauses in prop::collection::vec(0u64..HOUR_NS, 1..400),
        ) {
            let mut wear = wear(day_bytes, 0);
            let step_bytes = day_bytes / 1000;
            let (mut now, mut written) = (Nanos(0), 0);
            let mut wrote: Vec<Nanos> = Vec::new();
            for pause_ns in pauses {
                now = now.plus(pause_ns);
                while wear.allows_fills(written, now) {
                    written += step_bytes;
                    wrote.push(now);
                }
            }
            for (first, at) in wrote.iter().enumerate() {
                let of_day = wrote[first..].iter().take_while(|when| when.since(*at) < DAY_NS).count();
                prop_assert!(of_day as u64 * step_bytes <= day_bytes, "{of_day} thousandths in a day");
            }
        }
    }
}
