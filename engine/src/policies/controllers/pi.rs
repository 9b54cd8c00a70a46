//! bcache's write-back: a rate that follows how far dirty data is from a target, in order of address.
//!
//! The target is a share of the cache, divided among the origins by their size. Every few seconds the rate is
//! set anew; a copy of so many sectors puts the time of the next one off by as much as the rate says.
//! A sweep over the volume is followed by a rest.
//!
//! | era | Linux | every | rate |
//! | --- | --- | --- | --- |
//! | `a` | 3.10 | 30 s | += rate · ((dirty + trend − target) / target) / 64, in units of 100 sectors/s |
//! | `b` | 3.13 to 4.14 | 5 s | += (dirty − target) · 5 / 6000 + trend · 30 / 6000 |
//! | `c` | 4.15 and later | 5 s | = (dirty − target) / 40 + the sum of (dirty − target) · 5 / 10 000 |
//!
//! The trend is an average of how dirty data grows: `a` over 8, per update and times 16, at most as large as
//! what is dirty; `b` over 30 s, per second. `a` and `b` do not raise the rate, and `c` does not raise the
//! sum, while copies lag behind it; the sum falls only while it is positive.
//!
//! | | `a` | `b` | `c` |
//! | --- | --- | --- | --- |
//! | the next copy is due | any time | 2 s ago at the earliest, in 1 s at the latest | 2 s ago, in 2.5 s |
//! | a wait | 1 s at the most; none before a run that continues the last one if it is 50 ms or less | the same run needs none | always |
//! | runs together | one | one | up to 5 that continue one another, or 5000 sectors |
//! | a rest of `writeback_delay` | after a sweep, and when data first becomes dirty | after a sweep | after a sweep |
//!
//! `c` also: fragmented buckets raise the rate (5.12 and later), and after six updates without a client's
//! request there is no limit until the next one, which sets it to 1 until the next update (4.19
//! (unverified) and later).
//!
//! All in 64-bit integers; divisions truncate towards zero as there. Not imitated: waits in whole jiffies;
//! that the time of the next copy is forgotten after each 500 extents (here: when a sweep begins);
//! full stripes first.
//!
//! Source: bcache's `writeback.c` and `util.c` in trees of 3.10 (with another version merged into it), of 4.5, and
//! of a recent 6.x, read.

use super::{Budget, HomeOrder, Join, Pressure};
use crate::units::Nanos;

/// Waits up to this long are left out before a run that continues the last one (`a`, `b`).
const SHORT_WAIT_NS: u64 = 50 * Nanos::MILLISECOND;
/// The longest wait of `a`.
const WAIT_NS_MAX_A: u64 = Nanos::SECOND;
/// Limit of the arrears of the next copy.
const BEHIND_NS_MAX: u64 = 2 * Nanos::SECOND;
/// A sector's time in `a`, divided by the rate.
const SECTOR_NS_A: u64 = 10_000_000;
/// The highest rate of `a` and `b`, and of `c`.
const RATE_MAX_AB: i64 = 1_000_000;
const RATE_MAX_C: i64 = 1_000_000_000;
/// The rate of an idle cache.
const RATE_IDLE: i64 = 0x7fff_ffff;
/// Updates without a client's request that make a cache idle.
const IDLE_UPDATES: u32 = 6;
/// Runs started together (`c`), and sectors that are enough.
const GROUP_RUNS_MAX: u32 = 5;
const GROUP_SECTORS_ENOUGH: u32 = 5000;
/// Percent of buckets in use where fragmentation begins to count, and from where on it counts more.
const FRAGMENT_PERCENT: [i64; 3] = [50, 57, 64];
/// Sectors of dirty buckets for a dirty sector, above which they are fragmented.
const FRAGMENTED: i64 = 3;

/// The version of bcache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PiEra {
    /// Linux 3.10.
    A,
    /// Linux 3.13 to 4.14.
    B,
    /// Linux 4.15 and later.
    #[default]
    C,
}

/// The tunables. Those that an era does not use are left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PiChoice {
    /// The version; default today's.
    pub era: PiEra,
    /// The target: percent of the cache that may be dirty; default 10, 0 to 40; 0: no limit of the rate.
    pub writeback_percent: u32,
    /// The rest after a sweep; default 30 s, 0 to 86 400.
    pub writeback_delay_s: u32,
    /// Period at which the rate is set; default 5 s (`a`: 30), 1 to 60.
    pub update_s: u32,
    /// Default 40 (`b`: 6000, `a`: 64), 1 to 4 294 967 295.
    pub p_inverse: u32,
    /// `c`: default 10 000, 1 to 4 294 967 295.
    pub i_inverse: u32,
    /// `a`: times (16); `b`: seconds (30); 0 to 4 294 967 295.
    pub d_term: u32,
    /// `a`: updates in the average (8), 1 to 1000.
    pub d_smooth: u32,
    /// The rate at first; default 1024 sectors/s (`a`: of 100 sectors/s), 1 to 1 000 000.
    pub rate_start: u32,
    /// `c`: the lowest rate; default 8 sectors/s, 1 to 1 000 000.
    pub rate_min: u32,
    /// Copies at the same time; default 64, 1 to 4096.
    pub copies_max: u32,
    /// `c`: whether fragmented buckets raise the rate; default on.
    pub considers_fragments: bool,
    /// `c`: the addition for each percent of buckets in use, by their share; defaults 1, 10, 1000, each 1 to 1 000
    /// 000.
    pub fragment_terms: [u32; 3],
    /// `c`: whether an idle cache has no limit; default on.
    pub idles_at_max: bool,
}

impl PiChoice {
    /// Today's.
    pub const PUBLISHED: PiChoice = PiChoice {
        era: PiEra::C,
        writeback_percent: 10,
        writeback_delay_s: 30,
        update_s: 5,
        p_inverse: 40,
        i_inverse: 10_000,
        d_term: 30,
        d_smooth: 8,
        rate_start: 1024,
        rate_min: 8,
        copies_max: 64,
        considers_fragments: true,
        fragment_terms: [1, 10, 1000],
        idles_at_max: true,
    };
    /// Linux 3.13 to 4.14.
    pub const B: PiChoice = PiChoice { era: PiEra::B, p_inverse: 6000, ..PiChoice::PUBLISHED };
    /// Linux 3.10.
    pub const A: PiChoice =
        PiChoice { era: PiEra::A, update_s: 30, d_term: 16, p_inverse: 64, ..PiChoice::PUBLISHED };
}

/// The controller of one volume.
#[derive(Clone, Debug)]
pub struct Pi {
    choice: PiChoice,
    /// Sectors/s; `a`: hundreds of them.
    rate: i64,
    /// `c`: sector-seconds beyond the target.
    sum: i64,
    /// `a`, `b`: how dirty data grows.
    trend: i64,
    /// Dirty sectors at the last update.
    last_dirty: i64,
    was_dirty: bool,
    /// The time when the rate is set next; `a` only while something is dirty.
    next_update: Option<Nanos>,
    /// The time when the next copy is due.
    due: Nanos,
    /// The time when the next copy may begin.
    wait_until: Nanos,
    /// A sweep ended: until when nothing goes home.
    rest_until: Option<Nanos>,
    idle_updates: u32,
    is_at_max: bool,
}

impl Pi {
    /// A controller that has seen nothing.
    #[must_use]
    pub fn new(choice: PiChoice) -> Pi {
        assert!(choice.update_s > 0 && choice.p_inverse > 0 && choice.i_inverse > 0 && choice.d_smooth > 0);
        Pi {
            choice,
            rate: i64::from(choice.rate_start),
            sum: 0,
            trend: 0,
            last_dirty: 0,
            was_dirty: false,
            next_update: None,
            due: Nanos(0),
            wait_until: Nanos(0),
            rest_until: None,
            idle_updates: 0,
            is_at_max: false,
        }
    }

    /// The rate: sectors/s; `a`: hundreds of them.
    #[must_use]
    pub fn rate(&self) -> i64 {
        self.rate
    }

    /// Notes a client's request.
    pub fn client_request(&mut self) {
        self.idle_updates = 0;
        if self.is_at_max {
            self.is_at_max = false;
            self.rate = 1;
        }
    }

    /// The runs that may be started now. Asked at every event, and at `look_again`.
    pub fn budget(&mut self, pressure: &Pressure) -> Budget {
        let now = pressure.now;
        self.look(pressure);
        if pressure.dirty_sectors == 0 {
            return Budget::rest(self.next_update);
        }
        let mut budget = Budget {
            join: self.join(),
            ..Budget::runs(self.choice.copies_max.saturating_sub(pressure.runs), HomeOrder::Address)
        };
        if pressure.is_draining {
            return budget;
        }
        if let Some(rest_until) = self.rest_until {
            if now < rest_until {
                return Budget::rest(Some(self.sooner(rest_until)));
            }
            // A new sweep begins: its lead or arrears are forgotten.
            (self.rest_until, self.due, self.wait_until) = (None, now, now);
        }
        if self.choice.writeback_percent == 0 {
            return budget;
        }
        let wait_ns = self.wait_until.since(now);
        let group = if self.choice.era == PiEra::C { GROUP_RUNS_MAX } else { 1 };
        let one = budget.runs.min(group);
        let may_continue = wait_ns == 0 || (self.choice.era != PiEra::C && wait_ns <= SHORT_WAIT_NS);
        budget.runs = if wait_ns == 0 { one } else { 0 };
        budget.continuing = if may_continue { one } else { 0 };
        budget.look_again =
            Some(if wait_ns > 0 { self.sooner(self.wait_until) } else { self.sooner(Nanos(u64::MAX)) });
        budget
    }

    /// A run, or a group of runs, of so many sectors was started.
    pub fn started(&mut self, now: Nanos, sectors: u64) {
        let sector_ns = if self.choice.era == PiEra::A { SECTOR_NS_A } else { Nanos::SECOND };
        let takes_ns = sectors.saturating_mul(sector_ns) / self.rate.unsigned_abs().max(1);
        self.due = self.due.plus(takes_ns);
        let ahead_ns_max = match self.choice.era {
            PiEra::A => None,
            PiEra::B => Some(Nanos::SECOND),
            PiEra::C => Some(Nanos::SECOND * 5 / 2),
        };
        if let Some(ahead_ns_max) = ahead_ns_max {
            let earliest = Nanos(now.0.saturating_sub(BEHIND_NS_MAX));
            self.due = self.due.clamp(earliest, now.plus(ahead_ns_max));
        }
        let wait_ns = self.due.since(now);
        let wait_ns = if self.choice.era == PiEra::A { wait_ns.min(WAIT_NS_MAX_A) } else { wait_ns };
        self.wait_until = now.plus(wait_ns);
    }

    /// The sweep passed the end of the volume and came to where it had begun.
    pub fn wrapped(&mut self, now: Nanos) {
        self.rest_until = Some(now.plus(u64::from(self.choice.writeback_delay_s) * Nanos::SECOND));
    }

    fn join(&self) -> Join {
        match self.choice.era {
            PiEra::A | PiEra::B => Join::Nothing,
            PiEra::C => Join::Group { runs_max: GROUP_RUNS_MAX, sectors_enough: GROUP_SECTORS_ENOUGH },
        }
    }

    fn sooner(&self, than: Nanos) -> Nanos {
        self.next_update.map_or(than, |update| update.min(than))
    }

    /// Notes changes of dirty data, and sets the rate when it is time.
    fn look(&mut self, pressure: &Pressure) {
        let now = pressure.now;
        let is_dirty = pressure.dirty_sectors > 0;
        let period_ns = u64::from(self.choice.update_s) * Nanos::SECOND;
        if self.choice.era == PiEra::A {
            if is_dirty && !self.was_dirty {
                self.wrapped(now);
                self.next_update = Some(now.plus(period_ns));
            } else if !is_dirty {
                self.next_update = None;
            }
        } else if self.next_update.is_none() {
            self.next_update = Some(now.plus(period_ns));
        }
        if is_dirty && !self.was_dirty {
            // The first sweep begins.
            (self.due, self.wait_until) = (now, now);
        }
        self.was_dirty = is_dirty;
        if self.next_update.is_some_and(|update| now >= update) {
            self.next_update = Some(now.plus(period_ns));
            if is_dirty && self.choice.writeback_percent > 0 {
                self.update(pressure);
            }
        }
    }

    fn update(&mut self, pressure: &Pressure) {
        if self.choice.era == PiEra::C && self.choice.idles_at_max {
            self.idle_updates += 1;
            if self.idle_updates >= IDLE_UPDATES {
                self.is_at_max = true;
                self.rate = RATE_IDLE;
                return;
            }
        }
        let target = target_sectors(pressure, self.choice.writeback_percent);
        let dirty = signed(pressure.dirty_sectors);
        match self.choice.era {
            PiEra::A => self.update_a(pressure.now, dirty, target),
            PiEra::B => self.update_b(pressure.now, dirty, target),
            PiEra::C => self.update_c(pressure, dirty, target),
        }
    }

    fn update_a(&mut self, now: Nanos, dirty: i64, target: i64) {
        let growth =
            (dirty - self.last_dirty).saturating_mul(i64::from(self.choice.d_term)).clamp(-dirty, dirty);
        self.last_dirty = dirty;
        self.trend = average(self.trend, growth, i64::from(self.choice.d_smooth));
        if target == 0 {
            return;
        }
        let error = ((dirty + self.trend - target) << 8) / target;
        let change = (self.rate.saturating_mul(error) >> 8) / i64::from(self.choice.p_inverse);
        let change = if self.lags(now, 10 * Nanos::MILLISECOND) { change.min(0) } else { change };
        self.rate = self.rate.saturating_add(change).clamp(1, RATE_MAX_AB);
    }

    fn update_b(&mut self, now: Nanos, dirty: i64, target: i64) {
        let (update_s, d_term) = (i64::from(self.choice.update_s), i64::from(self.choice.d_term));
        let p_inverse = i64::from(self.choice.p_inverse);
        let growth = (dirty - self.last_dirty) / update_s;
        self.last_dirty = dirty;
        self.trend = average(self.trend, growth, (d_term / update_s).max(1));
        let change = (dirty - target).saturating_mul(update_s) / p_inverse
            + self.trend.saturating_mul(d_term) / p_inverse;
        let change = if self.lags(now, Nanos::MILLISECOND) { change.min(0) } else { change };
        self.rate = self.rate.saturating_add(change).clamp(1, RATE_MAX_AB);
    }

    fn update_c(&mut self, pressure: &Pressure, dirty: i64, target: i64) {
        let error = dirty - target;
        let mut proportional = error / i64::from(self.choice.p_inverse);
        if self.choice.considers_fragments {
            proportional = proportional.max(self.fragment_rate(pressure, dirty));
        }
        let keeps_up = pressure.now < self.due.plus(Nanos::MILLISECOND);
        if (error < 0 && self.sum > 0) || (error > 0 && keeps_up) {
            self.sum = self.sum.saturating_add(error.saturating_mul(i64::from(self.choice.update_s)));
        }
        let integral = self.sum / i64::from(self.choice.i_inverse);
        self.rate = proportional.saturating_add(integral).clamp(i64::from(self.choice.rate_min), RATE_MAX_C);
    }

    /// The rate that fragmented buckets ask for; `i64::MIN`: they are not.
    fn fragment_rate(&self, pressure: &Pressure, dirty: i64) -> i64 {
        let in_use = i64::from(pressure.in_use_percent);
        let buckets = i64::from(pressure.busy_buckets);
        if in_use <= FRAGMENT_PERCENT[0] || buckets == 0 {
            return i64::MIN;
        }
        if buckets.saturating_mul(i64::from(pressure.frame_sectors)) / dirty <= FRAGMENTED {
            return i64::MIN;
        }
        let step = if in_use <= FRAGMENT_PERCENT[1] {
            0
        } else if in_use <= FRAGMENT_PERCENT[2] {
            1
        } else {
            2
        };
        let term = i64::from(self.choice.fragment_terms[step]) * (in_use - FRAGMENT_PERCENT[step]);
        (dirty / buckets).saturating_mul(term)
    }

    /// Whether the next copy was due more than `grace_ns` ago.
    fn lags(&self, now: Nanos, grace_ns: u64) -> bool {
        now > self.due.plus(grace_ns)
    }
}

/// The amount of the volume that may be dirty.
fn target_sectors(pressure: &Pressure, percent: u32) -> i64 {
    let all = u128::from(pressure.cache_sectors) * u128::from(percent) / 100;
    let share = all * u128::from(pressure.origin_sectors) / u128::from(pressure.origins_sectors.max(1));
    i64::try_from(share).unwrap_or(i64::MAX >> 9)
}

/// A count of sectors, with room to be shifted and added to.
fn signed(sectors: u64) -> i64 {
    i64::try_from(sectors).unwrap_or(i64::MAX).min(i64::MAX >> 10)
}

/// A moving average over `weight` values.
fn average(old: i64, value: i64, weight: i64) -> i64 {
    old.saturating_mul(weight - 1).saturating_add(value) / weight
}

#[cfg(test)]
#[path = "pi_tests.rs"]
mod tests;
