//! Records written by hand, damaged, and looked at.

use super::*;
use crate::check;
use crate::format::{ChecksumPage, Layout, SUPERBLOCK_OFFSETS, VolumeRecord};
use crate::mutation::Mutations;
use crate::recovery::{self, Options};
use crate::store::log::scan::Damage;
use crate::store::log::scan::testlog::Disk;
use crate::units::{Frame, VolumeId, VolumeIndex, payload_checksum};
use core::num::NonZeroU32;
use std::vec::Vec;

/// Four sets of 256 slots; two sets to a page would be 128.
const SLOTS: u32 = 1024;
const WAYS: u32 = 256;
const VOLUME_BLOCKS: u64 = 5000;

struct Scene {
    disk: Disk,
    superblock: Superblock,
    layout: SlotLayout,
    composition: Composition,
}

impl Scene {
    fn new() -> Scene {
        let layout = SlotLayout::with_slots(SLOTS, 4096, WAYS, SlotPersistence::SyncSector).expect("slots");
        let mut composition = Composition::plain_log();
        for (name, value) in [
            ("placement", "slots"),
            ("replacement", "fifo"),
            ("slot_bytes", "4096"),
            ("ways", "256"),
            ("writes", "in-place"),
            ("persistence", "sync-sector"),
        ] {
            composition.set(name, value).expect("it is there");
        }
        let new = Superblock::of_new_cache([9; 16], layout.cache_bytes(), Layout::Slots(layout));
        let mut superblock = Superblock {
            update: 3,
            session: 2,
            clean_stop: false,
            profile: "mine".into(),
            composition: composition.text(),
            next_volume_id: 8,
            ..new
        };
        for (at, id) in [(0, 5), (2, 7)] {
            let sectors = VOLUME_BLOCKS * SECTORS_PER_BLOCK;
            let volume = VolumeRecord::new(VolumeId(id), &std::format!("v{at}"), "mem:", sectors);
            superblock.volumes[at] = Some(VolumeRecord { clean_floor_sequence: u64::from(id), ..volume });
        }
        let mut disk = Disk::new();
        disk.bytes.resize(layout.cache_bytes() as usize, 0);
        let mut scene = Scene { disk, superblock, layout, composition };
        scene.store();
        scene
    }

    fn store(&mut self) {
        recovery::write_superblock(&mut self.disk, &self.superblock, Mutations::NONE)
            .expect("a device in memory");
    }

    /// Records `piece` of volume `volume` as dirty in `slot`.
    fn record(&mut self, slot: u32, volume: u8, piece: u64) {
        let page = slot / self.layout.page_slots();
        let at = self.layout.slot_page_offset_bytes(page, 0) as usize;
        let bytes = self.disk.bytes[at..at + SlotPage::BYTES].to_vec();
        let decoded = SlotPage::decode(&self.superblock.set_id, page, &bytes).expect("a page");
        let mut records: Vec<_> = decoded.records.into_iter().map(|record| record.expect("whole")).collect();
        records[(slot % self.layout.page_slots()) as usize] = Some(SlotRecord {
            piece: PieceKey::new(VolumeIndex(volume), piece),
            is_dirty: true,
            is_lost: false,
            hint: 0,
        });
        let page_slots = self.layout.page_slots();
        let bytes = &mut self.disk.bytes[at..at + SlotPage::BYTES];
        let record = |slot: u32| records[(slot % page_slots) as usize];
        SlotPage::encode(&self.superblock.set_id, page, record, bytes);
    }

    fn errors(&mut self) -> Vec<(u32, RecordError)> {
        let mut errors = Vec::new();
        let Scene { disk, superblock, layout, composition } = self;
        walk_slot_pages(disk, superblock, layout, composition, &mut |found| {
            if let Found::Error { slot, error, .. } = found {
                errors.push((slot, error));
            }
        });
        errors
    }

    fn recorded(&mut self) -> Vec<(u32, bool)> {
        let mut slots = Vec::new();
        let Scene { disk, superblock, layout, composition } = self;
        walk_slot_pages(disk, superblock, layout, composition, &mut |found| {
            if let Found::Record(recorded) = found {
                slots.push((recorded.slot, recorded.is_void));
            }
        });
        slots
    }

    fn starts(&mut self) -> bool {
        let options = Options { index_budget_bytes: 0, repair: false, mutations: Mutations::NONE };
        recovery::inspect(&mut self.disk, options).is_ok()
    }
}

/// A piece that belongs to the set of `slot`.
fn piece_in(slot: u32, number: u64) -> u64 {
    u64::from(slot / WAYS * WAYS) + number
}

#[test]
fn a_sound_cache_is_sound_and_says_what_it_has() {
    let mut scene = Scene::new();
    for slot in [0, 3, 255, 256, 700, 1023] {
        scene.record(slot, 0, piece_in(slot, u64::from(slot % WAYS)));
    }
    let report = check::check(&mut scene.disk);
    assert!(report.ok, "{:?}", report.errors);
    assert_eq!((report.slots, report.records), (u64::from(SLOTS), 6));
    assert_eq!(scene.recorded().len(), 6);
    assert!(scene.starts());
}

#[test]
fn records_of_a_volume_that_was_given_another_number_are_void_and_no_error() {
    let mut scene = Scene::new();
    scene.record(0, 0, 1);
    scene.superblock.volumes[0].as_mut().expect("it is there").id = VolumeId(6);
    scene.store();
    assert_eq!(scene.recorded(), [(0, true)]);
    // Of no volume at all: nobody believes it either.
    scene.superblock.volumes[0] = None;
    scene.store();
    assert_eq!((scene.recorded(), scene.errors()), (std::vec![(0, true)], std::vec![]));
}

#[test]
fn everything_wrong_is_named_and_repaired() {
    let mut scene = Scene::new();
    scene.record(7, 0, 7);
    scene.record(20, 0, 20);
    // Damaged; a second copy of slot 20's piece; of another set; beyond the end of its volume.
    scene.record(300, 0, piece_in(300, 1));
    let at = scene.layout.slot_page_offset_bytes(300 / scene.layout.page_slots(), 0) as usize;
    scene.disk.bytes[at + (300 % scene.layout.page_slots() as usize) * 16 + 2] ^= 0x10;
    scene.record(21, 0, 20);
    scene.record(600, 0, piece_in(0, 44));
    scene.record(30, 2, VOLUME_BLOCKS / 1024 * 1024 + 1024);
    let piece = |volume, piece| PieceKey::new(VolumeIndex(volume), piece);
    let wrong = [
        (
            21,
            RecordError::Impossible(PlanError::Duplicate {
                piece: piece(0, 20),
                first: Frame(20),
                second: Frame(21),
            }),
        ),
        (30, RecordError::Impossible(PlanError::NoSuchPiece { slot: Frame(30), piece: piece(2, 5120) })),
        (300, RecordError::Damaged(FormatError::Checksum)),
        (600, RecordError::Impossible(PlanError::WrongSet { slot: Frame(600), piece: piece(0, 44) })),
    ];
    assert_eq!(scene.errors(), wrong);
    let report = check::check(&mut scene.disk);
    assert!(!report.ok && report.errors_count == 4 && report.slots_error.is_some());
    let named: Vec<Option<u32>> = report.errors.iter().map(|error| error.slot).collect();
    assert_eq!(named, [Some(21), Some(30), Some(300), Some(600)]);
    assert!(!scene.starts());

    let Scene { disk, superblock, layout, composition } = &mut scene;
    let taken_back = repair(disk, superblock, layout, composition).expect("repaired");
    assert_eq!(taken_back, 5, "of two copies neither is newer");
    assert_eq!(scene.recorded(), [(7, false)]);
    assert!(scene.starts() && check::check(&mut scene.disk).ok);
}

#[test]
fn a_page_that_cannot_be_read_hides_no_other_and_is_not_repaired() {
    let mut scene = Scene::new();
    scene.record(0, 0, 0);
    scene.record(1000, 0, piece_in(1000, 3));
    scene.disk.bad_block = Some(scene.layout.slot_page_offset_bytes(0, 0) / 4096);
    assert_eq!(scene.errors(), [(0, RecordError::Unreadable(Errno::IO))]);
    assert_eq!(scene.recorded(), [(1000, false)]);
    let Scene { disk, superblock, layout, composition } = &mut scene;
    let error = repair(disk, superblock, layout, composition).expect_err("it cannot be read");
    assert!(matches!(error, OpenError::Device(Errno::IO)), "{error}");
}

#[test]
fn rotten_blocks_are_named_as_far_as_checksums_are_known() {
    let mut scene = Scene::new();
    for slot in [3, 8, 1022] {
        scene.record(slot, 0, piece_in(slot, u64::from(slot % WAYS)));
        let at = scene.layout.slot_offset_bytes(Frame(slot)) as usize;
        scene.disk.bytes[at + 5] ^= u8::from(slot > 3);
    }
    // Of the first area the checksums are those of zeroes; of the second one nothing is known.
    let page = scene.layout.checksum_page_offset_bytes(0) as usize;
    let zeroes = NonZeroU32::new(payload_checksum(&[0; 4096]));
    let bytes = &mut scene.disk.bytes[page..page + ChecksumPage::BYTES];
    ChecksumPage::encode_closed(&scene.superblock.set_id, 0, 2, |_| zeroes, bytes);
    let report = check::check(&mut scene.disk);
    let found: Vec<_> =
        report.errors.iter().map(|error| (error.slot, error.offset_bytes, error.what)).collect();
    let what = Damage::Payload.into();
    assert_eq!(found, [(Some(8), scene.layout.slot_offset_bytes(Frame(8)), what)]);
    assert_eq!((report.ok, report.payload_blocks_verified), (false, 2));
}

#[test]
fn rotten_checksums_are_named_and_refused_until_they_are_repaired() {
    let mut scene = Scene::new();
    scene.record(8, 0, piece_in(8, u64::from(8 % WAYS)));
    let page = scene.layout.checksum_page_offset_bytes(1);
    let bytes = &mut scene.disk.bytes[page as usize..][..ChecksumPage::BYTES];
    ChecksumPage::encode_closed(&scene.superblock.set_id, 1, 2, NonZeroU32::new, bytes);
    assert!(check::check(&mut scene.disk).ok && scene.starts());
    scene.disk.bytes[page as usize + 700] ^= 1;
    let report = check::check(&mut scene.disk);
    let found: Vec<_> = report.errors.iter().map(|error| (error.offset_bytes, error.what)).collect();
    assert_eq!(found, [(page, check::Wrong::Checksums(FormatError::Checksum))]);
    assert!(!report.ok && !scene.starts());
    let Scene { disk, superblock, layout, composition } = &mut scene;
    assert_eq!(repair(disk, superblock, layout, composition).expect("repaired"), 0);
    assert!(check::check(&mut scene.disk).ok && scene.starts());
    assert_eq!(scene.recorded(), [(8, false)]);
}

#[test]
fn a_superblock_with_another_composition_is_refused() {
    let mut scene = Scene::new();
    scene.superblock.composition = scene.superblock.composition.replace("ways = 256", "ways = 128");
    scene.store();
    let report = check::check(&mut scene.disk);
    assert!(!report.ok && report.slots_error.is_some() && report.superblock.is_some());
    // One copy is enough.
    let mut scene = Scene::new();
    scene.disk.bytes[SUPERBLOCK_OFFSETS[1] as usize + 99] ^= 1;
    let report = check::check(&mut scene.disk);
    assert!(report.ok && report.superblock_copies_torn == 1);
}
