//! Output of the verbs, and sizes as people read them.

use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Standard output, in one piece: a reader that goes away early (`forebay dump | head`) is no error.
pub struct Output {
    to: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Standard output.
    #[must_use]
    pub fn stdout() -> Output {
        Output { to: BufWriter::new(io::stdout().lock()) }
    }

    /// Prints a value as one JSON object and a newline.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.to, value).map_err(io::Error::from)?;
        self.to.write_all(b"\n")
    }

    /// Writes out the printed text.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn finish(mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A number of things, with their name for one and for several: `1 batch`, `2 batches`.
pub struct Count<'a>(pub u64, pub &'a str, pub &'a str);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { self.1 } else { self.2 })
    }
}

/// Bytes for people: `1.5 GiB`.
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let power = (0..UNITS.len() - 1).take_while(|power| self.0 >> (10 * (power + 1)) > 0).count();
        let unit = 1u64 << (10 * power);
        let (whole, rest) = (self.0 / unit, self.0 % unit);
        let text = if rest == 0 {
            format!("{whole} {}", UNITS[power])
        } else {
            // One digit, rounded down: a size is never shown larger than it is.
            format!("{whole}.{} {}", rest / (unit / 1024).max(1) * 10 / 1024, UNITS[power])
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_rounded_down() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((8 << 30) - 1, "7.9 GiB"),
            (8 << 30, "8 GiB"),
            (128 << 40, "128 TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
