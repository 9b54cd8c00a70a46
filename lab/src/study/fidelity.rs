//! How far simulated values are from published ones.

use super::data::Study;
use super::metric::{Better, better};
use super::rows::Row;
use serde::Serialize;
use std::collections::BTreeMap;

/// A published difference between two systems counts from this ratio on.
const DISTANT: f64 = 1.25;

/// Cells, and those among them that are near.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fidelity {
    /// The study.
    pub study: String,
    /// The system; none: all of the study.
    pub system: Option<String>,
    /// Cells that have both values.
    pub cells: usize,
    /// The share that is at most 10 % off.
    pub within_10_percent: Option<f64>,
    /// The share that is at most 25 % off.
    pub within_25_percent: Option<f64>,
    /// The share that is at most 50 % off.
    pub within_50_percent: Option<f64>,
    /// Half of the cells are not further off, as a share of the published value.
    pub median_error: Option<f64>,
    /// Cells that were published and have no simulated value.
    pub missing: usize,
}

/// Whether a row's values are compared.
fn is_compared(study: &Study, row: &Row) -> bool {
    row.published.is_some() && !row.is_native && !row.is_fitted && study.fidelity.contains(&row.metric)
}

/// The fidelity of a study: of each of its systems, and of all together. Native rows, what was fitted to, and
/// metrics that the study does not list are left out.
#[must_use]
pub fn fidelity(study: &Study, rows: &[Row]) -> Vec<Fidelity> {
    let compared = || rows.iter().filter(|row| is_compared(study, row));
    let mut systems: Vec<&str> = Vec::new();
    for row in compared() {
        if !systems.contains(&&*row.system) {
            systems.push(&row.system);
        }
    }
    let of = |system: Option<&str>| {
        let is_of = |row: &&Row| system.is_none_or(|system| row.system == system);
        let mut errors: Vec<f64> = compared().filter(is_of).filter_map(Row::error).collect();
        errors.sort_by(f64::total_cmp);
        let within = |limit: f64| {
            let near = errors.iter().filter(|error| **error <= limit).count();
            (!errors.is_empty()).then(|| near as f64 / errors.len() as f64)
        };
        Fidelity {
            study: study.id.clone(),
            system: system.map(str::to_owned),
            cells: errors.len(),
            within_10_percent: within(0.1),
            within_25_percent: within(0.25),
            within_50_percent: within(0.5),
            median_error: errors.get(errors.len() / 2).copied(),
            missing: compared().filter(is_of).filter(|row| row.simulated.is_none()).count(),
        }
    };
    if systems.is_empty() {
        return Vec::new();
    }
    systems.iter().map(|system| of(Some(system))).chain([of(None)]).collect()
}

/// Whether systems come in the published order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranking {
    /// The study.
    pub study: String,
    /// Tests with systems that are more than a quarter apart.
    pub tests: usize,
    /// Such tests in which all systems that far apart come in the published order.
    pub tests_kept: usize,
    /// Such pairs.
    pub pairs: usize,
    /// Those in the published order.
    pub pairs_kept: usize,
}

/// The ranking of a study's systems. A study without fidelity has no devices to believe: all its tests count as
/// one, so that the order of its sizes is looked at, too.
#[must_use]
pub fn rankings(study: &Study, rows: &[Row]) -> Ranking {
    let mut groups: BTreeMap<[&str; 4], Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.is_native && study.ranking.contains(&row.metric)) {
        let (Some(published), Some(simulated)) = (row.published, row.simulated) else { continue };
        let key = match study.fidelity.is_empty() {
            true => ["", "", "", &*row.metric],
            false => [&*row.test, &*row.iteration, &*row.numjobs, &*row.metric],
        };
        groups.entry(key).or_default().push((published, simulated));
    }
    let mut ranking = Ranking { study: study.id.clone(), tests: 0, tests_kept: 0, pairs: 0, pairs_kept: 0 };
    for values in groups.values() {
        let (mut pairs, mut kept) = (0, 0);
        for (at, one) in values.iter().enumerate() {
            for other in &values[at + 1..] {
                let (low, high) = if one.0 <= other.0 { (one, other) } else { (other, one) };
                if high.0 > low.0 * DISTANT {
                    pairs += 1;
                    kept += usize::from(high.1 > low.1);
                }
            }
        }
        ranking.tests += usize::from(pairs > 0);
        ranking.tests_kept += usize::from(pairs > 0 && kept == pairs);
        ranking.pairs += pairs;
        ranking.pairs_kept += kept;
    }
    ranking
}

/// Value over base, so that more is better whichever way the metric is.
pub(crate) fn merit(metric: &str, value: f64, base: f64) -> Option<f64> {
    let (upper, lower) = match better(metric) {
        Better::Higher => (value, base),
        Better::Lower => (base, value),
        Better::Neither => return None,
    };
    (lower > 0.0).then(|| upper / lower)
}
