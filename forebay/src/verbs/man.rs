//! `forebay man`: the manual pages, made from the command line's own descriptions.

use crate::arguments::{Arguments, Man};
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::fs;

pub(super) fn run(arguments: &Man) -> Result<()> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .with_context(|| format!("the manual pages cannot be written to {}", directory.display()))
}
