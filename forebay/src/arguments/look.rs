//! `status`: how a cache is doing, and what was changed.

use super::Look;
use clap::Args;

/// `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// The cache, and how to print.
    #[command(flatten)]
    pub look: Look,
    /// Tell the last changes of settings, too: what, when, from what to what.
    #[arg(long)]
    pub history: bool,
}
