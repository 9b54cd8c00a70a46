//! The halves of a mirrored cache in a report.

use crate::output::Size;
use engine::pair::{HalfStatus, Standing};
use engine::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// One half of a mirrored cache in `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfReport {
    /// Its device.
    pub device: String,
    /// Whether it counts: in, out, or behind.
    pub standing: String,
    /// Reads that it failed and the other half answered.
    pub read_errors: u64,
    /// Bytes that were wrong on it, or could not be read, and were written again from the other half.
    pub mended_bytes: u64,
    /// Bytes that are left to copy, while it is brought up to date; 0 otherwise.
    pub copy_left_bytes: u64,
}

impl HalfReport {
    /// The report on a half of a running cache.
    #[must_use]
    pub fn new(device: String, half: &HalfStatus) -> HalfReport {
        HalfReport {
            read_errors: half.read_errors,
            mended_bytes: half.mended_blocks * BLOCK_BYTES,
            copy_left_bytes: half.to_copy_bytes.saturating_sub(half.copied_bytes),
            ..HalfReport::at_rest(device, half.standing)
        }
    }

    /// The report on a half of a cache that does not run.
    #[must_use]
    pub fn at_rest(device: String, standing: Standing) -> HalfReport {
        let standing = standing.name().to_owned();
        HalfReport { device, standing, read_errors: 0, mended_bytes: 0, copy_left_bytes: 0 }
    }

    /// Whether it has everything.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.standing == Standing::In.name()
    }

    /// A line about a half of the cache `cache` that does not have everything.
    #[must_use]
    pub fn trouble(&self, cache: &str) -> Option<String> {
        let device = &self.device;
        if self.copy_left_bytes > 0 {
            Some(format!("{} left to copy to {device}", Size(self.copy_left_bytes)))
        } else if !self.counts() {
            Some(format!(
                "{device} does not count; forebay replace {cache} --mirror DEV takes it back, or another device"
            ))
        } else {
            None
        }
    }
}

/// Prints the halves of the cache `cache` for people.
///
/// # Errors
/// The error of writing.
pub fn print(halves: &[HalfReport], cache: &str, to: &mut impl Write) -> io::Result<()> {
    let all: Vec<String> = halves.iter().map(|half| format!("{} ({})", half.device, half.standing)).collect();
    writeln!(to, "mirror     {}", all.join(", "))?;
    for half in halves {
        let device = &half.device;
        if let Some(line) = half.trouble(cache) {
            writeln!(to, "DEGRADED   {line}")?;
        }
        if half.read_errors > 0 || half.mended_bytes > 0 {
            let mended = Size(half.mended_bytes);
            writeln!(to, "           {device} failed {} reads, {mended} were mended", half.read_errors)?;
        }
    }
    Ok(())
}
