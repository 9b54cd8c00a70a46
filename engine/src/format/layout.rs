//! The format on the device, pinned: a change of one byte changes this file, and has to consider the caches that
//! exist. Also the duties of every decoder towards any bytes.

use super::bytes::{CHECKSUM_AT, checksum_of, put};
use super::entry::tests::any_entry;
use super::*;
use crate::effect::WriteMode;
use crate::units::VolumeId;
use proptest::prelude::*;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

const BLOCK: usize = 4096;
/// A counter with all bits that may change.
const ALL: u64 = COUNTER_MAX - 1;

fn volume(name: &str, id: u32) -> VolumeRecord {
    VolumeRecord::new(VolumeId(id), name, "/dev/sdb", 1000)
}

fn superblock() -> Superblock {
    let layout = Layout::Log(Geometry { segment_blocks: 64, segments: 124 });
    let mut superblock = Superblock {
        cut_sequence: 40,
        clean_stop: false,
        next_volume_id: 9,
        ..Superblock::of_new_cache([0; 16], 32 << 20, layout)
    };
    superblock.volumes[0] = Some(volume("a", 1));
    superblock.volumes[3] = Some(volume("b", 2));
    superblock
}

fn line() -> Line {
    let succession = Succession::Remade { by: [255; 16], cache_bytes: u64::MAX };
    Line { succession, ancestor: Some([255; 16]), is_home: true }
}

fn history() -> History {
    let mut history = History::default();
    history.note(Change::new(u64::MAX, "v", "mode", "a", "b"));
    history
}

fn head() -> SegmentHead {
    SegmentHead {
        set_id: [0; 16],
        ring: 0,
        generation: 1,
        session: 0,
        first_sequence: 1,
        previous_checksum: 0,
    }
}

fn entry(payload_blocks: u32) -> Entry {
    Entry {
        kind: if payload_blocks > 0 { EntryKind::Dirty } else { EntryKind::Cleaned },
        ring: 0,
        volume: VolumeId(1),
        start_sector: 0,
        sectors: payload_blocks.max(1) * 8,
        payload_blocks,
        extra: 0,
    }
}

fn header() -> BatchHeader {
    BatchHeader {
        set_id: [0; 16],
        session: 0,
        generation: 1,
        sequence: 0x1000,
        previous_checksum: 0,
        flushed_sequence: 0,
        floor_sequence: 0,
        oldest_dirty_sequence: 0,
    }
}

fn footer() -> SummaryFooter {
    SummaryFooter {
        set_id: [0; 16],
        ring: 0,
        generation: 1,
        session: 0,
        first_sequence: 1,
        last_sequence: 2,
        last_header_checksum: 0,
        flushed_sequence: 0,
        floor_sequence: 0,
        oldest_dirty_sequence: 0,
    }
}

/// Content of a buffer before something is encoded into it.
const LEFT_OVER: u8 = 0xa5;

fn encode_superblock(superblock: &Superblock) -> Vec<u8> {
    let mut bytes = vec![LEFT_OVER; SUPERBLOCK_BYTES];
    superblock.encode(&mut bytes);
    bytes
}

fn encode_head(head: &SegmentHead) -> Vec<u8> {
    let mut bytes = vec![LEFT_OVER; SegmentHead::BYTES];
    head.encode(&mut bytes);
    bytes
}

fn encode_batch(header: &BatchHeader, entries: &[Entry], checksums: &[u32]) -> Vec<u8> {
    let mut bytes = vec![LEFT_OVER; header_blocks_for(entries.len(), checksums.len()) as usize * BLOCK];
    header.encode(entries, checksums, &mut bytes);
    bytes
}

fn builder(footer: &SummaryFooter) -> SummaryBuilder {
    let mut builder = SummaryBuilder::default();
    let mut block = 1;
    for sequence in footer.first_sequence..=footer.last_sequence {
        builder.push(sequence, block, block + 1, &[entry(2), entry(0)], &[7, 8]);
        block += 3;
    }
    builder
}

fn encode_summary(footer: &SummaryFooter) -> Vec<u8> {
    let builder = builder(footer);
    let mut bytes = vec![0; builder.blocks_needed() as usize * BLOCK];
    builder.finish(footer, &mut bytes);
    bytes
}

/// Without the checksum, which changes with every field.
fn unsummed(mut bytes: Vec<u8>) -> Vec<u8> {
    put(&mut bytes, CHECKSUM_AT, &[0; 4]);
    bytes
}

/// Where two encodings differ.
fn difference(a: &[u8], b: &[u8]) -> String {
    let differs: Vec<usize> = (0..a.len()).filter(|at| a[*at] != b[*at]).collect();
    match (differs.first(), differs.last()) {
        (Some(first), Some(last)) => format!("{first}..{}", last + 1),
        _ => String::from("nowhere"),
    }
}

/// Adds one line for each field: the bytes that change when all bits of the field that may change do.
macro_rules! fields {
    ($lines:expr, $name:literal, $make:expr, $encode:expr, $($($field:ident).+ = $value:expr),+ $(,)?) => {
        $({
            let (plain, mut changed) = ($make, $make);
            changed.$($field).+ = $value;
            let span = difference(&($encode)(&plain), &($encode)(&changed));
            $lines.push(format!("{} {} {span}", $name, stringify!($($field).+)));
        })+
    };
}

fn describe_superblock(lines: &mut Vec<String>) {
    fields!(
        lines,
        "superblock",
        superblock(),
        |superblock: &Superblock| unsummed(encode_superblock(superblock)),
        set_id = [255; 16],
        update = ALL,
        session = ALL,
        cut_sequence = ALL - 40,
        flushed_sequence = ALL,
        base_sequence = 40,
        ordered_sequence = ALL,
        clean_stop = true,
        lasting_boot = [255; 16],
        is_mirrored = true,
        cache_bytes = ALL - (32 << 20),
        layout = Layout::Log(Geometry { segment_blocks: 32, segments: 123 }),
        composition = String::from("a = b"),
        profile = String::from("x"),
        next_volume_id = u32::MAX - 9,
        line = line(),
        history = history(),
    );
    fields!(
        lines,
        "volume",
        superblock().volumes[0].clone().unwrap(),
        |volume: &VolumeRecord| {
            let mut superblock = superblock();
            superblock.volumes[0] = Some(volume.clone());
            encode_superblock(&superblock)[4096..6144].to_vec()
        },
        id = VolumeId(8),
        name = String::from("x"),
        origin = String::from("_dev_sdx"),
        identity = String::from("x"),
        size_sectors = (1 << 38) - 1,
        sector_bytes = 4096,
        mode = WriteMode::Readonly,
        clean_floor_sequence = ALL,
        fingerprint = [Some(Fingerprint { offset_bytes: ALL, checksum: u32::MAX }); FINGERPRINTS_MAX],
    );
}

fn describe() -> Vec<String> {
    let mut lines = Vec::new();
    describe_superblock(&mut lines);
    fields!(
        lines,
        "head",
        head(),
        |head: &SegmentHead| unsummed(encode_head(head)),
        set_id = [255; 16],
        ring = 255,
        generation = ALL - 1,
        session = ALL,
        first_sequence = ALL - 1,
        previous_checksum = u32::MAX,
    );
    fields!(
        lines,
        "header",
        header(),
        |header: &BatchHeader| unsummed(encode_batch(header, &[entry(1)], &[0])),
        set_id = [255; 16],
        session = ALL,
        generation = ALL - 1,
        sequence = ALL - 0x1000,
        previous_checksum = u32::MAX,
        flushed_sequence = 0xfff,
        floor_sequence = 0xfff,
        oldest_dirty_sequence = 0xfff,
    );
    fields!(
        lines,
        "entry",
        entry(0),
        |entry: &Entry| encode_batch(&header(), &[*entry], &[])[96..128].to_vec(),
        kind = EntryKind::Lost,
        ring = 255,
        volume = VolumeId(u32::MAX - 1),
        start_sector = (1 << 38) - 8,
        sectors = u32::MAX,
        extra = (1 << 29) - 1,
    );
    fields!(
        lines,
        "footer",
        footer(),
        |footer: &SummaryFooter| unsummed(encode_summary(footer)[BLOCK..].to_vec()),
        set_id = [255; 16],
        ring = 255,
        generation = ALL - 1,
        session = ALL,
        last_header_checksum = u32::MAX,
        flushed_sequence = ALL,
        floor_sequence = ALL,
        oldest_dirty_sequence = ALL,
    );
    lines
}

#[test]
fn every_field_lies_where_it_always_did() {
    let expected = include_str!("layout.txt");
    let found = describe().join("\n");
    assert_eq!(found.trim(), expected.trim(), "the format on the device has changed");
}

#[test]
fn magic_numbers_sizes_and_lists_are_what_they_were() {
    assert_eq!((VERSION, SUPERBLOCK_BYTES, SEGMENTS_OFFSET), (2, 65536, 1 << 20));
    assert_eq!((HEADER_FIXED_BYTES, ENTRY_BYTES, HEADER_BLOCKS_MAX), (96, 32, 16));
    assert_eq!((header_blocks_for(0, 0), header_blocks_for(125, 0), header_blocks_for(111, 111)), (1, 1, 1));
    assert_eq!(
        (header_blocks_for(126, 0), header_blocks_for(112, 112), header_blocks_for(200, 256)),
        (2, 2, 2)
    );
    assert_eq!(&encode_superblock(&superblock())[..8], b"FOREBAY\0");
    assert_eq!(&encode_head(&head())[..8], b"FBAYHEAD");
    let batch = encode_batch(&header(), &[entry(2), entry(0)], &[0x0403_0201, 5]);
    assert_eq!(
        (&batch[..8], &batch[14..16], &batch[84..92]),
        (&b"FBAYBTCH"[..], &[1, 0][..], &[2, 0, 0, 0, 2, 0, 0, 0][..])
    );
    assert_eq!(batch[96 + 2 * ENTRY_BYTES..][..8], [1, 2, 3, 4, 5, 0, 0, 0]);
    let summary = encode_summary(&footer());
    let record = 24 + 2 * ENTRY_BYTES + 8;
    assert_eq!(summary.len(), 2 * BLOCK);
    assert_eq!(
        summary[record..record + 24],
        [2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]
    );
    let last = &summary[BLOCK..];
    assert_eq!(
        (&last[..8], &last[48..64]),
        (&b"FBAYSUMM"[..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0][..])
    );
    assert_eq!(last[92..100], [1, 0, 0, 0, 2 * record as u8, 0, 0, 0]);
}

#[test]
fn the_last_bit_of_everything_is_covered_by_a_checksum() {
    let head = encode_head(&head());
    let batch = encode_batch(&header(), &vec![entry(0); 300], &[]);
    let summary = encode_summary(&footer());
    for at in 0..4096 {
        let bit = 1u8 << (at % 8);
        let flip = |bytes: &[u8], at: usize| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= bit;
            bytes
        };
        assert!(SegmentHead::decode(&flip(&head, at)).is_err(), "head, byte {at}");
        assert!(BatchHeader::decode(&flip(&batch, at * batch.len() / 4096)).is_err(), "header, byte {at}");
        assert!(Summary::decode(&flip(&summary, BLOCK + at)).is_err(), "footer, byte {at}");
    }
    let body_bytes = 2 * (24 + 2 * ENTRY_BYTES + 8);
    for at in 0..body_bytes * 8 {
        let mut bytes = summary.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        assert_eq!(Summary::decode(&bytes), Err(FormatError::Checksum), "body, bit {at}");
    }
    let mut bytes = encode_superblock(&superblock());
    for at in (0..200 * 8).chain((200 * 8..SUPERBLOCK_BYTES * 8).step_by(101)) {
        bytes[at / 8] ^= 1 << (at % 8);
        assert!(Superblock::decode(&bytes).is_err(), "superblock, bit {at}");
        bytes[at / 8] ^= 1 << (at % 8);
    }
}

#[test]
fn another_version_is_told_from_damage() {
    let mut bytes = encode_head(&head());
    bytes[12] = 3;
    assert_eq!(SegmentHead::decode(&bytes), Err(FormatError::Checksum));
    reseal(&mut bytes);
    assert_eq!(SegmentHead::decode(&bytes), Err(FormatError::Version { found: 3, supported: 2 }));
}

#[test]
fn a_superblock_with_a_field_that_is_never_written_is_refused() {
    let refused = |field: &str, change: &dyn Fn(&mut Superblock)| {
        let mut changed = superblock();
        change(&mut changed);
        assert!(matches!(changed.validate(), Err(FormatError::Field(name)) if name == field), "{field}");
    };
    fn first(superblock: &mut Superblock) -> &mut VolumeRecord {
        superblock.volumes[0].as_mut().unwrap()
    }
    refused("base_sequence", &|s| s.base_sequence = 0);
    refused("base_sequence", &|s| s.base_sequence = 42);
    refused("cache_bytes", &|s| s.cache_bytes -= 1 << 20);
    refused("segments", &|s| s.layout = Layout::Log(Geometry { segment_blocks: 64, segments: 63 }));
    refused("composition", &|s| s.composition = "c".repeat(24 * 1024 + 1));
    refused("segment_blocks", &|s| s.layout = Layout::Log(Geometry { segment_blocks: 65, segments: 124 }));
    refused("profile", &|s| s.profile.clear());
    refused("next_volume_id", &|s| s.next_volume_id = 0);
    refused("volume id", &|s| s.next_volume_id = 2);
    refused("volume id", &|s| first(s).id = VolumeId(0));
    refused("volume name", &|s| first(s).id = VolumeId(2));
    refused("volume name", &|s| first(s).name = String::from("b"));
    refused("volume name", &|s| first(s).name = "x".repeat(65));
    refused("volume name", &|s| first(s).name = String::from("a\nb"));
    refused("volume origin", &|s| first(s).origin = "x".repeat(1025));
    refused("volume identity", &|s| first(s).identity = "x".repeat(257));
    refused("volume size_sectors", &|s| first(s).size_sectors = 0);
    refused("volume sector_bytes", &|s| first(s).sector_bytes = 520);
    let mut longest = superblock();
    first(&mut longest).name = "n".repeat(64);
    first(&mut longest).origin = "o".repeat(1024);
    first(&mut longest).identity = "i".repeat(256);
    first(&mut longest).fingerprint =
        [Some(Fingerprint { offset_bytes: 1 << 40, checksum: 3 }); FINGERPRINTS_MAX];
    longest.profile = "p".repeat(64);
    assert_eq!(Superblock::decode(&encode_superblock(&longest)), Ok(longest));
}

/// Makes the checksum right again, as an attacker would.
fn reseal(bytes: &mut [u8]) {
    let checksum = checksum_of(bytes);
    put(bytes, CHECKSUM_AT, &checksum.to_le_bytes());
}

/// Feeds bytes to every decoder; whatever one of them takes must be something that can be written.
fn feed(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::decode(bytes) {
        assert_eq!(Superblock::decode(&encode_superblock(&superblock)), Ok(superblock));
    }
    if let Ok(head) = SegmentHead::decode(bytes) {
        assert_eq!(SegmentHead::decode(&encode_head(&head)), Ok(head));
    }
    if let Ok(batch) = BatchHeader::decode(bytes) {
        assert!(batch.entries.len() * ENTRY_BYTES + batch.checksums.len() * 4 <= bytes.len());
        let again =
            BatchHeader::decode(&encode_batch(&batch.header, &batch.entries, &batch.checksums)).unwrap();
        assert_eq!(
            (again.header, again.entries, again.checksums),
            (batch.header, batch.entries, batch.checksums)
        );
    }
    if let Ok(summary) = Summary::decode(bytes) {
        assert!(summary.batches.len() * 24 <= bytes.len());
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
        let mut bytes = vec![0; builder.blocks_needed() as usize * BLOCK];
        builder.finish(&summary.footer, &mut bytes);
        assert_eq!(Summary::decode(&bytes), Ok(summary));
    }
}

proptest! {
    #[test]
    fn headers_read_back_what_was_written(
        entries in prop::collection::vec(any_entry(), 0..40),
        fields in any::<[u64; 4]>(),
    ) {
        let blocks: u32 = entries.iter().map(|entry| entry.payload_blocks).sum();
        prop_assume!(header_blocks_for(entries.len(), blocks as usize) <= HEADER_BLOCKS_MAX);
        let checksums: Vec<u32> = (0..blocks).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
        let sequence = fields[0] % COUNTER_MAX + 1;
        let header = BatchHeader {
            sequence,
            session: fields[1] % COUNTER_MAX,
            flushed_sequence: fields[2] % sequence,
            floor_sequence: fields[3] % (sequence + 1),
            ..header()
        };
        let bytes = encode_batch(&header, &entries, &checksums);
        let mut into_zeroes = vec![0; bytes.len()];
        header.encode(&entries, &checksums, &mut into_zeroes);
        prop_assert_eq!(&bytes, &into_zeroes, "nothing that the buffer held before is written");
        let (mut encoded, mut from_encoded) = (EncodedEntries::default(), vec![0xee; bytes.len()]);
        let (first, others) = entries.split_at(entries.len() / 3);
        encoded.extend(first);
        encoded.extend(others);
        header.encode_from(&encoded, &checksums, &mut from_encoded);
        prop_assert_eq!(&bytes, &from_encoded, "entries may be encoded before");
        let batch = BatchHeader::decode(&bytes).unwrap();
        prop_assert_eq!(BatchHeader::peek_blocks(&bytes), Ok(batch.header_blocks));
        prop_assert_eq!((batch.header, batch.entries, batch.checksums), (header, entries, checksums));
    }

    #[test]
    fn summaries_read_back_what_was_pushed(batches in prop::collection::vec(prop::collection::vec(any_entry(), 0..4), 1..8)) {
        let footer = SummaryFooter { last_sequence: batches.len() as u64, ..footer() };
        let (mut builder, mut of_headers) = (SummaryBuilder::default(), SummaryBuilder::default());
        let mut block = 1;
        for (entries, sequence) in batches.iter().zip(1..) {
            let blocks: u32 = entries.iter().map(|entry| entry.payload_blocks).sum();
            let checksums = vec![sequence as u32; blocks as usize];
            builder.push(sequence, block, block + 1, entries, &checksums);
            let header = BatchHeader { sequence, ..header() };
            of_headers.push_encoded(block, block + 1, &encode_batch(&header, entries, &checksums));
            block += 1 + blocks;
        }
        prop_assert_eq!(of_headers.bytes(), builder.bytes());
        let mut told = vec![0; of_headers.blocks_needed() as usize * BLOCK];
        of_headers.finish(&footer, &mut told);
        let mut bytes = vec![0xee; builder.blocks_needed() as usize * BLOCK];
        builder.finish(&footer, &mut bytes);
        prop_assert_eq!(&told, &bytes, "headers tell a summary the same");
        let summary = Summary::decode(&bytes).unwrap();
        prop_assert_eq!(summary.footer, footer);
        let found: Vec<Vec<Entry>> = summary.batches.into_iter().map(|batch| batch.entries).collect();
        prop_assert_eq!(found, batches);
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        feed(&bytes);
    }

    #[test]
    fn changed_bytes_with_the_right_checksum_give_an_answer(
        which in 0..4usize,
        changes in prop::collection::vec((0..200usize, any::<u8>()), 1..6),
        len in 0..SUPERBLOCK_BYTES,
    ) {
        let mut bytes = match which {
            0 => encode_superblock(&superblock()),
            1 => encode_head(&head()),
            2 => encode_batch(&header(), &[entry(2), entry(0)], &[1, 2]),
            _ => encode_summary(&footer()),
        };
        let last = bytes.len() - BLOCK;
        // The part whose checksum is made right: a summary's is that of its last block.
        let at = if which == 3 { last } else { 0 };
        for (offset, byte) in changes {
            bytes[at + offset] = byte;
        }
        reseal(&mut bytes[at..]);
        feed(&bytes);
        feed(&bytes[..len.min(bytes.len())]);
    }
}
