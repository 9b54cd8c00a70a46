//! The arguments of `warm`, and those of `serve` about warm lists.

use super::{Places, Report, RunOptions, volume_name};
use clap::Args;
use engine::units::BLOCK_BYTES;
use lab::trace::{Format, Reading};
use live::devices::{self, DeviceSpec};
use std::path::PathBuf;
use std::str::FromStr;

/// Bytes that are read in a second at the most, unless another number is given.
pub const RATE_DEFAULT: u64 = 64 << 20;

/// `warm`.
#[derive(Debug, Args)]
pub struct Warm {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Only this volume; with a trace or a range it may be left out if there is only one.
    #[arg(value_name = "VOLUME", value_parser = volume_name)]
    pub volume: Option<String>,
    /// Bytes that are read in a second at the most [default: 64M].
    #[arg(long, value_name = "BYTES", value_parser = super::rate)]
    pub rate: Option<u64>,
    /// A warm list, to read what it names [default: the one that the daemon keeps of this cache].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "range"])]
    pub list: Option<PathBuf>,
    /// A trace of the volume, to read what it touches, the most touched first; compressed if its name ends with .zst,
    /// .xz or .gz.
    #[arg(long, value_name = "FILE", conflicts_with = "range")]
    pub trace: Option<PathBuf>,
    /// The format of the trace [default: as its name or its first line tells].
    #[arg(long, value_name = "FORMAT", value_parser = super::traces::format, requires = "trace")]
    pub format: Option<Format>,
    /// Bytes of what the trace counts in, if its format does not say it.
    #[arg(long, value_name = "BYTES", value_parser = devices::parse_size, requires = "trace")]
    pub unit: Option<u64>,
    /// A part of the volume to read, for example 0+1G; may be repeated.
    #[arg(long, value_name = "OFFSET+LENGTH")]
    pub range: Vec<ByteRange>,
    /// Show the progress on stderr even if that is no terminal.
    #[arg(long)]
    pub progress: bool,
    /// How it is run, if it is not running yet.
    #[command(flatten)]
    pub running: RunOptions,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

impl Warm {
    /// How the trace is read.
    #[must_use]
    pub fn reading(&self) -> Reading {
        Reading { format: self.format, unit_bytes: self.unit }
    }
}

/// The warm list of a daemon.
#[derive(Clone, Debug, Default, Args)]
pub struct Warming {
    /// Where the list of what is hot is kept: a file outside the cache, `state` for one in the state directory, or `off`
    /// [default: state for an ephemeral cache, off for any other].
    #[arg(long, value_name = "FILE|state|off")]
    pub warm_list: Option<ListPlace>,
    /// Bytes that are read in a second, at the most, to fill an ephemeral cache that was blank; `off` fills none
    /// [default: 64M].
    #[arg(long, value_name = "BYTES|off")]
    pub warm_rate: Option<WarmRate>,
}

/// Where a warm list is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListPlace {
    /// Nowhere.
    Off,
    /// In the state directory.
    State,
    /// In this file.
    File(PathBuf),
}

impl FromStr for ListPlace {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<ListPlace, Self::Err> {
        Ok(match text {
            "off" => ListPlace::Off,
            "state" => ListPlace::State,
            path => ListPlace::File(PathBuf::from(path)),
        })
    }
}

/// How fast a new cache is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmRate {
    /// Not at all.
    Off,
    /// So many bytes a second at the most.
    Bytes(u64),
}

impl FromStr for WarmRate {
    type Err = super::ValueError;

    fn from_str(text: &str) -> Result<WarmRate, Self::Err> {
        if text == "off" { Ok(WarmRate::Off) } else { super::rate(text).map(WarmRate::Bytes) }
    }
}

/// A part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

impl ByteRange {
    /// The blocks that it touches: the first one, and how many.
    #[must_use]
    pub fn blocks(&self) -> (u64, u64) {
        let first = self.offset_bytes / BLOCK_BYTES;
        (first, (self.offset_bytes + self.len_bytes).div_ceil(BLOCK_BYTES) - first)
    }
}

/// Reason why a text is no range.
#[derive(Debug, thiserror::Error)]
#[error("write a range as OFFSET+LENGTH, for example 0+1G or 10G+512M")]
pub struct RangeError;

impl FromStr for ByteRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<ByteRange, RangeError> {
        let (offset, length) = text.split_once('+').ok_or(RangeError)?;
        let size = |text: &str| match text {
            "0" => Ok(0),
            text => devices::parse_size(text).map_err(|_| RangeError),
        };
        let (offset_bytes, len_bytes) = (size(offset)?, size(length)?);
        if len_bytes == 0 || offset_bytes.checked_add(len_bytes).is_none() {
            return Err(RangeError);
        }
        Ok(ByteRange { offset_bytes, len_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_an_offset_and_a_length() {
        let range: ByteRange = "0+1G".parse().expect("a range");
        assert_eq!(range, ByteRange { offset_bytes: 0, len_bytes: 1 << 30 });
        assert_eq!(range.blocks(), (0, 1 << 18));
        let odd: ByteRange = "5K+1K".parse().expect("a range");
        assert_eq!(odd.blocks(), (1, 1));
        for wrong in ["1G", "0+0", "+", "a+1", "1+b", "16383P+16383P"] {
            assert!(wrong.parse::<ByteRange>().is_err(), "{wrong}");
        }
    }
}
