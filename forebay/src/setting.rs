//! Settings that `set` can change.
//!
//! Some change the cache itself (its superblock), once. The others are kept among the daemon's notes and say how it
//! works; a configuration file may say those, too.

mod hours;
mod kept;
mod portion;
mod rate;

pub use hours::TimeOfDay;
pub use kept::{Kept, Key, VolumeSettings, budget, keep, scrub_days};
pub use portion::Portion;

use crate::nearest::unknown;
use engine::effect::WriteMode;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One `KEY=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Setting {
    /// `mode=MODE`: writes follow this mode from now on.
    Mode(WriteMode),
    /// `size=origin`: the volume grows to its origin's size.
    SizeOfOrigin,
    /// `origin=changed`: the origin was changed or replaced on purpose. Its cached content is dropped; refused while
    /// there is dirty data.
    OriginChanged,
    /// `origin=changed-discard-dirty`: the same, and dirty data is thrown away.
    OriginChangedDiscardDirty,
    /// `lost=give-up`: blocks that rotted while dirty read as the origin has them, or, in slots, as they are.
    GiveUpLost,
    /// `order=strict`: the origin goes from one flushed state to the next from now on; `order=free`: in any order.
    Order(bool),
    /// A setting that the daemon keeps.
    Kept(Kept),
}

/// Names of those that are not kept.
const OTHERS: [&str; 5] = ["mode", "size", "origin", "lost", "order"];

/// Reason why a setting has no meaning.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// No such key.
    #[error("{0}")]
    Key(String),
    /// A key that takes few words, and none of them.
    #[error("write {0}")]
    Word(&'static str),
    /// Not a rate.
    #[error("`{text}` is no rate; write for example {example}, or {name}=none")]
    Rate {
        /// The text as written.
        text: String,
        /// An example.
        example: &'static str,
        /// The setting.
        name: &'static str,
    },
    /// Not a time of the day.
    #[error("`{text}` is no time of the day; write for example flush-at=03:00, or flush-at=none")]
    Time {
        /// The text as written.
        text: String,
    },
    /// Not hours of the day.
    #[error(
        "`{text}` are no hours of the day; write for example destage-hours=22:00-06:00, or destage-hours=none"
    )]
    Hours {
        /// The text as written.
        text: String,
    },
    /// Not a budget.
    #[error(
        "`{text}` is no wear budget; write the bytes of a day, 1M or more, for example wear-budget=200G, or wear-budget=none"
    )]
    Budget {
        /// The text as written.
        text: String,
    },
    /// Not a number of days.
    #[error("`{text}` is no number of days; write 1 to 365, for example scrub-days=30, or scrub-days=none")]
    Days {
        /// The text as written.
        text: String,
    },
    /// Not a part of a cache.
    #[error("`{text}` is no part of a cache; write for example {name}=20%, {name}=8G, or {name}=none")]
    Portion {
        /// The text as written.
        text: String,
        /// The setting.
        name: &'static str,
    },
    /// A part of a cache that is meant in another unit.
    #[error(
        "{kept} counts bytes, and is less than 1 MiB; write for example {name}=20% or {name}=8G",
        name = .kept.key().name()
    )]
    SmallPortion {
        /// The setting.
        kept: Kept,
    },
    /// A rate that nobody could work with.
    #[error("{name} is at least {least}; {name}=none takes the limit away")]
    RateTooLow {
        /// The setting.
        name: &'static str,
        /// The least value.
        least: String,
    },
    /// A burst of less than a hundredth of a second.
    #[error(
        "the burst of {name}={rate} is at least {least}, what it lets through in a hundredth of a second"
    )]
    Burst {
        /// The setting.
        name: &'static str,
        /// The rate.
        rate: String,
        /// The least burst.
        least: String,
    },
    /// One of the whole cache for one volume.
    #[error("{0} is of the whole cache; leave the volume out")]
    OfCache(&'static str),
    /// One that is given twice.
    #[error("{0} is given twice; give it once")]
    Twice(String),
    /// A larger part of the cache is kept for a volume than it may have.
    #[error(
        "cache-min={min} is above cache-max={max}; give both in one line, cache-min no larger than cache-max"
    )]
    Room {
        /// The part that is kept.
        min: Portion,
        /// The part that it may have.
        max: Portion,
    },
    /// A name, which is not set.
    #[error(
        "a volume keeps its name; to give it another one, forebay detach it, and forebay add its origin with --name NAME"
    )]
    Name,
    /// No such mode.
    #[error("unknown mode; there are {known}", known = WriteMode::ALL.map(|(_, name)| name).join(", "))]
    Mode,
}

impl Setting {
    /// The key, if it is of the whole cache.
    #[must_use]
    pub fn of_cache(self) -> Option<&'static str> {
        match self {
            Setting::Kept(kept) if kept.key().is_of_cache() => Some(kept.key().name()),
            _ => None,
        }
    }

    /// Whether it says what became of an origin: nobody may use that meanwhile.
    #[must_use]
    pub fn is_about_origin(self) -> bool {
        matches!(self, Setting::OriginChanged | Setting::OriginChangedDiscardDirty)
    }
}

/// Refuses settings that do not go together, or not with the volume that is named.
///
/// # Errors
/// Which, and what to do.
pub fn check_together(settings: &[Setting], volume: Option<&str>) -> Result<(), SettingError> {
    let mut keys = Vec::new();
    for setting in settings {
        let text = setting.to_string();
        let key = text.split('=').next().unwrap_or_default().to_owned();
        if keys.contains(&key) {
            return Err(SettingError::Twice(key));
        }
        keys.push(key);
        if let Some(name) = setting.of_cache().filter(|_| volume.is_some()) {
            return Err(SettingError::OfCache(name));
        }
        if let Setting::Kept(kept) = setting {
            kept.check_meant()?;
        }
    }
    Ok(())
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Setting, SettingError> {
        match text {
            "size=origin" => Ok(Setting::SizeOfOrigin),
            "origin=changed" => Ok(Setting::OriginChanged),
            "origin=changed-discard-dirty" => Ok(Setting::OriginChangedDiscardDirty),
            "lost=give-up" => Ok(Setting::GiveUpLost),
            "order=strict" => Ok(Setting::Order(true)),
            "order=free" => Ok(Setting::Order(false)),
            _ => of_key_and_value(text),
        }
    }
}

fn of_key_and_value(text: &str) -> Result<Setting, SettingError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if let Some(key) = Key::parse(name) {
        return Kept::parse(key, value).map(Setting::Kept);
    }
    match name {
        "mode" => WriteMode::parse(value).map(Setting::Mode).ok_or(SettingError::Mode),
        "size" => Err(SettingError::Word("size=origin: the volume grows to its origin's size")),
        "origin" => Err(SettingError::Word("origin=changed or origin=changed-discard-dirty")),
        "lost" => Err(SettingError::Word("lost=give-up")),
        "order" => Err(SettingError::Word("order=strict or order=free")),
        "name" | "rename" => Err(SettingError::Name),
        _ => {
            let known: Vec<&str> = OTHERS.into_iter().chain(Key::ALL.map(|(_, name)| name)).collect();
            Err(SettingError::Key(unknown("setting", name, &known)))
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Mode(mode) => write!(f, "mode={}", mode.name()),
            Setting::SizeOfOrigin => f.write_str("size=origin"),
            Setting::OriginChanged => f.write_str("origin=changed"),
            Setting::OriginChangedDiscardDirty => f.write_str("origin=changed-discard-dirty"),
            Setting::GiveUpLost => f.write_str("lost=give-up"),
            Setting::Order(true) => f.write_str("order=strict"),
            Setting::Order(false) => f.write_str("order=free"),
            Setting::Kept(kept) => kept.fmt(f),
        }
    }
}

impl From<Setting> for String {
    fn from(setting: Setting) -> String {
        setting.to_string()
    }
}

impl TryFrom<String> for Setting {
    type Error = SettingError;

    fn try_from(text: String) -> Result<Setting, SettingError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reads_back_as_itself() {
        let mut settings = vec![
            Setting::SizeOfOrigin,
            Setting::OriginChanged,
            Setting::OriginChangedDiscardDirty,
            Setting::GiveUpLost,
            Setting::Order(true),
            Setting::Order(false),
            Setting::Kept(Kept::Iops(None)),
        ];
        settings.extend(WriteMode::ALL.map(|(mode, _)| Setting::Mode(mode)));
        for setting in settings {
            assert_eq!(setting.to_string().parse::<Setting>().expect("just printed"), setting);
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["mode=", "mode=fast", "size=8G", "colour=red", "=", "origin=changed-"] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }

    #[test]
    fn mistakes_name_the_word_that_was_meant() {
        let wrong = |text: &str| text.parse::<Setting>().expect_err(text).to_string();
        assert_eq!(wrong("iop=5000"), "unknown setting `iop`; did you mean `iops`?");
        assert!(
            wrong("colour=red").contains("there are mode, size, origin, lost, order, iops"),
            "{}",
            wrong("colour=red")
        );
        assert!(wrong("name=other").contains("forebay detach"), "{}", wrong("name=other"));
        assert!(wrong("mode=fast").contains("writeback"), "{}", wrong("mode=fast"));
        assert!(wrong("size=8G").contains("size=origin"), "{}", wrong("size=8G"));
    }
}
