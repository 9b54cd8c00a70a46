//! gflash's destage: from memory, in the order of the origin.
//!
//! While memory has room (filling), nothing goes home as long as a client reads the origin, or writes; once it is full
//! (forced), it goes home whatever clients do.
//!
//! Source: gflash 14 of 2015, observed from outside (guide and logs). Of readers the guide speaks. Of writers the logs of
//! geomflash-2015 do: hardly anything goes home in jobs 6, 19 and 20, which write, and all that the disk can take in job 16,
//! which only reads the SSD. How long after a write that lasts is ours. That neighbours go together up to 256 KiB,
//! 16 runs at a time, is ours: what gflash does is unknown, but it writes faster than block by block.

use super::{Budget, HomeOrder, Join, Pressure};
use crate::units::Nanos;

/// Time after its last write for which a client counts as writing.
const WRITING_NS: u64 = 100 * Nanos::MILLISECOND;

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

    /// The runs that may be started now; a client's last write came at `last_write`.
    #[must_use]
    pub fn budget(&self, pressure: &Pressure, last_write: Option<Nanos>) -> Budget {
        let is_forced = pressure.is_memory_full || pressure.is_draining;
        if !is_forced && pressure.origin_reads > 0 {
            return Budget::rest(None);
        }
        let quiet = last_write.map(|last| last.plus(WRITING_NS));
        if !is_forced && let Some(quiet) = quiet.filter(|&quiet| pressure.now < quiet) {
            return Budget::rest(Some(quiet));
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
        let runs = |pressure: &Pressure| MirrorFillChoice::PUBLISHED.budget(pressure, None).runs;
        assert_eq!(runs(&filling), 13);
        assert_eq!(runs(&Pressure { origin_reads: 1, ..filling }), 0);
        assert_eq!(runs(&Pressure { origin_reads: 1, is_memory_full: true, ..filling }), 13);
        assert_eq!(runs(&Pressure { origin_reads: 1, is_draining: true, ..filling }), 13);
        assert_eq!(runs(&Pressure { runs: 20, ..filling }), 0);
        assert_eq!(runs(&Pressure { requests: 9, ..filling }), 13, "hits do not hold it up");
    }

    #[test]
    fn so_do_writers() {
        let at = |ms: u64| Nanos(ms * Nanos::MILLISECOND);
        let budget = |now: u64, is_memory_full: bool| {
            let pressure = Pressure { now: at(now), is_memory_full, ..Pressure::default() };
            MirrorFillChoice::PUBLISHED.budget(&pressure, Some(at(1000)))
        };
        assert_eq!(budget(1050, false), Budget::rest(Some(at(1100))));
        assert_eq!(budget(1100, false).runs, 16);
        assert_eq!(budget(1050, true).runs, 16);
    }
}
