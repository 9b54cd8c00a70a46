//! A composition: what a cache is, as one choice on each axis and the tunables of those choices.
//!
//! Every published cache is a point in this space; so is our own. A composition is plain data. It is
//! checked against the couplings ([`Composition::validate`]), says what it promises
//! ([`Composition::contract`]), and has one text ([`Composition::text`]) that is stored with the
//! cache, so that a cache needs no profile once it is made.
//!
//! | file | holds |
//! | --- | --- |
//! | `axes.rs` | the axes, and the data of each choice |
//! | `choices.rs` | the choices by name |
//! | `keys.rs` | every tunable: unit, default, range, meaning, source |
//! | `rules.rs` | which choices do not go together, and why |
//! | `contract.rs` | what survives a crash |
//! | `support.rs` | what of all this the engine carries out |
//! | `stored.rs` | a composition as it is kept with a cache |
//! | `points.rs` | all compositions, for tests that walk the whole space |

pub mod axes;
pub mod choices;
pub mod contract;
pub mod keys;
pub mod points;
pub mod rules;
pub mod stored;
pub mod support;

use crate::effect::WriteMode;
use crate::policies::admission::always::AlwaysChoice;
use crate::policies::admission::{AdmissionChoice, CutoffChoice};
use crate::policies::fetch::Fetch;
use crate::policies::replacement::ReplacementChoice;
use crate::policies::replacement::fifo_reinsertion::{FifoReinsertion, Reinsertion};
use crate::units::crc32c;
use alloc::string::String;
use axes::{Axis, Common, DestageChoice, OrderChoice, PersistenceChoice, Placement, Sweep, WritesChoice};
use core::fmt::Write;
use keys::{KEYS, Key, Value};
use rules::{COUPLINGS, Coupling};
use thiserror::Error;

/// The first line of the text form.
const TITLE: &str = "forebay composition 1";
/// The longest text that is looked at; all that there are are shorter.
pub const TEXT_BYTES_MAX: usize = 4096;

/// One choice on each axis, with its tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Composition {
    /// Where a block may lie.
    pub placement: Placement,
    /// Whether a miss enters.
    pub admission: AdmissionChoice,
    /// Which requests pass by before admission is asked.
    pub cutoff: CutoffChoice,
    /// Which frame or segment leaves.
    pub replacement: ReplacementChoice,
    /// How a new volume treats writes.
    pub write_mode: WriteMode,
    /// How writes are handled that are not whole.
    pub writes: WritesChoice,
    /// The way in which the cache's content is made durable.
    pub persistence: PersistenceChoice,
    /// When which dirty blocks go home.
    pub destage: DestageChoice,
    /// The range that a miss reads, and whether the request waits for the fill.
    pub fetch: Fetch,
    /// The states that an origin goes through while dirty data goes home.
    pub order: OrderChoice,
    /// Tunables of every cache.
    pub common: Common,
    /// Promises what a disk promises, where the published system does not. Changes no value: it is asked where a
    /// promise would be given up.
    pub safe: bool,
}

/// Why a choice or a tunable cannot be set so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetError {
    /// There is nothing of that name.
    #[error("there is no {name}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The axis has no such choice.
    #[error("{} = {value}: there are {}", .axis.name(), Choices(*.axis))]
    UnknownChoice {
        /// The axis.
        axis: Axis,
        /// The value that was asked for.
        value: String,
    },
    /// Nothing is chosen that has this tunable.
    #[error("{} is nothing that {} = {choice} has", .key.name, .axis.name())]
    NotOfChoice {
        /// The tunable.
        key: &'static Key,
        /// Its axis.
        axis: Axis,
        /// The choice there.
        choice: &'static str,
    },
    /// It is not of the kind that the tunable has.
    #[error("{} = {value}: it must be {}", .key.name, .key.allowed())]
    Malformed {
        /// The tunable.
        key: &'static Key,
        /// The value that was asked for.
        value: String,
    },
    /// It is less than the least, more than the most, or between two possible values.
    #[error("{} = {value} is not allowed: it must be {}", .key.name, .key.allowed())]
    OutOfRange {
        /// The tunable.
        key: &'static Key,
        /// The value that was asked for.
        value: String,
    },
}

/// Prints the choices of an axis.
struct Choices(Axis);

impl core::fmt::Display for Choices {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (at, choice) in self.0.choices().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, choice.name)?;
        }
        Ok(())
    }
}

/// Why a text is not that of a composition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// It is longer than any.
    #[error("the text of a composition is longer than {TEXT_BYTES_MAX} bytes")]
    TooLong,
    /// Another line belongs here, or none.
    #[error("line {line} of the composition: {expected} is missing")]
    Missing {
        /// Counted from 1.
        line: usize,
        /// The name that belongs there.
        expected: &'static str,
    },
    /// Something follows the last line.
    #[error("line {line} of the composition: nothing more belongs there")]
    Surplus {
        /// Counted from 1.
        line: usize,
    },
    /// A value is not allowed.
    #[error("line {line} of the composition: {error}")]
    Value {
        /// Counted from 1.
        line: usize,
        /// Why.
        error: SetError,
    },
    /// Two choices do not go together.
    #[error("{}: {} ({})", .0.name, .0.rule, .0.why)]
    Coupling(&'static Coupling),
}

impl Composition {
    /// Whether a volume's blocks can be kept from leaving for those of others: in a ring that appends some again.
    #[must_use]
    pub fn keeps_minimums(&self) -> bool {
        let keeps = |reinsertion: Reinsertion| FifoReinsertion::new(reinsertion).keeps_any();
        let has_frames = matches!(self.persistence, PersistenceChoice::Frames(_));
        !has_frames
            && matches!(self.replacement, ReplacementChoice::FifoReinsertion(reinsertion) if keeps(reinsertion))
    }

    /// Our own.
    #[must_use]
    pub fn forebay() -> Composition {
        let mut composition = Composition::plain_log();
        for (name, value) in [
            ("admission", "room-or-second-read"),
            ("writes", "merge-or-bypass"),
            ("fetch", "neighbourhood"),
            ("laps_max", "1"),
            ("keep_percent", "75"),
            ("credit_percent", "12"),
        ] {
            composition.set(name, value).expect("names and values of the tables");
        }
        composition
    }

    /// A log with data and records in one write, which is otherwise as simple as can be.
    #[must_use]
    pub fn plain_log() -> Composition {
        let mut composition = Composition {
            placement: Placement::Log { false_dirty_bytes: 0 },
            admission: AdmissionChoice::Always(AlwaysChoice { ghost_pieces: 0 }),
            cutoff: CutoffChoice::default(),
            replacement: ReplacementChoice::FifoReinsertion(Reinsertion::NONE),
            write_mode: WriteMode::Writeback,
            writes: WritesChoice::Merge,
            persistence: PersistenceChoice::Inline,
            destage: DestageChoice::Sweep(Sweep { idle_ms: 0, destage_runs: 0 }),
            fetch: Fetch::Request { readahead_bytes: 0 },
            order: OrderChoice::Free,
            common: Common { flush_after_ms: 0, backoff_ms: 0, absent_ms: 0 },
            safe: true,
        };
        for key in KEYS {
            key.put(&mut composition, key.default);
        }
        composition
    }

    /// Slots of 4 KiB in sets of 512, which are otherwise as simple as can be.
    #[must_use]
    pub fn plain_slots() -> Composition {
        let mut composition = Composition::plain_log();
        for (name, value) in [
            ("placement", "slots"),
            ("replacement", "fifo"),
            ("writes", "in-place"),
            ("persistence", "sync-sector"),
            ("slot_bytes", "4096"),
            ("ways", "512"),
            ("splits_requests", "false"),
        ] {
            composition.set(name, value).expect("names and values of the tables");
        }
        composition
    }

    /// Makes the choice of that name on an axis, with the defaults of its tunables.
    ///
    /// # Errors
    /// [`SetError::UnknownChoice`].
    pub fn choose(&mut self, axis: Axis, name: &str) -> Result<(), SetError> {
        let choice = axis.choice(name).ok_or_else(|| SetError::UnknownChoice { axis, value: name.into() })?;
        choice.choose(self);
        Ok(())
    }

    /// Sets an axis or a tunable by its name.
    ///
    /// # Errors
    /// Any [`SetError`]; then nothing has changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SetError> {
        if let Some(axis) = Axis::ALL.into_iter().find(|axis| axis.name() == name) {
            return self.choose(axis, value);
        }
        let key = Key::named(name).ok_or_else(|| SetError::Unknown { name: name.into() })?;
        let number = key.parse(value)?;
        if let (None, Some(axis)) = (key.get(self), key.axis) {
            return Err(SetError::NotOfChoice { key, axis, choice: self.choice(axis).name });
        }
        key.put(self, number);
        Ok(())
    }

    /// The tunables that this composition has, with their values.
    pub fn tunables(&self) -> impl Iterator<Item = (&'static Key, Value)> {
        KEYS.iter().filter_map(|key| key.get(self).map(|value| (key, key.show(value))))
    }

    /// Whether its choices go together.
    ///
    /// # Errors
    /// The first coupling that is broken.
    pub fn validate(&self) -> Result<(), &'static Coupling> {
        COUPLINGS.iter().find(|coupling| coupling.is_broken(self)).map_or(Ok(()), Err)
    }

    /// Its text: a line for each axis and each tunable, in a fixed order. The same composition has the
    /// same text, and [`Composition::parse`] reads no other.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn core::fmt::Display| {
            writeln!(text, "{name} = {value}").expect("a string takes everything");
        };
        line("safe", &self.safe);
        Axis::ALL.into_iter().for_each(|axis| line(axis.name(), &self.choice(axis).name));
        self.tunables().for_each(|(key, value)| line(key.name, &value));
        text.insert(0, '\n');
        text.insert_str(0, TITLE);
        text
    }

    /// Reads a text from any source.
    ///
    /// # Errors
    /// [`ParseError`], for everything but what [`Composition::text`] answers for a possible composition.
    pub fn parse(text: &str) -> Result<Composition, ParseError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ParseError::TooLong);
        }
        let mut lines = Lines { rest: text, line: 0 };
        lines.expect_line(TITLE)?;
        let mut composition = Composition::plain_log();
        composition.safe = match lines.value("safe")? {
            "true" => true,
            "false" => false,
            _ => return Err(ParseError::Missing { line: lines.line, expected: "safe" }),
        };
        for axis in Axis::ALL {
            let name = lines.value(axis.name())?;
            composition.choose(axis, name).map_err(|error| lines.refuse(error))?;
        }
        let chosen = composition;
        for key in KEYS.iter().filter(|key| key.get(&chosen).is_some()) {
            let value = lines.value(key.name)?;
            composition.set(key.name, value).map_err(|error| lines.refuse(error))?;
        }
        if !lines.rest.is_empty() {
            return Err(ParseError::Surplus { line: lines.line + 1 });
        }
        composition.validate().map_err(ParseError::Coupling)?;
        Ok(composition)
    }

    /// A checksum of its text: two caches with one are the same kind of cache.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        crc32c(self.text().as_bytes())
    }
}

/// The lines of a text.
struct Lines<'a> {
    rest: &'a str,
    /// The last one taken, counted from 1.
    line: usize,
}

impl<'a> Lines<'a> {
    /// The next line, which ends with a newline.
    fn take(&mut self, expected: &'static str) -> Result<&'a str, ParseError> {
        self.line += 1;
        let (line, rest) =
            self.rest.split_once('\n').ok_or(ParseError::Missing { line: self.line, expected })?;
        self.rest = rest;
        Ok(line)
    }

    fn expect_line(&mut self, whole: &'static str) -> Result<(), ParseError> {
        if self.take(whole)? == whole {
            return Ok(());
        }
        Err(ParseError::Missing { line: self.line, expected: whole })
    }

    /// The value of the next line, which is that of `name`.
    fn value(&mut self, name: &'static str) -> Result<&'a str, ParseError> {
        let line = self.take(name)?;
        let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(" = "));
        value.ok_or(ParseError::Missing { line: self.line, expected: name })
    }

    fn refuse(&self, error: SetError) -> ParseError {
        ParseError::Value { line: self.line, error }
    }
}

#[cfg(test)]
mod tests;
