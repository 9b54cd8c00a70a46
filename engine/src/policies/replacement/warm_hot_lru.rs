//! `warm-hot-lru`: two lists per set, whose lengths hardly ever change.
//!
//! All frames of a set are always in its warm or in its hot list, whether they hold something or
//! not; hits move them inside their list. A warm frame that was hit `promote_hits` times changes
//! places with the least recently used hot frame: it stands at that end of the hot list, the other
//! one at the recently used end of the warm list. A victim is the first warm frame from the least
//! recently used end that may leave; if none may, the first such hot frame, which then changes
//! places with the least recently used warm frame.
//!
//! Two oddities are kept: at the start the frames with the highest numbers are the least recently
//! used ones; and the warm frame that becomes hot because a hot one had to leave is the *least*
//! recently used one, although flashcache's comment says otherwise. What goes home is looked for
//! in the warm list, then in the hot list.
//!
//! Source: flashcache 3.1.1, `reclaim_policy` 1, `flashcache_reclaim.c`, read.
//!
//! | parameter | unit | default | range | |
//! | --- | --- | --- | --- | --- |
//! | `hot_percent` | percent of a set | 50 | 0 to 100 | 75 is documented and shown, 50 is in force |
//! | `promote_hits` | hits | 2 | 1 to 255 | `lru_promote_thresh` |

use crate::number::{index, to_u8, to_u32};
use crate::policies::replacement::{Access, Arrival, Policy, Shape, Standing, Urgency, Victim};
use crate::table::bits::Bits;
use crate::table::frame_lists::{FrameLists, List};
use crate::units::Frame;
use alloc::vec;
use alloc::vec::Vec;

/// Lists of a set.
const LISTS: u32 = 2;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heat {
    Warm,
    Hot,
}

/// The lists: about 6 bytes per frame in sets of up to 65 534 frames.
///
/// * I1: every frame is in exactly one list; `is_hot` says in which.
/// * I2: a hot frame has no uses.
#[derive(Clone, Debug)]
pub struct WarmHotLru {
    shape: Shape,
    promote_hits: u8,
    lists: FrameLists,
    is_hot: Bits,
    /// Hits of a warm frame since it came to the warm list or got its piece.
    uses: Vec<u8>,
    /// Whether the frame is a victim that is to be given to another piece: its place in the list
    /// was settled when it was chosen.
    is_reclaimed: Bits,
}

impl WarmHotLru {
    /// The frames with low numbers are hot.
    #[must_use]
    pub fn new(shape: Shape, hot_percent: u32, promote_hits: u32) -> WarmHotLru {
        assert!(hot_percent <= 100, "a share of a set");
        assert!((1..=255).contains(&promote_hits), "hits are counted in 8 bits");
        let mut policy = WarmHotLru {
            shape,
            promote_hits: to_u8(promote_hits),
            lists: FrameLists::new(shape.sets(), shape.ways, LISTS),
            is_hot: Bits::new(shape.frames),
            uses: vec![0; index(shape.frames)],
            is_reclaimed: Bits::new(shape.frames),
        };
        let hot_ways = to_u32(u64::from(shape.ways) * u64::from(hot_percent) / 100);
        for frame in 0..shape.frames {
            let is_hot = frame % shape.ways < hot_ways;
            policy.is_hot.put(frame, is_hot);
            let heat = if is_hot { Heat::Hot } else { Heat::Warm };
            policy.lists.push_front(list(shape.set_of(Frame(frame)), heat), frame);
        }
        policy
    }

    /// Moves `frame` to the recently used end of the list it is in.
    fn refresh(&mut self, frame: Frame) {
        let heat = if self.is_hot.get(frame.0) { Heat::Hot } else { Heat::Warm };
        self.lists.remove(frame.0);
        self.lists.push_back(list(self.shape.set_of(frame), heat), frame.0);
    }

    /// Puts `frame` at the least recently used end of the hot list.
    fn heat(&mut self, frame: Frame) {
        self.lists.remove(frame.0);
        self.is_hot.put(frame.0, true);
        self.uses[frame.at()] = 0;
        self.lists.push_front(list(self.shape.set_of(frame), Heat::Hot), frame.0);
    }

    /// Puts `frame` at the recently used end of the warm list.
    fn cool(&mut self, frame: Frame) {
        self.lists.remove(frame.0);
        self.is_hot.put(frame.0, false);
        self.uses[frame.at()] = 0;
        self.lists.push_back(list(self.shape.set_of(frame), Heat::Warm), frame.0);
    }

    /// The least recently used frame of a list for which `accept` holds.
    fn oldest(&self, set: u32, heat: Heat, accept: impl Fn(Frame) -> bool) -> Option<Frame> {
        let first = self.lists.first(list(set, heat));
        let frames = core::iter::successors(first, |&frame| self.lists.next(frame));
        frames.take(index(self.shape.looks())).map(Frame).find(|&frame| accept(frame))
    }
}

impl Policy for WarmHotLru {
    fn insert(&mut self, frame: Frame, _: Arrival) {
        if !self.is_reclaimed.put(frame.0, false) {
            // A frame that held nothing is refreshed, and its uses go on from where they were.
            self.refresh(frame);
        }
    }

    fn hit(&mut self, frame: Frame, _: Access) {
        if self.is_hot.get(frame.0) {
            assert!(self.uses[frame.at()] == 0, "I2: a hot frame has no uses");
            self.refresh(frame);
            return;
        }
        let uses = &mut self.uses[frame.at()];
        *uses = uses.saturating_add(1);
        let is_hot_now = *uses >= self.promote_hits;
        let coolest = self.oldest(self.shape.set_of(frame), Heat::Hot, |_| true);
        match coolest.filter(|_| is_hot_now) {
            Some(coolest) => {
                self.heat(frame);
                self.cool(coolest);
            }
            None => self.refresh(frame),
        }
    }

    fn remove(&mut self, frame: Frame) {
        self.is_reclaimed.put(frame.0, false);
    }

    fn victim(&mut self, set: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        let frame = if let Some(frame) = self.oldest(set, Heat::Warm, &may_leave) {
            self.cool(frame);
            frame
        } else {
            let frame = self.oldest(set, Heat::Hot, &may_leave)?;
            let warm = self.oldest(set, Heat::Warm, |_| true);
            self.cool(frame);
            if let Some(warm) = warm {
                self.heat(warm);
            }
            frame
        };
        self.is_reclaimed.put(frame.0, true);
        Some(Victim { frame, is_remembered: false })
    }

    fn stays(&mut self, frame: Frame, _: bool) {
        self.is_reclaimed.put(frame.0, false);
    }

    fn next_home(&mut self, set: u32, _: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
        self.oldest(set, Heat::Warm, &may_go).or_else(|| self.oldest(set, Heat::Hot, &may_go))
    }

    fn standing(&self, free: u32) -> Standing {
        Standing { free, frames: self.shape.frames, ..Standing::default() }
    }

    /// flashcache makes its lists by number at every start, whatever frames hold.
    fn restore(&mut self, _: Frame, _: Option<u16>, _: bool) {}
}

fn list(set: u32, heat: Heat) -> List {
    let of_set = match heat {
        Heat::Warm => 0,
        Heat::Hot => 1,
    };
    List(set * LISTS + of_set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    /// Both lists of a set, least recently used first: warm, then hot.
    fn lists(policy: &WarmHotLru, set: u32) -> [Vec<u32>; 2] {
        [Heat::Warm, Heat::Hot].map(|heat| {
            let first = policy.lists.first(list(set, heat));
            core::iter::successors(first, |&frame| policy.lists.next(frame)).collect()
        })
    }

    fn arrive(policy: &mut WarmHotLru, frame: u32) {
        policy.insert(Frame(frame), Arrival::first(Access::Read, false));
    }

    fn victim(policy: &mut WarmHotLru, may_leave: impl Fn(u32) -> bool) -> Option<u32> {
        policy.victim(0, |frame| may_leave(frame.0)).map(|victim| victim.frame.0)
    }

    /// Eight ways; frame 5 got a piece and was hit twice.
    fn promoted() -> WarmHotLru {
        let mut policy = WarmHotLru::new(Shape { frames: 16, ways: 8 }, 50, 2);
        assert_eq!(lists(&policy, 0), [[7, 6, 5, 4], [3, 2, 1, 0]]);
        assert_eq!(lists(&policy, 1), [[15, 14, 13, 12], [11, 10, 9, 8]]);
        arrive(&mut policy, 5);
        assert_eq!(lists(&policy, 0)[0], [7, 6, 4, 5]);
        policy.hit(Frame(5), Access::Read);
        assert_eq!(lists(&policy, 0), [[7, 6, 4, 5], [3, 2, 1, 0]]);
        policy.hit(Frame(5), Access::Read);
        assert_eq!(lists(&policy, 0), [[7, 6, 4, 3], [5, 2, 1, 0]]);
        policy
    }

    #[test]
    fn the_second_hit_changes_places_with_the_coolest_hot_frame() {
        let mut policy = promoted();
        policy.hit(Frame(5), Access::Write);
        assert_eq!(lists(&policy, 0), [[7, 6, 4, 3], [2, 1, 0, 5]]);
    }

    #[test]
    fn the_victim_is_warm_and_stands_at_the_used_end_before_it_is_filled() {
        let mut policy = promoted();
        assert_eq!(victim(&mut policy, |_| true), Some(7));
        assert_eq!(lists(&policy, 0), [[6, 4, 3, 7], [5, 2, 1, 0]]);
        policy.hit(Frame(6), Access::Read);
        arrive(&mut policy, 7);
        assert_eq!(lists(&policy, 0)[0], [4, 3, 7, 6], "its place was settled when it was chosen");
        arrive(&mut policy, 7);
        assert_eq!(lists(&policy, 0)[0], [4, 3, 6, 7], "the second time it was free");
    }

    #[test]
    fn where_no_warm_frame_may_leave_a_hot_one_changes_places_with_the_oldest_warm_one() {
        let mut policy = promoted();
        let is_hot = |frame| [5, 2, 1, 0].contains(&frame);
        assert_eq!(victim(&mut policy, is_hot), Some(5));
        assert_eq!(lists(&policy, 0), [[6, 4, 3, 5], [7, 2, 1, 0]]);
        assert_eq!(victim(&mut policy, |_| false), None);
    }

    #[test]
    fn warm_frames_go_home_first() {
        let mut policy = promoted();
        let mut home = |dirty: &[u32]| {
            policy.next_home(0, Urgency::All, |frame| dirty.contains(&frame.0)).map(|frame| frame.0)
        };
        assert_eq!(home(&[5, 3, 4]), Some(4));
        assert_eq!(home(&[0, 1]), Some(1));
        assert_eq!(home(&[]), None);
    }

    #[test]
    fn without_a_hot_list_or_without_a_warm_one_it_is_a_plain_lru() {
        for hot_percent in [0, 100] {
            let mut policy = WarmHotLru::new(Shape::whole(3), hot_percent, 2);
            (0..3).for_each(|frame| arrive(&mut policy, frame));
            (0..4).for_each(|_| policy.hit(Frame(0), Access::Read));
            assert_eq!(victim(&mut policy, |_| true), Some(1));
        }
    }

    #[test]
    fn list_lengths_stay_as_they_are_while_warm_frames_can_leave() {
        let mut prng = Prng::new(4);
        let mut policy = WarmHotLru::new(Shape { frames: 64, ways: 32 }, 50, 2);
        (0..64).for_each(|frame| arrive(&mut policy, frame));
        for _ in 0..5000 {
            let set = prng.below(2);
            match prng.below(3) {
                0 => {
                    let busy = prng.below(4);
                    let expected = {
                        let [warm, hot] = lists(&policy, set);
                        warm.into_iter().chain(hot).find(|frame| frame % 8 >= busy)
                    };
                    let victim = policy.victim(set, |frame| frame.0 % 8 >= busy);
                    assert_eq!(victim.map(|victim| victim.frame.0), expected);
                    arrive(&mut policy, expected.expect("some frame of 32 may leave"));
                }
                _ => policy.hit(Frame(set * 32 + prng.below(32)), Access::Read),
            }
            for set in 0..2 {
                let [mut warm, hot] = lists(&policy, set);
                assert_eq!([warm.len(), hot.len()], [16, 16]);
                assert!(
                    hot.iter().all(|&frame| policy.is_hot.get(frame) && policy.uses[frame as usize] == 0)
                );
                warm.extend(hot);
                warm.sort_unstable();
                assert!(warm.into_iter().eq(set * 32..set * 32 + 32));
            }
        }
    }
}
