//! Goal: whatever can be composed, and is not refused by name, keeps what it promises. Method: points of the product of
//! all axes lead a short life: some fifty requests in rounds that end with power cuts, crashes of the process and clean
//! stops, each followed by a full read-back.
//!
//! The points are those by which two answers of different axes come together for the first time, in the order of the
//! product, and every [`STRIDE`]th besides. Every other one lives as the published system, on the devices it needs.

use engine::composition::axes::Axis;
use engine::composition::keys::KEYS;
use engine::composition::points::points;
use engine::composition::{Composition, axes::Placement};
use engine::effect::WriteMode;
use forebay_lab::swarm::{Knob, Options, Totals, run};
use std::collections::BTreeSet;

/// Of the points that bring no new pair, every so manyth is taken.
const STRIDE: u64 = 20;
/// Slots and their bytes are few, so that slots are given up in a short life.
const SLOTS: u64 = 32;
const WAYS_MAX: u64 = 16;

/// What a point answers on each axis: the choice, and its tunables.
fn answers(point: &Composition) -> Vec<String> {
    let answer = |axis: Axis| {
        let tunables = KEYS.iter().filter(|key| key.axis == Some(axis));
        let values: Vec<String> =
            tunables.filter_map(|key| Some(format!(" {}={}", key.name, key.get(point)?))).collect();
        format!("{}={}{}", axis.name(), point.choice(axis).name, values.concat())
    };
    Axis::ALL.into_iter().map(answer).collect()
}

/// Takes note of the pairs of a point; whether one of them is new.
fn has_new_pair(seen: &mut BTreeSet<(String, String)>, point: &Composition) -> bool {
    let answers = answers(point);
    let mut is_new = false;
    for (at, first) in answers.iter().enumerate() {
        for second in &answers[at + 1..] {
            is_new |= seen.insert((first.clone(), second.clone()));
        }
    }
    is_new
}

/// A life of the point with that number.
fn life(number: u64, point: &Composition) -> Options {
    let contract = Composition { safe: false, ..*point }.contract();
    let has_difference = !contract.gives_up(&point.contract()).is_empty();
    let point = Composition { safe: !(has_difference && number % 2 == 1), ..*point };
    let mut options = Options::draw(number).like("of a point", point);
    let mode = WriteMode::ALL.iter().position(|(mode, _)| *mode == point.write_mode).expect("all are there");
    let few = [
        (Knob::volumes, 1),
        (Knob::sectors0, 3203),
        (Knob::mode0, mode as u64),
        (Knob::cuts, 4),
        (Knob::steps, 40),
        (Knob::request_blocks, 16),
        (Knob::reads, 4),
        (Knob::writes, 6),
        (Knob::flushes, 1),
        (Knob::discards, 1),
        (Knob::zeroes, 1),
        (Knob::hot, 60),
        (Knob::kills, 35),
        (Knob::stops, 20),
        (Knob::recovery_cuts, 0),
        (Knob::doubles, 0),
        (Knob::faulty, 0),
        (Knob::aimed, 0),
    ];
    few.into_iter().for_each(|(knob, value)| options.set(knob, value));
    if let Placement::Slots(slots) = point.placement {
        options.set(Knob::slots, SLOTS);
        options.set(Knob::ways, u64::from(slots.ways).min(WAYS_MAX));
    }
    options
}

#[test]
fn every_kind_of_cache_survives_a_short_life() {
    let mut seen = BTreeSet::new();
    let mut totals = Totals::default();
    let mut found = Vec::new();
    let (mut running, mut lived) = (0u64, 0u64);
    for point in points().filter(|point| point.validate().is_ok() && point.lack().is_none()) {
        running += 1;
        if !has_new_pair(&mut seen, &point) && !running.is_multiple_of(STRIDE) {
            continue;
        }
        lived += 1;
        let outcome = run(&life(running, &point));
        totals.add(&outcome.counts, outcome.failure.is_some());
        if let Some(failure) = outcome.failure {
            found.push(format!("{}{failure}", point.text()));
        }
    }
    let counts = totals.counts;
    println!("{lived} of {running} points, {} pairs: {counts:?}", seen.len());
    let first: Vec<&String> = found.iter().take(5).collect();
    assert!(found.is_empty(), "{} points: {first:#?}", found.len());
    assert!(running > 10_000 && lived > 500, "{lived} of {running}");
    assert!(counts.cuts > lived && counts.dirty_recoveries > lived / 4 && counts.hits > lived, "{counts:?}");
}
