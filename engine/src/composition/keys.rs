//! Every tunable, said once: name, unit, default, range, meaning and source.
//!
//! Profiles, the command line, listings and the superblock's text know tunables by this table only. A
//! tunable belongs to one or a few choices of its axis and exists while one of them is chosen.

mod table;

use super::axes::Axis;
use super::{Composition, SetError};
use crate::number::{index_wide, wide};
use core::fmt;
pub use table::KEYS;

/// A tunable.
#[derive(Debug)]
pub struct Key {
    /// Its name, unique.
    pub name: &'static str,
    /// The axis to whose choices it belongs; `None`: to every composition.
    pub axis: Option<Axis>,
    /// The unit of its value.
    pub unit: Unit,
    /// Its value by default, as [`Key::show`] takes it.
    pub default: u64,
    /// The least it may be.
    pub least: u64,
    /// The most it may be.
    pub most: u64,
    /// The values that are possible between the two.
    pub grain: Grain,
    /// Its meaning.
    pub meaning: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
    get: fn(&Composition) -> Option<u64>,
    set: fn(&mut Composition, u64),
}

/// There is one key of a name.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.name == other.name
    }
}

impl Eq for Key {}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many of something; the word for them.
    Count(&'static str),
    /// True or false.
    Flag,
    /// One of these names; the value is its number.
    Name(&'static [&'static str]),
}

/// The values that are possible between the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Every number.
    Any,
    /// Multiples of this.
    Multiple(u64),
    /// Powers of two, and 0 if it is not below the least.
    PowerOfTwo,
}

/// A value, with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// True or false.
    Flag(bool),
    /// A name.
    Name(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Name(name) => f.write_str(name),
        }
    }
}

impl Key {
    /// The key of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Its value in a composition; `None`: nothing is chosen that has it.
    #[must_use]
    pub fn get(&self, composition: &Composition) -> Option<u64> {
        (self.get)(composition)
    }

    /// A value with its type.
    #[must_use]
    pub fn show(&self, value: u64) -> Value {
        match self.unit {
            Unit::Count(_) => Value::Number(value),
            Unit::Flag => Value::Flag(value != 0),
            Unit::Name(names) => Value::Name(names.get(index_wide(value)).copied().unwrap_or_default()),
        }
    }

    /// Sets it, if something is chosen that has it.
    pub(super) fn put(&self, composition: &mut Composition, value: u64) {
        (self.set)(composition, value);
    }

    /// Reads a value as the text form has it.
    ///
    /// # Errors
    /// [`SetError`], if it is none or not allowed.
    pub fn parse(&'static self, text: &str) -> Result<u64, SetError> {
        let malformed = || SetError::Malformed { key: self, value: text.into() };
        let value = match self.unit {
            Unit::Flag => u64::from(text.parse::<bool>().map_err(|_| malformed())?),
            Unit::Name(names) => wide(names.iter().position(|name| *name == text).ok_or_else(malformed)?),
            // One number has one text: no sign, no zeroes in front.
            Unit::Count(_) => match text.as_bytes() {
                [b'0'] => 0,
                [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {
                    text.parse().map_err(|_| SetError::OutOfRange { key: self, value: text.into() })?
                }
                _ => return Err(malformed()),
            },
        };
        let fits = match self.grain {
            Grain::Any => true,
            Grain::Multiple(of) => value.is_multiple_of(of),
            Grain::PowerOfTwo => value == 0 || value.is_power_of_two(),
        };
        if fits && (self.least..=self.most).contains(&value) {
            Ok(value)
        } else {
            Err(SetError::OutOfRange { key: self, value: text.into() })
        }
    }

    /// The allowed values, in words.
    #[must_use]
    pub fn allowed(&self) -> Allowed<'_> {
        Allowed(self)
    }
}

/// Prints the allowed values of a key.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'a>(&'a Key);

impl fmt::Display for Allowed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { unit, least, most, grain, .. } = self.0;
        match unit {
            Unit::Flag => f.write_str("true or false"),
            Unit::Name(names) => {
                for (at, name) in names.iter().enumerate() {
                    write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Unit::Count(word) => {
                write!(f, "{least} to {most} {word}")?;
                match grain {
                    Grain::Any => Ok(()),
                    Grain::Multiple(of) => write!(f, ", a multiple of {of}"),
                    Grain::PowerOfTwo => {
                        write!(f, ", a power of two{}", if *least == 0 { " or 0" } else { "" })
                    }
                }
            }
        }
    }
}

/// Gives the keys of an axis their defaults.
pub(super) fn set_defaults(composition: &mut Composition, axis: Axis) {
    for key in KEYS.iter().filter(|key| key.axis == Some(axis)) {
        key.put(composition, key.default);
    }
}
