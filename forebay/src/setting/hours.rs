//! Times of the day as people write them: `03:00`, `22:00-06:00`.

use super::SettingError;
use std::fmt;

/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;

/// A time of the day, to the minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// That hour and minute; none of a later hour than 23 or a later minute than 59.
    #[must_use]
    pub fn new(hour: u16, minute: u16) -> Option<TimeOfDay> {
        (hour < 24 && minute < 60).then_some(TimeOfDay(hour * 60 + minute))
    }

    fn read(text: &str) -> Option<TimeOfDay> {
        let (hour, minute) = text.split_once(':')?;
        let number = |text: &str| {
            let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        TimeOfDay::new(number(hour)?, number(minute).filter(|_| minute.len() == 2)?)
    }

    /// The time in a text; `None` for `none`.
    pub(super) fn parse(text: &str) -> Result<Option<TimeOfDay>, SettingError> {
        if text == "none" {
            return Ok(None);
        }
        TimeOfDay::read(text).map(Some).ok_or(SettingError::Time { text: text.to_owned() })
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Hours of each day, maybe over midnight; their end is not one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Their beginning.
    pub from: TimeOfDay,
    /// Their end.
    pub to: TimeOfDay,
}

impl Hours {
    /// The hours in a text; `None` for `none`.
    pub(super) fn parse(text: &str) -> Result<Option<Hours>, SettingError> {
        if text == "none" {
            return Ok(None);
        }
        let read = |text: &str| {
            let (from, to) = text.split_once('-')?;
            Some(Hours { from: TimeOfDay::read(from)?, to: TimeOfDay::read(to)? })
        };
        let hours = read(text).filter(|hours| hours.from != hours.to);
        hours.map(Some).ok_or(SettingError::Hours { text: text.to_owned() })
    }

    /// Whether a time is one of them.
    #[must_use]
    pub fn contain(&self, time: TimeOfDay) -> bool {
        let since = |from: TimeOfDay| (time.0 + DAY_MINUTES - from.0) % DAY_MINUTES;
        let length = (self.to.0 + DAY_MINUTES - self.from.0) % DAY_MINUTES;
        since(self.from) < length
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(text: &str) -> Hours {
        Hours::parse(text).expect("hours").expect("not none")
    }

    fn time(text: &str) -> TimeOfDay {
        TimeOfDay::parse(text).expect("a time").expect("not none")
    }

    #[test]
    fn hours_contain_what_lies_between_over_midnight_too() {
        for (range, inside, outside) in [
            ("22:00-06:00", &["22:00", "23:59", "00:00", "05:59"][..], &["06:00", "12:00", "21:59"][..]),
            ("01:30-02:00", &["01:30", "01:59"], &["02:00", "01:29", "13:45"]),
            ("00:00-23:59", &["00:00", "12:00", "23:58"], &["23:59"]),
        ] {
            inside.iter().for_each(|at| assert!(hours(range).contain(time(at)), "{at} in {range}"));
            outside.iter().for_each(|at| assert!(!hours(range).contain(time(at)), "{at} not in {range}"));
        }
    }

    #[test]
    fn every_minute_of_a_day_is_in_hours_or_in_the_rest() {
        let all = || (0..DAY_MINUTES).map(TimeOfDay);
        for (one, rest) in [("22:00-06:00", "06:00-22:00"), ("07:01-07:02", "07:02-07:01")] {
            let (one, rest) = (hours(one), hours(rest));
            assert!(all().all(|at| one.contain(at) != rest.contain(at)));
        }
    }

    #[test]
    fn mistakes_are_refused_and_the_rest_is_printed_as_it_is_written() {
        for text in ["", "24:00", "3", "03:60", "3:0", "003:00", "-1:00", "03:00:00", "+3:00"] {
            let error = TimeOfDay::parse(text).expect_err(text).to_string();
            assert!(error.contains("flush-at=03:00"), "{error}");
        }
        for text in ["", "22:00", "22:00-22:00", "22:00-25:00", "22-06"] {
            let error = Hours::parse(text).expect_err(text).to_string();
            assert!(error.contains("destage-hours=22:00-06:00"), "{error}");
        }
        assert_eq!(
            (time("3:05").to_string(), hours("22:00-6:00").to_string()),
            ("03:05".into(), "22:00-06:00".into())
        );
        assert_eq!(
            (TimeOfDay::parse("none").expect("none"), Hours::parse("none").expect("none")),
            (None, None)
        );
    }
}
