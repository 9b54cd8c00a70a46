//! The built-in profiles: a named choice on every axis, and the tunables of those choices.
//!
//! A profile is data. The files are in `profiles/`; they become part of the program when it is built.

use engine::effect::WriteMode;
use engine::limits::Config;
use engine::units::{BLOCK_BYTES, Nanos};
use serde::{Deserialize, Serialize};

/// The files, by name.
const FILES: &[(&str, &str)] = &[("forebay", include_str!("../../profiles/forebay.toml"))];

/// A profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// The choice on each axis.
    pub axes: Axes,
    /// What can be tuned.
    #[serde(default)]
    pub tunables: Vec<Tunable>,
}

/// A choice on each axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axes {
    /// Where a block may live.
    pub placement: Placement,
    /// Whether a miss enters the cache.
    pub admission: Admission,
    /// Which block leaves.
    pub replacement: Replacement,
    /// How a new volume treats writes.
    #[serde(with = "mode_name")]
    pub write_mode: WriteMode,
    /// How it is made durable what the cache holds.
    pub persistence: Persistence,
    /// Which dirty blocks go home, and when.
    pub destage: Destage,
    /// How much is read on a miss.
    pub fetch: Fetch,
}

/// Where a block may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In segments that are only appended to.
    Log,
}

/// Whether a miss enters the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// Every one.
    Always,
}

/// Which block leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The oldest, unless it was used again.
    Fifo,
}

/// How it is made durable what the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    /// Header and data in one write.
    Inline,
}

/// Which dirty blocks go home, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destage {
    /// In the order of the origin, round and round.
    Sweep,
}

/// How much is read on a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fetch {
    /// What was asked for.
    Request,
}

/// Something that can be tuned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunable {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Its value in this profile.
    pub default: u64,
    /// The least it may be.
    pub least: u64,
    /// The most it may be.
    pub most: u64,
    /// What it does.
    pub meaning: String,
    /// Where the value comes from.
    pub source: String,
}

impl Profile {
    /// Sets the engine's bounds as the tunables say.
    ///
    /// # Panics
    /// If a tunable is not known here: a test looks at all built-in ones.
    pub fn apply(&self, config: &mut Config) {
        for tunable in &self.tunables {
            let value = tunable.default;
            match tunable.name.as_str() {
                // A small cache has a lower limit of its own.
                "false_dirty_bytes" => {
                    config.false_dirty_blocks_max = config.false_dirty_blocks_max.min(value / BLOCK_BYTES);
                }
                "flush_after_ms" => config.flush_after_ns = value * Nanos::MILLISECOND,
                "idle_ms" => config.idle_ns = value * Nanos::MILLISECOND,
                "destage_runs" => {
                    config.destage_runs_max = u32::try_from(value).expect("a test looks at the range");
                }
                "backoff_ms" => config.backoff_ns = value * Nanos::MILLISECOND,
                "absent_ms" => config.absent_after_ns = value * Nanos::MILLISECOND,
                unknown => panic!("the profile has an unknown tunable {unknown}"),
            }
        }
    }
}

mod mode_name {
    use engine::effect::WriteMode;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(mode: &WriteMode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(mode.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WriteMode, D::Error> {
        let name = String::deserialize(deserializer)?;
        WriteMode::parse(&name).ok_or_else(|| de::Error::custom("unknown write mode"))
    }
}

/// All built-in profiles.
///
/// # Panics
/// Never: a test reads every file.
#[must_use]
pub fn all() -> Vec<Profile> {
    FILES.iter().map(|(_, text)| toml::from_str(text).expect("a test reads every built-in profile")).collect()
}

/// The profile of that name.
///
/// # Panics
/// If there is none: [`parse_name`] let it through.
#[must_use]
pub fn named(name: &str) -> Profile {
    all().into_iter().find(|profile| profile.name == name).expect("the name was checked")
}

/// Checks that a profile of that name exists.
///
/// # Errors
/// [`UnknownProfile`], with those that exist.
pub fn parse_name(name: &str) -> Result<&'static str, UnknownProfile> {
    FILES.iter().map(|(known, _)| *known).find(|known| *known == name).ok_or(UnknownProfile)
}

/// There is no such profile.
#[derive(Debug, thiserror::Error)]
#[error("unknown profile; there are {}", known())]
pub struct UnknownProfile;

fn known() -> String {
    FILES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_complete_and_consistent() {
        for (name, text) in FILES {
            let profile: Profile = toml::from_str(text).expect("a built-in profile parses");
            assert_eq!(profile.name, *name);
            for tunable in &profile.tunables {
                assert!((tunable.least..=tunable.most).contains(&tunable.default), "{}", tunable.name);
                assert!(!tunable.meaning.is_empty() && !tunable.source.is_empty(), "{}", tunable.name);
            }
            profile.apply(&mut Config::for_cache(64, 64));
        }
    }

    #[test]
    fn an_unknown_profile_is_answered_with_those_there_are() {
        assert!(parse_name("bcache9").expect_err("no such profile").to_string().contains("forebay"));
    }
}
