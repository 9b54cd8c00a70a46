//! The page of a half from any bytes, and from any bytes whose checksum is right.
#![no_main]

mod format;

use engine::format::{PAIR_PAGE_BYTES, PairPage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = PairPage::decode(input);
    let mut bytes = format::with_magic(input, b"FBAYPAIR", PAIR_PAGE_BYTES);
    format::seal(&mut bytes);
    if let Ok(page) = PairPage::decode(&bytes) {
        let mut again = vec![0; PAIR_PAGE_BYTES];
        page.encode(&mut again);
        assert_eq!(PairPage::decode(&again), Ok(page));
    }
});
