//! The directory: finds the slot of a piece.
//!
//! Chains within sets: a set has as many heads as it has slots, and every slot names the next one of its
//! chain. With sets both are numbers within the set, 4 bytes a slot; without, 8 bytes. The pieces are in the
//! table: the directory knows which slots there may be, not what they hold.
//!
//! S1 ([`crate::store::slots`]) is kept here: every slot that is not free is in the chain of its piece, once, and no other
//! slot is in a chain.

use crate::number::{high_u32, index, to_u16, wide};
use crate::policies::replacement::Shape;
use crate::prng::scatter;
use crate::store::slots::table::SlotTable;
use crate::store::slots::table::set_map::SetMap;
use crate::units::{Frame, PieceKey};
use alloc::vec;
use alloc::vec::Vec;

/// The chains of a cache.
#[derive(Clone, Debug)]
pub struct Directory {
    map: SetMap,
    shape: Shape,
    chains: Chains,
}

/// Heads and links: the number of a slot within its set, or the largest number for none.
#[derive(Clone, Debug)]
enum Chains {
    /// The cache has sets.
    Sets { heads: Vec<u16>, next: Vec<u16> },
    /// It has none, or sets of more slots than 16 bits number.
    Whole { heads: Vec<u32>, next: Vec<u32> },
}

impl Directory {
    /// A directory of free slots.
    #[must_use]
    pub fn new(map: SetMap, shape: Shape) -> Directory {
        let slots = index(shape.frames);
        let chains = if shape.ways < u32::from(u16::MAX) {
            Chains::Sets { heads: vec![u16::MAX; slots], next: vec![u16::MAX; slots] }
        } else {
            Chains::Whole { heads: vec![u32::MAX; slots], next: vec![u32::MAX; slots] }
        };
        Directory { map, shape, chains }
    }

    /// The set where `piece` belongs.
    #[must_use]
    pub fn set_of(&self, piece: PieceKey) -> u32 {
        self.map.set_of(piece)
    }

    /// The slot of `piece`, whatever work is under way on it.
    #[must_use]
    pub fn find(&self, piece: PieceKey, table: &SlotTable) -> Option<Frame> {
        let set = self.map.set_of(piece);
        let mut way = self.head(self.chain_of(set, piece));
        while let Some(number) = way {
            let slot = self.shape.frame(set, number);
            if table.piece(slot) == Some(piece) {
                return Some(slot);
            }
            way = self.next(slot);
        }
        None
    }

    /// Adds `slot`, of the right set, which was taken for `piece`.
    pub fn insert(&mut self, piece: PieceKey, slot: Frame, table: &SlotTable) {
        let set = self.map.set_of(piece);
        assert!(self.shape.set_of(slot) == set, "a piece lies in its set");
        assert!(table.piece(slot) == Some(piece), "the directory leads to a slot that holds the piece (S1)");
        assert!(self.find(piece, table).is_none(), "no two slots hold the same piece (S1)");
        let chain = self.chain_of(set, piece);
        self.set_next(slot, self.head(chain));
        self.set_head(chain, Some(slot.0 - self.first_of(set)));
    }

    /// Removes `slot`, which still holds `piece` and is about to be free.
    pub fn remove(&mut self, piece: PieceKey, slot: Frame) {
        let set = self.map.set_of(piece);
        let chain = self.chain_of(set, piece);
        let removed = slot.0 - self.first_of(set);
        let after = self.next(slot);
        let mut way = self.head(chain);
        if way == Some(removed) {
            self.set_head(chain, after);
        }
        while let Some(number) = way {
            let before = self.shape.frame(set, number);
            way = self.next(before);
            if way == Some(removed) {
                self.set_next(before, after);
                way = after;
            }
        }
        self.set_next(slot, None);
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let bytes = match &self.chains {
            Chains::Sets { heads, next } => (heads.capacity() + next.capacity()) * size_of::<u16>(),
            Chains::Whole { heads, next } => (heads.capacity() + next.capacity()) * size_of::<u32>(),
        };
        wide(bytes)
    }

    fn first_of(&self, set: u32) -> u32 {
        set * self.shape.ways
    }

    /// The chain of a piece, among the chains of all sets.
    fn chain_of(&self, set: u32, piece: PieceKey) -> usize {
        let hash = scatter(piece.0) >> 32;
        index(self.first_of(set) + high_u32(hash * u64::from(self.shape.ways)))
    }

    fn head(&self, chain: usize) -> Option<u32> {
        match &self.chains {
            Chains::Sets { heads, .. } => from_u16(heads[chain]),
            Chains::Whole { heads, .. } => from_u32(heads[chain]),
        }
    }

    fn next(&self, slot: Frame) -> Option<u32> {
        match &self.chains {
            Chains::Sets { next, .. } => from_u16(next[slot.at()]),
            Chains::Whole { next, .. } => from_u32(next[slot.at()]),
        }
    }

    fn set_head(&mut self, chain: usize, way: Option<u32>) {
        match &mut self.chains {
            Chains::Sets { heads, .. } => heads[chain] = way.map_or(u16::MAX, |way| to_u16(way)),
            Chains::Whole { heads, .. } => heads[chain] = way.unwrap_or(u32::MAX),
        }
    }

    fn set_next(&mut self, slot: Frame, way: Option<u32>) {
        match &mut self.chains {
            Chains::Sets { next, .. } => next[slot.at()] = way.map_or(u16::MAX, |way| to_u16(way)),
            Chains::Whole { next, .. } => next[slot.at()] = way.unwrap_or(u32::MAX),
        }
    }
}

fn from_u16(way: u16) -> Option<u32> {
    (way != u16::MAX).then_some(u32::from(way))
}

fn from_u32(way: u32) -> Option<u32> {
    (way != u32::MAX).then_some(way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::store::slots::table::set_map::SetMapKind;
    use crate::units::VolumeIndex;
    use std::collections::BTreeMap;

    /// Random arrivals and departures beside an ordered map; at the end every piece is looked for.
    fn behaves_like_a_map(shape: Shape, kind: SetMapKind, seed: u64, steps: u32) {
        let mut prng = Prng::new(seed);
        let mut table = SlotTable::new(shape, 1, false, 1);
        let mut directory = Directory::new(SetMap::new(kind, shape), shape);
        let mut model: BTreeMap<u64, Frame> = BTreeMap::new();
        let mut free: Vec<Vec<Frame>> =
            (0..shape.sets()).map(|set| (0..shape.ways).map(|way| shape.frame(set, way)).collect()).collect();
        let pieces = shape.frames * 2;
        let key = |number: u32| PieceKey::new(VolumeIndex((number % 3) as u8), u64::from(number) << 3);
        for _ in 0..steps {
            let piece = key(prng.below(pieces));
            let set = directory.set_of(piece);
            assert_eq!(directory.find(piece, &table), model.get(&piece.0).copied());
            if let Some(slot) = model.remove(&piece.0) {
                directory.remove(piece, slot);
                table.free(slot);
                free[set as usize].push(slot);
            } else if let Some(slot) = free[set as usize].pop() {
                table.occupy(slot, piece);
                directory.insert(piece, slot, &table);
                model.insert(piece.0, slot);
            }
        }
        for number in 0..pieces {
            let piece = key(number);
            assert_eq!(directory.find(piece, &table), model.get(&piece.0).copied());
        }
        assert_eq!(table.used() as usize, model.len());
    }

    #[test]
    fn a_directory_behaves_like_a_map_with_and_without_sets() {
        for (kind, seed) in [(SetMapKind::Modulo, 1), (SetMapKind::Masked, 2)] {
            behaves_like_a_map(Shape { frames: 24, ways: 8 }, kind, seed, 20_000);
            behaves_like_a_map(Shape { frames: 5 * 512, ways: 512 }, kind, seed, 20_000);
            behaves_like_a_map(Shape::whole(100), kind, seed, 20_000);
            behaves_like_a_map(Shape::whole(70_000), kind, seed, 200_000);
        }
    }

    #[test]
    fn chains_are_short_in_a_full_set() {
        // 2 MiB of consecutive addresses: the pieces that fill a set.
        let shape = Shape { frames: 512, ways: 512 };
        let mut table = SlotTable::new(shape, 1, false, 1);
        let mut directory = Directory::new(SetMap::new(SetMapKind::Modulo, shape), shape);
        for number in 0..512 {
            let piece = PieceKey(u64::from(number));
            table.occupy(Frame(number), piece);
            directory.insert(piece, Frame(number), &table);
        }
        let length = |chain: usize| {
            let mut way = directory.head(chain);
            let mut length = 0;
            while let Some(number) = way {
                length += 1;
                way = directory.next(Frame(number));
            }
            length
        };
        let lengths: Vec<u32> = (0..512).map(length).collect();
        assert_eq!(lengths.iter().sum::<u32>(), 512);
        assert!(lengths.iter().all(|&length| length <= 8), "{lengths:?}");
    }

    #[test]
    #[should_panic(expected = "a piece lies in its set")]
    fn a_piece_is_not_put_into_another_set() {
        let shape = Shape { frames: 8, ways: 4 };
        let mut table = SlotTable::new(shape, 1, false, 1);
        let mut directory = Directory::new(SetMap::new(SetMapKind::Modulo, shape), shape);
        table.occupy(Frame(4), PieceKey(0));
        directory.insert(PieceKey(0), Frame(4), &table);
    }
}
