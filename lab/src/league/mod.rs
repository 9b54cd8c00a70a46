//! The league: for each test the best published system, the best simulated one, and ours, as ratios to native.
//!
//! A published value is held against the published native figure, a simulated one against the simulated native
//! figure of the same test: the ratio is what a cache makes of its devices, and a device model that is somewhat too fast
//! favours nobody. Where a study has both, the SSD is the base.

use crate::study::{Better, LeagueRow, Row, Study, better, is_ours, merit};
use serde::Serialize;

/// Nearer than this is a tie.
const TIE: f64 = 0.02;

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// We did.
    Win,
    /// No system won.
    Tie,
    /// Another system won.
    Loss,
    /// The study has no native figure to compare by.
    NoBase,
}

/// One value of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The system.
    pub system: String,
    /// In which repetition.
    pub iteration: String,
    /// In the unit of the row.
    pub value: f64,
    /// To the bare disk.
    pub ratio_hdd: Option<f64>,
    /// To the bare SSD.
    pub ratio_ssd: Option<f64>,
    /// To the row's base, more is better.
    #[serde(skip)]
    merit: Option<f64>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The study.
    pub study: String,
    /// The row's name.
    pub label: String,
    /// The test.
    pub test: String,
    /// With how many jobs.
    pub numjobs: String,
    /// The compared figure.
    pub metric: String,
    /// In which unit.
    pub unit: String,
    /// The best published system.
    pub published: Option<Entry>,
    /// The best simulated one, ours aside.
    pub simulated: Option<Entry>,
    /// Ours.
    pub forebay: Option<Entry>,
    /// Limit of any cache on these devices, as ratio to the row's base.
    pub device_limit: Option<f64>,
    /// Which base the outcome goes by.
    pub base: Option<&'static str>,
    /// Ours against the better of the other two; none if ours was not run.
    pub outcome: Option<Outcome>,
    /// Remark on the row.
    pub note: String,
}

/// The league of a study, from its rows.
#[must_use]
pub fn league(study: &Study, rows: &[Row]) -> Vec<Standing> {
    study.league.iter().map(|of| Sheet { study, of, rows }.standing()).collect()
}

struct Sheet<'a> {
    study: &'a Study,
    of: &'a LeagueRow,
    rows: &'a [Row],
}

impl Sheet<'_> {
    fn standing(&self) -> Standing {
        let LeagueRow { label, test, numjobs, metric, is_early_acknowledged, .. } = self.of;
        let is_other = |row: &&Row| !is_ours(&row.system) && self.of.without.as_ref() != Some(&row.system);
        let others: Vec<&Row> = self.candidates().filter(is_other).collect();
        // A system that gives nothing up without `safe` has no run of its own for that.
        let unsafe_system = format!("{}-unsafe", crate::study::OUR_SYSTEM);
        let has_unsafe = *is_early_acknowledged && self.candidates().any(|row| row.system == unsafe_system);
        let ours = if has_unsafe { &unsafe_system } else { crate::study::OUR_SYSTEM };
        let ours: Vec<&Row> = self.candidates().filter(|row| row.system == ours).collect();
        let published = self.best(&others, |row| (row.published, row.native_hdd, row.native_ssd));
        let of_model = |row: &Row| {
            let hdd = row.native_hdd_simulated.or(row.native_hdd);
            (row.simulated, hdd, row.native_ssd_simulated.or(row.native_ssd))
        };
        let simulated = self.best(&others, of_model);
        let forebay = self.best(&ours, of_model);
        let base = match self.candidates().next() {
            Some(row) if row.native_ssd.is_some() => Some("ssd"),
            Some(row) if row.native_hdd.is_some() => Some("hdd"),
            _ => None,
        };
        let mut notes = Vec::new();
        if *is_early_acknowledged {
            notes
                .push("won by acknowledging early; forebay under safe = false, by which it gives nothing up");
        }
        if base.is_none() {
            notes.push("no native figure was published; the devices are assumed");
        }
        let outcome = forebay.as_ref().map(|ours| {
            let merits = [&published, &simulated].map(|entry| entry.as_ref().and_then(|entry| entry.merit));
            let best = merits
                .into_iter()
                .flatten()
                .fold(None, |best: Option<f64>, merit| Some(best.map_or(merit, |best| best.max(merit))));
            match (base, ours.merit, best) {
                (Some(_), Some(ours), Some(best)) if ours > best * (1.0 + TIE) => Outcome::Win,
                (Some(_), Some(ours), Some(best)) if ours >= best * (1.0 - TIE) => Outcome::Tie,
                (Some(_), Some(_), Some(_)) => Outcome::Loss,
                _ => Outcome::NoBase,
            }
        });
        Standing {
            study: self.study.id.clone(),
            label: label.clone(),
            test: test.clone(),
            numjobs: numjobs.clone(),
            metric: metric.clone(),
            unit: self.candidates().next().map_or_else(String::new, |row| row.unit.clone()),
            published,
            simulated,
            forebay,
            device_limit: self.limit(),
            base,
            outcome,
            note: notes.join("; "),
        }
    }

    /// The rows of caches that the row is about.
    fn candidates(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| {
            !row.is_native
                && row.test == self.of.test
                && row.metric == self.of.metric
                && row.numjobs == self.of.numjobs
                && self.has_iteration(&row.iteration)
        })
    }

    fn has_iteration(&self, iteration: &str) -> bool {
        match self.of.iterations {
            None => iteration.is_empty(),
            Some([first, last]) => {
                iteration.parse().is_ok_and(|number: u32| (first..=last).contains(&number))
            }
        }
    }

    /// The best of some rows, by value, as everybody's table has it.
    fn best(
        &self,
        rows: &[&Row],
        values: impl Fn(&Row) -> (Option<f64>, Option<f64>, Option<f64>),
    ) -> Option<Entry> {
        let entries = rows.iter().filter_map(|row| {
            let (value, hdd, ssd) = values(row);
            let value = value?;
            let ratio = |base: Option<f64>| base.filter(|base| *base > 0.0).map(|base| value / base);
            let base = ssd.or(hdd);
            Some(Entry {
                system: row.system.clone(),
                iteration: row.iteration.clone(),
                value,
                ratio_hdd: ratio(hdd),
                ratio_ssd: ratio(ssd),
                merit: base.and_then(|base| merit(&row.metric, value, base)),
            })
        });
        let lower_is_better = better(&self.of.metric) == Better::Lower;
        entries.reduce(|best, next| {
            let is_better = if lower_is_better { next.value < best.value } else { next.value > best.value };
            if is_better { next } else { best }
        })
    }

    /// Limit of any cache, as ratio to the base.
    fn limit(&self) -> Option<f64> {
        let row = self.candidates().last()?;
        let base = row.native_ssd.or(row.native_hdd)?;
        let limit = match &self.of.limit[..] {
            [] => return None,
            [one] if one == "replay" => self.replay_limit()?,
            many => many.iter().map(|name| self.native(row, name)).sum::<Option<f64>>()?,
        };
        merit(&self.of.metric, limit, base)
    }

    fn native(&self, row: &Row, name: &str) -> Option<f64> {
        match name {
            "hdd" => row.native_hdd,
            "ssd" => row.native_ssd,
            system => {
                let is_it =
                    |one: &&Row| one.system == system && one.test == row.test && one.metric == row.metric;
                self.rows.iter().find(is_it)?.published
            }
        }
    }

    /// Each repetition asks first for what the one before it asked for, which the cache has, and then for something
    /// new, at the pace of the disk: b(k) = b(k-1) + h (1 - b(k-1) / s).
    fn replay_limit(&self) -> Option<f64> {
        let of_ours = self.candidates().filter(|row| row.system == crate::study::OUR_SYSTEM);
        let mut reached = 0.0;
        for row in of_ours {
            reached += row.native_hdd? * (1.0 - reached / row.native_ssd?);
        }
        (reached > 0.0).then_some(reached)
    }
}

#[cfg(test)]
mod tests;
