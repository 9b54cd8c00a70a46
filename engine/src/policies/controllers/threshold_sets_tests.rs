//! EnhanceIO's thresholds on histories worked through by hand, and against a naive model.

use super::*;
use proptest::prelude::*;

/// Ten sets of 100 blocks.
const SHAPE: Shape = Shape { frames: 1000, ways: 100 };

fn at(s: u64) -> Pressure {
    Pressure { now: Nanos(s * Nanos::SECOND), ..Pressure::default() }
}

/// Makes so many blocks of `set` dirty.
fn dirty(sets: &mut ThresholdSets, set: u32, blocks: u32, s: u64) {
    (0..blocks).for_each(|_| sets.dirtied(set, &at(s)));
}

/// Cleans what the budget says: the set, how many, which.
fn clean(sets: &mut ThresholdSets, s: u64) -> Option<(u32, u32, OfSet)> {
    let budget = sets.budget(&at(s));
    let HomeOrder::Set(set, which) = budget.order else { return None };
    (0..budget.runs).for_each(|_| sets.cleaned(set));
    sets.ended(at(s).now);
    Some((set, budget.runs, which))
}

fn plain() -> ThresholdSets {
    let choice = ThresholdSetsChoice { age_by_size: false, ..ThresholdSetsChoice::PUBLISHED };
    ThresholdSets::new(choice, SHAPE, 4096)
}

#[test]
fn above_30_percent_of_the_cache_the_oldest_sets_are_cleaned_below_10() {
    let mut sets = plain();
    for set in [3, 1, 4, 5] {
        dirty(&mut sets, set, 70, 0);
    }
    sets.dirtied(3, &at(1));
    assert_eq!(clean(&mut sets, 1), None, "281 of 1000");
    dirty(&mut sets, 9, 18, 2);
    assert_eq!(clean(&mut sets, 2), None, "299 of 1000");
    sets.dirtied(9, &at(2));
    // 200 have to go: 1, 4, 5 hold 210, and that is more.
    assert_eq!(
        [(); 4].map(|()| clean(&mut sets, 3)),
        [Some((1, 70, OfSet::All)), Some((4, 70, OfSet::All)), Some((5, 70, OfSet::All)), None,]
    );
}

#[test]
fn a_full_set_is_cleaned_down_to_30_percent() {
    let mut sets = plain();
    dirty(&mut sets, 2, 99, 0);
    assert_eq!(clean(&mut sets, 0), None);
    sets.dirtied(2, &at(0));
    assert_eq!(clean(&mut sets, 0), Some((2, 70, OfSet::InOrder)));
    assert_eq!(clean(&mut sets, 0), None);
}

#[test]
fn nothing_is_triggered_while_many_requests_are_under_way() {
    for (requests, pause_above_requests, is_cleaned) in [(128, 128, true), (129, 128, false), (0, 0, false)] {
        let choice = ThresholdSetsChoice { pause_above_requests, ..ThresholdSetsChoice::PUBLISHED };
        let mut sets = ThresholdSets::new(choice, SHAPE, 4096);
        (0..100).for_each(|_| sets.dirtied(0, &Pressure { requests, ..at(0) }));
        assert_eq!(clean(&mut sets, 0).is_some(), is_cleaned);
    }
}

#[test]
fn one_set_at_a_time() {
    let mut sets = plain();
    dirty(&mut sets, 0, 100, 0);
    dirty(&mut sets, 1, 100, 0);
    assert_eq!(sets.budget(&at(0)).order, HomeOrder::Set(0, OfSet::InOrder));
    assert_eq!(sets.budget(&at(0)).runs, 0, "set 0 is being cleaned");
    sets.ended(Nanos(0));
    assert_eq!(sets.budget(&at(0)).order, HomeOrder::Set(1, OfSet::InOrder));
}

#[test]
fn a_set_that_was_not_dirtied_for_its_age_is_cleaned() {
    let choice = |age_minutes, age_by_size| ThresholdSetsChoice {
        age_minutes,
        age_by_size,
        ..ThresholdSetsChoice::PUBLISHED
    };
    let minutes =
        |choice: ThresholdSetsChoice, gib: u64| choice.age_ns(gib << 30).map(|ns| ns / 60 / Nanos::SECOND);
    assert_eq!(
        [1, 16, 47, 238, 1 << 14].map(|gib| minutes(choice(0, true), gib)),
        [1, 1, 2, 14, 720].map(Some)
    );
    assert_eq!([minutes(choice(0, false), 238), minutes(choice(5, false), 238)], [None, Some(5)]);

    let mut sets = ThresholdSets::new(choice(5, false), SHAPE, 4096);
    assert_eq!(sets.budget(&at(0)).look_again, Some(at(300).now));
    dirty(&mut sets, 7, 3, 0);
    dirty(&mut sets, 8, 3, 1);
    assert_eq!(clean(&mut sets, 299), None);
    assert_eq!(clean(&mut sets, 300), Some((7, 3, OfSet::All)));
    assert_eq!(clean(&mut sets, 301), None, "looked for every five minutes only");
    assert_eq!(clean(&mut sets, 600), Some((8, 3, OfSet::All)));
}

#[test]
fn a_drain_takes_every_set() {
    let mut sets = plain();
    dirty(&mut sets, 5, 3, 0);
    dirty(&mut sets, 2, 1, 0);
    let drain = Pressure { is_draining: true, ..at(0) };
    for (set, blocks) in [(5, 3), (2, 1)] {
        assert_eq!(sets.budget(&drain), Budget::runs(blocks, HomeOrder::Set(set, OfSet::All)));
        (0..blocks).for_each(|_| sets.cleaned(set));
        sets.ended(Nanos(0));
    }
    assert_eq!(sets.budget(&drain).runs, 0);
}

/// Lists of sets. As slow as can be.
#[derive(Default)]
struct Model {
    dirty: [u32; 10],
    order: Vec<u32>,
    queue: Vec<(u32, bool)>,
    cleaning: Option<u32>,
}

impl Model {
    fn is_whole(&self, set: u32) -> bool {
        self.queue.contains(&(set, true))
    }

    fn touch(&mut self, set: u32) {
        if self.cleaning != Some(set) && !self.is_whole(set) {
            self.order.retain(|&other| other != set);
            self.order.push(set);
        }
    }

    fn clean(&mut self, set: u32, is_whole: bool) {
        if is_whole {
            self.order.retain(|&other| other != set);
        }
        match self.queue.iter_mut().find(|(queued, _)| *queued == set) {
            Some((_, whole)) => *whole |= is_whole,
            None if self.cleaning != Some(set) => self.queue.push((set, is_whole)),
            None => {}
        }
    }

    fn dirtied(&mut self, set: u32) {
        self.dirty[set as usize] += 1;
        self.touch(set);
        if self.dirty[set as usize] >= 100 {
            self.clean(set, false);
        }
        let all: u32 = self.dirty.iter().sum();
        if all >= 300 && self.queue.is_empty() && self.cleaning.is_none() {
            let mut queued = 0;
            while queued + 100 <= all && !self.order.is_empty() {
                let set = self.order[0];
                queued += self.dirty[set as usize];
                self.clean(set, true);
            }
        }
    }

    fn budget(&mut self) -> Option<(u32, u32)> {
        if self.cleaning.is_some() {
            return None;
        }
        while !self.queue.is_empty() {
            let (set, is_whole) = self.queue.remove(0);
            let blocks = self.dirty[set as usize].saturating_sub(if is_whole { 0 } else { 30 });
            if blocks > 0 {
                self.order.retain(|&other| other != set);
                self.cleaning = Some(set);
                return Some((set, blocks));
            }
        }
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Goal: order, queue, both thresholds. Method: bursts of dirty blocks in ten sets and sets cleaned wholly or in
    /// part, beside the model.
    #[test]
    fn behaves_as_the_model(steps in prop::collection::vec((0u8..3, 0u32..10, 1u32..60), 1..200)) {
        let (mut sets, mut model) = (plain(), Model::default());
        for (step, set, blocks) in steps {
            match step {
                0 => for _ in 0..blocks.min(100 - model.dirty[set as usize]) {
                    sets.dirtied(set, &at(0));
                    model.dirtied(set);
                },
                1 => {
                    let budget = sets.budget(&at(0));
                    let found = match budget.order {
                        HomeOrder::Set(set, _) => Some((set, budget.runs)),
                        _ => None,
                    };
                    prop_assert_eq!(found, model.budget());
                }
                _ => if let Some(set) = model.cleaning {
                    for _ in 0..blocks.min(model.dirty[set as usize]) {
                        sets.cleaned(set);
                        model.dirty[set as usize] -= 1;
                    }
                    sets.ended(Nanos(0));
                    model.cleaning = None;
                    if model.dirty[set as usize] > 0 {
                        model.touch(set);
                    }
                },
            }
        }
    }
}
