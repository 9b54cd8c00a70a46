//! Which block of which volume lies where on the cache device.
//!
//! The index maps a [`BlockKey`] to an [`Entry`]: the place, whether it is dirty, how often it
//! was hit of late, the checksum. It lives in RAM; recovery builds it anew from the log, or from a checkpoint, which is a copy
//! of its rows on the device, and the log behind that.
//!
//! Scattered blocks are entries of their own (*singles*, 12 bytes each and little besides).
//! Blocks that are neighbours both on the volume and in the cache share an entry: a *group* is
//! 16 consecutive blocks, aligned at 16, stored in consecutive places, each of which may be
//! absent (80 bytes, 5 for each block of a full one). The group number, permuted, is the
//! hash of both tables; the block within the group is the tag of a single. So all singles of a
//! group are found in one bucket.
//!
//! * I1: a block is in one table at most.
//! * I2: a group has [`GROUP_BLOCKS_MIN`] blocks at least; with fewer, singles are smaller.
//! * I3: [`Index::len`] is the number of singles and of the groups' valid bits.

pub mod checkpoint;
pub mod deferred;
mod permutation;
mod rows;
pub mod sums;
mod visit;

use crate::number::{const_u32, index, index_wide, to_u16, to_u32, wide};
use crate::table::linear_hash::{LinearHash, Position};
use crate::table::page::{PAGE_BYTES, PageWords, Pages};
use crate::units::{BlockKey, Place};
use alloc::boxed::Box;
use permutation::{permute, unpermute};
use rows::{CHECKSUMS_AT, GROUP_WORDS, GroupHead, SINGLE_WORDS, SingleKind, bits, runs};

/// Blocks in a group.
pub(super) const GROUP_BLOCKS: u64 = 16;
/// Blocks that a group is made for at the least.
const GROUP_BLOCKS_NEW: u32 = 8;
/// Blocks that a group is kept for at the least: five singles take less than a group does.
const GROUP_BLOCKS_MIN: u32 = 6;
/// Hits that are counted at the most.
const HITS_MAX: u8 = 3;
/// An index needs some pages of every slot size; a smaller budget is taken for this one.
pub const BUDGET_BYTES_MIN: u64 = 1 << 20;
/// Bytes of slots that one more block adds at the most: a single of its own, the five that its
/// group leaves behind, and what is lost at the ends of pages.
const BLOCK_BYTES_MAX: u64 = 8 * Singles::ENTRY_BYTES_MAX;
/// The part of the budget that is kept free at the most.
const SLACK_ONE_IN: u64 = 32;
/// Tries of [`Index::sample`] to hit a valid block of a group.
const SAMPLE_TRIES: u32 = 64;

/// 22 singles or 3 groups in a bucket, by measurement: few enough to be searched fast, many
/// enough that a bucket's own words and the rounding of its slot hardly count.
type Singles = LinearHash<SINGLE_WORDS, 3, 63, 22>;
type Groups = LinearHash<GROUP_WORDS, 1, 8, 3>;

/// The index entry of a cached block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where on the cache device it lies.
    pub place: Place,
    /// Whether the origin does not have it yet.
    pub dirty: bool,
    /// Recent hits, from 0 to 3.
    pub hits: u8,
    /// Checksum of the block.
    pub checksum: u32,
}

/// Blocks to be inserted: consecutive on the volume and on the cache device.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The first block.
    pub first: BlockKey,
    /// Where the first block lies.
    pub place: Place,
    /// Whether the origin does not have them yet.
    pub dirty: bool,
    /// Recent hits, from 0 to 3: of blocks that were cached before.
    pub hits: u8,
    /// The checksum of each block; their number is the length of the run.
    pub checksums: &'a [u32],
}

/// The map from blocks to places.
#[derive(Debug)]
pub struct Index {
    pages: Pages,
    singles: Singles,
    groups: Groups,
    /// Valid blocks of all groups.
    group_blocks: u64,
    budget_bytes: u64,
    kind: SingleKind,
    /// Whether a replay left blocks out for which the budget has no room.
    has_left_out: bool,
}

/// Where a block's entry is.
enum Found {
    Single(Position),
    Group(Position, GroupHead),
}

/// The blocks of a run that are in one group.
#[derive(Clone, Copy)]
struct Part<'a> {
    group: u64,
    hash: u64,
    first_tag: u32,
    place: Place,
    dirty: bool,
    hits: u8,
    checksums: &'a [u32],
}

impl Part<'_> {
    fn blocks(&self) -> u32 {
        to_u32(self.checksums.len())
    }

    /// One bit for each tag of the part.
    fn mask(&self) -> u16 {
        mask(self.first_tag, self.blocks())
    }

    /// The place of tag 0, if the whole group lay in line with the part.
    fn base(&self) -> u32 {
        rows::base_of(self.place, self.first_tag)
    }
}

impl Index {
    /// An empty index that should not take more than `budget_bytes` of heap, or
    /// [`BUDGET_BYTES_MIN`] if that is more. Starts with a few pages.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Index {
        let mut pages = Pages::new();
        let singles = Singles::new(&mut pages);
        let groups = Groups::new(&mut pages);
        let budget_bytes = budget_bytes.max(BUDGET_BYTES_MIN);
        Index {
            pages,
            singles,
            groups,
            group_blocks: 0,
            budget_bytes,
            kind: SingleKind::WHOLE,
            has_left_out: false,
        }
    }

    /// Notes that a block for which the budget has no room was left out of a replay: what is on the device has it still.
    pub fn leave_out(&mut self) {
        self.has_left_out = true;
    }

    /// Whether a replay left blocks out.
    pub fn has_left_out(&self) -> bool {
        self.has_left_out
    }

    /// Places may tell a half from now on.
    pub fn name_halves(&mut self) {
        assert!(self.is_empty(), "entries are of one kind");
        self.kind = SingleKind::HALVES;
    }

    /// The entry of a block; `None` if it is not cached.
    #[must_use]
    pub fn get(&self, key: BlockKey) -> Option<Entry> {
        let (group, tag) = split(key);
        let hash = permute(group);
        if !self.groups.is_empty()
            && let Some(row) = self.groups.get(&self.pages, hash, 0)
        {
            let head = GroupHead::read(row);
            if head.valid & (1 << tag) != 0 {
                return Some(head.entry(tag, row[CHECKSUMS_AT + index(tag)]));
            }
        }
        if self.singles.is_empty() {
            return None;
        }
        self.singles.get(&self.pages, hash, tag).map(|row| self.kind.entry(row))
    }

    /// Begins to load what an insertion of the block will look at. Memory is slow, and the block's way through the log is
    /// long enough: who tells of it when it sets out does not wait for memory when it arrives.
    #[inline]
    pub fn load_ahead(&self, key: BlockKey) {
        self.singles.load_ahead(&self.pages, permute(split(key).0));
    }

    /// The same for blocks of one group, `blocks` of them.
    #[inline]
    fn load_part_ahead(&self, key: BlockKey, blocks: u32) {
        if blocks < GROUP_BLOCKS_NEW {
            self.load_ahead(key);
        } else {
            self.groups.load_ahead(&self.pages, permute(split(key).0));
        }
    }

    /// Makes room for blocks that come soon, alone or in so many groups: the tables grow at once, and stay as large until
    /// [`Index::end_reservation`].
    pub fn reserve(&mut self, singles: u64, groups: u64) {
        self.singles.reserve(&mut self.pages, singles);
        self.groups.reserve(&mut self.pages, groups);
    }

    /// Whether a table has a bucket for each of so many parts.
    fn is_in_parts(&self, parts: u32) -> bool {
        self.singles.buckets().max(self.groups.buckets()) >= parts
    }

    /// Each table has so many buckets at the least, until [`Index::end_reservation`].
    fn reserve_buckets(&mut self, buckets: u32) {
        self.singles.reserve_buckets(&mut self.pages, buckets);
        self.groups.reserve_buckets(&mut self.pages, buckets);
    }

    /// The tables are as large as their entries want from now on.
    pub fn end_reservation(&mut self) {
        self.singles.end_reservation(&mut self.pages);
        self.groups.end_reservation(&mut self.pages);
    }

    /// Takes memory that it will use for what is inserted next, as far as its budget goes.
    pub fn take_spare_page(&mut self, words: Box<PageWords>) {
        if self.allocated_bytes() + PAGE_BYTES <= self.budget_bytes {
            self.pages.take_spare(words);
        }
    }

    /// Gives up memory that it was given and has no use for.
    pub fn drop_spare_pages(&mut self) {
        self.pages.drop_spare();
    }

    /// Inserts the run. Every entry it replaces is given to `replaced`.
    ///
    /// Never fails: the caller asks [`Index::is_tight`] before.
    ///
    /// # Panics
    /// If the run goes beyond the last key or the last place.
    pub fn insert(&mut self, run: Run<'_>, mut replaced: impl FnMut(BlockKey, Entry)) {
        let blocks = wide(run.checksums.len());
        assert!(run.first.0 + blocks <= BlockKey::END, "a run ends before the last key");
        assert!(self.has_places(run.place, blocks), "a run ends on the device");
        let mut done = 0;
        while done < blocks {
            let (group, first_tag) = split(BlockKey(run.first.0 + done));
            let hash = permute(group);
            let found = self.find_group(hash);
            if let &[checksum] = run.checksums
                && found.is_none()
                && first_tag < const_u32(GROUP_BLOCKS) - 1
            {
                // The usual block of a random write is spared the questions that only groups raise.
                let entry = Entry { place: run.place, dirty: run.dirty, hits: run.hits, checksum };
                if let Some(old) = self.insert_single(hash, first_tag, entry) {
                    replaced(run.first, old);
                }
                return;
            }
            let count = (GROUP_BLOCKS - u64::from(first_tag)).min(blocks - done);
            let part = Part {
                group,
                hash,
                first_tag,
                place: Place(run.place.0 + to_u32(done)),
                dirty: run.dirty,
                hits: run.hits,
                checksums: &run.checksums[index_wide(done)..index_wide(done + count)],
            };
            self.insert_part(part, found, &mut replaced);
            done += count;
        }
    }

    /// Whether the device can have blocks from a place on.
    fn has_places(&self, place: Place, blocks: u64) -> bool {
        let (first, end) = match self.kind {
            SingleKind::HALVES => (place.block_of_half().0, Place::HALF_END),
            _ => (place.0, Place::END),
        };
        u64::from(first) + blocks <= u64::from(end)
    }

    /// Takes a block's entry away; `None` if there is none.
    pub fn remove(&mut self, key: BlockKey) -> Option<Entry> {
        let (group, tag) = split(key);
        let hash = permute(group);
        match self.find(hash, tag)? {
            Found::Single(position) => {
                let entry = self.kind.entry(self.singles.row(&self.pages, position));
                self.singles.remove(&mut self.pages, position);
                Some(entry)
            }
            Found::Group(position, mut head) => {
                let checksum = self.groups.row(&self.pages, position)[CHECKSUMS_AT + index(tag)];
                let entry = head.entry(tag, checksum);
                self.clear_in_group(position, &mut head, 1 << tag);
                self.dissolve_if_small(hash, position, head);
                Some(entry)
            }
        }
    }

    /// Takes away the entries of all blocks from `first` on, `blocks` of them. Each is given to
    /// `removed`, in any order. A long range costs no more than a look at every entry.
    pub fn remove_range(&mut self, first: BlockKey, blocks: u64, mut removed: impl FnMut(BlockKey, Entry)) {
        assert!(
            blocks <= BlockKey::END && first.0 <= BlockKey::END - blocks,
            "a range ends before the last key"
        );
        let end = first.0 + blocks;
        // Groups that are in the range as a whole.
        let whole = first.0.div_ceil(GROUP_BLOCKS)..end / GROUP_BLOCKS;
        let entries = self.singles.len() + self.groups.len();
        let is_scan = whole.end.saturating_sub(whole.start) > entries;
        let mut at = first.0;
        while at < end {
            if is_scan && at == whole.start * GROUP_BLOCKS {
                self.remove_groups(whole.clone(), (0, 1), &mut removed);
                at = whole.end * GROUP_BLOCKS;
                continue;
            }
            let (group, first_tag) = split(BlockKey(at));
            let count = (GROUP_BLOCKS - u64::from(first_tag)).min(end - at);
            let (hash, mask) = (permute(group), mask(first_tag, to_u32(count)));
            self.remove_singles(group, hash, mask, &mut removed);
            if let Some((position, mut head)) = self.find_group(hash) {
                self.report_group(group, position, head, mask, &mut removed);
                self.clear_in_group(position, &mut head, mask);
                self.dissolve_if_small(hash, position, head);
            }
            at += count;
        }
    }

    /// The same for whole groups, and of these one of so many parts, a power of two: which blocks it has does not depend on how
    /// many there are. It costs a look at that part of all entries.
    pub fn remove_part(
        &mut self,
        blocks: core::ops::Range<BlockKey>,
        part: (u32, u32),
        mut removed: impl FnMut(BlockKey, Entry),
    ) {
        let groups = blocks.start.0 / GROUP_BLOCKS..blocks.end.0.div_ceil(GROUP_BLOCKS);
        self.remove_groups(groups, part, &mut removed);
    }

    /// Marks a block dirty or clean.
    ///
    /// # Panics
    /// If it is not cached.
    pub fn set_dirty(&mut self, key: BlockKey, dirty: bool) {
        let (group, tag) = split(key);
        match self.find(permute(group), tag).expect("a block that is marked is cached") {
            Found::Single(position) => self.change_single(position, |entry| entry.dirty = dirty),
            Found::Group(position, mut head) => {
                head.set_dirty(1 << tag, dirty);
                head.write(self.groups.row_mut(&mut self.pages, position));
            }
        }
    }

    /// Removes those of `blocks` blocks from `first` on that lie in consecutive places from `place` on.
    pub fn remove_places(&mut self, first: BlockKey, place: Place, blocks: u32) {
        for step in 0..blocks {
            let key = BlockKey(first.0 + u64::from(step));
            if self.get(key).is_some_and(|entry| entry.place.0 == place.0 + step) {
                self.remove(key);
            }
        }
    }

    /// The entry of a block, if it is cached and accepted: then a hit of it is counted, up to 3.
    pub fn hit(&mut self, key: BlockKey, accepts: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let (group, tag) = split(key);
        match self.find(permute(group), tag)? {
            Found::Single(position) => {
                let entry = self.kind.entry(self.singles.row(&self.pages, position));
                if !accepts(&entry) {
                    return None;
                }
                if entry.hits < HITS_MAX {
                    self.change_single(position, |entry| entry.hits += 1);
                }
                Some(entry)
            }
            Found::Group(position, mut head) => {
                let row = self.groups.row_mut(&mut self.pages, position);
                let entry = head.entry(tag, row[CHECKSUMS_AT + index(tag)]);
                if !accepts(&entry) {
                    return None;
                }
                if entry.hits < HITS_MAX {
                    head.add_hit(tag);
                    head.write(row);
                }
                Some(entry)
            }
        }
    }

    /// Counts a hit of a block, up to 3. Does nothing if it is not cached.
    pub fn touch(&mut self, key: BlockKey) {
        self.hit(key, |_| true);
    }

    /// How many blocks are cached.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.singles.len() + self.group_blocks
    }

    /// Whether no block is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.pages.allocated_bytes() + self.singles.allocated_bytes() + self.groups.allocated_bytes()
    }

    /// Bytes on the heap that should not be exceeded.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Whether `blocks` more blocks, however scattered, could take the index above its budget.
    /// If so, the caller makes room first: what it removes is used again.
    #[must_use]
    pub fn is_tight(&self, blocks: u64) -> bool {
        // Each size of slot may begin a page, and so may the two directories.
        let pages = Singles::SLOT_SIZES + Groups::SLOT_SIZES + 2;
        let pages = pages + blocks.saturating_mul(BLOCK_BYTES_MAX).div_ceil(PAGE_BYTES);
        let tables = self.singles.allocated_bytes() + self.groups.allocated_bytes();
        self.pages.allocated_bytes_after(pages) + tables > self.budget_bytes
    }

    /// Whether the ring is to be emptied for memory: room for `slack_blocks` more is kept, however scattered, but no more than
    /// a 32nd part of the budget. Else a small cache would keep more room than it has entries.
    #[must_use]
    pub fn is_near_budget(&self, slack_blocks: u64) -> bool {
        let blocks_max = self.budget_bytes / SLACK_ONE_IN / BLOCK_BYTES_MAX;
        self.is_tight(slack_blocks.min(blocks_max))
    }

    /// Gives every entry to `f`: the singles, then the groups, each in the order of their buckets.
    pub fn for_each(&self, mut f: impl FnMut(BlockKey, Entry)) {
        let kind = self.kind;
        self.singles.for_each(&self.pages, |hash, tag, row| f(join(unpermute(hash), tag), kind.entry(row)));
        self.groups.for_each(&self.pages, |hash, _, row| {
            let (group, head) = (unpermute(hash), GroupHead::read(row));
            for tag in bits(head.valid) {
                f(join(group, tag), head.entry(tag, row[CHECKSUMS_AT + index(tag)]));
            }
        });
    }

    /// Gives every entry to `f` in any order, blocks together that lie in consecutive places and are all dirty or all clean: the
    /// first, how many, and where it lies.
    pub fn for_each_run(&self, mut f: impl FnMut(BlockKey, u32, Place, bool)) {
        let kind = self.kind;
        self.singles
            .for_each_in_memory(&self.pages, |hash, tag, row| give_single(kind, (hash, tag, row), &mut f));
        self.groups.for_each_in_memory(&self.pages, |hash, _, row| give_group(hash, row, &mut f));
    }

    /// The same of one of so many parts, a power of two: that of the low bits of the hash. There are as many buckets.
    fn for_each_run_of(&self, part: u32, parts: u32, f: &mut impl FnMut(BlockKey, u32, Place, bool)) {
        let (singles, groups) = (self.singles.buckets(), self.groups.buckets());
        assert!(parts.is_power_of_two() && parts <= singles.min(groups), "no bucket is of two parts");
        let (kind, step) = (self.kind, index(parts));
        let of_part = |buckets| (part..buckets).step_by(step);
        self.singles.for_each_of(&self.pages, of_part(singles), |hash, tag, row| {
            give_single(kind, (hash, tag, row), f);
        });
        self.groups.for_each_of(&self.pages, of_part(groups), |hash, _, row| give_group(hash, row, f));
    }

    /// A block by chance, each as likely as the others; `None` if there is none. `random`
    /// gives 64 random bits with each call.
    pub fn sample(&self, random: &mut dyn FnMut() -> u64) -> Option<(BlockKey, Entry)> {
        let number = random() % self.len().max(1);
        if number < self.singles.len() {
            let (hash, tag, position) = self.singles.pick(&self.pages, random)?;
            let entry = self.kind.entry(self.singles.row(&self.pages, position));
            return Some((join(unpermute(hash), tag), entry));
        }
        for tries_left in (0..SAMPLE_TRIES).rev() {
            let (hash, _, position) = self.groups.pick(&self.pages, random)?;
            let row = self.groups.row(&self.pages, position);
            let head = GroupHead::read(row);
            let tag = to_u32(random() % GROUP_BLOCKS);
            // A group with gaps is taken the less often. At the last try any block will do.
            let tag = if tries_left == 0 { head.valid.trailing_zeros() } else { tag };
            if head.valid & (1 << tag) != 0 {
                let entry = head.entry(tag, row[CHECKSUMS_AT + index(tag)]);
                return Some((join(unpermute(hash), tag), entry));
            }
        }
        None
    }

    // ---- one block -----------------------------------------------------------------------

    #[inline]
    fn find(&self, hash: u64, tag: u32) -> Option<Found> {
        if let Some((position, head)) = self.find_group(hash)
            && head.valid & (1 << tag) != 0
        {
            return Some(Found::Group(position, head));
        }
        if self.singles.is_empty() {
            return None;
        }
        self.singles.find(&self.pages, hash, tag).map(Found::Single)
    }

    #[inline(always)]
    fn find_group(&self, hash: u64) -> Option<(Position, GroupHead)> {
        if self.groups.is_empty() {
            return None;
        }
        let position = self.groups.find(&self.pages, hash, 0)?;
        Some((position, GroupHead::read(self.groups.row(&self.pages, position))))
    }

    fn change_single(&mut self, position: Position, change: impl FnOnce(&mut Entry)) {
        let row = self.singles.row_mut(&mut self.pages, position);
        let mut entry = self.kind.entry(row);
        change(&mut entry);
        *row = self.kind.row(entry);
    }

    // ---- one group -----------------------------------------------------------------------

    /// Inserts blocks of one group, which is in the table of groups at `group`, if it is.
    fn insert_part(
        &mut self,
        part: Part<'_>,
        group: Option<(Position, GroupHead)>,
        replaced: &mut impl FnMut(BlockKey, Entry),
    ) {
        if let Some((position, head)) = group {
            self.report_group(part.group, position, head, part.mask(), replaced);
            if head.base == part.base() {
                self.remove_singles(part.group, part.hash, part.mask(), replaced);
                self.join_group(part, position, head);
                return;
            }
        }
        if part.blocks() >= GROUP_BLOCKS_NEW {
            self.remove_singles(part.group, part.hash, part.mask(), replaced);
            let new = GroupHead { base: part.base(), valid: 0, dirty: 0, hits: 0 };
            let position = match group {
                // Nothing is left of the old one: its entry is the new one's.
                Some((position, mut head)) if head.valid & !part.mask() == 0 => {
                    self.clear_in_group(position, &mut head, part.mask());
                    position
                }
                Some((position, mut head)) => {
                    self.clear_in_group(position, &mut head, part.mask());
                    self.dissolve(part.hash, position, head);
                    self.add_group(part.hash, new)
                }
                None => self.add_group(part.hash, new),
            };
            self.join_group(part, position, new);
            if part.mask() != u16::MAX {
                self.absorb(part.hash, position);
            }
            return;
        }
        if let Some((position, mut head)) = group
            && head.valid & part.mask() != 0
        {
            self.clear_in_group(position, &mut head, part.mask());
            self.dissolve_if_small(part.hash, position, head);
        }
        self.insert_singles(part, replaced);
    }

    fn insert_singles(&mut self, part: Part<'_>, replaced: &mut impl FnMut(BlockKey, Entry)) {
        for (tag, &checksum) in (part.first_tag..).zip(part.checksums) {
            let place = Place(part.place.0 + tag - part.first_tag);
            let entry = Entry { place, dirty: part.dirty, hits: part.hits, checksum };
            if let Some(old) = self.insert_single(part.hash, tag, entry) {
                replaced(join(part.group, tag), old);
            }
        }
        if part.first_tag + part.blocks() == const_u32(GROUP_BLOCKS) {
            self.gather(part.hash, Place(part.place.0 + part.blocks() - 1));
        }
    }

    /// Inserts a single, and answers the one it replaces.
    #[inline(always)]
    fn insert_single(&mut self, hash: u64, tag: u32, entry: Entry) -> Option<Entry> {
        let row = self.kind.row(entry);
        if let Some(position) = self.singles.find(&self.pages, hash, tag) {
            let old = core::mem::replace(self.singles.row_mut(&mut self.pages, position), row);
            return Some(self.kind.entry(&old));
        }
        self.singles.insert(&mut self.pages, hash, tag, &row);
        None
    }

    /// Makes a group without blocks; the caller adds some at once.
    fn add_group(&mut self, hash: u64, head: GroupHead) -> Position {
        let mut row = [0; GROUP_WORDS];
        head.write(&mut row);
        self.groups.insert(&mut self.pages, hash, 0, &row)
    }

    /// Puts the blocks of `part` into a group that they lie in line with.
    fn join_group(&mut self, part: Part<'_>, position: Position, mut head: GroupHead) {
        assert!(head.base == part.base(), "the places of a group are consecutive");
        self.group_blocks += u64::from((part.mask() & !head.valid).count_ones());
        head.valid |= part.mask();
        head.set_dirty(part.mask(), part.dirty);
        head.set_hits(part.mask(), part.hits);
        let row = self.groups.row_mut(&mut self.pages, position);
        head.write(row);
        let first = CHECKSUMS_AT + index(part.first_tag);
        row[first..first + part.checksums.len()].copy_from_slice(part.checksums);
    }

    /// Makes a group of the singles that lie in line with block 15 of their group, if they are
    /// enough. Called when block 15 was put in place: that is how blocks that are written in
    /// order, but in several runs, come to share an entry, at a sixteenth of the cost that
    /// looking each time would have. Of blocks that were, block 14 lies before block 15.
    fn gather(&mut self, hash: u64, place: Place) {
        let last = const_u32(GROUP_BLOCKS) - 1;
        let head = GroupHead { base: rows::base_of(place, last), valid: 0, dirty: 0, hits: 0 };
        let before = self.singles.get(&self.pages, hash, last - 1).map(|row| self.kind.entry(row).place);
        if before != Some(head.place(last - 1)) || self.groups.find(&self.pages, hash, 0).is_some() {
            return;
        }
        if self.in_line(hash, head).count_ones() >= GROUP_BLOCKS_NEW {
            let position = self.add_group(hash, head);
            self.absorb(hash, position);
        }
    }

    /// The singles that could be blocks of the group.
    fn in_line(&self, hash: u64, head: GroupHead) -> u16 {
        self.singles.tags_where(&self.pages, hash, |tag, row| self.kind.entry(row).place == head.place(tag))
    }

    /// Moves the singles that lie in line with the group into it.
    fn absorb(&mut self, hash: u64, position: Position) {
        let mut head = GroupHead::read(self.groups.row(&self.pages, position));
        let tags = self.in_line(hash, head);
        assert!(tags & head.valid == 0, "I1: a block is in one table");
        for tag in bits(tags) {
            let single = self.singles.find(&self.pages, hash, tag).expect("its tag was there");
            let entry = self.kind.entry(self.singles.row(&self.pages, single));
            self.singles.remove(&mut self.pages, single);
            head.set_dirty(1 << tag, entry.dirty);
            head.set_hits(1 << tag, entry.hits);
            self.groups.row_mut(&mut self.pages, position)[CHECKSUMS_AT + index(tag)] = entry.checksum;
        }
        head.valid |= tags;
        head.write(self.groups.row_mut(&mut self.pages, position));
        self.group_blocks += u64::from(tags.count_ones());
        assert!(head.valid.count_ones() >= GROUP_BLOCKS_MIN, "I2: a group is worth its entry");
    }

    fn report_group(
        &self,
        group: u64,
        position: Position,
        head: GroupHead,
        mask: u16,
        report: &mut impl FnMut(BlockKey, Entry),
    ) {
        for tag in bits(head.valid & mask) {
            let checksum = self.groups.row(&self.pages, position)[CHECKSUMS_AT + index(tag)];
            report(join(group, tag), head.entry(tag, checksum));
        }
    }

    fn clear_in_group(&mut self, position: Position, head: &mut GroupHead, mask: u16) {
        self.group_blocks -= u64::from((head.valid & mask).count_ones());
        head.valid &= !mask;
        head.dirty &= !mask;
        head.write(self.groups.row_mut(&mut self.pages, position));
    }

    fn dissolve_if_small(&mut self, hash: u64, position: Position, head: GroupHead) {
        if head.valid.count_ones() < GROUP_BLOCKS_MIN {
            self.dissolve(hash, position, head);
        }
    }

    /// Makes singles of the blocks of a group.
    fn dissolve(&mut self, hash: u64, position: Position, head: GroupHead) {
        let row = *self.groups.row(&self.pages, position);
        self.group_blocks -= u64::from(head.valid.count_ones());
        self.groups.remove(&mut self.pages, position);
        for tag in bits(head.valid) {
            let entry = head.entry(tag, row[CHECKSUMS_AT + index(tag)]);
            self.singles.insert(&mut self.pages, hash, tag, &self.kind.row(entry));
        }
    }

    fn remove_singles(
        &mut self,
        group: u64,
        hash: u64,
        mask: u16,
        removed: &mut impl FnMut(BlockKey, Entry),
    ) {
        if self.singles.is_empty() {
            return;
        }
        for tag in bits(self.singles.tags(&self.pages, hash) & mask) {
            let position = self.singles.find(&self.pages, hash, tag).expect("its tag was there");
            removed(join(group, tag), self.kind.entry(self.singles.row(&self.pages, position)));
            self.singles.remove(&mut self.pages, position);
        }
    }

    /// Takes away everything of the given groups by a look at every entry.
    fn remove_groups(
        &mut self,
        groups: core::ops::Range<u64>,
        part: (u32, u32),
        removed: &mut impl FnMut(BlockKey, Entry),
    ) {
        let is_gone = |hash: u64| groups.contains(&unpermute(hash));
        let kind = self.kind;
        self.singles.remove_where(&mut self.pages, part, is_gone, |hash, tag, row| {
            removed(join(unpermute(hash), tag), kind.entry(row));
        });
        let mut blocks = 0;
        self.groups.remove_where(&mut self.pages, part, is_gone, |hash, _, row| {
            let (group, head) = (unpermute(hash), GroupHead::read(row));
            for tag in bits(head.valid) {
                removed(join(group, tag), head.entry(tag, row[CHECKSUMS_AT + index(tag)]));
                blocks += 1;
            }
        });
        self.group_blocks -= blocks;
    }
}

/// Gives the run that a single is to `f`.
fn give_single(
    kind: SingleKind,
    (hash, tag, row): (u64, u32, &[u32; SINGLE_WORDS]),
    f: &mut impl FnMut(BlockKey, u32, Place, bool),
) {
    let entry = kind.entry(row);
    f(join(unpermute(hash), tag), 1, entry.place, entry.dirty);
}

/// Gives the runs of a group to `f`.
fn give_group(hash: u64, row: &[u32; GROUP_WORDS], f: &mut impl FnMut(BlockKey, u32, Place, bool)) {
    let (group, head) = (unpermute(hash), GroupHead::read(row));
    for (mask, dirty) in [(head.dirty, true), (head.valid & !head.dirty, false)] {
        for (tag, blocks) in runs(mask) {
            f(join(group, tag), blocks, head.place(tag), dirty);
        }
    }
}

/// The number of a key's group, and the block within it.
#[inline]
fn split(key: BlockKey) -> (u64, u32) {
    assert!(key.0 < BlockKey::END, "a key is of a volume");
    (key.0 / GROUP_BLOCKS, to_u32(key.0 % GROUP_BLOCKS))
}

fn join(group: u64, tag: u32) -> BlockKey {
    BlockKey(group * GROUP_BLOCKS + u64::from(tag))
}

/// One bit for each of `blocks` tags from `first_tag` on.
fn mask(first_tag: u32, blocks: u32) -> u16 {
    to_u16(((1_u32 << blocks) - 1) << first_tag)
}

#[cfg(test)]
mod tests;
