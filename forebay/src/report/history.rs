//! The last changes of a cache's settings, as `status --history` and `dump` tell them.

use engine::format::{Change, History};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// A change of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// When, in UTC; absent if nobody knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The volume; absent for the cache itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The setting.
    pub what: String,
    /// The value before; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The value after; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// The changes in a history, oldest first.
#[must_use]
pub fn changes(history: &History) -> Vec<ChangeReport> {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let report = |change: &Change| ChangeReport {
        at: (change.unix_seconds > 0).then(|| utc(change.unix_seconds)),
        volume: some(&change.volume),
        what: change.what.clone(),
        old: some(&change.old),
        new: some(&change.new),
    };
    history.changes().iter().map(report).collect()
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", self.at.as_deref().unwrap_or("at some time"))?;
        match &self.volume {
            Some(volume) => write!(f, "volume {volume}: ")?,
            None => f.write_str("the cache: ")?,
        }
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => write!(f, "{} {old} -> {new}", self.what),
            (None, Some(new)) => write!(f, "{} {new}", self.what),
            (Some(old), None) => write!(f, "{} {old} -> none", self.what),
            (None, None) => f.write_str(&self.what),
        }
    }
}

/// The time of day, in seconds since 1970.
#[must_use]
pub fn now_seconds() -> u64 {
    // A clock before 1970 is one that nobody has set.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A time in UTC, as RFC 3339 writes it.
pub(super) fn utc(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / DAY_SECONDS, unix_seconds % DAY_SECONDS);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // Years begin in March, so that a leap day is the last one. Source: H. Hinnant, "chrono-compatible low-level date
    // algorithms", civil_from_days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn a_change_is_one_line() {
        let mut history = History::default();
        history.note(Change::new(951_782_400, "disk", "mode", "writeback", "writethrough"));
        history.note(Change::new(0, "", "profile", "", "forebay"));
        let lines: Vec<String> = changes(&history).iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "2000-02-29T00:00:00Z  volume disk: mode writeback -> writethrough");
        assert_eq!(lines[1], "at some time  the cache: profile forebay");
    }
}
