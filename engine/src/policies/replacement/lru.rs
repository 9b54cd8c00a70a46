//! `lru`: each set's frames in the order of their last use.
//!
//! A hit and an arrival move a frame to the recently used end. The victim is the least recently
//! used frame of the set that may leave; what goes home is looked for from the same end.
//!
//! Source: EnhanceIO (`lru`), read. It keeps invalid blocks in the list too and moves a block when
//! it takes it; as free frames are taken first and in another order, that makes no difference. No
//! parameters.

use crate::number::index;
use crate::policies::replacement::{Access, Arrival, Policy, Shape, Standing, Urgency, Victim};
use crate::table::frame_lists::{FrameLists, List};
use crate::units::Frame;

/// The lists: 4 bytes per frame in sets of up to 65 535 frames, else 8.
#[derive(Clone, Debug)]
pub struct Lru {
    shape: Shape,
    /// One list per set, least recently used first.
    lists: FrameLists,
}

impl Lru {
    /// Nothing was used yet.
    #[must_use]
    pub fn new(shape: Shape) -> Lru {
        Lru { shape, lists: FrameLists::new(shape.sets(), shape.ways, 1) }
    }

    fn list_of(&self, frame: Frame) -> List {
        List(self.shape.set_of(frame))
    }

    /// The least recently used frame of `set` for which `accept` holds.
    fn oldest(&self, set: u32, accept: impl Fn(Frame) -> bool) -> Option<Frame> {
        let frames = core::iter::successors(self.lists.first(List(set)), |&frame| self.lists.next(frame));
        frames.take(index(self.shape.looks())).map(Frame).find(|&frame| accept(frame))
    }
}

impl Policy for Lru {
    fn insert(&mut self, frame: Frame, _: Arrival) {
        self.lists.push_back(self.list_of(frame), frame.0);
    }

    fn hit(&mut self, frame: Frame, _: Access) {
        self.lists.remove(frame.0);
        self.lists.push_back(self.list_of(frame), frame.0);
    }

    fn remove(&mut self, frame: Frame) {
        if self.lists.is_listed(frame.0) {
            self.lists.remove(frame.0);
        }
    }

    fn victim(&mut self, set: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        let frame = self.oldest(set, may_leave)?;
        self.lists.remove(frame.0);
        Some(Victim { frame, is_remembered: false })
    }

    fn stays(&mut self, frame: Frame, _: bool) {
        self.lists.push_front(self.list_of(frame), frame.0);
    }

    fn next_home(&mut self, set: u32, _: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
        self.oldest(set, may_go)
    }

    fn standing(&self, free: u32) -> Standing {
        Standing { free, frames: self.shape.frames, ..Standing::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use alloc::vec;
    use std::collections::VecDeque;

    const READ: Arrival =
        Arrival { access: Access::Read, is_dirty: false, hits: 1, is_temporary: false, is_returning: false };

    #[test]
    fn the_frame_that_was_hit_leaves_last() {
        let mut lru = Lru::new(Shape::whole(3));
        (0..3).for_each(|frame| lru.insert(Frame(frame), READ));
        lru.hit(Frame(0), Access::Read);
        assert_eq!(lru.next_home(0, Urgency::All, |frame| frame.0 != 1), Some(Frame(2)));
        let victims = [1, 2, 0].map(|_| lru.victim(0, |_| true).map(|victim| victim.frame.0));
        assert_eq!(victims, [Some(1), Some(2), Some(0)]);
        assert_eq!(lru.victim(0, |_| true), None);
    }

    #[test]
    fn sets_behave_like_deques() {
        let shape = Shape { frames: 40, ways: 8 };
        let mut prng = Prng::new(2);
        let mut lru = Lru::new(shape);
        let mut model = vec![VecDeque::new(); shape.sets() as usize];
        for _ in 0..20_000 {
            let frame = Frame(prng.below(shape.frames));
            let set = shape.set_of(frame);
            let deque = &mut model[set as usize];
            let may_leave = |busy: u32| move |frame: Frame| frame.0 % 4 != busy;
            let busy = prng.below(8);
            match (prng.below(4), deque.contains(&frame)) {
                (0, _) => {
                    let expected = deque.iter().copied().find(|&frame| may_leave(busy)(frame));
                    let victim = lru.victim(set, may_leave(busy)).map(|victim| victim.frame);
                    assert_eq!(victim, expected);
                    deque.retain(|&frame| Some(frame) != victim);
                    if let Some(frame) = victim.filter(|_| prng.below(4) == 0) {
                        lru.stays(frame, false);
                        deque.push_front(frame);
                    }
                }
                (1, true) => {
                    lru.remove(frame);
                    deque.retain(|&other| other != frame);
                }
                (_, true) => {
                    lru.hit(frame, Access::Write);
                    deque.retain(|&other| other != frame);
                    deque.push_back(frame);
                }
                (_, false) => {
                    lru.insert(frame, READ);
                    deque.push_back(frame);
                }
            }
            let expected = deque.iter().copied().find(|&frame| may_leave(busy)(frame));
            assert_eq!(lru.next_home(set, Urgency::All, may_leave(busy)), expected);
        }
    }
}
