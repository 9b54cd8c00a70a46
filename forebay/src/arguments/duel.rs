//! The arguments of `lab duel`.

use super::CACHE_BYTES_MAX;
use super::traces::{self, Disks};
use super::{Report, mode};
use crate::profile;
use clap::Args;
use engine::effect::WriteMode;
use lab::duel::SizeWanted;
use lab::replay::CACHE_BYTES_MIN;
use lab::trace::{Format, Reading};
use live::devices;
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::path::PathBuf;

/// Which loops are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    /// Requests come by the times of the trace.
    Open,
    /// So many requests are under way.
    Closed,
    /// One after the other, the open one for traces that have times.
    Both,
}

/// `lab duel`.
#[derive(Debug, Args)]
#[command(
    after_help = "Verdicts are on the contender. For time it wins a row (a trace, a size, a loop) if no other profile is \
                        more than 2 % faster: by the time of the whole trace in the closed loop, by the mean latency in the \
                        open one. For wear it wins if it writes no more to the cache than the least wearing of the others \
                        whose hits are at most 5 points below its own."
)]
pub struct LabDuel {
    /// The traces; compressed if the name ends with .zst, .xz or .gz.
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// The format of all of them [default: as each one's name or first line tells]; lab trace --help lists them.
    #[arg(long, value_name = "FORMAT", value_parser = traces::format)]
    pub format: Option<Format>,
    /// Bytes of what arc (default 512), block-list and u32le (default 4K) count.
    #[arg(long, value_name = "BYTES", value_parser = devices::parse_size)]
    pub unit: Option<u64>,
    /// Profiles, or files of one's own, with commas between them [default: all built-in ones, each system at its newest
    /// era].
    #[arg(long, value_name = "PROFILE,...", value_delimiter = ',', value_parser = profile::parse_wanted)]
    pub profiles: Vec<profile::Wanted>,
    /// The profile, or file of one's own, on which the verdicts are.
    #[arg(long, value_name = "PROFILE", default_value = profile::DEFAULT, value_parser = profile::parse_wanted)]
    pub contender: profile::Wanted,
    /// Sizes of the cache device, with commas between them: percent of what the trace touches (5 or 5%), but 32M at the
    /// least, or bytes (64M).
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "1,5,10,20,50", value_parser = size)]
    pub sizes: Vec<SizeWanted>,
    /// Requests by the times of the trace (open), or so many under way (closed), or both. A trace without times has the
    /// closed loop alone.
    #[arg(long = "loop", value_name = "open|closed|both", default_value = "both", value_parser = loops)]
    pub loops: Loops,
    /// Requests under way in the closed loop [default: 32].
    #[arg(long, value_name = "N")]
    pub depth: Option<NonZeroU32>,
    /// Only so many requests of each trace, from its beginning.
    #[arg(long, value_name = "N")]
    pub requests: Option<NonZeroU64>,
    /// How writes are treated [default: as each profile says].
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<WriteMode>,
    /// On which disks.
    #[command(flatten)]
    pub disks: Disks,
    /// Replays at the same time [default: the number of cores].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,
    /// Write a page with plots and tables into this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Show the progress on stderr even if that is no terminal.
    #[arg(long)]
    pub progress: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

impl LabDuel {
    /// How the traces are read.
    #[must_use]
    pub fn reading(&self) -> Reading {
        Reading { format: self.format, unit_bytes: self.unit }
    }
}

/// Reason why a word is no size of a cache, or no loop.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DuelError {
    /// A share that cannot be.
    #[error("percent of what the trace touches are 1 to 100; bytes have a suffix, for example 64M or 8G")]
    Percent,
    /// A cache that cannot be formatted.
    #[error("a cache has at least {} MiB", CACHE_BYTES_MIN >> 20)]
    Small,
    /// A cache that cannot be.
    #[error("a cache has at most {} TiB", CACHE_BYTES_MAX >> 40)]
    Large,
    /// Not a size at all.
    #[error("{0}; or percent of what the trace touches, for example 5")]
    Size(#[from] devices::SizeError),
    /// No such loop.
    #[error("unknown loop; there are open, closed, both")]
    Loop,
}

/// Percent, with a sign or without any suffix, or bytes.
fn size(text: &str) -> Result<SizeWanted, DuelError> {
    let word = text.trim();
    let number = word.strip_suffix('%').unwrap_or(word).trim_end();
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        let percent = number.parse().ok().filter(|percent| (1..=100).contains(percent));
        return percent.map(SizeWanted::Percent).ok_or(DuelError::Percent);
    }
    match devices::parse_size(word)? {
        ..CACHE_BYTES_MIN => Err(DuelError::Small),
        bytes @ CACHE_BYTES_MIN..=CACHE_BYTES_MAX => Ok(SizeWanted::Bytes(bytes)),
        _ => Err(DuelError::Large),
    }
}

fn loops(text: &str) -> Result<Loops, DuelError> {
    match text {
        "open" => Ok(Loops::Open),
        "closed" => Ok(Loops::Closed),
        "both" => Ok(Loops::Both),
        _ => Err(DuelError::Loop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_percent_unless_they_have_a_suffix() {
        for (text, wanted) in [
            ("1", SizeWanted::Percent(1)),
            ("100", SizeWanted::Percent(100)),
            ("20%", SizeWanted::Percent(20)),
            (" 5 % ", SizeWanted::Percent(5)),
            ("32M", SizeWanted::Bytes(32 << 20)),
            ("1GiB", SizeWanted::Bytes(1 << 30)),
        ] {
            assert_eq!(size(text), Ok(wanted), "{text}");
        }
        for text in ["0", "0%", "101", "67108864", "99999999999999999999999"] {
            assert_eq!(size(text), Err(DuelError::Percent), "{text}");
        }
        for text in ["0M", "31M", "512B"] {
            assert_eq!(size(text), Err(DuelError::Small), "{text}");
        }
        for text in ["", "%", "-1", "2.5", "1.5%", "x", "9X"] {
            assert!(matches!(size(text), Err(DuelError::Size(_))), "{text}");
        }
    }
}
