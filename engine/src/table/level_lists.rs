//! Queues of 64 levels that are kept about equally long: "stochastic multi-queues".
//!
//! An entry that is used moves up, and an entry from up there takes its place below, so lengths
//! stay as they are and hot entries gather at the top. From time to time the lengths are set
//! right. Each level is a list, least recently used first. Several queues share one numbering of
//! entries; an entry is in one of them at most.
//!
//! A queue may have *marks*, two in each level. They tell age without clocks: from time to time
//! the mark that is further to the front goes to the end of its level. Who stands before both
//! marks was not put at the end for one to two such turns: it is *old*.
//!
//! ```text
//! level 5:  old, old, │first mark│ younger, │second mark│ youngest
//! ```
//!
//! Source: dm-cache's smq policy, 1.0 (Linux 4.5) and 2.0 (Linux 4.12 and later), both read.

use crate::number::{index, to_u8};
use crate::table::frame_lists::{FrameLists, List};
use alloc::vec;
use alloc::vec::Vec;

/// Levels of a queue.
pub const LEVELS: u32 = 64;
/// Marks in a level.
const MARKS: u32 = 2;

/// One of the two marks of each level of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The one that stands in front at the beginning.
    First,
    /// The other one.
    Second,
}

impl Mark {
    /// The other mark.
    #[must_use]
    pub fn other(self) -> Mark {
        match self {
            Mark::First => Mark::Second,
            Mark::Second => Mark::First,
        }
    }
}

/// Where an entry goes that gives its place up there to one that rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// To the end of the level that the other one leaves.
    Back,
    /// There, right before this mark (smq 1.0's cached pieces).
    Before(Mark),
    /// There, in the part as old as the one it leaves; the older mark is named (smq 2.0's dirty
    /// pieces).
    SameAge(Mark),
}

/// An end of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Least recently used.
    Front,
    /// Most recently used.
    Back,
}

/// Which entries are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Old ones only: before both marks of their level.
    Old,
    /// All, across marks.
    All,
}

/// The top levels of a queue may be kept shorter than the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopShare {
    /// The number of top levels; 0 to 63.
    pub levels: u32,
    /// Entries in all of them together.
    pub entries: u32,
}

/// The queues.
///
/// * I1: `counts` is the number of entries of each level, marks not counted; `occupied` has a bit
///   for each level that has one.
#[derive(Clone, Debug)]
pub struct LevelLists {
    lists: FrameLists,
    entries: u32,
    queues: u32,
    has_marks: bool,
    top: TopShare,
    /// The level of each entry; kept while it is in no queue.
    levels: Vec<u8>,
    counts: Vec<u32>,
    occupied: Vec<u64>,
}

impl LevelLists {
    /// Empty queues for entries below `entries`, all with `top` and with or without marks.
    #[must_use]
    pub fn new(entries: u32, queues: u32, has_marks: bool, top: TopShare) -> LevelLists {
        assert!(queues > 0 && top.levels < LEVELS, "some level is not a top level");
        let marks = if has_marks { queues * LEVELS * MARKS } else { 0 };
        let nodes = entries.checked_add(marks).expect("a node has a number of 32 bits");
        let mut queues = LevelLists {
            lists: FrameLists::new(1, nodes, queues * LEVELS),
            entries,
            queues,
            has_marks,
            top,
            levels: vec![0; index(entries)],
            counts: vec![0; index(queues * LEVELS)],
            occupied: vec![0; index(queues)],
        };
        if has_marks {
            for queue in 0..queues.queues {
                for level in 0..LEVELS {
                    for mark in [Mark::First, Mark::Second] {
                        let node = queues.mark(queue, level, mark);
                        queues.lists.push_back(list(queue, level), node);
                    }
                }
            }
        }
        queues
    }

    /// Whether `entry` is in a queue.
    #[must_use]
    pub fn is_listed(&self, entry: u32) -> bool {
        assert!(entry < self.entries);
        self.lists.is_listed(entry)
    }

    /// The level of `entry`; the one it had last if it is in no queue.
    #[must_use]
    pub fn level(&self, entry: u32) -> u32 {
        u32::from(self.levels[index(entry)])
    }

    /// How many entries `queue` has.
    #[must_use]
    pub fn len(&self, queue: u32) -> u32 {
        self.queue_counts(queue).iter().sum()
    }

    /// Whether `queue` has no entry.
    #[must_use]
    pub fn is_empty(&self, queue: u32) -> bool {
        self.occupied[index(queue)] == 0
    }

    /// How many entries a level has.
    #[must_use]
    pub fn count(&self, queue: u32, level: u32) -> u32 {
        self.queue_counts(queue)[index(level)]
    }

    /// Puts `entry`, which is in no queue, at an end of a level.
    pub fn push(&mut self, queue: u32, level: u32, end: End, entry: u32) {
        self.settle(queue, level, entry);
        match end {
            End::Front => self.lists.push_front(list(queue, level), entry),
            End::Back => self.lists.push_back(list(queue, level), entry),
        }
    }

    /// Puts `entry`, which is in no queue, right before a mark of a level.
    pub fn push_before(&mut self, queue: u32, level: u32, mark: Mark, entry: u32) {
        self.settle(queue, level, entry);
        let mark = self.mark(queue, level, mark);
        self.lists.push_before(mark, entry);
    }

    /// Takes `entry` out of `queue`. It keeps its level.
    pub fn remove(&mut self, queue: u32, entry: u32) {
        assert!(entry < self.entries);
        let level = self.level(entry);
        self.lists.remove(entry);
        let count = &mut self.counts[index(queue * LEVELS + level)];
        *count = count.checked_sub(1).expect("an entry is taken out of the queue it is in");
        if *count == 0 {
            self.occupied[index(queue)] &= !(1 << level);
        }
    }

    /// The least recently used entry of the lowest level below `levels_end` within reach, for
    /// which `accept` holds.
    pub fn first(
        &self,
        queue: u32,
        levels_end: u32,
        reach: Reach,
        mut accept: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut levels = Levels(self.occupied[index(queue)]);
        levels.drop_from(levels_end);
        for level in levels {
            let mut node = self.lists.first(list(queue, level));
            while let Some(at) = node {
                if at >= self.entries {
                    if reach == Reach::Old {
                        break;
                    }
                } else if accept(at) {
                    return Some(at);
                }
                node = self.lists.next(at);
            }
        }
        None
    }

    /// Takes the least recently used entry of the lowest level out.
    pub fn pop(&mut self, queue: u32) -> Option<u32> {
        let entry = self.first(queue, LEVELS, Reach::All, |_| true)?;
        self.remove(queue, entry);
        Some(entry)
    }

    /// Moves `entry` to the end of the level `jump` levels up, but not beyond the top. If it
    /// rises, the least recently used entry up there, if any, takes its place.
    pub fn rise(&mut self, queue: u32, entry: u32, jump: u32, displaced: Displaced) {
        let level = self.level(entry);
        let to = (level + jump).min(LEVELS - 1);
        if to > level
            && let Some((swapped, marks_passed)) = self.front(queue, to)
        {
            self.remove(queue, swapped);
            match (displaced, marks_passed) {
                (Displaced::Before(mark), _) | (Displaced::SameAge(mark), 0) => {
                    self.push_before(queue, level, mark, swapped);
                }
                (Displaced::SameAge(older), 1) => {
                    self.push_before(queue, level, older.other(), swapped);
                }
                (Displaced::Back, _) | (Displaced::SameAge(_), _) => {
                    self.push(queue, level, End::Back, swapped);
                }
            }
        }
        self.remove(queue, entry);
        self.push(queue, to, End::Back, entry);
    }

    /// Gives every level the number of entries it shall have, from the bottom. A level that has
    /// too few takes the least recently used ones from above; one that has too many gives its
    /// most recently used ones to an end of the next.
    pub fn redistribute(&mut self, queue: u32, surplus_to: End) {
        let total = self.len(queue);
        for level in 0..LEVELS - 1 {
            let target = self.target(total, level);
            while self.count(queue, level) < target {
                let Some(entry) = self.pull(queue, level + 1) else { break };
                self.push(queue, level, End::Back, entry);
            }
            while self.count(queue, level) > target {
                let entry = self.last(queue, level).expect("a level that has entries has a last one");
                self.remove(queue, entry);
                self.push(queue, level + 1, surplus_to, entry);
            }
        }
    }

    /// Moves `mark` to the end of every level of `queue`.
    pub fn turn(&mut self, queue: u32, mark: Mark) {
        for level in 0..LEVELS {
            let node = self.mark(queue, level, mark);
            self.lists.remove(node);
            self.lists.push_back(list(queue, level), node);
        }
    }

    /// How many of `total` entries a level shall have.
    fn target(&self, total: u32, level: u32) -> u32 {
        let low_levels = LEVELS - self.top.levels;
        let (entries, levels, at) = if level < low_levels {
            (total.saturating_sub(self.top.entries), low_levels, level)
        } else {
            (self.top.entries, self.top.levels, level - low_levels)
        };
        entries / levels + u32::from(at < entries % levels)
    }

    /// Takes the first entry of the lowest level from `level` on out.
    fn pull(&mut self, queue: u32, level: u32) -> Option<u32> {
        let mut levels = Levels(self.occupied[index(queue)]);
        levels.drop_below(level);
        let (entry, _) = self.front(queue, levels.next()?)?;
        self.remove(queue, entry);
        Some(entry)
    }

    /// The first entry of a level, and how many marks stand before it.
    fn front(&self, queue: u32, level: u32) -> Option<(u32, u32)> {
        let mut node = self.lists.first(list(queue, level))?;
        let mut marks_passed = 0;
        while node >= self.entries {
            marks_passed += 1;
            node = self.lists.next(node)?;
        }
        Some((node, marks_passed))
    }

    /// The last entry of a level.
    fn last(&self, queue: u32, level: u32) -> Option<u32> {
        let mut node = self.lists.last(list(queue, level))?;
        while node >= self.entries {
            node = self.lists.prev(node)?;
        }
        Some(node)
    }

    /// Counts `entry` into a level.
    fn settle(&mut self, queue: u32, level: u32, entry: u32) {
        assert!(queue < self.queues && level < LEVELS && entry < self.entries);
        self.levels[index(entry)] = to_u8(level);
        self.counts[index(queue * LEVELS + level)] += 1;
        self.occupied[index(queue)] |= 1 << level;
    }

    fn queue_counts(&self, queue: u32) -> &[u32] {
        assert!(queue < self.queues);
        &self.counts[index(queue * LEVELS)..index((queue + 1) * LEVELS)]
    }

    /// The node of a mark; marks come after the entries.
    fn mark(&self, queue: u32, level: u32, mark: Mark) -> u32 {
        assert!(self.has_marks, "these queues have marks");
        let which = match mark {
            Mark::First => 0,
            Mark::Second => 1,
        };
        self.entries + (queue * LEVELS + level) * MARKS + which
    }
}

/// The list of a level.
fn list(queue: u32, level: u32) -> List {
    List(queue * LEVELS + level)
}

/// A set of levels; gives them rising.
struct Levels(u64);

impl Levels {
    fn drop_from(&mut self, level: u32) {
        if level < LEVELS {
            self.0 &= (1 << level) - 1;
        }
    }

    fn drop_below(&mut self, level: u32) {
        self.0 &= u64::MAX << level;
    }
}

impl Iterator for Levels {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let level = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(level)
    }
}

#[cfg(test)]
mod tests;
