//! Pieces: the one place where a client's request is cut to the sizes that the core takes.

use engine::limits::{RANGE_BYTES_MAX, REQUEST_BYTES_MAX};
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, SectorRange};

/// Kind of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It makes durable what was written.
    Flush,
    /// It says that the content is not needed any more.
    Trim,
    /// It writes zeroes.
    WriteZeroes,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Flush, Kind::Trim, Kind::WriteZeroes];
}

/// Pieces of a discard or of write-zeroes that are in the core at the same time, at most: a range may be as long as the volume.
pub(crate) const RANGE_PIECES_MAX: u32 = 2;

/// Range of one piece, still without memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

impl Cut {
    pub(crate) fn range(self) -> SectorRange {
        assert!(
            self.offset_bytes.is_multiple_of(SECTOR_BYTES) && self.len_bytes.is_multiple_of(SECTOR_BYTES),
            "a piece is a range of whole sectors"
        );
        SectorRange { start: self.offset_bytes / SECTOR_BYTES, sectors: self.len_bytes / SECTOR_BYTES }
    }

    /// The bytes of a buffer for it, and where in the buffer it begins: as in its first block, so that
    /// whole blocks of the volume are whole blocks of the buffer.
    pub(crate) fn buffer(self) -> (u32, u32) {
        let lead_bytes = self.offset_bytes % BLOCK_BYTES;
        let buffer_bytes = (lead_bytes + self.len_bytes).next_multiple_of(BLOCK_BYTES);
        let small = |bytes: u64| u32::try_from(bytes).expect("a piece is small");
        (small(buffer_bytes), small(lead_bytes))
    }

    /// The beginning of the piece that fits a buffer of `buffer_bytes`, at least a block.
    pub(crate) fn shortened(self, buffer_bytes: u64) -> Cut {
        let whole_bytes = buffer_bytes - buffer_bytes % BLOCK_BYTES;
        assert!(whole_bytes > 0, "a buffer has at least a block");
        Cut { len_bytes: self.len_bytes.min(whole_bytes - self.offset_bytes % BLOCK_BYTES), ..self }
    }
}

/// The first piece of a range: as long as the core takes, and ending at a block's border if it is
/// not the last one.
pub(crate) fn cut(kind: Kind, offset_bytes: u64, len_bytes: u64) -> Option<Cut> {
    if len_bytes == 0 {
        return None;
    }
    let longest = match kind {
        // The limit, less the sectors by which an unaligned beginning enlarges the buffer.
        Kind::Read | Kind::Write => u64::from(REQUEST_BYTES_MAX) - offset_bytes % BLOCK_BYTES,
        Kind::Trim | Kind::WriteZeroes => RANGE_BYTES_MAX - offset_bytes % BLOCK_BYTES,
        Kind::Flush => unreachable!("a flush has no range"),
    };
    Some(Cut { offset_bytes, len_bytes: len_bytes.min(longest) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The pieces of any request cover it exactly, none is too long, and inner borders are
        /// borders of blocks.
        #[test]
        fn pieces_cover_a_request(
            start in 0u64..100_000,
            sectors in 1u64..200_000,
            read: bool,
            room in 4096u64..=262_144,
        ) {
            let kind = if read { Kind::Read } else { Kind::Trim };
            let (mut offset, mut left) = (start * 512, sectors * 512);
            while let Some(piece) = cut(kind, offset, left) {
                prop_assert_eq!(piece.offset_bytes, offset);
                prop_assert!(piece.len_bytes > 0);
                let piece = if read { piece.shortened(room) } else { piece };
                let (buffer_bytes, lead_bytes) = if read { piece.buffer() } else { (0, 0) };
                prop_assert!(!read || u64::from(buffer_bytes) <= room);
                prop_assert!(!read || u64::from(lead_bytes) + piece.len_bytes <= u64::from(buffer_bytes));
                prop_assert!(piece.len_bytes <= RANGE_BYTES_MAX);
                offset += piece.len_bytes;
                left -= piece.len_bytes;
                prop_assert!(left == 0 || offset % BLOCK_BYTES == 0);
            }
            prop_assert_eq!(offset, (start + sectors) * 512);
        }
    }
}
