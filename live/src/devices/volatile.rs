//! The volatile write cache of a modelled disk: acknowledged data that is not on the medium yet, so that a power cut
//! can lose it on purpose.
//!
//! Invariants:
//! - I1: reads see the cache first, the store below it second.
//! - I2: a piece that a flush under way has to make durable is never overwritten in place: the
//!   older content goes to the store first.
//! - I3: at most `limit_bytes` are held; the oldest pieces go to the store when more come.

use super::OpenFile;
use engine::effect::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a piece of the cache.
const PIECE_BYTES: u64 = 4096;
/// Bytes of a sector, which a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

struct Piece {
    bytes: Box<[u8; PIECE_BYTES as usize]>,
    /// Bits of the sectors that are held, of eight.
    sectors: u8,
    /// The newest write in it.
    write: u64,
}

/// The unflushed content of a modelled disk.
pub(super) struct VolatileCache {
    pieces: BTreeMap<u64, Piece>,
    /// Pieces in the order they came.
    order: VecDeque<u64>,
    limit_bytes: u64,
    /// The number of the last write.
    write: u64,
    /// The newest write that a flush under way covers.
    covered: u64,
}

/// The sectors of a piece as a mask, from one sector to another.
fn mask(from: usize, to: usize) -> u8 {
    let ones = |count: usize| u8::try_from((1u16 << count) - 1).expect("a piece has eight sectors");
    ones(to) & !ones(from)
}

impl VolatileCache {
    pub(super) fn new(limit_bytes: u64) -> VolatileCache {
        VolatileCache { pieces: BTreeMap::new(), order: VecDeque::new(), limit_bytes, write: 0, covered: 0 }
    }

    /// Takes a write. Offset and length are multiples of 512.
    pub(super) fn write(&mut self, store: &OpenFile, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        if self.limit_bytes == 0 {
            return store.write_at(offset_bytes, bytes);
        }
        self.write += 1;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset_bytes + done as u64;
            let (number, inside) = (at / PIECE_BYTES, usize::try_from(at % PIECE_BYTES).expect("in a piece"));
            let step = (bytes.len() - done).min(PIECE_BYTES as usize - inside);
            if self.pieces.get(&number).is_some_and(|piece| piece.write <= self.covered) {
                self.settle(store, number)?;
            }
            let write = self.write;
            let piece = self.pieces.entry(number).or_insert_with(|| {
                self.order.push_back(number);
                Piece { bytes: Box::new([0; PIECE_BYTES as usize]), sectors: 0, write }
            });
            piece.bytes[inside..inside + step].copy_from_slice(&bytes[done..done + step]);
            piece.sectors |= mask(inside / SECTOR_BYTES, (inside + step) / SECTOR_BYTES);
            piece.write = write;
            done += step;
        }
        while self.pieces.len() as u64 * PIECE_BYTES > self.limit_bytes {
            // Entries of pieces that went to the store by another way are stale: settling is idempotent.
            let Some(number) = self.order.pop_front() else { break };
            self.settle(store, number)?;
        }
        if self.order.len() > 2 * self.pieces.len() + 1024 {
            // A piece that came again has an entry for each time, of which one will do.
            let (pieces, mut seen) = (&self.pieces, BTreeSet::new());
            self.order.retain(|number| pieces.contains_key(number) && seen.insert(*number));
        }
        Ok(())
    }

    /// Lays the held pieces over `bytes`, which were read from the store at the offset.
    pub(super) fn overlay(&self, offset_bytes: u64, bytes: &mut [u8]) {
        let end = offset_bytes + bytes.len() as u64;
        for (number, piece) in self.pieces.range(offset_bytes / PIECE_BYTES..end.div_ceil(PIECE_BYTES)) {
            for sector in 0..PIECE_BYTES as usize / SECTOR_BYTES {
                let at = number * PIECE_BYTES + (sector * SECTOR_BYTES) as u64;
                if piece.sectors & (1 << sector) == 0 || at < offset_bytes || at >= end {
                    continue;
                }
                let target = usize::try_from(at - offset_bytes).expect("inside the read");
                bytes[target..target + SECTOR_BYTES]
                    .copy_from_slice(&piece.bytes[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES]);
            }
        }
    }

    /// Forgets the held pieces of a range whose content goes to the store at once.
    pub(super) fn forget(&mut self, offset_bytes: u64, len_bytes: u64) {
        let end = offset_bytes + len_bytes;
        let touched: Vec<u64> = self
            .pieces
            .range(offset_bytes / PIECE_BYTES..end.div_ceil(PIECE_BYTES))
            .map(|(n, _)| *n)
            .collect();
        for number in touched {
            let start = number * PIECE_BYTES;
            let sector = |at: u64| {
                usize::try_from(at.clamp(start, start + PIECE_BYTES) - start).expect("in a piece")
                    / SECTOR_BYTES
            };
            let dropped = mask(sector(offset_bytes), sector(end));
            let piece = self.pieces.get_mut(&number).expect("it was just found");
            piece.sectors &= !dropped;
            if piece.sectors == 0 {
                self.pieces.remove(&number);
            }
        }
    }

    /// Begins a flush: the number of the newest write it covers.
    pub(super) fn begin_flush(&mut self) -> u64 {
        self.covered = self.write;
        self.write
    }

    /// Ends a flush: the pieces that it covers are on the medium.
    pub(super) fn end_flush(&mut self, store: &OpenFile, covered: u64) -> Result<(), Errno> {
        let numbers: Vec<u64> = self
            .pieces
            .iter()
            .filter(|(_, piece)| piece.write <= covered)
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.settle(store, number)?;
        }
        Ok(())
    }

    /// Writes a piece to the store.
    fn settle(&mut self, store: &OpenFile, number: u64) -> Result<(), Errno> {
        let Some(piece) = self.pieces.get(&number) else { return Ok(()) };
        write_sectors(store, number, piece, piece.sectors)?;
        self.pieces.remove(&number);
        Ok(())
    }

    /// A power cut: of every write that was not flushed the disk has written all, nothing, or any
    /// of its sectors. `random` gives one random number after the other.
    pub(super) fn lose(&mut self, store: &OpenFile, mut random: impl FnMut() -> u64) {
        for (number, piece) in std::mem::take(&mut self.pieces) {
            let choice = random();
            let kept = match choice % 4 {
                0 => piece.sectors,
                1 => piece.sectors & (choice >> 32) as u8,
                _ => 0,
            };
            // The process is about to end: an error of the store could not be reported.
            let _ = write_sectors(store, number, &piece, kept);
        }
        self.order.clear();
    }
}

fn write_sectors(store: &OpenFile, number: u64, piece: &Piece, sectors: u8) -> Result<(), Errno> {
    let count = PIECE_BYTES as usize / SECTOR_BYTES;
    let mut from = 0;
    while from < count {
        if sectors & (1 << from) == 0 {
            from += 1;
            continue;
        }
        let to = (from..count).find(|sector| sectors & (1 << sector) == 0).unwrap_or(count);
        let bytes = &piece.bytes[from * SECTOR_BYTES..to * SECTOR_BYTES];
        store.write_at(number * PIECE_BYTES + (from * SECTOR_BYTES) as u64, bytes)?;
        from = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 64 * 1024;

    fn read(cache: &VolatileCache, store: &OpenFile, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        store.read_at(offset as u64, &mut bytes).unwrap();
        cache.overlay(offset as u64, &mut bytes);
        bytes
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize),
        Zero(usize, usize),
        BeginFlush,
        EndFlush,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0usize..128, 1usize..24).prop_map(|(at, len)| Step::Write(at, len)),
            1 => (0usize..128, 1usize..24).prop_map(|(at, len)| Step::Zero(at, len)),
            1 => Just(Step::BeginFlush),
            1 => Just(Step::EndFlush),
        ]
    }

    #[test]
    fn a_piece_that_is_flushed_over_and_over_takes_no_more_memory() {
        let store = OpenFile::in_memory(SIZE as u64).unwrap();
        let mut cache = VolatileCache::new(1 << 20);
        for _ in 0..10_000 {
            cache.write(&store, 0, &[1; 4096]).unwrap();
            let covered = cache.begin_flush();
            cache.end_flush(&store, covered).unwrap();
        }
        assert!(cache.order.len() < 2_000, "{} entries for one piece", cache.order.len());
    }

    proptest! {
        /// Reads always see the newest write; after a power cut every sector holds a version no
        /// older than the last completed flush.
        #[test]
        fn a_power_cut_loses_only_what_was_not_flushed(
            steps in proptest::collection::vec(step(), 1..80),
            limit in prop_oneof![Just(0u64), Just(8192), Just(1 << 20)],
            seed: u64,
        ) {
            let store = OpenFile::in_memory(SIZE as u64).unwrap();
            let mut cache = VolatileCache::new(limit);
            // By sector: the versions it had, oldest first; a version fills the sector's first two bytes.
            let mut versions: Vec<Vec<u16>> = vec![vec![0]; 128];
            let mut durable = vec![0usize; 128];
            let mut flush: Option<(u64, Vec<usize>)> = None;
            let mut version = 0u16;
            for step in steps {
                match step {
                    Step::Write(at, len) => {
                        let len = len.min(128 - at);
                        version += 1;
                        let bytes: Vec<u8> =
                            (0..len * 512).map(|i| version.to_le_bytes()[i % 2]).collect();
                        cache.write(&store, at as u64 * 512, &bytes).unwrap();
                        versions[at..at + len].iter_mut().for_each(|list| list.push(version));
                    }
                    Step::Zero(at, len) => {
                        let len = len.min(128 - at);
                        cache.forget(at as u64 * 512, len as u64 * 512);
                        store.zero(at as u64 * 512, len as u64 * 512).unwrap();
                        for sector in at..at + len {
                            versions[sector].push(0);
                            durable[sector] = versions[sector].len() - 1;
                        }
                    }
                    Step::BeginFlush => if flush.is_none() {
                        flush = Some((cache.begin_flush(), versions.iter().map(|list| list.len() - 1).collect()));
                    },
                    Step::EndFlush => if let Some((covered, newest)) = flush.take() {
                        cache.end_flush(&store, covered).unwrap();
                        for (sector, index) in newest.into_iter().enumerate() {
                            durable[sector] = durable[sector].max(index);
                        }
                    },
                }
                let seen = read(&cache, &store, 0, SIZE);
                for (sector, list) in versions.iter().enumerate() {
                    let found = u16::from_le_bytes([seen[sector * 512], seen[sector * 512 + 1]]);
                    prop_assert_eq!(found, *list.last().unwrap());
                }
                prop_assert!(cache.pieces.len() as u64 * PIECE_BYTES <= limit);
            }
            let mut state = seed | 1;
            cache.lose(&store, || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state
            });
            let seen = read(&cache, &store, 0, SIZE);
            for sector in 0..128 {
                let found = u16::from_le_bytes([seen[sector * 512], seen[sector * 512 + 1]]);
                prop_assert!(versions[sector][durable[sector]..].contains(&found));
            }
        }
    }
}
