//! The table of lost blocks from any bytes, and from any bytes whose checksum is right.
#![no_main]

mod format;

use engine::format::LostTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = LostTable::decode(input);
    let mut bytes = format::with_magic(input, b"FBAYLOST", 16 * format::BLOCK);
    format::seal(&mut bytes);
    if let Ok(table) = LostTable::decode(&bytes) {
        let mut again = vec![0; LostTable::BYTES];
        table.encode(&mut again);
        assert_eq!(LostTable::decode(&again), Ok(table));
    }
});
