//! Reading a disk file.
//!
//! The files are TOML, of which this reader knows what they need and refuses the rest: `key = value`
//! lines, where a value is a whole number (`_` between digits allowed), `true` or `false`, a
//! string in double quotes without escapes, or a list of numbers on one line; and comments.

use crate::parameters::{HddParameters, Kind, Media, ParameterError, Parameters, SsdParameters, Value};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The reason why a disk file was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1; 0 if it is about the file as a whole.
    pub line: usize,
    /// The error.
    pub kind: ParseErrorKind,
}

/// Kinds of errors in a disk file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Not a `key = value` line, or not a value that the files use.
    Syntax,
    /// The key stood in an earlier line.
    Repeated,
    /// The value of `kind` is neither `"hdd"` nor `"ssd"`.
    Kind,
    /// A key that every disk of its kind has is not there.
    Missing(&'static str),
    /// The value does not go with the key.
    Parameter(ParameterError),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "Line {}: ", self.line)?;
        }
        match self.kind {
            ParseErrorKind::Syntax => f.write_str("Not a key with a number, flag, string or list"),
            ParseErrorKind::Repeated => f.write_str("The key was given before"),
            ParseErrorKind::Kind => f.write_str("The kind of a disk is \"hdd\" or \"ssd\""),
            ParseErrorKind::Missing(key) => write!(f, "The key {key} is missing"),
            ParseErrorKind::Parameter(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ParseError {}

/// A value as it stands in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written<'a> {
    Text(&'a str),
    /// A number, a flag, or the inside of a list.
    Plain(&'a str),
    List(&'a str),
}

/// A `key = value` line.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    number: usize,
    key: &'a str,
    value: Written<'a>,
}

impl Line<'_> {
    fn error(&self, kind: ParseErrorKind) -> ParseError {
        ParseError { line: self.number, kind }
    }
}

impl Parameters {
    /// Reads the disk file `text`. `name` becomes the disk's name.
    ///
    /// # Errors
    /// With the line that is not understood, or the key that is missing. Never panics.
    pub fn parse(name: &str, text: &str) -> Result<Parameters, ParseError> {
        let lines = read_lines(text)?;
        let find = |key: &'static str| {
            let missing = ParseError { line: 0, kind: ParseErrorKind::Missing(key) };
            lines.iter().find(|line| line.key == key).copied().ok_or(missing)
        };
        let kind_line = find("kind")?;
        let (media, keys) = match kind_line.value {
            Written::Text(kind) if kind == Kind::Hdd.name() => {
                (Media::Hdd(HddParameters::default()), HddParameters::KEYS)
            }
            Written::Text(kind) if kind == Kind::Ssd.name() => {
                (Media::Ssd(SsdParameters::default()), SsdParameters::KEYS)
            }
            _ => return Err(kind_line.error(ParseErrorKind::Kind)),
        };
        let mut parameters = Parameters {
            name: name.to_owned(),
            description: text_of(find("description")?)?,
            calibrated: flag_of(find("calibrated")?)?,
            size_bytes: number_of(find("size_bytes")?)?,
            media,
        };
        for key in keys {
            find(key)?;
        }
        for line in &lines {
            if matches!(line.key, "kind" | "description" | "calibrated" | "size_bytes") {
                continue;
            }
            let value = value_of(*line)?;
            parameters
                .set_alone(line.key, value)
                .map_err(|error| line.error(ParseErrorKind::Parameter(error)))?;
        }
        let whole = |error| ParseError { line: 0, kind: ParseErrorKind::Parameter(error) };
        parameters.validate().map_err(whole)?;
        Ok(parameters)
    }
}

fn read_lines(text: &str) -> Result<Vec<Line<'_>>, ParseError> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let number = index + 1;
        let error = |kind| ParseError { line: number, kind };
        let raw = raw.trim_ascii();
        if raw.is_empty() || raw.starts_with('#') {
            continue;
        }
        let (key, rest) = raw.split_once('=').ok_or(error(ParseErrorKind::Syntax))?;
        let value = read_value(rest.trim_ascii()).ok_or(error(ParseErrorKind::Syntax))?;
        let line = Line { number, key: key.trim_ascii(), value };
        if lines.iter().any(|earlier| earlier.key == line.key) {
            return Err(error(ParseErrorKind::Repeated));
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Cuts a value from the comment that may follow it.
fn read_value(rest: &str) -> Option<Written<'_>> {
    let (value, after) = if let Some(quoted) = rest.strip_prefix('"') {
        let (inside, after) = quoted.split_once('"')?;
        if inside.contains('\\') {
            return None;
        }
        (Written::Text(inside), after)
    } else if let Some(bracketed) = rest.strip_prefix('[') {
        let (inside, after) = bracketed.split_once(']')?;
        (Written::List(inside), after)
    } else {
        let end = rest.find('#').unwrap_or(rest.len());
        (Written::Plain(rest[..end].trim_ascii()), &rest[end..])
    };
    let after = after.trim_ascii();
    (after.is_empty() || after.starts_with('#')).then_some(value)
}

fn value_of(line: Line<'_>) -> Result<Value, ParseError> {
    let syntax = line.error(ParseErrorKind::Syntax);
    match line.value {
        Written::Text(_) => Err(line.error(ParseErrorKind::Parameter(ParameterError::WrongType))),
        Written::Plain("true") => Ok(Value::Flag(true)),
        Written::Plain("false") => Ok(Value::Flag(false)),
        Written::Plain(word) => read_number(word).map(Value::Number).ok_or(syntax),
        Written::List(inside) => {
            let entries = inside.trim_ascii();
            let entries = entries.strip_suffix(',').unwrap_or(entries).split(',');
            let numbers: Option<Vec<u64>> = entries.map(|entry| read_number(entry.trim_ascii())).collect();
            numbers.map(Value::Numbers).ok_or(syntax)
        }
    }
}

fn read_number(word: &str) -> Option<u64> {
    // As in TOML: an underscore stands between two digits.
    let misplaced = word.starts_with('_') || word.ends_with('_') || word.contains("__");
    if misplaced || !word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        return None;
    }
    let mut number: u64 = 0;
    let mut digits = word.bytes().filter(u8::is_ascii_digit).peekable();
    digits.peek()?;
    for digit in digits {
        number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(number)
}

fn text_of(line: Line<'_>) -> Result<String, ParseError> {
    match line.value {
        Written::Text(text) => Ok(text.to_owned()),
        _ => Err(line.error(ParseErrorKind::Parameter(ParameterError::WrongType))),
    }
}

fn flag_of(line: Line<'_>) -> Result<bool, ParseError> {
    match value_of(line)? {
        Value::Flag(flag) => Ok(flag),
        _ => Err(line.error(ParseErrorKind::Parameter(ParameterError::WrongType))),
    }
}

/// The size: a number that is not 0.
fn number_of(line: Line<'_>) -> Result<u64, ParseError> {
    match value_of(line)? {
        Value::Number(0) => Err(line.error(ParseErrorKind::Parameter(ParameterError::OutOfRange {
            value: 0,
            min: 1,
            max: u64::MAX,
        }))),
        Value::Number(number) => Ok(number),
        _ => Err(line.error(ParseErrorKind::Parameter(ParameterError::WrongType))),
    }
}

#[cfg(test)]
mod tests {
    use super::{ParseError, ParseErrorKind};
    use crate::parameters::{Media, ParameterError, Parameters};
    use std::string::{String, ToString};

    const GOOD: &str = include_str!("../devices/hdd.toml");

    fn error_of(text: &str) -> ParseError {
        Parameters::parse("x", text).unwrap_err()
    }

    fn with_line(line: &str) -> String {
        std::format!("{GOOD}\n{line}\n")
    }

    #[test]
    fn values_are_read_with_their_comments_cut_off() {
        let text = GOOD.replace("rpm = 7200", "  rpm=7_200# comment");
        assert_ne!(text, GOOD);
        let parameters = Parameters::parse("x", &text).unwrap();
        let Media::Hdd(hdd) = parameters.media else { panic!("a hard disk") };
        assert_eq!(hdd.rpm, 7200);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        let last = GOOD.lines().count() + 2;
        let cases = [
            ("nonsense", ParseErrorKind::Syntax),
            ("[table]", ParseErrorKind::Syntax),
            ("key = ", ParseErrorKind::Syntax),
            ("key = 1 2", ParseErrorKind::Syntax),
            ("key = 1__0", ParseErrorKind::Syntax),
            ("key = -1", ParseErrorKind::Syntax),
            ("key = 1.5", ParseErrorKind::Syntax),
            ("key = 99999999999999999999", ParseErrorKind::Syntax),
            ("key = [1, 2", ParseErrorKind::Syntax),
            ("key = [1,, 2]", ParseErrorKind::Syntax),
            ("key = [1,,]", ParseErrorKind::Syntax),
            ("key = \"open", ParseErrorKind::Syntax),
            ("key = \"a\\n\"", ParseErrorKind::Syntax),
            ("key = \"a\" b", ParseErrorKind::Syntax),
            ("rpm = 7200", ParseErrorKind::Repeated),
            ("channels = 4", ParseErrorKind::Parameter(ParameterError::Unknown)),
        ];
        for (line, kind) in cases {
            let error = error_of(&with_line(line));
            assert_eq!(error, ParseError { line: last, kind }, "{line}");
            assert!(error.to_string().starts_with("Line "));
        }
    }

    #[test]
    fn every_key_must_be_there() {
        for (index, line) in GOOD.lines().enumerate() {
            let Some((key, _)) = line.split_once(" =") else { continue };
            if line.starts_with('#') {
                continue;
            }
            let text: String = GOOD
                .lines()
                .enumerate()
                .filter(|(at, _)| *at != index)
                .map(|(_, line)| line.to_string() + "\n")
                .collect();
            let ParseErrorKind::Missing(missing) = error_of(&text).kind else { panic!("{key} is needed") };
            assert_eq!(missing, key);
        }
    }

    /// Goal: no text makes the reader panic. Method: the good file with bytes changed at random.
    #[test]
    fn damaged_files_never_panic() {
        let mut state = 1u64;
        for _ in 0..3000 {
            let mut bytes = GOOD.as_bytes().to_vec();
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = b"=[]\"#_,9ae\n\\"[(state >> 20) as usize % 12];
            }
            let _ = Parameters::parse("x", &String::from_utf8_lossy(&bytes));
        }
    }
}
