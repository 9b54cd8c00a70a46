//! A page of checksums from any bytes, and from a sector of any bytes whose checksum is right.
#![no_main]

use engine::format::{ChecksumPage, ChecksumSector, SetId};
use engine::units::crc32c;
use libfuzzer_sys::fuzz_target;

const SET: SetId = [7; 16];
const PAGE: u32 = 3;
/// The first sector of the page: eight sectors make a page.
const SECTOR: u32 = 24;

fuzz_target!(|input: &[u8]| {
    let _ = ChecksumPage::decode(&SET, PAGE, input);
    let mut bytes = vec![0; ChecksumPage::BYTES];
    let len = input.len().min(512 - 8);
    bytes[8..8 + len].copy_from_slice(&input[..len]);
    bytes[..4].copy_from_slice(b"FBCS");
    let covered = [&SET[..], &SECTOR.to_le_bytes(), &bytes[8..512]].concat();
    bytes[4..8].copy_from_slice(&crc32c(&covered).to_le_bytes());
    let Ok(page) = ChecksumPage::decode(&SET, PAGE, &bytes) else { return };
    let Some(ChecksumSector { session, checksums }) = &page.sectors[0] else { return };
    let mut again = vec![0; ChecksumPage::BYTES];
    match checksums {
        None => ChecksumPage::encode_open(&SET, PAGE, *session, &mut again),
        Some(checksums) => {
            let checksum = |block: u32| checksums.get(block as usize).copied().flatten();
            ChecksumPage::encode_closed(&SET, PAGE, *session, checksum, &mut again);
        }
    }
    assert_eq!(again[..512], bytes[..512]);
});
