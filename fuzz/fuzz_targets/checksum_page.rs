//! A page of checksums from any bytes, and from any bytes whose checksum is right.
#![no_main]

use engine::format::{ChecksumPage, SetId};
use engine::units::crc32c;
use libfuzzer_sys::fuzz_target;

const SET: SetId = [7; 16];
const PAGE: u32 = 3;

fuzz_target!(|input: &[u8]| {
    let _ = ChecksumPage::decode(&SET, PAGE, input);
    let mut bytes = vec![0; ChecksumPage::BYTES];
    let len = input.len().min(ChecksumPage::BYTES - 8);
    bytes[8..8 + len].copy_from_slice(&input[..len]);
    bytes[..4].copy_from_slice(b"FBCS");
    let covered = [&SET[..], &PAGE.to_le_bytes(), &bytes[8..]].concat();
    bytes[4..8].copy_from_slice(&crc32c(&covered).to_le_bytes());
    let Ok(Some(page)) = ChecksumPage::decode(&SET, PAGE, &bytes) else { return };
    let mut again = vec![0; ChecksumPage::BYTES];
    match page.checksums {
        None => ChecksumPage::encode_open(&SET, PAGE, page.session, &mut again),
        Some(checksums) => {
            let checksum = |block: u32| checksums[block as usize];
            ChecksumPage::encode_closed(&SET, PAGE, page.session, checksum, &mut again);
        }
    }
    assert_eq!(again, bytes);
});
