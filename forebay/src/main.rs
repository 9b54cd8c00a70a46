//! The `forebay` command: reads the command line, does one verb, and says in one line why if it could not.

mod access;
mod addition;
mod arguments;
mod attachment;
mod blank;
mod configuration;
mod connection_limit;
mod control;
mod device_wait;
mod events;
mod formatting;
mod halves;
mod http;
mod interrupt;
mod lasting;
mod log;
mod losses;
mod metrics;
mod nearest;
mod opening;
mod origin;
mod output;
mod ownership;
mod panics;
mod profile;
mod progress;
mod renewal;
mod report;
mod run_dir;
mod running;
mod service;
mod setting;
mod signature;
mod startup;
mod state;
mod superblock;
mod trial;
mod uncached;
mod usage;
mod verbs;
mod warm_list;
mod watchers;
mod web;

use clap::Parser;
use clap::error::ErrorKind;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::process::ExitCode;

/// Done.
const DONE: u8 = 0;
/// It could not be done.
const FAILED: u8 = 1;
/// It was not understood.
const USAGE: u8 = 2;
/// A cache was repaired, and data of it given up.
const REPAIRED_WITH_LOSS: u8 = 3;

fn main() -> ExitCode {
    live::signals::survive_file_size_limit();
    if getrlimit(Resource::As).current.is_some() {
        live::signals::reserve_little_address_space();
    }
    let status = match arguments::Arguments::try_parse() {
        Ok(arguments) => match verbs::run(arguments.verb) {
            Ok(()) => DONE,
            Err(error) if is_broken_pipe(&error) => DONE,
            Err(error) => {
                log::failure(&one_line(&format!("{error:#}")));
                if error.is::<verbs::RepairedWithLoss>() { REPAIRED_WITH_LOSS } else { FAILED }
            }
        },
        Err(error) => explain(&error),
    };
    ExitCode::from(status)
}

/// Whether the reader of the output went away: then the error cannot be reported.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Help and version go to standard output; all else is one line.
fn explain(error: &clap::Error) -> u8 {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A failure to print cannot be reported.
        let _ = error.print();
        return DONE;
    }
    eprintln!("forebay: {}", usage::line(error, std::env::args_os()));
    USAGE
}
