//! Warming: blocks enter the cache because the operator knows what will be read, and not because somebody read them.
//!
//! A request to warm names a range and brings a buffer. What of the range is not cached is read from the origin, and enters like
//! what a read brought: while nothing changes there (hazard 1), clean only if it is durable on the origin (rule 2). No policy is
//! asked, and nothing leaves the cache for it: without room nothing enters. It counts as nobody's read.

use crate::effect::{Errno, RequestOp};
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::machine::piece::{Piece, Source};
use crate::machine::request::{RequestKey, Stage};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, BlockKey, VolumeIndex};
use alloc::vec::Vec;

/// A place in the tables of what is cached, where a look goes on. Between two looks blocks come and go: some may be seen twice,
/// some not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub(crate) u64);

/// Cached blocks in a row, with the worth of the best of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRun {
    /// The volume.
    pub volume: VolumeIndex,
    /// The first block.
    pub first_block: u64,
    /// The number of blocks, at most 16 of a log, or those of a slot.
    pub blocks: u32,
    /// How often they were hit of late, from 0 to 3.
    pub hits: u8,
}

impl<S: Store> Machine<S> {
    /// Begins to bring what is not cached of a request's range into the cache.
    pub(crate) fn start_warm<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let RequestOp::Warm { range, into } = active.op else {
            unreachable!("only requests to warm come here")
        };
        let volume = self.volume(active.volume);
        if !range.is_block_aligned() {
            self.fail(key, Errno::INVAL, memory);
        } else if !volume.caches_reads() || self.latched.is_some() || self.is_stopping {
            self.fail(key, Errno::OPNOTSUPP, memory);
        } else {
            let active = &mut self.requests[key];
            (active.work, active.passes, active.stage) = (Some(into), Some(None), Stage::Fetching);
            S::warm(self, key, memory);
        }
    }

    /// Reads what is not cached of a request's range from the origin.
    pub(crate) fn read_absent<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &mut self.requests[key];
        let (index, blocks, work) =
            (active.volume, active.blocks, active.work.expect("a request to warm has one"));
        // It is not over before all pieces have begun.
        active.parts += 1;
        for absent in self.absent(index, blocks) {
            let skip = to_u32((absent.first - blocks.first) * BLOCK_BYTES);
            let slice = work.part(skip, to_u32(absent.count * BLOCK_BYTES));
            let source = Source::Origin { stamp: None, beside: None };
            let piece = Piece { first: absent.first, blocks: to_u32(absent.count), slice, source };
            self.issue_piece(key, piece, true, memory);
        }
        self.requests[key].parts -= 1;
        if self.requests[key].parts == 0 {
            self.fetched(key, memory);
        }
    }

    /// The runs of `blocks` that the cache has nothing of.
    pub(crate) fn absent(&self, index: VolumeIndex, blocks: Blocks) -> Vec<Blocks> {
        let mut runs: Vec<Blocks> = Vec::new();
        let Some(volume) = &self.volumes[index.at()] else { return runs };
        for block in blocks.first..blocks.end().min(volume.blocks()) {
            let key: BlockKey = volume.key(block);
            if self.store.lookup(key).is_some()
                || self.store.extent(key).is_some()
                || self.store.in_memory(key).is_some()
            {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end() == block => run.count += 1,
                _ => runs.push(Blocks { first: block, count: 1 }),
            }
        }
        runs
    }
}
