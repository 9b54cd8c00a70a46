//! A hash index of entries by their keys.
//!
//! A hash table that holds entry numbers only: whoever owns the entries owns their keys and
//! shows them when asked. So a history of a hundred million pieces keeps each key once.
//! [`KeyMap`](super::key_map::KeyMap) keeps the keys for those who have none. Linear probing; what
//! is taken out leaves no mark, the entries behind it move up.

use crate::number::{index, index_wide, mul_high, wide};
use crate::prng::scatter;
use alloc::vec;
use alloc::vec::Vec;

/// An empty place of the table.
const EMPTY: u32 = u32::MAX;

/// Entry numbers by key. An overflow is a bug of the owner, which bounds its entries.
#[derive(Clone, Debug)]
pub struct KeyIndex {
    places: Vec<u32>,
    len: u32,
    entries_max: u32,
}

impl KeyIndex {
    /// Room for `entries_max` entries, numbered below `u32::MAX`; 5.3 bytes for each.
    #[must_use]
    pub fn new(entries_max: u32) -> KeyIndex {
        // A third more places than entries: about two and a half looks for a hit.
        let places = index(entries_max) + index(entries_max) / 3 + 4;
        KeyIndex { places: vec![EMPTY; places], len: 0, entries_max }
    }

    /// The entry with `key`, if it was put in.
    #[must_use]
    pub fn find(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        self.place(key, key_of).map(|place| self.places[place])
    }

    /// Puts `entry` in under `key`, which is not there yet.
    pub fn insert(&mut self, key: u64, entry: u32) {
        assert!(self.len < self.entries_max && entry != EMPTY, "the owner bounds his entries");
        let mut place = self.home(key);
        while self.places[place] != EMPTY {
            place = self.after(place);
        }
        self.places[place] = entry;
        self.len += 1;
    }

    /// Takes `key` out, which is there.
    pub fn remove(&mut self, key: u64, key_of: impl Fn(u32) -> u64) {
        let mut gap = self.place(key, &key_of).expect("only what was put in is taken out");
        let mut place = gap;
        loop {
            place = self.after(place);
            let entry = self.places[place];
            if entry == EMPTY {
                break;
            }
            // It may fill the gap unless its home lies behind the gap, up to where it is.
            let home = self.home(key_of(entry));
            let is_home_behind_gap =
                if gap <= place { gap < home && home <= place } else { gap < home || home <= place };
            if !is_home_behind_gap {
                self.places[gap] = entry;
                gap = place;
            }
        }
        self.places[gap] = EMPTY;
        self.len -= 1;
    }

    /// How many entries are in.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no entry is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes all entries out.
    pub fn clear(&mut self) {
        self.places.fill(EMPTY);
        self.len = 0;
    }

    fn place(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<usize> {
        let mut place = self.home(key);
        loop {
            match self.places[place] {
                EMPTY => return None,
                entry if key_of(entry) == key => return Some(place),
                _ => place = self.after(place),
            }
        }
    }

    fn home(&self, key: u64) -> usize {
        index_wide(mul_high(scatter(key), wide(self.places.len())))
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() { 0 } else { place + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Goal: it finds what is in and nothing else. Method: random steps beside an ordered map, in
        /// a table so small that probes wrap around its end.
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((any::<bool>(), 0u64..24), 1..400)) {
            let mut keys = [0u64; 9];
            let mut index = KeyIndex::new(9);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (puts, key) in steps {
                if puts && !model.contains_key(&key) && model.len() < keys.len() {
                    let entry = (0..9).find(|entry| model.values().all(|used| used != entry)).unwrap();
                    keys[entry as usize] = key;
                    index.insert(key, entry);
                    model.insert(key, entry);
                } else if !puts && model.remove(&key).is_some() {
                    index.remove(key, |entry| keys[entry as usize]);
                }
                for key in 0..24 {
                    let found = index.find(key, |entry| keys[entry as usize]);
                    prop_assert_eq!(found, model.get(&key).copied());
                }
            }
        }
    }
}
