//! A table over the blocks of a disk that has memory only where something was put.

/// Entries of a chunk. Small, because random writes touch one block here and one there.
const CHUNK_BLOCKS: u64 = 64;

/// A value for each block; all begin as `empty`.
pub(super) struct Sparse<T> {
    empty: T,
    /// For each chunk one more than its number in `chunks`; 0 where there is none.
    places: Vec<u32>,
    chunks: Vec<[T; CHUNK_BLOCKS as usize]>,
}

impl<T: Copy> Sparse<T> {
    pub(super) fn new(blocks: u64, empty: T) -> Sparse<T> {
        let places =
            vec![0; usize::try_from(blocks.div_ceil(CHUNK_BLOCKS)).expect("a table that can be addressed")];
        Sparse { empty, places, chunks: Vec::new() }
    }

    pub(super) fn get(&self, block: u64) -> T {
        match self.places[(block / CHUNK_BLOCKS) as usize] {
            0 => self.empty,
            place => self.chunks[place as usize - 1][(block % CHUNK_BLOCKS) as usize],
        }
    }

    pub(super) fn get_mut(&mut self, block: u64) -> &mut T {
        let place = &mut self.places[(block / CHUNK_BLOCKS) as usize];
        if *place == 0 {
            self.chunks.push([self.empty; CHUNK_BLOCKS as usize]);
            *place = u32::try_from(self.chunks.len()).expect("fewer chunks than 2^32");
        }
        &mut self.chunks[*place as usize - 1][(block % CHUNK_BLOCKS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Sparse;

    #[test]
    fn what_was_put_is_found_and_all_else_is_empty() {
        let mut table = Sparse::new(1 << 30, 7u64);
        *table.get_mut(100) = 1;
        *table.get_mut((1 << 30) - 1) = 2;
        assert_eq!((table.get(99), table.get(100), table.get(101)), (7, 1, 7));
        assert_eq!((table.get(1 << 29), table.get((1 << 30) - 1)), (7, 2));
        assert_eq!(table.chunks.len(), 2);
    }
}
