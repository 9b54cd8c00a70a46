//! The ring of segments and what each of them still holds.
//!
//! ```text
//!        tail                                           head
//!   free │ lingering │ emptied │ sealed │ ... │ sealed │ open │ free
//! ```
//!
//! Segments are written, emptied and reused in the order of their places on the device, so an
//! entry's newer version or tombstone always outlives it (hazard 5). Invariants:
//!
//! * I1: the segments of `ring` are consecutive on the device, oldest first; all others are free.
//! * I2: `live` counts the index entries whose place is in the segment; `must` counts those of
//!   them that are dirty, the extents recorded in it, and all versions in it that a ledger of strict order lists.
//! * I3: an emptied segment has `must == 0`; what is live in it is clean.
//! * I4: a free segment has `live == 0`, and no pins. One that lingers counts as free, too: a durable record says that nothing in
//!   it counts after a crash. What is live in it can be read until the log needs its place.
//! * I5: no segment of `ring` before the one at `clean_front` has anything that must go home.
//!
//! Where data lies in buckets behind the ring, those are counted here too, as if they were segments behind the last one:
//! what must go home, who reads. They are no part of the ring.

use crate::mutation::{Mutation, Mutations};
use crate::number::{index, to_u32, wide};
use crate::pair::Half;
use crate::policies::fetch::warm_up::OLDEST_ONE_IN;
use crate::units::{BLOCK_BYTES, Place};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// May be written.
    Free,
    /// Batches are appended to it.
    Open,
    /// Full, or closed early.
    Sealed,
    /// Nothing in it counts after a crash, once that is durable; then it lingers, or is free. Holds the sequence of the first
    /// header that says so, when there is one.
    Emptied(Option<u64>),
}

/// One segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Where it is in its life.
    pub state: SegmentState,
    /// Its generation: unique, rising with each opening of any segment.
    pub generation: u64,
    /// The sequence of its first batch.
    pub first_sequence: u64,
    /// The sequence of its last batch so far.
    pub last_sequence: u64,
    /// Blocks written from its start, head and headers included.
    pub used_blocks: u32,
    /// Of them, those covered by a flush.
    pub flushed_blocks: u32,
    /// See I2.
    pub live: u32,
    /// See I2.
    pub must: u32,
    /// Operations that read it.
    pub pins: u32,
    /// Blocks of its summary; 0 until it has one.
    pub summary_blocks: u32,
    /// Whether its summary is on the device.
    pub is_summary_written: bool,
    /// Emptied, and some of its clean blocks are in the index still.
    pub is_read_on: bool,
    /// Blocks that had been hit since the start when it was opened.
    pub hits_before: u64,
}

impl Segment {
    #[inline]
    fn free() -> Segment {
        Segment {
            state: SegmentState::Free,
            generation: 0,
            first_sequence: 0,
            last_sequence: 0,
            used_blocks: 0,
            flushed_blocks: 0,
            live: 0,
            must: 0,
            pins: 0,
            summary_blocks: 0,
            is_summary_written: false,
            is_read_on: false,
            hits_before: 0,
        }
    }
}

/// All segments of the cache.
pub struct Segments {
    list: Vec<Segment>,
    segment_blocks: u32,
    /// The power of two that is its blocks.
    segment_bits: u32,
    /// Segments of the ring; the rest of `list` are buckets.
    in_ring: u32,
    /// The bits of a place that are the number of its block; others tell a half.
    block_mask: u32,
    /// The place of the first bucket: behind all places, if there are none.
    buckets_at: u32,
    bucket_blocks: u32,
    /// Buckets that hold something dirty.
    dirty_buckets: u32,
    ring: VecDeque<u32>,
    next: u32,
    /// Segments that are in no ring.
    spare: u32,
    /// So many of the ring's oldest segments are emptied, and that is durable.
    lingering: u32,
    with_must: u32,
    /// So many of the ring's oldest segments are skipped in the search for the oldest dirty one: each batch states it.
    clean_front: usize,
    wraps: u64,
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

impl Segments {
    /// A ring of `segments` free segments of `segment_blocks` blocks each.
    #[must_use]
    pub fn new(segments: u32, segment_blocks: u32) -> Segments {
        assert!(segments > 0, "a ring has segments");
        assert!(segment_blocks.is_power_of_two(), "a segment has a power of two of blocks");
        let blocks = u64::from(segments) * u64::from(segment_blocks);
        assert!(blocks <= u64::from(Place::END), "every block of the ring has a place");
        let list = (0..segments).map(|_| Segment::free()).collect();
        Segments {
            list,
            segment_blocks,
            segment_bits: segment_blocks.trailing_zeros(),
            in_ring: segments,
            block_mask: Place::END - 1,
            buckets_at: Place::END,
            bucket_blocks: 1,
            dirty_buckets: 0,
            ring: VecDeque::with_capacity(index(segments)),
            next: 0,
            spare: segments,
            lingering: 0,
            with_must: 0,
            clean_front: 0,
            wraps: 0,
            mutations: Mutations::NONE,
        }
    }

    /// Adds buckets behind the ring.
    pub fn add_buckets(&mut self, buckets: u32, bucket_blocks: u32) {
        assert!(self.list.len() == index(self.in_ring), "buckets are added once");
        assert!(bucket_blocks > 0, "a bucket has blocks");
        self.buckets_at = self.in_ring * self.segment_blocks;
        self.bucket_blocks = bucket_blocks;
        self.list.extend((0..buckets).map(|_| Segment::free()));
    }

    /// Places may tell a half from now on: of a mirrored cache whose halves are not too long for that.
    pub fn name_halves(&mut self) {
        let blocks = u64::from(self.in_ring) * u64::from(self.segment_blocks);
        assert!(
            blocks <= u64::from(Place::HALF_END),
            "every block of a half has a place beside the half's number"
        );
        self.block_mask = Place::HALF_END - 1;
        // There are none, and places that tell a half are higher than those of a device.
        self.buckets_at = u32::MAX;
    }

    /// The half that alone has the block of a place.
    #[inline]
    #[must_use]
    pub fn half_of(&self, place: Place) -> Option<Half> {
        if self.block_mask < Place::HALF_END { place.half() } else { None }
    }

    /// The number of a place's block on the device.
    #[inline]
    #[must_use]
    pub fn block_of(&self, place: Place) -> u32 {
        place.0 & self.block_mask
    }

    /// Buckets that hold something that must go home before they can be given away.
    #[must_use]
    pub fn dirty_buckets(&self) -> u32 {
        self.dirty_buckets
    }

    /// Blocks of one segment.
    #[inline]
    #[must_use]
    pub fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    /// How many segments there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.in_ring
    }

    /// How many there are with the buckets, which have the numbers behind them.
    #[must_use]
    pub fn count_with_buckets(&self) -> usize {
        self.list.len()
    }

    /// Blocks of all of them.
    #[must_use]
    pub fn ring_blocks(&self) -> u64 {
        u64::from(self.in_ring) * u64::from(self.segment_blocks)
    }

    /// Segments at the ring's end that nothing was ever written to, while it goes round for the first time.
    #[must_use]
    pub fn unused(&self) -> u32 {
        let Some(&newest) = self.ring.back() else {
            return if self.next == 0 && self.wraps == 0 { self.in_ring } else { 0 };
        };
        // Generations rise with each opening, so a ring that has gone round is past its length.
        let is_first_round = self.list[index(newest)].generation <= u64::from(self.in_ring);
        if is_first_round { self.in_ring - 1 - newest } else { 0 }
    }

    /// How many are free, or linger.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.spare + self.lingering
    }

    /// How many can be opened as they are.
    #[inline]
    #[must_use]
    pub fn spare(&self) -> u32 {
        self.spare
    }

    /// How many hold something that must go home before they can be emptied.
    #[must_use]
    pub fn with_must(&self) -> u32 {
        self.with_must
    }

    /// How often the log went past the end of the device.
    #[must_use]
    pub fn wraps(&self) -> u64 {
        self.wraps
    }

    /// Bytes in segments that are not free.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        u64::from(self.count() - self.spare) * u64::from(self.segment_blocks) * BLOCK_BYTES
    }

    /// The segment of that number.
    #[inline]
    #[must_use]
    pub fn get(&self, segment: u32) -> &Segment {
        &self.list[index(segment)]
    }

    /// The segment of that number, to be changed; `live`, `must` and `state` have calls of their own.
    #[inline]
    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.list[index(segment)]
    }

    /// The segment that `place` is in, or the bucket, which has a number behind those of all segments.
    #[inline]
    #[must_use]
    pub fn of(&self, place: Place) -> u32 {
        if place.0 < self.buckets_at {
            self.block_of(place) >> self.segment_bits
        } else {
            self.in_ring + (place.0 - self.buckets_at) / self.bucket_blocks
        }
    }

    /// The place of block `block` of `segment`.
    #[inline]
    #[must_use]
    pub fn place(&self, segment: u32, block: u32) -> Place {
        assert!(block < self.segment_blocks, "the block is in the segment");
        Place(segment * self.segment_blocks + block)
    }

    /// Whether a segment is in the part of the ring whose turn comes next.
    #[inline]
    #[must_use]
    pub fn is_old(&self, segment: u32) -> bool {
        segment < self.in_ring && self.position(segment) < index(self.in_ring / OLDEST_ONE_IN)
    }

    /// The segments that are not free, oldest first.
    pub fn ring(&self) -> impl Iterator<Item = u32> + '_ {
        self.ring.iter().copied()
    }

    /// The lowest sequence that still counts: that of the oldest segment not emptied; `None` if there is none.
    #[must_use]
    pub fn floor(&self) -> Option<u64> {
        self.oldest().map(|at| self.get(at).first_sequence)
    }

    /// The oldest segment that is not emptied.
    #[must_use]
    pub fn oldest(&self) -> Option<u32> {
        self.ring().find(|&at| !matches!(self.get(at).state, SegmentState::Emptied(_)))
    }

    /// The lowest sequence that may still be dirty; `None` if nothing is.
    #[must_use]
    pub fn oldest_dirty(&self) -> Option<u64> {
        if self.with_must == 0 {
            return None;
        }
        if self.dirty_buckets > 0 {
            // Where in the ring their keys are nobody knows.
            return self.floor();
        }
        let in_doubt = self.ring.range(self.clean_front..).map(|&at| self.get(at));
        in_doubt.into_iter().find(|segment| segment.must > 0).map(|segment| segment.first_sequence)
    }

    /// Where in the ring a segment is.
    #[inline]
    fn position(&self, at: u32) -> usize {
        let oldest = self.ring.front().expect("what must go home is in a segment of the ring");
        index((at + self.in_ring - oldest) % self.in_ring)
    }

    /// Opens the next segment of the ring; `None` if it is not free.
    pub fn open_next(&mut self, generation: u64, first_sequence: u64) -> Option<u32> {
        let at = self.next;
        let segment = &mut self.list[index(at)];
        if segment.state != SegmentState::Free {
            return None;
        }
        let is_pinned = segment.pins > 0 && !self.mutations.has(Mutation::ForgetPins);
        let is_bare = !is_pinned && segment.live == 0 && segment.must == 0;
        assert!(is_bare, "I3, I4: a free segment has nothing that is live, dirty or being read");
        *segment = Segment {
            state: SegmentState::Open,
            generation,
            first_sequence,
            last_sequence: first_sequence,
            pins: segment.pins,
            ..Segment::free()
        };
        self.ring.push_back(at);
        self.spare -= 1;
        self.next = (at + 1) % self.count();
        self.wraps += u64::from(self.next == 0);
        Some(at)
    }

    /// Puts a segment found by recovery at the head of the ring.
    pub fn restore(&mut self, at: u32, segment: Segment) {
        assert!(self.list[index(at)].state == SegmentState::Free, "a segment is restored once");
        let is_bare = segment.live == 0 && segment.must == 0 && segment.pins == 0;
        assert!(is_bare, "what is live and dirty is counted after the ring is restored");
        assert!(self.ring.is_empty() || self.next == at, "I1: the segments of the ring are consecutive");
        self.list[index(at)] = segment;
        self.ring.push_back(at);
        self.spare -= 1;
        self.next = (at + 1) % self.count();
    }

    /// The open segment was closed.
    pub fn seal(&mut self, at: u32) {
        let segment = self.get_mut(at);
        assert!(segment.state == SegmentState::Open, "only an open segment is sealed");
        segment.state = SegmentState::Sealed;
    }

    /// A sealed segment has nothing left that must stay; clean blocks of it may be read on.
    pub fn empty(&mut self, at: u32, is_read_on: bool) {
        let segment = self.get_mut(at);
        assert!(segment.state == SegmentState::Sealed, "only a sealed segment is emptied");
        let is_bare = segment.must == 0 && (segment.live == 0 || is_read_on);
        assert!(
            is_bare,
            "I3: an emptied segment has nothing that is dirty, and nothing that nobody knows of"
        );
        segment.state = SegmentState::Emptied(None);
        segment.is_read_on = is_read_on;
    }

    /// The emptied segments that are not free yet, oldest first.
    fn waiting(&self) -> impl Iterator<Item = &Segment> {
        let behind = self.ring.range(index(self.lingering)..).map(|&at| self.get(at));
        behind.take_while(|segment| matches!(segment.state, SegmentState::Emptied(_)))
    }

    /// Whether any segment is emptied and not yet free.
    #[inline]
    #[must_use]
    pub fn has_emptied(&self) -> bool {
        let oldest = self.ring.get(index(self.lingering));
        oldest.is_some_and(|&at| matches!(self.get(at).state, SegmentState::Emptied(_)))
    }

    /// How many are emptied and not yet free.
    #[must_use]
    pub fn emptied(&self) -> u32 {
        to_u32(wide(self.waiting().count()))
    }

    /// A header with sequence `sequence` was assembled, whose floor is above all emptied segments.
    pub fn carry_floor(&mut self, sequence: u64) {
        for at in index(self.lingering)..self.ring.len() {
            match &mut self.list[index(self.ring[at])].state {
                SegmentState::Emptied(carrier @ None) => *carrier = Some(sequence),
                SegmentState::Emptied(Some(_)) => (),
                _ => break,
            }
        }
    }

    /// Frees the emptied segments at the tail whose end is durable: the header that says so is
    /// covered by a flush, and nobody reads them any more (rule 1). Those with blocks that are read on linger.
    pub fn free_flushed(&mut self, flushed_sequence: u64) {
        while let Some(&at) = self.ring.get(index(self.lingering)) {
            let segment = &self.list[index(at)];
            match segment.state {
                // RULE 1: the flush was issued after the segment was found empty, because the
                // carrying header was assembled after that and the flush covers it.
                SegmentState::Emptied(carrier)
                    if (carrier.is_some_and(|carrier| carrier <= flushed_sequence)
                        || self.mutations.has(Mutation::ReuseBeforeCacheFlush))
                        && (segment.pins == 0 || self.mutations.has(Mutation::ForgetPins)) =>
                {
                    self.lingering += 1;
                    if self.lingering == 1 && !segment.is_read_on {
                        self.release();
                    }
                }
                _ => break,
            }
        }
    }

    /// The oldest segment, if it lingers.
    #[must_use]
    pub fn lingers(&self) -> Option<u32> {
        self.ring.front().copied().filter(|_| self.lingering > 0)
    }

    /// The oldest segment, which lingers and of which nothing is in the index any more, can be opened; false while it is read.
    pub fn release(&mut self) -> bool {
        let at = self.lingers().expect("only a segment that lingers is released");
        let segment = &mut self.list[index(at)];
        assert!(segment.live == 0, "I4: what can be opened has nothing that is live");
        if segment.pins > 0 && !self.mutations.has(Mutation::ForgetPins) {
            return false;
        }
        *segment = Segment { pins: segment.pins, ..Segment::free() };
        self.ring.pop_front();
        self.clean_front = self.clean_front.saturating_sub(1);
        self.lingering -= 1;
        self.spare += 1;
        true
    }

    /// The highest sequence that a flush has to cover for all emptied segments to be free.
    #[must_use]
    pub fn flush_wanted(&self) -> Option<u64> {
        let carriers = self.waiting().filter_map(|segment| match segment.state {
            SegmentState::Emptied(carrier) => carrier,
            _ => None,
        });
        carriers.max()
    }

    /// An index entry now points into the segment of `place`.
    #[inline]
    pub fn add_live(&mut self, place: Place, blocks: u32, dirty: bool) {
        let at = self.of(place);
        self.get_mut(at).live += blocks;
        if dirty {
            self.add_must_of(at, blocks);
        }
    }

    /// So many index entries point into a segment, of which so many must go home first.
    pub fn add_counts(&mut self, at: u32, live: u32, must: u32) {
        self.get_mut(at).live += live;
        if must > 0 {
            self.add_must_of(at, must);
        }
    }

    /// An index entry does not point into the segment of `place` any more.
    #[inline]
    pub fn remove_live(&mut self, place: Place, dirty: bool) {
        let at = self.of(place);
        let segment = self.get_mut(at);
        assert!(segment.live > 0, "I2: a segment counts the index entries that point into it");
        segment.live -= 1;
        if dirty {
            self.remove_must_of(at);
        }
    }

    /// Something in the segment of `place` must go home first.
    #[inline]
    pub fn add_must(&mut self, place: Place, count: u32) {
        self.add_must_of(self.of(place), count);
    }

    #[inline]
    fn add_must_of(&mut self, at: u32, count: u32) {
        let segment = self.get_mut(at);
        let was_zero = segment.must == 0;
        segment.must += count;
        if was_zero && segment.must > 0 {
            self.has_must_now(at);
        }
    }

    /// A segment has something that must go home, and had nothing.
    #[inline(never)]
    fn has_must_now(&mut self, at: u32) {
        let was_ring_clean = self.with_must == self.dirty_buckets;
        self.with_must += 1;
        if at >= self.in_ring {
            self.dirty_buckets += 1;
        } else if was_ring_clean {
            self.clean_front = self.position(at);
        } else {
            self.clean_front = self.clean_front.min(self.position(at));
        }
    }

    /// One thing less must go home.
    #[inline]
    pub fn remove_must(&mut self, place: Place) {
        self.remove_must_of(self.of(place));
    }

    #[inline]
    fn remove_must_of(&mut self, at: u32) {
        let segment = self.get_mut(at);
        assert!(segment.must > 0, "I2: a segment counts what must go home from it");
        segment.must -= 1;
        if segment.must == 0 {
            self.has_no_must_now(at);
        }
    }

    /// A segment has nothing any more that must go home.
    #[inline(never)]
    fn has_no_must_now(&mut self, at: u32) {
        self.with_must -= 1;
        if at >= self.in_ring {
            self.dirty_buckets -= 1;
        } else if self.clean_front == self.position(at) {
            let from_here = self.ring.range(self.clean_front..);
            self.clean_front += from_here.take_while(|&&at| self.get(at).must == 0).count();
        }
    }

    /// Whether a flush covers what is at `place`.
    #[must_use]
    pub fn is_flushed(&self, place: Place) -> bool {
        let segment = self.get(self.of(place));
        let block = if place.0 < self.buckets_at {
            self.block_of(place) % self.segment_blocks
        } else {
            (place.0 - self.buckets_at) % self.bucket_blocks
        };
        block < segment.flushed_blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::{low_u32, to_u32};
    use crate::prng::Prng;

    #[test]
    fn a_segment_is_reused_only_after_a_flushed_header_says_it_is_empty() {
        let mut segments = Segments::new(3, 32);
        for sequence in 1..=3 {
            let at = segments.open_next(sequence, sequence).unwrap();
            segments.seal(at);
        }
        assert_eq!(segments.open_next(4, 4), None);
        segments.empty(0, false);
        segments.free_flushed(99);
        assert_eq!(segments.free(), 0);
        segments.carry_floor(4);
        assert_eq!(segments.flush_wanted(), Some(4));
        segments.free_flushed(3);
        assert_eq!(segments.free(), 0);
        segments.get_mut(0).pins = 1;
        segments.free_flushed(4);
        assert_eq!(segments.free(), 0);
        segments.get_mut(0).pins = 0;
        segments.free_flushed(4);
        assert_eq!(segments.free(), 1);
        assert_eq!(segments.open_next(4, 5), Some(0));
        assert_eq!(segments.floor(), Some(2));
    }

    #[test]
    fn what_was_never_used_is_known_until_the_ring_has_gone_round() {
        let mut segments = Segments::new(3, 32);
        assert_eq!(segments.unused(), 3);
        for sequence in 1..=3 {
            let at = segments.open_next(sequence, sequence).expect("it is free");
            segments.seal(at);
            assert_eq!(u64::from(segments.unused()), 3 - sequence);
        }
        segments.empty(0, false);
        segments.carry_floor(4);
        segments.free_flushed(4);
        assert_eq!((segments.free(), segments.unused()), (1, 0));
        segments.open_next(4, 5).expect("it is free");
        assert_eq!(segments.unused(), 0);
    }

    #[test]
    fn counts_what_must_go_home() {
        let mut segments = Segments::new(2, 32);
        segments.open_next(1, 1).unwrap();
        segments.add_live(Place(3), 2, true);
        assert_eq!((segments.with_must(), segments.oldest_dirty()), (1, Some(1)));
        segments.remove_live(Place(3), true);
        segments.remove_live(Place(4), true);
        assert_eq!((segments.with_must(), segments.oldest_dirty()), (0, None));
    }

    /// Draws what happens to a small ring and compares with a search of all of it.
    #[test]
    fn the_oldest_dirty_segment_is_found_wherever_the_ring_is() {
        let mut prng = Prng::new(1);
        let mut below = move |end: u32| low_u32(prng.next_u64() >> 32) % end;
        let mut segments = Segments::new(7, 32);
        let mut dirty: Vec<Place> = Vec::new();
        let mut sequence = 0;
        let mut found = 0;
        for _ in 0..20_000 {
            match below(5) {
                0 => {
                    sequence += 1;
                    if let Some(at) = segments.open_next(sequence, sequence) {
                        segments.seal(at);
                    }
                }
                1 => {
                    let oldest = segments.ring().next();
                    if let Some(at) = oldest.filter(|&at| segments.get(at).must == 0) {
                        segments.empty(at, false);
                        segments.carry_floor(sequence);
                        segments.free_flushed(sequence);
                    }
                }
                2 | 3 if !dirty.is_empty() => {
                    segments.remove_must(dirty.swap_remove(index(below(to_u32(dirty.len())))))
                }
                _ => {
                    let ring: Vec<u32> = segments.ring().collect();
                    if dirty.len() < 4 && !ring.is_empty() {
                        let place = segments.place(ring[index(below(to_u32(ring.len())))], 5);
                        segments.add_must(place, 1);
                        dirty.push(place);
                    }
                }
            }
            let searched = segments.ring().map(|at| segments.get(at)).find(|segment| segment.must > 0);
            assert_eq!(segments.oldest_dirty(), searched.map(|segment| segment.first_sequence));
            found += u32::from(searched.is_some());
        }
        assert!(found > 1000, "the ring was dirty often enough");
    }
}
