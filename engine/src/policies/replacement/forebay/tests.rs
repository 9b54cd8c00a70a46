use super::ring::Ring;
use super::*;
use crate::prng::{Prng, splitmix};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use proptest::prelude::*;

/// Hits of the policy and of LRU, of a thousand accesses.
fn permille(size: u32, blocks: &[u64]) -> (usize, usize) {
    let mut ring = Ring::new(size);
    let mut lru: VecDeque<u64> = VecDeque::new();
    let (mut hits, mut lru_hits) = (0, 0);
    for &block in blocks {
        hits += usize::from(ring.access(PieceKey(block)));
        match lru.iter().rposition(|&other| other == block) {
            Some(at) => {
                lru.remove(at);
                lru_hits += 1;
            }
            None if lru.len() == size as usize => {
                lru.pop_front();
            }
            None => (),
        }
        lru.push_back(block);
    }
    (hits * 1000 / blocks.len(), lru_hits * 1000 / blocks.len())
}

#[test]
fn a_mark_holds_age_class_and_count() {
    let then = Time { accesses: 70_000 * 8, unit_log: 3, era_units: 100 };
    let mark = Mark::new(then, Class(30), COUNT_MAX);
    let now = Time { accesses: 70_123 * 8 + 7, ..then };
    assert_eq!((mark.age(now), mark.class(), mark.count()), (123, Class(30), COUNT_MAX));
    assert!(mark.0 < 1 << 24, "24 bits are what is promised");
}

#[test]
fn counts_are_halved_with_each_era() {
    let now = Time { accesses: 350, unit_log: 0, era_units: 100 };
    assert_eq!([10, 60, 160, 260, 349].map(|age| now.aged(12, age)), [12, 6, 3, 1, 1]);
}

#[test]
fn classes_tell_distances_and_counts_apart() {
    let classes: BTreeSet<u8> = [1, 4, 9, 20, 100, 300, 1000, 5000]
        .into_iter()
        .flat_map(|distance| (1..=COUNT_MAX).map(move |count| Class::of(distance, count, 200).0))
        .collect();
    assert!(classes.iter().all(|&class| class > 0 && usize::from(class) < Class::COUNT));
    assert_eq!(classes.len(), 30, "each class but that of new blocks is used");
    assert!(Class::of(300, 15, 200).typical_count() > Class::of(300, 1, 200).typical_count());
}

/// Goal: a loop a fifth larger than the cache keeps most of what fits, where LRU keeps nothing.
#[test]
fn a_loop_that_is_too_large_keeps_its_part() {
    for size in [64, 600] {
        let blocks: Vec<u64> = (0..u64::from(size) * 40).map(|at| at % (u64::from(size) * 6 / 5)).collect();
        let (hits, lru_hits) = permille(size, &blocks);
        assert!(lru_hits == 0 && hits > 750, "833 of 1000 are the bound: {hits} with {size} blocks");
    }
}

#[test]
fn a_sweep_to_and_fro_is_as_good_as_lru() {
    let blocks: Vec<u64> = (0..24_000).map(|at| at % 2400).map(|at: u64| at.min(2399 - at)).collect();
    let (hits, lru_hits) = permille(600, &blocks);
    assert!(hits + 15 >= lru_hits && lru_hits > 400, "{hits} {lru_hits}");
}

#[test]
fn a_scan_does_not_push_out_what_is_used() {
    let mut prng = Prng::new(3);
    let blocks: Vec<u64> = (0..24_000)
        .map(|at| if prng.below(2) == 0 { 1 << 30 | at } else { u64::from(prng.below(420)) })
        .collect();
    let (hits, lru_hits) = permille(600, &blocks);
    assert!(hits > 440 && lru_hits < 310, "half of the accesses are to what fits: {hits} {lru_hits}");
}

#[test]
fn a_hot_set_that_jumps_is_followed() {
    let mut prng = Prng::new(4);
    let blocks: Vec<u64> = (0..24_000).map(|at| at / 4800 * 600 + u64::from(prng.below(480))).collect();
    let (hits, lru_hits) = permille(600, &blocks);
    assert!(
        hits + 40 >= lru_hits && lru_hits > 850,
        "what was learned before is unlearned: {hits} {lru_hits}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Goal: the ring is a cache: a block is hit if and only if it was let in and did not leave; it holds no more than
    /// its size, and all of that size once so many blocks came. Method: loads of small loops, jumps and chance beside
    /// plain sets; the same load twice.
    #[test]
    fn the_ring_is_a_cache(size in 1u32..40, universe in 1u64..90, seed in any::<u64>(), kind in 0u8..3) {
        let (mut ring, mut again) = (Ring::new(size), Ring::new(size));
        let (mut state, mut came) = (seed, BTreeSet::new());
        for step in 0..1500u64 {
            let block = match kind {
                0 => step % universe,
                1 => splitmix(&mut state) % universe,
                _ => step / 97 * 7 + splitmix(&mut state) % universe,
            };
            let block = PieceKey(block);
            let (was_in, before) = (ring.contains(block), ring.blocks());
            let is_hit = ring.access(block);
            prop_assert_eq!(is_hit, was_in, "a hit is an access to what is cached");
            prop_assert_eq!(again.access(block), is_hit, "the same load has the same hits");
            came.insert(block.0);
            prop_assert_eq!(ring.blocks(), came.len().min(size as usize), "nothing leaves before it must");
            prop_assert!(is_hit || before < size as usize || ring.blocks() == before);
            prop_assert!(ring.contains(block) || before == size as usize, "there was room");
        }
        let cached = came.iter().filter(|&&block| ring.contains(PieceKey(block))).count();
        prop_assert_eq!(cached, ring.blocks(), "each cached block is found, and once");
    }
}
