//! `mq`: frames in 16 levels by the logarithm of their hits.
//!
//! Clean and dirty frames are in queues of their own, least recently used first in each level; a
//! frame is counted once in a tick, and a tick is about one request. Which tick it is is looked up when a request comes,
//! so that a frame that was moved in between can be counted by the next one. The victim is the first clean
//! frame of the lowest level; the first dirty one goes home next, and counts as clean from the
//! moment it goes. When that took the last one of a queue's bottom level (`coldest`: when that level
//! is empty then), all levels of the queue sink by one. A frame that changes between clean and
//! dirty goes to the end of its level.
//!
//! How many hits a newcomer needs (before admission adds its own) depends on the era:
//!
//! | `era` | Linux | queues | threshold |
//! | --- | --- | --- | --- |
//! | `single` | 3.9 | one for clean and dirty | as `split` |
//! | `split` (default) | 3.14 to 3.18 | two | mean hits of the first [`AVERAGE_OVER`] frames, rounded up, set once in a generation while no frame is free |
//! | `coldest` | to 4.1 | two | 0 while a frame is free, else the hits of the next victim, or of the next dirty frame and [`DIRTY_DISCOURAGED_HITS`] more |
//!
//! A generation is max(frames, 1 024) counted hits, of cached and of remembered pieces. It ends while no frame is free; one that
//! is on its way from one piece to the next is not, for there it changes hands at once. The frames
//! of the mean are taken level by level from the bottom, clean before dirty; a full count ends
//! only the list it is reached in, so one dirty frame more may be in the mean. With `single` a
//! victim's piece is remembered and begins again with one hit; the other eras forget it. That era
//! has no destage of its own: dirty frames went home only when they had to leave.
//!
//! Where the kernel takes the head of a queue and gives the promotion up if somebody is busy with
//! it, the search here goes on to the next frame.
//!
//! Source: dm-cache's mq policy: 1.0 (Linux 3.9), one of the `split` era, and the last one before
//! smq took its place, all read.

use crate::number::index;
use crate::policies::replacement::{
    Access, Arrival, Policy, Shape, Standing, Urgency, VICTIM_LOOKS_MAX, Victim,
};
use crate::table::bits::Bits;
use crate::table::hit_levels::{HIT_LEVELS, HitLevels, Sinking};
use crate::units::Frame;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

/// Frames whose hits make the threshold.
pub const AVERAGE_OVER: u32 = 20;
/// Counted hits of a generation at the least.
pub const GENERATION_HITS_MIN: u32 = 1024;
/// Hits by which a dirty frame seems hotter to a newcomer than it is.
pub const DIRTY_DISCOURAGED_HITS: u32 = 128;

/// The queue of clean frames; with `single` of all.
const CLEAN: u32 = 0;
/// The queue of dirty frames.
const DIRTY: u32 = 1;

/// The version of mq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MqEra {
    /// Linux 3.9.
    Single,
    /// Linux 3.14 to 3.18.
    #[default]
    Split,
    /// Up to Linux 4.1.
    Coldest,
}

/// The queues: 17 bytes per frame.
///
/// * I1: a frame is listed exactly while it has a piece.
#[derive(Clone, Debug)]
pub struct Mq {
    era: MqEra,
    shape: Shape,
    queues: HitLevels,
    is_dirty: Bits,
    hits: Vec<u32>,
    /// The tick in which the frame was last moved.
    ticks: Vec<u32>,
    /// The tick of the last request.
    tick: u32,
    /// Ticks that have begun.
    ticks_begun: u32,
    /// No frame was free when one was wanted last, and none has become free since.
    is_exhausted: bool,
    /// Frames with a piece.
    listed: u32,
    /// Frames in the clean queue, among those.
    clean: u32,
    generation_hits: u32,
    threshold: u32,
}

impl Mq {
    /// Empty queues.
    #[must_use]
    pub fn new(shape: Shape, era: MqEra) -> Mq {
        assert!(shape.sets() == 1, "mq knows no sets");
        let sinking = if era == MqEra::Coldest { Sinking::Empty } else { Sinking::Emptied };
        Mq {
            era,
            shape,
            queues: HitLevels::new(shape.frames, 2).with_sinking(sinking),
            is_dirty: Bits::new(shape.frames),
            hits: vec![0; index(shape.frames)],
            ticks: vec![0; index(shape.frames)],
            tick: 0,
            ticks_begun: 0,
            is_exhausted: false,
            listed: 0,
            clean: 0,
            generation_hits: 0,
            threshold: 0,
        }
    }

    fn queue_of(&self, frame: Frame) -> u32 {
        if self.era != MqEra::Single && self.is_dirty.get(frame.0) { DIRTY } else { CLEAN }
    }

    /// Puts `frame`, which is not listed, at the end of the level of its hits.
    fn push(&mut self, frame: Frame) {
        self.ticks[frame.at()] = self.tick;
        self.queues.push(self.queue_of(frame), frame.0, self.hits[frame.at()]);
        self.listed += 1;
        self.clean += u32::from(!self.is_dirty.get(frame.0));
    }

    /// Takes `frame` out; with `is_chosen` as the first of its queue, so that levels may sink.
    fn unlist(&mut self, frame: Frame, is_chosen: bool) {
        if is_chosen {
            self.queues.take(self.queue_of(frame), frame.0);
        } else {
            self.queues.remove(frame.0);
        }
        self.listed -= 1;
        self.clean -= u32::from(!self.is_dirty.get(frame.0));
    }

    /// Counts a hit of anything, and renews the threshold at the end of a generation.
    fn count(&mut self) {
        self.generation_hits = self.generation_hits.saturating_add(1);
        let is_full = self.is_exhausted || self.listed == self.shape.frames;
        if self.generation_hits >= self.shape.frames.max(GENERATION_HITS_MIN) && is_full {
            self.generation_hits = 0;
            self.threshold = self.mean_hits();
        }
    }

    /// The mean hits of the coldest frames, rounded up.
    fn mean_hits(&self) -> u32 {
        let (mut total, mut frames) = (0u64, 0u64);
        for level in 0..HIT_LEVELS {
            if frames >= u64::from(AVERAGE_OVER) {
                break;
            }
            for queue in [CLEAN, DIRTY] {
                for frame in self.queues.level(queue, level) {
                    total += u64::from(self.hits[index(frame)]);
                    frames += 1;
                    if frames >= u64::from(AVERAGE_OVER) {
                        break;
                    }
                }
            }
        }
        if frames == 0 { 1 } else { u32::try_from(total.div_ceil(frames)).unwrap_or(u32::MAX) }
    }

    /// The first frame of a queue for which `accept` holds.
    fn first(&self, queue: u32, accept: impl Fn(Frame) -> bool) -> Option<Frame> {
        let looks = Cell::new(0);
        let found = self.queues.first(queue, |frame| {
            looks.set(looks.get() + 1);
            looks.get() > VICTIM_LOOKS_MAX || accept(Frame(frame))
        });
        found.filter(|_| looks.get() <= VICTIM_LOOKS_MAX).map(Frame)
    }
}

impl Policy for Mq {
    fn insert(&mut self, frame: Frame, arrival: Arrival) {
        self.hits[frame.at()] = arrival.hits.max(1);
        self.is_dirty.put(frame.0, arrival.is_dirty);
        self.push(frame);
    }

    fn hit(&mut self, frame: Frame, _: Access) {
        self.tick = self.ticks_begun;
        if self.ticks[frame.at()] == self.tick {
            return;
        }
        let hits = &mut self.hits[frame.at()];
        *hits = hits.saturating_add(1);
        self.count();
        self.unlist(frame, false);
        self.push(frame);
    }

    fn miss(&mut self) {
        self.tick = self.ticks_begun;
    }

    fn ghost_hit(&mut self) {
        self.count();
    }

    fn set_dirty(&mut self, frame: Frame, is_dirty: bool) {
        if self.is_dirty.get(frame.0) == is_dirty {
            return;
        }
        if self.era == MqEra::Single {
            self.is_dirty.put(frame.0, is_dirty);
            self.clean = if is_dirty { self.clean - 1 } else { self.clean + 1 };
        } else {
            self.unlist(frame, false);
            self.is_dirty.put(frame.0, is_dirty);
            self.push(frame);
        }
    }

    fn remove(&mut self, frame: Frame) {
        if self.queues.is_listed(frame.0) {
            self.unlist(frame, false);
            self.is_exhausted = false;
        }
    }

    fn victim(&mut self, _: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        // The caller asks only when no frame is free.
        self.is_exhausted = true;
        let frame = self.first(CLEAN, may_leave)?;
        self.unlist(frame, true);
        Some(Victim { frame, is_remembered: self.era == MqEra::Single })
    }

    fn stays(&mut self, frame: Frame, is_dirty: bool) {
        self.is_dirty.put(frame.0, is_dirty);
        self.push(frame);
    }

    fn next_home(&mut self, _: u32, _: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
        let queue = if self.era == MqEra::Single { CLEAN } else { DIRTY };
        self.first(queue, |frame| self.is_dirty.get(frame.0) && may_go(frame))
    }

    fn home_begins(&mut self, frame: Frame) {
        if self.era == MqEra::Single {
            self.set_dirty(frame, false);
        } else {
            self.unlist(frame, true);
            self.is_dirty.put(frame.0, false);
            self.push(frame);
        }
    }

    fn home_ends(&mut self, frame: Frame, is_dirty: bool) {
        if self.era == MqEra::Single {
            self.set_dirty(frame, is_dirty);
        } else {
            // The kernel tells its policy that the frame is clean: it is moved once more.
            self.unlist(frame, false);
            self.is_dirty.put(frame.0, is_dirty);
            self.push(frame);
        }
    }

    fn tick(&mut self) {
        self.ticks_begun = self.ticks_begun.wrapping_add(1);
    }

    fn standing(&self, free: u32) -> Standing {
        let hits_of = |queue: u32| self.first(queue, |_| true).map(|frame| self.hits[frame.at()]);
        let threshold = match self.era {
            MqEra::Single | MqEra::Split => self.threshold,
            MqEra::Coldest if free > 0 => 0,
            MqEra::Coldest => {
                let dirty = || hits_of(DIRTY).map(|hits| hits.saturating_add(DIRTY_DISCOURAGED_HITS));
                hits_of(CLEAN).or_else(dirty).unwrap_or(0)
            }
        };
        Standing { free, frames: self.shape.frames, clean: self.clean, threshold, ..Standing::default() }
    }

    fn hint(&self, frame: Frame) -> u16 {
        u16::try_from(self.hits[frame.at()]).unwrap_or(u16::MAX)
    }

    fn restore(&mut self, frame: Frame, hint: Option<u16>, is_dirty: bool) {
        let hits = u32::from(hint.unwrap_or(1));
        self.insert(frame, Arrival { hits, ..Arrival::first(Access::Read, is_dirty) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames hold a clean piece that was hit once, frame 0 first.
    fn filled(frames: u32, era: MqEra) -> Mq {
        let mut mq = Mq::new(Shape::whole(frames), era);
        (0..frames).for_each(|frame| mq.insert(Frame(frame), Arrival::first(Access::Read, false)));
        mq.tick();
        mq
    }

    fn hit(mq: &mut Mq, frame: u32, times: u32) {
        for _ in 0..times {
            mq.tick();
            mq.hit(Frame(frame), Access::Read);
        }
    }

    fn victim(mq: &mut Mq) -> Option<u32> {
        mq.victim(0, |_| true).map(|victim| victim.frame.0)
    }

    #[test]
    fn a_frame_is_counted_once_in_a_tick() {
        let mut mq = Mq::new(Shape::whole(4), MqEra::Split);
        mq.insert(Frame(0), Arrival::first(Access::Read, false));
        mq.hit(Frame(0), Access::Read);
        assert_eq!(mq.hint(Frame(0)), 1, "it was moved in this tick");
        mq.tick();
        mq.hit(Frame(0), Access::Read);
        mq.hit(Frame(0), Access::Write);
        assert_eq!(mq.hint(Frame(0)), 2);
    }

    #[test]
    fn the_lowest_level_leaves_first_and_in_a_level_the_oldest() {
        let mut mq = filled(4, MqEra::Split);
        hit(&mut mq, 0, 1);
        hit(&mut mq, 1, 3);
        // Hits 2, 4, 1, 1: levels 1, 2, 0, 0.
        assert_eq!([0; 4].map(|_| victim(&mut mq)), [Some(2), Some(3), Some(0), Some(1)]);
        assert_eq!(victim(&mut mq), None);
    }

    #[test]
    fn levels_sink_so_that_what_was_hot_long_ago_can_leave() {
        let mut mq = filled(3, MqEra::Split);
        hit(&mut mq, 0, 3);
        hit(&mut mq, 1, 1);
        // Hits 4, 2, 1: levels 2, 1, 0. Frame 2 leaves: frame 0 sinks to 1, frame 1 to 0.
        assert_eq!(victim(&mut mq), Some(2));
        mq.insert(Frame(2), Arrival { hits: 2, ..Arrival::first(Access::Read, false) });
        // Frame 2 is in level 1, behind frame 0; frame 1 leaves and both sink to 0.
        assert_eq!(victim(&mut mq), Some(1));
        mq.insert(Frame(1), Arrival::first(Access::Read, false));
        assert_eq!([0; 3].map(|_| victim(&mut mq)), [Some(0), Some(2), Some(1)]);
    }

    #[test]
    fn the_threshold_is_the_mean_of_the_coldest_set_once_in_a_generation() {
        let mut mq = filled(40, MqEra::Split);
        // 40 frames need 1 024 hits. Frames 0 to 9 get 102 each: 1 020. Then frames 10 to 13.
        (0..10).for_each(|frame| hit(&mut mq, frame, 102));
        assert_eq!(mq.standing(0).threshold, 0);
        (10..13).for_each(|frame| hit(&mut mq, frame, 1));
        assert_eq!(mq.standing(0).threshold, 0, "1 023 hits");
        mq.tick();
        mq.hit(Frame(13), Access::Read);
        // The mean is taken before frame 13 is moved, but after it was counted: of the 20 first,
        // frame 13 has 2 hits and the 19 after it have 1: 21 / 20, rounded up.
        assert_eq!(mq.standing(0).threshold, 2);
    }

    #[test]
    fn hits_of_remembered_pieces_make_generations_too_but_not_while_a_frame_is_free() {
        let mut mq = filled(4, MqEra::Split);
        mq.remove(Frame(3));
        (0..2000).for_each(|_| mq.ghost_hit());
        assert_eq!(mq.standing(1).threshold, 0);
        mq.insert(Frame(3), Arrival { hits: 6, ..Arrival::first(Access::Read, false) });
        mq.ghost_hit();
        assert_eq!(mq.standing(0).threshold, 3, "(1 + 1 + 1 + 6) / 4, rounded up");
    }

    #[test]
    fn a_frame_that_changes_hands_is_not_free() {
        let mut mq = filled(4, MqEra::Split);
        assert_eq!(victim(&mut mq), Some(0));
        (0..1024).for_each(|_| mq.ghost_hit());
        assert_eq!(mq.standing(0).threshold, 1, "the mean of those that are left");
        mq.insert(Frame(0), Arrival { hits: 6, ..Arrival::first(Access::Read, false) });
        mq.remove(Frame(1));
        (0..1024).for_each(|_| mq.ghost_hit());
        assert_eq!(mq.standing(1).threshold, 1, "one is free");
        mq.insert(Frame(1), Arrival::first(Access::Read, false));
        mq.ghost_hit();
        assert_eq!(mq.standing(0).threshold, 3, "(6 + 1 + 1 + 1) / 4, rounded up");
    }

    #[test]
    fn what_went_home_between_two_requests_is_counted_by_the_second() {
        let mut mq = filled(2, MqEra::Split);
        hit(&mut mq, 0, 1);
        mq.set_dirty(Frame(0), true);
        mq.tick();
        mq.home_begins(Frame(0));
        mq.home_ends(Frame(0), false);
        mq.hit(Frame(0), Access::Write);
        assert_eq!(mq.hint(Frame(0)), 3);
    }

    #[test]
    fn the_mean_may_have_one_dirty_frame_too_many() {
        let mut mq = filled(30, MqEra::Split);
        // 20 clean frames and 10 dirty ones, all in the bottom level.
        (20..30).for_each(|frame| mq.set_dirty(Frame(frame), true));
        assert_eq!(mq.mean_hits(), 1);
        mq.hits[20] = 22;
        // 20 clean ones fill the count; the first dirty one is added all the same: 42 / 21.
        assert_eq!(mq.mean_hits(), 2);
    }

    #[test]
    fn dirty_frames_do_not_leave_and_count_as_clean_once_they_go_home() {
        let mut mq = filled(2, MqEra::Split);
        mq.set_dirty(Frame(0), true);
        mq.set_dirty(Frame(1), true);
        assert_eq!((victim(&mut mq), mq.standing(0).clean), (None, 0));
        assert_eq!(mq.next_home(0, Urgency::All, |_| true), Some(Frame(0)));
        mq.home_begins(Frame(0));
        assert_eq!(mq.next_home(0, Urgency::All, |_| true), Some(Frame(1)));
        assert_eq!(mq.standing(0).clean, 1);
        mq.home_ends(Frame(0), true);
        assert_eq!(mq.standing(0).clean, 0, "it failed");
        mq.home_begins(Frame(1));
        mq.home_ends(Frame(1), false);
        assert_eq!(victim(&mut mq), Some(1));
    }

    #[test]
    fn the_single_queue_knows_no_dirt_and_remembers_its_victims() {
        let mut mq = filled(3, MqEra::Single);
        mq.set_dirty(Frame(0), true);
        assert_eq!(mq.next_home(0, Urgency::All, |_| true), Some(Frame(0)));
        let victim = mq.victim(0, |frame| frame.0 != 0);
        assert_eq!(victim, Some(Victim { frame: Frame(1), is_remembered: true }));
        let victim = mq.victim(0, |_| true).map(|victim| victim.frame);
        assert_eq!(victim, Some(Frame(0)), "the store says whether a dirty one may leave");
    }

    #[test]
    fn later_the_threshold_is_what_the_next_victim_has() {
        let mut mq = filled(2, MqEra::Coldest);
        hit(&mut mq, 0, 4);
        hit(&mut mq, 1, 8);
        assert_eq!(mq.standing(1).threshold, 0);
        assert_eq!(mq.standing(0).threshold, 5);
        mq.set_dirty(Frame(0), true);
        assert_eq!(mq.standing(0).threshold, 9);
        mq.set_dirty(Frame(1), true);
        assert_eq!(mq.standing(0).threshold, 5 + 128);
    }

    #[test]
    fn a_clean_stop_saves_hits() {
        let mut mq = filled(2, MqEra::Split);
        hit(&mut mq, 0, 6);
        let mut opened = Mq::new(Shape::whole(2), MqEra::Split);
        opened.restore(Frame(0), Some(mq.hint(Frame(0))), false);
        opened.restore(Frame(1), None, false);
        assert_eq!([0, 1].map(|frame| opened.hint(Frame(frame))), [7, 1]);
        assert_eq!(victim(&mut opened), Some(1));
    }
}
