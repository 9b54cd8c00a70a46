//! The beginning of pages with two places.
//!
//! ```text
//!  0  magic        u32
//!  4  checksum     u32   CRC-32C of the set id and of all that follows
//!  8  kind         u8
//!  9  0            3 bytes
//! 12  page         u32
//! 16  transaction  u64
//! 24  0            8 bytes
//! 32  4064 bytes of content
//! ```
//!
//! A page is never overwritten where it is valid: the next version goes to its other place, and counts from
//! the commit record of its transaction on.

use super::bytes::{array, counter_at, put, u8_at, u32_at};
use super::{COUNTER_END, FormatError, SetId};
use crate::number::{index_wide, to_u32};
use crate::units::BLOCK_BYTES;

const MAGIC: [u8; 4] = *b"FBPP";
const COVERED_AT: usize = 8;
/// Where the content begins.
pub(super) const CONTENT_AT: usize = 32;
/// Bytes of content.
pub(super) const CONTENT_BYTES: usize = PAIRED_PAGE_BYTES - CONTENT_AT;
/// Bytes of a page with two places.
pub const PAIRED_PAGE_BYTES: usize = index_wide(BLOCK_BYTES);

/// The kind of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Slots,
    Tree,
}

impl Kind {
    /// Its number on the device.
    fn code(self) -> u8 {
        match self {
            Kind::Slots => 1,
            Kind::Tree => 2,
        }
    }
}

/// Writes everything but the content, which is there.
pub(super) fn seal(set_id: &SetId, kind: Kind, page: u32, transaction: u64, bytes: &mut [u8]) {
    assert!(bytes.len() == PAIRED_PAGE_BYTES && (1..=COUNTER_END).contains(&transaction));
    bytes[..CONTENT_AT].fill(0);
    put(bytes, 0, &MAGIC);
    bytes[8] = kind.code();
    put(bytes, 12, &page.to_le_bytes());
    put(bytes, 16, &transaction.to_le_bytes());
    let checksum = checksum_of(set_id, bytes);
    put(bytes, 4, &checksum.to_le_bytes());
}

/// Verifies everything but the content. Answers page, transaction and content.
pub(super) fn unseal<'a>(
    set_id: &SetId,
    kind: Kind,
    bytes: &'a [u8],
) -> Result<(u32, u64, &'a [u8]), FormatError> {
    if array::<4>(bytes, 0)? != MAGIC {
        return Err(FormatError::Magic);
    }
    let bytes = bytes.get(..PAIRED_PAGE_BYTES).ok_or(FormatError::Truncated)?;
    if u32_at(bytes, 4)? != checksum_of(set_id, bytes) {
        return Err(FormatError::Checksum);
    }
    if u8_at(bytes, 8)? != kind.code() || array::<3>(bytes, 9)? != [0; 3] || array::<8>(bytes, 24)? != [0; 8]
    {
        return Err(FormatError::Field("page kind"));
    }
    let transaction = counter_at(bytes, 16, "page transaction")?;
    if transaction == 0 {
        return Err(FormatError::Field("page transaction"));
    }
    Ok((u32_at(bytes, 12)?, transaction, &bytes[CONTENT_AT..]))
}

fn checksum_of(set_id: &SetId, bytes: &[u8]) -> u32 {
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    crc.update(set_id);
    crc.update(&bytes[COVERED_AT..]);
    to_u32(crc.finalize())
}
