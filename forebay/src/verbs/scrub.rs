//! `forebay scrub`: compares all that is cached with its checksums.

use super::{Job, unexpected};
use crate::arguments::scrub::{RATE_DEFAULT, Scrub};
use crate::control::{Answer, Question};
use crate::output::Output;
use crate::state::StateDirectory;
use anyhow::{Result, bail};
use std::io::Write;

pub(super) fn run(arguments: &Scrub) -> Result<()> {
    let cache = &arguments.cache;
    let job = Job {
        cache,
        options: &arguments.running,
        state: StateDirectory::find(arguments.places.state_dir.as_deref())?,
        is_progress_wanted: arguments.progress,
    };
    let rate_bytes = arguments.rate.unwrap_or(RATE_DEFAULT);
    let scrubbed = job.run(
        &Question::Scrub { rate_bytes },
        |answer| match answer {
            Answer::Scrubbed(scrubbed) => Ok(scrubbed),
            other => unexpected(&other),
        },
        move |running, on_progress| running.scrub(rate_bytes, on_progress),
    )?;
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&scrubbed)?;
    } else {
        for range in &scrubbed.damaged {
            writeln!(output, "{range}")?;
        }
        writeln!(output, "scrubbed: {scrubbed}")?;
    }
    output.finish()?;
    if scrubbed.has_loss() {
        bail!(
            "{cache} has lost dirty data; write those ranges anew from a backup, or see them as the origin has them: \
             forebay set {cache} VOLUME lost=give-up"
        );
    }
    if scrubbed.damaged_segments > 0 {
        bail!(
            "the log of {cache} is damaged where only a start reads it, and the next one may refuse the cache: bring \
             home what is dirty now (forebay flush {cache}), and replace the device"
        );
    }
    Ok(())
}
