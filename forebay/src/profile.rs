//! Profiles: a composition with a name, the sources of its values, and the system that it imitates.
//!
//! The built-in ones are the files of `profiles/`, which become part of the program when it is built; a
//! user's own is a file of the same form. What can be said in one, and in which range, the engine's table of
//! tunables knows ([`engine::composition`]); a profile only says values.

use engine::composition::axes::Axis;
use engine::composition::keys::{Key, Value};
use engine::composition::rules::Coupling;
use engine::composition::support::Lack;
use engine::composition::{Composition, SetError};
use engine::format::NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The built-in files, by name.
const FILES: &[(&str, &str)] = &[
    ("forebay", include_str!("../profiles/forebay.toml")),
    ("forebay@0.2", include_str!("../profiles/forebay@0.2.toml")),
    ("dm-cache", include_str!("../profiles/dm-cache.toml")),
    ("dm-cache@4.5", include_str!("../profiles/dm-cache@4.5.toml")),
    ("dm-cache@3.16", include_str!("../profiles/dm-cache@3.16.toml")),
    ("dm-cache@3.9", include_str!("../profiles/dm-cache@3.9.toml")),
    ("bcache", include_str!("../profiles/bcache.toml")),
    ("bcache@4.5", include_str!("../profiles/bcache@4.5.toml")),
    ("bcache@3.16", include_str!("../profiles/bcache@3.16.toml")),
    ("bcache@3.10", include_str!("../profiles/bcache@3.10.toml")),
    ("enhanceio", include_str!("../profiles/enhanceio.toml")),
    ("flashcache", include_str!("../profiles/flashcache.toml")),
    ("gflash", include_str!("../profiles/gflash.toml")),
    ("mapperx", include_str!("../profiles/mapperx.toml")),
];
/// The profile that a cache gets unless another one is named.
pub const DEFAULT: &str = "forebay";
/// The end of a file's name.
const SUFFIX: &str = ".toml";

/// A profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Its description in one line.
    pub description: String,
    /// The system that it imitates, as tables of results name it.
    pub system: String,
    /// The versions of the system.
    pub versions: String,
    /// Certainty of the knowledge about it.
    pub confidence: Confidence,
    /// Where it knowingly differs.
    pub deviations: Vec<String>,
    /// Its composition.
    pub composition: Composition,
    /// Where values come from, by tunable, if it says so; the others have the table's source.
    sources: BTreeMap<&'static str, String>,
}

/// Certainty of the knowledge about a published system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Its source was read.
    Source,
    /// Its documents were read.
    Documents,
    /// It was seen at work.
    Observed,
    /// A user's own system.
    #[default]
    Own,
}

impl Confidence {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Source => "source",
            Confidence::Documents => "documents",
            Confidence::Observed => "observed",
            Confidence::Own => "own",
        }
    }
}

/// The profile asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A built-in one.
    BuiltIn(&'static str),
    /// A file.
    File(PathBuf),
}

/// The form of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: String,
    description: String,
    #[serde(default)]
    system: String,
    #[serde(default)]
    versions: String,
    #[serde(default)]
    confidence: Confidence,
    #[serde(default)]
    deviations: Vec<String>,
    extends: Option<Spanned<String>>,
    #[serde(default)]
    axes: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    tunables: BTreeMap<Spanned<String>, toml::Value>,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Its file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}{line}: {fault}", line = Line(*line))]
    Fault {
        /// The file.
        file: String,
        /// The line, counted from 1, if one is to blame.
        line: Option<usize>,
        /// The fault.
        fault: Fault,
    },
}

/// An error in a profile.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It is not TOML of this form.
    #[error("{0}")]
    Form(String),
    /// The profile that it extends does not exist.
    #[error("extends {0}: {UnknownProfile}")]
    Base(String),
    /// An axis or a tunable cannot be set so.
    #[error("{0}")]
    Set(#[from] SetError),
    /// A tunable's value is no number, flag or name.
    #[error("{key}: it must be {}, or {{ value = ..., source = \"...\" }}", .key_of.allowed())]
    Value {
        /// The tunable's name.
        key: String,
        /// The tunable.
        key_of: &'static Key,
    },
    /// Its name cannot be kept with a cache.
    #[error("name: it must have 1 to {NAME_BYTES_MAX} bytes, none of them a control character")]
    Name,
    /// Nothing is chosen on an axis.
    #[error("[axes] has no {axis}; there are {choices}", axis = .0.name(), choices = names_of(*.0))]
    NoChoice(Axis),
    /// Choices do not go together.
    #[error("{}: {} ({})", .0.name, .0.rule, .0.why)]
    Coupling(&'static Coupling),
}

/// `:12`, or nothing.
struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// There is no such profile.
#[derive(Debug, thiserror::Error)]
#[error("unknown profile; there are {}", known())]
pub struct UnknownProfile;

/// There is no such profile, where a file would do.
#[derive(Debug, thiserror::Error)]
#[error("{UnknownProfile}, and files whose names end in {SUFFIX}")]
pub struct NoProfileOrFile;

fn known() -> String {
    FILES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn names_of(axis: Axis) -> String {
    axis.choices().map(|choice| choice.name).collect::<Vec<_>>().join(", ")
}

/// A profile promises all that a disk does, as published too.
#[derive(Debug, thiserror::Error)]
#[error("profile {profile} gives nothing up; leave --unsafe out")]
pub struct GivesNothingUp {
    profile: String,
}

/// This version cannot run a profile.
#[derive(Debug, thiserror::Error)]
#[error("profile {profile}: this version cannot run {lack} yet; use --profile {DEFAULT}")]
pub struct NotYet {
    profile: String,
    lack: Lack,
}

/// Checks that the engine carries out `composition`, that of a profile or a cache.
///
/// # Errors
/// [`NotYet`], with the first thing that is missing.
pub fn check_support(profile: &str, composition: &Composition) -> Result<(), NotYet> {
    match composition.lack() {
        None => Ok(()),
        Some(lack) => Err(NotYet { profile: profile.to_owned(), lack }),
    }
}

impl Profile {
    /// Where the value of a tunable comes from.
    #[must_use]
    pub fn source(&self, key: &'static Key) -> String {
        match self.sources.get(key.name) {
            Some(source) => source.clone(),
            // The table knows where defaults come from, not others.
            None if key.get(&self.composition) == Some(key.default) => key.source.to_owned(),
            None => format!("{} {}", self.name, self.versions).trim().to_owned(),
        }
    }

    /// Checks that the engine carries out the profile.
    ///
    /// # Errors
    /// [`NotYet`], with the first thing that is missing.
    pub fn runnable(&self) -> Result<(), NotYet> {
        check_support(&self.name, &self.composition)
    }

    /// The composition of a cache with this profile, as the published system or with a disk's promise.
    ///
    /// # Errors
    /// [`GivesNothingUp`], if there is no difference.
    pub fn composition_of(&self, is_unsafe: bool) -> Result<Composition, GivesNothingUp> {
        if is_unsafe && self.gives_up().is_empty() {
            return Err(GivesNothingUp { profile: self.name.clone() });
        }
        Ok(Composition { safe: !is_unsafe, ..self.composition })
    }

    /// The promises that it gives up with `safe = false`, as the published system; a line for each.
    #[must_use]
    pub fn gives_up(&self) -> Vec<String> {
        gives_up(&self.composition)
    }
}

/// The promises that `composition` gives up with `safe = false`; a line for each.
#[must_use]
pub fn gives_up(composition: &Composition) -> Vec<String> {
    let [safe, published] = [true, false].map(|safe| Composition { safe, ..*composition }.contract());
    published.gives_up(&safe)
}

/// The names of all built-in profiles; ours is the first.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// All built-in profiles.
#[must_use]
pub fn all() -> Vec<Profile> {
    names().map(named).collect()
}

/// The built-in profiles without those of older eras, whose names have an `@`.
#[must_use]
pub fn newest() -> Vec<Profile> {
    names().filter(|name| !name.contains('@')).map(named).collect()
}

/// The built-in profile of that name.
///
/// # Panics
/// If there is none: [`parse_name`] let it through.
#[must_use]
pub fn named(name: &str) -> Profile {
    let text = text_of(name).expect("the name was checked");
    read(&format!("{name}{SUFFIX}"), text).expect("a test reads every built-in profile")
}

/// Loads the profile asked for.
///
/// # Errors
/// [`ProfileError`], if it is a file that cannot be read or is wrong.
pub fn load(wanted: &Wanted) -> Result<Profile, ProfileError> {
    match wanted {
        Wanted::BuiltIn(name) => Ok(named(name)),
        Wanted::File(path) => {
            let text =
                fs::read_to_string(path).map_err(|error| ProfileError::Read { path: path.clone(), error })?;
            read(&path.display().to_string(), &text)
        }
    }
}

/// Checks that a built-in profile of that name exists.
///
/// # Errors
/// [`UnknownProfile`], with those that exist.
pub fn parse_name(name: &str) -> Result<&'static str, UnknownProfile> {
    names().find(|known| *known == name).ok_or(UnknownProfile)
}

/// Takes the name of a built-in profile or of a file, which has a slash or ends in `.toml`.
///
/// # Errors
/// [`NoProfileOrFile`], with those that exist.
pub fn parse_wanted(word: &str) -> Result<Wanted, NoProfileOrFile> {
    if word.contains('/') || word.ends_with(SUFFIX) {
        return Ok(Wanted::File(Path::new(word).to_owned()));
    }
    parse_name(word).map(Wanted::BuiltIn).map_err(|UnknownProfile| NoProfileOrFile)
}

fn text_of(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Reads a profile.
fn read(file: &str, text: &str) -> Result<Profile, ProfileError> {
    let fault = |line, fault| ProfileError::Fault { file: file.to_owned(), line, fault };
    let line_of =
        |span: Range<usize>| Some(1 + text.as_bytes()[..span.start].iter().filter(|b| **b == b'\n').count());
    let form: Form = toml::from_str(text)
        .map_err(|error| fault(error.span().and_then(line_of), Fault::Form(one_line(error.message()))))?;
    let mut profile = match &form.extends {
        None => Profile {
            name: String::new(),
            description: String::new(),
            system: String::new(),
            versions: String::new(),
            confidence: Confidence::Own,
            deviations: Vec::new(),
            composition: Composition::plain_log(),
            sources: BTreeMap::new(),
        },
        Some(base) => {
            let base_text = text_of(base.as_ref())
                .ok_or_else(|| fault(line_of(base.span()), Fault::Base(base.as_ref().clone())))?;
            read(&format!("{}{SUFFIX}", base.as_ref()), base_text)?
        }
    };
    let composition = &mut profile.composition;
    for (name, choice) in &form.axes {
        let at = line_of(name.span());
        let axis = Axis::ALL.into_iter().find(|axis| axis.name() == name.as_ref());
        let axis = axis.ok_or_else(|| fault(at, SetError::Unknown { name: name.as_ref().clone() }.into()))?;
        // A choice made again would take its tunables back to their defaults.
        if composition.choice(axis).name != choice || form.extends.is_none() {
            composition.choose(axis, choice).map_err(|error| fault(at, error.into()))?;
        }
    }
    if form.extends.is_none() {
        for axis in Axis::ALL {
            if !form.axes.keys().any(|name| name.as_ref() == axis.name()) {
                return Err(fault(None, Fault::NoChoice(axis)));
            }
        }
    }
    for (name, value) in &form.tunables {
        let at = line_of(name.span());
        let key = Key::named(name.as_ref())
            .ok_or_else(|| fault(at, SetError::Unknown { name: name.as_ref().clone() }.into()))?;
        let (text, source) = setting(value)
            .ok_or_else(|| fault(at, Fault::Value { key: key.name.to_owned(), key_of: key }))?;
        composition.set(key.name, &text).map_err(|error| fault(at, error.into()))?;
        match source {
            Some(source) => drop(profile.sources.insert(key.name, source.to_owned())),
            None => drop(profile.sources.remove(key.name)),
        }
    }
    composition.validate().map_err(|coupling| fault(None, Fault::Coupling(coupling)))?;
    if !(1..=NAME_BYTES_MAX).contains(&form.name.len()) || form.name.contains(char::is_control) {
        return Err(fault(None, Fault::Name));
    }
    Ok(Profile {
        name: form.name,
        description: form.description,
        system: form.system,
        versions: form.versions,
        confidence: form.confidence,
        deviations: if form.deviations.is_empty() { profile.deviations } else { form.deviations },
        ..profile
    })
}

/// The text of a tunable's value, and its source if it has one.
fn setting(value: &toml::Value) -> Option<(String, Option<&str>)> {
    match value {
        toml::Value::Integer(number) => Some((number.to_string(), None)),
        toml::Value::Boolean(flag) => Some((flag.to_string(), None)),
        toml::Value::String(name) => Some((name.clone(), None)),
        toml::Value::Table(table) if table.keys().all(|key| key == "value" || key == "source") => {
            let inner = table.get("value").filter(|value| !value.is_table())?;
            let source = match table.get("source") {
                None => None,
                Some(source) => Some(source.as_str()?),
            };
            setting(inner).map(|(text, _)| (text, source))
        }
        _ => None,
    }
}

/// A message without line breaks.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A value as JSON has it.
#[must_use]
pub fn json_value(value: Value) -> serde_json::Value {
    match value {
        Value::Number(number) => number.into(),
        Value::Flag(flag) => flag.into(),
        Value::Name(name) => name.into(),
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
