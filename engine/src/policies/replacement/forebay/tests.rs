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

/// The end of one lap is not in the next one: to keep it gives nothing.
#[test]
fn of_loops_that_get_shorter_the_beginning_stays() {
    // One block comes back at once: otherwise nothing is known, and newcomers enter.
    let blocks: Vec<u64> = [0].into_iter().chain(0..1200).chain(0..900).chain(0..700).collect();
    let (hits, lru_hits) = permille(500, &blocks);
    assert!(lru_hits == 0 && hits > 300, "357 of 1000 are the bound: {hits}");
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

/// Goal: what is cached for longer than ghosts remember is told from what never comes back. Method: each thirtieth access is for
/// one of 100 blocks that stay cached, in turns, the others are for blocks that come once.
#[test]
fn what_stays_cached_for_long_has_lessons_of_its_own() {
    let mut policy = Forebay::new(500);
    let mut kept: Vec<Mark> = (0..100).map(|block| policy.arrives(PieceKey(block))).collect();
    let mut once = kept[0];
    for at in 0..60_000 {
        if at % 30 == 0 {
            let turn = at / 30 % 100;
            let mark = kept[turn];
            policy.accessed(PieceKey(turn as u64), || Some(mark));
            kept[turn] = policy.hit(mark);
        } else {
            let block = PieceKey(1000 + at as u64);
            policy.accessed(block, || None);
            let mark = policy.arrives(block);
            policy.left(block, mark);
            if at == 58_501 {
                once = mark;
            }
        }
    }
    // Both are 1500 accesses old.
    let worths = [kept[50], once].map(|mark| policy.worth(mark).0);
    assert!(worths[0] > 20 * worths[1].max(1), "one comes back for certain, the other one never: {worths:?}");
}

/// Goal: a dead block does not stay for ever. Method: 300 blocks come back by chance, after 3 000 accesses in the mean, so some of
/// them have waited for nearly as long as the horizon is.
#[test]
fn what_is_older_than_the_horizon_is_worth_nothing() {
    let mut policy = Forebay::new(500);
    let mut prng = Prng::new(7);
    let mut kept: Vec<Mark> = (0..300).map(|block| policy.arrives(PieceKey(block))).collect();
    for at in 0..60_000 {
        let block = if at % 10 == 0 { u64::from(prng.below(300)) } else { 1000 + at };
        let mark = kept.get(block as usize).copied();
        policy.accessed(PieceKey(block), || mark);
        if let Some(mark) = mark {
            kept[block as usize] = policy.hit(mark);
        }
    }
    let mut worths_after = |accesses: u64| {
        (0..accesses).for_each(|at| policy.accessed(PieceKey((1 << 40) + at), || None));
        let worths = kept.iter().map(|&mark| policy.worth(mark));
        worths.max()
    };
    assert!(worths_after(0) > Some(Worth(0)));
    assert!(worths_after(3000) > Some(Worth(0)), "most are younger than the horizon");
    assert_eq!(worths_after(5100), Some(Worth(0)), "sixteen sizes are the horizon");
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
