//! From a key to the number of an entry, with room for a fixed number of them.
//!
//! Open addressing with linear probing; a removal moves later entries of the same run back, so
//! there are no graves and a look-up stays short however long the map is used. Half of the slots
//! at the least are empty.
//!
//! * I1: from the slot where a key belongs to the slot where it is, no slot is empty.

use crate::prng::scatter;
use alloc::vec;
use alloc::vec::Vec;

/// The value of an empty slot.
const EMPTY: u32 = u32::MAX;

/// A map from `u64` to `u32`.
#[derive(Clone, Debug)]
pub struct KeyMap {
    keys: Vec<u64>,
    values: Vec<u32>,
    len: u32,
    len_max: u32,
}

impl KeyMap {
    /// An empty map with room for `len_max` keys.
    #[must_use]
    pub fn new(len_max: u32) -> KeyMap {
        let slots = (len_max as usize * 2).next_power_of_two().max(2);
        KeyMap { keys: vec![0; slots], values: vec![EMPTY; slots], len: 0, len_max }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<u32> {
        let value = self.values[self.slot_of(key)];
        (value != EMPTY).then_some(value)
    }

    /// Gives `key` a value, which is not `u32::MAX`. Answers the value it had.
    ///
    /// A new key needs room.
    pub fn insert(&mut self, key: u64, value: u32) -> Option<u32> {
        assert!(value != EMPTY, "the value that means nothing is not a value");
        let slot = self.slot_of(key);
        let old = self.values[slot];
        if old == EMPTY {
            assert!(self.len < self.len_max, "a new key has room");
            self.len += 1;
        }
        self.keys[slot] = key;
        self.values[slot] = value;
        (old != EMPTY).then_some(old)
    }

    /// Forgets `key`. Answers the value it had.
    pub fn remove(&mut self, key: u64) -> Option<u32> {
        let mut gap = self.slot_of(key);
        let old = self.values[gap];
        if old == EMPTY {
            return None;
        }
        self.len -= 1;
        let mask = self.values.len() - 1;
        let mut slot = gap;
        loop {
            slot = (slot + 1) & mask;
            if self.values[slot] == EMPTY {
                break;
            }
            // I1: who belongs at or before the gap would not be found behind it.
            let from_home = slot.wrapping_sub(self.home_of(self.keys[slot])) & mask;
            if from_home >= slot.wrapping_sub(gap) & mask {
                self.keys[gap] = self.keys[slot];
                self.values[gap] = self.values[slot];
                gap = slot;
            }
        }
        self.values[gap] = EMPTY;
        Some(old)
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.values.fill(EMPTY);
        self.len = 0;
    }

    /// The slot where `key` belongs.
    fn home_of(&self, key: u64) -> usize {
        scatter(key) as usize & (self.values.len() - 1)
    }

    /// The slot where `key` is, or the empty one where it would be.
    fn slot_of(&self, key: u64) -> usize {
        let mask = self.values.len() - 1;
        let mut slot = self.home_of(key);
        while self.values[slot] != EMPTY && self.keys[slot] != key {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use std::collections::BTreeMap;

    #[test]
    fn the_map_behaves_like_an_ordered_one() {
        for (len_max, keys) in [(1, 3), (5, 9), (100, 160), (1000, 1500)] {
            let mut prng = Prng::new(u64::from(len_max));
            let mut map = KeyMap::new(len_max);
            let mut model = BTreeMap::new();
            for _ in 0..20_000 {
                let key = u64::from(prng.below(keys)) << 33;
                if prng.below(2) == 0 {
                    assert_eq!(map.remove(key), model.remove(&key));
                } else if model.contains_key(&key) || model.len() < len_max as usize {
                    let value = prng.next_u32() >> 1;
                    assert_eq!(map.insert(key, value), model.insert(key, value));
                }
                let key = u64::from(prng.below(keys)) << 33;
                assert_eq!(map.get(key), model.get(&key).copied());
                assert_eq!(map.len() as usize, model.len());
            }
            map.clear();
            assert!(map.is_empty());
            assert!(model.keys().all(|&key| map.get(key).is_none()));
        }
    }

    #[test]
    #[should_panic(expected = "a new key has room")]
    fn a_full_map_takes_no_new_key() {
        let mut map = KeyMap::new(2);
        for key in 0..3 {
            map.insert(key, 0);
        }
    }
}
