//! The index against an ordered map, and its size against what is promised.

use super::*;
use crate::limits::Config;
use crate::pair::Half;
use crate::prng::splitmix;
use crate::units::{VOLUME_BLOCKS_MAX, VolumeIndex};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;
use std::eprintln;

type Model = BTreeMap<BlockKey, Entry>;

/// Checks I1 to I3 by a look at every entry.
fn check(index: &Index) {
    let mut blocks = index.singles.len();
    index.groups.for_each(&index.pages, |hash, tag, row| {
        let head = GroupHead::read(row);
        assert_eq!(tag, 0);
        assert_eq!(
            head.valid & index.singles.tags(&index.pages, hash),
            0,
            "I1: a block is in one table at most"
        );
        assert!(head.valid.count_ones() >= GROUP_BLOCKS_MIN, "I2: a smaller group is dissolved");
        blocks += u64::from(head.valid.count_ones());
    });
    assert_eq!(blocks, index.len(), "I3: the length counts singles and valid bits of groups");
}

fn all(index: &Index) -> Model {
    let mut found = Model::new();
    index.for_each(|key, entry| {
        assert!(found.insert(key, entry).is_none(), "I1: a block is in one table at most");
    });
    found
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes a run at the next free place, or some places further on.
    Insert {
        first: u64,
        blocks: u64,
        gap: u32,
        dirty: bool,
        hits: u8,
    },
    /// Writes blocks one by one to consecutive places.
    Stream {
        first: u64,
        blocks: u64,
        dirty: bool,
        hits: u8,
    },
    Remove {
        first: u64,
    },
    RemoveRange {
        first: u64,
        blocks: u64,
    },
    SetDirty {
        at: usize,
        dirty: bool,
    },
    Touch {
        at: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Two volumes; nearly all runs overlap others, some lie at the volume's end.
    let first = prop_oneof![
        6 => 0..600_u64,
        2 => (0..600_u64).prop_map(|block| (1 << 35) + block),
        1 => 0..1_u64 << 39,
        1 => Just(BlockKey::END - 100),
    ];
    let step = prop_oneof![
        6 => (first.clone(), 1..70_u64, 0..3_u32, any::<bool>(), 0..3_u8)
            .prop_map(|(first, blocks, gap, dirty, hits)| Step::Insert { first, blocks, gap, dirty, hits }),
        2 => (first.clone(), 1..40_u64, any::<bool>(), 0..3_u8)
            .prop_map(|(first, blocks, dirty, hits)| Step::Stream { first, blocks, dirty, hits }),
        4 => first.clone().prop_map(|first| Step::Remove { first }),
        1 => (first, prop_oneof![1..200_u64, Just(1 << 34)])
            .prop_map(|(first, blocks)| Step::RemoveRange { first, blocks }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(at, dirty)| Step::SetDirty { at, dirty }),
        3 => any::<usize>().prop_map(|at| Step::Touch { at }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// The index and what it should say.
struct Pair {
    index: Index,
    model: Model,
    next_place: u32,
    names_halves: bool,
}

impl Pair {
    fn insert(&mut self, first: u64, blocks: u64, dirty: bool, hits: u8) {
        let place = Place(self.next_place);
        let place = match self.next_place % 3 {
            at @ 0..2 if self.names_halves && !dirty => place.of_half(Half::BOTH[at as usize]),
            _ => place,
        };
        self.next_place += blocks as u32;
        let checksums: Vec<u32> =
            (0..blocks as u32).map(|at| (place.0 + at).wrapping_mul(0x9e37_79b9)).collect();
        let run = Run { first: BlockKey(first), place, dirty, hits, checksums: &checksums };
        let mut replaced = Model::new();
        self.index.insert(run, |key, entry| assert!(replaced.insert(key, entry).is_none()));
        let mut expected = Model::new();
        for at in 0..blocks {
            let key = BlockKey(first + at);
            let entry =
                Entry { place: Place(place.0 + at as u32), dirty, hits, checksum: checksums[at as usize] };
            assert_eq!(self.index.get(key), Some(entry), "a block has the hits that it came with");
            if let Some(old) = self.model.insert(key, entry) {
                expected.insert(key, old);
            }
        }
        assert_eq!(replaced, expected);
    }

    fn remove_range(&mut self, first: u64, blocks: u64) {
        let mut removed = Model::new();
        self.index.remove_range(BlockKey(first), blocks, |key, entry| {
            assert!(removed.insert(key, entry).is_none());
        });
        let keys = BlockKey(first)..BlockKey(first + blocks);
        let expected: Model = self.model.range(keys.clone()).map(|(&key, &entry)| (key, entry)).collect();
        self.model.retain(|key, _| !keys.contains(key));
        assert_eq!(removed, expected);
    }

    fn nth(&self, at: usize) -> Option<BlockKey> {
        self.model.keys().nth(at.checked_rem(self.model.len())?).copied()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Insert { first, blocks, gap, dirty, hits } => {
                self.next_place += gap;
                self.insert(first, blocks.min(BlockKey::END - first), dirty, hits);
            }
            Step::Stream { first, blocks, dirty, hits } => {
                let blocks = first..(first + blocks).min(BlockKey::END);
                blocks.for_each(|block| self.insert(block, 1, dirty, hits));
            }
            Step::Remove { first } => {
                let key = BlockKey(first);
                assert_eq!(self.index.remove(key), self.model.remove(&key));
                assert_eq!(self.index.get(key), None);
            }
            Step::RemoveRange { first, blocks } => {
                self.remove_range(first, blocks.min(BlockKey::END - first));
            }
            Step::SetDirty { at, dirty } => {
                let Some(key) = self.nth(at) else { return };
                if dirty && self.names_halves && self.model[&key].place.half().is_some() {
                    return;
                }
                self.index.set_dirty(key, dirty);
                self.model.get_mut(&key).unwrap().dirty = dirty;
            }
            Step::Touch { at } => {
                let Some(key) = self.nth(at) else { return };
                let entry = self.model[&key];
                assert_eq!(self.index.hit(key, |_| false), None, "an entry that is not accepted is none");
                assert_eq!(self.index.get(key), Some(entry), "what is not accepted is not hit");
                assert_eq!(self.index.hit(key, |_| true), Some(entry));
                self.model.get_mut(&key).unwrap().hits = (entry.hits + 1).min(3);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn it_is_an_ordered_map(steps in steps(), names_halves in any::<bool>()) {
        let mut pair = Pair { index: Index::new(0), model: Model::new(), next_place: 3, names_halves };
        if names_halves {
            pair.index.name_halves();
        }
        for step in steps {
            pair.apply(step);
            prop_assert_eq!(pair.index.len(), pair.model.len() as u64);
        }
        check(&pair.index);
        prop_assert_eq!(&all(&pair.index), &pair.model);
        let keys: Vec<BlockKey> = pair.model.keys().copied().collect();
        for key in keys {
            prop_assert_eq!(pair.index.get(key), Some(pair.model[&key]));
        }
        // What is left is taken away in one go.
        pair.remove_range(0, BlockKey::END);
        prop_assert!(pair.index.is_empty() && pair.model.is_empty());
        prop_assert_eq!(pair.index.pages.in_use(), 2);
    }
}

// ---- size --------------------------------------------------------------------------------

/// A repeatable stream of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        splitmix(&mut self.0)
    }
}

fn insert(index: &mut Index, first: u64, place: u32, checksums: &[u32]) {
    let run = Run { first: BlockKey(first), place: Place(place), dirty: true, hits: 0, checksums };
    index.insert(run, |_, _| ());
}

fn bytes_per_block(index: &Index) -> f64 {
    index.allocated_bytes() as f64 / index.len() as f64
}

/// Watches the size of an index that grows from 100 000 to 1 000 000 blocks.
struct Watch {
    name: &'static str,
    limit: f64,
    worst: f64,
}

impl Watch {
    fn new(name: &'static str, limit: f64) -> Watch {
        Watch { name, limit, worst: 0.0 }
    }

    fn look(&mut self, index: &Index) {
        let bytes = bytes_per_block(index);
        if index.len() >= 100_000 {
            self.worst = self.worst.max(bytes);
            assert!(bytes <= self.limit, "{}: {bytes:.2} B at {} blocks", self.name, index.len());
        }
        if matches!(index.len(), 100_000 | 300_000 | 1_000_000) {
            eprintln!("{}: {bytes:.2} B a block at {}", self.name, index.len());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        eprintln!("{}: {:.2} B a block at the worst", self.name, self.worst);
    }
}

#[test]
fn scattered_blocks_take_sixteen_bytes_at_any_size() {
    let mut index = Index::new(1 << 30);
    let mut watch = Watch::new("scattered", 16.0);
    for number in 0..1_000_000_u64 {
        let block = number * 1_000_003 % VOLUME_BLOCKS_MAX;
        insert(&mut index, block, (number * 7 % u64::from(Place::END)) as u32, &[number as u32]);
        watch.look(&index);
    }
    // Evicted down to a tenth, the memory in use shrinks with the blocks.
    for number in 0..900_000_u64 {
        index.remove(BlockKey(number * 1_000_003 % VOLUME_BLOCKS_MAX)).unwrap();
    }
    let used = (index.allocated_bytes() - index.pages.free_bytes()) as f64 / index.len() as f64;
    assert!(used <= 16.0, "{used:.2} B");
}

#[test]
fn blocks_written_at_random_into_one_region_take_sixteen_bytes() {
    let mut index = Index::new(1 << 30);
    let mut watch = Watch::new("dense", 16.0);
    for number in 0..1_000_000_u64 {
        // Odd steps modulo a power of two reach every block once.
        let block = (number * 514_229) % (1 << 20);
        insert(&mut index, block, number as u32, &[number as u32]);
        watch.look(&index);
    }
}

#[test]
fn long_runs_take_six_bytes_at_any_size_and_grow_as_they_are_broken() {
    let mut index = Index::new(1 << 30);
    let mut watch = Watch::new("sequential", 6.0);
    let checksums: Vec<u32> = (0..40).collect();
    let mut place = 0;
    for number in 0..1_000_000_u64 / 40 {
        // A block of the log's own now and then, so that runs do not all join up.
        place += u32::from(number % 25 == 0);
        insert(&mut index, number * 40, place, &checksums);
        place += 40;
        watch.look(&index);
    }
    drop(watch);
    let mut random = Random(1);
    for _ in 0..300_000 {
        insert(&mut index, random.next() % 1_000_000, place, &[7]);
        place += 1;
    }
    check(&index);
    let bytes = bytes_per_block(&index);
    eprintln!("sequential, 30 % overwritten: {bytes:.2} B a block");
    assert!(bytes <= 16.0);
    for _ in 0..1_700_000 {
        insert(&mut index, random.next() % 1_000_000, place, &[7]);
        place += 1;
        if place.is_multiple_of(100_000) {
            assert!(bytes_per_block(&index) <= 16.0, "{:.2} B", bytes_per_block(&index));
        }
    }
    check(&index);
}

#[test]
fn blocks_written_in_order_one_by_one_take_six_bytes() {
    let mut index = Index::new(1 << 30);
    let mut watch = Watch::new("one by one", 6.0);
    for block in 0..300_000_u64 {
        insert(&mut index, block, block as u32 + 5, &[block as u32]);
        watch.look(&index);
    }
    check(&index);
    // Copied elsewhere one by one, they come together again.
    for block in 0..300_000_u64 {
        insert(&mut index, block, 1_000_000 + block as u32, &[block as u32]);
    }
    check(&index);
    assert!(bytes_per_block(&index) <= 6.0);
}

/// A daemon gives the index 16 bytes for each block of the cache and 4 MiB: however scattered they are, all of them have room
/// before the ring is to be emptied for memory.
#[test]
fn what_a_cache_holds_has_room_in_its_memory() {
    for segments in [1 << 10, 1 << 13] {
        let blocks = u64::from(segments) * 256;
        let slack_blocks = Config::for_cache(segments, 256).index_slack_blocks;
        let mut random = Random(11);
        let mut index = Index::new(blocks * 16 + (4 << 20));
        for block in 0..blocks {
            let is_near = index.is_near_budget(slack_blocks);
            assert!(!is_near, "{block} of {blocks} scattered blocks: {} bytes", index.allocated_bytes());
            insert(&mut index, random.next() % VOLUME_BLOCKS_MAX, block as u32, &[0]);
        }
    }
}

#[test]
fn a_budget_is_never_exceeded_whatever_comes() {
    let mut random = Random(7);
    for budget_bytes in [0, 3 << 20, 6 << 20] {
        let mut index = Index::new(budget_bytes);
        assert!(index.allocated_bytes() < 40 << 10, "a small allocation at the start");
        assert!(!index.is_tight(64));
        let checksums: Vec<u32> = (0..64).collect();
        let mut oldest = std::collections::VecDeque::new();
        for round in 0..200_000_u64 {
            // Long runs, short ones and scattered blocks, by turns.
            let (blocks, blocks_at) = match round / 20_000 % 4 {
                0 => (1, random.next() % VOLUME_BLOCKS_MAX),
                1 => (64, random.next() % 10_000 * 64),
                2 => (1, random.next() % 640_000),
                _ => (1 + random.next() % 20, random.next() % (1 << 22)),
            };
            while index.is_tight(64) {
                let (first, blocks) = oldest.pop_front().expect("a budget holds some blocks");
                index.remove_range(BlockKey(first), blocks, |_, _| ());
            }
            insert(&mut index, blocks_at, random.next() as u32 % (1 << 28), &checksums[..blocks as usize]);
            oldest.push_back((blocks_at, blocks));
            assert!(index.allocated_bytes() <= index.budget_bytes());
        }
        check(&index);
        // The reserve is not so large that the budget could not be used.
        let used = index.allocated_bytes() - index.pages.free_bytes();
        assert!(used + (500 << 10) > index.budget_bytes(), "{used} of {}", index.budget_bytes());
    }
}

// ---- single rules ------------------------------------------------------------------------

#[test]
fn volumes_and_far_ends_do_not_collide() {
    let mut index = Index::new(0);
    for volume in 0..16 {
        for block in [0, 15, 16, VOLUME_BLOCKS_MAX - 1] {
            let key = BlockKey::new(VolumeIndex(volume), block);
            insert(&mut index, key.0, u32::from(volume) * 100 + (block % 64) as u32, &[9]);
        }
    }
    assert_eq!(index.len(), 64);
    insert(&mut index, BlockKey::END - 16, Place::END - 16, &[1; 16]);
    assert_eq!(index.get(BlockKey(BlockKey::END - 1)).unwrap().place, Place(Place::END - 1));
    assert_eq!(index.len(), 79);
}

#[test]
fn the_blocks_of_a_group_have_hits_of_their_own_and_a_new_block_has_none() {
    let mut index = Index::new(0);
    insert(&mut index, 32, 100, &[1; 12]);
    index.touch(BlockKey(32));
    index.touch(BlockKey(33));
    index.touch(BlockKey(33));
    insert(&mut index, 44, 112, &[1; 4]);
    assert_eq!((index.singles.len(), index.groups.len()), (0, 1));
    assert_eq!([32, 33, 40, 44].map(|block| index.get(BlockKey(block)).unwrap().hits), [1, 2, 0, 0]);
    index.touch(BlockKey(1));
    assert_eq!(index.get(BlockKey(1)), None);
}

#[test]
fn blocks_that_come_one_by_one_share_a_group() {
    let mut index = Index::new(0);
    for block in 32_u64..48 {
        let (place, hits) = (Place(100 + block as u32), (block % 4) as u8);
        index.insert(Run { first: BlockKey(block), place, dirty: false, hits, checksums: &[7] }, |_, _| ());
    }
    assert_eq!((index.singles.len(), index.groups.len()), (0, 1));
    assert_eq!([34, 35, 36].map(|block| index.get(BlockKey(block)).unwrap().hits), [2, 3, 0]);
}

#[test]
#[should_panic(expected = "is cached")]
fn an_absent_block_cannot_be_marked() {
    Index::new(0).set_dirty(BlockKey(5), true);
}

#[test]
fn samples_reach_every_block_evenly() {
    let mut index = Index::new(0);
    assert!(index.sample(&mut || 0).is_none());
    for block in 0..40 {
        insert(&mut index, block * 1000, block as u32, &[1]);
    }
    insert(&mut index, 100_000, 500, &[2; 40]);
    for block in 100_010..100_018 {
        index.remove(BlockKey(block));
    }
    let mut random = Random(3);
    let mut times = BTreeMap::new();
    for _ in 0..72_000 {
        let (key, entry) = index.sample(&mut || random.next()).unwrap();
        assert_eq!(index.get(key), Some(entry));
        *times.entry(key).or_insert(0) += 1;
    }
    assert_eq!(times.len(), 72);
    assert!(times.values().all(|times| (800..1200).contains(times)), "{times:?}");
}

// ---- parts -------------------------------------------------------------------------------

#[test]
fn a_volume_leaves_in_parts_of_which_each_is_small() {
    const BLOCKS: u64 = 1 << 20;
    const PARTS: u32 = 16;
    let (mut index, mut random, mut place) = (Index::new(0), Random(7), 1);
    let mut add = |index: &mut Index, from: u64, count: u32| {
        for _ in 0..count {
            insert(index, from + random.next() % BLOCKS, place, &[place]);
            place += 2;
        }
    };
    add(&mut index, 0, 30_000);
    let volume = BlockKey(0)..BlockKey(BLOCKS);
    for part in 0..PARTS {
        let mut removed = 0;
        index.remove_part(volume.clone(), (part, PARTS), |key, _| {
            assert!(volume.contains(&key), "another volume stays");
            removed += 1;
        });
        assert!(removed < 2 * 30_000 / PARTS, "part {part} has {removed} blocks");
        // The table grows while the volume leaves.
        add(&mut index, BLOCKS, 5000);
        check(&index);
    }
    index.for_each(|key, _| assert!(!volume.contains(&key), "all of it left"));
}
