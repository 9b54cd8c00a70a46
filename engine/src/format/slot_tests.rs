//! The format of caches with slots: the bytes pinned, what was written read back, and what every decoder owes
//! to any bytes.

use super::bytes::{CHECKSUM_AT, checksum_of, put};
use super::*;
use crate::units::{BlockKey, Frame, PieceKey, Place, VolumeIndex, crc32c};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
const SET: SetId = *b"0123456789abcdef";
const OTHER_SET: SetId = *b"0123456789abcdeg";

fn record(piece: u64) -> SlotRecord {
    SlotRecord { piece: PieceKey(piece), is_dirty: true, is_lost: false, hint: 0 }
}

fn tree(levels: u8) -> TreeShape {
    TreeShape::new(levels).unwrap()
}

fn slot_page(records: &dyn Fn(u32) -> Option<SlotRecord>) -> Vec<u8> {
    let mut bytes = vec![0xee; BLOCK];
    SlotPage::encode(&SET, 2, records, &mut bytes);
    bytes
}

fn commit_page(records: &dyn Fn(u32) -> Option<SlotRecord>) -> Vec<u8> {
    let mut bytes = vec![0xee; BLOCK];
    CommitPage::encode(&SET, 2, 0x0102_0304, records, &mut bytes);
    bytes
}

fn tree_page(planes: &TreePlanes) -> Vec<u8> {
    let mut bytes = vec![0xee; BLOCK];
    TreePage::encode(&SET, 0, 7, planes.page(0), &mut bytes);
    bytes
}

fn commit_record() -> CommitRecord {
    CommitRecord {
        set_id: SET,
        session: 5,
        transaction: 9,
        clean_stop: true,
        tree_levels: 13,
        leaf_pieces: 32,
        leaf_doublings: [0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        versions_sum: Some(0x0102_0304_0506_0708),
    }
}

fn lost_table() -> LostTable {
    let range = |slot, first_block, blocks| LostRange { slot, first_block, blocks };
    LostTable { set_id: SET, update: 4, ranges: vec![range(1, 0, 1), range(1, 1, 2), range(7, 510, 2)] }
}

fn encode_record(record: &CommitRecord) -> Vec<u8> {
    let mut bytes = vec![0xee; CommitRecord::BYTES];
    record.encode(&mut bytes);
    bytes
}

fn encode_lost(table: &LostTable) -> Vec<u8> {
    let mut bytes = vec![0xee; LostTable::BYTES];
    table.encode(&mut bytes);
    bytes
}

fn encode_layout(layout: &SlotLayout) -> Vec<u8> {
    let mut bytes = vec![0xee; SLOT_LAYOUT_BYTES];
    layout.encode(&mut bytes);
    bytes
}

// ---- the bytes -----------------------------------------------------------------------------------

#[test]
fn a_slot_record_is_these_16_bytes() {
    let lost = SlotRecord { piece: PieceKey(0x12_3456_789a), is_dirty: true, is_lost: true, hint: 0xabcd };
    let bytes = slot_page(&|slot| (slot == 2 * 256 + 3).then_some(lost));
    let mut expected = vec![0; BLOCK];
    let fields = [0x9a, 0x78, 0x56, 0x34, 0x12, 0b111, 0, 0, 0xcd, 0xab, 0, 0];
    let mut covered = SET.to_vec();
    covered.extend(515u32.to_le_bytes());
    covered.extend(fields);
    expected[48..60].copy_from_slice(&fields);
    expected[60..64].copy_from_slice(&crc32c(&covered).to_le_bytes());
    assert_eq!(bytes, expected);
}

#[test]
fn a_commit_page_is_these_bytes() {
    let clean = SlotRecord { piece: PieceKey(0x12_3456_789a), is_dirty: false, is_lost: false, hint: 0xffff };
    let bytes = commit_page(&|slot| (slot == 2 * 508 + 1).then_some(clean));
    assert_eq!(&bytes[..4], b"FBPP");
    assert_eq!(bytes[8..16], [1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(bytes[16..32], [4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // Bit 40: valid. Bits 43 to 58: the hint.
    assert_eq!(bytes[40..48], [0x9a, 0x78, 0x56, 0x34, 0x12, 0xf9, 0xff, 0x07]);
    assert!(bytes[32..40].iter().chain(&bytes[48..]).all(|&byte| byte == 0));
    let mut covered = SET.to_vec();
    covered.extend(&bytes[8..]);
    assert_eq!(bytes[4..8], crc32c(&covered).to_le_bytes());
}

#[test]
fn a_tree_page_is_these_bytes() {
    // Levels 2: nodes 0 to 6, inner nodes 0 to 2. Node 1 is a leaf and marked; so is node 6.
    let mut planes = TreePlanes::new(tree(2));
    planes.mark(1, true);
    planes.mark(6, true);
    planes.set_leaf(1, true);
    let bytes = tree_page(&planes);
    assert_eq!(bytes[8], 2);
    assert_eq!(bytes[32..34], [0b0100_0010, 0b0000_0001]);
    assert_eq!((0..4).map(|finest| planes.leaf_of(finest)).collect::<Vec<_>>(), [1, 1, 5, 6]);
    assert_eq!([tree(13).nodes(), tree(13).pages(), tree(14).pages()], [16_383, 1, 2]);
}

#[test]
fn a_commit_record_and_a_lost_table_are_these_bytes() {
    let bytes = encode_record(&commit_record());
    assert_eq!((&bytes[..8], &bytes[12..16]), (&b"FBAYCMIT"[..], &[2, 0, 1, 13][..]));
    assert_eq!(bytes[16..32], SET);
    assert_eq!(bytes[32..52], [5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0]);
    assert!((52..68).all(|at| bytes[at] == if at == 53 { 3 } else { 0 }));
    assert_eq!(bytes[68..80], [1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert!(bytes[80..].iter().all(|&byte| byte == 0));
    let earlier = CommitRecord { versions_sum: None, ..commit_record() };
    assert!(encode_record(&earlier)[68..].iter().all(|&byte| byte == 0), "as those that had no sum");
    let bytes = encode_lost(&lost_table());
    assert_eq!((&bytes[..8], &bytes[16..32]), (&b"FBAYLOST"[..], &SET[..]));
    assert_eq!(bytes[32..48], [4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[80..88], [7, 0, 0, 0, 0xfe, 1, 2, 0]);
    assert_eq!(LOST_RANGES_MAX * 8 + 64, 64_064);
}

#[test]
fn a_layout_is_these_bytes() {
    let layout =
        SlotLayout::choose(1 << 30, 256 << 10, 0, SlotPersistence::BitTree { tree: tree(13) }).unwrap();
    let bytes = encode_layout(&layout);
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(bytes[..16], [64, 0, 0, 0, 0xf4, 0x0f, 0, 0, 0, 0, 0, 0, 3, 13, 0, 0]);
    // 4084 slots: 9 pages twice, 16 trees of one page twice, 261376 / 992 = 264 pages of checksums.
    assert_eq!(
        (16..80).step_by(8).map(number).collect::<Vec<_>>(),
        [3 * MIB, MIB, 18 * 4096, MIB + 18 * 4096, 32 * 4096, MIB + 50 * 4096, 264 * 4096, 992]
    );
    assert!(bytes[76..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_cache_of_an_earlier_version_opens_and_gets_checksums() {
    let layout = SlotLayout::choose(1 << 30, 65_536, 512, SlotPersistence::SyncSector).unwrap();
    let mut bytes = encode_layout(&layout);
    put(&mut bytes, 72, &[0; 4]);
    let earlier = SlotLayout::decode(&bytes, 1 << 30).unwrap();
    assert_eq!(encode_layout(&earlier), bytes, "it is written back as it was");
    assert_eq!((earlier == layout, earlier.with_checksums_in_use()), (false, layout));
    let small = layout.with_area_blocks(16);
    assert_eq!(SlotLayout::decode(&encode_layout(&small), 2 << 30), Ok(small));
    assert_eq!((small.areas_of(Place(15), 2), small.places_of_area(1)), (0..2, 16..32));
    assert_eq!((layout.open_areas_max(), small.open_areas_max()), (67, 4096));
}

// ---- layouts --------------------------------------------------------------------------------------

#[test]
fn published_caches_are_divided_like_this() {
    let of = |bytes, slot, ways, persistence| SlotLayout::choose(bytes, slot, ways, persistence).unwrap();
    let flashcache = of(238 << 30, 4096, 512, SlotPersistence::SyncSector);
    // 8 KiB of records for a set of 512, as published; 16 + 4 bytes of 4 KiB are half a percent.
    assert_eq!(flashcache.page_slots() * 2, 512);
    assert_eq!(flashcache.shape().ways, 512);
    assert!(flashcache.shape().frames > (238 << 18) / 200 * 199);
    let page = flashcache.slot_page_offset_bytes(3, 0);
    assert_eq!(page, MIB + 3 * 4096);
    let dm_cache = of(238 << 30, 256 << 10, 0, SlotPersistence::Commit);
    assert_eq!(dm_cache.shape().sets(), 1);
    let pages = u64::from(dm_cache.slot_pages());
    assert_eq!(dm_cache.slot_page_offset_bytes(3, 1), MIB + (pages + 3) * 4096);
    assert_eq!(dm_cache.tree_pages(), 0);
    let mapperx = of(238 << 30, 64 << 10, 0, SlotPersistence::BitTree { tree: tree(14) });
    assert_eq!(mapperx.tree_page(VolumeIndex(3), 1), 7);
    let trees = mapperx.trees();
    assert_eq!(trees.len_bytes, 64 * 4096);
    assert_eq!(mapperx.tree_page_offset_bytes(7, 1), trees.offset_bytes + (32 + 7) * 4096);
}

#[test]
fn every_size_gives_a_layout_that_uses_all_it_can() {
    let persistences =
        [SlotPersistence::SyncSector, SlotPersistence::Commit, SlotPersistence::BitTree { tree: tree(16) }];
    let mut bytes = CACHE_BYTES_MIN;
    while bytes < 1 << 43 {
        for (size, persistence) in [bytes, bytes + 4095, bytes + bytes / 3].into_iter().zip(persistences) {
            for (slot_bytes, ways) in [(4096, 512), (4096, 0), (65_536, 4), (3 << 15, 0), (2 << 20, 0)] {
                let layout = SlotLayout::choose(size, slot_bytes, ways, persistence).unwrap();
                let shape = layout.shape();
                let last = layout.slot_offset_bytes(Frame(shape.frames - 1)) + layout.slot_bytes();
                assert!(last <= size && layout.slot_offset_bytes(Frame(0)).is_multiple_of(MIB));
                assert!(u64::from(shape.frames) * u64::from(layout.slot_blocks()) < 1 << 29);
                // What is left is less than one more set, what tells of it, and the rounding to a MiB.
                let set_bytes = layout.slot_bytes() * u64::from(ways.max(1)) + 16 * 4096 + MIB;
                let is_full =
                    u64::from(shape.frames + ways.max(1)) * u64::from(layout.slot_blocks()) >= 1 << 29;
                assert!(is_full || size - last < set_bytes, "{size} {slot_bytes} {ways}: {}", size - last);
                assert_eq!(SlotLayout::decode(&encode_layout(&layout), size), Ok(layout));
                assert_eq!(SlotLayout::decode(&encode_layout(&layout), last), Ok(layout));
                assert_eq!(
                    SlotLayout::decode(&encode_layout(&layout), last - 1),
                    Err(FormatError::Field("cache_bytes"))
                );
            }
        }
        bytes *= 2;
    }
}

#[test]
fn what_cannot_be_slots_is_refused() {
    let choose = |bytes, slot, ways| SlotLayout::choose(bytes, slot, ways, SlotPersistence::Commit);
    for slot_bytes in [0, 512, 4095, 12_288, 24_576, 40_960, (2 << 20) + 4096, 4 << 20] {
        assert_eq!(choose(1 << 30, slot_bytes, 0), Err(SlotLayoutError::SlotBytes { slot_bytes }));
    }
    for ways in [1, 2, 3, 100, 16_384] {
        assert_eq!(choose(1 << 30, 4096, ways), Err(SlotLayoutError::Ways { ways }));
    }
    let Err(SlotLayoutError::CacheTooSmall { minimum_bytes, .. }) = choose(32 << 20, 65_536, 8192) else {
        panic!("a set of 512 MiB has no room");
    };
    assert!(choose(minimum_bytes - 1, 65_536, 8192).is_err());
    assert_eq!(choose(minimum_bytes, 65_536, 8192).unwrap().shape().sets(), 1);
    assert!(choose(CACHE_BYTES_MIN - 1, 4096, 0).is_err());
    assert!(TreeShape::new(0).is_err() && TreeShape::new(17).is_err());
}

#[test]
fn every_changed_byte_of_a_layout_is_noticed() {
    let layout = SlotLayout::choose(1 << 30, 65_536, 512, SlotPersistence::SyncSector).unwrap();
    let bytes = encode_layout(&layout);
    for at in 0..SLOT_LAYOUT_BYTES {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let found = SlotLayout::decode(&changed, 1 << 30);
            assert!(found != Ok(layout), "byte {at}, bit {bit}");
        }
    }
}

// ---- damage ----------------------------------------------------------------------------------------

#[test]
fn a_damaged_slot_record_costs_no_other_one() {
    let bytes = slot_page(&|slot| (slot % 2 == 0).then_some(record(u64::from(slot))));
    let page = SlotPage::decode(&SET, 2, &bytes).unwrap();
    for at in 0..BLOCK {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let found = SlotPage::decode(&SET, 2, &changed).unwrap();
        for (slot, (found, written)) in found.records.iter().zip(&page.records).enumerate() {
            if slot == at / 16 {
                assert!(found.is_err(), "byte {at}");
            } else {
                assert_eq!(found, written);
            }
        }
    }
}

#[test]
fn a_page_of_another_cache_or_from_another_place_is_no_page() {
    let full = |slot: u32| Some(record(u64::from(slot)));
    let bytes = slot_page(&full);
    for (set_id, page) in [(OTHER_SET, 2), (SET, 3)] {
        let found = SlotPage::decode(&set_id, page, &bytes).unwrap();
        assert!(found.records.iter().all(|record| *record == Err(FormatError::Checksum)));
    }
    assert_eq!(SlotPage::decode(&SET, u32::MAX, &bytes), Err(FormatError::Field("page")));
    assert_eq!(CommitPage::decode(&OTHER_SET, &commit_page(&full)), Err(FormatError::Checksum));
    assert_eq!(CommitPage::decode(&SET, &commit_page(&full)).unwrap().page, 2);
    let tree_bytes = tree_page(&TreePlanes::new(tree(3)));
    assert_eq!(TreePage::decode(&OTHER_SET, &tree_bytes), Err(FormatError::Checksum));
    assert_eq!(CommitPage::decode(&SET, &tree_bytes), Err(FormatError::Field("page kind")));
    assert_eq!(TreePage::decode(&SET, &commit_page(&full)), Err(FormatError::Field("page kind")));
}

#[test]
fn every_bit_is_covered_by_a_checksum() {
    let pages = commit_page(&|slot| Some(record(u64::from(slot))));
    let mut planes = TreePlanes::new(tree(13));
    planes.mark(16_382, true);
    let planes = tree_page(&planes);
    let commit = encode_record(&commit_record());
    let lost = encode_lost(&lost_table());
    for at in 0..BLOCK {
        let flip = |bytes: &[u8], at: usize| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1 << (at % 8);
            bytes
        };
        assert!(CommitPage::decode(&SET, &flip(&pages, at)).is_err(), "page, byte {at}");
        assert!(TreePage::decode(&SET, &flip(&planes, at)).is_err(), "tree, byte {at}");
        assert!(CommitRecord::decode(&flip(&commit, at)).is_err(), "record, byte {at}");
        assert!(LostTable::decode(&flip(&lost, at * 16 + at % 16)).is_err(), "lost, byte {at}");
    }
}

#[test]
fn fields_that_are_never_written_are_refused() {
    let slot = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = slot_page(&|slot| (slot == 512).then_some(record(9)));
        change(&mut bytes);
        let mut covered = SET.to_vec();
        covered.extend(512u32.to_le_bytes());
        covered.extend(&bytes[..12]);
        bytes[12..16].copy_from_slice(&crc32c(&covered).to_le_bytes());
        SlotPage::decode(&SET, 2, &bytes).unwrap().records[0]
    };
    assert_eq!(slot(&|_| ()), Ok(Some(record(9))));
    assert_eq!(slot(&|bytes| bytes[5] = 0b010), Err(FormatError::Field("slot flags")), "not valid");
    assert_eq!(slot(&|bytes| bytes[5] = 0b1001), Err(FormatError::Field("slot flags")), "an unknown flag");
    assert_eq!(slot(&|bytes| bytes[5] = 0b101), Err(FormatError::Field("slot lost")), "lost and clean");
    assert_eq!(slot(&|bytes| bytes[4] = 0x80), Err(FormatError::Field("slot piece")));
    assert_eq!(slot(&|bytes| bytes[10] = 1), Err(FormatError::Field("slot reserved")));
    assert_eq!(slot(&|bytes| bytes[..12].fill(0)), Err(FormatError::Field("slot flags")), "nothing");

    let page = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = commit_page(&|_| None);
        change(&mut bytes);
        reseal_paired(&mut bytes);
        CommitPage::decode(&SET, &bytes).map(|page| page.transaction)
    };
    assert_eq!(page(&|_| ()), Ok(0x0102_0304));
    assert_eq!(page(&|bytes| bytes[16..24].fill(0)), Err(FormatError::Field("page transaction")));
    assert_eq!(page(&|bytes| bytes[16..24].fill(0xff)), Err(FormatError::Field("page transaction")));
    assert_eq!(page(&|bytes| bytes[31] = 1), Err(FormatError::Field("page kind")));
    assert_eq!(page(&|bytes| bytes[12..16].fill(0xff)), Err(FormatError::Field("page")));
    assert_eq!(page(&|bytes| bytes[39] = 0x08), Err(FormatError::Field("slot flags")), "bit 59");

    let commit = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = encode_record(&commit_record());
        change(&mut bytes);
        reseal(&mut bytes);
        CommitRecord::decode(&bytes).map(|record| record.transaction)
    };
    assert_eq!(commit(&|_| ()), Ok(9));
    assert_eq!(commit(&|bytes| bytes[14] = 2), Err(FormatError::Field("clean_stop")));
    assert_eq!(commit(&|bytes| bytes[68] = 0), Err(FormatError::Field("versions_sum")), "a sum that is none");
    assert_eq!(commit(&|bytes| bytes[15] = 17), Err(FormatError::Field("tree_levels")));
    assert_eq!(commit(&|bytes| bytes[48] = 0), Err(FormatError::Field("tree_levels")));
    assert_eq!(commit(&|bytes| bytes[52] = 41), Err(FormatError::Field("leaf_doublings")));
    assert_eq!(commit(&|bytes| bytes[47] = 0x80), Err(FormatError::Field("transaction")));
    assert_eq!(commit(&|bytes| bytes[12] = 3), Err(FormatError::Version { found: 3, supported: 2 }));

    let lost = |change: &dyn Fn(&mut LostTable)| {
        let mut table = lost_table();
        change(&mut table);
        table.validate()
    };
    assert_eq!(lost(&|_| ()), Ok(()));
    assert_eq!(lost(&|table| table.ranges[1].blocks = 0), Err(FormatError::Field("lost blocks")));
    assert_eq!(lost(&|table| table.ranges[2].blocks = 3), Err(FormatError::Field("lost blocks")));
    assert_eq!(lost(&|table| table.ranges[0].blocks = 2), Err(FormatError::Field("lost order")));
    assert_eq!(lost(&|table| table.ranges.swap(0, 2)), Err(FormatError::Field("lost order")));
    let many = |table: &mut LostTable| {
        table.ranges = (0..8001).map(|slot| LostRange { slot, first_block: 0, blocks: 1 }).collect();
    };
    assert_eq!(lost(&many), Err(FormatError::Field("lost ranges")));
    let mut bytes = encode_lost(&lost_table());
    bytes[40..44].copy_from_slice(&8001u32.to_le_bytes());
    reseal(&mut bytes);
    assert_eq!(LostTable::decode(&bytes), Err(FormatError::Field("lost ranges")));

    let page = |shape: TreeShape, bit: usize| {
        let mut bytes = tree_page(&TreePlanes::new(shape));
        bytes[32 + bit / 8] |= 1 << (bit % 8);
        reseal_paired(&mut bytes);
        let page = TreePage::decode(&SET, &bytes).unwrap();
        TreePlanes::from_pages(shape, [&page]).map(|_| ())
    };
    assert_eq!(page(tree(2), 9), Ok(()));
    for bit in [10, 15, 16, 8 * TreePage::CONTENT_BYTES - 1] {
        assert_eq!(page(tree(2), bit), Err(FormatError::Field("tree planes")));
    }
    assert_eq!(page(tree(14), 0), Err(FormatError::Truncated));
}

/// Makes the checksum right again, as somebody would who wants to get past it.
fn reseal(bytes: &mut [u8]) {
    let checksum = checksum_of(bytes);
    put(bytes, CHECKSUM_AT, &checksum.to_le_bytes());
}

fn reseal_paired(bytes: &mut [u8]) {
    let mut covered = SET.to_vec();
    covered.extend(&bytes[8..]);
    put(bytes, 4, &crc32c(&covered).to_le_bytes());
}

/// Feeds bytes to every decoder; what one of them takes must be something that can be written.
fn feed(bytes: &[u8]) {
    if let Ok(page) = SlotPage::decode(&SET, 2, bytes) {
        let again = slot_page(&|slot| page.records[(slot - 512) as usize].unwrap_or(None));
        for ((record, field), again) in page.records.iter().zip(bytes.chunks(16)).zip(again.chunks(16)) {
            assert!(record.is_err() || field == again);
        }
    }
    if let Ok(page) = CommitPage::decode(&SET, bytes) {
        let mut again = vec![0; BLOCK];
        let first = page.page * COMMIT_PAGE_RECORDS;
        let record = |slot| page.records[(slot - first) as usize];
        CommitPage::encode(&SET, page.page, page.transaction, record, &mut again);
        assert_eq!(again, bytes[..BLOCK]);
    }
    if let Ok(page) = TreePage::decode(&SET, bytes) {
        let mut again = vec![0; BLOCK];
        TreePage::encode(&SET, page.page, page.transaction, page.content(), &mut again);
        assert_eq!(again, bytes[..BLOCK]);
        for levels in 1..=TREE_LEVELS_MAX {
            let shape = tree(levels);
            if let Ok(planes) = TreePlanes::from_pages(shape, [&page]) {
                assert!(planes.leaf_of(shape.finest() - 1) < shape.nodes());
            }
        }
    }
    if let Ok(record) = CommitRecord::decode(bytes) {
        assert_eq!(CommitRecord::decode(&encode_record(&record)), Ok(record));
    }
    if let Ok(table) = LostTable::decode(bytes) {
        assert_eq!(LostTable::decode(&encode_lost(&table)), Ok(table));
    }
    if let Ok(layout) = SlotLayout::decode(bytes, 1 << 40) {
        assert_eq!(SlotLayout::decode(&encode_layout(&layout), 1 << 40), Ok(layout));
    }
}

fn any_record() -> impl Strategy<Value = Option<SlotRecord>> {
    prop::option::of((0..BlockKey::END, 0..3u8, any::<u16>()).prop_map(|(piece, state, hint)| SlotRecord {
        piece: PieceKey(piece),
        is_dirty: state > 0,
        is_lost: state > 1,
        hint,
    }))
}

proptest! {
    #[test]
    fn slot_pages_read_back_what_was_written(records in prop::collection::vec(any_record(), 256)) {
        let bytes = slot_page(&|slot| records[slot as usize - 512]);
        let page = SlotPage::decode(&SET, 2, &bytes).unwrap();
        prop_assert_eq!(page.records.into_iter().collect::<Result<Vec<_>, _>>(), Ok(records));
    }

    #[test]
    fn a_torn_slot_page_has_each_record_old_or_new(
        old in prop::collection::vec(any_record(), 256),
        new in prop::collection::vec(any_record(), 256),
        sectors in any::<u8>(),
    ) {
        let mut bytes = slot_page(&|slot| old[slot as usize - 512]);
        let newer = slot_page(&|slot| new[slot as usize - 512]);
        for sector in (0..8).filter(|sector| sectors >> sector & 1 == 1) {
            let range = sector * 512..(sector + 1) * 512;
            bytes[range.clone()].copy_from_slice(&newer[range]);
        }
        let page = SlotPage::decode(&SET, 2, &bytes).unwrap();
        for (slot, record) in page.records.into_iter().enumerate() {
            let is_new = sectors >> (slot / 32) & 1 == 1;
            prop_assert_eq!(record, Ok(if is_new { new[slot] } else { old[slot] }));
        }
    }

    #[test]
    fn commit_pages_read_back_what_was_written(
        records in prop::collection::vec(any_record(), 508),
        transaction in 1..=COUNTER_MAX,
        page in 0..1_000_000u32,
    ) {
        let mut bytes = vec![0xee; BLOCK];
        let record = |slot| records[(slot - page * COMMIT_PAGE_RECORDS) as usize];
        CommitPage::encode(&SET, page, transaction, record, &mut bytes);
        prop_assert_eq!(CommitPage::decode(&SET, &bytes), Ok(CommitPage { page, transaction, records }));
    }

    #[test]
    fn trees_read_back_what_was_set(
        levels in 1..=TREE_LEVELS_MAX,
        nodes in prop::collection::vec((any::<u32>(), any::<bool>()), 0..50),
    ) {
        let shape = tree(levels);
        let mut planes = TreePlanes::new(shape);
        for (node, is_leaf) in nodes {
            if is_leaf {
                planes.set_leaf(node % shape.inner(), true);
            } else {
                planes.mark(node % shape.nodes(), true);
            }
        }
        let pages: Vec<TreePage> = (0..shape.pages())
            .map(|page| {
                let mut bytes = vec![0xee; BLOCK];
                TreePage::encode(&SET, page, 1, planes.page(page), &mut bytes);
                TreePage::decode(&SET, &bytes).unwrap()
            })
            .collect();
        prop_assert_eq!(TreePlanes::from_pages(shape, &pages), Ok(planes));
    }

    #[test]
    fn lost_tables_read_back_what_was_written(
        ranges in prop::collection::btree_map(any::<u32>(), (0..500u16, 1..=12u16), 0..200),
        update in 0..=COUNTER_MAX,
    ) {
        let of = |(slot, (first_block, blocks))| LostRange { slot, first_block, blocks };
        let table = LostTable { set_id: SET, update, ranges: ranges.into_iter().map(of).collect() };
        prop_assert_eq!(LostTable::decode(&encode_lost(&table)), Ok(table));
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        feed(&bytes);
    }

    #[test]
    fn changed_bytes_with_the_right_checksum_give_an_answer(
        which in 0..6usize,
        changes in prop::collection::vec((0..200usize, any::<u8>()), 1..6),
        len in 0..LostTable::BYTES,
    ) {
        let mut bytes = match which {
            0 => slot_page(&|slot| Some(record(u64::from(slot)))),
            1 => commit_page(&|slot| Some(record(u64::from(slot)))),
            2 => tree_page(&TreePlanes::new(tree(3))),
            3 => encode_record(&commit_record()),
            4 => encode_lost(&lost_table()),
            _ => encode_layout(&SlotLayout::choose(1 << 30, 65_536, 512, SlotPersistence::Commit).unwrap()),
        };
        for (offset, byte) in changes {
            let len = bytes.len();
            bytes[offset % len] = byte;
        }
        match which {
            1 | 2 => reseal_paired(&mut bytes),
            3 | 4 => reseal(&mut bytes),
            _ => {}
        }
        feed(&bytes);
        feed(&bytes[..len.min(bytes.len())]);
    }
}
