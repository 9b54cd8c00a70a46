//! Rows: a write that ends inside a block is one of many that follow each other, and takes the blocks behind along.
//!
//! A journal writes in sectors of 512 bytes, each write behind the one before, and flushes. The first one in each block reads
//! the rest of that from the origin: eight sectors later the next one reads, too. So one that follows what is dirty reads a
//! row of blocks behind its own with it, and appends them all; those that come next find the old content of their blocks in the
//! cache. The row is dirty as if the client had written it again: soon it will have.
//!
//! HAZARD 8: the write holds its row as it holds its own blocks, from the read until all is appended.

use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::piece::Piece;
use crate::machine::request::{RequestKey, Route};
use crate::machine::volume::Standing;
use crate::mutation::Mutation;
use crate::number::{to_u32, wide};
use crate::store::Store;
use crate::units::{BlockKey, SECTORS_PER_BLOCK, VolumeIndex};

/// Blocks that a write reads and takes along, its own last one among them: 128 KiB.
const ROW_BLOCKS: u64 = 32;
/// Writes that a row is to be read for, or it would cost more than it saves: longer ones write it again soon.
const ROW_WRITES_MIN: u64 = 8;

impl<S: Store> Machine<S> {
    /// The blocks that a write of part of a block holds when it is about to enter the cache: its own, and the row behind them
    /// if it takes one along.
    #[inline(never)]
    pub(crate) fn with_row(&self, key: RequestKey) -> Blocks {
        let active = &self.requests[key];
        let (volume, own) = (active.volume, active.blocks);
        let Some(range) = active.written().filter(|_| S::takes_rows(self)) else { return own };
        let last = own.end() - 1;
        let is_short = range.sectors * ROW_WRITES_MIN <= ROW_BLOCKS * SECTORS_PER_BLOCK;
        let is_inside = !range.end().is_multiple_of(SECTORS_PER_BLOCK);
        if !is_short || !is_inside || !self.is_at_origin_alone(volume, last) {
            return own;
        }
        // What the write before it left.
        let before = match range.start.is_multiple_of(SECTORS_PER_BLOCK) {
            true => own.first.checked_sub(1),
            false => Some(own.first),
        };
        let follows = before.is_some_and(|first| self.has_dirty(volume, Blocks { first, count: 1 }));
        if !follows || self.is_mutated(Mutation::RowNotHeld) {
            return own;
        }
        Blocks { count: own.count + self.row_behind(volume, last), ..own }
    }

    /// Takes the row along that a write holds, as far as nothing came there meanwhile: those are its blocks, too, from now on.
    pub(crate) fn take_row(&mut self, key: RequestKey) {
        let active = &self.requests[key];
        let (volume, held) = (active.volume, active.held);
        let Some(range) = active.written() else { return };
        let own = Blocks::touched_by(range);
        // It may have had one when it began to wait for a buffer.
        self.requests[key].blocks = own;
        let active = &self.requests[key];
        let is_held = held.end() > own.end() || self.is_mutated(Mutation::RowNotHeld);
        if !is_held
            || range.end().is_multiple_of(SECTORS_PER_BLOCK)
            || active.has_later
            || active.route != Route::Log
            || !S::takes_rows(self)
            || !self.budget_allows_fills()
            || self.volume(volume).standing != Standing::Cached
            || !self.is_at_origin_alone(volume, own.end() - 1)
        {
            return;
        }
        let held_blocks = if held.end() > own.end() { held.end() - own.end() } else { ROW_BLOCKS - 1 };
        // The guard keeps others off since it looked, but what was there before may have changed.
        let row = self.row_behind(volume, own.end() - 1).min(held_blocks);
        let target = self.volume(volume);
        let dirty_blocks = target.dirty_blocks + target.reserved_blocks + row;
        // RULE 9: it takes no more than its volume's share, which has room for its own blocks.
        let may_have = |most: u64| dirty_blocks <= most;
        if self.volumes.dirty_blocks_max(target, &self.config).is_none_or(may_have) {
            self.requests[key].blocks.count = own.count + row;
        }
    }

    /// How many blocks behind one are nowhere but at the origin, up to a row.
    fn row_behind(&self, volume: VolumeIndex, last: u64) -> u64 {
        // A block that the volume ends in has no content of its own behind the end.
        let whole = self.volume(volume).size_sectors / SECTORS_PER_BLOCK;
        let end = (last + ROW_BLOCKS).min(whole);
        wide((last + 1..end).take_while(|block| self.is_at_origin_alone(volume, *block)).count())
    }

    /// Whether the cache has nothing of a block, and nothing of it is on its way there.
    pub(crate) fn is_at_origin_alone(&self, volume: VolumeIndex, block: u64) -> bool {
        let key = BlockKey::new(volume, block);
        self.store.lookup(key).is_none()
            && self.store.extent(key).is_none()
            && self.store.in_memory(key).is_none()
    }

    /// Lets a write go on without its row, of which a piece could not be read. Returns how many blocks at the beginning of the
    /// piece are the write's own, and are to be read again; `None` if all of them are.
    pub(crate) fn leave_row(&mut self, key: RequestKey, piece: &Piece) -> Option<u32> {
        let active = &mut self.requests[key];
        let own = active.written().map(Blocks::touched_by)?;
        // Another piece may have failed before, and then it is without its row already.
        if piece.first + u64::from(piece.blocks) <= own.end() {
            return None;
        }
        active.blocks = own;
        Some(to_u32(own.end().saturating_sub(piece.first)))
    }
}
