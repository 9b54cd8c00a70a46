//! `forebay top`: a terminal page of a running cache.
//!
//! | file | subject |
//! | --- | --- |
//! | `model.rs` | what is shown: rates from one look to the next, and their past |
//! | `view.rs` | how it is shown |

mod model;
mod view;

use crate::arguments::Top;
use crate::control::{Answer, Connection, Question};
use crate::report::{StatsReport, StatusReport};
use anyhow::{Context, Result, bail};
use live::devices::DeviceSpec;
use model::Model;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{IsTerminal, stdin, stdout};
use std::time::{Duration, Instant};

pub(super) fn run(arguments: &Top) -> Result<()> {
    let Top { cache, interval } = arguments;
    if !stdin().is_terminal() || !stdout().is_terminal() {
        bail!("top needs a terminal; forebay stats {cache} prints figures");
    }
    // A cache that is not running at the beginning is a mistake; one that stops later may come back.
    let Some(first) = look(cache)? else {
        bail!("{cache} is not running; forebay serve {cache} starts it");
    };
    let mut model = Model::new(&cache.to_string());
    model.look(Instant::now(), first);
    let mut terminal = ratatui::try_init().context("the terminal cannot be set up")?;
    let result = show(&mut terminal, &mut model, cache, *interval);
    ratatui::restore();
    result
}

/// Status and statistics of the daemon; `None` if there is none.
fn look(cache: &DeviceSpec) -> Result<Option<(StatusReport, StatsReport)>> {
    let Some(mut daemon) = Connection::open(cache)? else { return Ok(None) };
    let status = match daemon.ask(&Question::Status, |_| ())? {
        Answer::Status(status) => *status,
        other => return super::unexpected(&other),
    };
    match daemon.ask(&Question::Stats, |_| ())? {
        Answer::Stats(stats) => Ok(Some((status, *stats))),
        other => super::unexpected(&other),
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    cache: &DeviceSpec,
    interval: Duration,
) -> Result<()> {
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| view::draw(frame, model)).context("the terminal cannot be written")?;
        let patience = next.saturating_duration_since(Instant::now());
        if event::poll(patience).context("the terminal cannot be read")? {
            if is_end(&event::read().context("the terminal cannot be read")?) {
                return Ok(());
            }
            continue;
        }
        match look(cache) {
            Ok(Some(reports)) => model.look(Instant::now(), reports),
            Ok(None) => model.gone("not running"),
            // A daemon that stops breaks off; the next look tells more.
            Err(error) => model.gone(&format!("{error:#}")),
        }
        next = Instant::now() + interval;
    }
}

fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}
