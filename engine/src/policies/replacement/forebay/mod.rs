//! `forebay`: what each block is worth is learned from when blocks like it came back.
//!
//! No fixed rule fits all loads. Recency fails on loops that are larger than the cache, frequency fails where the hot set
//! moves, and a queue that keeps newcomers out fails where newcomers are what is read next. So nothing is assumed:
//!
//! * A sample of all blocks, cached or not, is watched ([`watch`]). It tells after how many accesses a block came back, or
//!   that it did not, for each class of blocks: by the distance between its last two accesses, and by its count of recent
//!   accesses.
//! * From these times follows what a block of a class and an age is worth ([`lessons`]): the hits that it will bring for
//!   each access to the cache for which it keeps its place, if it is dropped at the best time from now. In a loop the
//!   worth rises with age, so newcomers stay out and some of the loop stays in; where reuse is near, worth falls with age,
//!   and the order is that of LRU.
//! * Where there is little evidence, a block is believed to come back the likelier the more often it was used.
//! * What was learned is measured against recency, which is used instead where it has more hits ([`duel`]).
//! * A bar divides what stays from what leaves: the least worth among a few cached blocks that are drawn at random, averaged
//!   over time. What is below it does not enter, and leaves when the ring comes round to it. A ring of segments needs no
//!   more than that: no order among blocks is kept, and a hit moves nothing.
//!
//! | part | RAM |
//! | --- | --- |
//! | [`Mark`]: last access, class, count; kept by the store beside the block's address | 24 bits for each cached block |
//! | [`ghosts`]: the marks of as many blocks that left | 4 bytes for each block of the size |
//! | [`watch`]: at most 16 384 blocks | 350 KiB at most |
//! | [`lessons`]: times and worths by class and age | 29 KiB |
//! | [`duel`]: two caches of 1 024 blocks without their content | 80 KiB at most |
//!
//! An access takes a constant number of steps, but for the lesson each quarter of the cache's size in accesses (sooner in the
//! beginning): 30 000 to 50 000 times a few integer operations.
//!
//! The store drives it:
//!
//! 1. every access: [`Forebay::accessed`];
//! 2. a hit: the block's mark becomes [`Forebay::hit`]; nothing moves on the device;
//! 3. a miss: the newcomer's mark is [`Forebay::arrives`]; it enters if there is room or [`Forebay::enters`] says so, and
//!    else [`Forebay::left`] remembers it;
//! 4. reclaim of the oldest segment: what [`Forebay::stays`] is appended again, the rest leaves ([`Forebay::left`]). At
//!    each fourth miss of a full cache the marks of [`SAMPLE_BLOCKS`] cached blocks at random go to [`Forebay::gauge`].
//!
//! [`ring`] does so for a cache without a device. The sample is what trades SSD writes for hits: the bar is about the share
//! `1 / SAMPLE_BLOCKS` of the cached blocks high, so the ring appends up to that many blocks again for each one that leaves.
//!
//! Sources: N. Beckmann, D. Sanchez, "Maximizing Cache Performance Under Uncertainty", HPCA 2017, and N. Beckmann, H. Chen,
//! A. Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit Density", NSDI 2018 (worth by age, learned by class); J. Gittins,
//! "Bandit Processes and Dynamic Allocation Indices", 1979 (the best time to stop); E. Kaplan, P. Meier, "Nonparametric
//! Estimation from Incomplete Observations", 1958 (blocks that did not come back yet); C. Waldspurger et al., "Efficient MRC
//! Construction with SHARDS", FAST 2015 (the sample by hash); S. Jiang, X. Zhang, "LIRS", SIGMETRICS 2002 (the distance
//! between the last two accesses tells the next one); G. Einziger, R. Friedman, B. Manes, "TinyLFU", 2017 (counts that are
//! halved); C. Waldspurger et al., "Cache Modeling and Optimization using Miniature Simulations", USENIX ATC 2017 (small caches
//! of a sample that are measured against each other). How they are put together, and the bar, are ours.

mod blocks;
mod duel;
mod evidence;
mod ghosts;
mod judge;
mod lessons;
pub mod ring;
#[cfg(test)]
mod tests;
mod watch;

use crate::number::{index, low_u32, to_u8};
use crate::units::PieceKey;
use duel::Duel;
use evidence::Evidence;
use judge::{Judge, Memory};

/// Blocks whose marks are shown to [`Forebay::gauge`], if nobody says otherwise.
pub const SAMPLE_BLOCKS: u32 = 16;

/// The policy's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForebayChoice {
    /// Cached blocks that are drawn at random at a time; the least worth of them moves the bar.
    pub draw_blocks: u32,
}
/// Accesses of a block that are counted, at most.
const COUNT_MAX: u32 = 15;

const STAMP_BITS: u32 = 15;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
const CLASS_BITS: u32 = 5;

/// Time in units of accesses.
#[derive(Clone, Copy, Debug)]
struct Time {
    /// Accesses so far.
    accesses: u64,
    /// Accesses of a unit, as a power of two.
    unit_log: u32,
    /// Units of an era.
    era_units: u32,
}

impl Time {
    fn units(self) -> u32 {
        low_u32(self.accesses >> self.unit_log)
    }

    /// The count of accesses of a block that was last used `age` units ago: halved for each era that began since.
    fn aged(self, count: u32, age: u32) -> u32 {
        let now = self.accesses >> self.unit_log;
        let then = now.saturating_sub(u64::from(age));
        let era_units = u64::from(self.era_units);
        let eras = now / era_units - then / era_units;
        count >> low_u32(eras.min(u64::from(u32::BITS - 1)))
    }
}

/// Counts of accesses that levels stand for.
const LEVEL_COUNTS: [u64; 5] = [1, 2, 3, 7, 12];
/// Levels of distance.
const DISTANCES: u32 = 6;

/// Class of blocks that are taken for alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class(u8);

impl Class {
    /// Number of classes.
    const COUNT: usize = 31;
    /// Blocks of which no earlier access is known.
    const NEW: Class = Class(0);

    /// The class of a block that came back after `distance` units and has `count` recent accesses.
    ///
    /// Distances are told apart by two octaves, from 1/16 of the size to 16 times and more; counts by five levels.
    fn of(distance: u32, count: u32, size_units: u32) -> Class {
        let parts = (u64::from(distance) * 64 / u64::from(size_units)).max(1);
        let octaves = (parts.ilog2() / 2).min(DISTANCES - 1);
        let level = match count {
            0..=1 => 0,
            2 => 1,
            3..=4 => 2,
            5..=9 => 3,
            _ => 4,
        };
        Class(to_u8(1 + octaves + DISTANCES * level))
    }

    /// The count of accesses for which the class stands.
    fn typical_count(self) -> u64 {
        let level = u32::from(self.0).saturating_sub(1) / DISTANCES;
        LEVEL_COUNTS[index(level)]
    }
}

/// Memory of a block: the time of its last access, its class, its count of accesses. 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

impl Mark {
    /// Its 24 bits.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 3] {
        let [low, middle, high, _] = self.0.to_le_bytes();
        [low, middle, high]
    }

    /// The mark of these bits, which [`Mark::to_bytes`] gave.
    #[must_use]
    pub fn of_bytes([low, middle, high]: [u8; 3]) -> Mark {
        Mark(u32::from_le_bytes([low, middle, high, 0]))
    }

    fn new(now: Time, class: Class, count: u32) -> Mark {
        assert!(count <= COUNT_MAX, "a count has four bits");
        let stamp = now.units() & STAMP_MASK;
        Mark(stamp | (u32::from(class.0) << STAMP_BITS) | (count << (STAMP_BITS + CLASS_BITS)))
    }

    /// Units since the last access. A block that nobody wanted for 128 sizes looks young again: by then the ring came
    /// round to it many times.
    fn age(self, now: Time) -> u32 {
        now.units().wrapping_sub(self.0) & STAMP_MASK
    }

    fn class(self) -> Class {
        Class(to_u8((self.0 >> STAMP_BITS) & ((1 << CLASS_BITS) - 1)))
    }

    fn count(self) -> u32 {
        self.0 >> (STAMP_BITS + CLASS_BITS)
    }
}

/// Worth of a block, as a number that can be compared with others of the same [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worth(u32);

/// The order by which blocks are valued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The hits that a block will bring for each unit of time in the cache, as lessons have it.
    Learned,
    /// How recently it was used.
    Recency,
}

/// The policy's memory. Takes all that it will ever have when it is made.
#[derive(Clone, Debug)]
pub struct Forebay {
    evidence: Evidence,
    memory: Memory,
    duel: Duel,
}

impl Forebay {
    /// Nothing was seen yet, in a cache of `size_blocks`.
    #[must_use]
    pub fn new(size_blocks: u32) -> Forebay {
        assert!(size_blocks > 0, "a cache has blocks");
        Forebay {
            evidence: Evidence::new(size_blocks),
            memory: Memory::new(size_blocks),
            duel: Duel::new(size_blocks),
        }
    }

    /// A request asks for `block`; `cached` gives its mark if it is cached. Called before anything else of that access.
    pub fn accessed(&mut self, block: PieceKey, cached: impl FnOnce() -> Option<Mark>) {
        let Forebay { evidence, memory, duel } = self;
        let class = |evidence: &Evidence| {
            cached().map_or_else(|| memory.newcomer(block, evidence), |mark| evidence.hit(mark)).class()
        };
        evidence.accessed(block, class);
        duel.accessed(block, evidence);
    }

    /// The mark of a cached block after a hit.
    #[must_use]
    pub fn hit(&self, mark: Mark) -> Mark {
        self.evidence.hit(mark)
    }

    /// The mark of `block`, which is not cached. Ghosts forget it: they tell of blocks that are not cached.
    pub fn arrives(&mut self, block: PieceKey) -> Mark {
        self.judge().arrives(block)
    }

    /// Worth of a block with this mark.
    #[must_use]
    pub fn worth(&self, mark: Mark) -> Worth {
        self.evidence.worth(mark, self.duel.order())
    }

    /// Whether a newcomer enters a full cache. Of equals the newcomer wins: without evidence, that is FIFO.
    #[must_use]
    pub fn enters(&self, newcomer: Mark) -> bool {
        self.memory.bar.lets_in(self.worth(newcomer))
    }

    /// Whether a cached block stays when reclaim comes to it.
    #[must_use]
    pub fn stays(&self, mark: Mark) -> bool {
        self.memory.bar.keeps(self.worth(mark))
    }

    /// `block` was dropped, or not let in.
    pub fn left(&mut self, block: PieceKey, mark: Mark) {
        self.judge().left(block, mark);
    }

    /// Moves the bar towards the least worth of some cached blocks that were drawn at random.
    pub fn gauge(&mut self, drawn: impl Iterator<Item = Mark>) {
        self.judge().gauge(drawn);
    }

    fn judge(&mut self) -> Judge<'_> {
        Judge { evidence: &self.evidence, memory: &mut self.memory, order: self.duel.order() }
    }
}
