//! All compositions: every choice of every axis, with the values of tunables that couplings look at.
//!
//! Tests walk them. Each point is refused by a coupling or is a cache that has to work.

use super::Composition;
use super::axes::Axis;
use super::keys::Key;
use alloc::vec;
use alloc::vec::Vec;

/// Tunables by which couplings tell compositions apart, with values on both sides, and those that turn a policy off.
const VARIED: &[(&str, &[&str])] = &[
    ("ways", &["0", "512"]),
    ("slot_bytes", &["4096", "262144"]),
    ("promotion_era", &["single", "split", "coldest"]),
    ("promotion_version", &["1.0", "2.0"]),
    ("free_order", &["lowest", "near-last", "last-freed", "first-freed"]),
    ("laps_max", &["0", "1", "3"]),
    ("mq_era", &["single", "split", "coldest"]),
    ("smq_version", &["1.0", "2.0"]),
    ("idle_era", &["mq1", "mq", "smq1", "smq2"]),
    ("waits", &["false", "true"]),
];

/// All points, each once, in a fixed order.
pub fn points() -> impl Iterator<Item = Composition> {
    let answers: Vec<Vec<Composition>> = Axis::ALL.into_iter().map(answers).collect();
    let count: usize = answers.iter().map(Vec::len).product();
    (0..count).map(move |number| {
        let mut composition = Composition::plain_log();
        let mut number = number;
        for (axis, answers) in Axis::ALL.into_iter().zip(&answers) {
            composition.take_answer(axis, &answers[number % answers.len()]);
            number /= answers.len();
        }
        composition
    })
}

/// Every way to answer one axis; the other axes are forebay's.
fn answers(axis: Axis) -> Vec<Composition> {
    let mut answers = Vec::new();
    for choice in axis.choices() {
        let mut chosen = Composition::plain_log();
        chosen.choose(axis, choice.name).expect("a choice of the table can be made");
        let mut ways = vec![chosen];
        for (name, values) in VARIED {
            let key = Key::named(name).expect("a test walks all points");
            if key.axis == Some(axis) && key.get(&chosen).is_some() {
                let set = |way: &Composition, value: &str| {
                    let mut way = *way;
                    way.set(name, value).expect("a test walks all points");
                    way
                };
                ways = ways.iter().flat_map(|way| values.iter().map(move |value| set(way, value))).collect();
            }
        }
        answers.extend(ways);
    }
    answers
}

impl Composition {
    /// Answers `axis` as `other` does.
    fn take_answer(&mut self, axis: Axis, other: &Composition) {
        match axis {
            Axis::Placement => self.placement = other.placement,
            Axis::Admission => self.admission = other.admission,
            Axis::Cutoff => self.cutoff = other.cutoff,
            Axis::Replacement => self.replacement = other.replacement,
            Axis::WriteMode => self.write_mode = other.write_mode,
            Axis::Writes => self.writes = other.writes,
            Axis::Persistence => self.persistence = other.persistence,
            Axis::Destage => self.destage = other.destage,
            Axis::Fetch => self.fetch = other.fetch,
            Axis::Order => self.order = other.order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::COUPLINGS;
    use super::*;
    use alloc::collections::BTreeSet;

    /// Goal: the space has no point that nobody thought of, and no coupling that others imply. Method: every
    /// point; those that are possible also make the policies that they name.
    #[test]
    fn every_point_is_refused_by_name_or_possible() {
        let mut possible = 0u32;
        let mut chosen = BTreeSet::new();
        let mut alone = BTreeSet::new();
        for point in points() {
            let broken = COUPLINGS.iter().filter(|coupling| coupling.is_broken(&point)).take(2);
            let broken: [Option<_>; 2] = {
                let mut broken = broken;
                [broken.next(), broken.next()]
            };
            match broken {
                [None, _] => {
                    assert!(point.validate().is_ok());
                    possible += 1;
                    chosen.extend(Axis::ALL.map(|axis| (axis, point.choice(axis).name)));
                    // Those that the engine runs lead a short life in the simulator (`lab/tests/points.rs`).
                }
                [Some(only), None] => {
                    assert_eq!(point.validate().expect_err("it is broken").name, only.name);
                    alone.insert(only.name);
                }
                [Some(_), Some(_)] => assert!(point.validate().is_err()),
            }
        }
        // Couplings of tunables alone are no matter of points.
        let of_tunables = ["congestion-needs-runs", "bucket-cutoffs-rise"];
        for coupling in COUPLINGS.iter().filter(|coupling| !of_tunables.contains(&coupling.name)) {
            assert!(alone.contains(coupling.name), "{} follows from others", coupling.name);
        }
        for axis in Axis::ALL {
            for choice in axis.choices() {
                assert!(chosen.contains(&(axis, choice.name)), "{} can never be chosen", choice.name);
            }
        }
        assert!(possible > 1000, "{possible}");
        std::println!("{possible} points are possible");
    }
}
