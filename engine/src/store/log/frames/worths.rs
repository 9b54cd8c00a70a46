//! Which blocks enter, and which leave: the policy `forebay`, and a mark for each place.

use super::places::{FramePlaces, FrameRun};
use crate::format::KeyLayout;
use crate::number::{index, to_u32};
use crate::policies::replacement::forebay::{Forebay, Mark};
use crate::prng::Prng;
use crate::store::log::index::{Entry, Index};
use crate::units::{BlockKey, PieceKey, Place};
use alloc::vec;
use alloc::vec::Vec;

/// The policy's bar is moved at each such newcomer to a full cache.
const GAUGE_EVERY: u32 = 4;
/// Blocks that are looked at for one that leaves, at most: of so many, the one that is worth least.
const LOOKS_MAX: u32 = 60;
/// Neighbours that leave with a block, on either side, if they are worth no more than it takes to stay.
const NEIGHBOURS_MAX: u64 = 15;

/// The policy, with the marks of all places.
pub(crate) struct Worths {
    policy: Forebay,
    draw_blocks: u32,
    marks: Vec<[u8; 3]>,
    prng: Prng,
    /// Newcomers to a full cache.
    newcomers: u32,
}

impl Worths {
    /// Nothing was seen yet.
    pub fn new(layout: &KeyLayout, draw_blocks: u32, seed: u64) -> Worths {
        let frames = layout.buckets * layout.bucket_blocks;
        Worths {
            policy: Forebay::new(frames + layout.ring_blocks() / 2),
            draw_blocks,
            marks: vec![[0; 3]; index(layout.ring_blocks() + frames)],
            prng: Prng::new(seed),
            newcomers: 0,
        }
    }

    fn mark(&self, place: Place) -> Mark {
        Mark::of_bytes(self.marks[index(place.0)])
    }

    fn set_mark(&mut self, place: Place, mark: Mark) {
        self.marks[index(place.0)] = mark.to_bytes();
    }

    /// A client asks for a block.
    pub fn accessed(&mut self, key: BlockKey, blocks: &Index) {
        let Worths { policy, marks, .. } = self;
        let mark = |entry: Entry| Mark::of_bytes(marks[index(entry.place.0)]);
        policy.accessed(PieceKey(key.0), || blocks.get(key).map(mark));
    }

    /// A client read the copy at a place.
    pub fn hit(&mut self, place: Place) {
        self.set_mark(place, self.policy.hit(self.mark(place)));
    }

    /// A block that was not cached lies at a place now.
    pub fn arrives(&mut self, key: BlockKey, place: Place) {
        let mark = self.policy.arrives(PieceKey(key.0));
        self.set_mark(place, mark);
    }

    /// A block has a newer copy at a place.
    pub fn rewritten(&mut self, from: Place, place: Place) {
        let mark = self.policy.hit(self.mark(from));
        self.set_mark(place, mark);
    }

    /// The copy of a block is at another place now.
    pub fn moved(&mut self, from: Place, place: Place) {
        self.marks[index(place.0)] = self.marks[index(from.0)];
    }

    /// The mark of a block that a read brought, if it may enter.
    pub fn admits(&mut self, key: BlockKey, places: &FramePlaces) -> Option<Mark> {
        let mark = self.policy.arrives(PieceKey(key.0));
        if !places.is_full() {
            return Some(mark);
        }
        self.newcomers += 1;
        if self.newcomers.is_multiple_of(GAUGE_EVERY) {
            self.gauge(places);
        }
        if self.policy.enters(mark) {
            return Some(mark);
        }
        self.policy.left(PieceKey(key.0), mark);
        None
    }

    /// A block that was admitted lies in its frame.
    pub fn enters(&mut self, place: Place, mark: Mark) {
        self.set_mark(place, mark);
    }

    /// A block that was admitted found no frame, or gave its place up.
    pub fn left(&mut self, key: BlockKey, mark: Mark) {
        self.policy.left(PieceKey(key.0), mark);
    }

    /// The block at a place leaves.
    pub fn leaves(&mut self, key: BlockKey, place: Place) {
        self.policy.left(PieceKey(key.0), self.mark(place));
    }

    /// Whether the clean block at a place of the ring is worth a frame.
    pub fn is_worth_a_frame(&self, place: Place, places: &FramePlaces) -> bool {
        !places.is_full() || self.policy.stays(self.mark(place))
    }

    fn gauge(&mut self, places: &FramePlaces) {
        let Worths { policy, draw_blocks, marks, prng, .. } = self;
        let drawn = (0..*draw_blocks).filter_map(|_| {
            let frame = prng.below(places.count());
            places.is_taken(frame).then(|| Mark::of_bytes(marks[index(places.place(frame).0)]))
        });
        let drawn: Vec<Mark> = drawn.collect();
        policy.gauge(drawn.into_iter());
    }

    /// Blocks that leave next, `blocks` of them if there are so many, in `runs_max` runs at the most.
    pub fn victims(
        &mut self,
        blocks: u32,
        runs_max: usize,
        index: &Index,
        places: &FramePlaces,
    ) -> Vec<FrameRun> {
        let mut runs: Vec<FrameRun> = Vec::new();
        let mut found = 0;
        let mut tries = 0;
        while found < blocks && runs.len() < runs_max && tries < runs_max * 2 {
            tries += 1;
            let Some((key, place)) = self.draw_victim(index, places) else { break };
            let is_chosen = runs.iter().any(|run| (run.place.0..run.place.0 + run.blocks).contains(&place.0));
            if is_chosen {
                continue;
            }
            let run = self.with_neighbours(key, place, (&runs, index, places));
            found += run.blocks;
            runs.push(run);
        }
        runs
    }

    fn draw_victim(&mut self, index: &Index, places: &FramePlaces) -> Option<(BlockKey, Place)> {
        let mut least = None;
        for _ in 0..LOOKS_MAX {
            let Worths { prng, .. } = self;
            let (key, entry) = index.sample(&mut || prng.next_u64())?;
            if !may_leave(&entry, places) {
                continue;
            }
            let mark = self.mark(entry.place);
            if !self.policy.stays(mark) {
                return Some((key, entry.place));
            }
            let worth = self.policy.worth(mark);
            if least.is_none_or(|(least_worth, _)| worth < least_worth) {
                least = Some((worth, (key, entry.place)));
            }
        }
        least.map(|(_, victim)| victim)
    }

    /// The block, and those beside it that lie in line with it and are not worth their frames either: a run of free
    /// frames takes a run of blocks.
    fn with_neighbours(
        &self,
        key: BlockKey,
        place: Place,
        (runs, index, places): (&[FrameRun], &Index, &FramePlaces),
    ) -> FrameRun {
        let is_in_run =
            |place: Place| runs.iter().any(|run| (run.place.0..run.place.0 + run.blocks).contains(&place.0));
        let leaves = |next: u64, place: u64| {
            let entry = (next < BlockKey::END && BlockKey(next).volume() == key.volume())
                .then(|| index.get(BlockKey(next)))
                .flatten();
            entry.is_some_and(|entry| {
                u64::from(entry.place.0) == place
                    && may_leave(&entry, places)
                    && !is_in_run(entry.place)
                    && !self.policy.stays(self.mark(entry.place))
            })
        };
        let at = u64::from(place.0);
        let before = (1..=NEIGHBOURS_MAX.min(key.block()))
            .take_while(|step| leaves(key.0 - step, at - step))
            .last()
            .map_or(0, to_u32);
        let behind =
            (1..=NEIGHBOURS_MAX).take_while(|step| leaves(key.0 + step, at + step)).last().map_or(0, to_u32);
        FrameRun {
            first: BlockKey(key.0 - u64::from(before)),
            place: Place(place.0 - before),
            blocks: before + 1 + behind,
        }
    }
}

fn may_leave(entry: &Entry, places: &FramePlaces) -> bool {
    !entry.dirty && places.is_frame(entry.place) && !places.is_leaving(entry.place)
}
