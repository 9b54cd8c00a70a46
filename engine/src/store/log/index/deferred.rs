//! An index in the making: what a replay says of blocks waits, and is carried out part by part of the table.
//!
//! A log has its blocks in the order of their writing, and each is somewhere else in the index: carried out at once, a change
//! waits for memory five times and more. Changes that wait are kept by the low bits of their hashes, which choose the buckets:
//! so those of one part touch the same few buckets, which stay near the processor. Of one block all changes are in one part, in
//! their order, and no change depends on another block. So the index is the same in the end.
//!
//! What waits is as large as what it becomes, and the first touch of memory costs more than all else. So it waits in pages, and
//! the table takes those of one part when that is carried out.
//!
//! * I1: changes of one block are carried out in the order in which they came.
//! * I2: what waits takes no more than half of what the budget has left, or [`WAITING_BYTES_MIN`] if that is more, and one page
//!   for each part.

use super::permutation::permute;
use super::sums::Sums;
use super::{Entry, GROUP_BLOCKS, GROUP_BLOCKS_NEW, Index, Run, split};
use crate::number::{index, index_wide, low_u32, to_u32, wide};
use crate::table::page::{PAGE_BYTES, PAGE_WORDS, PageWords};
use crate::units::{BlockKey, Place};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Parts of the table at the most: each has its buckets in a processor's own memory then, also in a table for a tebibyte.
const PARTS_MAX: u64 = 1 << 10;
/// Bytes that may wait, however small the budget is.
const WAITING_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a block alone and of a group in the index, about.
const SINGLE_BYTES: u64 = 16;
const GROUP_BYTES: u64 = 90;
/// Longer ranges are taken away at once.
const REMOVED_BLOCKS_MAX: u64 = 64 * GROUP_BLOCKS;
/// Words of a step before its checksums.
const STEP_WORDS: usize = 3;
/// So many steps before its turn the memory of a step is asked for.
const LEAD_STEPS: usize = 8;

const KEY_BITS: u32 = BlockKey::END.trailing_zeros();
const BLOCKS_BITS: u32 = GROUP_BLOCKS.trailing_zeros();

/// A change of blocks of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    InsertClean,
    InsertDirty,
    Remove,
    /// If they lie there.
    RemoveAt,
    /// If they are clean and lie there.
    Evict,
    /// If they are dirty and lie there.
    Clean,
}

impl Change {
    const ALL: [Change; 6] = [
        Change::InsertClean,
        Change::InsertDirty,
        Change::Remove,
        Change::RemoveAt,
        Change::Evict,
        Change::Clean,
    ];

    /// Its place among all.
    fn number(self) -> u64 {
        match self {
            Change::InsertClean => 0,
            Change::InsertDirty => 1,
            Change::Remove => 2,
            Change::RemoveAt => 3,
            Change::Evict => 4,
            Change::Clean => 5,
        }
    }
}

/// A change that waits.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// From the lowest bits: the first block, one less than the number of blocks, the change.
    packed: u64,
    place: Place,
}

impl Step {
    fn new(change: Change, first: BlockKey, blocks: u64, place: Place) -> Step {
        let packed = first.0 | (blocks - 1) << KEY_BITS | change.number() << (KEY_BITS + BLOCKS_BITS);
        Step { packed, place }
    }

    /// Reads it from the words of a page.
    fn read(words: &[u32]) -> Step {
        Step { packed: u64::from(words[0]) | u64::from(words[1]) << u32::BITS, place: Place(words[2]) }
    }

    /// Its words on a page; those of an insertion have checksums behind them.
    fn words(self) -> [u32; STEP_WORDS] {
        [low_u32(self.packed), low_u32(self.packed >> u32::BITS), self.place.0]
    }

    fn change(self) -> Change {
        Change::ALL[index_wide(self.packed >> (KEY_BITS + BLOCKS_BITS))]
    }

    fn first(self) -> BlockKey {
        BlockKey(self.packed & (BlockKey::END - 1))
    }

    fn blocks(self) -> u64 {
        (self.packed >> KEY_BITS & (GROUP_BLOCKS - 1)) + 1
    }

    /// Blocks of which it has the checksums.
    fn checksums(self) -> usize {
        match self.change() {
            Change::InsertClean | Change::InsertDirty => index_wide(self.blocks()),
            _ => 0,
        }
    }

    /// Carries it out, and changes the sums if there are any; an insertion has the checksums of its blocks.
    fn carry_out(self, index: &mut Index, checksums: &[u32], sums: &mut Option<Box<Sums>>) {
        let (first, blocks, place) = (self.first(), self.blocks(), self.place);
        let mut takes = |key, old| {
            if let Some(sums) = sums {
                sums.take(key, old);
            }
        };
        let each = (0..blocks).map(|step| (first.plus(step), Place(place.0.wrapping_add(to_u32(step)))));
        let lies_at = |index: &Index, key, place| index.get(key).filter(|entry: &Entry| entry.place == place);
        match self.change() {
            Change::Remove => index.remove_range(first, blocks, takes),
            // A smaller budget than before: clean data is dropped, dirty data never.
            Change::InsertClean if index.is_tight(blocks) => {
                index.leave_out();
                index.remove_range(first, blocks, takes);
            }
            change @ (Change::InsertClean | Change::InsertDirty) => {
                let dirty = change == Change::InsertDirty;
                index.insert(Run { first, place, dirty, hits: 0, checksums }, takes);
                if let Some(sums) = sums {
                    sums.put(first, to_u32(blocks), place, dirty);
                }
            }
            Change::RemoveAt => {
                for (key, place) in each {
                    if let Some(entry) = lies_at(index, key, place) {
                        index.remove(key);
                        takes(key, entry);
                    }
                }
            }
            Change::Evict => {
                for (key, place) in each {
                    if let Some(entry) = lies_at(index, key, place).filter(|entry| !entry.dirty) {
                        index.remove(key);
                        takes(key, entry);
                    }
                }
            }
            Change::Clean => {
                for (key, place) in each {
                    if lies_at(index, key, place).is_some_and(|entry| entry.dirty) {
                        index.set_dirty(key, false);
                        if let Some(sums) = sums {
                            sums.clean(key, place);
                        }
                    }
                }
            }
        }
    }
}

/// Changes that wait for one part of the table, in their order.
#[derive(Debug, Default)]
struct Part {
    pages: Vec<WaitingPage>,
}

/// A page of steps that wait: as many of its words are used.
#[derive(Debug)]
struct WaitingPage {
    words: Box<PageWords>,
    used: usize,
}

impl WaitingPage {
    fn carry_out(&self, index: &mut Index, sums: &mut Option<Box<Sums>>) {
        let mut words = &self.words[..self.used];
        let (mut ahead, mut lead) = (words, 0);
        while !words.is_empty() {
            while lead < LEAD_STEPS && !ahead.is_empty() {
                let step = Step::read(ahead);
                index.load_part_ahead(step.first(), to_u32(step.blocks()));
                ahead = &ahead[STEP_WORDS + step.checksums()..];
                lead += 1;
            }
            let step = Step::read(words);
            let (checksums, rest) = words[STEP_WORDS..].split_at(step.checksums());
            step.carry_out(index, checksums, sums);
            words = rest;
            lead -= 1;
        }
    }
}

impl Part {
    /// Appends a step. Answers whether it took one more page.
    fn push(&mut self, step: Step, checksums: &[u32]) -> bool {
        let words = STEP_WORDS + checksums.len();
        let is_full = self.pages.last().is_none_or(|page| page.used + words > PAGE_WORDS);
        if is_full {
            self.pages.push(WaitingPage { words: Box::new([0; PAGE_WORDS]), used: 0 });
        }
        let page = self.pages.last_mut().expect("a page with room");
        let (head, rest) = page.words[page.used..page.used + words].split_at_mut(STEP_WORDS);
        head.copy_from_slice(&step.words());
        rest.copy_from_slice(checksums);
        page.used += words;
        is_full
    }
}

/// An index in the making.
#[derive(Debug)]
pub struct DeferredIndex {
    index: Index,
    /// As many as a power of two; none if nothing waits ever.
    parts: Vec<Part>,
    pages: u64,
    /// Blocks that are inserted, at the most: alone, and in groups.
    singles: u64,
    groups: u64,
    pages_max: u64,
    /// Sums over the index, if a checkpoint was loaded and nobody else changed it.
    sums: Option<Box<Sums>>,
}

impl DeferredIndex {
    /// An empty index with a budget as [`Index::new`] has it. If it does not defer, each change is carried out at once.
    pub fn new(budget_bytes: u64, defers: bool) -> DeferredIndex {
        let index = Index::new(budget_bytes);
        let mut deferred = DeferredIndex {
            index,
            parts: Vec::new(),
            pages: 0,
            singles: 0,
            groups: 0,
            pages_max: 0,
            sums: None,
        };
        if defers {
            deferred.measure_room();
        }
        deferred
    }

    /// The index, with all that waited; what is changed in it comes after. Nobody keeps sums of that.
    pub fn settled(&mut self) -> &mut Index {
        self.carry_out();
        self.sums = None;
        &mut self.index
    }

    /// The index, with room for what a checkpoint has, if the budget allows that. [`DeferredIndex::loaded`] comes next.
    pub fn prepare(&mut self, singles: u64, groups: u64) -> &mut Index {
        self.carry_out();
        self.reserve_for(singles, groups);
        &mut self.index
    }

    /// A checkpoint was loaded into it, over which these are the sums.
    pub fn loaded(&mut self, sums: Sums) {
        self.sums = Some(Box::new(sums));
        if !self.parts.is_empty() {
            self.measure_room();
        }
    }

    /// Whether there are sums over it.
    pub fn has_sums(&self) -> bool {
        self.sums.is_some()
    }

    /// The index, with all that waited, and the sums over it. If there are none, each run of blocks in it is given to `found`, as
    /// [`Index::for_each_run`] does.
    pub fn finish(mut self, mut found: impl FnMut(BlockKey, u32, Place, bool)) -> (Index, Option<Box<Sums>>) {
        let parts = to_u32(self.parts.len());
        self.reserve();
        if self.has_sums() {
            self.carry_out_each(|_, _| ());
        } else if parts > 0 && self.index.is_in_parts(parts) {
            self.index.reserve_buckets(parts);
            // What was carried out last is near the processor still.
            self.carry_out_each(|index, part| index.for_each_run_of(part, parts, &mut found));
        } else {
            self.carry_out_each(|_, _| ());
            self.index.for_each_run(found);
        }
        self.index.end_reservation();
        self.index.drop_spare_pages();
        (self.index, self.sums)
    }

    /// Blocks in the index, and of those that wait to be inserted: some may be counted twice.
    pub fn len_max(&self) -> u64 {
        self.index.len() + self.singles + self.groups * GROUP_BLOCKS
    }

    /// Inserts blocks, but for clean ones if there is no room for them: then what was there before leaves.
    pub fn insert(&mut self, run: Run<'_>) {
        let change = if run.dirty { Change::InsertDirty } else { Change::InsertClean };
        let mut checksums = run.checksums;
        for (first, blocks, place) in parts_of(run.first, wide(run.checksums.len()), run.place) {
            let (of_part, rest) = checksums.split_at(index_wide(blocks));
            checksums = rest;
            if blocks < u64::from(GROUP_BLOCKS_NEW) {
                self.singles += blocks;
            } else {
                self.groups += 1;
            }
            self.push(Step::new(change, first, blocks, place), of_part);
        }
    }

    /// Takes away what is known of blocks.
    pub fn remove_range(&mut self, first: BlockKey, blocks: u64) {
        if blocks > REMOVED_BLOCKS_MAX {
            self.carry_out();
            let DeferredIndex { index, sums, .. } = self;
            index.remove_range(first, blocks, |key, old| {
                if let Some(sums) = sums {
                    sums.take(key, old);
                }
            });
        } else {
            self.push_all(Change::Remove, first, blocks, Place(0));
        }
    }

    /// Takes away those blocks that lie in consecutive places from `place` on.
    pub fn remove_places(&mut self, first: BlockKey, place: Place, blocks: u32) {
        self.push_all(Change::RemoveAt, first, u64::from(blocks), place);
    }

    /// The same of clean ones alone.
    pub fn evict(&mut self, first: BlockKey, place: Place, blocks: u64) {
        self.push_all(Change::Evict, first, blocks, place);
    }

    /// Marks those blocks clean that lie in consecutive places from `place` on.
    pub fn clean(&mut self, first: BlockKey, place: Place, blocks: u64) {
        self.push_all(Change::Clean, first, blocks, place);
    }

    fn push_all(&mut self, change: Change, first: BlockKey, blocks: u64, place: Place) {
        for (first, blocks, place) in parts_of(first, blocks, place) {
            self.push(Step::new(change, first, blocks, place), &[]);
        }
    }

    fn push(&mut self, step: Step, checksums: &[u32]) {
        if self.parts.is_empty() {
            step.carry_out(&mut self.index, checksums, &mut self.sums);
            (self.singles, self.groups) = (0, 0);
            return;
        }
        let hash = permute(split(step.first()).0);
        let at = index(low_u32(hash)) & (self.parts.len() - 1);
        self.pages += u64::from(self.parts[at].push(step, checksums));
        if self.pages > self.pages_max {
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        if self.pages > 0 {
            self.reserve();
            self.carry_out_each(|_, _| ());
            self.measure_room();
        }
    }

    /// Makes the tables as large as what waits wants them, if the budget allows that.
    fn reserve(&mut self) {
        self.reserve_for(self.singles, self.groups);
    }

    fn reserve_for(&mut self, singles: u64, groups: u64) {
        let wanted_bytes =
            singles.saturating_mul(SINGLE_BYTES).saturating_add(groups.saturating_mul(GROUP_BYTES));
        if self.index.allocated_bytes().saturating_add(wanted_bytes) <= self.index.budget_bytes() {
            self.index.reserve(singles, groups);
        }
    }

    /// Carries out what waits; `then` is called behind each part, with its number.
    fn carry_out_each(&mut self, mut then: impl FnMut(&Index, u32)) {
        for (part, number) in self.parts.iter_mut().zip(0..) {
            for page in part.pages.drain(..) {
                page.carry_out(&mut self.index, &mut self.sums);
                self.index.take_spare_page(page.words);
            }
            then(&self.index, number);
        }
        (self.pages, self.singles, self.groups) = (0, 0, 0);
    }

    /// Finds how much may wait, and in how many parts: each has some pages, or most of them would be empty.
    fn measure_room(&mut self) {
        let left_bytes = self.index.budget_bytes().saturating_sub(self.index.allocated_bytes());
        self.pages_max = (left_bytes / 2).max(WAITING_BYTES_MIN) / PAGE_BYTES;
        let parts = (self.pages_max / 4).clamp(1, PARTS_MAX).next_power_of_two();
        self.parts.resize_with(index_wide(parts), Part::default);
    }
}

/// Blocks by group: the first, how many, and where it lies. A place that no device has counts round.
fn parts_of(first: BlockKey, blocks: u64, place: Place) -> impl Iterator<Item = (BlockKey, u64, Place)> {
    assert!(blocks <= BlockKey::END - first.0, "blocks end before the last key");
    let end = first.0 + blocks;
    let (mut at, mut place) = (first.0, place.0);
    core::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let count = (GROUP_BLOCKS - at % GROUP_BLOCKS).min(end - at);
        let part = (BlockKey(at), count, Place(place));
        at += count;
        place = place.wrapping_add(to_u32(count));
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    type Model = BTreeMap<BlockKey, Entry>;

    /// A ring that has all places of the runs here.
    const SEGMENTS: u32 = 1024;
    const SEGMENT_BLOCKS: u32 = 8;

    #[derive(Clone, Debug)]
    enum Act {
        Insert {
            first: u64,
            blocks: u32,
            dirty: bool,
        },
        Remove {
            first: u64,
            blocks: u64,
        },
        /// The change of what one of the inserted runs has, or had.
        OfRun {
            change: Change,
            run: usize,
            skip: u32,
            blocks: u32,
        },
        Settle,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let change = prop_oneof![Just(Change::RemoveAt), Just(Change::Evict), Just(Change::Clean)];
        let act = prop_oneof![
            8 => (0..2000_u64, 1..50_u32, any::<bool>())
                .prop_map(|(first, blocks, dirty)| Act::Insert { first, blocks, dirty }),
            2 => (0..2000_u64, prop_oneof![1..100_u64, Just(1 << 30)])
                .prop_map(|(first, blocks)| Act::Remove { first, blocks }),
            6 => (change, any::<usize>(), 0..50_u32, 1..50_u32)
                .prop_map(|(change, run, skip, blocks)| Act::OfRun { change, run, skip, blocks }),
            1 => Just(Act::Settle),
        ];
        proptest::collection::vec(act, 1..150)
    }

    fn apply(model: &mut Model, change: Change, first: BlockKey, place: Place, blocks: u32) {
        for step in 0..blocks {
            let key = first.plus(u64::from(step));
            let Some(entry) = model.get_mut(&key).filter(|entry| entry.place.0 == place.0 + step) else {
                continue;
            };
            match change {
                Change::Clean => entry.dirty = false,
                Change::Evict if entry.dirty => (),
                _ => {
                    model.remove(&key);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_waits_says_the_same_as_what_does_not(
            acts in acts(),
            defers in any::<bool>(),
            is_loaded in any::<bool>(),
            // With the smaller one the tables have a bucket for each part from the beginning.
            budget_bytes in prop_oneof![Just(3 << 20), Just(1 << 24)],
        ) {
            let mut deferred = DeferredIndex::new(budget_bytes, defers);
            prop_assert!(!defers || deferred.index.is_in_parts(to_u32(deferred.parts.len())) == (budget_bytes == 3 << 20));
            let mut is_settled = false;
            if is_loaded {
                prop_assert!(deferred.prepare(10, 1).is_empty());
                deferred.loaded(Sums::new(SEGMENTS, SEGMENT_BLOCKS));
            }
            let mut model = Model::new();
            let mut runs = alloc::vec![(BlockKey(7), Place(0), 1)];
            let mut next_place = 1;
            for act in acts {
                match act {
                    Act::Insert { first, blocks, dirty } => {
                        let (first, place) = (BlockKey(first), Place(next_place));
                        next_place += blocks;
                        runs.push((first, place, blocks));
                        let checksums: Vec<u32> = (0..blocks).map(|step| !(place.0 + step)).collect();
                        deferred.insert(Run { first, place, dirty, hits: 0, checksums: &checksums });
                        for step in 0..blocks {
                            let place = Place(place.0 + step);
                            let entry = Entry { place, dirty, hits: 0, checksum: !place.0 };
                            model.insert(first.plus(u64::from(step)), entry);
                        }
                    }
                    Act::Remove { first, blocks } => {
                        deferred.remove_range(BlockKey(first), blocks);
                        model.retain(|key, _| !(first..first + blocks).contains(&key.0));
                    }
                    Act::OfRun { change, run, skip, blocks } => {
                        let (first, place, all) = runs[run % runs.len()];
                        let skip = skip.min(all - 1);
                        let blocks = blocks.min(all - skip);
                        let (first, place) = (first.plus(u64::from(skip)), Place(place.0 + skip));
                        apply(&mut model, change, first, place, blocks);
                        let wide_blocks = u64::from(blocks);
                        match change {
                            Change::RemoveAt => deferred.remove_places(first, place, blocks),
                            Change::Evict => deferred.evict(first, place, wide_blocks),
                            _ => deferred.clean(first, place, wide_blocks),
                        }
                    }
                    Act::Settle => {
                        assert!(deferred.settled().len() == wide(model.len()));
                        is_settled = true;
                    }
                }
                prop_assert!(deferred.len_max() >= wide(model.len()));
            }
            let mut told = BTreeMap::new();
            let (index, sums) = deferred.finish(|first, blocks, place, dirty| {
                for step in 0..blocks {
                    let lies = (Place(place.0 + step), dirty);
                    assert_eq!(told.insert(first.plus(u64::from(step)), lies), None, "each block is told once");
                }
            });
            let mut found = Model::new();
            index.for_each(|key, entry| {
                found.insert(key, entry);
            });
            let lie: BTreeMap<_, _> = found.iter().map(|(key, entry)| (*key, (entry.place, entry.dirty))).collect();
            prop_assert_eq!(sums.is_some(), is_loaded && !is_settled, "who changes the index by itself is not counted");
            match sums {
                None => prop_assert_eq!(told, lie),
                Some(sums) => {
                    let mut expected = Sums::new(SEGMENTS, SEGMENT_BLOCKS);
                    index.for_each(|key, entry| expected.put(key, 1, entry.place, entry.dirty));
                    prop_assert_eq!(*sums, expected);
                    prop_assert!(told.is_empty(), "where there are sums nothing is told");
                }
            }
            prop_assert_eq!(found, model);
        }
    }

    #[test]
    fn changes_of_a_block_keep_their_order_over_many_pages() {
        let mut deferred = DeferredIndex::new(1 << 24, true);
        let first = BlockKey(3 * GROUP_BLOCKS);
        let blocks = to_u32(GROUP_BLOCKS);
        let rounds = 400;
        for round in 0..rounds {
            let place = Place(round * blocks);
            let checksums = [round; index_wide(GROUP_BLOCKS)];
            deferred.insert(Run { first, place, dirty: true, hits: 0, checksums: &checksums });
            // Of a copy that is not there any more.
            deferred.remove_places(first, Place(place.0.saturating_sub(blocks) + 1), blocks);
            deferred.clean(first, place, u64::from(round % 3));
            if round + 1 < rounds {
                deferred.evict(first.plus(1), Place(place.0 + 1), 1);
            }
        }
        assert!(deferred.pages > 4, "a part has several pages");
        let (index, _) = deferred.finish(|_, _, _, _| ());
        let last = rounds - 1;
        for step in 0..blocks {
            let place = Place(last * blocks + step);
            let expected = Entry { place, dirty: step >= last % 3, hits: 0, checksum: last };
            assert_eq!(index.get(first.plus(u64::from(step))), Some(expected));
        }
    }

    #[test]
    fn what_waits_stays_within_the_budget_and_clean_blocks_leave_that_have_no_room() {
        let budget_bytes = 4 << 20;
        // Dirty blocks go in when there is no room, too.
        let most_bytes = budget_bytes + (64 << 10);
        let mut deferred = DeferredIndex::new(budget_bytes, true);
        let blocks = 1_000_000;
        for at in 0..blocks {
            let first = BlockKey(permute(at) * GROUP_BLOCKS);
            let place = Place(to_u32(at));
            deferred.insert(Run { first, place, dirty: at % 100 == 0, hits: 0, checksums: &[1] });
            let waiting = deferred.pages * PAGE_BYTES;
            let allocated = deferred.index.allocated_bytes();
            assert!(
                allocated + waiting <= most_bytes + WAITING_BYTES_MIN,
                "{allocated} and {waiting} bytes of {budget_bytes} after {at} blocks"
            );
        }
        let (index, _) = deferred.finish(|_, _, _, _| ());
        let mut dirty = 0;
        index.for_each(|_, entry| dirty += u64::from(entry.dirty));
        assert_eq!(dirty, blocks / 100, "dirty blocks stay");
        assert!(index.len() > dirty && index.len() < blocks, "clean ones as far as there is room");
        assert!(index.allocated_bytes() <= most_bytes);
    }
}
