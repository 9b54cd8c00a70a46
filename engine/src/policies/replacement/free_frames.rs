//! The frames that hold nothing, and the order in which they are used.
//!
//! The order is part of what a published system does: it decides where on the device a new cache
//! grows, and so how sequential its writes are.

use crate::number::index;
use crate::policies::replacement::Shape;
use crate::table::bits::Bits;
use crate::units::Frame;
use alloc::vec;
use alloc::vec::Vec;

/// Bits that mq 1.0 looks at together.
const WORD_FRAMES: u32 = 64;

/// The order in which free frames are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOrder {
    /// The lowest of the set. Source: EnhanceIO, `find_invalid_dbn`, read.
    Lowest,
    /// The lowest of the 64 frames where the last one was found, or of the next 64 that have one,
    /// round the whole cache. Source: dm-cache's mq 1.0 (Linux 3.9), read. Needs a cache without
    /// sets.
    NearLast,
    /// The one that was freed last; at first the highest. Source: flashcache 3.1.1 (a list of
    /// invalid blocks for each set) and dm-cache's mq since its entries lie in pools, smq 1.0 and
    /// the first smq 2.0 (one list), all read.
    LastFreed,
    /// The one that was freed first; at first the lowest. Source: dm-cache's smq 2.0 as in Linux 4.19, read: it
    /// takes from the head of the list what it gave back at the tail. The first 2.0 still took from
    /// the tail (which version changed it is unverified).
    FirstFreed,
}

/// The free frames.
#[derive(Clone, Debug)]
pub struct FreeFrames {
    shape: Shape,
    /// Free frames of each set.
    counts: Vec<u32>,
    len: u32,
    order: Order,
}

/// State that the order needs.
#[derive(Clone, Debug)]
enum Order {
    Lowest(Bits),
    NearLast {
        free: Bits,
        /// The word where the last frame was found.
        word: u32,
    },
    /// A stack for each set, in the places of the set's frames.
    LastFreed(Vec<u32>),
    /// A queue for each set, in the places of the set's frames, round their end.
    FirstFreed {
        queue: Vec<u32>,
        /// By set: the place of the first of its queue, counted in the set.
        first: Vec<u32>,
    },
}

impl FreeFrames {
    /// The frames for which `is_free` holds.
    #[must_use]
    pub fn new(shape: Shape, order: FreeOrder, is_free: impl Fn(Frame) -> bool) -> FreeFrames {
        let sets = shape.sets();
        let order = match order {
            FreeOrder::Lowest => Order::Lowest(Bits::new(shape.frames)),
            FreeOrder::NearLast => {
                assert!(sets == 1, "mq 1.0 knows no sets");
                Order::NearLast { free: Bits::new(shape.frames), word: 0 }
            }
            FreeOrder::LastFreed => Order::LastFreed(vec![0; index(shape.frames)]),
            FreeOrder::FirstFreed => {
                Order::FirstFreed { queue: vec![0; index(shape.frames)], first: vec![0; index(sets)] }
            }
        };
        let mut frames = FreeFrames { shape, counts: vec![0; index(sets)], len: 0, order };
        for frame in (0..shape.frames).map(Frame).filter(|&frame| is_free(frame)) {
            frames.give_back(frame);
        }
        frames
    }

    /// The number of free frames.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no frame is free.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of free frames of a set.
    #[must_use]
    pub fn len_of(&self, set: u32) -> u32 {
        self.counts[index(set)]
    }

    /// The next free frame of a set; it is no longer free.
    pub fn take(&mut self, set: u32) -> Option<Frame> {
        let count = self.counts[index(set)].checked_sub(1)?;
        let first = self.shape.frame(set, 0);
        let frame = match &mut self.order {
            Order::Lowest(free) => {
                let lowest = free.first_in(first.0..first.0 + self.shape.ways);
                Frame(lowest.expect("a set that has free frames has a lowest one"))
            }
            Order::NearLast { free, word } => {
                let start = *word * WORD_FRAMES;
                let near = free.first_in(start..self.shape.frames).or_else(|| free.first_in(0..start));
                let frame = near.expect("a cache that has free frames has one near the last one");
                *word = frame / WORD_FRAMES;
                Frame(frame)
            }
            Order::LastFreed(stack) => Frame(stack[index(first.0 + count)]),
            Order::FirstFreed { queue, first: place } => {
                let place = &mut place[index(set)];
                let frame = queue[index(first.0 + *place)];
                *place = (*place + 1) % self.shape.ways;
                Frame(frame)
            }
        };
        if let Order::Lowest(free) | Order::NearLast { free, .. } = &mut self.order {
            assert!(free.put(frame.0, false), "it was free");
        }
        self.counts[index(set)] = count;
        self.len -= 1;
        Some(frame)
    }

    /// `frame` is free again.
    pub fn give_back(&mut self, frame: Frame) {
        let set = self.shape.set_of(frame);
        let count = &mut self.counts[index(set)];
        assert!(*count < self.shape.ways, "no frame is free twice");
        match &mut self.order {
            Order::Lowest(free) | Order::NearLast { free, .. } => {
                assert!(!free.put(frame.0, true), "no frame is free twice");
            }
            Order::LastFreed(stack) => stack[index(set * self.shape.ways + *count)] = frame.0,
            Order::FirstFreed { queue, first } => {
                let place = (first[index(set)] + *count) % self.shape.ways;
                queue[index(set * self.shape.ways + place)] = frame.0;
            }
        }
        *count += 1;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use std::collections::BTreeSet;

    fn take(free: &mut FreeFrames, set: u32, count: u32) -> Vec<u32> {
        (0..count).map_while(|_| free.take(set)).map(|frame| frame.0).collect()
    }

    #[test]
    fn enhanceio_takes_the_lowest_of_the_set() {
        let mut free = FreeFrames::new(Shape { frames: 8, ways: 4 }, FreeOrder::Lowest, |_| true);
        assert_eq!(take(&mut free, 1, 3), [4, 5, 6]);
        free.give_back(Frame(5));
        assert_eq!(take(&mut free, 1, 3), [5, 7]);
        assert_eq!([free.len(), free.len_of(0), free.len_of(1)], [4, 4, 0]);
    }

    #[test]
    fn flashcache_takes_the_last_freed_of_the_set_and_at_first_the_highest() {
        let mut free = FreeFrames::new(Shape { frames: 8, ways: 4 }, FreeOrder::LastFreed, |_| true);
        assert_eq!(take(&mut free, 1, 3), [7, 6, 5]);
        free.give_back(Frame(6));
        free.give_back(Frame(7));
        assert_eq!(take(&mut free, 1, 4), [7, 6, 4]);
    }

    #[test]
    fn smq_2_0_takes_the_first_freed_and_at_first_the_lowest() {
        let mut free = FreeFrames::new(Shape { frames: 8, ways: 4 }, FreeOrder::FirstFreed, |_| true);
        assert_eq!(take(&mut free, 1, 3), [4, 5, 6]);
        free.give_back(Frame(6));
        free.give_back(Frame(4));
        assert_eq!(take(&mut free, 1, 4), [7, 6, 4], "round the end of the set's places");
        assert_eq!(take(&mut free, 0, 4), [0, 1, 2, 3], "the other set is as it was");
    }

    #[test]
    fn what_is_in_use_when_the_cache_opens_is_left_out() {
        let is_free = |frame: Frame| frame.0.is_multiple_of(2);
        let mut free = FreeFrames::new(Shape::whole(6), FreeOrder::LastFreed, is_free);
        assert_eq!(take(&mut free, 0, 6), [4, 2, 0]);
    }

    #[test]
    fn mq_1_0_stays_in_the_word_where_it_found_one() {
        let mut free = FreeFrames::new(Shape::whole(192), FreeOrder::NearLast, |frame| frame.0 >= 63);
        assert_eq!(take(&mut free, 0, 3), [63, 64, 65]);
        free.give_back(Frame(3));
        free.give_back(Frame(64));
        assert_eq!(take(&mut free, 0, 2), [64, 66], "frame 3 is of an earlier word");
        assert_eq!(take(&mut free, 0, 125).last(), Some(&191));
        assert_eq!(take(&mut free, 0, 2), [3], "round the end");
        assert!(free.is_empty());
    }

    #[test]
    fn every_order_gives_each_free_frame_once() {
        for order in [FreeOrder::Lowest, FreeOrder::NearLast, FreeOrder::LastFreed, FreeOrder::FirstFreed] {
            let ways = if order == FreeOrder::NearLast { 300 } else { 100 };
            let shape = Shape { frames: 300, ways };
            let mut prng = Prng::new(9);
            let mut free = FreeFrames::new(shape, order, |_| false);
            let mut model = BTreeSet::new();
            for _ in 0..20_000 {
                if prng.below(2) == 0 {
                    let frame = Frame(prng.below(300));
                    if model.insert(frame) {
                        free.give_back(frame);
                    }
                } else {
                    let set = prng.below(shape.sets());
                    match free.take(set) {
                        Some(frame) => assert!(shape.set_of(frame) == set && model.remove(&frame)),
                        None => assert!(model.iter().all(|&frame| shape.set_of(frame) != set)),
                    }
                }
                assert_eq!(free.len() as usize, model.len());
            }
        }
    }
}
