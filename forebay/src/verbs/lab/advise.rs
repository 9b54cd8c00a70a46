//! `forebay lab advise`.
use crate::arguments::traces::LabAdvise;
use anyhow::{Result, bail};
pub(super) fn run(_: &LabAdvise) -> Result<()> {
    bail!("later")
}
