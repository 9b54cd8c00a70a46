//! A late header in memory that outlives a process from any bytes, and from any bytes whose checksum is right.
#![no_main]

mod format;

use engine::format::LateHeader;
use libfuzzer_sys::fuzz_target;

/// Bytes of a slot in front of its parts.
const FIXED_BYTES: usize = 96;

fuzz_target!(|input: &[u8]| {
    let _ = LateHeader::decode(input);
    let mut bytes = format::with_magic(input, b"FBAYLAST", input.len().max(FIXED_BYTES));
    format::seal(&mut bytes[..FIXED_BYTES]);
    if let Some(late) = LateHeader::decode(&bytes) {
        let mut block = vec![0; format::BLOCK];
        late.header.encode(&late.entries, &late.checksums, &mut block);
    }
});
