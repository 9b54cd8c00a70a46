//! The table of slots: the piece and the state of each one.
//!
//! ```text
//!          occupy                settle              begin_home
//!   Free ─────────► Filling ───────────────► Valid ◄───────────► Going
//!    ▲                │ free     free          │  ▲   settle
//!    ├────────────────┴───────────────────────┤  │ settle
//!    └──────────────── free ──────── Leaving ◄─┴──┘
//!                                         begin_leaving
//! ```
//!
//! The invariants S2, S3, S5 and S8 ([`crate::store::slots`]) are asserted here. For S5 every data write to a slot says so when it
//! is issued and when it is done ([`SlotTable::set_rewritten`]); a copy that went home counts only if nobody did since
//! [`SlotTable::begin_home`].
//!
//! A slot of 4 KiB takes 10 bytes here: 5 for the piece, 1 for state and flags, 4 for the checksum.

pub mod directory;
pub mod set_map;

use crate::number::{high_u32, index, low_u32, to_u8, wide};
use crate::policies::replacement::Shape;
use crate::table::key_map::KeyMap;
use crate::units::{BlockKey, Frame, PieceKey, VOLUMES_MAX, VolumeIndex};
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// It holds nothing.
    Free,
    /// Its piece is on the way into it.
    Filling,
    /// It holds its piece.
    Valid,
    /// It holds its piece, and is being read and written home. Writes to it wait.
    Going,
    /// It gives its place up, and the writes that make that durable are under way. It may not be used.
    Leaving,
}

const STATES: [SlotState; 5] =
    [SlotState::Free, SlotState::Filling, SlotState::Valid, SlotState::Going, SlotState::Leaving];
impl SlotState {
    /// The state's place in [`STATES`], as a slot's byte holds it.
    const fn code(self) -> u8 {
        match self {
            SlotState::Free => 0,
            SlotState::Filling => 1,
            SlotState::Valid => 2,
            SlotState::Going => 3,
            SlotState::Leaving => 4,
        }
    }
}

/// The bits of a slot's byte that hold the state.
const STATE_MASK: u8 = 0b111;
const DIRTY: u8 = 1 << 3;
const REWRITTEN: u8 = 1 << 4;
const RECORDED: u8 = 1 << 5;
const LOST: u8 = 1 << 6;

const _: () = assert!(BlockKey::END <= 1 << 40, "a piece has five bytes");

/// The slots of a cache.
#[derive(Clone, Debug)]
pub struct SlotTable {
    shape: Shape,
    slot_blocks: u32,
    /// The piece of each slot that is not free: the low 32 bits, and the eight above.
    low: Vec<u32>,
    high: Vec<u8>,
    /// State and flags.
    states: Vec<u8>,
    /// A checksum for each block, 0 if unknown; none at all if checksums are off.
    checksums: Vec<u32>,
    /// Number of reads under way of each slot that has some.
    pins: KeyMap,
    used: u32,
    dirty: u32,
    dirty_of_set: Vec<u32>,
    dirty_of_volume: [u32; VOLUMES_MAX],
}

impl SlotTable {
    /// A table of free slots of `slot_blocks` blocks, of which `pins_max` at the most are pinned at a time.
    #[must_use]
    pub fn new(shape: Shape, slot_blocks: u32, has_checksums: bool, pins_max: u32) -> SlotTable {
        let slots = index(shape.frames);
        SlotTable {
            shape,
            slot_blocks,
            low: vec![0; slots],
            high: vec![0; slots],
            states: vec![0; slots],
            checksums: if has_checksums { vec![0; slots * index(slot_blocks)] } else { Vec::new() },
            pins: KeyMap::new(pins_max.min(shape.frames)),
            used: 0,
            dirty: 0,
            dirty_of_set: vec![0; index(shape.sets())],
            dirty_of_volume: [0; VOLUMES_MAX],
        }
    }

    /// Number of slots, and their sets.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Blocks of a slot.
    #[must_use]
    pub fn slot_blocks(&self) -> u32 {
        self.slot_blocks
    }

    /// Slots that are not free.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Dirty slots.
    #[must_use]
    pub fn dirty(&self) -> u32 {
        self.dirty
    }

    /// Dirty slots of a set.
    #[must_use]
    pub fn dirty_of_set(&self, set: u32) -> u32 {
        self.dirty_of_set[index(set)]
    }

    /// Dirty slots of a volume.
    #[must_use]
    pub fn dirty_of_volume(&self, volume: VolumeIndex) -> u32 {
        self.dirty_of_volume[volume.at()]
    }

    /// State of a slot.
    #[must_use]
    pub fn state(&self, slot: Frame) -> SlotState {
        STATES[usize::from(self.states[slot.at()] & STATE_MASK)]
    }

    /// The piece of a slot; `None` if it is free.
    #[must_use]
    pub fn piece(&self, slot: Frame) -> Option<PieceKey> {
        (self.state(slot) != SlotState::Free).then(|| self.stored_piece(slot))
    }

    fn stored_piece(&self, slot: Frame) -> PieceKey {
        PieceKey(u64::from(self.high[slot.at()]) << 32 | u64::from(self.low[slot.at()]))
    }

    /// Whether a slot has content that the origin lacks.
    #[must_use]
    pub fn is_dirty(&self, slot: Frame) -> bool {
        self.has(slot, DIRTY)
    }

    /// Whether a data write to it was issued or ended since [`SlotTable::begin_home`].
    #[must_use]
    pub fn is_rewritten(&self, slot: Frame) -> bool {
        self.has(slot, REWRITTEN)
    }

    /// Whether a record that recovery would trust may be on the device.
    #[must_use]
    pub fn is_recorded(&self, slot: Frame) -> bool {
        self.has(slot, RECORDED)
    }

    /// Whether some of its blocks are lost.
    #[must_use]
    pub fn is_lost(&self, slot: Frame) -> bool {
        self.has(slot, LOST)
    }

    /// Whether a slot may give its place up as far as the table knows: valid, clean, and without readers.
    #[must_use]
    pub fn is_idle_clean(&self, slot: Frame) -> bool {
        self.states[slot.at()] & (STATE_MASK | DIRTY) == SlotState::Valid.code() && !self.is_pinned(slot)
    }

    /// Takes a free slot for `piece`, which is on its way.
    pub fn occupy(&mut self, slot: Frame, piece: PieceKey) {
        assert!(self.state(slot) == SlotState::Free, "only a free slot is taken for a piece (S3)");
        assert!(piece.0 < BlockKey::END, "a piece has five bytes");
        self.low[slot.at()] = low_u32(piece.0);
        self.high[slot.at()] = to_u8(high_u32(piece.0));
        self.put_state(slot, SlotState::Filling);
        self.used += 1;
    }

    /// Makes a slot Valid: its filling, its way home or its leaving is over.
    pub fn settle(&mut self, slot: Frame) {
        assert!(
            !matches!(self.state(slot), SlotState::Free | SlotState::Valid),
            "a slot that settles was being filled, destaged or given up"
        );
        self.put_state(slot, SlotState::Valid);
    }

    /// Begins the destage of a dirty slot. Later writes to it are not part of that.
    pub fn begin_home(&mut self, slot: Frame) {
        assert!(self.state(slot) == SlotState::Valid, "a slot goes home once at a time, and whole (S4)");
        assert!(self.is_dirty(slot), "only a dirty slot is destaged");
        self.put_state(slot, SlotState::Going);
        self.put(slot, REWRITTEN, false);
    }

    /// Begins to give up a clean slot without readers.
    pub fn begin_leaving(&mut self, slot: Frame) {
        assert!(
            self.is_idle_clean(slot),
            "a slot leaves only when it is idle and the origin has its content (S3)"
        );
        self.put_state(slot, SlotState::Leaving);
    }

    /// Empties a slot (S3).
    pub fn free(&mut self, slot: Frame) {
        let is_over = matches!(self.state(slot), SlotState::Filling | SlotState::Valid | SlotState::Leaving);
        assert!(is_over && !self.is_pinned(slot), "a slot that is freed is not in use (S3)");
        assert!(!self.is_dirty(slot), "a slot that is freed is clean (S3)");
        assert!(!self.is_recorded(slot), "a slot that is freed is named by no durable record (S3)");
        // The checksums stay: they are those of the places, whatever lies there.
        self.states[slot.at()] = SlotState::Free.code();
        self.used -= 1;
    }

    /// Marks a slot as dirty, with content that the origin lacks, or as clean again.
    pub fn set_dirty(&mut self, slot: Frame, is_dirty: bool) {
        assert!(
            matches!(self.state(slot), SlotState::Valid | SlotState::Going),
            "only a slot that holds its piece wholly is dirty (S2)"
        );
        assert!(is_dirty || !self.is_lost(slot), "a lost slot is not destaged");
        if self.is_dirty(slot) == is_dirty {
            return;
        }
        self.put(slot, DIRTY, is_dirty);
        let of_set = &mut self.dirty_of_set[index(self.shape.set_of(slot))];
        let volume = PieceKey(u64::from(self.high[slot.at()]) << 32).volume();
        let of_volume = &mut self.dirty_of_volume[volume.at()];
        if is_dirty {
            self.dirty += 1;
            *of_set += 1;
            *of_volume += 1;
        } else {
            self.dirty -= 1;
            *of_set -= 1;
            *of_volume -= 1;
        }
    }

    /// Notes that a data write to the slot is issued, or is done (S5).
    pub fn set_rewritten(&mut self, slot: Frame) {
        self.put(slot, REWRITTEN, true);
    }

    /// Notes that a record of the slot may be on the device from now on, or that certainly none is.
    pub fn set_recorded(&mut self, slot: Frame, is_recorded: bool) {
        assert!(self.state(slot) != SlotState::Free, "no record names a free slot (S3)");
        self.put(slot, RECORDED, is_recorded);
    }

    /// Marks a dirty slot as one with lost blocks, or takes the mark away.
    pub fn set_lost(&mut self, slot: Frame, is_lost: bool) {
        assert!(self.is_dirty(slot), "only the last copy can be lost");
        self.put(slot, LOST, is_lost);
    }

    /// Notes a reader of the slot, which keeps its content.
    pub fn pin(&mut self, slot: Frame) {
        assert!(
            matches!(self.state(slot), SlotState::Valid | SlotState::Going),
            "only a slot that holds its piece is read"
        );
        let pins = self.pins.get(u64::from(slot.0)).unwrap_or(0);
        self.pins.insert(u64::from(slot.0), pins + 1);
    }

    /// Ends a read of the slot.
    pub fn unpin(&mut self, slot: Frame) {
        match self.pins.get(u64::from(slot.0)) {
            Some(1) => self.pins.remove(u64::from(slot.0)),
            Some(pins) => self.pins.insert(u64::from(slot.0), pins - 1),
            None => unreachable!("a slot that is unpinned was pinned"),
        };
    }

    /// Whether the slot has readers.
    #[must_use]
    pub fn is_pinned(&self, slot: Frame) -> bool {
        self.pins.get(u64::from(slot.0)).is_some()
    }

    /// The checksum of block `block` of a slot; `None` if it is unknown.
    #[must_use]
    pub fn checksum(&self, slot: Frame, block: u32) -> Option<NonZeroU32> {
        assert!(block < self.slot_blocks, "a block lies in its slot");
        let at = slot.at() * index(self.slot_blocks) + index(block);
        self.checksums.get(at).and_then(|&checksum| NonZeroU32::new(checksum))
    }

    /// The checksum of a place, whatever its slot holds; `None` if it is unknown.
    #[must_use]
    pub fn checksum_at(&self, place: u32) -> Option<NonZeroU32> {
        self.checksums.get(index(place)).and_then(|&checksum| NonZeroU32::new(checksum))
    }

    /// Remembers the checksums of the places from `first` on.
    pub fn restore_checksums(&mut self, first: u32, checksums: &[Option<NonZeroU32>]) {
        let places = self.checksums.iter_mut().skip(index(first));
        for (place, checksum) in places.zip(checksums) {
            *place = checksum.map_or(0, NonZeroU32::get);
        }
    }

    /// Remembers the checksum of a block, or forgets it. Does nothing where checksums are off.
    pub fn set_checksum(&mut self, slot: Frame, block: u32, checksum: Option<NonZeroU32>) {
        assert!(block < self.slot_blocks, "a block lies in its slot");
        let at = slot.at() * index(self.slot_blocks) + index(block);
        if let Some(place) = self.checksums.get_mut(at) {
            *place = checksum.map_or(0, NonZeroU32::get);
        }
    }

    /// Bytes on the heap for each slot, the directory not counted, in all.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let words = self.low.capacity() + self.checksums.capacity() + self.dirty_of_set.capacity();
        wide(words * size_of::<u32>() + self.high.capacity() + self.states.capacity())
    }

    fn has(&self, slot: Frame, flag: u8) -> bool {
        self.states[slot.at()] & flag != 0
    }

    fn put(&mut self, slot: Frame, flag: u8, is_set: bool) {
        let state = &mut self.states[slot.at()];
        *state = if is_set { *state | flag } else { *state & !flag };
    }

    fn put_state(&mut self, slot: Frame, state: SlotState) {
        let byte = &mut self.states[slot.at()];
        *byte = *byte & !STATE_MASK | state.code();
    }
}

#[cfg(test)]
mod tests;
