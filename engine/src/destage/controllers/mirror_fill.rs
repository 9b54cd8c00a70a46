//! gflash's destage: from memory, in the order of the origin.
//!
//! While memory has room (filling), nothing goes home as long as a client reads the origin; once it is full
//! (forced), it goes home whoever reads.
//!
//! Source: gflash 14 of 2015, observed from outside (guide and logs). That neighbours go together up to 256 KiB,
//! 16 runs at a time, is ours: what gflash does is unknown, but it writes faster than block by block.

use super::{Budget, HomeOrder, Join, Pressure};

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorFillChoice {
    /// Runs on their way home at the same time; default 16.
    pub runs_max: u32,
    /// Neighbours of one run at the most; default 512 sectors.
    pub join_sectors: u32,
}

impl MirrorFillChoice {
    /// The defaults.
    pub const PUBLISHED: MirrorFillChoice = MirrorFillChoice { runs_max: 16, join_sectors: 512 };

    /// What may go home now.
    #[must_use]
    pub fn budget(&self, pressure: &Pressure) -> Budget {
        let is_forced = pressure.is_memory_full || pressure.is_draining;
        if !is_forced && pressure.origin_reads > 0 {
            return Budget::rest(None);
        }
        let runs = self.runs_max.saturating_sub(pressure.runs);
        let join = Join::Neighbours { sectors_max: self.join_sectors };
        Budget { join, ..Budget::runs(runs, HomeOrder::Address) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_the_origin_come_first_until_memory_is_full() {
        let filling = Pressure { runs: 3, ..Pressure::default() };
        let runs = |pressure: &Pressure| MirrorFillChoice::PUBLISHED.budget(pressure).runs;
        assert_eq!(runs(&filling), 13);
        assert_eq!(runs(&Pressure { origin_reads: 1, ..filling }), 0);
        assert_eq!(runs(&Pressure { origin_reads: 1, is_memory_full: true, ..filling }), 13);
        assert_eq!(runs(&Pressure { origin_reads: 1, is_draining: true, ..filling }), 13);
        assert_eq!(runs(&Pressure { runs: 20, ..filling }), 0);
        assert_eq!(runs(&Pressure { requests: 9, ..filling }), 13, "writes and hits do not hold it up");
    }
}
