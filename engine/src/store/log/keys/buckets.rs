//! The buckets: where data lies that the ring has keys of.
//!
//! A bucket is filled from front to back, by one volume at a time, and given up as a whole:
//!
//! ```text
//! free → open → full → leaving: dropped from the index → `Freed` durable → a durable header says so → free
//! ```
//!
//! The last step but one is what recovery needs: it verifies the data of keys that it does not know to be flushed, and
//! that data must not have been overwritten. `Segments` counts what is live, dirty and pinned in each bucket, as if
//! it were a segment behind those of the ring.

use crate::format::KeyLayout;
use crate::mutation::Mutation;
use crate::number::{const_u32, index, to_u32};
use crate::policies::replacement::{Access, Arrival, Policy, Replacement, ReplacementChoice, Shape};
use crate::store::log::segments::Segments;
use crate::units::{BLOCK_BYTES, BlockKey, Frame, Place, VolumeIndex};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Buckets that are being filled at the same time at the most.
///
/// Source: bcache's `MAX_OPEN_BUCKETS`.
const OPEN_MAX: usize = 128;

/// Below this many free buckets of `count` others are given up: two at the least, so that one can be on its way.
#[must_use]
pub(crate) fn free_low(count: u32) -> u32 {
    (count / 64).clamp(2, 64)
}

/// Where a bucket is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Priorities are written into it; nothing in it counts.
    Reserved,
    Open,
    Full,
    Leaving,
}

/// A bucket that is being filled.
#[derive(Clone, Copy, Debug)]
struct Open {
    bucket: u32,
    next_block: u32,
    volume: VolumeIndex,
    /// The key that would continue the last extent in it.
    continues: BlockKey,
}

/// A bucket on its way to be free.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    bucket: u32,
    /// The sequence of its `Freed`, once that is published.
    recorded: Option<u64>,
    /// The sequence of the first header that says that `Freed` was flushed.
    stated: Option<u64>,
}

/// An extent in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub first: BlockKey,
    pub place: Place,
    pub blocks: u32,
}

/// Room in a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub place: Place,
    pub blocks: u32,
    pub bucket: u32,
    /// Where it ends in the bucket.
    pub end_block: u32,
}

/// All buckets.
#[derive(Debug)]
pub(crate) struct Buckets {
    layout: KeyLayout,
    states: Vec<State>,
    free: VecDeque<u32>,
    /// Least recently used first.
    open: Vec<Open>,
    leaving: Vec<Leaving>,
    held: Vec<Vec<Held>>,
    replacement: Replacement,
    /// Buckets with dirty data when they were last counted, percent.
    in_use_percent: u32,
    /// Blocks that may be written until they are counted again.
    recount_after: u64,
    recount_blocks: u64,
}

impl Buckets {
    /// The buckets after recovery: `held` is the content of each, none if it may be filled.
    pub fn new(
        layout: KeyLayout,
        choice: &ReplacementChoice,
        recount_part: u32,
        held: Vec<Option<Vec<Held>>>,
        seed: u64,
    ) -> Buckets {
        assert!(held.len() == index(layout.buckets), "recovery judged every bucket");
        let shape = Shape { frames: layout.buckets, ways: layout.buckets };
        let mut replacement = Replacement::new(choice, shape, seed);
        let mut states = vec![State::Free; index(layout.buckets)];
        let mut free = VecDeque::with_capacity(index(layout.buckets));
        for (bucket, held) in (0..).zip(&held) {
            if held.is_none() {
                free.push_back(bucket);
            } else {
                // However little is in it: what recovery did not see there may be half written.
                states[index(bucket)] = State::Full;
                replacement.insert(Frame(bucket), Arrival::first(Access::Read, false));
            }
        }
        let blocks = u64::from(layout.buckets) * u64::from(layout.bucket_blocks);
        let recount_blocks = (blocks / u64::from(recount_part)).max(1);
        let mut buckets = Buckets {
            layout,
            states,
            free,
            open: Vec::with_capacity(OPEN_MAX),
            leaving: Vec::new(),
            held: held.into_iter().map(Option::unwrap_or_default).collect(),
            replacement,
            in_use_percent: 0,
            recount_after: 0,
            recount_blocks,
        };
        buckets.recount_after = buckets.recount_blocks;
        buckets
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.layout.buckets
    }

    /// How many are free.
    pub fn free(&self) -> u32 {
        to_u32(self.free.len())
    }

    /// Takes a free bucket for priorities, the one that would be begun last.
    pub fn take_for_priorities(&mut self) -> Option<u32> {
        let bucket = self.free.pop_back()?;
        self.states[index(bucket)] = State::Reserved;
        Some(bucket)
    }

    /// The priorities in a bucket are written: others may overwrite them.
    pub fn return_priorities(&mut self, bucket: u32) {
        assert!(self.states[index(bucket)] == State::Reserved, "it was taken for priorities");
        self.states[index(bucket)] = State::Free;
        self.free.push_back(bucket);
    }

    /// Whether room for such an extent is in a bucket that was begun already.
    pub fn has_begun(&self, first: BlockKey) -> bool {
        self.open.iter().any(|open| open.continues == first || open.volume == first.volume())
    }

    /// Blocks that have room in free buckets, but for those that are kept free.
    pub fn room_blocks(&self) -> u64 {
        u64::from(self.free().saturating_sub(self.free_low())) * u64::from(self.layout.bucket_blocks)
    }

    /// Bytes in buckets that are not free.
    pub fn used_bytes(&self) -> u64 {
        u64::from(self.count() - self.free()) * u64::from(self.layout.bucket_blocks) * BLOCK_BYTES
    }

    /// See [`free_low`].
    pub fn free_low(&self) -> u32 {
        free_low(self.count())
    }

    /// Whether some are on their way to be free.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Buckets that held dirty data when they were last counted, percent of all.
    pub fn in_use_percent(&self) -> u32 {
        self.in_use_percent
    }

    /// Counts the buckets with dirty data.
    ///
    /// Source: bcache's garbage collection, which alone renews `in_use`; it runs when a part of the cache was written,
    /// or when no bucket is free.
    pub fn recount(&mut self, segments: &Segments) {
        self.recount_after = self.recount_blocks;
        self.in_use_percent = to_u32(u64::from(segments.dirty_buckets()) * 100 / u64::from(self.count()));
    }

    /// The number under which `Segments` has a bucket.
    pub fn segment_of(&self, bucket: u32) -> u32 {
        self.layout.geometry.segments + bucket
    }

    /// The first place of a bucket, and how many there are.
    pub fn run_of(&self, bucket: u32) -> (Place, u32) {
        let place = self.layout.ring_blocks() + bucket * self.layout.bucket_blocks;
        (Place(place), self.layout.bucket_blocks)
    }

    fn bucket_of(&self, place: Place) -> u32 {
        (place.0 - self.layout.ring_blocks()) / self.layout.bucket_blocks
    }

    /// A client read what lies there.
    pub fn hit(&mut self, place: Place) {
        let bucket = self.bucket_of(place);
        if self.states[index(bucket)] == State::Full {
            self.replacement.hit(Frame(bucket), Access::Read);
        }
    }

    /// A client's request went through the cache.
    pub fn served(&mut self, sectors: u64) {
        self.replacement.served(sectors);
    }

    /// Room for the beginning of an extent, or for all of it; it is pinned until its key is published. `None` if no
    /// bucket is free.
    ///
    /// Source: bcache's `pick_data_bucket`: the bucket that ends where the extent begins, else the one that the same
    /// task used last, else the least recently used one. Who writes is not known here: a volume counts as a task.
    pub fn take(&mut self, first: BlockKey, blocks: u64, segments: &mut Segments) -> Option<Space> {
        let volume = first.volume();
        let at = self
            .open
            .iter()
            .rposition(|open| open.continues == first)
            .or_else(|| self.open.iter().rposition(|open| open.volume == volume));
        let at = match at {
            Some(at) => at,
            None => {
                let bucket = self.free.pop_front()?;
                self.states[index(bucket)] = State::Open;
                if self.open.len() == OPEN_MAX.min(index(self.count()) / 4) {
                    let oldest = self.open.remove(0);
                    self.close(oldest.bucket);
                }
                self.open.push(Open { bucket, next_block: 0, volume, continues: first });
                self.open.len() - 1
            }
        };
        let mut open = self.open.remove(at);
        let count = to_u32(blocks.min(u64::from(self.layout.bucket_blocks - open.next_block)));
        let (base, _) = self.run_of(open.bucket);
        let place = Place(base.0 + open.next_block);
        open.next_block += count;
        open.volume = volume;
        open.continues = BlockKey(first.0 + u64::from(count));
        let held = &mut self.held[index(open.bucket)];
        match held.last_mut() {
            Some(last) if last.first.0 + u64::from(last.blocks) == first.0 => last.blocks += count,
            _ => held.push(Held { first, place, blocks: count }),
        }
        segments.get_mut(self.layout.geometry.segments + open.bucket).pins += 1;
        let space = Space { place, blocks: count, bucket: open.bucket, end_block: open.next_block };
        if open.next_block == self.layout.bucket_blocks {
            self.close(open.bucket);
        } else {
            self.open.push(open);
        }
        self.written(u64::from(count), segments);
        Some(space)
    }

    /// So many blocks more were written since the last count.
    pub fn written(&mut self, blocks: u64, segments: &Segments) {
        self.recount_after = self.recount_after.saturating_sub(blocks);
        if self.recount_after == 0 {
            self.recount(segments);
        }
    }

    fn close(&mut self, bucket: u32) {
        self.states[index(bucket)] = State::Full;
        self.replacement.insert(Frame(bucket), Arrival::first(Access::Write, false));
    }

    /// A bucket in which nothing is dirty and that nobody reads or fills begins to leave; what the index may have of it.
    pub fn give_up(&mut self, segments: &Segments) -> Option<(u32, Vec<Held>)> {
        let Buckets { replacement, states, layout, .. } = self;
        let ring = layout.geometry.segments;
        let may_leave = |frame: Frame| {
            let segment = segments.get(ring + frame.0);
            states[frame.at()] == State::Full && segment.must == 0 && segment.pins == 0
        };
        let frame = replacement.victim(0, may_leave)?.frame;
        replacement.remove(frame);
        self.states[frame.at()] = State::Leaving;
        self.leaving.push(Leaving { bucket: frame.0, recorded: None, stated: None });
        Some((frame.0, core::mem::take(&mut self.held[frame.at()])))
    }

    /// Replacement is told how much each bucket still holds.
    pub fn tell_live(&mut self, segments: &Segments) {
        for bucket in 0..self.count() {
            if self.states[index(bucket)] == State::Full {
                let live = segments.get(self.layout.geometry.segments + bucket).live;
                // HAZARD 15: hostile keys may lead to one place twice.
                let blocks = live.min(self.layout.bucket_blocks);
                self.replacement.set_live(Frame(bucket), blocks * const_u32(BLOCK_BYTES / 512));
            }
        }
    }

    /// Time went by.
    pub fn advance(&mut self, now: crate::units::Nanos) {
        self.replacement.advance(now);
    }

    /// The bucket's `Freed` is published.
    pub fn recorded(&mut self, bucket: u32, sequence: u64) {
        if let Some(leaving) = self.leaving.iter_mut().find(|leaving| leaving.bucket == bucket) {
            leaving.recorded = Some(sequence);
        }
    }

    /// A header with `sequence` was assembled that says that all up to `flushed` was flushed.
    pub fn carry(&mut self, sequence: u64, flushed: u64) {
        for leaving in &mut self.leaving {
            if leaving.stated.is_none() && leaving.recorded.is_some_and(|recorded| recorded <= flushed) {
                leaving.stated = Some(sequence);
            }
        }
    }

    /// Whether it is durable of all that leave that they do.
    pub fn are_freed(&self, flushed: u64) -> bool {
        self.leaving.iter().all(|leaving| leaving.recorded.is_some_and(|recorded| recorded <= flushed))
    }

    /// The sequence that a flush has to cover for the next step of those that leave, and whether a header is missing.
    pub fn wanted(&self, flushed: u64) -> (Option<u64>, bool) {
        let sequences = self.leaving.iter().filter_map(|leaving| leaving.stated.or(leaving.recorded));
        let needs_header = self.leaving.iter().any(|leaving| {
            leaving.stated.is_none() && leaving.recorded.is_some_and(|recorded| recorded <= flushed)
        });
        (sequences.max(), needs_header)
    }

    /// A flush covered the log up to `flushed`: buckets whose leave is durable are free.
    pub fn free_flushed(&mut self, flushed: u64, segments: &mut Segments) {
        let Buckets { leaving, free, states, layout, .. } = self;
        let is_hasty = segments.mutations.has(Mutation::RefillBeforeFlush);
        let is_unstated = segments.mutations.has(Mutation::RefillBeforeStated);
        leaving.retain(|leaving| {
            let is_free = leaving.stated.is_some_and(|stated| stated <= flushed)
                || leaving.recorded.is_some_and(|recorded| is_hasty || (is_unstated && recorded <= flushed));
            if !is_free {
                return true;
            }
            let segment = segments.get_mut(layout.geometry.segments + leaving.bucket);
            let is_bare = segment.live == 0 && segment.must == 0 && segment.pins == 0;
            assert!(is_bare, "a bucket is filled again only when nothing in it is live, dirty or being read");
            segment.flushed_blocks = 0;
            // What was copied out of it is known by that: another life begins.
            segment.generation += 1;
            states[index(leaving.bucket)] = State::Free;
            free.push_back(leaving.bucket);
            false
        });
    }

    /// The content of the dirty buckets that have least to go home, `count` buckets at the most.
    pub fn nearly_clean(&self, count: usize, segments: &Segments) -> Vec<Held> {
        let ring = self.layout.geometry.segments;
        let mut dirty: Vec<(u32, u32)> = (0..self.count())
            .map(|bucket| (segments.get(ring + bucket).must, bucket))
            .filter(|&(must, bucket)| must > 0 && self.states[index(bucket)] == State::Full)
            .collect();
        dirty.sort_unstable();
        dirty.truncate(count);
        dirty.iter().flat_map(|&(_, bucket)| self.held[index(bucket)].iter().copied()).collect()
    }

    /// Closes all that are being filled, so that they can be given up.
    pub fn close_all(&mut self) {
        for open in core::mem::take(&mut self.open) {
            self.close(open.bucket);
        }
    }
}
