//! `forebay attach`: a volume of a running cache becomes a block device of this machine.

use super::unexpected;
use crate::arguments::attach::Attach;
use crate::control::{Answer, Connection, Question};
use crate::output::Output;
use anyhow::Result;
use std::io::Write;

pub(super) fn run(arguments: &Attach) -> Result<()> {
    let cache = &arguments.cache;
    let mut daemon = Connection::open_or(cache, || {
        format!("no daemon serves {cache}; start one: forebay serve {cache} --attach")
    })?;
    let options = arguments.connection.options(arguments.index);
    let question = Question::Attach { volume: arguments.volume.clone(), options };
    let attached = match daemon.ask(&question, |_| ())? {
        Answer::Attached(attached) => attached,
        other => return unexpected(&other),
    };
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&attached)?;
    } else {
        writeln!(
            output,
            "attached {} as {}, which is {} now",
            attached.volume, attached.link, attached.device
        )?;
    }
    Ok(output.finish()?)
}
