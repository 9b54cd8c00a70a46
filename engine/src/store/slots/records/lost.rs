//! Blocks whose only copy rotted, until they are written again or given up.
//!
//! A table on the device lists them ([`LostTable`]), so that a crash does not forget that they are lost: a slot's
//! record cannot tell rotten bytes from good ones. The table is written anew whenever it changes, one write at a
//! time:
//!
//! * a block that was found rotten is in the next table; its readers wait for nothing;
//! * a block that was written again leaves the table when a flush covers its new content, and not before (L1): else a power
//!   cut could leave the rotten bytes and nothing that says so. The write is answered after that (L2);
//! * the slot of such a block is nobody else's, and does not go home, before the table without it is durable (L3): else the
//!   next piece in it would be lost after a crash;
//! * the table goes to both of its places, one after the other with a flush in between (L4): else the one before it would count
//!   when it rots;
//! * a block that the operator gives up is written with what the origin has, and by nobody else meanwhile (L5).

use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::format::{LOST_RANGES_MAX, LOST_TABLE_OFFSETS, LostRange, LostTable};
use crate::image::Image;
use crate::machine::guard::Blocks;
use crate::machine::request::RequestKey;
use crate::machine::requests::Requests;
use crate::machine::volume::Volume;
use crate::machine::volumes::Volumes;
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u16, to_u32, wide};
use crate::store::slots::changes::promotions::COPY_BLOCKS_MAX;
use crate::store::slots::{SlotFlight, SlotStore};
use crate::units::{BlockKey, PieceKey};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// State of the table of lost blocks on the device, and of its next write.
#[derive(Debug, Default)]
pub(crate) struct LostRecords {
    /// The number of the table's last write, complete or not.
    pub update: u64,
    /// A change is not in the last write.
    pub is_wanted: bool,
    /// The last write went to one place alone (L4).
    is_alone: bool,
    is_in_flight: bool,
    /// Number of completed writes that a flush has to cover before the next one (L1).
    needs: u64,
    /// Requests that wait for the next write, and for the one in flight.
    waiting_next: Vec<RequestKey>,
    waiting: Vec<RequestKey>,
    /// Lost blocks that the operator gave up: what is lost later is not among them.
    given_up: BTreeSet<BlockKey>,
    /// Pieces without lost blocks according to the next write, and to the one in flight.
    found_next: Vec<PieceKey>,
    found: Vec<PieceKey>,
    /// Pieces without lost blocks according to complete writes, with the writes that a flush has to cover.
    settling: VecDeque<(u64, Vec<PieceKey>)>,
}

impl LostRecords {
    /// The records of a cache whose last table is this one.
    pub fn new(last: &FoundTable) -> LostRecords {
        LostRecords { update: last.table.update, is_alone: last.is_alone, ..LostRecords::default() }
    }

    /// Whether the device has the whole table, durably where that matters.
    pub fn is_quiet(&self) -> bool {
        !self.is_wanted && !self.is_alone && !self.is_in_flight && self.settling.is_empty()
    }
}

impl SlotStore {
    /// The lost blocks of a piece.
    fn lost_of(&self, piece: PieceKey) -> impl Iterator<Item = BlockKey> {
        let first = BlockKey::new(piece.volume(), piece.piece() * self.slot_blocks());
        self.lost.range(first..).copied().take_while(move |key| self.piece_of(*key) == piece)
    }

    /// Gives up the blocks of a volume that are lost by now.
    pub(in crate::store::slots) fn give_up(&mut self, volume: &Volume) {
        let all = Blocks { first: 0, count: volume.blocks() };
        self.lost_records.given_up.extend(self.lost.range(volume.keys(all)));
    }

    /// The first of these blocks of a volume that are lost and given up, as far as they follow one another in one piece.
    pub(in crate::store::slots) fn first_given_up(&self, volume: &Volume, blocks: Blocks) -> Option<Blocks> {
        let mut given_up = self.lost_records.given_up.range(volume.keys(blocks)).copied();
        let first = given_up.next()?;
        let piece = self.piece_of(first);
        let follow = given_up.zip(first.block() + 1..first.block() + COPY_BLOCKS_MAX);
        let follow = follow.take_while(|(key, next)| key.block() == *next && self.piece_of(*key) == piece);
        Some(Blocks { first: first.block(), count: 1 + wide(follow.count()) })
    }

    /// The table that the device should have.
    fn lost_ranges(&self) -> Vec<LostRange> {
        let mut blocks: Vec<(u32, u16)> = Vec::new();
        for &key in &self.lost {
            if let Some(slot) = self.holding(self.piece_of(key)) {
                blocks.push((slot.0, to_u16(key.block() % self.slot_blocks())));
            }
        }
        blocks.sort_unstable();
        let mut ranges: Vec<LostRange> = Vec::new();
        for (slot, block) in blocks {
            match ranges.last_mut() {
                Some(last) if last.slot == slot && last.first_block + last.blocks == block => {
                    last.blocks += 1
                }
                _ => ranges.push(LostRange { slot, first_block: block, blocks: 1 }),
            }
        }
        ranges
    }

    /// Whether a slot that a request touches has lost blocks.
    pub(in crate::store::slots) fn has_lost(&self, key: RequestKey, requests: &Requests) -> bool {
        let active = &requests[key];
        let mut pieces = self.pieces(active.volume, active.blocks);
        !self.lost.is_empty() && pieces.any(|piece| self.lost_of(piece).next().is_some())
    }

    /// Marks a block as lost, whose dirty copy rotted. True if it was not lost before.
    pub(in crate::store::slots) fn lose(&mut self, key: BlockKey, volumes: &mut Volumes) -> bool {
        let piece = self.piece_of(key);
        let held = self.holding(piece);
        let Some(slot) = held.filter(|slot| self.table.is_dirty(*slot)) else { return false };
        let blocks = self.blocks_of(volumes.of(key.volume()), piece).count;
        let is_first = self.lost_of(piece).next().is_none();
        self.table.set_lost(slot, true);
        let is_new = self.lost.insert(key);
        if is_new {
            self.lost_records.is_wanted |= !self.mutations.has(Mutation::LostForgotten);
            let volume = volumes.of_mut(key.volume());
            volume.lost_blocks += 1;
            if is_first {
                volume.dirty_blocks -= blocks;
            }
        }
        is_new
    }

    /// Ends the loss of the blocks that a request wrote wholly. True if there were any: the request
    /// waits until that is recorded.
    pub(in crate::store::slots) fn find_again(
        &mut self,
        key: RequestKey,
        blocks: Blocks,
        requests: &Requests,
        volumes: &mut Volumes,
    ) -> bool {
        if self.lost.is_empty() {
            return false;
        }
        let volume = requests[key].volume;
        let lost = volumes.of(volume).keys(blocks);
        let found: Vec<BlockKey> = self.lost.range(lost).copied().collect();
        if found.is_empty() {
            return false;
        }
        self.found(&found, volumes);
        let records = &mut self.lost_records;
        // L1, L2.
        records.needs = self.completed;
        records.waiting_next.push(key);
        true
    }

    /// Ends the loss of blocks.
    fn found(&mut self, blocks: &[BlockKey], volumes: &mut Volumes) {
        for &key in blocks {
            self.lost.remove(&key);
            self.lost_records.given_up.remove(&key);
            volumes.of_mut(key.volume()).lost_blocks -= 1;
            let piece = self.piece_of(key);
            if self.lost_of(piece).next().is_none() {
                let count = self.blocks_of(volumes.of(piece.volume()), piece).count;
                volumes.of_mut(piece.volume()).dirty_blocks += count;
                self.lost_records.found_next.push(piece);
            }
        }
        self.lost_records.is_wanted |= !blocks.is_empty();
    }

    /// L3: the device no longer says that a part of a slot is lost. The slot is destaged as others are.
    fn unmark_lost(&mut self, piece: PieceKey, volumes: &mut Volumes) {
        let Some(slot) = self.holding(piece).filter(|slot| self.table.is_lost(*slot)) else {
            return;
        };
        if self.lost_of(piece).next().is_none() {
            let blocks = self.blocks_of(volumes.of(piece.volume()), piece);
            self.table.set_lost(slot, false);
            let volume = volumes.of_mut(piece.volume());
            volume.destage.map.mark(blocks.first, blocks.count);
            volume.destage.wake();
            self.is_released = true;
        }
    }

    /// Notes that a flush of the cache covers the first `covered` writes.
    pub(in crate::store::slots) fn lost_table_flushed(&mut self, covered: u64, volumes: &mut Volumes) {
        while self.lost_records.settling.front().is_some_and(|(needed, _)| *needed <= covered) {
            let Some((_, found)) = self.lost_records.settling.pop_front() else { break };
            found.into_iter().for_each(|piece| self.unmark_lost(piece, volumes));
        }
    }
}

impl Machine<SlotStore> {
    /// Writes the table, if it has changed.
    pub(in crate::store::slots) fn pump_lost<M: Memory>(&mut self, memory: &mut M) {
        let records = &self.store.lost_records;
        if !(records.is_wanted || records.is_alone) || records.is_in_flight {
            return;
        }
        let is_covered = records.needs <= self.barrier.flushed || !self.store.policies.is_safe;
        if !is_covered && !self.is_mutated(Mutation::FoundBeforeFlush) {
            self.barrier.want(records.needs);
            return;
        }
        let ranges = self.store.lost_ranges();
        if ranges.len() > LOST_RANGES_MAX {
            self.latch(Errno::IO, memory);
            return;
        }
        let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(LostTable::BYTES), memory) else { return };
        let mutations = self.config.mutations;
        let records = &mut self.store.lost_records;
        records.update += 1;
        records.is_alone = records.is_wanted && !mutations.has(Mutation::LostInOnePlace);
        records.is_wanted = false;
        records.is_in_flight = true;
        records.waiting = core::mem::take(&mut records.waiting_next);
        records.found = core::mem::take(&mut records.found_next);
        let table = LostTable { set_id: self.store.set_id, update: records.update, ranges };
        table.encode(memory.metadata_mut(buffer));
        let offset_bytes = LOST_TABLE_OFFSETS[LostTable::place(table.update)];
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(LostTable::BYTES) };
        let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
        self.issue(Target::Cache, op, Flight::Store(SlotFlight::Lost { buffer }));
    }

    pub(in crate::store::slots) fn lost_table_written<M: Memory>(
        &mut self,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        memory.release(buffer);
        let completed = self.store.completed;
        let records = &mut self.store.lost_records;
        records.is_in_flight = false;
        let waiting = core::mem::take(&mut records.waiting);
        let found = core::mem::take(&mut records.found);
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
        if self.latched.is_some() {
            return;
        }
        let records = &mut self.store.lost_records;
        if records.is_alone {
            // L4: a power cut may tear one of two places, not both.
            records.needs = records.needs.max(completed);
        }
        if !found.is_empty() {
            self.store.lost_records.settling.push_back((completed, found));
            if self.store.policies.is_safe {
                self.barrier.want(completed);
            } else {
                self.store.lost_table_flushed(completed, &mut self.volumes);
            }
        }
        for key in waiting {
            self.record_done(key, memory);
        }
    }
}

/// A table on the device.
pub(crate) struct FoundTable {
    pub table: LostTable,
    /// The other place has another one, or none.
    pub is_alone: bool,
}

/// The last table on the device; `None` if there never was one, or none can be read.
pub(in crate::store::slots) fn read_table<I: Image>(
    image: &mut I,
    set_id: &[u8; 16],
) -> Result<Option<FoundTable>, (u64, Errno)> {
    let mut last: Option<FoundTable> = None;
    for offset_bytes in LOST_TABLE_OFFSETS {
        let bytes = image.read(offset_bytes, LostTable::BYTES).map_err(|errno| (offset_bytes, errno))?;
        let table = LostTable::decode(&bytes).ok().filter(|table| table.set_id == *set_id);
        let Some(table) = table else { continue };
        let is_alone = last.as_ref().is_none_or(|last| last.table.ranges != table.ranges);
        last = match last {
            Some(last) if last.table.update > table.update => Some(FoundTable { is_alone, ..last }),
            _ => Some(FoundTable { table, is_alone }),
        };
    }
    Ok(last)
}

/// Writes the table at a start, without blocks that their slots no longer hold: else the next piece in them would be
/// lost.
pub(in crate::store::slots) fn write_table<I: Image>(
    image: &mut I,
    store: &mut SlotStore,
) -> Result<(), Errno> {
    if !store.lost_records.is_wanted {
        return Ok(());
    }
    store.lost_records.update += 1;
    store.lost_records.is_wanted = false;
    store.lost_records.is_alone = true;
    let ranges = store.lost_ranges();
    let table = LostTable { set_id: store.set_id, update: store.lost_records.update, ranges };
    let mut bytes = vec![0; LostTable::BYTES];
    table.encode(&mut bytes);
    image.write(LOST_TABLE_OFFSETS[LostTable::place(table.update)], &bytes)
}
