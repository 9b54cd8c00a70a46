//! Settings that the daemon keeps among its notes, and that a configuration file may say.

use super::SettingError;
use super::hours::{Hours, TimeOfDay};
use super::rate::{BANDWIDTH, IOPS};
use crate::nearest::unknown;
use live::limits::{Limits, Rate};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a kept setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Requests a second.
    Iops,
    /// Bytes a second.
    Bandwidth,
    /// Hours in which a sleeping disk may be woken to destage.
    DestageHours,
    /// The time of a daily flush.
    FlushAt,
}

impl Key {
    /// All of them, with their names.
    pub const ALL: [(Key, &'static str); 4] = [
        (Key::Iops, "iops"),
        (Key::Bandwidth, "bandwidth"),
        (Key::DestageHours, "destage-hours"),
        (Key::FlushAt, "flush-at"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Key::ALL.iter().find(|(key, _)| *key == self).map_or("", |(_, name)| name)
    }

    /// The key of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Key> {
        Key::ALL.iter().find(|(_, known)| *known == name).map(|(key, _)| *key)
    }
}

/// One kept setting of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Kept {
    /// `iops=RATE|none`.
    Iops(Option<Rate>),
    /// `bandwidth=RATE|none`.
    Bandwidth(Option<Rate>),
    /// `destage-hours=HH:MM-HH:MM|none`.
    DestageHours(Option<Hours>),
    /// `flush-at=HH:MM|none`.
    FlushAt(Option<TimeOfDay>),
}

impl Kept {
    /// The setting with that key and value.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn parse(key: Key, value: &str) -> Result<Kept, SettingError> {
        Ok(match key {
            Key::Iops => Kept::Iops(IOPS.parse(value)?),
            Key::Bandwidth => Kept::Bandwidth(BANDWIDTH.parse(value)?),
            Key::DestageHours => Kept::DestageHours(Hours::parse(value)?),
            Key::FlushAt => Kept::FlushAt(TimeOfDay::parse(value)?),
        })
    }

    /// Its key.
    #[must_use]
    pub fn key(self) -> Key {
        match self {
            Kept::Iops(_) => Key::Iops,
            Kept::Bandwidth(_) => Key::Bandwidth,
            Kept::DestageHours(_) => Key::DestageHours,
            Kept::FlushAt(_) => Key::FlushAt,
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = || "none".to_owned();
        let value = match self {
            Kept::Iops(rate) => IOPS.print(*rate),
            Kept::Bandwidth(rate) => BANDWIDTH.print(*rate),
            Kept::DestageHours(hours) => hours.map_or_else(none, |hours| hours.to_string()),
            Kept::FlushAt(time) => time.map_or_else(none, |time| time.to_string()),
        };
        write!(f, "{}={value}", self.key().name())
    }
}

impl From<Kept> for String {
    fn from(kept: Kept) -> String {
        kept.to_string()
    }
}

impl TryFrom<String> for Kept {
    type Error = SettingError;

    fn try_from(text: String) -> Result<Kept, SettingError> {
        let names = Key::ALL.map(|(_, name)| name);
        let (name, value) = text.split_once('=').unwrap_or((&text, ""));
        let key = Key::parse(name).ok_or_else(|| SettingError::Key(unknown("setting", name, &names)))?;
        Kept::parse(key, value)
    }
}

/// All kept settings of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSettings {
    /// Limits of its clients.
    pub limits: Limits,
    /// Hours in which a sleeping disk may be woken to destage; without any, at all times.
    pub destage_hours: Option<Hours>,
    /// The time of a daily flush.
    pub flush_at: Option<TimeOfDay>,
}

impl VolumeSettings {
    /// The settings after all of these, one after the other.
    #[must_use]
    pub fn of(kept: impl IntoIterator<Item = Kept>) -> VolumeSettings {
        let mut settings = VolumeSettings::default();
        for one in kept {
            match one {
                Kept::Iops(rate) => settings.limits.iops = rate,
                Kept::Bandwidth(rate) => settings.limits.bandwidth = rate,
                Kept::DestageHours(hours) => settings.destage_hours = hours,
                Kept::FlushAt(time) => settings.flush_at = time,
            }
        }
        settings
    }

    /// Each of them, in the order of [`Key::ALL`].
    #[must_use]
    pub fn each(&self) -> Vec<Kept> {
        vec![
            Kept::Iops(self.limits.iops),
            Kept::Bandwidth(self.limits.bandwidth),
            Kept::DestageHours(self.destage_hours),
            Kept::FlushAt(self.flush_at),
        ]
    }

    /// Those that are not as they are without any setting.
    #[must_use]
    pub fn chosen(&self) -> Vec<Kept> {
        let mut chosen = self.each();
        let usual = VolumeSettings::default().each();
        chosen.retain(|kept| !usual.contains(kept));
        chosen
    }
}

/// Puts a setting into a list in which each key stands once.
pub fn keep(list: &mut Vec<Kept>, kept: Kept) {
    list.retain(|other| other.key() != kept.key());
    list.push(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_as_it_is_printed() {
        for (key, name) in Key::ALL {
            assert_eq!(Key::parse(name), Some(key));
            let values = ["none", "77,burst=9", "64K,burst=1M", "03:00", "22:30-06:15"];
            let known: Vec<Kept> = values.iter().filter_map(|value| Kept::parse(key, value).ok()).collect();
            assert!(known.len() > 1, "{name} takes some of {values:?}");
            for kept in known {
                assert_eq!(Kept::try_from(kept.to_string()).expect("just printed"), kept);
            }
        }
        let all = VolumeSettings::default().each();
        assert!(all.iter().map(|kept| kept.key()).eq(Key::ALL.map(|(key, _)| key)));
    }

    #[test]
    fn the_last_word_counts() {
        let rate = |per_second| Some(Rate { per_second, burst: per_second });
        let settings = VolumeSettings::of([Kept::Iops(rate(5)), Kept::Bandwidth(rate(7)), Kept::Iops(None)]);
        assert_eq!(settings.limits, Limits { iops: None, bandwidth: rate(7) });
        assert_eq!(settings.chosen(), [Kept::Bandwidth(rate(7))]);
        let mut list = vec![Kept::Iops(rate(5)), Kept::Bandwidth(rate(7))];
        keep(&mut list, Kept::Iops(None));
        assert_eq!(list, [Kept::Bandwidth(rate(7)), Kept::Iops(None)]);
    }
}
