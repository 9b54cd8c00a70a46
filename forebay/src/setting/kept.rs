//! Settings that the daemon keeps among its notes, and that a configuration file may say.

use super::SettingError;
use super::hours::{Hours, TimeOfDay};
use super::portion::Portion;
use super::rate::{BANDWIDTH, IOPS, print_bytes};
use crate::nearest::unknown;
use engine::effect::Room;
use live::devices::parse_size;
use live::limits::{Limits, Rate};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The least part of a cache in bytes: who writes less means another unit.
const PORTION_BYTES_MIN: u64 = 1 << 20;
const CACHE_MIN: &str = "cache-min";
const CACHE_MAX: &str = "cache-max";

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
    /// The part of the cache that is kept for the volume.
    CacheMin,
    /// The part of the cache that the volume may have.
    CacheMax,
    /// Bytes that the cache device may be written in a day.
    WearBudget,
    /// Days from one scrub to the next.
    ScrubDays,
}

impl Key {
    /// All of them, with their names.
    pub const ALL: [(Key, &'static str); 8] = [
        (Key::Iops, "iops"),
        (Key::Bandwidth, "bandwidth"),
        (Key::DestageHours, "destage-hours"),
        (Key::FlushAt, "flush-at"),
        (Key::CacheMin, CACHE_MIN),
        (Key::CacheMax, CACHE_MAX),
        (Key::WearBudget, "wear-budget"),
        (Key::ScrubDays, "scrub-days"),
    ];

    /// Names of those that each volume has for itself.
    pub fn of_volumes() -> impl Iterator<Item = &'static str> {
        Key::ALL.into_iter().filter(|(key, _)| !key.is_of_cache()).map(|(_, name)| name)
    }

    /// Whether it is of the whole cache.
    #[must_use]
    pub fn is_of_cache(self) -> bool {
        matches!(self, Key::WearBudget | Key::ScrubDays)
    }

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
    /// `cache-min=N%|SIZE|none`.
    CacheMin(Option<Portion>),
    /// `cache-max=N%|SIZE|none`.
    CacheMax(Option<Portion>),
    /// `wear-budget=SIZE|none`.
    WearBudget(Option<u64>),
    /// `scrub-days=N|none`.
    ScrubDays(Option<u16>),
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
            Key::CacheMin => Kept::CacheMin(Portion::parse(CACHE_MIN, value)?),
            Key::CacheMax => Kept::CacheMax(Portion::parse(CACHE_MAX, value)?),
            Key::WearBudget => Kept::WearBudget(budget(value)?),
            Key::ScrubDays => Kept::ScrubDays(scrub_days(value)?),
        })
    }

    /// Refuses what has a meaning, and cannot be meant. Notes of before may have it.
    ///
    /// # Errors
    /// What to write instead.
    pub fn check_meant(self) -> Result<(), SettingError> {
        match self {
            Kept::CacheMin(Some(Portion::Bytes(bytes))) | Kept::CacheMax(Some(Portion::Bytes(bytes)))
                if bytes < PORTION_BYTES_MIN =>
            {
                Err(SettingError::SmallPortion { kept: self })
            }
            _ => Ok(()),
        }
    }

    /// Its key.
    #[must_use]
    pub fn key(self) -> Key {
        match self {
            Kept::Iops(_) => Key::Iops,
            Kept::Bandwidth(_) => Key::Bandwidth,
            Kept::DestageHours(_) => Key::DestageHours,
            Kept::FlushAt(_) => Key::FlushAt,
            Kept::CacheMin(_) => Key::CacheMin,
            Kept::CacheMax(_) => Key::CacheMax,
            Kept::WearBudget(_) => Key::WearBudget,
            Kept::ScrubDays(_) => Key::ScrubDays,
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
            Kept::WearBudget(bytes) => bytes.map_or_else(none, print_bytes),
            Kept::ScrubDays(days) => days.map_or_else(none, |days| days.to_string()),
            Kept::CacheMin(portion) | Kept::CacheMax(portion) => {
                portion.map_or_else(none, |portion| portion.to_string())
            }
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

/// The least wear budget: with less nothing would ever be cached.
const BUDGET_BYTES_MIN: u64 = 1 << 20;

/// The bytes of a day in a text; `None` for `none`.
///
/// # Errors
/// If it is neither.
pub fn budget(text: &str) -> Result<Option<u64>, SettingError> {
    if text == "none" {
        return Ok(None);
    }
    let bytes = parse_size(text).ok().filter(|bytes| *bytes >= BUDGET_BYTES_MIN);
    bytes.map(Some).ok_or_else(|| SettingError::Budget { text: text.to_owned() })
}

/// The most days from one scrub to the next.
const SCRUB_DAYS_MAX: u16 = 365;

/// The days from one scrub to the next in a text; `None` for `none`.
///
/// # Errors
/// If it is neither.
pub fn scrub_days(text: &str) -> Result<Option<u16>, SettingError> {
    if text == "none" {
        return Ok(None);
    }
    let days = text.parse().ok().filter(|days| (1..=SCRUB_DAYS_MAX).contains(days));
    days.map(Some).ok_or_else(|| SettingError::Days { text: text.to_owned() })
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
    /// The part of the cache that is kept for the volume.
    pub cache_min: Option<Portion>,
    /// The part of the cache that it may have.
    pub cache_max: Option<Portion>,
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
                Kept::CacheMin(portion) => settings.cache_min = portion,
                Kept::CacheMax(portion) => settings.cache_max = portion,
                // Of the whole cache.
                Kept::WearBudget(_) | Kept::ScrubDays(_) => (),
            }
        }
        settings
    }

    /// The room of the volume in a cache of so many bytes.
    #[must_use]
    pub fn room(&self, cache_bytes: u64) -> Room {
        Room {
            min_bytes: self.cache_min.map_or(0, |portion| portion.of(cache_bytes)),
            max_bytes: self.cache_max.map(|portion| portion.of(cache_bytes)),
        }
    }

    /// Refuses to keep a larger part of a cache of so many bytes for the volume than it may have.
    ///
    /// # Errors
    /// [`SettingError::Room`].
    pub fn check_room(&self, cache_bytes: u64) -> Result<(), SettingError> {
        match (self.cache_min, self.cache_max) {
            (Some(min), Some(max)) if min.of(cache_bytes) > max.of(cache_bytes) => {
                Err(SettingError::Room { min, max })
            }
            _ => Ok(()),
        }
    }

    /// Each of them, in the order of [`Key::ALL`].
    #[must_use]
    pub fn each(&self) -> Vec<Kept> {
        vec![
            Kept::Iops(self.limits.iops),
            Kept::Bandwidth(self.limits.bandwidth),
            Kept::DestageHours(self.destage_hours),
            Kept::FlushAt(self.flush_at),
            Kept::CacheMin(self.cache_min),
            Kept::CacheMax(self.cache_max),
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
            let values = ["none", "77,burst=9", "64K,burst=1M", "03:00", "22:30-06:15", "20%", "8G", "30"];
            let known: Vec<Kept> = values.iter().filter_map(|value| Kept::parse(key, value).ok()).collect();
            assert!(known.len() > 1, "{name} takes some of {values:?}");
            for kept in known {
                assert_eq!(Kept::try_from(kept.to_string()).expect("just printed"), kept);
            }
        }
        let all = VolumeSettings::default().each();
        assert!(all.iter().map(|kept| kept.key().name()).eq(Key::of_volumes()));
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
