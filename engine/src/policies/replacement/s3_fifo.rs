//! `s3-fifo`: a small queue for newcomers, a main queue for frames that were hit.
//!
//! A newcomer enters the small queue, or the main one if the ghost history had it, or if the small
//! one has its share while nothing had to leave yet. A hit only counts, up to 3. While the small
//! queue has its share of frames or more, the victim comes from there: a frame that was hit twice or more moves to the main queue, another one leaves and is
//! remembered. Otherwise it comes from the main queue: a frame that was hit goes round once more
//! with one hit less, another one leaves and is forgotten. So one pass over new data cannot push
//! out what is used.
//!
//! A frame that must not leave (dirty, busy) goes to the end of its queue unchanged; when all of
//! a queue were refused, the other one is tried. The ghost history holds as many pieces as the
//! main queue has frames; admission keeps it.
//!
//! Source: J. Yang, Y. Zhang, Z. Qiu, Y. Yue, R. Vinayak, "FIFO queues are all you need for cache
//! eviction", SOSP 2023; that the first newcomers share both queues is in the authors' simulator
//! alone, whose hit ratios on published traces are met within 0.7 points. What to do with frames
//! that must not leave is ours.
//!
//! | parameter | unit | default | range |
//! | --- | --- | --- | --- |
//! | `small_permille` | permille of all frames | 100 | 1 to 999 |

use crate::number::{index, to_u32};
use crate::policies::replacement::{
    Access, Arrival, Policy, Shape, Standing, Urgency, VICTIM_LOOKS_MAX, Victim,
};
use crate::table::bits::Bits;
use crate::table::frame_lists::{FrameLists, List};
use crate::units::Frame;
use alloc::vec;
use alloc::vec::Vec;

/// The queue of newcomers.
const SMALL: List = List(0);
/// The queue of the others.
const MAIN: List = List(1);
/// Hits are counted up to this.
const HITS_MAX: u8 = 3;
/// Hits that bring a frame from the small queue into the main one.
const PROMOTE_HITS: u8 = 2;

/// The queues: 9 bytes per frame, 5 if there are fewer than 65 535.
///
/// * I1: a listed frame is in the queue that `is_main` tells; `lens` are the queues' lengths.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    shape: Shape,
    small_frames: u32,
    /// Oldest first.
    lists: FrameLists,
    is_main: Bits,
    hits: Vec<u8>,
    lens: [u32; 2],
    /// Whether a frame has left for want of room.
    has_filled: bool,
}

impl S3Fifo {
    /// Empty queues.
    #[must_use]
    pub fn new(shape: Shape, small_permille: u32) -> S3Fifo {
        assert!(shape.sets() == 1, "s3-fifo knows no sets");
        assert!((1..=999).contains(&small_permille), "both queues have a share");
        let small_frames = u64::from(shape.frames) * u64::from(small_permille) / 1000;
        S3Fifo {
            shape,
            small_frames: to_u32(small_frames).max(1),
            lists: FrameLists::new(1, shape.frames, 2),
            is_main: Bits::new(shape.frames),
            hits: vec![0; index(shape.frames)],
            lens: [0; 2],
            has_filled: false,
        }
    }

    /// The number of pieces in the ghost history.
    #[must_use]
    pub fn ghosts(&self) -> u32 {
        self.shape.frames - self.small_frames
    }

    fn list_of(&self, frame: Frame) -> List {
        if self.is_main.get(frame.0) { MAIN } else { SMALL }
    }

    fn len(&self, list: List) -> u32 {
        self.lens[index(list.0)]
    }

    fn push(&mut self, list: List, frame: Frame) {
        self.is_main.put(frame.0, list == MAIN);
        self.lists.push_back(list, frame.0);
        self.lens[index(list.0)] += 1;
    }

    fn unlist(&mut self, frame: Frame) -> List {
        let list = self.list_of(frame);
        self.lists.remove(frame.0);
        self.lens[index(list.0)] -= 1;
        list
    }

    /// The queue to look at, with how many of each were refused in a row.
    fn queue(&self, refused: [u32; 2]) -> Option<List> {
        let has_more = |list: List| refused[index(list.0)] < self.len(list);
        let small_first = self.len(SMALL) >= self.small_frames;
        let order = if small_first { [SMALL, MAIN] } else { [MAIN, SMALL] };
        order.into_iter().find(|&list| has_more(list))
    }
}

impl Policy for S3Fifo {
    fn insert(&mut self, frame: Frame, arrival: Arrival) {
        self.hits[frame.at()] = 0;
        // As long as there is room, who comes next is no reason to leave.
        let is_first_fill = !self.has_filled && self.len(SMALL) >= self.small_frames;
        self.push(if arrival.is_returning || is_first_fill { MAIN } else { SMALL }, frame);
    }

    fn hit(&mut self, frame: Frame, _: Access) {
        let hits = &mut self.hits[frame.at()];
        *hits = (*hits + 1).min(HITS_MAX);
    }

    fn remove(&mut self, frame: Frame) {
        if self.lists.is_listed(frame.0) {
            self.unlist(frame);
        }
    }

    fn victim(&mut self, _: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        let mut refused = [0; 2];
        for _ in 0..VICTIM_LOOKS_MAX {
            let list = self.queue(refused)?;
            let oldest = self.lists.first(list).expect("a queue with frames has an oldest one");
            let frame = Frame(oldest);
            self.unlist(frame);
            let hits = &mut self.hits[frame.at()];
            if list == SMALL && *hits >= PROMOTE_HITS {
                *hits = 0;
                self.push(MAIN, frame);
            } else if list == MAIN && *hits > 0 {
                *hits -= 1;
                self.push(MAIN, frame);
            } else if may_leave(frame) {
                self.has_filled = true;
                return Some(Victim { frame, is_remembered: list == SMALL });
            } else {
                self.push(list, frame);
                refused[index(list.0)] += 1;
            }
        }
        None
    }

    fn stays(&mut self, frame: Frame, _: bool) {
        let list = self.list_of(frame);
        self.push(list, frame);
    }

    fn next_home(&mut self, _: u32, _: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
        let oldest = |list| core::iter::successors(self.lists.first(list), |&frame| self.lists.next(frame));
        let frames = oldest(SMALL).chain(oldest(MAIN)).take(index(VICTIM_LOOKS_MAX));
        frames.map(Frame).find(|&frame| may_go(frame))
    }

    fn standing(&self, free: u32) -> Standing {
        Standing { free, frames: self.shape.frames, ..Standing::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(policy: &mut S3Fifo, frame: u32, is_returning: bool) {
        let arrival = Arrival { is_returning, ..Arrival::first(Access::Read, false) };
        policy.insert(Frame(frame), arrival);
    }

    /// Empty queues, where a frame had to leave before.
    fn that_was_full(frames: u32, small_permille: u32) -> S3Fifo {
        let mut policy = S3Fifo::new(Shape::whole(frames), small_permille);
        arrive(&mut policy, 0, false);
        assert_eq!(victim(&mut policy, |_| true), Some((0, true)));
        policy
    }

    fn victim(policy: &mut S3Fifo, may_leave: impl Fn(u32) -> bool) -> Option<(u32, bool)> {
        policy.victim(0, |frame| may_leave(frame.0)).map(|victim| (victim.frame.0, victim.is_remembered))
    }

    #[test]
    fn newcomers_leave_first_and_are_remembered() {
        let mut policy = that_was_full(10, 100);
        assert_eq!(policy.ghosts(), 9);
        arrive(&mut policy, 0, true);
        (1..10).for_each(|frame| arrive(&mut policy, frame, false));
        assert_eq!(victim(&mut policy, |_| true), Some((1, true)));
        policy.hit(Frame(2), Access::Read);
        assert_eq!(victim(&mut policy, |_| true), Some((2, true)), "one hit is not enough");
        policy.hit(Frame(3), Access::Read);
        policy.hit(Frame(3), Access::Write);
        assert_eq!(victim(&mut policy, |_| true), Some((4, true)));
        (5..10).for_each(|frame| assert_eq!(victim(&mut policy, |_| true), Some((frame, true))));
        policy.hit(Frame(0), Access::Read);
        assert_eq!(victim(&mut policy, |_| true), Some((3, false)), "0 goes round, 3 has no hits here");
        assert_eq!(victim(&mut policy, |_| true), Some((0, false)));
        assert_eq!(victim(&mut policy, |_| true), None);
    }

    #[test]
    fn one_pass_over_three_times_the_cache_pushes_nothing_hot_out() {
        let mut policy = that_was_full(100, 100);
        (0..50).for_each(|frame| arrive(&mut policy, frame, false));
        (0..150).for_each(|access| policy.hit(Frame(access % 50), Access::Read));
        (50..100).for_each(|frame| arrive(&mut policy, frame, false));
        for _ in 0..300 {
            let (frame, is_remembered) = victim(&mut policy, |_| true).expect("something may leave");
            assert!(frame >= 50 && is_remembered, "frame {frame}");
            arrive(&mut policy, frame, false);
        }
    }

    #[test]
    fn the_first_ones_share_both_queues() {
        let mut policy = S3Fifo::new(Shape::whole(10), 200);
        (0..10).for_each(|frame| arrive(&mut policy, frame, false));
        assert_eq!((policy.len(SMALL), policy.len(MAIN)), (2, 8));
        assert_eq!(victim(&mut policy, |_| true), Some((0, true)));
        arrive(&mut policy, 0, false);
        assert_eq!(victim(&mut policy, |_| true), Some((1, true)), "a loop keeps what came first");
    }

    #[test]
    fn what_must_not_leave_stays_in_its_queue_and_the_other_one_is_tried() {
        let mut policy = that_was_full(4, 500);
        arrive(&mut policy, 0, true);
        (1..4).for_each(|frame| arrive(&mut policy, frame, false));
        assert_eq!(victim(&mut policy, |frame| frame == 0), Some((0, false)));
        assert_eq!(victim(&mut policy, |_| false), None);
        assert_eq!(policy.next_home(0, Urgency::All, |frame| frame.0 > 1), Some(Frame(2)));
        assert_eq!(victim(&mut policy, |_| true), Some((1, true)), "the order is as before");
        policy.stays(Frame(1), false);
        assert_eq!(
            [0; 3].map(|_| victim(&mut policy, |_| true)),
            [Some((2, true)), Some((3, true)), Some((1, true))]
        );
    }
}
