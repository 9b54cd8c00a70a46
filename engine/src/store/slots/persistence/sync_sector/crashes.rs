//! Slot pages on a device that loses what no flush covers: histories H1 to H5 and H18 of the design, at random.
//!
//! A few pieces are written, go home, leave, and are written past the cache; now and then the power fails or
//! the process dies, and what is found then is compared with what was promised. Origins lose nothing here.

use super::*;
use crate::format::{SetId, SlotPage, SlotRecord};
use crate::prng::Prng;
use crate::store::slots::persistence::model_device::{Cell, ModelDevice};
use crate::units::PieceKey;
use std::format;
use std::string::String;
use std::vec;

const SET: SetId = [7; 16];
const PIECES: u32 = 6;
/// Two pages, and in each two sectors.
const SLOTS: [u32; 5] = [0, 1, 100, 256, 300];
const SLOTS_END: u32 = 301;
const PAGES_AT: u32 = 10_000;

/// A line that somebody left out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// A flush that the records ask for is not sent.
    DropFlush,
    /// A slot is given another piece before its record is known to be gone.
    ReuseBeforeCleanMark,
    /// A client's write goes past a clean slot whose record is not known to be gone.
    BypassBeforeForget,
    /// A write is answered when its data is written.
    AckBeforePage,
    /// What a start found is not flushed before it is relied on.
    SkipStartFlush,
}

#[derive(Clone, Copy)]
struct Held {
    piece: u32,
    version: u32,
    is_dirty: bool,
    is_recorded: bool,
    /// Writes that are in flight or wait for their record.
    busy: u32,
}

struct DataWrite {
    slot: u32,
    id: u32,
    waiter: (u32, u32, u32),
}

struct Flush {
    covered: Vec<u32>,
    completed: u64,
    acked: [u32; PIECES as usize],
    is_sent: bool,
}

struct World {
    prng: Prng,
    bug: Bug,
    is_safe: bool,
    device: ModelDevice,
    /// A waiter is slot, piece and version.
    core: SyncSector<(u32, u32, u32)>,
    slots: BTreeMap<u32, Held>,
    completed: u64,
    writes: Vec<DataWrite>,
    pages: Vec<(u32, Vec<u32>)>,
    flushes: Vec<Flush>,
    origin: [u32; PIECES as usize],
    issued: [u32; PIECES as usize],
    acked: [u32; PIECES as usize],
    floor: [u32; PIECES as usize],
    page_writes: u32,
}

impl World {
    fn new(seed: u64, is_safe: bool, bug: Bug) -> World {
        World {
            prng: Prng::new(seed),
            bug,
            is_safe,
            device: ModelDevice::default(),
            core: SyncSector::new(SLOTS_END, is_safe, |_| false),
            slots: BTreeMap::new(),
            completed: 0,
            writes: Vec::new(),
            pages: Vec::new(),
            flushes: Vec::new(),
            origin: [0; PIECES as usize],
            issued: [0; PIECES as usize],
            acked: [0; PIECES as usize],
            floor: [0; PIECES as usize],
            page_writes: 0,
        }
    }

    fn step(&mut self) {
        match self.prng.below(8) {
            0 | 1 => self.write(),
            2 => self.complete_data(),
            3 => self.issue_page(),
            4 => self.complete_page(),
            5 => self.flush(),
            6 => self.go_home(),
            _ => self.leave(),
        }
        while let Some(waiter) = self.core.next_done() {
            self.answer(waiter);
        }
        while let Some(slot) = self.core.next_unrecorded() {
            self.slots.get_mut(&slot).unwrap().is_recorded = false;
        }
    }

    fn slot_of(&self, piece: u32) -> Option<u32> {
        self.slots.iter().find(|(_, held)| held.piece == piece).map(|(slot, _)| *slot)
    }

    /// A client's write: into the cache, or, if there is no room, past it.
    fn write(&mut self) {
        let piece = self.prng.below(PIECES);
        let slot = self.slot_of(piece);
        let is_busy = slot.is_some_and(|slot| self.writes.iter().any(|write| write.slot == slot));
        if is_busy {
            return;
        }
        let held = slot.map(|slot| self.slots[&slot]);
        let may_forget = |held: Held| {
            !held.is_dirty && held.busy == 0 && (!held.is_recorded || self.bug == Bug::BypassBeforeForget)
        };
        if held.is_none_or(may_forget) && self.prng.below(3) == 0 {
            slot.map(|slot| self.slots.remove(&slot));
            self.issued[piece as usize] += 1;
            self.origin[piece as usize] = self.issued[piece as usize];
            self.acked[piece as usize] = self.issued[piece as usize];
            return;
        }
        let free = SLOTS.into_iter().find(|slot| !self.slots.contains_key(slot));
        let Some(slot) = slot.or(free) else { return };
        self.issued[piece as usize] += 1;
        let version = self.issued[piece as usize];
        let fresh = Held { piece, version, is_dirty: false, is_recorded: false, busy: 0 };
        let held = self.slots.entry(slot).or_insert(fresh);
        held.version = version;
        held.is_dirty = true;
        held.busy += 1;
        let id = self.device.issue(slot, Cell::Data { piece, version });
        self.writes.push(DataWrite { slot, id, waiter: (slot, piece, version) });
    }

    fn complete_data(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        let at = self.prng.below(self.writes.len() as u32) as usize;
        let write = self.writes.swap_remove(at);
        self.device.complete(&[write.id]);
        self.completed += 1;
        self.slots.get_mut(&write.slot).unwrap().is_recorded = true;
        if self.bug == Bug::AckBeforePage {
            let (_, piece, version) = write.waiter;
            self.acked[piece as usize] = self.acked[piece as usize].max(version);
        }
        if let Some(waiter) = self.core.dirtied(write.slot, self.completed, write.waiter) {
            self.answer(waiter);
        }
    }

    fn answer(&mut self, (slot, piece, version): (u32, u32, u32)) {
        let acked = &mut self.acked[piece as usize];
        *acked = (*acked).max(version);
        self.slots.get_mut(&slot).unwrap().busy -= 1;
    }

    fn issue_page(&mut self) {
        let Some(page) = self.core.next_page() else { return };
        let mut bytes = vec![0; SlotPage::BYTES];
        let record = |slot: u32| {
            let held = self.slots.get(&slot)?;
            let piece = PieceKey(u64::from(held.piece));
            let record = SlotRecord { piece, is_dirty: true, is_lost: false, hint: 0 };
            (slot < SLOTS_END && self.core.says_dirty(slot)).then_some(record)
        };
        SlotPage::encode(&SET, page, record, &mut bytes);
        let ids = self.device.issue_block(PAGES_AT + page * 8, &bytes);
        self.pages.push((page, ids));
        self.page_writes += 1;
    }

    fn complete_page(&mut self) {
        if self.pages.is_empty() {
            return;
        }
        let at = self.prng.below(self.pages.len() as u32) as usize;
        let (page, ids) = self.pages.swap_remove(at);
        self.device.complete(&ids);
        self.completed += 1;
        self.core.page_written(page, self.completed);
    }

    /// A flush begins, a client's or one of those that the records want; or the oldest one ends.
    fn flush(&mut self) {
        let is_wanted = self.core.flush_wanted().is_some() || self.core.settling().is_some();
        if self.flushes.len() < 2 && self.prng.below(2) == 0 {
            let is_clients = !is_wanted || self.prng.below(2) == 0;
            self.flushes.push(Flush {
                covered: self.device.coverable(),
                completed: self.completed,
                acked: if is_clients { self.acked } else { [0; PIECES as usize] },
                is_sent: is_clients || self.bug != Bug::DropFlush,
            });
        } else if !self.flushes.is_empty() {
            let flush = self.flushes.remove(0);
            if flush.is_sent {
                self.device.flush(&flush.covered);
            }
            self.core.flushed(flush.completed);
            for (floor, acked) in self.floor.iter_mut().zip(flush.acked) {
                *floor = (*floor).max(acked);
            }
        }
    }

    /// A dirty slot that nobody writes to goes home.
    fn go_home(&mut self) {
        let slot = SLOTS[self.prng.below(SLOTS.len() as u32) as usize];
        let Some(held) = self.slots.get_mut(&slot) else { return };
        if held.is_dirty && held.busy == 0 && self.core.is_written(slot) {
            held.is_dirty = false;
            self.origin[held.piece as usize] = held.version;
            self.core.cleaned(slot);
            if self.prng.below(2) == 0 {
                self.core.want(SyncSector::<u32>::page_of(slot));
            }
        }
    }

    /// A clean slot gives its place up, or its page is wanted so that it can.
    fn leave(&mut self) {
        let slot = SLOTS[self.prng.below(SLOTS.len() as u32) as usize];
        let Some(held) = self.slots.get(&slot) else { return };
        if held.is_dirty || held.busy > 0 {
            return;
        }
        if held.is_recorded && self.bug != Bug::ReuseBeforeCleanMark {
            self.core.want(SyncSector::<u32>::page_of(slot));
        } else {
            self.slots.remove(&slot);
        }
    }

    /// The end of a life, and the beginning of the next one. The error tells what was promised and is not so.
    fn crash(&mut self, is_cut: bool) -> Result<(), String> {
        if is_cut {
            self.device.cut(&mut self.prng);
        } else {
            self.device.kill(&mut self.prng);
            self.floor = self.acked;
        }
        self.slots.clear();
        let mut found = self.origin;
        for page in 0..2 {
            let page_bytes = self.device.read_block(PAGES_AT + page * 8);
            let records = SlotPage::decode(&SET, page, &page_bytes).unwrap().records;
            for (slot, record) in (page * 256..).zip(records) {
                let Some(record) = record.map_err(|error| format!("slot {slot}: {error}"))? else { continue };
                let piece = record.piece.0 as u32;
                let Some(&Cell::Data { piece: held, version }) = self.device.read(slot) else {
                    return Err(format!("slot {slot} has piece {piece} on record and no data"));
                };
                if held != piece || self.slot_of(piece).is_some() {
                    return Err(format!("slot {slot} has piece {piece} on record and holds {held}"));
                }
                found[piece as usize] = version;
                self.slots.insert(slot, Held { piece, version, is_dirty: true, is_recorded: true, busy: 0 });
            }
        }
        for (piece, &version) in found.iter().enumerate() {
            let (promised, written) = (self.floor[piece], self.issued[piece]);
            if !(promised..=written).contains(&version) {
                return Err(format!(
                    "piece {piece}: version {version}, promised {promised}, written {written}"
                ));
            }
        }
        self.core = SyncSector::new(SLOTS_END, self.is_safe, |slot| self.slots.contains_key(&slot));
        self.writes.clear();
        self.pages.clear();
        self.flushes.clear();
        if self.bug != Bug::SkipStartFlush {
            let covered = self.device.coverable();
            self.device.flush(&covered);
        }
        // What was found is what every later read finds.
        self.acked = found;
        self.floor = found;
        self.issued = found;
        Ok(())
    }
}

/// Lives of one cache. `cuts`: whether power fails too, not only processes.
fn lives(seed: u64, is_safe: bool, cuts: bool, bug: Bug) -> Result<u32, String> {
    let mut world = World::new(seed, is_safe, bug);
    for _ in 0..4 {
        for _ in 0..world.prng.below(150) {
            world.step();
        }
        let is_cut = cuts && world.prng.below(3) > 0;
        world.crash(is_cut)?;
    }
    Ok(world.page_writes)
}

const SEEDS: u64 = 3000;

#[test]
fn safe_keeps_what_was_flushed_over_cuts_and_what_was_answered_over_deaths() {
    let mut page_writes = 0;
    for seed in 0..SEEDS {
        page_writes +=
            lives(seed, true, true, Bug::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(page_writes > 5 * SEEDS as u32, "the histories are not trivial: {page_writes}");
}

#[test]
fn unsafe_keeps_what_was_answered_where_devices_lose_nothing() {
    for seed in 0..SEEDS {
        lives(seed, false, false, Bug::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!((0..SEEDS).any(|seed| lives(seed, false, true, Bug::None).is_err()), "and it needs such devices");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in [
        Bug::DropFlush,
        Bug::ReuseBeforeCleanMark,
        Bug::BypassBeforeForget,
        Bug::AckBeforePage,
        Bug::SkipStartFlush,
    ] {
        assert!((0..SEEDS).any(|seed| lives(seed, true, true, bug).is_err()), "{bug:?}");
    }
}
