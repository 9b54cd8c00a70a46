//! Slot pages that are written, each in its place, before a write is acknowledged.
//!
//! A slot is recorded while it is dirty. [`SyncSector::dirtied`] and [`SyncSector::cleaned`] change its record; the
//! page is written as it stands when [`SyncSector::next_page`] names it. A page has one write in flight; later
//! changes share the next one.
//!
//! ```text
//!           want             issue               written
//!   clean ───────► wanted ─────────► in flight ──────────► clean
//!                    ▲                │ want
//!                    │    written     ▼
//!                    └──────────── in flight + wanted
//! ```
//!
//! With *safe* two flushes are added. A record says dirty only once a flush covers the data (history H2: else a
//! power cut may keep the record and lose the data). A slot counts as not recorded only once a flush covers the
//! page that says so (H4: else its next piece's bytes may be found under the old record).
//!
//! * I1: a record changes from nothing to dirty only when its data is covered.
//! * I2: a slot of which `written` holds has a record on the device whichever unflushed writes a power cut
//!   loses: a FLUSH that is issued later covers it.
//! * I3: a waiter waits for a write of the page that was issued after its record said dirty.
//! * I4: a slot is reported by [`SyncSector::next_unrecorded`] only if a page without it is durable, and it was
//!   not dirty again since it was cleaned.
//!
//! The caller counts completed writes, in one number for the whole device: a flush *covers* the writes that were
//! complete when it was issued.
//!
//! Source: flashcache 3.1.1 and EnhanceIO, where a metadata block has one write in flight. The flushes are ours.

use crate::format::SLOT_PAGE_RECORDS;
use crate::mutation::{Mutation, Mutations};
use crate::number::index;
use crate::table::bits::Bits;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

const WORD_BITS: u32 = u64::BITS;
const PAGE_WORDS: usize = index(SLOT_PAGE_RECORDS / WORD_BITS);

/// One bit for each slot of a page.
type PageBits = [u64; PAGE_WORDS];

/// A page that is not at rest.
#[derive(Clone, Debug)]
struct Page<W> {
    is_wanted: bool,
    /// The write in flight: whether it marks each slot as dirty.
    in_flight: Option<PageBits>,
    /// Waiters for the write in flight.
    waiting: Vec<W>,
    /// Waiters for the one after it.
    waiting_next: Vec<W>,
    /// Slots that were cleaned and may still be recorded.
    clearing: PageBits,
    /// Slots that a completed write left out, with the writes that a flush has to cover.
    settling: VecDeque<(u64, PageBits)>,
}

impl<W> Page<W> {
    fn new() -> Page<W> {
        Page {
            is_wanted: false,
            in_flight: None,
            waiting: Vec::new(),
            waiting_next: Vec::new(),
            clearing: [0; PAGE_WORDS],
            settling: VecDeque::new(),
        }
    }

    fn is_at_rest(&self) -> bool {
        !self.is_wanted
            && self.in_flight.is_none()
            && self.clearing == [0; PAGE_WORDS]
            && self.settling.is_empty()
    }
}

/// The slot pages of a cache, and the requests that wait for them. `W` names a request that waits.
#[derive(Clone, Debug)]
pub struct SyncSector<W> {
    is_safe: bool,
    /// Planted bugs, in tests only.
    mutations: Mutations,
    /// The next write of each page: whether it marks a slot as dirty.
    says: Bits,
    /// Whether the last write of the page marked the slot as dirty and is complete, and none in flight leaves it out
    /// (I2).
    written: Bits,
    /// Slots that are dirty and whose data no flush covers yet, with their waiters (safe only).
    unripe: BTreeMap<u32, Vec<W>>,
    /// These slots in the order of the writes that have to be covered.
    unripe_order: VecDeque<(u64, u32)>,
    pages: BTreeMap<u32, Page<W>>,
    /// Pages whose write may be issued.
    ready: VecDeque<u32>,
    /// Pages with slots that settle, in the order of the writes that have to be covered.
    settling_order: VecDeque<(u64, u32)>,
    done: VecDeque<W>,
    unrecorded: VecDeque<u32>,
}

impl<W> SyncSector<W> {
    /// The records of `slots` slots: those for which `is_dirty` holds are recorded, durably.
    #[must_use]
    pub fn new(slots: u32, is_safe: bool, is_dirty: impl Fn(u32) -> bool) -> SyncSector<W> {
        let mut says = Bits::new(slots);
        for slot in (0..slots).filter(|&slot| is_dirty(slot)) {
            says.put(slot, true);
        }
        SyncSector {
            is_safe,
            mutations: Mutations::NONE,
            written: says.clone(),
            says,
            unripe: BTreeMap::new(),
            unripe_order: VecDeque::new(),
            pages: BTreeMap::new(),
            ready: VecDeque::new(),
            settling_order: VecDeque::new(),
            done: VecDeque::new(),
            unrecorded: VecDeque::new(),
        }
    }

    /// These records with planted bugs.
    #[must_use]
    pub fn with_mutations(self, mutations: Mutations) -> SyncSector<W> {
        SyncSector { mutations, ..self }
    }

    /// The page of a slot.
    #[must_use]
    pub fn page_of(slot: u32) -> u32 {
        slot / SLOT_PAGE_RECORDS
    }

    /// Whether the record of `slot` marks it as dirty; pages are written from these records.
    #[must_use]
    pub fn says_dirty(&self, slot: u32) -> bool {
        self.says.get(slot)
    }

    /// Whether `slot` is recorded, so that its data may be destaged. Destaged earlier, a slot that is clean would be
    /// recorded by the write that waits.
    #[must_use]
    pub fn is_written(&self, slot: u32) -> bool {
        self.written.get(slot) && self.says.get(slot)
    }

    /// Notes that a data write to `slot`, which is dirty now, is complete; it is among the `completed` first ones.
    /// Answers the waiter if it has nothing to wait for: the record is written.
    pub fn dirtied(&mut self, slot: u32, completed: u64, waiter: W) -> Option<W> {
        if self.is_written(slot) {
            return Some(waiter);
        }
        // I4: from now on, every write that left the slot out is void.
        if let Some(page) = self.pages.get_mut(&Self::page_of(slot)) {
            put(&mut page.clearing, slot, false);
            for (_, cleared) in &mut page.settling {
                put(cleared, slot, false);
            }
        }
        let is_early = !self.is_safe || self.mutations.has(Mutation::RecordBeforeData);
        if self.says.get(slot) || is_early {
            self.record(slot, [waiter]);
        } else if let Some(waiters) = self.unripe.get_mut(&slot) {
            // Treated as a write to a recorded slot: it overwrites the slot's own piece.
            waiters.push(waiter);
        } else {
            self.unripe.insert(slot, Vec::from([waiter]));
            self.unripe_order.push_back((completed, slot));
        }
        None
    }

    /// Notes that the origin has the content of `slot`, which is recorded, durably. Its page is written when
    /// [`SyncSector::want`] asks for it.
    pub fn cleaned(&mut self, slot: u32) {
        assert!(self.is_written(slot), "a destaged slot is recorded");
        self.says.put(slot, false);
        if self.mutations.has(Mutation::RecordGoneUnwritten) {
            self.unrecorded.push_back(slot);
            return;
        }
        let page = self.pages.entry(Self::page_of(slot)).or_insert_with(Page::new);
        put(&mut page.clearing, slot, true);
    }

    /// Asks for a write of a page as it stands.
    pub fn want(&mut self, number: u32) {
        let page = self.pages.entry(number).or_insert_with(Page::new);
        if !page.is_wanted {
            page.is_wanted = true;
            if page.in_flight.is_none() {
                self.ready.push_back(number);
            }
        }
    }

    /// Whether a page has slots that were cleaned since its last write was issued, or before that was durable.
    #[must_use]
    pub fn is_clearing(&self, number: u32) -> bool {
        self.pages.get(&number).is_some_and(|page| page.clearing != [0; PAGE_WORDS])
    }

    /// Whether [`SyncSector::next_page`] has one.
    #[must_use]
    pub fn has_page(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next page whose write is to be issued, as [`SyncSector::says_dirty`] tells now.
    pub fn next_page(&mut self) -> Option<u32> {
        let number = self.ready.pop_front()?;
        let page = self.pages.get_mut(&number).expect("a wanted page is not at rest");
        assert!(page.is_wanted, "only a wanted page is written");
        assert!(page.in_flight.is_none() && page.waiting.is_empty(), "a page has one write in flight (I3)");
        page.is_wanted = false;
        page.waiting = core::mem::take(&mut page.waiting_next);
        let mut says = [0; PAGE_WORDS];
        for slot in slots_of(number, self.says.len()) {
            put(&mut says, slot, self.says.get(slot));
            // I2: the device may have this record from now on.
            if !self.says.get(slot) {
                self.written.put(slot, false);
            }
        }
        page.in_flight = Some(says);
        Some(number)
    }

    /// Takes the completed write of a page; it is among the `completed` first ones of the device.
    pub fn page_written(&mut self, number: u32, completed: u64) {
        let page = self.pages.get_mut(&number).expect("a page in flight is not at rest");
        let says = page.in_flight.take().expect("a write that ends was in flight");
        self.done.extend(page.waiting.drain(..));
        let mut cleared = page.clearing;
        for slot in slots_of(number, self.says.len()) {
            if bit(&says, slot) {
                self.written.put(slot, true);
                put(&mut cleared, slot, false);
            }
        }
        if page.is_wanted {
            self.ready.push_back(number);
        }
        if cleared == [0; PAGE_WORDS] {
            self.leave_at_rest(number);
        } else if self.is_safe && !self.mutations.has(Mutation::RecordGoneUnflushed) {
            page.settling.push_back((completed, cleared));
            self.settling_order.push_back((completed, number));
        } else {
            self.settle(number, cleared);
        }
    }

    /// Notes that a cache flush covers the first `covered` writes.
    pub fn flushed(&mut self, covered: u64) {
        while self.unripe_order.front().is_some_and(|(needed, _)| *needed <= covered) {
            let Some((_, slot)) = self.unripe_order.pop_front() else { break };
            let waiters = self.unripe.remove(&slot).expect("both hold the same slots");
            self.record(slot, waiters);
        }
        while self.settling_order.front().is_some_and(|(needed, _)| *needed <= covered) {
            let Some((_, number)) = self.settling_order.pop_front() else { break };
            let page = self.pages.get_mut(&number).expect("a page that settles is not at rest");
            let (_, cleared) = page.settling.pop_front().expect("both hold the same pages");
            self.settle(number, cleared);
        }
    }

    /// Number of writes that a flush has to cover for all waiters; `None` if there are none.
    #[must_use]
    pub fn flush_wanted(&self) -> Option<u64> {
        self.unripe_order.back().map(|(needed, _)| *needed)
    }

    /// Number of writes that a flush has to cover so that all slots left out of written pages are
    /// unrecorded; only a request for such a slot is in a hurry for it.
    #[must_use]
    pub fn settling(&self) -> Option<u64> {
        self.settling_order.back().map(|(needed, _)| *needed)
    }

    /// The next request that waits for nothing any more.
    pub fn next_done(&mut self) -> Option<W> {
        self.done.pop_front()
    }

    /// The next slot that is no longer recorded: it may be given another piece, or its origin be changed.
    pub fn next_unrecorded(&mut self) -> Option<u32> {
        self.unrecorded.pop_front()
    }

    /// Whether nothing is wanted or under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.pages.is_empty() && self.unripe.is_empty() && self.done.is_empty() && self.unrecorded.is_empty()
    }

    /// Records `slot` as dirty from now on; `waiters` wait for it.
    fn record(&mut self, slot: u32, waiters: impl IntoIterator<Item = W>) {
        let number = Self::page_of(slot);
        let was_said = self.says.put(slot, true);
        let page = self.pages.entry(number).or_insert_with(Page::new);
        if was_said && page.in_flight.is_some_and(|says| bit(&says, slot)) {
            page.waiting.extend(waiters);
            return;
        }
        page.waiting_next.extend(waiters);
        self.want(number);
    }

    /// Reports the slots `cleared` as unrecorded: no durable page names them any more.
    fn settle(&mut self, number: u32, cleared: PageBits) {
        let page = self.pages.get_mut(&number).expect("a page that settles is not at rest");
        for slot in slots_of(number, self.says.len()) {
            // Two writes may have left out a slot; the first flush settles it.
            if bit(&cleared, slot) && bit(&page.clearing, slot) {
                put(&mut page.clearing, slot, false);
                self.unrecorded.push_back(slot);
            }
        }
        self.leave_at_rest(number);
    }

    fn leave_at_rest(&mut self, number: u32) {
        if self.pages.get(&number).is_some_and(Page::is_at_rest) {
            self.pages.remove(&number);
        }
    }
}

/// The slots of a page, of which the last one may be short.
fn slots_of(page: u32, slots: u32) -> core::ops::Range<u32> {
    let first = page * SLOT_PAGE_RECORDS;
    first..slots.min(first + SLOT_PAGE_RECORDS)
}

fn bit(bits: &PageBits, slot: u32) -> bool {
    let at = slot % SLOT_PAGE_RECORDS;
    bits[index(at / WORD_BITS)] >> (at % WORD_BITS) & 1 == 1
}

fn put(bits: &mut PageBits, slot: u32, is_set: bool) {
    let at = slot % SLOT_PAGE_RECORDS;
    let word = &mut bits[index(at / WORD_BITS)];
    let mask = 1 << (at % WORD_BITS);
    *word = if is_set { *word | mask } else { *word & !mask };
}

#[cfg(test)]
mod tests;
