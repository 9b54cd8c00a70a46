//! A hash table whose memory is what its entries need, at every size.
//!
//! An entry is a *hash* (below 2^[`HASH_BITS`]), a *tag* (below 2^[`TAG_BITS`]) and a row of
//! words; the pair of hash and tag is there at most once. The hash is not a digest but a
//! permuted key: the bucket's number and the stored remainder give it back, so nothing else of
//! the key is stored. Entries of one hash share a bucket, whatever their tags.
//!
//! A bucket is a chain of slots, nearly always of one:
//!
//! ```text
//! │ bucket, count │ next slot │ remainders: capacity words │ rows: capacity × ROW words │
//! ```
//!
//! * I1: `count` is from 1 to `MAX`; the capacity is `count`, rounded up to a multiple of `STEP`.
//! * I2: all slots of a chain but the first are full (`count == MAX`).
//! * I3: slots of one capacity are packed on one [`SlotStack`].
//! * I4: a bucket has `LOAD` entries on average at the most and `LOAD / 2` at the least, unless
//!   there are as many buckets, or as few, as there can be, or some are reserved.

use crate::number::{index, index_wide, low_u32, to_u32, wide};
use crate::table::directory::{BUCKETS_MAX, BUCKETS_MIN, Directory, SURE_BITS};
use crate::table::page::{Address, Pages};
use crate::table::slot_stack::SlotStack;
use alloc::vec::Vec;

/// Bits of a hash.
pub const HASH_BITS: u32 = 35;
/// Bits of a tag.
pub const TAG_BITS: u32 = 4;

/// Words of a slot before its remainders.
const HEADER_WORDS: usize = 2;
/// Low bits of a slot's first word that hold the count; the bucket's number is above them.
const COUNT_BITS: u32 = 7;
/// How often [`LinearHash::pick`] tries its luck before it counts.
const PICK_TRIES: u32 = 256;

const _: () = assert!(HASH_BITS - SURE_BITS + TAG_BITS <= u32::BITS, "a remainder is one word");
const _: () = assert!(BUCKETS_MAX <= 1 << (u32::BITS - COUNT_BITS), "bucket and count share a word");

/// A table of entries with rows of `ROW` words.
#[derive(Debug)]
pub struct LinearHash<const ROW: usize, const STEP: usize, const MAX: usize, const LOAD: usize> {
    directory: Directory,
    /// The slots of capacity `STEP`, 2 `STEP`, ... `MAX`.
    stacks: Vec<SlotStack>,
    len: u64,
    /// Buckets that stay, however few entries there are.
    reserved_buckets: u32,
    /// Room for the entries of a bucket that is taken apart, empty between two calls.
    loose: Loose,
    /// The same for its other half.
    loose_moved: Loose,
}

/// Where an entry lies; valid until the table changes.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    slot: Address,
    at: u32,
}

/// Entries of one bucket outside the table.
#[derive(Debug, Default)]
struct Loose {
    remainders: Vec<u32>,
    rows: Vec<u32>,
}

impl Loose {
    fn push(&mut self, remainder: u32, row: &[u32]) {
        self.remainders.push(remainder);
        self.rows.extend_from_slice(row);
    }

    /// Keeps the entries for which `keep` says so, in order.
    fn retain(&mut self, row_words: usize, mut keep: impl FnMut(u32, &[u32]) -> bool) {
        let mut kept = 0;
        for at in 0..self.remainders.len() {
            let row = at * row_words..(at + 1) * row_words;
            if keep(self.remainders[at], &self.rows[row.clone()]) {
                self.remainders[kept] = self.remainders[at];
                self.rows.copy_within(row, kept * row_words);
                kept += 1;
            }
        }
        self.remainders.truncate(kept);
        self.rows.truncate(kept * row_words);
    }

    fn clear(&mut self) {
        self.remainders.clear();
        self.rows.clear();
    }

    fn allocated_bytes(&self) -> u64 {
        wide((self.remainders.capacity() + self.rows.capacity()) * size_of::<u32>())
    }
}

impl<const ROW: usize, const STEP: usize, const MAX: usize, const LOAD: usize>
    LinearHash<ROW, STEP, MAX, LOAD>
{
    const SHAPE_IS_SOUND: () = {
        assert!(ROW > 0 && STEP > 0 && LOAD > 1, "there is something to store");
        assert!(MAX.is_multiple_of(STEP), "the last capacity is MAX");
        assert!(MAX < 1 << COUNT_BITS, "a count fits its bits");
    };

    /// How many sizes of slots there are: as many pages can be filled in part at once.
    pub const SLOT_SIZES: u64 = wide(MAX / STEP);
    /// Bytes that one more entry adds to slots and directory at the most: a step of its own
    /// slot, or a slot of its own, and the slot that its bucket's split adds.
    pub const ENTRY_BYTES_MAX: u64 = {
        let slot = HEADER_WORDS + STEP * (1 + ROW);
        wide((2 * slot + 1) * size_of::<u32>())
    };

    /// An empty table.
    #[must_use]
    pub fn new(pages: &mut Pages) -> Self {
        const { Self::SHAPE_IS_SOUND };
        let mut stacks = Vec::with_capacity(MAX / STEP);
        stacks.extend((1..=MAX / STEP).map(|steps| SlotStack::new(slot_words(steps * STEP, ROW))));
        LinearHash {
            directory: Directory::new(pages),
            stacks,
            len: 0,
            reserved_buckets: 0,
            loose: Loose::default(),
            loose_moved: Loose::default(),
        }
    }

    /// Makes the buckets that so many more entries want, which stay until [`LinearHash::end_reservation`].
    pub fn reserve(&mut self, pages: &mut Pages, entries: u64) {
        let wanted = (self.len + entries).div_ceil(wide(LOAD)).min(u64::from(BUCKETS_MAX));
        self.reserve_buckets(pages, to_u32(wanted));
    }

    /// Makes buckets until there are so many; all there are stay until [`LinearHash::end_reservation`].
    pub fn reserve_buckets(&mut self, pages: &mut Pages, buckets: u32) {
        assert!(buckets <= BUCKETS_MAX, "there can be as many");
        while self.directory.buckets() < buckets {
            self.split(pages);
        }
        self.reserved_buckets = self.directory.buckets();
    }

    /// Gives back the buckets that are too many for the entries.
    pub fn end_reservation(&mut self, pages: &mut Pages) {
        self.reserved_buckets = 0;
        while self.has_too_many_buckets() {
            self.merge(pages);
        }
    }

    /// How many entries there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the heap besides the pages.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let stacks = wide(self.stacks.capacity() * size_of::<SlotStack>());
        self.directory.allocated_bytes()
            + stacks
            + self.loose.allocated_bytes()
            + self.loose_moved.allocated_bytes()
    }

    /// Where the entry of `hash` and `tag` lies.
    #[inline]
    #[must_use]
    pub fn find(&self, pages: &Pages, hash: u64, tag: u32) -> Option<Position> {
        self.search(pages, hash, tag).map(|(position, _)| position)
    }

    /// The row of the entry of `hash` and `tag`.
    #[inline]
    #[must_use]
    pub fn get<'a>(&self, pages: &'a Pages, hash: u64, tag: u32) -> Option<&'a [u32; ROW]> {
        let (position, slot) = self.search(pages, hash, tag)?;
        Some(row_in::<ROW, STEP>(slot, index(position.at)))
    }

    /// The entry's position, and the words from its slot's first one on.
    #[inline(always)]
    fn search<'a>(&self, pages: &'a Pages, hash: u64, tag: u32) -> Option<(Position, &'a [u32])> {
        let wanted = remainder_of(hash, tag);
        let mut address = self.directory.first(pages, self.directory.bucket_of(hash));
        while address != Address::NONE {
            let slot = pages.words(address);
            if let Some(at) = position_of(slot, wanted) {
                return Some((Position { slot: address, at }, slot));
            }
            address = next(slot);
        }
        None
    }

    /// Begins to load what a search for `hash` looks at first, and does not wait for it.
    #[inline]
    pub fn load_ahead(&self, pages: &Pages, hash: u64) {
        let first = self.directory.first(pages, self.directory.bucket_of(hash));
        if first != Address::NONE {
            core::hint::black_box(pages.words(first)[0]);
        }
    }

    /// The tags that are there for `hash`, one bit for each.
    #[must_use]
    pub fn tags(&self, pages: &Pages, hash: u64) -> u16 {
        if self.has_any(pages, hash) { self.tags_where(pages, hash, |_, _| true) } else { 0 }
    }

    /// Whether there is an entry of `hash`. Without a branch for each entry the compiler compares several at a time.
    fn has_any(&self, pages: &Pages, hash: u64) -> bool {
        let wanted = remainder_of(hash, 0) >> TAG_BITS;
        let mut address = self.directory.first(pages, self.directory.bucket_of(hash));
        let mut has_any = false;
        while address != Address::NONE {
            let slot = pages.words(address);
            has_any |=
                remainders(slot).iter().fold(false, |any, remainder| any | (remainder >> TAG_BITS == wanted));
            address = next(slot);
        }
        has_any
    }

    /// The tags of those entries that are meant, by their tags and rows.
    #[must_use]
    pub fn tags_where(&self, pages: &Pages, hash: u64, is_meant: impl Fn(u32, &[u32; ROW]) -> bool) -> u16 {
        let wanted = remainder_of(hash, 0) >> TAG_BITS;
        let mut tags = 0;
        let mut address = self.directory.first(pages, self.directory.bucket_of(hash));
        while address != Address::NONE {
            let slot = pages.words(address);
            for (at, &remainder) in remainders(slot).iter().enumerate() {
                let tag = tag_of(remainder);
                if remainder >> TAG_BITS == wanted && is_meant(tag, row_in::<ROW, STEP>(slot, at)) {
                    tags |= 1 << tag;
                }
            }
            address = next(slot);
        }
        tags
    }

    /// The row of an entry.
    #[inline]
    #[must_use]
    pub fn row<'a>(&self, pages: &'a Pages, position: Position) -> &'a [u32; ROW] {
        let slot = pages.words(position.slot);
        row_in::<ROW, STEP>(slot, index(position.at))
    }

    /// The row of an entry, to be changed.
    #[inline]
    pub fn row_mut<'a>(&mut self, pages: &'a mut Pages, position: Position) -> &'a mut [u32; ROW] {
        let slot = pages.words_mut(position.slot);
        let at = row_offset::<ROW, STEP>(count(slot), index(position.at));
        slot[at..].first_chunk_mut().expect("a slot ends with a row")
    }

    /// Adds an entry, which must not be there yet. Answers where it lies.
    pub fn insert(&mut self, pages: &mut Pages, hash: u64, tag: u32, row: &[u32; ROW]) -> Position {
        self.len += 1;
        if self.len > u64::from(self.directory.buckets()) * wide(LOAD) {
            self.split(pages);
        }
        let bucket = self.directory.bucket_of(hash);
        let first = self.directory.first(pages, bucket);
        let old_count = if first == Address::NONE { 0 } else { count(pages.words(first)) };
        let slot = if old_count == 0 || old_count == MAX {
            self.push_slot(pages, bucket, 1)
        } else if old_count.is_multiple_of(STEP) {
            self.move_first(pages, bucket, old_count, old_count + 1)
        } else {
            let slot = pages.words_mut(first);
            slot[0] += 1;
            slot
        };
        let at = count(slot) - 1;
        slot[HEADER_WORDS + at] = remainder_of(hash, tag);
        let row_at = row_offset::<ROW, STEP>(at + 1, at);
        slot[row_at..row_at + ROW].copy_from_slice(row);
        Position { slot: self.directory.first(pages, bucket), at: to_u32(at) }
    }

    /// Takes an entry away.
    pub fn remove(&mut self, pages: &mut Pages, position: Position) {
        let bucket = bucket(pages.words(position.slot));
        let first = self.directory.first(pages, bucket);
        let old_count = count(pages.words(first));
        let last = old_count - 1;
        // The last entry of the first slot fills the gap, so that I2 holds.
        if position.slot != first || index(position.at) != last {
            let remainder = pages.words(first)[HEADER_WORDS + last];
            let row = *row_in::<ROW, STEP>(pages.words(first), last);
            pages.words_mut(position.slot)[HEADER_WORDS + index(position.at)] = remainder;
            *self.row_mut(pages, position) = row;
        }
        if last == 0 {
            let next = next(pages.words(first));
            self.directory.set_first(pages, bucket, next);
            self.free_slot(pages, first, old_count);
        } else if last.is_multiple_of(STEP) {
            self.move_first(pages, bucket, old_count, last);
        } else {
            pages.words_mut(first)[0] -= 1;
        }
        self.len -= 1;
        if self.has_too_many_buckets() {
            self.merge(pages);
        }
    }

    /// Takes away the entries whose hash `is_gone` names, of those whose hashes end like `residue` in the bits below `parts`, a
    /// power of two; each is given to `removed`. Looks at every entry of that part of the table.
    pub fn remove_where(
        &mut self,
        pages: &mut Pages,
        (residue, parts): (u32, u32),
        is_gone: impl Fn(u64) -> bool,
        mut removed: impl FnMut(u64, u32, &[u32; ROW]),
    ) {
        assert!(parts.is_power_of_two() && residue < parts, "a residue is below the number of parts");
        let is_gone = |hash: u64| low_u32(hash) & (parts - 1) == residue && is_gone(hash);
        let buckets = self.directory.buckets();
        // A part has whole buckets, or is in one.
        let (first, step) = match parts <= buckets {
            true => (residue, parts),
            false => (self.directory.bucket_of(u64::from(residue)), buckets),
        };
        for bucket in (first..buckets).step_by(index(step)) {
            let mut has_any = false;
            self.for_each_in(pages, bucket, |hash, _, _| has_any |= is_gone(hash));
            if !has_any {
                continue;
            }
            let mut loose = core::mem::take(&mut self.loose);
            self.take_apart(pages, bucket, &mut loose);
            let before = loose.remainders.len();
            loose.retain(ROW, |remainder, row| {
                let hash = hash_of(bucket, remainder);
                let is_gone = is_gone(hash);
                if is_gone {
                    removed(hash, tag_of(remainder), row.try_into().expect("a row has ROW words"));
                }
                !is_gone
            });
            self.len -= wide(before - loose.remainders.len());
            self.put_together(pages, bucket, &mut loose);
            self.loose = loose;
        }
        while self.has_too_many_buckets() {
            self.merge(pages);
        }
    }

    /// Gives every entry (hash, tag, row) to `f`, in the order of the buckets.
    pub fn for_each(&self, pages: &Pages, mut f: impl FnMut(u64, u32, &[u32; ROW])) {
        for bucket in 0..self.directory.buckets() {
            self.for_each_in(pages, bucket, &mut f);
        }
    }

    /// The same in the order of memory, which takes a fraction of the time.
    pub fn for_each_in_memory(&self, pages: &Pages, mut f: impl FnMut(u64, u32, &[u32; ROW])) {
        for stack in &self.stacks {
            for address in stack.addresses(pages) {
                let slot = pages.words(address);
                let bucket = bucket(slot);
                for (at, &remainder) in remainders(slot).iter().enumerate() {
                    f(hash_of(bucket, remainder), tag_of(remainder), row_in::<ROW, STEP>(slot, at));
                }
            }
        }
    }

    /// Gives the entries of some buckets to `f`, as [`LinearHash::for_each`].
    pub fn for_each_of(
        &self,
        pages: &Pages,
        buckets: impl Iterator<Item = u32>,
        mut f: impl FnMut(u64, u32, &[u32; ROW]),
    ) {
        for bucket in buckets {
            self.for_each_in(pages, bucket, &mut f);
        }
    }

    /// The same for the entries whose hashes end like `residue` in the bits below `parts`, a power of two. Which they are
    /// does not depend on how many buckets there are.
    pub fn for_each_with(
        &self,
        pages: &Pages,
        residue: u32,
        parts: u32,
        mut f: impl FnMut(u64, u32, &[u32; ROW]),
    ) {
        assert!(parts.is_power_of_two() && residue < parts, "a residue is below the number of parts");
        let buckets = self.directory.buckets();
        if parts <= buckets {
            // A bucket has the low bits of its hashes, all or all but one, and those below `parts` are among them.
            let step = index(parts);
            self.for_each_of(pages, (residue..buckets).step_by(step), f);
            return;
        }
        let low_bits = u64::from(parts - 1);
        self.for_each_in(pages, self.directory.bucket_of(u64::from(residue)), |hash, tag, row| {
            if hash & low_bits == u64::from(residue) {
                f(hash, tag, row);
            }
        });
    }

    /// How many buckets there are.
    #[must_use]
    pub fn buckets(&self) -> u32 {
        self.directory.buckets()
    }

    /// An entry by chance, each as likely as the others (exactly so while no bucket is longer
    /// than two full slots): its hash, tag and place. `None` if there is none.
    pub fn pick(&self, pages: &Pages, random: &mut dyn FnMut() -> u64) -> Option<(u64, u32, Position)> {
        let buckets = u64::from(self.directory.buckets());
        // By I4, each try succeeds with a chance of a quarter of LOAD / MAX at the least, unless
        // there are no more buckets than there must be: then it is as quick to count.
        let tries = if buckets == u64::from(BUCKETS_MIN) { 0 } else { PICK_TRIES };
        for _ in 0..tries {
            // A bucket by chance, and an entry number by chance that it may or may not have: a
            // long bucket is hit the more often, as it should be.
            let random = random();
            let bucket = ((random & u64::from(u32::MAX)) * buckets) >> 32;
            let at = ((random >> 32) * (2 * wide(MAX))) >> 32;
            if let Some(found) = self.entry_at(pages, to_u32(bucket), index_wide(at)) {
                return Some(found);
            }
        }
        let mut at = random().checked_rem(self.len)?;
        for bucket in 0..self.directory.buckets() {
            let mut entries = 0;
            self.for_each_in(pages, bucket, |_, _, _| entries += 1);
            if at < entries {
                return self.entry_at(pages, bucket, index_wide(at));
            }
            at -= entries;
        }
        unreachable!("the buckets have as many entries as the table")
    }

    /// Entry number `at` of a bucket, if it has as many.
    fn entry_at(&self, pages: &Pages, bucket: u32, mut at: usize) -> Option<(u64, u32, Position)> {
        let mut address = self.directory.first(pages, bucket);
        while address != Address::NONE {
            let slot = pages.words(address);
            let remainders = remainders(slot);
            if let Some(&remainder) = remainders.get(at) {
                let position = Position { slot: address, at: to_u32(at) };
                return Some((hash_of(bucket, remainder), tag_of(remainder), position));
            }
            at -= remainders.len();
            address = next(slot);
        }
        None
    }

    fn for_each_in(&self, pages: &Pages, bucket: u32, mut f: impl FnMut(u64, u32, &[u32; ROW])) {
        let mut address = self.directory.first(pages, bucket);
        while address != Address::NONE {
            let slot = pages.words(address);
            for (at, &remainder) in remainders(slot).iter().enumerate() {
                f(hash_of(bucket, remainder), tag_of(remainder), row_in::<ROW, STEP>(slot, at));
            }
            address = next(slot);
        }
    }

    // ---- buckets -------------------------------------------------------------------------

    fn has_too_many_buckets(&self) -> bool {
        let buckets = self.directory.buckets();
        buckets > BUCKETS_MIN.max(self.reserved_buckets) && self.len < u64::from(buckets) * (wide(LOAD) / 2)
    }

    /// Adds a bucket and moves its entries to it.
    fn split(&mut self, pages: &mut Pages) {
        if self.directory.buckets() == BUCKETS_MAX {
            return;
        }
        let source = self.directory.grow(pages);
        let added = self.directory.buckets() - 1;
        let (mut loose, mut moved) =
            (core::mem::take(&mut self.loose), core::mem::take(&mut self.loose_moved));
        self.take_apart(pages, source, &mut loose);
        loose.retain(ROW, |remainder, row| {
            let is_kept = self.directory.bucket_of(hash_of(source, remainder)) == source;
            if !is_kept {
                moved.push(remainder, row);
            }
            is_kept
        });
        self.put_together(pages, source, &mut loose);
        self.put_together(pages, added, &mut moved);
        (self.loose, self.loose_moved) = (loose, moved);
    }

    /// Takes the last bucket away and moves its entries to where they now belong.
    fn merge(&mut self, pages: &mut Pages) {
        let mut loose = core::mem::take(&mut self.loose);
        self.take_apart(pages, self.directory.buckets() - 1, &mut loose);
        let heir = self.directory.shrink(pages);
        self.take_apart(pages, heir, &mut loose);
        self.put_together(pages, heir, &mut loose);
        self.loose = loose;
    }

    /// Moves all entries of a bucket to `loose`.
    fn take_apart(&mut self, pages: &mut Pages, bucket: u32, loose: &mut Loose) {
        loop {
            let address = self.directory.first(pages, bucket);
            if address == Address::NONE {
                return;
            }
            let slot = pages.words(address);
            let (count, next) = (count(slot), next(slot));
            loose.remainders.extend_from_slice(remainders(slot));
            let rows_at = row_offset::<ROW, STEP>(count, 0);
            loose.rows.extend_from_slice(&slot[rows_at..rows_at + count * ROW]);
            self.directory.set_first(pages, bucket, next);
            self.free_slot(pages, address, count);
        }
    }

    /// Moves all entries of `loose` to an empty bucket.
    fn put_together(&mut self, pages: &mut Pages, bucket: u32, loose: &mut Loose) {
        // Full slots first: what is pushed last is the bucket's first slot (I2).
        for (remainders, rows) in loose.remainders.chunks(MAX).zip(loose.rows.chunks(MAX * ROW)) {
            let count = remainders.len();
            let slot = self.push_slot(pages, bucket, count);
            slot[HEADER_WORDS..HEADER_WORDS + count].copy_from_slice(remainders);
            let rows_at = row_offset::<ROW, STEP>(count, 0);
            slot[rows_at..rows_at + count * ROW].copy_from_slice(rows);
        }
        loose.clear();
    }

    // ---- slots ---------------------------------------------------------------------------

    /// Puts a slot for `count` entries, to be written by the caller, before the bucket's others.
    fn push_slot<'a>(&mut self, pages: &'a mut Pages, bucket: u32, count: usize) -> &'a mut [u32] {
        let next = self.directory.first(pages, bucket);
        let address = self.stack(count).push(pages);
        self.directory.set_first(pages, bucket, address);
        let slot = pages.words_mut(address);
        slot[0] = header(bucket, count);
        slot[1] = next.0;
        slot
    }

    /// Moves the first slot of a bucket from the size for `from` entries to that for `to`.
    fn move_first<'a>(&mut self, pages: &'a mut Pages, bucket: u32, from: usize, to: usize) -> &'a mut [u32] {
        let old = self.directory.first(pages, bucket);
        let new = self.stack(to).push(pages);
        let both = from.min(to);
        pages.copy(old, new, HEADER_WORDS + both);
        let (from_rows, to_rows) = (row_offset::<ROW, STEP>(from, 0), row_offset::<ROW, STEP>(to, 0));
        pages.copy(Address(old.0 + to_u32(from_rows)), Address(new.0 + to_u32(to_rows)), both * ROW);
        pages.words_mut(new)[0] = header(bucket, to);
        self.directory.set_first(pages, bucket, new);
        self.free_slot(pages, old, from);
        // The freed slot is of another size, so the new one did not move.
        pages.words_mut(new)
    }

    /// Gives a slot up that no chain leads to any more: the top of its size takes its place.
    fn free_slot(&mut self, pages: &mut Pages, address: Address, count: usize) {
        let stack = self.stack(count);
        let (top, words) = (stack.top(), stack.words());
        if top != address {
            pages.copy(top, address, words);
            let bucket = bucket(pages.words(address));
            self.relink(pages, bucket, top, address);
        }
        self.stack(count).pop(pages);
    }

    /// Makes the chain of `bucket` lead to `new` where it led to `old`.
    fn relink(&mut self, pages: &mut Pages, bucket: u32, old: Address, new: Address) {
        let mut address = self.directory.first(pages, bucket);
        if address == old {
            self.directory.set_first(pages, bucket, new);
            return;
        }
        loop {
            assert!(address != Address::NONE, "every slot is in the chain of its bucket");
            let slot = pages.words_mut(address);
            address = next(slot);
            if address == old {
                slot[1] = new.0;
                return;
            }
        }
    }

    fn stack(&mut self, count: usize) -> &mut SlotStack {
        &mut self.stacks[(count - 1) / STEP]
    }
}

fn header(bucket: u32, count: usize) -> u32 {
    (bucket << COUNT_BITS) | to_u32(count)
}

#[inline]
fn count(slot: &[u32]) -> usize {
    index(slot[0] & ((1 << COUNT_BITS) - 1))
}

fn bucket(slot: &[u32]) -> u32 {
    slot[0] >> COUNT_BITS
}

#[inline]
fn next(slot: &[u32]) -> Address {
    Address(slot[1])
}

#[inline]
fn remainders(slot: &[u32]) -> &[u32] {
    &slot[HEADER_WORDS..HEADER_WORDS + count(slot)]
}

/// Where row `at` of a slot with `count` entries begins.
#[inline]
fn row_offset<const ROW: usize, const STEP: usize>(count: usize, at: usize) -> usize {
    HEADER_WORDS + count.next_multiple_of(STEP) + at * ROW
}

#[inline]
fn row_in<const ROW: usize, const STEP: usize>(slot: &[u32], at: usize) -> &[u32; ROW] {
    slot[row_offset::<ROW, STEP>(count(slot), at)..].first_chunk().expect("a slot ends with a row")
}

const fn slot_words(capacity: usize, row_words: usize) -> usize {
    HEADER_WORDS + capacity * (1 + row_words)
}

/// The part of a hash and a tag that is stored besides the bucket.
#[inline]
fn remainder_of(hash: u64, tag: u32) -> u32 {
    debug_assert!(hash < 1 << HASH_BITS && tag < 1 << TAG_BITS);
    (low_u32(hash >> SURE_BITS) << TAG_BITS) | tag
}

fn tag_of(remainder: u32) -> u32 {
    remainder & ((1 << TAG_BITS) - 1)
}

fn hash_of(bucket: u32, remainder: u32) -> u64 {
    (u64::from(remainder >> TAG_BITS) << SURE_BITS) | u64::from(bucket & (BUCKETS_MIN - 1))
}

/// Which entry of a slot has the remainder `wanted`.
///
/// Skips eight words at a time, in the one form that the compiler is known to make vector
/// instructions of: no word is looked at alone, and the number of those that are left to the
/// second search is not known beforehand. The first search may look beyond the last remainder,
/// up to the page's end; what it sees there is not found by the second one.
#[inline(always)]
fn position_of(slot: &[u32], wanted: u32) -> Option<u32> {
    let remainders = remainders(slot);
    let mut start = 0;
    for eight in slot[HEADER_WORDS..].as_chunks::<8>().0 {
        if eight.map(|word| word == wanted) != [false; 8] {
            break;
        }
        start += 8;
        if start >= remainders.len() {
            return None;
        }
    }
    let at = remainders[start..].iter().position(|&remainder| remainder == wanted)?;
    Some(to_u32(start + at))
}

#[cfg(test)]
mod tests;
