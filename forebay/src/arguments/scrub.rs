//! The arguments of `scrub`.

use super::{Places, Report, RunOptions, ValueError};
use crate::setting::scrub_days;
use clap::Args;
use live::devices::{self, DeviceSpec};

/// Bytes that are read in a second at the most, unless another number is given.
pub const RATE_DEFAULT: u64 = 256 << 20;

/// `scrub`.
#[derive(Debug, Args)]
pub struct Scrub {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Bytes that are read in a second at the most [default: 256M].
    #[arg(long, value_name = "BYTES", value_parser = super::rate)]
    pub rate: Option<u64>,
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

/// The days from one scrub to the next.
pub(super) fn days(text: &str) -> Result<u16, ValueError> {
    scrub_days(text).ok().flatten().ok_or(ValueError::ScrubDays)
}
