//! dm-cache's second promotion: pieces in hot regions enter.
//!
//! Source: the smq policy of dm-cache, in our own words: 1.0 (Linux 4.2 to 4.11) and 2.0 (4.12 and
//! later), both read.
//!
//! Regions of up to 16 pieces stand in a queue of 64 levels; one that is used rises. A miss enters if
//! its region's level reaches the promote level, which follows at each tick from how well the queue
//! foretells (accesses in its upper quarter), and in 1.0 from how well the cache does: most enters
//! when it does neither well nor badly. As published, 2.0 overrides that part, and 1.0 with a full
//! cache and a poor queue may admit nothing at all.
//!
//! | | 1.0 | 2.0 |
//! | --- | --- | --- |
//! | regions rise by | all accesses | misses |
//! | promote level (well, fair, poor), free frames | 32, 48, 56; writes 2 more | 0, 32, 48 |
//! | the same, full cache | 56 to 63, 60 to 64, 62 to 64; writes 2 more | 0, 32, 48 |
//! | a fast write with free frames enters | for the time being | as any other |
//!
//! In 1.0 as published a request that would enter is shown to the policy twice, so that its region is
//! counted twice; that is not imitated.

use super::{Asked, Reason, Sizes, Verdict};
use crate::number::{index, index_wide, to_u32};
use crate::policies::replacement::smq::SmqVersion;
use crate::policies::replacement::{Access, Standing};
use crate::table::key_index::KeyIndex;
use crate::table::level_lists::{Displaced, End, LEVELS, LevelLists, TopShare};
use crate::units::{Nanos, PieceKey};
use alloc::vec;
use alloc::vec::Vec;

/// Pieces of the largest region.
const REGION_PIECES_MAX: u64 = 16;
/// Regions that are remembered at the least.
const REGIONS_MIN: u32 = 1024;
/// Levels at the top that have a share of their own.
const TOP_LEVELS: u32 = 8;
/// The level from which an access counts as foretold.
const FORETOLD_LEVEL: u32 = LEVELS * 3 / 4;
/// Period after which jumps are chosen anew and levels set right.
const PERIOD_NS: u64 = Nanos::SECOND;
/// The number of levels that admit with a full cache, by sixteenths of accesses that the cache foretold.
const FULL_CACHE_LEVELS: [u32; 17] = [1, 1, 1, 2, 4, 6, 7, 8, 7, 6, 4, 4, 3, 3, 2, 2, 1];
/// The only queue.
const REGIONS: u32 = 0;

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmqHotspotChoice {
    /// The version of smq; default 2.0. Replacement has the same.
    pub version: SmqVersion,
}

/// Quality of the queue's forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Foresight {
    Poor,
    Fair,
    Well,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct SmqHotspot {
    version: SmqVersion,
    /// Regions by level and use.
    queue: LevelLists,
    index: KeyIndex,
    /// The region of each entry.
    regions: Vec<u64>,
    /// The tick in which an entry was last raised, by entry.
    raised_at: Vec<u32>,
    /// Entries in use; the others follow.
    used: u32,
    /// Pieces of a region, as a power of two.
    region_shift: u32,
    /// Never 0, which stands for "in no tick".
    tick: u32,
    jump: u32,
    hits: u32,
    misses: u32,
    read_level: u32,
    write_level: u32,
    period_end: Nanos,
}

impl SmqHotspot {
    /// A policy that has seen nothing: until the first tick nothing enters.
    #[must_use]
    pub fn new(choice: SmqHotspotChoice, sizes: Sizes) -> SmqHotspot {
        let entries = (sizes.frames / 4).max(REGIONS_MIN);
        let mut region_pieces = REGION_PIECES_MAX;
        while region_pieces > 1 && region_pieces * u64::from(entries) > sizes.origin_pieces {
            region_pieces /= 2;
        }
        let top_entries = (entries / LEVELS).min(sizes.frames / to_u32(region_pieces));
        SmqHotspot {
            version: choice.version,
            queue: LevelLists::new(entries, 1, false, TopShare { levels: TOP_LEVELS, entries: top_entries }),
            index: KeyIndex::new(entries),
            regions: vec![0; index(entries)],
            raised_at: vec![0; index(entries)],
            used: 0,
            region_shift: region_pieces.trailing_zeros(),
            tick: 1,
            jump: 1,
            hits: 0,
            misses: 0,
            read_level: LEVELS,
            write_level: LEVELS,
            period_end: Nanos(0),
        }
    }

    /// Notes a request.
    pub fn seen(&mut self, asked: &Asked, is_hit: bool) {
        if is_hit && self.version == SmqVersion::Two {
            return;
        }
        match self.find(asked.piece) {
            Some(entry) => self.raise(entry),
            None => self.enter(asked.piece),
        }
    }

    /// Decides on a miss.
    pub fn decide(&mut self, asked: &Asked, standing: &Standing) -> Verdict {
        let entry = self.find(asked.piece).expect("a region that was just seen is remembered");
        let is_write = asked.access == Access::Write;
        let is_given = is_write && asked.is_fast() && standing.free > 0;
        let level_needed = if is_write { self.write_level } else { self.read_level };
        if !is_given && self.queue.level(entry) < level_needed {
            Verdict::Pass(Reason::NotYet)
        } else if !asked.may_promote {
            Verdict::Pass(Reason::CopiesInFlight)
        } else {
            let is_temporary = is_given && self.version == SmqVersion::One;
            Verdict::Admit { hits: 1, is_temporary, is_returning: false }
        }
    }

    /// Notes that a request ended, or a second went by.
    pub fn tick(&mut self, standing: &Standing, now: Nanos) {
        // After 2^32 ticks an entry may miss one rise.
        self.tick = self.tick.checked_add(1).unwrap_or(1);
        self.choose_levels(standing);
        if now > self.period_end {
            self.jump = match self.foresight() {
                Foresight::Poor => 4,
                Foresight::Fair => 2,
                Foresight::Well => 1,
            };
            let surplus_to = match self.version {
                SmqVersion::One => End::Front,
                SmqVersion::Two => End::Back,
            };
            self.queue.redistribute(REGIONS, surplus_to);
            (self.hits, self.misses) = (0, 0);
            self.period_end = now.plus(PERIOD_NS);
        }
    }

    /// Notes another use of a region.
    fn raise(&mut self, entry: u32) {
        if self.queue.level(entry) >= FORETOLD_LEVEL {
            self.hits = self.hits.saturating_add(1);
        } else {
            self.misses = self.misses.saturating_add(1);
        }
        let was_raised = self.raised_at[index(entry)] == self.tick;
        self.raised_at[index(entry)] = self.tick;
        self.queue.rise(REGIONS, entry, if was_raised { 0 } else { self.jump }, Displaced::Back);
    }

    /// Remembers a region on its first use: it takes a free entry, at the bottom, or the place and the level of the
    /// least recently used one of the lowest level.
    fn enter(&mut self, piece: PieceKey) {
        self.misses = self.misses.saturating_add(1);
        let entry = if index(self.used) < self.regions.len() {
            self.used += 1;
            self.used - 1
        } else {
            let entry = self.queue.pop(REGIONS).expect("all entries are in the queue");
            let regions = &self.regions;
            self.index.remove(regions[index(entry)], |entry| regions[index(entry)]);
            self.raised_at[index(entry)] = 0;
            entry
        };
        let region = self.region(piece);
        self.regions[index(entry)] = region;
        self.index.insert(region, entry);
        self.queue.push(REGIONS, self.queue.level(entry), End::Back, entry);
    }

    /// Chooses the levels from which misses enter until the next tick.
    fn choose_levels(&mut self, standing: &Standing) {
        let by_cache = if standing.free > 0 {
            LEVELS / 2
        } else {
            let (hits, misses) = (u64::from(standing.level_hits), u64::from(standing.level_misses));
            let sixteenths = (hits * 16).checked_div(hits + misses).unwrap_or(0);
            FULL_CACHE_LEVELS[index_wide(sixteenths)]
        };
        let (most, write_extra) = match self.version {
            SmqVersion::One => (by_cache, 2),
            // As published: a bound from below, which no value of the table reaches.
            SmqVersion::Two => (by_cache.max(LEVELS), 0),
        };
        let admitting = match self.foresight() {
            Foresight::Poor => most / 4,
            Foresight::Fair => most / 2,
            Foresight::Well => most,
        };
        self.read_level = LEVELS - admitting;
        self.write_level = self.read_level + write_extra;
    }

    fn foresight(&self) -> Foresight {
        let (hits, misses) = (u64::from(self.hits), u64::from(self.misses));
        match (hits * 256).checked_div(hits + misses).unwrap_or(0) {
            0..16 => Foresight::Poor,
            16..32 => Foresight::Fair,
            _ => Foresight::Well,
        }
    }

    fn find(&self, piece: PieceKey) -> Option<u32> {
        self.index.find(self.region(piece), |entry| self.regions[index(entry)])
    }

    /// The region's number; regions of two volumes differ, because a volume's bits stay above.
    fn region(&self, piece: PieceKey) -> u64 {
        piece.0 >> self.region_shift
    }
}

#[cfg(test)]
#[path = "smq_hotspot_tests.rs"]
mod tests;
