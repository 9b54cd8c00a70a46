//! Parameters of a disk: names, units, limits and meaning of every number in `models/devices`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Entries that a list in a disk file may have.
const LIST_MAX: usize = 64;

/// Which way a disk works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A hard disk: one arm over turning platters.
    Hdd,
    /// A solid-state disk.
    Ssd,
}

impl Kind {
    /// The kind's name in disk files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hdd => "hdd",
            Kind::Ssd => "ssd",
        }
    }
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, in the parameter's unit.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// Several numbers, in the parameter's unit.
    Numbers(Vec<u64>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Flag(flag) => flag.fmt(f),
            Value::Numbers(numbers) => f.debug_list().entries(numbers).finish(),
        }
    }
}

/// One parameter of a disk, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name, as in the disk file.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// The value's unit; empty for flags.
    pub unit: &'static str,
    /// Its meaning, in one sentence.
    pub meaning: &'static str,
}

/// Why a parameter was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterError {
    /// This kind of disk has no parameter of that name.
    Unknown,
    /// A number was given for a flag, or the like.
    WrongType,
    /// The number is outside its limits.
    OutOfRange {
        /// The given value.
        value: u64,
        /// The smallest allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A list has no entries, or too many.
    ListLength {
        /// How many it has.
        entries: usize,
    },
    /// Seek times must not fall with the distance.
    SeekOrder,
    /// Zones must begin at 0, in rising order, with as many starts as rates.
    Zones,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Unknown => f.write_str("No such parameter for this kind of disk"),
            ParameterError::WrongType => f.write_str("The value is of the wrong type"),
            ParameterError::OutOfRange { value, min, max } => {
                write!(f, "{value} is outside {min} to {max}")
            }
            ParameterError::ListLength { entries } => {
                write!(f, "A list has 1 to {LIST_MAX} entries, this one has {entries}")
            }
            ParameterError::SeekOrder => {
                f.write_str("Seek times must rise from track to track over average to full stroke")
            }
            ParameterError::Zones => {
                f.write_str("Zones must begin at 0 and rise, with one rate for each start")
            }
        }
    }
}

impl core::error::Error for ParameterError {}

/// The limits of a parameter's numbers.
#[derive(Clone, Copy, Debug)]
struct Limits {
    min: u64,
    max: u64,
}

impl Limits {
    fn check(self, value: u64) -> Result<(), ParameterError> {
        if (self.min..=self.max).contains(&value) {
            return Ok(());
        }
        Err(ParameterError::OutOfRange { value, min: self.min, max: self.max })
    }
}

/// A Rust type that a parameter can have.
trait Field {
    fn load(&self) -> Value;
    fn store(&mut self, value: Value) -> Result<(), ParameterError>;
    fn check(&self, limits: Limits) -> Result<(), ParameterError>;
}

impl Field for u64 {
    fn load(&self) -> Value {
        Value::Number(*self)
    }

    fn store(&mut self, value: Value) -> Result<(), ParameterError> {
        let Value::Number(number) = value else { return Err(ParameterError::WrongType) };
        *self = number;
        Ok(())
    }

    fn check(&self, limits: Limits) -> Result<(), ParameterError> {
        limits.check(*self)
    }
}

impl Field for bool {
    fn load(&self) -> Value {
        Value::Flag(*self)
    }

    fn store(&mut self, value: Value) -> Result<(), ParameterError> {
        let Value::Flag(flag) = value else { return Err(ParameterError::WrongType) };
        *self = flag;
        Ok(())
    }

    fn check(&self, limits: Limits) -> Result<(), ParameterError> {
        limits.check(u64::from(*self))
    }
}

impl Field for Vec<u64> {
    fn load(&self) -> Value {
        Value::Numbers(self.clone())
    }

    fn store(&mut self, value: Value) -> Result<(), ParameterError> {
        let Value::Numbers(numbers) = value else { return Err(ParameterError::WrongType) };
        *self = numbers;
        Ok(())
    }

    fn check(&self, limits: Limits) -> Result<(), ParameterError> {
        if self.is_empty() || self.len() > LIST_MAX {
            return Err(ParameterError::ListLength { entries: self.len() });
        }
        self.iter().try_for_each(|number| limits.check(*number))
    }
}

/// Declares a set of parameters once: fields, names, units, limits and meanings.
macro_rules! parameters {
    ($(#[$about:meta])* $name:ident { $(#[doc = $meaning:literal] $key:ident: $type:ty, $unit:literal, $min:literal, $max:expr;)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $meaning] pub $key: $type,)*
        }

        impl $name {
            /// The names of all parameters, in the order of reports.
            pub(crate) const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn describe(&self) -> Vec<Described> {
                alloc::vec![$(Described {
                    key: stringify!($key),
                    value: self.$key.load(),
                    unit: $unit,
                    meaning: $meaning.trim_ascii(),
                }),*]
            }

            fn set(&mut self, key: &str, value: Value) -> Result<(), ParameterError> {
                match key {
                    $(stringify!($key) => {
                        self.$key.store(value)?;
                        self.$key.check(Limits { min: $min, max: $max })
                    })*
                    _ => Err(ParameterError::Unknown),
                }
            }

            fn check_limits(&self) -> Result<(), ParameterError> {
                $(self.$key.check(Limits { min: $min, max: $max })?;)*
                Ok(())
            }
        }
    };
}

parameters! {
    /// A hard disk. Units are in the names; what the model does with them is in [`crate::hdd`].
    HddParameters {
        /// Revolutions of the platters.
        rpm: u64, "1/min", 1000, 20_000;
        /// Seek to the next track, settling included.
        seek_track_to_track_us: u64, "us", 0, 100_000;
        /// Seek over the distance of the knee, which a data sheet calls the average seek.
        seek_average_us: u64, "us", 0, 100_000;
        /// Seek from the outermost track to the innermost.
        seek_full_stroke_us: u64, "us", 0, 200_000;
        /// Distance up to which the seek time grows with the root, and beyond which it grows linearly.
        seek_knee_permille: u64, "1/1000 of the full stroke", 1, 999;
        /// What settling for a write takes longer than for a read.
        write_settle_us: u64, "us", 0, 100_000;
        /// Where each zone begins, outermost first.
        zone_start_permille: Vec<u64>, "1/1000 of the disk", 0, 999;
        /// Rate of the medium in each zone.
        zone_mb_per_s: Vec<u64>, "MB/s", 1, 20_000;
        /// Time the controller spends on each command.
        command_us: u64, "us", 0, 100_000;
        /// Rate of the interface.
        interface_mb_per_s: u64, "MB/s", 1, 100_000;
        /// Commands the disk takes at once and may reorder.
        queue_depth: u64, "commands", 1, 65_536;
        /// Age beyond which a command is served before shorter ways.
        age_limit_ms: u64, "ms", 1, 100_000;
        /// Memory for what was read and read ahead; 0 for none.
        read_buffer_bytes: u64, "bytes", 0, 1 << 32;
        /// Streams among which that memory is divided.
        read_segments: u64, "streams", 1, 1 << 20;
        /// Read beyond each request before the head goes elsewhere.
        read_beyond_bytes: u64, "bytes", 0, 1 << 30;
        /// Volatile write cache; 0 when it is off.
        write_cache_bytes: u64, "bytes", 0, 1 << 34;
        /// Separate places for which the write cache can hold data.
        write_cache_runs: u64, "places", 1, 1 << 20;
        /// Places that come next in the elevator's order, from which the nearest in time is written first.
        write_choices: u64, "places", 1, 1024;
        /// Requests served in a row while writes wait for room.
        read_turn_requests: u64, "requests", 1, 65_536;
        /// Places written behind in a row while reads wait, if writes wait for room.
        write_turn_places: u64, "places", 1, 65_536;
        /// Pause of the reads after which writing behind begins, while the cache is less than half full.
        write_cache_idle_ms: u64, "ms", 0, 10_000;
    }
}

parameters! {
    /// A solid-state disk. Units are in the names; what the model does with them is in
    /// [`crate::ssd`].
    SsdParameters {
        /// Pages that can be read or programmed at the same time.
        channels: u64, "channels", 1, 1024;
        /// What a channel reads or programs at once.
        page_bytes: u64, "bytes", 512, 1 << 22;
        /// Time to read a page.
        read_us: u64, "us", 0, 100_000;
        /// Time to program a page.
        program_us: u64, "us", 1, 1_000_000;
        /// Rate of the interface, both directions together.
        interface_mb_per_s: u64, "MB/s", 1, 100_000;
        /// Time for which each command but a write keeps the interface busy, besides its data.
        command_ns: u64, "ns", 0, 1_000_000;
        /// Time for which each write keeps the interface busy, besides its data.
        write_command_ns: u64, "ns", 0, 1_000_000;
        /// Time a read spends in the controller without keeping anything busy.
        read_latency_us: u64, "us", 0, 1_000_000;
        /// Time a write spends in the controller without keeping anything busy.
        write_latency_us: u64, "us", 0, 1_000_000;
        /// Time a flush takes when there is nothing to write.
        flush_us: u64, "us", 0, 1_000_000;
        /// Whether a flush must be alone in the queue, as on SATA.
        flush_exclusive: bool, "", 0, 1;
        /// Commands the disk takes at once.
        queue_depth: u64, "commands", 1, 65_536;
        /// Write buffer; 0 when it is off.
        write_cache_bytes: u64, "bytes", 0, 1 << 34;
        /// Pages of the host's that a channel does in a row while writes wait for room.
        read_turn_pages: u64, "pages", 1, 65_536;
        /// Pages that a channel programs in a row while reads wait, if writes wait for room.
        write_turn_pages: u64, "pages", 1, 65_536;
        /// Whether the write buffer survives a power cut, so that a flush need not wait.
        power_loss_protection: bool, "", 0, 1;
        /// How much is read ahead of a stream of reads; 0 for nothing.
        read_ahead_bytes: u64, "bytes", 0, 1 << 30;
        /// What is erased at once, over all channels; less on a small disk.
        erase_block_bytes: u64, "bytes", 4096, 1 << 30;
        /// Time to erase a block.
        erase_us: u64, "us", 0, 1_000_000;
        /// Flash beyond the size of the disk.
        spare_permille: u64, "1/1000 of the size", 1, 1000;
        /// How much of the disk, from its beginning, was written before it came to us.
        fill_permille: u64, "1/1000", 0, 1000;
        /// Whether that was written, and written again, in any order, so that no block is free and none is all valid.
        fill_scattered: bool, "", 0, 1;
    }
}

/// The parameters that only one kind of disk has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Media {
    /// The parameters of a hard disk.
    Hdd(HddParameters),
    /// The parameters of a solid-state disk.
    Ssd(SsdParameters),
}

/// All that describes a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The name by which it is found.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// Whether the numbers were fitted to measurements of the disk, or only taken from data sheets.
    pub calibrated: bool,
    /// The size it is sold with.
    pub size_bytes: u64,
    /// The rest.
    pub media: Media,
}

impl Parameters {
    /// The kind of disk.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.media {
            Media::Hdd(_) => Kind::Hdd,
            Media::Ssd(_) => Kind::Ssd,
        }
    }

    /// Every parameter of the kind, with its value, unit and meaning.
    #[must_use]
    pub fn describe(&self) -> Vec<Described> {
        match &self.media {
            Media::Hdd(hdd) => hdd.describe(),
            Media::Ssd(ssd) => ssd.describe(),
        }
    }

    /// Changes one parameter. Every disk has `write_cache_bytes`, where 0 is off.
    ///
    /// # Errors
    /// If the kind has no such parameter, the value is of another type or outside its limits, or
    /// does not go with the others. Then nothing has changed.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), ParameterError> {
        let mut changed = self.clone();
        changed.set_alone(key, value)?;
        changed.validate()?;
        *self = changed;
        Ok(())
    }

    /// Changes one parameter without looking at the others.
    pub(crate) fn set_alone(&mut self, key: &str, value: Value) -> Result<(), ParameterError> {
        match &mut self.media {
            Media::Hdd(hdd) => hdd.set(key, value),
            Media::Ssd(ssd) => ssd.set(key, value),
        }
    }

    /// Checks all limits, and that the parameters go together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ParameterError> {
        match &self.media {
            Media::Hdd(hdd) => {
                hdd.check_limits()?;
                if hdd.seek_track_to_track_us > hdd.seek_average_us
                    || hdd.seek_average_us > hdd.seek_full_stroke_us
                {
                    return Err(ParameterError::SeekOrder);
                }
                let starts = &hdd.zone_start_permille;
                if starts.len() != hdd.zone_mb_per_s.len()
                    || starts.first() != Some(&0)
                    || !starts.is_sorted_by(|one, next| one < next)
                {
                    return Err(ParameterError::Zones);
                }
                Ok(())
            }
            Media::Ssd(ssd) => ssd.check_limits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ParameterError, Value};
    use std::string::ToString;
    use std::vec;

    #[test]
    fn a_parameter_can_be_changed() {
        for name in ["hdd", "ssd"] {
            let mut parameters = crate::find(name).unwrap();
            parameters.set("write_cache_bytes", Value::Number(0)).unwrap();
            let described = parameters.describe();
            let cache = described.iter().find(|parameter| parameter.key == "write_cache_bytes").unwrap();
            assert_eq!(cache.value, Value::Number(0));
            assert_eq!(cache.unit, "bytes");
            assert!(cache.meaning.ends_with('.'));
        }
    }

    #[test]
    fn a_bad_value_is_refused_and_changes_nothing() {
        let mut parameters = crate::find("hdd").unwrap();
        let before = parameters.clone();
        let too_fast = ParameterError::OutOfRange { value: 99_999, min: 1000, max: 20_000 };
        let cases = [
            ("rpm", Value::Number(99_999), too_fast),
            ("rpm", Value::Flag(true), ParameterError::WrongType),
            ("channels", Value::Number(4), ParameterError::Unknown),
            ("seek_average_us", Value::Number(90_000), ParameterError::SeekOrder),
            ("zone_start_permille", Value::Numbers(vec![0, 500]), ParameterError::Zones),
            ("zone_mb_per_s", Value::Numbers(vec![]), ParameterError::ListLength { entries: 0 }),
        ];
        for (key, value, error) in cases {
            assert_eq!(parameters.set(key, value), Err(error), "{key}");
            assert!(!error.to_string().is_empty());
        }
        assert_eq!(parameters, before);
    }
}
