//! The verbs of the command line, one file each.

mod add;
mod advise;
mod attach;
mod check;
mod completions;
mod config;
pub mod create;
mod detach;
mod dump;
mod flush;
mod lab;
mod man;
mod models;
mod profiles;
mod record;
mod replace;
mod salvage;
mod scrub;
mod serve;
mod set;
mod stats;
mod status;
mod studies;
mod top;
mod unattach;
mod warm;

use crate::arguments::{RunOptions, Verb};
use crate::control::{Answer, Connection, Progress, Question};
use crate::interrupt::Interrupts;
use crate::progress::Meter;
use crate::running::{self, Doors, Running};
use crate::startup;
use crate::state::StateDirectory;
use anyhow::{Result, bail};
pub use check::RepairedWithLoss;
use live::devices::DeviceSpec;
use std::ops::ControlFlow;

/// Carries out a verb.
///
/// # Errors
/// The error of the verb.
pub fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Create(arguments) => create::run(arguments),
        Verb::Add(arguments) => add::run(&arguments),
        Verb::Serve(arguments) => serve::run(arguments),
        Verb::Attach(arguments) => attach::run(&arguments),
        Verb::Unattach(arguments) => unattach::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Stats(arguments) => stats::run(&arguments),
        Verb::Top(arguments) => top::run(&arguments),
        Verb::Advise(arguments) => advise::run(&arguments),
        Verb::Record(arguments) => record::run(&arguments),
        Verb::Set(arguments) => set::run(&arguments),
        Verb::Warm(arguments) => warm::run(&arguments),
        Verb::Flush(arguments) => flush::run(&arguments),
        Verb::Scrub(arguments) => scrub::run(&arguments),
        Verb::Detach(arguments) => detach::run(&arguments),
        Verb::Replace(arguments) => replace::replace(&arguments),
        Verb::Resize(arguments) => replace::resize(&arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Salvage(arguments) => salvage::run(&arguments),
        Verb::Dump(arguments) => dump::run(&arguments),
        Verb::Profiles(report) => profiles::run(&report),
        Verb::Models(report) => models::run(&report),
        Verb::Studies(report) => studies::run(&report),
        Verb::Lab(verb) => lab::run(&verb),
        Verb::Config(verb) => config::run(&verb),
        Verb::Completions(arguments) => completions::run(arguments),
        Verb::Man(arguments) => man::run(&arguments),
    }
}

/// A job that a running daemon does, or that runs the cache for itself if there is none.
struct Job<'a> {
    cache: &'a DeviceSpec,
    options: &'a RunOptions,
    state: StateDirectory,
    is_progress_wanted: bool,
}

type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

impl Job<'_> {
    /// Asks the daemon; without one starts the cache, does `alone`, and stops it.
    fn run<T: Send + 'static>(
        self,
        question: &Question,
        of_answer: impl FnOnce(Answer) -> Result<T>,
        alone: impl FnOnce(&Running, OnProgress<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut meter = Meter::new(self.is_progress_wanted);
        if let Some(mut daemon) = Connection::open(self.cache)? {
            if !self.options.origin.is_empty() {
                bail!(
                    "a daemon serves {} already, from the origins that it was started with; leave --origin out, or stop it \
                     first",
                    self.cache
                );
            }
            return of_answer(daemon.ask(question, |progress| meter.show(progress))?);
        }
        let interrupts = Interrupts::install(1)?;
        let prepared = startup::prepare(self.cache, self.options, self.state, &interrupts)?;
        prepared.expect_volumes()?;
        let doors = Doors::none(self.options.device_timeout);
        let watch = interrupts.clone();
        running::run(prepared, doors, &interrupts, move |running| {
            alone(running, &mut |progress| {
                meter.show(&progress);
                if watch.is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        })
    }
}

/// A daemon answered something that was not asked.
fn unexpected<T>(answer: &Answer) -> Result<T> {
    bail!("the daemon speaks another version: it answered {answer:?}")
}
