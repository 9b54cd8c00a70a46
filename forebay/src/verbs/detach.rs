//! `forebay detach`: brings dirty data home and takes a volume off the cache. The origin is a plain disk
//! again afterwards.

use super::{Job, unexpected};
use crate::arguments::Detach;
use crate::control::{Answer, Question};
use crate::output::{Output, Size};
use crate::state::StateDirectory;
use anyhow::Result;
use std::io::Write;

pub(super) fn run(arguments: &Detach) -> Result<()> {
    let job = Job {
        cache: &arguments.cache,
        options: &arguments.running,
        state: StateDirectory::find(arguments.places.state_dir.as_deref())?,
        is_progress_wanted: arguments.progress,
    };
    let volume = arguments.volume.clone();
    let verify = arguments.verify;
    let detached = job.run(
        &Question::Detach { volume: volume.clone(), verify },
        |answer| match answer {
            Answer::Detached(detached) => Ok(detached),
            other => unexpected(&other),
        },
        move |running, on_progress| running.detach(volume.as_deref(), verify, on_progress),
    )?;
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&detached)?;
    } else {
        if let Some(bytes) = detached.verified_bytes {
            writeln!(output, "verified: the volume and its origin are equal ({} were cached)", Size(bytes))?;
        }
        writeln!(output, "detached {}: {} holds all of it", detached.volume, detached.origin)?;
        if let Some(place) = &detached.configured_at {
            writeln!(
                output,
                "{place} names volume {} still; take it out there, or the next start adds it again",
                detached.volume
            )?;
        }
    }
    Ok(output.finish()?)
}
