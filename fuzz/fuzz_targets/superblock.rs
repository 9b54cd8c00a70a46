//! The superblock from any bytes, and from any bytes whose checksum is right.
#![no_main]

mod format;

use engine::format::{SUPERBLOCK_BYTES, Superblock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = Superblock::decode(input);
    // The first part goes to the cache's own fields, the rest to the first volumes' records.
    let (own, volumes) = input.split_at(input.len().min(150));
    let mut bytes = format::with_magic(own, b"FOREBAY\0", SUPERBLOCK_BYTES);
    let volumes = &volumes[..volumes.len().min(SUPERBLOCK_BYTES - format::BLOCK)];
    bytes[format::BLOCK..format::BLOCK + volumes.len()].copy_from_slice(volumes);
    format::seal(&mut bytes);
    if let Ok(superblock) = Superblock::decode(&bytes) {
        let mut again = vec![0; SUPERBLOCK_BYTES];
        superblock.encode(&mut again);
        assert_eq!(Superblock::decode(&again), Ok(superblock));
    }
});
