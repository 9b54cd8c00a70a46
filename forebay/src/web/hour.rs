//! The last hour of a daemon: a look each second for five minutes, and one each ten seconds before.
//!
//! A look keeps counts since the start, so a look that is left out makes the step between its neighbours longer, and
//! nothing is lost.

use crate::report::rates::{Rates, Tally, estimate, per_second};
use crate::report::{StatsReport, StatusReport};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Looks that are all kept: five minutes.
const RECENT_MAX: usize = 300;
/// Of the looks before, one in so many is kept,
const OLD_STEP: u64 = 10;
/// and so many of them: 55 minutes.
const OLD_MAX: usize = 330;

/// A look at a daemon.
struct Look {
    number: u64,
    at: Instant,
    unix_seconds: f64,
    /// Tallies of the volumes by name.
    volumes: Vec<(String, Tally)>,
    total: Tally,
    /// Bytes written to the SSD, by reason: user, fill, relocation, headers.
    written: [u64; 4],
}

/// The last hour.
#[derive(Default)]
pub struct Hour {
    recent: VecDeque<Look>,
    old: VecDeque<Look>,
    next: u64,
}

/// The hour as the page gets it: columns of equal length.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    /// The ends of the steps, in seconds since 1970.
    at: Vec<f64>,
    total: Columns,
    volumes: BTreeMap<String, Columns>,
    /// Bytes written to the SSD each second.
    written: Written,
}

/// Rates of a volume, or of all. What is absent in a step is null.
#[derive(Debug, Default, Serialize)]
struct Columns {
    reads: Vec<Option<f64>>,
    writes: Vec<Option<f64>>,
    read_bytes: Vec<Option<f64>>,
    written_bytes: Vec<Option<f64>>,
    hit_ratio: Vec<Option<f64>>,
    read_p50_us: Vec<Option<f64>>,
    read_p99_us: Vec<Option<f64>>,
    write_p50_us: Vec<Option<f64>>,
    write_p99_us: Vec<Option<f64>>,
    dirty_bytes: Vec<Option<f64>>,
    destaged_bytes: Vec<Option<f64>>,
}

#[derive(Debug, Default, Serialize)]
struct Written {
    user_bytes: Vec<f64>,
    fill_bytes: Vec<f64>,
    relocation_bytes: Vec<f64>,
    header_bytes: Vec<f64>,
}

impl Hour {
    /// Takes a look.
    pub fn look(&mut self, at: Instant, unix_seconds: f64, status: &StatusReport, stats: &StatsReport) {
        let volumes: Vec<(String, Tally)> =
            stats.volumes.iter().map(|volume| (volume.name.clone(), Tally::of(volume, status))).collect();
        let total = volumes.iter().fold(Tally::default(), |sum, (_, tally)| sum.plus(tally));
        let written = status.cache.as_ref().map(|cache| cache.written).unwrap_or_default();
        let written =
            [written.user_bytes, written.fill_bytes, written.relocation_bytes, written.header_bytes];
        let number = self.next;
        self.next += 1;
        self.recent.push_back(Look { number, at, unix_seconds, volumes, total, written });
        if self.recent.len() > RECENT_MAX
            && let Some(look) = self.recent.pop_front()
            && look.number.is_multiple_of(OLD_STEP)
        {
            self.old.push_back(look);
            if self.old.len() > OLD_MAX {
                self.old.pop_front();
            }
        }
    }

    /// The steps from one look to the next.
    pub(super) fn series(&self) -> Series {
        let looks: Vec<&Look> = self.old.iter().chain(&self.recent).collect();
        let names = looks.last().map_or(&[][..], |look| &look.volumes).iter().map(|(name, _)| name.clone());
        let mut series = Series {
            at: Vec::new(),
            total: Columns::default(),
            volumes: names.map(|name| (name, Columns::default())).collect(),
            written: Written::default(),
        };
        for pair in looks.windows(2) {
            let [before, now] = pair else { continue };
            let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
            series.at.push(rounded(now.unix_seconds));
            series.total.push(Some((&now.total, now.total.since(&before.total, seconds))));
            for (name, columns) in &mut series.volumes {
                let step = now.tally(name).zip(before.tally(name));
                columns.push(step.map(|(now, before)| (now, now.since(before, seconds))));
            }
            series.written.push(now.written, before.written, seconds);
        }
        series
    }
}

impl Look {
    fn tally(&self, name: &str) -> Option<&Tally> {
        self.volumes.iter().find(|(known, _)| known == name).map(|(_, tally)| tally)
    }
}

/// A number with a digit behind the point: more are noise, and long.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl Columns {
    fn push(&mut self, step: Option<(&Tally, Rates)>) {
        let value = |of: fn(&Rates) -> f64| step.as_ref().map(|(_, rates)| rounded(of(rates)));
        let time = |of: fn(&Rates) -> &[u64; 17], permille| {
            let time = estimate(of(&step.as_ref()?.1), permille)?;
            Some(rounded(time.as_secs_f64() * 1e6))
        };
        self.reads.push(value(|rates| rates.reads));
        self.writes.push(value(|rates| rates.writes));
        self.read_bytes.push(value(|rates| rates.read_bytes));
        self.written_bytes.push(value(|rates| rates.written_bytes));
        let hit_ratio = step.as_ref().and_then(|(_, rates)| rates.hit_ratio);
        self.hit_ratio.push(hit_ratio.map(|ratio| (ratio * 1e4).round() / 1e4));
        self.read_p50_us.push(time(|rates| &rates.read_steps, 500));
        self.read_p99_us.push(time(|rates| &rates.read_steps, 990));
        self.write_p50_us.push(time(|rates| &rates.write_steps, 500));
        self.write_p99_us.push(time(|rates| &rates.write_steps, 990));
        self.dirty_bytes.push(step.as_ref().map(|(tally, _)| tally.dirty_bytes as f64));
        self.destaged_bytes.push(value(|rates| rates.destaged_bytes));
    }
}

impl Written {
    fn push(&mut self, now: [u64; 4], before: [u64; 4], seconds: f64) {
        let Written { user_bytes, fill_bytes, relocation_bytes, header_bytes } = self;
        let columns = [user_bytes, fill_bytes, relocation_bytes, header_bytes];
        for (column, (now, before)) in columns.into_iter().zip(now.into_iter().zip(before)) {
            column.push(rounded(per_second(now, before, seconds)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::look_after;
    use std::time::Duration;

    #[test]
    fn an_hour_has_a_bound_and_loses_no_request() {
        let (start, mut hour) = (Instant::now(), Hour::default());
        for second in 0..10_000 {
            let (status, stats) = look_after(second, 1);
            hour.look(start + Duration::from_secs(second), second as f64, &status, &stats);
        }
        let series = hour.series();
        assert_eq!(series.at.len(), RECENT_MAX + OLD_MAX - 1);
        assert!((3580.0..3610.0).contains(&(9_999.0 - series.at[0])), "{}", series.at[0]);
        assert!(series.at.is_sorted());
        let data = &series.volumes["data"];
        assert_eq!(series.at[0] + 10.0, series.at[1], "the older part has longer steps");
        for at in [0, 100, OLD_MAX, series.at.len() - 1] {
            assert_eq!((data.reads[at], data.writes[at]), (Some(100.0), Some(10.0)), "step {at}");
            assert_eq!((data.hit_ratio[at], data.write_p99_us[at]), (Some(0.75), None));
            assert_eq!(data.dirty_bytes[at], Some(f64::from(5 << 20)));
            assert!(data.read_p99_us[at].is_some_and(|us| us > 99.0 && us <= 100.0));
            assert_eq!(series.total.reads[at], Some(100.0));
        }
        assert!(Hour::default().series().at.is_empty());
    }

    #[test]
    fn a_volume_that_came_later_has_no_past() {
        let (start, mut hour) = (Instant::now(), Hour::default());
        for second in 0..4 {
            let (status, mut stats) = look_after(second, 1);
            if second < 2 {
                stats.volumes.clear();
            }
            hour.look(start + Duration::from_secs(second), second as f64, &status, &stats);
        }
        let series = hour.series();
        assert_eq!(series.volumes["data"].reads, [None, None, Some(100.0)]);
        let json = serde_json::to_string(&series).expect("it has a form");
        assert!(json.contains("\"reads\":[null,null,100.0]"), "{json}");
    }
}
