//! The verdict on a row, and the count over all rows.

use super::{Cell, Row};
use crate::replay::{Outcome, Pace};
use serde::Serialize;
use std::fmt;

/// Up to so many percent more time than the fastest are as good as the fastest.
const TIME_PERCENT: u128 = 2;
/// A profile with hits up to so many points below is one to compare wear with.
const HIT_POINTS: u128 = 5;

/// The figure by which a row is judged for time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// From the first request to the last answer, where the next request waits for an answer.
    VirtualSeconds,
    /// The mean latency of reads and writes, where requests come by their times and every cache takes as long.
    MeanLatencyNs,
}

impl Measure {
    /// The figure that judges at this pace.
    #[must_use]
    pub fn of(pace: Pace) -> Measure {
        match pace {
            Pace::Depth(_) => Measure::VirtualSeconds,
            Pace::Timed => Measure::MeanLatencyNs,
        }
    }

    /// Its value, in nanoseconds.
    fn value_ns(self, outcome: &Outcome) -> u64 {
        match self {
            Measure::VirtualSeconds => outcome.elapsed_ns,
            Measure::MeanLatencyNs => outcome.mean_latency_ns().unwrap_or(0),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Measure::VirtualSeconds => "time",
            Measure::MeanLatencyNs => "mean latency",
        })
    }
}

/// The contender's place for time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeOutcome {
    /// No other profile is faster.
    Fastest,
    /// Another one is faster, by no more than 2 %.
    #[serde(rename = "within_2_percent")]
    Near,
    /// Another one is faster.
    Slower,
    /// The contender has no figures.
    NotRun,
}

/// The verdict for time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Time {
    /// The contender's place.
    pub outcome: TimeOutcome,
    /// The compared figure.
    pub measure: Measure,
    /// The fastest of the other profiles; none if no other has figures.
    pub rival: Option<String>,
    /// The contender's figure to the rival's; more than 1 is slower.
    pub ratio: Option<f64>,
}

/// The contender's place for wear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WearOutcome {
    /// No profile with such hits writes less to the cache device.
    NoMore,
    /// Some profile does.
    More,
    /// The contender has no figures.
    NotRun,
}

/// The verdict for wear.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wear {
    /// The contender's place.
    pub outcome: WearOutcome,
    /// Of the other profiles whose hits are at most 5 points below the contender's, the one that writes least to the
    /// cache device; none if there is none.
    pub rival: Option<String>,
    /// Bytes that the rival writes to the cache device.
    pub rival_written_bytes: Option<u64>,
    /// The contender's bytes to the rival's; none if the rival writes nothing.
    pub ratio: Option<f64>,
}

/// The contender's replay and those of the others, as far as they can be compared; `None` if the contender has none.
fn compared<'a>(cells: &'a [Cell], contender: &str) -> Option<(&'a Outcome, Vec<(&'a str, &'a Outcome)>)> {
    let ours = cells.iter().find(|cell| cell.profile == contender)?.comparable()?;
    let others = cells.iter().filter(|cell| cell.profile != contender);
    Some((ours, others.filter_map(|cell| Some((&*cell.profile, cell.comparable()?))).collect()))
}

pub(super) fn time(cells: &[Cell], pace: Pace, contender: &str) -> Time {
    let measure = Measure::of(pace);
    let Some((ours, others)) = compared(cells, contender) else {
        return Time { outcome: TimeOutcome::NotRun, measure, rival: None, ratio: None };
    };
    let Some((rival, theirs)) = others.into_iter().min_by_key(|(_, outcome)| measure.value_ns(outcome))
    else {
        return Time { outcome: TimeOutcome::Fastest, measure, rival: None, ratio: None };
    };
    let (ours_ns, theirs_ns) = (measure.value_ns(ours), measure.value_ns(theirs));
    let outcome = if ours_ns <= theirs_ns {
        TimeOutcome::Fastest
    } else if u128::from(ours_ns) * 100 <= u128::from(theirs_ns) * (100 + TIME_PERCENT) {
        TimeOutcome::Near
    } else {
        TimeOutcome::Slower
    };
    Time { outcome, measure, rival: Some(rival.to_owned()), ratio: ratio(ours_ns, theirs_ns) }
}

pub(super) fn wear(cells: &[Cell], contender: &str) -> Wear {
    let none = |outcome| Wear { outcome, rival: None, rival_written_bytes: None, ratio: None };
    let Some((ours, others)) = compared(cells, contender) else { return none(WearOutcome::NotRun) };
    let rivals = others.into_iter().filter(|(_, theirs)| hits_as_much(theirs, ours));
    let Some((rival, theirs)) = rivals.min_by_key(|(_, outcome)| outcome.cache.written_bytes) else {
        return none(WearOutcome::NoMore);
    };
    let (ours_bytes, theirs_bytes) = (ours.cache.written_bytes, theirs.cache.written_bytes);
    Wear {
        outcome: if ours_bytes <= theirs_bytes { WearOutcome::NoMore } else { WearOutcome::More },
        rival: Some(rival.to_owned()),
        rival_written_bytes: Some(theirs_bytes),
        ratio: ratio(ours_bytes, theirs_bytes),
    }
}

/// Whether the hit ratio of `theirs` is at most 5 points below that of `ours`, exactly. Where nothing was read, it is 0.
fn hits_as_much(theirs: &Outcome, ours: &Outcome) -> bool {
    let share = |outcome: &Outcome| {
        let (hits, misses) = (u128::from(outcome.hit_blocks), u128::from(outcome.miss_blocks));
        (hits, (hits + misses).max(1))
    };
    let ((our_hits, our_reads), (their_hits, their_reads)) = (share(ours), share(theirs));
    100 * their_hits * our_reads + HIT_POINTS * our_reads * their_reads >= 100 * our_hits * their_reads
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = self.ratio.map_or(0.0, |ratio| (ratio - 1.0) * 100.0);
        match (self.outcome, &self.rival) {
            (TimeOutcome::NotRun, _) => write!(f, "no figures"),
            (_, None) => write!(f, "fastest, no other profile has figures"),
            (TimeOutcome::Fastest, Some(rival)) => write!(f, "fastest, {:.1} % less than {rival}", off.abs()),
            (TimeOutcome::Near, Some(rival)) => write!(f, "within 2 %, {off:.1} % more than {rival}"),
            (TimeOutcome::Slower, Some(rival)) => write!(f, "slower, {off:.1} % more than {rival}"),
        }
    }
}

impl fmt::Display for Wear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.outcome {
            WearOutcome::NotRun => return write!(f, "no figures"),
            WearOutcome::NoMore => "no more",
            WearOutcome::More => "more",
        };
        match (&self.rival, self.ratio) {
            (None, _) => write!(f, "{word}, no other profile hits as much"),
            (Some(rival), Some(ratio)) => write!(f, "{word}, {ratio:.2} times what {rival} writes"),
            (Some(rival), None) => write!(f, "{word}, {rival} writes nothing"),
        }
    }
}

/// Rows won and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Won.
    pub won: usize,
    /// Lost; where the contender has no figures, too.
    pub lost: usize,
}

impl Tally {
    fn count(&mut self, is_won: bool) {
        if is_won {
            self.won += 1;
        } else {
            self.lost += 1;
        }
    }
}

/// Rows won and lost for time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeTally {
    /// The rows by who won.
    #[serde(flatten)]
    pub tally: Tally,
    /// Of the rows won, those in which no other profile is faster; the others are within 2 %.
    pub fastest: usize,
}

/// The count over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Rows.
    pub rows: usize,
    /// For time: won where the contender is the fastest, or within 2 %.
    pub time: TimeTally,
    /// For wear: won where it writes no more than the least wearing profile with such hits.
    pub wear: Tally,
}

/// The count over all rows.
#[must_use]
pub fn summary(rows: &[Row]) -> Summary {
    let mut summary = Summary { rows: rows.len(), ..Summary::default() };
    for row in rows {
        let is_fastest = row.time.outcome == TimeOutcome::Fastest;
        summary.time.tally.count(is_fastest || row.time.outcome == TimeOutcome::Near);
        summary.time.fastest += usize::from(is_fastest);
        summary.wear.count(row.wear.outcome == WearOutcome::NoMore);
    }
    summary
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { rows, time: TimeTally { tally, fastest }, wear } = self;
        write!(
            f,
            "{rows} rows; time: {} won ({fastest} fastest, {} within 2 %), {} lost; wear: {} won, {} lost",
            tally.won,
            tally.won - fastest,
            tally.lost,
            wear.won,
            wear.lost
        )
    }
}
