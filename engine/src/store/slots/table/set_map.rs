//! The map from pieces to sets.
//!
//! Consecutive pieces belong to one set: as many as it has slots, 2 MiB of addresses with the 512 slots of 4 KiB that
//! are usual, or 256 KiB of them.

use crate::number::{low_u32, to_u32, wide};
use crate::policies::replacement::Shape;
use crate::units::{PieceKey, VOLUMES_MAX};

/// Addresses that stay together where they are hashed. Source: flashcache 3.1.1, `DEFAULT_DISK_ASSOC`; the log of
/// geomflash-2015 says that it was in force.
pub const CLUSTER_BYTES: u32 = 256 << 10;

/// The way in which runs of consecutive pieces are spread over the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMapKind {
    /// The run's number modulo the number of sets. Source: flashcache 3.1.1, `hash_block` without `disk_assoc`.
    Modulo,
    /// The low bits of the run's number, as many as number all sets; what lies beyond the last set begins
    /// again at the first one, which therefore gets more than its share. Source: EnhanceIO, `hash_block`.
    Masked,
    /// A hash of the number of a run of so many pieces, or of a set's if that has fewer, modulo the number of sets.
    /// Source: flashcache 3.1.1, `hash_block`.
    Hashed {
        /// Pieces of a run.
        pieces: u64,
    },
}

/// The map of one cache.
#[derive(Clone, Copy, Debug)]
pub struct SetMap {
    kind: SetMapKind,
    ways: u64,
    sets: u64,
}

impl SetMap {
    /// The map for the sets of `shape`; a cache without sets is one set.
    #[must_use]
    pub fn new(kind: SetMapKind, shape: Shape) -> SetMap {
        SetMap { kind, ways: u64::from(shape.ways), sets: u64::from(shape.sets()) }
    }

    /// The set of `piece`.
    ///
    /// Every volume is moved on by a sixteenth of the sets, so that the beginnings of volumes, which are busy,
    /// do not meet. No published system has several volumes on a cache; the first one lies as theirs does.
    #[must_use]
    pub fn set_of(&self, piece: PieceKey) -> u32 {
        let run = piece.piece() / self.ways;
        let set = match self.kind {
            SetMapKind::Modulo => run % self.sets,
            SetMapKind::Hashed { pieces } => {
                let run = piece.piece() / pieces.min(self.ways);
                u64::from(mixed(low_u32(run ^ (run >> 32)))) % self.sets
            }
            SetMapKind::Masked => {
                let low = run & (self.sets.next_power_of_two() - 1);
                if low >= self.sets { low - self.sets } else { low }
            }
        };
        let moved = u64::from(piece.volume().0) * (self.sets / wide(VOLUMES_MAX));
        to_u32((set + moved) % self.sets)
    }
}

/// One word, mixed. Source: the last step of Bob Jenkins' lookup3, with flashcache's initial value.
fn mixed(word: u32) -> u32 {
    const BEGIN: u32 = 0xdead_beef;
    const SEED: u32 = 0xbeef;
    let (mut a, mut b, mut c) = (word.wrapping_add(BEGIN), BEGIN, SEED);
    for turn in [[14, 11, 25], [16, 4, 14]] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn[0]));
        a = (a ^ c).wrapping_sub(c.rotate_left(turn[1]));
        b = (b ^ a).wrapping_sub(a.rotate_left(turn[2]));
    }
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::VolumeIndex;

    const FLASHCACHE: Shape = Shape { frames: 1000 * 512, ways: 512 };

    fn piece(volume: u8, piece: u64) -> PieceKey {
        PieceKey::new(VolumeIndex(volume), piece)
    }

    #[test]
    fn two_mib_of_consecutive_addresses_are_in_one_set() {
        for kind in [SetMapKind::Modulo, SetMapKind::Masked] {
            let map = SetMap::new(kind, FLASHCACHE);
            for address in (0..2 << 20).step_by(4096) {
                assert_eq!(map.set_of(piece(0, address >> 12)), 0);
                assert_eq!(map.set_of(piece(0, ((2 << 20) + address) >> 12)), 1);
            }
        }
    }

    #[test]
    fn flashcache_goes_round_and_enhanceio_gives_the_first_sets_more() {
        let sets = |kind, runs: [u64; 5]| {
            let map = SetMap::new(kind, FLASHCACHE);
            runs.map(|run| map.set_of(piece(0, run * 512)))
        };
        // 1000 sets: ten bits number 1024.
        assert_eq!(sets(SetMapKind::Modulo, [999, 1000, 1023, 1024, 2047]), [999, 0, 23, 24, 47]);
        assert_eq!(sets(SetMapKind::Masked, [999, 1000, 1023, 1024, 2047]), [999, 0, 23, 0, 23]);
    }

    #[test]
    fn hashed_runs_stay_together_and_are_spread_evenly() {
        let map = SetMap::new(SetMapKind::Hashed { pieces: 64 }, FLASHCACHE);
        let mut runs_of = std::vec![0; 1000];
        for run in 0..100_000 {
            let set = map.set_of(piece(0, run * 64));
            assert_eq!(map.set_of(piece(0, run * 64 + 63)), set);
            runs_of[set as usize] += 1;
        }
        // A hundred runs in the mean, as if by chance.
        assert!(runs_of.iter().all(|runs| (55..155).contains(runs)), "{runs_of:?}");
        let neighbours = (0..1000)
            .filter(|run| map.set_of(piece(0, run * 64)).abs_diff(map.set_of(piece(0, (run + 1) * 64))) <= 1);
        assert!(neighbours.count() < 20, "neighbours are not in neighbouring sets");
        let small = SetMap::new(SetMapKind::Hashed { pieces: 64 }, Shape { frames: 160, ways: 16 });
        assert!((0..16).all(|number| small.set_of(piece(0, number)) == small.set_of(piece(0, 0))));
    }

    #[test]
    fn a_power_of_two_of_sets_makes_both_maps_one() {
        let shape = Shape { frames: 64 * 8, ways: 8 };
        let [modulo, masked] = [SetMapKind::Modulo, SetMapKind::Masked].map(|kind| SetMap::new(kind, shape));
        for number in 0..5000 {
            for volume in [0, 3] {
                assert_eq!(
                    modulo.set_of(piece(volume, number * 7)),
                    masked.set_of(piece(volume, number * 7))
                );
            }
        }
    }

    #[test]
    fn every_set_is_reached_and_volumes_begin_apart() {
        for kind in [SetMapKind::Modulo, SetMapKind::Masked] {
            for sets in [1, 3, 16, 100] {
                let map = SetMap::new(kind, Shape { frames: sets * 4, ways: 4 });
                for volume in [0, 1, 15] {
                    let mut reached = std::vec![false; sets as usize];
                    for number in 0..4 * u64::from(sets) {
                        reached[map.set_of(piece(volume, number)) as usize] = true;
                    }
                    assert!(reached.into_iter().all(|reached| reached));
                    assert_eq!(map.set_of(piece(volume, 0)), u32::from(volume) * (sets / 16));
                }
            }
        }
    }

    #[test]
    fn without_sets_every_piece_is_in_the_one() {
        let map = SetMap::new(SetMapKind::Modulo, Shape::whole(1000));
        assert!((0..100).all(|number| map.set_of(piece(9, number << 28)) == 0));
    }
}
