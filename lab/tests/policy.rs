//! The policy `forebay` alone, on blocks of a trace and on loads that are made up: floors under its hit ratios.
//!
//! The traces of the literature are too large to be kept here; `docs/systems/replacement.md` has the figures on them.

use engine::policies::replacement::forebay::ring::Ring;
use engine::prng::Prng;
use engine::units::PieceKey;
use forebay_lab::curve::distances::StackDistances;
use forebay_lab::trace::{Reading, read};

/// Hit ratios in percent: of the policy, and of LRU.
struct Ratios {
    forebay: f64,
    lru: f64,
}

fn ratios(size: u32, blocks: impl IntoIterator<Item = u64>) -> Ratios {
    let mut ring = Ring::new(size);
    let mut distances = StackDistances::default();
    let (mut accesses, mut hits, mut lru_hits) = (0, 0, 0);
    for block in blocks {
        accesses += 1;
        hits += u32::from(ring.access(PieceKey(block)));
        lru_hits +=
            u32::from(distances.access((0, block)).is_some_and(|distance| distance < u64::from(size)));
        assert!(ring.blocks() <= size as usize, "a cache holds no more than its size");
    }
    let percent = |hits: u32| f64::from(hits) * 100.0 / f64::from(accesses);
    Ratios { forebay: percent(hits), lru: percent(lru_hits) }
}

fn excerpt() -> Vec<u64> {
    let bytes = include_bytes!("traces/cloudphysics-w106.u32le.xz").as_slice();
    let mut source =
        read("cloudphysics-w106.u32le.xz", bytes, Reading::default()).expect("it is well-formed");
    std::iter::from_fn(|| source.next_entry().expect("it is well-formed"))
        .map(|entry| entry.range.first_block())
        .collect()
}

/// Ranks of a zipf distribution with exponent 1, below `end`.
fn zipf(end: u32, prng: &mut Prng) -> u64 {
    let chance = f64::from(prng.next_u32()) / f64::from(u32::MAX);
    f64::from(end).powf(chance) as u64
}

#[test]
fn a_real_trace_has_more_hits_than_with_lru() {
    let blocks = excerpt();
    for (size, floor) in [(622, 80.5), (1245, 84.0), (3112, 88.0)] {
        let Ratios { forebay, lru } = ratios(size, blocks.iter().copied());
        assert!(forebay >= floor && forebay >= lru - 0.5, "{size} blocks: {forebay} %, LRU {lru} %");
    }
}

#[test]
fn no_load_is_much_worse_than_with_lru() {
    const SIZE: u32 = 1000;
    let size = u64::from(SIZE);
    let mut prng = Prng::new(5);
    let steady: Vec<u64> = (0..40_000).map(|_| zipf(10 * SIZE, &mut prng)).collect();
    let moving: Vec<u64> = (0..40_000).map(|at| zipf(10 * SIZE, &mut prng) + at / 3000 * 250).collect();
    let mixed: Vec<u64> =
        (0..40_000).map(|at| if at % 2 == 0 { 1 << 40 | at } else { u64::from(prng.below(700)) }).collect();
    let looped: Vec<u64> = (0..40_000).map(|at| at % (size * 6 / 5)).collect();
    let swept: Vec<u64> = (0..40_000).map(|at| at % (4 * size)).map(|at| at.min(4 * size - 1 - at)).collect();
    // Blocks come back by chance for a while, and then never; nothing tells which.
    let dying: Vec<u64> = (0..200_000).map(|at| at / 10 + u64::from(prng.below(8 * SIZE))).collect();
    // The least gain over LRU, in points.
    for (load, blocks, gain) in [
        ("zipf", steady, 3.0),
        ("zipf whose head moves", moving, -0.5),
        ("hot blocks beside a scan", mixed, 15.0),
        ("a loop that is too large", looped, 75.0),
        ("a sweep to and fro", swept, -1.0),
        ("a window that moves on", dying, -1.0),
    ] {
        let Ratios { forebay, lru } = ratios(SIZE, blocks);
        assert!(forebay >= lru + gain, "{load}: {forebay} %, LRU {lru} %");
    }
}
