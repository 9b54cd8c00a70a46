//! A small, fixed number of slots, each found by a key and given up in order of use.

use crate::number::{index, index_wide};
use crate::prng::scatter;
use crate::table::frame_lists::{FrameLists, List};
use alloc::vec;
use alloc::vec::Vec;

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// The only list of the order.
const ORDER: List = List(0);

/// Slots `0..slots`. Several may have one key; a slot that was never used has none.
#[derive(Clone, Debug)]
pub(super) struct Recency {
    /// All slots, from the least to the most recently used.
    order: FrameLists,
    keys: Vec<Option<u64>>,
    /// The first slot of a chain, by hash: the one that got its key last.
    heads: Vec<u32>,
    /// The next slot of the chain, by slot.
    next: Vec<u32>,
}

impl Recency {
    /// `slots` slots, none used.
    pub(super) fn new(slots: u32) -> Recency {
        assert!(slots > 0, "something can be remembered");
        let mut order = FrameLists::new(1, slots, 1);
        (0..slots).for_each(|slot| order.push_back(ORDER, slot));
        let buckets = index(slots).next_power_of_two();
        Recency {
            order,
            keys: vec![None; index(slots)],
            heads: vec![NONE; buckets],
            next: vec![NONE; index(slots)],
        }
    }

    /// The slot with `key` that passes `wanted`; of several the one that got the key last.
    pub(super) fn find(&self, key: u64, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let mut slot = self.heads[self.bucket(key)];
        while slot != NONE {
            if self.keys[index(slot)] == Some(key) && wanted(slot) {
                return Some(slot);
            }
            slot = self.next[index(slot)];
        }
        None
    }

    /// The slot that was not used for longest.
    pub(super) fn oldest(&self) -> u32 {
        self.order.first(ORDER).expect("every slot is in the order")
    }

    /// Uses `slot`, from now on under `key`.
    pub(super) fn use_slot(&mut self, slot: u32, key: u64) {
        if let Some(before) = self.keys[index(slot)] {
            self.unchain(slot, before);
        }
        let bucket = self.bucket(key);
        self.next[index(slot)] = self.heads[bucket];
        self.heads[bucket] = slot;
        self.keys[index(slot)] = Some(key);
        self.order.remove(slot);
        self.order.push_back(ORDER, slot);
    }

    fn unchain(&mut self, slot: u32, key: u64) {
        let bucket = self.bucket(key);
        if self.heads[bucket] == slot {
            self.heads[bucket] = self.next[index(slot)];
            return;
        }
        let mut before = self.heads[bucket];
        while self.next[index(before)] != slot {
            before = self.next[index(before)];
            assert!(before != NONE, "a slot with a key is in the key's chain");
        }
        self.next[index(before)] = self.next[index(slot)];
    }

    fn bucket(&self, key: u64) -> usize {
        index_wide(scatter(key)) & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Goal: search and order of use. Method: random uses beside a list of (slot, key), newest last.
        #[test]
        fn behaves_as_a_list(steps in prop::collection::vec((any::<bool>(), 0u64..6, 0u32..5), 1..200)) {
            let mut recency = Recency::new(5);
            let mut model: Vec<(u32, Option<u64>)> = (0..5).map(|slot| (slot, None)).collect();
            for (takes_oldest, key, any_slot) in steps {
                let slot = if takes_oldest { recency.oldest() } else { any_slot };
                if takes_oldest {
                    prop_assert_eq!(slot, model[0].0);
                }
                recency.use_slot(slot, key);
                model.retain(|&(other, _)| other != slot);
                model.push((slot, Some(key)));
                for key in 0..6 {
                    let expected = model.iter().rev().find(|entry| entry.1 == Some(key) && entry.0 != 3);
                    prop_assert_eq!(recency.find(key, |slot| slot != 3), expected.map(|entry| entry.0));
                }
            }
        }
    }
}
