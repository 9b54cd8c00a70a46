//! `forebay advise`: what the load of a running cache says about size, modes and wear.

use crate::arguments::watch::Advise;
use crate::control::{Answer, Connection, Question};
use crate::output::Output;
use anyhow::Result;

pub(super) fn run(arguments: &Advise) -> Result<()> {
    let Advise { cache, live: _, report } = arguments;
    let mut daemon = Connection::open_or(cache, || {
        format!("{cache} is not running, so there is no load to learn from; forebay serve {cache} starts it")
    })?;
    let advice = match daemon.ask(&Question::Advice, |_| ())? {
        Answer::Advice(advice) => advice,
        other => return super::unexpected(&other),
    };
    let mut output = Output::stdout();
    if report.json {
        output.json(&advice)?;
    } else {
        advice.print(&mut output)?;
    }
    Ok(output.finish()?)
}
