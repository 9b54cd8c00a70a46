//! The checksums of the blocks of one area of slots, in a page of their own.
//!
//! ```text
//!  0  magic        u32
//!  4  checksum     u32   CRC-32C of the set id, the page's number (u32) and of all that follows
//!  8  session      u64   of the daemon that wrote it; bit 63: the area is closed
//! 16  checksums    1020 · u32   of the area's blocks, 0 where unknown; none in the page of an open area
//! ```
//!
//! A page is rewritten where it is. A power cut may tear it: then its checksum is wrong, and nothing is known of its
//! area, as if it were open. 4096 zeroes are a page that was never written; a new cache has nothing else.

use super::bytes::{array, put, u32_at, u64_at};
use super::{COUNTER_MAX, FormatError, SetId};
use crate::number::{const_u32, index, index_wide, to_u32};
use crate::units::BLOCK_BYTES;
use alloc::vec::Vec;
use core::num::NonZeroU32;

const MAGIC: [u8; 4] = *b"FBCS";
const COVERED_AT: usize = 8;
const CHECKSUMS_AT: usize = 16;
const CHECKSUM_BYTES: usize = size_of::<u32>();
const IS_CLOSED: u64 = 1 << 63;
/// Checksums of a page at the most.
pub const CHECKSUM_PAGE_RECORDS: u32 = const_u32((BLOCK_BYTES - 16) / 4);

const _: () = assert!(COUNTER_MAX < IS_CLOSED, "a session leaves the last bit free");

/// A page of checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumPage {
    /// The session that wrote it.
    pub session: u64,
    /// The checksums of a closed area, as far as they are known; `None` if the area is open.
    pub checksums: Option<Vec<Option<NonZeroU32>>>,
}

impl ChecksumPage {
    /// Bytes of a page on the device.
    pub const BYTES: usize = index_wide(BLOCK_BYTES);

    /// Writes the page of an open area to `bytes`.
    ///
    /// # Panics
    /// If `bytes` has another length than [`ChecksumPage::BYTES`].
    pub fn encode_open(set_id: &SetId, page: u32, session: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        seal(set_id, page, session, bytes);
    }

    /// Writes the page of a closed area to `bytes`, with `checksum` of each of its blocks.
    ///
    /// # Panics
    /// If `bytes` has another length than [`ChecksumPage::BYTES`].
    pub fn encode_closed(
        set_id: &SetId,
        page: u32,
        session: u64,
        checksum: impl Fn(u32) -> Option<NonZeroU32>,
        bytes: &mut [u8],
    ) {
        bytes.fill(0);
        for (field, block) in bytes[CHECKSUMS_AT..].chunks_exact_mut(CHECKSUM_BYTES).zip(0..) {
            put(field, 0, &checksum(block).map_or(0, NonZeroU32::get).to_le_bytes());
        }
        seal(set_id, page, session | IS_CLOSED, bytes);
    }

    /// Reads page number `page` from the first [`ChecksumPage::BYTES`] of `bytes`; `None` if it was never written.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], or another one if nothing is known of the area because of damage.
    pub fn decode(set_id: &SetId, page: u32, bytes: &[u8]) -> Result<Option<ChecksumPage>, FormatError> {
        let bytes = bytes.get(..ChecksumPage::BYTES).ok_or(FormatError::Truncated)?;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if array::<4>(bytes, 0)? != MAGIC {
            return Err(FormatError::Magic);
        }
        if u32_at(bytes, 4)? != checksum_of(set_id, page, bytes) {
            return Err(FormatError::Checksum);
        }
        let session = u64_at(bytes, 8)?;
        let is_closed = session & IS_CLOSED != 0;
        let session = session & !IS_CLOSED;
        if session > COUNTER_MAX {
            return Err(FormatError::Field("checksum session"));
        }
        if !is_closed && bytes[CHECKSUMS_AT..].iter().any(|&byte| byte != 0) {
            return Err(FormatError::Field("checksums of an open area"));
        }
        let fields =
            (0..index(CHECKSUM_PAGE_RECORDS)).map(|at| u32_at(bytes, CHECKSUMS_AT + at * CHECKSUM_BYTES));
        let checksums = is_closed.then(|| fields.map(|field| field.map(NonZeroU32::new)).collect());
        Ok(Some(ChecksumPage { session, checksums: checksums.transpose()? }))
    }
}

fn seal(set_id: &SetId, page: u32, session: u64, bytes: &mut [u8]) {
    assert!(bytes.len() == ChecksumPage::BYTES && session & !IS_CLOSED <= COUNTER_MAX);
    put(bytes, 0, &MAGIC);
    put(bytes, 8, &session.to_le_bytes());
    let checksum = checksum_of(set_id, page, bytes);
    put(bytes, 4, &checksum.to_le_bytes());
}

/// The checksum of a page: of another cache, or in another page's place, it does not match.
fn checksum_of(set_id: &SetId, page: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    crc.update(set_id);
    crc.update(&page.to_le_bytes());
    crc.update(&bytes[COVERED_AT..]);
    to_u32(crc.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::units::crc32c;
    use std::vec;

    const BLOCK: usize = ChecksumPage::BYTES;
    const SET: SetId = *b"0123456789abcdef";

    fn checksum_page(checksum: &dyn Fn(u32) -> Option<NonZeroU32>) -> Vec<u8> {
        let mut bytes = vec![0xee; ChecksumPage::BYTES];
        ChecksumPage::encode_closed(&SET, 2, 9, checksum, &mut bytes);
        bytes
    }

    #[test]
    fn a_page_of_checksums_is_these_bytes() {
        let bytes = checksum_page(&|block| NonZeroU32::new(if block == 3 { 0x1234_5678 } else { 0 }));
        assert_eq!(bytes[..4], *b"FBCS");
        assert_eq!(bytes[8..16], [9, 0, 0, 0, 0, 0, 0, 0x80]);
        assert!(bytes[16..28].iter().chain(&bytes[32..]).all(|&byte| byte == 0));
        assert_eq!(bytes[16 + 12..16 + 16], [0x78, 0x56, 0x34, 0x12]);
        let mut covered = SET.to_vec();
        covered.extend(2u32.to_le_bytes());
        covered.extend(&bytes[8..]);
        assert_eq!(bytes[4..8], crc32c(&covered).to_le_bytes());
        let page = ChecksumPage::decode(&SET, 2, &bytes).unwrap().unwrap();
        let checksums = page.checksums.unwrap();
        assert_eq!((page.session, checksums.len(), checksums[3]), (9, 1020, NonZeroU32::new(0x1234_5678)));
        let mut open = vec![0xee; BLOCK];
        ChecksumPage::encode_open(&SET, 2, 9, &mut open);
        assert_eq!((open[15], open[16..].iter().all(|&byte| byte == 0)), (0, true));
        let page = ChecksumPage { session: 9, checksums: None };
        assert_eq!(ChecksumPage::decode(&SET, 2, &open), Ok(Some(page)));
    }

    #[test]
    fn a_page_of_checksums_tells_nothing_if_it_is_torn_rotten_or_of_something_else() {
        let bytes = checksum_page(&|block| NonZeroU32::new(block));
        assert_eq!(ChecksumPage::decode(&SET, 2, &[0; BLOCK]), Ok(None));
        assert_eq!(ChecksumPage::decode(&SET, 3, &bytes), Err(FormatError::Checksum));
        assert_eq!(ChecksumPage::decode(&[8; 16], 2, &bytes), Err(FormatError::Checksum));
        assert_eq!(ChecksumPage::decode(&SET, 2, &bytes[..4095]), Err(FormatError::Truncated));
        for bit in (0..BLOCK * 8).step_by(7) {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(ChecksumPage::decode(&SET, 2, &changed).is_err(), "bit {bit}");
        }
        let mut open = vec![0; BLOCK];
        ChecksumPage::encode_open(&SET, 2, 9, &mut open);
        for sectors in 1..8 {
            let torn = [&open[..sectors * 512], &bytes[sectors * 512..]].concat();
            assert_eq!(ChecksumPage::decode(&SET, 2, &torn), Err(FormatError::Checksum));
        }
    }

    #[test]
    fn any_bytes_give_an_answer() {
        let mut prng = Prng::new(3);
        for _ in 0..20_000 {
            let mut bytes = checksum_page(&NonZeroU32::new);
            for _ in 0..prng.below(4) {
                let at = prng.below(40) as usize;
                bytes[at] = prng.below(256) as u8;
            }
            let sum = checksum_of(&SET, 2, &bytes).to_le_bytes();
            put(&mut bytes, 4, &sum);
            if let Ok(Some(page)) = ChecksumPage::decode(&SET, 2, &bytes) {
                let mut again = vec![0; BLOCK];
                let Some(checksums) = page.checksums else { continue };
                ChecksumPage::encode_closed(
                    &SET,
                    2,
                    page.session,
                    |block| checksums[block as usize],
                    &mut again,
                );
                assert_eq!(again, bytes);
            }
        }
    }
}
