//! A warm list from any bytes, and from any bytes whose checksum and length are right.
#![no_main]

mod format;

use engine::format::{WarmList, WarmListWriter};
use libfuzzer_sys::fuzz_target;

/// Where the length is.
const LENGTH: core::ops::Range<usize> = 16..24;

fuzz_target!(|input: &[u8]| {
    let _ = WarmList::decode(input);
    let mut bytes = format::with_magic(input, b"FBAYWARM", (input.len() + 8).max(LENGTH.end));
    let length = bytes.len() as u64;
    bytes[LENGTH].copy_from_slice(&length.to_le_bytes());
    format::seal(&mut bytes);
    let Ok(list) = WarmList::decode(&bytes) else { return };
    let mut writer = WarmListWriter::new(list.volumes(), bytes.len() * 4 + 4096);
    let mut blocks = 0_u64;
    for extent in list.extents() {
        let volume = &list.volumes()[usize::from(extent.volume)];
        assert!(extent.first_block + extent.blocks <= volume.blocks);
        blocks = blocks.saturating_add(extent.blocks);
    }
    assert_eq!(blocks, list.blocks());
    // A list of ours has the extents of a class in one piece; of another one the first is enough.
    if let Some(extent) = list.extents().next() {
        assert!(writer.push(extent));
        let again = WarmList::decode(&writer.finish()).expect("what was decoded can be written");
        assert_eq!(again.extents().collect::<Vec<_>>(), [extent]);
        assert_eq!(again.volumes(), list.volumes());
    }
});
