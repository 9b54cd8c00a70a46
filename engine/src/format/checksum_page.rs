//! The checksums of the blocks of one area of slots, in a page of eight sectors.
//!
//! ```text
//!  0  magic        u32
//!  4  checksum     u32   CRC-32C of the set id, the sector's number (u32) and of all that follows
//!  8  session      u64   of the daemon that wrote it; bit 63: the blocks are closed
//! 16  checksums    124 · u32   of the sector's blocks, 0 where unknown; none where the blocks are open
//! ```
//!
//! Sectors are numbered through all pages. A page is rewritten where it is, and a power cut may tear it: then it has old
//! and new sectors, and each is right for its own blocks. So a sector that is not whole is rot, and no torn write. A
//! sector of zeroes was never written; a new cache has nothing else.

use super::bytes::{array, put, u32_at, u64_at};
use super::{COUNTER_END, COUNTER_MAX, FormatError, SetId};
use crate::number::{const_u32, index, index_wide, to_u32};
use crate::units::{BLOCK_BYTES, SECTOR_BYTES};
use alloc::vec::Vec;
use core::num::NonZeroU32;

const MAGIC: [u8; 4] = *b"FBCS";
const COVERED_AT: usize = 8;
const CHECKSUMS_AT: usize = 16;
const CHECKSUM_BYTES: usize = size_of::<u32>();
const IS_CLOSED: u64 = 1 << 63;
const ZEROES: [u8; index_wide(SECTOR_BYTES)] = [0; index_wide(SECTOR_BYTES)];
/// Sectors of a page.
const SECTORS: u32 = const_u32(BLOCK_BYTES / SECTOR_BYTES);
/// Checksums of a sector.
const SECTOR_RECORDS: u32 = const_u32((SECTOR_BYTES - 16) / 4);
/// Checksums of a page at the most.
pub const CHECKSUM_PAGE_RECORDS: u32 = SECTORS * SECTOR_RECORDS;

const _: () = assert!(COUNTER_END < IS_CLOSED, "a session leaves the last bit free");

/// A sector of a page of checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumSector {
    /// The session that wrote it.
    pub session: u64,
    /// The checksums of closed blocks, as far as they are known; `None` if the blocks are open.
    pub checksums: Option<Vec<Option<NonZeroU32>>>,
}

/// A page of checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumPage {
    /// Its sectors; `None` for one that was never written.
    pub sectors: Vec<Option<ChecksumSector>>,
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
        let sectors = bytes.chunks_exact_mut(index_wide(SECTOR_BYTES));
        let fields = sectors.flat_map(|sector| sector[CHECKSUMS_AT..].chunks_exact_mut(CHECKSUM_BYTES));
        for (field, block) in fields.zip(0..) {
            put(field, 0, &checksum(block).map_or(0, NonZeroU32::get).to_le_bytes());
        }
        seal(set_id, page, session | IS_CLOSED, bytes);
    }

    /// Reads page number `page` from the first [`ChecksumPage::BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], or another one if a sector is damaged.
    pub fn decode(set_id: &SetId, page: u32, bytes: &[u8]) -> Result<ChecksumPage, FormatError> {
        let bytes = bytes.get(..ChecksumPage::BYTES).ok_or(FormatError::Truncated)?;
        let sectors = bytes.chunks_exact(index_wide(SECTOR_BYTES)).zip(page * SECTORS..);
        let sectors = sectors.map(|(bytes, sector)| decode_sector(set_id, sector, bytes));
        Ok(ChecksumPage { sectors: sectors.collect::<Result<_, _>>()? })
    }

    /// The checksum of each block of the area, as far as sectors tell that `counts` accepts.
    pub fn checksums(&self, counts: impl Fn(&ChecksumSector) -> bool) -> Vec<Option<NonZeroU32>> {
        let mut known = Vec::with_capacity(index(CHECKSUM_PAGE_RECORDS));
        for sector in &self.sectors {
            let told = sector.as_ref().filter(|sector| counts(sector));
            match told.and_then(|sector| sector.checksums.as_ref()) {
                Some(checksums) => known.extend(checksums),
                None => known.resize(known.len() + index(SECTOR_RECORDS), None),
            }
        }
        known
    }
}

fn decode_sector(set_id: &SetId, sector: u32, bytes: &[u8]) -> Result<Option<ChecksumSector>, FormatError> {
    if bytes == ZEROES {
        return Ok(None);
    }
    if array::<4>(bytes, 0)? != MAGIC {
        return Err(FormatError::Magic);
    }
    if u32_at(bytes, 4)? != checksum_of(set_id, sector, bytes) {
        return Err(FormatError::Checksum);
    }
    let session = u64_at(bytes, 8)?;
    let is_closed = session & IS_CLOSED != 0;
    let session = session & !IS_CLOSED;
    if session > COUNTER_MAX {
        return Err(FormatError::Field("checksum session"));
    }
    let fields = &bytes[CHECKSUMS_AT..];
    if !is_closed && fields != &ZEROES[CHECKSUMS_AT..] {
        return Err(FormatError::Field("checksums of open blocks"));
    }
    let fields = fields.as_chunks::<CHECKSUM_BYTES>().0.iter();
    let checksums =
        is_closed.then(|| fields.map(|&field| NonZeroU32::new(u32::from_le_bytes(field))).collect());
    Ok(Some(ChecksumSector { session, checksums }))
}

fn seal(set_id: &SetId, page: u32, session: u64, bytes: &mut [u8]) {
    assert!(bytes.len() == ChecksumPage::BYTES, "a page of checksums has one size");
    for (bytes, sector) in bytes.chunks_exact_mut(index_wide(SECTOR_BYTES)).zip(page * SECTORS..) {
        put(bytes, 0, &MAGIC);
        put(bytes, 8, &session.to_le_bytes());
        let checksum = checksum_of(set_id, sector, bytes);
        put(bytes, 4, &checksum.to_le_bytes());
    }
}

/// The checksum of a sector: of another cache, or in another sector's place, it does not match.
fn checksum_of(set_id: &SetId, sector: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    crc.update(set_id);
    crc.update(&sector.to_le_bytes());
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
        let mut bytes = vec![0xee; BLOCK];
        ChecksumPage::encode_closed(&SET, 2, 9, checksum, &mut bytes);
        bytes
    }

    fn open_page() -> Vec<u8> {
        let mut bytes = vec![0xee; BLOCK];
        ChecksumPage::encode_open(&SET, 2, 9, &mut bytes);
        bytes
    }

    #[test]
    fn a_page_of_checksums_is_these_bytes() {
        // The fourth block of the second sector.
        let bytes = checksum_page(&|block| NonZeroU32::new(if block == 127 { 0x1234_5678 } else { 0 }));
        let sector = &bytes[512..1024];
        assert_eq!(sector[..4], *b"FBCS");
        assert_eq!(sector[8..16], [9, 0, 0, 0, 0, 0, 0, 0x80]);
        assert!(sector[16..28].iter().chain(&sector[32..]).all(|&byte| byte == 0));
        assert_eq!(sector[28..32], [0x78, 0x56, 0x34, 0x12]);
        let mut covered = SET.to_vec();
        covered.extend((2u32 * 8 + 1).to_le_bytes());
        covered.extend(&sector[8..]);
        assert_eq!(sector[4..8], crc32c(&covered).to_le_bytes());
        let page = ChecksumPage::decode(&SET, 2, &bytes).unwrap();
        assert!(page.sectors.iter().flatten().all(|sector| sector.session == 9));
        let known = page.checksums(|_| true);
        assert_eq!((known.len(), known[127]), (992, NonZeroU32::new(0x1234_5678)));
        assert_eq!(known.iter().flatten().count(), 1);
        assert_eq!(page.checksums(|_| false), [None; 992]);
        let open = ChecksumPage::decode(&SET, 2, &open_page()).unwrap();
        assert_eq!(open.sectors, vec![Some(ChecksumSector { session: 9, checksums: None }); 8]);
        let never = ChecksumPage::decode(&SET, 2, &[0; BLOCK]).unwrap();
        assert_eq!(never.sectors, vec![None; 8]);
    }

    #[test]
    fn each_sector_of_a_torn_page_is_right_for_its_own_blocks() {
        let closed = checksum_page(&NonZeroU32::new);
        let open = open_page();
        for sectors in 1..8 {
            let torn = [&open[..sectors * 512], &closed[sectors * 512..]].concat();
            let known = ChecksumPage::decode(&SET, 2, &torn).unwrap().checksums(|_| true);
            let right =
                (0..992).map(|block| NonZeroU32::new(block).filter(|_| block as usize >= sectors * 124));
            assert_eq!(known, right.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_sector_that_is_rotten_or_of_something_else_is_an_error() {
        let bytes = checksum_page(&NonZeroU32::new);
        assert_eq!(ChecksumPage::decode(&SET, 3, &bytes), Err(FormatError::Checksum));
        assert_eq!(ChecksumPage::decode(&[8; 16], 2, &bytes), Err(FormatError::Checksum));
        assert_eq!(ChecksumPage::decode(&SET, 2, &bytes[..4095]), Err(FormatError::Truncated));
        for bit in (0..BLOCK * 8).step_by(7) {
            for page in [&bytes, &open_page(), &vec![0; BLOCK]] {
                let mut changed = page.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(ChecksumPage::decode(&SET, 2, &changed).is_err(), "bit {bit}");
            }
        }
        let moved = [&bytes[512..1024], &bytes[..512], &bytes[1024..]].concat();
        assert_eq!(ChecksumPage::decode(&SET, 2, &moved), Err(FormatError::Checksum));
    }

    #[test]
    fn any_bytes_give_an_answer() {
        let mut prng = Prng::new(3);
        for _ in 0..20_000 {
            let mut bytes = checksum_page(&NonZeroU32::new);
            let sector = &mut bytes[..512];
            for _ in 0..prng.below(4) {
                let at = prng.below(40) as usize;
                sector[at] = prng.below(256) as u8;
            }
            let sum = checksum_of(&SET, 16, sector).to_le_bytes();
            put(sector, 4, &sum);
            if let Ok(page) = ChecksumPage::decode(&SET, 2, &bytes)
                && let Some(ChecksumSector { session, checksums: Some(_) }) = &page.sectors[0]
            {
                let known = page.checksums(|_| true);
                let mut again = vec![0; BLOCK];
                ChecksumPage::encode_closed(&SET, 2, *session, |block| known[block as usize], &mut again);
                assert_eq!(again[..512], bytes[..512]);
            }
        }
    }
}
