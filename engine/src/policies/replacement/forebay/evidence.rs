//! Evidence of when blocks come back: all that accesses tell, whatever is cached.

use super::lessons::Lessons;
use super::watch::Watch;
use super::{COUNT_MAX, Class, Mark, Order, Time, Worth};
use crate::number::to_u32;
use crate::prng::scatter;
use crate::units::PieceKey;

/// Times the size, in accesses: a block that did not come back by then counts as one that never does.
const HORIZON_SIZES: u64 = 16;
/// Counts of accesses are halved each so many times the size, in accesses.
const ERA_SIZES: u64 = 10;
/// Lessons for each size, in accesses.
const LESSONS_PER_SIZE: u64 = 4;
/// Lessons in the beginning: the next one after a part of all accesses so far, one in so many. What was never seen before is
/// understood soon.
const LESSON_SHARE: u64 = 16;
/// The least number of accesses between two lessons.
const LESSON_ACCESSES_MIN: u64 = 128;
/// Units of time for each size, at most; at least half as many if the size has them.
const SIZE_UNITS_MAX: u64 = 256;

/// The time, the blocks that are watched, and what was learned from them.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    size_units: u32,
    now: Time,
    watch: Watch,
    lessons: Lessons,
    /// Accesses between two lessons, at most.
    lesson_accesses_max: u64,
    next_lesson: u64,
}

impl Evidence {
    /// Nothing was seen yet, in a cache of `size_blocks`.
    pub(super) fn new(size_blocks: u32) -> Evidence {
        let size = u64::from(size_blocks);
        let mut unit_log = 0;
        while size >> unit_log > SIZE_UNITS_MAX {
            unit_log += 1;
        }
        let units = |accesses: u64| to_u32(accesses >> unit_log).max(1);
        Evidence {
            size_units: units(size),
            now: Time { accesses: 0, unit_log, era_units: units(size * ERA_SIZES) },
            watch: Watch::new(size * HORIZON_SIZES, units(size * HORIZON_SIZES)),
            lessons: Lessons::new(),
            lesson_accesses_max: (size / LESSONS_PER_SIZE).max(LESSON_ACCESSES_MIN),
            next_lesson: LESSON_ACCESSES_MIN,
        }
    }

    /// The time of the last access.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// `block` is asked for, and is of this class by that.
    pub(super) fn accessed(&mut self, block: PieceKey, class: impl FnOnce(&Evidence) -> Class) {
        self.now.accesses += 1;
        self.watch.expire(self.now, &mut self.lessons);
        let hash = scatter(block.0);
        if self.watch.watches(hash) {
            let class = class(self);
            self.watch.accessed(hash, self.now, class, &mut self.lessons);
        }
        if self.now.accesses >= self.next_lesson {
            let share = self.now.accesses / LESSON_SHARE;
            self.next_lesson = self.now.accesses + share.clamp(LESSON_ACCESSES_MIN, self.lesson_accesses_max);
            self.lessons.learn(self.watch.outstanding(self.now));
        }
    }

    /// The mark of a cached block after a hit.
    pub(super) fn hit(&self, mark: Mark) -> Mark {
        self.again(mark.age(self.now), mark.count())
    }

    /// The mark of a block that comes back after `distance` units, with its count as of then.
    pub(super) fn again(&self, distance: u32, count: u32) -> Mark {
        let count = (self.now.aged(count, distance) + 1).min(COUNT_MAX);
        Mark::new(self.now, Class::of(distance, count, self.size_units), count)
    }

    /// Worth of a block with this mark. One that did not come back before the horizon is worth nothing.
    pub(super) fn worth(&self, mark: Mark, order: Order) -> Worth {
        let age = mark.age(self.now);
        match order {
            Order::Recency => Worth(u32::MAX - age),
            Order::Learned if age > self.watch.horizon_units() => Worth(0),
            Order::Learned => Worth(self.lessons.worth(mark.class(), age)),
        }
    }
}
