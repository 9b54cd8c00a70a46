//! A batch header from any bytes, and from any bytes whose checksum is right.
#![no_main]

mod format;

use engine::format::{BatchHeader, ENTRY_BYTES, header_blocks_for};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = BatchHeader::decode(input);
    let mut bytes = format::with_magic(
        input,
        b"FBAYBTCH",
        input.len().max(1).div_ceil(format::BLOCK) * format::BLOCK + format::BLOCK,
    );
    let Ok(blocks) = BatchHeader::peek_blocks(&bytes) else { return };
    let end = bytes.len().min(blocks as usize * format::BLOCK);
    format::seal(&mut bytes[..end]);
    if let Ok(batch) = BatchHeader::decode(&bytes) {
        assert!(batch.entries.len() * ENTRY_BYTES + batch.checksums.len() * 4 <= bytes.len());
        let blocks = header_blocks_for(batch.entries.len(), batch.checksums.len());
        let mut again = vec![0; blocks as usize * format::BLOCK];
        batch.header.encode(&batch.entries, &batch.checksums, &mut again);
        let again = BatchHeader::decode(&again).expect("what was decoded can be written");
        assert_eq!(
            (again.header, again.entries, again.checksums),
            (batch.header, batch.entries, batch.checksums)
        );
    }
});
