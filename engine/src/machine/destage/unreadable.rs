//! Dirty blocks that the cache device fails to read.
//!
//! A device's error may pass: such a block stays dirty and is tried again. It is tried alone, so that it keeps none of its
//! neighbours from going home. But it holds up its segment, and with it the ring: one that fails alone again and again,
//! for as long as an origin may fail, is lost (rule 10).

use crate::units::{Nanos, Place};
use alloc::collections::BTreeMap;

/// Failed reads of a block alone before it counts as lost, at the least.
const TRIES_MIN: u32 = 3;

struct Trouble {
    /// The copy that failed, by place and life.
    copy: (Place, u64),
    since: Nanos,
    /// Failed reads of that copy alone.
    tries: u32,
}

/// The blocks of a volume whose dirty copy could not be read last time.
#[derive(Default)]
pub(crate) struct Unreadable {
    blocks: BTreeMap<u64, Trouble>,
}

impl Unreadable {
    /// Whether the block is one of them.
    pub fn has(&self, block: u64) -> bool {
        !self.blocks.is_empty() && self.blocks.contains_key(&block)
    }

    /// Forgets a block that was read.
    pub fn forget(&mut self, block: u64) {
        self.blocks.remove(&block);
    }

    /// Notes a failed read; true if the block is lost.
    pub fn note(
        &mut self,
        block: u64,
        copy: (Place, u64),
        is_alone: bool,
        now: Nanos,
        lost_after_ns: u64,
    ) -> bool {
        let trouble = self.blocks.entry(block).or_insert(Trouble { copy, since: now, tries: 0 });
        if trouble.copy != copy {
            *trouble = Trouble { copy, since: now, tries: 0 };
        }
        trouble.tries += u32::from(is_alone);
        let is_hopeless = trouble.tries >= TRIES_MIN && now.since(trouble.since) >= lost_after_ns;
        if is_hopeless {
            self.blocks.remove(&block);
        }
        is_hopeless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_lost_when_it_failed_alone_for_long_enough() {
        let mut unreadable = Unreadable::default();
        let (first, moved) = ((Place(5), 1), (Place(5), 2));
        let mut note = |copy, is_alone, now| unreadable.note(7, copy, is_alone, Nanos(now), 100);
        assert!(!note(first, false, 0));
        assert!(!note(first, false, 200), "it may have been one of the others");
        assert!(!note(first, true, 201));
        assert!(!note(first, true, 202));
        assert!(!note(moved, true, 203), "another copy");
        assert!(!note(moved, true, 204));
        assert!(!note(moved, true, 302));
        assert!(note(moved, true, 303));
        assert!(!unreadable.has(7));
    }
}
