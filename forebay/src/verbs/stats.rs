//! `forebay stats`: counters of a running cache since its start.

use crate::arguments::Look;
use crate::control::{Answer, Connection, Question};
use crate::output::Output;
use anyhow::{Result, bail};

pub(super) fn run(arguments: &Look) -> Result<()> {
    let cache = &arguments.cache;
    let mut daemon = Connection::open_or(cache, || {
        format!(
            "{cache} is not running, and statistics begin with each start; forebay serve {cache} starts it"
        )
    })?;
    let mut stats = match daemon.ask(&Question::Stats, |_| ())? {
        Answer::Stats(stats) => stats,
        other => return super::unexpected(&other),
    };
    if let Some(volume) = &arguments.volume
        && !stats.keep_only(volume)
    {
        bail!("there is no volume {volume} on this cache; see forebay status {cache}");
    }
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&stats)?;
    } else {
        stats.print(&mut output)?;
    }
    Ok(output.finish()?)
}
