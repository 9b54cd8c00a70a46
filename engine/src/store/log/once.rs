//! Clean data that one half of a mirrored cache has alone (RULE 20).
//!
//! The origin has it, so it need not be on both: a mirrored cache caches twice as much of it. Its entries are of a kind of their own
//! ([`EntryKind::CleanOnce`](crate::format::EntryKind::CleanOnce)), its places tell the half ([`Place::half`]). What a half had alone
//! before it failed, or was copied anew, is void: its place counts in segments that were opened later.
//!
//! Recovery does not ask whether such payload is whole before it takes a batch: one half alone would decide then what the log
//! has. What is not whole is dropped, with a tombstone.

use super::LogStore;
use super::recovery::Replay;
use super::segments::Segments;
use crate::image::{Image, ReadAt};
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::memory::Slice;
use crate::number::{index_wide, to_u32, wide};
use crate::pair::Half;
use crate::units::{BLOCK_BYTES, BlockKey, Place, VolumeIndex, payload_checksum};
use alloc::vec::Vec;

/// In a draft, the bit of a place that counts blocks which one half gets alone.
const ONCE_BIT: u32 = 1 << 30;
/// Runs of blocks that recovery reads at a time.
const READS_TOGETHER: usize = 64;
const _: () = assert!(ONCE_BIT >= Place::END, "no place of a device has it");

/// The place of a block of a draft that one half gets alone, by its number among those.
pub(super) fn once_place(number: u32) -> Place {
    Place(ONCE_BIT | number)
}

/// Whether it is such a place.
pub(super) fn is_once(place: Place) -> bool {
    place.0 & ONCE_BIT != 0
}

/// Where a batch has the blocks that one half has alone: as [`payload_runs`](crate::format::payload_runs) says.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnceLayout {
    /// The number of the first one's block on the device.
    pub base: u32,
    /// Blocks that the first half has.
    pub first_has: u32,
}

impl OnceLayout {
    /// The layout of a batch without any.
    pub const NONE: OnceLayout = OnceLayout { base: 0, first_has: 0 };

    /// The place on the device of a block of the draft.
    pub fn place(&self, place: Place) -> Place {
        if !is_once(place) {
            return place;
        }
        let number = place.0 & !ONCE_BIT;
        match number.checked_sub(self.first_has) {
            None => Place(self.base + number).of_half(Half::First),
            Some(number) => Place(self.base + number).of_half(Half::Second),
        }
    }

    /// The runs of `blocks` from a place of the draft on: how many blocks lie before each, how many it has, and its place.
    pub fn runs(&self, place: Place, blocks: u64) -> impl Iterator<Item = (u64, u64, Place)> {
        let number = if is_once(place) { place.0 & !ONCE_BIT } else { self.first_has };
        let before = u64::from(self.first_has.saturating_sub(number)).min(blocks);
        let behind = Place(place.0 + to_u32(before));
        let runs = [(0, before, self.place(place)), (before, blocks - before, self.place(behind))];
        runs.into_iter().filter(|(_, count, _)| *count > 0)
    }

    /// The pieces of a batch for each half, from those that both get.
    #[cold]
    #[inline(never)]
    pub fn split(&self, once: &[Slice], both: &[Slice]) -> [Vec<Slice>; 2] {
        let (mut first, mut second) = (both.to_vec(), both.to_vec());
        let mut left_bytes = self.first_has * to_u32(BLOCK_BYTES);
        for slice in once {
            let len_bytes = slice.len_bytes.min(left_bytes);
            left_bytes -= len_bytes;
            let parts = [slice.part(0, len_bytes), slice.part(len_bytes, slice.len_bytes - len_bytes)];
            for (pieces, part) in [&mut first, &mut second].into_iter().zip(parts) {
                pieces.extend((part.len_bytes > 0).then_some(part));
            }
        }
        [first, second]
    }
}

/// RULE 20: whether a half does not have any more what it had alone at a place.
#[inline]
pub(super) fn is_void(place: Place, segments: &Segments, counts_from: Option<[u64; 2]>) -> bool {
    let Some(half) = segments.half_of(place) else { return false };
    counts_from.is_none_or(|counts_from| segments.get(segments.of(place)).generation < counts_from[half.at()])
}

impl LogStore {
    /// RULE 20: whether a half does not have any more what it had alone at a place.
    #[inline]
    pub(super) fn is_void(&self, place: Place) -> bool {
        is_void(place, &self.segments, self.once_counts_from)
    }

    /// Whether a client's read does without what a half alone has at a place.
    #[inline(never)]
    pub(super) fn is_passed_by(&self, place: Place) -> bool {
        let is_silent = |half: Half| self.passed_halves[half.at()];
        self.segments.half_of(place).is_some_and(is_silent) || self.is_void(place)
    }
}

impl Machine<LogStore> {
    /// Blocks of clean data that one block of the ring has room for, in segments that are opened from now on.
    pub(super) fn clean_per_block(&self) -> u32 {
        if self.store.once_counts_from.is_some() && !self.is_alone() { 2 } else { 1 }
    }

    /// Whether clean data in a segment is kept once: both halves count, and what each has alone there.
    pub(super) fn keeps_once(&self, segment: u32) -> bool {
        let Some(counts_from) = self.store.once_counts_from else { return false };
        let generation = self.store.segments.get(segment).generation;
        !self.is_alone() && counts_from.into_iter().all(|from| from <= generation)
    }
}

/// Blocks of a batch that no flush is known to cover, which one half has alone.
pub(super) struct Doubtful {
    pub first: BlockKey,
    pub place: Place,
    pub checksums: Vec<u32>,
}

impl Replay {
    /// Drops what one half was to have alone and has not: a crash came before it was written there. What cannot be read now may
    /// be there: it stays.
    pub fn drop_torn<I: Image>(&mut self, image: &mut I) {
        let doubtful = core::mem::take(&mut self.doubtful);
        for half in Half::BOTH {
            let of_half: Vec<&Doubtful> =
                doubtful.iter().filter(|doubtful| doubtful.place.half() == Some(half)).collect();
            for together in of_half.chunks(READS_TOGETHER) {
                let reads = together.iter().map(|doubtful| {
                    let len_bytes = index_wide(wide(doubtful.checksums.len()) * BLOCK_BYTES);
                    let offset_bytes = self.offset_bytes(doubtful.place);
                    ReadAt { offset_bytes, bytes: alloc::vec![0; len_bytes], result: Ok(()) }
                });
                let mut reads: Vec<ReadAt> = reads.collect();
                image.read_of(half, &mut reads);
                for (doubtful, read) in together.iter().zip(reads).filter(|(_, read)| read.result.is_ok()) {
                    self.compare(doubtful, &read.bytes);
                }
            }
        }
    }

    fn compare(&mut self, doubtful: &Doubtful, bytes: &[u8]) {
        let blocks = bytes.chunks_exact(index_wide(BLOCK_BYTES));
        for (step, (block, checksum)) in (0u32..).zip(blocks.zip(&doubtful.checksums)) {
            let key = doubtful.first.plus(u64::from(step));
            let place = Place(doubtful.place.0 + step);
            let index = self.index.settled();
            let is_there = index.get(key).is_some_and(|entry| entry.place == place);
            if is_there && payload_checksum(block) != *checksum {
                index.remove(key);
                self.note_torn(key.volume(), Blocks { first: key.block(), count: 1 });
            }
        }
    }

    fn note_torn(&mut self, volume: VolumeIndex, blocks: Blocks) {
        match self.torn.last_mut() {
            Some((last, run)) if *last == volume && run.end() == blocks.first => run.count += blocks.count,
            _ => self.torn.push((volume, blocks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::BufferId;

    fn slice(buffer: u32, blocks: u32) -> Slice {
        Slice { buffer: BufferId(buffer), offset_bytes: 0, len_bytes: blocks * 4096 }
    }

    #[test]
    fn runs_and_pieces_say_the_same() {
        let layout = OnceLayout { base: 100, first_has: 4 };
        let [first, second] = layout.split(&[slice(1, 3), slice(2, 4)], &[slice(0, 1)]);
        assert_eq!(first, [slice(0, 1), slice(1, 3), slice(2, 1)]);
        let rest = Slice { offset_bytes: 4096, ..slice(2, 3) };
        assert_eq!(second, [slice(0, 1), rest]);
        let runs: Vec<_> = layout.runs(once_place(3), 4).collect();
        let places = [Place(103).of_half(Half::First), Place(100).of_half(Half::Second)];
        assert_eq!(runs, [(0, 1, places[0]), (1, 3, places[1])]);
        assert_eq!(layout.runs(Place(7), 4).collect::<Vec<_>>(), [(0, 4, Place(7))]);
        assert_eq!(
            layout.runs(once_place(5), 2).collect::<Vec<_>>(),
            [(0, 2, Place(101).of_half(Half::Second))]
        );
    }
}
