//! A map from keys to entry numbers, with room for a fixed number of them.
//!
//! It keeps the keys itself; an owner with the keys in arrays of its own takes a [`KeyIndex`] alone.

use super::key_index::KeyIndex;
use crate::number::{index, to_u32};
use alloc::vec;
use alloc::vec::Vec;

/// A map from `u64` to `u32`: about 21 bytes for each key it has room for.
#[derive(Clone, Debug)]
pub struct KeyMap {
    index: KeyIndex,
    /// By entry.
    keys: Vec<u64>,
    values: Vec<u32>,
    /// Entries that hold nothing.
    free: Vec<u32>,
}

impl KeyMap {
    /// An empty map with room for `len_max` keys.
    #[must_use]
    pub fn new(len_max: u32) -> KeyMap {
        KeyMap {
            index: KeyIndex::new(len_max),
            keys: vec![0; index(len_max)],
            values: vec![0; index(len_max)],
            free: (0..len_max).rev().collect(),
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.index.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<u32> {
        self.entry(key).map(|entry| self.values[index(entry)])
    }

    /// Gives `key` a value. Answers the value it had.
    ///
    /// A new key needs room.
    pub fn insert(&mut self, key: u64, value: u32) -> Option<u32> {
        if let Some(entry) = self.entry(key) {
            return Some(core::mem::replace(&mut self.values[index(entry)], value));
        }
        let entry = self.free.pop().expect("a new key has room");
        (self.keys[index(entry)], self.values[index(entry)]) = (key, value);
        self.index.insert(key, entry);
        None
    }

    /// Forgets `key`. Answers the value it had.
    pub fn remove(&mut self, key: u64) -> Option<u32> {
        let entry = self.entry(key)?;
        self.index.remove(key, |entry| self.keys[index(entry)]);
        self.free.push(entry);
        Some(self.values[index(entry)])
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.index.clear();
        self.free.clear();
        self.free.extend((0..to_u32(self.keys.len())).rev());
    }

    fn entry(&self, key: u64) -> Option<u32> {
        self.index.find(key, |entry| self.keys[index(entry)])
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
