//! A cache that costs nothing: the bound of what caches can make of two disks.
//!
//! It keeps every block that was ever read or written, without an end, and knows where without asking. They lie in the
//! order in which they were asked for, as in a log, for what is asked for again often comes in the same order, and an SSD is
//! faster then. A request is one operation of one disk, as if what else a cache does were done by then: fills, destage,
//! its own records. A read goes to the origin for the blocks that nobody asked for before, and otherwise to the cache; a
//! write goes to the cache, or outside writeback to the origin.
//!
//! So a cache can be faster only by reading what nobody asked for yet, by sending hits to both disks at once, or by
//! answering writes from memory.

use super::disk::Disk;
use super::workload::Action;
use engine::effect::WriteMode;
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, SECTORS_PER_BLOCK, SectorRange};

/// The cache device, and what it has. [`Bare`](super::Bare) carries requests out, on it and on the origin.
pub struct Ideal {
    pub(super) disk: Disk,
    mode: WriteMode,
    cached: Places,
    /// The block of the disk at which the next one is kept.
    head: u32,
}

/// The disk that takes a request, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This offset of the cache device.
    Cache(u64),
    /// These sectors of the origin.
    Origin(SectorRange),
}

/// The blocks of an origin that are cached, and where: pages of an array, without those in which none is.
struct Places {
    pages: Vec<Option<Box<[u32; PAGE_BLOCKS]>>>,
}

const PAGE_BLOCKS: usize = 1024;
const NOWHERE: u32 = u32::MAX;

impl Places {
    fn new(blocks: u64) -> Places {
        Places { pages: vec![None; (blocks as usize).div_ceil(PAGE_BLOCKS)] }
    }

    fn get(&self, block: u64) -> Option<u32> {
        let page = self.pages[block as usize / PAGE_BLOCKS].as_ref()?;
        Some(page[block as usize % PAGE_BLOCKS]).filter(|place| *place != NOWHERE)
    }

    fn set(&mut self, block: u64, place: u32) {
        let page = &mut self.pages[block as usize / PAGE_BLOCKS];
        page.get_or_insert_with(|| Box::new([NOWHERE; PAGE_BLOCKS]))[block as usize % PAGE_BLOCKS] = place;
    }
}

impl Ideal {
    /// An empty cache in front of an origin of so many bytes.
    #[must_use]
    pub fn new(disk: Disk, origin_bytes: u64, mode: WriteMode) -> Ideal {
        let cached = Places::new(origin_bytes.div_ceil(BLOCK_BYTES));
        Ideal { disk, mode, cached, head: 0 }
    }

    /// Forgets all that is cached.
    pub fn clear(&mut self) {
        self.cached.pages.fill(None);
    }

    /// The place of a request; what it reads or writes is cached from now on.
    pub(super) fn place(&mut self, action: &Action) -> Place {
        let nothing = SectorRange { start: 0, sectors: 0 };
        match *action {
            Action::Read(range) => {
                let missing = self.missing(range);
                self.keep(range, false);
                missing.map_or_else(|| Place::Cache(self.offset_bytes(range)), Place::Origin)
            }
            Action::Write { range, .. } | Action::WriteZeroes(range) => {
                self.keep(range, true);
                match self.mode {
                    WriteMode::Writeback => Place::Cache(self.offset_bytes(range)),
                    _ => Place::Origin(range),
                }
            }
            Action::Discard(range) => Place::Origin(range),
            Action::Flush if self.mode == WriteMode::Writeback => Place::Cache(0),
            Action::Flush => Place::Origin(nothing),
        }
    }

    /// Where a cached range begins. A long one is taken to lie in a row from there on.
    fn offset_bytes(&self, range: SectorRange) -> u64 {
        let first = self.cached.get(range.first_block()).expect("it is cached");
        let offset_bytes = u64::from(first) * BLOCK_BYTES + range.start % SECTORS_PER_BLOCK * SECTOR_BYTES;
        offset_bytes.min(self.disk.size_bytes().saturating_sub(range.sectors * SECTOR_BYTES))
    }

    /// The part of a range from the first to the last of its blocks that are not cached.
    fn missing(&self, range: SectorRange) -> Option<SectorRange> {
        let is_missing = |&block: &u64| self.cached.get(block).is_none();
        let mut blocks = range.first_block()..range.end_block();
        let first = blocks.find(is_missing)?;
        let last = blocks.rfind(is_missing).unwrap_or(first);
        let start = range.start.max(first * SECTORS_PER_BLOCK);
        Some(SectorRange { start, sectors: range.end().min((last + 1) * SECTORS_PER_BLOCK) - start })
    }

    /// Keeps blocks behind those that were kept last: all of a range, or those that are not cached yet.
    fn keep(&mut self, range: SectorRange, is_anew: bool) {
        let end = (self.disk.size_bytes() / BLOCK_BYTES).clamp(1, u64::from(NOWHERE)) as u32;
        for block in range.first_block()..range.end_block() {
            if is_anew || self.cached.get(block).is_none() {
                self.cached.set(block, self.head);
                self.head = (self.head + 1) % end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::long::{Bare, Latencies, Load, LoadOptions, Pattern, Until};

    const BLOCKS: u64 = 64;

    /// Disks of one operation at a time, of which reads of the cache take 1 us, and those of the origin 100 us.
    fn ideal(mode: WriteMode) -> Bare {
        let fast = Latencies { read_ns: 1000, write_ns: 2000, flush_ns: 1 };
        let slow = Latencies { read_ns: 100_000, write_ns: 200_000, flush_ns: 1 };
        let ideal = Ideal::new(Disk::constant(BLOCKS * 4096, fast), BLOCKS * 4096, mode);
        Bare::new(Disk::constant(BLOCKS * 4096, slow)).behind(ideal)
    }

    fn load(read_permille: u64, requests: u64) -> Load {
        let one = LoadOptions { depth: 1, pattern: Pattern::Sequential, ..LoadOptions::reads(BLOCKS) };
        Load::new(LoadOptions { read_permille, requests: Some(requests), ..one })
    }

    #[test]
    fn what_was_asked_for_once_costs_the_cache_alone() {
        let mut ideal = ideal(WriteMode::Writeback);
        ideal.run(&mut load(1000, 2 * BLOCKS), Until::End).expect("it ends");
        let statistics = ideal.statistics();
        assert_eq!((statistics.origins[0].reads, statistics.cache.reads), (BLOCKS, BLOCKS));
        assert_eq!(statistics.elapsed_ns(), BLOCKS * 101_000);
        ideal.clear_cache();
        ideal.begin_measuring();
        ideal.run(&mut load(1000, BLOCKS), Until::End).expect("it ends");
        assert_eq!(ideal.statistics().origins[0].reads, BLOCKS);
    }

    #[test]
    fn writes_go_to_one_disk_by_the_mode_and_are_cached() {
        for (mode, cache, origin) in [(WriteMode::Writeback, BLOCKS, 0), (WriteMode::Writethrough, 0, BLOCKS)]
        {
            let mut ideal = ideal(mode);
            ideal.run(&mut load(0, BLOCKS), Until::End).expect("it ends");
            let statistics = ideal.statistics();
            assert_eq!((statistics.cache.writes, statistics.origins[0].writes), (cache, origin), "{mode:?}");
            ideal.run(&mut load(1000, BLOCKS), Until::End).expect("it ends");
            assert_eq!(ideal.statistics().origins[0].reads, 0, "{mode:?}");
        }
    }

    #[test]
    fn what_is_kept_lies_in_the_order_of_the_requests() {
        let disk = Disk::constant(5 * 4096, Latencies { read_ns: 1, write_ns: 1, flush_ns: 1 });
        let mut ideal = Ideal::new(disk, 64 * 4096, WriteMode::Writeback);
        let read = |block: u64| Action::Read(SectorRange { start: block * 8 + 2, sectors: 6 });
        let write =
            |block: u64| Action::Write { range: SectorRange { start: block * 8, sectors: 8 }, fua: false };
        [40, 3, 63]
            .into_iter()
            .for_each(|block| assert!(matches!(ideal.place(&read(block)), Place::Origin(_))));
        assert_eq!(
            [40, 3, 63].map(|block| ideal.place(&read(block))),
            [0, 1, 2].map(|at| Place::Cache(at * 4096 + 1024))
        );
        assert_eq!(
            [40, 7, 40].map(|block| ideal.place(&write(block))),
            [3, 4, 0].map(|at| Place::Cache(at * 4096))
        );
        assert_eq!(ideal.place(&read(40)), Place::Cache(1024));
    }

    #[test]
    fn of_a_read_the_origin_gives_what_lies_between_the_first_and_the_last_missing_block() {
        let disk = Disk::constant(BLOCKS * 4096, Latencies { read_ns: 1, write_ns: 1, flush_ns: 1 });
        let mut ideal = Ideal::new(disk, BLOCKS * 4096, WriteMode::Writeback);
        let range = |start, sectors| SectorRange { start, sectors };
        [range(0, 8), range(16, 8), range(40, 24)].into_iter().for_each(|range| ideal.keep(range, false));
        assert_eq!(ideal.missing(range(3, 60)), Some(range(8, 32)));
        assert_eq!(ideal.missing(range(9, 3)), Some(range(9, 3)));
        assert_eq!(ideal.missing(range(44, 20)), None);
    }
}
