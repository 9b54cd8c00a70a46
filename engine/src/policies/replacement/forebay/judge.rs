//! The decisions about the blocks of one cache, by what it remembers of those that left and by its bar.

use super::evidence::Evidence;
use super::ghosts::Ghosts;
use super::{Class, Mark, Order, Worth};
use crate::units::PieceKey;

/// The share of the bar that one sample replaces: one in so many.
const BAR_SAMPLES: u64 = 8;

/// The worth below which blocks leave, times [`BAR_SAMPLES`]. After a change of order it is of another scale for some 400 misses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bar(u64);

impl Bar {
    pub(super) fn lets_in(self, worth: Worth) -> bool {
        u64::from(worth.0) * BAR_SAMPLES >= self.0
    }

    pub(super) fn keeps(self, worth: Worth) -> bool {
        u64::from(worth.0) * BAR_SAMPLES > self.0
    }

    fn move_to(&mut self, least: Worth) {
        self.0 = self.0 - self.0 / BAR_SAMPLES + u64::from(least.0);
    }
}

/// Memory of a cache beside the marks of its blocks.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    ghosts: Ghosts,
    pub(super) bar: Bar,
}

impl Memory {
    pub(super) fn new(size_blocks: u32) -> Memory {
        Memory { ghosts: Ghosts::new(size_blocks), bar: Bar::default() }
    }

    /// The mark of `block`, which is not cached.
    pub(super) fn newcomer(&self, block: PieceKey, evidence: &Evidence) -> Mark {
        match self.ghosts.find(block, evidence.now()) {
            Some(ghost) => evidence.again(ghost.age, ghost.count),
            None => Mark::new(evidence.now(), Class::NEW, 1),
        }
    }
}

/// A cache's memory, and what it is to be used with.
pub(super) struct Judge<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) memory: &'a mut Memory,
    pub(super) order: Order,
}

impl Judge<'_> {
    pub(super) fn hit(&self, mark: Mark) -> Mark {
        self.evidence.hit(mark)
    }

    /// The mark of `block`, which is not cached. Ghosts forget it.
    pub(super) fn arrives(&mut self, block: PieceKey) -> Mark {
        let mark = self.memory.newcomer(block, self.evidence);
        self.memory.ghosts.forget(block);
        mark
    }

    pub(super) fn worth(&self, mark: Mark) -> Worth {
        self.evidence.worth(mark, self.order)
    }

    pub(super) fn enters(&self, newcomer: Mark) -> bool {
        self.memory.bar.lets_in(self.worth(newcomer))
    }

    pub(super) fn stays(&self, mark: Mark) -> bool {
        self.memory.bar.keeps(self.worth(mark))
    }

    pub(super) fn left(&mut self, block: PieceKey, mark: Mark) {
        let now = self.evidence.now();
        self.memory.ghosts.push(block, mark.age(now), mark.count(), now);
    }

    pub(super) fn gauge(&mut self, drawn: impl Iterator<Item = Mark>) {
        if let Some(least) = drawn.map(|mark| self.worth(mark)).min() {
            self.memory.bar.move_to(least);
        }
    }
}
