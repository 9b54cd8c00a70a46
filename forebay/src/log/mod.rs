//! Log of unasked messages to the operator: one line on standard error each, or a message with fields in the journal.

mod journal;

use crate::events::{Event, Level};
use journal::{Fate, Journal};
use rustix::fs::fstat;
use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that wait for the reader of standard error; more are dropped.
const WAITING_MAX: usize = 256;
/// Lines of one kind are printed no more often than this.
const PERIOD: Duration = Duration::from_secs(10);
/// Longest wait for the last lines at the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// A message to the operator.
#[derive(Clone, Copy)]
struct Message<'a> {
    /// The event; `None` if it has no id.
    event: Option<Event>,
    level: Level,
    /// The volume that it is about, if it is about one.
    volume: Option<&'a str>,
    text: &'a str,
}

impl Message<'_> {
    /// Its text with the event's id.
    fn line(&self) -> String {
        self.event.map_or_else(|| self.text.to_owned(), |event| format!("[{}] {}", event.id(), self.text))
    }

    /// Sends it to the journal, or writes it to standard error, whose reader may hold the caller up.
    fn tell(&self) {
        if Journal::of_stderr().is_some_and(|journal| journal.send(self) == Fate::Done) {
            return;
        }
        // A failure of standard error cannot be reported.
        let _ = writeln!(io::stderr(), "{}forebay: {}", prefix(self.level), self.line());
    }
}

/// Tells the operator something at once.
pub fn notice(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    Message { event: None, level: Level::Notice, volume: None, text: &text }.tell();
}

/// Tells the operator why the program could not do what it was asked.
pub fn failure(text: &str) {
    Message { event: None, level: Level::Error, volume: None, text }.tell();
}

/// Tells the operator of an event at once.
pub fn event(event: Event, text: fmt::Arguments<'_>) {
    let text = text.to_string();
    Message { event: Some(event), level: event.level(), volume: None, text: &text }.tell();
}

/// Tells the operator of an event of a volume at once.
pub fn event_of(event: Event, volume: &str, text: fmt::Arguments<'_>) {
    let text = text.to_string();
    Message { event: Some(event), level: event.level(), volume: Some(volume), text: &text }.tell();
}

/// Whether standard error is this stream of the journal.
fn is_of(stream: &str) -> bool {
    fstat(io::stderr()).is_ok_and(|found| format!("{}:{}", found.st_dev, found.st_ino) == stream)
}

/// A level, as the journal reads it at the beginning of a line; empty where it does not.
fn prefix(level: Level) -> String {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    let is_journal =
        *IS_JOURNAL.get_or_init(|| std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_of(&stream)));
    if is_journal { format!("<{}>", level as u8) } else { String::new() }
}

/// Tells the operator things from a thread that must not wait for anybody: the one that serves clients.
#[derive(Clone)]
pub struct Log {
    lines: SyncSender<Line>,
}

/// A message and its kind: a failure that goes on says the same again and again.
struct Line {
    event: Event,
    volume: Option<String>,
    kind: String,
    text: String,
}

/// A line as it is to be printed.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    event: Event,
    volume: Option<String>,
    text: String,
}

impl Line {
    fn said(&self, text: String) -> Said {
        Said { event: self.event, volume: self.volume.clone(), text }
    }
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
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let (end, ended) = sync_channel(1);
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            print_all(&waiting);
            // The other end may not wait for it.
            let _ = end.send(());
        })?;
        Ok((Log { lines }, Printer { ended }))
    }

    /// Says a line, unless too many are waiting already. Further ones of that kind are counted for a while, and the last
    /// one is said with their number.
    pub fn say(&self, event: Event, kind: String, text: String) {
        self.say_of(event, None, kind, text);
    }

    /// The same of a volume.
    pub fn say_of(&self, event: Event, volume: Option<String>, kind: String, text: String) {
        // A full log is the reader's fault, and no reason to keep clients waiting.
        let _ = self.lines.try_send(Line { event, volume, kind, text });
    }
}

/// Prints lines until no more can come.
fn print_all(waiting: &Receiver<Line>) {
    let mut repeats = Repeats::default();
    loop {
        let next = match repeats.deadline() {
            None => waiting.recv().map_err(RecvTimeoutError::from),
            Some(deadline) => waiting.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        let now = Instant::now();
        match next {
            Ok(line) => repeats.take(now, line).into_iter().for_each(print),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return repeats.due(now + PERIOD).into_iter().for_each(print);
            }
        }
        repeats.due(now).into_iter().for_each(print);
    }
}

fn print(Said { event, volume, text }: Said) {
    let volume = volume.as_deref();
    Message { event: Some(event), level: event.level(), volume, text: &text }.tell();
}

/// Kinds of lines that were printed within the last period.
#[derive(Default)]
struct Repeats {
    kinds: Vec<Repeat>,
}

/// A kind of lines, what of it was not printed yet, and when one was.
struct Repeat {
    last: Line,
    count: u64,
    printed: Instant,
}

impl Repeats {
    /// Takes a line; returns what is to be printed at once.
    fn take(&mut self, now: Instant, line: Line) -> Option<Said> {
        if let Some(repeat) = self.kinds.iter_mut().find(|repeat| repeat.last.kind == line.kind) {
            repeat.count += 1;
            repeat.last = line;
            return None;
        }
        let said = line.said(line.text.clone());
        self.kinds.push(Repeat { last: line, count: 0, printed: now });
        Some(said)
    }

    /// Lines to be printed by now. A kind that was quiet for a period is forgotten.
    fn due(&mut self, now: Instant) -> Vec<Said> {
        let mut texts = Vec::new();
        self.kinds.retain_mut(|repeat| {
            if now.saturating_duration_since(repeat.printed) < PERIOD {
                return true;
            }
            match std::mem::take(&mut repeat.count) {
                0 => return false,
                1 => texts.push(repeat.last.said(repeat.last.text.clone())),
                count => {
                    let text = format!("{} (repeated {count} times)", repeat.last.text);
                    texts.push(repeat.last.said(text));
                }
            }
            repeat.printed = now;
            true
        });
        texts
    }

    fn deadline(&self) -> Option<Instant> {
        self.kinds.iter().map(|repeat| repeat.printed + PERIOD).min()
    }
}

impl Printer {
    /// Waits a moment for the last lines, when no more can come.
    pub fn finish(self) {
        // Too late, or the printer has ended: both are the end.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, number: u64) -> Line {
        let (kind, text) = (kind.to_owned(), format!("{kind} failed at {number}"));
        Line { event: Event::OriginFailed, volume: Some("data".to_owned()), kind, text }
    }

    #[test]
    fn a_failure_that_goes_on_is_counted() {
        let start = Instant::now();
        let mut repeats = Repeats::default();
        let mut printed = Vec::new();
        for number in 0..3600 {
            let now = start + Duration::from_millis(number * 1000 / 60);
            printed.extend(repeats.take(now, line("origin", number)).map(|said| said.text));
            printed.extend(repeats.due(now).into_iter().map(|said| said.text));
        }
        printed.extend(repeats.due(start + Duration::from_mins(2)).into_iter().map(|said| said.text));
        assert_eq!(printed[0], "origin failed at 0", "the first is said at once");
        assert!(printed.len() <= 7, "at most one line in a period: {printed:?}");
        let counted = |text: &String| -> u64 {
            let count = text.split_once("(repeated ").map(|(_, rest)| rest.trim_end_matches(" times)"));
            count.map_or(1, |count| count.parse().expect("a number"))
        };
        assert_eq!(printed.iter().map(counted).sum::<u64>(), 3600, "none is left out: {printed:?}");
        assert_eq!(repeats.due(start + Duration::from_mins(3)).len(), 0);
        assert!(repeats.deadline().is_none(), "a kind that is quiet is forgotten");
    }

    #[test]
    fn kinds_do_not_hide_each_other() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        assert!(repeats.take(now, line("a", 1)).is_some());
        assert!(repeats.take(now, line("b", 1)).is_some());
        assert!(repeats.take(now, line("a", 2)).is_none());
        let (volume, text) = (Some("data".to_owned()), "a failed at 2".to_owned());
        assert_eq!(repeats.due(now + PERIOD), [Said { event: Event::OriginFailed, volume, text }]);
    }
}
