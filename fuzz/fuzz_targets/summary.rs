//! A segment's summary from any bytes, and from any bytes whose checksums are right.
#![no_main]

mod format;

use engine::format::{Summary, SummaryBuilder};
use engine::units::crc32c;
use libfuzzer_sys::fuzz_target;

/// Where the footer says how long the body is in blocks and bytes, and what its checksum is.
const BODY: core::ops::Range<usize> = 92..104;

fuzz_target!(|input: &[u8]| {
    let _ = Summary::decode(input);
    // The first part goes to the footer, the rest is the body.
    let (footer, body) = input.split_at(input.len().min(BODY.start - 8));
    let body_blocks = body.len().div_ceil(format::BLOCK);
    let mut bytes = body.to_vec();
    bytes.resize(body_blocks * format::BLOCK, 0);
    let mut footer = format::with_magic(footer, b"FBAYSUMM", format::BLOCK);
    let described = [body_blocks as u32, body.len() as u32, crc32c(body)];
    footer[BODY].copy_from_slice(described.map(u32::to_le_bytes).as_flattened());
    format::seal(&mut footer);
    bytes.extend_from_slice(&footer);
    if let Ok(summary) = Summary::decode(&bytes) {
        let mut builder = SummaryBuilder::default();
        for batch in &summary.batches {
            builder.push(
                batch.sequence,
                batch.header_block,
                batch.payload_block,
                &batch.entries,
                &batch.checksums,
            );
        }
        let mut again = vec![0; builder.blocks_needed() as usize * format::BLOCK];
        builder.finish(&summary.footer, &mut again);
        assert_eq!(Summary::decode(&again), Ok(summary));
    }
});
