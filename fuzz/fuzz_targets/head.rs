//! A segment's head from any bytes, and from any bytes whose checksum is right.
#![no_main]

mod format;

use engine::format::SegmentHead;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = SegmentHead::decode(input);
    let mut bytes = format::with_magic(input, b"FBAYHEAD", format::BLOCK);
    format::seal(&mut bytes);
    if let Ok(head) = SegmentHead::decode(&bytes) {
        let mut again = vec![0; SegmentHead::BYTES];
        head.encode(&mut again);
        assert_eq!(SegmentHead::decode(&again), Ok(head));
    }
});
