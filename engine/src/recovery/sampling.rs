//! Choice of a number of items by chance: all where there are no more of them.

use crate::number::{index_wide, wide};
use alloc::vec::Vec;

/// Items for each one wanted from which on some are tried by chance before all are looked at.
const MANY: u64 = 64;
/// Tries for each item wanted.
const TRIES: u64 = 8;

/// Items chosen so far.
pub(crate) struct Sampling<T> {
    count: usize,
    chosen: Vec<T>,
    offered: u64,
}

impl<T: PartialEq> Sampling<T> {
    /// Begins; at the most `count` are wanted.
    pub fn new(count: usize) -> Sampling<T> {
        Sampling { count, chosen: Vec::new(), offered: 0 }
    }

    /// Number of tries by chance, among `items` of which some may not do, before all are looked at.
    pub fn tries(&self, items: u64) -> u64 {
        if items > MANY * wide(self.count) { TRIES * wide(self.count) } else { 0 }
    }

    /// Takes an item that was tried by chance; `None` does not do.
    pub fn pick(&mut self, item: Option<T>) {
        if let Some(item) = item
            && self.is_short()
            && !self.chosen.contains(&item)
        {
            self.chosen.push(item);
        }
    }

    /// Whether more are wanted.
    pub fn is_short(&self) -> bool {
        self.chosen.len() < self.count
    }

    /// Takes one of all items: of those that do each is chosen with the same chance.
    pub fn offer(&mut self, item: Option<T>, random: &mut dyn FnMut() -> u64) {
        let Some(item) = item else { return };
        if self.offered == 0 {
            self.chosen.clear();
        }
        self.offered += 1;
        if self.is_short() {
            self.chosen.push(item);
            return;
        }
        let at = random() % self.offered;
        if at < wide(self.count) {
            self.chosen[index_wide(at)] = item;
        }
    }

    /// The items.
    pub fn chosen(self) -> Vec<T> {
        self.chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_chosen_all_and_many_by_chance() {
        let mut numbers = crate::prng::Prng::new(3);
        let mut random = || numbers.next_u64();
        for items in [0u64, 1, 9, 10, 11, 500] {
            let mut sampling = Sampling::new(10);
            (0..items).for_each(|item| sampling.offer((item % 2 == 0).then_some(item), &mut random));
            let chosen = sampling.chosen();
            assert_eq!(wide(chosen.len()), items.div_ceil(2).min(10), "{items}");
            assert!(chosen.iter().all(|item| item % 2 == 0));
        }
    }

    #[test]
    fn what_was_tried_by_chance_counts_once_and_not_beside_all() {
        let mut sampling = Sampling::new(3);
        assert_eq!((sampling.tries(192), sampling.tries(193)), (0, 24));
        for item in [Some(1), Some(1), None, Some(2)] {
            sampling.pick(item);
        }
        assert!(sampling.is_short());
        (0..5).for_each(|item| sampling.offer((item > 0).then_some(item), &mut || 7));
        assert_eq!(sampling.chosen(), [1, 2, 3]);
    }
}
