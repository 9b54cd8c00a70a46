//! Writes in two parts: the dirty block at an edge goes into the log, and then the rest around the cache.
//!
//! Writes that follow each other in pieces of no whole blocks share a block at each border. If the cache had to take all of a write
//! because the one before it left that block dirty, it would read the origin for the block at its other end, and leave that dirty
//! for the next one: a copy that once touched the cache would go through it to its end, and wait for a read of the origin at
//! each step.

use crate::effect::RequestOp;
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::RequestKey;
use crate::memory::{Memory, Slice};
use crate::number::to_u32;
use crate::policies::admission::Reason;
use crate::status::Bypass;
use crate::store::Store;
use crate::units::{SECTORS_PER_BLOCK, SectorRange};

/// A part of a write: its sectors, and what they are to be.
pub(crate) type Part = (SectorRange, Slice);

impl<S: Store> Machine<S> {
    /// Puts off the rest of a write that is to go around the cache, if nothing but the block at one of its edges keeps it from that.
    /// From now on the request is for that block alone.
    #[cold]
    pub(crate) fn split_off_dirty_edge(&mut self, key: RequestKey, why: Bypass) {
        let active = &self.requests[key];
        let RequestOp::Write { range, from, fua: false } = active.op else { return };
        let (volume, blocks) = (active.volume, active.blocks);
        // Without room the part that goes into the log would wait for that. The rest of a split write is not split again.
        if why != Reason::Unaligned.into() || active.has_later || !S::may_split(self) {
            return;
        }
        let Some(edge) = dirty_edge(blocks, |first, count| self.has_dirty(volume, Blocks { first, count }))
        else {
            return;
        };
        let border = edge.border(blocks) * SECTORS_PER_BLOCK;
        let head_bytes = to_u32((border - range.start) * 512);
        let head = SectorRange { start: range.start, sectors: border - range.start };
        let tail = SectorRange { start: border, sectors: range.end() - border };
        let head = (head, from.part(0, head_bytes));
        let tail = (tail, from.part(head_bytes, from.len_bytes - head_bytes));
        let (now, later) = match edge {
            Edge::First => (head, tail),
            Edge::Last => (tail, head),
        };
        self.requests.put_off(key, later);
        self.requests[key].becomes(now);
    }

    /// Goes on with the part of a write that was put off, if the other one succeeded.
    #[cold]
    pub(crate) fn carries_on<M: Memory>(&mut self, key: RequestKey, memory: &mut M) -> bool {
        let later = self.requests.take_later(key);
        if self.requests[key].error.is_some() {
            return false;
        }
        // HAZARD 12: in the cache it may wait for room.
        if self.requests[key].hold == Some(Hold::Exclusive) {
            self.end_exclusive(key);
        }
        let active = &mut self.requests[key];
        active.becomes(later);
        // It is in no batch yet.
        active.sequence = 0;
        self.begin_again(key, memory);
        true
    }
}

/// An end of a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    First,
    Last,
}

impl Edge {
    /// The first block behind the border between it and the rest.
    fn border(self, blocks: Blocks) -> u64 {
        match self {
            Edge::First => blocks.first + 1,
            Edge::Last => blocks.end() - 1,
        }
    }
}

/// The one block at an edge that is dirty while the others are not; `has_dirty` says whether any of so many blocks from one on is.
fn dirty_edge(blocks: Blocks, has_dirty: impl Fn(u64, u64) -> bool) -> Option<Edge> {
    let Blocks { first, count } = blocks;
    if count < 2 {
        return None;
    }
    let (rest, last) = (count - 1, first + count - 1);
    match (has_dirty(first, 1), has_dirty(last, 1)) {
        (true, false) => (!has_dirty(first + 1, rest)).then_some(Edge::First),
        (false, true) => (!has_dirty(first, rest)).then_some(Edge::Last),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(blocks: Blocks, dirty: &[u64]) -> Option<Edge> {
        dirty_edge(blocks, |first, count| dirty.iter().any(|at| (first..first + count).contains(at)))
    }

    #[test]
    fn a_write_is_split_at_the_one_dirty_block_at_its_edge() {
        let blocks = Blocks { first: 10, count: 5 };
        assert_eq!(edge(blocks, &[9, 10, 15]), Some(Edge::First));
        assert_eq!(edge(blocks, &[14]), Some(Edge::Last));
        assert_eq!((Edge::First.border(blocks), Edge::Last.border(blocks)), (11, 14));
    }

    #[test]
    fn a_write_with_dirty_blocks_elsewhere_is_not_split() {
        let blocks = Blocks { first: 10, count: 5 };
        for dirty in [&[][..], &[12], &[10, 14], &[10, 11], &[13, 14]] {
            assert_eq!(edge(blocks, dirty), None, "{dirty:?}");
        }
        assert_eq!(edge(Blocks { first: 10, count: 1 }, &[10]), None);
    }
}
