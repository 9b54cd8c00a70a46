//! `random`: any frame of the set that may leave.
//!
//! With `shared-counter` one counter for all sets stands for chance: it moves by one with every
//! frame that is looked at, at most once round the set. With `seeded` frames are drawn, and after
//! as many failures as half the set has frames there is no victim. What goes home is the first of
//! the set in the order of frames.
//!
//! Source: `shared-counter` is EnhanceIO's `rand`, read. `seeded` draws as bcache's `random` does
//! (see [`bucket_lru`](super::bucket_lru)), within a set.
//!
//! Parameter: `kind`, `shared-counter` (default) or `seeded`.

use crate::policies::replacement::fifo::walk;
use crate::policies::replacement::{Arrival, Policy, Shape, Standing, Urgency, Victim};
use crate::prng::Prng;
use crate::units::Frame;

/// The source of chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomKind {
    /// A counter that all sets share.
    #[default]
    SharedCounter,
    /// A generator, seeded from the set id.
    Seeded,
}

/// A source of chance.
#[derive(Clone, Debug)]
pub struct Random {
    shape: Shape,
    chance: Chance,
}

#[derive(Clone, Debug)]
enum Chance {
    Counter(u32),
    Drawn(Prng),
}

impl Random {
    /// The counter begins at 0; `seed` is for the other kind.
    #[must_use]
    pub fn new(shape: Shape, kind: RandomKind, seed: u64) -> Random {
        let chance = match kind {
            RandomKind::SharedCounter => Chance::Counter(0),
            RandomKind::Seeded => Chance::Drawn(Prng::new(seed)),
        };
        Random { shape, chance }
    }
}

impl Policy for Random {
    fn insert(&mut self, _: Frame, _: Arrival) {}

    fn remove(&mut self, _: Frame) {}

    fn victim(&mut self, set: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        let Shape { ways, .. } = self.shape;
        let looks = match &self.chance {
            Chance::Counter(_) => self.shape.looks(),
            Chance::Drawn(_) => ways.div_ceil(2).min(self.shape.looks()),
        };
        for _ in 0..looks {
            let way = match &mut self.chance {
                Chance::Counter(counter) => {
                    let way = *counter % ways;
                    *counter = counter.wrapping_add(1);
                    way
                }
                Chance::Drawn(prng) => prng.below(ways),
            };
            let frame = self.shape.frame(set, way);
            if may_leave(frame) {
                return Some(Victim { frame, is_remembered: false });
            }
        }
        None
    }

    fn stays(&mut self, _: Frame, _: bool) {}

    fn next_home(&mut self, set: u32, _: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
        walk(self.shape, set, 0, may_go).0
    }

    fn standing(&self, free: u32) -> Standing {
        Standing { free, frames: self.shape.frames, ..Standing::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn victim(random: &mut Random, set: u32, may_leave: impl Fn(u32) -> bool) -> Option<u32> {
        random.victim(set, |frame| may_leave(frame.0)).map(|victim| victim.frame.0)
    }

    #[test]
    fn the_counter_is_shared_by_all_sets() {
        let mut random = Random::new(Shape { frames: 8, ways: 4 }, RandomKind::SharedCounter, 0);
        assert_eq!(victim(&mut random, 0, |_| true), Some(0));
        assert_eq!(victim(&mut random, 1, |_| true), Some(5));
        assert_eq!(victim(&mut random, 0, |frame| frame != 2), Some(3), "counter 2, then 3");
        assert_eq!(victim(&mut random, 1, |_| false), None, "counter 4 to 7");
        assert_eq!(victim(&mut random, 1, |_| true), Some(4), "counter 8");
    }

    #[test]
    fn drawn_frames_reach_the_whole_set_and_one_seed_draws_the_same() {
        let shape = Shape { frames: 64, ways: 32 };
        let draw = |seed: u64| -> Vec<u32> {
            let mut random = Random::new(shape, RandomKind::Seeded, seed);
            (0..1000).map(|_| victim(&mut random, 1, |_| true).unwrap()).collect()
        };
        let drawn = draw(1);
        assert!((32..64).all(|frame| drawn.contains(&frame)));
        assert!(drawn.iter().all(|frame| (32..64).contains(frame)));
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
    }

    #[test]
    fn drawing_gives_up_after_half_the_set() {
        let looks = core::cell::Cell::new(0);
        let mut random = Random::new(Shape::whole(32), RandomKind::Seeded, 1);
        let count = |_| {
            looks.set(looks.get() + 1);
            false
        };
        assert_eq!(victim(&mut random, 0, count), None);
        assert_eq!(looks.get(), 16);
    }

    #[test]
    fn the_first_of_the_set_goes_home() {
        let mut random = Random::new(Shape { frames: 8, ways: 4 }, RandomKind::SharedCounter, 0);
        assert_eq!(random.next_home(1, Urgency::All, |frame| frame.0 >= 6), Some(Frame(6)));
        assert_eq!(random.next_home(1, Urgency::All, |frame| frame.0 >= 6), Some(Frame(6)));
    }
}
