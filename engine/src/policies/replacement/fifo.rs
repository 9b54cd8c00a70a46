//! `fifo`: a pointer goes round each set, and a second one for destage.
//!
//! Neither hits nor arrivals are noted. A victim is the first frame from the pointer on that may
//! leave; the pointer then stands behind the last frame that was looked at, so after a round in
//! vain it has moved by one. The pointer for going home stays where its walk stopped.
//!
//! Source: flashcache 3.1.1 (`reclaim_policy` 0) and EnhanceIO (`fifo`), which are the same here;
//! both read. No parameters, besides the order of free frames, which differs between the two
//! ([`FreeOrder`](super::free_frames::FreeOrder)).

use crate::number::index;
use crate::policies::replacement::{Arrival, Policy, Shape, Standing, Urgency, Victim};
use crate::units::Frame;
use alloc::vec;
use alloc::vec::Vec;

/// The pointers.
#[derive(Clone, Debug)]
pub struct Fifo {
    shape: Shape,
    /// The frame of each set that is looked at next for a victim, counted in the set.
    next: Vec<u32>,
    /// The same for destage.
    next_home: Vec<u32>,
}

impl Fifo {
    /// All pointers at the first frame of their set.
    #[must_use]
    pub fn new(shape: Shape) -> Fifo {
        let pointers = vec![0; index(shape.sets())];
        Fifo { shape, next: pointers.clone(), next_home: pointers }
    }
}

impl Policy for Fifo {
    fn insert(&mut self, _: Frame, _: Arrival) {}

    fn remove(&mut self, _: Frame) {}

    fn victim(&mut self, set: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        let (frame, stop) = walk(self.shape, set, self.next[index(set)], may_leave);
        let passed = if frame.is_some() { 0 } else { 1 };
        self.next[index(set)] = (stop + passed) % self.shape.ways;
        frame.map(|frame| Victim { frame, is_remembered: false })
    }

    fn stays(&mut self, _: Frame, _: bool) {}

    fn next_home(&mut self, set: u32, _: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
        let (frame, stop) = walk(self.shape, set, self.next_home[index(set)], may_go);
        self.next_home[index(set)] = stop;
        frame
    }

    fn standing(&self, free: u32) -> Standing {
        Standing { free, frames: self.shape.frames, ..Standing::default() }
    }
}

/// The first frame of `set` from `way` on, round the set, for which `accept` holds, and the way
/// behind the last one that was looked at.
pub(super) fn walk(shape: Shape, set: u32, way: u32, accept: impl Fn(Frame) -> bool) -> (Option<Frame>, u32) {
    let mut at = way;
    for _ in 0..shape.looks() {
        let frame = shape.frame(set, at);
        at = (at + 1) % shape.ways;
        if accept(frame) {
            return (Some(frame), at);
        }
    }
    (None, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victims(fifo: &mut Fifo, set: u32, count: u32, may_leave: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut one = || fifo.victim(set, |frame| may_leave(frame.0)).map(|victim| victim.frame.0);
        (0..count).map_while(|_| one()).collect()
    }

    #[test]
    fn the_pointer_goes_round() {
        let mut fifo = Fifo::new(Shape { frames: 8, ways: 4 });
        assert_eq!(victims(&mut fifo, 0, 5, |_| true), [0, 1, 2, 3, 0]);
        assert_eq!(victims(&mut fifo, 1, 2, |_| true), [4, 5], "each set has its own");
    }

    #[test]
    fn dirty_frames_are_passed_over() {
        let mut fifo = Fifo::new(Shape::whole(4));
        assert_eq!(victims(&mut fifo, 0, 3, |frame| frame != 1 && frame != 2), [0, 3, 0]);
    }

    #[test]
    fn a_round_in_vain_moves_the_pointer_by_one() {
        let mut fifo = Fifo::new(Shape::whole(4));
        assert_eq!(victims(&mut fifo, 0, 1, |_| false), []);
        assert_eq!(victims(&mut fifo, 0, 2, |_| true), [1, 2]);
    }

    #[test]
    fn what_goes_home_has_a_pointer_that_stays_where_it_stopped() {
        let mut fifo = Fifo::new(Shape::whole(4));
        let mut home = |dirty: &[u32]| {
            fifo.next_home(0, Urgency::All, |frame| dirty.contains(&frame.0)).map(|frame| frame.0)
        };
        assert_eq!(home(&[1, 3]), Some(1));
        assert_eq!(home(&[1, 3]), Some(3));
        assert_eq!(home(&[]), None);
        assert_eq!(home(&[0, 3]), Some(0), "a round in vain ends where it began");
        assert_eq!(victims(&mut fifo, 0, 1, |_| true), [0]);
    }
}
