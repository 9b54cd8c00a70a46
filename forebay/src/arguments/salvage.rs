//! The arguments of `salvage`.

use super::{Places, Report, ValueError, volume_name};
use clap::Args;
use live::devices::{self, DeviceSpec};
use std::path::PathBuf;

/// `salvage`.
#[derive(Debug, Args)]
pub struct Salvage {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// Write what there is of this volume into a new file of the volume's size, and not to its origin; may be repeated.
    #[arg(long, value_name = "VOLUME=FILE", value_parser = target)]
    pub to: Vec<Target>,
    /// Write; without that it is only read and said what would be written.
    #[arg(long)]
    pub write: bool,
    /// Where notes are kept.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// A file for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The volume.
    pub volume: String,
    /// The file.
    pub file: PathBuf,
}

fn target(text: &str) -> Result<Target, String> {
    let wrong = || format!("`{text}` names no volume and file; write VOLUME=FILE");
    let (volume, file) = text.split_once('=').filter(|(_, file)| !file.is_empty()).ok_or_else(wrong)?;
    let volume = volume_name(volume).map_err(|error: ValueError| error.to_string())?;
    Ok(Target { volume, file: file.into() })
}
