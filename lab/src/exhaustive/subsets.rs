//! Subsets of the writes at stake, and cuts that keep them.

use crate::disk::Fate;
use crate::random::Random;
use crate::world::World;

/// Number of writes at stake of which every subset is tried.
pub const FEW_WRITES: usize = 6;
/// Subsets that are tried of more writes.
pub const SAMPLED_SUBSETS: u64 = 24;

/// All subsets of so many, as bits; of many a sample in which none and all are.
pub(super) fn subsets(count: usize, random: &mut Random) -> Vec<u64> {
    if count <= FEW_WRITES {
        return (0..1 << count).collect();
    }
    let mut sample = vec![0, u64::MAX];
    sample.extend((2..SAMPLED_SUBSETS).map(|_| random.next_u64()));
    sample
}

/// Whether a write is in a subset.
pub(super) fn is_in(subset: u64, at: usize) -> bool {
    subset >> (at % 64) & 1 == 1
}

/// Fate of a write by the subset that is kept.
pub(super) fn fate(kept: u64, at: usize) -> Fate {
    if is_in(kept, at) { Fate::Kept } else { Fate::Lost }
}

/// Cuts the power; only a subset of the writes is kept.
pub(super) fn cut(world: &mut World, kept: u64) {
    let mut at = 0;
    world.cut_power(|_| {
        at += 1;
        fate(kept, at - 1)
    });
}

/// A torn write: some of its sectors are kept, but neither all nor none if there are two or more.
pub(super) fn tear(count: u64, random: &mut Random) -> Fate {
    let unit = if count > 8 && random.one_in(2) { 8 } else { 1 };
    let pieces = count.div_ceil(unit);
    let mut kept: Vec<bool> = (0..pieces).map(|_| random.one_in(2)).collect();
    let flipped = random.below(pieces) as usize;
    if kept.iter().all(|&other| other == kept[0]) {
        kept[flipped] = !kept[flipped];
    }
    Fate::Torn((0..count).map(|sector| kept[(sector / unit) as usize]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_have_all_subsets_and_many_a_sample_with_none_and_all() {
        let mut random = Random::new(1);
        assert_eq!(subsets(0, &mut random), [0]);
        assert_eq!(subsets(3, &mut random), [0, 1, 2, 3, 4, 5, 6, 7]);
        let sample = subsets(FEW_WRITES + 1, &mut random);
        assert_eq!(sample.len() as u64, SAMPLED_SUBSETS);
        assert!(sample.contains(&0) && sample.contains(&u64::MAX));
    }

    #[test]
    fn a_torn_write_is_neither_whole_nor_gone() {
        let mut random = Random::new(1);
        for count in 2..40 {
            let Fate::Torn(kept) = tear(count, &mut random) else { panic!("torn") };
            assert_eq!(kept.len() as u64, count);
            assert!(kept.contains(&true) && kept.contains(&false));
        }
    }
}
