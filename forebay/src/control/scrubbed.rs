//! The result of `scrub`.

use crate::output::Size;
use engine::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Result of `scrub`, in blocks of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Blocks that are what was written.
    pub good_blocks: u64,
    /// Blocks of which the cache knows no checksum, and blocks that no scrub may read now.
    pub unknown_blocks: u64,
    /// Clean blocks that were rotten or unreadable, and left the cache: their origin has them.
    pub dropped_blocks: u64,
    /// Dirty blocks that are lost, those included that were lost before.
    pub lost_blocks: u64,
    /// Blocks that could not be read, and stay.
    pub unreadable_blocks: u64,
    /// Blocks of a mirrored cache that were damaged on one device, and were written again from the other one.
    pub mended_blocks: u64,
    /// Segments of the log whose head or summary is damaged wherever it is.
    pub damaged_segments: u64,
    /// The damaged ranges: the first thousand.
    pub damaged: Vec<DamagedRange>,
}

/// A range of a volume that is damaged in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedRange {
    /// The volume.
    pub volume: String,
    /// Where it begins in the volume.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// The damage.
    pub damage: Damage,
}

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damage {
    /// It was clean, and left the cache: the origin has it.
    Dropped,
    /// It was dirty, and is lost.
    Lost,
    /// It could not be read, and stays.
    Unreadable,
}

impl Scrubbed {
    /// Whether something is damaged of which the origin has no copy, or may have none.
    #[must_use]
    pub fn has_loss(&self) -> bool {
        self.lost_blocks + self.unreadable_blocks > 0
    }

    /// Whether anything was damaged, mended or not.
    #[must_use]
    pub fn has_damage(&self) -> bool {
        self.has_loss() || self.dropped_blocks + self.mended_blocks + self.damaged_segments > 0
    }
}

impl fmt::Display for Scrubbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as it was written", Size(self.good_blocks * BLOCK_BYTES))?;
        let parts = [
            (self.unknown_blocks, "that cannot be told of"),
            (self.dropped_blocks, "of clean data dropped"),
            (self.lost_blocks, "of dirty data LOST"),
            (self.unreadable_blocks, "UNREADABLE"),
            (self.mended_blocks, "written again from the other device"),
        ];
        for (blocks, what) in parts.into_iter().filter(|(blocks, _)| *blocks > 0) {
            write!(f, ", {} {what}", Size(blocks * BLOCK_BYTES))?;
        }
        if self.damaged_segments > 0 {
            write!(f, ", segments with a DAMAGED head or summary: {}", self.damaged_segments)?;
        }
        Ok(())
    }
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DamagedRange { volume, offset_bytes, len_bytes, damage } = self;
        let what = match damage {
            Damage::Dropped => "rotted or was unreadable; it was clean, and the origin serves it",
            Damage::Lost => "LOST: it rotted before it went home",
            Damage::Unreadable => "UNREADABLE: the device gives an error; it stays as it is",
        };
        write!(f, "volume {volume}, byte {offset_bytes}, {len_bytes} bytes: {what}")
    }
}
