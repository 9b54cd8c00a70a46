//! Which blocks were not asked for yet.

/// Blocks of a word.
const WORD: u64 = 64;

/// A bit for each block, set once it was asked for, and one for each word that is full.
#[derive(Clone, Debug)]
pub(super) struct FreeMap {
    blocks: u64,
    words: Vec<u64>,
    full_words: Vec<u64>,
}

impl FreeMap {
    /// All blocks are free.
    pub(super) fn new(blocks: u64) -> FreeMap {
        let words = blocks.div_ceil(WORD) as usize;
        let mut map =
            FreeMap { blocks, words: vec![0; words], full_words: vec![0; words.div_ceil(WORD as usize)] };
        map.clear();
        map
    }

    /// All blocks are free again.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.full_words.fill(0);
        // The bits of the last words beyond the end are never free.
        for block in self.blocks..self.words.len() as u64 * WORD {
            self.take(block);
        }
        for word in self.words.len() as u64..self.full_words.len() as u64 * WORD {
            self.full_words[(word / WORD) as usize] |= 1 << (word % WORD);
        }
    }

    /// Whether the block is free.
    pub(super) fn is_free(&self, block: u64) -> bool {
        self.words[(block / WORD) as usize] >> (block % WORD) & 1 == 0
    }

    /// The block is asked for.
    pub(super) fn take(&mut self, block: u64) {
        let word = &mut self.words[(block / WORD) as usize];
        *word |= 1 << (block % WORD);
        if *word == u64::MAX {
            let at = block / WORD;
            self.full_words[(at / WORD) as usize] |= 1 << (at % WORD);
        }
    }

    /// The first free block behind `block`, round the end; `None` if none is free.
    pub(super) fn next_free(&self, block: u64) -> Option<u64> {
        let next = if block + 1 >= self.blocks { 0 } else { block + 1 };
        self.first_free(next).or_else(|| self.first_free(0))
    }

    /// The first free block from `block` to the end.
    fn first_free(&self, block: u64) -> Option<u64> {
        let word = block / WORD;
        let here = !self.words.get(word as usize)? & (u64::MAX << (block % WORD));
        if here != 0 {
            return Some(word * WORD + u64::from(here.trailing_zeros()));
        }
        let word = word + 1;
        let first = (word / WORD) as usize;
        let mut mask = u64::MAX << (word % WORD);
        for (at, full) in self.full_words.iter().enumerate().skip(first) {
            let free = !full & mask;
            mask = u64::MAX;
            if free != 0 {
                let word = at as u64 * WORD + u64::from(free.trailing_zeros());
                return Some(word * WORD + u64::from((!self.words[word as usize]).trailing_zeros()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn what_is_free_is_what_a_list_says() {
        for blocks in [1, 63, 64, 65, 5000, 4096, 8192] {
            let mut random = Random::new(blocks);
            let mut map = FreeMap::new(blocks);
            for round in 0..2 {
                let mut list = vec![true; blocks as usize];
                while list.contains(&true) {
                    let block = random.below(blocks);
                    let expected =
                        (1..=blocks).map(|step| (block + step) % blocks).find(|&at| list[at as usize]);
                    assert_eq!(map.next_free(block), expected, "{blocks} {round} {block}");
                    assert_eq!(map.is_free(block), list[block as usize]);
                    let taken = if map.is_free(block) { block } else { expected.expect("one is free") };
                    map.take(taken);
                    list[taken as usize] = false;
                }
                assert_eq!(map.next_free(0), None);
                map.clear();
            }
        }
    }
}
