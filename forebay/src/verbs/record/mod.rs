//! `forebay record`: writes down what clients of a running cache ask for.
//!
//! | file | subject |
//! | --- | --- |
//! | `trace_file.rs` | the file: frames of compressed lines, each whole |

mod trace_file;

use crate::arguments::watch::Record;
use crate::control::{Answer, Connection, Question, RecordedPart};
use crate::interrupt::Interrupts;
use crate::output::{Output, Size};
use anyhow::{Context, Result, bail};
use live::devices::{self, Access, DeviceError, DeviceSpec};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Instant;
use trace_file::{Taken, TraceFile};

/// `record`, when it is over.
#[derive(Serialize)]
struct RecordReport {
    file: String,
    seconds: f64,
    requests: u64,
    /// Requests that are missing in it, because they came too fast to be written down.
    dropped: u64,
    file_bytes: u64,
    /// Why it ended: duration, limit, interrupt.
    ended_by: &'static str,
}

pub(super) fn run(arguments: &Record) -> Result<()> {
    let Record { cache, file: path, duration, limit, force, report } = arguments;
    if path.extension().is_none_or(|ending| ending != "zst") {
        bail!(
            "the trace is compressed, and its readers know that by its name: call it {}.zst",
            path.display()
        );
    }
    let mut daemon = Connection::open_or(cache, || {
        format!("{cache} is not running, so nobody asks for anything; forebay serve {cache} starts it")
    })?;
    // From here on a signal ends the recording, not the process: the file gets its end.
    let interrupts = Interrupts::install(1)?;
    interrupts.attend();
    let is_new = !path.exists();
    let file = open(path, *force)?;
    let begun = daemon.say(&Question::Record).and_then(|()| daemon.next());
    let recording = match begun {
        Ok(Answer::Recording(recording)) => recording,
        refused => {
            if is_new {
                // An empty file that stays is no harm.
                let _ = fs::remove_file(path);
            }
            return super::unexpected(&refused?);
        }
    };
    let mut trace = TraceFile::begin(file, *limit, &cache.to_string(), recording)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let began = Instant::now();
    let ended = loop {
        if interrupts.is_interrupted() {
            break Ok("interrupt");
        }
        if duration.is_some_and(|duration| began.elapsed() >= duration) {
            break Ok("duration");
        }
        match daemon.next() {
            Ok(Answer::Recorded(RecordedPart { requests, dropped })) => {
                match trace.take(&requests, dropped) {
                    Ok(Taken::All) => {}
                    Ok(Taken::Limit) => break Ok("limit"),
                    Err(error) => break Err(error.into()),
                }
            }
            Ok(other) => break super::unexpected(&other),
            // What is in the file stays a trace.
            Err(error) => break Err(error),
        }
    };
    drop(daemon);
    let finished = trace.finish();
    let (requests, dropped, file_bytes) = trace.totals();
    let told = || format!("{}: {requests} requests are in it", path.display());
    let ended_by = ended.with_context(told)?;
    finished.with_context(told)?;
    let file = path.display().to_string();
    let seconds = began.elapsed().as_secs_f64();
    let ended = RecordReport { file, seconds, requests, dropped, file_bytes, ended_by };
    let mut output = Output::stdout();
    if report.json {
        output.json(&ended)?;
    } else {
        ended.print(&mut output)?;
    }
    Ok(output.finish()?)
}

/// The file, which [`TraceFile::begin`] makes empty.
fn open(path: &Path, force: bool) -> Result<File> {
    if force && path.metadata().is_ok_and(|there| !there.is_file()) {
        bail!("{} is no ordinary file; name another one", path.display());
    }
    let spec = DeviceSpec::File { path: path.to_owned() };
    if force && let Err(DeviceError::Locked { .. }) = devices::open(&spec, Access::ReadOnlyExclusive) {
        bail!("{} is a disk in use; name another file", path.display());
    }
    let mut options = File::options();
    options.write(true);
    let opened = if force {
        options.create(true).truncate(false).open(path)
    } else {
        options.create_new(true).open(path)
    };
    match opened {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} exists; name another file, or say --force to write over it", path.display())
        }
        opened => opened.with_context(|| format!("cannot make {}", path.display())),
    }
}

impl RecordReport {
    fn print(&self, output: &mut Output) -> Result<()> {
        let RecordReport { file, seconds, requests, dropped, file_bytes, ended_by } = self;
        let why = match *ended_by {
            "limit" => "; it ended at its limit",
            "interrupt" => "; it was interrupted",
            _ => "",
        };
        writeln!(output, "{requests} requests in {seconds:.0} s, {} in {file}{why}", Size(*file_bytes))?;
        if *dropped > 0 {
            writeln!(output, "{dropped} requests came too fast and are missing in it")?;
        }
        if *requests == 0 {
            writeln!(output, "clients asked for nothing meanwhile; record while they work")?;
        } else {
            writeln!(output, "forebay lab advise {file} tells what it is worth")?;
        }
        Ok(())
    }
}
