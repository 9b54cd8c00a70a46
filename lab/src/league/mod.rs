//! The league: for each test the best published system, the best simulated one, and ours, as ratios to native.
//!
//! A published value is held against the published native figure, a simulated one against the simulated native
//! figure of the same test: the ratio is what a cache makes of its devices, and a device model that is somewhat too fast
//! favours nobody. Where a study has both, the SSD is the base.
//!
//! A published figure may be beyond what any cache could make of the modelled disks: the real ones were faster there. A
//! cache that costs nothing ([`crate::long::Ideal`]) goes through the same procedure on them and says so.

use crate::long::Traffic;
use crate::study::{Better, Ideal, LeagueRow, Row, Study, better, is_ours, merit};
use engine::units::Nanos;
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
    /// The best published figure is more than a cache that costs nothing makes of the modelled disks, and no simulated system
    /// is better than ours.
    OutOfReach,
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
    /// A cache that costs nothing, on the modelled disks.
    pub ideal: Option<Entry>,
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
        let ideal = self.best(&ours, |row| {
            let (_, hdd, ssd) = of_model(row);
            (row.ideal.map(|ideal| ideal.value), hdd, ssd)
        });
        let base = match self.candidates().next() {
            Some(row) if row.native_ssd.is_some() => Some("ssd"),
            Some(row) if row.native_hdd.is_some() => Some("hdd"),
            _ => None,
        };
        let mut notes = Vec::new();
        if *is_early_acknowledged {
            let note = "won by acknowledging early; forebay under safe = false, by which it gives nothing up";
            notes.push(note.to_owned());
        }
        if base.is_none() {
            notes.push("no native figure was published; the devices are assumed".to_owned());
        }
        let outcome = forebay.as_ref().map(|ours| outcome(base, ours, &published, &simulated, &ideal));
        let proof = ideal.as_ref().and_then(|best| {
            let row = ours.iter().find(|row| row.iteration == best.iteration)?;
            Some(proof(best.ratio(base)?, &row.ideal?))
        });
        notes.extend(proof.filter(|_| outcome == Some(Outcome::OutOfReach)));
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
            ideal: ideal.map(|ideal| Entry { system: "ideal".to_owned(), ..ideal }),
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

impl Entry {
    /// The value as a ratio to a row's base.
    #[must_use]
    pub fn ratio(&self, base: Option<&str>) -> Option<f64> {
        if base == Some("hdd") { self.ratio_hdd } else { self.ratio_ssd }
    }
}

/// Ours against the better of the other two.
fn outcome(
    base: Option<&str>,
    ours: &Entry,
    published: &Option<Entry>,
    simulated: &Option<Entry>,
    ideal: &Option<Entry>,
) -> Outcome {
    let merit = |entry: &Option<Entry>| entry.as_ref().and_then(|entry| entry.merit);
    let (published, simulated) = (merit(published), merit(simulated));
    let best = published.into_iter().chain(simulated).reduce(f64::max);
    let (Some(_), Some(ours), Some(best)) = (base, ours.merit, best) else { return Outcome::NoBase };
    if ours > best * (1.0 + TIE) {
        return Outcome::Win;
    }
    let is_near = |best: f64| ours >= best * (1.0 - TIE);
    if is_near(best) {
        return Outcome::Tie;
    }
    // It is a bound only if nobody who reads ahead, or from both disks at once, is beyond it.
    let is_bound = |ideal: &f64| simulated.map_or(ours, |best| best.max(ours)) <= ideal * (1.0 + TIE);
    let is_out_of_reach = merit(ideal).filter(is_bound).is_some_and(|ideal| ideal < best * (1.0 - TIE));
    if is_out_of_reach && simulated.is_none_or(is_near) { Outcome::OutOfReach } else { Outcome::Loss }
}

/// The work of the disks under a cache that costs nothing, and how far that goes.
fn proof(ratio: f64, ideal: &Ideal) -> String {
    let disk = |name: &str, traffic: &Traffic| {
        let Traffic { reads, read_bytes, writes, written_bytes, busy_ns, .. } = *traffic;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "the {name} is busy {:.1} s with {reads} reads of {:.1} MiB and {writes} writes of {:.1} MiB",
            seconds(busy_ns),
            mib(read_bytes),
            mib(written_bytes)
        )
    };
    format!(
        "a cache that costs nothing gets {ratio:.3}: in {:.1} s {}, {}",
        seconds(ideal.elapsed_ns),
        disk("disk", &ideal.origin),
        disk("SSD", &ideal.cache)
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / Nanos::SECOND as f64
}

#[cfg(test)]
mod tests;
