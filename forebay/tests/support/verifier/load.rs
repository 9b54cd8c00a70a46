//! The load of a verifying client, drawn from a seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// The longest read or write in sectors: 128 KiB.
const SECTORS_MAX: u64 = 256;
/// The longest discard or write-zeroes in sectors: 1 MiB.
const RANGE_SECTORS_MAX: u64 = 2048;

/// How much is asked for, and what.
#[derive(Clone, Debug)]
pub struct Load {
    /// Operations in all, over all connections; `u64::MAX` for as long as the server lives.
    pub operations: u64,
    /// Requests under way at a time on each connection.
    pub depth: usize,
    /// Out of 100 operations, those that write; reads are what is left.
    pub writes: u32,
    /// Out of 100 operations, those that flush.
    pub flushes: u32,
    /// Out of 100 operations, those that discard.
    pub discards: u32,
    /// Out of 100 operations, those that write zeroes.
    pub zeroes: u32,
    /// Out of 100 changes, those that are FUA.
    pub fua: u32,
    /// Out of 100 operations, those in the hot eighth of the volume.
    pub hot: u32,
}

impl Load {
    /// A mixed load, half of it writes.
    pub fn mixed(operations: u64, depth: usize) -> Load {
        Load { operations, depth, writes: 50, flushes: 3, discards: 4, zeroes: 4, fua: 10, hot: 60 }
    }
}

/// What is done with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Discard,
    Zeroes,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub kind: Kind,
    /// First sector.
    pub start: u64,
    /// Sectors; 0 for a flush.
    pub sectors: u64,
    /// Durable before the reply.
    pub fua: bool,
}

/// Draws operations.
#[derive(Debug)]
pub struct Draw {
    generator: Xoshiro256PlusPlus,
    volume_sectors: u64,
}

impl Draw {
    pub fn new(seed: u64, volume_sectors: u64) -> Draw {
        Draw { generator: Xoshiro256PlusPlus::seed_from_u64(seed), volume_sectors }
    }

    /// The next operation; its range is a multiple of `unit_sectors`.
    pub fn next(&mut self, load: &Load, unit_sectors: u64) -> Operation {
        let kind = self.kind(load);
        if kind == Kind::Flush {
            return Operation { kind, start: 0, sectors: 0, fua: false };
        }
        let longest = match kind {
            Kind::Discard | Kind::Zeroes => RANGE_SECTORS_MAX,
            _ => SECTORS_MAX,
        };
        let units = self.volume_sectors / unit_sectors;
        let length = self.length((longest / unit_sectors).clamp(1, units));
        let hot_units = (units / 8).max(1);
        let is_hot = self.percent(load.hot);
        // The hot region lies inside the volume, not at its start, which is special to many.
        let (first, count) = if is_hot { (units / 3, hot_units) } else { (0, units) };
        let start = (first + self.generator.random_range(0..count)).min(units - length);
        let fua = kind != Kind::Read && self.percent(load.fua);
        Operation { kind, start: start * unit_sectors, sectors: length * unit_sectors, fua }
    }

    fn kind(&mut self, load: &Load) -> Kind {
        let mut ticket = self.generator.random_range(0..100);
        for (kind, share) in [
            (Kind::Write, load.writes),
            (Kind::Flush, load.flushes),
            (Kind::Discard, load.discards),
            (Kind::Zeroes, load.zeroes),
        ] {
            if ticket < share {
                return kind;
            }
            ticket -= share;
        }
        Kind::Read
    }

    /// A length with all orders of magnitude alike, and whole 4 KiB blocks as often as odd ones.
    fn length(&mut self, longest: u64) -> u64 {
        let order = self.generator.random_range(0..=longest.ilog2());
        let length = 1 << order;
        let odd = if self.percent(50) { self.generator.random_range(0..length) } else { 0 };
        (length + odd).min(longest)
    }

    fn percent(&mut self, share: u32) -> bool {
        self.generator.random_range(0..100) < share
    }
}
