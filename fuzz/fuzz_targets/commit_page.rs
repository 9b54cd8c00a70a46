//! What a transaction writes, from any bytes and from any bytes whose checksum is right: pages of mappings and
//! of trees, and the record.
#![no_main]

mod format;

use engine::format::{
    COMMIT_PAGE_RECORDS, CommitPage, CommitRecord, PAIRED_PAGE_BYTES, SetId, TREE_LEVELS_MAX, TreePage,
    TreePlanes, TreeShape,
};
use engine::units::crc32c;
use libfuzzer_sys::fuzz_target;

const SET: SetId = [7; 16];

fuzz_target!(|input: &[u8]| {
    let _ = (CommitPage::decode(&SET, input), TreePage::decode(&SET, input), CommitRecord::decode(input));
    let mut bytes = [&b"FBPP\0\0\0\0"[..], input].concat();
    bytes.resize(PAIRED_PAGE_BYTES, 0);
    let covered = [&SET[..], &bytes[8..]].concat();
    bytes[4..8].copy_from_slice(&crc32c(&covered).to_le_bytes());
    let mut again = vec![0; PAIRED_PAGE_BYTES];
    if let Ok(page) = CommitPage::decode(&SET, &bytes) {
        let record = |slot: u32| page.records[(slot - page.page * COMMIT_PAGE_RECORDS) as usize];
        CommitPage::encode(&SET, page.page, page.transaction, record, &mut again);
        assert_eq!(again, bytes);
    }
    if let Ok(page) = TreePage::decode(&SET, &bytes) {
        TreePage::encode(&SET, page.page, page.transaction, page.content(), &mut again);
        assert_eq!(again, bytes);
        for levels in 1..=TREE_LEVELS_MAX {
            let shape = TreeShape::new(levels).expect("allowed");
            if let Ok(planes) = TreePlanes::from_pages(shape, [&page]) {
                assert!((0..shape.finest()).all(|finest| planes.leaf_of(finest) < shape.nodes()));
            }
        }
    }
    let mut bytes = format::with_magic(input, b"FBAYCMIT", format::BLOCK);
    format::seal(&mut bytes);
    if let Ok(record) = CommitRecord::decode(&bytes) {
        record.encode(&mut again);
        assert_eq!(CommitRecord::decode(&again), Ok(record));
    }
});
