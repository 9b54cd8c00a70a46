//! dm-cache's first promotion: pieces enter that were requested often enough, each counted by itself.
//!
//! Source: the mq policy of dm-cache, in our own words: 1.0 of Linux 3.9, and that of a 3.18
//! tree, both read; 3.16's is taken to be the latter's (unverified: its own source was not read).
//!
//! Pieces that are not cached are remembered with a hit count, at most one hit for each tick. A
//! piece enters when its count reaches the threshold, which replacement forms from what it has
//! cached, plus an adjustment by what is wanted. In a sequential phase nothing enters and nothing is
//! remembered. When the memory is full, the least recently used of the pieces with the fewest hits
//! makes room.
//!
//! | | single (1.0, Linux 3.9) | split (3.14 to 3.18) |
//! | --- | --- | --- |
//! | the access itself counts | before the test: reads enter at the 4th | after it: at the 5th |
//! | memory | twice the frames, less what is cached | as many entries as frames |
//! | a piece that had to leave | is remembered with one hit | is forgotten |
//! | a discarded piece is cheap | while there are free frames | also while there are clean ones |
//!
//! Not imitated: there, a request that would enter is shown to the policy twice (the second time
//! by a worker), which the run detector takes for a random one; and 1.0 remembers a piece that was
//! invalidated, with its hits. The last mq (`coldest`) has a threshold of its own, which replacement
//! forms; here it counts as the split one, while there a count rises at the end of the tick. Its
//! memory sinks as its queues do.

use super::run_detector::{RunDetector, RunDetectorChoice};
use super::{Asked, Decision, Reason, Verdict};
use crate::number::index;
use crate::policies::replacement::mq::MqEra;
use crate::policies::replacement::{Access, Standing};
use crate::table::hit_levels::{HitLevels, Sinking};
use crate::table::key_index::KeyIndex;
use crate::units::PieceKey;
use alloc::vec;
use alloc::vec::Vec;

/// The only queue.
const REMEMBERED: u32 = 0;

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MqChoice {
    /// The version of mq; default the split one. Replacement has the same.
    pub era: MqEra,
    /// Hits above the threshold that a read needs; default 4, 0 to 1 000 000. Fixed in Linux 3.9.
    pub read_promote_adjustment: u32,
    /// The same for a write; default 8, 0 to 1 000 000.
    pub write_promote_adjustment: u32,
    /// Hits, whatever the threshold, that a write to a discarded piece needs; default 1, 0 to 1 000 000.
    pub discard_promote_adjustment: u32,
    /// When a phase is sequential.
    pub detector: RunDetectorChoice,
}

impl MqChoice {
    /// The published defaults.
    pub const PUBLISHED: MqChoice = MqChoice {
        era: MqEra::Split,
        read_promote_adjustment: 4,
        write_promote_adjustment: 8,
        discard_promote_adjustment: 1,
        detector: RunDetectorChoice::PUBLISHED,
    };
}

/// The policy.
#[derive(Clone, Debug)]
pub struct MqPromotion {
    choice: MqChoice,
    detector: RunDetector,
    /// Remembered entries, by hits and use.
    queue: HitLevels,
    index: KeyIndex,
    /// By entry: its piece, its hits, the tick in which it was last counted.
    pieces: Vec<u64>,
    hits: Vec<u32>,
    counted_at: Vec<u32>,
    /// Entries that remember nothing.
    free: Vec<u32>,
    /// Wraps: ticks are compared for equality only.
    tick: u32,
}

impl MqPromotion {
    /// A policy for `frames` frames that remembers nothing.
    #[must_use]
    pub fn new(choice: MqChoice, frames: u32) -> MqPromotion {
        assert!(frames > 0 && frames <= u32::MAX / 4, "a cache has frames, and entries have 32-bit numbers");
        let entries = match choice.era {
            MqEra::Single => frames * 2,
            MqEra::Split | MqEra::Coldest => frames,
        };
        let sinking = if choice.era == MqEra::Coldest { Sinking::Empty } else { Sinking::Emptied };
        MqPromotion {
            choice,
            detector: RunDetector::new(choice.detector),
            queue: HitLevels::new(entries, 1).with_sinking(sinking),
            index: KeyIndex::new(entries),
            pieces: vec![0; index(entries)],
            hits: vec![0; index(entries)],
            counted_at: vec![0; index(entries)],
            free: (0..entries).rev().collect(),
            tick: 0,
        }
    }

    /// Notes a request.
    pub fn seen(&mut self, asked: &Asked) {
        self.detector.saw(asked.piece.volume(), asked.range);
    }

    /// Decides on a miss.
    pub fn decide(&mut self, asked: &Asked, standing: &Standing) -> Decision {
        if self.detector.is_sequential() {
            return Decision::plain(Verdict::Pass(Reason::Sequential));
        }
        let needed = self.needed(asked, standing);
        match self.find(asked.piece) {
            Some(entry) => self.decide_remembered(entry, asked, needed),
            None if needed <= 1 && asked.may_promote => Decision::plain(Verdict::ADMIT),
            None if needed <= 1 => Decision::plain(Verdict::Pass(Reason::CopiesInFlight)),
            None => {
                let entries_max = match self.choice.era {
                    // Cached and remembered pieces share the entries.
                    MqEra::Single => self.pieces.len() - index(standing.frames - standing.free),
                    MqEra::Split | MqEra::Coldest => self.pieces.len(),
                };
                self.remember(asked.piece, 1, entries_max);
                Decision::plain(Verdict::Pass(Reason::NotYet))
            }
        }
    }

    fn decide_remembered(&mut self, entry: u32, asked: &Asked, needed: u32) -> Decision {
        let was_counted = self.counted_at[index(entry)] == self.tick;
        let counts_first = self.choice.era == MqEra::Single;
        let mut is_ghost_hit = counts_first && self.count(entry);
        let is_wanted = self.hits[index(entry)] >= needed && (asked.is_discarded || !was_counted);
        if is_wanted && !asked.may_promote {
            // The split mq does not count it, so that it is wanted again when a copy may begin.
            return Decision { verdict: Verdict::Pass(Reason::CopiesInFlight), is_ghost_hit };
        }
        is_ghost_hit |= !counts_first && self.count(entry);
        let verdict = if is_wanted {
            let hits = self.hits[index(entry)];
            self.queue.remove(entry);
            self.forget(entry);
            Verdict::Admit { hits, is_temporary: false, is_returning: false }
        } else {
            Verdict::Pass(Reason::NotYet)
        };
        Decision { verdict, is_ghost_hit }
    }

    /// Remembers a piece again that was admitted with `hits` and found no place.
    pub fn refused(&mut self, piece: PieceKey, hits: u32) {
        self.remember(piece, hits, self.pieces.len());
    }

    /// Remembers a piece that had to leave.
    pub fn evicted(&mut self, piece: PieceKey) {
        if self.choice.era == MqEra::Single {
            self.remember(piece, 1, self.pieces.len());
        }
    }

    /// Begins a new tick: accesses count again.
    pub fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
    }

    /// The hits that a request's piece needs to enter.
    fn needed(&self, asked: &Asked, standing: &Standing) -> u32 {
        let adjustment = match asked.access {
            Access::Read => self.choice.read_promote_adjustment,
            Access::Write => {
                let clean = if self.choice.era == MqEra::Single { 0 } else { standing.clean };
                if asked.is_discarded && (standing.free > 0 || clean > 0) {
                    return self.choice.discard_promote_adjustment;
                }
                self.choice.write_promote_adjustment
            }
        };
        standing.threshold.saturating_add(adjustment)
    }

    /// Counts an access, once in a tick; true if it did.
    fn count(&mut self, entry: u32) -> bool {
        let at = index(entry);
        if self.counted_at[at] == self.tick {
            return false;
        }
        self.hits[at] = self.hits[at].saturating_add(1);
        self.counted_at[at] = self.tick;
        self.queue.remove(entry);
        self.queue.push(REMEMBERED, entry, self.hits[at]);
        true
    }

    /// Remembers a piece; if `entries_max` are remembered, in the place of the one with the fewest hits.
    fn remember(&mut self, piece: PieceKey, hits: u32, entries_max: usize) {
        if let Some(entry) = self.find(piece) {
            // Another request asked for it while it was on its way into the cache.
            let at = index(entry);
            self.hits[at] = self.hits[at].max(hits);
            self.queue.remove(entry);
            self.queue.push(REMEMBERED, entry, self.hits[at]);
            return;
        }
        if self.pieces.len() - self.free.len() >= entries_max {
            let Some(least) = self.queue.first(REMEMBERED, |_| true) else { return };
            self.queue.take(REMEMBERED, least);
            self.forget(least);
        }
        let entry = self.free.pop().expect("an entry was given back");
        let at = index(entry);
        (self.pieces[at], self.hits[at], self.counted_at[at]) = (piece.0, hits, self.tick);
        self.index.insert(piece.0, entry);
        self.queue.push(REMEMBERED, entry, hits);
    }

    /// Gives back an entry that left the queue.
    fn forget(&mut self, entry: u32) {
        let pieces = &self.pieces;
        self.index.remove(pieces[index(entry)], |entry| pieces[index(entry)]);
        self.free.push(entry);
    }

    fn find(&self, piece: PieceKey) -> Option<u32> {
        self.index.find(piece.0, |entry| self.pieces[index(entry)])
    }
}

#[cfg(test)]
#[path = "mq_tests.rs"]
mod tests;
