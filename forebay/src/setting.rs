//! Settings that `set` can change.

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
    /// `lost=give-up`: blocks that rotted while dirty read as the origin has them.
    GiveUpLost,
}

/// Reason why a setting has no meaning.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// No such key.
    #[error(
        "unknown setting; there are mode=MODE, size=origin, origin=changed, origin=changed-discard-dirty, lost=give-up"
    )]
    Key,
    /// No such mode.
    #[error("unknown mode; there are {known}", known = WriteMode::ALL.map(|(_, name)| name).join(", "))]
    Mode,
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Setting, SettingError> {
        match text {
            "size=origin" => Ok(Setting::SizeOfOrigin),
            "origin=changed" => Ok(Setting::OriginChanged),
            "origin=changed-discard-dirty" => Ok(Setting::OriginChangedDiscardDirty),
            "lost=give-up" => Ok(Setting::GiveUpLost),
            _ => {
                let name = text.strip_prefix("mode=").ok_or(SettingError::Key)?;
                WriteMode::parse(name).map(Setting::Mode).ok_or(SettingError::Mode)
            }
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
}
