//! Configuration files: one TOML file for each cache, with the words of the command line.
//!
//! A key is the long name of an option of `forebay serve`, and its value is parsed by that option: what is allowed on
//! the command line is allowed here, and nothing else. Beside them stand `cache`, and a table `[[volume]]` for each
//! volume with `name`, `origin`, `mode`, and settings that the daemon keeps. Every finding names file and line.
//!
//! | file | subject |
//! | --- | --- |
//! | `words.rs` | keys and values, as arguments of the command line |
//! | `volumes.rs` | the tables of volumes |

mod volumes;
mod words;

pub use volumes::VolumeWish;
pub use words::options;

use crate::arguments::{Arguments, Serve, Verb};
use crate::run_dir::non_empty;
use crate::setting::Kept;
use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser, parser::ValueSource};
use engine::effect::WriteMode;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::DeTable;
use words::Word;

/// A configuration file that was read.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The file.
    pub path: PathBuf,
    cache: Word,
    words: Vec<Word>,
    /// The volumes that it names.
    pub volumes: Vec<VolumeWish>,
}

/// Something in a file that is wrong, or worth a second look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1 on.
    pub line: usize,
    /// The error, in one line.
    pub text: String,
    /// Whether the file works all the same.
    pub is_hint: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = if self.is_hint { "hint: " } else { "" };
        write!(f, "{}:{}: {hint}{}", self.path.display(), self.line, self.text)
    }
}

/// Collects the findings of one file.
struct Findings<'a> {
    path: &'a Path,
    text: &'a str,
    all: Vec<Finding>,
}

impl Findings<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        self.text.as_bytes()[..span.start.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
            + 1
    }

    fn add(&mut self, span: &Range<usize>, text: String) {
        let finding = Finding { path: self.path.to_owned(), line: self.line(span), text, is_hint: false };
        self.all.push(finding);
    }

    fn hint(&mut self, span: &Range<usize>, text: String) {
        self.add(span, text);
        self.all.last_mut().expect("just added").is_hint = true;
    }
}

/// The directory of configuration files.
#[must_use]
pub fn directory() -> PathBuf {
    non_empty("FOREBAY_CONFIG_DIR").unwrap_or_else(|| PathBuf::from("/etc/forebay"))
}

impl Configuration {
    /// Reads a file. The configuration is there if nothing in it is wrong; hints come either way.
    ///
    /// # Errors
    /// If it cannot be read at all.
    pub fn read(path: &Path) -> Result<(Option<Configuration>, Vec<Finding>)> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Configuration::parse(path, &text))
    }

    /// The configuration in a text, and what is wrong with it.
    #[must_use]
    pub fn parse(path: &Path, text: &str) -> (Option<Configuration>, Vec<Finding>) {
        let mut findings = Findings { path, text, all: Vec::new() };
        let configuration = match DeTable::parse(text) {
            Ok(table) => Configuration::of_table(table.get_ref(), &mut findings),
            Err(error) => {
                let said = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
                findings.add(&error.span().unwrap_or(0..0), said);
                None
            }
        };
        let mut all = findings.all;
        all.sort_by_key(|finding| finding.line);
        let is_right = all.iter().all(|finding| finding.is_hint);
        (configuration.filter(|_| is_right), all)
    }

    fn of_table(table: &DeTable<'_>, findings: &mut Findings<'_>) -> Option<Configuration> {
        let volumes = volumes::read(table, findings);
        let (cache, words) = words::read(table, findings);
        let Some(cache) = cache else {
            if findings.all.is_empty() {
                findings.add(
                    &(0..0),
                    "the key `cache` is missing: the cache device, as given to create".to_owned(),
                );
            }
            return None;
        };
        let configuration = Configuration { path: findings.path.to_owned(), cache, words, volumes };
        if findings.all.iter().any(|finding| !finding.is_hint) {
            return None;
        }
        // Each word is right; some need others.
        match Arguments::try_parse_from(configuration.command(&BTreeSet::new())) {
            Ok(_) => Some(configuration),
            Err(error) => {
                findings.add(&(0..0), words::mistake(&error));
                None
            }
        }
    }

    /// The command line that says the same, without the words in `given`.
    fn command(&self, given: &BTreeSet<String>) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec!["forebay".into(), "serve".into()];
        for word in self.words.iter().filter(|word| !given.contains(&word.key)) {
            command.extend(word.arguments());
        }
        if !given.contains("cache") {
            command.extend(self.cache.values.iter().map(OsString::from));
        }
        if !given.contains("origin") {
            for VolumeWish { name, origin, .. } in &self.volumes {
                command.extend(origin.iter().map(|origin| format!("--origin={name}={origin}").into()));
            }
        }
        command
    }

    /// The cache device, as it is written.
    #[must_use]
    pub fn cache(&self) -> &str {
        self.cache.values.first().map_or("", String::as_str)
    }

    /// Addresses that only one daemon can have, with their lines.
    #[must_use]
    pub fn addresses(&self) -> Vec<(&str, usize)> {
        let words = self.words.iter().filter(|word| matches!(word.key.as_str(), "nbd" | "metrics" | "web"));
        words.flat_map(|word| word.values.iter().map(|value| (value.as_str(), word.line))).collect()
    }

    /// The line that names the cache.
    #[must_use]
    pub fn cache_line(&self) -> usize {
        self.cache.line
    }

    /// The names of its volumes.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.volumes.iter().map(|wish| wish.name.clone()).collect()
    }

    /// The mode that the file wants for a volume, if it wants one.
    #[must_use]
    pub fn mode_of(&self, volume: &str) -> Option<WriteMode> {
        self.volumes.iter().find(|wish| wish.name == volume)?.mode
    }

    /// The settings that the file says of a volume.
    #[must_use]
    pub fn settings_of(&self, volume: &str) -> &[Kept] {
        self.volumes.iter().find(|wish| wish.name == volume).map_or(&[], |wish| &wish.settings)
    }

    /// Keys that say something else in `other`, but for modes and settings.
    #[must_use]
    pub fn changed_keys(&self, other: &Configuration) -> Vec<String> {
        let of = |configuration: &Configuration| -> BTreeSet<(String, Vec<String>)> {
            let volumes = configuration.volumes.iter().map(|wish| {
                let origin = wish.origin.iter().map(ToString::to_string).collect();
                (format!("volume.{}", wish.name), origin)
            });
            let words = configuration.words.iter().chain([&configuration.cache]);
            words.map(|word| (word.key.clone(), word.values.clone())).chain(volumes).collect()
        };
        let (old, new) = (of(self), of(other));
        let keys: BTreeSet<String> = old.symmetric_difference(&new).map(|(key, _)| key.clone()).collect();
        keys.into_iter().collect()
    }
}

/// The arguments of `serve` with those of its configuration file, if it names one. What the command line says counts.
///
/// # Errors
/// The first finding in the file, or that it cannot be read.
pub fn complete(arguments: Serve) -> Result<(Serve, Option<Configuration>)> {
    let Some(path) = arguments.config.clone() else { return Ok((arguments, None)) };
    let own: Vec<OsString> = std::env::args_os().collect();
    let matches = Arguments::command().get_matches_from(&own);
    let (_, serve) = matches.subcommand().context("the verb is serve")?;
    let given: BTreeSet<String> = serve
        .ids()
        .filter(|id| serve.value_source(id.as_str()) == Some(ValueSource::CommandLine))
        .map(|id| id.as_str().replace('_', "-"))
        .collect();
    let configuration = load(&path)?;
    let mut command = configuration.command(&given);
    command.extend(own.into_iter().skip(2));
    match Arguments::try_parse_from(command) {
        Ok(Arguments { verb: Verb::Serve(completed) }) => Ok((completed, Some(configuration))),
        Ok(_) => bail!("the verb is serve"),
        Err(error) => bail!("{}: {}", path.display(), words::mistake(&error)),
    }
}

/// The configuration in a file.
///
/// # Errors
/// The first finding, or that the file cannot be read.
pub fn load(path: &Path) -> Result<Configuration> {
    let (configuration, findings) = Configuration::read(path)?;
    let mut wrong = findings.iter().filter(|finding| !finding.is_hint);
    if let Some(first) = wrong.next() {
        match wrong.count() {
            0 => bail!("{first}"),
            more => bail!("{first}; forebay config check {} tells {more} more", path.display()),
        }
    }
    configuration.with_context(|| format!("{} has no configuration", path.display()))
}

#[cfg(test)]
mod tests;
