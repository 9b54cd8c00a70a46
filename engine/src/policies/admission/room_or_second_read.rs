//! Admission of all there is room for; a full cache takes what is read for the second time.
//!
//! A block that enters a full cache has another one leave for it, and is written to the cache device. One that is read once is
//! worth neither. So a first read is only remembered, and not for longer than a cache that took everything would keep the
//! block: what comes back later, as in a loop longer than the cache, would push out what comes back in time. An empty
//! cache has nothing to lose, and takes all there is.
//!
//! Remembered is a bit for each block, 16 in an entry with the tag of their group; a group has one entry it can be in, and takes
//! it from whoever was there. No system that was published does this; gflash's `second-read` comes near it.

use super::{Asked, Reason, Verdict};
use crate::number::{index, index_wide, mul_high, wide};
use crate::policies::replacement::{Access, Standing};
use crate::prng::scatter;
use crate::units::PieceKey;
use alloc::vec;
use alloc::vec::Vec;

/// Pieces of a group.
const GROUP_PIECES: u64 = 16;
/// Frames of the cache for each entry: 2 bytes of memory for a frame.
const FRAMES_PER_ENTRY: u32 = 2;
/// Parts of the time in which as many pieces are read for the first time as the cache has frames.
const PARTS: u8 = 4;

/// First reads of a group: its tag, in which part of the time the last one was, and a bit for each of its pieces.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u8,
    part: u8,
    reads: u16,
}

impl Entry {
    fn of(word: u32) -> Entry {
        let [tag, part, low, high] = word.to_le_bytes();
        Entry { tag, part, reads: u16::from_le_bytes([low, high]) }
    }

    fn word(self) -> u32 {
        let [low, high] = self.reads.to_le_bytes();
        u32::from_le_bytes([self.tag, self.part, low, high])
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct RoomOrSecondRead {
    /// An [`Entry`] in each word. Zeroes take no time to make: the kernel has memory for them when they are touched.
    entries: Vec<u32>,
    /// The part of the time that this is, after which so many first reads are left; numbers come round.
    part: u8,
    part_reads_left: u32,
    part_reads: u32,
}

impl RoomOrSecondRead {
    /// A policy that has seen no read.
    #[must_use]
    pub fn new(frames: u32) -> RoomOrSecondRead {
        let part_reads = frames / u32::from(PARTS) + 1;
        RoomOrSecondRead {
            entries: vec![0; index(frames / FRAMES_PER_ENTRY + 1)],
            part: 0,
            part_reads_left: part_reads,
            part_reads,
        }
    }

    /// Admits writes, whatever there is room for, and second reads; remembers first ones.
    pub fn decide(&mut self, asked: &Asked, standing: &Standing) -> Verdict {
        if asked.access == Access::Write || standing.free > 0 || self.is_second(asked.piece) {
            return Verdict::ADMIT;
        }
        Verdict::Pass(Reason::NotYet)
    }

    /// Whether a piece was read once of late; then that is forgotten, else it is remembered.
    fn is_second(&mut self, piece: PieceKey) -> bool {
        let spread = scatter(piece.0 / GROUP_PIECES);
        // The place is of the upper bits, the tag of the lowest.
        let place = mul_high(spread, wide(self.entries.len()));
        let [tag, ..] = spread.to_le_bytes();
        let bit = 1 << (piece.0 % GROUP_PIECES);
        let word = &mut self.entries[index_wide(place)];
        let mut entry = Entry::of(*word);
        if entry.tag != tag || self.part.wrapping_sub(entry.part) > PARTS {
            entry = Entry { tag, part: self.part, reads: 0 };
        }
        entry.reads ^= bit;
        let is_second = entry.reads & bit == 0;
        if !is_second {
            entry.part = self.part;
        }
        *word = entry.word();
        if is_second {
            return true;
        }
        self.part_reads_left -= 1;
        if self.part_reads_left == 0 {
            (self.part, self.part_reads_left) = (self.part.wrapping_add(1), self.part_reads);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::asked;
    use super::*;
    use crate::prng::Prng;

    fn admits(policy: &mut RoomOrSecondRead, piece: u64) -> bool {
        policy.decide(&asked(Access::Read, piece), &Standing::default()) == Verdict::ADMIT
    }

    fn entered(policy: &mut RoomOrSecondRead, pieces: impl Iterator<Item = u64>) -> usize {
        pieces.filter(|piece| admits(policy, *piece)).count()
    }

    #[test]
    fn every_second_read_enters_a_full_cache() {
        let mut policy = RoomOrSecondRead::new(1 << 16);
        for pass in 0..4 {
            let entered = entered(&mut policy, 0..1 << 16);
            // Of 4096 groups a few share one of the 32 769 entries.
            assert!(if pass % 2 == 0 { entered == 0 } else { entered > 55_000 }, "{entered} in pass {pass}");
        }
    }

    #[test]
    fn a_loop_longer_than_the_cache_stays_out() {
        let mut policy = RoomOrSecondRead::new(1 << 14);
        for pass in 0..8 {
            let entered = entered(&mut policy, 0..1 << 15);
            assert!(entered < 1 << 12, "{entered} in pass {pass}");
        }
    }

    #[test]
    fn scattered_reads_are_remembered_for_a_shorter_time() {
        let mut prng = Prng::new(1);
        let mut policy = RoomOrSecondRead::new(1 << 14);
        let pieces: Vec<u64> = (0..1 << 14).map(|_| u64::from(prng.next_u32() >> 2) * GROUP_PIECES).collect();
        let mut entered = |count| entered(&mut policy, pieces[..count].iter().copied());
        assert!(entered(1 << 11) < 24);
        let second = entered(1 << 11);
        assert!(second > 1500, "{second}: a quarter of the entries is there still");
        assert!(entered(1 << 14) < 512);
        let late = entered(1 << 11);
        assert!(late < 512, "{late}: twice as many reads as there are entries left few of them");
    }

    #[test]
    fn writes_enter_and_so_does_all_while_there_is_room() {
        let mut policy = RoomOrSecondRead::new(8);
        let roomy = Standing { free: 1, ..Standing::default() };
        assert_eq!(policy.decide(&asked(Access::Read, 3), &roomy), Verdict::ADMIT);
        assert_eq!(policy.decide(&asked(Access::Write, 3), &Standing::default()), Verdict::ADMIT);
        assert!(!admits(&mut policy, 3), "neither counts as a read");
        assert!(admits(&mut policy, 3));
    }
}
