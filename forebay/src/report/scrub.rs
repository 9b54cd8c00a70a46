//! Scrubs in the report of `status`.

use super::history::utc;
use crate::output::Size;
use engine::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Scrubs of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Days from one scrub by itself to the next; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u16>,
    /// Bytes that are left of the scrub under way; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_bytes: Option<u64>,
    /// When the last whole one ended, in seconds since 1970; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ended_seconds: Option<u64>,
    /// Bytes that it compared with their checksums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_read_bytes: Option<u64>,
    /// Blocks that it found damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_damaged_blocks: Option<u64>,
    /// Blocks that scrubs found good since the start.
    pub good_blocks: u64,
    /// Clean blocks that left the cache because of scrubs since the start.
    pub dropped_blocks: u64,
    /// Dirty blocks that scrubs found rotten since the start.
    pub lost_blocks: u64,
    /// Blocks that scrubs could not read since the start.
    pub unreadable_blocks: u64,
}

impl ScrubReport {
    pub(super) fn print(&self, to: &mut impl Write) -> io::Result<()> {
        if let Some(seconds) = self.last_ended_seconds {
            let at = utc(seconds);
            let read = Size(self.last_read_bytes.unwrap_or(0));
            let damaged = Size(self.last_damaged_blocks.unwrap_or(0) * BLOCK_BYTES);
            writeln!(to, "scrubbed   {at}: {read} compared, {damaged} damaged")?;
        }
        if let Some(bytes) = self.left_bytes {
            writeln!(to, "scrubbing  {} left", Size(bytes))?;
        }
        Ok(())
    }
}
