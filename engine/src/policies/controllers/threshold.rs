//! flashcache's cleaning: the excess of a set over its limit is destaged, few copies at a time.
//!
//! A set is looked at when a request misses in it or writes to it, and when a copy of it ended. If more than
//! its limit is dirty (20 %: 102 of 512), the excess goes home in replacement's order; but no more than two copies
//! of a set and four of the cache are chosen at a time. Dirty neighbours of a chosen frame go along: they count as
//! copies under way, but may exceed the limits. A set that could start nothing is looked at again after a
//! second, along with all others.
//!
//! Before that go fallow frames: each look at a set, at most every 15 minutes, marks its dirty frames; what was
//! marked twice and not used in between is fallow. They go home at most twice a second for each set.
//!
//! As published, sets that nobody asks for keep their fallow frames: only looks clean. A remove raises
//! the limits to 10 and 20 and takes everything; so does a drain here.
//!
//! Source: flashcache's `flashcache_clean_set` in a tree of version 1.0, read, and 3.1.1's documents.

use super::{Budget, HomeOrder, Join, OfSet, Pressure};
use crate::number::index;
use crate::policies::replacement::Shape;
use crate::table::bits::Bits;
use crate::table::frame_lists::{FrameLists, List};
use crate::units::{Frame, Nanos};
use alloc::vec;
use alloc::vec::Vec;

/// The sets to look at, in the order in which something happened to them.
const LOOKS: List = List(0);
/// Copies of a set, and of the cache, while everything goes home.
const DRAIN_RUNS: (u32, u32) = (10, 20);

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdChoice {
    /// A set may have so much dirty; default 20 %, 10 to 95.
    pub set_dirty_percent: u32,
    /// Copies of one set that are chosen at the same time; default 2, 1 to 512.
    pub set_runs_max: u32,
    /// The same for the cache; default 4, 1 to 4096.
    pub cache_runs_max: u32,
    /// Half of how long a dirty frame is unused before it is fallow; default 900 s, 0 to 86 400; 0: never.
    pub fallow_delay_s: u32,
    /// Rounds of fallow frames in a second, for each set; default 2, 1 to 100.
    pub fallow_rounds_per_s: u32,
    /// A set that could start nothing is looked at again after this; default 1000 ms, 10 to 60 000.
    pub retry_ms: u32,
}

impl ThresholdChoice {
    /// The published defaults.
    pub const PUBLISHED: ThresholdChoice = ThresholdChoice {
        set_dirty_percent: 20,
        set_runs_max: 2,
        cache_runs_max: 4,
        fallow_delay_s: 900,
        fallow_rounds_per_s: 2,
        retry_ms: 1000,
    };
}

/// The controller: three bits for each frame, about 36 bytes for each set.
///
/// * I1: `dirty_of` and `fallow_of` count the bits of `dirty` and `fallow` in each set.
#[derive(Clone, Debug)]
pub struct Threshold {
    choice: ThresholdChoice,
    shape: Shape,
    dirty: Bits,
    /// Dirty, and seen unused once.
    marked: Bits,
    /// Dirty, and seen unused twice.
    fallow: Bits,
    dirty_of: Vec<u32>,
    fallow_of: Vec<u32>,
    /// Copies under way, by set.
    runs_of: Vec<u32>,
    runs: u32,
    /// The time when a look at the set marks its frames again.
    mark_at: Vec<Nanos>,
    /// The time when the set's fallow frames may go home again.
    fallow_at: Vec<Nanos>,
    looks: FrameLists,
    retry_at: Option<Nanos>,
}

impl Threshold {
    /// A controller over clean frames.
    #[must_use]
    pub fn new(choice: ThresholdChoice, shape: Shape) -> Threshold {
        assert!(choice.set_runs_max > 0 && choice.cache_runs_max > 0 && choice.fallow_rounds_per_s > 0);
        let sets = index(shape.sets());
        Threshold {
            choice,
            shape,
            dirty: Bits::new(shape.frames),
            marked: Bits::new(shape.frames),
            fallow: Bits::new(shape.frames),
            dirty_of: vec![0; sets],
            fallow_of: vec![0; sets],
            runs_of: vec![0; sets],
            runs: 0,
            mark_at: vec![Nanos(0); sets],
            fallow_at: vec![Nanos(0); sets],
            looks: FrameLists::new(1, shape.sets(), 1),
            retry_at: None,
        }
    }

    /// Whether `frame` is dirty and has not been used for long.
    #[must_use]
    pub fn is_fallow(&self, frame: Frame) -> bool {
        self.fallow.get(frame.0)
    }

    /// A request missed in `set`, or wrote to it.
    pub fn touched(&mut self, set: u32) {
        if !self.looks.is_listed(set) {
            self.looks.push_back(LOOKS, set);
        }
    }

    /// A request used `frame`.
    pub fn used(&mut self, frame: Frame) {
        self.marked.put(frame.0, false);
        if self.fallow.put(frame.0, false) {
            self.fallow_of[index(self.shape.set_of(frame))] -= 1;
        }
    }

    /// Marks `frame` as dirty, with content that the origin lacks, or as clean again.
    pub fn set_dirty(&mut self, frame: Frame, is_dirty: bool) {
        let set = index(self.shape.set_of(frame));
        self.used(frame);
        if self.dirty.put(frame.0, is_dirty) != is_dirty {
            if is_dirty {
                self.dirty_of[set] += 1;
            } else {
                self.dirty_of[set] -= 1;
            }
        }
    }

    /// `frame` is on its way home.
    pub fn started(&mut self, frame: Frame) {
        self.used(frame);
        self.runs_of[index(self.shape.set_of(frame))] += 1;
        self.runs += 1;
    }

    /// `frame` is no longer on its way, home or not.
    pub fn ended(&mut self, frame: Frame) {
        let set = self.shape.set_of(frame);
        self.runs_of[index(set)] -= 1;
        self.runs -= 1;
        self.touched(set);
    }

    /// Of the budget that was just given nothing could be started: every frame is busy.
    pub fn found_nothing(&mut self, now: Nanos) {
        self.retry(now);
    }

    /// The runs that may be started now. Asked again until it allows nothing.
    pub fn budget(&mut self, pressure: &Pressure) -> Budget {
        if pressure.is_draining {
            return self.drain();
        }
        let now = pressure.now;
        if self.retry_at.is_some_and(|retry| now >= retry) {
            self.retry_at = None;
            (0..self.shape.sets()).for_each(|set| {
                if self.dirty_of[index(set)] > self.limit() || self.fallow_of[index(set)] > 0 {
                    self.touched(set);
                }
            });
        }
        while let Some(set) = self.looks.first(LOOKS) {
            self.looks.remove(set);
            self.mark(set, now);
            let at = index(set);
            let room = self.room(set, (self.choice.set_runs_max, self.choice.cache_runs_max));
            if self.fallow_of[at] > 0 && now >= self.fallow_at[at] {
                if room == 0 {
                    self.retry(now);
                    continue;
                }
                let round_ns = Nanos::SECOND / u64::from(self.choice.fallow_rounds_per_s);
                self.fallow_at[at] = now.plus(round_ns);
                // The excess, if any, is another look's.
                self.touched(set);
                return of_set(set, room.min(self.fallow_of[at]), OfSet::Fallow);
            }
            let excess = self.dirty_of[at].saturating_sub(self.limit());
            if excess > 0 && room == 0 {
                self.retry(now);
            } else if excess > 0 {
                return of_set(set, room.min(excess), OfSet::InOrder);
            }
        }
        Budget::rest(self.retry_at)
    }

    /// Dirty frames that a set may have.
    fn limit(&self) -> u32 {
        self.shape.ways * self.choice.set_dirty_percent / 100
    }

    /// Copies that may be started in a set, with limits for a set and for the cache.
    fn room(&self, set: u32, limits: (u32, u32)) -> u32 {
        limits.0.saturating_sub(self.runs_of[index(set)]).min(limits.1.saturating_sub(self.runs))
    }

    fn retry(&mut self, now: Nanos) {
        let retry_at = now.plus(u64::from(self.choice.retry_ms) * Nanos::MILLISECOND);
        self.retry_at.get_or_insert(retry_at);
    }

    /// Marks the dirty frames of a set, if it is time.
    fn mark(&mut self, set: u32, now: Nanos) {
        let at = index(set);
        if self.choice.fallow_delay_s == 0 || now < self.mark_at[at] {
            return;
        }
        self.mark_at[at] = now.plus(u64::from(self.choice.fallow_delay_s) * Nanos::SECOND);
        for frame in (0..self.shape.ways).map(|way| self.shape.frame(set, way).0) {
            if self.dirty.get(frame) && self.marked.put(frame, true) && !self.fallow.put(frame, true) {
                self.fallow_of[at] += 1;
            }
        }
    }

    /// Everything: the first set that has dirty frames besides those on their way.
    fn drain(&self) -> Budget {
        let waits = |&set: &u32| self.dirty_of[index(set)] > self.runs_of[index(set)];
        let startable = |&set: &u32| self.room(set, DRAIN_RUNS) > 0;
        match (0..self.shape.sets()).find(|set| waits(set) && startable(set)) {
            Some(set) => of_set(set, self.room(set, DRAIN_RUNS), OfSet::All),
            None => Budget::rest(None),
        }
    }
}

fn of_set(set: u32, runs: u32, which: OfSet) -> Budget {
    Budget { join: Join::NeighboursOfSet, ..Budget::runs(runs, HomeOrder::Set(set, which)) }
}

#[cfg(test)]
#[path = "threshold_tests.rs"]
mod tests;
