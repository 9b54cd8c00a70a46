//! `bucket-lru`: the bucket whose content is oldest and least.
//!
//! A bucket has a priority: 32 768 when it was filled and again at every read hit, one less each
//! time that a 1 024th of the cache's size was requested, 0 at the least. Several buckets are
//! chosen at a time, those with the lowest weight, and handed out in that order; one that is hit
//! before its turn comes is passed over.
//!
//! weight = (priority - least + (32 768 - least) / 8) × sectors that are still live,
//!
//! with `least` as it was when priorities last sank. Requests that pass the cache by do not make
//! priorities sink.
//!
//! | `kind` | the next bucket |
//! | --- | --- |
//! | `lru` (default) | of the lowest weight; the lowest number where weights are equal |
//! | `fifo` | in the order of numbers, at most once round |
//! | `random` | drawn; no victim after as many failures as half of the buckets |
//!
//! bcache invalidates the chosen buckets when it chooses them; here they stay readable until they
//! are handed out. It does not sink the priority of a bucket that is being filled; here such a
//! bucket is not yet inserted. When equal weights meet, its order is that of its heap. A search
//! in vain is not repeated before something has changed or time has gone on; bcache waits for its
//! garbage collection.
//!
//! Nothing goes home from here: bcache writes home by address.
//!
//! Source: bcache's `alloc.c` (Linux 5.x), read; what ages buckets: its `request.c`, read in part.
//!
//! | parameter | unit | default | range |
//! | --- | --- | --- | --- |
//! | `kind` | | `lru` | `lru`, `fifo`, `random` |
//! | `bucket_sectors` | sectors | 1 024 | 8 to 65 536 |

use crate::number::{index, index_wide};
use crate::policies::replacement::fifo::walk;
use crate::policies::replacement::{Access, Arrival, Policy, Shape, Standing, Urgency, Victim};
use crate::prng::Prng;
use crate::table::bits::Bits;
use crate::units::{Frame, Nanos};
use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;

/// Priority of a bucket that was just filled or hit.
pub const PRIORITY_MAX: u16 = 32_768;
/// Priorities sink by one each time that this part of the cache was requested.
const SINK_PART: u64 = 1024;
/// A bucket of the least priority weighs as if it were worth this part of a full one.
const LEAST_PART: u32 = 8;

/// The order in which buckets leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BucketKind {
    /// Priority and live content.
    #[default]
    Lru,
    /// The number.
    Fifo,
    /// Chance.
    Random,
}

/// The buckets: 6 bytes and two bits for each.
#[derive(Clone, Debug)]
pub struct BucketLru {
    kind: BucketKind,
    shape: Shape,
    bucket_sectors: u32,
    /// Whether the bucket holds something.
    is_filled: Bits,
    priorities: Vec<u16>,
    /// Sectors of each bucket that requests can still hit.
    live_sectors: Vec<u32>,
    /// The least priority when priorities last sank.
    least: u16,
    /// Sectors that may be requested before priorities sink.
    sink_credit_sectors: i64,
    /// Chosen buckets, the next one last; at most `choice_max`.
    chosen: Vec<u32>,
    /// Victims among them that were not hit since.
    is_chosen: Bits,
    choice_max: usize,
    /// Room to choose in: weights and numbers, the greatest on top.
    heaviest: BinaryHeap<(u64, u32)>,
    /// The last search found nothing, and nothing has changed.
    is_exhausted: bool,
    /// The number where `fifo` goes on.
    next: u32,
    prng: Prng,
    now: Nanos,
}

impl BucketLru {
    /// Empty buckets of `bucket_sectors` sectors.
    #[must_use]
    pub fn new(shape: Shape, kind: BucketKind, bucket_sectors: u32, seed: u64) -> BucketLru {
        assert!(shape.sets() == 1, "bcache knows no sets");
        assert!((8..=65_536).contains(&bucket_sectors), "a bucket is 4 KiB to 32 MiB");
        let reserve = index_wide((u64::from(shape.frames).next_power_of_two() / 1024).max(1));
        let choice_max = reserve * 4;
        BucketLru {
            kind,
            shape,
            bucket_sectors,
            is_filled: Bits::new(shape.frames),
            priorities: vec![0; index(shape.frames)],
            live_sectors: vec![0; index(shape.frames)],
            least: PRIORITY_MAX,
            sink_credit_sectors: 0,
            chosen: Vec::with_capacity(choice_max),
            is_chosen: Bits::new(shape.frames),
            choice_max,
            heaviest: BinaryHeap::with_capacity(choice_max + 1),
            is_exhausted: false,
            next: 0,
            prng: Prng::new(seed),
            now: Nanos(0),
        }
    }

    /// The priority of a bucket that holds something.
    #[must_use]
    pub fn priority(&self, frame: Frame) -> u16 {
        self.priorities[frame.at()]
    }

    fn weight(&self, frame: u32) -> u64 {
        // A bucket may have sunk below the least one if that one is gone: it weighs nothing more.
        let above = u32::from(self.priorities[index(frame)].saturating_sub(self.least));
        let bias = u32::from(PRIORITY_MAX - self.least) / LEAST_PART;
        u64::from(above + bias) * u64::from(self.live_sectors[index(frame)])
    }

    fn sink(&mut self) {
        let mut least = PRIORITY_MAX;
        for frame in 0..self.shape.frames {
            if self.is_filled.get(frame) {
                let priority = &mut self.priorities[index(frame)];
                *priority = priority.saturating_sub(1);
                least = least.min(*priority);
            }
        }
        self.least = least;
    }

    /// Chooses the lightest buckets that may leave.
    fn choose(&mut self, may_leave: impl Fn(Frame) -> bool) {
        self.heaviest.clear();
        for frame in 0..self.shape.frames {
            if !self.is_filled.get(frame) || !may_leave(Frame(frame)) {
                continue;
            }
            self.heaviest.push((self.weight(frame), frame));
            if self.heaviest.len() > self.choice_max {
                self.heaviest.pop();
            }
        }
        while let Some((_, frame)) = self.heaviest.pop() {
            self.is_chosen.put(frame, true);
            self.chosen.push(frame);
        }
    }

    /// The next chosen bucket that may still leave.
    fn hand_out(&mut self, may_leave: impl Fn(Frame) -> bool) -> Option<Frame> {
        while let Some(frame) = self.chosen.pop() {
            if self.is_chosen.put(frame, false) && may_leave(Frame(frame)) {
                return Some(Frame(frame));
            }
        }
        None
    }

    fn lightest(&mut self, may_leave: impl Fn(Frame) -> bool) -> Option<Frame> {
        if let Some(frame) = self.hand_out(&may_leave) {
            return Some(frame);
        }
        if self.is_exhausted {
            return None;
        }
        self.choose(&may_leave);
        let frame = self.hand_out(&may_leave);
        self.is_exhausted = frame.is_none();
        frame
    }

    fn drawn(&mut self, may_leave: impl Fn(Frame) -> bool) -> Option<Frame> {
        let draws = self.shape.frames.div_ceil(2).min(self.shape.looks());
        for _ in 0..draws {
            let frame = Frame(self.prng.below(self.shape.frames));
            if self.is_filled.get(frame.0) && may_leave(frame) {
                return Some(frame);
            }
        }
        None
    }
}

impl Policy for BucketLru {
    fn insert(&mut self, frame: Frame, _: Arrival) {
        self.is_filled.put(frame.0, true);
        self.is_chosen.put(frame.0, false);
        self.priorities[frame.at()] = PRIORITY_MAX;
        self.live_sectors[frame.at()] = self.bucket_sectors;
        self.is_exhausted = false;
    }

    fn hit(&mut self, frame: Frame, access: Access) {
        if access == Access::Read {
            self.priorities[frame.at()] = PRIORITY_MAX;
            self.is_chosen.put(frame.0, false);
        }
    }

    fn set_dirty(&mut self, _: Frame, is_dirty: bool) {
        self.is_exhausted &= is_dirty;
    }

    fn remove(&mut self, frame: Frame) {
        self.is_filled.put(frame.0, false);
        self.is_chosen.put(frame.0, false);
    }

    fn victim(&mut self, _: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        let frame = match self.kind {
            BucketKind::Lru => self.lightest(may_leave)?,
            BucketKind::Fifo => {
                let (frame, stop) =
                    walk(self.shape, 0, self.next, |frame| self.is_filled.get(frame.0) && may_leave(frame));
                self.next = stop;
                frame?
            }
            BucketKind::Random => self.drawn(may_leave)?,
        };
        self.is_filled.put(frame.0, false);
        Some(Victim { frame, is_remembered: false })
    }

    fn stays(&mut self, frame: Frame, _: bool) {
        self.is_filled.put(frame.0, true);
        self.is_exhausted = false;
    }

    fn next_home(&mut self, _: u32, _: Urgency, _: impl Fn(Frame) -> bool) -> Option<Frame> {
        None
    }

    fn advance(&mut self, now: Nanos) {
        if now > self.now {
            self.now = now;
            self.is_exhausted = false;
        }
    }

    fn served(&mut self, sectors: u64) {
        let sectors = i64::try_from(sectors).expect("a request is short");
        self.sink_credit_sectors -= sectors;
        if self.sink_credit_sectors < 0 {
            let cache_sectors = u64::from(self.shape.frames) * u64::from(self.bucket_sectors);
            self.sink_credit_sectors += i64::try_from((cache_sectors / SINK_PART).max(1))
                .expect("a cache has less than 2^63 sectors");
            self.sink();
        }
    }

    fn set_live(&mut self, frame: Frame, sectors: u32) {
        assert!(sectors <= self.bucket_sectors, "the live content of a bucket fits it");
        self.live_sectors[frame.at()] = sectors;
        self.is_exhausted = false;
    }

    fn standing(&self, free: u32) -> Standing {
        Standing { free, frames: self.shape.frames, ..Standing::default() }
    }

    fn hint(&self, frame: Frame) -> u16 {
        self.priorities[frame.at()]
    }

    fn restore(&mut self, frame: Frame, hint: Option<u16>, is_dirty: bool) {
        self.insert(frame, Arrival::first(Access::Read, is_dirty));
        if let Some(priority) = hint {
            self.priorities[frame.at()] = priority.min(PRIORITY_MAX);
            self.least = self.least.min(self.priorities[frame.at()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(frames: u32, kind: BucketKind) -> BucketLru {
        let mut policy = BucketLru::new(Shape::whole(frames), kind, 1024, 1);
        (0..frames).for_each(|frame| policy.insert(Frame(frame), Arrival::first(Access::Read, false)));
        policy
    }

    fn victim(policy: &mut BucketLru, may_leave: impl Fn(u32) -> bool) -> Option<u32> {
        policy.victim(0, |frame| may_leave(frame.0)).map(|victim| victim.frame.0)
    }

    /// Four buckets after priorities sank 100 times: 32 668 each, so the bias is 12.
    fn aged() -> BucketLru {
        let mut policy = filled(4, BucketKind::Lru);
        (0..100).for_each(|_| policy.sink());
        for (frame, sectors) in [10, 5, 8, 0].into_iter().enumerate() {
            policy.set_live(Frame(frame as u32), sectors);
        }
        policy
    }

    #[test]
    fn equally_old_buckets_leave_by_live_content() {
        let mut policy = aged();
        assert_eq!(policy.priority(Frame(0)), 32_668);
        assert_eq!([0, 1, 2, 3].map(|frame| policy.weight(frame)), [120, 60, 96, 0]);
        assert_eq!([0; 4].map(|_| victim(&mut policy, |_| true)), [Some(3), Some(1), Some(2), Some(0)]);
        assert_eq!(victim(&mut policy, |_| true), None);
    }

    #[test]
    fn a_read_hit_renews_and_a_write_does_not() {
        let mut policy = aged();
        policy.hit(Frame(1), Access::Read);
        policy.hit(Frame(2), Access::Write);
        assert_eq!(policy.weight(1), (100 + 12) * 5);
        assert_eq!([0; 4].map(|_| victim(&mut policy, |_| true)), [Some(3), Some(2), Some(0), Some(1)]);
    }

    #[test]
    fn a_chosen_bucket_that_is_hit_or_busy_is_passed_over() {
        let mut policy = aged();
        assert_eq!(victim(&mut policy, |_| true), Some(3), "1, 2 and 0 are chosen too");
        policy.hit(Frame(1), Access::Read);
        assert_eq!(victim(&mut policy, |frame| frame != 2), Some(0));
        assert_eq!(victim(&mut policy, |_| true), Some(2), "it is chosen anew");
    }

    #[test]
    fn fresh_buckets_weigh_nothing_and_leave_by_number() {
        let mut policy = filled(3, BucketKind::Lru);
        assert_eq!([0; 3].map(|_| victim(&mut policy, |_| true)), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn priorities_sink_with_each_1024th_of_the_cache_and_with_the_first_request() {
        // 2 048 buckets of 1 024 sectors: every 2 048 sectors.
        let mut policy = filled(2048, BucketKind::Lru);
        policy.served(8);
        assert_eq!(policy.priority(Frame(7)), 32_767);
        (0..255).for_each(|_| policy.served(8));
        assert_eq!(policy.priority(Frame(7)), 32_767, "2 048 sectors");
        policy.served(8);
        assert_eq!(policy.priority(Frame(7)), 32_766);
        policy.remove(Frame(7));
        policy.priorities[8] = 0;
        policy.served(4096);
        policy.served(4096);
        assert_eq!([7, 8, 9].map(|frame| policy.priority(Frame(frame))), [32_766, 0, 32_764]);
    }

    #[test]
    fn a_search_in_vain_is_not_repeated_until_something_changes() {
        let looks = core::cell::Cell::new(0);
        let refuse = |_| {
            looks.set(looks.get() + 1);
            false
        };
        let mut policy = filled(4, BucketKind::Lru);
        assert_eq!([victim(&mut policy, refuse), victim(&mut policy, refuse)], [None, None]);
        assert_eq!(looks.get(), 4);
        policy.set_dirty(Frame(0), true);
        assert_eq!(victim(&mut policy, refuse), None);
        assert_eq!(looks.get(), 4);
        policy.set_dirty(Frame(0), false);
        assert_eq!(victim(&mut policy, refuse), None);
        policy.advance(Nanos(1));
        assert_eq!(victim(&mut policy, |frame| frame == 2), Some(2));
        assert_eq!(looks.get(), 8);
    }

    #[test]
    fn a_choice_takes_the_lightest_of_all() {
        // 2 048 buckets: reserve 2, so 8 are chosen at a time.
        let mut policy = filled(2048, BucketKind::Lru);
        policy.sink();
        (0..8).for_each(|_| policy.sink());
        (0..2048).for_each(|frame| policy.set_live(Frame(frame), (frame * 37) % 1024));
        let mut expected: Vec<u32> = (0..2048).collect();
        expected.sort_by_key(|&frame| (policy.weight(frame), frame));
        let victims: Vec<u32> = (0..2048).filter_map(|_| victim(&mut policy, |_| true)).collect();
        assert_eq!(victims, expected);
        assert_eq!(policy.choice_max, 8);
    }

    #[test]
    fn the_other_kinds_go_round_or_draw() {
        let mut policy = filled(4, BucketKind::Fifo);
        assert_eq!([0; 2].map(|_| victim(&mut policy, |frame| frame != 1)), [Some(0), Some(2)]);
        policy.insert(Frame(0), Arrival::first(Access::Write, true));
        assert_eq!([0; 3].map(|_| victim(&mut policy, |_| true)), [Some(3), Some(0), Some(1)]);
        let mut policy = filled(64, BucketKind::Random);
        let victims: Vec<u32> = (0..20).filter_map(|_| victim(&mut policy, |_| true)).collect();
        assert!(victims.windows(2).any(|pair| pair[0] > pair[1]));
        assert_eq!(victim(&mut policy, |_| false), None);
    }

    #[test]
    fn a_clean_stop_saves_priorities() {
        let mut policy = filled(2, BucketKind::Lru);
        policy.restore(Frame(1), Some(32_668), false);
        policy.restore(Frame(0), None, false);
        assert_eq!([0, 1].map(|frame| policy.hint(Frame(frame))), [32_768, 32_668]);
        assert_eq!(victim(&mut policy, |_| true), Some(1));
    }
}
