//! Transactions, with a tree of dirty bits or without, on a device that loses what no flush covers: histories
//! H4, H5, H7 and H9 to H13 of the design, at random.
//!
//! A few pieces are promoted, written in place, go home, leave, and are written past the cache; now and then
//! the power fails or the process dies, and what is found then is compared with what was promised. Origins
//! lose nothing here.

use crate::format::{
    COMMIT_PAGE_RECORDS, CommitPage, CommitRecord, PAIRED_PAGE_BYTES, SetId, SlotRecord, TreePage,
    TreePlanes, TreeShape,
};
use crate::prng::Prng;
use crate::store::slots::persistence::bit_tree::{BitTree, Needs, TreeTuning};
use crate::store::slots::persistence::commit::{Commit, Opened, PageWrite, Step};
use crate::store::slots::persistence::model_device::{Cell, ModelDevice};
use crate::units::{Nanos, PieceKey, VOLUMES_MAX};
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

mod crash;

pub use crash::{lives, lives_of_a_record};

const SET: SetId = [7; 16];
const PIECES: u32 = 12;
/// Three pages.
const SLOTS: [u32; 6] = [0, 1, 508, 600, 1016, 1017];
const SLOT_PAGES: u32 = 3;
const PAGES_AT: u32 = 10_000;
const RECORDS_AT: u32 = 20_000;
const PERIOD_NS: u64 = 20;
/// Leaves of one piece at the finest.
const TUNING: TreeTuning = TreeTuning { leaf_pieces: 1, sla_permille: 200, steps: 2 };

/// A line that somebody left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bug {
    None,
    /// The record is written before its pages and data are flushed.
    DropPageFlush,
    /// A transaction counts before its record is flushed.
    DropRecordFlush,
    /// Pages are written where they count.
    OverwriteCommittedPage,
    /// Who waits for a transaction goes on at once.
    AckEarly,
    /// What a start found is not flushed before it is overwritten.
    SkipStartFlush,
    /// Pages that were cut off stay where they are.
    KeepDeadPages,
    /// A write to a clean piece does not wait for its leaf's mark.
    BitAfterData,
    /// A write looks at the marks that are durable, and not at those that are being committed.
    ClearBitInFlight,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Its piece is being written to it.
    Filling {
        write: u32,
    },
    /// Its mapping is not durable yet.
    Mapped,
    Valid,
    /// It is no longer mapped, and that is not durable yet.
    Leaving,
}

#[derive(Clone, Copy)]
struct Held {
    piece: u32,
    version: u32,
    is_dirty: bool,
    state: State,
    /// A write that waits or is in flight.
    is_busy: bool,
}

#[derive(Clone, Copy)]
enum Waiter {
    Mapping { slot: u32 },
    Forgotten { slot: u32 },
    Write { slot: u32, version: u32 },
}

struct PageInFlight {
    write: PageWrite,
    bytes: Vec<u8>,
    ids: Option<Vec<u32>>,
}

struct Flush {
    covered: Vec<u32>,
    acked: Option<[u32; PIECES as usize]>,
    is_sent: bool,
}

pub struct World {
    prng: Prng,
    bug: Bug,
    now: u64,
    device: ModelDevice,
    shape: Option<TreeShape>,
    tree: Option<BitTree>,
    commit: Commit<Waiter>,
    /// No request is served before the first transaction of a life.
    serves_from: u64,
    slots: BTreeMap<u32, Held>,
    writes: Vec<(u32, u32, u32)>,
    pages: Vec<PageInFlight>,
    /// The record's write in flight.
    record: Option<Vec<u32>>,
    is_record_written: bool,
    flushes: Vec<Flush>,
    origin: [u32; PIECES as usize],
    issued: [u32; PIECES as usize],
    acked: [u32; PIECES as usize],
    floor: [u32; PIECES as usize],
    /// What a start found: promised from the first request on.
    found: [u32; PIECES as usize],
    /// What happened, so that tests can tell that something did.
    pub transactions: u64,
    pub clean_found: u64,
}

impl World {
    fn new(seed: u64, has_tree: bool, bug: Bug) -> World {
        // 16 finest leaves; or 8, with two pieces each.
        let shape = has_tree.then(|| TreeShape::new(3 + (seed % 2) as u8).unwrap());
        let mut world = World {
            prng: Prng::new(seed),
            bug,
            now: 0,
            device: ModelDevice::default(),
            shape,
            tree: None,
            commit: Commit::new(Opened::formatted(0), PERIOD_NS),
            serves_from: 0,
            slots: BTreeMap::new(),
            writes: Vec::new(),
            pages: Vec::new(),
            record: None,
            is_record_written: false,
            flushes: Vec::new(),
            origin: [0; PIECES as usize],
            issued: [0; PIECES as usize],
            acked: [0; PIECES as usize],
            floor: [0; PIECES as usize],
            found: [0; PIECES as usize],
            transactions: 0,
            clean_found: 0,
        };
        let ids = world.device.issue_block(RECORDS_AT, &world.record_bytes(0));
        world.device.complete(&ids);
        world.device.flush(&ids);
        world.tree = shape.map(|shape| BitTree::new(shape, TUNING, u64::from(PIECES)));
        world.open(Opened::formatted(world.page_count()));
        world
    }

    fn page_count(&self) -> u32 {
        SLOT_PAGES + self.shape.map_or(0, TreeShape::pages)
    }

    fn open(&mut self, mut opened: Opened) {
        if self.bug == Bug::KeepDeadPages && opened.durable > 0 {
            opened.changed.clear();
        }
        self.serves_from = opened.durable + 1;
        self.commit = Commit::new(opened, PERIOD_NS);
        if self.bug == Bug::SkipStartFlush {
            assert_eq!(self.commit.next_step(), Some(Step::Flush));
            self.commit.flushed();
        }
    }

    fn record_bytes(&self, transaction: u64) -> Vec<u8> {
        let record = CommitRecord {
            set_id: SET,
            session: 0,
            transaction,
            clean_stop: false,
            tree_levels: self.shape.map_or(0, TreeShape::levels),
            leaf_pieces: self.shape.map_or(0, |_| TUNING.leaf_pieces),
            leaf_doublings: [0; VOLUMES_MAX],
        };
        let mut bytes = vec![0; CommitRecord::BYTES];
        record.encode(&mut bytes);
        bytes
    }

    fn step(&mut self) {
        self.now += 1;
        match self.prng.below(12) {
            0..=2 if self.commit.durable() >= self.serves_from => {
                self.pin();
                self.write();
            }
            3 => self.complete_data(),
            4..=5 => self.transact(),
            6 => self.write_pages(),
            7..=8 => self.flush(),
            9 => self.go_home(),
            10 => self.leave(),
            _ => self.adjust(),
        }
        while let Some(waiter) = self.commit.next_done() {
            self.go_on(waiter);
        }
    }

    /// Requests are served: what was found is what every later read finds.
    fn pin(&mut self) {
        for (floor, found) in self.floor.iter_mut().zip(self.found) {
            *floor = (*floor).max(found);
        }
    }

    fn wait(&mut self, transaction: u64, waiter: Waiter) {
        let waiter = self.commit.wait(transaction, waiter);
        assert!(waiter.is_none(), "there was something to wait for");
    }

    fn wait_for_next(&mut self, waiter: Waiter) {
        if self.bug == Bug::AckEarly {
            self.go_on(waiter);
        } else {
            self.wait(self.commit.next(), waiter);
        }
    }

    fn go_on(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Mapping { slot } => self.slots.get_mut(&slot).unwrap().state = State::Valid,
            Waiter::Forgotten { slot } => {
                self.slots.remove(&slot);
            }
            Waiter::Write { slot, version } => {
                let piece = self.slots[&slot].piece;
                if let Some(tree) = &self.tree
                    && self.bug == Bug::None
                {
                    assert_eq!(tree.needs(u64::from(piece)), Needs::Nothing, "it waited for that");
                }
                self.issue_data(slot, piece, version);
            }
        }
    }

    fn issue_data(&mut self, slot: u32, piece: u32, version: u32) {
        let id = self.device.issue(slot, Cell::Data { piece, version });
        self.writes.push((slot, id, version));
    }

    /// A client's write: in place, past the cache, or a promotion of its piece instead.
    fn write(&mut self) {
        let piece = self.prng.below(PIECES);
        let at = piece as usize;
        if let Some(tree) = &mut self.tree {
            tree.requested(1);
        }
        let slot = self.slots.iter().find(|(_, held)| held.piece == piece).map(|(slot, _)| *slot);
        let free = SLOTS.into_iter().find(|slot| !self.slots.contains_key(slot));
        match (slot, free) {
            (None, Some(slot)) if self.prng.below(2) == 0 => {
                let version = self.origin[at];
                let write = self.device.issue(slot, Cell::Data { piece, version });
                let state = State::Filling { write };
                self.slots.insert(slot, Held { piece, version, is_dirty: false, state, is_busy: true });
            }
            (None, _) => {
                self.issued[at] += 1;
                self.origin[at] = self.issued[at];
                self.acked[at] = self.issued[at];
            }
            (Some(slot), _) => {
                let held = self.slots.get_mut(&slot).unwrap();
                if held.state != State::Valid || held.is_busy {
                    return;
                }
                self.issued[at] += 1;
                let version = self.issued[at];
                held.version = version;
                held.is_busy = true;
                let was_dirty = core::mem::replace(&mut held.is_dirty, true);
                match self.needs(piece, was_dirty) {
                    Needs::Nothing => self.issue_data(slot, piece, version),
                    Needs::Running => self.wait(self.commit.next() - 1, Waiter::Write { slot, version }),
                    Needs::Next => self.wait_for_next(Waiter::Write { slot, version }),
                }
            }
        }
    }

    fn needs(&mut self, piece: u32, was_dirty: bool) -> Needs {
        let piece = u64::from(piece);
        let Some(tree) = &mut self.tree else { return Needs::Nothing };
        let is_marked_durably = tree.is_marked_durably(piece);
        if !was_dirty {
            tree.dirtied(piece);
        }
        match self.bug {
            Bug::BitAfterData => Needs::Nothing,
            Bug::ClearBitInFlight if is_marked_durably => Needs::Nothing,
            _ => tree.needs(piece),
        }
    }

    fn complete_data(&mut self) {
        let filling = self.slots.iter().find_map(|(slot, held)| match held.state {
            State::Filling { write } => Some((*slot, write)),
            _ => None,
        });
        if let Some((slot, write)) = filling
            && self.prng.below(2) == 0
        {
            self.device.complete(&[write]);
            let held = self.slots.get_mut(&slot).unwrap();
            held.state = State::Mapped;
            held.is_busy = false;
            self.commit.changed(slot / COMMIT_PAGE_RECORDS, Nanos(self.now));
            self.wait_for_next(Waiter::Mapping { slot });
        } else if !self.writes.is_empty() {
            let at = self.prng.below(self.writes.len() as u32) as usize;
            let (slot, id, version) = self.writes.swap_remove(at);
            self.device.complete(&[id]);
            let held = self.slots.get_mut(&slot).unwrap();
            held.is_busy = false;
            self.acked[held.piece as usize] = version;
        }
    }

    fn transact(&mut self) {
        if self.commit.wants_to_begin(Nanos(self.now)) {
            let tree_pages = self.tree.as_mut().map_or_else(Vec::new, BitTree::begin_commit);
            for page in tree_pages {
                self.commit.changed(SLOT_PAGES + page, Nanos(self.now));
            }
            let begun = self.commit.begin();
            self.transactions += 1;
            self.pages = begun
                .pages
                .into_iter()
                .map(|write| PageInFlight {
                    write,
                    bytes: self.page_bytes(write, begun.transaction),
                    ids: None,
                })
                .collect();
        }
        match self.commit.next_step() {
            Some(Step::Flush) => {
                let is_dropped =
                    if self.is_record_written { Bug::DropRecordFlush } else { Bug::DropPageFlush };
                let flush =
                    Flush { covered: self.device.coverable(), acked: None, is_sent: self.bug != is_dropped };
                self.flushes.push(flush);
            }
            Some(Step::Record { transaction, .. }) => {
                let at = RECORDS_AT + CommitRecord::place(transaction) as u32 * 8;
                self.record = Some(self.device.issue_block(at, &self.record_bytes(transaction)));
            }
            None => {}
        }
    }

    fn page_bytes(&self, write: PageWrite, transaction: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAIRED_PAGE_BYTES];
        if let Some(page) = write.page.checked_sub(SLOT_PAGES) {
            let content = self.tree.as_ref().unwrap().page(page);
            TreePage::encode(&SET, page, transaction, content, &mut bytes);
            return bytes;
        }
        let record = |slot: u32| {
            let held = self.slots.get(&slot)?;
            let piece = PieceKey(u64::from(held.piece));
            let record = SlotRecord { piece, is_dirty: false, is_lost: false, hint: 0 };
            matches!(held.state, State::Mapped | State::Valid).then_some(record)
        };
        CommitPage::encode(&SET, write.page, transaction, record, &mut bytes);
        bytes
    }

    /// Writes of pages and of the record are issued and completed.
    fn write_pages(&mut self) {
        if let Some(ids) = self.record.take() {
            self.device.complete(&ids);
            self.commit.record_written();
            self.is_record_written = true;
            return;
        }
        if self.pages.is_empty() {
            return;
        }
        let at = self.prng.below(self.pages.len() as u32) as usize;
        let transaction = self.commit.durable() + 1;
        match self.pages[at].ids.take() {
            Some(ids) => {
                self.device.complete(&ids);
                self.pages.swap_remove(at);
                self.commit.page_written();
            }
            None => {
                let write = self.pages[at].write;
                // As it was when the transaction began, or as it is now: both are allowed.
                if self.prng.below(2) == 0 {
                    self.pages[at].bytes = self.page_bytes(write, transaction);
                }
                let place =
                    if self.bug == Bug::OverwriteCommittedPage { 1 - write.place } else { write.place };
                let at_cell = PAGES_AT + (place * self.page_count() + write.page) * 8;
                self.pages[at].ids = Some(self.device.issue_block(at_cell, &self.pages[at].bytes));
            }
        }
    }

    /// A client's flush begins, or the oldest one of all ends.
    fn flush(&mut self) {
        if self.flushes.len() < 2 && self.prng.below(2) == 0 {
            let covered = self.device.coverable();
            self.flushes.push(Flush { covered, acked: Some(self.acked), is_sent: true });
        } else if !self.flushes.is_empty() {
            let flush = self.flushes.remove(0);
            if flush.is_sent {
                self.device.flush(&flush.covered);
            }
            let Some(acked) = flush.acked else {
                let durable = self.commit.durable();
                self.commit.flushed();
                if self.commit.durable() > durable {
                    self.is_record_written = false;
                    if let Some(tree) = &mut self.tree {
                        tree.committed();
                    }
                }
                return;
            };
            for (floor, acked) in self.floor.iter_mut().zip(acked) {
                *floor = (*floor).max(acked);
            }
        }
    }

    fn go_home(&mut self) {
        let slot = SLOTS[self.prng.below(SLOTS.len() as u32) as usize];
        let Some(held) = self.slots.get_mut(&slot) else { return };
        if held.is_dirty && !held.is_busy {
            held.is_dirty = false;
            self.origin[held.piece as usize] = held.version;
            if let Some(tree) = &mut self.tree {
                tree.cleaned(u64::from(held.piece));
            }
        }
    }

    fn leave(&mut self) {
        let slot = SLOTS[self.prng.below(SLOTS.len() as u32) as usize];
        let Some(held) = self.slots.get_mut(&slot) else { return };
        if held.state == State::Valid && !held.is_dirty && !held.is_busy {
            held.state = State::Leaving;
            self.commit.changed(slot / COMMIT_PAGE_RECORDS, Nanos(self.now));
            self.wait_for_next(Waiter::Forgotten { slot });
        }
    }

    fn adjust(&mut self) {
        if let Some(tree) = &mut self.tree {
            tree.adjust();
        }
    }
}
