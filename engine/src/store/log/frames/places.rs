//! The frames: which are free, and how others become so.
//!
//! Frames are counted in groups (the buckets of [`KeyLayout`]), in which `Segments` counts what is live and who reads.

use super::found::FramesFound;
use crate::format::KeyLayout;
use crate::mutation::Mutation;
use crate::store::log::index::Index;
use crate::store::log::segments::Segments;
use crate::table::bits::Bits;
use crate::units::{BLOCK_BYTES, BlockKey, Place};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Runs that leave together at the most: their records fit one header.
pub(in crate::store::log) const RUNS_MAX: usize = 96;
/// Blocks of a run at the most.
const RUN_BLOCKS_MAX: u32 = 128;
/// Frames that are kept free: one in so many.
const FREE_PART: u32 = 128;
/// The least and the most of them.
const FREE_BLOCKS: core::ops::RangeInclusive<u32> = 32..=8192;

/// Consecutive blocks in consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRun {
    pub first: BlockKey,
    pub place: Place,
    pub blocks: u32,
}

impl FrameRun {
    /// Lengthens it by a block, if that continues it.
    fn join(&mut self, key: BlockKey, place: Place) -> bool {
        let is_next = self.first.0 + u64::from(self.blocks) == key.0
            && self.place.0 + self.blocks == place.0
            && self.blocks < RUN_BLOCKS_MAX
            && self.first.volume() == key.volume();
        self.blocks += u32::from(is_next);
        is_next
    }

    /// Its blocks with their places.
    pub fn each(self) -> impl Iterator<Item = (BlockKey, Place)> {
        (0..self.blocks)
            .map(move |step| (BlockKey(self.first.0 + u64::from(step)), Place(self.place.0 + step)))
    }
}

/// Frames on their way to be free.
#[derive(Debug)]
struct Leaving {
    number: u64,
    runs: Vec<FrameRun>,
    /// The sequence of the batch that says so, once that is published.
    recorded: Option<u64>,
}

/// All frames.
pub(crate) struct FramePlaces {
    layout: KeyLayout,
    count: u32,
    free: Bits,
    free_blocks: u32,
    /// Frames that leave, or whose block is gone: what is in them has no key any more.
    is_leaving: Bits,
    /// Where the next search for a free frame begins.
    cursor: u32,
    /// Frames whose block is gone, and nobody has said so yet.
    orphans: Vec<FrameRun>,
    orphan_blocks: u32,
    leaving: VecDeque<Leaving>,
    leaving_blocks: u32,
    /// Frames that would be free if nobody read near them.
    read: Vec<FrameRun>,
    next_number: u64,
}

impl FramePlaces {
    /// The frames after recovery, and blocks that share one with another block: at the most one of these is ours.
    pub fn new(found: FramesFound, index: &Index) -> (FramePlaces, Vec<BlockKey>) {
        let FramesFound { layout, voided } = found;
        let count = layout.buckets * layout.bucket_blocks;
        let mut places = FramePlaces {
            layout,
            count,
            free: Bits::new(count),
            free_blocks: count,
            is_leaving: Bits::new(count),
            cursor: 0,
            orphans: Vec::new(),
            orphan_blocks: 0,
            leaving: VecDeque::new(),
            leaving_blocks: 0,
            read: Vec::new(),
            next_number: 0,
        };
        (0..count).for_each(|frame| {
            places.free.put(frame, true);
        });
        let mut shared = Vec::new();
        index.for_each(|key, entry| {
            if places.is_frame(entry.place) && !places.occupy(entry.place) {
                shared.push(key);
            }
        });
        // HAZARD 7: the log has their keys still, and a later start may believe them.
        for (place, key) in voided {
            let place = Place(place);
            // HAZARD 15: of two keys that lead to one frame both may be none of ours.
            if places.free.get(places.frame(place)) {
                places.occupy(place);
                places.orphan(key, place);
            }
        }
        (places, shared)
    }

    /// Takes a frame; answers whether it was free.
    fn occupy(&mut self, place: Place) -> bool {
        let was_free = self.free.put(self.frame(place), false);
        self.free_blocks -= u32::from(was_free);
        was_free
    }

    /// Whether a place is a frame: else it is in the ring.
    pub fn is_frame(&self, place: Place) -> bool {
        place.0 >= self.layout.ring_blocks()
    }

    fn frame(&self, place: Place) -> u32 {
        place.0 - self.layout.ring_blocks()
    }

    /// A frame's place.
    pub fn place(&self, frame: u32) -> Place {
        Place(self.layout.ring_blocks() + frame)
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes in frames that are not free.
    pub fn used_bytes(&self) -> u64 {
        u64::from(self.count - self.free_blocks) * BLOCK_BYTES
    }

    /// Below this many free ones others leave.
    fn low(&self) -> u32 {
        (self.count / FREE_PART).clamp(*FREE_BLOCKS.start(), *FREE_BLOCKS.end()).min(self.count / 8)
    }

    /// Whether all frames are taken but those that are kept free: whatever enters makes another block leave.
    pub fn is_full(&self) -> bool {
        self.room_blocks() == 0
    }

    /// Blocks that may yet enter before others have to leave.
    pub fn room_blocks(&self) -> u32 {
        self.free_blocks.saturating_sub(self.low() * 2)
    }

    /// Blocks that have to leave now.
    pub fn wanted_blocks(&self) -> u32 {
        let coming = self.free_blocks + self.leaving_blocks + self.orphan_blocks;
        if self.free_blocks + self.leaving_blocks < self.low() {
            (self.low() * 2).saturating_sub(coming)
        } else {
            0
        }
    }

    /// Whether what nobody has yet said to be gone shall be said now.
    pub fn has_orphans_to_tell(&self) -> bool {
        !self.orphans.is_empty()
            && (self.free_blocks + self.leaving_blocks < self.low() || self.orphans.len() >= RUNS_MAX)
    }

    /// Whether a frame leaves, or its block is gone.
    pub fn is_leaving(&self, place: Place) -> bool {
        self.is_frame(place) && self.is_leaving.get(self.frame(place))
    }

    /// Whether a frame holds a block that stays.
    pub fn is_taken(&self, frame: u32) -> bool {
        !self.free.get(frame) && !self.is_leaving.get(frame)
    }

    /// Takes free frames, consecutive ones of one group, `blocks` at the most.
    pub fn take(&mut self, blocks: u64) -> Option<(Place, u32)> {
        let first =
            self.free.first_in(self.cursor..self.count).or_else(|| self.free.first_in(0..self.cursor))?;
        let group_end = (first / self.layout.bucket_blocks + 1) * self.layout.bucket_blocks;
        let mut end = first;
        while end < group_end && u64::from(end - first) < blocks && self.free.get(end) {
            self.free.put(end, false);
            end += 1;
        }
        self.free_blocks -= end - first;
        self.cursor = if end == self.count { 0 } else { end };
        Some((self.place(first), end - first))
    }

    /// Frames that were taken, and of which no key is in any batch, are free again.
    pub fn give_back(&mut self, place: Place, blocks: u32) {
        for frame in self.frame(place)..self.frame(place) + blocks {
            let was_free = self.free.put(frame, true);
            assert!(!was_free, "only a frame that was taken is given back");
        }
        self.free_blocks += blocks;
    }

    /// The index has the block of a frame no more, or elsewhere.
    pub fn orphan(&mut self, key: BlockKey, place: Place) {
        if self.is_leaving.put(self.frame(place), true) {
            return;
        }
        self.orphan_blocks += 1;
        push_block(&mut self.orphans, key, place);
    }

    /// Blocks of these frames leave, and with them those that are gone; the number of a record that says so.
    pub fn leave(&mut self, mut runs: Vec<FrameRun>) -> Option<u64> {
        for (_, place) in runs.iter().flat_map(|run| run.each()) {
            let frame = self.frame(place);
            let was_leaving = self.is_leaving.put(frame, true);
            assert!(!was_leaving, "a block leaves once");
        }
        let room = RUNS_MAX.saturating_sub(runs.len()).min(self.orphans.len());
        for run in self.orphans.drain(..room) {
            self.orphan_blocks -= run.blocks;
            runs.push(run);
        }
        if runs.is_empty() {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.leaving_blocks += runs.iter().map(|run| run.blocks).sum::<u32>();
        self.leaving.push_back(Leaving { number, runs, recorded: None });
        Some(number)
    }

    /// The runs of a record.
    pub fn runs_of(&self, number: u64) -> &[FrameRun] {
        self.leaving.iter().find(|leaving| leaving.number == number).map_or(&[], |leaving| &leaving.runs)
    }

    /// A record is published.
    pub fn recorded(&mut self, number: u64, sequence: u64) {
        if let Some(leaving) = self.leaving.iter_mut().find(|leaving| leaving.number == number) {
            leaving.recorded = Some(sequence);
        }
    }

    /// The sequence that a flush has to cover for those that leave.
    pub fn wanted(&self) -> Option<u64> {
        self.leaving.iter().filter_map(|leaving| leaving.recorded).max()
    }

    /// Whether some are on their way to be free.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty() || !self.read.is_empty()
    }

    /// A flush covered the log up to `flushed`: the runs whose record is durable. Their blocks leave the index, then
    /// [`FramePlaces::free`] takes them.
    pub fn take_flushed(&mut self, flushed: u64, segments: &Segments) -> Vec<FrameRun> {
        let is_hasty = segments.mutations.has(Mutation::RefillBeforeFlush);
        let mut void = core::mem::take(&mut self.read);
        while let Some(first) = self.leaving.front() {
            // RULE 1: what was there is void after a crash, too, before something else is.
            if !first.recorded.is_some_and(|recorded| is_hasty || recorded <= flushed) {
                break;
            }
            let Leaving { runs, .. } = self.leaving.pop_front().expect("just seen");
            self.leaving_blocks -= runs.iter().map(|run| run.blocks).sum::<u32>();
            void.extend(runs);
        }
        void
    }

    /// The blocks of a run are in no index: its frames are free, but those in groups where somebody still reads.
    pub fn free(&mut self, run: FrameRun, segments: &Segments) {
        for (key, place) in run.each() {
            let frame = self.frame(place);
            let pins = segments.get(segments.of(place)).pins;
            if pins > 0 && !segments.mutations.has(Mutation::ForgetPins) {
                push_block(&mut self.read, key, place);
                continue;
            }
            self.is_leaving.put(frame, false);
            let was_free = self.free.put(frame, true);
            assert!(!was_free, "a frame becomes free once");
            self.free_blocks += 1;
        }
    }
}

/// Adds a block to runs: to the last one, if it continues that.
fn push_block(runs: &mut Vec<FrameRun>, key: BlockKey, place: Place) {
    if runs.last_mut().is_none_or(|last| !last.join(key, place)) {
        runs.push(FrameRun { first: key, place, blocks: 1 });
    }
}

impl core::fmt::Debug for FramePlaces {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FramePlaces")
            .field("count", &self.count)
            .field("free_blocks", &self.free_blocks)
            .field("orphan_blocks", &self.orphan_blocks)
            .field("leaving_blocks", &self.leaving_blocks)
            .field("read", &self.read.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Geometry;
    use crate::number::{to_u32, wide};
    use crate::store::log::index::Run;
    use alloc::vec;
    use proptest::prelude::*;

    const LAYOUT: KeyLayout =
        KeyLayout { geometry: Geometry { segments: 4, segment_blocks: 32 }, bucket_blocks: 16, buckets: 8 };
    const FRAMES: u32 = 128;

    fn segments() -> Segments {
        let mut segments = Segments::new(4, 32);
        segments.add_buckets(LAYOUT.buckets, LAYOUT.bucket_blocks);
        segments
    }

    fn places() -> FramePlaces {
        FramePlaces::new(FramesFound::new(LAYOUT), &Index::new(1 << 20)).0
    }

    fn key_of(frame: u32) -> BlockKey {
        BlockKey(u64::from(1000 + frame))
    }

    /// A frame, as the model has it.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Is {
        Free,
        Taken,
        Orphan,
        Leaving(u64),
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(u64),
        GiveBack(u32),
        Orphan(u32),
        Leave(u32, u32),
        Record,
        Flush(u64),
        Pin(u32),
        Unpin,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u64..40).prop_map(Step::Take),
            1 => (0..FRAMES).prop_map(Step::GiveBack),
            2 => (0..FRAMES).prop_map(Step::Orphan),
            2 => (0..FRAMES, 1u32..9).prop_map(|(first, blocks)| Step::Leave(first, blocks)),
            2 => Just(Step::Record),
            2 => (0u64..3).prop_map(Step::Flush),
            1 => (0..LAYOUT.buckets).prop_map(Step::Pin),
            1 => Just(Step::Unpin),
        ]
    }

    proptest! {
        /// A frame is handed out once, and again only when a durable record says that it is void, and nobody reads there.
        #[test]
        fn frames_are_free_when_a_durable_record_says_so(steps in prop::collection::vec(step(), 1..200)) {
            let (mut places, mut segments) = (places(), segments());
            let mut model = vec![Is::Free; FRAMES as usize];
            let mut unrecorded: VecDeque<u64> = VecDeque::new();
            let mut recorded: Vec<(u64, u64)> = Vec::new();
            let mut pinned: Vec<u32> = Vec::new();
            let (mut sequence, mut flushed) = (0, 0);
            for step in steps {
                match step {
                    Step::Take(blocks) => match places.take(blocks) {
                        Some((place, taken)) => {
                            let first = place.0 - LAYOUT.ring_blocks();
                            prop_assert!(taken > 0 && u64::from(taken) <= blocks);
                            prop_assert_eq!(first / 16, (first + taken - 1) / 16, "of one group");
                            for frame in first..first + taken {
                                prop_assert_eq!(model[frame as usize], Is::Free);
                                model[frame as usize] = Is::Taken;
                            }
                        }
                        None => prop_assert!(!model.contains(&Is::Free)),
                    },
                    Step::GiveBack(frame) if model[frame as usize] == Is::Taken => {
                        places.give_back(places.place(frame), 1);
                        model[frame as usize] = Is::Free;
                    }
                    Step::Orphan(frame) if model[frame as usize] == Is::Taken => {
                        places.orphan(key_of(frame), places.place(frame));
                        model[frame as usize] = Is::Orphan;
                    }
                    Step::Leave(first, blocks) => {
                        let blocks = (first..FRAMES.min(first + blocks))
                            .take_while(|&frame| model[frame as usize] == Is::Taken)
                            .count() as u32;
                        let run = FrameRun { first: key_of(first), place: places.place(first), blocks };
                        let runs = if blocks > 0 { vec![run] } else { Vec::new() };
                        if let Some(number) = places.leave(runs) {
                            for (_, place) in places.runs_of(number).iter().flat_map(|run| run.each()) {
                                model[(place.0 - LAYOUT.ring_blocks()) as usize] = Is::Leaving(number);
                            }
                            unrecorded.push_back(number);
                        }
                    }
                    Step::Record => if let Some(number) = unrecorded.pop_front() {
                        sequence += 1;
                        places.recorded(number, sequence);
                        recorded.push((number, sequence));
                        prop_assert_eq!(places.wanted(), Some(sequence));
                    },
                    Step::Flush(behind) => {
                        flushed = flushed.max(sequence.saturating_sub(behind));
                        let durable: Vec<u64> = recorded.iter().filter(|r| r.1 <= flushed).map(|r| r.0).collect();
                        for run in places.take_flushed(flushed, &segments) {
                            for (_, place) in run.each() {
                                let frame = place.0 - LAYOUT.ring_blocks();
                                let Is::Leaving(number) = model[frame as usize] else { panic!("it left") };
                                prop_assert!(durable.contains(&number));
                                if !pinned.contains(&(frame / 16)) {
                                    model[frame as usize] = Is::Free;
                                }
                            }
                            places.free(run, &segments);
                        }
                    }
                    Step::Pin(group) => {
                        segments.get_mut(4 + group).pins += 1;
                        pinned.push(group);
                    }
                    Step::Unpin => if let Some(group) = pinned.pop() {
                        segments.get_mut(4 + group).pins -= 1;
                    },
                    Step::GiveBack(_) | Step::Orphan(_) => (),
                }
                let free = model.iter().filter(|&&is| is == Is::Free).count();
                prop_assert_eq!(places.used_bytes(), u64::from(FRAMES - to_u32(wide(free))) * BLOCK_BYTES);
                for (frame, is) in (0..).zip(&model) {
                    prop_assert_eq!(places.is_taken(frame), *is == Is::Taken);
                    prop_assert_eq!(places.is_leaving(places.place(frame)), !matches!(is, Is::Free | Is::Taken));
                }
            }
        }
    }

    #[test]
    fn a_run_is_of_one_volume_and_no_longer_than_a_record_says() {
        let mut run = FrameRun { first: BlockKey(5), place: Place(700), blocks: 1 };
        assert!(!run.join(BlockKey(6), Place(702)) && !run.join(BlockKey(7), Place(701)));
        for step in 1..RUN_BLOCKS_MAX {
            assert!(run.join(BlockKey(5 + u64::from(step)), Place(700 + step)), "block {step}");
        }
        assert!(!run.join(BlockKey(5 + u64::from(RUN_BLOCKS_MAX)), Place(700 + RUN_BLOCKS_MAX)));
    }

    #[test]
    fn what_recovery_found_void_is_told_before_it_is_free() {
        let mut found = FramesFound::new(LAYOUT);
        found.lost(BlockKey(3), Place(LAYOUT.ring_blocks() + 1));
        let (mut places, _) = FramePlaces::new(found, &Index::new(1 << 20));
        assert_eq!(places.take(1), Some((places.place(0), 1)));
        assert_eq!(places.take(1), Some((places.place(2), 1)), "frame 1 waits for its record");
        let number = places.leave(Vec::new()).expect("an orphan");
        places.recorded(number, 9);
        assert!(places.take_flushed(8, &segments()).is_empty());
        let void = places.take_flushed(9, &segments());
        assert_eq!(void.iter().map(|run| run.blocks).sum::<u32>(), 1);
    }

    #[test]
    fn of_two_blocks_in_one_frame_one_is_left_out() {
        let mut index = Index::new(1 << 20);
        let place = Place(LAYOUT.ring_blocks() + 7);
        for first in [BlockKey(3), BlockKey(90)] {
            let run = Run { first, place, dirty: false, hits: 0, checksums: &[1] };
            index.insert(run, |_, _| ());
        }
        let (places, shared) = FramePlaces::new(FramesFound::new(LAYOUT), &index);
        assert_eq!((places.used_bytes(), shared.len()), (BLOCK_BYTES, 1));
    }
}
