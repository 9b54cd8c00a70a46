//! Both versions, step by step.

use super::*;
use alloc::vec::Vec;

const SECOND: u64 = Nanos::SECOND;

fn clean() -> Arrival {
    Arrival::first(Access::Read, false)
}

fn temporary() -> Arrival {
    Arrival { is_temporary: true, ..Arrival::first(Access::Write, false) }
}

fn pass(smq: &mut Smq, now_ns: u64) {
    smq.advance(Nanos(now_ns));
    smq.tick();
}

fn victims(smq: &mut Smq) -> Vec<u32> {
    core::iter::from_fn(|| smq.victim(0, |_| true)).map(|victim| victim.frame.0).collect()
}

fn home(smq: &mut Smq, urgency: Urgency) -> Option<u32> {
    smq.next_home(0, urgency, |_| true).map(|frame| frame.0)
}

fn counts(smq: &Smq, queue: u32) -> Vec<u32> {
    (0..LEVELS).map(|level| smq.queues.count(queue, level)).collect()
}

/// Frames 0 to `frames` hold clean pieces.
fn filled(frames: u32, version: SmqVersion) -> Smq {
    let mut smq = Smq::new(Shape::whole(frames), version);
    (0..frames).for_each(|frame| smq.insert(Frame(frame), clean()));
    smq
}

#[test]
fn a_period_makes_levels_equally_long() {
    for version in [SmqVersion::One, SmqVersion::Two] {
        let mut smq = filled(128, version);
        pass(&mut smq, 1);
        assert_eq!(counts(&smq, CLEAN), [2; 64]);
        let levels = [0, 1, 2, 126, 127].map(|frame| smq.hint(Frame(frame)));
        match version {
            // All were in level 0, which gives its last ones to the front of the next, one by one:
            // they arrive in order, and the next level does the same.
            SmqVersion::One => assert_eq!(levels, [0, 0, 1, 63, 63]),
            // All were in level 63; each lower level pulls the first two.
            SmqVersion::Two => assert_eq!(levels, [0, 0, 1, 63, 63]),
        }
    }
}

#[test]
fn version_2_turns_a_level_round_when_it_gives_surplus_away() {
    let mut smq = Smq::new(Shape::whole(64), SmqVersion::Two);
    (0..64).for_each(|frame| smq.restore(Frame(frame), Some(0), false));
    // Pushed to the front: 63 is the first of level 0, 0 the last. The last 63 go up, each to the
    // end: level 1 begins with 0 and ends with 62; it keeps 0 and gives 62 away first.
    pass(&mut smq, 1);
    assert_eq!([63, 0, 62, 1].map(|frame| smq.hint(Frame(frame))), [0, 1, 2, 3]);
}

#[test]
fn periods_last_10_and_60_seconds() {
    for (version, period_ns) in [(SmqVersion::One, 10 * SECOND), (SmqVersion::Two, 60 * SECOND)] {
        let mut smq = filled(4, version);
        pass(&mut smq, 1);
        smq.miss();
        pass(&mut smq, 1 + period_ns);
        assert_eq!(smq.standing(0).level_misses, 1, "the period is not over");
        pass(&mut smq, 2 + period_ns);
        assert_eq!(smq.standing(0).level_misses, 0);
    }
}

#[test]
fn a_hit_raises_by_one_level_once_in_a_period_and_swaps() {
    let mut smq = filled(128, SmqVersion::One);
    pass(&mut smq, 1);
    smq.hit(Frame(0), Access::Read);
    smq.hit(Frame(0), Access::Read);
    assert_eq!([0, 1, 2, 3].map(|frame| smq.hint(Frame(frame))), [1, 0, 0, 1], "2 gave its place up");
    assert_eq!(counts(&smq, CLEAN), [2; 64]);
    let standing = smq.standing(0);
    assert_eq!([standing.level_hits, standing.level_misses], [0, 2]);
    smq.hit(Frame(96), Access::Read);
    assert_eq!(smq.standing(0).level_hits, 1, "frame 96 is of level 48");
    pass(&mut smq, 1 + 11 * SECOND);
    smq.hit(Frame(0), Access::Read);
    assert_eq!(smq.hint(Frame(0)), 2);
    smq.hit(Frame(127), Access::Read);
    assert_eq!(smq.hint(Frame(127)), 63, "there is nothing above");
}

#[test]
fn version_1_lets_the_temporary_ones_leave_first_and_nothing_before_the_first_turn() {
    let mut smq = Smq::new(Shape::whole(4), SmqVersion::One);
    smq.insert(Frame(3), temporary());
    assert_eq!(victims(&mut smq), [], "the mark that turns next is the second one");
    smq.remove(Frame(3));
    pass(&mut smq, 61 * SECOND);
    (0..3).for_each(|frame| smq.insert(Frame(frame), temporary()));
    smq.insert(Frame(3), clean());
    assert_eq!(victims(&mut smq), [0, 1, 2], "in order, and the permanent one is not old");
    pass(&mut smq, 122 * SECOND);
    assert_eq!(victims(&mut smq), [], "between the marks");
    pass(&mut smq, 183 * SECOND);
    assert_eq!(victims(&mut smq), [3]);
}

#[test]
fn dirty_frames_are_old_after_two_turns_without_a_hit() {
    let mut smq = filled(1, SmqVersion::Two);
    smq.set_dirty(Frame(0), true);
    pass(&mut smq, SECOND);
    smq.hit(Frame(0), Access::Write);
    pass(&mut smq, 9 * SECOND);
    assert_eq!(home(&mut smq, Urgency::Old), None);
    assert_eq!(home(&mut smq, Urgency::Busy { is_critical: true }), None, "version 2 rests while busy");
    assert_eq!(home(&mut smq, Urgency::All), Some(0), "idle: across marks");
    pass(&mut smq, 10 * SECOND + 1);
    assert_eq!(home(&mut smq, Urgency::Old), None, "one turn");
    pass(&mut smq, 21 * SECOND);
    assert_eq!(home(&mut smq, Urgency::Old), Some(0), "two turns");
}

#[test]
fn version_1_sends_home_at_once_what_was_just_dirtied() {
    let mut smq = filled(128, SmqVersion::One);
    pass(&mut smq, 11 * SECOND);
    smq.set_dirty(Frame(5), true);
    assert_eq!(smq.hint(Frame(5)), 2);
    assert_eq!(home(&mut smq, Urgency::Busy { is_critical: false }), None, "not of level 0");
    assert_eq!(home(&mut smq, Urgency::Busy { is_critical: true }), Some(5));
    assert_eq!(home(&mut smq, Urgency::Old), Some(5));
    smq.set_dirty(Frame(1), true);
    assert_eq!(home(&mut smq, Urgency::Busy { is_critical: false }), Some(1));
    smq.home_begins(Frame(1));
    assert_eq!(smq.standing(0).clean, 127, "it counts as clean");
    assert_eq!(home(&mut smq, Urgency::Busy { is_critical: false }), None);
    smq.home_ends(Frame(1), true);
    assert_eq!(home(&mut smq, Urgency::Busy { is_critical: false }), Some(1), "it failed");
    smq.hit(Frame(1), Access::Write);
    assert_eq!(smq.hint(Frame(1)), 1);
    assert_eq!(home(&mut smq, Urgency::All), Some(5), "a counted hit makes it young");
}

#[test]
fn version_1_makes_what_a_long_level_gives_away_old() {
    let mut smq = filled(2, SmqVersion::One);
    pass(&mut smq, 61 * SECOND);
    // Frame 1 went to the front of level 1, before its marks.
    assert_eq!(victims(&mut smq), [1]);
}

#[test]
fn version_1_lets_leave_at_once_what_just_went_home() {
    let mut smq = filled(1, SmqVersion::One);
    pass(&mut smq, 61 * SECOND);
    smq.set_dirty(Frame(0), true);
    smq.home_begins(Frame(0));
    assert_eq!(victims(&mut smq), []);
    smq.home_ends(Frame(0), false);
    assert_eq!(victims(&mut smq), [0]);
}

#[test]
fn version_2_takes_victims_from_the_lower_half_whatever_their_age() {
    let mut smq = filled(128, SmqVersion::Two);
    assert_eq!(victims(&mut smq), [], "new ones are in level 63");
    pass(&mut smq, 1);
    smq.set_dirty(Frame(1), true);
    let expected: Vec<u32> = (0..64).filter(|&frame| frame != 1).collect();
    assert_eq!(victims(&mut smq), expected);
}

#[test]
fn version_2_frames_under_way_count_but_do_not_move() {
    let mut smq = filled(128, SmqVersion::Two);
    pass(&mut smq, 1);
    let victim = smq.victim(0, |_| true).unwrap().frame;
    assert_eq!(victim, Frame(0));
    smq.hit(victim, Access::Write);
    smq.set_dirty(victim, true);
    assert_eq!(smq.standing(0).level_misses, 1);
    assert_eq!(home(&mut smq, Urgency::All), None, "it is in no list");
    smq.stays(victim, true);
    assert_eq!((home(&mut smq, Urgency::All), smq.hint(victim)), (Some(0), 0));
    smq.home_begins(victim);
    assert_eq!(home(&mut smq, Urgency::All), None);
    smq.home_ends(victim, false);
    assert_eq!(smq.victim(0, |_| true).unwrap().frame, Frame(1), "at the end of its level");
    assert_eq!(smq.victim(0, |_| true).unwrap().frame, Frame(0));
}

#[test]
fn version_2_makes_room_up_to_a_quarter() {
    let smq = filled(10, SmqVersion::Two);
    assert_eq!(
        [(0, 0), (0, 1), (1, 1), (2, 0)].map(|(free, leaving)| smq.wants_victim(free, leaving)),
        [true, true, false, false]
    );
    assert!(filled(10, SmqVersion::One).wants_victim(0, 9), "version 1 replaces when it has to");
}

#[test]
fn a_dirty_frame_that_is_displaced_keeps_its_age_in_version_2() {
    let mut smq = Smq::new(Shape::whole(2), SmqVersion::Two);
    smq.restore(Frame(0), Some(5), true);
    smq.restore(Frame(1), Some(4), true);
    assert_eq!(home(&mut smq, Urgency::Old), Some(1), "both stand before the marks");
    smq.hit(Frame(1), Access::Write);
    assert_eq!([0, 1].map(|frame| smq.hint(Frame(frame))), [4, 5]);
    assert_eq!(home(&mut smq, Urgency::Old), Some(0), "old up there, old down here");
    smq.home_begins(Frame(0));
    assert_eq!(home(&mut smq, Urgency::Old), None);
    assert_eq!(home(&mut smq, Urgency::All), Some(1));
}

#[test]
fn without_hints_levels_come_from_numbers() {
    let mut smq = Smq::new(Shape::whole(4), SmqVersion::Two);
    (0..4).for_each(|frame| smq.restore(Frame(frame), None, false));
    // 0x61c8_8647 >> 23 = 195 = 3 * 64 + 3; twice it: 391 % 64 = 7; three times, modulo 2^32: 10.
    assert_eq!([0, 1, 2, 3].map(|frame| smq.hint(Frame(frame))), [0, 3, 7, 10]);
    assert_eq!(victims(&mut smq), [0, 1, 2, 3], "they may leave at once");
    let mut smq = Smq::new(Shape::whole(2), SmqVersion::One);
    smq.restore(Frame(0), None, false);
    smq.restore(Frame(1), Some(200), true);
    assert_eq!([0, 1].map(|frame| smq.hint(Frame(frame))), [1, 63]);
}
