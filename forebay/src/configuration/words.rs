//! Words: keys and values of a configuration file, as arguments of `forebay serve`.

use super::Findings;
use crate::arguments::Arguments;
use crate::nearest::unknown;
use crate::usage;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::ffi::OsString;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys that are no options: the cache, and the volumes.
const CACHE: &str = "cache";
pub(super) const VOLUME: &str = "volume";
/// Options that a file cannot say, and why.
const REFUSED: [(&str, &str); 3] = [
    ("config", "a file cannot name another one"),
    ("origin", "write it into the table [[volume]] of its volume"),
    ("uncached", "that is for the moment: say it on the command line"),
];

/// A key with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub key: String,
    /// Its values; none of an option that has no value.
    pub values: Vec<String>,
    pub line: usize,
}

impl Word {
    /// The arguments that say the same.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        if self.values.is_empty() {
            return vec![format!("--{}", self.key).into()];
        }
        self.values.iter().map(|value| format!("--{}={value}", self.key).into()).collect()
    }
}

/// The verb whose options are the keys.
fn serve() -> Command {
    let command = Arguments::command();
    command.find_subcommand("serve").expect("serve is a verb").clone()
}

/// The options of `serve` that are keys.
#[must_use]
pub fn options() -> Vec<Arg> {
    let is_key = |long: &str| {
        !matches!(long, "help" | "version") && REFUSED.iter().all(|(refused, _)| *refused != long)
    };
    serve().get_arguments().filter(|option| option.get_long().is_some_and(is_key)).cloned().collect()
}

/// The cache and all other words of a file.
pub(super) fn read(table: &DeTable<'_>, findings: &mut Findings<'_>) -> (Option<Word>, Vec<Word>) {
    let options = options();
    let (mut cache, mut words) = (None, Vec::new());
    for (key, value) in table {
        let name: &str = key.get_ref();
        let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
        if name == VOLUME {
            continue;
        } else if name == CACHE {
            cache = one_text(value, findings).and_then(|text| cache_word(&text, value.span(), findings));
        } else if let Some((_, why)) = refused {
            findings.add(&key.span(), format!("`{name}` is not for a file: {why}"));
        } else if let Some(option) = options.iter().find(|option| option.get_long() == Some(name)) {
            words.extend(word(option, name, value, findings));
        } else {
            let known: Vec<&str> =
                options.iter().filter_map(|option| option.get_long()).chain([CACHE, VOLUME]).collect();
            findings.add(&key.span(), unknown("key", name, &known));
        }
    }
    (cache, words)
}

fn cache_word(text: &str, span: Range<usize>, findings: &mut Findings<'_>) -> Option<Word> {
    if let Err(error) = live::devices::parse(text) {
        findings.add(&span, format!("`cache`: {error}"));
        return None;
    }
    hint_of_name(text, &span, findings);
    Some(Word { key: CACHE.to_owned(), values: vec![text.to_owned()], line: findings.line(&span) })
}

/// A hint for names of disks that another disk may have after the next boot.
pub(super) fn hint_of_name(device: &str, span: &Range<usize>, findings: &mut Findings<'_>) {
    let name = device.strip_prefix("/dev/").unwrap_or_default();
    if ["sd", "nvme", "vd", "hd", "xvd"].iter().any(|kind| name.starts_with(kind)) {
        findings.hint(
            span,
            format!(
                "{device} may be another disk after the next boot; name it by /dev/disk/by-id/ or by-path/"
            ),
        );
    }
}

fn word(option: &Arg, key: &str, value: &Spanned<DeValue<'_>>, findings: &mut Findings<'_>) -> Option<Word> {
    let line = findings.line(&value.span());
    let values = match (option.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(false)) => return None,
        (ArgAction::SetTrue, DeValue::Boolean(true)) => Vec::new(),
        (ArgAction::SetTrue, _) => {
            findings.add(&value.span(), format!("`{key}` is true or false"));
            return None;
        }
        (ArgAction::Append, DeValue::Array(values)) => {
            let texts: Vec<String> = values.iter().filter_map(|value| one_text(value, findings)).collect();
            if texts.len() < values.len() || texts.is_empty() {
                return None;
            }
            texts
        }
        _ => vec![one_text(value, findings)?],
    };
    let word = Word { key: key.to_owned(), values, line };
    if let Err(error) = try_alone(&word) {
        findings.add(&value.span(), format!("`{key}`: {error}"));
        return None;
    }
    Some(word)
}

/// Whether the option takes these values; what others it needs is another question.
fn try_alone(word: &Word) -> Result<(), String> {
    let mut command = vec![OsString::from("serve")];
    command.extend(word.arguments());
    command.push("mem:1G".into());
    match serve().try_get_matches_from(command) {
        Err(error) if !matches!(error.kind(), ErrorKind::MissingRequiredArgument) => Err(usage::why(&error)),
        _ => Ok(()),
    }
}

/// A value as the command line has it.
pub(super) fn one_text(value: &Spanned<DeValue<'_>>, findings: &mut Findings<'_>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Integer(_) => {
            findings.add(&value.span(), "write it as a text, in quotes: \"0660\"".to_owned());
            None
        }
        other => {
            let found = other.type_str();
            findings.add(&value.span(), format!("write a text in quotes or a number; this is: {found}"));
            None
        }
    }
}

/// The mistake in words that do not go together on the command line of `serve`.
pub(super) fn mistake(error: &clap::Error) -> String {
    usage::mistake(error, &serve())
}
