//! The arguments of the verbs that learn from a running cache.

use super::{Report, recording_limit, seconds};
use clap::Args;
use live::devices::{self, DeviceSpec};
use std::path::PathBuf;
use std::time::Duration;

/// `advise`.
#[derive(Debug, Args)]
pub struct Advise {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// From the load of the daemon that serves it. There is no other source here, so it need not be said; `forebay lab
    /// advise` takes a trace.
    #[arg(long)]
    pub live: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// `record`.
#[derive(Debug, Args)]
pub struct Record {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// The new file, which is compressed: its name ends in .zst.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// End after so many seconds [default: with SIGINT, or at the limit].
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// End before the file has more bytes than this.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = recording_limit)]
    pub limit: u64,
    /// Write over a file that exists.
    #[arg(long)]
    pub force: bool,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}
