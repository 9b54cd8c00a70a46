//! The records of slots that are committed by transactions: the durable mappings, and those on their way.
//!
//! A slot counts as recorded from the moment its content is complete until the removal of its mapping is durable
//! (S3). In between its mapping is *pending* until the transaction that holds it is durable: no data is written
//! to a pending slot (S6), and it does not go home.
//!
//! A page is encoded when its write is issued, with the mappings of its own transaction and no later ones: the mark
//! of a tree that belongs to a mapping is in the same transaction, not in the one before. A removal may be written
//! early: a slot that leaves is clean.

use crate::format::{CommitPage, CommitRecord, SetId, SlotLayout, SlotRecord};
use crate::machine::request::RequestKey;
use crate::mutation::{Mutation, Mutations};
use crate::store::slots::records::persistence::bit_tree::Needs;
use crate::store::slots::records::persistence::commit::{Commit, Opened, PageWrite};
use crate::store::slots::records::trees::Trees;
use crate::store::slots::table::{SlotState, SlotTable};
use crate::units::{Frame, Nanos, PieceKey, VolumeIndex};
use alloc::collections::{BTreeMap, VecDeque};

/// A waiter for a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    /// A request whose piece got a slot.
    Request(RequestKey),
    /// A slot that gives its place up.
    Gone(Frame),
    /// A FLUSH.
    Flush(RequestKey),
}

/// Settings of the transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappingTuning {
    /// Period after which a change that no request waits for is committed.
    pub period_ns: u64,
    /// Whether a write waits until the mapping of its slot is durable. If not, as in dm-cache with smq 2.0, a crash
    /// may lose the mapping until a FLUSH.
    pub waits_for_mappings: bool,
    /// Whether a read whose piece was copied waits for the mapping, too.
    ///
    /// Source: dm-cache until Linux 4.11: what a migration held up goes on when its commit is over.
    pub holds_readers: bool,
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

/// The mappings of a cache.
pub(crate) struct Mappings {
    pub commit: Commit<Waiter>,
    /// Slots whose mapping is not durable, with the transaction that holds it.
    pending: BTreeMap<u32, u64>,
    /// Whether writes wait for the mapping of their slot (S6).
    waits_for_mappings: bool,
    holds_readers: bool,
    mutations: Mutations,
    /// Trees that tell which pieces may be dirty after a crash; without them every mapped piece may.
    pub trees: Option<Trees>,
    /// Pages of the transaction that runs which are not issued yet.
    pub pages: VecDeque<PageWrite>,
    /// The record that is not issued yet: its transaction, and whether it marks a clean stop.
    pub record: Option<(u64, bool)>,
    /// Number of completed writes that a flush has to cover before the transaction goes on.
    pub flush: Option<u64>,
    /// Slots that give their places up.
    pub leaving: u32,
    /// The session that commits.
    session: u64,
    /// The transaction of a clean stop.
    stop: Option<u64>,
}

impl Mappings {
    pub fn new(opened: Opened, tuning: MappingTuning, trees: Option<Trees>, session: u64) -> Mappings {
        let MappingTuning { period_ns, waits_for_mappings, holds_readers, mutations } = tuning;
        Mappings {
            commit: Commit::new(opened, period_ns),
            waits_for_mappings,
            holds_readers,
            mutations,
            pending: BTreeMap::new(),
            trees,
            pages: VecDeque::new(),
            record: None,
            flush: None,
            leaving: 0,
            session,
            stop: None,
        }
    }

    /// Whether a planted bug is switched on.
    pub fn is_mutated(&self, mutation: Mutation) -> bool {
        self.mutations.has(mutation)
    }

    // ---- what changes ------------------------------------------------------------------------

    /// Puts the mapping of a slot that has its content into the next transaction.
    pub fn mapped(&mut self, slot: Frame, layout: &SlotLayout, now: Nanos) {
        let before = self.pending.insert(slot.0, self.commit.next());
        assert!(before.is_none(), "a slot is mapped once");
        self.commit.changed(slot.0 / layout.page_slots(), now);
    }

    /// Leaves the mapping of a slot that gives its place up out of the next transaction.
    pub fn leaves(&mut self, slot: Frame, piece: PieceKey, layout: &SlotLayout, now: Nanos) {
        self.leaving += 1;
        self.forget_expected(slot, piece, layout, now);
        self.commit.changed(slot.0 / layout.page_slots(), now);
        let waiter = self.commit.wait(self.commit.next(), Waiter::Gone(slot));
        assert!(waiter.is_none(), "the next transaction is not durable");
    }

    /// Whether the mapping of a slot is on its way.
    pub fn is_pending(&self, slot: Frame) -> bool {
        self.pending.contains_key(&slot.0)
    }

    /// Whether a read whose piece was copied to a slot waits for the mapping; if so, the transaction is asked for.
    pub fn holds_reader(&mut self, slot: Frame) -> bool {
        let pending = self.pending.get(&slot.0).filter(|_| self.holds_readers);
        if pending == Some(&self.commit.next()) {
            self.commit.ask();
        }
        pending.is_some()
    }

    /// Lets `request` wait for the mapping of a slot; answers it if that is durable, or if `may_be_late` allows a
    /// later one.
    pub fn wait_for_mapping(
        &mut self,
        slot: Frame,
        request: RequestKey,
        may_be_late: bool,
    ) -> Option<RequestKey> {
        if may_be_late && !self.waits_for_mappings || self.mutations.has(Mutation::AckBeforeMapping) {
            return Some(request);
        }
        let Some(&transaction) = self.pending.get(&slot.0) else { return Some(request) };
        let waiter = self.commit.wait(transaction, Waiter::Request(request));
        assert!(waiter.is_none(), "a pending mapping is not durable");
        None
    }

    /// Lets a FLUSH wait for mappings that writes did not wait for. False if there are none.
    pub fn flush_waits(&mut self, request: RequestKey) -> bool {
        let Some(&transaction) = self.pending.values().max().filter(|_| !self.waits_for_mappings) else {
            return false;
        };
        let waiter = self.commit.wait(transaction, Waiter::Flush(request));
        assert!(waiter.is_none(), "a pending mapping is not durable");
        true
    }

    /// Whether data may be written to a slot (S6, S7). If not, the necessary transaction is asked for.
    pub fn may_write(&mut self, slot: Frame, piece: PieceKey, is_dirty: bool) -> bool {
        if let Some(&transaction) = self.pending.get(&slot.0).filter(|_| self.waits_for_mappings) {
            if transaction == self.commit.next() {
                self.commit.ask();
            }
            return false;
        }
        let Some(trees) = self.trees.as_mut().filter(|_| !is_dirty) else { return true };
        match trees.expect(slot, piece) {
            Needs::Nothing => true,
            _ if self.mutations.has(Mutation::MarkAfterData) => true,
            _ if self.mutations.has(Mutation::MarkInFlight) && trees.is_marked_durably(piece) => true,
            Needs::Running => false,
            Needs::Next => {
                self.commit.ask();
                false
            }
        }
    }

    /// Notes that a clean slot became dirty.
    pub fn dirtied(&mut self, slot: Frame, piece: PieceKey) {
        if let Some(trees) = &mut self.trees {
            trees.dirtied(slot, piece);
        }
    }

    /// Notes that the origin has the content of a slot durably.
    pub fn cleaned(&mut self, piece: PieceKey, layout: &SlotLayout, now: Nanos) {
        if let Some(trees) = &mut self.trees
            && trees.cleaned(piece)
        {
            self.tree_changed(piece.volume(), layout, now);
        }
    }

    /// Forgets an expected write to a slot that leaves.
    fn forget_expected(&mut self, slot: Frame, piece: PieceKey, layout: &SlotLayout, now: Nanos) {
        if let Some(trees) = &mut self.trees
            && trees.forget(slot, piece)
        {
            self.tree_changed(piece.volume(), layout, now);
        }
    }

    /// Notes that the tree of a volume changed; no request waits for that.
    fn tree_changed(&mut self, volume: VolumeIndex, layout: &SlotLayout, now: Nanos) {
        for page in 0..layout.volume_tree_pages() {
            self.commit.changed(layout.slot_pages() + layout.tree_page(volume, page), now);
        }
    }

    /// Joins and splits leaves, if a period has passed. `requests` are those of each volume so far.
    pub fn adjust(&mut self, requests: impl Fn(VolumeIndex) -> Option<u64>, layout: &SlotLayout, now: Nanos) {
        let Some(trees) = &mut self.trees else { return };
        for volume in trees.adjust(requests, now) {
            self.tree_changed(volume, layout, now);
        }
    }

    // ---- transactions ------------------------------------------------------------------------

    /// Begins a transaction.
    pub fn begin(&mut self, layout: &SlotLayout, now: Nanos) {
        if let Some(trees) = &mut self.trees {
            for (volume, page) in trees.begin_commit() {
                self.commit.changed(layout.slot_pages() + layout.tree_page(volume, page), now);
            }
        }
        self.pages = self.commit.begin().pages.into();
    }

    /// Offset of a page on the device, in bytes.
    pub fn offset_bytes(layout: &SlotLayout, write: PageWrite) -> u64 {
        match write.page.checked_sub(layout.slot_pages()) {
            None => layout.slot_page_offset_bytes(write.page, write.place),
            Some(page) => layout.tree_page_offset_bytes(page, write.place),
        }
    }

    /// Writes a page of the transaction that runs to `bytes`. `hint` is the replacement policy's saved state.
    pub fn encode(
        &self,
        (set_id, layout): (&SetId, &SlotLayout),
        table: &SlotTable,
        hint: impl Fn(Frame) -> u16,
        page: u32,
        bytes: &mut [u8],
    ) {
        let transaction = self.commit.running().expect("a page belongs to a transaction");
        if let Some(page) = page.checked_sub(layout.slot_pages()) {
            let trees = self.trees.as_ref().expect("only trees have such pages");
            trees.encode((set_id, layout), page, transaction, bytes);
            return;
        }
        let record = |slot: u32| {
            let slot = Frame(slot);
            let is_there = slot.0 < table.shape().frames
                && matches!(table.state(slot), SlotState::Valid | SlotState::Going)
                && self.pending.get(&slot.0).is_none_or(|&pending| {
                    pending <= transaction || self.mutations.has(Mutation::MappingBeforeMark)
                });
            is_there.then(|| SlotRecord {
                piece: table.piece(slot).expect("a valid slot holds a piece"),
                is_dirty: table.is_dirty(slot),
                is_lost: table.is_lost(slot),
                hint: hint(slot),
            })
        };
        CommitPage::encode(set_id, page, transaction, record, bytes);
    }

    /// Writes the record of a transaction to `bytes`.
    pub fn encode_record(
        &self,
        (set_id, layout): (&SetId, &SlotLayout),
        (transaction, clean_stop): (u64, bool),
        bytes: &mut [u8],
    ) {
        let trees = self.trees.as_ref();
        CommitRecord {
            set_id: *set_id,
            session: self.session,
            transaction,
            clean_stop,
            tree_levels: layout.tree_levels(),
            leaf_pieces: trees.map_or(0, Trees::leaf_pieces),
            leaf_doublings: trees.map_or_else(Default::default, Trees::doublings),
            versions_sum: Some(self.commit.running_sum()),
        }
        .encode(bytes);
    }

    /// Notes that a flush covers the first `covered` writes; true if a transaction became durable by it.
    pub fn flushed(&mut self, covered: u64) -> bool {
        if self.flush.is_none_or(|needed| needed > covered) {
            return false;
        }
        self.flush = None;
        let before = self.commit.durable();
        self.commit.flushed();
        let durable = self.commit.durable();
        if durable == before {
            return false;
        }
        self.pending.retain(|_, transaction| *transaction > durable);
        if let Some(trees) = &mut self.trees {
            trees.committed();
        }
        true
    }

    /// Whether the transaction of a clean stop is durable; the first call asks for it.
    pub fn stop(&mut self) -> bool {
        let durable = self.commit.durable();
        match self.stop {
            Some(stop) => durable >= stop,
            None => {
                self.stop = Some(self.commit.next());
                self.commit.stop();
                false
            }
        }
    }
}
