//! Advice from a trace: how much cache, and which replacement policy.
//!
//! * The miss-ratio curve of LRU is exact: stack distances, counted with a tree ([`distances`]).
//! * The other policies of [`engine::policies::replacement`] are simulated on a sample, scaled down: only blocks whose
//!   hash is below a threshold are looked at, in a cache that is smaller in the same proportion. What that
//!   costs in exactness is measured on LRU, where the truth is known, and told ([`SampleError`]).
//! * Latency and wear follow from hits and misses ([`Point`]), with the service times of modelled disks.
//!
//! Without a sample, and at sizes of one's own, all policies are exact: so they can be held against other simulators.
//!
//! A load that goes on has a curve of its own kind, in memory that has a bound ([`Ongoing`]).
//!
//! Blocks are 4 KiB; reads and writes alike are accesses; the cache begins empty, takes in whatever is
//! missed, and writes to it stay in it (writeback). Discards are passed over. What a cache needs of its device
//! for itself is not counted.
//!
//! Sources: C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad, "Efficient MRC Construction with SHARDS", FAST
//! 2015 (sampling by hash, and its correction for blocks that are sampled too often or too seldom);
//! C. Waldspurger, T. Saemundsson, I. Ahmad, N. Park, "Cache Modeling and Optimization using Miniature
//! Simulations", USENIX ATC 2017 (the other policies).

mod advice;
mod advise;
mod buckets;
pub mod distances;
mod exact;
mod frames;
mod ongoing;
mod plot;
mod policy;
mod recommend;
mod sample;
mod service;

pub use advice::{Advice, Curve, Point, SampleError};
pub use advise::{Options, advise};
pub use ongoing::{Ongoing, Reuse, SizePoint};
pub use plot::plot;
pub use policy::{Compared, POLICIES};
pub use recommend::Recommendation;
pub use service::Service;

use engine::policies::replacement::Access;

/// Accesses to blocks, or hits among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

impl Counts {
    /// Both.
    #[must_use]
    pub fn all(self) -> u64 {
        self.reads + self.writes
    }

    fn add(&mut self, access: Access) {
        self.add_many(access, 1);
    }

    fn add_many(&mut self, access: Access, many: u64) {
        match access {
            Access::Read => self.reads += many,
            Access::Write => self.writes += many,
        }
    }

    /// The sum of these and others.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts { reads: self.reads + other.reads, writes: self.writes + other.writes }
    }
}

#[cfg(test)]
mod tests;
