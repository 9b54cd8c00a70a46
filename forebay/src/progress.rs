//! The progress line of a long job: the rest, the speed, the expected end.

use crate::control::{Phase, Progress};
use crate::output::Size;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The rate is taken over this much of the past.
const WINDOW: Duration = Duration::from_secs(10);
/// Where standard error is no terminal, each line stays in a log: there is one no more often than this.
const REPEAT: Duration = Duration::from_secs(10);
/// A terminal's line is written no more often than this where the job tells its progress all the time.
const REFRESH: Duration = Duration::from_millis(100);
/// A job that is done sooner shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// A job that waits for a device is told of after this long.
const WAITS: Duration = Duration::from_secs(3);
/// And again each time after this long.
const STILL_WAITS: Duration = Duration::from_secs(60);
/// Characters of a bar.
const BAR: u64 = 30;

/// Shows progress on standard error.
pub struct Meter {
    is_shown: bool,
    is_terminal: bool,
    is_line_open: bool,
    last_shown: Option<Instant>,
    /// When the job began to wait, or was told to.
    waits_since: Option<(Instant, Duration)>,
    rate: Rate,
}

impl Meter {
    /// Shows it if standard error is a terminal, or if `is_wanted`.
    #[must_use]
    pub fn new(is_wanted: bool) -> Meter {
        let is_terminal = io::stderr().is_terminal();
        Meter {
            is_shown: is_terminal || is_wanted,
            is_terminal,
            is_line_open: false,
            last_shown: None,
            waits_since: None,
            rate: Rate::default(),
        }
    }

    /// Shows the progress.
    pub fn show(&mut self, progress: &Progress) {
        let now = Instant::now();
        self.tell_of_waiting(now, progress.waits_for.as_deref());
        self.rate.record(now, progress);
        let is_due = self.is_terminal || self.last_shown.is_none_or(|last| now - last >= REPEAT);
        if !self.is_shown || !is_due {
            return;
        }
        self.last_shown = Some(now);
        let line = self.rate.line(progress);
        self.print(&line);
    }

    /// Says for what the job waits, whether progress is shown or not: it would seem to hang.
    fn tell_of_waiting(&mut self, now: Instant, waits_for: Option<&str>) {
        let Some(reason) = waits_for else {
            self.waits_since = None;
            return;
        };
        let (since, patience) = *self.waits_since.get_or_insert((now, WAITS));
        if now - since >= patience {
            self.waits_since = Some((now, STILL_WAITS));
            let clear = if std::mem::take(&mut self.is_line_open) { "\r\x1b[K" } else { "" };
            // As below.
            let _ = writeln!(io::stderr(), "{clear}waiting: {reason}");
        }
    }

    fn print(&mut self, line: &str) {
        // A failure to print cannot be reported.
        let _ = if self.is_terminal {
            self.is_line_open = true;
            write!(io::stderr(), "\r\x1b[K{line}")
        } else {
            writeln!(io::stderr(), "{line}")
        };
    }
}

/// The bar of a job whose end is known, once it takes long.
pub struct Bar {
    meter: Meter,
    began: Instant,
}

impl Bar {
    /// A job that begins now. Its bar is shown if standard error is a terminal, or if `is_wanted`.
    #[must_use]
    pub fn new(is_wanted: bool) -> Bar {
        Bar { meter: Meter::new(is_wanted), began: Instant::now() }
    }

    /// Shows that `done` of `all` steps are done; while `all` is not known, only their number.
    pub fn show(&mut self, doing: &str, done: u64, all: Option<u64>) {
        let now = Instant::now();
        let pause = if self.meter.is_terminal { REFRESH } else { REPEAT };
        let is_due = self.meter.last_shown.is_none_or(|last| now - last >= pause);
        if !self.meter.is_shown || !is_due || now - self.began < PATIENCE {
            return;
        }
        self.meter.last_shown = Some(now);
        self.meter.print(&bar(doing, done, all));
    }
}

fn bar(doing: &str, done: u64, all: Option<u64>) -> String {
    let Some(all) = all.filter(|&all| all > 0) else { return format!("{doing}: {done}") };
    let done = done.min(all);
    let full = (u128::from(done) * u128::from(BAR) / u128::from(all)) as usize;
    let percent = u128::from(done) * 100 / u128::from(all);
    format!("{doing} [{}{}] {percent} %", "#".repeat(full), "-".repeat(BAR as usize - full))
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.is_line_open {
            // As above.
            let _ = writeln!(io::stderr());
        }
    }
}

/// Remaining work at several moments of the last while, for the rate.
#[derive(Default)]
struct Rate {
    subject: Option<(String, Phase)>,
    past: Vec<(Instant, u64)>,
}

impl Rate {
    fn record(&mut self, now: Instant, progress: &Progress) {
        let subject = Some((progress.volume.clone(), progress.phase));
        if self.subject != subject {
            self.subject = subject;
            self.past.clear();
        }
        // One point before the window stays, so that a slow job has a rate too.
        while self.past.get(1).is_some_and(|(at, _)| now - *at >= WINDOW) {
            self.past.remove(0);
        }
        self.past.push((now, progress.left_bytes));
    }

    /// Bytes per second by which the rest shrinks; `None` while unknown, or while the rest grows.
    fn bytes_per_second(&self) -> Option<u64> {
        let ((from, more), (to, less)) = (self.past.first()?, self.past.last()?);
        let milliseconds = u64::try_from((*to - *from).as_millis()).ok().filter(|ms| *ms >= 500)?;
        let rate = more.checked_sub(*less)?.saturating_mul(1000) / milliseconds;
        (rate > 0).then_some(rate)
    }

    fn line(&self, progress: &Progress) -> String {
        let (doing, kind) = match progress.phase {
            Phase::Flushing => ("flushing", "dirty"),
            Phase::Comparing => ("comparing", "cached"),
            Phase::Warming => ("warming", "listed"),
            Phase::Scrubbing => ("scrubbing", "cached"),
            Phase::Copying => ("copying to", "of the cache"),
        };
        let left = format!("{doing} {}: {} {kind} left", progress.volume, Size(progress.left_bytes));
        match self.bytes_per_second() {
            Some(rate) => {
                let seconds = progress.left_bytes.div_ceil(rate);
                format!("{left}, {}/s, done in about {}", Size(rate), Span(seconds))
            }
            None => left,
        }
    }
}

/// A span of time for people.
struct Span(u64);

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds.div_ceil(60)),
            seconds => write!(f, "{} h {} min", seconds / 3600, seconds % 3600 / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(left_bytes: u64) -> Progress {
        Progress { volume: "disk".to_owned(), phase: Phase::Flushing, left_bytes, waits_for: None }
    }

    #[test]
    fn the_rate_is_that_of_the_last_while() {
        let start = Instant::now();
        let mut rate = Rate::default();
        rate.record(start, &progress(100 << 20));
        assert_eq!(rate.bytes_per_second(), None);
        for second in 1..=20 {
            rate.record(start + Duration::from_secs(second), &progress((100 - second * 2) << 20));
        }
        assert_eq!(rate.bytes_per_second(), Some(2 << 20));
        let line = rate.line(&progress(60 << 20));
        assert_eq!(line, "flushing disk: 60 MiB dirty left, 2 MiB/s, done in about 30 s");
    }

    #[test]
    fn a_bar_fills_up() {
        assert_eq!(bar("x", 7, None), "x: 7");
        assert_eq!(bar("x", 0, Some(2)), "x [------------------------------] 0 %");
        assert_eq!(bar("x", 1, Some(2)), "x [###############---------------] 50 %");
        assert_eq!(bar("x", 9, Some(2)), "x [##############################] 100 %");
    }

    #[test]
    fn a_job_that_grows_has_no_end_in_sight() {
        let start = Instant::now();
        let mut rate = Rate::default();
        rate.record(start, &progress(1));
        rate.record(start + Duration::from_secs(1), &progress(2));
        assert_eq!(rate.bytes_per_second(), None);
    }
}
