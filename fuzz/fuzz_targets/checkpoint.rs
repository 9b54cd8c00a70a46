//! The record and the chunks of a checkpoint, from any bytes and from any bytes whose checksum is right.
#![no_main]

mod format;

use engine::format::{CHECKPOINT_RECORD_BYTES, CheckpointId, CheckpointRecord, Chunk, ChunkWriter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = CheckpointRecord::decode(input);
    let mut bytes = format::with_magic(input, b"FBAYCKPT", CHECKPOINT_RECORD_BYTES);
    format::seal(&mut bytes);
    let id = match CheckpointRecord::decode(&bytes) {
        Ok(record) => {
            let mut again = vec![0; CHECKPOINT_RECORD_BYTES];
            record.encode(&mut again);
            assert_eq!(CheckpointRecord::decode(&again), Ok(record));
            record.id
        }
        Err(_) => CheckpointId { set_id: [0; 16], session: 0, start_sequence: 0 },
    };
    let mut bytes = format::with_magic(input, b"FBAYCHNK", 2 * format::BLOCK);
    format::seal(&mut bytes);
    let number = u32::from_le_bytes(bytes[48..52].try_into().expect("four bytes"));
    let Ok(chunk) = Chunk::decode(&id, number, &bytes) else { return };
    let mut again = vec![0; bytes.len()];
    let mut writer = ChunkWriter::new(&mut again);
    assert!(chunk.groups().all(|(key, row)| writer.push_group(key, &row)));
    assert!(chunk.singles().all(|(key, row)| writer.push_single(key, &row)));
    assert!(chunk.extents().all(|extent| writer.push_extent(extent)));
    assert_eq!(writer.counts(), chunk.counts());
    writer.finish(&id, number);
    let again = Chunk::decode(&id, number, &again).expect("what was decoded can be written");
    assert!(again.groups().eq(chunk.groups()) && again.singles().eq(chunk.singles()));
    assert!(again.extents().eq(chunk.extents()));
});
