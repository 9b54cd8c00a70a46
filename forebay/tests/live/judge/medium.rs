//! A disk's content in memory, with a volatile write cache: what was not flushed may be gone after a power cut.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 4096;

/// What is wrong with the disk itself, so that the judge must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Nothing.
    None,
    /// A flush is acknowledged and keeps nothing.
    ForgetsFlushes,
    /// One read in eight brings a block as it was before it was last written.
    OlderReads,
    /// One write in thirty-two is acknowledged and dropped.
    DropsWrites,
}

/// The content of a disk.
#[derive(Debug)]
pub struct Medium {
    plant: Plant,
    draw: Xoshiro256PlusPlus,
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that no flush covers, in their order.
    unflushed: Vec<(usize, Vec<u8>)>,
    /// Blocks as they were before the last write, for [`Plant::OlderReads`].
    older: BTreeMap<usize, Vec<u8>>,
}

impl Medium {
    /// A disk of zeroes.
    pub fn new(size_bytes: u64, plant: Plant, seed: u64) -> Medium {
        let size = usize::try_from(size_bytes).expect("a disk of some MiB");
        Medium {
            plant,
            draw: Xoshiro256PlusPlus::seed_from_u64(seed),
            current: vec![0; size],
            durable: vec![0; size],
            unflushed: Vec::new(),
            older: BTreeMap::new(),
        }
    }

    /// All of it, as a read sees it.
    pub fn content(&self) -> &[u8] {
        &self.current
    }

    /// The content of a range.
    pub fn read(&mut self, offset: usize, len: usize) -> Vec<u8> {
        let mut data = self.current[offset..offset + len].to_vec();
        if self.plant == Plant::OlderReads && self.draw.random_range(0..8) == 0 {
            for (&at, block) in self.older.range(offset..offset + len) {
                let end = (at + BLOCK_BYTES).min(offset + len);
                data[at - offset..end - offset].copy_from_slice(&block[..end - at]);
            }
        }
        data
    }

    /// Takes a write, which is volatile until a flush.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        if self.plant == Plant::DropsWrites && self.draw.random_range(0..32) == 0 {
            return;
        }
        if self.plant == Plant::OlderReads {
            let blocks = (offset / BLOCK_BYTES..(offset + data.len()).div_ceil(BLOCK_BYTES))
                .map(|at| at * BLOCK_BYTES);
            for at in blocks {
                let end = (at + BLOCK_BYTES).min(self.current.len());
                self.older.insert(at, self.current[at..end].to_vec());
            }
        }
        self.current[offset..offset + data.len()].copy_from_slice(data);
        self.unflushed.push((offset, data.to_vec()));
    }

    /// Takes a part of a write that fails: nothing, a beginning, or all of it.
    pub fn write_torn(&mut self, offset: usize, data: &[u8]) {
        let sectors = data.len() / SECTOR_BYTES;
        let kept = match self.draw.random_range(0..3) {
            0 => 0,
            1 => self.draw.random_range(0..=sectors),
            _ => sectors,
        };
        if kept > 0 {
            self.write(offset, &data[..kept * SECTOR_BYTES]);
        }
    }

    /// Makes durable what was written so far.
    pub fn flush(&mut self) {
        if self.plant == Plant::ForgetsFlushes {
            return;
        }
        for (offset, data) in self.unflushed.drain(..) {
            self.durable[offset..offset + data.len()].copy_from_slice(&data);
        }
    }

    /// The power fails: each write that no flush covers is lost, kept, or torn at sectors or blocks; returns how many
    /// were not kept whole.
    pub fn cut_power(&mut self) -> u64 {
        let luck = self.draw.random_range(0..=4);
        let mut damaged = 0;
        for (offset, data) in std::mem::take(&mut self.unflushed) {
            let is_kept = self.draw.random_range(0..4) < luck;
            let is_torn = !is_kept && self.draw.random_range(0..2) == 0;
            damaged += u64::from(!is_kept);
            let unit = if self.draw.random_range(0..2) == 0 { SECTOR_BYTES } else { BLOCK_BYTES };
            let prefix = (self.draw.random_range(0..2) == 0).then(|| self.draw.random_range(0..=data.len()));
            for (number, piece) in data.chunks(unit).enumerate() {
                let at = number * unit;
                let survives = match prefix {
                    _ if !is_torn => is_kept,
                    Some(prefix) => at + piece.len() <= prefix,
                    None => self.draw.random_range(0..2) == 0,
                };
                if survives {
                    self.durable[offset + at..offset + at + piece.len()].copy_from_slice(piece);
                }
            }
        }
        self.current.copy_from_slice(&self.durable);
        self.older.clear();
        damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_takes_what_no_flush_covers_in_whole_sectors() {
        let mut seen = [false; 2];
        for seed in 0..40 {
            let mut medium = Medium::new(64 << 10, Plant::None, seed);
            medium.write(0, &[1; 16384]);
            medium.flush();
            medium.write(8192, &[2; 16384]);
            medium.cut_power();
            assert!(medium.content()[..8192].iter().all(|&byte| byte == 1), "what was flushed is kept");
            for sector in medium.content()[8192..24576].chunks(SECTOR_BYTES) {
                assert!(sector.iter().all(|byte| byte == &sector[0]), "a sector is whole");
                seen[usize::from(sector[0] == 2)] = true;
            }
        }
        assert_eq!(seen, [true; 2], "some is lost and some is kept");
    }

    #[test]
    fn a_planted_fault_is_one() {
        let mut forgets = Medium::new(4096, Plant::ForgetsFlushes, 1);
        let is_lost = (1..=20).any(|value| {
            forgets.write(0, &[value; 512]);
            forgets.flush();
            forgets.cut_power();
            forgets.content()[0] != value
        });
        assert!(is_lost, "a flushed write is lost");
        let mut older = Medium::new(4096, Plant::OlderReads, 1);
        older.write(0, &[1; 4096]);
        older.write(0, &[2; 4096]);
        let reads: Vec<u8> = (0..100).map(|_| older.read(0, 512)[0]).collect();
        assert!(reads.contains(&1) && reads.contains(&2), "some reads bring what was before");
    }
}
