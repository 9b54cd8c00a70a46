//! `forebay warm`: fills a cache with what will be read.

use super::{Job, unexpected};
use crate::arguments::warm::{RATE_DEFAULT, Warm};
use crate::control::{Answer, Question};
use crate::output::Output;
use crate::run_dir::RunDirectory;
use crate::state::StateDirectory;
use crate::warm_list;
use anyhow::{Context, Result, anyhow};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

pub(super) fn run(arguments: &Warm) -> Result<()> {
    let made = made_list(arguments)?;
    let list = match (&made, &arguments.list) {
        (Some(made), _) => Some(made.path.clone()),
        (None, Some(given)) => {
            // What is wrong with it is said before anything is started.
            warm_list::read(given)?;
            Some(std::path::absolute(given).context("the warm list has no path")?)
        }
        (None, None) => None,
    };
    let job = Job {
        cache: &arguments.cache,
        options: &arguments.running,
        state: StateDirectory::find(arguments.places.state_dir.as_deref())?,
        is_progress_wanted: arguments.progress,
    };
    let volume = arguments.volume.clone();
    let rate_bytes = arguments.rate.unwrap_or(RATE_DEFAULT);
    let question = Question::Warm { volume: volume.clone(), list: list.clone(), rate_bytes };
    let warmed = job.run(
        &question,
        |answer| match answer {
            Answer::Warmed(warmed) => Ok(warmed),
            other => unexpected(&other),
        },
        move |running, on_progress| running.warm(volume.as_deref(), list, rate_bytes, on_progress),
    );
    let warmed = match (&made, warmed) {
        (Some(made), Err(error)) => {
            return Err(anyhow!("{}", made.as_given(&format!("{error:#}"), arguments)));
        }
        (_, warmed) => warmed?,
    };
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&warmed)?;
    } else {
        writeln!(output, "warmed: {warmed}")?;
    }
    Ok(output.finish()?)
}

/// A list that was made for one call; removed at the end.
struct MadeList {
    path: PathBuf,
}

impl MadeList {
    /// An error about the list, with what the user gave in the place of the list.
    fn as_given(&self, error: &str, arguments: &Warm) -> String {
        let given = match &arguments.trace {
            Some(trace) => format!("the trace {}", trace.display()),
            None => "what --range names".to_owned(),
        };
        error.replace(&format!("the warm list {}", self.path.display()), &given)
    }
}

impl Drop for MadeList {
    fn drop(&mut self) {
        // It may be gone with its directory.
        let _ = fs::remove_file(&self.path);
    }
}

/// The list of what a trace or ranges name, if one of them is given.
fn made_list(arguments: &Warm) -> Result<Option<MadeList>> {
    if arguments.trace.is_none() && arguments.range.is_empty() {
        return Ok(None);
    }
    let directory = RunDirectory::find();
    directory.make(None)?;
    let path = directory.file(&format!("warm-{}.list", std::process::id()));
    let made = MadeList { path };
    warm_list::make(&made.path, arguments)?;
    Ok(Some(made))
}
