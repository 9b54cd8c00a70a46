//! `replace` and `resize`: another device for a cache, or another size.

use super::{Places, Report, RunOptions};
use clap::Args;
use live::devices::{self, DeviceSpec};

/// `replace`.
#[derive(Debug, Args)]
pub struct Replace {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// The device that takes its place. It is formatted.
    #[arg(value_name = "DEV", value_parser = devices::parse, required_unless_present = "mirror")]
    pub device: Option<DeviceSpec>,
    /// The device that takes the place of the half that is out of a mirrored cache, or that half itself: all is copied to it.
    #[arg(long, value_name = "DEV", value_parser = devices::parse, conflicts_with = "device")]
    pub mirror: Option<DeviceSpec>,
    /// Format DEV although it holds something: repeat its name here.
    #[arg(long, value_name = "DEV", value_parser = devices::parse)]
    pub wipe: Option<DeviceSpec>,
    /// Reserve no space for a cache that is a file. When its file system is full, the cache fails.
    #[arg(long)]
    pub sparse: bool,
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

/// `resize`.
#[derive(Debug, Args)]
pub struct Resize {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Its new size [default: that of its device].
    #[arg(value_name = "SIZE", value_parser = devices::parse_size)]
    pub size: Option<u64>,
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
