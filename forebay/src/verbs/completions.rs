//! `forebay completions`: the script that completes verbs and options in a shell.

use crate::arguments::{Arguments, Completions, Shell};
use crate::output::Output;
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};
use std::io::Write;

pub(super) fn run(arguments: Completions) -> Result<()> {
    let (mut command, mut script) = (Arguments::command(), Vec::new());
    match arguments.shell {
        Shell::Bash => generate(Bash, &mut command, "forebay", &mut script),
        Shell::Zsh => generate(Zsh, &mut command, "forebay", &mut script),
        Shell::Fish => generate(Fish, &mut command, "forebay", &mut script),
    }
    let mut output = Output::stdout();
    output.write_all(&script)?;
    Ok(output.finish()?)
}
