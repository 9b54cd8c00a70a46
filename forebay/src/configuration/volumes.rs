//! Volumes in a configuration file: their names, origins, modes and settings.

use super::Findings;
use super::words::{VOLUME, hint_of_name, one_text};
use crate::arguments::{mode, volume_name};
use crate::nearest::unknown;
use crate::setting::{Kept, Key};
use engine::effect::WriteMode;
use live::devices::{self, DeviceSpec};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const KEYS: [&str; 3] = ["name", "origin", "mode"];

/// A volume as a file wants it.
#[derive(Clone, Debug)]
pub struct VolumeWish {
    /// Its name.
    pub name: String,
    /// The device that it is served from, instead of the one given to `create`.
    pub origin: Option<DeviceSpec>,
    /// Its mode.
    pub mode: Option<WriteMode>,
    /// Settings that it says.
    pub settings: Vec<Kept>,
    /// The line of its name.
    pub line: usize,
}

/// The volumes of a file.
pub(super) fn read(table: &DeTable<'_>, findings: &mut Findings<'_>) -> Vec<VolumeWish> {
    let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == VOLUME) else { return Vec::new() };
    let tables: Option<Vec<&DeTable<'_>>> =
        value.get_ref().as_array().and_then(|all| all.iter().map(|one| one.get_ref().as_table()).collect());
    let Some(tables) = tables else {
        findings.add(&value.span(), "write each volume as a table [[volume]]".to_owned());
        return Vec::new();
    };
    let mut volumes: Vec<VolumeWish> = Vec::new();
    for table in tables {
        if let Some(volume) = read_one(table, value, findings) {
            if let Some(other) = volumes.iter().find(|other| other.name == volume.name) {
                let text = format!("volume {} stands in line {} already", volume.name, other.line);
                let name = table.iter().find(|(key, _)| key.get_ref() == "name");
                findings.add(&name.map_or(0..0, |(key, _)| key.span()), text);
            }
            volumes.push(volume);
        }
    }
    volumes
}

fn read_one(
    table: &DeTable<'_>,
    all: &Spanned<DeValue<'_>>,
    findings: &mut Findings<'_>,
) -> Option<VolumeWish> {
    let (mut name, mut origin, mut wanted, mut line) = (None, None, None, 0);
    let mut settings = Vec::new();
    let known: Vec<&str> = KEYS.into_iter().chain(Key::of_volumes()).collect();
    for (key, value) in table {
        let word: &str = key.get_ref();
        if !known.contains(&word) {
            findings.add(&key.span(), unknown("key", word, &known));
            continue;
        }
        let Some(text) = one_text(value, findings) else { continue };
        if let Some(key) = Key::parse(word) {
            match Kept::parse(key, &text).and_then(|kept| kept.check_meant().map(|()| kept)) {
                Ok(kept) => settings.push(kept),
                Err(error) => findings.add(&value.span(), format!("`{word}`: {error}")),
            }
            continue;
        }
        let result = match word {
            "name" => {
                line = findings.line(&key.span());
                volume_name(&text).map(|text| name = Some(text)).map_err(|error| error.to_string())
            }
            "origin" => {
                hint_of_name(&text, &value.span(), findings);
                devices::parse(&text).map(|spec| origin = Some(spec)).map_err(|error| error.to_string())
            }
            _ => mode(&text).map(|mode| wanted = Some(mode)).map_err(|error| error.to_string()),
        };
        if let Err(error) = result {
            findings.add(&value.span(), format!("`{word}`: {error}"));
        }
    }
    let Some(name) = name else {
        let first = table.iter().next().map_or(all.span(), |(key, _)| key.span());
        findings.add(&first, "a volume needs a `name`".to_owned());
        return None;
    };
    settings.sort_by_key(|kept: &Kept| kept.key());
    Some(VolumeWish { name, origin, mode: wanted, settings, line })
}
