//! The arguments of the verbs that run published studies again.

use super::Report;
use clap::Args;
use std::num::NonZeroU16;
use std::path::PathBuf;

/// How runs are carried out.
#[derive(Debug, Args)]
pub struct Carrying {
    /// Runs at the same time [default: the number of cores].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,
    /// Show the progress on stderr even if that is no terminal.
    #[arg(long)]
    pub progress: bool,
}

/// `lab study`.
#[derive(Debug, Args)]
pub struct LabStudy {
    /// A study that is built in (enhanceio-2013, iozone-2014, geomflash-2015, dm-devel-2016, mapperx-2021), or a
    /// directory with study.toml and results.csv [default: all that are built in].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Only these systems, as the study names them: bcache stands for bcache-default, too.
    #[arg(long, value_name = "SYSTEM,...", value_delimiter = ',')]
    pub system: Vec<String>,
    /// Only these tests. What comes before them is run, too, for it leaves the cache as they find it.
    #[arg(long, value_name = "TEST,...", value_delimiter = ',')]
    pub test: Vec<String>,
    /// Write pages with plots and tables into this directory.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// How runs are carried out.
    #[command(flatten)]
    pub carrying: Carrying,
    /// How to print.
    #[command(flatten)]
    pub printing: Report,
}

/// `lab league`.
#[derive(Debug, Args)]
pub struct LabLeague {
    /// How runs are carried out.
    #[command(flatten)]
    pub carrying: Carrying,
    /// How to print.
    #[command(flatten)]
    pub printing: Report,
}
