//! Queues of 16 levels by hits: level n holds what was hit 2^n times or more.
//!
//! The queues of dm-cache's mq policy: its cached pieces (clean and dirty apart) and the pieces
//! it only remembers. Each level is a list, least recently used first. Several queues share one
//! numbering of entries; an entry is in one of them at most.
//!
//! When an entry was taken out for good, all levels may sink by one, so that a queue does not keep
//! for ever what was hot long ago; an entry that is hit again goes to the level of its hits.
//!
//! Source: dm-cache's mq policy, 1.0 (Linux 3.9), one with clean and dirty apart, and the last one,
//! all read.

use crate::table::frame_lists::{FrameLists, List};

/// Levels of a queue.
pub const HIT_LEVELS: u32 = 16;

/// When the levels of a queue sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sinking {
    /// When the entry that was taken out was the last one of the bottom level.
    #[default]
    Emptied,
    /// When the bottom level is empty then, whatever level the entry was of (the last mq).
    Empty,
}

/// The queues.
#[derive(Clone, Debug)]
pub struct HitLevels {
    lists: FrameLists,
    queues: u32,
    sinking: Sinking,
}

impl HitLevels {
    /// Empty queues for entries below `entries`.
    #[must_use]
    pub fn new(entries: u32, queues: u32) -> HitLevels {
        let lists = FrameLists::new(1, entries, queues * HIT_LEVELS);
        HitLevels { lists, queues, sinking: Sinking::default() }
    }

    /// The same queues, whose levels sink as said.
    #[must_use]
    pub fn with_sinking(self, sinking: Sinking) -> HitLevels {
        HitLevels { sinking, ..self }
    }

    /// The level of an entry that was hit `hits` times, which is not 0.
    #[must_use]
    pub fn level_of(hits: u32) -> u32 {
        assert!(hits > 0, "what is remembered was hit once");
        hits.ilog2().min(HIT_LEVELS - 1)
    }

    /// Whether `entry` is in a queue.
    #[must_use]
    pub fn is_listed(&self, entry: u32) -> bool {
        self.lists.is_listed(entry)
    }

    /// Whether `queue` has no entry.
    #[must_use]
    pub fn is_empty(&self, queue: u32) -> bool {
        self.first(queue, |_| true).is_none()
    }

    /// Puts `entry`, which is in no queue, at the recently used end of the level of its hits.
    pub fn push(&mut self, queue: u32, entry: u32, hits: u32) {
        self.lists.push_back(self.list(queue, Self::level_of(hits)), entry);
    }

    /// Takes `entry` out of its queue without moving anything else.
    pub fn remove(&mut self, entry: u32) {
        self.lists.remove(entry);
    }

    /// The least recently used entry of the lowest level for which `accept` holds.
    pub fn first(&self, queue: u32, accept: impl FnMut(u32) -> bool) -> Option<u32> {
        (0..HIT_LEVELS).flat_map(|level| self.level(queue, level)).find(with_value(accept))
    }

    /// Takes `entry` out of `queue` for good, so that levels may sink.
    pub fn take(&mut self, queue: u32, entry: u32) {
        let bottom = self.list(queue, 0);
        let may_sink = self.sinking == Sinking::Empty || !self.lists.is_empty(bottom);
        self.lists.remove(entry);
        if may_sink && self.lists.is_empty(bottom) {
            for level in 1..HIT_LEVELS {
                self.lists.append(self.list(queue, level - 1), self.list(queue, level));
            }
        }
    }

    /// The entries of a level, least recently used first.
    pub fn level(&self, queue: u32, level: u32) -> impl Iterator<Item = u32> {
        let first = self.lists.first(self.list(queue, level));
        core::iter::successors(first, |&entry| self.lists.next(entry))
    }

    fn list(&self, queue: u32, level: u32) -> List {
        assert!(queue < self.queues && level < HIT_LEVELS);
        List(queue * HIT_LEVELS + level)
    }
}

/// `accept` for the references that `find` passes.
fn with_value(mut accept: impl FnMut(u32) -> bool) -> impl FnMut(&u32) -> bool {
    move |&entry| accept(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn a_level_is_the_logarithm_of_hits() {
        let levels = [1, 2, 3, 4, 7, 8, 32_767, 32_768, u32::MAX].map(HitLevels::level_of);
        assert_eq!(levels, [0, 1, 1, 2, 2, 3, 14, 15, 15]);
    }

    #[test]
    fn levels_sink_when_a_take_empties_the_bottom() {
        let mut queues = HitLevels::new(4, 1);
        queues.push(0, 0, 4);
        queues.push(0, 1, 4);
        queues.push(0, 2, 8);
        queues.take(0, 0);
        assert!(queues.level(0, 2).eq([1]), "the bottom was empty before: nothing sinks");
        let mut eager = queues.clone().with_sinking(Sinking::Empty);
        eager.take(0, 1);
        assert!(eager.level(0, 2).eq([2]), "the last mq does not ask what it was before");
        queues.push(0, 0, 1);
        queues.take(0, 0);
        assert!(queues.level(0, 1).eq([1]));
        assert!(queues.level(0, 2).eq([2]));
        queues.push(0, 3, 1);
        queues.take(0, 1);
        assert!(queues.level(0, 0).eq([3]), "the bottom was not empty: nothing sinks");
        assert!(queues.level(0, 2).eq([2]));
        queues.remove(3);
        assert!(queues.level(0, 2).eq([2]), "to take out by the way lets nothing sink");
    }

    #[test]
    fn queues_behave_like_lists_of_lists() {
        for sinking in [Sinking::Emptied, Sinking::Empty] {
            compare(sinking);
        }
    }

    fn compare(sinking: Sinking) {
        let mut prng = Prng::new(5);
        let mut queues = HitLevels::new(30, 2).with_sinking(sinking);
        let mut model = vec![vec![Vec::new(); HIT_LEVELS as usize]; 2];
        for _ in 0..20_000 {
            let entry = prng.below(30);
            let queue = prng.below(2) as usize;
            let hits = 1 << prng.below(18);
            if queues.is_listed(entry) {
                let holder = (0..2).find(|&queue| model[queue].iter().any(|level| level.contains(&entry)));
                let levels = &mut model[holder.expect("the model has it too")];
                let had_bottom = !levels[0].is_empty();
                levels.iter_mut().for_each(|level| level.retain(|&other| other != entry));
                if prng.below(2) == 0 {
                    queues.remove(entry);
                } else {
                    queues.take(holder.unwrap_or_default() as u32, entry);
                    if levels[0].is_empty() && (had_bottom || sinking == Sinking::Empty) {
                        levels.remove(0);
                        levels.push(Vec::new());
                    }
                }
            } else {
                queues.push(queue as u32, entry, hits);
                model[queue][HitLevels::level_of(hits) as usize].push(entry);
            }
            for (queue, levels) in model.iter().enumerate() {
                for (level, expected) in levels.iter().enumerate() {
                    assert!(queues.level(queue as u32, level as u32).eq(expected.iter().copied()));
                }
                let odd = levels.iter().flatten().copied().find(|entry| entry % 2 == 1);
                assert_eq!(queues.first(queue as u32, |entry| entry % 2 == 1), odd);
                assert_eq!(queues.is_empty(queue as u32), levels.iter().all(Vec::is_empty));
            }
        }
    }
}
