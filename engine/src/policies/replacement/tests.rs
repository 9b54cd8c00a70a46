//! Every policy under the same random life: what any of them must never do.

use super::*;
use crate::prng::Prng;
use alloc::vec;
use alloc::vec::Vec;
use free_frames::FreeFrames;

/// All choices, with the shape each is driven in.
fn choices() -> Vec<(ReplacementChoice, Shape)> {
    let sets = Shape { frames: 96, ways: 24 };
    let whole = Shape::whole(96);
    let mut choices = vec![
        (ReplacementChoice::Fifo { free_order: FreeOrder::LastFreed }, sets),
        (ReplacementChoice::Fifo { free_order: FreeOrder::Lowest }, whole),
        (ReplacementChoice::Lru {}, sets),
        (ReplacementChoice::Random { kind: RandomKind::SharedCounter }, sets),
        (ReplacementChoice::Random { kind: RandomKind::Seeded }, whole),
        (ReplacementChoice::WarmHotLru { hot_percent: 50, promote_hits: 2 }, sets),
        (ReplacementChoice::WarmHotLru { hot_percent: 100, promote_hits: 1 }, sets),
        (ReplacementChoice::S3Fifo { small_permille: 100 }, whole),
    ];
    for era in [MqEra::Single, MqEra::Split, MqEra::Coldest] {
        choices.push((ReplacementChoice::Mq { era }, whole));
    }
    for version in [SmqVersion::One, SmqVersion::Two] {
        choices.push((ReplacementChoice::Smq { version }, whole));
    }
    for kind in [BucketKind::Lru, BucketKind::Fifo, BucketKind::Random] {
        choices.push((ReplacementChoice::BucketLru { kind, bucket_sectors: 8 }, whole));
    }
    choices
}

/// A frame as the store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Held { is_dirty: bool },
    Leaving,
    Going { is_rewritten: bool },
}

/// A store that asks and tells a policy as a real one does.
struct Life {
    shape: Shape,
    policy: Replacement,
    free: FreeFrames,
    states: Vec<State>,
    prng: Prng,
    now: Nanos,
    victims: u32,
    homes: u32,
}

impl Life {
    fn new(choice: &ReplacementChoice, shape: Shape, seed: u64) -> Life {
        Life {
            shape,
            policy: Replacement::new(choice, shape, seed),
            free: FreeFrames::new(shape, choice.free_order(), |_| true),
            states: vec![State::Free; shape.frames as usize],
            prng: Prng::new(seed),
            now: Nanos(0),
            victims: 0,
            homes: 0,
        }
    }

    fn step(&mut self) {
        let frame = Frame(self.prng.below(self.shape.frames));
        match (self.prng.below(10), self.states[frame.at()]) {
            (0..4, State::Held { is_dirty }) => {
                self.policy.hit(frame, Access::Write);
                if !is_dirty {
                    self.policy.set_dirty(frame, true);
                    self.states[frame.at()] = State::Held { is_dirty: true };
                }
            }
            (4..8, State::Held { .. }) => self.policy.hit(frame, Access::Read),
            (8, State::Held { .. }) if self.prng.below(8) == 0 => {
                self.policy.remove(frame);
                self.release(frame);
            }
            (_, State::Leaving) => match self.prng.below(3) {
                0 => self.arrive(frame),
                1 => {
                    self.policy.remove(frame);
                    self.release(frame);
                }
                _ => {
                    self.policy.stays(frame, false);
                    self.states[frame.at()] = State::Held { is_dirty: false };
                }
            },
            (_, State::Going { is_rewritten }) => {
                let is_dirty = is_rewritten || self.prng.below(8) == 0;
                self.policy.home_ends(frame, is_dirty);
                self.states[frame.at()] = State::Held { is_dirty };
            }
            _ => self.newcomer(),
        }
        if self.prng.below(2) == 0 {
            self.send_home();
        }
        self.now = self.now.plus(u64::from(self.prng.below(400)) * Nanos::MILLISECOND);
        self.policy.advance(self.now);
        self.policy.served(8);
        self.policy.tick();
    }

    fn newcomer(&mut self) {
        self.policy.miss();
        let set = self.prng.below(self.shape.sets());
        if let Some(frame) = self.free.take(set) {
            self.arrive(frame);
            return;
        }
        let busy = self.prng.below(8);
        let states = &self.states;
        let may_leave =
            |frame: Frame| states[frame.at()] == State::Held { is_dirty: false } && frame.0 % 8 != busy;
        if let Some(victim) = self.policy.victim(set, may_leave) {
            assert!(may_leave(victim.frame), "a victim may leave");
            assert_eq!(self.shape.set_of(victim.frame), set);
            self.states[victim.frame.at()] = State::Leaving;
            self.victims += 1;
        }
    }

    fn send_home(&mut self) {
        let set = self.prng.below(self.shape.sets());
        let urgency = match self.prng.below(3) {
            0 => Urgency::Old,
            1 => Urgency::Busy { is_critical: true },
            _ => Urgency::All,
        };
        let states = &self.states;
        let may_go = |frame: Frame| states[frame.at()] == State::Held { is_dirty: true };
        if let Some(frame) = self.policy.next_home(set, urgency, may_go) {
            assert!(may_go(frame), "what goes home is dirty");
            assert_eq!(self.shape.set_of(frame), set);
            self.policy.home_begins(frame);
            self.states[frame.at()] = State::Going { is_rewritten: self.prng.below(4) == 0 };
            self.homes += 1;
        }
    }

    fn arrive(&mut self, frame: Frame) {
        let is_dirty = self.prng.below(2) == 0;
        let arrival = Arrival {
            access: if is_dirty { Access::Write } else { Access::Read },
            is_dirty,
            hits: 1 + self.prng.below(40),
            is_temporary: self.prng.below(2) == 0,
            is_returning: self.prng.below(4) == 0,
        };
        self.policy.insert(frame, arrival);
        self.states[frame.at()] = State::Held { is_dirty };
    }

    fn release(&mut self, frame: Frame) {
        self.free.give_back(frame);
        self.states[frame.at()] = State::Free;
    }

    /// Ends what is under way and makes everything clean.
    fn settle(&mut self) {
        for number in 0..self.shape.frames {
            let frame = Frame(number);
            match self.states[frame.at()] {
                State::Free => continue,
                State::Leaving => self.policy.stays(frame, false),
                State::Going { .. } => self.policy.home_ends(frame, false),
                State::Held { .. } => self.policy.set_dirty(frame, false),
            }
            self.states[frame.at()] = State::Held { is_dirty: false };
        }
    }

    /// Every frame of a set that holds something leaves once, nothing else does.
    fn drain(&mut self, set: u32) {
        for looks in 0.. {
            let held = |state: &State| *state != State::Free;
            let first = self.shape.frame(set, 0).at();
            if !self.states[first..first + self.shape.ways as usize].iter().any(held) {
                break;
            }
            assert!(looks < 5000, "everything leaves in the end");
            // Age comes with time: smq 1.0 lets nothing young leave, smq 2.0 nothing of the upper half.
            self.now = self.now.plus(61 * Nanos::SECOND);
            self.policy.advance(self.now);
            self.policy.tick();
            let states = &self.states;
            let may_leave = |frame: Frame| states[frame.at()] == State::Held { is_dirty: false };
            if let Some(victim) = self.policy.victim(set, may_leave) {
                assert!(may_leave(victim.frame));
                self.policy.remove(victim.frame);
                self.release(victim.frame);
            }
        }
    }
}

#[test]
fn any_policy_chooses_what_may_be_chosen_and_forgets_no_frame() {
    for (choice, shape) in choices() {
        for seed in 0..4 {
            let mut life = Life::new(&choice, shape, seed);
            for _ in 0..6000 {
                life.step();
            }
            assert!(life.victims > 20, "{choice:?}: {} victims", life.victims);
            let writes_home = !matches!(choice, ReplacementChoice::BucketLru { .. });
            assert!(life.homes > 20 || !writes_home, "{choice:?}: {} went home", life.homes);
            life.settle();
            (0..shape.sets()).for_each(|set| life.drain(set));
            assert_eq!(life.free.len(), shape.frames);
        }
    }
}

#[test]
fn one_seed_is_one_life() {
    for (choice, shape) in choices() {
        let mut lives = [0, 0].map(|_| Life::new(&choice, shape, 3));
        for _ in 0..2000 {
            lives.iter_mut().for_each(Life::step);
            assert_eq!(lives[0].states, lives[1].states);
        }
    }
}

#[test]
fn standing_counts_free_and_clean_frames() {
    for (choice, shape) in choices() {
        let mut life = Life::new(&choice, shape, 5);
        for _ in 0..2000 {
            life.step();
            let standing = life.policy.standing(life.free.len());
            assert_eq!((standing.free, standing.frames), (life.free.len(), shape.frames));
            let held = |is_dirty| {
                let state = State::Held { is_dirty };
                life.states.iter().filter(|&&other| other == state).count() as u32
            };
            let going = life.states.iter().filter(|state| matches!(state, State::Going { .. })).count();
            match choice {
                ReplacementChoice::Mq { .. } | ReplacementChoice::Smq { version: SmqVersion::One } => {
                    assert_eq!(standing.clean, held(false) + going as u32, "{choice:?}");
                }
                ReplacementChoice::Smq { version: SmqVersion::Two } => {
                    assert_eq!(standing.clean, held(false));
                }
                _ => assert_eq!(standing.clean, 0),
            }
        }
    }
}
