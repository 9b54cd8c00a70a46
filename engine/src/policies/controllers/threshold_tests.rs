//! flashcache's limits on histories worked through by hand, and against a naive model.

use super::*;
use alloc::collections::BTreeSet;
use proptest::prelude::*;

const SHAPE: Shape = Shape { frames: 4 * 512, ways: 512 };

fn at(ms: u64) -> Pressure {
    Pressure { now: Nanos(ms * Nanos::MILLISECOND), ..Pressure::default() }
}

/// A controller without fallow frames with so many dirty frames in the first sets.
fn with_dirty(dirty: &[u32]) -> Threshold {
    let choice = ThresholdChoice { fallow_delay_s: 0, ..ThresholdChoice::PUBLISHED };
    let mut threshold = Threshold::new(choice, SHAPE);
    for (set, &count) in dirty.iter().enumerate() {
        for way in 0..count {
            threshold.set_dirty(SHAPE.frame(set as u32, way), true);
        }
        threshold.touched(set as u32);
    }
    threshold
}

#[test]
fn the_103rd_dirty_block_of_a_set_starts_a_copy() {
    assert_eq!(with_dirty(&[102]).budget(&at(0)), Budget::rest(None));
    assert_eq!(with_dirty(&[103]).budget(&at(0)), of_set(0, 1, OfSet::InOrder));
    assert_eq!(with_dirty(&[512]).budget(&at(0)), of_set(0, 2, OfSet::InOrder));
}

#[test]
fn four_copies_of_the_cache_two_of_a_set_and_a_second_until_the_next_try() {
    let mut threshold = with_dirty(&[300, 104, 300]);
    for set in [0, 1] {
        assert_eq!(threshold.budget(&at(0)), of_set(set, 2, OfSet::InOrder));
        (0..2).for_each(|way| threshold.started(SHAPE.frame(set, way)));
    }
    assert_eq!(threshold.budget(&at(0)), Budget::rest(Some(at(1000).now)), "the third set finds no room");
    // Copies end: their own set is looked at, not the one that waits.
    for way in 0..2 {
        threshold.set_dirty(SHAPE.frame(1, way), false);
        threshold.ended(SHAPE.frame(1, way));
    }
    assert_eq!(threshold.budget(&at(999)), Budget::rest(Some(at(1000).now)), "102 are within the limit");
    // After the second all sets have their turn, from the first on.
    assert_eq!(threshold.budget(&at(1000)), of_set(2, 2, OfSet::InOrder), "set 0 has its two");
}

#[test]
fn joined_neighbours_count_and_may_exceed_the_limits() {
    let mut threshold = with_dirty(&[300, 300]);
    assert_eq!(threshold.budget(&at(0)).runs, 2);
    (0..9).for_each(|way| threshold.started(SHAPE.frame(0, way)));
    assert_eq!(threshold.budget(&at(0)).runs, 0, "nine of four are under way");
    for way in 0..9 {
        threshold.set_dirty(SHAPE.frame(0, way), false);
        threshold.ended(SHAPE.frame(0, way));
    }
    assert_eq!(threshold.budget(&at(0)), of_set(0, 2, OfSet::InOrder));
}

#[test]
fn a_frame_is_fallow_when_two_looks_found_it_unused() {
    let mut threshold = Threshold::new(ThresholdChoice::PUBLISHED, SHAPE);
    let look = |threshold: &mut Threshold, s: u64| {
        threshold.touched(0);
        threshold.budget(&at(s * 1000))
    };
    (0..3).for_each(|way| threshold.set_dirty(Frame(way), true));
    assert_eq!(look(&mut threshold, 10).runs, 0, "marked once");
    assert_eq!(look(&mut threshold, 909).runs, 0, "not before 900 s went by");
    threshold.used(Frame(1));
    assert_eq!(look(&mut threshold, 910), of_set(0, 2, OfSet::Fallow));
    assert_eq!([0, 1, 2].map(|way| threshold.is_fallow(Frame(way))), [true, false, true]);
    threshold.started(Frame(0));
    assert!(!threshold.is_fallow(Frame(0)));
    assert_eq!(threshold.budget(&at(910_499)).runs, 0, "two rounds in a second");
    threshold.touched(0);
    assert_eq!(threshold.budget(&at(910_500)), of_set(0, 1, OfSet::Fallow));
    threshold.set_dirty(Frame(2), false);
    threshold.touched(0);
    assert_eq!(threshold.budget(&at(920_000)).runs, 0);
}

#[test]
fn nobody_looks_at_a_set_that_nobody_asks_for() {
    let mut threshold = Threshold::new(ThresholdChoice::PUBLISHED, SHAPE);
    (0..512).for_each(|way| threshold.set_dirty(Frame(way), true));
    assert_eq!(threshold.budget(&at(0)), Budget::rest(None));
    threshold.touched(0);
    assert_eq!(threshold.budget(&at(1)).runs, 2);
    threshold.found_nothing(at(1).now);
    assert_eq!(threshold.budget(&at(2)), Budget::rest(Some(at(1001).now)));
    assert_eq!(threshold.budget(&at(1001)).runs, 2, "tried again");
}

#[test]
fn a_drain_takes_all_with_wider_limits() {
    let mut threshold = with_dirty(&[0, 15, 15]);
    let drain = Pressure { is_draining: true, ..at(0) };
    assert_eq!(threshold.budget(&drain), of_set(1, 10, OfSet::All));
    (0..10).for_each(|way| threshold.started(SHAPE.frame(1, way)));
    assert_eq!(threshold.budget(&drain), of_set(2, 10, OfSet::All));
    (0..10).for_each(|way| threshold.started(SHAPE.frame(2, way)));
    assert_eq!(threshold.budget(&drain).runs, 0);
}

/// Sets of what is known, and a list of sets to look at. As slow as can be.
#[derive(Default)]
struct Model {
    dirty: BTreeSet<u32>,
    under_way: BTreeSet<u32>,
    looks: Vec<u32>,
    retry_at_ms: Option<u64>,
}

impl Model {
    const WAYS: u32 = 10;

    fn count(of: &BTreeSet<u32>, set: u32) -> usize {
        of.iter().filter(|&&frame| frame / Model::WAYS == set).count()
    }

    fn touched(&mut self, set: u32) {
        if !self.looks.contains(&set) {
            self.looks.push(set);
        }
    }

    /// The set, and how many.
    fn budget(&mut self, now_ms: u64) -> Option<(u32, u32)> {
        if self.retry_at_ms.is_some_and(|retry| now_ms >= retry) {
            self.retry_at_ms = None;
            for set in 0..3 {
                if Model::count(&self.dirty, set) > 2 {
                    self.touched(set);
                }
            }
        }
        while !self.looks.is_empty() {
            let set = self.looks.remove(0);
            let room_of_set = 2usize.saturating_sub(Model::count(&self.under_way, set));
            let room = room_of_set.min(4usize.saturating_sub(self.under_way.len()));
            let excess = Model::count(&self.dirty, set).saturating_sub(2);
            if excess > 0 && room == 0 {
                self.retry_at_ms = self.retry_at_ms.or(Some(now_ms + 1000));
            } else if excess > 0 {
                return Some((set, room.min(excess) as u32));
            }
        }
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Goal: limits, looks, retries. Method: any history of three small sets, where budgets are used wholly, beside
    /// the model.
    #[test]
    fn behaves_as_the_model(steps in prop::collection::vec((0u8..4, 0u32..30, 0u64..400), 1..300)) {
        let shape = Shape { frames: 30, ways: Model::WAYS };
        let choice = ThresholdChoice { fallow_delay_s: 0, ..ThresholdChoice::PUBLISHED };
        let mut threshold = Threshold::new(choice, shape);
        let mut model = Model::default();
        let mut now_ms = 0;
        for (step, frame, ms) in steps {
            now_ms += ms;
            match step {
                0 => {
                    model.dirty.insert(frame);
                    threshold.set_dirty(Frame(frame), true);
                }
                1 => {
                    model.touched(frame / 10);
                    threshold.touched(frame / 10);
                }
                2 if model.under_way.remove(&frame) => {
                    model.dirty.remove(&frame);
                    threshold.set_dirty(Frame(frame), false);
                    model.touched(frame / 10);
                    threshold.ended(Frame(frame));
                }
                _ => {
                    let budget = threshold.budget(&at(now_ms));
                    let expected = model.budget(now_ms);
                    let found = match budget.order {
                        HomeOrder::Set(set, OfSet::InOrder) if budget.runs > 0 => Some((set, budget.runs)),
                        _ => None,
                    };
                    prop_assert_eq!(found, expected);
                    if expected.is_none() {
                        let retry = model.retry_at_ms.map(|ms| Nanos(ms * Nanos::MILLISECOND));
                        prop_assert_eq!(budget.look_again, retry);
                    }
                    let Some((set, runs)) = expected else { continue };
                    let idle: Vec<u32> = model.dirty.difference(&model.under_way).copied().collect();
                    for frame in idle.into_iter().filter(|frame| frame / 10 == set).take(runs as usize) {
                        model.under_way.insert(frame);
                        threshold.started(Frame(frame));
                    }
                }
            }
        }
    }
}
