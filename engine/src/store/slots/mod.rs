//! Slots: the cache device is divided into places of one size, each of which holds one piece of a volume.
//!
//! | room or file | holds |
//! | --- | --- |
//! | `table/` | the content of each slot, the set of a piece, and the way from a piece to its slot |
//! | `changes/` | data that enters and leaves slots: writes, fills, promotions |
//! | `records/` | the durable records of the slots |
//! | `recovery/` | from the pages on the device to a store that can serve |
//! | `homes.rs` | destages that the controller starts |
//! | `policies.rs` | the composition's choices, and the policies it names |
//! | `start.rs` | a store as its composition says |
//! | `store.rs` | the slots as a [`crate::store::Store`] |
//!
//! A slot has one valid and one dirty mark, as in all published systems with slots. Its content changes in
//! place, so nobody may read it home or fill it while it is written: writers wait ([`Stage::Slot`]).
//!
//! # Invariants
//!
//! Code and assertions here cite them by number. K is a piece; v0, v1, v2 are contents in the order in which they were
//! written. The histories are those that lose data where a line does not hold.
//!
//! * **S1**: the directory finds a slot in use by its piece, and no two slots hold the same piece. Else v1 is written to one
//!   slot of K, and a start finds the other one with v0. Kept by `table/directory.rs`; a start refuses what breaks it
//!   (`recovery/plan.rs`).
//! * **S2**: only a slot that holds its piece wholly is dirty: it is Valid or Going. Else half of K, and half of what lay in the
//!   slot before, goes home. Kept by `table/`.
//! * **S3**: a slot is reused only when idle, clean, and named by no durable record that recovery would trust. Else K goes home,
//!   its slot is given to L, a power cut brings the old record back, and what L has is read as K. Kept by
//!   `may_leave` below, `records/persistence/sync_sector` and `records/transactions.rs`.
//! * **S4**: a block in a slot has at most one write under way, and none while the slot is filled, goes home, or leaves (but the
//!   write that fills it). Else two writes land in one order and are answered in the other, or what goes home is half v1
//!   and half v2. Kept by `changes/writes.rs`.
//! * **S5**: a slot that was copied home is clean only if no write to it began or ended since that copy was begun. Else v1 goes
//!   home, v2 is written before the origin is flushed, the slot counts as clean and is given up: v1 is read. Kept by
//!   `table/` and `records/mod.rs`.
//! * **S6**: with transactions, data is written to a slot only when its mapping is durable (but what fills it, which the
//!   transaction of the mapping flushes). Else v1 is answered, the process dies, nothing maps the slot: v0 is read. Without
//!   `safe` some published systems do without; a FLUSH waits for the mapping then. Kept by `records/mappings.rs`.
//! * **S7**: with trees of dirty bits, a clean slot is written only when its leaf is marked in the durable tree and in the one
//!   that is being committed. Else a crash finds the slot clean with v1, it is given up, and v0 is read. Kept by
//!   `records/mappings.rs`, `records/trees.rs` and `records/persistence/bit_tree`.
//! * **S8**: the counts of dirty slots (in all, by set, by volume) are those of the marks. Else a controller stops sending home
//!   what is dirty, and writers wait for ever. Kept by `table/`.
//! * **S9**: data is written to a slot only when a flush covers the page that says that its area is open, and an area is closed
//!   only when a flush covers all that was written in it. Else a power cut leaves checksums of other content than what is there,
//!   and sound data passes for rot. Kept by `records/persistence/areas` and `records/checksums.rs`.
//!
//! Three parts have a few lines of their own, at their tops: what is in doubt after an origin failed a flush (D1, D2 in
//! `changes/doubt.rs`), lost blocks (L1 to L3 in `records/lost.rs`), and the state machines of [`records::persistence`]. The
//! tests and planted bugs that prove all of these stand in `docs/rules.md`.
//!
//! [`Stage::Slot`]: crate::machine::request::Stage

mod changes;
mod homes;
mod policies;
pub mod records;
pub mod recovery;
mod start;
mod store;
pub mod table;

use crate::format::{SetId, SlotLayout, SlotPersistence};
use crate::machine::guard::Blocks;
use crate::machine::piece::WaitingRead;
use crate::machine::request::RequestKey;
use crate::machine::volume::Volume;
use crate::memory::{BufferId, Slice};
use crate::mutation::Mutations;
use crate::number::to_u32;
use crate::policies::controllers::Destage;
use crate::policies::replacement::free_frames::FreeFrames;
use crate::policies::replacement::{Arrival, Policy, Replacement};
use crate::recovery::{CleanSample, CleanSlot, KnownBlock, Sampling};
use crate::salvage::{Dirty, DirtyContent};
use crate::table::bits::Bits;
use crate::table::key_map::KeyMap;
use crate::units::{BLOCK_BYTES, BlockKey, Frame, Nanos, PieceKey, Place, VOLUMES_MAX, VolumeIndex};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use changes::asking::Answers;
use changes::promotions::{Begins, Promotion};
use core::num::NonZeroU32;
use homes::Cleaning;
use policies::Policies;
use records::Records;
use records::checksums::Held;
use records::lost::LostRecords;
use records::persistence::areas::Areas;
use slab::Slab;
use table::directory::Directory;
use table::{SlotState, SlotTable};

/// Data writes and pinned slots at a time at the most.
const BUSY_SLOTS_MAX: u32 = 1 << 18;

/// A store with all blocks in slots; a table in memory knows where.
pub(crate) struct SlotStore {
    pub set_id: SetId,
    pub layout: SlotLayout,
    pub table: SlotTable,
    pub directory: Directory,
    pub free: FreeFrames,
    pub replacement: Replacement,
    pub policies: Policies,
    /// Admission's answers for the pieces of requests under way.
    pub answers: BTreeMap<RequestKey, Answers>,
    pub promotions: Slab<Promotion>,
    /// Promotions of which nothing was asked for yet, and when that is.
    pub promotions_begun: Vec<(usize, Begins)>,
    /// The last of those that wait for a request began before the client's next request.
    pub is_worker_first: bool,
    pub destage: Destage,
    /// Dirty slots that were written home and wait for the origin's flush.
    pub written_home: Bits,
    /// The set that is being cleaned wholly; no request may use it meanwhile.
    pub cleaning: Option<Cleaning>,
    /// The controller is not asked before this, unless something happens.
    pub ask_again: Nanos,
    /// Time of the last client's request that went to an origin.
    pub last_origin: Nanos,
    /// A newcomer found no slot.
    pub wants_room: bool,
    pub records: Records,
    /// Where data is written, as far as the pages of checksums have to tell.
    pub areas: Areas<Held>,
    /// Data writes under way to a slot, where there are any.
    pub writing: KeyMap,
    /// Blocks that are being written in their places: two writes under way to one place have no order.
    pub changing: BTreeSet<BlockKey>,
    /// Reads that wait for such a write to end.
    pub changing_reads: Vec<WaitingRead>,
    /// Requests in `Stage::Slot`, first come first.
    pub waiting: VecDeque<RequestKey>,
    /// An event may let one of the waiting requests go on.
    pub is_released: bool,
    /// The time when waiting requests look again in any case.
    pub look_again: Nanos,
    /// Blocks whose only copy rotted.
    pub lost: BTreeSet<BlockKey>,
    /// The table of lost blocks on the device.
    pub lost_records: LostRecords,
    /// Pieces whose clean copy rotted, or may differ from the origin, and whose slot could not be given up at once:
    /// it is not read any more, and leaves as soon as it may.
    pub rotten: BTreeSet<PieceKey>,
    /// Pieces whose slot leaves, with content that the origin may have lost (`changes/doubt.rs`).
    pub doubted: BTreeSet<PieceKey>,
    /// Completed writes of the device.
    pub completed: u64,
    /// Slots of each volume that a record may name.
    pub recorded: [u32; VOLUMES_MAX],
    /// Fills under way, and their blocks, of each volume.
    pub filling_blocks: [u64; VOLUMES_MAX],
    /// Volumes that are being detached, whose slots leave.
    pub is_volume_leaving: [bool; VOLUMES_MAX],
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
    /// Writes of pages under way.
    pub pages_in_flight: u32,
    /// Pages that a clean stop has written, or is writing.
    pub pages_stopped: u32,
}

/// Purpose of a device operation that the slot store issued.
pub(crate) enum SlotFlight {
    /// A part of a client's write, into consecutive places.
    Data { request: RequestKey, first: u64, place: Place, slice: Slice, makes_dirty: bool, issued: Nanos },
    /// A part of a client's write that has no slot.
    Around { request: RequestKey, blocks: Blocks, beside: Vec<Frame> },
    /// Data read from the origin, or written there, on its way into a slot.
    Fill {
        volume: VolumeIndex,
        blocks: Blocks,
        slot: Frame,
        arrival: Arrival,
        slice: Slice,
        /// Whether a client wrote it.
        is_written: bool,
        /// The read that waits for it.
        waiting: Option<RequestKey>,
    },
    /// A part of a piece, from the origin.
    PromotionRead { promotion: usize },
    /// A part of a piece, into its slot.
    PromotionWrite { promotion: usize },
    /// Lost blocks that are given up, from the origin.
    RestoreRead { request: RequestKey },
    /// The table of lost blocks.
    Lost { buffer: BufferId },
    /// The page of an area.
    Checksums { area: u32, buffer: BufferId },
    /// A page of records.
    Page { page: u32, buffer: BufferId },
    /// A page of records at a clean stop.
    StopPage { buffer: BufferId },
    /// A page of a transaction.
    Mappings { buffer: BufferId },
    /// The record of a transaction.
    CommitRecord { buffer: BufferId },
}

impl SlotStore {
    fn slot_blocks(&self) -> u64 {
        u64::from(self.layout.slot_blocks())
    }

    /// The piece that a block belongs to.
    fn piece_of(&self, key: BlockKey) -> PieceKey {
        PieceKey::new(key.volume(), key.block() / self.slot_blocks())
    }

    /// The blocks of a piece; the last one of a volume may be short.
    fn blocks_of(&self, volume: &Volume, piece: PieceKey) -> Blocks {
        let first = piece.piece() * self.slot_blocks();
        Blocks { first, count: self.slot_blocks().min(volume.blocks().saturating_sub(first)) }
    }

    /// The pieces that `blocks` of a volume touch.
    fn pieces(&self, volume: VolumeIndex, blocks: Blocks) -> impl Iterator<Item = PieceKey> + use<> {
        let slot_blocks = self.slot_blocks();
        let pieces = blocks.first / slot_blocks..blocks.end().div_ceil(slot_blocks);
        pieces.map(move |piece| PieceKey::new(volume, piece))
    }

    /// Place of block `block` of a volume if its piece is in `slot`.
    fn place(&self, slot: Frame, block: u64) -> Place {
        Place(to_u32(u64::from(slot.0) * self.slot_blocks() + block % self.slot_blocks()))
    }

    /// The slot of a place, and the block within it.
    fn slot_of(&self, place: Place) -> (Frame, u32) {
        let slot_blocks = self.layout.slot_blocks();
        (Frame(place.0 / slot_blocks), place.0 % slot_blocks)
    }

    /// The slots of `blocks` places from `place` on.
    fn slots_of(&self, place: Place, blocks: u32) -> impl Iterator<Item = Frame> + use<> {
        let slot_blocks = self.layout.slot_blocks();
        (place.0 / slot_blocks..(place.0 + blocks).div_ceil(slot_blocks)).map(Frame)
    }

    fn is_writing(&self, slot: Frame) -> bool {
        self.writing.get(u64::from(slot.0)).is_some()
    }

    fn write_begins(&mut self, slot: Frame) {
        let writes = self.writing.get(u64::from(slot.0)).unwrap_or(0);
        self.writing.insert(u64::from(slot.0), writes + 1);
        self.table.set_rewritten(slot);
    }

    fn write_ends(&mut self, slot: Frame) {
        match self.writing.get(u64::from(slot.0)) {
            Some(1) => self.writing.remove(u64::from(slot.0)),
            Some(writes) => self.writing.insert(u64::from(slot.0), writes - 1),
            None => unreachable!("a write that ends has begun"),
        };
        self.table.set_rewritten(slot);
        self.is_released = true;
    }

    /// Whether a slot may be given to another piece now: it is idle, the origin has its content, and no record names
    /// it (S3).
    fn may_leave(&self, slot: Frame) -> bool {
        self.table.is_idle_clean(slot)
            && (self.leaves_later() || !self.table.is_recorded(slot))
            && !self.table.is_lost(slot)
            && !self.is_writing(slot)
    }

    /// Whether a slot that is clean before a crash may be clean after it.
    fn keeps_clean(&self) -> bool {
        matches!(self.layout.persistence(), SlotPersistence::BitTree { .. })
    }

    /// Whether a slot that gives its place up becomes free only when that is durable.
    fn leaves_later(&self) -> bool {
        matches!(self.records, Records::Commit(_))
    }

    /// The slot that holds a piece, whatever work is under way on it.
    fn holding(&self, piece: PieceKey) -> Option<Frame> {
        let slot = self.directory.find(piece, &self.table)?;
        matches!(self.table.state(slot), SlotState::Valid | SlotState::Going).then_some(slot)
    }

    /// Takes the piece out of a slot that may leave; the slot is in no list any more.
    fn vacate(&mut self, slot: Frame) -> PieceKey {
        assert!(
            self.may_leave(slot),
            "a slot is reused only when idle, clean, and named by no durable record (S3)"
        );
        let piece = self.table.piece(slot).expect("a slot that leaves holds a piece");
        self.directory.remove(piece, slot);
        self.table.free(slot);
        self.rotten.remove(&piece);
        piece
    }

    /// The clean slots.
    pub fn clean_slots(&self, volumes: &[Option<Volume>; VOLUMES_MAX]) -> Vec<CleanSlot> {
        let clean = self.all_slots().filter(|slot| self.table.is_idle_clean(*slot));
        let whereabouts = clean.filter_map(|slot| {
            let piece = self.table.piece(slot)?;
            let volume = volumes[piece.volume().at()].as_ref()?;
            let Blocks { first: first_block, count: blocks } = self.blocks_of(volume, piece);
            let offset_bytes = self.layout.slot_offset_bytes(slot);
            Some(CleanSlot { volume: piece.volume(), first_block, blocks, offset_bytes })
        });
        whereabouts.collect()
    }

    /// Calls `visit` with each slot, and those of its blocks whose checksums are known and that are not lost.
    pub fn each_known(
        &self,
        volumes: &[Option<Volume>; VOLUMES_MAX],
        visit: &mut dyn FnMut(u32, &[KnownBlock]),
    ) {
        for slot in self.all_slots() {
            let Some(piece) = self.table.piece(slot) else { continue };
            let Some(volume) = volumes[piece.volume().at()].as_ref() else { continue };
            let Blocks { first, count } = self.blocks_of(volume, piece);
            let known = (first..first + count).zip(0..).filter_map(|(block, within)| {
                let checksum = self.table.checksum(slot, within)?;
                let is_lost = self.lost.contains(&volume.key(block));
                let offset_bytes = self.layout.slot_offset_bytes(slot) + u64::from(within) * BLOCK_BYTES;
                (!is_lost).then_some(KnownBlock { offset_bytes, checksum: checksum.get() })
            });
            visit(slot.0, &known.collect::<Vec<_>>());
        }
    }

    /// All that only the cache has.
    pub fn dirty(&self, volumes: &[Option<Volume>; VOLUMES_MAX]) -> Vec<Dirty> {
        let mut dirty = Vec::new();
        for slot in self.all_slots().filter(|slot| self.table.is_dirty(*slot)) {
            let Some(piece) = self.table.piece(slot) else { continue };
            let Some(volume) = volumes[piece.volume().at()].as_ref() else { continue };
            let Blocks { first, count } = self.blocks_of(volume, piece);
            for (block, within) in (first..first + count).zip(0..) {
                let offset_bytes = self.layout.slot_offset_bytes(slot) + u64::from(within) * BLOCK_BYTES;
                let checksum = self.table.checksum(slot, within).map(NonZeroU32::get);
                let content = if self.lost.contains(&volume.key(block)) {
                    DirtyContent::Lost
                } else {
                    DirtyContent::At { offset_bytes, checksum }
                };
                let (volume, first_block) = (piece.volume(), block);
                dirty.push(Dirty { volume, first_block, blocks: 1, content, is_in_doubt: false });
            }
        }
        dirty
    }

    /// Clean blocks in slots, all if there are no more than `count`, else that many chosen by `random`.
    pub fn sample_clean(
        &self,
        volumes: &[Option<Volume>; VOLUMES_MAX],
        count: usize,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<CleanSample> {
        let mut sampling = Sampling::new(count);
        let slots = u64::from(self.layout.shape().frames);
        let slot_blocks = u64::from(self.layout.slot_blocks());
        let sample = |slot: Frame, within: u64| {
            let piece = self.table.piece(slot).filter(|_| !self.table.is_dirty(slot))?;
            let block = piece.piece() * slot_blocks + within;
            // The last block may be short.
            let blocks = volumes[piece.volume().at()].as_ref().map_or(0, Volume::blocks);
            let cache_offset_bytes = self.layout.slot_offset_bytes(slot) + within * BLOCK_BYTES;
            let checksum = self.table.checksum(slot, to_u32(within)).map(NonZeroU32::get);
            let (volume, origin_offset_bytes) = (piece.volume(), block * BLOCK_BYTES);
            let sample = CleanSample { volume, origin_offset_bytes, cache_offset_bytes, checksum };
            (block + 1 < blocks).then_some(sample)
        };
        for _ in 0..sampling.tries(slots * slot_blocks) {
            sampling.pick(sample(Frame(to_u32(random() % slots)), random() % slot_blocks));
        }
        if sampling.is_short() {
            for slot in self.all_slots() {
                (0..slot_blocks).for_each(|within| sampling.offer(sample(slot, within), random));
            }
        }
        sampling.chosen()
    }

    /// Frees a slot that may leave.
    fn evict(&mut self, slot: Frame) -> PieceKey {
        let piece = self.vacate(slot);
        self.replacement.remove(slot);
        self.free.give_back(slot);
        piece
    }
}
