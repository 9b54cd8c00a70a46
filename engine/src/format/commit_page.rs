//! The mappings of 508 slots, as one transaction committed them.
//!
//! An entry has 8 bytes: bits 0 to 42 as in a slot record, 43 to 58 the hint. Whether a slot is dirty, and
//! its hint, count only if the commit record tells of a clean stop.
//!
//! Source: dm-cache's mapping array, which it changes by copying the path to the root. Two places for each
//! page do the same without an allocator.

use super::bytes::{put, u64_at};
use super::paired_page::{CONTENT_AT, CONTENT_BYTES, Kind, PAIRED_PAGE_BYTES, seal, unseal};
use super::slot_record::{FREE_BIT, SlotRecord};
use super::{FormatError, SetId};
use crate::number::{const_u32, index, to_u16, wide};
use crate::units::Place;
use alloc::vec::Vec;

const ENTRY_BYTES: usize = 8;
/// Slots of a page.
pub const COMMIT_PAGE_RECORDS: u32 = const_u32(wide(CONTENT_BYTES / ENTRY_BYTES));

const _: () = assert!(FREE_BIT + u16::BITS <= u64::BITS, "the hint has its bits");

/// A page of mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPage {
    /// Its number.
    pub page: u32,
    /// The transaction that wrote it; not 0.
    pub transaction: u64,
    /// The content of each slot, [`COMMIT_PAGE_RECORDS`] of them.
    pub records: Vec<Option<SlotRecord>>,
}

impl CommitPage {
    /// Writes page number `page` to `bytes`, with `record` of every slot in it.
    ///
    /// # Panics
    /// If `bytes` has another length than [`PAIRED_PAGE_BYTES`], `transaction` is 0, or no cache has such a page.
    pub fn encode(
        set_id: &SetId,
        page: u32,
        transaction: u64,
        record: impl Fn(u32) -> Option<SlotRecord>,
        bytes: &mut [u8],
    ) {
        assert!(bytes.len() == PAIRED_PAGE_BYTES && page <= Place::END / COMMIT_PAGE_RECORDS);
        let entries = bytes[CONTENT_AT..].chunks_exact_mut(ENTRY_BYTES);
        for (entry, slot) in entries.zip(page * COMMIT_PAGE_RECORDS..) {
            let bits = record(slot).map_or(0, |record| record.bits() | u64::from(record.hint) << FREE_BIT);
            put(entry, 0, &bits.to_le_bytes());
        }
        seal(set_id, Kind::Slots, page, transaction, bytes);
    }

    /// Reads a page from the first [`PAIRED_PAGE_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`] but `Version`, which the superblock has.
    pub fn decode(set_id: &SetId, bytes: &[u8]) -> Result<CommitPage, FormatError> {
        let (page, transaction, content) = unseal(set_id, Kind::Slots, bytes)?;
        if page > Place::END / COMMIT_PAGE_RECORDS {
            return Err(FormatError::Field("page"));
        }
        let mut records = Vec::with_capacity(index(COMMIT_PAGE_RECORDS));
        for entry in content.chunks_exact(ENTRY_BYTES) {
            let bits = u64_at(entry, 0)?;
            if bits >> FREE_BIT > u64::from(u16::MAX) {
                return Err(FormatError::Field("slot flags"));
            }
            records.push(SlotRecord::from_bits(bits & ((1 << FREE_BIT) - 1), to_u16(bits >> FREE_BIT))?);
        }
        Ok(CommitPage { page, transaction, records })
    }
}
