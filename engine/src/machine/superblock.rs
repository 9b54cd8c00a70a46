//! The writer of the superblock: two copies, one after the other, a flush after each (rule 6).

use crate::effect::{IoOp, Pieces, Target};
use crate::format::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock};
use crate::machine::flight::Flight;
use crate::memory::{BufferId, Memory, Slice};
use crate::number::to_u32;
use alloc::vec::Vec;

/// A step of writing the superblock; the number is that of the copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Write(usize),
    Flush(usize),
}

/// A write to an origin that waits until an update of the superblock is durable.
pub(crate) struct Deferred<T> {
    pub update: u64,
    pub target: Target,
    pub op: IoOp,
    pub flight: Flight<T>,
}

/// The writer of the superblock's two copies: one after the other, a flush after each, so that one
/// of them is whole at any moment (rule 6).
pub(crate) struct SuperblockWriter<T> {
    /// The update number that is durable in both copies.
    durable: u64,
    is_wanted: bool,
    /// The last update that takes a checksum of a well-known place back.
    taken_back: u64,
    writing: Option<(u64, Step, BufferId)>,
    deferred: Vec<Deferred<T>>,
}

impl<T> Default for SuperblockWriter<T> {
    fn default() -> SuperblockWriter<T> {
        SuperblockWriter { durable: 0, is_wanted: false, taken_back: 0, writing: None, deferred: Vec::new() }
    }
}

impl<T> SuperblockWriter<T> {
    /// Whether nothing is under way, wanted or deferred.
    pub fn is_quiet(&self) -> bool {
        self.writing.is_none() && !self.is_wanted && self.deferred.is_empty()
    }

    /// The update number that is durable in both copies.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Notes a change of the superblock in memory, which is to become durable. Returns its update number.
    pub fn change(&mut self, superblock: &mut Superblock) -> u64 {
        superblock.update += 1;
        self.is_wanted = true;
        superblock.update
    }

    /// Notes a change that takes checksums of well-known places back. Returns its update number.
    pub fn take_back(&mut self, superblock: &mut Superblock) -> u64 {
        self.taken_back = self.change(superblock);
        self.taken_back
    }

    /// The last update that takes a checksum back, if it is not durable yet.
    pub fn taking_back(&self) -> Option<u64> {
        (self.taken_back > self.durable).then_some(self.taken_back)
    }

    /// Whether the superblock changed and is not being written.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.is_wanted && self.writing.is_none()
    }

    /// Begins to write the superblock, from a buffer of its size. Returns the first operation.
    pub fn begin<M: Memory>(&mut self, superblock: &Superblock, buffer: BufferId, memory: &mut M) -> IoOp {
        assert!(self.is_due(), "the superblock is written once at a time");
        self.is_wanted = false;
        superblock.encode(memory.metadata_mut(buffer));
        self.step(superblock.update, Step::Write(0), buffer)
    }

    fn step(&mut self, update: u64, step: Step, buffer: BufferId) -> IoOp {
        self.writing = Some((update, step, buffer));
        match step {
            Step::Write(copy) => {
                let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(SUPERBLOCK_BYTES) };
                IoOp::Write { offset_bytes: SUPERBLOCK_OFFSETS[copy], from: Pieces::One(slice) }
            }
            Step::Flush(_) => IoOp::Flush,
        }
    }

    /// Takes the answer to a step: the next operation, or none when the writing is over. `is_together` is a planted
    /// bug.
    pub fn step_done<M: Memory>(&mut self, is_good: bool, is_together: bool, memory: &mut M) -> Option<IoOp> {
        let (update, step, buffer) = self.writing.expect("a step that was answered was being written");
        let next = match step {
            Step::Write(0) if is_together => Some(Step::Write(1)),
            // RULE 6: a flush between the two copies of the superblock: a power cut may tear one of them,
            // never both.
            Step::Write(copy) => Some(Step::Flush(copy)),
            Step::Flush(0) => Some(Step::Write(1)),
            Step::Flush(_) => None,
        };
        if let Some(next) = next.filter(|_| is_good) {
            return Some(self.step(update, next, buffer));
        }
        memory.release(buffer);
        self.writing = None;
        if is_good {
            self.durable = update;
        }
        None
    }

    /// Keeps a write to an origin until the superblock's `update` is durable.
    pub fn defer(&mut self, update: u64, target: Target, op: IoOp, flight: Flight<T>) {
        self.deferred.push(Deferred { update, target, op, flight });
    }

    /// Takes the deferred writes whose update is durable, or all of them.
    pub fn take_deferred(&mut self, are_all: bool) -> Vec<Deferred<T>> {
        let durable = self.durable;
        self.deferred.extract_if(.., |deferred| are_all || deferred.update <= durable).collect()
    }
}
