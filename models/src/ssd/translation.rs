//! The translation layer: which erase block holds the newest data of which unit of addresses, how many blocks
//! are erased, and what a write costs when none is.
//!
//! Writing goes to one open block. When it is full the next one is an erased block; and when there is none, the full
//! block with the least valid data: its valid units are copied, what is left of it is written by the host, and that
//! work is spread over the writes it makes room for. A disk that was trimmed, or written in order, thus
//! writes at the rate of its flash, and one that is full of scattered data many times slower, from the same numbers.
//!
//! A disk that is too small for so large blocks stands for a part of a larger one: its blocks are smaller, and each is erased
//! in its share of the time.
//!
//! Left out: wear levelling, copying while the host is idle, mapping tables that have to be loaded.

use crate::parameters::SsdParameters;
use crate::ranges::Range;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes that one entry of the map covers.
const UNIT_BYTES: u64 = 4096;
/// Units whose entries lie together; one entry is enough where all are in the same block.
const CHUNK_UNITS: u64 = 32;
/// Chunks that get memory together.
const LEAF_CHUNKS: u64 = 1024;
/// Least number of spare blocks.
const SPARE_BLOCKS_MIN: u64 = 16;

/// Up to so many units that begin scattered are counted one by one. Blocks of a larger disk are large enough to be
/// taken for what they are on average.
const COUNTED_UNITS_MAX: u64 = 1 << 20;

/// No block: the unit was never written, or discarded.
const NOWHERE: u32 = u32::MAX;

/// The places of the units of a chunk.
#[derive(Clone, Debug)]
enum Chunk {
    /// As at the beginning.
    Initial,
    /// All in this block, or [`NOWHERE`].
    Whole(u32),
    /// Each somewhere else.
    Parts(Box<[u32; CHUNK_UNITS as usize]>),
}

/// An erase block: all that is erased together, over all channels.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    valid: u64,
}

/// The layer.
#[derive(Debug)]
pub(super) struct Translation {
    leaves: Vec<Option<Box<[Chunk]>>>,
    blocks: Vec<Block>,
    erased: Vec<u32>,
    block_units: u64,
    /// The block that the host writes to, and its used part.
    open: u32,
    used: u64,
    /// Cost of each unit written to the open block besides its own programming, in nanoseconds of a channel.
    copy_ns: u64,
    copied_units: u64,
    page_units: u64,
    page_copy_ns: u64,
    erase_ns: u64,
    channels: u64,
    /// At the beginning all units below this one were written.
    fill_units: u64,
    /// Blocks that hold them; if they are scattered, valid units of the fullest, and by how much each next has less.
    fill_blocks: u64,
    is_scattered: bool,
    scattered_min: u64,
}

impl Translation {
    pub(super) fn new(parameters: &SsdParameters, size_bytes: u64) -> Translation {
        let units = size_bytes.div_ceil(UNIT_BYTES);
        let spare_units = (units * parameters.spare_permille / 1000).max(SPARE_BLOCKS_MIN);
        let block_units =
            (parameters.erase_block_bytes / UNIT_BYTES).clamp(1, spare_units / SPARE_BLOCKS_MIN);
        // One more than its share is open.
        let count = units.div_ceil(block_units) + spare_units.div_ceil(block_units) + 1;
        let fill_units = u64::try_from(u128::from(units) * u128::from(parameters.fill_permille) / 1000)
            .expect("a share of the units");
        let mut translation = Translation {
            leaves: Vec::new(),
            blocks: alloc::vec![Block::default(); count as usize],
            erased: Vec::new(),
            block_units,
            open: 0,
            used: 0,
            copy_ns: 0,
            copied_units: 0,
            page_units: (parameters.page_bytes / UNIT_BYTES).max(1),
            page_copy_ns: (parameters.read_us + parameters.program_us) * 1000,
            // A smaller block is its part of one that is erased in that time.
            erase_ns: parameters.erase_us * 1000 * block_units * UNIT_BYTES / parameters.erase_block_bytes,
            channels: parameters.channels,
            fill_units,
            fill_blocks: 0,
            is_scattered: parameters.fill_scattered && fill_units > 0,
            scattered_min: 0,
        };
        let leaves = units.div_ceil(CHUNK_UNITS).div_ceil(LEAF_CHUNKS);
        translation.leaves.resize_with(leaves as usize, || None);
        translation.fill(count - 1);
        translation.open = translation.erased.pop().expect("one block is never filled");
        translation
    }

    /// Writes the units that were there at the beginning, to the first `count` blocks at most.
    fn fill(&mut self, count: u64) {
        let block_units = self.block_units;
        if self.is_scattered {
            // Valid data falls in a line from the fullest block to the emptiest, as collecting the emptiest leaves it.
            self.fill_blocks = count;
            let mean = self.fill_units / count;
            self.scattered_min = (2 * mean).saturating_sub(block_units);
        } else {
            self.fill_blocks = self.fill_units.div_ceil(block_units);
        }
        for index in 0..self.fill_blocks {
            let valid = match self.is_scattered {
                true if self.fill_units <= COUNTED_UNITS_MAX => 0,
                true => self.scattered_valid(index),
                false => block_units.min(self.fill_units - index * block_units),
            };
            self.blocks[index as usize] = Block { valid };
        }
        if self.is_scattered && self.fill_units <= COUNTED_UNITS_MAX {
            for unit in 0..self.fill_units {
                let block = self.initial(unit);
                self.blocks[block as usize].valid += 1;
            }
        }
        // The lowest number is taken first.
        self.erased = (self.fill_blocks as u32..self.blocks.len() as u32).rev().collect();
    }

    fn scattered_valid(&self, block: u64) -> u64 {
        let highest = (2 * (self.fill_units / self.fill_blocks) - self.scattered_min).min(self.block_units);
        highest - (highest - self.scattered_min) * block / self.fill_blocks
    }

    /// The initial place of a unit.
    fn initial(&self, unit: u64) -> u32 {
        if unit >= self.fill_units {
            return NOWHERE;
        }
        if !self.is_scattered {
            return (unit / self.block_units) as u32;
        }
        let mut drawn = unit;
        loop {
            drawn = mixed(drawn);
            let block = (drawn >> 32) % self.fill_blocks;
            // A block is drawn as often as it has valid units.
            if (drawn & 0xffff_ffff) % self.block_units < self.scattered_valid(block) {
                return block as u32;
            }
        }
    }

    fn chunk(&self, chunk: u64) -> &Chunk {
        match &self.leaves[(chunk / LEAF_CHUNKS) as usize] {
            Some(leaf) => &leaf[(chunk % LEAF_CHUNKS) as usize],
            None => &Chunk::Initial,
        }
    }

    fn chunk_mut(&mut self, chunk: u64) -> &mut Chunk {
        let leaf = self.leaves[(chunk / LEAF_CHUNKS) as usize]
            .get_or_insert_with(|| alloc::vec![Chunk::Initial; LEAF_CHUNKS as usize].into_boxed_slice());
        &mut leaf[(chunk % LEAF_CHUNKS) as usize]
    }

    fn place(&self, unit: u64) -> u32 {
        match self.chunk(unit / CHUNK_UNITS) {
            Chunk::Initial => self.initial(unit),
            Chunk::Whole(block) => *block,
            Chunk::Parts(parts) => parts[(unit % CHUNK_UNITS) as usize],
        }
    }

    /// Whether the flash holds some of the range. Data that was never written needs no flash to be read.
    pub(super) fn holds(&self, range: Range) -> bool {
        (range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES)).any(|unit| self.is_there(unit))
    }

    fn is_there(&self, unit: u64) -> bool {
        match self.chunk(unit / CHUNK_UNITS) {
            Chunk::Initial => unit < self.fill_units,
            Chunk::Whole(block) => *block != NOWHERE,
            Chunk::Parts(parts) => parts[(unit % CHUNK_UNITS) as usize] != NOWHERE,
        }
    }

    /// Notes that the host's range is being programmed. Returns for how long the copies that made room for it keep
    /// one channel busy.
    pub(super) fn write(&mut self, range: Range) -> u64 {
        let mut copy_ns = 0;
        self.each_chunk(range, |translation, chunk, first, after| {
            let mut at = first;
            while at < after {
                let room = translation.room();
                let to = after.min(at + room);
                translation.lose(chunk, at, to);
                translation.put(chunk, at, to, translation.open);
                translation.blocks[translation.open as usize].valid += to - at;
                translation.used += to - at;
                copy_ns += (to - at) * translation.copy_ns;
                at = to;
            }
        });
        copy_ns
    }

    /// The range is not needed any more.
    pub(super) fn discard(&mut self, range: Range) {
        // Only whole units.
        let range = Range {
            start: range.start.next_multiple_of(UNIT_BYTES),
            end: range.end / UNIT_BYTES * UNIT_BYTES,
        };
        if range.start < range.end {
            self.each_chunk(range, |translation, chunk, first, after| {
                translation.lose(chunk, first, after);
                translation.put(chunk, first, after, NOWHERE);
            });
        }
    }

    /// Units that were copied to make room.
    #[cfg(test)]
    fn copied_units(&self) -> u64 {
        self.copied_units
    }

    /// Calls `f` with each chunk that the range touches, and the first and last unit in it.
    fn each_chunk(&mut self, range: Range, mut f: impl FnMut(&mut Translation, u64, u64, u64)) {
        let (mut unit, end) = (range.start / UNIT_BYTES, range.end.div_ceil(UNIT_BYTES));
        while unit < end {
            let chunk = unit / CHUNK_UNITS;
            let after = end.min((chunk + 1) * CHUNK_UNITS);
            f(self, chunk, unit, after);
            unit = after;
        }
    }

    /// The units leave the blocks in which they are.
    fn lose(&mut self, chunk: u64, first: u64, after: u64) {
        if let Chunk::Whole(block) = *self.chunk(chunk) {
            self.lose_of(block, after - first);
            return;
        }
        for unit in first..after {
            self.lose_of(self.place(unit), 1);
        }
    }

    fn lose_of(&mut self, block: u32, units: u64) {
        if block != NOWHERE {
            let block = &mut self.blocks[block as usize];
            // Which block held a unit at the beginning is drawn, so its count is only nearly right.
            block.valid = block.valid.saturating_sub(units);
        }
    }

    fn put(&mut self, chunk: u64, first: u64, after: u64, block: u32) {
        if after - first == CHUNK_UNITS {
            *self.chunk_mut(chunk) = Chunk::Whole(block);
            return;
        }
        let start = chunk * CHUNK_UNITS;
        let mut parts = match core::mem::replace(self.chunk_mut(chunk), Chunk::Initial) {
            Chunk::Parts(parts) => parts,
            Chunk::Whole(all) => Box::new([all; CHUNK_UNITS as usize]),
            Chunk::Initial => {
                let mut parts = Box::new([NOWHERE; CHUNK_UNITS as usize]);
                for (index, part) in parts.iter_mut().enumerate() {
                    *part = self.initial(start + index as u64);
                }
                parts
            }
        };
        parts[(first - start) as usize..(after - start) as usize].fill(block);
        // A chunk that was written in small pieces one after the other needs one entry again.
        let is_whole = after - start == CHUNK_UNITS && parts.iter().all(|part| *part == block);
        *self.chunk_mut(chunk) = if is_whole { Chunk::Whole(block) } else { Chunk::Parts(parts) };
    }

    /// Units that the open block still takes, at least one.
    fn room(&mut self) -> u64 {
        while self.used >= self.block_units {
            self.open_next();
        }
        self.block_units - self.used
    }

    fn open_next(&mut self) {
        let (next, is_erased) = match self.erased.pop() {
            Some(block) => (block, true),
            None => (self.emptiest(), false),
        };
        let block = &mut self.blocks[next as usize];
        // Its count may be a little too high; some of it is always free, for there is more flash than disk.
        let kept = block.valid.min(self.block_units - 1);
        block.valid = kept;
        let mut work_ns = kept * self.page_copy_ns / self.page_units;
        if !is_erased {
            // All channels erase their part of the block.
            work_ns += self.erase_ns * self.channels;
        }
        self.copied_units += kept;
        self.open = next;
        self.used = kept;
        self.copy_ns = work_ns / (self.block_units - kept).max(1);
    }

    fn emptiest(&self) -> u32 {
        let mut best = (u64::MAX, 0);
        for (index, block) in self.blocks.iter().enumerate() {
            if index as u32 != self.open {
                best = best.min((block.valid, index as u32));
            }
        }
        best.1
    }
}

/// A number that looks as if it were drawn, the same for the same number.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{NOWHERE, Translation, UNIT_BYTES, mixed};
    use crate::parameters::{Media, SsdParameters};
    use crate::ranges::Range;

    const SIZE_BYTES: u64 = 1 << 30;

    fn parameters(fill_permille: u64, fill_scattered: bool) -> SsdParameters {
        let Media::Ssd(mut ssd) = crate::find("ssd").unwrap().media else { panic!("an SSD") };
        ssd.fill_permille = fill_permille;
        ssd.fill_scattered = fill_scattered;
        ssd.spare_permille = 74;
        ssd
    }

    fn unit(unit: u64) -> Range {
        Range { start: unit * UNIT_BYTES, end: (unit + 1) * UNIT_BYTES }
    }

    /// Every unit is counted in exactly the block where it is.
    fn check(translation: &Translation) {
        let mut counts = alloc::vec![0; translation.blocks.len()];
        for unit in 0..SIZE_BYTES / UNIT_BYTES {
            let block = translation.place(unit);
            if block != NOWHERE {
                counts[block as usize] += 1;
            }
        }
        for (block, count) in translation.blocks.iter().zip(counts) {
            assert_eq!(block.valid, count);
        }
    }

    #[test]
    fn the_counts_of_the_blocks_are_those_of_the_map() {
        let mut translation = Translation::new(&parameters(600, false), SIZE_BYTES);
        check(&translation);
        for step in 0..20_000 {
            let drawn = mixed(step);
            let start = (drawn >> 20) % (SIZE_BYTES - (1 << 20));
            let range = Range { start, end: start + 1 + drawn % (1 << 20) };
            if drawn.is_multiple_of(7) {
                translation.discard(range);
            } else {
                translation.write(range);
            }
        }
        check(&translation);
        assert!(translation.copied_units() > 0);
    }

    #[test]
    fn what_was_never_written_or_discarded_is_not_in_the_flash() {
        let mut translation = Translation::new(&parameters(500, false), SIZE_BYTES);
        assert!(translation.holds(Range { start: 0, end: 1 }));
        let last = Range { start: SIZE_BYTES - 8192, end: SIZE_BYTES };
        assert!(!translation.holds(last));
        translation.write(last);
        assert!(translation.holds(last));
        // A part of a unit stays.
        translation.discard(Range { start: last.start + 512, end: last.end });
        assert!(translation.holds(unit(SIZE_BYTES / UNIT_BYTES - 2)));
        assert!(!translation.holds(unit(SIZE_BYTES / UNIT_BYTES - 1)));
    }

    /// Written in order, over and over: whole blocks become empty, nothing is ever copied.
    #[test]
    fn writing_in_order_copies_nothing() {
        let mut translation = Translation::new(&parameters(0, false), SIZE_BYTES);
        for start in (0..4 * SIZE_BYTES).step_by(1 << 17) {
            let start = start % SIZE_BYTES;
            translation.write(Range { start, end: start + (1 << 17) });
        }
        assert_eq!(translation.copied_units(), 0);
    }

    /// Erasing costs time by bytes, whatever the size of the disk.
    #[test]
    fn a_small_disk_writes_in_order_as_fast_as_a_large_one() {
        let erasing_ns = |size_bytes: u64| {
            let mut translation = Translation::new(&parameters(1000, false), size_bytes);
            let pieces = (0..2 * size_bytes).step_by(1 << 17).map(|start| start % size_bytes);
            pieces.map(|start| translation.write(Range { start, end: start + (1 << 17) })).sum::<u64>()
        };
        let (small_ns, large_ns) = (512 * erasing_ns(32 << 20), erasing_ns(16 << 30));
        assert!(small_ns.abs_diff(large_ns) < large_ns / 5, "{small_ns} ns and {large_ns} ns");
    }

    /// Goal: scattered writes copy what theory says for a greedy choice, (1 + s) / 2s units a unit for a spare share
    /// s, once the disk is worn in; and a disk that begins scattered is worn in from the first write.
    #[test]
    fn scattered_writes_cost_what_theory_says() {
        let units = SIZE_BYTES / UNIT_BYTES;
        for (fill_scattered, warm_up_units) in [(false, 3 * units), (true, units / 20)] {
            let mut translation = Translation::new(&parameters(1000, fill_scattered), SIZE_BYTES);
            let mut step = 0;
            for counted_units in [warm_up_units, units / 4] {
                let before = translation.copied_units();
                for _ in 0..counted_units {
                    step += 1;
                    translation.write(unit(mixed(step) % units));
                }
                let amplification = 1.0 + (translation.copied_units() - before) as f64 / counted_units as f64;
                if counted_units == units / 4 {
                    assert!((5.5..8.5).contains(&amplification), "{fill_scattered}: {amplification}");
                }
            }
        }
    }
}
