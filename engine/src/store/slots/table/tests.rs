//! The table beside a model that keeps everything in plain fields.

use super::*;
use crate::prng::Prng;
use crate::store::slots::table::directory::Directory;
use crate::store::slots::table::set_map::{SetMap, SetMapKind};

#[derive(Clone, Copy, PartialEq)]
struct Slot {
    state: SlotState,
    piece: u64,
    dirty: bool,
    rewritten: bool,
    recorded: bool,
    lost: bool,
    pins: u32,
    checksums: [u32; 3],
}

const FREE: Slot = Slot {
    state: SlotState::Free,
    piece: 0,
    dirty: false,
    rewritten: false,
    recorded: false,
    lost: false,
    pins: 0,
    checksums: [0; 3],
};

/// One random step that the rules allow, on the model and on the table.
fn step(prng: &mut Prng, model: &mut [Slot], table: &mut SlotTable) {
    let number = prng.below(model.len() as u32);
    let (slot, frame) = (&mut model[number as usize], Frame(number));
    let is_held = matches!(slot.state, SlotState::Valid | SlotState::Going);
    match prng.below(11) {
        0 if slot.state == SlotState::Free => {
            let volume = prng.below(16) as u8;
            let piece = PieceKey::new(VolumeIndex(volume), prng.next_u64() & ((1 << 35) - 1));
            *slot = Slot { state: SlotState::Filling, piece: piece.0, checksums: slot.checksums, ..FREE };
            table.occupy(frame, piece);
        }
        1 if !matches!(slot.state, SlotState::Free | SlotState::Valid) => {
            slot.state = SlotState::Valid;
            table.settle(frame);
        }
        2 if slot.state == SlotState::Valid && slot.dirty => {
            slot.state = SlotState::Going;
            slot.rewritten = false;
            table.begin_home(frame);
        }
        3 if slot.state == SlotState::Valid && !slot.dirty && slot.pins == 0 => {
            slot.state = SlotState::Leaving;
            table.begin_leaving(frame);
        }
        4 if !matches!(slot.state, SlotState::Free | SlotState::Going)
            && !slot.dirty
            && !slot.recorded
            && slot.pins == 0 =>
        {
            // The checksums are those of the places.
            *slot = Slot { checksums: slot.checksums, ..FREE };
            table.free(frame);
        }
        5 if is_held => {
            slot.dirty = slot.lost || prng.below(2) == 0;
            table.set_dirty(frame, slot.dirty);
        }
        6 if slot.state != SlotState::Free => {
            slot.rewritten = true;
            table.set_rewritten(frame);
        }
        7 if slot.state != SlotState::Free => {
            slot.recorded = prng.below(2) == 0;
            table.set_recorded(frame, slot.recorded);
        }
        8 if slot.dirty => {
            slot.lost = prng.below(2) == 0;
            table.set_lost(frame, slot.lost);
        }
        9 if is_held && slot.pins < 3 => {
            slot.pins += 1;
            table.pin(frame);
        }
        9 if slot.pins > 0 => {
            slot.pins -= 1;
            table.unpin(frame);
        }
        10 if slot.state != SlotState::Free => {
            let block = prng.below(3);
            slot.checksums[block as usize] = prng.below(3);
            table.set_checksum(frame, block, NonZeroU32::new(slot.checksums[block as usize]));
        }
        _ => {}
    }
}

fn compare(model: &[Slot], table: &SlotTable, frame: Frame) {
    let slot = model[frame.at()];
    let found = Slot {
        state: table.state(frame),
        piece: table.piece(frame).map_or(0, |piece| piece.0),
        dirty: table.is_dirty(frame),
        rewritten: table.is_rewritten(frame),
        recorded: table.is_recorded(frame),
        lost: table.is_lost(frame),
        pins: slot.pins,
        checksums: [0, 1, 2].map(|block| table.checksum(frame, block).map_or(0, NonZeroU32::get)),
    };
    assert!(found == slot);
    assert_eq!(table.is_pinned(frame), slot.pins > 0);
    let is_idle_clean = slot.state == SlotState::Valid && !slot.dirty && slot.pins == 0;
    assert_eq!(table.is_idle_clean(frame), is_idle_clean);
}

#[test]
fn the_table_behaves_like_plain_fields_and_counts_what_is_dirty() {
    let shape = Shape { frames: 24, ways: 8 };
    let mut prng = Prng::new(5);
    let mut model = [FREE; 24];
    let mut table = SlotTable::new(shape, 3, true, 24);
    let mut dirty_max = 0;
    for _ in 0..100_000 {
        step(&mut prng, &mut model, &mut table);
        for number in [prng.below(24), prng.below(24)] {
            compare(&model, &table, Frame(number));
        }
        let count = |is_counted: &dyn Fn(usize, &Slot) -> bool| {
            model.iter().enumerate().filter(|(number, slot)| is_counted(*number, slot)).count() as u32
        };
        assert_eq!(table.used(), count(&|_, slot| slot.state != SlotState::Free));
        assert_eq!(table.dirty(), count(&|_, slot| slot.dirty));
        let set = prng.below(3);
        assert_eq!(table.dirty_of_set(set), count(&|number, slot| slot.dirty && number as u32 / 8 == set));
        let volume = VolumeIndex(prng.below(16) as u8);
        let is_counted = |slot: &Slot| slot.dirty && PieceKey(slot.piece).volume() == volume;
        assert_eq!(table.dirty_of_volume(volume), count(&|_, slot| is_counted(slot)));
        dirty_max = dirty_max.max(table.dirty());
    }
    assert!(dirty_max > 8, "the histories are not trivial: {dirty_max}");
}

#[test]
fn without_checksums_none_is_known() {
    let mut table = SlotTable::new(Shape::whole(2), 1, false, 1);
    table.occupy(Frame(0), PieceKey(7));
    table.set_checksum(Frame(0), 0, NonZeroU32::new(9));
    assert_eq!(table.checksum(Frame(0), 0), None);
}

#[test]
fn a_slot_of_4_kib_in_a_set_takes_14_bytes() {
    let shape = Shape { frames: 1 << 16, ways: 512 };
    let table = SlotTable::new(shape, 1, true, 64);
    let directory = Directory::new(SetMap::new(SetMapKind::Modulo, shape), shape);
    let sets_bytes = 4 * u64::from(shape.sets());
    assert_eq!(table.allocated_bytes() + directory.allocated_bytes(), 14 * (1 << 16) + sets_bytes);
}

#[test]
#[should_panic(expected = "named by no durable record (S3)")]
fn a_recorded_slot_is_not_freed() {
    let mut table = SlotTable::new(Shape::whole(2), 1, true, 1);
    table.occupy(Frame(0), PieceKey(7));
    table.set_recorded(Frame(0), true);
    table.free(Frame(0));
}

#[test]
#[should_panic(expected = "not in use (S3)")]
fn a_slot_that_is_read_is_not_freed() {
    let mut table = SlotTable::new(Shape::whole(2), 1, true, 1);
    table.occupy(Frame(0), PieceKey(7));
    table.settle(Frame(0));
    table.pin(Frame(0));
    table.free(Frame(0));
}

#[test]
#[should_panic(expected = "(S2)")]
fn a_slot_that_is_being_filled_is_not_dirty() {
    let mut table = SlotTable::new(Shape::whole(2), 1, true, 1);
    table.occupy(Frame(0), PieceKey(7));
    table.set_dirty(Frame(0), true);
}
