//! The records of slots with dirty data, 256 to a page, each with a checksum of its own.
//!
//! ```text
//! record   0  piece and flags  u64
//!          8  hint             u16
//!         10  0                u16
//!         12  checksum         u32   CRC-32C of the set id, the slot's number (u32) and the 12 bytes before
//! ```
//!
//! A page is rewritten where it is, so a power cut may tear it. It tears at sectors, which hold whole
//! records, and each of those is right for itself: an older or a newer one. 16 zeroes are no record; a
//! new cache has nothing else.
//!
//! Source: flashcache 3.1.1 and EnhanceIO keep 16 bytes for each block, an address and a state. Their pages
//! have no checksums (flashcache: not compiled in).

use super::bytes::{array, put, u16_at, u32_at, u64_at};
use super::slot_record::SlotRecord;
use super::{FormatError, SetId};
use crate::number::{const_u32, index_wide, wide};
use crate::units::{BLOCK_BYTES, Place, crc32c};
use alloc::vec::Vec;

/// Bytes of a record.
const RECORD_BYTES: usize = 16;
/// Records of a page.
pub const SLOT_PAGE_RECORDS: u32 = const_u32(BLOCK_BYTES / wide(RECORD_BYTES));

/// No cache has a page with this number.
const SLOT_PAGES_END: u32 = Place::END / SLOT_PAGE_RECORDS;

const _: () = assert!(512 % RECORD_BYTES == 0, "a torn page has whole records");

/// A page of slot records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPage {
    /// The record of each slot. An error means that a record was written and cannot be read.
    pub records: Vec<Result<Option<SlotRecord>, FormatError>>,
}

impl SlotPage {
    /// Bytes of a page on the device.
    pub const BYTES: usize = index_wide(BLOCK_BYTES);

    /// Writes page number `page` to `bytes`, with `record` of every slot in it.
    ///
    /// # Panics
    /// If `bytes` has another length than [`SlotPage::BYTES`], or no cache has such a page.
    pub fn encode(set_id: &SetId, page: u32, record: impl Fn(u32) -> Option<SlotRecord>, bytes: &mut [u8]) {
        assert!(bytes.len() == SlotPage::BYTES && page < SLOT_PAGES_END);
        for (field, slot) in bytes.chunks_exact_mut(RECORD_BYTES).zip(page * SLOT_PAGE_RECORDS..) {
            field.fill(0);
            let Some(record) = record(slot) else { continue };
            put(field, 0, &record.bits().to_le_bytes());
            put(field, 8, &record.hint.to_le_bytes());
            let checksum = checksum_of(set_id, slot, field);
            put(field, 12, &checksum.to_le_bytes());
        }
    }

    /// Reads page number `page` from the first [`SlotPage::BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], or `Field` if no cache has such a page; what else is wrong concerns single records.
    pub fn decode(set_id: &SetId, page: u32, bytes: &[u8]) -> Result<SlotPage, FormatError> {
        let bytes = bytes.get(..SlotPage::BYTES).ok_or(FormatError::Truncated)?;
        if page >= SLOT_PAGES_END {
            return Err(FormatError::Field("page"));
        }
        let fields = bytes.chunks_exact(RECORD_BYTES).zip(page * SLOT_PAGE_RECORDS..);
        Ok(SlotPage { records: fields.map(|(field, slot)| decode_record(set_id, slot, field)).collect() })
    }
}

fn decode_record(set_id: &SetId, slot: u32, field: &[u8]) -> Result<Option<SlotRecord>, FormatError> {
    if array::<RECORD_BYTES>(field, 0)? == [0; RECORD_BYTES] {
        return Ok(None);
    }
    if u32_at(field, 12)? != checksum_of(set_id, slot, field) {
        return Err(FormatError::Checksum);
    }
    if u16_at(field, 10)? != 0 {
        return Err(FormatError::Field("slot reserved"));
    }
    // A record that says nothing is written as zeroes.
    SlotRecord::from_bits(u64_at(field, 0)?, u16_at(field, 8)?)?
        .map(Some)
        .ok_or(FormatError::Field("slot flags"))
}

/// The checksum of a record: of another cache, or in another slot's place, it does not match.
fn checksum_of(set_id: &SetId, slot: u32, field: &[u8]) -> u32 {
    let mut covered = [0; 32];
    put(&mut covered, 0, set_id);
    put(&mut covered, 16, &slot.to_le_bytes());
    put(&mut covered, 20, &field[..12]);
    crc32c(&covered)
}
