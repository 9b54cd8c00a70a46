//! EnhanceIO's cleaning: whole sets, one at a time.
//!
//! | what happens | what goes home |
//! | --- | --- |
//! | 30 % of the cache are dirty, and no set waits or is being cleaned | sets wholly, those that were dirtied least lately first, until what they hold exceeds what is above 10 % |
//! | 100 % of a set are dirty | of that set in replacement's order what is above 30 % |
//! | a set has dirty blocks and was not dirtied for so many minutes | that set wholly |
//!
//! The first two are looked for whenever a block became dirty, but not while more than 128 requests are under way
//! (0: never); the third as often as its time. A set is cleaned block by block; nobody else uses it
//! meanwhile.
//!
//! Source: EnhanceIO's `eio_comply_dirty_thresholds`, `eio_check_dirty_*` and `eio_clean_aged_sets`, read. A drain
//! takes all sets that have dirty blocks, in the same order.

use super::{Budget, HomeOrder, OfSet, Pressure};
use crate::number::index;
use crate::policies::replacement::Shape;
use crate::table::bits::Bits;
use crate::table::frame_lists::{FrameLists, List};
use crate::units::Nanos;
use alloc::vec;
use alloc::vec::Vec;

/// Sets with dirty blocks, least lately dirtied first.
const DIRTIED: List = List(0);
/// Sets to clean.
const QUEUE: List = List(0);
/// The age for each so much of cache.
const AGED_CACHE_BYTES: u64 = 16 << 30;
/// The longest age in minutes.
const AGE_MINUTES_MAX: u64 = 720;

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdSetsChoice {
    /// Dirty share of the cache that triggers write-back; default 30 %, 0 to 100. Not above `cache_low_percent`: off.
    pub cache_high_percent: u32,
    /// The dirty share that cleaning leaves then; default 10 %, 0 to 100.
    pub cache_low_percent: u32,
    /// Dirty share of a set that triggers write-back; default 100 %, 1 to 100. Not above `set_low_percent`: off.
    pub set_high_percent: u32,
    /// The dirty share that cleaning leaves then; default 30 %, 0 to 100.
    pub set_low_percent: u32,
    /// Requests under way above which nothing is triggered; default 128, 0 to 1024; 0: never triggered.
    pub pause_above_requests: u32,
    /// Age in minutes; default 0: no set is cleaned for its age; 0 to 720.
    pub age_minutes: u32,
    /// A minute for each 16 GiB of cache instead, 1 to 720; default on.
    pub age_by_size: bool,
}

impl ThresholdSetsChoice {
    /// The published defaults.
    pub const PUBLISHED: ThresholdSetsChoice = ThresholdSetsChoice {
        cache_high_percent: 30,
        cache_low_percent: 10,
        set_high_percent: 100,
        set_low_percent: 30,
        pause_above_requests: 128,
        age_minutes: 0,
        age_by_size: true,
    };

    /// After how long without a new dirty block a set is cleaned; `None`: never.
    fn age_ns(&self, cache_bytes: u64) -> Option<u64> {
        let by_size = (cache_bytes / AGED_CACHE_BYTES).clamp(1, AGE_MINUTES_MAX);
        let minutes = if self.age_by_size { by_size } else { u64::from(self.age_minutes) };
        (minutes > 0).then(|| minutes * 60 * Nanos::SECOND)
    }
}

/// The controller: about 29 bytes for each set.
///
/// * I1: a set that has dirty blocks is in the order of dirtying, unless it waits to be cleaned wholly or is being
///   cleaned.
#[derive(Clone, Debug)]
pub struct ThresholdSets {
    choice: ThresholdSetsChoice,
    shape: Shape,
    dirty: u32,
    dirty_of: Vec<u32>,
    dirtied_at: Vec<Nanos>,
    order: FrameLists,
    queue: FrameLists,
    /// The waiting sets that are cleaned wholly.
    is_whole: Bits,
    cleaning: Option<u32>,
    age_ns: Option<u64>,
    next_age_check: Option<Nanos>,
}

impl ThresholdSets {
    /// A controller over clean sets of blocks of `block_bytes`.
    #[must_use]
    pub fn new(choice: ThresholdSetsChoice, shape: Shape, block_bytes: u32) -> ThresholdSets {
        let sets = shape.sets();
        ThresholdSets {
            choice,
            shape,
            dirty: 0,
            dirty_of: vec![0; index(sets)],
            dirtied_at: vec![Nanos(0); index(sets)],
            order: FrameLists::new(1, sets, 1),
            queue: FrameLists::new(1, sets, 1),
            is_whole: Bits::new(sets),
            cleaning: None,
            age_ns: choice.age_ns(u64::from(shape.frames) * u64::from(block_bytes)),
            next_age_check: None,
        }
    }

    /// A block of `set` became dirty.
    pub fn dirtied(&mut self, set: u32, pressure: &Pressure) {
        self.dirty += 1;
        self.dirty_of[index(set)] += 1;
        self.touch(set, pressure.now);
        let pause_above = self.choice.pause_above_requests;
        if pause_above > 0 && pressure.requests <= pause_above {
            self.check_set(set);
            self.check_cache();
        }
    }

    /// A block of `set` is clean, or gone.
    pub fn cleaned(&mut self, set: u32) {
        self.dirty -= 1;
        let dirty = &mut self.dirty_of[index(set)];
        *dirty -= 1;
        if *dirty == 0 && self.order.is_listed(set) {
            self.order.remove(set);
        }
    }

    /// The set of the last budget was cleaned, as far as it could be.
    pub fn ended(&mut self, now: Nanos) {
        let set = self.cleaning.take().expect("a set was being cleaned");
        if self.dirty_of[index(set)] > 0 {
            self.touch(set, now);
        }
    }

    /// The set that is cleaned next; with its number of blocks, all at once.
    pub fn budget(&mut self, pressure: &Pressure) -> Budget {
        self.look_for_age(pressure.now);
        if self.cleaning.is_some() {
            return Budget::rest(self.next_age_check);
        }
        loop {
            if pressure.is_draining
                && self.queue.is_empty(QUEUE)
                && let Some(set) = self.order.first(DIRTIED)
            {
                self.clean(set, true);
            }
            let Some(set) = self.queue.first(QUEUE) else { break };
            self.queue.remove(set);
            let is_whole = self.is_whole.put(set, false) || pressure.is_draining;
            let keeps = if is_whole { 0 } else { self.percent_of_set(self.choice.set_low_percent) };
            let runs = self.dirty_of[index(set)].saturating_sub(keeps);
            if runs > 0 {
                if self.order.is_listed(set) {
                    self.order.remove(set);
                }
                self.cleaning = Some(set);
                let which = if is_whole { OfSet::All } else { OfSet::InOrder };
                return Budget::runs(runs, HomeOrder::Set(set, which));
            }
        }
        Budget::rest(self.next_age_check)
    }

    fn percent_of_set(&self, percent: u32) -> u32 {
        self.shape.ways * percent / 100
    }

    /// `set` was dirtied last.
    fn touch(&mut self, set: u32, now: Nanos) {
        self.dirtied_at[index(set)] = now;
        if self.cleaning == Some(set) || (self.queue.is_listed(set) && self.is_whole.get(set)) {
            return;
        }
        if self.order.is_listed(set) {
            self.order.remove(set);
        }
        self.order.push_back(DIRTIED, set);
    }

    /// Puts `set` among those to clean.
    fn clean(&mut self, set: u32, is_whole: bool) {
        if is_whole {
            self.is_whole.put(set, true);
            if self.order.is_listed(set) {
                self.order.remove(set);
            }
        }
        if !self.queue.is_listed(set) && self.cleaning != Some(set) {
            self.queue.push_back(QUEUE, set);
        }
    }

    fn check_set(&mut self, set: u32) {
        let high = self.percent_of_set(self.choice.set_high_percent);
        let is_on = self.choice.set_high_percent > self.choice.set_low_percent;
        if is_on && self.dirty_of[index(set)] >= high {
            self.clean(set, false);
        }
    }

    fn check_cache(&mut self) {
        let (high, low) = (self.choice.cache_high_percent, self.choice.cache_low_percent);
        // As published: the hundredth part is rounded here, and not below.
        let limit = u64::from(high) * u64::from(self.shape.frames / 100);
        let is_cleaning = self.cleaning.is_some() || !self.queue.is_empty(QUEUE);
        if high <= low || u64::from(self.dirty) < limit || is_cleaning {
            return;
        }
        let left = u64::from(low) * u64::from(self.shape.frames) / 100;
        let required = u64::from(self.dirty).saturating_sub(left);
        let mut queued = 0;
        while queued <= required {
            let Some(set) = self.order.first(DIRTIED) else { break };
            queued += u64::from(self.dirty_of[index(set)]);
            self.clean(set, true);
        }
    }

    fn look_for_age(&mut self, now: Nanos) {
        let Some(age_ns) = self.age_ns else { return };
        let check_at = *self.next_age_check.get_or_insert(now.plus(age_ns));
        if now < check_at {
            return;
        }
        self.next_age_check = Some(now.plus(age_ns));
        while let Some(set) = self.order.first(DIRTIED) {
            if now.since(self.dirtied_at[index(set)]) < age_ns {
                break;
            }
            self.clean(set, true);
        }
    }
}

#[cfg(test)]
#[path = "threshold_sets_tests.rs"]
mod tests;
