//! The cutoff: requests that bypass the cache before admission is asked. Sequential runs, and any run while the cache
//! device is congested.
//!
//! Stands in front of any admission. The parts are in [`runs`](super::runs) and
//! [`congestion`](super::congestion); this file has their order, which is bcache's.

use super::congestion::{Congestion, CongestionChoice};
use super::runs::{Runs, RunsChoice};
use super::{Asked, Reason};
use crate::policies::replacement::Access;
use crate::units::Nanos;

/// The parts that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutoffChoice {
    /// Requests that do not begin and end at multiples of this many sectors bypass the cache; a power of two, 1 to
    /// 4096; 0: none for this reason. Bcache: its block size.
    pub aligned_sectors: u32,
    /// Counts runs.
    pub runs: Option<RunsChoice>,
    /// Listens to the cache device; needs `runs`.
    pub congestion: Option<CongestionChoice>,
}

/// Runs and congestion.
#[derive(Clone, Debug)]
pub struct Cutoff {
    aligned_sectors: u32,
    runs: Option<Runs>,
    congestion: Option<Congestion>,
}

impl Cutoff {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(choice: CutoffChoice) -> Cutoff {
        assert!(choice.aligned_sectors == 0 || choice.aligned_sectors.is_power_of_two());
        assert!(choice.congestion.is_none() || choice.runs.is_some(), "congestion limits runs");
        Cutoff {
            aligned_sectors: choice.aligned_sectors,
            runs: choice.runs.map(Runs::new),
            congestion: choice.congestion.map(Congestion::new),
        }
    }

    /// The reason why a request bypasses the cache; `None`: it does not. Asked once for every request, hit or miss,
    /// before anything else. `random`: 32 random bits.
    #[inline]
    pub fn decide(&mut self, asked: &Asked, random: impl FnOnce() -> u32) -> Option<Reason> {
        if self.aligned_sectors > 0 {
            let odd = (asked.range.start | asked.range.sectors) & u64::from(self.aligned_sectors - 1);
            if odd != 0 {
                return Some(Reason::Unaligned);
            }
        }
        let limit = self.congestion.as_ref().and_then(|congestion| congestion.limit_sectors(asked.now));
        self.runs.as_mut()?.decide(asked, limit, random)
    }

    /// Takes the latency `latency_ns` of the cache device's answer to a client's request.
    #[inline]
    pub fn device_answered(&mut self, access: Access, latency_ns: u64, now: Nanos) {
        if let Some(congestion) = &mut self.congestion {
            congestion.device_answered(access, latency_ns, now);
        }
    }
}

#[cfg(test)]
#[path = "cutoff_tests.rs"]
mod tests;
