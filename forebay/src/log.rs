//! Log of unasked messages to the operator: one line on standard error each.

use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Lines that wait for the reader of standard error; more are dropped.
const WAITING_MAX: usize = 256;
/// Longest wait for the last lines at the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells the operator something at once. A reader that does not read holds the caller up.
pub fn notice(text: fmt::Arguments<'_>) {
    // A failure of standard error cannot be reported.
    let _ = writeln!(io::stderr(), "forebay: {text}");
}

/// Tells the operator things from a thread that must not wait for anybody: the one that serves clients.
#[derive(Clone)]
pub struct Log {
    lines: SyncSender<String>,
}

/// Prints the lines of a [`Log`].
pub struct Printer {
    ended: Receiver<()>,
}

impl Log {
    /// A log and its printer.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn open() -> io::Result<(Log, Printer)> {
        let (lines, waiting) = sync_channel::<String>(WAITING_MAX);
        let (end, ended) = sync_channel(1);
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            for line in waiting {
                notice(format_args!("{line}"));
            }
            // The other end may not wait for it.
            let _ = end.send(());
        })?;
        Ok((Log { lines }, Printer { ended }))
    }

    /// Says a line, unless too many are waiting already.
    pub fn say(&self, line: String) {
        // A full log is the reader's fault, and no reason to keep clients waiting.
        let _ = self.lines.try_send(line);
    }
}

impl Printer {
    /// Waits a moment for the last lines, when no more can come.
    pub fn finish(self) {
        // Too late, or the printer has ended: both are the end.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}
