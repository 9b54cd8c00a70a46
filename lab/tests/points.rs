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
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Lives the points with their numbers, on all cores; the violations found.
#[expect(clippy::disallowed_methods, reason = "points are spread over threads; each world has one")]
fn live(points: &[(u64, Composition)]) -> (Totals, Vec<String>) {
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Totals::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, point)) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(&life(*number, point));
                    let mut results = results.lock().expect("violations are values");
                    results.0.add(&outcome.counts, outcome.failure.is_some());
                    results.1.extend(outcome.failure.map(|failure| format!("{}{failure}", point.text())));
                }
            });
        }
    });
    results.into_inner().expect("violations are values")
}

#[test]
fn every_kind_of_cache_survives_a_short_life() {
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::new();
    let mut running = 0u64;
    for point in points().filter(|point| point.validate().is_ok() && point.lack().is_none()) {
        running += 1;
        if has_new_pair(&mut seen, &point) || running.is_multiple_of(STRIDE) {
            chosen.push((running, point));
        }
    }
    let (totals, found) = live(&chosen);
    let (counts, lived) = (totals.counts, chosen.len() as u64);
    println!("{lived} of {running} points, {} pairs: {counts:?}", seen.len());
    let first: Vec<&String> = found.iter().take(5).collect();
    assert!(found.is_empty(), "{} points: {first:#?}", found.len());
    assert!(running > 10_000 && lived > 500, "{lived} of {running}");
    assert!(counts.cuts > lived && counts.dirty_recoveries > lived / 4 && counts.hits > lived, "{counts:?}");
}
