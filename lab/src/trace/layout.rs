//! The disks of a trace laid end to end on one.
//!
//! A trace may have more volumes than a cache can have, and the question is what one cache does for all of
//! them. So each volume gets a stretch of one origin, as long as what the trace asks of it.

use super::{Entry, Survey};
use engine::units::{SECTOR_BYTES, SectorRange};

/// Each volume begins at a multiple of this, so that blocks stay blocks: 1 MiB.
const ALIGNMENT_SECTORS: u64 = (1 << 20) / SECTOR_BYTES;
/// The largest origin: 128 TiB.
pub const ORIGIN_BYTES_MAX: u64 = 128 << 40;

/// The places of the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First sector and length of each.
    stretches: Vec<(u64, u64)>,
    /// All of them.
    sectors: u64,
}

/// The reason why the volumes of a trace are no origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// They are too large together.
    #[error("the trace's addresses need an origin of more than 128 TiB; they may be no addresses but names")]
    TooLarge,
    /// There is nothing in it.
    #[error("the trace has no requests")]
    Empty,
}

impl Layout {
    /// The volumes that were surveyed, one behind the other.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn new(survey: &Survey) -> Result<Layout, LayoutError> {
        let mut layout = Layout { stretches: Vec::new(), sectors: 0 };
        for &sectors in &survey.volume_sectors {
            layout.stretches.push((layout.sectors, sectors));
            let after = layout.sectors.checked_add(sectors.next_multiple_of(ALIGNMENT_SECTORS));
            let sectors_max = ORIGIN_BYTES_MAX / SECTOR_BYTES;
            layout.sectors = after.filter(|&after| after <= sectors_max).ok_or(LayoutError::TooLarge)?;
        }
        if layout.sectors == 0 { Err(LayoutError::Empty) } else { Ok(layout) }
    }

    /// The size of the origin.
    #[must_use]
    pub fn origin_bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }

    /// The place of a request of the trace; `None` if it was not surveyed.
    #[must_use]
    pub fn place(&self, entry: &Entry) -> Option<SectorRange> {
        let &(start, sectors) = self.stretches.get(entry.volume as usize)?;
        let range = SectorRange { start: start + entry.range.start, sectors: entry.range.sectors };
        (entry.range.end() <= sectors).then_some(range)
    }
}
