//! The model: rates from one look at a daemon to the next, and their past.

use crate::report::rates::{Rates, Tally, bound, per_second};
use crate::report::{StatsReport, StatusReport, VolumeStats};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Looks that are kept for plots.
const PAST_MAX: usize = 512;

/// The figures that are shown, and their past.
pub(super) struct Model {
    pub cache: String,
    /// Why there are no figures now, if there are none.
    pub trouble: Option<String>,
    pub status: Option<StatusReport>,
    pub rates: Vec<VolumeRates>,
    /// Bytes written to the SSD each second, by reason: user, fill, relocation, headers.
    pub written: [f64; 4],
    pub past: VecDeque<Moment>,
    last: Option<(Instant, StatusReport, StatsReport)>,
}

/// Figures of all volumes together at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moment {
    /// The part of the bytes read that the cache had; `None` if nothing was read.
    pub hit_ratio: Option<f64>,
    pub requests: f64,
    pub bytes: f64,
    pub dirty_bytes: u64,
}

/// Rates of one volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct VolumeRates {
    pub name: String,
    pub mode: String,
    pub state: String,
    pub rates: Rates,
    /// Bounds of the steps that hold the slowest of 100 reads, and of 100 writes, since the look before.
    pub read_p99: Option<Duration>,
    pub write_p99: Option<Duration>,
    pub dirty_bytes: u64,
    pub cached_bytes: u64,
}

impl Model {
    pub(super) fn new(cache: &str) -> Model {
        Model {
            cache: cache.to_owned(),
            trouble: None,
            status: None,
            rates: Vec::new(),
            written: [0.0; 4],
            past: VecDeque::new(),
            last: None,
        }
    }

    /// There are no figures now.
    pub(super) fn gone(&mut self, why: &str) {
        self.trouble = Some(why.to_owned());
        self.last = None;
        self.rates.clear();
    }

    /// Takes a look.
    pub(super) fn look(&mut self, at: Instant, (status, stats): (StatusReport, StatsReport)) {
        self.trouble = None;
        let last = self.last.take();
        // A daemon that was started since began to count from 0.
        let last = last.filter(|(_, before, _)| before.session == status.session);
        let seconds =
            last.as_ref().map_or(0.0, |(then, ..)| at.saturating_duration_since(*then).as_secs_f64());
        let before = |name: &str| -> Option<&VolumeStats> {
            last.as_ref()?.2.volumes.iter().find(|volume| volume.name == name)
        };
        self.rates = stats
            .volumes
            .iter()
            .map(|volume| rates_of(volume, before(&volume.name), seconds, &status))
            .collect();
        if let (Some((_, before, _)), Some(now)) = (&last, &status.cache)
            && let Some(before) = &before.cache
        {
            let (now, before) = (&now.written, &before.written);
            self.written = [
                per_second(now.user_bytes, before.user_bytes, seconds),
                per_second(now.fill_bytes, before.fill_bytes, seconds),
                per_second(now.relocation_bytes, before.relocation_bytes, seconds),
                per_second(now.header_bytes, before.header_bytes, seconds),
            ];
        }
        if let Some((_, _, earlier)) = &last {
            self.past.push_back(moment(&stats, earlier, seconds, &status));
            if self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
        self.status = Some(status.clone());
        self.last = Some((at, status, stats));
    }
}

/// The tallies of all volumes together.
fn total(stats: &StatsReport, status: &StatusReport) -> Tally {
    let tallies = stats.volumes.iter().map(|volume| Tally::of(volume, status));
    tallies.fold(Tally::default(), |sum, tally| sum.plus(&tally))
}

fn moment(now: &StatsReport, before: &StatsReport, seconds: f64, status: &StatusReport) -> Moment {
    let now = total(now, status);
    let rates = now.since(&total(before, status), seconds);
    Moment {
        hit_ratio: rates.hit_ratio,
        requests: rates.reads + rates.writes,
        bytes: rates.read_bytes + rates.written_bytes,
        dirty_bytes: now.dirty_bytes,
    }
}

fn rates_of(
    now: &VolumeStats,
    before: Option<&VolumeStats>,
    seconds: f64,
    status: &StatusReport,
) -> VolumeRates {
    let report = status.volumes.iter().find(|report| report.name == now.name);
    let tally = Tally::of(now, status);
    let rates = before.map(|before| tally.since(&Tally::of(before, status), seconds)).unwrap_or_default();
    VolumeRates {
        name: now.name.clone(),
        mode: report.map_or_else(String::new, |report| report.mode.clone()),
        state: report.map_or_else(String::new, |report| report.state.clone()),
        rates,
        read_p99: bound(&rates.read_steps, 990),
        write_p99: bound(&rates.write_steps, 990),
        dirty_bytes: tally.dirty_bytes,
        cached_bytes: tally.cached_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::look_after;

    #[test]
    fn rates_are_from_one_look_to_the_next() {
        let start = Instant::now();
        let mut model = Model::new("/dev/x");
        model.look(start, look_after(10, 1));
        assert!(model.past.is_empty() && model.rates[0].rates.reads == 0.0, "one look has no rate");
        model.look(start + Duration::from_secs(2), look_after(12, 1));
        let volume = &model.rates[0];
        let rates = &volume.rates;
        assert_eq!((rates.reads, rates.writes, rates.read_bytes), (100.0, 10.0, 409_600.0));
        assert_eq!((rates.hit_ratio, rates.destaged_bytes), (Some(0.75), f64::from(1 << 20)));
        assert_eq!((volume.read_p99, volume.write_p99), (Some(Duration::from_micros(100)), None));
        assert_eq!(model.past.len(), 1);
        assert_eq!(model.past[0].hit_ratio, Some(0.75));
    }

    #[test]
    fn a_new_session_begins_anew() {
        let start = Instant::now();
        let mut model = Model::new("/dev/x");
        model.look(start, look_after(100, 1));
        model.look(start + Duration::from_secs(1), look_after(1, 2));
        assert_eq!(model.rates[0].rates.reads, 0.0);
        model.gone("not running");
        assert!(model.rates.is_empty() && model.trouble.is_some());
        model.look(start + Duration::from_secs(3), look_after(3, 2));
        assert!(model.trouble.is_none() && model.rates[0].rates.reads == 0.0);
    }
}
