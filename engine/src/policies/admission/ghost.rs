//! The ghost history: pieces that were cached recently, without their content.

use crate::number::{high_u32, index, low_u32, to_u8};
use crate::table::key_index::KeyIndex;
use crate::units::PieceKey;
use alloc::vec;
use alloc::vec::Vec;

/// The upper byte of a position that holds no piece; keys stay below 2^39.
const VACANT: u8 = u8::MAX;

/// The last `pieces` pieces that were put in, in that order.
///
/// A ring: a new piece takes the position of the oldest, whether that one is still there or was
/// taken out. About 10 bytes for each position.
#[derive(Clone, Debug)]
pub struct Ghost {
    low: Vec<u32>,
    high: Vec<u8>,
    index: KeyIndex,
    /// The position that the next piece takes.
    next: u32,
}

impl Ghost {
    /// An empty history of at most `pieces` pieces; 0 remembers nothing.
    #[must_use]
    pub fn new(pieces: u32) -> Ghost {
        Ghost {
            low: vec![0; index(pieces)],
            high: vec![VACANT; index(pieces)],
            index: KeyIndex::new(pieces),
            next: 0,
        }
    }

    /// Whether `piece` is remembered.
    #[must_use]
    pub fn contains(&self, piece: PieceKey) -> bool {
        self.index.find(piece.0, |position| self.key(position)).is_some()
    }

    /// Remembers `piece`; one that is remembered already keeps its position.
    pub fn push(&mut self, piece: PieceKey) {
        assert!(piece.0 >> 39 == 0, "a piece's key has 39 bits");
        if self.low.is_empty() || self.contains(piece) {
            return;
        }
        let position = self.next;
        self.next = if index(position) + 1 == self.low.len() { 0 } else { position + 1 };
        if self.high[index(position)] != VACANT {
            self.forget(position);
        }
        self.low[index(position)] = low_u32(piece.0);
        self.high[index(position)] = to_u8(high_u32(piece.0));
        self.index.insert(piece.0, position);
    }

    /// Forgets `piece`; true if it was remembered.
    pub fn take(&mut self, piece: PieceKey) -> bool {
        let found = self.index.find(piece.0, |position| self.key(position));
        if let Some(position) = found {
            self.forget(position);
        }
        found.is_some()
    }

    fn forget(&mut self, position: u32) {
        let (low, high) = (&self.low, &self.high);
        let key_of = |position: u32| key(low, high, position);
        self.index.remove(key_of(position), key_of);
        self.high[index(position)] = VACANT;
    }

    fn key(&self, position: u32) -> u64 {
        key(&self.low, &self.high, position)
    }
}

fn key(low: &[u32], high: &[u8], position: u32) -> u64 {
    u64::from(low[index(position)]) | (u64::from(high[index(position)]) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    /// Goal: the ring forgets in order of arrival. Method: three positions, four pieces, by hand.
    #[test]
    fn the_oldest_makes_room() {
        let mut ghost = Ghost::new(3);
        for piece in 1..=4 {
            ghost.push(PieceKey(piece));
        }
        assert!(!ghost.contains(PieceKey(1)));
        assert!((2..=4).all(|piece| ghost.contains(PieceKey(piece))));
        // Taking 3 leaves a hole; the next piece still takes the position of the oldest, 2.
        assert!(ghost.take(PieceKey(3)));
        assert!(!ghost.take(PieceKey(3)));
        ghost.push(PieceKey(5));
        assert!(!ghost.contains(PieceKey(2)) && ghost.contains(PieceKey(4)) && ghost.contains(PieceKey(5)));
        ghost.push(PieceKey(6));
        assert!(ghost.contains(PieceKey(4)) && ghost.contains(PieceKey(5)) && ghost.contains(PieceKey(6)));
    }

    #[test]
    fn a_history_of_nothing_remembers_nothing() {
        let mut ghost = Ghost::new(0);
        ghost.push(PieceKey(7));
        assert!(!ghost.contains(PieceKey(7)) && !ghost.take(PieceKey(7)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Goal: the same as a queue with holes. Method: random pushes and takes beside one.
        #[test]
        fn behaves_as_a_queue_with_holes(steps in prop::collection::vec((any::<bool>(), 0u64..20), 1..300)) {
            let mut ghost = Ghost::new(8);
            let mut model: VecDeque<Option<u64>> = (0..8).map(|_| None).collect();
            for (pushes, piece) in steps {
                // Keys with all their 39 bits, so that both parts of a key matter.
                let wide = piece * 0x5_0000_0001;
                if pushes {
                    ghost.push(PieceKey(wide));
                    if !model.contains(&Some(wide)) {
                        model.pop_front();
                        model.push_back(Some(wide));
                    }
                } else {
                    let expected = model.contains(&Some(wide));
                    prop_assert_eq!(ghost.take(PieceKey(wide)), expected);
                    model.iter_mut().filter(|slot| **slot == Some(wide)).for_each(|slot| *slot = None);
                }
                for piece in 0..20 {
                    let wide = piece * 0x5_0000_0001;
                    prop_assert_eq!(ghost.contains(PieceKey(wide)), model.contains(&Some(wide)));
                }
            }
        }
    }
}
