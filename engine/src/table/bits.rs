//! One bit for each entry of a table.

use crate::number::index;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Bits in a word.
const WORD_BITS: u32 = u64::BITS;

/// A fixed number of bits, all clear at first.
#[derive(Clone, Debug)]
pub struct Bits {
    words: Vec<u64>,
    len: u32,
}

impl Bits {
    /// `len` clear bits.
    #[must_use]
    pub fn new(len: u32) -> Bits {
        Bits { words: vec![0; index(len.div_ceil(WORD_BITS))], len }
    }

    /// How many bits there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no bit at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether bit `at` is set.
    #[must_use]
    pub fn get(&self, at: u32) -> bool {
        assert!(at < self.len);
        self.words[index(at / WORD_BITS)] >> (at % WORD_BITS) & 1 == 1
    }

    /// Sets or clears bit `at`. Answers whether it was set before.
    pub fn put(&mut self, at: u32, is_set: bool) -> bool {
        assert!(at < self.len);
        let word = &mut self.words[index(at / WORD_BITS)];
        let mask = 1 << (at % WORD_BITS);
        let was_set = *word & mask != 0;
        if is_set {
            *word |= mask;
        } else {
            *word &= !mask;
        }
        was_set
    }

    /// Clears all bits.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// The first set bit of `range`.
    #[must_use]
    pub fn first_in(&self, range: Range<u32>) -> Option<u32> {
        assert!(range.end <= self.len);
        if range.is_empty() {
            return None;
        }
        let last = (range.end - 1) / WORD_BITS;
        for number in range.start / WORD_BITS..=last {
            let mut word = self.words[index(number)];
            if number == range.start / WORD_BITS {
                word &= u64::MAX << (range.start % WORD_BITS);
            }
            if word != 0 {
                let at = number * WORD_BITS + word.trailing_zeros();
                return (at < range.end).then_some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn bits_behave_like_an_array_of_bools() {
        let mut prng = Prng::new(3);
        for len in [1, 63, 64, 65, 200] {
            let mut bits = Bits::new(len);
            let mut model = vec![false; len as usize];
            for _ in 0..2000 {
                let at = prng.below(len);
                let is_set = prng.below(8) == 0;
                assert_eq!(bits.put(at, is_set), model[at as usize]);
                model[at as usize] = is_set;
                let start = prng.below(len + 1);
                let end = start + prng.below(len + 1 - start);
                let expected = (start..end).find(|&at| model[at as usize]);
                assert_eq!(bits.first_in(start..end), expected);
                assert_eq!(bits.get(start.min(len - 1)), model[start.min(len - 1) as usize]);
            }
            bits.clear();
            assert_eq!(bits.first_in(0..len), None);
        }
    }
}
