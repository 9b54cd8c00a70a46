//! The policies that keep order, beside models of plain vectors written from their descriptions.

mod mq;
mod s3;
mod smq;
mod warm_hot;

use super::{
    Access, Arrival, MqEra, Policy, Replacement, ReplacementChoice, Shape, SmqVersion, Standing, Urgency,
};
use crate::prng::Prng;
use crate::units::{Frame, Nanos};
use alloc::vec;
use alloc::vec::Vec;

/// Frames of the caches that are driven; small, so that queues run empty.
const FRAMES: u32 = 40;

/// A policy, the obvious way. A frame that leaves its list is looked for everywhere.
trait Model {
    fn insert(&mut self, frame: u32, arrival: Arrival);
    fn hit(&mut self, frame: u32);
    fn set_dirty(&mut self, frame: u32, is_dirty: bool);
    fn remove(&mut self, frame: u32);
    fn victim(&mut self, set: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32>;
    fn stays(&mut self, frame: u32, is_dirty: bool);
    fn home(&self, set: u32, urgency: Urgency, may_go: &dyn Fn(u32) -> bool) -> Option<u32>;
    fn home_begins(&mut self, frame: u32);
    fn home_ends(&mut self, frame: u32, is_dirty: bool);
    fn tick(&mut self, now: Nanos);
    fn standing(&self, free: u32) -> Standing;
}

/// Drives a policy and its model through one life and compares every choice.
fn compare(choice: ReplacementChoice, shape: Shape, mut model: impl Model, seed: u64) {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Free,
        Held(bool),
        Leaving,
        Going,
    }
    let mut policy = Replacement::new(&choice, shape, seed);
    let mut states = vec![State::Free; shape.frames as usize];
    let mut prng = Prng::new(seed);
    let mut now = Nanos(0);
    let mut choices = [0; 2];
    for step in 0..20_000 {
        let frame = prng.below(shape.frames);
        let state = &mut states[frame as usize];
        match (*state, prng.below(12)) {
            (State::Free | State::Leaving, 0..8) => {
                let arrival = Arrival {
                    access: Access::Read,
                    is_dirty: prng.below(3) == 0,
                    hits: 1 + prng.below(70),
                    is_temporary: prng.below(2) == 0,
                    is_returning: prng.below(2) == 0,
                };
                policy.insert(Frame(frame), arrival);
                model.insert(frame, arrival);
                *state = State::Held(arrival.is_dirty);
            }
            (State::Leaving, 8..10) => {
                policy.stays(Frame(frame), false);
                model.stays(frame, false);
                *state = State::Held(false);
            }
            (State::Held(_), 0..8) => {
                policy.hit(Frame(frame), Access::Read);
                model.hit(frame);
            }
            (State::Held(is_dirty), 8) => {
                policy.set_dirty(Frame(frame), !is_dirty);
                model.set_dirty(frame, !is_dirty);
                *state = State::Held(!is_dirty);
            }
            (State::Held(_) | State::Leaving, 10) => {
                policy.remove(Frame(frame));
                model.remove(frame);
                *state = State::Free;
            }
            (State::Going, 3..) => {
                let is_dirty = prng.below(2) == 0;
                policy.home_ends(Frame(frame), is_dirty);
                model.home_ends(frame, is_dirty);
                *state = State::Held(is_dirty);
            }
            _ => {}
        }
        let set = prng.below(shape.sets());
        let busy = prng.below(10);
        if prng.below(4) == 0 {
            let may_leave = |frame: u32| states[frame as usize] == State::Held(false) && frame % 10 != busy;
            let expected = model.victim(set, &may_leave);
            let victim = policy.victim(set, |frame| may_leave(frame.0)).map(|victim| victim.frame.0);
            assert_eq!(victim, expected, "{choice:?}, seed {seed}, step {step}");
            if let Some(frame) = victim {
                states[frame as usize] = State::Leaving;
                choices[0] += 1;
            }
        }
        let urgency = [
            Urgency::Old,
            Urgency::All,
            Urgency::Busy { is_critical: true },
            Urgency::Busy { is_critical: false },
        ][prng.below(4) as usize];
        let may_go = |frame: u32| states[frame as usize] == State::Held(true) && frame % 10 != busy;
        let expected = model.home(set, urgency, &may_go);
        let home = policy.next_home(set, urgency, |frame| may_go(frame.0)).map(|frame| frame.0);
        assert_eq!(home, expected, "{choice:?}, seed {seed}, step {step}, {urgency:?}");
        if let Some(frame) = home.filter(|_| prng.below(6) == 0) {
            policy.home_begins(Frame(frame));
            model.home_begins(frame);
            states[frame as usize] = State::Going;
            choices[1] += 1;
        }
        now = now.plus(u64::from(prng.below(3000)) * Nanos::MILLISECOND);
        policy.advance(now);
        if prng.below(3) > 0 {
            policy.tick();
            model.tick(now);
        }
        let free = states.iter().filter(|state| **state == State::Free).count() as u32;
        assert_eq!(policy.standing(free), model.standing(free), "{choice:?}, seed {seed}, step {step}");
    }
    assert!(choices.iter().all(|&count| count > 100), "{choice:?}: {choices:?} choices");
}

fn plain_standing(frames: u32, free: u32) -> Standing {
    Standing { free, frames, ..Standing::default() }
}
