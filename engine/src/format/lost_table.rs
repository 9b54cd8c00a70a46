//! Blocks of slots whose only copy rotted: reads of them fail until they are written anew.
//!
//! Two copies, written in turn by the parity of the update number; of the valid ones the higher counts.

use super::bytes::{array, counter_at, put, seal, u16_at, u32_at, unseal};
use super::{COUNTER_END, FormatError, SLOT_BLOCKS_MAX, SetId, VERSION};
use crate::number::{index, index_wide, to_u32};
use alloc::vec::Vec;

const MAGIC: [u8; 8] = *b"FBAYLOST";
const RANGES_AT: usize = 64;
const RANGE_BYTES: usize = 8;
/// Lost ranges at the most. A device on which more of them rot is done for.
pub const LOST_RANGES_MAX: usize = 8000;

const _: () = assert!(RANGES_AT + LOST_RANGES_MAX * RANGE_BYTES <= LostTable::BYTES);
const _: () = assert!(SLOT_BLOCKS_MAX <= 0xffff);

/// Lost blocks of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRange {
    /// The slot.
    pub slot: u32,
    /// The first lost block of it.
    pub first_block: u16,
    /// How many; not 0.
    pub blocks: u16,
}

/// All lost blocks of a cache with slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostTable {
    /// The cache it belongs to.
    pub set_id: SetId,
    /// Counts the writes of the table.
    pub update: u64,
    /// The ranges in rising order, none overlapping another one; [`LOST_RANGES_MAX`] at the most.
    pub ranges: Vec<LostRange>,
}

impl LostTable {
    /// Bytes of one copy on the device.
    pub const BYTES: usize = 64 * 1024;

    /// Which of the two places it is written to.
    #[must_use]
    pub fn place(update: u64) -> usize {
        index_wide(update & 1)
    }

    /// Whether the ranges may be written.
    ///
    /// # Errors
    /// [`FormatError::Field`].
    pub fn validate(&self) -> Result<(), FormatError> {
        if self.ranges.len() > LOST_RANGES_MAX {
            return Err(FormatError::Field("lost ranges"));
        }
        let end = |range: &LostRange| u32::from(range.first_block) + u32::from(range.blocks);
        if self.ranges.iter().any(|range| range.blocks == 0 || end(range) > SLOT_BLOCKS_MAX) {
            return Err(FormatError::Field("lost blocks"));
        }
        let is_ordered = |pair: &[LostRange]| {
            let [first, next] = pair else { return true };
            first.slot < next.slot || (first.slot == next.slot && end(first) <= u32::from(next.first_block))
        };
        if self.ranges.windows(2).all(is_ordered) { Ok(()) } else { Err(FormatError::Field("lost order")) }
    }

    /// Writes the table to `bytes`.
    ///
    /// # Panics
    /// If `bytes` has another length than [`LostTable::BYTES`], or [`LostTable::validate`] fails.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == LostTable::BYTES && self.update <= COUNTER_END);
        assert_eq!(self.validate(), Ok(()), "only allowed tables are written");
        bytes.fill(0);
        put(bytes, 16, &self.set_id);
        put(bytes, 32, &self.update.to_le_bytes());
        put(bytes, 40, &to_u32(self.ranges.len()).to_le_bytes());
        for (range, field) in self.ranges.iter().zip(bytes[RANGES_AT..].chunks_exact_mut(RANGE_BYTES)) {
            put(field, 0, &range.slot.to_le_bytes());
            put(field, 4, &range.first_block.to_le_bytes());
            put(field, 6, &range.blocks.to_le_bytes());
        }
        seal(bytes, MAGIC, VERSION);
    }

    /// Reads a table from the first [`LostTable::BYTES`] of `bytes`. Whether the slots exist is for others to say.
    ///
    /// # Errors
    /// Any [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<LostTable, FormatError> {
        if array::<8>(bytes, 0)? != MAGIC {
            return Err(FormatError::Magic);
        }
        let bytes = bytes.get(..LostTable::BYTES).ok_or(FormatError::Truncated)?;
        unseal(bytes, MAGIC, VERSION)?;
        let count = index(u32_at(bytes, 40)?);
        if count > LOST_RANGES_MAX {
            return Err(FormatError::Field("lost ranges"));
        }
        let mut ranges = Vec::with_capacity(count);
        for field in bytes[RANGES_AT..].chunks_exact(RANGE_BYTES).take(count) {
            let (slot, first_block, blocks) = (u32_at(field, 0)?, u16_at(field, 4)?, u16_at(field, 6)?);
            ranges.push(LostRange { slot, first_block, blocks });
        }
        let table = LostTable { set_id: array(bytes, 16)?, update: counter_at(bytes, 32, "update")?, ranges };
        table.validate()?;
        Ok(table)
    }
}
