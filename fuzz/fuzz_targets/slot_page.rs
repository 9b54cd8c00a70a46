//! A page of slot records from any bytes, and from any bytes whose checksums are right.
#![no_main]

use engine::format::{SLOT_PAGE_RECORDS, SetId, SlotPage};
use engine::units::crc32c;
use libfuzzer_sys::fuzz_target;

const SET: SetId = [7; 16];
const PAGE: u32 = 3;
/// Bytes of a record that its checksum covers, and all of it.
const COVERED: usize = 12;
const RECORD: usize = 16;

fuzz_target!(|input: &[u8]| {
    let _ = SlotPage::decode(&SET, PAGE, input);
    let mut bytes = vec![0; SlotPage::BYTES];
    for ((record, input), slot) in
        bytes.chunks_exact_mut(RECORD).zip(input.chunks(COVERED)).zip(PAGE * SLOT_PAGE_RECORDS..)
    {
        record[..input.len()].copy_from_slice(input);
        let covered = [&SET[..], &slot.to_le_bytes(), &record[..COVERED]].concat();
        record[COVERED..].copy_from_slice(&crc32c(&covered).to_le_bytes());
    }
    let page = SlotPage::decode(&SET, PAGE, &bytes).expect("a page is as long as it has to be");
    let mut again = vec![0; SlotPage::BYTES];
    let found = |slot: u32| page.records[(slot % SLOT_PAGE_RECORDS) as usize].unwrap_or(None);
    SlotPage::encode(&SET, PAGE, found, &mut again);
    for ((record, bytes), again) in page.records.iter().zip(bytes.chunks(RECORD)).zip(again.chunks(RECORD)) {
        assert!(record.is_err() || bytes == again);
    }
});
