//! The record of a slot, as the bits that both kinds of pages share.

use super::FormatError;
use crate::units::{BlockKey, PieceKey};

/// Bits 0 to 39 are the piece.
const PIECE_MASK: u64 = (1 << 40) - 1;
const VALID: u64 = 1 << 40;
const DIRTY: u64 = 1 << 41;
const LOST: u64 = 1 << 42;
/// The first bit that is not used here.
pub(super) const FREE_BIT: u32 = 43;

const _: () = assert!(BlockKey::END <= PIECE_MASK + 1, "every piece has its bits");

/// The record of a slot that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// The piece that the slot holds.
    pub piece: PieceKey,
    /// Whether the origin does not have it.
    pub is_dirty: bool,
    /// Whether some of its blocks are lost; then it is dirty too. The lost table says which.
    pub is_lost: bool,
    /// The hint that replacement wants to find again.
    pub hint: u16,
}

impl SlotRecord {
    /// All but the hint.
    pub(super) fn bits(&self) -> u64 {
        assert!(self.piece.0 < BlockKey::END && (self.is_dirty || !self.is_lost));
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        self.piece.0 | VALID | flag(self.is_dirty, DIRTY) | flag(self.is_lost, LOST)
    }

    /// The record that `bits` below [`FREE_BIT`] and `hint` tell of. `None` if the slot holds nothing.
    pub(super) fn from_bits(bits: u64, hint: u16) -> Result<Option<SlotRecord>, FormatError> {
        if bits == 0 && hint == 0 {
            return Ok(None);
        }
        let record = SlotRecord {
            piece: PieceKey(bits & PIECE_MASK),
            is_dirty: bits & DIRTY != 0,
            is_lost: bits & LOST != 0,
            hint,
        };
        if bits & VALID == 0 || bits >> FREE_BIT != 0 {
            return Err(FormatError::Field("slot flags"));
        }
        if record.piece.0 >= BlockKey::END {
            return Err(FormatError::Field("slot piece"));
        }
        if record.is_lost && !record.is_dirty {
            return Err(FormatError::Field("slot lost"));
        }
        Ok(Some(record))
    }
}
