//! `forebay flush`: brings dirty data home.

use super::{Job, unexpected};
use crate::arguments::Flush;
use crate::control::{Answer, Question};
use crate::output::{Output, Size};
use crate::state::StateDirectory;
use anyhow::Result;
use std::io::Write;

pub(super) fn run(arguments: &Flush) -> Result<()> {
    let job = Job {
        cache: &arguments.cache,
        options: &arguments.running,
        state: StateDirectory::find(arguments.places.state_dir.as_deref())?,
        is_progress_wanted: arguments.progress,
    };
    let volume = arguments.volume.clone();
    let flushed = job.run(
        &Question::Flush { volume: volume.clone() },
        |answer| match answer {
            Answer::Flushed(flushed) => Ok(flushed),
            other => unexpected(&other),
        },
        move |running, on_progress| running.flush(volume.as_deref(), on_progress),
    )?;
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&flushed)?;
    } else {
        writeln!(output, "{} flushed: {}", Size(flushed.dirty_bytes), flushed.volumes.join(", "))?;
    }
    Ok(output.finish()?)
}
