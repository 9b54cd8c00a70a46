//! The arguments of the verbs that read traces.

use super::{Report, ValueError, mode};
use crate::profile;
use clap::Args;
use engine::effect::WriteMode;
use lab::trace::{Format, Reading};
use live::devices;
use models::Parameters;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;

/// Which trace, and how it is read.
#[derive(Debug, Args)]
pub struct TraceFile {
    /// The trace; compressed if its name ends with .zst, .xz or .gz.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Its format [default: as its name or its first line tells]: arc, block-list, disksim, fiu, spc, msr,
    /// systor, tencent, opencas, vscsi, oracle-general or u32le.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
    /// Bytes of what arc (default 512), block-list and u32le (default 4K) count.
    #[arg(long, value_name = "BYTES", value_parser = devices::parse_size)]
    pub unit: Option<u64>,
}

impl TraceFile {
    /// How the trace is read.
    #[must_use]
    pub fn reading(&self) -> Reading {
        Reading { format: self.format, unit_bytes: self.unit }
    }
}

/// On which modelled disks.
#[derive(Debug, Args)]
pub struct Disks {
    /// The modelled disk that is the origin; `forebay models` lists them.
    #[arg(long, value_name = "MODEL", default_value = "hdd", value_parser = model)]
    pub origin: Parameters,
    /// The modelled disk that is the cache.
    #[arg(long, value_name = "MODEL", default_value = "ssd", value_parser = model)]
    pub cache: Parameters,
}

/// `lab trace`.
#[derive(Debug, Args)]
#[command(
    after_help = "A FILE whose name ends in .fio is a job file of fio: its jobs are carried out, with fio's own order of blocks."
)]
pub struct LabTrace {
    /// The trace.
    #[command(flatten)]
    pub trace: TraceFile,
    /// A profile, or a file of one's own; may be repeated.
    #[arg(long, value_name = "PROFILE", default_value = "forebay", value_parser = profile::parse_wanted)]
    pub profile: Vec<profile::Wanted>,
    /// A size of the cache device; may be repeated [default: 1 %, 10 % and 50 % of what the trace touches,
    /// but 32M at the least].
    #[arg(long, value_name = "SIZE", value_parser = super::cache_size)]
    pub cache_size: Vec<u64>,
    /// Keep so many requests under way, whatever the times of the trace [default without times: 32].
    #[arg(long, value_name = "N", conflicts_with = "timed")]
    pub depth: Option<NonZeroU32>,
    /// Let requests come by the times of the trace, whatever the answers [default if it has times].
    #[arg(long)]
    pub timed: bool,
    /// How writes are treated [default: as the profile says].
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<WriteMode>,
    /// On which disks.
    #[command(flatten)]
    pub disks: Disks,
    /// Replays at the same time, of several profiles or sizes [default: the number of cores].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,
    /// Show the progress on stderr even if that is no terminal.
    #[arg(long)]
    pub progress: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `lab advise`.
#[derive(Debug, Args)]
pub struct LabAdvise {
    /// The trace.
    #[command(flatten)]
    pub trace: TraceFile,
    /// Draw the curves into this file, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Blocks that are looked at for the policies; more are slower and more exact.
    #[arg(long, value_name = "N", default_value = "16384")]
    pub sample: NonZeroU32,
    /// Look at all blocks instead of a sample: exact, and slower.
    #[arg(long, conflicts_with = "sample")]
    pub exact: bool,
    /// Sizes of the cache to look at, in blocks of 4 KiB, with commas between them [default: steps up to what the
    /// trace touches].
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',')]
    pub sizes: Vec<NonZeroU32>,
    /// On which disks.
    #[command(flatten)]
    pub disks: Disks,
    /// Show the progress on stderr even if that is no terminal.
    #[arg(long)]
    pub progress: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

pub(super) fn format(text: &str) -> Result<Format, ValueError> {
    Format::parse(text).ok_or(ValueError::TraceFormat)
}

fn model(text: &str) -> Result<Parameters, ValueError> {
    models::find(text).ok_or(ValueError::Model)
}
