//! The rows of an index as a checkpoint has them: part by part on their way out, one by one on their way back.

use super::rows::{CHECKSUMS_AT, GroupHead, SingleKind, bits};
use super::{Entry, GROUP_BLOCKS, GROUP_BLOCKS_MIN, Index, give_group, join, split};
use crate::format::{ChunkWriter, GROUP_ROW_WORDS, SINGLE_ROW_WORDS, rows_bytes};
use crate::number::{index, low_u32, to_u32};
use crate::store::log::index::permutation::{permute, unpermute};
use crate::units::{BlockKey, Place};

/// Parts at the most: some bits of a hash are left.
const PARTS_MAX: u64 = 1 << 28;

const _: () = assert!(
    super::SINGLE_WORDS == SINGLE_ROW_WORDS && super::GROUP_WORDS == GROUP_ROW_WORDS,
    "rows have the same words in memory and in a checkpoint"
);

/// A block from a checkpoint that shares its entry with no other.
#[derive(Clone, Copy, Debug)]
pub struct LoadedSingle {
    /// The block.
    pub key: BlockKey,
    /// Its entry.
    pub entry: Entry,
    hash: u64,
}

impl LoadedSingle {
    /// Reads it; `None` if no index has such a one.
    #[inline]
    pub fn read(key: u64, row: [u32; SINGLE_ROW_WORDS]) -> Option<LoadedSingle> {
        let key = (key < BlockKey::END).then_some(BlockKey(key))?;
        Some(LoadedSingle::new(key, SingleKind::WHOLE.entry(&row)))
    }

    fn new(key: BlockKey, entry: Entry) -> LoadedSingle {
        LoadedSingle { key, entry, hash: permute(split(key).0) }
    }

    /// The part that it is in, of so many.
    #[inline]
    pub fn part(&self, parts: u32) -> u32 {
        low_u32(self.hash) & (parts - 1)
    }
}

/// A group of blocks from a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct LoadedGroup {
    group: u64,
    hash: u64,
    head: GroupHead,
    row: [u32; GROUP_ROW_WORDS],
}

impl LoadedGroup {
    /// Reads it; `None` if no index has such a group.
    #[inline]
    pub fn read(key: u64, row: [u32; GROUP_ROW_WORDS]) -> Option<LoadedGroup> {
        let head = GroupHead::read(&row);
        let is_sound = key < BlockKey::END / GROUP_BLOCKS
            && row[0] == head.base
            && head.dirty & !head.valid == 0
            && head.valid.count_ones() >= GROUP_BLOCKS_MIN;
        is_sound.then(|| LoadedGroup { group: key, hash: permute(key), head, row })
    }

    /// The part that it is in, of so many.
    #[inline]
    pub fn part(&self, parts: u32) -> u32 {
        low_u32(self.hash) & (parts - 1)
    }

    /// Its first and last blocks that are there.
    pub fn ends(&self) -> [(BlockKey, Place); 2] {
        let last = u16::BITS - 1 - self.head.valid.leading_zeros();
        [self.head.valid.trailing_zeros(), last].map(|tag| (join(self.group, tag), self.head.place(tag)))
    }

    /// Its blocks that are there, each for itself.
    pub fn singles(&self) -> impl Iterator<Item = LoadedSingle> + '_ {
        bits(self.head.valid).map(|tag| {
            let entry = self.head.entry(tag, self.row[CHECKSUMS_AT + index(tag)]);
            LoadedSingle::new(join(self.group, tag), entry)
        })
    }

    /// Gives its runs to `f`, as [`Index::for_each_run`] does.
    #[inline]
    pub fn for_each_run(&self, mut f: impl FnMut(BlockKey, u32, Place, bool)) {
        give_group(self.hash, &self.row, &mut f);
    }

    /// Marks all of its blocks clean.
    pub fn clean(&mut self) {
        self.head.dirty = 0;
        self.head.write(&mut self.row);
    }
}

impl Index {
    /// Adds a part of so many, a power of two, to a chunk: each block is in one part, whatever happens to others between two
    /// parts. False if the part does not fit; then some of it is in the chunk.
    pub fn write_part(&self, part: u32, parts: u32, chunk: &mut ChunkWriter<'_>) -> bool {
        let mut fits = true;
        self.groups.for_each_with(&self.pages, part, parts, |hash, _, row| {
            fits = fits && chunk.push_group(unpermute(hash), row);
        });
        self.singles.for_each_with(&self.pages, part, parts, |hash, tag, row| {
            fits = fits && chunk.push_single(join(unpermute(hash), tag).0, row);
        });
        fits
    }

    /// Bytes of all rows in chunks.
    #[must_use]
    pub fn rows_bytes(&self) -> u64 {
        rows_bytes(self.singles.len(), self.groups.len(), 0)
    }

    /// How many parts there have to be for one to have some `part_bytes` in a chunk.
    #[must_use]
    pub fn parts_of(&self, part_bytes: u32) -> u32 {
        to_u32((self.rows_bytes() / u64::from(part_bytes)).clamp(1, PARTS_MAX)).next_power_of_two()
    }

    /// Puts a block in that a checkpoint has. False if it is there already.
    pub fn load_single(&mut self, loaded: &LoadedSingle) -> bool {
        let (hash, tag) = (loaded.hash, split(loaded.key).1);
        if self.find(hash, tag).is_some() {
            return false;
        }
        self.singles.insert(&mut self.pages, hash, tag, &self.kind.row(loaded.entry));
        true
    }

    /// Puts a group in that a checkpoint has, before all singles that are in its part. False if it is there already.
    pub fn load_group(&mut self, loaded: &LoadedGroup) -> bool {
        if self.find_group(loaded.hash).is_some() {
            return false;
        }
        self.groups.insert(&mut self.pages, loaded.hash, 0, &loaded.row);
        self.group_blocks += u64::from(loaded.head.valid.count_ones());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CheckpointId, Chunk};
    use crate::store::log::index::Run;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const ID: CheckpointId = CheckpointId { set_id: [1; 16], session: 1, start_sequence: 1 };

    fn insert(index: &mut Index, first: u64, place: u32, blocks: u32, dirty: bool) {
        let checksums: Vec<u32> = (0..blocks).map(|step| !(place + step)).collect();
        let run = Run { first: BlockKey(first), place: Place(place), dirty, hits: 2, checksums: &checksums };
        index.insert(run, |_, _| ());
    }

    fn all(index: &Index) -> BTreeMap<BlockKey, Entry> {
        let mut found = BTreeMap::new();
        index.for_each(|key, entry| assert!(found.insert(key, entry).is_none()));
        found
    }

    fn load(index: &mut Index, bytes: &[u8], number: u32) {
        let chunk = Chunk::decode(&ID, number, bytes).unwrap();
        for (key, row) in chunk.groups() {
            assert!(index.load_group(&LoadedGroup::read(key, row).unwrap()), "a group is in one part");
        }
        for (key, row) in chunk.singles() {
            assert!(index.load_single(&LoadedSingle::read(key, row).unwrap()), "a block is in one part");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn what_stays_as_it_is_is_loaded_once_whatever_happens_beside(
            runs in proptest::collection::vec((0..40_000_u64, 1..40_u32, any::<bool>()), 1..1500),
            // A group that loses blocks becomes singles between two parts, without a word in the log.
            drops in proptest::collection::vec((0..40_000_u64, 1..12_u64), 0..300),
            part_bytes in 64..4000_u32,
        ) {
            let mut index = Index::new(1 << 22);
            let mut place = 0;
            for (first, blocks, dirty) in runs {
                insert(&mut index, first, place, blocks, dirty);
                place += blocks;
            }
            let before = all(&index);
            let parts = index.parts_of(part_bytes);
            let mut loaded = Index::new(1 << 22);
            let mut bytes = vec![0; 1 << 16];
            let mut drops = drops.into_iter();
            for part in 0..parts {
                let mut chunk = ChunkWriter::new(&mut bytes);
                prop_assert!(index.write_part(part, parts, &mut chunk));
                chunk.finish(&ID, part);
                load(&mut loaded, &bytes, part);
                if let Some((first, blocks)) = drops.next() {
                    index.remove_range(BlockKey(first), blocks, |_, _| ());
                }
                // Tables grow.
                insert(&mut index, 50_000 + u64::from(part) * 20, place, 15, false);
                place += 15;
            }
            let (after, loaded) = (all(&index), all(&loaded));
            for (key, entry) in &before {
                if after.get(key) == Some(entry) {
                    prop_assert_eq!(loaded.get(key), Some(entry));
                }
            }
            for (key, entry) in &loaded {
                prop_assert!(before.get(key).or(after.get(key)) == Some(entry));
            }
        }
    }

    #[test]
    fn rows_that_no_index_has_are_refused() {
        let mut row = [0; GROUP_ROW_WORDS];
        row[1] = 0x0001_ffff;
        assert!(LoadedGroup::read(3, row).is_some());
        assert!(LoadedGroup::read(BlockKey::END / GROUP_BLOCKS, row).is_none(), "no volume has it");
        row[1] = 0x0001_fffe;
        assert!(LoadedGroup::read(3, row).is_none(), "what is dirty is there");
        row[1] = 0x1f;
        assert!(LoadedGroup::read(3, row).is_none(), "five blocks are singles");
        row[1] = 0xff;
        row[0] = 1 << 30;
        assert!(LoadedGroup::read(3, row).is_none(), "a place has 30 bits");
        assert!(LoadedSingle::read(BlockKey::END, [0, 0]).is_none());
    }

    #[test]
    fn a_block_is_loaded_once() {
        let mut index = Index::new(1 << 20);
        let mut row = [7; GROUP_ROW_WORDS];
        row[1] = 0xff;
        let group = LoadedGroup::read(1, row).unwrap();
        let single = LoadedSingle::read(16 + 9, [40, 1]).unwrap();
        assert!(index.load_group(&group) && index.load_single(&single));
        assert!(!index.load_group(&group) && !index.load_single(&single));
        assert_eq!(group.part(64), single.part(64), "blocks of a group are in one part");
        let single = LoadedSingle::read(16 + 7, [40, 1]).unwrap();
        assert!(!index.load_single(&single), "it is in the group");
    }
}
