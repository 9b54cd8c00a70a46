//! The watched blocks: all whose hash is below a threshold, cached or not, back to the horizon.
//!
//! Of each is known when it was last asked for, and the class of its mark, as the cache has it. An access to one is a
//! [lesson](super::lessons).

use super::lessons::Lessons;
use super::{Class, Time};
use crate::number::{index, low_u32, to_u32};
use crate::table::frame_lists::{FrameLists, List};
use crate::table::key_index::KeyIndex;
use alloc::vec;
use alloc::vec::Vec;

/// Blocks that are watched, at most.
pub(super) const BLOCKS_MAX: u32 = 16_384;
/// Entries in use: first the block that was not asked for the longest.
const USED: List = List(0);
/// Entries that hold no block.
const FREE: List = List(1);

/// A watched block.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// 32 bits of the hash of its number: two blocks with the same are taken for one.
    hash: u32,
    /// When it was last asked for, in units.
    at: u32,
    class: Class,
}

/// The watched blocks: 22 bytes for each.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// Hashes up to this one are watched.
    hash_max: u64,
    horizon_units: u32,
    entries: Vec<Watched>,
    lists: FrameLists,
    by_hash: KeyIndex,
}

impl Watch {
    /// Watches as many blocks as will be asked for about [`BLOCKS_MAX`] times before the horizon.
    pub(super) fn new(horizon_accesses: u64, horizon_units: u32) -> Watch {
        let blocks = to_u32(horizon_accesses.min(u64::from(BLOCKS_MAX)));
        let hash_max = if horizon_accesses <= u64::from(BLOCKS_MAX) {
            u64::MAX
        } else {
            u64::MAX / horizon_accesses * u64::from(BLOCKS_MAX)
        };
        let vacant = Watched { hash: 0, at: 0, class: Class::NEW };
        let mut lists = FrameLists::new(1, blocks, 2);
        (0..blocks).for_each(|entry| lists.push_back(FREE, entry));
        Watch {
            hash_max,
            horizon_units,
            entries: vec![vacant; index(blocks)],
            lists,
            by_hash: KeyIndex::new(blocks),
        }
    }

    /// Units after which a block counts as one that never comes back.
    pub(super) fn horizon_units(&self) -> u32 {
        self.horizon_units
    }

    /// Whether blocks with this hash are watched.
    pub(super) fn watches(&self, hash: u64) -> bool {
        hash <= self.hash_max
    }

    /// A watched block is asked for, and is of this class by that.
    pub(super) fn accessed(&mut self, hash: u64, now: Time, class: Class, lessons: &mut Lessons) {
        let hash = low_u32(hash);
        let entries = &self.entries;
        let Some(entry) = self.by_hash.find(u64::from(hash), |entry| u64::from(entries[index(entry)].hash))
        else {
            self.begin(hash, now, class);
            return;
        };
        let watched = &mut self.entries[index(entry)];
        lessons.came_back(watched.class, now.units().wrapping_sub(watched.at));
        (watched.class, watched.at) = (class, now.units());
        self.lists.remove(entry);
        self.lists.push_back(USED, entry);
    }

    /// Class and age of the blocks that did not come back yet.
    pub(super) fn outstanding(&self, now: Time) -> impl Iterator<Item = (Class, u32)> {
        let used = core::iter::successors(self.lists.first(USED), |&entry| self.lists.next(entry));
        used.map(move |entry| {
            let watched = self.entries[index(entry)];
            (watched.class, now.units().wrapping_sub(watched.at))
        })
    }

    fn begin(&mut self, hash: u32, now: Time, class: Class) {
        let entry = self.lists.first(FREE).unwrap_or_else(|| {
            let oldest = self.lists.first(USED).expect("all entries are in use");
            self.forget(oldest);
            oldest
        });
        self.entries[index(entry)] = Watched { hash, at: now.units(), class };
        self.by_hash.insert(u64::from(hash), entry);
        self.lists.remove(entry);
        self.lists.push_back(USED, entry);
    }

    /// Forgets the blocks that did not come back before the horizon.
    pub(super) fn expire(&mut self, now: Time, lessons: &mut Lessons) {
        while let Some(oldest) = self.lists.first(USED) {
            let watched = self.entries[index(oldest)];
            if now.units().wrapping_sub(watched.at) < self.horizon_units {
                return;
            }
            lessons.stayed_away(watched.class);
            self.forget(oldest);
        }
    }

    fn forget(&mut self, entry: u32) {
        let entries = &self.entries;
        let hash_of = |entry: u32| u64::from(entries[index(entry)].hash);
        self.by_hash.remove(hash_of(entry), hash_of);
        self.lists.remove(entry);
        self.lists.push_back(FREE, entry);
    }
}
