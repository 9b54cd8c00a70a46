//! Mistakes in a command line, each in one line of our own words that names the help of the verb it is about.

use crate::arguments::Arguments;
use crate::nearest::{nearest, unknown};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use std::error::Error;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

/// The line about a mistake in these arguments, of which the first names the program.
#[must_use]
pub fn line(error: &clap::Error, arguments: impl IntoIterator<Item = OsString>) -> String {
    let all = Arguments::command();
    let (mut command, mut name) = (&all, "forebay".to_owned());
    for word in arguments.into_iter().skip(1) {
        let Some(verb) = word.to_str().and_then(|word| command.find_subcommand(word)) else { break };
        command = verb;
        name = format!("{name} {}", verb.get_name());
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("say what to do; {name} --help lists the verbs");
    }
    format!("{} (see {name} --help)", mistake(error, command))
}

/// The line for arguments that have to be given, as clap lists them.
fn missing(arguments: &str) -> String {
    format!("{arguments} {} missing", if arguments.contains(", ") { "are" } else { "is" })
}

/// The mistake in the arguments of a verb, which is `command`.
#[must_use]
pub fn mistake(error: &clap::Error, command: &Command) -> String {
    let verb = text(error, ContextKind::InvalidSubcommand);
    let argument = text(error, ContextKind::InvalidArg);
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    match (error.kind(), argument) {
        (ErrorKind::InvalidSubcommand, _) => {
            let verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            unknown("verb", &verb.unwrap_or_default(), &verbs)
        }
        (ErrorKind::UnknownArgument, Some(option)) if option.starts_with('-') => {
            let known = command.get_arguments().filter_map(|option| option.get_long());
            match nearest(option.trim_start_matches('-'), known) {
                Some(meant) => format!("unknown option `{option}`; did you mean `--{meant}`?"),
                None => format!("unknown option `{option}`"),
            }
        }
        (ErrorKind::UnknownArgument, Some(word)) => format!("`{word}` is one word too many"),
        (ErrorKind::MissingRequiredArgument, Some(arguments)) => missing(&arguments),
        (ErrorKind::InvalidValue, Some(argument)) if value.is_empty() => format!("{argument} has no value"),
        (ErrorKind::InvalidValue | ErrorKind::ValueValidation, Some(argument)) => {
            let why = why(error);
            if why.contains(&format!("`{value}`")) {
                format!("{argument}: {why}")
            } else {
                format!("{argument} cannot be `{value}`: {why}")
            }
        }
        (ErrorKind::ArgumentConflict, Some(argument)) => match text(error, ContextKind::PriorArg) {
            Some(prior) if prior != argument => format!("{argument} does not go together with {prior}"),
            Some(_) => format!("{argument} is given twice; give it once"),
            None => first_paragraph(error),
        },
        _ => first_paragraph(error),
    }
}

/// Reason why a value of an option has no meaning.
#[must_use]
pub fn why(error: &clap::Error) -> String {
    if let Some(known) = text(error, ContextKind::ValidValue) {
        return format!("there are {known}");
    }
    let Some(source) = error.source() else { return first_paragraph(error) };
    if let Some(number) = source.downcast_ref::<ParseIntError>() {
        let why = match number.kind() {
            IntErrorKind::Zero => "give 1 or more",
            IntErrorKind::PosOverflow => "the number is too large",
            _ => "give a whole number",
        };
        return why.to_owned();
    }
    let said = source.to_string();
    // The parser's own words for a number outside of a range.
    match said.split_once(" is not in ").and_then(|(_, range)| range.split_once("..")) {
        Some((least, most)) => {
            let most = most.trim_start_matches('=');
            let has_most = most.parse::<u64>().is_ok_and(|most| most < u64::from(u32::MAX));
            if has_most { format!("give {least} to {most}") } else { format!("give {least} or more") }
        }
        None => said,
    }
}

/// A part of what the parser says of a mistake, with names as the manual has them.
fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    let text = match error.get(kind)? {
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts.join(", "),
        _ => return None,
    };
    let is_value = kind == ContextKind::InvalidValue;
    Some(if is_value { text } else { text.replace(['<', '>'], "").replace("...", "") })
}

/// The first paragraph, which states the error; the rest repeats the usage.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
    crate::one_line(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(words: &str) -> String {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        line(&Arguments::try_parse_from(&words).expect_err("it is a mistake"), words)
    }

    #[test]
    fn a_mistake_is_told_in_our_words_with_the_help_of_its_verb() {
        for (words, expected) in [
            ("forebay", "say what to do; forebay --help lists the verbs"),
            ("forebay lab", "say what to do; forebay lab --help lists the verbs"),
            ("forebay serv", "unknown verb `serv`; did you mean `serve`? (see forebay --help)"),
            ("forebay lab duell", "unknown verb `duell`; did you mean `duel`? (see forebay lab --help)"),
            ("forebay serve", "CACHE is missing (see forebay serve --help)"),
            ("forebay create --origin o", "--cache DEV is missing (see forebay create --help)"),
            ("forebay add c", "--origin DEV, --name NAME are missing (see forebay add --help)"),
            ("forebay set c", "[VOLUME] KEY=VALUE is missing (see forebay set --help)"),
            ("forebay stats c v w", "`w` is one word too many (see forebay stats --help)"),
            (
                "forebay serve c --treads 2",
                "unknown option `--treads`; did you mean `--threads`? (see forebay serve --help)",
            ),
            ("forebay serve c --zzz", "unknown option `--zzz` (see forebay serve --help)"),
            ("forebay dump c --segment", "--segment N has no value (see forebay dump --help)"),
            (
                "forebay dump c --segment x",
                "--segment N cannot be `x`: give a whole number (see forebay dump --help)",
            ),
            (
                "forebay serve c --clients 0",
                "--clients N cannot be `0`: give 1 to 65536 (see forebay serve --help)",
            ),
            (
                "forebay lab verify --runs 0",
                "--runs N cannot be `0`: give 1 or more (see forebay lab verify --help)",
            ),
            (
                "forebay lab advise t --sample 0",
                "--sample N cannot be `0`: give 1 or more (see forebay lab advise --help)",
            ),
            (
                "forebay attach c --door usb",
                "--door nbd|ublk cannot be `usb`: there are nbd, ublk (see forebay attach --help)",
            ),
            (
                "forebay serve c --memory x",
                "--memory SIZE: `x` is not a size; write a whole number with a suffix, for example 64K, 100M, 8G or 1T \
                 (see forebay serve --help)",
            ),
            (
                "forebay stats c --json --json",
                "--json is given twice; give it once (see forebay stats --help)",
            ),
            (
                "forebay warm c --trace t --range 0+1",
                "--trace FILE does not go together with --range OFFSET+LENGTH (see forebay warm --help)",
            ),
        ] {
            assert_eq!(said(words), expected);
        }
    }
}
