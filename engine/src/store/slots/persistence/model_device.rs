//! A cache device for tests, of cells that are written as a whole: it loses what no flush covers.

use crate::prng::Prng;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Bytes of a cell that holds a part of a block.
const SECTOR_BYTES: usize = 512;

/// What a cell holds.
#[derive(Clone, Debug)]
pub enum Cell {
    /// The data of a slot: a version of a piece.
    Data { piece: u32, version: u32 },
    /// A sector of a block of ours.
    Sector(Box<[u8]>),
}

struct Write {
    id: u32,
    cell: u32,
    value: Cell,
    is_complete: bool,
}

#[derive(Default)]
pub struct ModelDevice {
    durable: BTreeMap<u32, Cell>,
    /// What no flush covers, in the order of issue.
    writes: Vec<Write>,
    next_id: u32,
}

impl ModelDevice {
    /// Issues a write. Answers its id.
    pub fn issue(&mut self, cell: u32, value: Cell) -> u32 {
        self.next_id += 1;
        self.writes.push(Write { id: self.next_id, cell, value, is_complete: false });
        self.next_id
    }

    /// Issues the write of a block of 8 cells from `first` on. A power cut may tear it.
    pub fn issue_block(&mut self, first: u32, bytes: &[u8]) -> Vec<u32> {
        let sectors = bytes.chunks_exact(SECTOR_BYTES).map(|sector| Cell::Sector(sector.into()));
        (first..).zip(sectors).map(|(cell, sector)| self.issue(cell, sector)).collect()
    }

    pub fn complete(&mut self, ids: &[u32]) {
        for write in self.writes.iter_mut().filter(|write| ids.contains(&write.id)) {
            write.is_complete = true;
        }
    }

    /// The writes that a flush covers which is issued now.
    pub fn coverable(&self) -> Vec<u32> {
        self.writes.iter().filter(|write| write.is_complete).map(|write| write.id).collect()
    }

    /// A flush that covers these writes is complete.
    pub fn flush(&mut self, covered: &[u32]) {
        let (covered, left) = self.writes.drain(..).partition(|write| covered.contains(&write.id));
        self.writes = left;
        self.keep(covered);
    }

    pub fn read(&self, cell: u32) -> Option<&Cell> {
        let is_it = |write: &&Write| write.is_complete && write.cell == cell;
        let unflushed = self.writes.iter().rev().find(is_it).map(|write| &write.value);
        unflushed.or_else(|| self.durable.get(&cell))
    }

    /// A block of 8 cells; zeroes where nothing was written.
    pub fn read_block(&self, first: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for cell in first..first + 8 {
            match self.read(cell) {
                Some(Cell::Sector(sector)) => bytes.extend_from_slice(sector),
                Some(Cell::Data { .. }) => unreachable!("no slot lies there"),
                None => bytes.extend_from_slice(&[0; SECTOR_BYTES]),
            }
        }
        bytes
    }

    /// The power fails: any of what no flush covers is lost.
    pub fn cut(&mut self, prng: &mut Prng) {
        let odds = prng.below(5);
        let kept = self.writes.drain(..).filter(|_| prng.below(4) < odds).collect();
        self.keep(kept);
    }

    /// The process dies: any of what is in flight is written, and nothing is lost.
    pub fn kill(&mut self, prng: &mut Prng) {
        self.writes.retain(|write| write.is_complete || prng.below(2) == 0);
        for write in &mut self.writes {
            write.is_complete = true;
        }
    }

    fn keep(&mut self, writes: Vec<Write>) {
        for write in writes {
            self.durable.insert(write.cell, write.value);
        }
    }
}
