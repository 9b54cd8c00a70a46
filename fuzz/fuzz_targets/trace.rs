//! Readers of traces: the first byte chooses the format, the second one the compression.
#![no_main]

use lab::trace::{Format, Op, Reading, TRANSFER_SECTORS_MAX, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [format, compression, bytes @ ..] = data else { return };
    let format = Format::ALL.get(usize::from(*format)).map(|(format, _)| *format);
    let name = ["trace", "trace.gz", "trace.xz", "trace.zst"][usize::from(compression % 4)];
    let Ok(mut source) = read(name, bytes, Reading { format, unit_bytes: None }) else { return };
    // A few bytes can be gigabytes of records when they are decompressed.
    for _ in 0..100_000 {
        match source.next_entry() {
            Ok(Some(entry)) => {
                assert!(entry.range.sectors > 0);
                assert!(entry.op == Op::Discard || entry.range.sectors <= TRANSFER_SECTORS_MAX);
                assert!(entry.range.end() <= lab::trace::DISK_SECTORS_MAX);
            }
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error.to_string().lines().count(), 1, "{error}");
                assert!(matches!(source.next_entry(), Ok(None)));
                break;
            }
        }
    }
});
